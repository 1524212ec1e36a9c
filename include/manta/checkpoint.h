/* manta/checkpoint.h - checkpoints: folders that are whole or not there.
 *
 * A checkpoint is a folder with the files of a state and one manifest.json,
 * which names every file with its size and crc32c and says where the run
 * stood. It is made under a temporary name, brought to disk file by file, the
 * manifest last, and appears by one rename; only when that is on the disk too
 * are older ones removed. Whoever opens one has every byte checked.
 *
 *     runs/a/checkpoints/checkpoint-000003/manifest.json
 *                                          state.safetensors
 *
 * state.safetensors holds weights, optimizer arrays and the place in the run
 * under the names of manta/file.h, so any safetensors library reads it
 * (docs/training.md).
 *
 * Threads: a manta_checkpoint may be shared; a manta_checkpoints is used by one
 * thread at a time and writes with a thread of its own. */
#ifndef MANTA_CHECKPOINT_H
#define MANTA_CHECKPOINT_H

#include <manta/file.h>
#include <manta/train.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where a run stood, and how well. */
typedef struct manta_checkpoint_info {
    int64_t sequence; /* 1, 2, ... within its folder; later is greater */
    int64_t epoch, step; /* 0-based: what is to be done next */
    int64_t iterations; /* calls of the optimizer so far */
    manta_metrics metrics; /* may be empty */
    int n_notes; /* of the user: texts by name */
    const manta_note *notes;
} manta_checkpoint_info;

/* ---- one checkpoint, to read ---- */

typedef struct manta_checkpoint manta_checkpoint;

/* Opens the checkpoint at `path` and checks every byte of it.
 * *out: owned, manta_checkpoint_close(). MANTA_ENOENT none is there, or one
 * that was never finished; MANTA_ECORRUPT with the file and what is wrong. */
MANTA_API manta_status manta_checkpoint_open(const char *path, manta_checkpoint **out) MANTA_MUST_USE;
MANTA_API void manta_checkpoint_close(manta_checkpoint *c); /* accepts NULL */

MANTA_API const char *manta_checkpoint_path(const manta_checkpoint *c);
MANTA_API const manta_checkpoint_info *manta_checkpoint_get(const manta_checkpoint *c); /* borrowed */
MANTA_API const char *manta_checkpoint_note(const manta_checkpoint *c, const char *name); /* NULL: none */
/* The i-th file's name, relative to the folder; NULL past the last. */
MANTA_API const char *manta_checkpoint_file(const manta_checkpoint *c, int i);

/* Copies its files, without the manifest, into `folder`, which is made. */
MANTA_API manta_status manta_checkpoint_copy(const manta_checkpoint *c, const char *folder) MANTA_MUST_USE;
/* The arrays of state.safetensors. *out: owned, manta_saved_free(). MANTA_ENOENT it has none. */
MANTA_API manta_status manta_checkpoint_arrays(const manta_checkpoint *c, manta_saved **out) MANTA_MUST_USE;
/* Takes weights, optimizer and (unless weights_only) the place in the run into
 * the session, whatever number of workers saved it or will train it. */
MANTA_API manta_status manta_session_from_checkpoint(manta_session *s, const manta_checkpoint *c,
                                                     bool weights_only) MANTA_MUST_USE;

/* ---- a folder of them ---- */

typedef struct manta_checkpoints manta_checkpoints;

typedef struct manta_checkpoints_options {
    int keep; /* how many; 0: all. The latest is always among them */
    const char *score; /* keep the best by this metric; NULL: the latest */
    const char *order; /* "max", "min"; NULL: by the metric's name, as Keras's "auto" */
    bool read_only; /* look only: nothing is locked, made, or swept */
} manta_checkpoints_options;

/* Opens a folder of checkpoints, making it where it is missing, and sweeps
 * what a killed writer left. options may be NULL (all are kept).
 * *out: owned, manta_checkpoints_close(). MANTA_EBUSY another process, which
 * is named, writes there. */
MANTA_API manta_status manta_checkpoints_open(const char *folder, const manta_checkpoints_options *options,
                                              manta_checkpoints **out) MANTA_MUST_USE;
/* Waits for what is being written. Accepts NULL. */
MANTA_API void manta_checkpoints_close(manta_checkpoints *m);

/* Saves the session as it is now. Only the copy to memory is waited for; the
 * file is written behind the training's back. One is written at a time, and
 * one waits; a third replaces the one that waits, unless that was saved with
 * `must`, which is waited for. info's sequence is set here; the session must
 * live until manta_checkpoints_wait() or close. */
MANTA_API manta_status manta_checkpoints_save(manta_checkpoints *m, const manta_session *s,
                                              const manta_checkpoint_info *info, bool must) MANTA_MUST_USE;
/* Makes a checkpoint of the files in `folder`, which are moved into it (the
 * folder itself is left empty and removed). Same file system or not. info may be NULL:
 * it says nothing of a place, and has neither metrics nor notes.
 * MANTA_EINVAL it is no folder, or something in it cannot be kept (a link, a name that
 * is not UTF-8, a manifest.json): nothing is moved then. */
MANTA_API manta_status manta_checkpoints_add(manta_checkpoints *m, const char *folder,
                                             const manta_checkpoint_info *info) MANTA_MUST_USE;
/* Makes a checkpoint of named arrays, kept as state.safetensors: a dictionary, which
 * manta_checkpoint_arrays() gives back. */
MANTA_API manta_status manta_checkpoints_add_arrays(manta_checkpoints *m, int n, const manta_column *arrays,
                                                    const manta_checkpoint_info *info) MANTA_MUST_USE;
/* Waits until nothing is left to write. Fails with the sentence of the first
 * save since the last call that could not be written; those before it stand. */
MANTA_API manta_status manta_checkpoints_wait(manta_checkpoints *m) MANTA_MUST_USE;
/* Fails with the sentence of the first save since the last call that could not be written,
 * without waiting for those under way. */
MANTA_API manta_status manta_checkpoints_failure(manta_checkpoints *m) MANTA_MUST_USE;

/* Committed ones, oldest first; nothing is checked but their manifests. */
MANTA_API int manta_checkpoints_count(manta_checkpoints *m);
/* Path and info of the i-th; borrowed until the next call. False past the last. */
MANTA_API bool manta_checkpoints_at(manta_checkpoints *m, int i, const char **path,
                                    const manta_checkpoint_info **info);

/* Opens the latest that is whole. Damaged ones are named in the log and passed
 * over; *damaged (may be NULL) gets the sentence about the first, or NULL;
 * owned, free(). MANTA_ENOENT there is none. */
MANTA_API manta_status manta_checkpoints_latest(manta_checkpoints *m, manta_checkpoint **out,
                                                char **damaged) MANTA_MUST_USE;
/* Opens the best by `score` ("max", "min" or NULL); the same otherwise. */
MANTA_API manta_status manta_checkpoints_best(manta_checkpoints *m, const char *score, const char *order,
                                              manta_checkpoint **out) MANTA_MUST_USE;

/* Removes all of them, and the folder when nothing else is in it. */
MANTA_API manta_status manta_checkpoints_clear(manta_checkpoints *m) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
