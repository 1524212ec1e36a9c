/* sizes.h - the sizes at which comm/ changes its ways, in one place. Each is tested one below, at, one
 * above and ten times (tests/unit/comm/sizes_test.c). */
#ifndef COMM_SIZES_H
#define COMM_SIZES_H

#include <stddef.h>
#include <stdint.h>

/* shm.c: bytes of a slot. A slot is what a core copies and adds before its neighbour sees it: two of
 * them beside the caller's memory should stay in the second cache. The least holds a line for each of 256
 * ranks; between the two, all slots together have so many bytes. */
#define SHM_SLOT_MOST   ((uint64_t)128 << 10)
#define SHM_SLOT_LEAST  ((uint64_t)16 << 10)
#define SHM_SLOTS_TOTAL ((uint64_t)64 << 20)
/* shm.c: bytes of a cell that messages between two ranks go through: at most, at least, and of all together. */
#define SHM_CELL_MOST   ((uint64_t)64 << 10)
#define SHM_CELL_LEAST  ((uint64_t)256)
#define SHM_CELLS_TOTAL ((uint64_t)4 << 20)
/* shm_call.c: bytes from which on more than two ranks each reduce a part and read the others'. */
#define SHM_TWO_PHASE_FROM ((size_t)16 << 10)

enum {
    /* ring_call.c: bytes up to which data goes with the words of its call. */
    RING_EAGER = 16 << 10,
    /* ring_call.c: bytes of a frame, at most and at least. */
    RING_CHUNK = 256 << 10,
    RING_CHUNK_LEAST = 64 << 10,
    /* ring_call.c: bytes up to which two ranks exchange all they have. */
    RING_DIRECT_MOST = 2 << 20,
    /* reduce.inc: elements that are reduced at a time. */
    REDUCE_BLOCK = 1024,
    /* group.c: elements of a block of manta_group_range(). */
    GROUP_GRID = 4096,
    /* group.c: bytes of a pack of small tensors when nobody says otherwise. */
    GROUP_PACK = 1 << 20,
};

#endif
