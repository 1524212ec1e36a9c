/* idx.h - IDX files, the format of MNIST, plain or gzip.
 *
 *   0   0   type  ndim | ndim x u32, big endian | elements, big endian
 *
 * Types: 08 u8, 09 i8, 0B i16, 0C i32, 0D f32, 0E f64. i8 and i16 have no
 * dtype of ours and become i32. */
#ifndef FORMAT_ARRAY_IDX_H
#define FORMAT_ARRAY_IDX_H

#include "format/codec/input.h"

/* A file whose header has been read and believed, and whose memory is there. */
typedef struct idx_file {
    input in;
    bool gzip;
    bool allow_nan;
    uint8_t type; /* the type's number in the file */
    size_t header; /* bytes before the elements */
    size_t payload; /* bytes of the elements, as in the file */
    manta_array array; /* data points to where idx_finish() puts the elements */
    uint8_t *raw; /* owned: the unpacked file; NULL when in.data is it */
    void *converted; /* owned: elements of ours, when they differ from the file's */
} idx_file;

/* Takes `in` in every case. *out untouched on failure.
 * MANTA_ECORRUPT no IDX file, or sizes that cannot be. */
manta_status idx_begin(input *in, idx_file *out);

/* Unpacks and converts the elements; the slow half, may run on another thread. */
manta_status idx_finish(idx_file *f);

void idx_release(idx_file *f); /* accepts zeroed memory */

/* Whether bytes look like an IDX file, plain or gzip. */
bool idx_is(const uint8_t *data, size_t size);

#endif
