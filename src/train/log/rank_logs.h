/* train/log/rank_logs.h - the logs of all processes of a run, as its driver sees them.
 *
 * In the plain case a worker writes its file itself (rank_log.h) and there is
 * nothing to do here. Lines that are stamped, or shown on the driver's standard
 * error, come through a pipe per worker: a thread of the driver reads them and
 * writes every line once, whole, to where it is wanted. The pipe stays when its
 * worker dies, so what it said last is not lost.
 *
 * Threads: any may call; rank_logs_free() when no other does. */
#ifndef TRAIN_LOG_RANK_LOGS_H
#define TRAIN_LOG_RANK_LOGS_H

#include <manta/run.h>

#include "train/log/rank_log.h"

typedef struct rank_logs rank_logs; /* opaque, see rank_logs.c */

/* Whether c makes sense. MANTA_EINVAL, with what was expected. */
manta_status rank_logs_check(const manta_logging_config *c) MANTA_MUST_USE;

/* *out: owned, rank_logs_free(). */
manta_status rank_logs_new(const char *folder, const manta_logging_config *c, rank_logs **out) MANTA_MUST_USE;
void rank_logs_free(rank_logs *l); /* accepts NULL */

/* How a worker is to log; plain memory. */
typedef struct rank_log_task {
    int level; /* -1: as the process */
    int pipe; /* a descriptor of the driver's, that lines go to; -1: it writes the file itself */
    rank_log_bound bound;
} rank_log_task;

/* The task of a worker, before it is started. */
manta_status rank_logs_expect(rank_logs *l, const char *role, int n, rank_log_task *out) MANTA_MUST_USE;

/* In the new process: does as told; t->pipe is a descriptor of its own by now. */
void rank_logs_follow(const char *folder, const rank_log_task *t, const char *role, int n);

/* Adds a line of the driver's to the log of a process. */
manta_status rank_logs_add(rank_logs *l, const char *role, int n, const char *line) MANTA_MUST_USE;

/* Writes what has come so far, lines that have no end too. */
void rank_logs_settle(rank_logs *l); /* accepts NULL */

/* The level of the run, for log_use_level(). */
int rank_logs_level(const rank_logs *l);
const char *rank_logs_folder(const rank_logs *l);

#endif
