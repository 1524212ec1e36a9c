/* runtime_daemon.c - what the daemon says to a process, message by message.
 *
 *     daemon ── socket ──▶ the watcher (runtime.c) ── under rt->lock ──▶ rt_daemon_message()
 *
 *     an answer to a question of ours   FOUND, SEGMENT, INFO_IS, ANSWER: a reply that a thread waits for
 *     what has become of others         OBJECT, OBJECT_FAILED, SEGMENT_GONE, ACTOR_AT, ACTOR_DEAD,
 *                                       GROUP_GONE, GONE
 *     whom calls may be sent to         PEER, GRANT, RECLAIM, NO_WORKER
 *     what this process is to do        CONSTRUCT, CANCEL_TASK, REBUILD, FREE, SEGMENT_ASK, STACK_ASK,
 *                                       STILL_ASK, OUTPUT, EXIT, ABANDONED, ENDS
 *
 * handlers[] at the end says which function hears which kind. A function takes its message apart
 * and asks wire_end() whether nothing was missing and nothing was left before it acts on it. What
 * the message names may be gone by now (an object dropped, an actor forgotten), which is no fault
 * of anybody: such a message is let go.
 *
 * The watcher reads messages in the order in which the daemon has sent them, and what depends on
 * each other comes that way: a PEER before the GRANT of it, its GONE last. Calls and their answers
 * come by another way, the rings, and may be faster or slower (on_cancel()).
 *
 * What may be changed: a kind is added by a row of handlers[] and its function. What may not: to
 * wait in here, for the lock is held and nobody else reads the socket. */
#include "task/runtime.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "os/proc.h"
#include "os/socket.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/cancel.h"
#include "task/group_link.h"
#include "task/hooks.h"
#include "task/incoming.h"
#include "task/leader.h"
#include "task/needs.h"
#include "task/object.h"
#include "task/output.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/rebuild.h"
#include "task/stack.h"
#include "task/value.h"

#define STACK_OWN 16384 /* bytes that a program may say of where it is */

static void take_object(wire *w, bool failed)
{
    uint64_t id = wire_u64(w);
    value v;
    failure *f = failed ? failure_take(w) : NULL;

    if (!failed) value_take(w, &v);
    object *o = object_find(id);
    if (wire_end(w, "object") || !o || o->state != OBJECT_PENDING || o->maker)
        failure_unref(f);
    else if (failed)
        object_fail(o, failure_adopt(f));
    else
        object_set(o, &v, OBJECT_FROM_DAEMON);
}

static void on_object_ready(wire *w)
{
    take_object(w, false);
}

static void on_object_failed(wire *w)
{
    take_object(w, true);
}

static void on_info(wire *w)
{
    reply *r = rt_find_reply(wire_u64(w));
    manta_node_info x = {0};
    sched_shape s[2];

    x.daemon_pid = (int)wire_u32(w);
    x.keeper_pid = (int)wire_u32(w);
    x.zygote_pid = (int)wire_u32(w);
    const void *p = wire_take(w, sizeof s);
    if (p) memcpy(s, p, sizeof s);
    x.workers = (int)wire_u32(w);
    x.actors = (int)wire_u32(w);
    x.leases = (int)wire_u32(w);
    x.objects = wire_u64(w);
    x.store_limit = wire_u64(w);
    x.store_used = wire_u64(w);
    x.spill_used = wire_u64(w);
    x.spill_written = wire_u64(w);
    x.spill_read = wire_u64(w);
    uint32_t n = wire_u32(w);
    for (uint32_t i = 0; i < n && !w->broken; i++) {
        int pid = (int)wire_u32(w);
        if (x.n_worker_pids < 64) x.worker_pids[x.n_worker_pids++] = pid;
    }
    wire_text(w, x.path, sizeof x.path);
    if (!r || wire_end(w, "info")) return;
    info_amounts(&s[0], &s[1], &x);
    r->info = x;
    r->done = true;
}

/* The answer to a request for a segment or an actor. */
static void on_reply(wire *w, int *fds, int n_fds)
{
    reply *r = rt_find_reply(wire_u64(w));
    manta_status st = (manta_status)wire_u32(w);
    uint64_t id = wire_u64(w);
    char text[256];

    wire_text(w, text, sizeof text);
    if (!r || wire_end(w, "answer")) {
        socket_close_all(fds, n_fds);
        return;
    }
    if (n_fds == SOCKET_FDS_LOST && !st) {
        st = proc_fail_files("memory for objects cannot be had");
        snprintf(text, sizeof text, "%s", manta_error_text());
    }
    r->status = st;
    r->id = id;
    r->fd = n_fds > 0 ? fds[0] : -1;
    memcpy(r->text, text, sizeof text);
    r->done = true;
}

static void on_construct(wire *w)
{
    size_t n;
    uint64_t actor = wire_u64(w);
    uint32_t concurrency = wire_u32(w);
    const void *bytes = wire_bytes(w, &n);
    incoming *c = bytes && !wire_end(w, "constructor") ? incoming_of(NULL, bytes, n) : NULL;

    if (!c) return;
    if (rt->is_retired) { /* it was given to the actor before it had said so, and is the actor's */
        rt->retires = rt->is_retired = false;
        exec_block(false);
    }
    c->actor = actor;
    c->concurrency = concurrency < 1000 ? (int)concurrency : 1000;
    list_push(&rt->calls, &c->link);
}

static incoming *find_incoming(list *in, uint64_t task)
{
    for (list *l = in->next; l != in; l = l->next)
        if (LIST_ITEM(l, incoming, link)->task == task && LIST_ITEM(l, incoming, link)->from)
            return LIST_ITEM(l, incoming, link);
    return NULL;
}

static void on_cancel(wire *w)
{
    uint64_t task = wire_u64(w);
    unsigned how = wire_u32(w);

    if (wire_end(w, "cancel")) return;
    rt_pump(); /* the call was sent before the cancel, by another way */
    incoming *queued = find_incoming(&rt->calls, task), *running = find_incoming(&rt->running, task);
    while (queued && !incoming_claim(queued)) {
        incoming_free(queued);
        queued = find_incoming(&rt->calls, task);
    }
    cancel_heard h = cancel_told(queued != NULL, running != NULL, how);
    if (h.close) atomic_store(&running->ends, true);
    if (h.mark && !atomic_exchange(&running->cancelled, true)) hooks_tell_cancelled(task);
    if (h.spread) calls_cancel_of(task);
    if (!h.answer) return;
    failure *f = failure_make(MANTA_FAILURE_CANCELLED, MANTA_ECANCELLED, NULL, (int)getpid(),
                              "the call was cancelled before it began");
    buf *b = proto_begin(&rt->out, PROTO_FAILED);
    wire_put_u64(b, task);
    wire_put_u64(b, 0);
    failure_put(b, f);
    failure_unref(f);
    peer_answer(queued->from, b);
    incoming_free(queued);
}

/* A worker was forked, and this process shows what it prints. */
static void on_output(wire *w, int *fds, int n_fds)
{
    uint32_t id = wire_u32(w);
    int pid = (int)wire_u32(w);
    const char *what = "what a worker prints cannot be read";
    manta_status st = wire_end(w, "output");

    if (!st && n_fds == SOCKET_FDS_LOST)
        st = proc_fail_files(what);
    else if (!st && n_fds != 4)
        st = manta_fail(MANTA_ECORRUPT, "%s: the daemon gave %d descriptors, expected 4", what, n_fds);
    if (st)
        socket_close_all(fds, n_fds);
    else
        st = output_add(&rt->output, pid, fds);
    if (!st) return;
    /* Nobody would read its pipes, and it would wait in a write() for ever. */
    rt_unreachable(id, n_fds == SOCKET_FDS_LOST);
}

static void on_no_worker(wire *w)
{
    sched_shape s;
    const void *bytes = wire_take(w, sizeof s);

    if (bytes) memcpy(&s, bytes, sizeof s);
    failure *f = failure_take(w);
    if (!wire_end(w, "refusal")) calls_no_worker(&s, f);
    failure_unref(f);
}

static void on_stack_ask(wire *w)
{
    static char own[STACK_OWN]; /* under the lock */
    uint64_t request = wire_u64(w);
    buf text = {0};

    if (wire_end(w, "stack") || !rt->is_worker) return;
    size_t n = hooks_stack(own, sizeof own);
    if (n > 0) buf_add(&text, own, n);
    if (n > 0) buf_add_char(&text, '\n');
    if (stack_take(rt->first_thread, &text)) buf_printf(&text, "%s\n", manta_error_text());
    proto_begin(&rt->out, PROTO_STACK_IS);
    wire_put_u64(&rt->out, request);
    wire_put_bytes(&rt->out, text.at, text.n);
    rt_tell();
    buf_release(&text);
}

static void on_still_ask(wire *w)
{
    uint64_t round = wire_u64(w);

    if (wire_end(w, "question") || !rt->is_worker) return;
    proto_begin(&rt->out, PROTO_STILL);
    wire_put_u64(&rt->out, round);
    wire_put_u32(&rt->out, worker_is_still());
    rt_tell();
}

static void on_found(wire *w)
{
    on_reply(w, NULL, 0);
}

static void on_grant(wire *w)
{
    peer *p = find_peer(wire_u32(w));
    sched_shape s;
    const void *bytes = wire_take(w, sizeof s);

    if (!bytes) return;
    memcpy(&s, bytes, sizeof s);
    uint64_t number = wire_u64(w);
    if (!wire_end(w, "grant")) calls_grant(p, &s, number);
}

static void on_reclaim(wire *w)
{
    peer *p = find_peer(wire_u32(w));

    if (p) calls_reclaim(p);
}

static void on_gone(wire *w)
{
    uint32_t id = wire_u32(w);
    peer *p = find_peer(id);
    int status = (int)wire_u32(w);
    proto_memory memory = {.why = wire_u32(w)};

    memory.used = wire_u64(w);
    memory.limit = wire_u64(w);
    map_u64_remove(&rt->refused, id);
    if (wire_end(w, "end") || !p) return;
    p->status = status;
    p->memory = memory;
    rt_peer_end(p);
}

static void on_segment_gone(wire *w)
{
    store_forget(rt->store, wire_u64(w));
}

static void on_segment_ask(wire *w)
{
    uint64_t id = wire_u64(w);

    if (!wire_end(w, "segment")) rt_let_segment_go(NULL, id, store_ask(rt->store, id));
}

static void on_rebuild(wire *w)
{
    char why[256];
    uint64_t id = wire_u64(w);

    wire_text(w, why, sizeof why);
    if (!wire_end(w, "object")) rebuild_object(id, why);
}

static void on_free(wire *w)
{
    uint64_t id = wire_u64(w);
    store_place *at = map_u64_find(&rt->given, id);

    if (!at) return;
    store_place place = *at;
    map_u64_remove(&rt->given, id);
    store_give(rt->store, place);
}

static void on_actor_at(wire *w)
{
    uint64_t id = wire_u64(w);
    uint32_t client = wire_u32(w);
    int pid = (int)wire_u32(w), retries = (int)wire_u32(w), most = (int)wire_u32(w);
    uint32_t flags = wire_u32(w);

    if (!wire_end(w, "actor")) actor_at(id, client, pid, retries, most, flags);
}

static void on_actor_dead(wire *w)
{
    uint64_t id = wire_u64(w);
    failure *f = failure_take(w);

    if (wire_end(w, "actor"))
        failure_unref(f);
    else
        actor_died(id, failure_adopt(f));
}

static void on_group_gone(wire *w)
{
    uint64_t id = wire_u64(w);

    if (!wire_end(w, "group")) group_gone(id);
}

static void on_answer(wire *w)
{
    reply *r = rt_find_reply(wire_u64(w));

    if (!r) return;
    buf_add(&r->bytes, w->at, (size_t)(w->end - w->at));
    r->done = true;
}

/* Its connection ends next, and what waits hears this. */
static void on_ends(wire *w)
{
    char why[sizeof rt->ends];

    wire_text(w, why, sizeof why);
    if (!wire_end(w, "end")) memcpy(rt->ends, why, sizeof why);
}

static void on_exit_request(wire *w)
{
    (void)w;
    leader_stop_all();
}

/* A call that runs here is nobody's any more, and cannot be ended without the process. In none, the process
 * makes what it has promised to others, and leaves then. */
static void on_abandoned(wire *w)
{
    (void)w;
    if (!list_is_empty(&rt->running)) (void)kill(getpid(), SIGKILL);
    leader_stop_all();
}

/* ---- which function hears which kind ---- */

/* A kind is heard by one of the two: by the second when its messages carry
 * descriptors, which then belong to that function; those that come with a kind of
 * the first sort are closed beforehand. */
typedef struct handler {
    void (*hear)(wire *w);
    void (*hear_with_fds)(wire *w, int *fds, int n_fds);
} handler;

static const handler handlers[] = {
    [PROTO_PEER] = {.hear_with_fds = rt_take_peer},
    [PROTO_SEGMENT] = {.hear_with_fds = on_reply},
    [PROTO_OUTPUT] = {.hear_with_fds = on_output},
    [PROTO_FOUND] = {.hear = on_found},
    [PROTO_GRANT] = {.hear = on_grant},
    [PROTO_NO_WORKER] = {.hear = on_no_worker},
    [PROTO_ENDS] = {.hear = on_ends},
    [PROTO_RECLAIM] = {.hear = on_reclaim},
    [PROTO_GONE] = {.hear = on_gone},
    [PROTO_SEGMENT_GONE] = {.hear = on_segment_gone},
    [PROTO_SEGMENT_ASK] = {.hear = on_segment_ask},
    [PROTO_REBUILD] = {.hear = on_rebuild},
    [PROTO_FREE] = {.hear = on_free},
    [PROTO_OBJECT] = {.hear = on_object_ready},
    [PROTO_OBJECT_FAILED] = {.hear = on_object_failed},
    [PROTO_CONSTRUCT] = {.hear = on_construct},
    [PROTO_ACTOR_AT] = {.hear = on_actor_at},
    [PROTO_ACTOR_DEAD] = {.hear = on_actor_dead},
    [PROTO_CANCEL_TASK] = {.hear = on_cancel},
    [PROTO_STACK_ASK] = {.hear = on_stack_ask},
    [PROTO_STILL_ASK] = {.hear = on_still_ask},
    [PROTO_EXIT] = {.hear = on_exit_request},
    [PROTO_ABANDONED] = {.hear = on_abandoned},
    [PROTO_INFO_IS] = {.hear = on_info},
    [PROTO_ANSWER] = {.hear = on_answer},
    [PROTO_GROUP_GONE] = {.hear = on_group_gone},
};

void rt_daemon_message(wire *w, int *fds, int n_fds)
{
    proto_kind kind = proto_kind_of(w);
    bool known = (size_t)kind < sizeof handlers / sizeof handlers[0];
    const handler h = known ? handlers[kind] : (handler){0};

    rt->heard++;
    if (h.hear_with_fds) {
        h.hear_with_fds(w, fds, n_fds);
        return;
    }
    socket_close_all(fds, n_fds);
    if (h.hear)
        h.hear(w);
    else
        log_error("the daemon said something unknown", LOG_INT("kind", kind));
}
