/* train/ps/ps_step_queue.h - which steps of an epoch are done, under way, or to be
 * given out, when workers train without waiting for each other. Pure.
 *
 * A step is given to whoever asks. With a bound of K, step t is held back until
 * every step before t - K is done: no gradient misses more than the updates of
 * the K steps before its own. A step whose worker is lost is given out again,
 * before all others, since those that are held back wait for it. */
#ifndef TRAIN_PS_PS_STEP_QUEUE_H
#define TRAIN_PS_PS_STEP_QUEUE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { PS_WORKERS = 256 };

typedef struct ps_step_queue {
    int64_t steps; /* of the epoch */
    int64_t bound; /* negative: none */
    int64_t next; /* the first that was never given out */
    int64_t low; /* all before are done */
    int64_t done;
    unsigned char *is_done; /* one per step */
    int64_t held[PS_WORKERS]; /* by each worker; -1: none */
    int64_t again[PS_WORKERS]; /* lost ones, to be given out again */
    int n_again;
} ps_step_queue;

/* *t: ps_step_queue_release(). MANTA_ENOMEM. */
manta_status ps_step_queue_init(ps_step_queue *t, int64_t steps, int64_t bound) MANTA_MUST_USE;
void ps_step_queue_release(ps_step_queue *t); /* accepts zeroed memory */

/* Before any is given out: those with a 1 in is_in, one per step, are done. */
void ps_step_queue_skip(ps_step_queue *t, const unsigned char *is_in);

/* The step that worker w, who has none, is to do; -1: none now. */
int64_t ps_step_queue_take(ps_step_queue *t, int w);

/* Worker w has done `step`. False: it does not hold that one. */
bool ps_step_queue_done(ps_step_queue *t, int w, int64_t step);

/* Whether nobody has a step in hand, and none of a lost worker's is left over. */
bool ps_step_queue_is_idle(const ps_step_queue *t);

/* Worker w is lost. */
void ps_step_queue_lose(ps_step_queue *t, int w);

static inline bool ps_step_queue_over(const ps_step_queue *t)
{
    return t->done == t->steps;
}

#endif
