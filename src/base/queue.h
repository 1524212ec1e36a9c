/* queue.h - hands values from threads to threads, in order, a bounded number
 * at a time.
 *
 *     QUEUE(batch *) q;
 *     TRY(queue_init(&q, 4));
 *     queue_push(&q, &b, deadline);      any number of threads
 *     queue_pop(&q, &b, deadline);       any number of threads
 *     queue_close(&q);                   no more: pops drain what is left
 *     queue_release(&q);
 *
 * Values are copied in and out by size. The ring is allocated at the start;
 * pushing and popping allocate nothing. A deadline is a point of
 * clock_now_ns(); 0 does not wait at all, CLOCK_NEVER waits without end (until
 * the queue is closed, which wakes everyone). */
#ifndef BASE_QUEUE_H
#define BASE_QUEUE_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct queue {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t not_empty, not_full;
    size_t cap, size; /* elements, bytes of one */
    size_t first, n; /* elements first .. first+n-1 modulo cap are filled */
    bool closed;
    bool ready; /* queue_init() succeeded */
} queue;

#define QUEUE(T)                                                                                             \
    struct {                                                                                                 \
        queue base;                                                                                          \
        T *at; /* the ring */                                                                                \
    }

/* Prepares a queue of at most `cap` values (>= 1). MANTA_ENOMEM: *q needs no
 * release. */
#define queue_init(q, cap)                                                                                   \
    ((q)->at = queue_start(&(q)->base, (cap), sizeof *(q)->at), (q)->base.ready ? MANTA_OK : MANTA_ENOMEM)

/* Copies *value in, when there is room before the deadline. MANTA_ETIMEDOUT
 * there was none; MANTA_ECANCELLED the queue is closed. */
#define queue_push(q, value, deadline) queue_push_copy(&(q)->base, (q)->at, 1 ? (value) : (q)->at, (deadline))

/* Copies the oldest value out. MANTA_ETIMEDOUT there was none before the
 * deadline; MANTA_ECANCELLED there is none and the queue is closed. */
#define queue_pop(q, value, deadline) queue_pop_copy(&(q)->base, (q)->at, 1 ? (value) : (q)->at, (deadline))

/* Lets no more values in and wakes all that wait. May be called twice. */
#define queue_close(q) queue_end(&(q)->base)

/* Gives the memory back; nobody may use the queue any more. Accepts a zeroed one. */
#define queue_release(q) (queue_stop(&(q)->base, (q)->at), (void)((q)->at = NULL))

/* Behind the macros. A failure of push and pop is an ordinary answer: it
 * records a sentence only for the caller to pass on. */
void *queue_start(queue *q, size_t cap, size_t size); /* the ring; NULL: MANTA_ENOMEM is recorded */
manta_status queue_push_copy(queue *q, void *ring, const void *value, int64_t deadline) MANTA_MUST_USE;
manta_status queue_pop_copy(queue *q, const void *ring, void *value, int64_t deadline) MANTA_MUST_USE;
void queue_end(queue *q);
void queue_stop(queue *q, void *ring);

#endif
