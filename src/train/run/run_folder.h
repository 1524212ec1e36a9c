/* train/run/run_folder.h - a run's folder, inside this folder. */
#ifndef TRAIN_RUN_RUN_FOLDER_H
#define TRAIN_RUN_RUN_FOLDER_H

#include <manta/run.h>

#include "train/log/rank_logs.h"

/* No time of a run, in seconds since 1970, is as late as that. */
#define RUN_TIME_MOST 1e11

/* FOLDER/NAME; owned by the caller. */
char *run_inner(const char *folder, const char *name);

/* Notes of a trainer's checkpoints: how many reports each rank had made with it
 * ("12,40"), and how many workers there were. */
#define RUN_REPORTS "reports"
#define RUN_WORKERS "workers"

/* How many reports `rank` had made with c: of a trainer's run by that note. */
int64_t run_reports(const manta_checkpoint *c, int rank);

/* How a trainer's run ended, besides what every run's result says. */
typedef struct run_outcome {
    manta_status code;
    int rank; /* to blame; -1: none */
    int failures, workers;
} run_outcome;

/* For manta_run_finish() to write; copied. */
void run_set_outcome(manta_run *r, const run_outcome *o);
/* As result.json has it; what it says nothing of stays as it is in *o. */
void run_read_outcome(const char *folder, run_outcome *o);

/* manta_run_read() for who has its lock: what is there was left by others. */
manta_status run_read_past(const char *folder, manta_run_info *out) MANTA_MUST_USE;

/* The folder for what is written through descriptors: the run's own, or what stands
 * for it on this host (stage.h). Borrowed. */
const char *run_local(const manta_run *r);

/* What its processes say. Borrowed. */
rank_logs *run_logs(manta_run *r);

/* Takes back the lines of metrics.jsonl and the events beyond c (NULL: all):
 * the run goes on from there. */
manta_status run_rewind(manta_run *r, const manta_checkpoint *c) MANTA_MUST_USE;
/* How many reports `rank` has in the record that was kept then. */
int64_t run_kept(const manta_run *r, int rank);

/* manta_run_report() of a rank that says with which step of the epoch it goes on
 * (at; -1: it does not say): when the run is taken up from a checkpoint of a later
 * place, its line stays. */
typedef struct run_place {
    int64_t epoch, step, at;
} run_place;
manta_status run_report(manta_run *r, run_place p, int rank, const manta_metrics *m) MANTA_MUST_USE;

#endif
