/* recipe.h - how a model is trained: optimizer, loss, metrics, data settings,
 * from the options, and where they say nothing from what the model's file was
 * compiled with, or from the zoo's defaults, which stand here. */
#ifndef CLI_RECIPE_H
#define CLI_RECIPE_H

#include <manta/train.h>

#include "cli/options.h"

/* What a zoo model is trained with when nothing is said. */
typedef struct recipe_default {
    const char *model;
    const char *loss, *metrics, *optimizer;
    bool logits; /* the output is logits, not probabilities */
    bool give_back; /* the target is the input */
    const char *normalize; /* NULL: as the data is */
} recipe_default;

/* NULL for a model that has none. */
const recipe_default *recipe_default_of(const char *model);

/* "loss L, optimizer O, metrics M" of the i-th default, as a line for help
 * texts; NULL past the end. */
const recipe_default *recipe_default_at(int i);

enum { RECIPE_METRICS = 8 };

typedef struct recipe {
    const recipe_default *preset;
    manta_optimizer optimizer;
    manta_loss loss;
    manta_metric metrics[RECIPE_METRICS];
    manta_compile compile; /* points at the above */
    char *names; /* the texts that names point into */
    char *loss_name; /* name of the first output's loss */
} recipe;

/* Options that a recipe reads, for the tables of commands. */
extern const option_group recipe_options; /* optimizer and schedule */
extern const option_group recipe_loss_options; /* loss and metrics */

/* Fills *r for `model`, whose file is `saved` (NULL: of the zoo) and must stay;
 * ends the process when an option cannot be. Optimizer options are read when
 * the command has them. r must not move afterwards. Fails when the file was
 * compiled with what Manta has not, and no option says otherwise. */
manta_status recipe_init(recipe *r, const options *o, const char *model, const manta_saved *saved);
void recipe_release(recipe *r);

/* Whether the loss compares with class numbers. */
bool recipe_is_sparse(const recipe *r);

#endif
