/* tensor/body.h - how the body of a device's kernel is written.
 *
 * A body is C that is also C++: it is compiled by nvcc for GPUs (src/gpu/kernels.cu)
 * and by the C compiler for the fake device (device_fake.c). It is a function of its
 * arguments and of the number of one item,
 *
 *     BODY(axpby)(const axpby_args *a, int64_t i)
 *     {
 *         const float *x = AT(const float, a->x);
 *         ...
 *     }
 *
 * that writes what belongs to this item and nothing that another item reads or
 * writes. Items run in any order and at the same time; what must be added up in an order is
 * added by one item, or left by one kernel for the next. So a body is exact by construction:
 * the order of the arithmetic stands in it, and is that of the processor's kernels.
 *
 * Rules, besides those of src/tensor/README.md:
 *   1. An address becomes a pointer by AT(type, address) alone, and 0 becomes NULL.
 *   2. fma is vm_fma(), double or float division and square roots are the plain ones; no
 *      other function of libm; vmath.h for the rest.
 *   3. No memory, no recursion, no static data; arrays in a body have constant sizes.
 *   4. Neighbouring items read and write neighbouring elements where that can be chosen. */
#ifndef TENSOR_BODY_H
#define TENSOR_BODY_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#include <manta/array.h>

#include "tensor/device_kernels.h"
#include "tensor/vmath.h"

#ifdef __CUDACC__
#define BODY_FN           static __device__ __forceinline__
#define AT(type, address) ((type *)(address))
#else
#define BODY_FN           static inline
/* Defined by the includer: where the processor finds what lies at an address. */
static inline void *body_at(dev_addr address);
#define AT(type, address) ((type *)body_at(address))
#endif

#define BODY(name) BODY_FN void name##_body

#endif
