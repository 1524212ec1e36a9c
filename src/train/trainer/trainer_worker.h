/* train/trainer/trainer_worker.h - a worker of a trainer, inside this folder.
 *
 * trainer_worker.c         what it is told, and the actor that runs the loop
 * trainer_worker_report.c  what it says to the driver: metrics, parts of checkpoints
 * trainer_collectives.c    what ranks do together: meetings, sums, broadcasts
 * trainer_step.c           steps of a model by all ranks
 * trainer_engine.c         a fit of all ranks
 * trainer_worker_data.c    its datasets
 * trainer_save.c           checkpoints on their way to files, behind the loop's back
 *
 * What it reports goes to a ring; what it adds up with others, through slots
 * (trainer_shared.h). Waiting ends with what was waited for, or when the driver
 * says that the attempt is over. */
#ifndef TRAIN_TRAINER_TRAINER_WORKER_H
#define TRAIN_TRAINER_TRAINER_WORKER_H

#include "base/buf.h"
#include "base/vec.h"
#include "os/thread.h"
#include "train/checkpoint/checkpoint.h"
#include "train/checkpoint/checkpoints.h"
#include "train/session/shared.h"
#include "train/trainer/trainer_shared.h"

typedef struct slot {
    char *at;
    size_t size;
} slot;

typedef enum save_kind { SAVE_NOTES, SAVE_STATE, SAVE_ARRAYS, SAVE_FOLDER } save_kind;

/* What a report brings to disk behind the loop's back; the loop's until it is sent,
 * then the thread's. */
typedef struct worker_save {
    bool used;
    save_kind kind;
    int64_t round; /* names the folder that the driver will find */
    const manta_session *s; /* of a state */
    blobs callbacks;
    VEC(manta_column) arrays; /* names owned, elements in data */
    void *data; /* a copy of state or arrays; kept for the next one */
    size_t size; /* bytes there is room for */
    char *folder; /* that was the loop's */
    buf notes;
    trainer_files *files; /* of the report */
} worker_save;

enum { WORKER_SAVES = 2 }; /* one is written, one waits */

typedef struct worker_saves {
    mutex guard; /* of all below; what is in the queue is the thread's alone */
    cond changed;
    bool started, leave;
    thread_id thread;
    worker_save all[WORKER_SAVES];
    worker_save *queue[WORKER_SAVES]; /* the oldest first; it stays until it is written */
    int n;
    size_t expected; /* room that the thread makes first; 0: there it is */
    manta_error lost; /* why the last one is not there; code 0: it is */
    manta_error untold; /* why the first one that no report has told of is not there */
    _Atomic bool failed; /* untold has a code */
} worker_saves;

/* The function that makes a dataset of this worker; NULL: none does. */
typedef struct worker_maker {
    manta_dataset_maker *fn;
    const void *user;
    size_t size;
} worker_maker;

struct manta_worker {
    trainer_task t;
    char *parts_folder; /* run_parts_folder() */
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
    manta_loop_fn *loop;
    int n_datasets;
    trainer_dataset datasets[TRAINER_DATASETS];
    worker_maker makers[TRAINER_DATASETS]; /* of each */
    manta_array columns[TRAINER_DATASETS][TRAINER_COLUMNS];
    worker_saves saves;
    VEC(manta_note) notes; /* for the next checkpoint; owned */
};

/* MANTA_EDIED the attempt is over: leave. */
manta_status worker_is_over(const manta_worker *w) MANTA_MUST_USE;

/* The driver has reason to look. */
void worker_wake_driver(manta_worker *w);

void worker_drop_notes(manta_worker *w);

/* Puts a report into the ring; files: that it has some, on their way. *mark (may be
 * NULL without files): where to say that they are there. */
manta_status worker_send(manta_worker *w, const manta_metrics *m, const trainer_report *head, bool files,
                         trainer_files **mark) MANTA_MUST_USE;

/* ---- saves ---- */

void worker_saves_init(manta_worker *w);
void worker_saves_release(manta_worker *w); /* waits for the thread */

/* Saves of a state will come: memory for the copy is made meanwhile, by the thread, where
 * there is plenty. */
void worker_saves_expect(manta_worker *w, const manta_session *s);

/* Why a save is not there that no report has told of; told with this. */
manta_status worker_saves_failure(manta_worker *w) MANTA_MUST_USE;
/* Waits until all are written, or lost. */
void worker_saves_await(manta_worker *w);
/* At the end of the loop: waits until all are written, or lost, and ends the thread. Fails
 * when one was lost and nobody was told, or when the last one was. */
manta_status worker_saves_end(manta_worker *w) MANTA_MUST_USE;

/* Waits until fewer than WORKER_SAVES are on their way. *out: notes alone, unless one of
 * the next three fills it; then sent or dropped. Fails as worker_saves_failure() does. */
manta_status worker_save_begin(manta_worker *w, int64_t round, worker_save **out) MANTA_MUST_USE;
void worker_save_drop(worker_save *v);

/* A copy of the session's state; takes the blobs. */
manta_status worker_save_state(worker_save *v, const manta_session *s, blobs *callbacks) MANTA_MUST_USE;
/* A copy of named arrays. */
manta_status worker_save_arrays(worker_save *v, int n, const manta_column *arrays) MANTA_MUST_USE;
/* A folder of the loop's, which is moved away. */
manta_status worker_save_folder(manta_worker *w, worker_save *v, const char *folder) MANTA_MUST_USE;

/* Reports, with the files on their way. Takes v, on failure too. */
manta_status worker_save_send(manta_worker *w, worker_save *v, const manta_metrics *m,
                              const trainer_report *head) MANTA_MUST_USE;

/* Comes to a meeting with n numbers: they become the sums over the ranks, or the
 * greatest of each. */
manta_status worker_combine(manta_worker *w, double *values, int n, bool greatest) MANTA_MUST_USE;

/* ---- meetings: trainer_collectives.c ---- */

/* What a rank brings to a meeting. */
typedef struct slot_head {
    double count;
    double numbers[TRAINER_NUMBERS];
} slot_head;

/* The own one, of the meeting that comes next. */
manta_status worker_slot(manta_worker *w, slot_head **out) MANTA_MUST_USE;
/* Comes to the next meeting with it, and waits for all whose loop is running. */
manta_status worker_meet(manta_worker *w) MANTA_MUST_USE;
/* A rank's of the meeting just held; NULL: it did not come. */
const slot_head *worker_slot_of(manta_worker *w, int rank);

/* ---- models: trainer_step.c ---- */

/* The model of a prepared session: its engine's context. */
typedef struct worker_model {
    manta_worker *w;
    manta_session *s;
    shared *memory; /* of all ranks; NULL until the first step */
    char *view; /* memory mapped a second time, for this rank alone to write: its state lies there */
    int buffer; /* that is committed */
} worker_model;

void worker_model_free(void *model); /* with its session */

/* Where this rank's samples lie in a step of all, when each has as many as a batch of the
 * loader: chance is another for each sample, and the same as in one process. */
int64_t worker_first(const manta_worker *w, manta_loader *l);

/* Sessions of manta_prepare_model(). */
extern const engine_ops engine_ranks;

#endif
