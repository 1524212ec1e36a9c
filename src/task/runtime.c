/* runtime.c - see runtime.h: start and end, talking to the daemon, the watcher. runtime_wait.c waits,
 * runtime_segments.c gets memory.
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
 * What may be changed: how often the watcher moves things on. What may not: telling the
 * daemon of new objects and holds (rt_flush_adds()) before anything else is told to anybody;
 * refs.h counts on it. */
#include "task/runtime.h"

#include <errno.h>
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
#include "task/worker_trace.h"
#include "task/group_link.h"
#include "task/incoming.h"
#include "task/leader.h"
#include "task/nested.h"
#include "task/node.h"
#include "task/object.h"
#include "task/output.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/sizes.h"
#include "task/stream.h"
#include "task/watch.h"

#define IDLE_PUMP_MS    1 /* how often the watcher moves queued calls on when nobody waits; leader.c */
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

static void node_end(void);

/* The daemon cannot be told something, and would wait for it, or we for its answer. In a driver the watcher, or who
 * waits next, ends what is under way: this is called in the middle of other things. A worker leaves at once, since
 * nothing may wake its watcher any more: a function that has closed all descriptors has closed ours too. */
static void node_cut(void)
{
    if (rt->cut[0]) return;
    snprintf(rt->cut, sizeof rt->cut, "%s", manta_error_text());
    if (rt->is_worker) node_end();
    rt_nudge();
}

void rt_end_if_cut(void)
{
    if (rt->cut[0]) node_end();
}

void rt_tell_bytes(const void *bytes, size_t n)
{
    if (rt->is_local || rt->is_dead || rt->cut[0]) return;
    rt->told++;
    manta_status st = socket_send(rt->fd, bytes, n, NULL, 0, true);
    if (st && st != MANTA_EDIED) node_cut(); /* a daemon that is gone has closed its end, which is seen */
}

/* One message of kind, [client,] n and ids, for as many as fit; without a buffer
 * that another message may be in. */
static void tell_ids(uint32_t kind, uint32_t client, const uint64_t *ids, size_t n)
{
    buf b = {0};

    for (size_t at = 0; at < n; at += IDS_MOST) {
        size_t part = n - at < IDS_MOST ? n - at : IDS_MOST;
        proto_begin(&b, kind);
        if (kind == PROTO_HOLD) {
            wire_put_u32(&b, client);
            wire_put_u32(&b, 0);
        }
        wire_put_u64(&b, part);
        buf_add(&b, ids + at, part * 8);
        rt_tell_bytes(b.at, b.n);
    }
    buf_release(&b);
}

void rt_flush_adds(void)
{
    if (rt->adds.n > 0) {
        rt_tell_bytes(rt->adds.at, rt->adds.n);
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
    rt_tell_bytes(rt->out.at, rt->out.n);
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
        rt_end_if_cut();
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
        /* A daemon that ends says why, and its keeper ends after it: poll() may see the second alone. */
        if (got > 0 && (polls[WATCH_DAEMON].revents || polls[WATCH_KEEPER].revents)) read_daemon();
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
    rt->nests = wire_u32(&w) != 0 && rt->is_worker && nested_is_wanted();
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
    rt->store = store_new(rt_segments);
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
    rt->store = store_new(rt_local_segments);
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
