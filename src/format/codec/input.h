/* input.h - the bytes of a file, and arrays made of them. */
#ifndef FORMAT_CODEC_INPUT_H
#define FORMAT_CODEC_INPUT_H

#include <manta/array.h>

#include "base/status.h"

/* A whole regular file in memory. Files are read, not mapped: a mapping of a
 * file that someone cuts short ends the program instead of the call. */
typedef struct input {
    char *path; /* owned; what sentences call the file */
    uint8_t *data; /* owned, 64-byte aligned */
    size_t size;
} input;

/* Reads the file at `path`. MANTA_ENOENT nothing there, MANTA_EPERM, MANTA_EIO,
 * MANTA_ENOMEM. *out: give back with input_release(). */
manta_status input_read(const char *path, input *out);
void input_release(input *in); /* accepts zeroed memory */

/* An array with the memory it lies in. */
typedef struct blob {
    manta_array array;
    void *memory; /* owned, given back with mem_try_free() */
} blob;

void blob_release(blob *b); /* accepts zeroed memory */

/* The product of shape[0..ndim) and `size`; false when it overflows or a
 * dimension is negative. */
bool input_bytes(int ndim, const int64_t *shape, size_t size, size_t *out);

/* The place of the first NaN among n floating-point numbers, or -1. Other
 * dtypes have none. */
int64_t input_find_nan(const void *data, manta_dtype t, int64_t n);

/* Reverses the bytes of n elements of `size` bytes each. */
void input_swap(void *data, int64_t n, size_t size);

#endif
