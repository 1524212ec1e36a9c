/* task.c - the public calls of manta/task.h about calls and objects: each takes
 * the lock, does its work through the other files of this folder, and gives it
 * back. task_many.c, task_node.c and task_actors.c have the rest. */
#include <manta/failure.h>
#include <manta/task.h>

#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "task/call.h"
#include "task/deadlock.h"
#include "task/incoming.h"
#include "task/nested.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/rebuild.h"
#include "task/runtime.h"
#include "task/value.h"

#define MOST_LOST 8 /* times that a get waits for an object that was lost */

/* ---- calls ---- */

manta_arg manta_str(const char *s)
{
    REFUSE_NULL_OR(s, (manta_arg){0});

    manta_arg a = {.kind = MANTA_KIND_STR};

    a.as.bytes.at = s;
    a.as.bytes.n = s ? strlen(s) : 0;
    return a;
}

void manta_submit(const char *name, const manta_task_options *options, int n_args, const manta_arg *args,
                  int results, manta_ref *out)
{
    REFUSE_NULL_AND_RETURN(name);
    if (n_args > 0) REFUSE_NULL_AND_RETURN(args);
    if (results > 0) REFUSE_NULL_AND_RETURN(out);

    for (int i = 0; i < results; i++) out[i].id = 0;
    if (!rt) {
        (void)rt_none();
        return;
    }
    mutex_lock(&rt->lock);
    call_submit(name, options, NULL, n_args, args, results, out);
    rt_flush_drops();
    mutex_unlock(&rt->lock);
}

manta_ref manta_submit_one(const char *name, const manta_task_options *options, int n_args,
                           const manta_arg *args)
{
    REFUSE_NULL_OR(name, (manta_ref){0});
    if (n_args > 0) REFUSE_NULL_OR(args, (manta_ref){0});

    manta_ref r;

    manta_submit(name, options, n_args, args + 1, 1, &r);
    return r;
}

/* ---- objects ---- */

manta_ref object_failed(manta_failure_kind kind, manta_status st)
{
    failure *f = failure_here(kind, st, NULL);
    object *o = object_new(object_id(1));

    o->refs = 1;
    object_fail(o, f);
    return (manta_ref){o->id};
}

manta_ref manta_put(manta_arg arg)
{
    value v;
    object *o;
    manta_ref r = {0};

    if (!rt) {
        (void)rt_none();
        return r;
    }
    mutex_lock(&rt->lock);
    manta_status st =
        arg.kind == MANTA_KIND_REF
            ? manta_fail(MANTA_EINVAL, "a reference is an object already; put manta_refs() to keep it as one")
            : value_of(&arg, &v);
    if (!st) st = object_make(&arg, &v, false, &o);
    if (st) {
        r = object_failed(st == MANTA_ENOSPC ? MANTA_FAILURE_FULL : MANTA_FAILURE_SUBMIT, st);
    } else {
        o->refs = 1;
        r.id = o->id;
    }
    mutex_unlock(&rt->lock);
    return r;
}

manta_status manta_create(manta_dtype dtype, int ndim, const int64_t *dims, manta_array *out, manta_ref *ref)
{
    REFUSE_NEGATIVE(ndim);
    if (ndim > 0 && !dims) return args_fail_null(__func__, "shape");
    REFUSE_NULL(out);
    REFUSE_NULL(ref);

    value v;
    void *at = NULL;

    if (!rt) return rt_none();
    if (ndim < 0 || ndim > MANTA_MAX_DIMS)
        return manta_fail(MANTA_EINVAL, "an array of %d dimensions is to be created, expected 0 to %d", ndim,
                          MANTA_MAX_DIMS);
    manta_array a = manta_array_of(dtype, ndim, dims, NULL);
    manta_arg arg = manta_elements(&a);
    TRY(value_of(&arg, &v));
    mutex_lock(&rt->lock);
    manta_status st = store_take(rt->store, (size_t)v.size, &v.place, &at);
    if (!st) {
        object *o = object_new(object_id(1));
        v.at = at;
        o->v = v;
        o->is_own = o->unsealed = true;
        o->refs = 1;
        ref->id = o->id;
        *out = manta_array_of(dtype, ndim, dims, at);
    }
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_seal(manta_ref ref)
{
    manta_status st = MANTA_OK;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (!o || !o->unsealed)
        st = manta_fail(MANTA_EINVAL,
                        "the object cannot be sealed: it was not created, or was sealed or released before");
    else {
        o->unsealed = false;
        o->state = OBJECT_READY;
        object_sealed(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

static bool object_settled(void *ctx)
{
    const object *o = ctx;

    return o->state != OBJECT_PENDING;
}

static call *find_for_object(void *ctx, nested_terms terms)
{
    return nested_find(ctx, terms);
}

manta_status object_timed_out(const object *o, int64_t timeout_ms)
{
    const call *c = o->maker;

    if (c)
        return manta_fail(MANTA_ETIMEDOUT, "no result of %s after %lld ms (%s)", c->fn->name,
                          (long long)timeout_ms,
                          c->missing   ? "it waits for its arguments"
                          : c->is_sent ? "it was sent to a worker"
                                       : "it waits for a worker");
    return manta_fail(MANTA_ETIMEDOUT, "the object has not come for %lld ms", (long long)timeout_ms);
}

manta_status object_await(manta_ref ref, int64_t timeout_ms, bool map, object **out)
{
    object *o = object_find(ref.id);

    if (!o) return manta_fail(MANTA_EINVAL, "the reference is none, or was released");
    if (o->unsealed) return manta_fail(MANTA_EINVAL, "the object cannot be read: it is not sealed yet");
    o->pins++;
    manta_status st;
    for (int tries = 0;; tries++) {
        st = MANTA_OK;
        if (timeout_ms < 0 && o->state == OBJECT_PENDING) nested_refuse_self(o);
        if (o->state == OBJECT_PENDING) {
            object_want(o);
            uint64_t outer = deadlock_awaits(o, timeout_ms);
            st = rt_await(object_settled, find_for_object, o, timeout_ms);
            deadlock_awaited(outer);
            if (st == MANTA_ETIMEDOUT) st = object_timed_out(o, timeout_ms);
        }
        if (!st && o->state == OBJECT_FAILED) st = failure_raise(o->failure);
        if (st || !map) break;
        st = object_map(o);
        if (!st || tries == MOST_LOST || !rebuild_missed(o, st)) break;
    }
    if (st)
        object_unpin(o);
    else
        *out = o;
    return st;
}

/* The value of an object of one kind (NONE: of any). */
static manta_status object_get(manta_ref ref, manta_kind kind, int64_t timeout_ms, value *out)
{
    object *o = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = object_await(ref, timeout_ms, kind != MANTA_KIND_NONE, &o);
    if (!st) {
        *out = o->v;
        if (kind != MANTA_KIND_NONE && o->v.kind != kind)
            st = manta_fail(MANTA_EINVAL, "the object is %s, not %s", value_kind_name(o->v.kind),
                            value_kind_name(kind));
        else
            o->is_read = o->is_read || kind != MANTA_KIND_NONE;
        object_unmap(o); /* when it is of another kind */
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_get(manta_ref ref, int64_t timeout_ms)
{
    value v;

    return object_get(ref, MANTA_KIND_NONE, timeout_ms, &v);
}

manta_status manta_get_f64(manta_ref ref, double *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    value v = {0};

    TRY(object_get(ref, MANTA_KIND_F64, timeout_ms, &v));
    memcpy(out, &v.word, 8);
    return MANTA_OK;
}

manta_status manta_get_i64(manta_ref ref, int64_t *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    value v = {0};

    TRY(object_get(ref, MANTA_KIND_I64, timeout_ms, &v));
    *out = (int64_t)v.word;
    return MANTA_OK;
}

manta_status manta_get_bool(manta_ref ref, bool *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    value v = {0};

    TRY(object_get(ref, MANTA_KIND_BOOL, timeout_ms, &v));
    *out = v.word != 0;
    return MANTA_OK;
}

manta_status manta_get_str(manta_ref ref, const char **out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    value v = {0};

    TRY(object_get(ref, MANTA_KIND_STR, timeout_ms, &v));
    *out = v.at;
    return MANTA_OK;
}

manta_status manta_get_bytes(manta_ref ref, const void **at, size_t *n, int64_t timeout_ms)
{
    REFUSE_NULL(at);
    REFUSE_NULL(n);

    value v = {0};

    TRY(object_get(ref, MANTA_KIND_BYTES, timeout_ms, &v));
    *at = v.at;
    *n = (size_t)v.size;
    return MANTA_OK;
}

manta_status manta_get_array(manta_ref ref, manta_array *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    value v = {0};

    TRY(object_get(ref, MANTA_KIND_ARRAY, timeout_ms, &v));
    *out = manta_array_of(v.dtype, v.ndim, v.shape, (void *)(uintptr_t)v.at);
    return MANTA_OK;
}

manta_status manta_get_copy(manta_ref ref, manta_array *out, int64_t timeout_ms)
{
    REFUSE_NULL(out);

    object *o = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = object_await(ref, timeout_ms, true, &o);
    if (st) goto out;
    o->kept++; /* the copying is done without the lock */
    value v = o->v;
    mutex_unlock(&rt->lock);
    void *copy = NULL;
    if (v.kind != MANTA_KIND_ARRAY)
        st = manta_fail(MANTA_EINVAL, "the object is %s, not %s", value_kind_name(v.kind),
                        value_kind_name(MANTA_KIND_ARRAY));
    else if (!(copy = malloc(v.size ? (size_t)v.size : 1)))
        st = manta_fail(MANTA_ENOMEM, "there is no memory for a copy of %llu bytes of the object",
                        (unsigned long long)v.size);
    else if (v.size > 0)
        memcpy(copy, v.at, (size_t)v.size);
    if (!st) *out = manta_array_of(v.dtype, v.ndim, v.shape, copy);
    mutex_lock(&rt->lock);
    o->kept--;
    object_unmap(o);
    object_unpin(o);
out:
    mutex_unlock(&rt->lock);
    return st;
}

manta_status manta_get_refs(manta_ref ref, const manta_ref **out, size_t *n, int64_t timeout_ms)
{
    REFUSE_NULL(out);
    REFUSE_NULL(n);

    value v = {0};

    TRY(object_get(ref, MANTA_KIND_REFS, timeout_ms, &v));
    *out = v.at;
    *n = (size_t)v.size / sizeof(manta_ref);
    return MANTA_OK;
}

manta_status manta_get_value(manta_ref ref, manta_arg *out, manta_array *array, int64_t timeout_ms)
{
    REFUSE_NULL(out);
    REFUSE_NULL(array);

    object *o = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = object_await(ref, timeout_ms, true, &o);
    if (!st) {
        o->is_read = true;
        value_view(&o->v, out, array);
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

/* ---- the life of a reference ---- */

manta_status manta_pin(manta_ref ref)
{
    object *o = NULL;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = object_await(ref, 0, true, &o);
    if (!st) {
        o->kept++;
        object_unpin(o);
    }
    mutex_unlock(&rt->lock);
    return st;
}

void manta_unpin(manta_ref ref)
{
    if (!rt) return;
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (o && o->kept > 0 && --o->kept == 0) object_unmap(o);
    mutex_unlock(&rt->lock);
}

void manta_unread(manta_ref ref)
{
    if (!rt) return;
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (o && o->is_read && o->pins == 0) { /* else somebody else counts on the address as well */
        o->is_read = false;
        object_unmap(o);
    }
    mutex_unlock(&rt->lock);
}

manta_status manta_retain(manta_ref ref)
{
    manta_status st = MANTA_OK;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (o)
        o->refs++;
    else
        st = manta_fail(MANTA_EINVAL, "the reference is none, or was released");
    mutex_unlock(&rt->lock);
    return st;
}

void manta_release_all(const manta_ref *refs, size_t n)
{
    if (!rt) return;
    mutex_lock(&rt->lock);
    for (size_t i = 0; i < n; i++) {
        object *o = object_find(refs[i].id);
        if (o) object_unref(o);
    }
    rt_flush_drops();
    mutex_unlock(&rt->lock);
}

void manta_release(manta_ref ref)
{
    manta_release_all(&ref, 1);
}

manta_status manta_cancel(manta_ref ref, unsigned how)
{
    manta_status st = MANTA_OK;

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    object *o = object_find(ref.id);
    if (!o)
        st = manta_fail(MANTA_EINVAL, "the reference is none, or was released");
    else if (o->maker && !call_cancel(o->maker, how))
        st = manta_fail(MANTA_EINVAL,
                        "a call of an actor, or one that its waiter runs, cannot be forced to end "
                        "without ending the actor or the waiter");
    rt_flush_drops();
    mutex_unlock(&rt->lock);
    return st;
}
