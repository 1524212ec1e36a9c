/* half.h - 16-bit floating point, as bits, one number at a time.
 *
 * float16 is IEEE binary16 (5 exponent bits, 10 of fraction); bfloat16 is the
 * upper half of a float32. Narrowing rounds to nearest, ties to even, keeps
 * infinities and signed zeros, and keeps a NaN a NaN: a quiet one with its
 * sign and the upper bits of its payload, as the processor's own conversions
 * do. Widening is exact. Vector code that uses those instructions therefore
 * gives the same bits as these functions. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline uint32_t half_bits(float x)
{
    uint32_t u;

    memcpy(&u, &x, sizeof u);
    return u;
}

static inline float half_float(uint32_t u)
{
    float x;

    memcpy(&x, &u, sizeof x);
    return x;
}

static inline uint16_t bf16_from_f32(float x)
{
    uint32_t u = half_bits(x);

    if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(u >> 16 | 0x40); /* NaN, made quiet */
    return (uint16_t)((u + 0x7FFFu + (u >> 16 & 1)) >> 16);
}

static inline float bf16_to_f32(uint16_t h)
{
    return half_float((uint32_t)h << 16);
}

static inline uint16_t f16_from_f32(float x)
{
    uint32_t u = half_bits(x), sign = u >> 16 & 0x8000u;

    u &= 0x7FFFFFFFu;
    if (u > 0x7F800000u) return (uint16_t)(sign | 0x7E00u | (u >> 13 & 0x3FFu)); /* NaN, made quiet */
    if (u >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* rounds to 65536: infinity */
    if (u < 0x38800000u) {
        /* Below 2^-14. Adding 0.5 puts the last bit of a subnormal (2^-24) where
         * the last bit of a float near 0.5 lies, so the addition rounds for us. */
        return (uint16_t)(sign | (half_bits(half_float(u) + 0.5f) - half_bits(0.5f)));
    }
    u += 0xFFFu + (u >> 13 & 1); /* to nearest even; may carry into the exponent */
    return (uint16_t)(sign | ((u - 0x38000000u) >> 13)); /* bias 127 to 15 */
}

static inline float f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, u = h & 0x7FFFu;

    if (u >= 0x7C00u)
        return half_float(sign | 0x7F800000u | (u > 0x7C00u ? 0x400000u : 0) | (u & 0x3FFu) << 13);
    if (u >= 0x400u) return half_float(sign | ((u << 13) + 0x38000000u));
    float x = (float)u * 0x1p-24f; /* subnormal or zero */
    return sign ? -x : x;
}

#endif
