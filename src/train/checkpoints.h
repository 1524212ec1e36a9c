/* train/checkpoints.h - a folder of checkpoints, inside this folder. */
#ifndef TRAIN_CHECKPOINTS_H
#define TRAIN_CHECKPOINTS_H

#include "train/checkpoint.h"

/* As manta_checkpoints_save(), with what the callbacks remember. Takes the
 * blobs: *extra is empty afterwards. */
manta_status checkpoints_save(manta_checkpoints *m, const manta_session *s, const manta_checkpoint_info *info,
                              blobs *extra, bool must) MANTA_MUST_USE;

/* What a folder of checkpoints is told to keep. MANTA_EINVAL */
manta_status checkpoints_check(const manta_checkpoints_options *o) MANTA_MUST_USE;

/* Waits until nothing is left to write; failures stay to be told. */
void checkpoints_await(manta_checkpoints *m);

void blobs_release(blobs *b);

const char *checkpoints_folder(const manta_checkpoints *m);

/* From here on tell(ctx) follows every checkpoint that was committed, in the
 * thread that wrote it. */
void checkpoints_on_commit(manta_checkpoints *m, void (*tell)(void *ctx), void *ctx);

#endif
