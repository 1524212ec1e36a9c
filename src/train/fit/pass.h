/* train/fit/pass.h - one pass over a dataset, opened as a fit, an evaluation or a
 * prediction wants it: batches, shuffling, steps, plans. */
#ifndef TRAIN_FIT_PASS_H
#define TRAIN_FIT_PASS_H

#include "train/session/feed.h"
#include "train/session/session.h"

/* It is read from where it was opened: not to be moved. */
typedef struct pass {
    manta_session *s;
    const manta_fit_options *o;
    plan_mode mode;
    feed_pass data; /* what an engine gets of it */
} pass;

/* Opens `d` for a pass, its batches planned. Also after a failure it is closed. */
manta_status pass_open(pass *p, manta_session *s, manta_dataset *d, const manta_fit_options *o,
                       plan_mode mode, int64_t limit) MANTA_MUST_USE;
void pass_close(pass *p); /* accepts zeroed memory */

#endif
