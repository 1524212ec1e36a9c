/* evaluator.h - a process that scores the checkpoints of a run while others
 * train: the task "evaluator" of TF_CONFIG. */
#ifndef CLI_EVALUATOR_H
#define CLI_EVALUATOR_H

#include <manta/train.h>

typedef struct evaluator {
    manta_session *s; /* a session of the same model; each checkpoint's weights are loaded into it */
    manta_dataset *data;
    const char *run; /* the run's folder */
    manta_fit_options fit; /* batch and steps of an evaluation */
    int64_t timeout_ms; /* for the run to begin; 0: 10 minutes */
    bool json;
} evaluator;

/* Scores the newest checkpoint whenever there is a newer one, until the run has
 * ended. *last: the metrics of the last one. MANTA_ETIMEDOUT: no run began;
 * MANTA_ECANCELLED: stopped. */
manta_status evaluator_run(const evaluator *e, manta_metrics *last);

#endif
