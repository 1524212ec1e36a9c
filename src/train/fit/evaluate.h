/* train/fit/evaluate.h - an evaluation, on its own or between epochs. */
#ifndef TRAIN_FIT_EVALUATE_H
#define TRAIN_FIT_EVALUATE_H

#include "train/fit/teller.h"
#include "train/group/group.h"

/* Runs a pass, which workers have as feed `feed` if there are any (g NULL: none).
 * Its metrics, with `prefix`, are added to out. */
manta_status evaluate_pass(pass *p, group *g, int feed, teller *t, const char *prefix,
                           manta_metrics *out) MANTA_MUST_USE;

#endif
