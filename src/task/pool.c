/* pool.c - a pool of actors (manta/task.h), on the public calls alone. */
#include <manta/actor.h>
#include <manta/object.h>
#include <manta/pool.h>
#include <manta/value.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/status.h"
#include "base/vec.h"

struct manta_pool {
    int n;
    manta_actor *actors;
    manta_ref *busy; /* what each actor is doing; 0: nothing. Held once more than in `results`. */
    VEC(manta_ref) results; /* not taken, in the order of the calls */
};

static void pool_grow(manta_pool *p)
{
    manta_actor *actors = mem_new((size_t)(p->n + 1) * sizeof *actors);
    manta_ref *busy = mem_new((size_t)(p->n + 1) * sizeof *busy);

    for (int i = 0; i < p->n; i++) {
        actors[i] = p->actors[i];
        busy[i] = p->busy[i];
    }
    mem_free(p->actors);
    mem_free(p->busy);
    p->actors = actors;
    p->busy = busy;
}

manta_status manta_pool_new(int n, const manta_actor *actors, manta_pool **out)
{
    REFUSE_ARRAY(n, actors);
    REFUSE_NULL(out);

    if (n < 1) return manta_fail(MANTA_EINVAL, "a pool of %d actors was asked for, expected 1 or more", n);
    manta_pool *p = mem_new(sizeof *p);
    p->n = n;
    p->actors = mem_new((size_t)n * sizeof *p->actors);
    p->busy = mem_new((size_t)n * sizeof *p->busy);
    for (int i = 0; i < n; i++) p->actors[i] = actors[i];
    *out = p;
    return MANTA_OK;
}

void manta_pool_free(manta_pool *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->results.n; i++) manta_release(p->results.at[i]);
    for (int i = 0; i < p->n; i++) manta_release(p->busy[i]);
    vec_release(&p->results);
    mem_free(p->actors);
    mem_free(p->busy);
    mem_free(p);
}

/* An actor that has nothing to do. */
static manta_status find_idle(manta_pool *p, int64_t timeout_ms, int *out)
{
    if (p->n == 0)
        return manta_fail(MANTA_EINVAL, "nothing can be submitted to the pool: it has no actors left");
    bool *ready = mem_new((size_t)p->n * sizeof *ready);
    manta_status st = MANTA_OK;
    int found = -1;
    for (int i = 0; i < p->n && found < 0; i++)
        if (!p->busy[i].id) found = i;
    if (found < 0) st = manta_wait(p->busy, (size_t)p->n, 1, timeout_ms, ready, NULL);
    for (int i = 0; i < p->n && found < 0 && !st; i++)
        if (ready[i]) found = i;
    mem_free(ready);
    if (st) return st;
    if (found < 0) return manta_fail(MANTA_ETIMEDOUT, "all %d actors of the pool are busy", p->n);
    manta_release(p->busy[found]);
    p->busy[found].id = 0;
    *out = found;
    return MANTA_OK;
}

manta_status manta_pool_submit(manta_pool *p, const char *method, int n_args, const manta_arg *args,
                               int64_t timeout_ms)
{
    REFUSE_NULL(p);
    REFUSE_NULL(method);
    REFUSE_ARRAY(n_args, args);

    int actor = 0;

    TRY(find_idle(p, timeout_ms, &actor));
    manta_ref r = manta_actor_submit_one(p->actors[actor], method, n_args, args);
    TRY(manta_retain(r));
    p->busy[actor] = r;
    vec_push(&p->results, r);
    return MANTA_OK;
}

size_t manta_pool_pending(const manta_pool *p)
{
    REFUSE_NULL_OR(p, 0);
    return p->results.n;
}

static manta_status pool_take(manta_pool *p, size_t i, manta_ref *out)
{
    *out = p->results.at[i];
    vec_remove(&p->results, i);
    return MANTA_OK;
}

/* Waits for one of the first n results. */
static manta_status next_of(manta_pool *p, size_t n, manta_ref *out, int64_t timeout_ms)
{
    if (p->results.n == 0) return manta_fail(MANTA_ENOENT, "no result of the pool is left");
    manta_ref *refs = mem_new(n * sizeof *refs);
    bool *ready = mem_new(n * sizeof *ready);
    size_t found = 0, i = 0;
    for (size_t k = 0; k < n; k++) refs[k] = p->results.at[k];
    manta_status st = manta_wait(refs, n, 1, timeout_ms, ready, &found);
    if (!st && !found)
        st = manta_fail(MANTA_ETIMEDOUT, "no result of the pool after %lld ms", (long long)timeout_ms);
    while (!st && !ready[i]) i++;
    mem_free(refs);
    mem_free(ready);
    return st ? st : pool_take(p, i, out);
}

manta_status manta_pool_next(manta_pool *p, manta_ref *out, int64_t timeout_ms)
{
    REFUSE_NULL(p);
    REFUSE_NULL(out);
    return next_of(p, 1, out, timeout_ms);
}

manta_status manta_pool_next_ready(manta_pool *p, manta_ref *out, int64_t timeout_ms)
{
    REFUSE_NULL(p);
    REFUSE_NULL(out);
    return next_of(p, p->results.n, out, timeout_ms);
}

void manta_pool_push(manta_pool *p, manta_actor actor)
{
    REFUSE_NULL_AND_RETURN(p);

    pool_grow(p);
    p->actors[p->n] = actor;
    p->busy[p->n++].id = 0;
}

int manta_pool_idle(manta_pool *p)
{
    REFUSE_NULL_OR(p, 0);

    int idle = 0;

    for (int i = 0; i < p->n; i++) {
        bool ready = false;
        if (p->busy[i].id && manta_wait(&p->busy[i], 1, 1, 0, &ready, NULL) == MANTA_OK && ready) {
            manta_release(p->busy[i]);
            p->busy[i].id = 0;
        }
        idle += !p->busy[i].id;
    }
    return idle;
}

manta_status manta_pool_pop(manta_pool *p, manta_actor *out)
{
    REFUSE_NULL(p);
    REFUSE_NULL(out);

    if (manta_pool_idle(p) == 0) return manta_fail(MANTA_ENOENT, "all %d actors of the pool are busy", p->n);
    int at = 0;
    while (p->busy[at].id) at++;
    *out = p->actors[at];
    p->n--;
    p->actors[at] = p->actors[p->n];
    p->busy[at] = p->busy[p->n];
    return MANTA_OK;
}
