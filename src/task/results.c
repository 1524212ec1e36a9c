/* results.c - what a call returns: kept while its function runs, then told and answered.
 *
 *     manta_return ──▶ result ──▶ results_fit ──▶ pass_on, give_block ──▶ DONE
 *     manta_yield  ─────────────────────────────▶ pass_on             ──▶ ITEM
 *                      (pinned)   (one message)   (told to the daemon)
 *
 * A small result lies in the task's own memory, a large one in a block of the store that nobody
 * else knows of yet. What either refers to is pinned until the result is cleared. Before an
 * answer is written the daemon is told what its reader will hold: what a value refers to, what
 * a failure carries, and blocks, which become the caller's.
 *
 * The lock is held, but not while large results are copied (object_fill()).
 *
 * What may be changed: what is put into the answer, as long as results_fit() keeps it within
 * one message. What may not: answering before what the answer refers to was told. */
#include <string.h>

#include <manta/stream.h>
#include <manta/task.h>

#include "base/arena.h"
#include "base/args.h"
#include "base/clock.h"
#include "task/exec_task.h"
#include "task/gifts.h"
#include "task/inner.h"
#include "task/object.h"
#include "task/packed.h"
#include "task/peer.h"
#include "task/proto.h"
#include "task/ring.h"
#include "task/runtime.h"
#include "task/sizes.h"
#include "task/stream.h"
#include "task/value.h"

/* ---- results that are kept ---- */

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

void result_clear(result *r)
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

/* ---- room in the answer ---- */

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
manta_status results_fit(manta_task *t)
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

/* ---- the answer ---- */

/* What the caller of t is given with an item, or with the end of the call. */
static object_gift gift_of(const manta_task *t, uint64_t item)
{
    return (object_gift){
        .client = t->caller->id, .task = t->id, .item = gifts_item((uint32_t)t->attempt, item)};
}

/* Lets the caller hold what a value refers to that comes with an item, or with the end, before it can
 * know of it. */
static void pass_on(const manta_task *t, const value *v, uint64_t item)
{
    const uint64_t *ids;
    uint64_t n = value_inner(v, &ids);

    for (uint64_t k = 0; k < n && !t->is_own; k++) object_export(object_find(ids[k]));
    /* What lies in a segment contains them; the daemon knows (PROTO_ADD). */
    if (n > 0 && t->caller && !v->place.segment) {
        object_gift to = gift_of(t, item);
        object_give(&to, ids, n);
    }
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
    object_gift to = held ? gift_of(t, GIFTS_RESULT) : (object_gift){0};
    payload_pass_on(p, held ? &to : NULL);
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
    object_tell_add(id, gift_of(t, GIFTS_RESULT), &r->v, ids, n);
    *map_u64_put(&rt->given, id) = r->v.place;
    r->is_block = false;
}

void results_answer(manta_task *t, buf *answer)
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
        pass_on(t, &r->v, GIFTS_RESULT);
        if (r->is_block) give_block(t, i);
        value v = r->v;
        value_put(answer, &v);
    }
}

void results_answer_failed(const manta_task *t, const failure *f, buf *answer)
{
    bool held = pass_on_failure(t, f);

    proto_begin(answer, PROTO_FAILED);
    wire_put_u64(answer, t->id);
    wire_put_i64(answer, t->ns);
    failure_put_held(answer, f, held);
}

/* ---- items of a stream ---- */

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
    pass_on(t, &v, t->yielded);
    if (id && t->caller) {
        const uint64_t *ids;
        uint64_t n = value_inner(&v, &ids);
        object_tell_add(id, gift_of(t, t->yielded), &v, ids, n);
        *map_u64_put(&rt->given, id) = v.place;
    }
    if (v.place.segment) store_seal(rt->store, v.place);
    proto_begin(&b, PROTO_ITEM);
    wire_put_u64(&b, t->id);
    wire_put_u64(&b, t->yielded++);
    t->call->yielded = t->yielded;
    if (t->call->promised > 0) t->call->promised--;
    wire_put_u64(&b, id);
    value_put(&b, &v);
    if (t->caller) {
        peer_answer(t->caller, &b);
    } else {
        wire w = wire_of(b.at, b.n);
        (void)proto_kind_of(&w);
        stream_item(NULL, &w);
        rt_changed(); /* its caller may be another thread of this actor */
    }
    inner_unpin(a);
    buf_release(&b);
    return MANTA_OK;
}

manta_status manta_yield(manta_task *t, manta_arg item)
{
    REFUSE_NULL(t);

    if (!rt) return rt_none();
    if (!t->is_stream) return manta_fail(MANTA_EINVAL, "%s was not called as a stream", t->name);
    mutex_lock(&rt->lock);
    if (!yield_is_due(t) && !rt->is_local) (void)rt_wait(yield_is_due, t, CLOCK_NEVER);
    manta_status st = atomic_load(&t->call->cancelled) || (t->caller && t->caller->is_dead)
                          ? manta_fail(MANTA_ECANCELLED, "%s: nobody takes the items any more", t->name)
                          : yield_item(t, &item);
    mutex_unlock(&rt->lock);
    return st;
}
