/* exec.c - runs a call that came in: decode, run, answer.
 *
 *     incoming ──▶ task_decode ──▶ read_arguments ──▶ the function ──▶ task_answer
 *                  (head)          (pinned, held)     (no lock)       (DONE or FAILED)
 *
 * The lock is held, but not while the function runs, and not while large results are copied
 * (object_fill()). A manta_task belongs to the thread that runs it; its arguments lie in
 * the message or in pinned segments, its small results in the task's own memory, its large
 * ones in blocks of the store that nobody else knows of yet. task_release() gives back
 * whatever of this was not passed on, on every way out.
 *
 * What makes references safe: an argument that refers to objects holds them until the
 * answer is written (hold_inner()); what a result refers to is exported and held for the
 * caller (pass_on(), give_block()) before the answer is sent. Both are told to the daemon
 * first.
 *
 * A call whose actor has failed in its constructor fails with that failure and never reaches
 * the function. A call of an actor that has ended (self_of.ended) is finished; the actor's
 * memory goes with the last of them.
 *
 * What may be changed: what is put into the answer, as long as task_fit_results() keeps it
 * within one message. What may not: answering before what the answer refers to was told. */
#include "task/incoming.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "os/sys.h"
#include "task/actor_link.h"
#include "task/call.h"
#include "task/call_head.h"
#include "task/cancel.h"
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
#include "task/stream.h"
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

/* ---- results ---- */

/* The result does not need what it refers to any more; the answer of a call of our own is
 * still to be read (nested.c). */
static void result_unpin(const result *r, uint64_t id)
{
    object *o = object_find(id);

    if (r->answered)
        vec_push(&rt->pinned, id);
    else if (o)
        object_unpin(o);
}

static void result_clear(result *r)
{
    const uint64_t *ids;
    uint64_t n = value_inner(&r->v, &ids);

    for (uint64_t i = 0; i < n; i++) result_unpin(r, ids[i]);
    if (r->v.place.segment) store_seal(rt->store, r->v.place);
    if (r->is_block) store_give(rt->store, r->v.place);
    failure_unref(r->failure);
    *r = (result){0};
}

/* Memory for a result of v->size bytes. */
static manta_status result_take(manta_task *t, int i, value *v, void **at)
{
    result *r = &t->results[i];

    result_clear(r);
    if (v->size > VALUE_INLINE) {
        TRY(store_take(rt->store, (size_t)v->size, &v->place, at));
        r->is_block = true;
    } else {
        uintptr_t room = (uintptr_t)arena_alloc(&t->memory, (size_t)v->size + MANTA_PACKED_ALIGN);
        *at = (void *)((room + MANTA_PACKED_ALIGN - 1) / MANTA_PACKED_ALIGN * MANTA_PACKED_ALIGN);
    }
    v->at = *at;
    r->v = *v;
    return MANTA_OK;
}

static manta_status check_result(const manta_task *t, int i)
{
    if (i >= 0 && i < t->n_results) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s: result %d is returned, where the caller expects %d, counted from 0",
                      t->name, i, t->n_results);
}

/* What result i refers to is pinned until the result is cleared. */
static manta_status pin_result_inner(const manta_task *t, int i, const manta_arg *a)
{
    if (!inner_exists(a))
        return manta_fail(MANTA_EINVAL, "%s: result %d holds a reference that is none, or was released",
                          t->name, i);
    inner_pin(a);
    return MANTA_OK;
}

static manta_status set_result(manta_task *t, int i, const manta_arg *a)
{
    value v;
    void *at;

    TRY(check_result(t, i));
    TRY(value_of(a, &v));
    TRY(pin_result_inner(t, i, a));
    if (value_is_word(v.kind) || v.kind == MANTA_KIND_NONE) {
        result_clear(&t->results[i]);
        t->results[i].v = v;
    } else {
        const value source = v;
        manta_status st = result_take(t, i, &v, &at);
        if (st) {
            inner_unpin(a);
            return st;
        }
        object_fill(a, &source, at);
    }
    return MANTA_OK;
}

manta_status manta_return(manta_task *t, int i, manta_arg arg)
{
    REFUSE_NULL(t);

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = set_result(t, i, &arg);
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_return_f64(manta_task *t, int i, double x)
{
    REFUSE_NULL(t);
    return manta_return(t, i, manta_f64(x));
}

manta_status manta_return_i64(manta_task *t, int i, int64_t x)
{
    REFUSE_NULL(t);
    return manta_return(t, i, manta_i64(x));
}

manta_status manta_return_array(manta_task *t, int i, const manta_array *a)
{
    REFUSE_NULL(t);
    REFUSE_NULL(a);
    return manta_return(t, i, manta_elements(a));
}

manta_status manta_return_create(manta_task *t, int i, manta_dtype dtype, int ndim, const int64_t *dims,
                                 manta_array *out)
{
    REFUSE_NULL(t);
    REFUSE_NEGATIVE(ndim);
    if (ndim > 0 && !dims) return args_fail_null(__func__, "shape");
    REFUSE_NULL(out);

    void *at = NULL;
    value v;

    if (!rt) return rt_none();
    if (ndim < 0 || ndim > MANTA_MAX_DIMS)
        return manta_fail(MANTA_EINVAL, "%s: an array of %d dimensions is to be returned, expected 0 to %d",
                          t->name, ndim, MANTA_MAX_DIMS);
    manta_array a = manta_array_of(dtype, ndim, dims, NULL);
    TRY(check_result(t, i));
    manta_arg arg = manta_elements(&a);
    TRY(value_of(&arg, &v));
    mutex_lock(&rt->lock);
    manta_status st = result_take(t, i, &v, &at);
    mutex_unlock(&rt->lock);
    if (st) return st;
    *out = manta_array_of(dtype, ndim, dims, at);
    return MANTA_OK;
}

static manta_status create_packed_result(manta_task *t, int i, const manta_arg *a, value *v, void **at)
{
    TRY(check_result(t, i));
    TRY(pin_result_inner(t, i, a));
    manta_status st = result_take(t, i, v, at);
    if (st)
        inner_unpin(a);
    else
        object_fill(a, v, *at);
    return st;
}

manta_status manta_return_packed(manta_task *t, int i, const manta_packed *p, void **head, void **blocks)
{
    REFUSE_NULL(t);
    REFUSE_NULL(p);
    if (p->n_blocks > 0) REFUSE_NULL(blocks);

    value v = {.kind = MANTA_KIND_PACKED};
    const manta_arg a = manta_pack(p);
    void *at = NULL;

    TRY(packed_measure(p, true, &v.size));
    mutex_lock(&rt->lock);
    manta_status st = create_packed_result(t, i, &a, &v, &at);
    mutex_unlock(&rt->lock);
    if (!st) packed_places(p, at, head, blocks);
    return st;
}

/* Lets the caller hold what a result refers to, before it can know of it. */
static void pass_on(const manta_task *t, const value *v)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t k = 0; k < n && !t->is_own; k++) object_export(object_find(ids[k]));
    /* What lies in a segment contains them; the daemon knows (PROTO_ADD). */
    if (n > 0 && t->caller && !v->place.segment) rt_tell_ids(PROTO_HOLD, t->caller->id, ids, (size_t)n);
}

/* Lets whoever reads the answer have what a failure carries, and says whether the daemon counts
 * that already (payload.h). In this process (run_once()) a pin keeps it until the answer is read. */
static bool pass_on_failure(const manta_task *t, const failure *f)
{
    const payload *p = f->payload;
    bool is_actors = t->self && t->self->failure && t->self->failure->payload == p;

    if (!p || !p->object) return false;
    if (t->is_own && t->id) {
        object_find(p->object)->pins++;
        vec_push(&rt->pinned, p->object);
    }
    if (t->is_own) return false;
    bool held = t->caller && !is_actors;
    payload_pass_on(p, held ? t->caller->id : 0);
    return held;
}

/* A large result becomes the caller's: the daemon is told first. */
static void give_block(const manta_task *t, int i)
{
    result *r = &t->results[i];
    uint64_t id = t->id + (uint64_t)i;
    const uint64_t *ids;
    uint64_t n = value_inner(&r->v, &ids);

    if (!t->caller) return;
    object_tell_add(id, t->caller->id, &r->v, ids, n);
    *map_u64_put(&rt->given, id) = r->v.place;
    r->is_block = false;
}

static void answer_done(manta_task *t, buf *answer)
{
    proto_begin(answer, PROTO_DONE);
    wire_put_u64(answer, t->id);
    wire_put_i64(answer, t->ns);
    wire_put_u32(answer, (uint32_t)t->n_results);
    for (int i = 0; i < t->n_results; i++) {
        result *r = &t->results[i];
        if (r->failure) {
            bool held = pass_on_failure(t, r->failure);
            wire_put_u32(answer, VALUE_FAILED);
            failure_put_held(answer, r->failure, held);
            continue;
        }
        pass_on(t, &r->v);
        if (r->is_block) give_block(t, i);
        value v = r->v;
        value_put(answer, &v);
    }
}

static void answer_failed(const manta_task *t, const failure *f, buf *answer)
{
    bool held = pass_on_failure(t, f);

    proto_begin(answer, PROTO_FAILED);
    wire_put_u64(answer, t->id);
    wire_put_i64(answer, t->ns);
    failure_put_held(answer, f, held);
}

/* ---- items of a stream ---- */

#define WINDOW 8 /* items that the function may be ahead of its caller */

typedef struct ahead {
    const manta_task *t;
} ahead;

static bool is_due(void *ctx)
{
    const manta_task *t = ((ahead *)ctx)->t;

    return t->yielded - t->call->taken < WINDOW || t->yielded < t->call->taken ||
           atomic_load(&t->call->cancelled) || (t->caller && t->caller->is_dead);
}

/* Sends one item; the value's bytes are in `a`. */
static manta_status yield_item(manta_task *t, const manta_arg *a)
{
    value v;
    void *at = NULL;
    uint64_t id = 0;
    buf b = {0};

    TRY(value_of(a, &v));
    if (!inner_exists(a))
        return manta_fail(MANTA_EINVAL, "%s: an item holds a reference that is none, or was released",
                          t->name);
    inner_pin(a);
    if (v.size > VALUE_INLINE) {
        manta_status st = store_take(rt->store, (size_t)v.size, &v.place, &at);
        if (st) {
            inner_unpin(a);
            return st;
        }
        id = object_id(1);
    } else if (!value_is_word(v.kind) && v.kind != MANTA_KIND_NONE) {
        at = arena_alloc(&t->memory, (size_t)v.size);
    }
    if (at) {
        object_fill(a, &v, at);
        v.at = at;
    }
    pass_on(t, &v);
    if (id && t->caller) {
        const uint64_t *ids;
        uint64_t n = value_inner(&v, &ids);
        object_tell_add(id, t->caller->id, &v, ids, n);
        *map_u64_put(&rt->given, id) = v.place;
    }
    if (v.place.segment) store_seal(rt->store, v.place);
    proto_begin(&b, PROTO_ITEM);
    wire_put_u64(&b, t->id);
    wire_put_u64(&b, t->yielded++);
    wire_put_u64(&b, id);
    value_put(&b, &v);
    if (t->caller) {
        peer_answer(t->caller, &b);
    } else {
        wire w = wire_of(b.at, b.n);
        (void)proto_kind_of(&w);
        stream_item(&w);
        rt_changed(); /* its caller may be another thread of this actor */
    }
    inner_unpin(a);
    buf_release(&b);
    return MANTA_OK;
}

manta_status manta_yield(manta_task *t, manta_arg item)
{
    REFUSE_NULL(t);

    ahead x = {t};

    if (!rt) return rt_none();
    if (!t->is_stream) return manta_fail(MANTA_EINVAL, "%s was not called as a stream", t->name);
    mutex_lock(&rt->lock);
    if (!is_due(&x) && !rt->is_local) (void)rt_wait(is_due, &x, CLOCK_NEVER);
    manta_status st = atomic_load(&t->call->cancelled) || (t->caller && t->caller->is_dead)
                          ? manta_fail(MANTA_ECANCELLED, "%s: nobody takes the items any more", t->name)
                          : yield_item(t, &item);
    mutex_unlock(&rt->lock);
    return st;
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
    wire_text(w, t->name, sizeof t->name);
    wire_text(w, t->label, sizeof t->label);
    t->n_results = h.results <= 1000 ? (int)h.results : 0;
    t->results = arena_array(&t->memory, (size_t)t->n_results, sizeof(result));
}

/* The bytes of a result that travel inside the message and could lie in a segment. */
static size_t size_inline(const result *r)
{
    if (r->failure) return r->failure->payload ? r->failure->payload->size : 0;
    return r->is_block || value_is_word(r->v.kind) ? 0 : (size_t)r->v.size;
}

/* The largest of these results; NULL: none has such bytes. */
static result *largest_inline(const manta_task *t)
{
    result *found = NULL;
    size_t most = 0;

    for (int i = 0; i < t->n_results; i++) {
        if (size_inline(&t->results[i]) <= most) continue;
        found = &t->results[i];
        most = size_inline(found);
    }
    return found;
}

static manta_status result_move_out(result *r)
{
    void *at;

    if (r->failure) {
        payload *out = NULL;
        TRY(payload_move_out(r->failure->payload, &out));
        payload_unref(r->failure->payload);
        r->failure->payload = out;
        return MANTA_OK;
    }

    TRY(store_take(rt->store, (size_t)r->v.size, &r->v.place, &at));
    memcpy(at, r->v.at, (size_t)r->v.size);
    r->v.at = at;
    r->is_block = true;
    return MANTA_OK;
}

/* The small results travel in one message; those for which it has no room lie in segments, as
 * large ones do. */
static manta_status task_fit_results(manta_task *t)
{
    size_t total = 0;
    result *r;

    for (int i = 0; i < t->n_results; i++)
        total += t->results[i].failure ? failure_length(t->results[i].failure)
                                       : (size_t)t->results[i].v.size * !t->results[i].is_block + 96;
    while (total > RING_MESSAGE - 256 && (r = largest_inline(t))) {
        total -= size_inline(r);
        TRY(result_move_out(r));
    }
    if (total <= RING_MESSAGE - 256) return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "%s: %d results, of which %zu bytes would be in one message, are too many", t->name,
                      t->n_results, total);
}

/* Reads the arguments and calls the function, without the lock. */
static manta_status task_call(manta_task *t, wire *w, function **known)
{
    TRY(read_arguments(t, w));
    if (t->self && t->self->failure && t->id) return failure_raise(t->self->failure);
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
        answer_done(t, answer);
        return;
    }
    manta_failure_kind kind = atomic_load(&t->call->cancelled) ? MANTA_FAILURE_CANCELLED
                              : t->is_lost                     ? MANTA_FAILURE_LOST
                                                               : MANTA_FAILURE_TASK;
    failure *f = task_failure(t, kind, st);
    if (kind == MANTA_FAILURE_CANCELLED) f->is.code = MANTA_ECANCELLED; /* whatever the function made of it */
    answer_failed(t, f, answer);
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

    if (!st) st = task_fit_results(t);
    if (!st && t->id && atomic_load(&t->call->cancelled) && !cancel_keeps(t->name))
        st = manta_fail(MANTA_ECANCELLED, "%s was cancelled before it returned", t->name);
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
    mem_free(x);
}

void exec_end_selves(void)
{
    for (size_t i = 0; i < rt->selves.n; i++) {
        self_of *s = rt->selves.at[i].value;
        if (s->end) s->end(s->self);
        failure_unref(s->failure);
        mem_free(s);
    }
    map_u64_release(&rt->selves);
}
