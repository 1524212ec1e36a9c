/* os/spin.h - looking for a while before sleeping.
 *
 * Waking a sleeping thread costs tens of microseconds on a virtual machine, so
 * who waits for something that is about to come looks for it a bounded time
 * first. What the bounds are was measured by each place that waits, and is its
 * own: a spin_policy. How a wait goes through them is the same for all:
 *
 *     turn        0    1  ...  31  32  33  ...  63  64  ...
 *     clock       ▲                ▲                ▲            every clock_every turns, here 32
 *
 *     time        0 ──────── alone_ns ──────────────── limit_ns
 *                 pauses the core │ gives way to others │ SPIN_OVER: sleep
 *                                 │ (sched_yield)       │
 *
 * Giving way costs next to nothing on a free core, and on a busy one it keeps a
 * spinner from holding up the very thread that it waits for. */
#ifndef OS_SPIN_H
#define OS_SPIN_H

#include <limits.h>
#include <stdint.h>

#include "base/clock.h"

typedef struct spin_policy {
    unsigned clock_every; /* turns from one look at the clock to the next; a power of two */
    unsigned alone_turns; /* from this turn on every turn gives way; SPIN_ANY_TURNS: turns do not count */
    int64_t alone_ns; /* after so long a look at the clock gives way; SPIN_CROWDED: each does */
    int64_t limit_ns; /* after so long it is time to sleep */
} spin_policy;

#define SPIN_ANY_TURNS UINT_MAX
#define SPIN_ANY_TIME  INT64_MAX /* an alone_ns that never comes */
#define SPIN_CROWDED   (-1) /* the alone_ns of more threads than cores: spinning only delays the others */

/* How far a wait is. {0} looks at the clock in its first turn, {.turns = 1} after
 * clock_every - 1 turns. */
typedef struct spin {
    int64_t began; /* when the clock was first looked at; 0: not yet */
    int64_t now; /* when it was last */
    unsigned turns;
} spin;

typedef enum spin_turn {
    SPIN_PAUSE, /* spin_pause(), then look again */
    SPIN_CLOCK, /* the clock was looked at, and lets the wait go on: as SPIN_PAUSE */
    SPIN_YIELD, /* sched_yield(), then look again */
    SPIN_OVER, /* sleep */
} spin_turn;

static inline void spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* What to do after a look that found nothing. */
static inline spin_turn spin_next(spin *s, const spin_policy *p)
{
    unsigned turn = s->turns++;

    if (__builtin_expect((turn & (p->clock_every - 1)) != 0, 1))
        return __builtin_expect(turn < p->alone_turns, 1) ? SPIN_PAUSE : SPIN_YIELD;
    s->now = clock_now_ns();
    if (!s->began) s->began = s->now;
    if (s->now - s->began > p->limit_ns) return SPIN_OVER;
    return turn >= p->alone_turns || s->now - s->began > p->alone_ns ? SPIN_YIELD : SPIN_CLOCK;
}

#endif
