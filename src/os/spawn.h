/* spawn.h - children by fork, and the end of all of them. */
#ifndef OS_SPAWN_H
#define OS_SPAWN_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"

/* A child, as fork() makes it: *pid is 0 there. */
manta_status spawn_fork(pid_t *pid) MANTA_MUST_USE;

/* A child that the program's own wait() and SIGCHLD do not see; it must fork()
 * again before it does anything that locks. Wait for it with spawn_wait(). */
manta_status spawn_fork_quiet(pid_t *pid) MANTA_MUST_USE;

/* Waits for a child of either kind; its status as of waitpid(), or -1. */
int spawn_wait(pid_t pid);

/* Makes this process the one to which descendants that lose their parent are
 * handed, instead of process 1. */
manta_status spawn_adopt_orphans(void) MANTA_MUST_USE;

/* Calls fn for each child of this process that is alive or not waited for, for
 * some of them twice. */
void spawn_children(void (*fn)(void *ctx, pid_t child), void *ctx);

/* Kills every child, waits for it, and goes on with the children it leaves
 * behind, until there is none. Only for a process that adopts orphans. */
void spawn_end_all(void);

/* Sends a signal to the process behind a pidfd, and never to another one. */
void spawn_signal(int pidfd, int sig);

/* How many threads this process has; 0 when the system does not say. */
int spawn_threads(void);

/* Signals at their defaults and none blocked, as a fresh program has them. */
void spawn_reset_signals(void);

/* Makes this process deaf to requests to end (SIGTERM, SIGINT, SIGHUP). Who stops a
 * service or a job often asks all of its processes at once; one that serves another
 * ends with that other, not before it. */
void spawn_ignore_requests(void);

/* "killed by signal 9 (Killed)", "exited with 3", "is gone" for -1. */
char *spawn_status_text(int status, char *text, size_t size);

#endif
