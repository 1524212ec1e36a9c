/* eventcount.c - see eventcount.h, which has the picture. */
#include "os/eventcount.h"

#include <limits.h>
#include <sched.h>

#include "os/futex.h"

CRASH_DEFINE(eventcount, EVENTCOUNT_CRASH_POINTS)

/* ---- an eventcount ---- */

uint32_t eventcount_prepare(eventcount *e)
{
    uint32_t seen = atomic_load(&e->count);

    atomic_fetch_add(&e->sleepers, 1);
    atomic_thread_fence(memory_order_seq_cst);
    eventcount_crash(EVENTCOUNT_CRASH_ANNOUNCED);
    return seen;
}

bool eventcount_sleep(eventcount *e, uint32_t seen, int64_t deadline)
{
    /* The shared form, which serves one process as well: zeros are then all that an
     * eventcount needs, and no two sides can differ in it. */
    return futex_wait(&e->count, seen, deadline, true) != MANTA_ETIMEDOUT;
}

void eventcount_leave(eventcount *e)
{
    atomic_fetch_sub(&e->sleepers, 1);
}

bool eventcount_wait(eventcount *e, bool (*ready)(void *ctx), void *ctx, int64_t deadline)
{
    return eventcount_wait_signal(e, ready, ctx, deadline) != MANTA_ETIMEDOUT;
}

manta_status eventcount_wait_signal(eventcount *e, bool (*ready)(void *ctx), void *ctx, int64_t deadline)
{
    uint32_t seen = eventcount_prepare(e);
    manta_status st = ready(ctx) ? MANTA_OK : futex_wait_signal(&e->count, seen, deadline, true);

    eventcount_leave(e);
    return st;
}

void eventcount_wake(eventcount *e)
{
    atomic_fetch_add(&e->count, 1);
    eventcount_crash(EVENTCOUNT_CRASH_COUNTED);
    futex_wake(&e->count, INT_MAX, true);
}

/* ---- an event word ---- */

bool eventword_spin(const _Atomic uint32_t *word, uint32_t value, bool equal, const spin_policy *p)
{
    spin s = {.turns = 1};

    for (;;) {
        if ((atomic_load_explicit(word, memory_order_acquire) == value) == equal) return true;
        switch (spin_next(&s, p)) {
        case SPIN_PAUSE:
        case SPIN_CLOCK: spin_pause(); break;
        case SPIN_YIELD: sched_yield(); break;
        case SPIN_OVER: return false;
        }
    }
}

bool eventword_sleep(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers, int64_t deadline,
                     bool across)
{
    bool in_time = true;

    atomic_fetch_add(sleepers, 1);
    if (atomic_load(word) == value) in_time = futex_wait(word, value, deadline, across) != MANTA_ETIMEDOUT;
    atomic_fetch_sub(sleepers, 1);
    return in_time;
}

void eventword_wake_some(_Atomic uint32_t *word, int n, bool across)
{
    futex_wake(word, n, across);
}
