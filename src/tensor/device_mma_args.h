/* tensor/device_mma_args.h - the kernels of devices that multiply on tensor cores, and those that add in an order of
 * their own: their arguments and sizes. tensor/device_mma.h says what they do. */
#ifndef TENSOR_DEVICE_MMA_ARGS_H
#define TENSOR_DEVICE_MMA_ARGS_H

#include "tensor/device_kernels_main.h"

/* Divides numbers from 0 to 2^31 - 1 by one that is known beforehand: x * times >> shift. */
typedef struct dev_divisor {
    uint32_t times;
    int32_t shift;
} dev_divisor;

/* C = A * B, rows by cols, with one of the operands gathered from a map by the taps of a convolution:
 *
 *                 rows            columns     summed index    A                  B
 *     forward     places of y     outputs o   taps, inputs    x, gathered        w
 *     data        places of x     inputs c    taps, outputs   dy, gathered       w
 *     weights     taps, inputs    outputs o   places of y     x, gathered        dy
 *
 * C lies row by row. The summed index is cut into `splits` parts of `slabs` slabs each; with more than one,
 * part p goes to part[p], (splits, rows, cols), and mma_add adds them in order. */
typedef struct mma_args {
    dev_addr a, b, c, bias, mask, part; /* bias, mask or 0 */
    int32_t rows, cols, depth;
    int32_t slabs, splits;
    int32_t h, w, channels; /* of the map that is gathered from */
    int32_t sh, sw, dh, dw, top, left;
    int32_t taps; /* that are live: down * across */
    int32_t first_h, first_w, across, kw; /* taps that meet anything: from there, so many in a row; of kw */
    int32_t walk_h, walk_w; /* of the map whose places are walked */
    dev_divisor by_channels, by_across, by_walk_h, by_walk_w, by_sh, by_sw;
    bool four_a, four_b; /* four neighbours lie on a multiple of sixteen bytes */
    bool relu, accumulate, round; /* round: to bfloat16 */
} mma_args;

typedef mma_args tf32_forward_args, tf32_data_args, tf32_weights_args, bf16_forward_args, bf16_data_args,
    bf16_weights_args, mma_add_args;

/* name; rows and columns of a tile; warps down and across, 32 by 32 outputs each; warps that share a slab's sums;
 * phases until a slab that was asked for is there. */
#define DEV_MMA_SIZES(S)                                                                                     \
    S(64, 64, 64, 2, 2, 2, 3)                                                                                \
    S(128, 128, 64, 4, 2, 1, 2)

enum {
    MMA_DEPTH = 32, /* of a slab: how much of the summed index is in shared memory at a time */
    MMA_GAP_DEEP = 8, /* floats behind a line of a slab: so the threads of a warp read from different banks */
    MMA_GAP_FLAT = 4,
    MMA_TAPS = 32, /* of a convolution, at most, whose rows come by fours */
#define MMA_NUMBERS(name, rows, cols, down, across, deep, lag)                                               \
    MMA_ROWS_##name = (rows), MMA_COLS_##name = (cols), MMA_WARPS_##name = (down) * (across),                \
    MMA_ACROSS_##name = (across), MMA_DEEP_##name = (deep), MMA_LAG_##name = (lag),                          \
    MMA_SLABS_##name = (lag) + 1, /* one more is being multiplied */                                         \
        MMA_THREADS_##name = 32 * (down) * (across) * (deep),
    DEV_MMA_SIZES(MMA_NUMBERS)
#undef MMA_NUMBERS
};

#define DEV_MMA_OF(K, op) K(op, 64) K(op, 128)
#define DEV_MMA_KERNELS(K)                                                                                   \
    DEV_MMA_OF(K, tf32_forward)                                                                              \
    DEV_MMA_OF(K, tf32_data)                                                                                 \
    DEV_MMA_OF(K, tf32_weights)                                                                              \
    DEV_MMA_OF(K, bf16_forward)                                                                              \
    DEV_MMA_OF(K, bf16_data)                                                                                 \
    DEV_MMA_OF(K, bf16_weights)

/* Sums over the rows of a matrix, by blocks of SUM_ACROSS columns and SUM_DOWN rows of threads. A block adds a chunk of
 * rows and leaves two floats for each column in `part`, (chunks, 2, c); the last one that ends adds the chunks in
 * their order, in double, and does what depends on them. `tickets`: uint32 for each SUM_ACROSS columns, zeros
 * before and after.
 *   quick_moments   bn_args: mean, var, proposals and coef, as bn_moments, bn_moments_end and bn_coef leave them
 *   quick_sums      bn_args: dgamma, dbeta and coef, as bn_sums and bn_sums_end leave them
 *   quick_columns   bn_args: the sums of x's columns go to out; with accumulate_dx they are added to it */
enum { SUM_ACROSS = 32, SUM_DOWN = 8, SUM_THREADS = SUM_ACROSS * SUM_DOWN };
typedef bn_args quick_moments_args, quick_sums_args, quick_columns_args;

/* One block: head_sum and metric_sum, in another order. */
typedef head_sum_args quick_head_args;
typedef metric_sum_args quick_metric_args;

#define DEV_SUM_KERNELS(K) K(quick_moments) K(quick_sums) K(quick_columns) K(quick_head) K(quick_metric)

/* quick_out, quick_dx: four neighbours of a row an item, as bn_out and bn_dx; c is a multiple of four. */
typedef bn_args quick_out_args, quick_dx_args;

/* An element each: mma_add. Four each: quick_out, quick_dx. round_to: an element, to bfloat16, in place. */
typedef struct round_to_args {
    dev_addr x;
} round_to_args;

#define DEV_KERNELS_MMA(K) K(mma_add) K(quick_out) K(quick_dx) K(round_to)

#endif
