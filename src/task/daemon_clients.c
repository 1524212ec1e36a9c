/* daemon_clients.c - the connections of the daemon: sending without waiting, reading, and
 * what follows from a death.
 *
 *     client_new() ──▶ welcomed ──▶ dying ──▶ ended
 *                                     │ its pidfd is readable, or it has said good-bye
 *                                     └── buried when its wait status is known, or was
 *                                         awaited for REAP_WAIT_NS
 *
 * Sending. A message goes out at once when the outbox is empty and the socket takes it;
 * else it waits in the outbox, with copies of its descriptors, and nothing overtakes it. The
 * loop tells when a full socket takes messages again; where the system was short of memory
 * (d->is_short) it is tried every few milliseconds. A message that can neither be sent nor
 * kept ends the client (client_cut()): one that has missed a message would wait for ever.
 *
 * Reading. client_drain() reads as much as had come when it began, so that one client cannot
 * keep the daemon for itself. Whatever a message says is checked; one of unknown kind is
 * logged and forgotten.
 *
 * Death, client_end(), in this order: what it had sent is read; its peers are told why it
 * died; its promises are broken, its segments left, its holds dropped; then the scheduler and
 * the registry hear of it, which may place, restart or kill others. The client is out of the
 * table before they do, so that nothing is sent to it any more. */
#include "task/daemon.h"

#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/sys.h"
#include "task/worker_trace.h"

#define REAP_WAIT_NS                                                                                         \
    1000000000 /* how long to wait for the reason of a death, which a nursery may be slow to tell */
#define STATUS_UNKNOWN (-1)
#define SPARE_FILES    64

/* ---- sending ---- */

static void on_client(void *ctx, int fd, bool readable, bool writable);

client *daemon_client(node *d, uint32_t id)
{
    client **c = map_u64_find(&d->clients, id);

    return c ? *c : NULL;
}

bool letter_make(const buf *bytes, const int *fds, int n_fds, letter *out)
{
    *out = (letter){.n_fds = 0};
    for (; out->n_fds < n_fds; out->n_fds++) {
        out->fds[out->n_fds] = dup(fds[out->n_fds]);
        if (out->fds[out->n_fds] < 0) {
            letter_release(out);
            (void)proc_fail_files("a message cannot wait for its receiver");
            return false;
        }
    }
    buf_add(&out->bytes, bytes->at, bytes->n);
    return true;
}

void letter_release(letter *l)
{
    buf_release(&l->bytes);
    socket_close_all(l->fds, l->n_fds);
}

/* A client cannot be told something, and would wait for it: this thread's last error
 * says why. A worker's death is something that everyone knows how to deal with; a
 * driver sees the end of its connection. */
static void client_cut(client *c)
{
    log_error("a process cannot be talked to any more: its part in the node ends", LOG_INT("pid", c->pid),
              LOG_STR("why", manta_error_text()));
    if (c->is_worker)
        proc_signal(c->pidfd, SIGKILL);
    else
        (void)shutdown(c->fd, SHUT_RDWR);
}

/* What does not go now is sent when the client takes messages again, which the loop
 * tells, or after a moment, when the system was short of memory. */
static void watch_outbox(node *d, client *c, manta_status st)
{
    if (st == MANTA_ENOMEM) {
        d->is_short = true;
        return;
    }
    if (loop_watch(d->loop, c->fd, true, on_client, d)) client_cut(c);
}

void daemon_send_fds(node *d, client *c, const int *fds, int n_fds)
{
    manta_status st = MANTA_EBUSY;
    letter l;

    if (c->fd < 0) return;
    if (c->outbox.n == 0) st = socket_send(c->fd, d->out.at, d->out.n, fds, n_fds, false);
    if (!st || st == MANTA_EDIED) return; /* it is dead, which its pidfd tells */
    if ((st != MANTA_EBUSY && st != MANTA_ENOMEM) || !letter_make(&d->out, fds, n_fds, &l)) {
        client_cut(c);
        return;
    }
    vec_push(&c->outbox, l);
    if (c->outbox.n == 1) watch_outbox(d, c, st);
}

void daemon_send(node *d, client *c)
{
    daemon_send_fds(d, c, NULL, 0);
}

static void flush_outbox(node *d, client *c)
{
    while (c->outbox.n > 0) {
        letter *l = &c->outbox.at[0];
        manta_status st = socket_send(c->fd, l->bytes.at, l->bytes.n, l->fds, l->n_fds, false);
        if (st == MANTA_EBUSY || st == MANTA_ENOMEM) {
            /* Without memory the connection would be called writable all the time. */
            if (st == MANTA_ENOMEM && loop_watch(d->loop, c->fd, false, on_client, d)) client_cut(c);
            watch_outbox(d, c, st);
            return;
        }
        if (st && st != MANTA_EDIED) client_cut(c);
        letter_release(l);
        vec_remove(&c->outbox, 0);
    }
    if (loop_watch(d->loop, c->fd, false, on_client, d)) client_cut(c);
}

void daemon_send_again(node *d)
{
    d->is_short = false;
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->outbox.n > 0) flush_outbox(d, d->clients.at[i].value);
    daemon_send_forks(d);
}

void daemon_kill(node *d, uint32_t id)
{
    client *c = daemon_client(d, id);

    if (!c) return;
    c->is_killed = true;
    proc_signal(c->pidfd, SIGKILL);
}

/* ---- the other requests ---- */

static void on_cancel(node *d, wire *w)
{
    uint32_t worker = wire_u32(w);
    uint64_t task = wire_u64(w);
    uint32_t how = wire_u32(w);
    client *c = daemon_client(d, worker);

    if (wire_end(w, "cancel") || !c || !c->is_worker) return;
    if (how & MANTA_CANCEL_FORCE) { /* the workers it has leased end with it */
        daemon_kill(d, worker);
        return;
    }
    proto_begin(&d->out, PROTO_CANCEL_TASK);
    wire_put_u64(&d->out, task);
    wire_put_u32(&d->out, how);
    daemon_send(d, c);
}

/* A client cannot reach another, which is ended: of a worker this is told; who
 * cannot reach a driver ends itself, for the driver is nobody's to end. */
static void on_unreachable(node *d, client *c, wire *w)
{
    char why[sizeof c->refusal];
    client *x = daemon_client(d, wire_u32(w));
    bool no_room = wire_u32(w) != 0;

    wire_text(w, why, sizeof why);
    if (wire_end(w, "unreachable") || !x) return;
    if (!x->is_worker) x = c;
    if (!x->is_worker) return;
    daemon_kill(d, x->id);
    if (!no_room) {
        log_error("a process is ended: it cannot be reached", LOG_INT("pid", x->pid), LOG_STR("why", why));
        return;
    }
    /* At once, and not with its death: nobody is to get it any more, and who calls the
     * actor in it hears the reason before that death. */
    memcpy(x->refusal, why, sizeof why);
    daemon_act(d, (sched_event){.kind = SCHED_WORKER_GONE, .worker = x->id});
    if (registry_number_in(d->registry, x->id))
        daemon_refuse_actor(d, registry_number_in(d->registry, x->id), why);
    daemon_start_failed(d, x->job, x->environment, START_SCARCE, MANTA_ENOSPC, why);
}

static void worker_up(node *d, const client *c)
{
    daemon_act(d,
               (sched_event){
                   .kind = SCHED_WORKER_UP, .worker = c->id, .job = c->job, .environment = c->environment});
}

/* A new worker is ready: of one whose hook could have refused nobody knew yet. */
static void on_ready(node *d, client *c)
{
    bool is_new = c->is_awaited && !c->is_ready;

    c->is_ready = true;
    daemon_registry(d, (registry_event){.kind = REGISTRY_WORKER_READY, .job = c->job});
    if (is_new) worker_up(d, c);
}

/* A new worker says why it cannot be one, and ends: so would the next. */
static void on_not_ready(node *d, client *c, wire *w)
{
    char why[sizeof c->refusal];
    manta_status code = (manta_status)wire_u32(w);

    wire_text(w, why, sizeof why);
    if (wire_end(w, "reason") || !c->is_awaited || c->is_ready || c->refusal[0] || !why[0]) return;
    if (code <= MANTA_OK || code > MANTA_EINTERRUPTED) code = MANTA_EINTERNAL;
    memcpy(c->refusal, why, sizeof why);
    daemon_start_failed(d, c->job, c->environment, START_REFUSED, code, why);
}

static void on_info(node *d, client *c, wire *w)
{
    uint64_t request = wire_u64(w);
    sched_shape total = sched_total(d->sched), left = sched_left(d->sched);
    const job *j = daemon_job(d, c->job);
    uint32_t n = 0;

    if (wire_end(w, "info")) return;
    buf *b = proto_begin(&d->out, PROTO_INFO_IS);
    wire_put_u64(b, request);
    wire_put_u32(b, (uint32_t)getpid());
    wire_put_u32(b, (uint32_t)d->keeper);
    wire_put_u32(b, (uint32_t)(j ? j->forkers[FORKER_FIRST].pid : 0));
    daemon_put_shape(b, &total);
    daemon_put_shape(b, &left);
    wire_put_u32(b, (uint32_t)sched_workers(d->sched));
    wire_put_u32(b, (uint32_t)registry_actors(d->registry));
    wire_put_u32(b, (uint32_t)sched_leases(d->sched));
    wire_put_u64(b, directory_count(d->objects));
    spill_usage use = spill_use(d->spill);
    wire_put_u64(b, d->config.store_limit);
    wire_put_u64(b, use.memory);
    wire_put_u64(b, use.disk);
    wire_put_u64(b, use.written);
    wire_put_u64(b, use.read);
    for (size_t i = 0; i < d->clients.n; i++) n += d->clients.at[i].value->is_worker;
    wire_put_u32(b, n);
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->is_worker) wire_put_u32(b, (uint32_t)d->clients.at[i].value->pid);
    wire_put_text(b, d->socket_path);
    daemon_send(d, c);
}

/* A driver leaves: a node of its own ends, one that it joined goes on. */
static void on_shutdown(node *d, client *c, wire *w)
{
    uint64_t request = wire_u64(w);

    if (wire_end(w, "shutdown") || c->is_worker) return;
    if (c->pid == d->driver) {
        d->stop = true;
        return;
    }
    buf *b = proto_begin(&d->out, PROTO_FOUND);
    wire_put_u64(b, request);
    wire_put_u32(b, MANTA_OK);
    wire_put_u64(b, registry_job_stays(d->registry, c->job));
    wire_put_text(b, "");
    daemon_send(d, c);
    c->dying = true;
    c->died_ns = clock_now_ns();
}

/* What the actor had is free, and who calls it hears of its end; its process is nobody's. */
static void on_lingers(node *d, const client *c, wire *w)
{
    if (wire_end(w, "lingers") || !c->is_worker) return;
    daemon_act(d, (sched_event){.kind = SCHED_WORKER_GONE, .worker = c->id});
    daemon_actor_lost(d, c);
}

/* A lease ends. A worker that was killed meanwhile, by a cancel that came too late, is nobody's any
 * more: given to an actor it would take that along. */
static void worker_returned(node *d, const client *c, uint32_t id)
{
    const client *x = daemon_client(d, id);
    bool dies = x && (x->is_killed || x->dying) && sched_holder(d->sched, id) == c->id;

    daemon_act(d,
               (sched_event){.kind = dies ? SCHED_WORKER_GONE : SCHED_RETURN, .client = c->id, .worker = id});
}

void daemon_message(node *d, client *c, wire *w)
{
    proto_kind kind = proto_kind_of(w);

    if (daemon_starved_message(d, c, kind, w) || daemon_memory_message(d, c, kind, w) ||
        daemon_objects_message(d, c, kind, w) || daemon_actors_message(d, c, kind, w) ||
        daemon_groups_message(d, c, kind, w) || daemon_code_message(d, c, kind, w))
        return;
    switch (kind) {
    case PROTO_DEMAND: {
        sched_shape shape = daemon_take_shape(w);
        int64_t n = wire_i64(w);
        uint64_t demand = wire_u64(w);
        if (!wire_end(w, "demand") && daemon_has_environment(d, c->job, shape.environment))
            daemon_act(d, (sched_event){.kind = SCHED_DEMAND,
                                        .client = c->id,
                                        .job = c->job,
                                        .shape = shape,
                                        .n = n,
                                        .demand = demand});
        break;
    }
    case PROTO_RETURN: {
        uint32_t worker = wire_u32(w);
        if (!wire_end(w, "return")) worker_returned(d, c, worker);
        break;
    }
    case PROTO_RETIRE:
        if (!c->is_worker || c->is_retired || wire_end(w, "retirement")) break;
        c->is_retired = true;
        daemon_act(d, (sched_event){.kind = SCHED_RETIRE, .worker = c->id});
        break;
    case PROTO_BLOCKED: {
        uint32_t on = wire_u32(w);
        if (!wire_end(w, "blocked"))
            daemon_act(d, (sched_event){.kind = on ? SCHED_BLOCKED : SCHED_RUNNING, .worker = c->id});
        break;
    }
    case PROTO_LINGERS: on_lingers(d, c, w); break;
    case PROTO_CANCEL: on_cancel(d, w); break;
    case PROTO_UNREACHABLE: on_unreachable(d, c, w); break;
    case PROTO_NOT_READY: on_not_ready(d, c, w); break;
    case PROTO_WARM: daemon_start_warm(d, c, w); break;
    case PROTO_ENVIRONMENT: daemon_find_environment(d, c, w); break;
    case PROTO_INFO: on_info(d, c, w); break;
    case PROTO_SHUTDOWN: on_shutdown(d, c, w); break;
    case PROTO_STACK_IS: daemon_stack_answer(d, w); break;
    case PROTO_READY: on_ready(d, c); break;
    default: log_warn("a message of unknown kind", LOG_INT("kind", kind), LOG_INT("pid", c->pid)); break;
    }
}

/* Reads what has come so far, and no more: one that asks again as soon as it is
 * answered would keep the daemon for itself. */
static void client_drain(node *d, client *c)
{
    size_t n, left = SIZE_MAX;
    int fds[SOCKET_MAX_FDS], n_fds, queued;

    if (c->fd >= 0 && !ioctl(c->fd, FIONREAD, &queued) && queued >= 0) left = (size_t)queued;
    while (c->fd >= 0 && left > 0) {
        manta_status st = socket_recv(c->fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_ECORRUPT) { /* longer than any that we send: not one of ours any more */
            client_cut(c);
            return;
        }
        left -= n < left ? n : left;
        if (st) return; /* nothing more, or closed: then its pidfd speaks */
        socket_close_all(fds, n_fds); /* no client has a descriptor to give */
        wire w = wire_of(d->in, n);
        daemon_message(d, c, &w);
    }
}

void daemon_drain_all(node *d)
{
    for (size_t i = 0; i < d->clients.n; i++) client_drain(d, d->clients.at[i].value);
}

static void on_client(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    client *c = NULL;

    for (size_t i = 0; i < d->clients.n && !c; i++)
        if (d->clients.at[i].value->fd == fd) c = d->clients.at[i].value;
    if (!c) return;
    if (writable) flush_outbox(d, c);
    if (!readable) return;
    client_drain(d, c);
    /* A closed connection stays readable: stop looking, the pidfd follows. */
    char probe;
    if (recv(fd, &probe, 1, MSG_PEEK | MSG_DONTWAIT) == 0) loop_forget(d->loop, fd);
}

/* ---- the life of clients ---- */

static void on_death(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    (void)readable;
    (void)writable;

    for (size_t i = 0; i < d->clients.n; i++) {
        client *c = d->clients.at[i].value;
        if (c->pidfd != fd || c->dying) continue;
        c->dying = true;
        c->died_ns = clock_now_ns();
    }
    loop_forget(d->loop, fd);
}

static client *client_new(node *d, uint32_t job_id, pid_t pid, int fd, int pidfd)
{
    client *c = mem_new(sizeof *c);

    *c = (client){.id = ++d->next_client,
                  .job = job_id,
                  .pid = pid,
                  .fd = fd,
                  .pidfd = pidfd,
                  .bell_fd = -1,
                  .trace_fd = -1,
                  .out_fds = {-1, -1},
                  .status = STATUS_UNKNOWN};
    *map_u64_put(&d->clients, c->id) = c;
    return c;
}

static manta_status client_welcome(node *d, client *c)
{
    TRY(shm_new("manta-bell", shm_page(), &c->bell_fd));
    if (c->is_worker) TRY(shm_new("manta-trace", worker_trace_size(), &c->trace_fd));
    TRY(loop_watch(d->loop, c->fd, false, on_client, d));
    TRY(loop_watch(d->loop, c->pidfd, false, on_death, d));
    buf *b = proto_begin(&d->out, PROTO_WELCOME);
    wire_put_u32(b, c->id);
    wire_put_u32(b, (uint32_t)getpid());
    wire_put_u64(b, d->number);
    daemon_put_shape(b, &d->config.total);
    for (int i = 0; i < SCHED_RESOURCES; i++) wire_put_text(b, d->config.names[i]);
    wire_put_u32(b, d->config.worker_memory == 0); /* else each call counts for itself */
    wire_put_u32(b, c->environment);
    daemon_send_fds(d, c, (int[]){c->bell_fd, c->trace_fd}, c->is_worker ? 2 : 1);
    return MANTA_OK;
}

void daemon_add_driver(node *d, uint32_t job_id, pid_t pid, int fd, int pidfd)
{
    client *c = client_new(d, job_id, pid, fd, pidfd);
    const job *j = daemon_job(d, job_id);

    daemon_registry(d, (registry_event){.kind = REGISTRY_JOB_DRIVER, .job = job_id, .client = c->id});
    if (!client_welcome(d, c)) return;
    log_error("a process cannot be taken in", LOG_STR("why", manta_error_text()));
    if (j && j->supervisor_fd >= 0)
        daemon_registry(d, (registry_event){.kind = REGISTRY_JOB_BROKEN, .job = job_id});
    else
        d->stop = true; /* without its driver a node is of no use; the driver is told by the end */
}

/* What a worker prints is its driver's to show. */
static void pass_output(node *d, client *c)
{
    const job *j = daemon_job(d, c->job);
    const registry_job *known = registry_find_job(d->registry, c->job);
    client *driver = j && known ? daemon_client(d, known->driver) : NULL;

    if (c->out_fds[0] < 0) return;
    if (!driver) {
        daemon_take_output(d, c);
        return;
    }
    proto_begin(&d->out, PROTO_OUTPUT);
    wire_put_u32(&d->out, c->id);
    wire_put_u32(&d->out, (uint32_t)c->pid);
    daemon_send_fds(d, driver, (int[]){c->out_fds[0], c->out_fds[1], c->bell_fd, c->trace_fd}, 4);
    if (j->supervisor_fd >= 0) return; /* it may outlive its driver */
    socket_close_all(c->out_fds, 2);
    c->out_fds[0] = c->out_fds[1] = -1;
}

/* The descriptors that are left when a worker is taken in are for channels, segments
 * and connections of those that are here already. */
static manta_status check_room(const int *fds, int n_fds)
{
    struct rlimit now;

    if (getrlimit(RLIMIT_NOFILE, &now)) return MANTA_OK;
    for (int i = 0; i < n_fds; i++)
        if ((rlim_t)fds[i] + SPARE_FILES > now.rlim_cur) return proc_fail_files("a worker cannot be started");
    return MANTA_OK;
}

void daemon_add_worker(node *d, uint32_t job_id, uint32_t environment, pid_t pid, bool is_awaited,
                       const int *fds, int n_fds)
{
    if (check_room(fds, n_fds)) {
        proc_signal(fds[1], SIGKILL); /* its parent reaps it */
        socket_close_all(fds, n_fds);
        daemon_start_failed(d, job_id, environment, START_AGAIN, MANTA_ENOSPC, manta_error_text());
        return;
    }
    client *c = client_new(d, job_id, pid, fds[0], fds[1]);
    c->is_worker = true;
    c->environment = environment;
    c->is_awaited = is_awaited;
    if (n_fds == 4) memcpy(c->out_fds, fds + 2, sizeof c->out_fds);
    if (client_welcome(d, c)) {
        daemon_kill(d, c->id);
        daemon_start_failed(d, job_id, environment, START_AGAIN, MANTA_ENOSPC, manta_error_text());
        return;
    }
    pass_output(d, c);
    if (!is_awaited) worker_up(d, c);
}

void daemon_kill_stranger(void *ctx, pid_t child)
{
    node *d = ctx;

    if (daemon_is_forker(d, child)) return;
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->pid == child) return;
    os->kill(child, SIGKILL);
}

/* Everything that follows from the death of a client. */
static void client_end(node *d, client *c)
{
    client_drain(d, c);
    c->ended = true;
    proto_begin(&d->out, PROTO_GONE);
    wire_put_u32(&d->out, c->id);
    wire_put_u32(&d->out, (uint32_t)c->status);
    wire_put_u32(&d->out, c->memory.why);
    wire_put_u64(&d->out, c->memory.used);
    wire_put_u64(&d->out, c->memory.limit);
    for (size_t i = 0; i < c->peers.n; i++) {
        client *peer = daemon_client(d, (uint32_t)c->peers.at[i].key);
        if (!peer) continue;
        daemon_send(d, peer);
        map_u64_remove(&peer->peers, c->id);
    }
    daemon_break_promises(d, c);
    daemon_leave_memory(d, c);
    daemon_refs(d, REFS_GONE, 0, 0, c->id);
    gifts_gone(d->gifts, c->id);
    loop_forget(d->loop, c->fd);
    loop_forget(d->loop, c->pidfd);
    map_u64_remove(&d->clients, c->id);
    if (c->is_worker && !c->is_ready && !c->is_killed && !c->refusal[0]) daemon_note_stillborn(d, c->job);
    if (c->is_awaited && !c->is_ready && !c->refusal[0] && !d->stop)
        daemon_act(d,
                   (sched_event){.kind = SCHED_START_FAILED, .job = c->job, .environment = c->environment});
    const registry_job *j = registry_find_job(d->registry, c->job);
    if (j && j->driver == c->id) {
        daemon_registry(d, (registry_event){.kind = REGISTRY_DRIVER_GONE, .job = c->job});
        for (size_t i = 0; i < d->clients.n; i++)
            if (d->clients.at[i].value->job == c->job) daemon_take_output(d, d->clients.at[i].value);
    }
    if (c->is_worker && !d->stop) {
        daemon_act(d, (sched_event){.kind = SCHED_WORKER_GONE, .worker = c->id});
        daemon_actor_lost(d, c);
        daemon_sweep_strangers(d, c->job); /* what it had started itself */
        daemon_remember(d, c);
    }
    daemon_act(d, (sched_event){.kind = SCHED_CLIENT_GONE, .client = c->id});
    if (c->pid == d->driver) d->stop = true;
    if (!d->stop) daemon_registry(d, (registry_event){.kind = REGISTRY_CLIENT_GONE, .client = c->id});
    for (int i = 0; i < 2; i++)
        if (c->out_fds[i] >= 0) loop_forget(d->loop, c->out_fds[i]);
    socket_close_all((int[]){c->fd, c->pidfd, c->bell_fd, c->trace_fd, c->out_fds[0], c->out_fds[1]}, 6);
    for (size_t i = 0; i < c->outbox.n; i++) letter_release(&c->outbox.at[i]);
    vec_release(&c->outbox);
    map_u64_release(&c->peers);
    mem_free(c);
}

bool daemon_bury(node *d)
{
    int64_t now = clock_now_ns();
    bool left = false;

    for (size_t i = 0; i < d->clients.n;) {
        client *c = d->clients.at[i].value;
        if (c->dying && (c->status != STATUS_UNKNOWN || !c->is_worker || now - c->died_ns > REAP_WAIT_NS)) {
            client_end(d, c);
            i = 0;
            continue;
        }
        left = left || c->dying;
        i++;
    }
    return left;
}
