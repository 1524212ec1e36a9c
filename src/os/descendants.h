/* descendants.h - all that a process and its children have started: for a process that must
 * not end before everything below it has.
 *
 * Such a process adopts orphans (descendants_adopt()): a descendant whose parent ends is handed
 * to it instead of process 1, so that whatever is alive below it is, sooner or later, a child.
 * Either it reaps all children as they end (descendants_watch(), descendants_reap()), those that
 * it has started too, for which it then does not call spawn_wait(); or it reaps those by
 * spawner.h and leaves the adopted ones to descendants_end(). */
#ifndef OS_DESCENDANTS_H
#define OS_DESCENDANTS_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

/* Makes this process the one to which descendants that lose their parent are
 * handed, instead of process 1. Its children do not inherit that. */
manta_status descendants_adopt(void) MANTA_MUST_USE;

/* Calls fn for each child of this process that is alive or not waited for, for
 * some of them twice. */
void descendants_each(void (*fn)(void *ctx, pid_t child), void *ctx);

/* Blocks SIGCHLD in the calling thread, and opens a descriptor that is readable when a child
 * has ended and descendants_reap() has not been called since.
 * *out: owned, close it. Close-on-exec. */
manta_status descendants_watch(int *out) MANTA_MUST_USE;

/* Reaps all children that have ended, and calls fn for each with its status as of waitpid().
 * Does not wait. `fd`: of descendants_watch(). */
void descendants_reap(int fd, void (*fn)(void *ctx, pid_t child, int status), void *ctx);

/* Kills every child, waits for it, and goes on with the children it leaves
 * behind, until there is none. Only for a process that adopts orphans. */
void descendants_end(void);

#endif
