/* work.h - a model, its data and a session, opened from options. */
#ifndef CLI_WORK_H
#define CLI_WORK_H

#include <manta/train.h>

#include "cli/options.h"
#include "cli/recipe.h"

/* Options that are read here, for the tables of commands. */
extern const option_group work_data_options; /* --scale, --normalize, --raw */
extern const option_group work_run_options; /* --workers, --threads-per-worker, --kernels, ... */

/* Opens MODEL: a zoo model for now. *out: owned by the caller.
 * The sentence for a file says what is to come. */
manta_status work_model(const char *name, manta_model **out);

/* Freezes what the comma-separated patterns match. NULL: nothing. */
manta_status work_freeze(manta_model *m, const char *patterns);

/* Opens a dataset and shapes it as the options and the recipe say.
 * targets: it is to have what the loss needs. *out: owned by the caller. */
manta_status work_dataset(const options *o, const recipe *r, const manta_model *m, const char *spec,
                          bool targets, manta_dataset **out);

/* Reads --workers, --threads-per-worker, --seed, --shards, --kernels, --debug,
 * as far as the command has them; ends the process when they cannot be. */
manta_session_options work_session_options(const options *o);

/* The batch that --batch or --global-batch asks for, or `fallback`. */
int64_t work_batch(const options *o, int64_t fallback);

/* Whether a file of that name could be written, and its ending is one of the
 * space-separated `endings`: told before the work, not after it. */
manta_status work_check_output(const char *path, const char *endings);

/* Digits in groups of three: 692,138. Returns buf. */
const char *work_number(int64_t n, char *buf, size_t size);

#endif
