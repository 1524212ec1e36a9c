/* worker.c - what a worker does all day: takes calls, one after the other.
 *
 *     READY to the daemon ──▶ waits ──▶ runs a call ──▶ answers ──┐
 *                              ▲ ▲                                 │
 *                              │ └─────────────────────────────────┘
 *                              └ it runs a constructor, and is an actor: `selves`; with a concurrency
 *                                above 1 further threads begin, which do the same (leader.h says who
 *                                takes the next call)
 *
 *     EXIT ──▶ no call runs or comes ──▶ the actor's end ──▶ lingers ──▶ hooks ──▶ farewells ──▶ _exit
 *                                        (exec_end_selves)   until what it has promised is made, and
 *                                                            all answers have gone out
 *
 * A worker that its function has used up (max_calls) retires: it behaves as one whose call waits
 * for ever, so that its callers get their calls back and the daemon ends it.
 *
 * Who writes what, all under the lock: rt->calls is filled by those who read rings and the socket,
 * and emptied here; a call is in rt->running from before its function begins until its answer has
 * been given away. The lock is given away while a function runs.
 *
 * What may be changed: which of the calls that may begin is taken. What may not: that output is
 * flushed before the answer, so that what a call has printed is seen before its result; and that
 * the answer of the call which ends the actor goes out last (`farewells`). */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/vec.h"
#include "task/call.h"
#include "task/concurrency.h"
#include "task/hooks.h"
#include "task/incoming.h"
#include "task/leader.h"
#include "task/nested.h"
#include "task/node.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/stack.h"
#include "task/value.h"

static bool ends_selves; /* under the lock: the actor's end runs, without it, and no call may begin */

/* The next call to run; NULL: none. A caller that knew this process before it was
 * an actor may be faster with its first call than the daemon with the
 * constructor: such a call waits. */
static incoming *next_call(void)
{
    if (ends_selves) return NULL;
    for (list *l = rt->calls.next; l != &rt->calls; l = l->next) {
        incoming *c = LIST_ITEM(l, incoming, link);
        bool is_here = !c->actor || !c->from || map_u64_find(&rt->selves, c->actor);
        if (is_here && (!c->actor || !c->task || incoming_has_room(c))) return c;
    }
    return NULL;
}

/* The concurrency groups that a call of this process's actor has its place in; NULL: there are none. */
static concurrency *groups_of(const incoming *c)
{
    self_of **self = c->group ? map_u64_find(&rt->selves, c->actor) : NULL;

    return self ? (*self)->groups : NULL;
}

/* A place has become free, for which a call may wait that who leads has passed over. */
static void leave_group(concurrency *groups, int group)
{
    concurrency_leave(groups, group);
    rt_changed();
}

/* How many calls run at the same time in the actor that a call has constructed. */
static int places_of(const incoming *c)
{
    self_of **self = map_u64_find(&rt->selves, c->actor);

    return self && (*self)->groups ? concurrency_total((*self)->groups) : c->concurrency;
}

static bool has_calls(void *ctx)
{
    (void)ctx;
    return next_call() != NULL;
}

static bool has_work(void *ctx)
{
    (void)ctx;
    return next_call() || rt->exiting;
}

bool worker_is_still(void)
{
    int running = 0;

    for (list *l = rt->running.next; l != &rt->running; l = l->next) running++;
    bool may_begin = !rt->blocked && running <= rt->threads && next_call();
    bool all_wait = rt->blocked || running == rt->waiting_calls;
    return all_wait && !may_begin && rt->timed == 0 && rt->questions == 0 && !rt_has_input();
}

/* A constructor has run: the daemon wants to know how it went. */
static void report_actor(uint64_t actor, const buf *answer)
{
    wire w = wire_of(answer->at, answer->n);
    bool failed = proto_kind_of(&w) == PROTO_FAILED;
    buf *b = proto_begin(&rt->out, failed ? PROTO_ACTOR_FAILED : PROTO_ACTOR_UP);

    wire_put_u64(b, actor);
    if (failed) {
        (void)wire_u64(&w);
        (void)wire_u64(&w);
        failure *f = failure_take(&w);
        f->is.kind = MANTA_FAILURE_ACTOR;
        failure_put(b, f);
        failure_unref(f);
    }
    rt_tell();
}

/* What is said last: the answers of calls that have ended their actor. */
typedef struct farewell {
    uint32_t to;
    buf answer;
} farewell;

static VEC(farewell) farewells; /* under the lock */

void incoming_answer(const incoming *c, const buf *answer)
{
    if (c->from->is_dead) return;
    if (!c->is_last) {
        peer_answer(c->from, answer);
        return;
    }
    farewell f = {.to = c->from->id};
    buf_add(&f.answer, answer->at, answer->n);
    vec_push(&farewells, f);
}

static void say_farewells(void)
{
    for (size_t i = 0; i < farewells.n; i++) {
        peer *to = find_peer(farewells.at[i].to);
        if (to) peer_answer(to, &farewells.at[i].answer);
    }
}

static void start_threads(int n);

/* This process has run as many calls of a function as it may. It behaves as one whose call waits,
 * for ever: what comes goes back to its callers. The daemon ends it when its lease is returned, and is
 * told so before it hears that this process waits: nobody is to be refused for that. */
static void retire_worker(void)
{
    rt->is_retired = true;
    proto_begin(&rt->out, PROTO_RETIRE);
    rt_tell();
    exec_block(true);
}

/* Runs the first call of the queue. The lock is given away while the function
 * runs, so that several threads can be in here. */
static void run_next_call(buf *answer)
{
    incoming *c = next_call();

    if (!incoming_claim(c)) {
        incoming_free(c);
        return;
    }
    list_remove(&c->link);
    list_push(&rt->running, &c->link);
    rt_current = c;
    size_t pinned = rt->pinned.n;
    concurrency *groups = groups_of(c);
    int group = c->group - 1;
    if (groups) concurrency_enter(groups, group);
    bool ended = exec_run(c, answer);
    rt_current = NULL;
    if (groups) leave_group(groups, group);
    if (rt->queued > 0) calls_dispatch(); /* what it did not wait for */
    if (!ended) return;
    fflush(stdout); /* before the answer: what a call printed is seen before its result */
    list_remove(&c->link);
    if (c->is_own) {
        nested_finish(answer, pinned);
    } else if (c->from) {
        incoming_answer(c, answer);
    } else {
        report_actor(c->actor, answer);
        start_threads(places_of(c) - 1);
    }
    incoming_free(c);
    if (rt->retires && !rt->is_retired) retire_worker();
}

/* The others of a concurrent actor; the process's end is theirs. */
static void work_on(void *arg)
{
    buf answer = {0};
    (void)arg;

    mutex_lock(&rt->lock);
    for (leader_become(); !rt_wait(has_calls, NULL, CLOCK_NEVER); leader_become())
        while (leader_is_me() && next_call()) run_next_call(&answer);
    mutex_unlock(&rt->lock);
}

static void start_threads(int n)
{
    for (; n > 0; n--) {
        thread_id id;
        if (thread_start(&id, "manta-call", work_on, NULL)) {
            log_warn("an actor runs fewer calls at once than it may", LOG_STR("why", manta_error_text()));
            return;
        }
        rt->threads++;
    }
}

static bool is_quiet_or_called(void *ctx)
{
    (void)ctx;
    return list_is_empty(&rt->running) || next_call();
}

/* Whether others have references to what calls of this process are still to make. */
static bool is_awaited(void)
{
    for (size_t i = 0; i < rt->objects.n; i++) {
        const object *o = rt->objects.at[i].value;
        if (o->exported && o->maker) return true;
    }
    return false;
}

/* Whether there is something left to do for others: also answers for which there was no room yet. */
static bool is_owing(void)
{
    return rt->unsent > 0 || is_awaited();
}

static bool is_called_or_quits(void *ctx)
{
    (void)ctx;
    return !list_is_empty(&rt->calls) || !is_owing();
}

/* Calls for an actor that has ended go back to their callers, who learn of its end. */
static void return_calls(buf *b)
{
    while (!list_is_empty(&rt->calls)) {
        incoming *c = LIST_ITEM(rt->calls.next, incoming, link);
        proto_begin(b, PROTO_RETURNED);
        wire_put_u64(b, c->task);
        if (c->from && !c->from->is_dead) peer_answer(c->from, b);
        incoming_free(c);
    }
}

/* The actor has ended and has nothing any more, but what it has promised is to be made: a
 * reference that it returned does not fail because it was the last to be asked. And calls that it has
 * finished are to be heard of, by callers that read late. */
static void linger_actor(buf *b)
{
    bool lingers = is_owing();

    if (lingers) {
        proto_begin(&rt->out, PROTO_LINGERS);
        rt_tell();
    }
    for (; lingers; lingers = is_owing()) {
        if (rt_wait(is_called_or_quits, NULL, CLOCK_NEVER)) _exit(1);
        return_calls(b);
    }
    rt_flush_adds(); /* what was made last is told to nobody yet */
}

_Noreturn void worker_main(int fd, const int pipes[2])
{
    buf answer = {0};

    setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* what is printed must not die with the process */
    stack_install();
    nested_begin();
    manta_status st = runtime_open(fd, -1, pipes);
    if (st == MANTA_EDIED) _exit(0); /* the zygote or the daemon died before it knew of us */
    if (st) {
        log_error("a worker could not start", LOG_STR("why", manta_error_text()));
        _exit(1);
    }
    mutex_lock(&rt->lock);
    proto_begin(&rt->out, PROTO_READY);
    rt_tell();
    for (;;) {
        leader_become();
        if (rt_wait(has_work, NULL, CLOCK_NEVER)) _exit(1);
        while (leader_is_me() && next_call()) run_next_call(&answer);
        if (!rt->exiting || rt_has_input()) continue;
        if (rt_wait(is_quiet_or_called, NULL, CLOCK_NEVER)) _exit(1);
        if (next_call()) continue; /* it came while we looked, and its caller waits for it */
        ends_selves = true;
        mutex_unlock(&rt->lock);
        exec_end_selves();
        mutex_lock(&rt->lock);
        ends_selves = false;
        linger_actor(&answer);
        mutex_unlock(&rt->lock);
        hooks_end();
        mutex_lock(&rt->lock);
        say_farewells();
        mutex_unlock(&rt->lock);
        /* Of a program with threads, files may have come along in the middle of a
         * write: what is in their buffers is not ours to write. */
        fflush(node_has_threads ? stdout : NULL);
        _exit(0);
    }
}
