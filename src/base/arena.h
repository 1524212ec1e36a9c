/* arena.h - many small allocations that end together.
 *
 * Name the lifetime first (a graph being built, a task, a connection), then
 * allocate in its arena and give all of it back at once. Control memory: it
 * cannot fail, it ends the program when memory is gone; anything sized by a
 * user comes from mem_try() instead.
 *
 * Memory is cut from chunks; one that does not fit a chunk gets its own.
 * arena_reset() keeps the chunks, so a lifetime that repeats allocates nothing
 * after its first round.
 *
 * Threads: one at a time. A zeroed arena is empty and ready. */
#ifndef BASE_ARENA_H
#define BASE_ARENA_H

#include <stddef.h>

#include "base/status.h"

typedef struct arena_chunk arena_chunk;

typedef struct arena {
    arena_chunk *chunks; /* newest first; allocation is from the first */
    arena_chunk *spare; /* emptied by arena_reset() */
    size_t used; /* bytes of the first chunk that are given out */
} arena;

/* size bytes, zeroed, 16-byte aligned, valid until reset or release. Never
 * NULL; a size of 0 gives a valid pointer. */
void *arena_alloc(arena *a, size_t size);

/* Memory of arena_alloc() for n elements of `size` bytes; a product that overflows ends
 * the program. */
void *arena_array(arena *a, size_t n, size_t size);

char *arena_strdup(arena *a, const char *s);
char *arena_printf(arena *a, const char *fmt, ...) MANTA_PRINTF(2, 3);

/* Ends the life of everything allocated, keeps the memory for the next round. */
void arena_reset(arena *a);

/* Ends the life of everything allocated and keeps no more than one ordinary chunk: for a
 * lifetime that repeats and is now and then a large one. */
void arena_trim(arena *a);

/* Gives all memory back and leaves a zeroed arena. Accepts a zeroed one. */
void arena_release(arena *a);

#endif
