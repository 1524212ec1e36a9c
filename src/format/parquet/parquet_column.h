/* parquet_column.h - one leaf of one row group, from pages to values.
 *
 * A chunk is a dictionary page, perhaps, and data pages: levels, then values,
 * plain or as indices into the dictionary.
 *
 *     page v1   header | packed( u32 n, repetition | u32 n, definition | values )
 *     page v2   header | repetition | definition | packed( values )
 *
 * Read: encodings PLAIN, RLE and RLE_DICTIONARY (PLAIN_DICTIONARY, as it was
 * called), at most one list, the codecs of parquet_codec.h. All else is refused
 * by its name. */
#ifndef FORMAT_PARQUET_PARQUET_COLUMN_H
#define FORMAT_PARQUET_PARQUET_COLUMN_H

#include <manta/array.h>

#include "format/parquet/parquet_meta.h"

/* The values of a leaf, row after row. */
typedef struct parquet_values {
    int64_t rows;
    int64_t length; /* values of each row: 1 without a list; -1: a list without rows */
    size_t n; /* values */
    void *data; /* numbers, or the bytes of all rows behind one another; owned */
    uint64_t *offsets; /* n + 1 places in data for BYTE_ARRAY and FIXED, else NULL; owned */
    uint8_t *present; /* parquet_cells_read() of bytes: 0 for each that is null; owned */
    size_t data_size, offsets_size, present_size; /* allocated, in bytes */
} parquet_values;

/* What numbers of that leaf become by themselves: u8, i32, i64 or f32.
 * MANTA_DTYPE_COUNT when they are bytes. MANTA_EUNSUPPORTED, naming `path`,
 * column and type, when they are neither, or lists in lists. */
manta_status parquet_leaf_dtype(const char *path, const parquet_leaf *leaf, manta_dtype *out);

/* Reads leaf number `leaf` of row group `group`; numbers as `as`, which is f32
 * or i64 or what parquet_leaf_dtype() says. A null is NaN where `as` is f32
 * and allow_nan is set, and refused otherwise, as NaN itself is.
 * *out: owned, untouched on failure. MANTA_ECORRUPT, MANTA_EUNSUPPORTED,
 * MANTA_ENAN, MANTA_EINVAL (lists of different lengths), MANTA_ENOMEM. */
manta_status parquet_column_read(const seek_file *f, const parquet_meta *m, int group, int leaf,
                                 manta_dtype as, bool allow_nan, parquet_values *out);

/* Whether a leaf is one value a row of a kind that a table has: a number, text, a day or a time. */
bool parquet_leaf_is_cell(const parquet_leaf *leaf);

/* Reads a leaf as the cells of a table: numbers, days and times as f64, NaN for null; text and
 * bytes with `present`. For what parquet_leaf_is_cell() says. Fails as parquet_column_read()
 * does, but for nulls. */
manta_status parquet_cells_read(const seek_file *f, const parquet_meta *m, int group, int leaf,
                                parquet_values *out);

void parquet_values_release(parquet_values *v); /* accepts zeroed memory */

#endif
