/* train/fit/fit_events.h - tells what happens in a fit, an evaluation or a prediction: to
 * the program's event function, and to callbacks. */
#ifndef TRAIN_FIT_FIT_EVENTS_H
#define TRAIN_FIT_FIT_EVENTS_H

#include "train/session/engine.h"
#include "train/fit/fit_context.h"

typedef struct fit_events {
    const manta_fit_options *o;
    manta_session *s;
    manta_event e;
    manta_metrics metrics;
    int64_t begin_ns, train_ns;
    manta_fit_context f; /* what callbacks see of all this */
    const char *prefix; /* of the metrics of an evaluation: "val_", or "" when it is on its own */
} fit_events;

/* Refuses options that cannot be, before anything is begun with them. */
manta_status fit_options_check(const manta_fit_options *o) MANTA_MUST_USE;

void fit_events_init(fit_events *t, manta_session *s, const manta_fit_options *o);

/* Tells the event function; false: it wants to stop. */
bool fit_events_tell(fit_events *t, manta_event_kind kind);
/* The error of who wants to stop: MANTA_ECANCELLED. */
manta_status fit_events_stopped(const fit_events *t) MANTA_MUST_USE;

/* Something has happened: hooks, then the event, then the checkpoints that were
 * asked for, which thus hold what all of them have made of it. */
manta_status fit_events_happen(fit_events *t, fit_hook h, manta_event_kind kind) MANTA_MUST_USE;
/* A batch begins; only callbacks want to know. */
manta_status fit_events_begin_batch(fit_events *t, fit_hook h, int64_t step) MANTA_MUST_USE;

/* Metrics and samples of the epoch become those of `sums`. */
void fit_events_see(fit_events *t, const double *sums);

/* What an engine tells: hooks and events of each step, and what happens to
 * processes. That a server has started is no news to a user. */
engine_watch fit_events_watch(fit_events *t);
/* A call for the session's engine, with that watch, without data. */
engine_call fit_events_call(fit_events *t);

#endif
