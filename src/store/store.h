/* store.h - objects in shared memory, as one process sees them.
 *
 * Large values lie in segments: memory that the daemon made, reserved and
 * counted. A segment has one writer for its whole life, which maps it for
 * writing and then seals it, so that everyone else can only read. The writer
 * alone decides what lies where (extents.h) and uses a block again when nobody
 * holds its object; memory goes back to the system by whole segments. When the
 * writer dies its segments stay as they are until their last object is
 * released. A segment that nobody maps may lie on disk (spill.h); opening it
 * brings it back, to be read only.
 *
 * Where segments come from is the owner's business (store_source): the daemon
 * over a socket, or plain shared memory in a process without a node.
 *
 * Threads: the owner's lock guards a store, except inside store_source calls,
 * which may give the lock away while they wait. */
#ifndef STORE_STORE_H
#define STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct store store;

/* Where bytes lie. segment 0: nowhere. */
typedef struct store_place {
    uint64_t segment, at;
} store_place;

typedef struct store_source {
    /* A new segment for this process to write, of at least `least` bytes, and
     * of `wanted` if that is no large part of the store. *fd is owned by the
     * store. MANTA_ENOSPC the node's store is full. */
    manta_status (*make)(void *ctx, size_t least, size_t wanted, uint64_t *segment, int *fd);
    /* The segment of another writer. MANTA_ENOENT it is gone. */
    manta_status (*open)(void *ctx, uint64_t segment, int *fd);
    /* A segment of our own is empty and no longer mapped here. */
    void (*give_back)(void *ctx, uint64_t segment);
    /* A segment that store_ask() was called for while it was in use is not any
     * more: it is no longer mapped here, `n` times as if it had been opened or
     * made once. */
    void (*let_go)(void *ctx, uint64_t segment, uint32_t n);
    void *ctx;
} store_source;

store *store_new(store_source source);
void store_free(store *s); /* unmaps everything; accepts NULL */

/* A block of `size` bytes in a segment of our own, contents undefined. *at is
 * writable, and valid, until store_seal(). MANTA_ENOSPC */
manta_status store_take(store *s, size_t size, store_place *place, void **at) MANTA_MUST_USE;

/* The block is written; from now on it is read by store_pin(), as by others. */
void store_seal(store *s, store_place place);

/* The (sealed) block's bytes are not needed any more, by anybody. */
void store_give(store *s, store_place place);

/* The address of `size` bytes at a place in any segment, for reading; the
 * segment stays mapped until store_unpin(). MANTA_ENOENT the segment is gone;
 * MANTA_ECORRUPT the place is not inside it. */
manta_status store_pin(store *s, store_place place, size_t size, const void **at) MANTA_MUST_USE;
void store_unpin(store *s, store_place place);

/* The daemon says that another writer's segment is no more. */
void store_forget(store *s, uint64_t segment);

/* The daemon asks to let go of a segment, because memory is short: it is
 * unmapped and, when it is our own, not written any more. Returns how often it
 * had been made or opened; 0 when it is in use (let_go() follows) or unknown. */
uint32_t store_ask(store *s, uint64_t segment);

/* Bytes of our own segments, and of those how many are given out. */
void store_usage(const store *s, uint64_t *size, uint64_t *used);

#endif
