/* worker.c - what a worker does all day: takes calls, one after the other. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "task/call.h"
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

/* The next call to run; NULL: none. A caller that knew this process before it was
 * an actor may be faster with its first call than the daemon with the
 * constructor: such a call waits. */
static incoming *next_call(void)
{
    for (list *l = rt->calls.next; l != &rt->calls; l = l->next) {
        incoming *c = LIST_ITEM(l, incoming, link);
        if (!c->actor || !c->from || map_u64_find(&rt->selves, c->actor)) return c;
    }
    return NULL;
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

static void start_threads(int n);

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
    bool ended = exec_run(c, answer);
    rt_current = NULL;
    if (rt->queued > 0) calls_dispatch(); /* what it did not wait for */
    if (!ended) return;
    fflush(stdout); /* before the answer: what a call printed is seen before its result */
    list_remove(&c->link);
    if (c->is_own) {
        nested_finish(answer, pinned);
    } else if (c->from && !c->from->is_dead) {
        peer_answer(c->from, answer);
    } else if (!c->from) {
        report_actor(c->actor, answer);
        start_threads(c->concurrency - 1);
    }
    incoming_free(c);
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

static bool is_called_or_unawaited(void *ctx)
{
    (void)ctx;
    return !list_is_empty(&rt->calls) || !is_awaited();
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
 * reference that it returned does not fail because it was the last to be asked. */
static void linger(buf *b)
{
    bool lingers = is_awaited();

    if (lingers) {
        proto_begin(&rt->out, PROTO_LINGERS);
        rt_tell();
    }
    for (; lingers; lingers = is_awaited()) {
        if (rt_wait(is_called_or_unawaited, NULL, CLOCK_NEVER)) _exit(1);
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
        mutex_unlock(&rt->lock);
        exec_end_selves();
        mutex_lock(&rt->lock);
        linger(&answer);
        mutex_unlock(&rt->lock);
        hooks_end();
        /* Of a program with threads, files may have come along in the middle of a
         * write: what is in their buffers is not ours to write. */
        fflush(node_has_threads ? stdout : NULL);
        _exit(0);
    }
}
