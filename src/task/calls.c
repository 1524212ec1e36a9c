/* calls.c - calls from this process: queued, sent to leased workers, finished, tried
 * again. The lock is held everywhere.
 *
 *     submit.c                 call_queue()              call_send()
 *        │  arguments missing ──▶ queue of its shape ──────▶ peer->sent
 *        └──▶ in no list           or of its actor             │
 *                ▲                        ▲                    ├── DONE ──▶ results are set, freed
 *                │                        └── RETURNED, again ─┤          or kept (rebuild.c)
 *                └───────── arguments were lost on the way ────┤
 *                                                              └── FAILED, a death ──▶ retry.c:
 *                                                                  again, or the results fail
 *
 * A call is in one of these places at a time, and call->link is the list it is in. What
 * counts it there goes with it: rt->queued and the shape's or the actor's `queued` while it
 * is in a queue, the peer's in_flight and load_ns while it is sent.
 *
 * A call whose own caller waits for it may be taken out of its queue, or back from a peer that
 * has not begun it (call_take()), and be run in this process (nested.c); it is in rt->own then.
 *
 * A call has one outcome. Its results are objects that point back to it (object->maker); they
 * are set, or fail, once: a second answer finds no call of that number in the peer's list,
 * and a result that is not pending is left alone.
 *
 * What may be changed: how much is sent ahead (lease.h). What may not: that a call is tried again at the
 * front of its queue, in the order in which it was sent; actors count on it. */
#include "task/call.h"

#include <string.h>

#include "base/mem.h"
#include "os/spawner.h"
#include "task/actor_link.h"
#include "task/call_head.h"
#include "task/cancel.h"
#include "task/deadlock.h"
#include "task/gifts.h"
#include "task/group_link.h"
#include "task/incoming.h"
#include "task/limits.h"
#include "task/nested.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/rebuild.h"
#include "task/retry.h"
#include "task/ring.h"
#include "task/runtime.h"
#include "task/value.h"

#define OVERHEAD_NS 1000 /* of a call, beside what its function takes */
#define LINGERS     50 /* looks of the watcher, a millisecond apart, after the last call that was kept */
#define MOST_LOST   8 /* times that a call waits for arguments that were lost */

/* ---- the end of a call ---- */

static void unpin_inner(const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n; i++) {
        object *inner = object_find(ids[i]);
        if (inner) object_unpin(inner);
    }
}

void call_unlink(call *c)
{
    if (c->shape)
        call_order_take(&c->shape->queue, c);
    else
        list_remove(&c->link);
}

void call_release(call *c)
{
    call_unlink(c);
    for (int i = 0; i < c->n_args; i++) {
        if (c->args[i].o)
            object_unpin(c->args[i].o);
        else
            unpin_inner(&c->args[i].v);
    }
    object *handle = c->actor ? object_find(c->actor->id) : NULL;
    if (c->actor) c->actor->pending--;
    if (handle) object_unpin(handle);
    mem_free(c->label);
    mem_free(c->group);
    mem_free(c);
}

void call_free(call *c)
{
    call_release(c);
    rt->done++;
}

/* Takes f. */
static void call_fail(call *c, failure *f)
{
    uint64_t id = c->id;
    int n = c->results;

    call_unlink(c);
    for (int i = 0; i < n; i++) {
        object *o = object_find(id + (uint64_t)i);
        if (o && o->state == OBJECT_PENDING) object_fail(o, failure_ref(f));
    }
    failure_unref(f);
    rebuild_failed(c);
    call_free(c);
}

/* ---- sending ---- */

/* A call lends its cores while it would be tried again if one that it runs killed the
 * process; see nested.c. */
static uint32_t call_lends(const call *c)
{
    return c->shape && c->attempt == 0 && c->max_retries != 0 && !c->is_stream ? c->shape->lends : 0;
}

void calls_encode(buf *b, const call *c)
{
    proto_begin(b, PROTO_CALL);
    call_head_put(b, &(call_head){.task = c->id,
                                  .actor = c->actor ? c->actor->id : 0,
                                  .chain = c->chain,
                                  .claim = c->claim,
                                  .lends = call_lends(c),
                                  .attempt = (uint32_t)c->attempt,
                                  .results = (uint32_t)c->results,
                                  .is_stream = c->is_stream,
                                  .window = c->window,
                                  .max_calls = c->max_calls,
                                  .has_group = c->group != NULL});
    wire_put_text(b, c->fn->name);
    wire_put_text(b, c->label);
    if (c->group) wire_put_text(b, c->group);
    wire_put_u32(b, (uint32_t)c->n_args);
    for (int i = 0; i < c->n_args; i++) value_put(b, c->args[i].o ? &c->args[i].o->v : &c->args[i].v);
}

void call_too_long(call *c, size_t n)
{
    call_fail(c, failure_make(MANTA_FAILURE_SUBMIT, MANTA_EINVAL, c->fn->name, 0,
                              "a call of %s has %zu bytes, at most %zu fit into a message", c->fn->name, n,
                              RING_MESSAGE));
}

static void call_unclaim(call *c, peer *p)
{
    peer_unclaim(p, c->claim);
    c->claim = 0;
}

bool call_send(call *c, peer *p)
{
    c->claim = rt->takes_back && !c->actor ? peer_claim(p) : 0;
    calls_encode(&rt->out, c);
    if (rt->out.n > RING_MESSAGE) {
        call_unclaim(c, p);
        call_too_long(c, rt->out.n);
        return true;
    }
    if (!peer_send(p, &rt->out)) {
        call_unclaim(c, p);
        return false;
    }
    call_unlink(c);
    list_push(&p->sent, &c->link);
    c->at = p;
    c->is_sent = true;
    c->items = 0;
    c->est_ns = c->fn->est_ns < 0 ? LEASE_BUDGET_NS : c->fn->est_ns + OVERHEAD_NS;
    p->load_ns += c->est_ns;
    p->in_flight++;
    if (rt->awaits >= c->id && rt->awaits - c->id < (uint64_t)c->results) deadlock_ask();
    return true;
}

/* All arguments are there: the call may be sent. */
void call_queue(call *c, bool first)
{
    rt->queued++;
    rt->returns++;
    c->is_sent = c->is_here = false;
    c->at = NULL;
    c->claim = 0;
    if (c->actor) {
        c->actor->queued++;
        if (first)
            list_push_first(&c->actor->queue, &c->link);
        else
            list_push(&c->actor->queue, &c->link);
        return;
    }
    c->shape->queued++;
    if (first)
        call_order_put_first(&c->shape->queue, c);
    else
        call_order_put(&c->shape->queue, c);
}

static void call_unqueue(call *c)
{
    if (c->is_sent || list_is_empty(&c->link)) return;
    rt->queued--;
    if (c->actor)
        c->actor->queued--;
    else
        c->shape->queued--;
    call_unlink(c);
}

/* The failure of an argument is the failure of the call. */
static failure *argument_failure(const call *c)
{
    for (int i = 0; i < c->n_args; i++)
        if (c->args[i].o && c->args[i].o->state == OBJECT_FAILED) return c->args[i].o->failure;
    return NULL;
}

static void call_ready(call *c)
{
    failure *f = failure_ref(argument_failure(c));

    for (int i = 0; i < c->n_args && !f; i++)
        if (c->args[i].o) object_export_inner(&c->args[i].o->v);
    if (!f && c->shape && group_is_gone(c->shape->amount.group)) f = group_failure();
    if (f) {
        call_unqueue(c);
        call_fail(c, f);
    } else if (rt->is_local && c->actor && c->actor->state == ACTOR_DEAD) {
        call_fail(c, failure_ref(c->actor->failure));
    } else if (rt->is_local) {
        nested_run_local(c);
    } else if (c->actor) {
        actor_dispatch(c->actor); /* it has its place in the actor's queue already */
        if (rt->queued > 0) rt_nudge();
    } else if (!c->shape->is_infeasible) {
        call_queue(c, false);
        if (nested_lends()) { /* it is sent when its caller waits, or works on for a while */
            rt->lingers = LINGERS;
            rt->takes_back = true;
        } else {
            shape_dispatch(c->shape);
        }
        if (rt->queued > 0) rt_nudge();
    }
}

void call_argument_ready(call *c)
{
    if (--c->missing == 0) call_ready(c);
}

void call_resume(call *c)
{
    c->missing = 1; /* not ready before the last argument was looked at */
    for (int i = 0; i < c->n_args; i++) {
        object *o = c->args[i].o;
        if (!o || o->state != OBJECT_PENDING) continue;
        c->missing++;
        vec_push(&o->waiting, c);
        object_want(o);
    }
    call_argument_ready(c);
}

/* ---- answers ---- */

static call *find_sent(peer *from, uint64_t id)
{
    list *head = from ? &from->sent : &rt->own;

    for (list *l = head->next; l != head; l = l->next)
        if (LIST_ITEM(l, call, link)->id == id) return LIST_ITEM(l, call, link);
    return NULL;
}

void call_item_came(peer *from, uint64_t id, uint64_t index)
{
    call *c = find_sent(from, id);

    if (c && index == c->items) c->items++;
}

void calls_unheard(const peer *p)
{
    uint64_t n = 0;

    proto_begin(&rt->out, PROTO_UNHEARD);
    wire_put_u32(&rt->out, p->id);
    wire_put_u32(&rt->out, 0);
    for (const list *l = p->sent.next; l != &p->sent; l = l->next) n++;
    wire_put_u64(&rt->out, n);
    for (const list *l = p->sent.next; l != &p->sent; l = l->next) {
        const call *c = LIST_ITEM(l, call, link);
        wire_put_u64(&rt->out, c->id);
        wire_put_u64(&rt->out, gifts_item((uint32_t)c->attempt, c->items));
    }
    rt_tell();
}

static retry_state state_of(const call *c, bool begun)
{
    return (retry_state){.attempt = c->attempt,
                         .max_retries = c->max_retries,
                         .retry_errors = c->retry_errors,
                         .retry_on = c->retry_on,
                         .is_actor = c->actor != NULL,
                         .cancelled = c->cancelled,
                         .begun = begun};
}

/* What a call fails with that is not tried again, for the reason `kind`. Takes f. */
static failure *failure_of_kind(failure *f, manta_failure_kind kind)
{
    bool was_cancelled = kind == MANTA_FAILURE_CANCELLED && f->is.code != MANTA_ECANCELLED;

    if (kind == f->is.kind && !was_cancelled && kind != MANTA_FAILURE_UNKNOWN) return f;
    failure *x = failure_as(f, kind,
                            was_cancelled                   ? MANTA_ECANCELLED
                            : kind == MANTA_FAILURE_UNKNOWN ? MANTA_EUNKNOWN
                                                            : f->is.code);
    if (was_cancelled) memcpy(x->is.text, "the call was cancelled", sizeof "the call was cancelled");
    failure_unref(f);
    return x;
}

/* Tries again, or fails with what happened. Takes f, which is NULL when nothing did. */
static void call_again(call *c, retry_event e, bool begun, failure *f)
{
    retry_state s = state_of(c, begun);

    s.code = f ? f->is.code : MANTA_OK;
    manta_failure_kind kind = f ? f->is.kind : MANTA_FAILURE_NONE;
    retry_verdict verdict = retry_decide(&s, e, &kind);
    call_unlink(c);
    if (verdict == RETRY_FAIL) {
        if (!f) f = failure_make(kind, MANTA_ECANCELLED, c->fn->name, 0, "the call was cancelled");
        call_fail(c, failure_of_kind(f, kind));
        return;
    }
    failure_unref(f);
    if (c->shape && group_is_gone(c->shape->amount.group)) { /* its worker was killed for that */
        call_fail(c, group_failure());
        return;
    }
    if (verdict == RETRY_AGAIN) c->attempt++;
    if (rt->is_local)
        rt->again = c; /* nested_run_local() sees it */
    else
        call_queue(c, true);
}

static void fail_cancelled(call *c)
{
    call_fail(
        c, failure_make(MANTA_FAILURE_CANCELLED, MANTA_ECANCELLED, c->fn->name, 0, "the call was cancelled"));
}

/* A result that nobody is to see. */
static void drop_result(uint64_t id, const value *v, bool is_here)
{
    if (!is_here)
        object_drop_value(v->place.segment ? id : 0, v);
    else if (v->place.segment)
        store_give(rt->store, v->place);
}

static void take_results(call *c, wire *w)
{
    bool is_here = c->is_here || rt->is_local;
    uint32_t n = wire_u32(w);
    VEC(value) values = {0};
    MAP_U64(failure *) failures = {0}; /* by the number of the result */

    for (uint32_t i = 0; i < n && i < (uint32_t)c->results && !w->broken; i++) {
        value v = {0};
        if (value_is_failure(w)) {
            (void)wire_u32(w);
            *map_u64_put(&failures, i) = failure_adopt(failure_take(w));
        } else {
            value_take(w, &v);
        }
        vec_push(&values, v);
    }
    if (wire_end(w, "result") || values.n != (size_t)c->results) {
        call_fail(c,
                  failure_make(MANTA_FAILURE_TASK, MANTA_ECORRUPT, c->fn->name, 0,
                               "the answer to a call of %s cannot be read: it does not hold %d whole results",
                               c->fn->name, c->results));
        goto out;
    }
    uint64_t id = c->id;
    if (c->cancelled && !cancel_keeps(c->fn->name, c->actor)) {
        for (size_t i = 0; i < values.n; i++)
            if (!map_u64_find(&failures, i)) drop_result(id + i, &values.at[i], is_here);
        fail_cancelled(c);
        goto out;
    }
    for (size_t i = 0; i < values.n; i++) {
        object *o = object_find(id + i);
        failure **f = failures.n > 0 ? map_u64_find(&failures, i) : NULL;
        if (!o || o->state != OBJECT_PENDING) {
            if (is_here) drop_result(id + i, &values.at[i], true);
            continue;
        }
        if (f)
            object_fail(o, failure_ref(*f));
        else
            object_set(o, &values.at[i], is_here ? OBJECT_FROM_HERE : OBJECT_FROM_PEER);
    }
    if (rebuild_keep(c))
        rt->done++;
    else
        call_free(c);
out:
    for (size_t i = 0; i < failures.n; i++) failure_unref(failures.at[i].value);
    vec_release(&values);
    map_u64_release(&failures);
}

/* The peer has this call no more. */
static void peer_has_less(peer *p, call *c)
{
    call_unclaim(c, p);
    p->in_flight--;
    p->load_ns -= c->est_ns;
    if (p->give_back && p->in_flight == 0 && p->shape) lease_return(p);
}

void call_withdraw(call *c)
{
    call_unqueue(c);
}

bool call_take(call *c)
{
    if (!c->is_sent) {
        call_unqueue(c);
        return true;
    }
    if (!c->claim || !claim_make(c->at->bell, rt->client, c->claim, CLAIM_TAKEN)) return false;
    call_unlink(c);
    peer_has_less(c->at, c);
    c->at = NULL;
    return true;
}

void call_finish(peer *from, wire *w, proto_kind kind)
{
    uint64_t id = wire_u64(w);
    call *c = find_sent(from, id);

    if (!c) return;
    call_unlink(c);
    if (from) peer_has_less(from, c);
    if (kind == PROTO_RETURNED) {
        call_again(c, RETRY_RETURNED, false, NULL);
        return;
    }
    function_learn(c->fn, wire_i64(w));
    if (kind == PROTO_DONE) {
        take_results(c, w);
        return;
    }
    failure *f = failure_adopt(failure_take(w));
    if (wire_end(w, "failure")) {
        failure_unref(f);
        f = failure_here(MANTA_FAILURE_TASK, MANTA_ECORRUPT, c->fn->name);
    }
    if (f->is.kind == MANTA_FAILURE_TASK)
        call_again(c, RETRY_FUNCTION_FAILED, true, f);
    else if (f->is.kind == MANTA_FAILURE_LOST && c->attempt++ < MOST_LOST && !c->cancelled) {
        failure_unref(f);
        c->is_sent = c->is_here = false;
        c->at = NULL;
        if (c->actor) call_queue(c, true);
        rebuild_arguments(c);
        call_resume(c);
    } else
        call_fail(c, f);
}

/* ---- deaths ---- */

void call_abandon(call *c, failure *f)
{
    for (int i = 0; i < c->n_args; i++) {
        object *o = c->args[i].o;
        for (size_t k = 0; o && k < o->waiting.n;) {
            if (o->waiting.at[k] == c)
                vec_remove(&o->waiting, k);
            else
                k++;
        }
    }
    call_fail(c, f);
}

void calls_peer_died(peer *p)
{
    VEC(call *) lost = {0};
    char why[96];

    if (p->shape) lease_return(p);
    for (list *l = p->sent.next; l != &p->sent; l = l->next) vec_push(&lost, LIST_ITEM(l, call, link));
    spawn_status_text(p->status, why, sizeof why);
    /* Backwards, because each that is tried again goes to the front. */
    for (size_t i = lost.n; i-- > 0;) {
        call *c = lost.at[i];
        /* Answers may have been lost with the process, so only where running
         * twice is allowed a call counts as not begun. */
        bool begun = i == 0 || c->actor || c->max_retries == 0;
        /* A constructor that failed says why, and no call of the actor ever ran;
         * one that ended of itself had answered all it had begun. */
        if (c->actor && c->actor->state == ACTOR_DEAD &&
            (c->actor->failure->is.function[0] || p->status == 0)) {
            call_unlink(c);
            call_fail(c, failure_ref(c->actor->failure));
            continue;
        }
        retry_event e = p->memory.why == LIMITS_OWN       ? RETRY_OVER_LIMIT
                        : p->memory.why == LIMITS_MACHINE ? RETRY_MEMORY_SHORT
                                                          : RETRY_WORKER_DIED;
        call_again(c, e, begun,
                   p->memory.why ? failure_memory(c->fn->name, p->pid, &p->memory)
                                 : failure_make(MANTA_FAILURE_WORKER, MANTA_EDIED, c->fn->name, p->pid,
                                                "process %d %s while it ran %s", p->pid, why, c->fn->name));
    }
    vec_release(&lost);
    p->in_flight = 0;
    p->load_ns = 0;
    calls_dispatch();
}

void calls_node_died(void)
{
    VEC(uint64_t) pending = {0};

    for (size_t i = 0; i < rt->objects.n; i++)
        if (rt->objects.at[i].value->state == OBJECT_PENDING) vec_push(&pending, rt->objects.at[i].key);
    for (size_t i = 0; i < pending.n; i++) {
        object *o = object_find(pending.at[i]);
        if (!o || o->state != OBJECT_PENDING) continue;
        call *c = o->maker;
        if (c) {
            call_unqueue(c);
            call_abandon(c, failure_ref(rt->death));
        } else {
            object_fail(o, failure_ref(rt->death));
        }
    }
    vec_release(&pending);
}

/* ---- cancelling ---- */

void calls_cancel_of(uint64_t parent)
{
    VEC(uint64_t) ids = {0};

    for (size_t i = 0; i < rt->objects.n; i++) {
        const object *o = rt->objects.at[i].value;
        if (o->maker && o->maker->parent == parent && o->maker->id == o->id) vec_push(&ids, o->id);
    }
    for (size_t i = 0; i < ids.n; i++) { /* the end of one may be the end of another */
        object *o = object_find(ids.at[i]);
        if (o && o->maker) (void)call_cancel(o->maker, 0);
    }
    vec_release(&ids);
}

bool call_cancel(call *c, unsigned how)
{
    if (c->is_here) return nested_cancel(c, how);
    cancel_step step = cancel_made(false, c->is_sent, c->actor != NULL, how);

    if (step == CANCEL_REFUSE) return false;
    c->cancelled = true;
    if (step == CANCEL_TELL) {
        buf *b = proto_begin(&rt->out, PROTO_CANCEL);
        wire_put_u32(b, c->at->id);
        wire_put_u64(b, c->id);
        wire_put_u32(b, how);
        rt_tell();
        return true;
    }
    call_unqueue(c);
    call_abandon(
        c, failure_make(MANTA_FAILURE_CANCELLED, MANTA_ECANCELLED, c->fn->name, 0, "the call was cancelled"));
    return true;
}

void call_give_up(call *c, failure *f)
{
    peer *p = c->at;

    (void)call_cancel(c, 0); /* it was sent: its worker is told */
    call_unlink(c);
    peer_has_less(p, c);
    call_fail(c, f);
}

void calls_release(void)
{
    rebuild_release();
    for (size_t i = 0; i < rt->objects.n; i++) {
        object *o = rt->objects.at[i].value;
        call *c = o->maker;
        if (!c) continue;
        for (int k = 0; k < c->results; k++) {
            object *x = object_find(c->id + (uint64_t)k);
            if (x) x->maker = NULL;
        }
        mem_free(c->label);
        mem_free(c->group);
        mem_free(c);
    }
    shapes_release();
}
