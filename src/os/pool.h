/* pool.h - the threads that the compute kernels share.
 *
 * A pool runs one job at a time: n tasks, each a call of one function. Each
 * thread has a run of neighbouring tasks, thread 0 the first, and takes them in
 * ascending order; who has done its own takes the last of another's, so an
 * uneven job balances itself. Jobs that cut the same memory in the same order
 * therefore find most of it in the caches of the core that touched it last:
 * where two cores do not share a cache, fetching what the other one wrote costs
 * more than the arithmetic on it. But which thread computes a task remains a
 * matter of luck; whoever wants the same bits every time must let the result of
 * a task depend on the task's number alone.
 *
 * Threads: a pool has one caller at a time. The caller takes part as thread 0;
 * the others, 1 .. threads-1, are the pool's own. They carry the names
 * manta-pool-N and block all signals, which stay the program's business.
 *
 * Waiting: between two jobs the pool's threads spin for a bounded time (about
 * as long as waking a sleeping thread would cost), giving way to others, and
 * then sleep; a pool that is not used costs no processor time.
 *
 * fork: only the forking thread exists in the child. A pool inherited from
 * the parent still works there when no job was running at the fork: all tasks
 * then run on the caller. pool_free() gives back the child's copy. */
#ifndef OS_POOL_H
#define OS_POOL_H

#include <stddef.h>

#include "base/status.h"

typedef struct pool pool; /* opaque, see pool.c */

/* One task: `task` in 0 .. n_tasks-1, `thread` in 0 .. pool_threads()-1. No two
 * tasks that run at the same time have the same `thread`. */
typedef void pool_fn(void *ctx, int task, int thread);

/* Starts a pool of `threads` threads, the caller among them, each with
 * scratch_size bytes of scratch memory.
 * *out: owned by the caller, give back with pool_free(). Untouched on failure.
 * MANTA_EINVAL threads < 1; MANTA_ENOMEM no memory for the scratch; MANTA_EBUSY
 * the system has no room for so many threads. */
manta_status pool_new(int threads, size_t scratch_size, pool **out) MANTA_MUST_USE;

/* Ends the threads and gives back all memory. Accepts NULL. No job may run. */
void pool_free(pool *p);

/* How many threads take part in a job, the caller included. */
int pool_threads(const pool *p);

/* Calls fn(ctx, task, thread) once for each task 0 .. n_tasks-1 and returns
 * when all calls have returned; what they wrote is then visible to the caller,
 * and what the caller wrote before is visible to them. Allocates nothing and
 * takes no lock. A single task, or a pool of one thread, runs inline.
 *
 * From within a task, pool_run() on the same pool runs its tasks inline, in
 * order, on that thread and with that thread's number. */
void pool_run(pool *p, int n_tasks, pool_fn *fn, void *ctx);

/* The scratch memory of one thread: scratch_size bytes, 64-byte aligned,
 * contents undefined at the start of a task. Shared with the tasks of a nested
 * pool_run(). NULL when scratch_size was 0. Borrowed: valid until pool_free(p). */
void *pool_scratch(const pool *p, int thread);

#endif
