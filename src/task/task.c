/* task.c - the public calls of manta/task.h about calls and objects: each takes
 * the lock, does its work through the other files of this folder, and gives it
 * back. task_node.c and task_actors.c have the rest. */
#include <manta/task.h>

#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "task/call.h"
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
    if (!st) st = object_make(&arg, &v, &o);
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

/* Whether what this thread waits for is what the whole process waits for. */
static bool awaits_counts(void)
{
    return rt_current && rt->is_worker && rt->threads == 0;
}

/* Remembers that this thread waits for o (deadlock.h); what it waited for before is returned. */
static uint64_t awaits_begin(const object *o, int64_t timeout_ms)
{
    uint64_t outer = rt->awaits;

    if (awaits_counts()) rt->awaits = o && timeout_ms < 0 ? o->id : 0;
    return outer;
}

static call *find_for_object(void *ctx, nested_terms terms)
{
    return nested_find(ctx, terms);
}

static manta_status timed_out(const object *o, int64_t timeout_ms)
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
            uint64_t outer = awaits_begin(o, timeout_ms);
            st = rt_await(object_settled, find_for_object, o, timeout_ms);
            if (awaits_counts()) rt->awaits = outer;
            if (st == MANTA_ETIMEDOUT) st = timed_out(o, timeout_ms);
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

/* ---- many at once ---- */

typedef struct many {
    object **at;
    size_t n, want;
    size_t from; /* those before it are ready (manta_get_all) */
    size_t ready; /* that were when they were looked at, */
    uint64_t settled; /* when rt->settled was that; 0: they were not */
    size_t tried; /* those before it are not to be run here, */
    uint64_t returns; /* as long as no call came back */
} many;

/* The object of a reference, unless it is none, was released, or is not sealed.
 * *near, 0 at first, is where it is looked for: references that come in the order
 * in which they were made lie side by side and need no search. */
static object *find_near(manta_ref ref, size_t *near)
{
    object *o;

    if (*near < rt->objects.n && rt->objects.at[*near].key == ref.id) {
        o = rt->objects.at[(*near)++].value;
    } else {
        object **found = map_u64_find(&rt->objects, ref.id);
        if (!found) return NULL;
        *near = (size_t)((const char *)found - (const char *)rt->objects.at) / sizeof *rt->objects.at + 1;
        o = *found;
    }
    return o->unsealed ? NULL : o;
}

static manta_status none_at(size_t i)
{
    return manta_fail(MANTA_EINVAL, "reference %zu is none, was released, or is not sealed", i);
}

/* The objects of n references, in an array to be freed. */
static manta_status find_all(const manta_ref *refs, size_t n, object ***out)
{
    object **at = mem_new((n + 1) * sizeof *at);
    size_t near = 0;

    for (size_t i = 0; i < n; i++) {
        if ((at[i] = find_near(refs[i], &near))) continue;
        mem_free(at);
        return none_at(i);
    }
    *out = at;
    return MANTA_OK;
}

/* They stay while we wait, and the daemon is asked for those it has to bring. */
static void pin_all(const many *m)
{
    for (size_t i = 0; i < m->n; i++) {
        m->at[i]->pins++;
        object_want(m->at[i]);
    }
}

static void unpin_all(const many *m)
{
    for (size_t i = 0; i < m->n; i++) object_unpin(m->at[i]);
}

static bool all_ready(void *ctx)
{
    many *m = ctx;

    for (; m->from < m->n; m->from++) {
        if (m->at[m->from]->state == OBJECT_FAILED) return true; /* no need to wait for the others */
        if (m->at[m->from]->state == OBJECT_PENDING) {
            if (rt->awaits && awaits_counts()) rt->awaits = m->at[m->from]->id;
            return false;
        }
    }
    return true;
}

/* Looks at all again only when enough objects were settled since the last time; so a wait for many
 * looks at each a few times, however often it wakes. */
static bool some_ready(void *ctx)
{
    many *m = ctx;

    if (m->ready < m->want && rt->settled - m->settled < m->want - m->ready && m->settled > 0) return false;
    m->settled = rt->settled;
    m->ready = 0;
    for (size_t i = 0; i < m->n && m->ready < m->want; i++) m->ready += m->at[i]->state != OBJECT_PENDING;
    rt->looks += m->n;
    return m->ready >= m->want;
}

/* The first of those awaited that is to be run here. Each is looked at once, and all again when
 * a call came back that had been sent. */
static call *find_next(many *m, nested_terms terms)
{
    if (m->returns != rt->returns) m->tried = 0;
    m->returns = rt->returns;
    for (; m->tried < m->n; m->tried++) {
        call *c = m->at[m->tried]->state == OBJECT_PENDING ? nested_find(m->at[m->tried], terms) : NULL;
        if (c) return c;
    }
    return NULL;
}

static call *find_for_all(void *ctx, nested_terms terms)
{
    many *m = ctx;

    if (m->tried < m->from) m->tried = m->from;
    return nested_lends() ? find_next(m, terms) : NULL;
}

/* Of some that are awaited one is run here only when the others cannot be enough. */
static call *find_for_some(void *ctx, nested_terms terms)
{
    many *m = ctx;
    size_t others = 0;

    if (!nested_lends()) return NULL;
    if (m->returns == rt->returns && m->tried == m->n) return NULL; /* as before */
    for (size_t i = 0; i < m->n && others < m->want && m->want < m->n; i++)
        others += !nested_find(m->at[i], terms);
    return others < m->want ? find_next(m, terms) : NULL;
}

static manta_status get_all(const manta_ref *refs, size_t n, int64_t timeout_ms)
{
    many m = {.n = n};
    manta_status st = MANTA_OK;

    TRY(find_all(refs, n, &m.at));
    pin_all(&m);
    for (size_t i = 0; i < n && timeout_ms < 0 && rt_current && rt_current->actor; i++)
        if (m.at[i]->state == OBJECT_PENDING) nested_refuse_self(m.at[i]);
    uint64_t outer = awaits_begin(n > 0 ? m.at[0] : NULL, timeout_ms);
    st = rt_await(all_ready, find_for_all, &m, timeout_ms);
    if (awaits_counts()) rt->awaits = outer;
    if (st == MANTA_ETIMEDOUT)
        st = timed_out(m.at[m.from], timeout_ms);
    else if (!st && m.from < n)
        st = failure_raise(m.at[m.from]->failure);
    unpin_all(&m);
    mem_free(m.at);
    return st;
}

manta_status manta_get_all(const manta_ref *refs, size_t n, int64_t timeout_ms)
{
    if (n > 0) REFUSE_NULL(refs);

    if (!rt) return rt_none();
    mutex_lock(&rt->lock);
    manta_status st = get_all(refs, n, timeout_ms);
    mutex_unlock(&rt->lock);
    return st;
}

/* Each walk over references leaves its number on their objects. */
static manta_status refuse_duplicates(const manta_ref *refs, size_t n)
{
    uint64_t walk = ++rt->walks;
    size_t near = 0;

    for (size_t i = 0; i < n; i++) {
        object *o = find_near(refs[i], &near);
        if (o->walk == walk)
            return manta_fail(MANTA_EINVAL, "the same reference is given twice, expected each once");
        o->walk = walk;
    }
    return MANTA_OK;
}

/* Looks at all n references, and for `want` of them that are ready: *found are,
 * the last of them before *end. */
static manta_status look_at(const manta_ref *refs, size_t n, size_t want, size_t *found, size_t *end)
{
    size_t near = 0;
    bool rising = true; /* then none is there twice */

    *found = *end = 0;
    for (size_t i = 0; i < n; i++) {
        const object *o = find_near(refs[i], &near);
        if (!o) return none_at(i);
        rising = rising && (i == 0 || refs[i - 1].id < refs[i].id);
        if (*found == want || o->state == OBJECT_PENDING) continue;
        ++*found;
        *end = i + 1;
    }
    return rising ? MANTA_OK : refuse_duplicates(refs, n);
}

/* As wait_some(), when it has to sleep. */
static manta_status wait_longer(const manta_ref *refs, size_t n, size_t want, int64_t timeout_ms, bool *ready,
                                size_t *found)
{
    many m = {.n = n, .want = want};

    TRY(find_all(refs, n, &m.at));
    pin_all(&m);
    manta_status st = rt_await(some_ready, find_for_some, &m, timeout_ms);
    if (st == MANTA_ETIMEDOUT) st = MANTA_OK; /* fewer are an answer too */
    *found = 0;
    for (size_t i = 0; i < n && !st; i++) {
        ready[i] = *found < want && m.at[i]->state != OBJECT_PENDING;
        *found += ready[i];
    }
    unpin_all(&m); /* another thread may have released one meanwhile */
    mem_free(m.at);
    return st;
}

static manta_status wait_some(const manta_ref *refs, size_t n, size_t want, int64_t timeout_ms, bool *ready,
                              size_t *n_ready)
{
    size_t found, end, near = 0;

    TRY(look_at(refs, n, want, &found, &end));
    if (found < want && rt_pump()) {
        if (rt->waiters > 0) rt_changed();
        TRY(look_at(refs, n, want, &found, &end));
    }
    if (found < want) {
        TRY(wait_longer(refs, n, want, timeout_ms, ready, &found));
    } else {
        for (size_t i = 0; i < end; i++) ready[i] = find_near(refs[i], &near)->state != OBJECT_PENDING;
        if (end < n) memset(ready + end, false, n - end);
    }
    if (n_ready) *n_ready = found;
    return MANTA_OK;
}

manta_status manta_wait(const manta_ref *refs, size_t n, size_t num_returns, int64_t timeout_ms, bool *ready,
                        size_t *n_ready)
{
    if (n > 0) REFUSE_NULL(refs);
    REFUSE_NULL(ready);

    if (!rt) return rt_none();
    if (num_returns > n)
        return manta_fail(MANTA_EINVAL,
                          "%zu of %zu references are to be awaited, expected no more than there are",
                          num_returns, n);
    mutex_lock(&rt->lock);
    manta_status st = wait_some(refs, n, num_returns, timeout_ms, ready, n_ready);
    mutex_unlock(&rt->lock);
    return st;
}

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
