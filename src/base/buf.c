/* buf.c - growth by half, at least; one byte is always kept for the terminator. */
#include "base/buf.h"

#include <assert.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

/* The capacity to ask for so that n more bytes fit; 0 when no size would do. */
static size_t grown_size(const buf *b, size_t n)
{
    size_t need, half;

    if (__builtin_add_overflow(b->n, n, &need) || __builtin_add_overflow(need, (size_t)1, &need)) return 0;
    half = b->cap + b->cap / 2;
    if (half < 32) half = 32;
    return need > half ? need : half;
}

static int has_room(const buf *b, size_t n)
{
    return b->cap > b->n && b->cap - b->n > n;
}

manta_status buf_try_reserve(buf *b, size_t n, const char *what)
{
    if (has_room(b, n)) return MANTA_OK;
    size_t cap = grown_size(b, n);
    char *at = cap ? mem_try_raw(cap) : NULL;
    if (!at) return manta_fail(MANTA_ENOMEM, "%s: no memory for %zu more bytes after %zu", what, n, b->n);
    if (b->n > 0) memcpy(at, b->at, b->n);
    at[b->n] = 0;
    mem_free(b->at);
    b->at = at;
    b->cap = cap;
    return MANTA_OK;
}

void buf_reserve(buf *b, size_t n)
{
    if (has_room(b, n)) return;
    size_t cap = grown_size(b, n);
    assert(cap > 0);
    b->at = mem_resize(b->at, cap);
    b->cap = cap;
    b->at[b->n] = 0;
}

void buf_add(buf *b, const void *data, size_t n)
{
    if (n == 0) return;
    uintptr_t from = (uintptr_t)data, at = (uintptr_t)b->at;
    int inside = b->at && from >= at && from < at + b->n;
    buf_reserve(b, n);
    assert(b->at);
    if (inside) data = b->at + (from - at); /* b's own bytes may have moved */
    memmove(b->at + b->n, data, n);
    b->n += n;
    b->at[b->n] = 0;
}

void buf_add_text(buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_add_char(buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_vprintf(buf *b, const char *fmt, va_list ap)
{
    va_list again;

    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    assert(n >= 0);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->at + b->n, (size_t)n + 1, fmt, again);
    va_end(again);
    b->n += (size_t)n;
}

void buf_printf(buf *b, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

const char *buf_text(const buf *b)
{
    return b->at ? b->at : "";
}

void buf_cut(buf *b, size_t n)
{
    assert(n <= b->n);
    b->n = n;
    if (b->at) b->at[n] = 0;
}

char *buf_take(buf *b)
{
    buf_reserve(b, 0);
    char *at = b->at;
    *b = (buf){0};
    return at;
}

void buf_release(buf *b)
{
    mem_free(b->at);
    *b = (buf){0};
}
