/* train/run_folder.h - a run's folder, inside this folder. */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include <manta/run.h>

/* FOLDER/NAME; owned by the caller. */
char *run_inner(const char *folder, const char *name);

/* The note of a checkpoint that says how many reports were made before it. */
#define RUN_REPORTS "reports"

/* How many reports were made before c: of a trainer's run by that note. */
int64_t run_reports(const manta_checkpoint *c);

/* Takes back the lines of metrics.jsonl and the events beyond c (NULL: all):
 * the run goes on from there. */
manta_status run_rewind(manta_run *r, const manta_checkpoint *c) MANTA_MUST_USE;

#endif
