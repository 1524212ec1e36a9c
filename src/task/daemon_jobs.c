/* daemon_jobs.c - the programs that use the node.
 *
 * A job has a process that forks its workers (daemon_forks.c): its zygote, which has the
 * program's memory as it was in manta_init(), or a nursery. The daemon that a driver
 * started for itself starts that process. A program that joins brings its own: its
 * supervisor (job_supervisor.c) keeps the zygote, adopts the job's orphans and ends all
 * of them when its connection to us closes. */
#include "task/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/descendants.h"
#include "os/proc.h"
#include "os/spawner.h"
#include "os/sys.h"

#define MOST_ENVIRONMENT  (32 << 10) /* bytes of one */
#define MOST_ENVIRONMENTS 65536

static void on_supervisor(void *ctx, int fd, bool readable, bool writable);

job *daemon_job(node *d, uint32_t id)
{
    job **j = map_u64_find(&d->jobs, id);

    return j ? *j : NULL;
}

/* ---- workers ---- */

void daemon_note_stillborn(node *d, uint32_t id)
{
    daemon_registry(d, (registry_event){.kind = REGISTRY_WORKER_STILLBORN, .job = id});
}

static void job_broken(node *d, uint32_t id)
{
    daemon_registry(d, (registry_event){.kind = REGISTRY_JOB_BROKEN, .job = id});
}

/* Its driver's waits are to say why. */
static void tell_end(node *d, const job *j, const char *why)
{
    const registry_job *known = registry_find_job(d->registry, j->id);
    client *driver = known ? daemon_client(d, known->driver) : NULL;

    if (!driver) return;
    proto_begin(&d->out, PROTO_ENDS);
    wire_put_text(&d->out, why);
    daemon_send(d, driver);
}

void daemon_end_job(node *d, const job *j)
{
    manta_error e;

    manta_error_get(&e);
    log_info("a job ends", LOG_INT("job", (int64_t)j->id), LOG_STR("why", e.text));
    tell_end(d, j, e.text);
    snprintf(d->why, sizeof d->why, "%.*s", (int)sizeof d->why - 1, e.text);
    d->why_status = e.code;
    if (j->supervisor_fd < 0)
        d->stop = true;
    else
        job_broken(d, j->id);
}

/* Workers of the job cannot start: a node of its own ends with it. */
static void do_give_up(node *d, uint32_t id)
{
    const job *j = daemon_job(d, id);
    char why[512];

    if (d->stop || !j) return;
    snprintf(why, sizeof why, "workers cannot start%s%s", j->shortage[0] ? ": " : "", j->shortage);
    log_error("workers cannot start: the job ends", LOG_INT("job", (int64_t)id));
    tell_end(d, j, why);
    if (j->supervisor_fd < 0) d->stop = true;
}

void daemon_start_failed(node *d, uint32_t id, uint32_t environment, start_limit limit, manta_status code,
                         const char *why)
{
    job *j = daemon_job(d, id);
    int64_t workers = 0;

    for (size_t i = 0; i < d->clients.n; i++) {
        const client *c = d->clients.at[i].value;
        workers += c->job == id && c->is_worker && !c->dying && !c->refusal[0];
    }
    if (j) j->shortage_code = code;
    if (j && strcmp(j->shortage, why) != 0) {
        snprintf(j->shortage, sizeof j->shortage, "%s", why);
        log_warn("a worker could not be started", LOG_STR("why", why), LOG_INT("workers", workers));
    }
    if (limit == START_AGAIN && workers > 0) limit = START_SCARCE;
    if (limit == START_AGAIN) daemon_note_stillborn(d, id);
    daemon_act(d,
               (sched_event){.kind = SCHED_START_FAILED, .job = id, .environment = environment, .n = limit});
}

void daemon_refuse(node *d, const sched_action *a)
{
    const job *j = daemon_job(d, a->job);
    client *c = daemon_client(d, (uint32_t)a->client);
    const char *why = j ? j->shortage : "its program has ended";

    if (a->kind == SCHED_DO_REFUSE_ACTOR) daemon_refuse_actor(d, a->client, why);
    if (a->kind != SCHED_DO_REFUSE || !c) return;
    failure *f = failure_make(MANTA_FAILURE_WORKER, j && j->shortage_code ? j->shortage_code : MANTA_ENOSPC,
                              NULL, 0, "no worker can be started for the call: %s", why);
    proto_begin(&d->out, PROTO_NO_WORKER);
    daemon_put_shape(&d->out, &a->shape);
    failure_put(&d->out, f);
    failure_unref(f);
    daemon_send(d, c);
}

void daemon_worker_reaped(node *d, pid_t pid, int status)
{
    daemon_forker_reaped(d, pid, status);
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->pid == pid) d->clients.at[i].value->status = status;
}

void daemon_sweep_strangers(node *d, uint32_t id)
{
    job *j = daemon_job(d, id);

    if (!j) return;
    if (j->supervisor_fd < 0) {
        descendants_each(daemon_kill_stranger, d);
        return;
    }
    uint64_t n = 0;
    for (size_t i = 0; i < d->clients.n; i++) n += d->clients.at[i].value->job == id;
    buf *b = proto_begin(&d->out, PROTO_SWEEP);
    wire_put_u64(b, n);
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->job == id) wire_put_u32(b, (uint32_t)d->clients.at[i].value->pid);
    /* A supervisor that does not take it sweeps at the end of the job. */
    manta_status st = socket_send(j->supervisor_fd, b->at, b->n, NULL, 0, false);
    (void)st;
}

/* ---- environments ---- */

const char *daemon_environment(const job *j, uint64_t number)
{
    return number > 0 && number <= j->environments.n ? j->environments.at[number - 1].key : NULL;
}

bool daemon_has_environment(node *d, uint32_t id, uint64_t number)
{
    const job *j = daemon_job(d, id);

    return number == 0 || (j && daemon_environment(j, number));
}

void daemon_find_environment(node *d, client *c, wire *w)
{
    uint64_t request = wire_u64(w);
    size_t n;
    const char *text = wire_bytes(w, &n);
    job *j = daemon_job(d, c->job);
    manta_status st = MANTA_OK;
    uint32_t number = 0;

    if (!text || wire_end(w, "environment") || !j) return;
    if (n < 2 || n > MOST_ENVIRONMENT || memchr(text, 0, n) != text + n - 1) return;
    uint32_t *known = map_find(&j->environments, text);
    if (known)
        number = *known;
    else if (j->environments.n == MOST_ENVIRONMENTS)
        st = manta_fail(MANTA_ENOSPC, "the program has used %d environments, which is the most",
                        MOST_ENVIRONMENTS);
    else
        number = (uint32_t)j->environments.n + 1;
    if (!st && !known) *map_put(&j->environments, text) = number;
    daemon_answer_found(d, c, request, st, number);
}

/* ---- jobs ---- */

static job *job_new(node *d, const char *space, bool is_joined)
{
    job *j = mem_new(sizeof *j);

    *j = (job){.id = ++d->next_job, .supervisor_fd = -1};
    for (int k = 0; k < FORKERS; k++) j->forkers[k].fd = j->forkers[k].pidfd = -1;
    *map_u64_put(&d->jobs, j->id) = j;
    daemon_registry(
        d, (registry_event){.kind = REGISTRY_JOB_NEW, .job = j->id, .name = space, .is_joined = is_joined});
    return j;
}

uint32_t daemon_start_job(node *d, const char *space)
{
    job *j = job_new(d, space, false);

    daemon_start_forker(d, j);
    return j->id;
}

uint32_t daemon_join_job(node *d, const char *space, int supervisor_fd)
{
    job *j = job_new(d, space, true);

    j->supervisor_fd = supervisor_fd;
    if (loop_watch(d->loop, supervisor_fd, false, on_supervisor, d)) job_broken(d, j->id);
    return j->id;
}

/* The supervisor has started a process that forks workers. False: it cannot be taken. */
static bool forker_comes(node *d, job *j, wire *w, const int *fds, int n_fds)
{
    char name[NURSERY_NAME];
    pid_t pid = (pid_t)wire_u32(w), supervisor = (pid_t)wire_u32(w);
    uint32_t limit_ms = wire_u32(w);
    forker_kind kind = wire_u32(w) ? FORKER_WARM : FORKER_FIRST;

    wire_text(w, name, sizeof name);
    if (n_fds == SOCKET_FDS_LOST) {
        (void)proc_fail_files("a program cannot be taken in");
        log_error("a job ends", LOG_STR("why", manta_error_text()));
        return false;
    }
    if (wire_end(w, "zygote") || n_fds != 2) {
        socket_close_all(fds, n_fds);
        return false;
    }
    j->supervisor = supervisor;
    daemon_forget_forker(d, j, kind);
    daemon_take_forker(d, j, kind, &(spawn_child){.pid = pid, .pidfd = fds[1]}, fds[0], limit_ms, name);
    return true;
}

/* One message of a supervisor. False: the job cannot go on. */
static bool supervisor_says(node *d, job *j, wire *w, const int *fds, int n_fds)
{
    proto_kind kind = proto_kind_of(w);
    char why[256];

    if (kind == PROTO_ZYGOTE) return forker_comes(d, j, w, fds, n_fds);
    socket_close_all(fds, n_fds);
    if (kind == PROTO_ENDS) {
        wire_text(w, why, sizeof why);
        tell_end(d, j, why);
        return false;
    }
    if (kind == PROTO_NOT_READY) {
        manta_status code = (manta_status)wire_u32(w);
        wire_text(w, why, sizeof why);
        (void)!manta_fail(code, "%s", why);
        daemon_warm_failed(d, j);
        return true;
    }
    pid_t pid = (pid_t)wire_u32(w);
    if (kind == PROTO_REAPED) daemon_worker_reaped(d, pid, (int)wire_u32(w));
    return true;
}

static void on_supervisor(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    job *j = NULL;
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;
    (void)readable;
    (void)writable;

    for (size_t i = 0; i < d->jobs.n && !j; i++)
        if (d->jobs.at[i].value->supervisor_fd == fd) j = d->jobs.at[i].value;
    if (!j) return;
    for (;;) {
        manta_status st = socket_recv(fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st) break;
        wire w = wire_of(d->in, n);
        if (!supervisor_says(d, j, &w, fds, n_fds)) break;
    }
    loop_forget(d->loop, fd);
    job_broken(d, j->id); /* the supervisor is dead: its keeper ends what it had */
}

/* Ends a job that joined: its supervisor, on whose connection it hangs, ends every
 * process of it. */
static void do_end(node *d, uint32_t id)
{
    job *j = daemon_job(d, id);

    if (!j) return;
    for (size_t i = 0; i < d->clients.n; i++) {
        client *c = d->clients.at[i].value;
        if (c->job != j->id) continue;
        if (c->is_worker) {
            proc_signal(c->pidfd, SIGKILL);
        } else if (!c->dying) { /* the driver is told by the end of its connection */
            c->dying = true;
            c->died_ns = clock_now_ns();
        }
    }
    daemon_close_forkers(d, j);
    loop_forget(d->loop, j->supervisor_fd);
    socket_close_all(&j->supervisor_fd, 1);
    map_release(&j->environments);
    map_u64_remove(&d->jobs, j->id);
    daemon_drop_code(d, j);
    mem_free(j);
}

bool daemon_jobs_action(node *d, const registry_action *a)
{
    switch (a->kind) {
    case REGISTRY_DO_JOB_GIVE_UP: do_give_up(d, a->job); return true;
    case REGISTRY_DO_JOB_GONE:
        daemon_act(d, (sched_event){.kind = SCHED_JOB_GONE, .job = a->job});
        return true;
    case REGISTRY_DO_JOB_END: do_end(d, a->job); return true;
    default: return false;
    }
}
