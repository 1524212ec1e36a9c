/* train/group/seat.h - a worker's part in the step, decision by decision.
 *
 * A seat_turn looks at the control block and says what its worker is to do
 * next; when that is done the worker says so, and the turn publishes it:
 *
 *   while ((what = seat_next(&t, &item)) != SEAT_LEAVE)
 *       SEAT_SHARD    forward and backward of shard `item` from the committed
 *                     side into slot `item`                     then seat_done()
 *       SEAT_NORMS    square sums of range `item`               then seat_done()
 *       SEAT_UPDATE   range `item` of the other side; range 0 with the run
 *                     section. When only evaluating: range 0 alone, the sums
 *                                                               then seat_done()
 *       SEAT_COMMITTED  this worker has published the step
 *       SEAT_WAIT     nothing until the pulse changes
 *
 * No call waits, allocates or asks the system for anything, so a test can run
 * any number of turns in one process in every order, and stop one for ever
 * between any two calls.
 *
 * What was done stays done: when the generation changes in the middle of a
 * step (another worker died) a finished shard keeps its slot and only gets a
 * new flag. An update that was under way is done again, because it may have
 * read a slot that was by then being rewritten. */
#ifndef TRAIN_GROUP_SEAT_H
#define TRAIN_GROUP_SEAT_H

#include "train/session/shared.h"

typedef enum seat_action {
    SEAT_WAIT,
    SEAT_SHARD,
    SEAT_NORMS,
    SEAT_UPDATE,
    SEAT_COMMITTED,
    SEAT_LEAVE
} seat_action;

/* When an item was done: in which step, from which base. */
typedef struct seat_mark {
    int64_t ticket; /* + 1; 0: never */
    uint32_t base;
} seat_mark;

typedef struct seat_turn {
    control *c;
    int rank;
    uint64_t word; /* the commit word that all below belongs to; 0: none yet */
    table t;
    bool open; /* the job below is the word's */
    bool train;
    int feed;
    int64_t epoch, step;
    seat_mark shard[LAYOUT_MAX_SHARDS], norm[SHARED_SEATS], range[SHARED_SEATS];
} seat_turn;

void seat_turn_init(seat_turn *s, control *c, int rank);

/* What to do next; *item for the actions that have one. */
seat_action seat_next(seat_turn *s, int *item);

/* Whether the turn waits for work that is in nobody's hands: its worker could
 * have it, and asks the controller (shared_seat's `idle`). */
bool seat_sees_vacancy(const seat_turn *s);

/* Whether `shard` is this seat's to compute and not done yet. */
bool seat_owes_shard(const seat_turn *s, int shard);

/* The action that seat_next() gave is done. False: it counts for nothing, the
 * generation has changed meanwhile. */
bool seat_done(seat_turn *s, seat_action what, int item);

static inline int64_t seat_ticket(const seat_turn *s)
{
    return word_ticket(s->word);
}

/* Where the next state is written. */
static inline int seat_other_side(const seat_turn *s)
{
    return (word_side(s->word) + 1) % SHARED_SIDES;
}

#endif
