/* tensor/device_kernels_main.h - the kernels that the zoo's models need, and their arguments; tensor/device_kernels.h
 * is the contract. */
#ifndef TENSOR_DEVICE_KERNELS_MAIN_H
#define TENSOR_DEVICE_KERNELS_MAIN_H

#include "tensor/kernel.h"
#include "tensor/update.h"

typedef uint64_t dev_addr; /* of something on a device; 0: nowhere */

/* What changes from step to step, in device memory. */
typedef struct dev_run {
    uint64_t seed;
    int64_t step, first; /* as in manta_op_call */
} dev_run;

/* ---- products: body_products.inc ---- */

/* gemm: m * n items, an element of C each: gemm_call of kernel.h, the chain of gemm.h. */
typedef struct gemm_args {
    int64_t m, n, k, lda, ldb, ldc;
    dev_addr a, b, c, bias, mask; /* bias, mask or 0 */
    bool ta, tb, accumulate, relu;
} gemm_args;
typedef gemm_args gemm_ta_args, gemm_tb_args;

/* conv_forward: an output element each. conv_data: an element of dx each. conv_weights: chunks times the
 * weight's elements; with one chunk it goes to dw, else to part (chunks, weight). conv_weights_add: an
 * element of dw each, of several chunks. The chains of conv.h; chunk, order and padding as it says. */
typedef struct conv_args {
    conv_shape s;
    dev_addr x, w, dy, bias, mask, y, dx, dw, part;
    int64_t chunk, chunks; /* samples of a chunk */
    bool relu, accumulate, positions_first, counts_padding;
} conv_args;
typedef conv_args conv_forward_args, conv_data_args, conv_weights_args, conv_weights_add_args;

/* ---- sums over rows, batch norm: body_reduce.inc ---- */

/* col_sum_part: chunks * cols items. col_sum_end: cols items. FN(col_sum). */
typedef struct col_sum_args {
    int64_t rows, cols, chunk, chunks; /* rows of a chunk */
    dev_addr x, part, out; /* part: doubles */
    bool accumulate;
} col_sum_args;
typedef col_sum_args col_sum_part_args, col_sum_end_args;

/* How the gradient of gamma or beta is kept. */
enum { DEV_WRITE, DEV_ADD, DEV_ADD_TO_ZERO };

/* Batch norm, bn_call of kernel.h.
 *   bn_moments       chunks * c items: moments_chunk()
 *   bn_moments_end   c items: merge_moments(), mean, var; proposals when new_mean is not 0 (op_norm.c)
 *   bn_coef          c items: coef = {mean, gamma * rstd, beta}, c floats each
 *   bn_out           rows * c items: bn_row()
 *   bn_sums          chunks * c items: bn_sums_chunk()
 *   bn_sums_end      c items: merges, dgamma, dbeta, coef = {mean, scale, flat, slope}; chunks 0: no sums were
 *                    made (frozen, and nobody wants dgamma and dbeta)
 *   bn_dx            rows * c items: bn_dx_row() */
typedef struct bn_args {
    int64_t rows, c, chunk, chunks;
    dev_addr x, dy, y, gamma, beta, mean, var; /* gamma, beta or 0 */
    dev_addr part, coef; /* part: doubles; coef: 4 c floats */
    dev_addr out, dx, dgamma, dbeta;
    dev_addr old_mean, old_var, new_mean, new_var;
    dev_addr tickets; /* of quick_ kernels, device_mma_args.h */
    float eps, keep, take, grow;
    int keep_gamma, keep_beta; /* DEV_WRITE, ... */
    bool relu, accumulate_dx, frozen, round; /* round: the result to bfloat16, of quick_ kernels */
} bn_args;
typedef bn_args bn_moments_args, bn_moments_end_args, bn_coef_args, bn_out_args, bn_sums_args,
    bn_sums_end_args, bn_dx_args;

/* ---- elements: body_elem.inc ---- */

/* act_forward, act_backward: an element each. FN(act_forward), FN(act_backward); 0 for an address that
 * the activation does not read. */
typedef struct act_args {
    kern_act act;
    float alpha;
    dev_addr x, y, dy, dx;
    bool accumulate;
} act_args;
typedef act_args act_forward_args, act_backward_args;

/* An element each: FN(binary), then a relu when asked for, or added to what is there. */
typedef struct binary_args {
    kern_binary op;
    int64_t nb;
    dev_addr a, b, out;
    bool relu, accumulate;
} binary_args;

/* An element each: FN(axpby). */
typedef struct axpby_args {
    float alpha, beta;
    dev_addr a, out;
} axpby_args;

/* rows * ceil(n / 4) items, up to four elements of a sample each, for which one block of random numbers is
 * drawn: op_elem.c, dropout. With ndim, draws are shared: an item for each element of the batch then. */
typedef struct dropout_args {
    int64_t n; /* elements of a sample */
    dev_addr run, from, to; /* run: dev_run */
    float rate;
    uint32_t call;
    bool add;
    int ndim; /* 0: every element is drawn for itself */
    int64_t shape[8];
    bool shared[8];
} dropout_args;

/* An element each: op_elem.c, affine, from the type `dtype` (a manta_dtype). */
typedef struct affine_args {
    int dtype;
    float scale, offset;
    dev_addr x, y;
} affine_args;

/* ---- windows: body_windows.inc ---- */

/* max_pool_forward, avg_pool_forward: an output element each. max_pool_back, avg_pool_back: an element of dx
 * each, which adds what the windows that see it give, in row-major order of the outputs. windows.inc. */
typedef struct window_args {
    pool_shape s;
    dev_addr x, y, arg, dy, dx; /* arg: bytes, or 0 forward */
    bool accumulate;
} window_args;
typedef window_args max_pool_forward_args, max_pool_back_args, avg_pool_forward_args, avg_pool_back_args;

/* ---- rows: body_rows.inc ---- */

/* softmax_forward, softmax_backward: a row of c each. FN(softmax_forward), FN(softmax_backward). */
typedef struct softmax_args {
    int64_t c;
    dev_addr x, y, dy, dx;
    bool accumulate;
} softmax_args;
typedef softmax_args softmax_forward_args, softmax_backward_args;

/* ---- losses and metrics: body_objective.inc ---- */

/* sparse_logits, sparse_probs: a row each, of a loss and its gradient: loss_category.c. The host has checked
 * the labels. Other losses have the same arguments. */
typedef struct loss_args {
    int64_t rows, classes;
    dev_addr pred, target, weight, loss, grad; /* target: int32 labels, or floats; weight, grad or 0 */
    float scale, smoothing, delta;
    bool from_logits;
} loss_args;
typedef loss_args sparse_logits_args, sparse_probs_args;

/* sums_begin: n items, zeros but for samples and divisor. head_sum: one item, exec.c's run_head(): adds the
 * rows in order. */
typedef struct sums_args {
    int64_t n, rows;
    dev_addr sums, loss, weight; /* sums: doubles of a slot; weight or 0 */
    double samples, divisor, inner, head_weight; /* divisor NaN: the sum of the head's weights */
    int head; /* where the head's pair stands in sums */
} sums_args;
typedef sums_args sums_begin_args, head_sum_args;

/* accuracy_rows: a row each, leaves 1 or 0 in `value`. metric_sum: one item, adds them in order. metric.c. */
typedef struct metric_args {
    int64_t rows, classes;
    dev_addr pred, target, value, sums; /* target: int32 labels; sums: doubles of a slot */
    int at; /* where the metric's pair stands in sums */
} metric_args;
typedef metric_args accuracy_rows_args, metric_sum_args;

/* ---- the update: body_update.inc ---- */

/* The slots of a step, in device memory. */
typedef struct dev_slots {
    int64_t n;
    dev_addr at[]; /* of those with samples, in shard order */
} dev_slots;

/* A parameter's place and the numbers of this step, in device memory. */
typedef struct dev_param {
    int64_t offset, count;
    update_scalars s;
} dev_param;

/* A stretch of one parameter in one block of the grid (apply_segment). */
typedef struct dev_segment {
    int64_t param, offset, n;
} dev_segment;

/* update: an element of the parameters each, in place: update.inc. `lines`: int32, the parameter that
 * sixteen neighbouring elements belong to, or -1. each: the numbers of each parameter, and its own elements
 * alone; else those of the first parameter for all. */
typedef struct update_args {
    dev_addr slots, params, lines; /* dev_slots, dev_param[], int32 */
    dev_addr w, s0, s1, s2, average, accumulator; /* 0 where there is none */
    bool each;
} update_args;

/* An element of the statistics each: the mean of the proposals, apply.c's stat_elements(). */
typedef struct stats_args {
    dev_addr slots, lines, stats; /* lines: a byte for sixteen neighbours: some operation renews them */
    uint64_t proposals; /* bytes: where they begin in a slot */
    bool first; /* of the first slot alone */
} stats_args;

/* A segment each, leaving {square sum, penalty}: apply.c's segment_norms(). */
typedef struct norms_args {
    dev_addr slots, params, segments, w, accumulator, out; /* out: doubles */
} norms_args;

/* The kernels above. */
#define DEV_KERNELS_MAIN(K)                                                                                  \
    K(gemm)                                                                                                  \
    K(conv_forward)                                                                                          \
    K(conv_data)                                                                                             \
    K(conv_weights)                                                                                          \
    K(conv_weights_add)                                                                                      \
    K(col_sum_part)                                                                                          \
    K(col_sum_end)                                                                                           \
    K(bn_moments)                                                                                            \
    K(bn_moments_end)                                                                                        \
    K(bn_coef)                                                                                               \
    K(bn_out)                                                                                                \
    K(bn_sums)                                                                                               \
    K(bn_sums_end)                                                                                           \
    K(bn_dx)                                                                                                 \
    K(act_forward)                                                                                           \
    K(act_backward)                                                                                          \
    K(binary)                                                                                                \
    K(axpby)                                                                                                 \
    K(dropout)                                                                                               \
    K(affine)                                                                                                \
    K(max_pool_forward)                                                                                      \
    K(max_pool_back)                                                                                         \
    K(avg_pool_forward)                                                                                      \
    K(avg_pool_back)                                                                                         \
    K(softmax_forward)                                                                                       \
    K(softmax_backward)                                                                                      \
    K(sparse_logits)                                                                                         \
    K(sparse_probs)                                                                                          \
    K(sums_begin)                                                                                            \
    K(head_sum)                                                                                              \
    K(accuracy_rows)                                                                                         \
    K(metric_sum)                                                                                            \
    K(update)                                                                                                \
    K(stats)                                                                                                 \
    K(norms)

#endif
