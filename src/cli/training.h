/* training.h - one run of `manta train`, from its options to its exit status.
 *
 * training.c opens what the options name, training_events.c shows what happens
 * and keeps it, training_end.c says how it ended. */
#ifndef CLI_TRAINING_H
#define CLI_TRAINING_H

#include "cli/failure.h"
#include "cli/profile.h"
#include "cli/progress.h"
#include "cli/rates.h"
#include "cli/record.h"
#include "cli/work.h"

/* One run of the command. */
typedef struct training {
    const options *o;
    manta_recipe *recipe; /* what the options mean; the model is its own */
    manta_dataset *data, *validation;
    manta_session *s;
    manta_cluster *cluster; /* NULL: no TF_CONFIG */
    double waited_ms, say_ms; /* for others: so far, and when to say so again */
    manta_session_options so;
    manta_fit_options fit;
    const char *save;
    profile profile;
    manta_metrics last; /* metrics of the last epoch that ended, or of the one that was cut */
    bool json;
    progress progress;
    record record;
    failures failures;
    rates rates;
    char why[200]; /* a callback has ended the training */
    bool written; /* the file that --save asks for is written */
} training;

/* Everything that can be wrong with the command line itself; ends the process then. */
void training_read(training *r);
/* Opens model, data, session and the folder of the run. */
manta_status training_open(training *r);
/* Trains, or scores checkpoints as the evaluator of a cluster does. */
manta_status training_run(training *r);
/* Says how it ended and keeps that; the exit status. st: what opening or running came to. */
int training_finish(training *r, manta_status st);
int training_failed(training *r);
void training_close(training *r);

/* Says what is about to be trained, and what it goes on from. */
void training_introduce(training *r);

/* The manta_event_fn; user is the training. */
bool training_event(void *user, manta_session *s, const manta_event *e);

/* Whether this process scores checkpoints instead of training. */
bool training_is_evaluator(const training *r);

#endif
