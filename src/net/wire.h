/* wire.h - the bytes of messages. Pure: bytes in, values out, and back.
 *
 * Numbers are little-endian and aligned to nothing; a text or a block of bytes
 * is its length and its bytes. A reader never leaves its bytes, whatever they
 * say: after the first field that does not fit, it is broken, every later
 * field reads as zero or empty, and wire_end() says so. So a message is
 * decoded field by field and checked once. */
#ifndef NET_WIRE_H
#define NET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "base/status.h"

static inline void wire_put_u8(buf *b, uint8_t x)
{
    buf_add(b, &x, 1);
}

static inline void wire_put_u32(buf *b, uint32_t x)
{
    buf_add(b, &x, 4);
}

static inline void wire_put_u64(buf *b, uint64_t x)
{
    buf_add(b, &x, 8);
}

static inline void wire_put_i64(buf *b, int64_t x)
{
    buf_add(b, &x, 8);
}

void wire_put_bytes(buf *b, const void *data, size_t n);
void wire_put_text(buf *b, const char *s); /* NULL as "" */

typedef struct wire {
    const unsigned char *at, *end;
    bool broken;
} wire;

static inline wire wire_of(const void *data, size_t n)
{
    return (wire){.at = data, .end = (const unsigned char *)data + n, .broken = false};
}

/* The next n bytes, borrowed from the message; NULL when it has fewer. */
static inline const void *wire_take(wire *w, size_t n)
{
    if (w->broken || n > (size_t)(w->end - w->at)) {
        w->broken = true;
        return NULL;
    }
    const void *p = w->at;
    w->at += n;
    return p;
}

static inline uint8_t wire_u8(wire *w)
{
    const uint8_t *p = wire_take(w, 1);

    return p ? *p : 0;
}

static inline uint32_t wire_u32(wire *w)
{
    uint32_t x = 0;
    const void *p = wire_take(w, 4);

    if (p) memcpy(&x, p, 4);
    return x;
}

static inline uint64_t wire_u64(wire *w)
{
    uint64_t x = 0;
    const void *p = wire_take(w, 8);

    if (p) memcpy(&x, p, 8);
    return x;
}

static inline int64_t wire_i64(wire *w)
{
    return (int64_t)wire_u64(w);
}

/* A block of bytes, borrowed; *n is 0 when the message is broken. */
const void *wire_bytes(wire *w, size_t *n);

/* A text into memory of the caller, always terminated; one that is too long,
 * or has a zero inside, breaks the message. */
void wire_text(wire *w, char *text, size_t size);

/* MANTA_ECORRUPT, naming `what`, unless every field fitted and nothing is left. */
manta_status wire_end(const wire *w, const char *what) MANTA_MUST_USE;

#endif
