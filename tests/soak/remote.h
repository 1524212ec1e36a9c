/* remote.h - the functions that generated programs call, and the page that all processes
 * of a program and its supervisor share. */
#ifndef SOAK_REMOTE_H
#define SOAK_REMOTE_H

#include <stdatomic.h>

#include "model.h"

typedef struct soak_page {
    atomic_int may_end; /* round of holds that may end */
    atomic_int op; /* the operation that runs */
    atomic_int daemon; /* pid, for who looks at a program that does not end */
    atomic_bool refused; /* the node could not be started with so little, and said so */
    char what[768]; /* what is wrong */
} soak_page;

extern soak_page *soak_shared; /* made before any process */

/* Names of remote functions, and what they are given:
 *   soak_work_do    work, [argument], values..., each resolved or as references
 *   soak_hold       round
 *   soak_items      work; yields `width` items of `result` bytes
 *   soak_actor      nothing
 *   soak_method     as soak_work_do
 *   soak_calls      nothing; how many methods have run
 *   soak_via        actor, work; calls soak_method `width` times
 *   soak_produce    actor of a queue, work, number of the producer; puts `width` items
 * All are registered by remote.c. */

/* Digest of what a reference is, whatever it is. Waits. */
manta_status soak_ref_digest(manta_ref r, uint64_t *out) MANTA_MUST_USE;

/* The options of a call that may be tried so often; see SOAK_RETRIES. */
manta_task_options soak_retries(int64_t retries);

#define SOAK_ITEM_HEAD 16 /* bytes of a queue's item: its producer and its number, before the rest */

#endif
