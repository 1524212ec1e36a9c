/* arena.c - chunks in a list, cut from the front. */
#include "base/arena.h"

#include <assert.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

enum { ALIGN = 16, CHUNK = 16 * 1024 };

struct arena_chunk {
    arena_chunk *next;
    size_t size; /* of data */
    _Alignas(ALIGN) unsigned char data[];
};

/* A chunk with room for `size` bytes: the first spare one that is large
 * enough, else a new one. */
static arena_chunk *chunk_take(arena *a, size_t size)
{
    for (arena_chunk **at = &a->spare; *at; at = &(*at)->next) {
        arena_chunk *c = *at;
        if (c->size >= size) {
            *at = c->next;
            return c;
        }
    }
    size_t room = size > CHUNK ? size : CHUNK;
    arena_chunk *c = mem_new(sizeof *c + room);
    c->size = room;
    return c;
}

void *arena_alloc(arena *a, size_t size)
{
    assert(size <= PTRDIFF_MAX - ALIGN);
    size = (size + ALIGN - 1) / ALIGN * ALIGN;
    if (!a->chunks || a->chunks->size - a->used < size) {
        arena_chunk *c = chunk_take(a, size);
        c->next = a->chunks;
        a->chunks = c;
        a->used = 0;
    }
    void *p = a->chunks->data + a->used;
    a->used += size;
    return memset(p, 0, size);
}

void *arena_array(arena *a, size_t n, size_t size)
{
    size_t bytes;
    bool overflow = __builtin_mul_overflow(n, size, &bytes);

    assert(!overflow);
    return arena_alloc(a, overflow ? SIZE_MAX : bytes);
}

char *arena_strdup(arena *a, const char *s)
{
    size_t n = strlen(s) + 1;

    return memcpy(arena_alloc(a, n), s, n);
}

char *arena_printf(arena *a, const char *fmt, ...)
{
    va_list ap, again;

    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    assert(n >= 0);
    char *text = arena_alloc(a, (size_t)n + 1);
    vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    return text;
}

void arena_reset(arena *a)
{
    while (a->chunks) {
        arena_chunk *c = a->chunks;
        a->chunks = c->next;
        c->next = a->spare;
        a->spare = c;
    }
    a->used = 0;
}

void arena_trim(arena *a)
{
    arena_chunk *kept = NULL;

    arena_reset(a);
    while (a->spare) {
        arena_chunk *c = a->spare;
        a->spare = c->next;
        c->next = NULL;
        if (!kept && c->size == CHUNK)
            kept = c;
        else
            mem_free(c);
    }
    a->spare = kept;
}

void arena_release(arena *a)
{
    arena_reset(a);
    while (a->spare) {
        arena_chunk *c = a->spare;
        a->spare = c->next;
        mem_free(c);
    }
    *a = (arena){0};
}
