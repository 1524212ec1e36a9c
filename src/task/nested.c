/* nested.c - see nested.h. A worker whose call waits for calls that it has made itself, and
 * that nobody has begun, runs them on its own stack instead of sleeping while another
 * process is started for them.
 *
 *     fib(20) ── get ──▶ fib(19) ── get ──▶ fib(18) ── ...      one stack, one process
 *        └── fib(18), queued: the oldest goes to whoever has a core free
 *
 * States of a call, beside those of calls.c: it is `here` while its waiter runs it; then it is
 * in rt->own, counts as sent, and no peer has it. It leaves that state by its answer, which is
 * read as that of a peer (call_finish()), so failures, retries, lineage and large results are
 * what they are elsewhere. A call that was sent and not begun is taken back first (claim.h).
 *
 * Who may run what (nested_find()):
 *  1. Only a worker's first thread that is in a function, and not an actor's: drivers and
 *     actors run nobody else's code.
 *  2. Only a call that holds cores and nothing else lends them, and only to a call that needs no
 *     more: what else a waiter holds it uses while it waits.
 *  3. Only a call that would be tried again: if a nested call kills the process, its waiter is run
 *     once more and then lends nothing, so that the failure comes to where it belongs.
 *  4. Only a call whose function is known here to take little time (LONGEST_NS), or that is in
 *     the chain of calls above it (recursion). The waiter cannot go on before the call has
 *     ended, also if it is cancelled alone or its time is over, which is why a call of unknown
 *     length gets a process. With a time limit only a call that is far shorter is run.
 *  5. Not below MOST_DEEP calls on one stack, or when a part of the stack is used: then the waiter
 *     sleeps, gives its core back, and another process goes on with an empty stack.
 *  6. No stream (its reader would wait beneath it), no call of MANTA_CALL_STRATEGY_SPREAD, none of
 *     another environment than this worker's, and none whose process is to end after some (max_calls).
 *
 * Why nothing can hang that did not before: what is run here is what the waiter needs in any
 * case, itself or through an argument, so it could not go on without its end. What cannot be
 * run here goes to the workers, as if nothing of this were there.
 *
 * A call that an actor makes of itself is here, too: it stands in rt->calls like those of others
 * (nested_queue()), and one of the actor's threads runs it. An actor that has one thread, and would
 * wait for such a call, is told so (nested_refuse_self()).
 *
 * What may be changed: the numbers. What may not: running a call that is not awaited. It may
 * never end, and the waiter's own call may be what it waits for. */
#include "task/nested.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/hooks.h"
#include "task/incoming.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/runtime.h"
#include "task/value.h"

#define MOST_DEEP   128 /* calls on one stack */
#define STACK_PART  4 /* the part of the stack that may be used when another call begins */
#define STACK_USUAL ((size_t)8 << 20) /* of a process that has no limit */
#define LONGEST_NS  5000000 /* a call that takes longer, by experience, has a process of its own */
#define MARGIN      1000 /* a wait with a time limit runs what takes this part of it */
#define MOST_STEPS  1000 /* from a result to the first of its arguments that is to be made */

static const char *stack_base;
static size_t stack_most;

bool nested_is_wanted(void)
{
    const char *said = getenv("MANTA_INLINE");

    return !said || strcmp(said, "0") != 0;
}

void nested_begin(void)
{
    struct rlimit r = {0};
    size_t all = STACK_USUAL;

    if (!getrlimit(RLIMIT_STACK, &r) && r.rlim_cur != RLIM_INFINITY && r.rlim_cur > 0)
        all = (size_t)r.rlim_cur;
    stack_base = __builtin_frame_address(0);
    stack_most = all / STACK_PART;
}

static bool has_stack(void)
{
    const char *here = __builtin_frame_address(0);

    return stack_base && (size_t)(stack_base > here ? stack_base - here : here - stack_base) < stack_most;
}

bool nested_lends(void)
{
    const incoming *me = rt_current;

    return me && me->lends > 0 && rt->nests && rt->threads == 0 && me->depth < MOST_DEEP && has_stack();
}

uint32_t nested_lendable(const sched_shape *amount)
{
    if (amount->group) return 0;
    for (int i = 1; i < SCHED_RESOURCES; i++)
        if (amount->amount[i] != 0) return 0;
    return amount->amount[0] < INT32_MAX ? (uint32_t)amount->amount[0] + 1 : 0;
}

uint64_t nested_bits(const char *name)
{
    uint64_t h = 14695981039346656037ULL;

    for (; *name; name++) h = (h ^ (unsigned char)*name) * 1099511628211ULL;
    h ^= h >> 32;
    return 1ULL << (h & 63) | 1ULL << (h >> 6 & 63) | 1ULL << (h >> 12 & 63);
}

uint64_t nested_chain(incoming *in)
{
    if (!in->is_chained) in->chain |= nested_bits(in->name);
    in->is_chained = true;
    return in->chain;
}

/* ---- which call ---- */

/* Rule 4. */
static bool is_short_or_known(const call *c, nested_terms terms)
{
    int64_t est = c->fn->est_ns;
    bool recursive = (nested_chain(rt_current) & c->fn->bits) == c->fn->bits;

    if (terms.left_ns != INT64_MAX) return est >= 0 && est <= LONGEST_NS && est < terms.left_ns / MARGIN;
    return recursive || (est >= 0 && est <= LONGEST_NS);
}

/* Whether the call can be had: it is in its queue, or was sent and not begun. */
static bool is_open(const call *c)
{
    if (c->is_here) return false;
    if (!c->is_sent) return !list_is_empty(&c->link);
    return c->claim && c->at && !c->at->is_dead && claim_is_open(c->at->bell, rt->client, c->claim);
}

call *nested_find(const object *o, nested_terms terms)
{
    if (!nested_lends()) return NULL;
    const call *c = o->maker;
    for (int steps = 0; c && c->missing > 0; steps++) {
        const object *wanted = NULL;
        for (int i = 0; i < c->n_args && !wanted; i++)
            if (c->args[i].o && c->args[i].o->state == OBJECT_PENDING) wanted = c->args[i].o;
        c = wanted && steps < MOST_STEPS ? wanted->maker : NULL;
    }
    if (!c || c->actor || c->is_stream || c->apart || c->max_calls > 0 || c->cancelled || !is_open(c))
        return NULL;
    if (c->shape->amount.environment != rt->environment) return NULL;
    uint32_t needs = c->shape->lends; /* as much as it would lend itself, and 1 */
    return needs > 0 && needs <= rt_current->lends && is_short_or_known(c, terms) ? (call *)(uintptr_t)c
                                                                                  : NULL;
}

/* ---- running ---- */

/* Runs the call and reads its answer; what the answer refers to stays until then. */
static void run_once(call *c)
{
    buf bytes = {0}, answer = {0};
    size_t pinned = rt->pinned.n;

    calls_encode(&bytes, c);
    incoming *in = bytes.n <= RING_MESSAGE || rt->is_local ? incoming_of(NULL, bytes.at, bytes.n) : NULL;
    if (in) {
        incoming *outer = rt_current;
        in->is_own = true;
        in->depth = outer ? outer->depth + 1 : 0;
        if (!rt->is_local) list_push(&rt->running, &in->link);
        rt_current = in;
        (void)exec_run(in, &answer); /* no task is deferred, and without other processes it waits */
        rt_current = outer;
        incoming_free(in);
        if (outer && !rt->is_local) exec_resume(outer);
        wire w = wire_of(answer.at, answer.n);
        proto_kind kind = proto_kind_of(&w);
        if (rt->is_local) list_push(&rt->own, &c->link);
        rt->again = NULL;
        call_finish(NULL, &w, kind);
    } else if (!rt->is_local) {
        call_too_long(c, bytes.n);
    }
    for (; rt->pinned.n > pinned; rt->pinned.n--) {
        object *o = object_find(rt->pinned.at[rt->pinned.n - 1]);
        if (o) object_unpin(o);
    }
    buf_release(&bytes);
    buf_release(&answer);
}

void nested_run_local(call *c)
{
    do run_once(c);
    while (rt->again == c);
}

void nested_run(call *c)
{
    if (!call_take(c)) return;
    list_push(&rt->own, &c->link);
    c->is_here = c->is_sent = true;
    if (rt->queued > 0) calls_dispatch(); /* the others are for whoever has a core */
    uint64_t awaits = rt->awaits;
    rt->awaits = 0; /* nothing sleeps */
    run_once(c);
    rt->awaits = awaits;
}

/* ---- an actor's calls of itself ---- */

void nested_queue(call *c)
{
    buf bytes = {0};

    calls_encode(&bytes, c);
    incoming *in = bytes.n <= RING_MESSAGE ? incoming_of(NULL, bytes.at, bytes.n) : NULL;
    if (in) {
        in->is_own = true;
        call_unlink(c);
        list_push(&rt->own, &c->link);
        c->is_here = c->is_sent = true;
        list_push(&rt->calls, &in->link);
        rt_changed();
    } else {
        call_too_long(c, bytes.n);
    }
    buf_release(&bytes);
}

void nested_finish(const buf *answer, size_t pinned)
{
    wire w = wire_of(answer->at, answer->n);
    proto_kind kind = proto_kind_of(&w);

    call_finish(NULL, &w, kind);
    for (; rt->pinned.n > pinned; rt->pinned.n--) {
        object *o = object_find(rt->pinned.at[rt->pinned.n - 1]);
        if (o) object_unpin(o);
    }
    rt_changed();
}

/* ---- cancelling ---- */

/* The call of that number which this process has made for itself and not begun; NULL: none. */
static incoming *find_queued(uint64_t task)
{
    for (list *l = rt->calls.next; l != &rt->calls; l = l->next) {
        incoming *in = LIST_ITEM(l, incoming, link);
        if (in->is_own && in->task == task) return in;
    }
    return NULL;
}

bool nested_cancel(call *c, unsigned how)
{
    incoming *queued = find_queued(c->id);

    if (queued) {
        incoming_free(queued);
        call_abandon(c, failure_make(MANTA_FAILURE_CANCELLED, MANTA_ECANCELLED, c->fn->name, 0,
                                     "the call was cancelled"));
        return true;
    }
    if (how & MANTA_CANCEL_FORCE) return false; /* it would end its waiter */
    c->cancelled = true;
    for (list *l = rt->running.next; l != &rt->running; l = l->next) {
        incoming *in = LIST_ITEM(l, incoming, link);
        if (in->from || !in->is_own || in->task != c->id) continue;
        if (!(how & MANTA_CANCEL_ALONE)) atomic_store(&in->ends, true);
        if (!atomic_exchange(&in->cancelled, true)) hooks_tell_cancelled(c->id);
    }
    if (!(how & MANTA_CANCEL_ALONE)) calls_cancel_of(c->id);
    return true;
}

/* ---- waiting for oneself ---- */

void nested_refuse_self(const object *o)
{
    call *c = o->maker;

    if (!rt_current || !rt_current->actor || rt->threads > 0 || !c || !c->actor ||
        c->actor->id != rt_current->actor)
        return;
    incoming *queued = c->is_here ? find_queued(c->id) : NULL;
    if (queued) incoming_free(queued);
    call_withdraw(c);
    call_abandon(c, failure_make(MANTA_FAILURE_ACTOR, MANTA_EBUSY, c->fn->name, (int)getpid(),
                                 "the actor would wait for itself for ever: %s > %s, and it runs one call "
                                 "at a time (max_concurrency)",
                                 rt_current->name, c->fn->name));
}
