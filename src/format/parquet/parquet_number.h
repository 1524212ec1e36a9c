/* parquet_number.h - numbers as they lie in a page, as ours. */
#ifndef FORMAT_PARQUET_PARQUET_NUMBER_H
#define FORMAT_PARQUET_PARQUET_NUMBER_H

#include <manta/array.h>

#include "format/parquet/parquet_meta.h"

/* Little-endian numbers, wherever they lie. */
uint32_t parquet_le32(const uint8_t *p);
uint64_t parquet_le64(const uint8_t *p);

/* Bytes of one value as it is written; booleans have been spread to a byte. */
size_t parquet_physical_size(const parquet_leaf *leaf);

/* n values of a leaf, rounded to the nearest. */
void parquet_to_f32(const parquet_leaf *leaf, const uint8_t *from, size_t n, float *to);
void parquet_to_f64(const parquet_leaf *leaf, const uint8_t *from, size_t n, double *to);

/* n whole numbers as `as`, which is what parquet_leaf_dtype() said, or i64. Returns the place of the first
 * that does not fit, or n. */
size_t parquet_to_whole(const parquet_leaf *leaf, manta_dtype as, const uint8_t *from, size_t n, uint8_t *to);

#endif
