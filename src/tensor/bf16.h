/* tensor/bf16.h - bfloat16 in training: how numbers are rounded, and the
 * products of pairs.
 *
 * A bfloat16 number is a float whose lower sixteen bits are zero. Rounding to
 * one (bf16_round) is to nearest, ties to even; a denormal becomes a zero of
 * its sign, a NaN stays a NaN. Activations and their gradients lie in memory as
 * floats with such values; products are made of them two at a time.
 *
 * A *pair* is two bfloat16 numbers in one word of 32 bits, the even one, which
 * comes first in the sum, in the lower half. One step of a sum takes a pair of
 * each side (bf16_step):
 *
 *     acc = fma(a.odd,  b.odd,  acc)        rounded to nearest, and
 *     acc = fma(a.even, b.even, acc)        flushed to zero when it is denormal
 *
 * where a denormal acc or operand counts as zero. That is what the instruction
 * vdpbf16ps of AVX-512-BF16 does, whatever the rounding mode is set to. Products of two
 * bfloat16 numbers are exact in a float, so each fma rounds once.
 *
 * What is paired (a sum that ends with half a pair has a zero in the other half):
 *
 *     matrix product              neighbours of the summed index
 *     convolution, forward        neighbouring input channels of a group, in each tap
 *     convolution, backward data  neighbouring output channels of a group, in each tap
 *     convolution, weights        neighbouring samples, at each place
 *
 * Apart from that the order of a sum is that of tensor/gemm.h and tensor/conv.h, step by
 * step; what comes after the sum (bias, relu, mask) is in float and not flushed. */
#ifndef TENSOR_BF16_H
#define TENSOR_BF16_H

#include <float.h>
#include <math.h>

#include "base/half.h"
#include "tensor/kernel.h"

static inline uint32_t bf16_round_bits(uint32_t u)
{
    uint32_t size = u & 0x7FFFFFFFu, nearest = u + 0x7FFFu + (u >> 16 & 1u);

    nearest = size > 0x7F800000u ? u | 0x400000u : nearest; /* NaN, made quiet */
    nearest = size < 0x00800000u ? u & 0x80000000u : nearest;
    return nearest & 0xFFFF0000u;
}

static inline float bf16_round(float x)
{
    return half_float(bf16_round_bits(half_bits(x)));
}

static inline uint32_t bf16_pair(float even, float odd)
{
    return bf16_round_bits(half_bits(even)) >> 16 | bf16_round_bits(half_bits(odd));
}

/* A zero of its sign in place of a denormal. */
static inline float bf16_flush(float x)
{
    return fabsf(x) < FLT_MIN ? x * 0.0f : x;
}

/* fma(a, b, acc) with denormals as zeros, of operands and of the result. A result is
 * denormal when it is so after rounding to 24 bits with an exponent of any size:
 * the last denormals that would round up to FLT_MIN are looked at on a larger scale. */
static inline float bf16_fma(float a, float b, float acc)
{
    a = bf16_flush(a);
    b = bf16_flush(b);
    acc = bf16_flush(acc);
    float r = fmaf(a, b, acc);
    if (!(fabsf(r) <= FLT_MIN) || a == 0.0f || b == 0.0f || fabsf(acc) >= 0x1p-60f) return r;
    float large = fmaf(a * 0x1p32f, b * 0x1p32f, acc * 0x1p64f);
    return fabsf(large) < 0x1p-62f ? copysignf(0.0f, large) : r;
}

static inline float bf16_step(uint32_t a, uint32_t b, float acc)
{
    acc = bf16_fma(half_float(a & 0xFFFF0000u), half_float(b & 0xFFFF0000u), acc);
    return bf16_fma(half_float(a << 16), half_float(b << 16), acc);
}

/* The entries of kernel tables of precision KERN_BF16 (kernel.h), by family. avx2 is for processors that have
 * AVX2 and FMA, avx512bf16 for those that have AVX-512 F, BW, DQ, VL and BF16. */
#define BF16_DECLARE(x)                                                                                      \
    void gemm_bf16_##x(pool *p, const gemm_call *g);                                                         \
    void gemm_pair_bf16_##x(pool *p, const gemm_call *first, const gemm_call *second);                       \
    void conv_forward_bf16_##x(pool *p, const conv_call *c);                                                 \
    void conv_backward_data_bf16_##x(pool *p, const conv_call *c);                                           \
    void conv_backward_weights_bf16_##x(pool *p, const conv_call *c);                                        \
    size_t conv_work_bf16_##x(const conv_shape *s, int threads)

BF16_DECLARE(reference);
BF16_DECLARE(avx2);
BF16_DECLARE(avx512bf16);

/* The shape of a weight gradient as a sum over pairs of samples: half as many. Its chunks, order and padding
 * (tensor/conv.h) are what the sum has. */
conv_shape bf16_weights_shape(const conv_shape *s);

#endif
