/* array.c - the array view.
 *
 * Shapes may come from files. Counts therefore saturate instead of wrapping:
 * an impossible shape asks for an impossible amount of memory, which mem_try()
 * refuses, and never for a small one. */
#include <manta/array.h>
#include <stdio.h>

#include "base/args.h"

manta_array manta_array_of(manta_dtype t, int ndim, const int64_t *shape, void *data)
{
    if (ndim > 0) REFUSE_NULL_OR(shape, (manta_array){0});

    if (ndim < 0 || ndim > MANTA_MAX_DIMS || (int)t < 0 || t >= MANTA_DTYPE_COUNT) {
        (void)!manta_fail(MANTA_EINVAL, "%s: the dtype %d and %d dimensions, expected 0 to %d and 0 to %d",
                          __func__, (int)t, ndim, MANTA_DTYPE_COUNT - 1,
                          MANTA_MAX_DIMS); /* said by the empty view */
        return (manta_array){0};
    }
    manta_array a = {.data = data, .dtype = t, .ndim = ndim};
    int64_t stride = 1;
    for (int i = ndim - 1; i >= 0; i--) {
        a.shape[i] = shape[i];
        a.strides[i] = stride;
        if (__builtin_mul_overflow(stride, shape[i], &stride)) stride = INT64_MAX;
    }
    return a;
}

int64_t manta_array_count(const manta_array *a)
{
    REFUSE_NULL_OR(a, 0);

    int64_t n = 1;
    bool too_many = false;

    for (int i = 0; i < a->ndim; i++) {
        if (a->shape[i] <= 0) return 0; /* one empty axis makes the whole array empty */
        too_many |= __builtin_mul_overflow(n, a->shape[i], &n);
    }
    return too_many ? INT64_MAX : n;
}

size_t manta_array_bytes(const manta_array *a)
{
    REFUSE_NULL_OR(a, 0);

    int64_t n = manta_array_count(a);
    size_t bytes;

    if (n == INT64_MAX || __builtin_mul_overflow((size_t)n, manta_dtype_size(a->dtype), &bytes))
        return SIZE_MAX;
    return bytes;
}

bool manta_array_is_contiguous(const manta_array *a)
{
    REFUSE_NULL_OR(a, false);

    int64_t expected = 1;

    if (manta_array_count(a) == 0) return true;
    for (int i = a->ndim - 1; i >= 0; i--) {
        /* The stride of an axis of length 1 is never used. */
        if (a->shape[i] != 1 && a->strides[i] != expected) return false;
        expected *= a->shape[i];
    }
    return true;
}

char *manta_shape_text(int ndim, const int64_t *shape, char *buf, size_t size)
{
    if (ndim > 0) REFUSE_NULL_OR(shape, NULL);
    if (size > 0) REFUSE_NULL_OR(buf, NULL);

    size_t n = 0; /* what the whole text so far takes: may pass size, then no more is written */

    if (size == 0) return buf;
    n += (size_t)snprintf(buf, size, "(");
    for (int i = 0; i < ndim && n < size; i++)
        n += (size_t)snprintf(buf + n, size - n, i ? ", %lld" : "%lld", (long long)shape[i]);
    if (n < size) snprintf(buf + n, size - n, ndim == 1 ? ",)" : ")");
    return buf;
}
