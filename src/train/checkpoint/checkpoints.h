/* train/checkpoint/checkpoints.h - a folder of checkpoints, inside this folder. */
#ifndef TRAIN_CHECKPOINT_CHECKPOINTS_H
#define TRAIN_CHECKPOINT_CHECKPOINTS_H

#include "train/checkpoint/checkpoint.h"

/* As manta_checkpoints_save(), with what the callbacks remember. Takes the
 * blobs: *extra is empty afterwards. */
manta_status checkpoints_save(manta_checkpoints *m, const manta_session *s, const manta_checkpoint_info *info,
                              blobs *extra, bool must) MANTA_MUST_USE;

/* As manta_checkpoints_add(). state: size and crc of the folder's CHECKPOINT_STATE, said by
 * who has just written it, so that it is not read again; size 0: not known. */
manta_status checkpoints_add(manta_checkpoints *m, const char *folder, const manta_checkpoint_info *info,
                             file_sum state) MANTA_MUST_USE;

/* What a folder of checkpoints is told to keep. MANTA_EINVAL */
manta_status checkpoints_check(const manta_checkpoints_options *o) MANTA_MUST_USE;

/* Checkpoints of s will come: memory for their copies is made meanwhile, since no
 * step is to wait until the system has found so many pages. */
void checkpoints_expect(manta_checkpoints *m, const manta_session *s);

/* Waits until nothing is left to write; failures stay to be told. */
void checkpoints_await(manta_checkpoints *m);

void blobs_release(blobs *b);

const char *checkpoints_folder(const manta_checkpoints *m);

/* Around the commit of every checkpoint from here on, in the thread that writes it:
 * before(ctx) when its files are there, after(ctx) when it stands. */
typedef struct checkpoints_hooks {
    void *ctx;
    void (*before)(void *ctx);
    void (*after)(void *ctx);
} checkpoints_hooks;

void checkpoints_on_commit(manta_checkpoints *m, checkpoints_hooks hooks);

#endif
