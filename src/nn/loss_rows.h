/* nn/loss_rows.h - the arithmetic inside one row of predictions.
 *
 * Written once (loss_rows.inc) on the functions of tensor/vmath.h and compiled
 * for plain x86-64 and for AVX2; loss_rows() gives what the processor runs.
 * Both give the same bits:
 *   1. A row is worked through in blocks of LOSS_LANES elements, the last one
 *      padded with what adds nothing.
 *   2. A sum over a row is LOSS_LANES running sums, added up in one fixed order
 *      at the end. So the bits depend on the row's length alone. */
#ifndef NN_LOSS_ROWS_H
#define NN_LOSS_ROWS_H

#include <stdint.h>

enum { LOSS_LANES = 16, LOSS_BLOCK = 128 /* elements that the block functions take at most */ };

/* Softmax of a row, in the pieces that losses need. */
typedef struct loss_softmax {
    float max; /* largest x */
    float sum; /* the sum of e^(x - max) */
    float log_sum; /* ln(sum), so that ln(sum of e^x) = max + log_sum */
} loss_softmax;

typedef struct loss_rows {
    /* Softmax of x (n); e^(x - max) goes to e (n) unless it is NULL. A NaN
     * anywhere, or no finite maximum, makes `sum` NaN. */
    loss_softmax (*softmax)(int64_t n, const float *x, float *e);
    /* y = ln x, n <= LOSS_BLOCK. */
    void (*log)(int n, const float *x, float *y);
    /* Binary cross-entropy of n <= LOSS_BLOCK elements and its derivative, by
     * the logit or by the (clipped) probability. */
    void (*binary_logits)(int n, const float *x, const float *t, float *value, float *slope);
    void (*binary_probs)(int n, const float *p, const float *t, float *value, float *slope);
} loss_rows;

/* The table for this processor. */
const loss_rows *loss_rows_of(void);

extern const loss_rows loss_rows_plain, loss_rows_avx2;

/* Keras's epsilon, and the probabilities it lets through; 1 - 1e-7 is rounded to float as there. */
#define LOSS_CLIP_LOW  1e-7f
#define LOSS_CLIP_HIGH ((float)(1.0 - 1e-7))

/* NaN passes. */
static inline float loss_clip(float p)
{
    p = p < LOSS_CLIP_LOW ? LOSS_CLIP_LOW : p;
    return p > LOSS_CLIP_HIGH ? LOSS_CLIP_HIGH : p;
}

/* 0 where the clip holds p back, as TensorFlow differentiates it, else 1. */
static inline float loss_clip_slope(float p)
{
    return p < LOSS_CLIP_LOW || p > LOSS_CLIP_HIGH ? 0.0f : 1.0f;
}

/* The running sums added up, always in this order. */
static inline float loss_lanes_sum(float a[LOSS_LANES])
{
    for (int half = LOSS_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) a[l] += a[l + half];
    return a[0];
}

/* Adds v (n <= LOSS_BLOCK) to the running sums. */
static inline void loss_lanes_add(float a[LOSS_LANES], int n, const float *v)
{
    int i = 0;

    for (; i + LOSS_LANES <= n; i += LOSS_LANES)
        for (int l = 0; l < LOSS_LANES; l++) a[l] += v[i + l];
    for (int l = 0; i + l < n; l++) a[l] += v[i + l];
}

#endif
