/* tensor/device_kernels.h - the kernels of devices and their arguments.
 *
 * A kernel is launched with items, or works in tiles.
 *
 * A kernel NAME with items has a struct NAME_args, a body (body_*.inc) and a number, DEV_NAME. Its
 * comment says how many items it is launched with and what one item does; the order of the
 * arithmetic is that of the processor's kernel named there, to the bit. Several
 * kernels share a struct where they are parts of one thing.
 *
 * Addresses are those of floats unless said. Sums over rows go by parts, as
 * reduce.inc has it: a first kernel leaves two doubles for each (chunk, column) in
 * `part`, (chunks, 2, columns); a second adds them in the order of the chunks.
 *
 * A kernel in tiles, OP_SIZE, does what the kernel OP does and has its arguments (gemm_ta and gemm_tb are gemm with
 * one operand transposed), but its items are
 * blocks of threads, a tile of outputs each; its number is DEV_OP_SIZE (device_tiles.h). The kernels of
 * device_mma_args.h are of other precisions, and of blocks as well. */
#ifndef TENSOR_DEVICE_KERNELS_H
#define TENSOR_DEVICE_KERNELS_H

#include "tensor/device_kernels_main.h"
#include "tensor/device_kernels_more.h"
#include "tensor/device_mma_args.h"
#include "tensor/device_tile_sizes.h"

#define DEV_KERNELS(K) DEV_KERNELS_MAIN(K) DEV_KERNELS_MORE(K) DEV_KERNELS_MMA(K)

/* The sizes of an operation in ascending order; see device_tile_sizes.h. */
#define DEV_TILES_OF(K, op) K(op, 8) K(op, 16) K(op, 32) K(op, 64) K(op, 128)
#define DEV_TILE_KERNELS(K)                                                                                  \
    DEV_TILES_OF(K, gemm)                                                                                    \
    DEV_TILES_OF(K, gemm_ta)                                                                                 \
    DEV_TILES_OF(K, gemm_tb)                                                                                 \
    DEV_TILES_OF(K, conv_forward) DEV_TILES_OF(K, conv_data) DEV_TILES_OF(K, conv_weights)

#define DEV_ENUM(name)            DEV_##name,
#define DEV_TILE_ENUM(name, size) DEV_##name##_##size,
typedef enum dev_kernel {
    DEV_KERNELS(DEV_ENUM) DEV_TILE_KERNELS(DEV_TILE_ENUM) DEV_MMA_KERNELS(DEV_TILE_ENUM)
        DEV_SUM_KERNELS(DEV_ENUM) DEV_COUNT
} dev_kernel;
#undef DEV_ENUM
#undef DEV_TILE_ENUM

#endif
