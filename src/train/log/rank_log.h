/* train/log/rank_log.h - what a process of a run has said: FOLDER/rank-N.txt.
 *
 *   rank-3.000001.txt  rank-3.000002.txt  rank-3.txt
 *   older parts, in their order           what is being written
 *
 * A worker's standard output and error are the file itself, so what it prints is
 * there when it dies, and when its controller does; or, when its lines are
 * stamped or shown as well, a pipe to the driver (rank_logs.h). A line of ours
 * begins on a line of its own also behind one that a death cut off.
 *
 * A log is bounded: at `max_size / parts` bytes rank-N.txt is given the next
 * number and begun anew, and the oldest part goes; the new one begins with a
 * line that says so. Numbers only grow and a part does not, which is what a reader
 * relies on (rank_log_read.c). */
#ifndef TRAIN_LOG_RANK_LOG_H
#define TRAIN_LOG_RANK_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* How much of a log is kept. */
typedef struct rank_log_bound {
    int64_t max_size; /* bytes of all parts; 0: no bound */
    int parts; /* 2 or more */
} rank_log_bound;

/* FOLDER/ROLE-N.txt, role being "rank" or "server"; owned by the caller. */
char *rank_log_path(const char *folder, const char *role, int n);
/* FOLDER/ROLE-N.000012.txt: part number 12. Owned by the caller. */
char *rank_log_part(const char *folder, const char *role, int n, int64_t number);
/* The number in the name of a part of ROLE-N; 0: it is none. */
int64_t rank_log_number(const char *name, const char *role, int n);

typedef struct rank_log rank_log; /* opaque, see rank_log.c */

/* Opens the log to add to it. Two are never open for one log, but for
 * rank_log_add(). *out: owned, rank_log_close(). */
manta_status rank_log_open(const char *folder, const char *role, int n, rank_log_bound bound,
                           rank_log **out) MANTA_MUST_USE;
void rank_log_close(rank_log *l); /* accepts NULL */

/* Adds whole lines, in one write; a new part is begun first when they do not fit. */
manta_status rank_log_write(rank_log *l, const void *lines, size_t n) MANTA_MUST_USE;

/* In a process of its own: from here on what it prints goes to the log, line by
 * line, and a thread watches its size. What was printed before and not yet
 * written, by the process it was forked from, is not written a second time. When
 * the file cannot be opened things stay as they are. */
void rank_log_take_over(const char *folder, const char *role, int n, rank_log_bound bound);
/* In a process of its own: from here on what it prints goes, line by line, to the pipe `fd`,
 * whose other end somebody reads; nothing watches a size. What was printed before and not
 * yet written, by the process it was forked from, is not written a second time. */
void rank_log_take_pipe(int fd, const char *role, int n);
/* Looks at the size now, as that thread does: a large file becomes a part, and one
 * that is larger than its share loses its beginning. */
void rank_log_settle(void);

/* Adds a line, with the time before it; what would break the line is left out. */
manta_status rank_log_add(const char *folder, const char *role, int n, const char *line) MANTA_MUST_USE;

/* "2026-01-31T23:59:59.123Z", the time now; returns text. */
const char *rank_log_time(char *text, size_t size);

#endif
