/* train/group/group.h - the workers of a fit, seen from the process that called it.
 *
 * The controller computes nothing. It forks the workers, says what is to be
 * done, watches their pidfds, and hands the work of a dead one to the living
 * while a successor starts. Between two steps the session belongs to the
 * caller, as it does when there are no workers:
 *
 *   group_open()
 *     group_begin(feed, epoch, 0, steps)
 *       group_await(1), group_next(), group_await(2), group_next(), ...
 *   group_close()
 *
 * While the caller looks at step k the workers compute step k + 1, but cannot
 * commit it before group_next(). If the caller changes the state (learning
 * rate, weights) that step is computed again from the changed state.
 *
 * A job that is not gated runs on, and the caller looks at a step now and then:
 *
 *     group_begin(gated = false)
 *       group_follow(in 50 ms, &done), group_next(), group_follow(...), ...
 *
 * group_follow() holds the workers up at a step, which costs about as much as two
 * steps that are gated, and group_next() lets them run again.
 *
 * Threads: one; it is the parent of the workers, which end when it does. */
#ifndef TRAIN_GROUP_GROUP_H
#define TRAIN_GROUP_GROUP_H

#include "train/session/worker_events.h"
#include "train/group/worker_main.h"

typedef struct group group; /* opaque, see group.c */

/* Who may be at work: as long as the session lives. */
typedef struct group_crew {
    int workers; /* the most there can be: a place each */
    int least, wanted; /* as few workers as that will do; so many there are to be now */
    int threads; /* of a worker */
    shared *memory; /* the state, and the workers' slots */
} group_crew;

extern const engine_ops engine_group;

/* The crew of a session whose engine is engine_group. */
static inline group_crew *group_crew_of(const manta_session *s)
{
    return s->engine.ctx;
}

typedef struct group_options {
    int64_t deadline_ms; /* of a worker that neither moves nor computes; 0: 5 s, negative: none */
    int max_failures; /* deaths of a rank in a row without a step in between; 0: 3 */
} group_options;

/* Forks the workers of a session with a crew and waits until all are ready. The feeds
 * are borrowed until group_close(). On failure nothing is left behind. */
manta_status group_open(manta_session *s, const feed_source *feeds, int n_feeds, const group_options *o,
                        group **out);

/* Ends the workers. The session's state is that of the last commit. Accepts NULL. */
void group_close(group *g);

/* Opens steps first .. steps-1 of an epoch. `gated`: each waits for
 * group_next(); else they run on. No step may be open. */
void group_begin(group *g, int feed, int64_t epoch, int64_t first, int64_t steps, bool gated);

/* Waits until so many steps of the job are committed; the session then has
 * their state, and session sums or group_eval_sums() their sums.
 * Fails when a worker reports an error, and when deaths no longer look like
 * bad luck: MANTA_EDIED. */
manta_status group_await(group *g, int64_t steps);

/* Waits for a step to look at and says in *done how many of the epoch are committed
 * then; no more will be before group_next(). Of a gated job it is the step after the
 * first *done. Else it is one soon after `look` (of clock_now_ns()), after a signal
 * or after an event of a worker, or the job's last; CLOCK_NEVER: the last. */
manta_status group_follow(group *g, int64_t look, int64_t *done);

/* Lets the step after the one just looked at be committed, or the job run on. */
void group_next(group *g);

/* Ends a training job after the step just looked at, with the same workers: waits
 * until the one that they have begun is computed, and drops it. On failure the
 * group can only be closed. */
manta_status group_cut(group *g);

/* Sums of the evaluation so far. */
const double *group_eval_sums(const group *g);

/* Changes how many workers there are to be, between the session's least and its
 * number of places; the places change hands with the next commit. */
void group_resize(group *g, int workers);

/* What happened to workers. Borrowed: valid until group_close(). */
worker_events *group_worker_events(group *g);

#endif
