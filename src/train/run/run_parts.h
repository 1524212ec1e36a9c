/* train/run/run_parts.h - files of a run's ranks on their way into checkpoints.
 *
 *   RUN/.parts.DRIVER.ATTEMPT/   round-K.rank-R/        files of a rank
 *                                round-K.rank-R.notes   its notes
 *                                aside-TAG              where a folder was moved aside
 *
 * trainer/ fills such folders and makes checkpoints of them. What an attempt that was
 * lost has left there is swept by the next one, or with the stage that it lies in
 * (stage.h). */
#ifndef TRAIN_RUN_RUN_PARTS_H
#define TRAIN_RUN_RUN_PARTS_H

#include <stdint.h>

#include "base/status.h"

/* RUN/.parts.DRIVER.ATTEMPT: where the files of an attempt lie on their way into
 * checkpoints. No other attempt uses it: a worker that outlives its driver by a
 * moment cannot mix its files with another's. Owned by the caller. */
char *run_parts_folder(const char *run, int driver, int attempt);

/* In there: files of a rank, round-K.rank-R; and the same with ".notes" behind it:
 * name, NUL, text, NUL, and so on. Owned by the caller. */
char *run_part(const char *parts, int64_t round, int rank);
char *run_part_notes(const char *parts, int64_t round, int rank);

/* Makes the folder `parts`, and the one called `name` in it (NULL: not that). A
 * run's folder that is gone is not made again: under its name there may now be the
 * bare place of a disk that was there. MANTA_ENOENT */
manta_status run_part_make(const char *parts, const char *name) MANTA_MUST_USE;

/* Removes the files of all attempts that a run's folder holds, and what was moved
 * aside for them. */
void run_parts_sweep(const char *folder);

/* Moves the files below one folder into another, across file systems too. */
manta_status run_parts_move(const char *from, const char *to) MANTA_MUST_USE;

/* Moves a folder, with one rename, to the hidden name `.NAME.TAG.manta-tmp` beside it,
 * when it lies where no rename can bring it to the run; and leaves a note of that in
 * `parts`, so that who sweeps there removes it too. *out: the new name, absolute;
 * owned by the caller. */
manta_status run_parts_aside(const char *parts, const char *folder, const char *tag,
                             char **out) MANTA_MUST_USE;

#endif
