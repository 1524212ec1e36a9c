/* task_many.c - the public calls of manta/task.h that wait for many objects at once.
 *
 *     manta_get_all    all of them are ready, or one has failed: looked at in their order, and never
 *                      again before `from`
 *     manta_wait       so many are ready as are wanted, whichever
 *
 * A wait over n references costs n once and not at each wake: all_ready() goes on where it stopped,
 * some_ready() counts anew only when an object has settled since (rt->settled). */
#include <manta/object.h>
#include <manta/value.h>

#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "task/call.h"
#include "task/deadlock.h"
#include "task/incoming.h"
#include "task/nested.h"
#include "task/object.h"
#include "task/peer.h"
#include "task/runtime.h"

typedef struct many {
    object **at;
    size_t n, want;
    size_t from; /* those before it are ready (manta_get_all) */
    size_t ready; /* references that were ready when rt->settled was `settled` */
    uint64_t settled; /* rt->settled when `ready` was counted; 0: it was not */
    size_t tried; /* references before it are of no call to run here, while no call has come back */
    uint64_t returns; /* calls that had come back when `tried` was set */
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
            deadlock_awaits_next(m->at[m->from]);
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
    uint64_t outer = deadlock_awaits(n > 0 ? m.at[0] : NULL, timeout_ms);
    st = rt_await(all_ready, find_for_all, &m, timeout_ms);
    deadlock_awaited(outer);
    if (st == MANTA_ETIMEDOUT)
        st = object_timed_out(m.at[m.from], timeout_ms);
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
