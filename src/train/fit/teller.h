/* train/fit/teller.h - tells what happens in a fit, an evaluation or a prediction: to
 * the program's event function, and to callbacks. */
#ifndef TRAIN_FIT_TELLER_H
#define TRAIN_FIT_TELLER_H

#include "train/cluster/cluster.h"
#include "train/fit/fitting.h"
#include "train/fit/pass.h"
#include "train/group/news.h"

typedef struct teller {
    const manta_fit_options *o;
    manta_session *s;
    manta_event e;
    manta_metrics metrics;
    int64_t begin_ns, train_ns;
    manta_fitting f; /* the same for callbacks */
    manta_cluster *c; /* whose processes are at it together; NULL: none */
} teller;

void teller_init(teller *t, manta_session *s, const manta_fit_options *o);

/* Tells the event function; false: it wants to stop. */
bool teller_tell(teller *t, manta_event_kind kind);
/* The same of what happened to workers. That a server has started is no news to
 * a user. */
bool teller_news(teller *t, news_queue *q);
/* Whether anybody must see every step, of training or else of evaluation: the event
 * function, unless it sees steps now and then (event_interval_ms), or a callback that
 * has hooks for batches and needs them. */
bool teller_is_watched(const teller *t, bool train);
/* When the event function is to see a step again; CLOCK_NEVER: it need not. */
int64_t teller_next_look(const teller *t);
/* The error of who wants to stop: MANTA_ECANCELLED. */
manta_status teller_stopped(const teller *t) MANTA_MUST_USE;

/* Something has happened: hooks, then the event, then the checkpoints that were
 * asked for, which thus hold what all of them have made of it. */
manta_status teller_happen(teller *t, fitting_hook h, manta_event_kind kind) MANTA_MUST_USE;
/* A batch begins; only callbacks want to know. */
manta_status teller_begin_batch(teller *t, fitting_hook h, int64_t step) MANTA_MUST_USE;

/* ---- with a cluster ---- */

/* A cluster_watch: tells that others are waited for, now and then; false stops it. */
bool teller_waiting(void *ctx, const char *missing, int rank, double ms);

/* Meets the others. Where to begin is what callbacks say, or where the others
 * are. *over: they are through already. p or v may be NULL. */
manta_status teller_begin_cluster(teller *t, pass *p, pass *v, bool *over) MANTA_MUST_USE;
/* Tells of those that were lost and have come back. */
manta_status teller_recovery(teller *t) MANTA_MUST_USE;
/* Parts from them; `st` is how it went here, and what is returned unless parting fails. */
manta_status teller_end_cluster(teller *t, manta_status st);

#endif
