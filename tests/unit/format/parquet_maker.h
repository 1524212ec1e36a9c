/* parquet_maker.h - a Parquet file of one column, "v", right or wrong in one place. */
#ifndef TEST_PARQUET_MAKER_H
#define TEST_PARQUET_MAKER_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A member left zero takes the value that makes the file right. */
typedef struct maker {
    int type, chunk_type, repetition, converted, codec, encoding, level_encoding;
    int64_t rows, file_rows, values, chunk_values;
    const void *data; /* of the one page, as it lies in the file */
    size_t data_size;
    int64_t unpacked, packed, crc, chunk_at, chunk_size;
    bool external, encrypted;
    const char *magic;
    uint8_t bytes[4096];
    size_t n;
} maker;

static inline void maker_byte(maker *m, int b)
{
    m->bytes[m->n++] = (uint8_t)b;
}

static inline void maker_int(maker *m, int64_t v)
{
    uint64_t z = (uint64_t)v << 1 ^ (uint64_t)(v >> 63);

    for (; z > 127; z >>= 7) maker_byte(m, (int)(z & 127) | 128);
    maker_byte(m, (int)z);
}

/* A field `step` after the last, of type i32 or i64. */
static inline void maker_field(maker *m, int step, int type, int64_t v)
{
    maker_byte(m, step << 4 | type);
    maker_int(m, v);
}

static inline void maker_text(maker *m, int step, const char *text)
{
    maker_byte(m, step << 4 | 8);
    maker_byte(m, (int)strlen(text));
    for (; *text; text++) maker_byte(m, *text);
}

static inline void maker_page(maker *m)
{
    maker_field(m, 1, 5, 0);
    maker_field(m, 1, 5, m->unpacked ? m->unpacked : (int64_t)m->data_size);
    maker_field(m, 1, 5, m->packed ? m->packed : (int64_t)m->data_size);
    if (m->crc) maker_field(m, 1, 5, m->crc);
    maker_byte(m, (m->crc ? 1 : 2) << 4 | 12); /* 5: DataPageHeader */
    maker_field(m, 1, 5, m->values);
    maker_field(m, 1, 5, m->encoding);
    maker_field(m, 1, 5, m->level_encoding ? m->level_encoding : 3);
    maker_field(m, 1, 5, m->level_encoding ? m->level_encoding : 3);
    maker_byte(m, 0);
    maker_byte(m, 0);
    memcpy(m->bytes + m->n, m->data, m->data_size);
    m->n += m->data_size;
}

static inline void maker_footer(maker *m, int64_t at, int64_t size)
{
    maker_field(m, 1, 5, 1);
    maker_byte(m, 0x19); /* 2: schema */
    maker_byte(m, 0x2c);
    maker_text(m, 4, "root");
    maker_field(m, 1, 5, 1);
    maker_byte(m, 0);
    maker_field(m, 1, 5, m->type);
    maker_field(m, 2, 5, m->repetition);
    maker_text(m, 1, "v");
    if (m->converted) maker_field(m, 2, 5, m->converted);
    maker_byte(m, 0);
    maker_field(m, 1, 6, m->file_rows ? m->file_rows : m->rows);
    maker_byte(m, 0x19); /* 4: row groups */
    maker_byte(m, 0x1c);
    maker_byte(m, 0x19); /* 1: columns */
    maker_byte(m, 0x1c);
    if (m->external) maker_text(m, 1, "elsewhere");
    maker_byte(m, (m->external ? 2 : 3) << 4 | 12); /* 3: ColumnMetaData */
    maker_field(m, 1, 5, m->chunk_type ? m->chunk_type : m->type);
    maker_field(m, 3, 5, m->codec);
    maker_field(m, 1, 6, m->chunk_values ? m->chunk_values : m->values);
    maker_field(m, 2, 6, m->chunk_size ? m->chunk_size : size);
    maker_field(m, 2, 6, m->chunk_at ? m->chunk_at : at);
    maker_byte(m, 0);
    if (m->encrypted) {
        maker_byte(m, 5 << 4 | 12);
        maker_byte(m, 0);
    }
    maker_byte(m, 0);
    maker_field(m, 2, 6, m->rows);
    maker_byte(m, 0);
    maker_byte(m, 0);
}

/* The bytes of the file; they live as long as m. */
static inline const uint8_t *maker_end(maker *m, size_t *size)
{
    memcpy(m->bytes, "PAR1", 4);
    m->n = 4;
    maker_page(m);
    size_t footer = m->n;
    maker_footer(m, 4, (int64_t)footer - 4);
    uint32_t n = (uint32_t)(m->n - footer);
    for (int i = 0; i < 4; i++) maker_byte(m, (int)(n >> (8 * i) & 255));
    memcpy(m->bytes + m->n, m->magic ? m->magic : "PAR1", 4);
    *size = m->n + 4;
    return m->bytes;
}

#endif
