/* manta/pool.h - many calls for few actors.
 *
 * Threads: a pool from one thread at a time. */
#ifndef MANTA_POOL_H
#define MANTA_POOL_H

#include <stddef.h>
#include <stdint.h>

#include <manta/actor.h>
#include <manta/status.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A pool gives calls to actors so that each has one at a time, and hands the
 * results out in the order of the calls or as they come. One thread at a time. */
typedef struct manta_pool manta_pool;

/* The actors stay the caller's, and must live as long as the pool.
 * *out: give back with manta_pool_free(). MANTA_EINVAL n < 1. */
MANTA_API manta_status manta_pool_new(int n, const manta_actor *actors, manta_pool **out) MANTA_MUST_USE;
MANTA_API void manta_pool_free(manta_pool *p); /* releases results not taken; accepts NULL */

/* manta_pool_call(pool, timeout_ms, method, args...): waits for an actor that
 * has nothing to do and calls it. MANTA_ETIMEDOUT none had. */
#define manta_pool_call(pool, timeout_ms, ...)                                                               \
    manta_pool_submit((pool), MANTA_NAME_(__VA_ARGS__, ), MANTA_COUNT_(__VA_ARGS__) - 1,                     \
                      (MANTA_LIST_(__VA_ARGS__)) + 1, (timeout_ms))
MANTA_API manta_status manta_pool_submit(manta_pool *p, const char *method, int n_args, const manta_arg *args,
                                         int64_t timeout_ms) MANTA_MUST_USE;
/* How many results have not been taken. */
MANTA_API size_t manta_pool_pending(const manta_pool *p);
/* The oldest result, or whichever is ready first; release it. MANTA_ENOENT
 * there is none left; MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_pool_next(manta_pool *p, manta_ref *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_pool_next_ready(manta_pool *p, manta_ref *out,
                                             int64_t timeout_ms) MANTA_MUST_USE;

/* How many actors have nothing to do. */
MANTA_API int manta_pool_idle(manta_pool *p);
/* Takes an actor out that has nothing to do; it is the caller's as before.
 * MANTA_ENOENT there is none. */
MANTA_API manta_status manta_pool_pop(manta_pool *p, manta_actor *out) MANTA_MUST_USE;
MANTA_API void manta_pool_push(manta_pool *p, manta_actor actor); /* one more */

#ifdef __cplusplus
}
#endif
#endif
