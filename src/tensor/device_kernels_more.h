/* tensor/device_kernels_more.h - the kernels of operations and losses beyond those of the zoo's
 * models. Included by tensor/device_kernels.h, which is the contract; a kernel is
 * added by its struct, its line in DEV_KERNELS_MORE, its body in a body_*.inc that
 * body_all.inc includes, and a row in nn/lower_more.c. */
#ifndef TENSOR_DEVICE_KERNELS_MORE_H
#define TENSOR_DEVICE_KERNELS_MORE_H

#include "tensor/device_kernels_main.h"

enum { DEV_DIMS = 8 }; /* of an array at most: MANTA_MAX_DIMS */

/* ---- moving elements: body_shape.inc ---- */

/* An element each, in row-major order of `shape`: copy_strided() of copy.h. Steps are in elements. */
typedef struct copy_args {
    int ndim;
    int64_t shape[DEV_DIMS], from_step[DEV_DIMS], to_step[DEV_DIMS];
    dev_addr from, to;
    bool accumulate;
} copy_args;

/* An element each becomes `value`. */
typedef struct fill_args {
    float value;
    dev_addr to;
} fill_args;

/* gather: n * c items, an element of y (n, c) each: row index[i] of the table, FN(gather). Indices are of the
 * type `dtype` (a manta_dtype) and lie in [0, rows); the host has checked them. One that does not gives NaN
 * and receives nothing, so that no memory of others is touched.
 *
 * scatter_links: n items; leaves in links, two int64 for each i, the place behind i with i's index, or -1, and
 * whether none before has it. scatter_add: n * c items; the first of those with one index adds dy of all of
 * them to dtable, in order: FN(scatter_add). */
typedef struct table_args {
    int64_t n, c, rows;
    int dtype;
    dev_addr index, table, y, dy, dtable, links;
} table_args;
typedef table_args gather_args, scatter_links_args, scatter_add_args;

/* upsample_forward: an element of y (n, h * sh, w * sw, c) each. upsample_back: an element of dx (n, h, w, c)
 * each, which adds what the outputs that look at it give, in row-major order of the outputs. op_image.c. */
typedef struct upsample_args {
    int64_t h, w, c, sh, sw;
    dev_addr x, y, dy, dx;
    bool bilinear, accumulate;
} upsample_args;
typedef upsample_args upsample_forward_args, upsample_back_args;

/* ---- elements, two values, layer norm: body_norm.inc ---- */

/* relu_forward, relu_back: an element each; Keras's ReLU in full, op_elem.c. */
typedef struct relu_args {
    float max_value, negative_slope, threshold;
    dev_addr x, y, dy, dx;
    bool accumulate;
} relu_args;
typedef relu_args relu_forward_args, relu_back_args;

/* normalize_forward, normalize_back: of each row of c channels those from `first` on, `n` of them; rows * n items,
 * an element each, by the channel's mean and variance, which are numbers of the layer and not memory: op_elem.c. */
enum { DEV_NORMALIZE = 48 }; /* channels of a launch at most */
typedef struct normalize_args {
    int64_t c, first, n;
    float mean[DEV_NORMALIZE], variance[DEV_NORMALIZE];
    dev_addr x, y, dy, dx;
    bool invert, accumulate;
} normalize_args;
typedef normalize_args normalize_forward_args, normalize_back_args;

/* global_max_forward, global_max_back: n * c items, a channel of a sample of (n, places, c) each: op_pool.c. */
typedef struct global_max_args {
    int64_t places, c;
    dev_addr x, y, dy, dx;
    bool accumulate;
} global_max_args;
typedef global_max_args global_max_forward_args, global_max_back_args;

/* An element of the output each, in row-major order of `shape`; a step of 0 repeats an operand:
 * copy_binary() of copy.h, then a relu when asked for. */
typedef struct binary_walk_args {
    kern_binary op;
    int ndim;
    int64_t shape[DEV_DIMS], a_step[DEV_DIMS], b_step[DEV_DIMS];
    dev_addr a, b, out;
    bool relu;
} binary_walk_args;

/* The gradient of an operand that repeats, an element of it each: over all places of the output, of shape
 * `shape`, that show it, in double: sum_element() of op_binary.c. */
typedef struct binary_sum_args {
    kern_binary op;
    int which, ndim;
    int64_t shape[DEV_DIMS], own_step[DEV_DIMS], other_step[DEV_DIMS];
    dev_addr dy, other, d;
    bool accumulate;
} binary_sum_args;

/* Layer norm, ln_call of kernel.h; rows.inc.
 *   ln_forward    rows items: ln_forward_row()
 *   ln_dx         rows items: ln_dx_row()
 *   ln_sums_part  chunks * c items: ln_sums_chunk()
 *   ln_sums_end   c items: adds the chunks; dgamma and dbeta, 0 where not wanted */
typedef struct ln_args {
    int64_t rows, c, chunk, chunks;
    dev_addr x, dy, gamma, beta, out, mean, rstd; /* gamma, beta or 0 */
    dev_addr dx, dgamma, dbeta, part; /* part: doubles */
    float eps;
    int keep_gamma, keep_beta; /* DEV_WRITE, ... */
    bool accumulate_dx;
} ln_args;
typedef ln_args ln_forward_args, ln_dx_args, ln_sums_part_args, ln_sums_end_args;

/* ---- losses and metrics: body_loss.inc ---- */

/* A row each, of a loss and its gradient; targets are floats that the host has checked. loss_category.c and
 * loss_element.c. `delta` is the number meant, never 0 for a default. */
typedef loss_args dense_logits_args, dense_probs_args, binary_logits_args, binary_probs_args,
    squared_error_args, absolute_error_args, huber_error_args;

/* dense_accuracy, binary_accuracy, top_k: a row each, leaves its value, a double. metric_sum_more: one item,
 * adds them in order. metric.c. */
typedef struct metric_more_args {
    int64_t rows, classes, k;
    dev_addr pred, target, value,
        sums; /* target: int32 labels when sparse, or floats; value, sums: doubles */
    float threshold;
    int at; /* where the metric's pair stands in sums */
    bool sparse; /* of top_k */
} metric_more_args;
typedef metric_more_args dense_accuracy_args, binary_accuracy_args, top_k_args, metric_sum_more_args;

#define DEV_KERNELS_MORE(K)                                                                                  \
    K(copy)                                                                                                  \
    K(fill)                                                                                                  \
    K(gather)                                                                                                \
    K(scatter_links)                                                                                         \
    K(scatter_add)                                                                                           \
    K(upsample_forward)                                                                                      \
    K(upsample_back)                                                                                         \
    K(relu_forward)                                                                                          \
    K(relu_back)                                                                                             \
    K(normalize_forward)                                                                                     \
    K(normalize_back)                                                                                        \
    K(global_max_forward)                                                                                    \
    K(global_max_back)                                                                                       \
    K(binary_walk)                                                                                           \
    K(binary_sum)                                                                                            \
    K(ln_forward)                                                                                            \
    K(ln_dx)                                                                                                 \
    K(ln_sums_part)                                                                                          \
    K(ln_sums_end)                                                                                           \
    K(dense_logits)                                                                                          \
    K(dense_probs)                                                                                           \
    K(binary_logits)                                                                                         \
    K(binary_probs)                                                                                          \
    K(squared_error)                                                                                         \
    K(absolute_error)                                                                                        \
    K(huber_error)                                                                                           \
    K(dense_accuracy)                                                                                        \
    K(binary_accuracy)                                                                                       \
    K(top_k)                                                                                                 \
    K(metric_sum_more)

#endif
