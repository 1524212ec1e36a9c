/* record.c - framing of TFRecord and TensorBoard event files. */
#include "format/codec/record.h"

#include <string.h>

#include "base/crc32c.h"

uint32_t record_mask(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

uint32_t record_sum(const void *data, size_t n)
{
    return record_mask(crc32c(0, data, n));
}

static uint32_t get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void put_le(uint8_t *p, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) p[i] = (uint8_t)(v >> 8 * i);
}

bool record_head(const uint8_t head[RECORD_HEAD], uint64_t *n)
{
    if (record_sum(head, 8) != get_u32(head + 8)) return false;
    *n = get_u32(head) | (uint64_t)get_u32(head + 4) << 32;
    return true;
}

bool record_whole(const uint8_t *data, size_t n)
{
    return record_sum(data, n) == get_u32(data + n);
}

size_t record_begin(buf *b)
{
    static const uint8_t blank[RECORD_HEAD];

    buf_add(b, blank, sizeof blank);
    return b->n;
}

void record_end(buf *b, size_t mark)
{
    uint8_t *head = (uint8_t *)b->at + mark - RECORD_HEAD, foot[RECORD_FOOT];
    size_t n = b->n - mark;

    put_le(head, n, 8);
    put_le(head + 8, record_sum(head, 8), 4);
    put_le(foot, record_sum(b->at + mark, n), RECORD_FOOT);
    buf_add(b, foot, sizeof foot);
}

void record_add(buf *b, const void *data, size_t n)
{
    size_t mark = record_begin(b);

    buf_add(b, data, n);
    record_end(b, mark);
}

record_step record_next(record_reader *r, const uint8_t **data, size_t *n)
{
    size_t left = r->size - r->at;
    uint64_t length;

    if (left == 0) return RECORD_END;
    if (left < RECORD_HEAD) return RECORD_CUT;
    if (!record_head(r->data + r->at, &length)) return RECORD_BAD_LENGTH;
    left -= RECORD_HEAD;
    if (left < RECORD_FOOT || length > left - RECORD_FOOT) return RECORD_CUT;
    const uint8_t *at = r->data + r->at + RECORD_HEAD;
    if (!record_whole(at, (size_t)length)) return RECORD_BAD_DATA;
    *data = at;
    *n = (size_t)length;
    r->at += RECORD_HEAD + (size_t)length + RECORD_FOOT;
    return RECORD_GIVEN;
}
