/* train/trainer_worker.h - a worker of a trainer, inside this folder.
 *
 * trainer_worker.c  what it is told, and the actor that runs the loop
 * trainer_report.c  what it says to the driver: metrics, parts of checkpoints
 * trainer_meet.c    what ranks do together: meetings, sums, steps of a model
 * trainer_data.c    its datasets
 * trainer_save.c    a session's state on its way to a file
 *
 * What it reports goes to a ring; what it adds up with others, through slots
 * (trainer_shared.h). Waiting ends with what was waited for, or when the driver
 * says that the attempt is over. */
#ifndef TRAIN_TRAINER_WORKER_H
#define TRAIN_TRAINER_WORKER_H

#include "base/vec.h"
#include "os/thread.h"
#include "train/checkpoint.h"
#include "train/checkpoints.h"
#include "train/trainer_shared.h"

enum { MOST_DATASETS = 16, MOST_COLUMNS = 16 };

typedef struct slot {
    char *at;
    size_t size;
} slot;

/* A checkpoint that is being written; the thread's until it is joined. */
typedef struct worker_save {
    bool writes; /* the thread was started */
    thread_id thread;
    const manta_session *s;
    void *state; /* a copy; kept for the next one */
    size_t size; /* of it */
    blobs callbacks;
    char *folder;
    int64_t round;
    manta_error why; /* it failed; code 0: it did not */
} worker_save;

struct manta_worker {
    trainer_task t;
    char *parts_folder; /* trainer_parts_folder() */
    const void *config;
    size_t config_size;
    trainer_memory mem;
    slot slots[TRAINER_RANKS][2];
    size_t slot_size; /* bytes mapped of each */
    uint64_t meetings;
    int64_t rounds, parts; /* reported alone, reported with others */
    _Atomic int64_t temps; /* folders made; the thread that writes a checkpoint may need one too */
    manta_checkpoint *checkpoint;
    bool restored; /* a prepared session has its state */
    int n_datasets;
    trainer_dataset datasets[MOST_DATASETS];
    manta_array columns[MOST_DATASETS][MOST_COLUMNS];
    worker_save save;
    VEC(manta_note) notes; /* for the next checkpoint; owned */
    float *sum; /* of all ranks' gradients */
    int64_t n_gradients;
};

/* MANTA_EDIED the attempt is over: leave. */
manta_status worker_is_over(const manta_worker *w) MANTA_MUST_USE;

/* The driver has reason to look. */
void worker_wake_driver(manta_worker *w);

void worker_drop_notes(manta_worker *w);

/* Moves the folder to where the driver finds it, from another file system too. */
manta_status worker_hand_over(manta_worker *w, const char *folder, int64_t round) MANTA_MUST_USE;

/* Copies the session's state and begins to write it as this rank's checkpoint;
 * what was being written before has been waited for. Takes the blobs. */
manta_status worker_save_start(manta_worker *w, const manta_session *s, blobs *callbacks,
                               int64_t round) MANTA_MUST_USE;
/* Waits for what is being written, if there is anything; fails when it could not be. */
manta_status worker_save_wait(manta_worker *w) MANTA_MUST_USE;
void worker_save_release(manta_worker *w);

/* Comes to a meeting with n numbers: they become the sums over the ranks, or the
 * greatest of each. */
manta_status worker_combine(manta_worker *w, double *values, int n, bool greatest) MANTA_MUST_USE;

#endif
