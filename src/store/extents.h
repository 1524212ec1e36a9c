/* extents.h - which bytes of a segment are free. Pure: offsets, no memory.
 *
 * Blocks are cut from the lowest free place that fits, so that memory that was
 * touched before is touched again, and neighbours that are free become one.
 * The book is private to the writer of a segment: nothing in shared memory has
 * to be repaired when the writer dies. */
#ifndef STORE_EXTENTS_H
#define STORE_EXTENTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/map.h"
#include "base/vec.h"
#include "store/sizes.h"

typedef struct extent {
    uint64_t at, size;
} extent;

typedef struct extents {
    uint64_t size; /* bytes of the segment */
    uint64_t used; /* bytes given out */
    VEC(extent) free; /* ascending, never adjacent */
    MAP_U64(uint64_t) blocks; /* size of the block that starts there */
} extents;

void extents_init(extents *e, uint64_t size);
void extents_release(extents *e);

/* A block of at least `size` bytes; false when none fits. */
bool extents_take(extents *e, uint64_t size, uint64_t *at);

/* Gives a block back. False when none starts there. */
bool extents_give(extents *e, uint64_t at);

#endif
