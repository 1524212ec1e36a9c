/* csv_records.h - the records of a CSV file, one after the other, in bounded memory.
 *
 *     file    ...|a,"b ""c"" d",e\n|f,g,h\n|...
 *     block      ^record       ^fields point into the block        (moved to the front, and
 *                                                                   grown, when it is cut)
 *
 * Fields are quoted as RFC 4180 says: inside quotes delimiters and line ends are text, and a
 * quote is written twice. Lines end with \n, \r\n or \r; blank lines are passed over, and so is
 * a byte order mark at the beginning. */
#ifndef FORMAT_CSV_CSV_RECORDS_H
#define FORMAT_CSV_CSV_RECORDS_H

#include <stdbool.h>

#include "format/codec/seek.h"
#include "format/codec/sizes.h"

/* A record may have so many bytes: a quote that nobody closes does not fill memory. */
#define CSV_MOST_RECORD ((size_t)256 << 20)

typedef struct csv_field {
    const uint8_t *at; /* without the quotes around it, and with those inside written once */
    size_t n;
    bool quoted;
} csv_field;

typedef struct csv_records csv_records;

/* Opens the records of `f`, which it borrows. block: bytes to read at once, 0 for CSV_BLOCK. */
manta_status csv_records_open(const seek_file *f, char delimiter, size_t block,
                              csv_records **out) MANTA_MUST_USE;
void csv_records_free(csv_records *r); /* accepts NULL */

/* The next record: *n fields, borrowed until the next call, which begin in line *line (from
 * 1 on). MANTA_ECORRUPT, with line and field, a quote that is wrong or not closed. */
manta_status csv_records_next(csv_records *r, const csv_field **fields, int64_t *n, int64_t *line,
                              bool *end) MANTA_MUST_USE;
/* Goes back to the first record. */
void csv_records_rewind(csv_records *r);

#endif
