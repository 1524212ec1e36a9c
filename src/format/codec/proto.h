/* proto.h - Protocol Buffers on the wire: fields out of bytes, bytes out of
 * fields. No schema and no library: each format that uses it names the field
 * numbers it knows beside the code that reads them.
 *
 * Reading is pure and bounded: a reader is two pointers, a field points into
 * the same bytes, and nothing is allocated. Unknown fields are simply not
 * asked for, as the format wants it. Writing appends to a buf. */
#ifndef FORMAT_CODEC_PROTO_H
#define FORMAT_CODEC_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"

typedef enum proto_wire {
    PROTO_VARINT = 0,
    PROTO_FIXED64 = 1,
    PROTO_BYTES = 2, /* text, bytes, messages, packed numbers */
    PROTO_FIXED32 = 5
} proto_wire;

typedef struct proto_reader {
    const uint8_t *at, *end;
} proto_reader;

typedef struct proto_field {
    uint32_t number; /* 1 or more */
    proto_wire wire;
    uint64_t value; /* the number, for every kind but PROTO_BYTES */
    const uint8_t *at; /* PROTO_BYTES: where they lie */
    size_t n;
} proto_field;

typedef enum proto_step {
    PROTO_FIELD, /* there is one */
    PROTO_END, /* the message ends here, as it should */
    PROTO_BAD /* cut off, a number of more than 64 bits, field 0 or a group */
} proto_step;

static inline proto_reader proto_read(const void *data, size_t n)
{
    const uint8_t *at = data;

    return (proto_reader){at, n ? at + n : at};
}

/* The message inside a field. */
static inline proto_reader proto_inside(const proto_field *f)
{
    return proto_read(f->at, f->wire == PROTO_BYTES ? f->n : 0);
}

/* Takes one varint off; false when it is cut off or longer than 64 bits. The
 * first byte alone is by far the most frequent case. */
bool proto_take_long_varint(proto_reader *r, uint64_t *out);
static inline bool proto_take_varint(proto_reader *r, uint64_t *out)
{
    if (r->at < r->end && *r->at < 0x80) {
        *out = *r->at++;
        return true;
    }
    return proto_take_long_varint(r, out);
}

/* Takes one field off. */
proto_step proto_next(proto_reader *r, proto_field *f);

/* The numbers in a field, by what its number is declared as. */
static inline double proto_double(const proto_field *f)
{
    double v;

    memcpy(&v, &f->value, sizeof v);
    return v;
}

static inline float proto_float(const proto_field *f)
{
    uint32_t bits = (uint32_t)f->value;
    float v;

    memcpy(&v, &bits, sizeof v);
    return v;
}

static inline bool proto_is_text(const proto_field *f, const char *text)
{
    return f->wire == PROTO_BYTES && f->n == strlen(text) && memcmp(f->at, text, f->n) == 0;
}

/* The bytes of a field as text of one's own (mem_free); what is no printable
 * UTF-8 or ASCII is for whoever shows it. A zero byte ends it. */
char *proto_take_text(const proto_field *f);

/* ---- writing ----------------------------------------------------------------- */

void proto_add_varint(buf *b, uint64_t v); /* bare */
void proto_add_tag(buf *b, uint32_t number, proto_wire wire);

void proto_add_int(buf *b, uint32_t number, int64_t v); /* int32, int64, enum, bool */
void proto_add_float(buf *b, uint32_t number, float v);
void proto_add_double(buf *b, uint32_t number, double v);
void proto_add_fixed32(buf *b, uint32_t number, uint32_t v);
void proto_add_bytes(buf *b, uint32_t number, const void *data, size_t n);
void proto_add_text(buf *b, uint32_t number, const char *text);

/* A message inside: what is added between the two lies in field `number`.
 *
 *     size_t m = proto_begin(b, 5);
 *     proto_add_text(b, 1, "loss");
 *     proto_end(b, m);
 */
size_t proto_begin(buf *b, uint32_t number);
void proto_end(buf *b, size_t mark);

#endif
