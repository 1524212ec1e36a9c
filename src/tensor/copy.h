/* tensor/copy.h - n-dimensional arrays with any strides: copying, filling and
 * arithmetic with broadcasting.
 *
 * Permuting, padding, slicing, concatenating and repeating are all one thing,
 * a copy between two views of the same shape: the caller makes the views (swap
 * strides, move the pointer, set a stride to 0) and copies. Strides are in
 * elements and may be negative.
 *
 * The elements written are distinct (no stride 0 in dst along an axis longer
 * than 1) and do not overlap those read, unless both views are the same. The
 * pool may be NULL: everything then runs on the caller. */
#ifndef TENSOR_COPY_H
#define TENSOR_COPY_H

#include <manta/array.h>

#include "os/pool.h"
#include "tensor/kernel.h"

/* dst = src, or dst += src with `add` (both float32). Dtypes may differ: see
 * tensor/convert.h. MANTA_EINVAL different shapes, dst repeats an element, or
 * add of another dtype. */
manta_status copy_strided(pool *p, const manta_array *dst, const manta_array *src, bool add);

/* Every element of dst becomes `value`, rounded to its dtype. */
manta_status copy_fill(pool *p, const manta_array *dst, double value);

/* dst = a op b, all float32 and of one shape; repeat an operand with strides of
 * 0 (copy_broadcast()). dst may be the same view as a or b. */
manta_status copy_binary(pool *p, kern_binary op, const manta_array *dst, const manta_array *a,
                         const manta_array *b);

/* The view of `a` as an array of that shape, repeated where a has size 1 or
 * lacks the axis, as NumPy does. MANTA_EINVAL naming both shapes when it does not fit. */
manta_status copy_broadcast(const manta_array *a, int ndim, const int64_t *shape, manta_array *out);

/* The view of `a` with its axes in the order axis[0], axis[1], ... (a permutation of 0 .. ndim-1). */
manta_array copy_permuted(const manta_array *a, const int *axis);

/* The view of indices start .. start + n - 1 along `axis`. MANTA_EINVAL out of range. */
manta_status copy_slice(const manta_array *a, int axis, int64_t start, int64_t n, manta_array *out);

#endif
