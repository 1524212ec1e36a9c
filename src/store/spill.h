/* spill.h - which segments lie in memory, which on disk, and who waits for
 * room. Pure.
 *
 *            WANT                 nobody maps it, room is needed
 *     ───────────────▶ MEMORY ───────────────────────────▶ WRITING
 *                       ▲  │  ▲                               │ WROTE
 *                  READ │  │  └───────── somebody opened it ──┤
 *                       │  └─── it has a file already ──▶     ▼
 *                    READING ◀──────── OPEN ─────────────── DISK
 *                       └─── the file cannot be read ──▶ LOST
 *
 * A segment keeps its number and its bytes wherever it lies, so that the place
 * of an object never changes. It leaves memory only when nobody maps it: those
 * who do are asked (DO_ASK), oldest use first, and let go at once or as soon as
 * nothing of it is in use. Its file is kept while the segment lives, because
 * its bytes do not change any more: to leave memory a second time costs
 * nothing. (When the disk is short the file of one in memory goes.)
 *
 * Requests that need room (a new segment, one to be read back) are served in
 * order. A request waits while something is being written or others may still
 * let go, at most SPILL_WAIT_NS; it is refused at once when all that is in the
 * way is held by the one who asks, who would wait for itself. One that comes
 * after one that has waited in vain waits half as long as that one, at least
 * SPILL_LEAST_NS, until somebody lets go or nobody has waited in vain for
 * SPILL_WAIT_NS: many that are made one after the other would else take that
 * time each, to learn the same.
 *
 * spill_step() takes one event and writes actions; no input, output, clock or
 * random number. */
#ifndef STORE_SPILL_H
#define STORE_SPILL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

#define SPILL_WAIT_NS   5000000000 /* for others to let go, */
#define SPILL_LEAST_NS  1000000000 /* and when that was in vain again and again */
#define SPILL_ANSWER_NS 1000000000 /* for an answer of one who is asked; then it counts as busy */
#define SPILL_AGAIN_NS  20000000 /* after which one who was busy is asked again */

typedef struct spill_book spill_book;

typedef enum spill_kind {
    SPILL_WANT, /* client, request, size: a new segment to write */
    SPILL_OPEN, /* client, request, segment: to read */
    SPILL_CLOSED, /* client, segment, n: it has let go of n of the times it was given; 0: it is in use */
    SPILL_DROP, /* segment: it is not needed any more */
    SPILL_GONE, /* client: is dead */
    SPILL_WROTE, /* segment, ok */
    SPILL_READ, /* segment, ok; or n = 1: there is no memory to read it to */
    SPILL_TICK /* time has passed */
} spill_kind;

typedef struct spill_event {
    spill_kind kind;
    uint32_t client;
    uint64_t request, segment, size;
    int64_t now;
    uint32_t n;
    bool ok;
} spill_event;

typedef enum spill_action_kind {
    SPILL_DO_MAKE, /* make memory of `size` bytes, give it to client; its number is `segment` */
    SPILL_DO_GIVE, /* give it to client for reading */
    SPILL_DO_REFUSE, /* client's request fails: `why` */
    SPILL_DO_ASK, /* ask client to let go of segment */
    SPILL_DO_WRITE, /* write segment to a file; then SPILL_WROTE */
    SPILL_DO_READ, /* make memory and read it back; then SPILL_READ */
    SPILL_DO_CLOSE, /* give its memory back */
    SPILL_DO_DROP_FILE, /* give its file back: the disk is short, and it is in memory */
    SPILL_DO_TELL_GONE, /* tell client that segment is no more */
    SPILL_DO_END /* give back memory and file */
} spill_action_kind;

typedef enum spill_why { SPILL_FULL, SPILL_TOO_LARGE, SPILL_NO_SEGMENT, SPILL_LOST } spill_why;

typedef struct spill_action {
    spill_action_kind kind;
    uint32_t client;
    uint64_t request, segment, size;
    spill_why why;
} spill_action;

typedef VEC(spill_action) spill_actions;

/* At most `memory` bytes in segments, and `disk` bytes in files (0: nothing is
 * ever written). */
spill_book *spill_new(uint64_t memory, uint64_t disk);
void spill_free(spill_book *b); /* accepts NULL */
void spill_step(spill_book *b, const spill_event *e, spill_actions *out);

/* When a SPILL_TICK would change something; INT64_MAX: never. */
int64_t spill_next(const spill_book *b);

typedef struct spill_usage {
    uint64_t memory, disk; /* bytes */
    uint64_t segments, on_disk, waiting; /* numbers; requests */
    uint64_t written, read; /* bytes since the start */
} spill_usage;
spill_usage spill_use(const spill_book *b);

/* For tests and questions: whether client was given the segment and has not
 * let go; whether the segment is in memory. */
bool spill_holds(const spill_book *b, uint32_t client, uint64_t segment);
bool spill_is_lost(const spill_book *b, uint64_t segment); /* whether the segment could not be read back */
bool spill_in_memory(const spill_book *b, uint64_t segment);

#endif
