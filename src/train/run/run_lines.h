/* train/run/run_lines.h - a file of lines, as a run's metrics.jsonl is: read and cut back
 * without being in memory, however long it has become.
 *
 * Whoever reads while lines are added sees those that were whole. A line beyond all
 * reason is given cut short: nobody takes it for one of ours. */
#ifndef TRAIN_RUN_RUN_LINES_H
#define TRAIN_RUN_RUN_LINES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* A line without its end. Something else than MANTA_OK ends the reading. */
typedef manta_status run_line_fn(void *ctx, const char *line, size_t n);

/* Calls back for each line that has its end. *cut: the last one has none. MANTA_ENOENT */
manta_status run_lines_each(const char *path, run_line_fn *fn, void *ctx, bool *cut) MANTA_MUST_USE;

/* Whether a line stays. */
typedef bool run_keep_fn(void *ctx, const char *line, size_t n);

/* Leaves what stays, and nothing that is cut off; the file is replaced, whole and
 * durable, when something goes. MANTA_ENOENT */
manta_status run_lines_keep(const char *path, run_keep_fn *keep, void *ctx) MANTA_MUST_USE;

#endif
