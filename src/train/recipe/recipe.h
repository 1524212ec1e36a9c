/* train/recipe/recipe.h - a recipe from inside: settings, a model, and what was made of them.
 *
 * recipe.c holds the settings; recipe_compile.c, recipe_data.c, recipe_image.c, recipe_input.c, recipe_table.c, recipe_session.c,
 * recipe_callbacks.c and recipe_run.c read them. Every call of the public header begins with recipe_begin(), so
 * that a fault is that of the last call. */
#ifndef TRAIN_RECIPE_RECIPE_H
#define TRAIN_RECIPE_RECIPE_H

#include <manta/recipe.h>

#include "base/status.h"

enum { RECIPE_METRICS = 8, RECIPE_CALLBACKS = 6, RECIPE_OUTPUTS = 8 };

struct manta_recipe {
    char *prefix; /* before the names of settings in sentences */
    char **text; /* by place in the table of settings; NULL: not set */
    char fault[64]; /* the setting that the last failure was about; "": none */

    manta_model *m; /* NULL: none yet */
    char *name; /* the word that it was opened by; NULL: it is the program's own */
    bool owns_model;
    manta_saved *saved; /* owned; NULL: the model is not of a file */
    const manta_recipe_defaults *preset; /* NULL: the model is not of the zoo */
    manta_table *table; /* owned; the mapping of tables, learnt or kept beside the model; NULL: none yet */

    bool compiled; /* what follows is made for `purpose` and the settings as they are */
    manta_purpose purpose;
    manta_optimizer optimizer;
    manta_loss losses[RECIPE_OUTPUTS]; /* one that is set is that of every output, as in Keras */
    manta_metric metrics[RECIPE_METRICS];
    manta_compile compile; /* points at these, or into `saved` */
    char *loss_name; /* of the first output's loss; NULL: none */
    char *metric_names; /* the texts that `metrics` point into */

    float *class_weight; /* of the last fit options */
    char *config; /* the last that was asked for */
    char stem[128]; /* of the last run options */
    int n_callbacks;
    manta_callback *callbacks[RECIPE_CALLBACKS];
};

/* Forgets the fault of the call before. */
void recipe_begin(manta_recipe *r);

/* Says what is wrong with a setting, behind its name and a colon, and blames it. MANTA_EINVAL. */
manta_status recipe_fail(manta_recipe *r, const char *setting, const char *fmt, ...) MANTA_PRINTF(3, 4);
/* Blames a setting for a failure whose sentence stands. Returns st. */
manta_status recipe_blame(manta_recipe *r, const char *setting, manta_status st);
/* What a sentence calls the setting: "--loss". Returns buf. */
const char *recipe_word(const manta_recipe *r, const char *setting, char *buf, size_t size);

/* The values of settings, which have been checked when they were set. `name` must be in the table. */
const char *recipe_text(const manta_recipe *r, const char *name); /* NULL: not set */
bool recipe_flag(const manta_recipe *r, const char *name);
int64_t recipe_int(const manta_recipe *r, const char *name, int64_t fallback);
double recipe_real(const manta_recipe *r, const char *name, double fallback);
/* A whole number for a field of type int. MANTA_EINVAL it does not fit, or is greater than `most`. */
manta_status recipe_small(manta_recipe *r, const char *name, int fallback, int most, int *out) MANTA_MUST_USE;

/* Refuses a number that is no purpose; `function` for the sentence. */
manta_status recipe_check_purpose(const char *function, manta_purpose purpose) MANTA_MUST_USE;

/* Looks for the mapping that was kept beside the weights, the model's file or the run, unless the recipe
 * has one or `spec` is no table. None is no failure. */
manta_status recipe_find_table(manta_recipe *r, const char *spec) MANTA_MUST_USE;

/* What of "resize" and "channels" is done while images are decoded. */
manta_status recipe_image_options(manta_recipe *r, manta_open_options *how) MANTA_MUST_USE;
/* Resizes and cuts the images of column x; those that are trained on are augmented too. *d is replaced,
 * also on failure; what a stage refuses is latched in it. */
manta_status recipe_shape_images(manta_recipe *r, bool training, manta_dataset **d) MANTA_MUST_USE;

/* Compiles for an evaluation at least, unless that has been done. */
manta_status recipe_need_loss(manta_recipe *r) MANTA_MUST_USE;
/* Gives back what recipe_compile.c made. */
void recipe_forget_compile(manta_recipe *r);
/* Gives back what recipe_callbacks.c made. */
void recipe_forget_callbacks(manta_recipe *r);

#endif
