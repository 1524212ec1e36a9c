/* train/session/position.h - where a training is: the epoch, and the step of that epoch.
 *
 * The place of it is the run section of the committed state (run_state's epoch and step,
 * nn/layout.h): it is changed with a step and by nothing else, goes into checkpoints, and says
 * which step is to be done next. Everything else that speaks of a place in a training holds
 * a train_position, which is a view of it at some moment:
 *
 *   engine_call.at          where a call begins (session/engine.h)
 *   read_range.at           of which step rows are read (session/read_ahead.h)
 *   worker_step.at          which step a worker is at (group/worker_step.h)
 *   fit_context first, next where a fit began; where a checkpoint taken now goes on
 *   cluster_work.at         where a call of a cluster begins (cluster/cluster.h)
 *   ps_journal.from         from where on a coordinator gave out steps (ps/ps_journal.h)
 *
 * Reports are no places in this sense. What a line of a run's record stands for
 * (run/run_folder.h: run_place) and what a loop tells its driver (trainer_report) are epochs
 * done and reports made, as whoever reports counts them. Public structs
 * (manta_checkpoint_info, manta_run_info) hold copies for programs.
 *
 * A worker group numbers the steps of all its jobs in one sequence, the step numbers of the
 * commit word; position_of_number() is the place that such a number means, and shared_job
 * (session/shared.h) and group (group/group_controller.h) hold the epoch and the first number of
 * the job at hand for it. A cluster compares how far its ranks are by more than a place:
 * cluster_at (cluster/cluster.h) has the call and the phase of the epoch too. Both follow the
 * state, and no checkpoint has them. */
#ifndef TRAIN_SESSION_POSITION_H
#define TRAIN_SESSION_POSITION_H

#include <stdbool.h>
#include <stdint.h>

#include "nn/layout.h"

typedef struct train_position {
    int64_t epoch; /* from 0 */
    int64_t step; /* of the epoch, from 0; the number of its steps when the epoch is over */
} train_position;

static inline bool position_equal(train_position a, train_position b)
{
    return a.epoch == b.epoch && a.step == b.step;
}

/* The first step of the epoch after this one. */
static inline train_position position_after_epoch(train_position p)
{
    return (train_position){.epoch = p.epoch + 1};
}

/* What the step with this number is, when step 0 of `epoch` has, or would have, the number
 * `begin`. */
static inline train_position position_of_number(int64_t epoch, int64_t begin, int64_t number)
{
    return (train_position){.epoch = epoch, .step = number - begin};
}

/* The state says from now on that the step at `p` is to be done next. */
static inline void position_set(run_state *run, train_position p)
{
    run->epoch = p.epoch;
    run->step = p.step;
}

#endif
