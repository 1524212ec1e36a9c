/* train/checkpoint/run_config.h - config.json of a run: what was asked for, with a checksum.
 *
 * A run that is taken up has the options of this file: one that was changed by a
 * flipped bit would train something else and say nothing. */
#ifndef TRAIN_CHECKPOINT_RUN_CONFIG_H
#define TRAIN_CHECKPOINT_RUN_CONFIG_H

#include "base/status.h"

/* The text of the file: the JSON object `config` (NULL: {}) with "check" added. What
 * is no object stays as it is. Owned by the caller: mem_free(). */
char *run_config_seal(const char *config);

/* The text that was sealed, given that of the file at `path`; without a "check", the
 * text itself. *out: owned, free(). MANTA_ECORRUPT the two do not fit. */
manta_status run_config_unseal(const char *path, const char *text, char **out) MANTA_MUST_USE;

#endif
