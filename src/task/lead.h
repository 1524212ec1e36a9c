/* lead.h - which thread of an actor that runs several calls at once takes the next; the
 * rules are in lead.c. Private to task/.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_LEAD_H
#define TASK_LEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "os/thread.h"

struct function;

typedef struct lead {
    uint64_t turn; /* of the thread that leads; 0: none does */
    uint64_t turns; /* the last turn given out */
    cond free; /* none leads */
    bool runs; /* who leads is in a call */
    uint64_t begun, seen; /* such calls, and how many of them the watcher has seen */
} lead;

/* Waits until this thread leads, or all are to end. */
void lead_take(void);

/* Says whether this thread may take a call. */
bool lead_is_mine(void);

/* Says that the call which runs on this thread, if any does, waits. */
void lead_waits(void);

/* Says that this thread begins to run a call of f, and that it has run one in ns. */
void lead_begin(const struct function *f);
void lead_end(struct function *f, int64_t ns);

/* Says whether the watcher is to look from time to time; and does what it does then. */
bool lead_is_watched(void);
void lead_watch(void);

/* Wakes all: the process is to end. */
void lead_stop(void);

#endif
