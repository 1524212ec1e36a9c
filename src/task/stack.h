/* stack.h - where a worker's first thread is, without a debugger: a signal makes
 * it write its return addresses down.
 *
 * It shows the names of exported functions, and places in a file for the rest,
 * which addr2line or a debugger turns into names. A process that is stopped, or
 * that waits inside the kernel where no signal comes through, does not answer. */
#ifndef TASK_STACK_H
#define TASK_STACK_H

#include <pthread.h>

#include "base/buf.h"
#include "base/status.h"

/* Loads what walking a stack needs, so that a signal handler need not. */
void stack_prepare(void);

/* From now on `thread` can be asked. */
void stack_install(void);

/* Adds a line for each frame of `thread`, the innermost first. Not from that
 * thread. MANTA_ETIMEDOUT it does not answer. */
manta_status stack_take(pthread_t thread, buf *out) MANTA_MUST_USE;

#endif
