/* manta/queue.h - a queue between processes.
 *
 * Threads: any thread of the program. */
#ifndef MANTA_QUEUE_H
#define MANTA_QUEUE_H

#include <stddef.h>
#include <stdint.h>

#include <manta/actor.h>
#include <manta/status.h>
#include <manta/task.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

/* An actor that holds items; hand it on with manta_handle(q.actor). Items come
 * out in the order in which they went in. */
typedef struct manta_queue {
    manta_actor actor;
} manta_queue;

/* At most `capacity` items; 0: no bound. `options` (may be NULL) are the actor's.
 * Release it. Untouched on failure. */
MANTA_API manta_status manta_queue_new(size_t capacity, const manta_task_options *options,
                                       manta_queue *out) MANTA_MUST_USE;
MANTA_API void manta_queue_release(manta_queue q);
/* Waits for room. Several go in together or not at all. MANTA_ETIMEDOUT the
 * queue is full. A reference (manta_of_ref()) goes in as it is. */
MANTA_API manta_status manta_queue_put(manta_queue q, manta_arg item, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_queue_put_all(manta_queue q, const manta_arg *items, size_t n,
                                           int64_t timeout_ms) MANTA_MUST_USE;
/* Waits for an item, or for at least `least`, and takes at most `most`; release
 * them. MANTA_ETIMEDOUT the queue is empty, or has fewer. */
MANTA_API manta_status manta_queue_get(manta_queue q, manta_ref *out, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_queue_get_many(manta_queue q, size_t least, size_t most, manta_ref *out,
                                            size_t *n, int64_t timeout_ms) MANTA_MUST_USE;
MANTA_API manta_status manta_queue_size(manta_queue q, size_t *out) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
