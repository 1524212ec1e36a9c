/* train/rank_log.h - what the processes of a run have said: FOLDER/rank-N.txt.
 *
 * A worker's standard output and error are the file itself, so what it prints is
 * there when it dies, and when its controller does. Both only ever append; a
 * line of ours begins on a line of its own also behind one that a death cut off. */
#ifndef TRAIN_RANK_LOG_H
#define TRAIN_RANK_LOG_H

#include "base/status.h"

/* FOLDER/ROLE-N.txt, role being "rank" or "server"; owned by the caller. */
char *rank_log_path(const char *folder, const char *role, int n);

/* In a process of its own: from here on what it prints goes there, line by line.
 * What was printed before and not yet written, by the process it was forked
 * from, is not written a second time. When the file cannot be opened things
 * stay as they are. NULL folder: nothing happens. */
void rank_log_take_over(const char *folder, const char *role, int n);

/* Adds a line, with the time before it; what would break the line is left out. */
manta_status rank_log_add(const char *folder, int rank, const char *line) MANTA_MUST_USE;

#endif
