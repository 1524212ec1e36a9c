/* input.c - the bytes of a file, and arrays made of them. */
#include <string.h>

#include "base/mem.h"
#include "format/codec/input.h"
#include "os/file.h"

manta_status input_read(const char *path, input *out)
{
    void *data = NULL;
    size_t size = 0;

    TRY(file_read(path, SIZE_MAX / 2, &data, &size));
    *out = (input){.path = mem_strdup(path), .data = data, .size = size};
    return MANTA_OK;
}

void input_release(input *in)
{
    mem_free(in->path);
    mem_try_free(in->data);
    *in = (input){0};
}

void blob_release(blob *b)
{
    mem_try_free(b->memory);
    *b = (blob){0};
}

bool input_bytes(int ndim, const int64_t *shape, size_t size, size_t *out)
{
    int64_t n = (int64_t)size;
    bool empty = false;

    /* Dimensions of an empty array are believed as little as any others. */
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 0) return false;
        if (shape[i] == 0) {
            empty = true;
        } else if (__builtin_mul_overflow(n, shape[i], &n)) {
            return false;
        }
    }
    *out = empty ? 0 : (size_t)n;
    return true;
}

int64_t input_find_nan(const void *data, manta_dtype t, int64_t n)
{
    const uint16_t *h = data;

    if (t == MANTA_DTYPE_F32) {
        const float *f = data;
        int64_t i = 0;
        for (; n - i >= 64; i += 64) { /* no way out within, so that vectors do it */
            int nan = 0;
            for (int k = 0; k < 64; k++) nan |= f[i + k] != f[i + k];
            if (nan) break;
        }
        for (; i < n; i++) {
            if (f[i] != f[i]) return i;
        }
    } else if (t == MANTA_DTYPE_F64) {
        const double *f = data;
        for (int64_t i = 0; i < n; i++) {
            if (f[i] != f[i]) return i;
        }
    } else if (t == MANTA_DTYPE_F16) {
        for (int64_t i = 0; i < n; i++) {
            if ((h[i] & 0x7fff) > 0x7c00) return i;
        }
    } else if (t == MANTA_DTYPE_BF16) {
        for (int64_t i = 0; i < n; i++) {
            if ((h[i] & 0x7fff) > 0x7f80) return i;
        }
    }
    return -1;
}

void input_swap(void *data, int64_t n, size_t size)
{
    uint8_t *p = data;

    if (size < 2) return;
    for (int64_t i = 0; i < n; i++, p += size) {
        for (size_t k = 0; k < size / 2; k++) {
            uint8_t t = p[k];
            p[k] = p[size - 1 - k];
            p[size - 1 - k] = t;
        }
    }
}
