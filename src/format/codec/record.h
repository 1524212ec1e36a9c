/* record.h - the framing that TFRecord and TensorBoard event files share:
 *
 *   u64 n | u32 masked crc32c of those 8 bytes | n bytes | u32 masked crc32c of them
 *
 * all little endian. A record can be trusted once both sums agree; where one
 * does not, nothing says where the next record begins. */
#ifndef FORMAT_CODEC_RECORD_H
#define FORMAT_CODEC_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

enum { RECORD_HEAD = 12, RECORD_FOOT = 4 };

/* The sum as it is stored: rotated and shifted, so that the sum of bytes that
 * hold a sum is not a constant. */
uint32_t record_mask(uint32_t crc);
uint32_t record_sum(const void *data, size_t n); /* record_mask(crc32c(data)) */

/* Reads 12 bytes: true when the length's sum agrees. */
bool record_head(const uint8_t head[RECORD_HEAD], uint64_t *n);
/* Whether n bytes have the sum that follows them. */
bool record_whole(const uint8_t *data, size_t n);

/* Adds a record. */
void record_add(buf *b, const void *data, size_t n);

/* A record made in place: between the two calls its bytes are added to b. */
size_t record_begin(buf *b);
void record_end(buf *b, size_t mark);

/* ---- going through bytes in memory ---- */

typedef struct record_reader {
    const uint8_t *data;
    size_t size, at; /* at: offset of the next record */
} record_reader;

typedef enum record_step {
    RECORD_GIVEN,
    RECORD_END, /* after the last, where the bytes end too */
    RECORD_CUT, /* the bytes end within a record */
    RECORD_BAD_LENGTH, /* the sum of a length does not agree */
    RECORD_BAD_DATA /* the sum of the bytes does not agree */
} record_step;

/* The next record, in place. r->at stays where it is unless one is given. */
record_step record_next(record_reader *r, const uint8_t **data, size_t *n);

#endif
