/* thrift.h - Thrift's compact protocol, as much of it as a reader needs.
 *
 * No schema and no library: each format names the field numbers it knows beside
 * the code that reads them, and skips all others.
 *
 *     thrift_field f = {0};
 *     while (thrift_next(t, &f)) {
 *         switch (f.id) {
 *         case 1: version = thrift_int(t, &f); break;
 *         default: thrift_skip(t, f.type);
 *         }
 *     }
 *     if (t->wrong) ...
 *
 * The first thing that is wrong is latched: from then on nothing is read, every
 * number is 0, every list empty, and thrift_next() says false, so that one check
 * at the end serves a whole structure. Nothing is allocated; a claimed length is
 * compared with the bytes that are there. */
#ifndef FORMAT_PARQUET_THRIFT_H
#define FORMAT_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef enum thrift_type {
    THRIFT_STOP = 0,
    THRIFT_TRUE = 1, /* in a list: any bool */
    THRIFT_FALSE = 2,
    THRIFT_I8 = 3,
    THRIFT_I16 = 4,
    THRIFT_I32 = 5,
    THRIFT_I64 = 6,
    THRIFT_DOUBLE = 7,
    THRIFT_BINARY = 8,
    THRIFT_LIST = 9,
    THRIFT_SET = 10,
    THRIFT_MAP = 11,
    THRIFT_STRUCT = 12
} thrift_type;

/* How deep structures and lists may lie in one another. */
#define THRIFT_MAX_DEPTH 24

typedef struct thrift {
    const uint8_t *data;
    size_t at, size;
    const char *wrong; /* latched: what, at `at`; NULL while all is well */
    int depth;
} thrift;

/* A field of a structure. Zeroed before the first. */
typedef struct thrift_field {
    int32_t id;
    thrift_type type;
} thrift_field;

static inline thrift thrift_read(const void *data, size_t size)
{
    return (thrift){.data = data, .size = size};
}

/* The next field of the structure; false at its end. What it holds must be
 * taken or skipped before the next call. */
bool thrift_next(thrift *t, thrift_field *f);

/* What a field holds; another type than that latches. */
int64_t thrift_int(thrift *t, const thrift_field *f); /* i8, i16, i32, i64 */
bool thrift_bool(thrift *t, const thrift_field *f);
const uint8_t *thrift_binary(thrift *t, const thrift_field *f, size_t *n); /* borrowed; NULL when wrong */

/* The number of elements of the list that f is, all of type `of`. Read each
 * with the calls below, or thrift_next() for structures. */
size_t thrift_list(thrift *t, const thrift_field *f, thrift_type of);
int64_t thrift_list_int(thrift *t);
const uint8_t *thrift_list_binary(thrift *t, size_t *n);

/* Whether f is a structure, which thrift_next() then reads with a field of its own. */
bool thrift_struct(thrift *t, const thrift_field *f);

/* Passes over a value of that type. */
void thrift_skip(thrift *t, thrift_type type);

/* Latches `what`, unless something was wrong before. */
void thrift_wrong(thrift *t, const char *what);

#endif
