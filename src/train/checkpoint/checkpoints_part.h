/* train/checkpoint/checkpoints_part.h - a folder of checkpoints, as checkpoints.c and
 * checkpoints_writer.c see it.
 *
 * Threads: `guard` guards all below it in the structure; the list of known
 * checkpoints is the caller's thread's until a save, then the writer's, and is
 * looked at by the caller after waiting only. */
#ifndef TRAIN_CHECKPOINT_CHECKPOINTS_PART_H
#define TRAIN_CHECKPOINT_CHECKPOINTS_PART_H

#include "os/thread.h"
#include "train/checkpoint/checkpoints.h"
#include "train/storage/storage.h"

typedef struct checkpoints_request checkpoints_request; /* see checkpoints_writer.c */

typedef struct checkpoints_entry {
    char *path;
    manifest m;
    bool damaged; /* it cannot be used; it goes when another stands, unless it is unread */
    bool unread; /* it is damaged as far as we know, but could not be looked at: it may be whole, and stays */
} checkpoints_entry;

struct manta_checkpoints {
    char *folder, *score, *order;
    int keep;
    bool read_only;
    bool added; /* a checkpoint, since it was opened */
    checkpoints_hooks hooks;
    storage_held *lock;
    VEC(checkpoints_entry) entries; /* by sequence */
    int64_t last; /* greatest sequence seen, damaged ones included */
    bool started;
    thread_id thread;
    mutex guard;
    cond changed;
    bool leave;
    checkpoints_request *pending, *writing;
    size_t expected; /* size of the buffer that the thread makes first; 0: there it is */
    void *spare[2]; /* buffers not in use */
    size_t spare_size[2];
    manta_error failure; /* code 0: none untold */
    int64_t failing; /* checkpoints in a row that could not be written; the writer's */
};

/* Puts the files of a checkpoint into its folder, and into its manifest. */
typedef manta_status checkpoints_fill(const void *ctx, const char *temp, manifest *made);

/* Makes the checkpoint of made's sequence: `fill` gives its files. It is committed and in the list when this succeeds,
 * and what need not stay any more is gone. *made is empty then. */
manta_status checkpoints_make(manta_checkpoints *m, manifest *made, checkpoints_fill *fill,
                              const void *ctx) MANTA_MUST_USE;

#endif
