/* train/group/worker_step.h - a worker's part in the step, decision by decision.
 *
 * A worker_step looks at the control block and says what its worker is to do
 * next; when that is done the worker says so, and the turn publishes it:
 *
 *   while ((what = worker_step_next(&t, &item)) != WORKER_LEAVE)
 *       WORKER_SHARD    forward and backward of shard `item` from the committed
 *                       buffer into slot `item`           then worker_step_done()
 *       WORKER_NORMS    square sums of range `item`       then worker_step_done()
 *       WORKER_UPDATE   range `item` of the other buffer; range 0 with the run
 *                       section. When only evaluating: range 0 alone, the sums
 *                                                         then worker_step_done()
 *       WORKER_COMMITTED  this worker has published the step
 *       WORKER_WAIT     nothing until the wake word changes
 *
 * No call waits, allocates or asks the system for anything, so a test can run
 * any number of turns in one process in every order, and stop one for ever
 * between any two calls.
 *
 * What was done stays done: when the generation changes in the middle of a
 * step (another worker died) a finished shard keeps its slot and only gets a
 * new flag. An update that was under way is done again, because it may have
 * read a slot that was by then being rewritten. */
#ifndef TRAIN_GROUP_WORKER_STEP_H
#define TRAIN_GROUP_WORKER_STEP_H

#include "train/session/shared.h"

typedef enum worker_action {
    WORKER_WAIT,
    WORKER_SHARD,
    WORKER_NORMS,
    WORKER_UPDATE,
    WORKER_COMMITTED,
    WORKER_LEAVE
} worker_action;

/* When an item was done: in which step, from which base. */
typedef struct worker_mark {
    int64_t number; /* + 1; 0: never */
    uint32_t base;
} worker_mark;

typedef struct worker_step {
    control *c;
    int rank;
    uint64_t word; /* the commit word that all below belongs to; 0: none yet */
    assignment t;
    bool open; /* the job below is the word's */
    bool train;
    int feed;
    int64_t epoch, step;
    worker_mark shard[LAYOUT_MAX_SHARDS], norm[SHARED_WORKERS], range[SHARED_WORKERS];
} worker_step;

void worker_step_init(worker_step *s, control *c, int rank);

/* What to do next; *item for the actions that have one. */
worker_action worker_step_next(worker_step *s, int *item);

/* Whether the turn waits for work that is in nobody's hands: its worker could
 * have it, and asks the controller (shared_worker's `idle`). */
bool worker_step_sees_vacancy(const worker_step *s);

/* Whether `shard` is this worker's to compute and not done yet. */
bool worker_step_owes_shard(const worker_step *s, int shard);

/* The action that worker_step_next() gave is done. False: it counts for nothing, the
 * generation has changed meanwhile. */
bool worker_step_done(worker_step *s, worker_action what, int item);

static inline int64_t worker_step_number(const worker_step *s)
{
    return word_step_number(s->word);
}

/* Where the next state is written. */
static inline int worker_step_other_buffer(const worker_step *s)
{
    return (word_buffer(s->word) + 1) % SHARED_BUFFERS;
}

#endif
