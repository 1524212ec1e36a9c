/* base/option.h - reading what manta/option.h lets people write. */
#ifndef BASE_OPTION_H
#define BASE_OPTION_H

#include <stdint.h>

#include <manta/option.h>

#include "base/status.h"

/* The number meant: `otherwise` for 0, and 0 for MANTA_ZERO. */
static inline double option_real(double v, double otherwise)
{
    return v == 0 ? otherwise : v == MANTA_ZERO ? 0 : v;
}

static inline int64_t option_int(int64_t v, int64_t otherwise)
{
    return v == 0 ? otherwise : v == MANTA_ZERO ? 0 : v;
}

/* Refuses a negative number that is not MANTA_NONE, of a field that takes that one. */
static inline manta_status option_or_none(const char *field, int64_t v)
{
    if (v >= MANTA_NONE) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s is %lld, expected 0 or more, or MANTA_NONE", field, (long long)v);
}

#endif
