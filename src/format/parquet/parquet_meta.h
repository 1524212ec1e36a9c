/* parquet_meta.h - what a Parquet file says of itself in its footer.
 *
 *     PAR1  column chunks of row group 0, 1, ...  FileMetaData  u32 length  PAR1
 *
 * The schema is a tree in pre-order; only its leaves have values. A value comes
 * with two small numbers: the definition level (how many of its optional and
 * repeated ancestors are there) and the repetition level (at which list it goes
 * on; 0 begins a row). We read leaves with at most one list above them. */
#ifndef FORMAT_PARQUET_PARQUET_META_H
#define FORMAT_PARQUET_PARQUET_META_H

#include <stdbool.h>

#include "format/codec/seek.h"

/* Numbers of the format. */
enum {
    PARQUET_BOOLEAN = 0,
    PARQUET_INT32 = 1,
    PARQUET_INT64 = 2,
    PARQUET_INT96 = 3,
    PARQUET_FLOAT = 4,
    PARQUET_DOUBLE = 5,
    PARQUET_BYTE_ARRAY = 6,
    PARQUET_FIXED = 7
};

/* What the numbers of a leaf mean, out of its converted or logical type. */
typedef enum parquet_meaning {
    PARQUET_PLAIN_VALUE, /* the value is what the physical type says; bytes are bytes */
    PARQUET_SIGNED, /* an integer of `bits` bits */
    PARQUET_UNSIGNED,
    PARQUET_HALF, /* FLOAT16 in a FIXED of 2 */
    PARQUET_OTHER /* text, decimals, dates, ...: no number to compute with */
} parquet_meaning;

/* What the whole numbers of a PARQUET_OTHER leaf count, when it is a day or a point in time. */
typedef enum parquet_time {
    PARQUET_NO_TIME = 0,
    PARQUET_DAYS, /* since 1970-01-01, as all of these */
    PARQUET_MILLISECONDS,
    PARQUET_MICROSECONDS,
    PARQUET_NANOSECONDS
} parquet_time;

typedef struct parquet_leaf {
    char *name; /* the path, joined with dots, a list's two inner steps left out; owned */
    int type;
    int width; /* bytes of one value of PARQUET_FIXED */
    parquet_meaning meaning;
    int bits;
    const char *other; /* PARQUET_OTHER: what it is; static */
    parquet_time time; /* PARQUET_OTHER: a day or a point in time */
    bool text; /* PARQUET_OTHER: UTF-8, by what the schema says */
    int max_def, max_rep; /* max_rep above 1: lists in lists, which nobody reads */
    int list_def; /* definition level from which on a list's element is there; 0 without a list */
} parquet_leaf;

/* A leaf's values within a row group. */
typedef struct parquet_chunk {
    uint64_t at, size; /* lies inside the file */
    int64_t values; /* number of values, those that are null included */
    int codec;
    const char *refused; /* why the chunk cannot be read, or NULL; static */
} parquet_chunk;

typedef struct parquet_group {
    int64_t first, rows; /* `first`: of the file */
    parquet_chunk *chunks; /* one per leaf; owned */
} parquet_group;

typedef struct parquet_meta {
    int64_t rows;
    int n_leaves, n_groups;
    parquet_leaf *leaves;
    parquet_group *groups;
} parquet_meta;

/* Reads the footer. MANTA_ECORRUPT, with the offset; MANTA_EUNSUPPORTED an
 * encrypted file. *out untouched on failure. */
manta_status parquet_meta_read(const seek_file *f, parquet_meta *out);
void parquet_meta_release(parquet_meta *m); /* accepts zeroed memory */

const char *parquet_type_name(int type); /* "INT32", ...; "?" for none */

#endif
