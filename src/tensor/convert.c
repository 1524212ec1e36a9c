/* convert.c - conversion by way of the widest type of each kind.
 *
 * A block of elements is widened, floating point to double and integers to
 * int64, both without loss, and then narrowed: sixteen loops instead of
 * sixty-four. The pairs that training data and half-precision storage pass
 * through by the megabyte have loops of their own. */
#include "tensor/convert.h"

#include <math.h>
#include <string.h>

#include "base/half.h"
#include "tensor/kernel.h"
#include "tensor/sizes.h"

typedef struct wide {
    bool integer;
    double d[CONVERT_BLOCK];
    int64_t i[CONVERT_BLOCK];
} wide;

#define EACH(expr)                                                                                           \
    for (int64_t k = 0; k < n; k++) expr

static void widen_run(manta_dtype t, const void *src, int64_t n, wide *w)
{
    const float *f32 = src;
    const double *f64 = src;
    const uint16_t *h = src;
    const int32_t *i32 = src;
    const int64_t *i64 = src;
    const uint8_t *u8 = src;

    w->integer = t == MANTA_DTYPE_I32 || t == MANTA_DTYPE_I64 || t == MANTA_DTYPE_U8 || t == MANTA_DTYPE_BOOL;
    switch (t) {
    case MANTA_DTYPE_F32: EACH(w->d[k] = (double)f32[k]); break;
    case MANTA_DTYPE_F64: EACH(w->d[k] = f64[k]); break;
    case MANTA_DTYPE_F16: EACH(w->d[k] = (double)f16_to_f32(h[k])); break;
    case MANTA_DTYPE_BF16: EACH(w->d[k] = (double)bf16_to_f32(h[k])); break;
    case MANTA_DTYPE_I32: EACH(w->i[k] = i32[k]); break;
    case MANTA_DTYPE_I64: EACH(w->i[k] = i64[k]); break;
    case MANTA_DTYPE_U8: EACH(w->i[k] = u8[k]); break;
    case MANTA_DTYPE_BOOL: EACH(w->i[k] = u8[k] != 0); break;
    case MANTA_DTYPE_COUNT: EACH(w->d[k] = 0); break; /* is none */
    }
}

/* d as a float whose last bit says that something was lost, so that rounding it
 * once more to fewer bits gives what rounding d would have given. */
static float round_to_odd(double d)
{
    float f = (float)d;

    if ((double)f == d || isnan(d)) return f;
    uint32_t u = half_bits(f);
    if (fabs((double)f) > fabs(d)) u--; /* towards 0 first */
    return half_float(u | 1u);
}

static int64_t to_integer(double d, double lo, double hi, int64_t first, int64_t last)
{
    if (isnan(d)) return 0;
    if (d <= lo) return first;
    return d >= hi ? last : (int64_t)d;
}

static void narrow_float(manta_dtype t, void *dst, int64_t n, const wide *w)
{
    float *f32 = dst;
    double *f64 = dst;
    uint16_t *h = dst;
    int32_t *i32 = dst;
    int64_t *i64 = dst;
    uint8_t *u8 = dst;

    switch (t) {
    case MANTA_DTYPE_F32: EACH(f32[k] = (float)w->d[k]); break;
    case MANTA_DTYPE_F64: EACH(f64[k] = w->d[k]); break;
    case MANTA_DTYPE_F16: EACH(h[k] = f16_from_f32(round_to_odd(w->d[k]))); break;
    case MANTA_DTYPE_BF16: EACH(h[k] = bf16_from_f32(round_to_odd(w->d[k]))); break;
    case MANTA_DTYPE_I32:
        EACH(i32[k] = (int32_t)to_integer(w->d[k], -0x1p31, 0x1p31 - 1, INT32_MIN, INT32_MAX));
        break;
    case MANTA_DTYPE_I64: EACH(i64[k] = to_integer(w->d[k], -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)); break;
    case MANTA_DTYPE_U8: EACH(u8[k] = (uint8_t)to_integer(w->d[k], 0, 255, 0, 255)); break;
    case MANTA_DTYPE_BOOL: EACH(u8[k] = w->d[k] != 0.0); break;
    case MANTA_DTYPE_COUNT: break;
    }
}

static void narrow_integer(manta_dtype t, void *dst, int64_t n, const wide *w)
{
    float *f32 = dst;
    double *f64 = dst;
    uint16_t *h = dst;
    int32_t *i32 = dst;
    int64_t *i64 = dst;
    uint8_t *u8 = dst;

    switch (t) {
    case MANTA_DTYPE_F32: EACH(f32[k] = (float)w->i[k]); break;
    case MANTA_DTYPE_F64: EACH(f64[k] = (double)w->i[k]); break;
    case MANTA_DTYPE_F16: EACH(h[k] = f16_from_f32(round_to_odd((double)w->i[k]))); break;
    case MANTA_DTYPE_BF16: EACH(h[k] = bf16_from_f32(round_to_odd((double)w->i[k]))); break;
    case MANTA_DTYPE_I32: EACH(i32[k] = (int32_t)(uint32_t)w->i[k]); break;
    case MANTA_DTYPE_I64: EACH(i64[k] = w->i[k]); break;
    case MANTA_DTYPE_U8: EACH(u8[k] = (uint8_t)w->i[k]); break;
    case MANTA_DTYPE_BOOL: EACH(u8[k] = w->i[k] != 0); break;
    case MANTA_DTYPE_COUNT: break;
    }
}

/* Returns whether the pair has a loop of its own. */
static bool convert_fast(manta_dtype from, const void *src, manta_dtype to, void *dst, int64_t n)
{
    const uint16_t *h = src;
    const uint8_t *u8 = src;
    float *f32 = dst;

    if (from == MANTA_DTYPE_U8 && to == MANTA_DTYPE_F32) {
        EACH(f32[k] = (float)u8[k]);
    } else if (from == MANTA_DTYPE_BF16 && to == MANTA_DTYPE_F32) {
        EACH(f32[k] = bf16_to_f32(h[k]));
    } else if (from == MANTA_DTYPE_F32 && to == MANTA_DTYPE_BF16) {
        const float *x = src;
        uint16_t *y = dst;
        EACH(y[k] = bf16_from_f32(x[k]));
    } else if (from == MANTA_DTYPE_F16 && to == MANTA_DTYPE_F32 && kernels_of(KERN_AVX2)) {
        convert_f16_to_f32_avx2(src, dst, n);
    } else if (from == MANTA_DTYPE_F32 && to == MANTA_DTYPE_F16 && kernels_of(KERN_AVX2)) {
        convert_f32_to_f16_avx2(src, dst, n);
    } else {
        return false;
    }
    return true;
}

void convert_run(manta_dtype from, const void *src, manta_dtype to, void *dst, int64_t n)
{
    size_t from_size = manta_dtype_size(from), to_size = manta_dtype_size(to);

    if (from == to && from != MANTA_DTYPE_BOOL) {
        if (src != dst) memmove(dst, src, (size_t)n * to_size);
        return;
    }
    if (convert_fast(from, src, to, dst, n)) return;
    for (int64_t at = 0; at < n; at += CONVERT_BLOCK) {
        wide w;
        int64_t m = n - at < CONVERT_BLOCK ? n - at : CONVERT_BLOCK;
        void *out = (char *)dst + (size_t)at * to_size;
        widen_run(from, (const char *)src + (size_t)at * from_size, m, &w);
        if (w.integer)
            narrow_integer(to, out, m, &w);
        else
            narrow_float(to, out, m, &w);
    }
}
