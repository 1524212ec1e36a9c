/* parquet_page.h - the pages of a column chunk: heads read, bodies unpacked. */
#ifndef FORMAT_PARQUET_PARQUET_PAGE_H
#define FORMAT_PARQUET_PARQUET_PAGE_H

#include "format/parquet/parquet_meta.h"

/* Encodings. */
enum {
    PARQUET_ENCODING_PLAIN = 0,
    PARQUET_ENCODING_PLAIN_DICTIONARY = 2,
    PARQUET_ENCODING_RLE = 3,
    PARQUET_ENCODING_RLE_DICTIONARY = 8
};

typedef enum parquet_page_kind {
    PARQUET_PAGE_DATA,
    PARQUET_PAGE_DICTIONARY,
    PARQUET_PAGE_OTHER
} parquet_page_kind;

typedef struct parquet_page {
    uint64_t offset; /* offset of the page's head in the file */
    parquet_page_kind kind;
    int64_t values; /* number of values, those that are null included */
    int encoding;
    /* Borrowed: until the next page. A level's bytes are NULL when the column has none. */
    const uint8_t *repetition, *definition, *data;
    size_t repetition_size, definition_size, size;
} parquet_page;

typedef struct parquet_pages {
    const seek_file *f;
    const parquet_leaf *leaf;
    const parquet_chunk *chunk;
    uint8_t *packed; /* the chunk; owned */
    size_t at;
    uint8_t *body; /* the current page, unpacked; owned */
    size_t body_size; /* allocated */
} parquet_pages;

/* Reads the chunk. MANTA_EUNSUPPORTED its codec; MANTA_ENOMEM. */
manta_status parquet_pages_open(const seek_file *f, const parquet_leaf *leaf, const parquet_chunk *chunk,
                                parquet_pages *out);

/* The next page. MANTA_ECORRUPT, also when there is none any more. */
manta_status parquet_pages_next(parquet_pages *p, parquet_page *page);

void parquet_pages_close(parquet_pages *p); /* accepts zeroed memory */

/* Fails with file, column and offset of the page before the words. */
manta_status parquet_page_fail(const parquet_pages *p, const parquet_page *page, manta_status code,
                               const char *fmt, ...) MANTA_PRINTF(4, 5);

const char *parquet_encoding_name(int encoding); /* "?" for none */

/* Makes room for `need` bytes at *p, the first `keep` of which stay. */
manta_status parquet_grow(void *p, size_t *size, size_t need, size_t keep);

#endif
