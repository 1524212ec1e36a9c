/* tensor/device_kernels.h - the kernels of devices and their arguments.
 *
 * A kernel NAME has a struct NAME_args, a body (body_*.inc) and a number, DEV_NAME. Its
 * comment says how many items it is launched with and what one item does; the order of the
 * arithmetic is that of the processor's kernel named there, to the bit. Several
 * kernels share a struct where they are parts of one thing.
 *
 * Addresses are those of floats unless said. Sums over rows go by parts, as
 * reduce.inc has it: a first kernel leaves two doubles for each (chunk, column) in
 * `part`, (chunks, 2, columns); a second adds them in the order of the chunks. */
#ifndef TENSOR_DEVICE_KERNELS_H
#define TENSOR_DEVICE_KERNELS_H

#include "tensor/device_kernels_main.h"
#include "tensor/device_kernels_more.h"

#define DEV_KERNELS(K) DEV_KERNELS_MAIN(K) DEV_KERNELS_MORE(K)

#define DEV_ENUM(name) DEV_##name,
typedef enum dev_kernel { DEV_KERNELS(DEV_ENUM) DEV_COUNT } dev_kernel;
#undef DEV_ENUM

#endif
