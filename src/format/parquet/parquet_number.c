/* parquet_number.c - numbers as they lie in a page, as ours. */
#include "format/parquet/parquet_number.h"

#include <string.h>

#include "base/half.h"

uint32_t parquet_le32(const uint8_t *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

uint64_t parquet_le64(const uint8_t *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

/* Bytes of one value as it is written; booleans have been spread to a byte. */
size_t parquet_physical_size(const parquet_leaf *leaf)
{
    switch (leaf->type) {
    case PARQUET_BOOLEAN: return 1;
    case PARQUET_INT32:
    case PARQUET_FLOAT: return 4;
    case PARQUET_FIXED: return (size_t)leaf->width;
    default: return 8;
    }
}

void parquet_to_f32(const parquet_leaf *leaf, const uint8_t *from, size_t n, float *to)
{
    bool u = leaf->meaning == PARQUET_UNSIGNED;

    switch (leaf->type) {
    case PARQUET_BOOLEAN:
        for (size_t i = 0; i < n; i++) to[i] = (float)from[i];
        break;
    case PARQUET_INT32:
        if (u) {
            for (size_t i = 0; i < n; i++) to[i] = (float)parquet_le32(from + 4 * i);
        } else {
            for (size_t i = 0; i < n; i++) to[i] = (float)(int32_t)parquet_le32(from + 4 * i);
        }
        break;
    case PARQUET_INT64:
        if (u) {
            for (size_t i = 0; i < n; i++) to[i] = (float)parquet_le64(from + 8 * i);
        } else {
            for (size_t i = 0; i < n; i++) to[i] = (float)(int64_t)parquet_le64(from + 8 * i);
        }
        break;
    case PARQUET_FLOAT:
        if (n) memcpy(to, from, n * 4);
        break;
    case PARQUET_DOUBLE:
        for (size_t i = 0; i < n; i++) {
            double d;
            memcpy(&d, from + 8 * i, 8);
            to[i] = (float)d;
        }
        break;
    default: /* FLOAT16 */
        for (size_t i = 0; i < n; i++) to[i] = f16_to_f32((uint16_t)(from[2 * i] | from[2 * i + 1] << 8));
    }
}

/* As f64, whatever the leaf means by its numbers. */
void parquet_to_f64(const parquet_leaf *leaf, const uint8_t *from, size_t n, double *to)
{
    bool u = leaf->meaning == PARQUET_UNSIGNED;
    float half;

    for (size_t i = 0; i < n; i++) {
        switch (leaf->type) {
        case PARQUET_BOOLEAN: to[i] = from[i]; break;
        case PARQUET_INT32:
            to[i] = u ? (double)parquet_le32(from + 4 * i) : (double)(int32_t)parquet_le32(from + 4 * i);
            break;
        case PARQUET_INT64:
            to[i] = u ? (double)parquet_le64(from + 8 * i) : (double)(int64_t)parquet_le64(from + 8 * i);
            break;
        case PARQUET_DOUBLE: memcpy(&to[i], from + 8 * i, 8); break;
        default: /* FLOAT, FLOAT16 */
            parquet_to_f32(leaf, from + i * parquet_physical_size(leaf), 1, &half);
            to[i] = (double)half;
        }
    }
}

static int64_t load_integer(const parquet_leaf *leaf, const uint8_t *from, size_t i)
{
    if (leaf->type == PARQUET_BOOLEAN) return from[i];
    if (leaf->type == PARQUET_INT64) return (int64_t)parquet_le64(from + 8 * i);
    uint32_t v = parquet_le32(from + 4 * i);
    return leaf->meaning == PARQUET_UNSIGNED ? (int64_t)v : (int64_t)(int32_t)v;
}

/* Which numbers fit where: `as` is what parquet_leaf_dtype() said, or i64. The
 * place of the first that does not, or n. */
size_t parquet_to_whole(const parquet_leaf *leaf, manta_dtype as, const uint8_t *from, size_t n, uint8_t *to)
{
    bool big = leaf->type == PARQUET_INT64 && leaf->meaning == PARQUET_UNSIGNED;

    for (size_t i = 0; i < n; i++) {
        int64_t v = load_integer(leaf, from, i);
        if (big && v < 0) return i;
        if (as == MANTA_DTYPE_I64) {
            memcpy(to + 8 * i, &v, 8);
        } else if (as == MANTA_DTYPE_I32) {
            int32_t k = (int32_t)v;
            if (k != v) return i;
            memcpy(to + 4 * i, &k, 4);
        } else {
            if (v < 0 || v > 255) return i;
            to[i] = (uint8_t)v;
        }
    }
    return n;
}
