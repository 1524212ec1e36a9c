/* limit.c - how much packed bytes may become. */
#include "format/codec/limit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "MANTA_UNPACK_MAX"

/* 500k, 64M, 2G, 1000 (bytes). False: it is not set, or is none of these. */
static bool read_setting(uint64_t *out)
{
    static const char units[] = "kMGT";
    const char *text = getenv(VARIABLE), *unit;
    char *end;
    unsigned long long n;

    if (!text || *text < '0' || *text > '9') return false;
    errno = 0;
    n = strtoull(text, &end, 10);
    unit = *end ? strchr(units, *end) : NULL;
    if (errno || n > UINT64_C(1) << 23 || (*end && (!unit || end[1]))) return false;
    *out = (uint64_t)n << (unit ? 10 * (unit - units + 1) : 0);
    return true;
}

static uint64_t memory_size(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);

    return pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page : UINT64_MAX;
}

uint64_t limit_most(uint64_t packed)
{
    uint64_t most, memory = memory_size();

    if (read_setting(&most)) return most;
    if (__builtin_mul_overflow(packed, (uint64_t)LIMIT_RATIO, &most)) most = UINT64_MAX;
    if (most < LIMIT_ANY_RATIO) most = LIMIT_ANY_RATIO;
    return most < memory ? most : memory;
}

manta_status limit_unpacked(const char *what, uint64_t packed, uint64_t size)
{
    uint64_t most = limit_most(packed), set;
    unsigned long long all = size, here = packed, bound = most;

    if (size <= most) return MANTA_OK;
    if (read_setting(&set)) {
        return manta_fail(MANTA_ENOMEM,
                          "%s: %llu packed bytes would become at least %llu, expected at most " VARIABLE
                          ", which is %llu",
                          what, here, all, bound);
    }
    if (most == memory_size()) {
        return manta_fail(
            MANTA_ENOMEM,
            "%s: %llu packed bytes would become at least %llu, and this machine has %llu of memory", what,
            here, all, bound);
    }
    return manta_fail(
        MANTA_ENOMEM,
        "%s: %llu packed bytes would become at least %llu, expected at most %llu (beyond %d MiB no more "
        "than %d times; " VARIABLE "=SIZE in the environment allows it)",
        what, here, all, bound, (int)(LIMIT_ANY_RATIO >> 20), LIMIT_RATIO);
}
