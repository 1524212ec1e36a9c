/* hooks.h - what a program wants to have called at certain moments (manta/nursery.h). Private to task/.
 *
 * Threads: the hooks are set before others look at them, and do not change afterwards. No lock
 * of the runtime is held when one is called. */
#ifndef TASK_HOOKS_H
#define TASK_HOOKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/nursery.h>

/* The hooks of this process; zeros: none. */
extern manta_hooks hooks;

/* Around a fork, in the process that forks workers. */
void hooks_before_fork(void);
void hooks_after_fork(void);

/* In a new worker. `environment`: NULL is the plain one. */
manta_status hooks_in_worker(const char *environment) MANTA_MUST_USE;

/* In a thread that waits: whether its wait is to end. */
bool hooks_interrupted(void);

/* Has the program told, by a thread that is there for it, that the call was cancelled. The runtime's
 * lock may be held; two threads do not call this at once. */
void hooks_tell_cancelled(uint64_t task);

/* In a driver: whether the program has shown what workers printed to a stream, 1 or 2. */
bool hooks_printed(int stream, const char *text, size_t n);

/* In a worker that is asked where it is: the bytes that the program has written about it. The runtime's lock may be held. */
size_t hooks_stack(char *out, size_t size);

/* In a worker that ends. */
void hooks_end(void);

#endif
