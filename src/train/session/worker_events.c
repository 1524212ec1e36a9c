/* worker_events.c - a short queue of what has happened to workers. */
#include "train/session/worker_events.h"

void worker_events_add(worker_events *q, const worker_event *e)
{
    if (q->n == WORKER_EVENTS_KEPT) {
        q->first = (q->first + 1) % WORKER_EVENTS_KEPT;
        q->n--;
    }
    q->at[(q->first + q->n++) % WORKER_EVENTS_KEPT] = *e;
}

bool worker_events_take(worker_events *q, worker_event *out)
{
    if (!q->n) return false;
    *out = q->at[q->first];
    q->first = (q->first + 1) % WORKER_EVENTS_KEPT;
    q->n--;
    return true;
}
