/* manta/run.h - a run is a folder of files that need no Manta to be read.
 *
 *     STORAGE/NAME/config.json      what was asked for; `manta train --config` takes it
 *                  metrics.jsonl    one JSON object per epoch or report
 *                  events.out.*     the same for TensorBoard
 *                  log/rank-N.txt   what each process said; older parts of it: rank-N.000001.txt
 *                  checkpoints/     manta/checkpoint.h
 *                  times.json       of a run that was resumed: when it began, how long it was worked on before
 *                  result.json      how it ended; written last
 *
 * STORAGE is a folder, or SCHEME://... of another storage (docs/architecture.md):
 * then events and logs come there with every checkpoint and at the end.
 *
 * A run's folder that is made here is for its user alone (0700), whatever the
 * umask says; who shares a run opens its folder (chmod), and it stays so.
 *
 * One process at a time works in it; a lock of the kernel's says who, and goes
 * with the process. Two runs never share a name.
 *
 * Threads: one at a time. */
#ifndef MANTA_RUN_H
#define MANTA_RUN_H

#include <manta/callback.h>
#include <manta/checkpoint.h>
#include <manta/option.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Where runs lie unless told otherwise: $MANTA_STORAGE, or ~/manta-runs. Static. */
MANTA_API const char *manta_run_storage(void);

/* ---- what a run says ---- */

typedef enum manta_log_to {
    MANTA_LOG_TO_FILE = 0, /* RUN/log/rank-N.txt */
    MANTA_LOG_TO_OUTPUT, /* this process's standard error, behind "rank N | " */
    MANTA_LOG_TO_BOTH
} manta_log_to;

/* What the workers of a run print and log, and what the thread that drives it logs.
 * All zero: a worker's standard output and error are its file, which is bounded.
 *
 * With a stamp, or shown, lines go through a pipe to this process, which is where
 * the time is taken; else they are in the file when the call that printed them has
 * returned, whatever dies then. A file that has grown to its share of max_size
 * becomes a part, rank-N.000001.txt and so on; the oldest part goes, and a line says
 * so. Sizes are looked at ten times a second, and a burst between two looks loses
 * its beginning; through a pipe they are exact. A process that a worker starts
 * itself keeps the file it began with. */
typedef struct manta_logging_config {
    const char *level; /* "debug", "info", "warn", "error", "off"; NULL: as manta/log.h says */
    manta_log_to to;
    bool stamp; /* lines begin with the time (UTC, as 2026-01-31T23:59:59.123Z) and the rank */
    int64_t max_size; /* bytes of a rank's log, all parts; 0: 64 MiB; MANTA_NONE: no bound */
    int parts; /* files it is divided into, 2 or more; 0: 4 */
} manta_logging_config;

typedef struct manta_run manta_run;

typedef struct manta_run_options {
    const char *folder; /* the run's own; or else: */
    const char *storage, *name; /* NULL: manta_run_storage(); NULL: `stem` and a free number */
    const char *stem; /* NULL: "run" */
    bool resume; /* go on with what is there; a new one when nothing is */
    const char *config; /* text of a JSON object, kept as config.json with a checksum; NULL: {} */
    manta_checkpoints_options checkpoints;
    manta_logging_config logging;
} manta_run_options;

/* Makes or takes up the folder of a run.
 * *out: owned, manta_run_close(). MANTA_EEXIST a run of that name is there
 * already and resume is not set; MANTA_EBUSY it is running now, with its
 * process; MANTA_EINVAL a name that cannot be one, or logging that cannot be. */
MANTA_API manta_status manta_run_open(const manta_run_options *o, manta_run **out) MANTA_MUST_USE;
MANTA_API void manta_run_close(manta_run *r); /* accepts NULL */

MANTA_API const char *manta_run_name(const manta_run *r);
MANTA_API const char *manta_run_path(const manta_run *r);
MANTA_API manta_checkpoints *manta_run_checkpoints(manta_run *r); /* borrowed */
/* The checkpoint that a resumed run goes on from; NULL: the beginning. Borrowed. */
MANTA_API const manta_checkpoint *manta_run_start(const manta_run *r);
/* About a checkpoint that was damaged and passed over; NULL: none was. */
MANTA_API const char *manta_run_damage(const manta_run *r);

/* The callback that keeps the run's record: goes on from the last checkpoint
 * when the run is resumed, writes metrics and events, saves checkpoints at the
 * pace of `o` (NULL: every epoch). Last in the list, so that it sees what the
 * others add. Borrows r. */
MANTA_API manta_callback *manta_run_recorder(manta_run *r, const manta_checkpointing_options *o);

/* Adds a line to metrics.jsonl and to the events. */
MANTA_API manta_status manta_run_report(manta_run *r, int64_t epoch, int64_t step, int rank,
                                        const manta_metrics *m) MANTA_MUST_USE;
/* Adds a line to log/rank-N.txt, with the time before it. */
MANTA_API void manta_run_log(manta_run *r, int rank, const char *line);
/* Adds a line to log/server-N.txt, the log of parameter server n, with the time before it. */
MANTA_API void manta_run_log_server(manta_run *r, int n, const char *line);

/* How it ended: "done", "failed", "interrupted" (goes on with resume). Fails,
 * once, when a checkpoint or a line of the record could not be written either. */
MANTA_API manta_status manta_run_finish(manta_run *r, const char *status, const manta_metrics *last,
                                        const char *error) MANTA_MUST_USE;

/* ---- reading ---- */

typedef struct manta_run_info {
    char name[256];
    char path[1024];
    char status[16]; /* "running", "done", "failed", "interrupted", "ended" (killed: no result) */
    int pid; /* process of a run that is running; -1: on another host */
    double began_s, ended_s; /* since 1970, the first time and the last; 0: not known */
    double taken_s; /* when it was last taken up; began_s of one that was never resumed */
    double spent_s; /* that it was worked on, over all take-ups: of a running one without this one, of one
                       that was killed until its last report */
    int resumed; /* how often */
    int64_t epoch, step; /* last reported */
    int n_checkpoints;
    manta_metrics metrics; /* last reported */
    char error[440];
} manta_run_info;

/* MANTA_ENOENT there is no run. */
MANTA_API manta_status manta_run_read(const char *folder, manta_run_info *out) MANTA_MUST_USE;

/* The text of a run's config.json; also of a folder of backups that keeps one
 * (manta/callback.h). It is what the folder says, and not looked into but for its
 * checksum, which is left out. *out: owned, free(). MANTA_ENOENT there is none;
 * MANTA_EINVAL it is no file, or larger than a configuration can be;
 * MANTA_ECORRUPT it is not what the run has written. */
MANTA_API manta_status manta_run_read_config(const char *folder, char **out) MANTA_MUST_USE;

/* All runs below `storage` (NULL: manta_run_storage()), newest first. They are
 * listed from an index, STORAGE/.index.sqlite (of a storage that is no folder,
 * in ~/.cache/manta/index), which is made and brought up to date from the folders
 * and may be deleted at any time.
 * *out: owned, manta_runs_free(); *n may be 0. */
MANTA_API manta_status manta_runs_list(const char *storage, manta_run_info **out, int *n) MANTA_MUST_USE;
MANTA_API void manta_runs_free(manta_run_info *runs);

/* A metric over the run: points in the order written, once per (epoch, step). */
typedef struct manta_run_point {
    int64_t epoch, step;
    double value;
    double time_s; /* when it was reported, since 1970; 0: not known */
} manta_run_point;
typedef struct manta_run_series {
    char name[64];
    int64_t n;
    manta_run_point *points;
} manta_run_series;

/* *out: owned, manta_run_history_free(). */
MANTA_API manta_status manta_run_history(const char *folder, manta_run_series **out, int *n) MANTA_MUST_USE;
MANTA_API void manta_run_history_free(manta_run_series *s, int n);

/* What a process of a run has said, from the oldest that is kept, then on as it
 * grows, across the parts of its log. */
typedef struct manta_run_log_reader manta_run_log_reader;

/* role: "rank", or "server" (of parameters).
 * *out: owned, manta_run_log_close(). MANTA_ENOENT it has said nothing. */
MANTA_API manta_status manta_run_log_open(const char *folder, const char *role, int n,
                                          manta_run_log_reader **out) MANTA_MUST_USE;
/* The next piece, as it was written: it may end within a line. *n is 0 when all that
 * is there has been read. *text: borrowed until the next call. */
MANTA_API manta_status manta_run_log_read(manta_run_log_reader *l, const char **text,
                                          size_t *n) MANTA_MUST_USE;
MANTA_API void manta_run_log_close(manta_run_log_reader *l); /* accepts NULL */

/* Asks a running run to make a checkpoint and end, and waits for it.
 * MANTA_ENOENT it does not run; MANTA_ETIMEDOUT. */
MANTA_API manta_status manta_run_stop(const char *folder, int64_t timeout_ms) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
