/* train/trainer/trainer_driver.h - the driver of a trainer, as its own files see it.
 *
 * trainer.c                 starts and ends attempts
 * trainer_options.c         checks what is asked for, and writes it down
 * trainer_driver_reports.c  takes what the ranks report
 * trainer_errors.c          says what went wrong
 *
 * Threads: the one that called manta_trainer_fit(). */
#ifndef TRAIN_TRAINER_TRAINER_DRIVER_H
#define TRAIN_TRAINER_TRAINER_DRIVER_H

#include <manta/value.h>

#include "base/status.h"
#include "train/trainer/trainer_driver_datasets.h"
#include "train/trainer/trainer_checkpoint_parts.h"
#include "train/trainer/trainer_scaling.h"
#include "train/trainer/trainer_shared.h"

typedef struct trainer_driver {
    const manta_trainer_options *o;
    char loop[FUNCTION_NAME];
    trainer_scaling scaling;
    int world; /* of this attempt */
    manta_run *run;
    trainer_memory mem;
    trainer_checkpoint_parts parts;
    trainer_datasets datasets; /* that the program gives */
    manta_checkpoint *first; /* resume_from_checkpoint; NULL: none, or the run may have its own */
    int attempt, failures; /* attempts that failed; others ended because there was room for more workers */
    bool grows; /* this one did */
    int64_t room_with, room_ns; /* room was looked for: with so many checkpoints; and not again before */
    manta_actor actors[TRAINER_RANKS];
    manta_ref loops[TRAINER_RANKS];
    bool ended[TRAINER_RANKS];
    int64_t before[TRAINER_RANKS]; /* reports up to this attempt's checkpoint */
    int64_t reports[TRAINER_RANKS]; /* of the whole run */
    int64_t epochs[TRAINER_RANKS]; /* of each rank's last report */
    int64_t committed; /* checkpoints of this attempt */
    manta_metrics last; /* rank 0's */
    bool stopped; /* on request */
    int64_t stopped_at; /* with so many committed */
    bool node_lost; /* no attempt can follow, and no rank is to blame */
    int failed_rank;
    trainer_loss loss;
    manta_error trouble; /* the first line or checkpoint that could not be written; code 0: none */
    char error[600]; /* with the rank that failed, and */
    char what[440]; /* without */
    manta_status status;
} trainer_driver;

/* ---- options: trainer_options.c ---- */

/* Checks what can be checked without a run, and takes note of it: the loop's name, the
 * datasets, how many workers. */
manta_status driver_check_options(trainer_driver *d) MANTA_MUST_USE;

/* MANTA_EINVAL a run of that name was begun by `manta train`, and is of a model and options
 * that a trainer would write over. */
manta_status driver_check_kind(const manta_run_config *r) MANTA_MUST_USE;

/* What was asked for, as the run's config.json; NULL: some of it is not UTF-8. Owned: free(). */
char *driver_config_text(const trainer_driver *d);

/* ---- reports: trainer_driver_reports.c ---- */

/* Takes what the ranks have reported out of their rings, keeps it in the run's record,
 * and commits the checkpoints that are complete. */
manta_status driver_drain(trainer_driver *d) MANTA_MUST_USE;

/* Asks the loops to end. */
void driver_stop(trainer_driver *d);

/* The checkpoint that was committed last; NULL: none. Borrowed. */
const char *driver_last_checkpoint(const trainer_driver *d);

/* ---- errors: trainer_errors.c ---- */

/* How many attempts may follow the first: as asked for, or 3; MANTA_UNLIMITED. */
int driver_most_failures(const trainer_driver *d);

/* Whether no other attempt would cure what a rank failed with: a disk that is full (unless
 * so many attempts were asked for), or a worker whose program has not got the loop. */
bool driver_is_incurable(const trainer_driver *d);

/* Tells of an attempt that has failed and is followed by another, which has one worker
 * less when `fewer`: as a block (manta/log.h) where people read the log, else as one
 * record. */
void driver_tell_again(const trainer_driver *d, bool fewer);
/* Tells of a run that has failed for good, and how it can go on: as a block where people read
 * the log, else as one record. */
void driver_tell_end(const trainer_driver *d, const char *why);

#endif
