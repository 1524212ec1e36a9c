/* node_query.c - manta/node.h: starting, stopping and looking at nodes, from outside of any.
 *
 *     this process                               the daemon (daemon_guests.c)
 *       connect, HELLO as a viewer ─────────────▶  refused unless of this version and user
 *       QUERY, which rows ──────────────────────▶
 *       the view grows, row by row ◀─────────────  NODE, JOB..., WORKER... with a trace each, ACTOR..., OBJECT..., END
 *       STACK of a worker ──────────────────────▶  asks the worker
 *       a text ◀─────────────────────────────────  STACK_IS
 *       STOP, and wait for its end ─────────────▶  ends; who does not within the time is killed
 *
 * Each function that speaks with a node opens a connection of its own and closes it; nothing is kept between
 * calls, and there is no lock, because nothing is shared. What a worker does now and did before is read from its
 * trace, memory that the worker goes on writing.
 *
 * What may be changed: how long an answer may take, when a log is put aside, in what order a view lists its rows.
 * What may not: that what a daemon or a worker says is checked as if a stranger said it: numbers of kinds and
 * states are brought into their range, and texts into their room, before they are handed out. */
#include <manta/node.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/vec.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/sys.h"
#include "store/directory.h"
#include "task/worker_trace.h"
#include "task/node_socket.h"
#include "task/node.h"
#include "task/proto.h"

_Static_assert(MANTA_VIEW_RESOURCES == SCHED_RESOURCES, "the view shows all resources");

#define ANSWER_MS 10000
#define MOST_LOG  (16 << 20) /* bytes of a log, after which a new one begins */

/* ---- starting and stopping ---- */

/* Opens the log of a node that stays; a long one is put aside. */
static manta_status open_log(const char *folder, char path[128], int *fd)
{
    char old[160];
    struct stat s;

    snprintf(path, 128, "%.100s/node.log", folder);
    snprintf(old, sizeof old, "%s.old", path);
    if (os->stat(path, &s) == 0 && s.st_size > MOST_LOG) (void)os->rename(path, old);
    *fd = os->open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return *fd < 0 ? manta_fail(MANTA_EIO, "%s cannot be opened: %s", path, strerror(errno)) : MANTA_OK;
}

manta_status manta_node_start(const manta_node_options *options, manta_node_place *out)
{
    REFUSE_NULL(out);

    node_config c;
    char folder[NODE_SOCKET_PATH], path[NODE_SOCKET_PATH] = "";
    int log = -1;
    pid_t pid = 0;

    *out = (manta_node_place){0};
    TRY(node_config_of(options, &c));
    TRY(node_socket_folder(folder, true));
    TRY(open_log(folder, out->log, &log));
    manta_status st = node_start_alone(&c, log, &pid, path);
    socket_close_all(&log, 1);
    if (st) return st;
    out->daemon_pid = pid;
    memcpy(out->path, path, sizeof path);
    return MANTA_OK;
}

/* A connection that has said who it is. */
static manta_status greet_node(const char *address, char path[NODE_SOCKET_PATH], int *fd, pid_t *pid)
{
    uid_t uid;
    buf b = {0};

    TRY(node_socket_connect(address, path, fd));
    manta_status st = socket_peer(*fd, pid, &uid);
    node_socket_hello(&b, PROTO_ROLE_VIEWER, "", 0);
    if (!st) st = socket_send(*fd, b.at, b.n, NULL, 0, true);
    buf_release(&b);
    if (st) socket_close_all(fd, 1);
    return st;
}

static manta_status send_query(int fd, const buf *b)
{
    return socket_send(fd, b->at, b->n, NULL, 0, true);
}

manta_status manta_node_stop(const char *address, int64_t timeout_ms, manta_node_place *out)
{
    char path[NODE_SOCKET_PATH];
    int fd = -1, pidfd = -1;
    pid_t pid = 0;
    buf b = {0};

    TRY(greet_node(address, path, &fd, &pid));
    manta_status st = proc_pidfd_open(pid, &pidfd);
    *out = (manta_node_place){.daemon_pid = pid};
    memcpy(out->path, path, sizeof path);
    proto_begin(&b, PROTO_STOP);
    if (!st) st = send_query(fd, &b);
    buf_release(&b);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    if (!st && socket_poll(&p, 1, (int)timeout_ms) <= 0) {
        proc_signal(pidfd, SIGKILL); /* its keeper ends the rest */
        if (socket_poll(&p, 1, (int)timeout_ms) <= 0)
            st = manta_fail(MANTA_ETIMEDOUT, "the daemon of the node (process %d) does not end", (int)pid);
        else
            node_socket_sweep(path);
    }
    socket_close_all((int[]){fd, pidfd}, 2);
    return st;
}

/* ---- queries ---- */

typedef struct taking {
    manta_view *v;
    unsigned what;
    VEC(manta_view_job) jobs;
    VEC(manta_view_worker) workers;
    VEC(manta_view_actor) actors;
    VEC(manta_view_object) objects;
    VEC(manta_view_call) calls;
    bool done;
} taking;

static void take_node(manta_view *v, wire *w)
{
    sched_shape s[2];

    v->daemon_pid = (int)wire_u32(w);
    v->keeper_pid = (int)wire_u32(w);
    v->driver_pid = (int)wire_u32(w);
    v->started_ns = wire_i64(w);
    wire_text(w, v->path, sizeof v->path);
    wire_text(w, v->version, sizeof v->version);
    const void *p = wire_take(w, sizeof s);
    memset(s, 0, sizeof s);
    if (p) memcpy(s, p, sizeof s);
    for (int i = 0; i < SCHED_RESOURCES; i++) {
        manta_view_amount *a = &v->amounts[i];
        wire_text(w, a->name, sizeof a->name);
        a->total = (double)s[0].amount[i] / SCHED_UNIT;
        a->used = a->total - (double)s[1].amount[i] / SCHED_UNIT;
        if (a->name[0]) v->n_amounts = i + 1;
    }
    v->store_limit = wire_u64(w);
    v->store_used = wire_u64(w);
    v->store_spilled = wire_u64(w);
    v->segments = wire_u64(w);
    v->all_objects = wire_u64(w);
    v->all_actors = wire_u64(w);
    v->workers = (int)wire_u32(w);
    v->leases = (int)wire_u32(w);
    v->waiting = wire_u64(w);
    v->now_ns = clock_now_ns();
}

static void take_job(taking *t, wire *w)
{
    manta_view_job j = {.id = wire_u32(w)};

    j.driver_pid = (int)wire_u32(w);
    j.zygote_pid = (int)wire_u32(w);
    j.supervisor_pid = (int)wire_u32(w);
    wire_text(w, j.name_space, sizeof j.name_space);
    vec_push(&t->jobs, j);
}

static void take_calls(taking *t, const manta_view_worker *x, const worker_trace *d)
{
    worker_trace_calls calls = {0};

    worker_trace_history(d, &calls);
    for (size_t i = 0; i < calls.n; i++) {
        const worker_trace_call *c = &calls.at[i];
        manta_view_call out = {.pid = x->pid,
                               .job = x->job,
                               .task = c->task,
                               .begin_ns = c->begin_ns,
                               .end_ns = c->end_ns,
                               .failed = c->failed != 0};
        memcpy(out.function, c->name, sizeof c->name);
        vec_push(&t->calls, out);
    }
    vec_release(&calls);
}

static void take_worker(taking *t, wire *w, const int *fds, int n_fds)
{
    manta_view_worker x = {.id = wire_u32(w)};
    const worker_trace *d = NULL;
    worker_trace_call now;

    x.job = wire_u32(w);
    x.pid = (int)wire_u32(w);
    x.is_dead = wire_u32(w) != 0;
    x.actor = wire_u64(w);
    x.caller_pid = (int)wire_u32(w);
    if (n_fds == 1 && !worker_trace_map(fds[0], &d)) {
        x.calls = worker_trace_count(d);
        if (!x.is_dead && worker_trace_now(d, &now)) {
            x.task = now.task;
            x.since_ns = now.begin_ns;
            memcpy(x.function, now.name, sizeof now.name);
        }
        if (t->what & MANTA_VIEW_CALLS) take_calls(t, &x, d);
    }
    worker_trace_close(d);
    if (!x.is_dead) vec_push(&t->workers, x);
}

static void take_actor(taking *t, wire *w)
{
    manta_view_actor a = {.id = wire_u64(w)};

    a.job = wire_u32(w);
    uint32_t state = wire_u32(w);
    a.state = state <= MANTA_VIEW_STATE_DEAD ? (manta_view_state)state : MANTA_VIEW_STATE_DEAD;
    a.pid = (int)wire_u32(w);
    a.detached = wire_u32(w) != 0;
    a.restarts = (int)wire_u32(w);
    wire_text(w, a.name, sizeof a.name);
    wire_text(w, a.name_space, sizeof a.name_space);
    wire_text(w, a.constructor, sizeof a.constructor);
    vec_push(&t->actors, a);
}

static void take_object(taking *t, wire *w)
{
    manta_view_object o = {.id = wire_u64(w)};

    o.size = wire_u64(w);
    uint32_t state = wire_u32(w);
    o.state = state == DIRECTORY_PROMISED || state == DIRECTORY_LOST ? MANTA_VIEW_STATE_WAITING
              : state == DIRECTORY_READY                             ? MANTA_VIEW_STATE_ALIVE
                                                                     : MANTA_VIEW_STATE_DEAD;
    o.owner_pid = (int)wire_u32(w);
    o.holders = wire_i64(w);
    uint32_t kind = wire_u32(w);
    o.kind = kind <= MANTA_KIND_PACKED ? (manta_kind)kind : MANTA_KIND_NONE;
    o.in_memory = wire_u64(w) != 0;
    vec_push(&t->objects, o);
}

static manta_status read_refusal(wire *w)
{
    char text[512];
    uint32_t st = wire_u32(w);

    wire_text(w, text, sizeof text);
    return wire_end(w, "refusal") || st == 0 || st > MANTA_EINTERRUPTED
               ? MANTA_ECORRUPT
               : manta_fail((manta_status)st, "%s", text);
}

static manta_status take_message(taking *t, const void *in, size_t n, const int *fds, int n_fds)
{
    wire w = wire_of(in, n);

    switch (proto_kind_of(&w)) {
    case PROTO_REFUSED: return read_refusal(&w);
    case PROTO_QUERY_NODE: take_node(t->v, &w); break;
    case PROTO_QUERY_JOB: take_job(t, &w); break;
    case PROTO_QUERY_WORKER: take_worker(t, &w, fds, n_fds); break;
    case PROTO_QUERY_ACTOR: take_actor(t, &w); break;
    case PROTO_QUERY_OBJECT: take_object(t, &w); break;
    case PROTO_QUERY_END:
        (void)wire_u64(&w);
        t->done = true;
        break;
    default: return manta_fail(MANTA_ECORRUPT, "the node's answer is of a kind that is not known here");
    }
    return wire_end(&w, "answer");
}

/* The next message, if it comes in time. */
static manta_status receive_row(int fd, pid_t daemon, void *in, size_t *n, int fds[SOCKET_MAX_FDS],
                                int *n_fds)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    if (socket_poll(&p, 1, ANSWER_MS) <= 0)
        return manta_fail(MANTA_ETIMEDOUT, "the daemon of the node (process %d) has not answered for %d s",
                          (int)daemon, ANSWER_MS / 1000);
    manta_status st = socket_recv(fd, in, SOCKET_MAX_MESSAGE, n, fds, n_fds, true);
    if (st == MANTA_EDIED) return manta_fail(st, "the node ended while it was asked");
    return st;
}

static int by_size(const void *a, const void *b)
{
    const manta_view_object *x = a, *y = b;

    return x->size != y->size ? (x->size < y->size ? 1 : -1) : x->id < y->id ? -1 : x->id > y->id;
}

static int by_begin(const void *a, const void *b)
{
    const manta_view_call *x = a, *y = b;

    return x->begin_ns < y->begin_ns ? -1 : x->begin_ns > y->begin_ns;
}

static void give_view(taking *t)
{
    manta_view *v = t->v;

    v->jobs = t->jobs.at;
    v->n_jobs = t->jobs.n;
    v->worker = t->workers.at;
    v->n_workers = t->workers.n;
    v->actors = t->actors.at;
    v->n_actors = t->actors.n;
    v->objects = t->objects.at;
    v->n_objects = t->objects.n;
    v->calls = t->calls.at;
    v->n_calls = t->calls.n;
    if (v->n_objects) qsort(v->objects, v->n_objects, sizeof *v->objects, by_size);
    if (v->n_calls) qsort(v->calls, v->n_calls, sizeof *v->calls, by_begin);
}

manta_status manta_view_take(const char *address, unsigned what, size_t most_objects, manta_view **out)
{
    REFUSE_NULL(out);

    taking t = {.what = what, .v = mem_new(sizeof *t.v)};
    char path[NODE_SOCKET_PATH], *in = mem_new(SOCKET_MAX_MESSAGE);
    int fd = -1;
    pid_t daemon = 0;
    buf b = {0};
    manta_status st = greet_node(address, path, &fd, &daemon);

    proto_begin(&b, PROTO_QUERY);
    wire_put_u32(&b, (what & (MANTA_VIEW_WORKERS | MANTA_VIEW_CALLS) ? PROTO_QUERY_WORKERS : 0u) |
                         (what & MANTA_VIEW_ACTORS ? PROTO_QUERY_ACTORS : 0u) |
                         (what & MANTA_VIEW_OBJECTS ? PROTO_QUERY_OBJECTS : 0u));
    wire_put_u64(&b, most_objects);
    if (!st) st = send_query(fd, &b);
    while (!st && !t.done) {
        int fds[SOCKET_MAX_FDS], n_fds = 0;
        size_t n = 0;
        if ((st = receive_row(fd, daemon, in, &n, fds, &n_fds))) break;
        st = take_message(&t, in, n, fds, n_fds);
        socket_close_all(fds, n_fds);
    }
    give_view(&t);
    socket_close_all(&fd, 1);
    buf_release(&b);
    mem_free(in);
    if (st)
        manta_view_free(t.v);
    else
        *out = t.v;
    return st;
}

void manta_view_free(manta_view *v)
{
    if (!v) return;
    mem_free(v->jobs);
    mem_free(v->worker);
    mem_free(v->actors);
    mem_free(v->objects);
    mem_free(v->calls);
    mem_free(v);
}

/* ---- where a worker is ---- */

manta_status manta_view_stack(const char *address, int pid, char **text)
{
    REFUSE_NULL(text);

    char path[NODE_SOCKET_PATH], *in = mem_new(SOCKET_MAX_MESSAGE);
    int fd = -1, fds[SOCKET_MAX_FDS], n_fds = 0;
    size_t n = 0, length = 0;
    pid_t daemon = 0;
    buf b = {0};
    manta_status st = greet_node(address, path, &fd, &daemon);

    proto_begin(&b, PROTO_STACK);
    wire_put_u32(&b, (uint32_t)pid);
    if (!st) st = send_query(fd, &b);
    if (!st) st = receive_row(fd, daemon, in, &n, fds, &n_fds);
    if (!st) {
        wire w = wire_of(in, n);
        proto_kind kind = proto_kind_of(&w);
        socket_close_all(fds, n_fds);
        if (kind == PROTO_REFUSED) {
            st = read_refusal(&w);
        } else {
            const void *bytes = wire_bytes(&w, &length);
            if (wire_end(&w, "stack") || kind != PROTO_STACK_IS || !bytes)
                st = manta_fail(MANTA_ECORRUPT, "the node's answer is of a kind that is not known here");
            else if (!(*text = calloc(1, length + 1)))
                st = manta_fail(MANTA_ENOMEM, "there is no memory for the stack of a worker");
            else
                memcpy(*text, bytes, length);
        }
    }
    socket_close_all(&fd, 1);
    buf_release(&b);
    mem_free(in);
    return st;
}
