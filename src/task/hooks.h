/* hooks.h - what a program wants to have called at certain moments (manta/nursery.h). Private to task/.
 *
 * Threads: the hooks are set before others look at them, and do not change afterwards. No lock
 * of the runtime is held when one is called. */
#ifndef TASK_HOOKS_H
#define TASK_HOOKS_H

#include <manta/nursery.h>

/* The hooks of this process; zeros: none. */
extern manta_hooks hooks;

/* Around a fork, in the process that forks workers. */
void hooks_before_fork(void);
void hooks_after_fork(void);

/* In a new worker. `environment`: NULL is the plain one. */
manta_status hooks_in_worker(const char *environment) MANTA_MUST_USE;

#endif
