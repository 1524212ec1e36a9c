/* train/recipe/schedule_text.h - a learning-rate schedule from a text. */
#ifndef TRAIN_RECIPE_SCHEDULE_TEXT_H
#define TRAIN_RECIPE_SCHEDULE_TEXT_H

#include <manta/recipe.h>

/* manta_schedule_named(), with `what` before its sentences: "--lr-schedule". */
manta_status schedule_text(const char *what, const char *text, double rate,
                           manta_schedule *out) MANTA_MUST_USE;

#endif
