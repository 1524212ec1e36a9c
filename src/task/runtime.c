/* runtime.c - see runtime.h: start and end, talking to the daemon, the watcher, waiting.
 *
 *     daemon ── socket ──▶ watcher ─┐ under rt->lock                ┌─ a thread that waits
 *                                   ├──▶ objects, calls, actors ◀──┤  (rt_wait)
 *     peers ─── rings ───▶ whoever waits, else the watcher ─────────┘
 *                                   └──▶ rt->bell: "look again"
 *
 * States of the process: it is open from runtime_open() on; cut, when it cannot talk to the
 * daemon any more (rt->cut says why); dead, when the daemon or the keeper is gone or the
 * process is cut (is_dead; a worker leaves instead); closing, in runtime_close(). It never
 * goes back. When it dies every pending object fails, so that no wait is left.
 *
 * Who writes what: the socket to the daemon is read by the watcher alone and written under
 * the lock; rt->out is the message being written, and rt->in the one being read, both under
 * the lock and only until it is given away. rt->changes is counted up by whoever changes
 * something that others may wait for.
 *
 * Why no wake is lost: a waiter looks at its condition, at the rings and at rt->changes
 * under the lock, and once more after it has said that it sleeps (eventcount_wait()). Whoever
 * changes something rings the bell afterwards.
 *
 * What may be changed: how long to spin (waits), and how often the watcher moves things
 * on. What may not: telling the daemon of new objects and holds (rt_flush_adds()) before
 * anything else is told to anybody; refs.h counts on it. */
#include "task/runtime.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/proc.h"
#include "os/shm.h"
#include "os/socket.h"
#include "os/sys.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/cancel.h"
#include "task/deadlock.h"
#include "task/worker_trace.h"
#include "task/group_link.h"
#include "task/hooks.h"
#include "task/incoming.h"
#include "task/leader.h"
#include "task/nested.h"
#include "task/node.h"
#include "task/object.h"
#include "task/output.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/ring.h"
#include "task/stack.h"
#include "task/stream.h"
#include "task/value.h"
#include "task/watch.h"

/* Sleeping and waking cost some 60 us on a virtual machine: it pays to spin for
 * about as long. After so many looks a spinner gives way at each turn, so that
 * with more runnable threads than cores the others come first. */
static const spin_policy waits = {
    .clock_every = 16, .alone_turns = 200, .alone_ns = SPIN_ANY_TIME, .limit_ns = 60000};

#define IDLE_PUMP_MS    1 /* how often the watcher moves queued calls on when nobody waits; leader.c */
#define ASK_NS          50000000 /* from one question to the program's hook to the next */
#define ANSWER_LIMIT_MS 30000 /* of the daemon, which has nothing to wait for */
#define START_LIMIT_MS  20000
#define MOST_FILES      65536 /* that a driver asks for: it has two for each worker */

runtime *rt;
char rt_space[64] = "default";

_Thread_local incoming *rt_current;

/* ---- processes that the program forks itself ---- */

/* Of a process that was forked from one with a runtime: that runtime, of which nothing is to be
 * touched. Its memory is shared with the parent's node, its lock may be held for ever, and its
 * watcher is not there. */
static runtime *parents;

static void forget_in_child(void)
{
    if (!rt) return;
    parents = rt;
    rt = NULL;
    rt_current = NULL;
}

static void mind_forks(void)
{
    static bool minded;

    if (!minded) minded = pthread_atfork(NULL, NULL, forget_in_child) == 0;
}

bool rt_is_forked(void)
{
    return parents != NULL;
}

manta_status rt_none(void)
{
    if (parents)
        return manta_fail(MANTA_EPERM,
                          "process %d was forked from one that has called manta_init(), and has no part in "
                          "its node: calls can be made by that process alone",
                          (int)getpid());
    return manta_fail(MANTA_EINVAL, "there is no node: manta_init() was not called");
}

/* ---- talking to the daemon ---- */

/* The daemon cannot be told something, and would wait for it, or we for its answer.
 * The watcher ends what is under way: this is called in the middle of other things. */
static void node_cut(void)
{
    if (rt->cut[0]) return;
    snprintf(rt->cut, sizeof rt->cut, "%s", manta_error_text());
    rt_nudge();
}

static void tell_bytes(const void *bytes, size_t n)
{
    if (rt->is_local || rt->is_dead || rt->cut[0]) return;
    manta_status st = socket_send(rt->fd, bytes, n, NULL, 0, true);
    if (st && st != MANTA_EDIED) node_cut(); /* a daemon that is gone has closed its end, which is seen */
}

/* One message of kind, [client,] n and ids, for as many as fit; without a buffer
 * that another message may be in. */
static void tell_ids(uint32_t kind, uint32_t client, const uint64_t *ids, size_t n)
{
    buf b = {0};
    const size_t most = 8000; /* in one message */

    for (size_t at = 0; at < n; at += most) {
        size_t part = n - at < most ? n - at : most;
        proto_begin(&b, kind);
        if (kind == PROTO_HOLD) {
            wire_put_u32(&b, client);
            wire_put_u32(&b, 0);
        }
        wire_put_u64(&b, part);
        buf_add(&b, ids + at, part * 8);
        tell_bytes(b.at, b.n);
    }
    buf_release(&b);
}

void rt_flush_adds(void)
{
    if (rt->adds.n > 0) {
        tell_bytes(rt->adds.at, rt->adds.n);
        buf_cut(&rt->adds, 0);
    }
    if (rt->holds.n > 0) {
        tell_ids(PROTO_HOLD, rt->client, rt->holds.at, rt->holds.n);
        vec_clear(&rt->holds);
    }
}

void rt_tell(void)
{
    rt_flush_adds();
    tell_bytes(rt->out.at, rt->out.n);
}

void rt_tell_ids(uint32_t kind, uint32_t client, const uint64_t *ids, size_t n)
{
    rt_flush_adds();
    tell_ids(kind, client, ids, n);
}

void rt_flush_drops(void)
{
    payloads_collect();
    rt_flush_adds();
    if (rt->drops.n == 0) return;
    rt_tell_ids(PROTO_DROP, 0, rt->drops.at, rt->drops.n);
    vec_clear(&rt->drops);
}

uint64_t rt_request_begin(uint32_t kind)
{
    proto_begin(&rt->out, kind);
    wire_put_u64(&rt->out, ++rt->next_request);
    return rt->next_request;
}

static bool reply_done(void *ctx)
{
    return ((reply *)ctx)->done || rt->is_dead;
}

manta_status rt_request(uint64_t request, reply *r)
{
    *r = (reply){.request = request, .fd = -1};
    list_push(&rt->replies, &r->link);
    rt_tell();
    manta_status st = rt_wait(reply_done, r, clock_deadline(ANSWER_LIMIT_MS));
    list_remove(&r->link);
    if (st)
        return manta_fail(MANTA_ETIMEDOUT, "the node's daemon (process %d) has not answered for %d s",
                          (int)rt->daemon, ANSWER_LIMIT_MS / 1000);
    if (!r->done) return failure_raise(rt->death);
    if (!st && r->status) st = manta_fail(r->status, "%s", r->text);
    return st;
}

reply *rt_find_reply(uint64_t request)
{
    for (list *l = rt->replies.next; l != &rt->replies; l = l->next)
        if (LIST_ITEM(l, reply, link)->request == request) return LIST_ITEM(l, reply, link);
    return NULL;
}

/* ---- segments come from the daemon ---- */

static manta_status segment_make(void *ctx, size_t least, size_t wanted, uint64_t *id, int *fd)
{
    reply r;
    (void)ctx;
    uint64_t request = rt_request_begin(PROTO_SEGMENT_NEW);

    wire_put_u64(&rt->out, least);
    wire_put_u64(&rt->out, wanted);
    TRY(rt_request(request, &r));
    if (r.fd < 0)
        return manta_fail(MANTA_ECORRUPT, "the daemon gave segment %llu without its memory",
                          (unsigned long long)r.id);
    *id = r.id;
    *fd = r.fd;
    return MANTA_OK;
}

static manta_status segment_open(void *ctx, uint64_t id, int *fd)
{
    reply r;
    (void)ctx;
    uint64_t request = rt_request_begin(PROTO_SEGMENT_OPEN);

    wire_put_u64(&rt->out, id);
    TRY(rt_request(request, &r));
    if (r.fd < 0)
        return manta_fail(MANTA_ECORRUPT, "the daemon gave segment %llu without its memory",
                          (unsigned long long)id);
    *fd = r.fd;
    return MANTA_OK;
}

/* The store says these in the middle of other things, also while a message is
 * being written in rt->out. */
static void segment_give_back(void *ctx, uint64_t id)
{
    const struct {
        uint32_t kind, zero;
        uint64_t id;
    } message = {PROTO_SEGMENT_FREE, 0, id};
    (void)ctx;

    tell_bytes(&message, sizeof message);
}

void rt_let_segment_go(void *ctx, uint64_t id, uint32_t n)
{
    const struct {
        uint32_t kind, zero;
        uint64_t id, n;
    } message = {PROTO_SEGMENT_CLOSED, 0, id, n};
    (void)ctx;

    tell_bytes(&message, sizeof message);
}

/* ---- or, without a node, from the system ---- */

static manta_status local_make(void *ctx, size_t least, size_t wanted, uint64_t *id, int *fd)
{
    (void)ctx;
    (void)least;
    TRY(shm_new("manta-segment", shm_round(wanted), fd));
    *id = ++rt->next_request;
    return MANTA_OK;
}

static manta_status local_open(void *ctx, uint64_t id, int *fd)
{
    (void)ctx;
    (void)fd;
    return manta_fail(MANTA_ENOENT, "segment %llu is gone: without other processes none can be opened again",
                      (unsigned long long)id);
}

static void local_give_back(void *ctx, uint64_t id)
{
    (void)ctx;
    (void)id;
}

static void local_let_go(void *ctx, uint64_t id, uint32_t n)
{
    (void)ctx;
    (void)id;
    (void)n;
}

/* ---- waking others ---- */

void rt_changed(void)
{
    rt->changes++;
    if (rt->bell) eventcount_notify(rt->bell);
}

void rt_nudge(void)
{
    uint64_t one = 1;

    if (!rt->watcher_idles) return;
    rt->watcher_idles = false;
    (void)!write(rt->nudge_fd, &one, sizeof one);
}

/* ---- waiting ---- */

static bool look_again(void *ctx)
{
    mutex_lock(&rt->lock);
    bool yes = rt->changes != *(uint64_t *)ctx || peers_have_work();
    mutex_unlock(&rt->lock);
    return yes;
}

/* When a wait asks the program's hook whether it is to be ended. A signal that comes just before
 * the thread sleeps, or to another thread, ends no sleep: so no sleep is long. */
typedef struct asking {
    bool on;
    int64_t at; /* when it is time; 0: not known yet */
} asking;

/* Whether the hook ends the wait; the lock is given away while it is asked. */
static bool asked_to_end(asking *a, int64_t now)
{
    if (!a->on || now == 0) return false;
    if (a->at == 0) a->at = now + ASK_NS;
    if (now < a->at) return false;
    mutex_unlock(&rt->lock);
    bool ends = hooks_interrupted();
    mutex_lock(&rt->lock);
    a->at = clock_now_ns() + ASK_NS;
    return ends;
}

/* Sleeps, without the lock, until something has changed, the time is over or the hook is to be asked. */
static void sleep_until_changed(asking *a, int64_t deadline)
{
    uint64_t seen = rt->changes;

    rt_flush_drops();
    mutex_unlock(&rt->lock);
    if (a->on && a->at < deadline) deadline = a->at;
    if (eventcount_wait_signal(rt->bell, look_again, &seen, deadline) == MANTA_EINTERRUPTED) a->at = 1;
    mutex_lock(&rt->lock);
}

static manta_status wait_for(bool (*done)(void *ctx), void *ctx, int64_t deadline, bool asks)
{
    manta_status st = MANTA_OK;
    spin s = {0};
    asking a = {.on = asks};
    bool blocked = false;

    rt->waiters++;
    for (;;) {
        if (rt_pump()) {
            s = (spin){0};
            if (rt->waiters > 1) rt_changed();
        }
        if (done(ctx)) break;
        leader_call_waits();
        if (rt->is_local) { /* nobody else will ever do anything */
            st = MANTA_ETIMEDOUT;
            break;
        }
        spin_turn turn = spin_next(&s, &waits);
        if (s.now >= deadline) {
            st = MANTA_ETIMEDOUT;
            break;
        }
        if (asked_to_end(&a, s.now)) {
            st = MANTA_EINTERRUPTED;
            break;
        }
        if (turn == SPIN_OVER) {
            if (rt_current && !rt->blocked && rt->threads == 0) {
                blocked = true;
                exec_block(true);
                deadlock_ask();
            }
            sleep_until_changed(&a, deadline);
            s = (spin){0};
            continue;
        }
        mutex_unlock(&rt->lock);
        if (turn == SPIN_YIELD) {
            sched_yield();
        } else {
            spin_pause();
        }
        mutex_lock(&rt->lock);
    }
    rt->waiters--;
    if (blocked) exec_block(false);
    if (rt->unsent > 0 && rt->waiters == 0) rt_nudge();
    return st;
}

manta_status rt_wait(bool (*done)(void *ctx), void *ctx, int64_t deadline)
{
    return wait_for(done, ctx, deadline, false);
}

typedef struct patience {
    bool (*done)(void *ctx);
    rt_find *find; /* NULL: nothing is to be run */
    void *ctx;
    nested_terms terms;
    call *found;
} patience;

static bool is_cancelled(void)
{
    return rt_current && atomic_load(&rt_current->cancelled);
}

/* What a wait of a program ends with, for the time being: also with a call that this thread
 * is to run itself. */
static bool patience_ends(void *ctx)
{
    patience *p = ctx;

    if (p->done(p->ctx) || is_cancelled()) return true;
    p->found = p->find ? p->find(p->ctx, p->terms) : NULL;
    return p->found != NULL;
}

static nested_terms terms_until(int64_t deadline)
{
    return (nested_terms){deadline == CLOCK_NEVER ? INT64_MAX : deadline - clock_now_ns()};
}

manta_status rt_await(bool (*done)(void *ctx), rt_find *find, void *ctx, int64_t timeout_ms)
{
    int64_t deadline = timeout_ms == 0 ? 0 : clock_deadline(timeout_ms);
    patience p = {.done = done, .find = timeout_ms == 0 || !rt_current ? NULL : find, .ctx = ctx};

    for (;;) {
        if (p.find) p.terms = terms_until(deadline);
        if (rt->queued > 0 && rt_current && !patience_ends(&p)) calls_dispatch();
        manta_status st = wait_for(patience_ends, &p, deadline, timeout_ms != 0 && hooks.interrupted);
        if (st == MANTA_EINTERRUPTED) return manta_fail(st, "the wait was interrupted");
        if (st) return st;
        if (done(ctx)) return MANTA_OK;
        if (is_cancelled()) return manta_fail(MANTA_ECANCELLED, "the call that waits was cancelled");
        nested_run(p.found);
    }
}

/* ---- deaths ---- */

static void node_end(void)
{
    if (rt->is_dead) return;
    if (rt->cut[0])
        log_error("the node's daemon cannot be talked to any more", LOG_INT("daemon", (int)rt->daemon),
                  LOG_STR("why", rt->cut));
    if (rt->is_worker) _exit(rt->cut[0] ? 1 : 0);
    rt->is_dead = true;
    if (rt->cut[0])
        rt->death =
            failure_make(MANTA_FAILURE_NODE, MANTA_EDIED, NULL, (int)rt->daemon,
                         "the node is out of reach: its daemon is process %d: %s", (int)rt->daemon, rt->cut);
    else if (rt->ends[0])
        rt->death = failure_make(MANTA_FAILURE_NODE, MANTA_EDIED, NULL, (int)rt->daemon,
                                 "the node is gone: %s", rt->ends);
    else
        rt->death = failure_make(MANTA_FAILURE_NODE, MANTA_EDIED, NULL, (int)rt->daemon,
                                 "the node is gone: its daemon was process %d", (int)rt->daemon);
    calls_node_died();
    rt_changed();
}

/* ---- the watcher ---- */

enum { WATCH_DAEMON, WATCH_NUDGE, WATCH_KEEPER, WATCHED };

/* Whether answers wait for room and no thread waits that would be woken by it. */
static bool has_unsent_alone(void)
{
    return rt->unsent > 0 && rt->waiters == 0;
}

/* What the watcher waits for, and for how long at most. The daemon tells of the
 * deaths of peers; its own is seen here. */
static int watch_prepare(struct pollfd polls[WATCHED])
{
    polls[WATCH_DAEMON] = (struct pollfd){.fd = rt->is_dead ? -1 : rt->fd, .events = POLLIN};
    polls[WATCH_NUDGE] = (struct pollfd){.fd = rt->nudge_fd, .events = POLLIN};
    polls[WATCH_KEEPER] = (struct pollfd){.fd = rt->is_dead ? -1 : rt->keeper_pidfd, .events = POLLIN};
    return rt->queued > 0 || rt->lingers > 0 || has_unsent_alone() || leader_is_watched() ? IDLE_PUMP_MS : -1;
}

static void read_daemon(void)
{
    static char in[SOCKET_MAX_MESSAGE] __attribute__((aligned(16)));

    for (;;) {
        size_t n;
        int fds[SOCKET_MAX_FDS], n_fds;
        manta_status st = socket_recv(rt->fd, in, sizeof in, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st && st != MANTA_EDIED) node_cut(); /* what it said is lost, and cannot be done without */
        if (st) {
            node_end();
            return;
        }
        wire w = wire_of(in, n);
        rt_daemon_message(&w, fds, n_fds);
    }
}

static void watcher_main(void *arg)
{
    struct pollfd polls[WATCHED];
    (void)arg;

    for (;;) {
        mutex_lock(&rt->lock);
        if (rt->cut[0]) node_end();
        int timeout = watch_prepare(polls);
        rt->watcher_idles = timeout < 0;
        mutex_unlock(&rt->lock);
        int got = os->poll(polls, WATCHED, timeout);
        mutex_lock(&rt->lock);
        rt->watcher_idles = false;
        if (rt->is_closing) break;
        if (got > 0 && polls[WATCH_NUDGE].revents) {
            uint64_t count;
            (void)!read(rt->nudge_fd, &count, sizeof count);
        }
        if (got > 0 && polls[WATCH_DAEMON].revents) read_daemon();
        if (got > 0 && polls[WATCH_KEEPER].revents) node_end();
        leader_watch();
        if (has_unsent_alone()) peers_flush();
        bool only_looks = got == 0 && timeout == IDLE_PUMP_MS && rt->queued == 0;
        if ((rt->queued > 0 || rt->lingers > 0) && !rt->is_dead) {
            if (rt->queued > 0) rt_pump();
            calls_dispatch();
        }
        if (rt->queued == 0 && rt->lingers > 0) rt->lingers--;
        rt_flush_drops();
        if (!only_looks) rt_changed();
        mutex_unlock(&rt->lock);
    }
    mutex_unlock(&rt->lock);
}

/* ---- start and end ---- */

static runtime *runtime_new(void)
{
    runtime *r = mem_new(sizeof *r);

    mutex_init(&r->lock);
    cond_init(&r->leader.free);
    cond_init(&r->finished);
    list_init(&r->replies);
    list_init(&r->watches);
    list_init(&r->calls);
    list_init(&r->running);
    list_init(&r->own);
    r->fd = r->nudge_fd = r->keeper_pidfd = r->daemon_pidfd = -1;
    r->client = 1;
    r->settled = 1;
    return r;
}

/* A node that was to be joined does not want us, and says why. */
static manta_status read_refusal(const void *in, size_t n)
{
    char text[512];
    wire w = wire_of(in, n);

    (void)proto_kind_of(&w);
    manta_status st = (manta_status)wire_u32(&w);
    wire_text(&w, text, sizeof text);
    return wire_end(&w, "refusal") ? MANTA_ECORRUPT : manta_fail(st ? st : MANTA_EPERM, "%s", text);
}

/* The daemon's first message. */
static manta_status read_welcome(int keeper_pidfd)
{
    char in[4096] __attribute__((aligned(16)));
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;
    void *at;
    struct pollfd p[2] = {{.fd = rt->fd, .events = POLLIN}, {.fd = keeper_pidfd, .events = POLLIN}};

    if (socket_poll(p, 2, START_LIMIT_MS) <= 0 || !(p[0].revents & POLLIN))
        return manta_fail(MANTA_EDIED, "the node did not start: its daemon said nothing for %d s, or ended",
                          START_LIMIT_MS / 1000);
    TRY(socket_recv(rt->fd, in, sizeof in, &n, fds, &n_fds, true));
    wire w = wire_of(in, n);
    proto_kind kind = proto_kind_of(&w);
    rt->client = wire_u32(&w);
    rt->daemon = (pid_t)wire_u32(&w);
    rt->node = wire_u64(&w);
    const void *total = wire_take(&w, sizeof rt->total);
    if (total) memcpy(&rt->total, total, sizeof rt->total);
    for (int i = 0; i < SCHED_RESOURCES; i++) wire_text(&w, rt->names[i], sizeof rt->names[i]);
    rt->nests = wire_u32(&w) != 0 && rt->is_worker;
    rt->environment = wire_u32(&w);
    manta_status st = kind == PROTO_REFUSED ? read_refusal(in, n) : wire_end(&w, "welcome");
    if (!st && (kind != PROTO_WELCOME || n_fds != (rt->is_worker ? 2 : 1)))
        st = manta_fail(MANTA_ECORRUPT,
                        "the daemon's first message is of kind %d with %d descriptors, expected %d with %d",
                        (int)kind, n_fds, (int)PROTO_WELCOME, rt->is_worker ? 2 : 1);
    if (!st) st = shm_map(fds[0], shm_page(), true, &at);
    if (!st && rt->is_worker) st = worker_trace_open(fds[1], &rt->trace);
    socket_close_all(fds, n_fds);
    if (!st) rt->bell = at;
    return st;
}

manta_status runtime_open(int fd, int keeper_pidfd, const int *worker_pipes)
{
    rt = runtime_new();
    mind_forks();
    rt->fd = fd;
    rt->keeper_pidfd = keeper_pidfd;
    rt->is_worker = worker_pipes != NULL;
    if (worker_pipes) memcpy(rt->pipes, worker_pipes, sizeof rt->pipes);
    rt->first_thread = pthread_self();
    if (!rt->is_worker) proc_raise_files(MOST_FILES, &rt->files);
    rt->store = store_new((store_source){.make = segment_make,
                                         .open = segment_open,
                                         .give_back = segment_give_back,
                                         .let_go = rt_let_segment_go});
    rt->nudge_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    manta_status st =
        rt->nudge_fd < 0
            ? manta_fail(MANTA_EIO, "an event descriptor cannot be made for the watcher: %s", strerror(errno))
            : MANTA_OK;
    if (!st) st = read_welcome(keeper_pidfd);
    if (!st && !rt->is_worker && proc_pidfd_open(rt->daemon, &rt->daemon_pidfd)) rt->daemon_pidfd = -1;
    if (!st) st = thread_start(&rt->watcher, "manta-watch", watcher_main, NULL);
    return st;
}

manta_status runtime_open_local(void)
{
    rt = runtime_new();
    mind_forks();
    rt->is_local = true;
    rt->store = store_new((store_source){
        .make = local_make, .open = local_open, .give_back = local_give_back, .let_go = local_let_go});
    return MANTA_OK;
}

/* The node is gone, or never was; gives back what this process holds. */
void runtime_close(void)
{
    if (!rt) return;
    watches_close();
    if (rt->bell) {
        mutex_lock(&rt->lock);
        rt->is_closing = true;
        mutex_unlock(&rt->lock);
        uint64_t one = 1;
        if (rt->watcher.id) {
            (void)!write(rt->nudge_fd, &one, sizeof one);
            thread_join(&rt->watcher);
        }
    }
    output_end(rt->output); /* before the rest: what workers have said is shown in any case */
    exec_end_selves();
    calls_release();
    streams_release();
    groups_release();
    actors_release();
    for (size_t i = 0; i < rt->objects.n; i++) {
        object *o = rt->objects.at[i].value;
        if (o->on_heap) mem_free((void *)(uintptr_t)o->v.at);
        mem_free(o->v.index);
        failure_unref(o->failure);
        vec_release(&o->waiting);
        mem_free(o);
    }
    peers_release();
    for (size_t i = 0; i < rt->functions.n; i++) {
        mem_free(rt->functions.at[i].value->name);
        mem_free(rt->functions.at[i].value);
    }
    failure_unref(rt->death);
    payloads_forget();
    map_u64_release(&rt->objects);
    spares_release(&rt->spare_objects);
    spares_release(&rt->spare_calls);
    map_u64_release(&rt->given);
    map_release(&rt->codes);
    map_release(&rt->functions);
    map_release(&rt->environments);
    vec_release(&rt->drops);
    vec_release(&rt->pinned);
    store_free(rt->store);
    shm_unmap(rt->bell, shm_page());
    buf_release(&rt->out);
    buf_release(&rt->adds);
    vec_release(&rt->holds);
    buf_release(&rt->in);
    socket_close_all((int[]){rt->fd, rt->nudge_fd, rt->keeper_pidfd, rt->daemon_pidfd}, 4);
    if (!rt->is_worker) proc_restore_files(MOST_FILES, &rt->files);
    cond_release(&rt->leader.free);
    cond_release(&rt->finished);
    mutex_release(&rt->lock);
    mem_free(rt);
    rt = NULL;
}
