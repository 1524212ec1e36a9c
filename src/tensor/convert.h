/* tensor/convert.h - runs of elements from one dtype to another.
 *
 * Floating point narrows by rounding to nearest, ties to even, once (float64 to
 * float16 is not rounded twice). Floating point to integer drops the fraction
 * and stops at the ends of the range; NaN becomes 0. Integer to narrower
 * integer keeps the low bits. Anything to bool is whether it differs from 0
 * (NaN does). A bool is 0 or 1. */
#ifndef TENSOR_CONVERT_H
#define TENSOR_CONVERT_H

#include <stdint.h>

#include <manta/array.h>

/* dst[i] = src[i] for n elements that lie close together. The two do not
 * overlap, unless the dtypes are the same size and the address is too. */
void convert_run(manta_dtype from, const void *src, manta_dtype to, void *dst, int64_t n);

/* Whole halves by the processor's own instructions; for convert.c, and only where it has AVX2 and F16C. */
void convert_f16_to_f32_avx2(const uint16_t *src, float *dst, int64_t n);
void convert_f32_to_f16_avx2(const float *src, uint16_t *dst, int64_t n);

#endif
