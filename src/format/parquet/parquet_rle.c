/* parquet_rle.c - small numbers as runs. */
#include <string.h>

#include "format/parquet/parquet_rle.h"

static bool take_head(parquet_rle *r, uint64_t *out)
{
    uint64_t v = 0;

    for (int shift = 0; shift < 35 && r->at < r->end; shift += 7) {
        uint8_t b = *r->at++;
        v |= (uint64_t)(b & 0x7f) << shift;
        if (b & 0x80) continue;
        *out = v;
        return true;
    }
    return false;
}

static bool begin_packed(parquet_rle *r, uint64_t groups)
{
    uint64_t there = (uint64_t)(r->end - r->at);

    /* Some writers cut the last group's padding off. */
    if (r->width && groups > (there + (uint64_t)r->width - 1) / (uint64_t)r->width) return false;
    r->packed = true;
    r->left = groups * 8;
    r->bit = 0;
    if (r->width && r->left > there * 8 / (uint64_t)r->width) r->left = there * 8 / (uint64_t)r->width;
    return true;
}

static bool begin_repeated(parquet_rle *r, uint64_t n)
{
    size_t bytes = (size_t)(r->width + 7) / 8;

    if ((size_t)(r->end - r->at) < bytes) return false;
    r->packed = false;
    r->left = n;
    r->value = 0;
    for (size_t i = 0; i < bytes; i++) r->value |= (uint32_t)*r->at++ << (8 * i);
    return r->width == 32 || r->value >> r->width == 0;
}

/* A run that is over gives way to the next one. An empty run takes a byte, so
 * that this ends. */
static bool refill_run(parquet_rle *r)
{
    uint64_t head;

    while (r->left == 0) {
        if (r->packed) r->at += (r->bit + 7) / 8;
        r->packed = false;
        if (!take_head(r, &head)) return false;
        if (!(head & 1 ? begin_packed(r, head >> 1) : begin_repeated(r, head >> 1))) return false;
    }
    return true;
}

static uint64_t load_le(const uint8_t *p, const uint8_t *end)
{
    uint64_t v = 0;

    if (end - p >= 8) {
        memcpy(&v, p, 8); /* x86 and ARM are little-endian, as the file is */
    } else {
        for (int i = 0; p + i < end; i++) v |= (uint64_t)p[i] << (8 * i);
    }
    return v;
}

static inline uint32_t unpack_value(parquet_rle *r, uint32_t mask)
{
    uint64_t v = load_le(r->at + r->bit / 8, r->end) >> (r->bit & 7);

    r->bit += (uint64_t)r->width;
    return (uint32_t)v & mask;
}

bool parquet_rle_take(parquet_rle *r, uint32_t *out, size_t n)
{
    uint32_t mask = r->width == 32 ? UINT32_MAX : (1u << r->width) - 1;

    while (n > 0) {
        if (!refill_run(r)) return false;
        size_t k = r->left < n ? (size_t)r->left : n;
        if (r->packed) {
            for (size_t i = 0; i < k; i++) out[i] = unpack_value(r, mask);
        } else {
            for (size_t i = 0; i < k; i++) out[i] = r->value;
        }
        r->left -= k;
        out += k;
        n -= k;
    }
    return true;
}

bool parquet_rle_take_bytes(parquet_rle *r, uint8_t *out, size_t n)
{
    uint32_t mask = (1u << r->width) - 1;

    while (n > 0) {
        if (!refill_run(r)) return false;
        size_t k = r->left < n ? (size_t)r->left : n;
        if (r->packed) {
            for (size_t i = 0; i < k; i++) out[i] = (uint8_t)unpack_value(r, mask);
        } else {
            memset(out, (int)(uint8_t)r->value, k);
        }
        r->left -= k;
        out += k;
        n -= k;
    }
    return true;
}
