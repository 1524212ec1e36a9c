/* elements.c - the elements of an array in row-major order. */
#include "format/codec/elements.h"

#include <string.h>

#include "format/codec/sizes.h"

typedef struct chunk {
    char bytes[ELEMENTS_CHUNK];
    size_t n;
    elements_fn *to;
    void *ctx;
} chunk;

/* Adds n elements of `size` bytes that lie `stride` elements apart; n fits. */
static void gather_elements(chunk *c, const char *from, int64_t n, int64_t stride, size_t size)
{
    char *p = c->bytes + c->n;
    int64_t step = stride * (int64_t)size;

    if (step == (int64_t)size) {
        memcpy(p, from, (size_t)n * size);
    } else if (size == 4) { /* a constant size lets the compiler make it one load and one store */
        for (int64_t i = 0; i < n; i++) memcpy(p + 4 * i, from + step * i, 4);
    } else {
        for (int64_t i = 0; i < n; i++) memcpy(p + size * (size_t)i, from + step * i, size);
    }
    c->n += (size_t)n * size;
}

static manta_status add_row(chunk *c, const char *from, int64_t n, int64_t stride, size_t size)
{
    while (n > 0) {
        int64_t room = (int64_t)((ELEMENTS_CHUNK - c->n) / size), k = n < room ? n : room;
        if (k == 0) {
            TRY(c->to(c->ctx, c->bytes, c->n));
            c->n = 0;
            continue;
        }
        gather_elements(c, from, k, stride, size);
        from += k * stride * (int64_t)size;
        n -= k;
    }
    return MANTA_OK;
}

manta_status elements_each(const manta_array *a, elements_fn *to, void *ctx)
{
    chunk c;
    int64_t index[MANTA_MAX_DIMS] = {0}, n = manta_array_count(a), at = 0;
    size_t size = manta_dtype_size(a->dtype);
    int last = a->ndim - 1;

    if (n == 0) return MANTA_OK;
    if (manta_array_is_contiguous(a)) return to(ctx, a->data, (size_t)n * size);
    c.n = 0;
    c.to = to;
    c.ctx = ctx;
    for (int64_t done = 0; done < n; done += a->shape[last]) {
        TRY(add_row(&c, (const char *)a->data + at * (int64_t)size, a->shape[last], a->strides[last], size));
        for (int i = last - 1; i >= 0; i--) {
            at += a->strides[i];
            if (++index[i] < a->shape[i]) break;
            at -= a->strides[i] * a->shape[i];
            index[i] = 0;
        }
    }
    return to(ctx, c.bytes, c.n);
}

static manta_status to_file(void *ctx, const void *data, size_t n)
{
    return file_writer_write(ctx, data, n);
}

manta_status elements_to_file(const manta_array *a, file_writer *w)
{
    return elements_each(a, to_file, w);
}
