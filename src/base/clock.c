/* clock.c - see clock.h. */
#include "base/clock.h"

#include <limits.h>
#include <stddef.h>
#include <time.h>

static const clock_source *replaced;

static int64_t read_ns(clockid_t id)
{
    struct timespec t;

    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t clock_now_ns(void)
{
    return replaced ? replaced->now_ns() : read_ns(CLOCK_MONOTONIC);
}

int64_t clock_wall_ns(void)
{
    return replaced ? replaced->wall_ns() : read_ns(CLOCK_REALTIME);
}

int64_t clock_deadline(int64_t timeout_ms)
{
    int64_t span, at;

    if (timeout_ms < 0 || __builtin_mul_overflow(timeout_ms, 1000000, &span) ||
        __builtin_add_overflow(clock_now_ns(), span, &at))
        return CLOCK_NEVER;
    return at;
}

int clock_left_ms(int64_t deadline)
{
    int64_t left;

    if (deadline == CLOCK_NEVER) return -1;
    left = deadline - clock_now_ns();
    if (left <= 0) return 0;
    left = (left - 1) / 1000000 + 1;
    return left < INT_MAX ? (int)left : INT_MAX;
}

void clock_replace(const clock_source *source)
{
    replaced = source;
}
