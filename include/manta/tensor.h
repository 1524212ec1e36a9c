/* manta/tensor.h - memory for an array: reference-counted storage of any dtype
 * and shape, row-major, its own or handed in by the program.
 *
 * A manta_array is a view and owns nothing; a manta_tensor owns, or answers
 * for, what its view points at. Tensors are shared by reference:
 *
 *     manta_tensor *t;
 *     int64_t shape[] = {64, 10};
 *     MANTA_TRY(manta_tensor_new(MANTA_DTYPE_F32, 2, shape, &t));
 *     manta_array a = manta_tensor_array(t);
 *     MANTA_TRY(manta_array_fill(&a, 1));
 *     manta_tensor_unref(t);
 *
 * Threads: references may be taken and given back on any thread; who writes the
 * elements, and when, is up to the program. */
#ifndef MANTA_TENSOR_H
#define MANTA_TENSOR_H

#include <manta/array.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_tensor manta_tensor;

/* A tensor of zeros in memory of its own, 64-byte aligned.
 * *out: one reference, owned by the caller. Untouched on failure.
 * MANTA_EINVAL no such dtype, a negative size, more than MANTA_MAX_DIMS axes;
 * MANTA_ENOMEM no memory, or a size beyond what can be addressed. */
MANTA_API manta_status manta_tensor_new(manta_dtype t, int ndim, const int64_t *shape,
                                        manta_tensor **out) MANTA_MUST_USE;

/* A tensor over `data`, which holds a row-major array of that shape and may lie
 * anywhere (shared memory, a mapped file). When the last reference is gone,
 * release(ctx, data) is called once, on the thread that gave it back; release
 * may be NULL. On failure the memory stays the caller's. */
MANTA_API manta_status manta_tensor_wrap(manta_dtype t, int ndim, const int64_t *shape, void *data,
                                         void (*release)(void *ctx, void *data), void *ctx,
                                         manta_tensor **out) MANTA_MUST_USE;

/* A tensor with a copy of `size` bytes; MANTA_EINVAL when the shape needs another number of them. */
MANTA_API manta_status manta_tensor_from_bytes(manta_dtype t, int ndim, const int64_t *shape,
                                               const void *bytes, size_t size,
                                               manta_tensor **out) MANTA_MUST_USE;

/* A row-major tensor of dtype `t` with the elements of `a` (any strides). Floating
 * point is rounded to nearest even; to an integer the fraction is dropped, values
 * out of range stop at the end of it, NaN becomes 0. */
MANTA_API manta_status manta_tensor_from_array(const manta_array *a, manta_dtype t,
                                               manta_tensor **out) MANTA_MUST_USE;

/* Another reference to t, which is returned. */
MANTA_API manta_tensor *manta_tensor_ref(manta_tensor *t);

/* Gives one reference back; with the last the memory goes too. Accepts NULL. */
MANTA_API void manta_tensor_unref(manta_tensor *t);

/* The view of all of t. Borrowed: valid as long as a reference is held. */
MANTA_API manta_array manta_tensor_array(const manta_tensor *t);

/* The first element, the dtype, the number of elements and of bytes. */
MANTA_API void *manta_tensor_data(const manta_tensor *t);
MANTA_API manta_dtype manta_tensor_dtype(const manta_tensor *t);
MANTA_API int64_t manta_tensor_count(const manta_tensor *t);
MANTA_API size_t manta_tensor_size(const manta_tensor *t);

/* Copies the elements of src to dst, two views of one shape, converting where
 * the dtypes differ. MANTA_EINVAL when the shapes differ. */
MANTA_API manta_status manta_array_copy(const manta_array *dst, const manta_array *src) MANTA_MUST_USE;

/* Sets every element to `value`, rounded to the dtype. */
MANTA_API manta_status manta_array_fill(const manta_array *dst, double value) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
