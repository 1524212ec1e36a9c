/* profile.h - where the time of a step goes, for --profile.
 *
 * In one process every node of the model is timed, and every call is written as a
 * Chrome trace. With workers each of them measures what it does in a step: waiting for
 * samples to be read and decoded, forward and backward, the update, waiting for others.
 * Nobody holds them up for it, so that the time that is shown is the one that a training
 * takes. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include <manta/train.h>

enum {
    PROFILE_RANKS = 256,
    PROFILE_WARM_UP = 5, /* steps before timing begins: plans, pages and readers are warm then */
};

typedef struct profile {
    int64_t steps; /* to be timed; 0: no profile is wanted */
    int workers; /* 1: this process */
    const char *trace; /* where the trace goes, in one process */
    int64_t done; /* steps that were timed */
    double begin, seconds; /* seconds of the epoch when timing began; seconds that the steps took */
    manta_worker_work first[PROFILE_RANKS], last[PROFILE_RANKS]; /* of each rank, before and after */
} profile;

/* Sets how long a fit lasts: the steps that are timed, and a warm-up before them. In one
 * process that is one epoch. Workers are not seen step by step, so their warm-up is one
 * epoch or several, and the last epoch is timed. */
void profile_plan(const profile *p, manta_fit_options *fit);

/* Looks at an event of the fit; begins and ends the timing. */
manta_status profile_see(profile *p, manta_session *s, const manta_event *e) MANTA_MUST_USE;

/* Prints what was measured as a table, or as an event. `batch`: samples of a step. */
manta_status profile_print(profile *p, manta_session *s, int64_t batch, bool json) MANTA_MUST_USE;

#endif
