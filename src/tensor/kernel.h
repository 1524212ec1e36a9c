/* tensor/kernel.h - the table of compute kernels.
 *
 * A kernel family is one table: plain reference loops, our own AVX2 and
 * AVX-512 kernels, oneDNN. Operations call through the table that the run
 * chose, and one table of cases checks every family against the reference.
 *
 * What the bits are. For the reference and for our own families every element
 * of a result is *defined*: an order of operations that depends on the shape
 * alone, so that neither threads nor tile sizes nor the width of a vector
 * changes a bit, and the families can be compared with memcmp.
 *   1. A matrix product or convolution element is one chain
 *      acc = fma(a, b, acc) over the summed index in ascending order.
 *   2. A reduction over rows (bias gradients, batch norm) is cut into chunks
 *      that the shape alone decides, each of spans of 64 rows; a span is summed
 *      in float in row order, spans and chunks are added in double, in order.
 *   3. Element-wise functions are written once, in fma and IEEE operations,
 *      and compiled per instruction set. relu(x) is x < 0 ? 0 : x.
 * oneDNN chooses its own order; under it a run is repeatable for one library,
 * machine type and chunk grid only. The family is part of the arithmetic
 * profile (docs/numerics.md).
 *
 * A table has a precision. KERN_BF16 is the table of its family with other
 * products: they round what they are given to bfloat16 and sum in float, and
 * what they make is rounded where the call says so. All arrays hold floats.
 *
 * Memory: kernels allocate nothing. Small temporaries live in the pool's
 * per-thread scratch (at least KERN_SCRATCH bytes); what grows with the shape
 * is asked for beforehand (conv_work) and handed in. Pointers need no special
 * alignment; 64 bytes is fastest. Inputs never overlap outputs unless said.
 *
 * Threads: each call uses the whole pool and returns when done. Kernels are
 * called from outside the pool's tasks (the scratch is theirs); `update` and
 * `square_sum` use no pool and may be called anywhere. */
#ifndef TENSOR_KERNEL_H
#define TENSOR_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "os/pool.h"

#define KERN_SCRATCH (1 << 20) /* bytes of scratch per thread that kernels may count on */

/* What products are made of: floats, or bfloat16 numbers with sums in float (tensor/bf16.h). */
typedef enum kern_precision { KERN_F32, KERN_BF16, KERN_PRECISIONS } kern_precision;

typedef enum kern_family { KERN_REFERENCE, KERN_AVX2, KERN_AVX512, KERN_ONEDNN, KERN_FAMILIES } kern_family;

/* Receives finished values instead of memory: elements [first, first + n) of
 * the row-major result. Called once per element in all, from any thread, in
 * any order; `v` is valid during the call. It lets the optimizer run where a
 * weight gradient is produced. */
typedef void (*kern_sink)(void *ctx, int64_t first, int64_t n, const float *v);

/* C (m, n) = op(A) op(B), then in this order: + bias, relu, mask, round. */
typedef struct gemm_call {
    int64_t m, n, k;
    bool ta, tb; /* A is stored (k, m); B is stored (n, k) */
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float *c; /* may be NULL with a sink */
    int64_t ldc;
    bool accumulate; /* the chain starts from C instead of 0 */
    const float *bias; /* (n) or NULL */
    bool relu;
    const float *mask; /* (m, n) at ldc or NULL: the result is 0 where mask <= 0 */
    bool round; /* to bfloat16; tables of KERN_BF16 alone */
    kern_sink sink; /* takes the results instead of c, or NULL; to accumulate with a sink, ldc must be n */
    void *sink_ctx;
} gemm_call;

/* A 2-D convolution, NHWC and HWIO. Padding after is what oh and ow need. */
typedef struct conv_shape {
    int64_t n, h, w, c; /* input  (n, h, w, c) */
    int64_t oh, ow, oc; /* output (n, oh, ow, oc) */
    int64_t kh, kw; /* kernel (kh, kw, c / groups, oc) */
    int64_t sh, sw; /* stride */
    int64_t dh, dw; /* dilation */
    int64_t top, left; /* padding before */
    int64_t groups; /* output channel o sees the inputs of group o / (oc / groups) */
} conv_shape;

typedef struct conv_call {
    conv_shape s;
    const float *x, *w, *dy;
    const float *bias; /* forward: (oc) or NULL */
    bool relu; /* forward: after the bias */
    const float *mask; /* backward data: (n, h, w, c) or NULL: dx is 0 where mask <= 0 */
    bool accumulate; /* backward: dx or dw is added to, the chain starts from it */
    bool
        round; /* forward and backward data: y or dx is rounded to bfloat16 at last; tables of KERN_BF16 alone */
    float *y, *dx, *dw;
    kern_sink sink; /* backward weights: as in gemm_call; dw may be NULL */
    void *sink_ctx;
    void *work; /* conv_work(kernels, s) bytes */
} conv_call;

typedef enum kern_act {
    KERN_LINEAR,
    KERN_RELU,
    KERN_LEAKY_RELU,
    KERN_ELU,
    KERN_GELU,
    KERN_GELU_TANH,
    KERN_SILU,
    KERN_SIGMOID,
    KERN_TANH,
    KERN_HARD_SIGMOID, /* v / 6 + 1/2, within [0, 1] */
    KERN_HARD_SILU, /* v * hard sigmoid of v */
    KERN_ACTS
} kern_act;

typedef enum kern_binary { KERN_ADD, KERN_SUB, KERN_MUL, KERN_BINARIES } kern_binary;

/* Batch norm over `rows` of `c` channels. */
typedef struct bn_call {
    int64_t rows, c;
    const float *x, *dy, *y; /* y: backward with relu, the forward's result */
    const float *gamma, *beta; /* NULL: 1 and 0 */
    float eps;
    bool relu;
    const float *residual; /* forward: added before the relu, or NULL */
    float *out; /* forward */
    float *mean, *var; /* training: written by forward (biased), read by backward; inference: read */
    float *dx, *dgamma, *dbeta; /* backward; dgamma and dbeta may be NULL */
    float *dresidual; /* backward: dy after the relu's mask, or NULL; may equal dy */
    bool accumulate_dx;
    bool accumulate_dparam; /* dgamma, dbeta are added to */
    bool round; /* out or dx is rounded to bfloat16 at last */
    /* For rows that are spread over several calls. `sums`, 2c of them, are written when not NULL: forward the
     * means and the sums of squared deviations, backward the sums of dy and of dy * (x - mean). With `totals`,
     * those of all calls, backward does not take its own; they are over total_rows rows. */
    double *sums;
    const double *totals;
    int64_t total_rows;
} bn_call;

/* Layer norm: each of `rows` over `c` neighbouring elements. */
typedef struct ln_call {
    int64_t rows, c;
    const float *x, *dy, *gamma, *beta; /* gamma, beta may be NULL */
    float eps;
    float *out, *mean, *rstd; /* mean, rstd: (rows), written forward, read backward */
    float *dx, *dgamma, *dbeta;
    bool accumulate_dx, accumulate_dparam;
} ln_call;

typedef struct pool_shape {
    int64_t n, h, w, c, oh, ow, kh, kw, sh, sw, top, left;
    bool count_padding; /* average: PyTorch's way; Keras divides by the real cells */
} pool_shape;

struct update_run; /* tensor/update.h */

typedef struct kernels {
    const char *name; /* "reference", "avx2", "avx512", "onednn"; of KERN_BF16 also "avx512-bf16" */
    kern_family family;
    kern_precision precision;

    void (*gemm)(pool *p, const gemm_call *g);
    /* first (m, n), tb, no sink; then second (n, k), ta: the two gradients of a dense layer, which go over the
     * same weight and the same input. The second's sink may change the rows of first's B that it is given: they
     * have been read by then. Bits as of two calls. */
    void (*gemm_pair)(pool *p, const gemm_call *first, const gemm_call *second);
    void (*conv_forward)(pool *p, const conv_call *c);
    void (*conv_backward_data)(pool *p, const conv_call *c);
    void (*conv_backward_weights)(pool *p, const conv_call *c);
    size_t (*conv_work)(const conv_shape *s, int threads); /* the largest of the three passes */

    /* y may be x. alpha: slope of leaky relu, scale of elu. */
    void (*act_forward)(pool *p, kern_act a, float alpha, int64_t n, const float *x, float *y);
    /* dx [+]= dy * f'; reads x for gelu and silu, y for the others; dx may be dy. alpha >= 0. */
    void (*act_backward)(pool *p, kern_act a, float alpha, int64_t n, const float *x, const float *y,
                         const float *dy, float *dx, bool accumulate);
    /* out = a op b over n elements; b repeats every nb elements (nb divides n). out may be a or b (nb == n). */
    void (*binary)(pool *p, kern_binary op, int64_t n, const float *a, int64_t nb, const float *b,
                   float *out);
    /* out = alpha * a + beta * out (beta 0 does not read out). */
    void (*axpby)(pool *p, int64_t n, float alpha, const float *a, float beta, float *out);
    /* x = x rounded to bfloat16 (tensor/bf16.h). */
    void (*round)(pool *p, int64_t n, float *x);
    /* out (cols) = [out +] sum over rows of x (rows, cols). */
    void (*col_sum)(pool *p, int64_t rows, int64_t cols, const float *x, float *out, bool accumulate);

    void (*bn_forward)(pool *p,
                       const bn_call *b); /* from the batch; writes mean, var; out NULL: nothing else */
    void (*bn_infer)(pool *p, const bn_call *b); /* from mean, var given */
    void (*bn_backward)(pool *p, const bn_call *b);
    /* dx of inference mode: dx = dy * gamma / sqrt(var + eps). dgamma, dbeta as in training. */
    void (*bn_backward_frozen)(pool *p, const bn_call *b);
    void (*ln_forward)(pool *p, const ln_call *l);
    void (*ln_backward)(pool *p, const ln_call *l);

    void (*softmax_forward)(pool *p, int64_t rows, int64_t c, const float *x, float *y);
    void (*softmax_backward)(pool *p, int64_t rows, int64_t c, const float *y, const float *dy, float *dx,
                             bool accumulate);
    /* Largest of each window; `arg` (n, oh, ow, c), which may be NULL, receives i * kw + k of the first
     * largest. With arg a window has at most 256 cells; a larger one is pooled in two steps, first along w,
     * then along h, which finds the same element. NaN counts as largest. */
    void (*max_pool_forward)(pool *p, const pool_shape *s, const float *x, float *y, uint8_t *arg);
    void (*max_pool_backward)(pool *p, const pool_shape *s, const uint8_t *arg, const float *dy, float *dx,
                              bool accumulate);
    void (*avg_pool_forward)(pool *p, const pool_shape *s, const float *x, float *y);
    void (*avg_pool_backward)(pool *p, const pool_shape *s, const float *dy, float *dx, bool accumulate);

    /* Rows of a table: y (n, c) = table[index[i]]; indices were checked. */
    void (*gather)(pool *p, int64_t n, int64_t c, const float *table, const int64_t *index, float *y);
    /* dtable[index[i]] += dy[i], in order of i for each row. */
    void (*scatter_add)(pool *p, int64_t n, int64_t c, int64_t rows, const int64_t *index, const float *dy,
                        float *dtable);

    /* One run of the optimizer; see tensor/update.h. */
    void (*update)(const struct update_run *r);
    /* Sum of squares, in double, of the run's gradient as it stands before clipping (summed over shards,
     * divided, regularised, accumulated); writes nothing. What clip_factor is found from: the sums of the
     * blocks of a variable are to be added in block order. */
    double (*square_sum)(const struct update_run *r);
} kernels;

/* The table of a family; NULL when this build or this processor lacks it. */
const kernels *kernels_of(kern_family f);

/* The table of the same family with products of that precision; everything else in it is the same. NULL
 * when the family has none (oneDNN has none of KERN_BF16). Their bits are the same in all families. */
const kernels *kernels_in(const kernels *k, kern_precision p);

/* The family called `name` ("" or NULL or "auto": $MANTA_KERNELS, else the fastest of our own that
 * this processor runs, else the reference). MANTA_EUNSUPPORTED naming what is missing. */
manta_status kernels_find(const char *name, const kernels **out);

/* The precision called `name`: "exact" or "float32" (NULL and "" too), or "mixed_bfloat16". MANTA_EUNSUPPORTED
 * for "mixed_float16", which no processor has; MANTA_EINVAL for anything else. */
manta_status kernels_precision(const char *name, kern_precision *out);

/* What the precision is called: "exact", "mixed_bfloat16". */
const char *kernels_precision_name(kern_precision p);

#endif
