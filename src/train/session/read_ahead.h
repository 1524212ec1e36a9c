/* train/session/read_ahead.h - rows of batches, read by a thread while the caller computes.
 *
 * Who computes shards of a step knows which rows it will want next. It says so, and a
 * thread of its own reads them, decoding included, while the step before is computed:
 *
 *   caller   take(k)  expect(k+1, k+2)  compute k ........  take(k+1)  expect(k+2, k+3)
 *   thread            read k+1 .... read k+2 ....                      read k+3 ....
 *
 * READ_AHEAD_SLOTS buffers go round. Each has one of these states, changed under the
 * lock:
 *
 *   FREE ──expect, take──▶ WANTED ──thread──▶ READING ──thread──▶ READY
 *    ▲                       │ no longer expected                   │
 *    └───────────────────────┴──────────────────────────────────────┘
 *
 * A buffer's contents belong to the thread while it is READING, and to the caller when
 * it is READY; the one given last stays READY until the next take(). What a range
 * contains depends on nothing but the range (data/stage.h, invariant 3), so it does
 * not matter to the result whether it was read ahead, or at all.
 *
 * Threads: one caller, and the thread inside. Between start and stop the loader is
 * that thread's alone. A process that forks afterwards must not use it in the child. */
#ifndef TRAIN_SESSION_READ_AHEAD_H
#define TRAIN_SESSION_READ_AHEAD_H

#include <stdatomic.h>
#include <stdint.h>

#include <manta/data.h>

#include "train/session/position.h"

enum {
    READ_AHEAD_MOST = 2, /* ranges that may be expected */
    READ_AHEAD_SLOTS = READ_AHEAD_MOST + 1, /* and the one that the caller has */
};

/* Rows [lo, hi) of a batch, cut to what it has. */
typedef struct read_range {
    train_position at;
    int64_t lo, hi;
} read_range;

static inline bool read_range_is(const read_range *a, const read_range *b)
{
    return position_equal(a->at, b->at) && a->lo == b->lo && a->hi == b->hi;
}

typedef struct read_ahead read_ahead; /* opaque */

/* Starts the thread that reads from l, which is borrowed. It counts in *busy, borrowed too
 * and NULL when nobody wants to know, while it reads what is expected and nobody waits
 * for yet: a process that ends then may have ended of those rows, and not of what it
 * computes. MANTA_ENOMEM; MANTA_EBUSY: the system has no room for a thread; l is then as
 * it was. */
manta_status read_ahead_start(manta_loader *l, _Atomic uint32_t *busy, read_ahead **out) MANTA_MUST_USE;
/* Ends the thread, after the range that it is reading. Accepts NULL. */
void read_ahead_stop(read_ahead *a);

/* Gives a range, read already or else before anything that is expected. It is valid
 * until the next take. An error of reading is given here, to who asks for the range. */
manta_status read_ahead_take(read_ahead *a, const read_range *r, manta_batch *out) MANTA_MUST_USE;

/* Has these n ranges read, the first one first. What was expected before and is not
 * among them is dropped. */
void read_ahead_expect(read_ahead *a, const read_range *next, int n);

#endif
