/* clock.h - what time it is; a test can say otherwise. */
#ifndef BASE_CLOCK_H
#define BASE_CLOCK_H

#include <stdint.h>

/* A deadline that never comes. */
#define CLOCK_NEVER INT64_MAX

/* Nanoseconds of a clock that never jumps; its zero means nothing. Deadlines
 * are points of this clock. */
int64_t clock_now_ns(void);

/* Nanoseconds since 1970-01-01 UTC. May jump when the clock is set. */
int64_t clock_wall_ns(void);

/* The point timeout_ms from now; CLOCK_NEVER when timeout_ms is negative or
 * so large that the sum cannot be expressed. */
int64_t clock_deadline(int64_t timeout_ms);

/* Milliseconds from now to the deadline as poll() wants them: rounded up, 0 when it has
 * passed, -1 for CLOCK_NEVER. */
int clock_left_ms(int64_t deadline);

/* For tests: both clocks are read from these functions from now on; NULL for
 * the system's. Real waits (condition variables, futexes) still last by the
 * system's clock. Not while other threads read the time. */
typedef struct clock_source {
    int64_t (*now_ns)(void);
    int64_t (*wall_ns)(void);
} clock_source;
void clock_replace(const clock_source *source);

#endif
