/* buf.h - bytes that grow at the end; also the way to build a string.
 *
 * b.at[0 .. b.n) are the bytes, and b.at[b.n] is always 0, so that text can be
 * handed to whoever wants a C string. A zeroed buf is empty and ready; its
 * `at` is NULL until something was added (buf_text() never returns NULL).
 *
 * Adding is for sizes that we choose: it ends the program when memory is gone.
 * For a size that a user, a file or a peer chose, call buf_try_reserve()
 * first; what then fits cannot fail. */
#ifndef BASE_BUF_H
#define BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

#include "base/status.h"

typedef struct buf {
    char *at;
    size_t n;
    size_t cap; /* bytes allocated, the terminator's included; 0 when `at` is NULL */
} buf;

/* Makes room for n more bytes. MANTA_ENOMEM, naming `what`: b is unchanged. */
manta_status buf_try_reserve(buf *b, size_t n, const char *what) MANTA_MUST_USE;

/* Makes room for n more bytes. */
void buf_reserve(buf *b, size_t n);

void buf_add(buf *b, const void *data, size_t n); /* data may be NULL when n is 0, and may lie inside b */
void buf_add_text(buf *b, const char *s);
void buf_add_char(buf *b, char c);
void buf_printf(buf *b, const char *fmt, ...) MANTA_PRINTF(2, 3);
void buf_vprintf(buf *b, const char *fmt, va_list ap) MANTA_PRINTF(2, 0);

/* The bytes as a C string; "" for an empty buf. Borrowed: until b changes. */
const char *buf_text(const buf *b);

/* Cuts to the first n bytes. n <= b->n. */
void buf_cut(buf *b, size_t n);

/* Moves the bytes out: the caller owns them (mem_free), b is empty. Never NULL. */
char *buf_take(buf *b);

void buf_release(buf *b); /* accepts a zeroed buf; leaves one */

#endif
