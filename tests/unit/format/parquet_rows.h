/* parquet_rows.h - a Parquet file of rows: columns without nulls, plain and not packed, in row groups. */
#ifndef TEST_PARQUET_ROWS_H
#define TEST_PARQUET_ROWS_H

#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "format/parquet/parquet_meta.h"
#include "format/parquet/thrift.h"

typedef struct parquet_rows_column {
    const char *name;
    int type; /* PARQUET_FLOAT, PARQUET_INT64 or PARQUET_BYTE_ARRAY */
    const void *first; /* the value of row 0: a number, or a buf of bytes */
    size_t stride; /* bytes from there to the value of row 1 */
} parquet_rows_column;

/* ---- Thrift's compact protocol ---- */

static inline void rows_varint(buf *b, uint64_t v)
{
    for (; v > 127; v >>= 7) buf_add_char(b, (char)((v & 127) | 128));
    buf_add_char(b, (char)v);
}

/* A field `step` after the last. */
static inline void rows_field(buf *b, int step, thrift_type type)
{
    buf_add_char(b, (char)(step << 4 | (int)type));
}

static inline void rows_int(buf *b, int step, thrift_type type, int64_t v)
{
    rows_field(b, step, type);
    rows_varint(b, (uint64_t)v << 1 ^ (uint64_t)(v >> 63));
}

static inline void rows_text(buf *b, int step, const char *text)
{
    rows_field(b, step, THRIFT_BINARY);
    rows_varint(b, strlen(text));
    buf_add_text(b, text);
}

static inline void rows_list(buf *b, int step, size_t n)
{
    rows_field(b, step, THRIFT_LIST);
    buf_add_char(b, (char)((n < 15 ? n : 15) << 4 | THRIFT_STRUCT));
    if (n >= 15) rows_varint(b, n);
}

static inline void rows_end(buf *b)
{
    buf_add_char(b, 0);
}

/* ---- a page ---- */

static inline void rows_value(buf *b, const parquet_rows_column *c, int64_t row)
{
    const void *at = (const char *)c->first + (size_t)row * c->stride;
    const buf *bytes = at;
    uint32_t n;

    if (c->type == PARQUET_FLOAT) buf_add(b, at, sizeof(float));
    if (c->type == PARQUET_INT64) buf_add(b, at, sizeof(int64_t));
    if (c->type != PARQUET_BYTE_ARRAY) return;
    n = (uint32_t)bytes->n;
    buf_add(b, &n, sizeof n);
    buf_add(b, bytes->at, bytes->n);
}

static inline void rows_page(buf *b, const parquet_rows_column *c, int64_t from, int64_t to)
{
    buf values = {0};

    for (int64_t row = from; row < to; row++) rows_value(&values, c, row);
    rows_int(b, 1, THRIFT_I32, 0);
    rows_int(b, 1, THRIFT_I32, (int64_t)values.n);
    rows_int(b, 1, THRIFT_I32, (int64_t)values.n);
    rows_field(b, 2, THRIFT_STRUCT); /* 5: DataPageHeader */
    rows_int(b, 1, THRIFT_I32, to - from);
    rows_int(b, 1, THRIFT_I32, 0);
    rows_int(b, 1, THRIFT_I32, 3);
    rows_int(b, 1, THRIFT_I32, 3);
    rows_end(b);
    rows_end(b);
    buf_add(b, values.at, values.n);
    buf_release(&values);
}

/* ---- the footer ---- */

static inline void rows_schema(buf *b, int n, const parquet_rows_column *c)
{
    rows_list(b, 1, (size_t)n + 1);
    rows_text(b, 4, "root");
    rows_int(b, 1, THRIFT_I32, n);
    rows_end(b);
    for (int i = 0; i < n; i++) {
        rows_int(b, 1, THRIFT_I32, c[i].type);
        rows_int(b, 2, THRIFT_I32, 0);
        rows_text(b, 1, c[i].name);
        rows_end(b);
    }
}

/* A row group of `rows`, whose columns lie from at[0] to at[1], from there to at[2], and so on. */
static inline void rows_group(buf *b, int n, const parquet_rows_column *c, int64_t rows, const size_t *at)
{
    rows_list(b, 1, (size_t)n);
    for (int i = 0; i < n; i++) {
        rows_field(b, 3, THRIFT_STRUCT); /* ColumnMetaData */
        rows_int(b, 1, THRIFT_I32, c[i].type);
        rows_int(b, 3, THRIFT_I32, 0);
        rows_int(b, 1, THRIFT_I64, rows);
        rows_int(b, 2, THRIFT_I64, (int64_t)(at[i + 1] - at[i]));
        rows_int(b, 2, THRIFT_I64, (int64_t)at[i]);
        rows_end(b);
        rows_end(b);
    }
    rows_int(b, 2, THRIFT_I64, rows);
    rows_end(b);
}

/* The bytes of a file of `rows` in groups of up to `group` are added to b, which is empty. */
static inline void parquet_rows(buf *b, int n, const parquet_rows_column *c, int64_t rows, int64_t group)
{
    size_t n_groups = (size_t)((rows + group - 1) / group), footer, *at;
    uint32_t size;

    at = mem_new(n_groups * ((size_t)n + 1) * sizeof *at);
    buf_add_text(b, "PAR1");
    for (size_t g = 0; g < n_groups; g++) {
        int64_t from = (int64_t)g * group, to = from + group < rows ? from + group : rows;
        size_t *mine = at + g * ((size_t)n + 1);
        for (int i = 0; i < n; i++) {
            mine[i] = b->n;
            rows_page(b, &c[i], from, to);
        }
        mine[n] = b->n;
    }
    footer = b->n;
    rows_int(b, 1, THRIFT_I32, 1);
    rows_schema(b, n, c);
    rows_int(b, 1, THRIFT_I64, rows);
    rows_list(b, 1, n_groups);
    for (size_t g = 0; g < n_groups; g++) {
        int64_t from = (int64_t)g * group;
        rows_group(b, n, c, from + group < rows ? group : rows - from, at + g * ((size_t)n + 1));
    }
    rows_end(b);
    size = (uint32_t)(b->n - footer);
    buf_add(b, &size, sizeof size);
    buf_add_text(b, "PAR1");
    mem_free(at);
}

#endif
