/* leader.h - which thread of an actor that runs several calls at once takes the next; the
 * rules are in leader.c. Private to task/.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_LEADER_H
#define TASK_LEADER_H

#include <stdbool.h>
#include <stdint.h>

#include "os/thread.h"

struct function;

typedef struct leadership {
    uint64_t turn; /* of the thread that leads; 0: none does */
    uint64_t turns; /* the last turn given out */
    cond free; /* none leads */
    bool runs; /* who leads is in a call */
    uint64_t begun, seen; /* such calls, and how many of them the watcher has seen */
} leadership;

/* Waits until this thread leads, or all are to end. */
void leader_become(void);

/* Says whether this thread may take a call. */
bool leader_is_me(void);

/* Says that the call which runs on this thread, if any does, waits. */
void leader_call_waits(void);

/* Says that this thread begins to run a call of f, and that it has run one in ns. */
void leader_call_begins(const struct function *f);
void leader_call_ends(struct function *f, int64_t ns);

/* Says whether the watcher is to look from time to time; and does what it does then. */
bool leader_is_watched(void);
void leader_watch(void);

/* Wakes all: the process is to end. */
void leader_stop_all(void);

#endif
