/* train/session/forked.h - what a process does first that was forked to train. */
#ifndef TRAIN_SESSION_FORKED_H
#define TRAIN_SESSION_FORKED_H

#include <sys/types.h>

#include "train/session/session.h"

/* Ends with `parent`, at once if it has ended already; errors carry `rank`. */
void forked_begin(pid_t parent, int rank);

/* Signals that a terminal or a service manager sends to all processes of the
 * group are the parent's business: it ends us when it is done. */
void forked_leave_signals(void);

/* The session is ours from now on; the parent's threads and plans are not. */
void forked_take(manta_session *s);

#endif
