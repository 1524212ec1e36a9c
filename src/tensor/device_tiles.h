/* tensor/device_tiles.h - the kernels of devices that work in tiles: how large tiles are, and which is taken.
 *
 * A product has many outputs, and each is a chain of its own; a *tile* is a rectangle of outputs that one
 * block of threads works on together, so that what it reads is read once for a whole row or column of it.
 * A tile never cuts a chain: its size decides the speed and not a bit of the result. So the size is chosen
 * by the shape alone, with numbers that were measured on one GPU, and is the same on every device.
 *
 *     operation      rows of a product   columns         chains run over           products that lie side by side
 *     gemm           rows of C           columns of C    k                         one
 *     conv_forward   samples             outputs o       (kh, kw, c) that meet x   each place (oh, ow)
 *     conv_data      samples             inputs c        (kh, kw, o) that meet dy  each place (ih, iw)
 *     conv_weights   inputs c            outputs o       positions that see a tap  each chunk and tap (kh, kw)
 *
 * What meets padding is the same for all outputs of such a product, which is why samples are rows. Where a weight's
 * gradient counts padding, it is for the caller to give x with its padding (top and left are 0, and no tap leaves
 * x); then the rows of all taps are one product. */
#ifndef TENSOR_DEVICE_TILES_H
#define TENSOR_DEVICE_TILES_H

#include "tensor/device_kernels.h"

/* A kernel and how many items (blocks, of kernels that work in tiles) it is launched with. */
typedef struct dev_tiling {
    int kernel; /* dev_kernel */
    int64_t items;
} dev_tiling;

/* The operation in tiles of size `size` (0 to DEV_TILE_COUNT - 1). The kernel is DEV_COUNT where it cannot be
 * done in tiles: groups, both operands transposed, padding that counts and is not in x, arrays of 2^31 elements
 * and more. */
dev_tiling dev_gemm_by(const gemm_args *a, int size);
dev_tiling dev_conv_forward_by(const conv_args *a, int size);
dev_tiling dev_conv_data_by(const conv_args *a, int size);
dev_tiling dev_conv_weights_by(const conv_args *a, int size);

/* The operation in the tiles that suit it, or an item for each output. */
dev_tiling dev_gemm_tiling(const gemm_args *a);
dev_tiling dev_conv_forward_tiling(const conv_args *a);
dev_tiling dev_conv_data_tiling(const conv_args *a);
dev_tiling dev_conv_weights_tiling(const conv_args *a);

/* Threads of a block of this kernel; 0: it has items and no blocks. */
int dev_kernel_threads(int kernel);

#endif
