/* work.h - a model, its data and a session, opened from options. */
#ifndef CLI_WORK_H
#define CLI_WORK_H

#include <manta/data_file.h>
#include <manta/train.h>

#include "cli/options.h"
#include "cli/recipe.h"

/* Options that are read here, for the tables of commands. */
extern const option_group work_data_options; /* --scale, --normalize, --raw */
extern const option_group work_run_options; /* --workers, --threads-per-worker, --kernels, ... */

/* Opens MODEL: a file that holds one (.keras, config.json, .h5), or a zoo model.
 * *out: owned by the caller. *saved: what the file holds beside it, owned too
 * (manta_saved_free()); NULL for a zoo model. saved itself may be NULL. */
manta_status work_model(const char *name, manta_saved **saved, manta_model **out);

/* Whether work_weights() will replace all weights, so that none need be made first. */
bool work_has_weights(const char *file, const manta_saved *saved);

/* Takes weights, and unless weights_only the optimizer's state, from the file
 * of --weights (NULL: none) or else from the model's own (NULL: none), whose arrays
 * are given back. */
manta_status work_weights(manta_session *s, const char *file, manta_saved *saved, bool weights_only);

/* The endings of files that a state can be written to, for work_check_output(). Static. */
const char *work_endings(void);

/* Freezes what the comma-separated patterns match. NULL: nothing. */
manta_status work_freeze(manta_model *m, const char *patterns);

/* Opens a dataset and shapes it as the options and the recipe say.
 * targets: it is to have what the loss needs. *out: owned by the caller. */
manta_status work_dataset(const options *o, const recipe *r, const manta_model *m, const char *spec,
                          bool targets, manta_dataset **out);

/* Reads --workers, --threads-per-worker, --seed, --shards, --kernels, --debug,
 * as far as the command has them; ends the process when they cannot be. */
manta_session_options work_session_options(const options *o);

enum { WORK_BATCH = 32 }; /* the batch size of a training that names none */

/* Sets the batch that --batch or --global-batch asks for, or `fallback`. */
void work_batch(const options *o, int64_t fallback, manta_fit_options *fit);

/* Whether a file of that name could be written, and its ending is one of the
 * space-separated `endings`: told before the work, not after it. */
manta_status work_check_output(const char *path, const char *endings);

/* Digits in groups of three: 692,138. Returns buf. */
const char *work_number(int64_t n, char *buf, size_t size);

#endif
