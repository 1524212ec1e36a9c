/* remote.c - see remote.h. */
#include "remote.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/actor.h>
#include <manta/queue.h>
#include <manta/stream.h>

#include "program.h"

soak_page *soak_shared;

manta_task_options soak_retries(int64_t retries)
{
    int n = retries <= -2 ? MANTA_UNLIMITED : retries == -1 ? MANTA_NONE : (int)retries;

    return (manta_task_options){.max_retries = n};
}

/* ---- digests of what comes ---- */

static manta_status refs_digest(const manta_ref *refs, size_t n, uint64_t *out)
{
    uint64_t one;

    *out = n;
    for (size_t i = 0; i < n; i++) {
        MANTA_TRY(soak_ref_digest(refs[i], &one));
        *out = soak_fold(*out, one);
    }
    return MANTA_OK;
}

manta_status soak_ref_digest(manta_ref r, uint64_t *out)
{
    const void *at;
    size_t n;
    manta_array a;
    const manta_ref *refs;

    MANTA_TRY(manta_get(r, MANTA_FOREVER));
    manta_status st = manta_get_bytes(r, &at, &n, MANTA_FOREVER);
    if (!st) *out = soak_digest_of(at, (int64_t)n);
    if (st != MANTA_EINVAL) return st;
    st = manta_get_array(r, &a, MANTA_FOREVER);
    if (!st) *out = soak_digest_of(a.data, a.shape[0]);
    if (st != MANTA_EINVAL) return st;
    MANTA_TRY(manta_get_refs(r, &refs, &n, MANTA_FOREVER));
    return refs_digest(refs, n, out);
}

static manta_status arg_digest(manta_task *t, int i, uint64_t *sum)
{
    const void *at;
    size_t n;
    manta_array a;
    const manta_ref *refs;
    uint64_t one = 0;

    switch (manta_arg_kind(t, i)) {
    case MANTA_KIND_ARRAY:
        MANTA_TRY(manta_arg_array(t, i, &a));
        one = soak_digest_of(a.data, a.shape[0]);
        break;
    case MANTA_KIND_REFS:
        MANTA_TRY(manta_arg_refs(t, i, &refs, &n));
        MANTA_TRY(refs_digest(refs, n, &one));
        break;
    default: MANTA_TRY(manta_arg_bytes(t, i, &at, &n)); one = soak_digest_of(at, (int64_t)n);
    }
    *sum = soak_fold(*sum, one);
    return MANTA_OK;
}

/* ---- results ---- */

static void *filled(int64_t size, uint64_t tag)
{
    void *at = malloc(size ? (size_t)size : 1);

    if (at) soak_fill(at, size, tag);
    return at;
}

/* A function that gives back what it is asked for: the inner calls of results. */
static manta_status soak_leaf(manta_task *t)
{
    int64_t tag, size;

    MANTA_TRY(manta_arg_i64(t, 0, &tag));
    MANTA_TRY(manta_arg_i64(t, 1, &size));
    void *at = filled(size, (uint64_t)tag);
    if (!at) return manta_fail(MANTA_ENOMEM, "%lld bytes", (long long)size);
    manta_status st = manta_return(t, 0, manta_bytes(at, (size_t)size));
    free(at);
    return st;
}
MANTA_REMOTE(soak_leaf)

/* Some references are objects that are there, some calls that nobody has waited for. */
static manta_status return_refs(manta_task *t, int k, const soak_work *w, uint64_t tag)
{
    manta_ref *refs = calloc((size_t)w->refs, sizeof *refs);
    manta_task_options o = soak_retries(w->retries);

    if (!refs) return manta_fail(MANTA_ENOMEM, "%d references", w->refs);
    for (int i = 0; i < w->refs; i++) {
        uint64_t one = SOAK_PART(tag, i);
        if (i % SOAK_REF_IS_CALL == SOAK_REF_IS_CALL - 1) {
            refs[i] = manta_remote_with(&o, soak_leaf, manta_i64((int64_t)one), manta_i64(w->result));
            continue;
        }
        void *at = filled(w->result, one);
        refs[i] = manta_put(manta_bytes(at, (size_t)w->result));
        free(at);
    }
    manta_status st = manta_return(t, k, manta_refs(refs, (size_t)w->refs));
    manta_release_all(refs, (size_t)w->refs);
    free(refs);
    return st;
}

static manta_status return_one(manta_task *t, int k, const soak_work *w, uint64_t tag)
{
    manta_array a;

    if (w->refs > 0) return return_refs(t, k, w, tag);
    if (w->in_place) {
        MANTA_TRY(manta_return_create(t, k, MANTA_DTYPE_U8, 1, &w->result, &a));
        soak_fill(a.data, w->result, tag);
        return MANTA_OK;
    }
    void *at = filled(w->result, tag);
    if (!at) return manta_fail(MANTA_ENOMEM, "%lld bytes", (long long)w->result);
    manta_status st = manta_return(t, k, manta_bytes(at, (size_t)w->result));
    free(at);
    return st;
}

/* ---- calls ---- */

static manta_status work_of(manta_task *t, int i, soak_work *out)
{
    const void *at;
    size_t n;

    MANTA_TRY(manta_arg_bytes(t, i, &at, &n));
    if (n != sizeof *out) return manta_fail(MANTA_ECORRUPT, "work of %zu bytes", n);
    memcpy(out, at, n);
    return MANTA_OK;
}

/* Calls of a call, all made before the first is waited for. */
static manta_status inner_calls(const soak_work *w, uint64_t *sum)
{
    manta_ref *r = calloc((size_t)w->width + 1, sizeof *r);
    manta_task_options o = soak_retries(w->retries);
    manta_status st = MANTA_OK;

    if (!r) return manta_fail(MANTA_ENOMEM, "%d calls", w->width);
    for (int i = 0; i < w->width; i++) {
        soak_work in = soak_work_inner(w, i);
        void *at = filled(in.size < 0 ? 0 : in.size, in.key);
        r[i] = in.size < 0 ? manta_remote_with(&o, soak_work_do, manta_bytes(&in, sizeof in))
                           : manta_remote_with(&o, soak_work_do, manta_bytes(&in, sizeof in),
                                               manta_bytes(at, (size_t)in.size));
        free(at);
    }
    for (int i = 0; i < w->width && !st; i++) {
        uint64_t one = 0;
        st = soak_ref_digest(r[i], &one);
        *sum = soak_fold(*sum, one);
    }
    manta_release_all(r, (size_t)w->width);
    free(r);
    return st;
}

static manta_status soak_work_do(manta_task *t)
{
    soak_work w;

    MANTA_TRY(work_of(t, 0, &w));
    uint64_t sum = w.key;
    for (int i = 1; i < manta_args(t); i++) MANTA_TRY(arg_digest(t, i, &sum));
    if (w.sleep_us) usleep((useconds_t)w.sleep_us);
    if (w.fails) return manta_fail(MANTA_ENAN, "as it was asked to");
    if (w.depth > 0) MANTA_TRY(inner_calls(&w, &sum));
    for (int k = 0; k < w.results; k++) MANTA_TRY(return_one(t, k, &w, SOAK_PART(sum, k)));
    return MANTA_OK;
}
MANTA_REMOTE(soak_work_do)

/* Holds its core until it may end, or its program has. */
static manta_status soak_hold(manta_task *t)
{
    int64_t round;

    MANTA_TRY(manta_arg_i64(t, 0, &round));
    while (atomic_load(&soak_shared->may_end) < round && !manta_task_is_cancelled(t)) usleep(500);
    return MANTA_OK;
}
MANTA_REMOTE(soak_hold)

static manta_status soak_items(manta_task *t)
{
    soak_work w;

    MANTA_TRY(work_of(t, 0, &w));
    for (int i = 0; i < w.width; i++) {
        void *at = filled(w.result, SOAK_PART(w.key, i));
        manta_status st = at ? manta_yield(t, manta_bytes(at, (size_t)w.result))
                             : manta_fail(MANTA_ENOMEM, "%lld bytes", (long long)w.result);
        free(at);
        MANTA_TRY(st);
        if (w.sleep_us) usleep((useconds_t)w.sleep_us);
    }
    return MANTA_OK;
}
MANTA_REMOTE(soak_items)

/* ---- actors ---- */

static manta_status soak_actor(manta_task *t)
{
    atomic_int *calls = calloc(1, sizeof *calls);

    if (!calls) return manta_fail(MANTA_ENOMEM, "an actor");
    manta_set_self(t, calls, free);
    return MANTA_OK;
}
MANTA_REMOTE(soak_actor)

static manta_status soak_method(manta_task *t)
{
    atomic_fetch_add((atomic_int *)manta_self(t), 1);
    return soak_work_do(t);
}
MANTA_REMOTE(soak_method)

static manta_status soak_calls(manta_task *t)
{
    return manta_return_i64(t, 0, atomic_load((atomic_int *)manta_self(t)));
}
MANTA_REMOTE(soak_calls)

static manta_status soak_via(manta_task *t)
{
    soak_work w;
    manta_actor a;

    MANTA_TRY(manta_arg_actor(t, 0, &a));
    MANTA_TRY(work_of(t, 1, &w));
    manta_ref *r = calloc((size_t)w.width + 1, sizeof *r);
    if (!r) return manta_fail(MANTA_ENOMEM, "%d calls", w.width);
    for (int i = 0; i < w.width; i++) {
        soak_work in = soak_work_inner(&w, i);
        r[i] = manta_actor_call(a, soak_method, manta_bytes(&in, sizeof in));
    }
    uint64_t sum = w.key, one = 0;
    manta_status st = MANTA_OK;
    for (int i = 0; i < w.width && !st; i++) {
        st = soak_ref_digest(r[i], &one);
        sum = soak_fold(sum, one);
    }
    manta_release_all(r, (size_t)w.width);
    free(r);
    return st ? st : return_one(t, 0, &w, SOAK_PART(sum, 0));
}
MANTA_REMOTE(soak_via)

static manta_status soak_produce(manta_task *t)
{
    manta_queue q;
    soak_work w;
    int64_t who;

    MANTA_TRY(manta_arg_actor(t, 0, &q.actor));
    MANTA_TRY(work_of(t, 1, &w));
    MANTA_TRY(manta_arg_i64(t, 2, &who));
    for (int64_t i = 0; i < w.width; i++) {
        char *at = malloc((size_t)w.result + SOAK_ITEM_HEAD);
        if (!at) return manta_fail(MANTA_ENOMEM, "an item");
        memcpy(at, &who, 8);
        memcpy(at + 8, &i, 8);
        soak_fill(at + SOAK_ITEM_HEAD, w.result, SOAK_PART(w.key, i));
        manta_status st =
            manta_queue_put(q, manta_bytes(at, (size_t)w.result + SOAK_ITEM_HEAD), MANTA_FOREVER);
        free(at);
        MANTA_TRY(st);
    }
    return MANTA_OK;
}
MANTA_REMOTE(soak_produce)
