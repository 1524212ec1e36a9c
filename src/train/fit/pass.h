/* train/fit/pass.h - one pass over a dataset, opened as a fit, an evaluation or a
 * prediction wants it: batches, shuffling, steps, plans. */
#ifndef TRAIN_FIT_PASS_H
#define TRAIN_FIT_PASS_H

#include "train/group/group.h"
#include "train/session/feed.h"
#include "train/session/session.h"

/* It is read from where it was opened: not to be moved. */
typedef struct pass {
    manta_session *s;
    const manta_fit_options *o;
    feed_source feed;
    feed_reader reader; /* its loader NULL: the pass is not open */
    plan_mode mode;
    int64_t steps; /* of an epoch, negative: not known */
    int64_t limit; /* stop after so many, 0: at the end */
} pass;

/* Whether the workers of the session run this mode. */
bool pass_is_shared(const manta_session *s, plan_mode mode);
/* Whether processes of a cluster run it together. */
bool pass_is_clustered(const manta_session *s, plan_mode mode);
/* Whether others read the data of this mode, so that this process is to have
 * neither threads nor plans for it. */
bool pass_is_elsewhere(const manta_session *s, plan_mode mode);

/* Opens `d` for a pass, its batches planned. Also after a failure it is closed. */
manta_status pass_open(pass *p, manta_session *s, manta_dataset *d, const manta_fit_options *o,
                       plan_mode mode, int64_t limit) MANTA_MUST_USE;
void pass_close(pass *p); /* accepts zeroed memory */

/* The next batch as a feed; *more false at the end of the epoch. */
manta_status pass_next(pass *p, int64_t step, manta_feed *f, int64_t *first, bool *more) MANTA_MUST_USE;

/* Forks the workers of a session that has some, to run passes over these feeds;
 * *g stays NULL for others. */
manta_status pass_open_workers(manta_session *s, const manta_fit_options *o, const feed_source *feeds, int n,
                               group **g) MANTA_MUST_USE;

#endif
