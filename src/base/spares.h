/* base/spares.h - blocks of one size that come and go all the time: the last ones given back
 * are the next ones taken, without a way through the allocator.
 *
 *     spares s = {0};
 *     thing *t = spares_take(&s, sizeof *t);
 *     spares_give(&s, t);
 *     spares_release(&s);
 *
 * At most SPARES blocks are kept. Under the address sanitizer none is, so that it sees every use
 * of a block that was given back. Threads: one at a time. */
#ifndef BASE_SPARES_H
#define BASE_SPARES_H

#include <stddef.h>
#include <string.h>

#include "base/mem.h"

#if defined(__SANITIZE_ADDRESS__)
enum { SPARES = 0 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
enum { SPARES = 0 };
#else
enum { SPARES = 1024 };
#endif
#else
enum { SPARES = 1024 };
#endif

typedef struct spare {
    struct spare *next;
} spare;

typedef struct spares {
    spare *first;
    int n;
} spares;

/* Delivers a zeroed block. `size` is the same in all calls for one *s, and has room for a
 * pointer. */
static inline void *spares_take(spares *s, size_t size)
{
    spare *b = s->first;

    if (!b) return mem_new(size);
    s->first = b->next;
    s->n--;
    return memset(b, 0, size);
}

/* Takes a block back; NULL is not one. */
static inline void spares_give(spares *s, void *block)
{
    spare *b = block;

    if (s->n >= SPARES) {
        mem_free(block);
        return;
    }
    b->next = s->first;
    s->first = b;
    s->n++;
}

static inline void spares_release(spares *s)
{
    while (s->first) {
        spare *b = s->first;
        s->first = b->next;
        mem_free(b);
    }
    s->n = 0;
}

#endif
