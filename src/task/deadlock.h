/* deadlock.h - actors that wait for each other in a circle; deadlock.c has the picture. Private to
 * task/.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_DEADLOCK_H
#define TASK_DEADLOCK_H

#include "net/wire.h"

struct call;

/* Asks, when the call that this process waits for is with a peer, whether that one waits for us:
 * when this process has begun to sleep, and when the call was sent meanwhile. */
void deadlock_ask(void);

/* Hears such a question (PROTO_PROBE): passes it on, or finds that it has come back. */
void deadlock_heard(wire *w);

#endif
