/* work.h - from options to the library's recipe (manta/recipe.h), which knows what they mean. */
#ifndef CLI_WORK_H
#define CLI_WORK_H

#include <manta/recipe.h>

#include "cli/options.h"

/* Groups of settings that several commands have. */
extern const option_group work_loss_options; /* --loss, --metrics */
extern const option_group work_optimizer_options; /* --optimizer, --learning-rate, ... */
extern const option_group work_data_options; /* --scale, --normalize, --raw, --resize, ... */
extern const option_group work_run_options; /* --workers, --threads-per-worker, --kernels, ... */

/* A recipe with all options that are settings of the library. Owned by the caller,
 * manta_recipe_free(). */
manta_recipe *work_recipe(const options *o);

/* Ends the process as wrong usage does when a call of the recipe failed because of an option;
 * returns st otherwise. */
manta_status work_done(const manta_recipe *r, manta_status st);

/* Whether a file of that name could be written, with one of these endings. */
static inline manta_status work_check_output(const char *path, const char *endings)
{
    return manta_output_check(path, endings);
}

/* Digits in groups of three: 692,138. Returns buf. */
const char *work_number(int64_t n, char *buf, size_t size);

#endif
