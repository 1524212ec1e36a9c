/* convert.c - runs of numbers from one dtype to another. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "data/convert.h"

double convert_get(const void *from, manta_dtype t, int64_t i)
{
    switch (t) {
    case MANTA_DTYPE_F32: return ((const float *)from)[i];
    case MANTA_DTYPE_F64: return ((const double *)from)[i];
    case MANTA_DTYPE_F16: return f16_to_f32(((const uint16_t *)from)[i]);
    case MANTA_DTYPE_BF16: return bf16_to_f32(((const uint16_t *)from)[i]);
    case MANTA_DTYPE_I32: return ((const int32_t *)from)[i];
    case MANTA_DTYPE_I64: return (double)((const int64_t *)from)[i];
    case MANTA_DTYPE_U8: return ((const uint8_t *)from)[i];
    case MANTA_DTYPE_BOOL: return ((const uint8_t *)from)[i] != 0;
    default: return 0;
    }
}

/* A true division, so that the bits are NumPy's. Wider vectors would gain
 * nothing: the gather waits for the images' cache lines, not for this. */
static void u8_to_f32(const uint8_t *restrict from, int64_t n, float divisor, float *restrict to)
{
    for (int64_t i = 0; i < n; i++) to[i] = (float)from[i] / divisor;
}

void convert_to_f32(const void *from, manta_dtype t, int64_t n, float divisor, float *to)
{
    if (t == MANTA_DTYPE_U8) {
        u8_to_f32(from, n, divisor, to);
    } else if (t == MANTA_DTYPE_F32) {
        const float *f = from;
        for (int64_t i = 0; i < n; i++) to[i] = f[i] / divisor;
    } else {
        for (int64_t i = 0; i < n; i++) to[i] = (float)convert_get(from, t, i) / divisor;
    }
}

void convert_normalize(float *x, int64_t n, int channels, const float *mean, const float *std)
{
    if (channels == 1) {
        const float m = mean[0], s = std[0];
        for (int64_t i = 0; i < n; i++) x[i] = (x[i] - m) / s;
        return;
    }
    for (int64_t i = 0; i < n; i += channels) {
        for (int c = 0; c < channels; c++) x[i + c] = (x[i + c] - mean[c]) / std[c];
    }
}

/* One number, already read, into place i of `to`. False when it cannot be held. */
static bool put_integer(int64_t v, void *to, manta_dtype u, int64_t i)
{
    switch (u) {
    case MANTA_DTYPE_I32:
        if (v < INT32_MIN || v > INT32_MAX) return false;
        ((int32_t *)to)[i] = (int32_t)v;
        return true;
    case MANTA_DTYPE_I64: ((int64_t *)to)[i] = v; return true;
    case MANTA_DTYPE_U8:
        if (v < 0 || v > 255) return false;
        ((uint8_t *)to)[i] = (uint8_t)v;
        return true;
    default: return false;
    }
}

static bool is_integer(manta_dtype t)
{
    return t == MANTA_DTYPE_I32 || t == MANTA_DTYPE_I64 || t == MANTA_DTYPE_U8;
}

static int64_t get_integer(const void *from, manta_dtype t, int64_t i)
{
    switch (t) {
    case MANTA_DTYPE_I32: return ((const int32_t *)from)[i];
    case MANTA_DTYPE_I64: return ((const int64_t *)from)[i];
    default: return ((const uint8_t *)from)[i];
    }
}

static bool put_real(double v, void *to, manta_dtype u, int64_t i)
{
    switch (u) {
    case MANTA_DTYPE_F32: ((float *)to)[i] = (float)v; return true;
    case MANTA_DTYPE_F64: ((double *)to)[i] = v; return true;
    case MANTA_DTYPE_F16: ((uint16_t *)to)[i] = f16_from_f32((float)v); return true;
    case MANTA_DTYPE_BF16: ((uint16_t *)to)[i] = bf16_from_f32((float)v); return true;
    case MANTA_DTYPE_BOOL: ((uint8_t *)to)[i] = v != 0; return !isnan(v);
    default:
        if (!(v >= -0x1p63 && v < 0x1p63) || v != trunc(v)) return false;
        return put_integer((int64_t)v, to, u, i);
    }
}

int64_t convert_any(const void *from, manta_dtype t, int64_t n, void *to, manta_dtype u)
{
    if (t == u) {
        memcpy(to, from, (size_t)n * manta_dtype_size(t));
        return -1;
    }
    if (u == MANTA_DTYPE_F32) {
        convert_to_f32(from, t, n, 1, to);
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        bool ok = is_integer(t) && is_integer(u) ? put_integer(get_integer(from, t, i), to, u, i)
                                                 : put_real(convert_get(from, t, i), to, u, i);
        if (!ok) return i;
    }
    return -1;
}
