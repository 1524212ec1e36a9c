/* futex.c - see futex.h. */
#include "os/futex.h"

#include <errno.h>
#include <linux/futex.h>
#include <time.h>

#include "base/clock.h"
#include "os/sys.h"

manta_status futex_wait_signal(_Atomic uint32_t *word, uint32_t expected, int64_t deadline, bool shared)
{
    /* The bitset form, because its timeout is a point in time and not a span
     * that would have to be computed anew after every wake-up. */
    int64_t ns = deadline < 0 ? 0 : deadline;
    struct timespec at = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
    int op = FUTEX_WAIT_BITSET | (shared ? 0 : FUTEX_PRIVATE_FLAG);
    int rc = os->futex(word, op, expected, deadline == CLOCK_NEVER ? NULL : &at, FUTEX_BITSET_MATCH_ANY);

    if (!rc) return MANTA_OK;
    return errno == ETIMEDOUT ? MANTA_ETIMEDOUT : errno == EINTR ? MANTA_EINTERRUPTED : MANTA_OK;
}

manta_status futex_wait(_Atomic uint32_t *word, uint32_t expected, int64_t deadline, bool shared)
{
    manta_status st = futex_wait_signal(word, expected, deadline, shared);

    return st == MANTA_EINTERRUPTED ? MANTA_OK : st;
}

void futex_wake(_Atomic uint32_t *word, int n, bool shared)
{
    os->futex(word, FUTEX_WAKE | (shared ? 0 : FUTEX_PRIVATE_FLAG), (uint32_t)n, NULL, 0);
}
