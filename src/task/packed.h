/* packed.h - packed values (manta/packed.h) as bytes, and the table that a reader makes of
 * them. Private to task/.
 *
 *     head size (u64) | blocks, references, handles, 0 (u32 each)
 *     references, handles (u64 each: numbers of objects)
 *     ends (u64 each): where block i ends
 *     head
 *     block 0, block 1, ...      each from the next multiple of 64 on
 *
 * Offsets count from the first byte. A block begins where the part before it ends, rounded up,
 * so that no two can overlap and none needs a second number; the value ends with its
 * last part. Whoever reads bytes that another process may still write to (a segment) makes
 * an index first: it reads every number once, checks it, and keeps its own copy. Bytes of
 * this process, and of a message, which is private, are checked once and read in place. */
#ifndef TASK_PACKED_H
#define TASK_PACKED_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/packed.h>

#include "base/status.h"

/* What there is in a value, and where; private memory. */
typedef struct packed_index packed_index;

/* Says how many bytes the value has. MANTA_EINVAL it cannot be one. With `in_place` parts may be
 * missing that somebody fills later. */
manta_status packed_measure(const manta_packed *p, bool in_place, uint64_t *size) MANTA_MUST_USE;

/* Writes the value to `to`; parts at NULL are left as they are. */
void packed_copy(const manta_packed *p, void *to);

/* Says where the head and the blocks lie in a value at `to`; either may be NULL. */
void packed_places(const manta_packed *p, void *to, void **head, void **blocks);

/* Says whether these bytes are a packed value. */
bool packed_is_sound(const void *at, uint64_t size);

/* Counts the references and handles of a sound value; *ids points to their numbers in it. */
uint64_t packed_inner(const void *at, const uint64_t **ids);

/* Makes the index of a value; NULL: it is none. Where `at` is not aligned the index has a copy
 * of the bytes, which must be private then. Give it back with mem_free(). */
packed_index *packed_index_new(const void *at, uint64_t size);
uint64_t packed_index_inner(const packed_index *x, const uint64_t **ids);

/* Describes the value, whose bytes are at `at` now. The pointers are valid as long as the
 * bytes and the index are. */
void packed_view(packed_index *x, const void *at, manta_packed *out);

#endif
