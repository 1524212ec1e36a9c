/* pool.c - how tasks are handed out, and how threads wait.
 *
 *   caller                                      worker
 *   job = {fn, ctx}, shares = 0 .. n in runs    wait until remaining != 0
 *   unfinished = n                              while remaining != 0:
 *   remaining  = n          ── release ──▶          CAS remaining r -> r-1
 *   wake sleepers, if any                           run the first task of its share, or the
 *   take tasks like a worker                          last of another's when it has none left
 *   wait until unfinished == 0   ◀── release ──     unfinished -= tasks run
 *
 * Invariants
 * 1. `job` is written only while remaining == 0 and unfinished == 0.
 * 2. Whoever took a task (its CAS succeeded) may read `job`: the job cannot
 *    end, and so cannot be replaced, before that task is counted as finished.
 *    A worker that was delayed between load and CAS and meets the same number
 *    in a later job has simply taken a task of that later job; it reads `job`
 *    only afterwards. That is why no generation is needed.
 * 3. `remaining` hands out the right to a task, the shares say which one. Shares
 *    only shrink while a job runs, and there are as many tasks in them as rights
 *    that were not used yet: who has a right and looks through all shares once
 *    finds a task.
 * 4. A worker need not notice a job at all. The caller never waits for a thread
 *    that took nothing, so a descheduled or sleeping worker delays nobody.
 *
 * `remaining` and `unfinished` are event words (os/eventcount.h): the wake-up is
 * skipped when nobody sleeps, and none is lost. */
#include "os/pool.h"

#include <assert.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/cpu.h"
#include "os/eventcount.h"
#include "os/thread.h"

/* `remaining` with this value tells the workers to leave. */
#define STOP UINT32_MAX

/* How long to spin. All of it is about what waking a sleeping thread costs on a
 * virtual machine; a running step calls again well within that time. Giving
 * way (sched_yield) costs next to nothing on a free core, and on a busy one it
 * keeps an idle worker from holding up the very thread that it waits for: on
 * two cores with a busy neighbour the median job was then as fast as on one
 * thread, and without it more than twice as slow. The caller gives way later
 * than an idle worker, because what it waits for is already being computed. */
enum {
    SPIN_NS = 100 * 1000,
    WORKER_ALONE_NS = 4 * 1000, /* of which without giving way */
    CALLER_ALONE_NS = 20 * 1000, /* of which without giving way */
    LOOKS = 32, /* at the word, between two at the clock */
    LINE = 64, /* what two cores would fight over */
};

typedef struct worker {
    pool *p;
    int thread;
    thread_id id;
} worker;

/* The tasks of one thread that nobody took yet: first in the upper half, end in the lower. */
typedef struct share {
    _Alignas(LINE) _Atomic uint64_t tasks;
} share;

struct pool {
    /* Written once, by pool_new(). */
    int threads;
    int started; /* workers that exist: threads - 1, less after a failed start */
    pid_t owner;
    spin_policy worker_spin, caller_spin;
    size_t scratch_size, scratch_stride;
    unsigned char *scratch;
    worker *workers; /* [threads]; [0] is unused */

    /* Invariant 1. */
    struct {
        pool_fn *fn;
        void *ctx;
    } job;
    share *shares; /* [threads]; set under invariant 1 */
    atomic_bool busy; /* catches a second caller */

    _Alignas(LINE) _Atomic uint32_t remaining; /* tasks nobody took yet, or STOP */
    _Alignas(LINE) _Atomic uint32_t unfinished; /* tasks whose call has not returned */
    _Alignas(LINE) _Atomic uint32_t sleepers; /* workers asleep on `remaining` */
    _Atomic uint32_t caller_sleeps; /* caller asleep on `unfinished` */
};

/* Set while this thread runs tasks: which pool's, and as which thread. */
static _Thread_local const pool *inside;
static _Thread_local int inside_thread;

static spin_policy spin_of(int threads, int64_t alone_ns)
{
    return (spin_policy){.clock_every = LOOKS,
                         .alone_turns = SPIN_ANY_TURNS,
                         .alone_ns = threads > cpu_cores() ? SPIN_CROWDED : alone_ns,
                         .limit_ns = SPIN_NS};
}

static uint64_t share_of(uint32_t first, uint32_t end)
{
    return (uint64_t)first << 32 | end;
}

/* Takes the first task of a share, or its last; false when it is empty. The order
 * of memory is the business of `remaining`. */
static bool take_from(share *s, bool first, uint32_t *task)
{
    uint64_t now = atomic_load_explicit(&s->tasks, memory_order_relaxed), then;

    do {
        uint32_t begin = (uint32_t)(now >> 32), end = (uint32_t)now;
        if (begin == end) return false;
        *task = first ? begin : end - 1;
        then = first ? share_of(begin + 1, end) : share_of(begin, end - 1);
    } while (!atomic_compare_exchange_weak_explicit(&s->tasks, &now, then, memory_order_relaxed,
                                                    memory_order_relaxed));
    return true;
}

/* Takes a task; false when none is left (or the pool is stopping). */
static bool take_task(pool *p, int thread, uint32_t *task)
{
    uint32_t r = atomic_load_explicit(&p->remaining, memory_order_relaxed);

    do {
        if (r == 0 || r == STOP) return false;
    } while (!atomic_compare_exchange_weak_explicit(&p->remaining, &r, r - 1, memory_order_acquire,
                                                    memory_order_relaxed));
    bool found = take_from(&p->shares[thread], true, task);
    for (int i = 1; !found && i < p->threads; i++) {
        found = take_from(&p->shares[(thread + i) % p->threads], false, task);
    }
    assert(found); /* invariant 3 */
    return found;
}

/* Runs tasks until none is left to take. */
static void run_tasks(pool *p, int thread)
{
    uint32_t task, done = 0;

    inside = p;
    inside_thread = thread;
    for (; take_task(p, thread, &task); done++) p->job.fn(p->job.ctx, (int)task, thread);
    inside = NULL;
    if (done == 0) return;
    if (atomic_fetch_sub_explicit(&p->unfinished, done, memory_order_seq_cst) == done)
        (void)eventword_wake(&p->unfinished, &p->caller_sleeps, 1, false);
}

static void worker_main(void *arg)
{
    worker *w = arg;
    pool *p = w->p;

    /* First touch: the pages are faulted in now, and near this thread's core. */
    if (p->scratch) memset(pool_scratch(p, w->thread), 0, p->scratch_size);

    for (;;) {
        if (!eventword_spin(&p->remaining, 0, false, &p->worker_spin)) {
            (void)eventword_sleep(&p->remaining, 0, &p->sleepers, CLOCK_NEVER, false);
            continue; /* too late for that job, perhaps, but a step is running: spin for its next */
        }
        if (atomic_load_explicit(&p->remaining, memory_order_acquire) == STOP) return;
        run_tasks(p, w->thread);
    }
}

static manta_status worker_start(pool *p, int i)
{
    worker *w = &p->workers[i];
    char name[32];

    *w = (worker){.p = p, .thread = i};
    snprintf(name, sizeof name, "manta-pool-%d", i);
    return thread_start(&w->id, name, worker_main, w);
}

manta_status pool_new(int threads, size_t scratch_size, pool **out)
{
    manta_status st = MANTA_OK;
    pool *p = NULL;
    size_t size;

    if (threads < 1)
        return manta_fail(MANTA_EINVAL, "pool: %d threads asked for, expected at least 1", threads);
    p = mem_try(sizeof *p);
    if (!p) return manta_fail(MANTA_ENOMEM, "pool: %zu bytes of memory could not be had", sizeof *p);
    p->threads = threads;
    p->owner = getpid();
    p->worker_spin = spin_of(threads, WORKER_ALONE_NS);
    p->caller_spin = spin_of(threads, CALLER_ALONE_NS);
    p->workers = mem_new((size_t)threads * sizeof *p->workers);
    p->shares = mem_try((size_t)threads * sizeof *p->shares);
    if (!p->shares) {
        st = manta_fail(MANTA_ENOMEM, "pool: no memory for %d threads", threads);
        goto out;
    }
    p->scratch_size = scratch_size;
    p->scratch_stride = (scratch_size + LINE - 1) / LINE * LINE;
    if (scratch_size > 0) {
        if (p->scratch_stride < scratch_size ||
            __builtin_mul_overflow((size_t)threads, p->scratch_stride, &size) ||
            !(p->scratch = mem_try_raw(size))) {
            st = manta_fail(MANTA_ENOMEM, "pool: no memory for %d times %zu bytes of scratch", threads,
                            scratch_size);
            goto out;
        }
        memset(p->scratch, 0, p->scratch_stride);
    }
    while (p->started < threads - 1) {
        if ((st = worker_start(p, p->started + 1))) goto out;
        p->started++;
    }
    *out = p;
    p = NULL;
out:
    pool_free(p);
    return st;
}

void pool_free(pool *p)
{
    if (!p) return;
    assert(inside != p);
    if (p->owner == getpid()) { /* after a fork there is nobody to join */
        atomic_store_explicit(&p->remaining, STOP, memory_order_seq_cst);
        (void)eventword_wake(&p->remaining, &p->sleepers, INT_MAX, false);
        for (int i = 1; i <= p->started; i++) thread_join(&p->workers[i].id);
    }
    mem_try_free(p->scratch);
    mem_try_free(p->shares);
    mem_free(p->workers);
    mem_try_free(p);
}

int pool_threads(const pool *p)
{
    return p->threads;
}

void *pool_scratch(const pool *p, int thread)
{
    assert(thread >= 0 && thread < p->threads);
    return p->scratch ? p->scratch + (size_t)thread * p->scratch_stride : NULL;
}

/* All tasks, one after the other, on this thread. */
static void run_inline(pool *p, int n_tasks, pool_fn *fn, void *ctx)
{
    const pool *outer = inside;
    int thread = outer == p ? inside_thread : 0, outer_thread = inside_thread;

    inside = p;
    inside_thread = thread;
    for (int i = 0; i < n_tasks; i++) fn(ctx, i, thread);
    inside = outer;
    inside_thread = outer_thread;
}

/* Waits for the tasks that workers took. */
static void await_workers(pool *p)
{
    uint32_t left;

    if (eventword_spin(&p->unfinished, 0, true, &p->caller_spin)) return;
    while ((left = atomic_load_explicit(&p->unfinished, memory_order_acquire)) != 0)
        (void)eventword_sleep(&p->unfinished, left, &p->caller_sleeps, CLOCK_NEVER, false);
}

/* Runs of tasks as even as can be, in the order of the threads. */
static void cut_shares(pool *p, uint32_t n)
{
    const uint32_t threads = (uint32_t)p->threads;

    for (uint32_t t = 0, first = 0; t < threads; t++) {
        const uint32_t end = first + (n - first) / (threads - t);
        atomic_store_explicit(&p->shares[t].tasks, share_of(first, end), memory_order_relaxed);
        first = end;
    }
}

void pool_run(pool *p, int n_tasks, pool_fn *fn, void *ctx)
{
    if (n_tasks <= 1 || p->threads == 1 || inside == p) {
        run_inline(p, n_tasks, fn, ctx);
        return;
    }
    bool was_busy = atomic_exchange_explicit(&p->busy, true, memory_order_acquire);
    assert(!was_busy); /* one caller at a time */
    (void)was_busy;

    p->job.fn = fn;
    p->job.ctx = ctx;
    cut_shares(p, (uint32_t)n_tasks);
    atomic_store_explicit(&p->unfinished, (uint32_t)n_tasks, memory_order_relaxed);
    atomic_store_explicit(&p->remaining, (uint32_t)n_tasks, memory_order_seq_cst);
    (void)eventword_wake(&p->remaining, &p->sleepers, n_tasks - 1, false);

    const pool *outer = inside; /* a task of another pool may run this one */
    int outer_thread = inside_thread;
    run_tasks(p, 0);
    inside = outer;
    inside_thread = outer_thread;
    await_workers(p);
    atomic_store_explicit(&p->busy, false, memory_order_release);
}
