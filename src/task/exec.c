/* exec.c - runs a call that came in: decode, run, answer (results.c).
 *
 *     incoming ──▶ task_decode ──▶ read_arguments ──▶ the function ──▶ task_answer
 *                  (head)          (pinned, held)     (no lock)       (DONE or FAILED)
 *
 * The lock is held, but not while the function runs. A manta_task belongs to the thread that
 * runs it; its arguments lie in the message or in pinned segments, its results in the task's own
 * memory or in blocks of the store. task_release() gives back whatever of this was not passed on,
 * on every way out.
 *
 * What makes references safe: an argument that refers to objects holds them until the
 * answer is written (hold_inner()); what a result refers to is held for the caller before the
 * answer is sent. Both are told to the daemon first.
 *
 * A call whose actor has failed in its constructor fails with that failure and never reaches
 * the function. A call of an actor that has ended (self_of.ended) is finished; the actor's
 * memory goes with the last of them. */
#include "task/incoming.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/clock.h"
#include "base/mem.h"
#include "os/sys.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/call_head.h"
#include "task/cancel.h"
#include "task/concurrency.h"
#include "task/deferred.h"
#include "task/exec_task.h"
#include "task/inner.h"
#include "task/worker_trace.h"
#include "task/leader.h"
#include "task/object.h"
#include "task/packed.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/ring.h"
#include "task/runtime.h"
#include "task/sizes.h"
#include "task/value.h"

/* ---- calls that came in ---- */

enum { INCOMING_SMALL = 192 }; /* bytes of most messages: a name and a few small arguments */

incoming *incoming_of(peer *from, const void *bytes, size_t n)
{
    wire w = wire_of(bytes, n);
    call_head h;

    (void)proto_kind_of(&w);
    call_head_take(&w, &h);
    if (w.broken) return NULL;
    incoming *c = n <= INCOMING_SMALL ? spares_take(&rt->spare_calls, sizeof *c + INCOMING_SMALL)
                                      : mem_new(sizeof *c + n);
    list_init(&c->link);
    c->from = from;
    c->task = h.task;
    c->actor = h.actor;
    c->chain = h.chain;
    c->claim = h.claim;
    c->lends = h.actor ? 0 : h.lends;
    c->n = n;
    memcpy(c->bytes, bytes, n);
    return c;
}

void incoming_free(incoming *c)
{
    list_remove(&c->link);
    if (c->told) failure_told_free(c->told);
    if (c->n <= INCOMING_SMALL)
        spares_give(&rt->spare_calls, c);
    else
        mem_free(c);
}

bool incoming_claim(incoming *c)
{
    return !c->claim || !c->from || !rt->bell || claim_make(rt->bell, c->from->id, c->claim, CLAIM_BEGUN);
}

/* The call that runs here waits (or does not any more). Its core is of use to
 * others, and calls behind it may be what it waits for: those that belong to no
 * actor go back to their callers. */
void exec_block(bool on)
{
    buf *b = &rt->out;

    if (!rt->is_worker) return;
    if (on != rt->blocked) {
        proto_begin(b, PROTO_BLOCKED);
        wire_put_u32(b, on);
        rt_tell();
        proto_begin(b, PROTO_WAITS);
        wire_put_u32(b, on);
        for (size_t i = 0; i < rt->peers.n; i++) peer_answer(rt->peers.at[i].value, b);
    }
    rt->blocked = on;
    for (list *l = rt->calls.next; on && l != &rt->calls;) {
        incoming *c = LIST_ITEM(l, incoming, link);
        l = l->next;
        if (c->actor || !c->from) continue;
        if (incoming_claim(c)) {
            proto_begin(b, PROTO_RETURNED);
            wire_put_u64(b, c->task);
            peer_answer(c->from, b);
        }
        incoming_free(c);
    }
}

/* ---- arguments ---- */

static void hold_inner(const manta_task *t, const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n && !t->is_own; i++) object_adopt(ids[i], false)->pins++;
}

static void drop_inner(const manta_task *t, const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t i = 0; i < n && !t->is_own; i++) {
        object *o = object_find(ids[i]);
        if (o) object_unpin(o);
    }
}

static bool is_settled(void *ctx)
{
    return ((const object *)ctx)->state != OBJECT_PENDING || rt->exiting;
}

/* An argument of a constructor that was not there when the actor was made. It is
 * held until the constructor has run. */
static manta_status resolve_argument(manta_task *t, uint64_t id, value *out)
{
    TRY(object_may_be(id));
    object *o = object_adopt(id, false);
    o->pins++;
    t->awaited[t->n_awaited++] = o;
    object_want(o);
    TRY(rt_wait(is_settled, o, CLOCK_NEVER));
    if (o->state == OBJECT_FAILED) return failure_raise(o->failure);
    if (o->state == OBJECT_PENDING)
        return manta_fail(MANTA_ECANCELLED, "%s: nobody wants the actor any more", t->name);
    TRY(object_map(o));
    *out = o->v;
    out->place.segment = 0; /* the object is held, not its place */
    if (out->index) out->index = packed_index_new(o->v.at, o->v.size);
    return MANTA_OK;
}

/* Checks an argument whose bytes can be read; those in a segment their writer can still
 * change. */
static manta_status check_argument(const manta_task *t, uint32_t i, value *v)
{
    if (v->place.segment && v->kind == MANTA_KIND_STR && ((const char *)v->at)[v->size - 1] != 0)
        return manta_fail(MANTA_ECORRUPT, "%s: argument %u is a text, and its bytes do not end as one",
                          t->name, i);
    if (v->place.segment && v->kind == MANTA_KIND_PACKED && !(v->index = packed_index_new(v->at, v->size)))
        return manta_fail(MANTA_ECORRUPT, "%s: argument %u is a packed value, and its parts do not lie in it",
                          t->name, i);
    return t->is_own ? MANTA_OK : object_may_hold(v);
}

static manta_status read_arguments(manta_task *t, wire *w)
{
    uint32_t n = wire_u32(w);

    if (n > RING_MESSAGE / 8)
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the message says that the call has %u arguments, at most %zu fit into one",
                          t->name, n, RING_MESSAGE / 8);
    t->args = arena_array(&t->memory, n, sizeof(value));
    if (t->actor && !t->id) t->awaited = arena_array(&t->memory, n, sizeof(object *));
    for (uint32_t i = 0; i < n; i++) {
        value v = {0};
        uint64_t id;
        if (t->awaited && value_take_ref(w, &id)) {
            if (w->broken) break;
            TRY(resolve_argument(t, id, &v));
            t->args[t->n_args++] = v;
            hold_inner(t, &v);
            continue;
        }
        value_take(w, &v);
        if (w->broken) break;
        if (v.place.segment) {
            manta_status st = store_pin(rt->store, v.place, (size_t)v.size, &v.at);
            t->is_lost = st == MANTA_ENOENT || st == MANTA_EIO; /* the caller can do something about it */
            if (st) return st;
        }
        manta_status st = check_argument(t, i, &v);
        if (st) {
            if (v.place.segment) store_unpin(rt->store, v.place);
            mem_free(v.index);
            return st;
        }
        t->args[t->n_args++] = v;
        hold_inner(t, &v);
    }
    return wire_end(w, "call");
}

static void release_arguments(manta_task *t)
{
    for (int i = 0; i < t->n_args; i++) {
        drop_inner(t, &t->args[i]);
        if (t->args[i].place.segment) store_unpin(rt->store, t->args[i].place);
        mem_free(t->args[i].index);
    }
    for (int i = 0; i < t->n_awaited; i++) object_unpin(t->awaited[i]);
}

/* ---- running ---- */

static self_of *self_find(uint64_t actor)
{
    self_of **s = map_u64_find(&rt->selves, actor);

    if (s) return *s;
    self_of *x = mem_new(sizeof *x);
    *map_u64_put(&rt->selves, actor) = x;
    return x;
}

#define LABEL_TURNS 100 /* looks at a reader that is just reading */
#define LABEL_MS    2000 /* for a reader to make room; then one name is wrong, and nothing hangs */

/* What is printed from now on is printed by `name`. */
static void label_output(const char *name)
{
    if (!rt->trace || rt->pipes[0] < 0) return;
    const output_words *w = (const void *)((const char *)rt->bell + WORKER_TRACE_OUTPUT_AT);
    for (int i = 0; !worker_trace_label(rt->trace, w, rt->pipes, name, i > LABEL_TURNS + LABEL_MS); i++) {
        mutex_unlock(&rt->lock);
        if (i < LABEL_TURNS)
            sched_yield();
        else
            (void)os->poll(NULL, 0, 1);
        mutex_lock(&rt->lock);
    }
}

/* A worker's thread keeps the memory of a call for the next. */
static _Thread_local arena kept;

static arena memory_take(void)
{
    arena a = kept;

    kept = (arena){0};
    return a;
}

static void memory_give(arena a)
{
    if (!rt->is_worker || kept.spare) {
        arena_release(&a);
        return;
    }
    arena_trim(&a);
    kept = a;
}

/* And that of an actor's call itself, which stays where it is when it is deferred. */
static _Thread_local manta_task *kept_task;

static manta_task *task_take(void)
{
    manta_task *t = kept_task ? kept_task : mem_new(sizeof *t);

    kept_task = NULL;
    return t;
}

static void task_give(manta_task *t)
{
    if (rt->is_worker && !kept_task)
        kept_task = t;
    else
        mem_free(t);
}

/* Reads the head of the message; w stays before the arguments. */
static void task_decode(manta_task *t, wire *w)
{
    call_head h;

    (void)proto_kind_of(w);
    call_head_take(w, &h);
    t->id = h.task;
    t->attempt = (int)h.attempt;
    t->is_stream = h.is_stream;
    t->window = h.window ? h.window : STREAM_WINDOW;
    t->max_calls = h.actor ? 0 : h.max_calls;
    wire_text(w, t->name, sizeof t->name);
    wire_text(w, t->label, sizeof t->label);
    if (h.has_group && t->id) {
        wire_text(w, t->group, sizeof t->group);
    } else if (h.has_group) {
        char *groups = arena_alloc(&t->memory, CONCURRENCY_TEXT);
        wire_text(w, groups, CONCURRENCY_TEXT);
        t->groups = groups;
    }
    t->n_results = h.results <= 1000 ? (int)h.results : 0;
    t->results = arena_array(&t->memory, (size_t)t->n_results, sizeof(result));
}

/* Reads the arguments and calls the function, without the lock. */
static manta_status task_call(manta_task *t, wire *w, function **known)
{
    TRY(read_arguments(t, w));
    if (t->self && t->self->failure && t->id) return failure_raise(t->self->failure);
    if (t->self && t->self->left) {
        t->call->leaves = true;
        return MANTA_EDIED;
    }
    if (t->self) TRY(task_group(t));
    if (rt->threads > 0) leader_call_begins(*known = function_find(t->name));
    t->in_function = true;
    mutex_unlock(&rt->lock);
    manta_status st = function_call(t);
    mutex_lock(&rt->lock);
    t->in_function = false;
    return st;
}

/* Runs the call, with its time in t->ns and in the trace. */
static manta_status task_run(manta_task *t, wire *w)
{
    function *known = NULL;
    int64_t begin = clock_now_ns();

    t->call->begun_ns = begin;
    worker_trace_begin(rt->trace, t->name, t->id, begin);
    manta_status st = task_call(t, w, &known);
    t->ns = clock_now_ns() - begin;
    if (known) leader_call_ends(known, t->ns);
    worker_trace_end(rt->trace, t->name, t->id, begin, begin + t->ns, st != MANTA_OK);
    return st;
}

failure *task_failure(manta_task *t, manta_failure_kind kind, manta_status st)
{
    failure *f = t->failure;

    t->failure = NULL;
    if (f && kind == MANTA_FAILURE_TASK && f->is.code == st) return f;
    failure_unref(f);
    return failure_here(kind, st, t->name);
}

static void task_answer(manta_task *t, manta_status st, buf *answer)
{
    if (!st) {
        results_answer(t, answer);
        return;
    }
    if (t->call->leaves) {
        results_answer_failed(t, t->self->left, answer);
        return;
    }
    manta_failure_kind kind = atomic_load(&t->call->cancelled) ? MANTA_FAILURE_CANCELLED
                              : t->is_lost                     ? MANTA_FAILURE_LOST
                                                               : MANTA_FAILURE_TASK;
    failure *f = task_failure(t, kind, st);
    if (kind == MANTA_FAILURE_CANCELLED) f->is.code = MANTA_ECANCELLED; /* whatever the function made of it */
    results_answer_failed(t, f, answer);
    if (t->self && !t->id) { /* a constructor */
        failure_unref(t->self->failure);
        t->self->failure = f;
    } else {
        failure_unref(f);
    }
}

static void task_release(manta_task *t, bool succeeded)
{
    release_arguments(t);
    /* In this process the answer still points into the results. */
    if (t->is_own && succeeded)
        for (int i = 0; i < t->n_results; i++) {
            t->results[i].is_block = false;
            t->results[i].answered = true;
        }
    for (int i = 0; i < t->n_results; i++) result_clear(&t->results[i]);
    failure_unref(t->failure);
    memory_give(t->memory);
}

void task_end(manta_task *t, manta_status st, buf *answer)
{
    self_of *self = t->self;
    incoming *in = t->call;
    uint64_t actor = t->actor;

    if (in->yielded + in->promised > 0) rt_changed(); /* other streams may wait for its room (yields.c) */
    in->promised = in->yielded = 0;
    if (t->call->leaves) st = MANTA_EDIED; /* whatever the function made of it */
    if (!st) st = results_fit(t);
    if (!st && t->id && atomic_load(&t->call->cancelled) && !cancel_keeps(t->name, t->actor))
        st = manta_fail(MANTA_ECANCELLED, "%s was cancelled before it returned", t->name);
    if (t->max_calls > 0 && ++function_find(t->name)->ran >= t->max_calls) rt->retires = rt->is_worker;
    task_answer(t, st, answer);
    task_release(t, st == MANTA_OK);
    if (actor) task_give(t);
    if (self && --self->running == 0 && self->ended) exec_end_self(actor);
    if (in->told) failure_told_free(in->told); /* with what it holds, which is to be told now */
    in->told = NULL;
    rt_flush_drops();
}

bool exec_run(incoming *in, buf *answer)
{
    manta_task here, *t = in->actor ? task_take() : &here; /* a task is not deferred */
    wire w = wire_of(in->bytes, in->n);

    *t = (manta_task){
        .caller = in->from, .actor = in->actor, .call = in, .is_own = in->is_own, .memory = memory_take()};
    task_decode(t, &w);
    if (t->actor) t->self = self_find(t->actor);
    if (t->self) t->self->running++;
    in->name = t->name;
    if (in->depth > 0) fflush(stdout); /* what was printed so far is not this call's */
    if (!t->actor || !t->id) label_output(t->name); /* an actor prints under its constructor's name */
    manta_status st = task_run(t, &w);
    if (t->is_deferred && !deferred_returns(t)) return false;
    task_end(t, t->is_deferred ? t->outcome : st, answer);
    return true;
}

void exec_resume(const incoming *c)
{
    fflush(stdout);
    label_output(c->name);
    worker_trace_begin(rt->trace, c->name, c->task, c->begun_ns);
}

void exec_end_self(uint64_t actor)
{
    self_of **s = map_u64_find(&rt->selves, actor), *x = s ? *s : NULL;

    if (x) x->ended = true;
    if (!x || x->running > 0) return;
    map_u64_remove(&rt->selves, actor);
    if (x->end) x->end(x->self);
    failure_unref(x->failure);
    failure_unref(x->left);
    concurrency_free(x->groups);
    mem_free(x);
}

void exec_end_selves(void)
{
    for (size_t i = 0; i < rt->selves.n; i++) {
        self_of *s = rt->selves.at[i].value;
        if (s->end) s->end(s->self);
        failure_unref(s->failure);
        failure_unref(s->left);
        concurrency_free(s->groups);
        mem_free(s);
    }
    map_u64_release(&rt->selves);
}
