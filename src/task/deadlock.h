/* deadlock.h - actors that wait for each other in a circle; deadlock.c has the picture. Private to
 * task/.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_DEADLOCK_H
#define TASK_DEADLOCK_H

#include <stdint.h>

#include "net/wire.h"

struct object;

/* Asks, when the call that this process waits for is with a peer, whether that one waits for us:
 * when this process has begun to sleep, and when the call was sent meanwhile. */
void deadlock_ask(void);

/* Remembers that this thread waits for o (NULL: for nothing that can be named), and for how long; what
 * it waited for before is returned, for deadlock_awaited() when the wait is over. */
uint64_t deadlock_awaits(const struct object *o, int64_t timeout_ms);
void deadlock_awaited(uint64_t outer);

/* The wait goes on, for o now. */
void deadlock_awaits_next(const struct object *o);

/* Hears such a question (PROTO_PROBE): passes it on, or finds that it has come back. */
void deadlock_heard(wire *w);

#endif
