/* train/run_folder.h - a run's folder, inside this folder. */
#ifndef TRAIN_RUN_FOLDER_H
#define TRAIN_RUN_FOLDER_H

#include <manta/run.h>

/* FOLDER/NAME; owned by the caller. */
char *run_inner(const char *folder, const char *name);

/* The note of a checkpoint that says how many reports were made before it. */
#define RUN_REPORTS "reports"

/* The number of the last line of metrics.jsonl that a run which goes on from c
 * keeps; 0: c is NULL. */
int64_t run_reports(const manta_checkpoint *c);

/* Takes back the lines beyond that: the run goes on from there. */
manta_status run_rewind(manta_run *r, int64_t reports) MANTA_MUST_USE;

#endif
