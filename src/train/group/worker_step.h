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

#include "os/crash.h"
#include "train/session/position.h"
#include "train/session/shared.h"

/* Where a test may have a worker kill itself (os/crash.h). */
#define GROUP_CRASH_POINTS(X)                                                                                \
    X(GROUP_CRASH_START_BEGIN, "group/start_begin",                                                          \
      "a worker has mapped the memory, and made nothing of its own")                                         \
    X(GROUP_CRASH_START_READY, "group/start_ready", "a worker is ready, and has not said so")                \
    X(GROUP_CRASH_SHARD_BEGIN, "group/shard_begin", "a shard is to be computed")                             \
    X(GROUP_CRASH_SHARD_HALF, "group/shard_half", "a shard's slot is written in part")                       \
    X(GROUP_CRASH_SHARD_DONE, "group/shard_done", "a shard's slot is written, its flag is not set")          \
    X(GROUP_CRASH_FLAG_BEFORE, "group/flag_before", "an item is done, its flag is not set")                  \
    X(GROUP_CRASH_FLAG_AFTER, "group/flag_after", "an item's flag is set, nobody is woken")                  \
    X(GROUP_CRASH_NORMS_BEGIN, "group/norms_begin", "the norms of a range are to be computed")               \
    X(GROUP_CRASH_NORMS_DONE, "group/norms_done", "the norms of a range are written, their flag is not set") \
    X(GROUP_CRASH_UPDATE_BEGIN, "group/update_begin", "a range of the other buffer is to be written")        \
    X(GROUP_CRASH_UPDATE_HALF, "group/update_half", "a range of the other buffer is written in part")        \
    X(GROUP_CRASH_UPDATE_DONE, "group/update_done",                                                          \
      "a range of the other buffer is written, its flag is not set")                                         \
    X(GROUP_CRASH_FINISH_HALF, "group/finish_half", "the run section is written in part")                    \
    X(GROUP_CRASH_COMMIT_BEFORE, "group/commit_before", "a step is whole, and not committed")                \
    X(GROUP_CRASH_COMMIT_AFTER, "group/commit_after", "a step is committed, nobody is woken")                \
    X(GROUP_CRASH_WAIT_BEGIN, "group/wait_begin", "a worker is about to wait")                               \
    X(GROUP_CRASH_ASSIGNMENT_TAKEN, "group/assignment_taken",                                                \
      "a worker has read the assignment of a generation")
CRASH_DECLARE(group, GROUP_CRASH_POINTS)

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
    train_position at;
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
