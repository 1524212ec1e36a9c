/* wire.c - see wire.h. */
#include "net/wire.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "numbers are copied as they lie in memory; a big-endian machine needs them swapped"
#endif

void wire_put_bytes(buf *b, const void *data, size_t n)
{
    wire_put_u64(b, n);
    buf_add(b, data, n);
}

void wire_put_text(buf *b, const char *s)
{
    wire_put_bytes(b, s ? s : "", s ? strlen(s) : 0);
}

const void *wire_bytes(wire *w, size_t *n)
{
    uint64_t size = wire_u64(w);
    const void *p = wire_take(w, (size_t)size);

    *n = p ? (size_t)size : 0;
    return p;
}

void wire_text(wire *w, char *text, size_t size)
{
    size_t n;
    const char *p = wire_bytes(w, &n);

    text[0] = 0;
    if (!p) return;
    if (n >= size || memchr(p, 0, n)) {
        w->broken = true;
        return;
    }
    memcpy(text, p, n);
    text[n] = 0;
}

manta_status wire_end(const wire *w, const char *what)
{
    if (w->broken) return manta_fail(MANTA_ECORRUPT, "%s: the message ends too early", what);
    if (w->at != w->end)
        return manta_fail(MANTA_ECORRUPT, "%s: the message has %zu bytes too many", what,
                          (size_t)(w->end - w->at));
    return MANTA_OK;
}
