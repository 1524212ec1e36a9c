/* daemon_guests.c - who comes through the node socket: programs that join, and people who look. Everyone must
 * be the same user and speak the same protocol.
 *
 *     accepted ──▶ guest ──HELLO as a viewer──▶ greeted ──QUERY, STACK──▶ rows and texts, as often as it asks
 *        │          │ │                           └──────STOP──▶ the node ends
 *        │          │ └─HELLO as a driver──▶ a client; the guest is freed, its descriptor lives on
 *        ▼          └─another message first──▶ its connection is closed
 *     of another user, without a pid, or one too many: turned away
 *
 * A greeting that does not fit is answered with REFUSED and the reason; the guest may greet again or go.
 *
 * Who writes what: all is done by the daemon's one thread. Nobody is waited for: what a guest's socket does not
 * take at once is queued in its outbox and sent when there is room. A question for a worker's stack travels on:
 * the daemon asks the worker under a number (guest.stack), and daemon_stack_answer() finds by it who wanted to
 * know.
 *
 * Two more things are here because who looks wants them: the traces of the last dead workers (daemon_remember()),
 * and what detached actors print when their driver is gone, which goes to the daemon's stderr.
 *
 * What may be changed: how many guests and traces of dead workers there may be, and how many messages of one guest
 * are read at a turn. What may not: that no guest is ever waited for, and that an object list is cut to its
 * largest, so that a node with a million objects answers too. */
#include "task/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <manta/version.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/proc.h"
#include "os/sys.h"

#define MOST_PASTS  16 /* dead workers whose traces are kept */
#define MOST_GUESTS 64

static void on_guest(void *ctx, int fd, bool readable, bool writable);

/* ---- guests ---- */

static void guest_end(node *d, guest *g, bool close_fd)
{
    loop_forget(d->loop, g->fd);
    if (close_fd) socket_close_all(&g->fd, 1);
    for (size_t i = 0; i < d->guests.n; i++)
        if (d->guests.at[i] == g) {
            vec_remove(&d->guests, i);
            break;
        }
    for (size_t i = 0; i < g->outbox.n; i++) letter_release(&g->outbox.at[i]);
    vec_release(&g->outbox);
    mem_free(g);
}

/* Sends d->out; what it does not take at once is queued: nobody is waited for. */
static void guest_send(node *d, guest *g, const int *fds, int n_fds)
{
    manta_status st = MANTA_EBUSY;

    if (g->outbox.n == 0) st = socket_send(g->fd, d->out.at, d->out.n, fds, n_fds, false);
    letter l;
    if (!st) return;
    /* A guest that cannot be told sees the end of its connection, and says so. */
    if ((st != MANTA_EBUSY && st != MANTA_ENOMEM) || !letter_make(&d->out, fds, n_fds, &l)) {
        (void)shutdown(g->fd, SHUT_RDWR);
        return;
    }
    vec_push(&g->outbox, l);
    if (loop_watch(d->loop, g->fd, true, on_guest, d)) (void)shutdown(g->fd, SHUT_RDWR);
}

static void guest_flush(node *d, guest *g)
{
    size_t done = 0;

    for (; done < g->outbox.n; done++) {
        letter *l = &g->outbox.at[done];
        manta_status st = socket_send(g->fd, l->bytes.at, l->bytes.n, l->fds, l->n_fds, false);
        if (st == MANTA_EBUSY || st == MANTA_ENOMEM) break; /* its connection stays writable: once more */
        if (st) (void)shutdown(g->fd, SHUT_RDWR);
        letter_release(l);
    }
    if (done > 0) memmove(g->outbox.at, g->outbox.at + done, (g->outbox.n - done) * sizeof *g->outbox.at);
    g->outbox.n -= done;
    if (g->outbox.n == 0 && loop_watch(d->loop, g->fd, false, on_guest, d))
        log_error("a guest cannot be watched");
}

static void guest_refuse(node *d, guest *g, manta_status st)
{
    proto_begin(&d->out, PROTO_REFUSED);
    wire_put_u32(&d->out, (uint32_t)st);
    wire_put_text(&d->out, manta_error_text());
    guest_send(d, g, NULL, 0);
}

/* ---- joining ---- */

/* The connection becomes a driver's. */
static void on_driver(node *d, guest *g, const char *space, uint32_t prestart, int supervisor_fd)
{
    int pidfd, fd = g->fd;
    pid_t pid = g->pid;

    if (proc_pidfd_open(pid, &pidfd)) {
        guest_refuse(d, g, MANTA_EPERM);
        socket_close_all(&supervisor_fd, 1);
        return;
    }
    guest_end(d, g, false);
    uint32_t job_id = daemon_join_job(d, space, supervisor_fd);
    daemon_add_driver(d, job_id, pid, fd, pidfd);
    daemon_prestart(d, job_id, prestart < 64 ? prestart : 64);
}

static void on_hello(node *d, guest *g, wire *w, const int *fds, int n_fds)
{
    char version[32], space[64];
    uint32_t magic = wire_u32(w), protocol = wire_u32(w), role = wire_u32(w), prestart = wire_u32(w);
    manta_status st = MANTA_OK;

    wire_text(w, version, sizeof version);
    wire_text(w, space, sizeof space);
    if (wire_end(w, "greeting") || magic != PROTO_MAGIC)
        st = manta_fail(MANTA_ECORRUPT, "the first message at the node socket is no greeting of manta");
    else if (protocol != PROTO_VERSION || strcmp(version, MANTA_VERSION_TEXT) != 0)
        st = manta_fail(MANTA_EUNSUPPORTED,
                        "the node is of manta %s (protocol %u), the program of %s (protocol %u): "
                        "they must be the same",
                        MANTA_VERSION_TEXT, PROTO_VERSION, version, protocol);
    else if (role == PROTO_ROLE_DRIVER && n_fds == 1 && !g->greeted) {
        on_driver(d, g, space, prestart, fds[0]);
        return;
    } else if (role != PROTO_ROLE_VIEWER)
        st = manta_fail(MANTA_EINVAL,
                        "the greeting at the node socket has role %u, expected %d (a driver, with one "
                        "descriptor) or %d (a viewer)",
                        role, PROTO_ROLE_DRIVER, PROTO_ROLE_VIEWER);
    socket_close_all(fds, n_fds);
    if (st)
        guest_refuse(d, g, st);
    else
        g->greeted = true;
}

/* ---- queries ---- */

static void query_node(node *d, guest *g)
{
    sched_shape total = sched_total(d->sched), left = sched_left(d->sched);
    buf *b = proto_begin(&d->out, PROTO_QUERY_NODE);

    wire_put_u32(b, (uint32_t)getpid());
    wire_put_u32(b, (uint32_t)d->keeper);
    wire_put_u32(b, (uint32_t)d->driver);
    wire_put_i64(b, d->started_ns);
    wire_put_text(b, d->socket_path);
    wire_put_text(b, MANTA_VERSION_TEXT);
    daemon_put_shape(b, &total);
    daemon_put_shape(b, &left);
    for (int i = 0; i < SCHED_RESOURCES; i++) wire_put_text(b, d->config.names[i]);
    wire_put_u64(b, d->config.store_limit);
    spill_usage use = spill_use(d->spill);
    wire_put_u64(b, use.memory);
    wire_put_u64(b, use.disk);
    wire_put_u64(b, d->segments.n);
    wire_put_u64(b, directory_count(d->objects));
    wire_put_u64(b, registry_actors(d->registry));
    wire_put_u32(b, (uint32_t)sched_workers(d->sched));
    wire_put_u32(b, (uint32_t)sched_leases(d->sched));
    wire_put_u64(b, (uint64_t)sched_waiting(d->sched));
    guest_send(d, g, NULL, 0);
    for (size_t i = 0; i < d->jobs.n; i++) {
        const job *j = d->jobs.at[i].value;
        const registry_job *known = registry_find_job(d->registry, j->id);
        const client *driver = known ? daemon_client(d, known->driver) : NULL;
        b = proto_begin(&d->out, PROTO_QUERY_JOB);
        wire_put_u32(b, j->id);
        wire_put_u32(b, driver ? (uint32_t)driver->pid : 0);
        wire_put_u32(b, (uint32_t)j->forkers[FORKER_FIRST].pid);
        wire_put_u32(b, (uint32_t)j->supervisor);
        wire_put_text(b, known ? known->space : "");
        guest_send(d, g, NULL, 0);
    }
}

static void query_workers(node *d, guest *g)
{
    for (size_t i = 0; i < d->clients.n + d->pasts.n; i++) {
        bool is_past = i >= d->clients.n;
        const client *c = is_past ? NULL : d->clients.at[i].value;
        const past *p = is_past ? &d->pasts.at[i - d->clients.n] : NULL;
        if (c && !c->is_worker) continue;
        const client *holder = c ? daemon_client(d, (uint32_t)sched_holder(d->sched, c->id)) : NULL;
        buf *b = proto_begin(&d->out, PROTO_QUERY_WORKER);
        wire_put_u32(b, c ? c->id : p->client);
        wire_put_u32(b, c ? c->job : p->job);
        wire_put_u32(b, (uint32_t)(c ? c->pid : p->pid));
        wire_put_u32(b, is_past);
        wire_put_u64(b, c ? registry_number_in(d->registry, c->id) : 0);
        wire_put_u32(b, holder ? (uint32_t)holder->pid : 0);
        guest_send(d, g, c ? &c->trace_fd : &p->trace_fd, 1);
    }
}

/* The name and the name space of an actor, apart; of one without a name the space is its program's. */
static void put_actor_name(const node *d, const registry_actor *a, buf *b)
{
    const registry_job *j = registry_find_job(d->registry, a->job);
    const char *end = strchr(a->name, '/'); /* a space has none */

    wire_put_text(b, end ? end + 1 : a->name);
    if (end)
        wire_put_bytes(b, a->name, (size_t)(end - a->name));
    else
        wire_put_text(b, j ? j->space : "");
}

static void query_actors(node *d, guest *g)
{
    for (size_t i = 0; i < registry_actors(d->registry); i++) {
        const registry_actor *a = registry_actor_at(d->registry, i);
        const client *w = daemon_client(d, a->worker);
        buf *b = proto_begin(&d->out, PROTO_QUERY_ACTOR);
        wire_put_u64(b, a->id);
        wire_put_u32(b, a->job);
        wire_put_u32(b, (uint32_t)a->state);
        wire_put_u32(b, w ? (uint32_t)w->pid : 0);
        wire_put_u32(b, a->detached);
        wire_put_u32(b, (uint32_t)a->restarts);
        put_actor_name(d, a, b);
        wire_put_text(b, a->function);
        guest_send(d, g, NULL, 0);
    }
}

typedef struct sized {
    uint64_t id, size;
} sized;

/* A heap with the smallest on top. */
static void heap_sink(sized *h, size_t n, size_t i)
{
    for (;;) {
        size_t least = i;
        for (size_t k = 2 * i + 1; k <= 2 * i + 2 && k < n; k++)
            if (h[k].size < h[least].size) least = k;
        if (least == i) return;
        sized x = h[i];
        h[i] = h[least];
        h[least] = x;
        i = least;
    }
}

/* The `most` largest, so that a node with a million objects answers too. */
static size_t query_objects(node *d, guest *g, size_t most)
{
    VEC(sized) heap = {0};
    size_t all = directory_count(d->objects);

    if (most == 0) return all;
    for (size_t i = 0; i < all; i++) {
        uint64_t id = directory_at(d->objects, i);
        void **data = directory_data(d->objects, id);
        sized x = {id, data && *data ? ((const object *)*data)->v.size : 0};
        if (heap.n < most) {
            vec_push(&heap, x);
            if (heap.n == most)
                for (size_t k = most; k-- > 0;) heap_sink(heap.at, most, k);
        } else if (x.size > heap.at[0].size) {
            heap.at[0] = x;
            heap_sink(heap.at, most, 0);
        }
    }
    for (size_t i = 0; i < heap.n; i++) {
        void **data = directory_data(d->objects, heap.at[i].id);
        const object *o = data ? *data : NULL;
        const client *maker = daemon_client(d, directory_maker(d->objects, heap.at[i].id));
        buf *b = proto_begin(&d->out, PROTO_QUERY_OBJECT);
        wire_put_u64(b, heap.at[i].id);
        wire_put_u64(b, heap.at[i].size);
        wire_put_u32(b, (uint32_t)directory_state_of(d->objects, heap.at[i].id));
        wire_put_u32(b, maker ? (uint32_t)maker->pid : 0);
        wire_put_i64(b, refs_total(d->refs, heap.at[i].id));
        wire_put_u32(b, o ? (uint32_t)o->v.kind : 0);
        wire_put_u64(b, o ? o->v.place.segment : 0);
        guest_send(d, g, NULL, 0);
    }
    size_t left = all - heap.n;
    vec_release(&heap);
    return left;
}

static void on_query(node *d, guest *g, wire *w)
{
    uint32_t what = wire_u32(w);
    uint64_t most = wire_u64(w);
    size_t left = 0;

    if (wire_end(w, "question")) return;
    query_node(d, g);
    if (what & PROTO_QUERY_WORKERS) query_workers(d, g);
    if (what & PROTO_QUERY_ACTORS) query_actors(d, g);
    if (what & PROTO_QUERY_OBJECTS) left = query_objects(d, g, most < 100000 ? (size_t)most : 100000);
    proto_begin(&d->out, PROTO_QUERY_END);
    wire_put_u64(&d->out, left);
    guest_send(d, g, NULL, 0);
}

/* ---- where a worker is ---- */

static void on_stack(node *d, guest *g, wire *w)
{
    pid_t pid = (pid_t)wire_u32(w);
    client *c = NULL;

    if (wire_end(w, "question")) return;
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->pid == pid && d->clients.at[i].value->is_worker)
            c = d->clients.at[i].value;
    if (!c) {
        guest_refuse(
            d, g,
            manta_fail(MANTA_ENOENT, "process %d is no worker of the node at %s", (int)pid, d->socket_path));
        return;
    }
    g->stack = ++d->next_stack;
    proto_begin(&d->out, PROTO_STACK_ASK);
    wire_put_u64(&d->out, g->stack);
    daemon_send(d, c);
}

void daemon_stack_answer(node *d, wire *w)
{
    uint64_t request = wire_u64(w);
    size_t n;
    const void *text = wire_bytes(w, &n);

    if (!text || wire_end(w, "stack")) return;
    for (size_t i = 0; i < d->guests.n; i++) {
        guest *g = d->guests.at[i];
        if (g->stack != request) continue;
        g->stack = 0;
        buf *b = proto_begin(&d->out, PROTO_STACK_IS);
        wire_put_bytes(b, text, n);
        guest_send(d, g, NULL, 0);
        return;
    }
}

/* ---- messages ---- */

/* False: the guest is gone, or has become a driver. */
static bool guest_message(node *d, guest *g)
{
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;
    manta_status st = socket_recv(g->fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);

    if (st == MANTA_EBUSY) return false;
    if (st) {
        guest_end(d, g, true);
        return false;
    }
    wire w = wire_of(d->in, n);
    proto_kind kind = proto_kind_of(&w);
    if (kind == PROTO_HELLO) {
        on_hello(d, g, &w, fds, n_fds);
        return false; /* what follows is read at the next turn */
    }
    socket_close_all(fds, n_fds);
    if (!g->greeted) {
        guest_end(d, g, true);
        return false;
    }
    switch (kind) {
    case PROTO_QUERY: on_query(d, g, &w); break;
    case PROTO_STACK: on_stack(d, g, &w); break;
    case PROTO_STOP:
        log_info("stopped", LOG_INT("by", g->pid));
        d->stop = true;
        break;
    default: guest_end(d, g, true); return false;
    }
    return true;
}

static void on_guest(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    guest *g = NULL;

    for (size_t i = 0; i < d->guests.n; i++)
        if (d->guests.at[i]->fd == fd) g = d->guests.at[i];
    if (!g) return;
    if (writable) guest_flush(d, g);
    /* No more than so many at a time: a guest that asks and asks is not alone here. */
    for (int i = 0; i < 16 && readable && guest_message(d, g); i++) {}
}

void daemon_guest(node *d, int fd, pid_t pid)
{
    guest *g = mem_new(sizeof *g);

    *g = (guest){.fd = fd, .pid = pid};
    vec_push(&d->guests, g);
    if (loop_watch(d->loop, fd, false, on_guest, d)) guest_end(d, g, true);
}

static void on_node_socket(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    int got;
    pid_t pid;
    uid_t uid;
    (void)readable;
    (void)writable;

    while (!socket_accept(fd, &got)) {
        bool known = !socket_peer(got, &pid, &uid);
        if (known && uid == geteuid() && pid > 0 && d->guests.n < MOST_GUESTS) {
            daemon_guest(d, got, pid);
            continue;
        }
        /* Without a pid it is of another pid namespace: a node that starts there, and
         * looks whether we live. */
        if (known && uid == geteuid() && pid <= 0) {
            log_debug("one of another pid namespace was turned away", LOG_INT("uid", uid));
        } else {
            log_warn("somebody was turned away", LOG_INT("uid", uid), LOG_INT("pid", pid));
        }
        socket_close_all(&got, 1);
    }
}

/* ---- the socket itself ---- */

static manta_status open_node_socket(node *d, const char *name)
{
    TRY(node_socket_open(name, d->socket_path, &d->socket_fd));
    return loop_watch(d->loop, d->socket_fd, false, on_node_socket, d);
}

void daemon_open_socket(node *d)
{
    if (open_node_socket(d, NULL))
        log_info("the node cannot be seen by manta ps", LOG_STR("why", manta_error_text()));
}

manta_status daemon_open_main_socket(node *d)
{
    return open_node_socket(d, NODE_SOCKET_MAIN);
}

/* ---- what is left of workers ---- */

void daemon_remember(node *d, client *c)
{
    if (c->trace_fd < 0) return;
    vec_push(&d->pasts, ((past){.client = c->id, .job = c->job, .pid = c->pid, .trace_fd = c->trace_fd}));
    c->trace_fd = -1;
    if (d->pasts.n <= MOST_PASTS) return;
    socket_close_all(&d->pasts.at[0].trace_fd, 1);
    vec_remove(&d->pasts, 0);
}

/* A detached actor prints, and its driver is gone. */
static void on_output(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    char text[4096], prefix[32];
    (void)readable;
    (void)writable;
    ssize_t n = os->read(fd, text, sizeof text);
    client *c = NULL;

    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->out_fds[0] == fd || d->clients.at[i].value->out_fds[1] == fd)
            c = d->clients.at[i].value;
    if (n <= 0) {
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        loop_forget(d->loop, fd);
        return;
    }
    int m = snprintf(prefix, sizeof prefix, "(pid=%d) ", c ? (int)c->pid : 0);
    for (char *at = text, *end = text + n; at < end;) {
        char *line = memchr(at, '\n', (size_t)(end - at));
        size_t part = line ? (size_t)(line - at) + 1 : (size_t)(end - at);
        (void)!os->write(2, prefix, (size_t)m);
        (void)!os->write(2, at, part);
        if (!line) (void)!os->write(2, "\n", 1);
        at += part;
    }
}

void daemon_take_output(node *d, client *c)
{
    for (int i = 0; i < 2; i++)
        if (c->out_fds[i] >= 0 && (os->fcntl(c->out_fds[i], F_SETFL, O_NONBLOCK) ||
                                   loop_watch(d->loop, c->out_fds[i], false, on_output, d)))
            log_error("what a worker prints cannot be read", LOG_INT("pid", c->pid));
}
