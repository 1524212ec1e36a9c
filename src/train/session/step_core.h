/* train/session/step_core.h - the parts of a step that all engines share.
 *
 * A step is the same everywhere: the shards that have samples give their slots, the
 * slots are added by the shard tree, the optimizer writes the new state, and the run
 * section is counted on. Engines differ in who has which shards and which blocks, and
 * in how slots come together:
 *
 *   session/step.c          all shards and all blocks, in place
 *   group/worker_main.c     its shards; one range of the blocks, from the committed buffer
 *                           to the other, in shared memory
 *   cluster/cluster_step.c  its shards; the sums of its pieces (step_reduce) are sent
 *                           around, then all blocks, in place
 *   ps/ps_server.c          one slot that came as bytes, of a worker that has folded those
 *                           of its shards; one range of the blocks
 *   trainer/trainer_step.c  its own batch as one shard of as many as there are ranks; one
 *                           range of the blocks, as a worker
 *
 *   step_collect   which slots count, from the number of samples
 *   step_begin     where the new state is written
 *   step_norms     per range; all ranges are done before the next, when
 *                  apply_needs_norms()
 *   step_params    per range     } in any order, by anyone, each block once
 *   step_stats     per range     }
 *   step_finish    once, by whoever has the run section
 *
 * The bits do not depend on the division (docs/numerics.md). A device that computes
 * steps itself replaces these functions, not their callers.
 *
 * Threads: each call spreads its blocks over the session's pool and returns when they
 * are done. */
#ifndef TRAIN_SESSION_STEP_CORE_H
#define TRAIN_SESSION_STEP_CORE_H

#include "train/session/session.h"

/* A part of the update: runs of blocks of the two grids. */
typedef struct step_range {
    int64_t param, param_end; /* of the parameters' grid */
    int64_t stat, stat_end; /* of the statistics' */
} step_range;

/* Part `i` of n nearly equal ones. */
step_range step_range_of(const layout *l, int i, int n);

/* Whether a shard of a batch of `count` has samples. */
static inline bool step_has_samples(const manta_session *s, int64_t count, int shard)
{
    return session_shard_begin(s, count, shard) < session_shard_begin(s, count, shard + 1);
}

/* The slots of the shards that have samples, in shard order: the session's `used`. */
void step_collect(manta_session *s, int64_t count);

/* Forward and backward of all shards of a batch in this process, into the session's
 * slots; `used` has those with samples. */
manta_status step_compute(manta_session *s, const manta_feed *f) MANTA_MUST_USE;

/* Several slots in `used` become one, the first: gradients and sums added by the shard
 * tree, proposed statistics averaged. An update from it is the one from all of them.
 * The statistics of the session's state are overwritten. */
void step_fold(manta_session *s);

/* Begins the update from the session's state and the slots in `used` to `next`, which
 * may be the same memory. */
void step_begin(manta_session *s, void *next);

void step_norms(manta_session *s, const step_range *r);
/* The first one after step_norms() makes the clip factors of all norms. */
void step_params(manta_session *s, const step_range *r);
void step_stats(manta_session *s, const step_range *r);

/* The slots' gradients of blocks [lo, hi), added by the shard tree, into out. */
void step_reduce(manta_session *s, int64_t lo, int64_t hi, float *out);

/* Counts the run section on by a step of `count` samples: after step_finish()'s first
 * half, apply_finish(), which copies it. */
static inline void step_count(run_state *run, int64_t count)
{
    run->position += count;
    run->step++;
}
void step_finish(manta_session *s, int64_t count);

/* All of it at once, from step_begin() to the end of the step. */
void step_update(manta_session *s, int64_t count);

/* What an evaluation has instead: `sums` become `before` and those of the slots in
 * `used`. They may be the same memory. */
void step_add_sums(const manta_session *s, const double *before, double *sums);

#endif
