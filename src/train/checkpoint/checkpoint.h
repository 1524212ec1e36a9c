/* train/checkpoint/checkpoint.h - one checkpoint: how it comes to be, and how it is read.
 *
 *   FOLDER/.checkpoint-000003.PID.manta-tmp/   files, each brought to disk
 *                                  manifest.json  last
 *   rename to FOLDER/checkpoint-000003          one step
 *   fsync FOLDER                                from here on it stands
 *
 * A folder without a manifest that fits all its files is no checkpoint. */
#ifndef TRAIN_CHECKPOINT_CHECKPOINT_H
#define TRAIN_CHECKPOINT_CHECKPOINT_H

#include "base/buf.h"
#include "train/checkpoint/manifest.h"
#include "train/session/session.h"

#define CHECKPOINT_STATE "state.safetensors"

struct manta_checkpoint {
    char *path;
    manifest m;
};

/* The name of the folder of a sequence number. Owned by the caller. */
char *checkpoint_path(const char *folder, int64_t sequence);
/* The number in such a name; -1: it is none. */
int64_t checkpoint_sequence(const char *name);
/* Whether the name is one that an unfinished or half-removed checkpoint has. */
bool checkpoint_is_litter(const char *name);

/* Whether all that lies in a folder can be kept: files and folders, no links, and names
 * that a manifest can hold. Nothing is moved. MANTA_EINVAL */
manta_status checkpoint_check_folder(const char *folder) MANTA_MUST_USE;

/* Makes the temporary folder. *temp: owned. */
manta_status checkpoint_begin(const char *folder, int64_t sequence, char **temp) MANTA_MUST_USE;
/* Writes the manifest into it and lets it appear. All files are on the disk already. */
manta_status checkpoint_commit(const char *folder, const char *temp, const manifest *m) MANTA_MUST_USE;
/* Lets a checkpoint disappear in one step, then removes its files. */
manta_status checkpoint_remove(const char *path) MANTA_MUST_USE;

/* Reads the manifest at `path`, nothing else. *m: zeroed; release also on failure. */
manta_status checkpoint_manifest(const char *path, manifest *m) MANTA_MUST_USE;

/* ---- a session's state in one ---- */

typedef struct blob {
    char *name; /* owned */
    buf data;
} blob;
typedef VEC(blob) blobs;

/* Writes `state` (a copy of a session's) and the blobs as state.safetensors in
 * the folder. */
manta_status checkpoint_write_state(const manta_session *s, const void *state, const blobs *extra,
                                    const char *folder, file_sum *sum) MANTA_MUST_USE;

/* Writes the arrays, by their names, as state.safetensors in the folder. */
manta_status checkpoint_write_arrays(int n, const manta_column *arrays, const char *folder,
                                     file_sum *sum) MANTA_MUST_USE;

/* Takes the state that was read from c (manta_session_from_checkpoint()). */
manta_status checkpoint_restore(manta_session *s, const manta_checkpoint *c, const manta_saved *saved,
                                bool weights_only) MANTA_MUST_USE;

/* The blob called `name` in what was read; false when there is none. */
bool checkpoint_find_blob(const manta_saved *saved, const char *name, const void **data, size_t *n);

#endif
