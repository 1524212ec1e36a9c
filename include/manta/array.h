/* manta/array.h - element types, and the view of an array that every part of
 * Manta exchanges: type, shape, strides and a pointer to memory that someone
 * else owns. */
#ifndef MANTA_ARRAY_H
#define MANTA_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_MAX_DIMS 8

typedef enum manta_dtype {
    MANTA_DTYPE_F32 = 0,
    MANTA_DTYPE_F64,
    MANTA_DTYPE_F16,
    MANTA_DTYPE_BF16,
    MANTA_DTYPE_I32,
    MANTA_DTYPE_I64,
    MANTA_DTYPE_U8,
    MANTA_DTYPE_BOOL,
    MANTA_DTYPE_COUNT
} manta_dtype;

/* Bytes of one element; 0 for a value that is no dtype. */
MANTA_API size_t manta_dtype_size(manta_dtype t);

/* "float32", "bfloat16", ... as NumPy and Keras spell it; "?" for no dtype. */
MANTA_API const char *manta_dtype_name(manta_dtype t);

/* The dtype spelled `name`; MANTA_EINVAL when there is none. */
MANTA_API manta_status manta_dtype_parse(const char *name, manta_dtype *out) MANTA_MUST_USE;

/* A view: it owns nothing. Strides are in elements, and may be 0 to repeat. */
typedef struct manta_array {
    void *data;
    manta_dtype dtype;
    int ndim;
    int64_t shape[MANTA_MAX_DIMS];
    int64_t strides[MANTA_MAX_DIMS];
} manta_array;

/* A view of `data` as a row-major array of that shape; zeroed, with an error recorded, for a dtype or a number of
 * dimensions that cannot be. */
MANTA_API manta_array manta_array_of(manta_dtype t, int ndim, const int64_t *shape, void *data);

/* Number of elements (1 for ndim 0). */
MANTA_API int64_t manta_array_count(const manta_array *a);

/* Bytes that a row-major array of a's shape takes. */
MANTA_API size_t manta_array_bytes(const manta_array *a);

/* Whether elements lie row-major without gaps. */
MANTA_API bool manta_array_is_contiguous(const manta_array *a);

/* Writes "(60000, 28, 28)" into buf, cut to fit; returns buf. */
MANTA_API char *manta_shape_text(int ndim, const int64_t *shape, char *buf, size_t size);

#ifdef __cplusplus
}
#endif
#endif
