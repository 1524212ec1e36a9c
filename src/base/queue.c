/* queue.c - a ring under one lock. The values handed over are batches and
 * messages, thousands a second at most; a lock is not what limits them. */
#include "base/queue.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"

void *queue_start(queue *q, size_t cap, size_t size)
{
    void *ring = NULL;
    pthread_condattr_t attr;

    assert(cap >= 1);
    *q = (queue){.cap = cap, .size = size};
    if (mem_try_array(cap > INT64_MAX ? -1 : (int64_t)cap, size, "queue", &ring)) return NULL;
    pthread_mutex_init(&q->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&q->not_empty, &attr);
    pthread_cond_init(&q->not_full, &attr);
    pthread_condattr_destroy(&attr);
    q->ready = true;
    return ring;
}

/* Waits for c (under the lock) until the deadline; false when that has passed. */
static bool wait_for(queue *q, pthread_cond_t *c, int64_t deadline)
{
    if (deadline == CLOCK_NEVER) return pthread_cond_wait(c, &q->lock) == 0;
    if (deadline <= 0) return false;
    struct timespec at = {.tv_sec = deadline / 1000000000, .tv_nsec = deadline % 1000000000};
    return pthread_cond_timedwait(c, &q->lock, &at) != ETIMEDOUT;
}

manta_status queue_push_copy(queue *q, void *ring, const void *value, int64_t deadline)
{
    manta_status st = MANTA_OK;

    pthread_mutex_lock(&q->lock);
    bool in_time = true;
    while (q->n == q->cap && !q->closed && in_time) in_time = wait_for(q, &q->not_full, deadline);
    if (q->closed) {
        st = manta_fail(MANTA_ECANCELLED, "the queue is closed");
    } else if (q->n == q->cap) {
        st = manta_fail(MANTA_ETIMEDOUT, "the queue was full until the deadline");
    } else {
        size_t at = (q->first + q->n) % q->cap;
        memcpy((char *)ring + at * q->size, value, q->size);
        q->n++;
        pthread_cond_signal(&q->not_empty);
    }
    pthread_mutex_unlock(&q->lock);
    return st;
}

manta_status queue_pop_copy(queue *q, const void *ring, void *value, int64_t deadline)
{
    manta_status st = MANTA_OK;

    pthread_mutex_lock(&q->lock);
    bool in_time = true;
    while (q->n == 0 && !q->closed && in_time) in_time = wait_for(q, &q->not_empty, deadline);
    if (q->n > 0) {
        memcpy(value, (const char *)ring + q->first * q->size, q->size);
        q->first = (q->first + 1) % q->cap;
        q->n--;
        pthread_cond_signal(&q->not_full);
    } else if (q->closed) {
        st = manta_fail(MANTA_ECANCELLED, "the queue is closed and empty");
    } else {
        st = manta_fail(MANTA_ETIMEDOUT, "the queue was empty until the deadline");
    }
    pthread_mutex_unlock(&q->lock);
    return st;
}

void queue_end(queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    pthread_cond_broadcast(&q->not_empty);
    pthread_cond_broadcast(&q->not_full);
    pthread_mutex_unlock(&q->lock);
}

void queue_stop(queue *q, void *ring)
{
    if (!q->ready) return;
    pthread_cond_destroy(&q->not_empty);
    pthread_cond_destroy(&q->not_full);
    pthread_mutex_destroy(&q->lock);
    mem_try_free(ring);
    *q = (queue){.ready = false};
}
