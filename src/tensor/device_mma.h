/* tensor/device_mma.h - products and convolutions on the tensor cores of devices.
 *
 * Floats are cut to tf32 (ten bits behind the point) or rounded to bfloat16 (seven) when they are read, multiplied
 * exactly, and added as floats: the precisions float32 and mixed_bfloat16 of docs/numerics.md. The order of a sum
 * is given by the shape alone, and nothing is added by whoever comes first: two runs give equal bytes on GPUs of one
 * architecture. On the fake device the same bodies run with an emulation of the instruction, whose sums may
 * differ from a GPU's in the last bits.
 *
 *     one product                              a tile of it, by a block of warps
 *     +--------+--------+                      shared memory: some slabs of A and of B
 *     |  tile  |        |  rows                    slab p          is asked for
 *     +--------+--------+                          slab p - lag    is multiplied, 32 x 32 outputs a warp
 *     |        |        |
 *     +--------+--------+                      where few tiles have long sums, the sums are cut in parts,
 *         columns                              each a block of its own; mma_add adds them
 */
#ifndef TENSOR_DEVICE_MMA_H
#define TENSOR_DEVICE_MMA_H

#include "tensor/device_kernels.h"

/* What a device computes in: docs/numerics.md. */
typedef enum dev_precision { DEV_EXACT, DEV_FLOAT32, DEV_BFLOAT16 } dev_precision;

typedef enum mma_op { MMA_FORWARD, MMA_DATA, MMA_WEIGHTS } mma_op;
typedef enum mma_kind { MMA_TF32, MMA_BF16 } mma_kind;

/* One product as it is launched. */
typedef struct dev_mma {
    int kernel; /* dev_kernel; DEV_COUNT: it cannot be done so */
    int64_t blocks;
    size_t part_bytes; /* of `part`; 0: one part, and no mma_add */
    mma_args args; /* without part */
} dev_mma;

/* The convolution of `a` (its shape and the addresses that the operation reads and writes; chunks and orders are
 * not looked at) as a product. kernel is DEV_COUNT for groups, arrays of 2^31 elements and more, and sides beyond
 * 2^13. */
dev_mma dev_mma_conv(mma_op op, mma_kind kind, const conv_args *a);
/* The product that dev_mma_conv() would choose tiles and parts for, in tiles of this size and in so many parts: for
 * tests. kernel is DEV_COUNT in the same cases. */
dev_mma dev_mma_conv_by(mma_op op, mma_kind kind, const conv_args *a, int size, int splits);
/* A dense layer's products, m samples of k numbers to n: a convolution of maps of one place. */
conv_shape dev_mma_dense(int64_t m, int64_t n, int64_t k);

/* Bytes of shared memory of a block of this kernel, beyond what it declares itself; 0: none. */
size_t dev_kernel_shared(int kernel);

/* Rows of a chunk of a quick_ kernel over (rows, c). */
int64_t dev_sum_chunk(int64_t rows, int64_t c);
int64_t dev_sum_blocks(int64_t rows, int64_t c); /* items of it */

#endif
