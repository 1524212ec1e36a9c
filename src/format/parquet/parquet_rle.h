/* parquet_rle.h - small numbers as runs: the mixture of repeated and bit-packed
 * runs in which Parquet writes levels, dictionary indices and booleans.
 *
 *     varint h, h even: the value (whole bytes, little-endian) h/2 times
 *               h odd:  h/2 groups of 8 values of `width` bits each
 *
 * The last group may reach beyond the values that are meant. */
#ifndef FORMAT_PARQUET_PARQUET_RLE_H
#define FORMAT_PARQUET_PARQUET_RLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct parquet_rle {
    const uint8_t *at, *end;
    int width; /* bits, 0 to 32 */
    uint64_t left; /* values of the current run */
    bool packed;
    uint32_t value; /* the value of a repeated run */
    uint64_t bit; /* bit after `at` at which the next value of a packed run begins */
} parquet_rle;

static inline parquet_rle parquet_rle_of(const uint8_t *data, size_t n, int width)
{
    return (parquet_rle){.at = data, .end = data + n, .width = width};
}

/* Writes the next n values; false when the bytes hold fewer. */
bool parquet_rle_take(parquet_rle *r, uint32_t *out, size_t n);

/* Writes the low 8 bits of each of the next n values; false when the bytes hold fewer. */
bool parquet_rle_take_bytes(parquet_rle *r, uint8_t *out, size_t n);

#endif
