/* init.c - see init.h. A place of the generator gives four words, so element i
 * is word i % 4 of place i / 4; normal numbers come in fours as well. */
#include "tensor/init.h"

#include <math.h>

#include "tensor/vmath.h"

/* Calls of four elements, of which [first, first + n) are kept. */
#define FOURS(statement)                                                                                     \
    for (int64_t i = 0; i < n;) {                                                                            \
        int64_t at = first + i;                                                                              \
        rng_words w = rng_at(k, (uint64_t)at / 4);                                                           \
        statement;                                                                                           \
        for (int64_t lane = at % 4; lane < 4 && i < n; lane++, i++) out[i] = value[lane];                    \
    }

void init_uniform(rng_key k, int64_t first, int64_t n, float lo, float hi, float *out)
{
    float value[4], width = hi - lo, last = nextafterf(hi, lo);

    FOURS({
        for (int l = 0; l < 4; l++) {
            float v = vm_fma(rng_uniform(w.w[l]), width, lo);
            value[l] = v < hi ? v : last; /* rounding may reach hi */
        }
    })
}

void init_normal(rng_key k, int64_t first, int64_t n, float mean, float stddev, float *out)
{
    float value[4];

    FOURS({
        rng_normal(w, value);
        for (int l = 0; l < 4; l++) value[l] = vm_fma(value[l], stddev, mean);
    })
}

/* The first of an element's own draws that lies within two standard deviations. */
static float draw_truncated(rng_key k, int64_t at)
{
    rng_key own = rng_sub(k, (uint64_t)at);

    for (uint64_t draw = 0;; draw++) {
        float four[4];
        rng_normal(rng_at(own, draw), four);
        for (int l = 0; l < 4; l++)
            if (fabsf(four[l]) <= 2.0f) return four[l];
    }
}

void init_truncated_normal(rng_key k, int64_t first, int64_t n, float mean, float stddev, float *out)
{
    float value[4];

    FOURS({
        rng_normal(w, value);
        for (int l = 0; l < 4; l++) {
            if (fabsf(value[l]) > 2.0f) value[l] = draw_truncated(k, at - at % 4 + l);
            value[l] = vm_fma(value[l], stddev, mean);
        }
    })
}

void init_constant(int64_t n, float value, float *out)
{
    for (int64_t i = 0; i < n; i++) out[i] = value;
}
