/* train/session/worker_events.h - what has happened to workers, kept until fit tells it. */
#ifndef TRAIN_SESSION_WORKER_EVENTS_H
#define TRAIN_SESSION_WORKER_EVENTS_H

#include <stdbool.h>
#include <sys/types.h>

enum { WORKER_EVENTS_KEPT = 64 };

typedef enum worker_event_kind {
    WORKER_EVENT_STARTED,
    WORKER_EVENT_RECOVERED, /* what a death had held up goes on */
    WORKER_EVENT_LEFT /* its place stays empty */
} worker_event_kind;

typedef struct worker_event {
    worker_event_kind kind;
    bool server; /* of parameters; else a worker */
    int rank;
    pid_t pid; /* of the new process, or of the one that ended */
    double ms; /* recovered: from seeing the death to the next commit; 0: not known */
    char cause[96]; /* "killed by signal 9 (Killed)"; of one that left "on request", or why it was given up */
} worker_event;

/* Zeroed: none. */
typedef struct worker_events {
    worker_event at[WORKER_EVENTS_KEPT];
    int first, n;
} worker_events;

void worker_events_add(worker_events *q, const worker_event *e); /* when it is full the oldest gives way */
bool worker_events_take(worker_events *q, worker_event *out); /* the oldest; false: none */

#endif
