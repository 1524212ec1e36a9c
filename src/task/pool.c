/* pool.c - a pool of actors (manta/task.h), on the public calls alone. */
#include <manta/task.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/vec.h"

struct manta_pool {
    int n;
    manta_actor *actors;
    manta_ref *busy; /* what each actor is doing; 0: nothing. Held once more than in `results`. */
    VEC(manta_ref) results; /* not taken, in the order of the calls */
};

manta_status manta_pool_new(int n, const manta_actor *actors, manta_pool **out)
{
    if (n < 1) return manta_fail(MANTA_EINVAL, "a pool of %d actors", n);
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
    return p->results.n;
}

static manta_status take(manta_pool *p, size_t i, manta_ref *out)
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
    return st ? st : take(p, i, out);
}

manta_status manta_pool_next(manta_pool *p, manta_ref *out, int64_t timeout_ms)
{
    return next_of(p, 1, out, timeout_ms);
}

manta_status manta_pool_next_ready(manta_pool *p, manta_ref *out, int64_t timeout_ms)
{
    return next_of(p, p->results.n, out, timeout_ms);
}
