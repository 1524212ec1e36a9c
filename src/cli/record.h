/* record.h - what a training leaves behind and goes on from: its run folder,
 * checkpoints, backups, and the callbacks that the command line asks for. */
#ifndef CLI_RECORD_H
#define CLI_RECORD_H

#include <manta/callback.h>
#include <manta/recipe.h>
#include <manta/run.h>

#include "cli/options.h"

extern const option_group record_options;

enum { RECORD_CALLBACKS = 8 };

typedef struct record {
    manta_run *run; /* NULL: the run has no folder */
    int n, borrowed; /* callbacks; the first so many are the recipe's */
    manta_callback *callbacks[RECORD_CALLBACKS];
    manta_run_options ro;
    manta_checkpointing_options pace;
    const char *backup;
    bool wants_run;
} record;

/* Reads the options; ends the process when they cannot be. */
void record_read(record *r, const options *o, manta_recipe *recipe);
/* Ends the process when --keep-best, --early-stop or --reduce-lr goes by a metric that
 * the training does not have. validated: it has those of a validation. */
void record_check_metrics(manta_recipe *recipe, const manta_session *s, bool validated);
/* Opens the folder of the run and makes the callbacks, of which those of the recipe stay its own. */
manta_status record_open(record *r, const options *o, manta_recipe *recipe, const manta_session *s,
                         const char *model);
void record_close(record *r);

/* Whether an interrupted run can go on where it stopped. */
bool record_is_resumable(const record *r);

/* Where the run goes on from (NULL: the beginning), the folder of that
 * checkpoint, and what is wrong with one that was passed over (NULL: nothing).
 * Borrowed. */
const manta_checkpoint_info *record_start(const record *r);
const char *record_start_path(const record *r);
const char *record_damage(const record *r);
/* The latest checkpoint's folder; NULL: none. Borrowed. */
const char *record_checkpoint(const record *r);

/* "after epoch 3", "epoch 4, after step 20". Returns buf. */
const char *record_place(const manta_checkpoint_info *i, char *buf, size_t size);

/* What other commands call the run: its name, or its folder when that lies
 * elsewhere; as one would type it. Returns buf. */
const char *record_word(const record *r, char *buf, size_t size);
/* The command that goes on with an interrupted run, as one would type it; "" when
 * it cannot go on. Returns buf. */
const char *record_command(const record *r, char *buf, size_t size);

/* How it ended, for result.json. */
manta_status record_finish(record *r, const char *status, const manta_metrics *last, const char *error);

#endif
