/* train/trainer/trainer_checkpoint_parts.h - checkpoints on their way from the ranks to the run.
 *
 * A rank's thread brings its files to disk in a hidden folder of the run
 * (trainer_save.c); the rank's report is taken then. What one rank gives alone is a
 * checkpoint at once. Folders of several ranks are one checkpoint per round: the n-th
 * of each, when every rank that is still in its loop has given its n-th.
 *
 * Threads: the driver's. */
#ifndef TRAIN_TRAINER_TRAINER_CHECKPOINT_PARTS_H
#define TRAIN_TRAINER_TRAINER_CHECKPOINT_PARTS_H

#include "train/trainer/trainer_shared.h"

typedef struct trainer_checkpoint_parts {
    manta_run *run;
    char *folder; /* run_parts_folder() */
    int world;
    int64_t seen[TRAINER_RANKS]; /* rounds that each rank has given its part of */
    int64_t done; /* rounds settled */
    int64_t committed; /* those that became checkpoints */
    trainer_report *reports; /* a ring: what rank 0 says of each round that is not done */
    int64_t (*counts)[TRAINER_RANKS]; /* a ring: by round, reports of each rank up to its part */
    bool lost[TRAINER_RING]; /* by round: a rank's files could not be written */
} trainer_checkpoint_parts;

void checkpoint_parts_init(trainer_checkpoint_parts *p, manta_run *run);
void checkpoint_parts_release(trainer_checkpoint_parts *p); /* accepts zeroed memory */

/* An attempt of `world` ranks begins: what was on its way is dropped. */
void checkpoint_parts_begin(trainer_checkpoint_parts *p, int world, int attempt);

/* Removes what is on its way, of attempts of other drivers too. */
void checkpoint_parts_sweep(const trainer_checkpoint_parts *p);

/* Commits what `rank` has given alone, or drops it when it cannot be written.
 * counts: reports of each rank so far, this one included. state: of the state's file, if
 * its size is not 0. */
manta_status checkpoint_parts_commit_own(trainer_checkpoint_parts *p, int rank, const trainer_report *r,
                                         const int64_t *counts, file_sum state) MANTA_MUST_USE;

/* Takes note of a rank's part; lost: its files could not be written, and the round will
 * be none. MANTA_EINVAL it is too far ahead of the others. */
manta_status checkpoint_parts_add(trainer_checkpoint_parts *p, int rank, const trainer_report *r,
                                  int64_t count, bool lost) MANTA_MUST_USE;

/* A round that is settled: committed, or dropped because it could not be written or
 * a part of it is lost. */
typedef struct trainer_round {
    bool settled; /* false: the next one is not complete yet */
    bool committed;
    int rank; /* the lowest that had a part */
    int64_t count; /* of its reports up to that part */
    const trainer_report *report; /* of the round; until the next call */
} trainer_round;

/* Settles the next round, if it is complete. counts: of ranks that had no part;
 * gone: who has left its loop, with all that it has reported taken note of. */
manta_status checkpoint_parts_settle(trainer_checkpoint_parts *p, const int64_t *counts, const bool *gone,
                                     trainer_round *out) MANTA_MUST_USE;

#endif
