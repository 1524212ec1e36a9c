/* train/fit/evaluate.h - an evaluation, on its own or between epochs. */
#ifndef TRAIN_FIT_EVALUATE_H
#define TRAIN_FIT_EVALUATE_H

#include "train/fit/fit_events.h"

/* Has the call's engine run a pass over its evaluation data; steps are told by t, whose
 * prefix the metrics get that are added to out. */
manta_status evaluate_pass(engine_call *c, fit_events *t, manta_metrics *out) MANTA_MUST_USE;

#endif
