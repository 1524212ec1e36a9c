/* tensor/vmath.h - exp, log, tanh and their kin, for loops that a compiler
 * turns into vector code.
 *
 * Each function is a fixed sequence of IEEE operations and explicit fma without
 * a branch or a call, so that it gives the same bits in a scalar loop, in any
 * vector width and on any machine. The C library's own give different bits from
 * one processor to the next. Largest errors seen by
 * tests/unit/tensor/vmath_test.c over floats of every magnitude, in units of the last place:
 *
 *   vm_exp 1.0   vm_expm1_neg 1.0   vm_log 1.0   vm_log1p 1.5   vm_tanh 1.5
 *   vm_sigmoid 2.5   vm_cdf 2.5 for x > -1, 5.0 below; its density 3.0
 *
 * Special values are those of C's functions: NaN gives NaN, exp(-inf) is 0,
 * log(0) is -inf, log of a negative number NaN. Denormal results are rounded
 * correctly to the error above, not flushed.
 *
 * Polynomials are near-minimax fits (Chebyshev) of the functions named beside
 * them, with an error well below half a unit in the last place. */
#ifndef TENSOR_VMATH_H
#define TENSOR_VMATH_H

#include <stdint.h>
#include <string.h>

/* Code that is compiled for GPUs too (tensor/body.h) says VM_FN of a small function. */
#ifdef __CUDACC__
#define VM_FN static __device__ __forceinline__
#else
#define VM_FN static inline
#endif

VM_FN float vm_fma(float a, float b, float c)
{
#ifdef __CUDACC__
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

VM_FN uint32_t vm_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

VM_FN float vm_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

VM_FN float vm_abs(float x)
{
    return vm_float(vm_bits(x) & 0x7fffffffu);
}

/* |x| with the sign of s. */
VM_FN float vm_copysign(float x, float s)
{
    return vm_float((vm_bits(x) & 0x7fffffffu) | (vm_bits(s) & 0x80000000u));
}

/* x = n ln2 + r with |r| <= ln2/2: returns e^r - 1 and n + 1.5 * 2^23 as a
 * float, whose low bits hold n in two's complement. */
VM_FN float vm_exp_reduce(float x, float *shifted)
{
    const float magic = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    float t = vm_fma(x, 1.44269504f, magic);
    float n = t - magic;
    float r = vm_fma(n, -0.693359375f, x); /* exact: few bits in the constant */

    r = vm_fma(n, 2.12194440e-4f, r);
    float q = 0.0001989108046f; /* (e^r - 1 - r) / r^2 */
    q = vm_fma(q, r, 0.001393373072f);
    q = vm_fma(q, r, 0.008333310845f);
    q = vm_fma(q, r, 0.0416664642f);
    q = vm_fma(q, r, 0.1666666668f);
    q = vm_fma(q, r, 0.5f);
    *shifted = t;
    return vm_fma(q * r, r, r);
}

/* n from what vm_exp_reduce() left; anything for NaN. */
VM_FN int32_t vm_exp_power(float shifted)
{
    return (int32_t)(vm_bits(shifted) - 0x4b400000u);
}

/* 2^n for -126 <= n <= 127. */
VM_FN float vm_pow2(int32_t n)
{
    return vm_float(((uint32_t)n + 127u) << 23);
}

VM_FN float vm_exp(float x)
{
    float t;

    x = x < -104.0f ? -104.0f : x; /* NaN passes both */
    x = x > 89.0f ? 89.0f : x;
    float p = vm_exp_reduce(x, &t) + 1.0f;
    int32_t n = vm_exp_power(t);
    int32_t half = n >> 1; /* two factors, since 2^n itself may be denormal or infinite */
    return p * vm_pow2(half) * vm_pow2(n - half);
}

/* e^x - 1 for x <= 0 (and NaN); what elu needs. */
VM_FN float vm_expm1_neg(float x)
{
    float t;
    float c = x < -80.0f ? -80.0f : x;
    float p = vm_exp_reduce(c, &t);
    float s = vm_pow2(vm_exp_power(t));

    return vm_fma(p, s, s - 1.0f);
}

VM_FN float vm_log(float x)
{
    float scaled = x < 1.17549435e-38f ? x * 8388608.0f : x; /* denormals: times 2^23 */
    int32_t e = x < 1.17549435e-38f ? -23 : 0;
    uint32_t u = vm_bits(scaled);
    /* Mantissa into [sqrt(1/2), sqrt(2)). 0x3f3504f3 is sqrt(1/2). */
    uint32_t shifted = u - 0x3f3504f3u;

    e += (int32_t)shifted >> 23;
    float m = vm_float((shifted & 0x007fffffu) + 0x3f3504f3u);
    float f = m - 1.0f, z = f * f;
    float p = 0.06970549262f; /* (log(1+f) - f + f^2/2) / f^3 */
    p = vm_fma(p, f, -0.1148020561f);
    p = vm_fma(p, f, 0.1168598988f);
    p = vm_fma(p, f, -0.1242566066f);
    p = vm_fma(p, f, 0.142490029f);
    p = vm_fma(p, f, -0.1666780184f);
    p = vm_fma(p, f, 0.2000071719f);
    p = vm_fma(p, f, -0.2499999698f);
    p = vm_fma(p, f, 0.3333333117f);
    float n = (float)e;
    float y = vm_fma(p * f, z, n * -2.12194440e-4f);
    y = vm_fma(z, -0.5f, y) + f;
    y = vm_fma(n, 0.693359375f, y);
    y = x < vm_float(0x7f800000u) ? y : x; /* inf and NaN are their own */
    y = x > 0.0f ? y : (x == 0.0f ? -vm_float(0x7f800000u) : vm_float(0x7fc00000u));
    return y;
}

/* log(1 + x), x > -1. */
VM_FN float vm_log1p(float x)
{
    float u = 1.0f + x;
    float lost = x - (u - 1.0f); /* what the sum rounded away; exact for x >= -1/2 */
    float l = vm_log(u);
    float y = u > 0.0f ? l + lost / u : l;

    y = vm_abs(x) < 5.9e-8f ? x : y;
    return u < vm_float(0x7f800000u) ? y : u; /* inf, and NaN */
}

VM_FN float vm_tanh(float x)
{
    float a = vm_abs(x), z = x * x;
    float p = -0.00606214808f; /* (tanh(x)/x - 1) / x^2 for |x| < 5/8 */

    p = vm_fma(p, z, 0.02097323439f);
    p = vm_fma(p, z, -0.05384582267f);
    p = vm_fma(p, z, 0.1333273602f);
    p = vm_fma(p, z, -0.3333332861f);
    float small = vm_fma(p * z, a, a);
    float e = vm_exp(a + a);
    float large = 1.0f - 2.0f / (e + 1.0f);
    return vm_copysign(a < 0.625f ? small : large, x);
}

/* 1 / (1 + e^-x), without overflow and with relative accuracy on both sides. */
VM_FN float vm_sigmoid(float x)
{
    float e = vm_exp(-vm_abs(x));
    float top = x < 0.0f ? e : 1.0f;

    return top / (1.0f + e);
}

/* The normal distribution function and, in *density, its derivative. gelu(x)
 * is x * vm_cdf(x): (1 + erf(x / sqrt 2)) / 2 would cancel for negative x. */
VM_FN float vm_cdf(float x, float *density)
{
    float a = vm_abs(x);

    a = a > 15.0f ? 15.0f : a; /* the tail is 0 from 14.3 on; NaN passes */
    /* e^(-a^2/2), with the part of a^2 that rounding lost put back. */
    float s = a * a;
    float lost = vm_fma(a, a, -s);
    float e = vm_exp(-0.5f * s);
    e = vm_fma(e, -0.5f * lost, e);
    float r = 1.0f / (a + 3.0f), t = (a - 3.0f) * r;
    float p = 5.53559663e-5f; /* (1 - cdf(a)) e^(a^2/2) (a + 3), a = 3 (1 + t) / (1 - t) */
    p = vm_fma(p, t, 0.0001331259088f);
    p = vm_fma(p, t, -0.0002445826664f);
    p = vm_fma(p, t, -0.001034222059f);
    p = vm_fma(p, t, 0.001024135711f);
    p = vm_fma(p, t, 0.006969813131f);
    p = vm_fma(p, t, -0.01046229376f);
    p = vm_fma(p, t, -0.04726274528f);
    p = vm_fma(p, t, 0.2300176777f);
    p = vm_fma(p, t, -0.5093319895f);
    p = vm_fma(p, t, 0.7290836907f);
    float tail = p * r * e;
    float far = x < 0.0f ? tail : 1.0f - tail;
    float q = -7.660538171e-6f; /* (cdf(x) - 1/2) / x for |x| < 1, in x^2 */
    q = vm_fma(q, s, 0.0001135022962f);
    q = vm_fma(q, s, -0.001186343989f);
    q = vm_fma(q, s, 0.009973328481f);
    q = vm_fma(q, s, -0.06649036057f);
    q = vm_fma(q, s, 0.3989422801f);
    float near = vm_fma(q, x, 0.5f);
    *density = e * 0.398942280f;
    return a < 1.0f ? near : far;
}

#endif
