/* proto.c - Protocol Buffers on the wire. */
#include "format/codec/proto.h"

#include "base/mem.h"

bool proto_take_long_varint(proto_reader *r, uint64_t *out)
{
    const uint8_t *p = r->at;
    uint64_t v = 0;

    for (int shift = 0; shift < 70 && p < r->end; shift += 7) {
        uint64_t low = *p & 0x7f;
        if (shift == 63 && low > 1) return false;
        v |= low << shift;
        if (*p++ < 0x80) {
            r->at = p;
            *out = v;
            return true;
        }
    }
    return false;
}

static bool take_fixed(proto_reader *r, size_t n, uint64_t *out)
{
    uint64_t v = 0;

    if ((size_t)(r->end - r->at) < n) return false;
    for (size_t i = 0; i < n; i++) v |= (uint64_t)r->at[i] << 8 * i;
    r->at += n;
    *out = v;
    return true;
}

proto_step proto_next(proto_reader *r, proto_field *f)
{
    uint64_t tag, n;

    if (r->at == r->end) return PROTO_END;
    if (!proto_take_varint(r, &tag) || tag >> 3 == 0 || tag >> 3 > 0x1fffffff) return PROTO_BAD;
    *f = (proto_field){.number = (uint32_t)(tag >> 3), .wire = (proto_wire)(tag & 7)};
    switch (f->wire) {
    case PROTO_VARINT: return proto_take_varint(r, &f->value) ? PROTO_FIELD : PROTO_BAD;
    case PROTO_FIXED64: return take_fixed(r, 8, &f->value) ? PROTO_FIELD : PROTO_BAD;
    case PROTO_FIXED32: return take_fixed(r, 4, &f->value) ? PROTO_FIELD : PROTO_BAD;
    case PROTO_BYTES:
        if (!proto_take_varint(r, &n) || n > (uint64_t)(r->end - r->at)) return PROTO_BAD;
        f->at = r->at;
        f->n = (size_t)n;
        r->at += n;
        return PROTO_FIELD;
    }
    return PROTO_BAD; /* groups, which nobody has written for twenty years */
}

char *proto_take_text(const proto_field *f)
{
    return f->wire == PROTO_BYTES && f->n ? mem_strndup((const char *)f->at, f->n) : mem_strdup("");
}

/* ---- writing ----------------------------------------------------------------- */

static size_t encode_varint(uint64_t v, uint8_t out[10])
{
    size_t n = 0;

    for (; v >= 0x80; v >>= 7) out[n++] = (uint8_t)(v | 0x80);
    out[n++] = (uint8_t)v;
    return n;
}

void proto_add_varint(buf *b, uint64_t v)
{
    uint8_t bytes[10];

    buf_add(b, bytes, encode_varint(v, bytes));
}

void proto_add_tag(buf *b, uint32_t number, proto_wire wire)
{
    proto_add_varint(b, (uint64_t)number << 3 | (uint64_t)wire);
}

void proto_add_int(buf *b, uint32_t number, int64_t v)
{
    proto_add_tag(b, number, PROTO_VARINT);
    proto_add_varint(b, (uint64_t)v);
}

static void add_little_endian(buf *b, uint64_t v, int n)
{
    for (int i = 0; i < n; i++) buf_add_char(b, (char)(v >> 8 * i & 0xff));
}

void proto_add_fixed32(buf *b, uint32_t number, uint32_t v)
{
    proto_add_tag(b, number, PROTO_FIXED32);
    add_little_endian(b, v, 4);
}

void proto_add_float(buf *b, uint32_t number, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof bits);
    proto_add_fixed32(b, number, bits);
}

void proto_add_double(buf *b, uint32_t number, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof bits);
    proto_add_tag(b, number, PROTO_FIXED64);
    add_little_endian(b, bits, 8);
}

void proto_add_bytes(buf *b, uint32_t number, const void *data, size_t n)
{
    proto_add_tag(b, number, PROTO_BYTES);
    proto_add_varint(b, n);
    buf_add(b, data, n);
}

void proto_add_text(buf *b, uint32_t number, const char *text)
{
    proto_add_bytes(b, number, text, strlen(text));
}

size_t proto_begin(buf *b, uint32_t number)
{
    proto_add_tag(b, number, PROTO_BYTES);
    return b->n;
}

/* The length comes before the message and is known after it: the message
 * moves up to make room. Messages here are small, or the innermost. */
void proto_end(buf *b, size_t mark)
{
    uint8_t length[10];
    size_t inside = b->n - mark, n = encode_varint(inside, length);

    buf_add(b, length, n); /* grows by n; what it wrote is overwritten or moved into place */
    memmove(b->at + mark + n, b->at + mark, inside);
    memcpy(b->at + mark, length, n);
}
