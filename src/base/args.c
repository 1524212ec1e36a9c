/* args.c - see args.h. */
#include "base/args.h"

manta_status args_fail_null(const char *function, const char *argument)
{
    return manta_fail(MANTA_EINVAL, "%s: %s is NULL", function, argument);
}

manta_status args_fail_negative(const char *function, const char *argument, long long value)
{
    return manta_fail(MANTA_EINVAL, "%s: %s is %lld, expected at least 0", function, argument, value);
}

manta_status args_check_array(const char *function, const char *argument, const manta_array *a)
{
    char text[160];

    if (!a) return args_fail_null(function, argument);
    if ((int)a->dtype < 0 || a->dtype >= MANTA_DTYPE_COUNT)
        return manta_fail(MANTA_EINVAL, "%s: %s has the dtype %d, expected 0 to %d", function, argument,
                          (int)a->dtype, MANTA_DTYPE_COUNT - 1);
    if (a->ndim < 0 || a->ndim > MANTA_MAX_DIMS)
        return manta_fail(MANTA_EINVAL, "%s: %s has %d dimensions, expected 0 to %d", function, argument,
                          a->ndim, MANTA_MAX_DIMS);
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] < 0)
            return manta_fail(MANTA_EINVAL, "%s: %s has the size %lld in dimension %d, expected at least 0",
                              function, argument, (long long)a->shape[i], i);
    if (manta_array_bytes(a) == SIZE_MAX)
        return manta_fail(MANTA_EINVAL, "%s: %s has the shape %s, more elements than can be addressed",
                          function, argument, manta_shape_text(a->ndim, a->shape, text, sizeof text));
    if (!a->data && manta_array_count(a) > 0)
        return manta_fail(MANTA_EINVAL, "%s: %s has no memory for its %lld elements", function, argument,
                          (long long)manta_array_count(a));
    return MANTA_OK;
}
