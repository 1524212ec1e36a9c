/* train/recipe/model_open.h - a model from a word. */
#ifndef TRAIN_RECIPE_MODEL_OPEN_H
#define TRAIN_RECIPE_MODEL_OPEN_H

#include <manta/recipe.h>

/* manta_model_open(); `weights` is what the sentence about a file without a model calls the
 * place for such a file: "--weights". */
manta_status model_open(const char *name, const char *weights, manta_saved **saved,
                        manta_model **out) MANTA_MUST_USE;

#endif
