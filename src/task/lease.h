/* lease.h - the workers that the daemon has leased to this process. Private to task/.
 *
 * Calls that need the same amounts share a shape, and with it the workers that the
 * daemon has leased to this process for that shape; leases.c has the picture.
 *
 * Threads: the runtime's lock guards everything; all functions here are called with it. */
#ifndef TASK_LEASE_H
#define TASK_LEASE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "task/call_order.h"
#include "task/demand.h"
#include "task/failure.h"
#include "task/sched.h"
#include "task/sizes.h"

struct peer;

#define LEASE_BUDGET_NS 200000 /* work sent ahead to one worker, by experience */

/* Calls that need the same, and the workers leased for it. */
typedef struct shape {
    sched_shape amount;
    uint32_t lends; /* to calls that its calls make (nested.h) */
    bool is_infeasible; /* its calls wait in no list, until they are cancelled */
    call_order queue;
    int64_t queued;
    demand demand; /* what the daemon was asked for */
    VEC(struct peer *) workers;
} shape;

/* Finds the shape of these amounts, or makes it; never NULL. */
shape *shape_find(const sched_shape *amount);

/* Sends the calls of a shape to its workers, as many as they take, and asks the daemon for those that are
 * missing. */
void shape_dispatch(shape *s);

/* Sends what can be sent, and asks the daemon for the workers that are missing. */
void calls_dispatch(void);

/* Gives the lease of p back, or forgets it when p is dead. */
void lease_return(struct peer *p);

/* Takes a lease for `amount`, granted for the demand of that number; p NULL: of a worker that
 * cannot be reached. */
void calls_grant(struct peer *p, const sched_shape *amount, uint64_t number);

/* Gives the lease of p back as soon as p has none of our calls: others wait for it. */
void calls_reclaim(struct peer *p);

/* Gives back the leases of workers that have none of our calls, and asks for no more than the calls that wait
 * need. Leases are kept only because the next call may want them; whoever asks what is free is not to be told
 * that they are taken. Whether there was one. */
bool calls_return_idle(void);

/* Fails the calls that wait for a worker for `amount`: none will come. */
void calls_no_worker(const sched_shape *amount, const failure *f);

/* Fails the calls that wait for a place in the group. */
void calls_group_gone(uint64_t group, failure *f);

/* Frees the shapes at the end. */
void shapes_release(void);

#endif
