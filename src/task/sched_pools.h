/* sched_pools.h - what there is: the pools that workers take resources from, and the gpus in them. Pure.
 *
 * A pool is the node's, or that of one bundle of a placement group:
 *
 *     total ---> node                     left: what nobody holds
 *                  |     ^                plan: left, less what those before in the line would take
 *            place |     | remove         gpus, plan_gpus: the same of each device
 *                  v     |
 *              group: bundle 0, bundle 1, ...     each a pool of its own
 *
 *     take:  left -= shape, gpus -= devices      when a worker is given out
 *     give:  left += shape, gpus += devices      when it comes back or is dead
 *
 * Invariants:
 * 1. What is left of the node, what is left of the bundles of groups that are placed, and what workers
 *    hold is the total; a worker whose call waits holds no cores.
 * 2. What a group that is removed had lent to workers comes back to the node's pool.
 * 3. A device is shared only by those who ask for a part of one.
 *
 * Plans begin anew with every pass over the line; nothing else outlives a pass in them. */
#ifndef TASK_SCHED_POOLS_H
#define TASK_SCHED_POOLS_H

#include "base/map.h"
#include "task/sched.h"

/* How much of each gpu. */
typedef struct sched_gpus {
    int64_t at[SCHED_DEVICES];
} sched_gpus;

typedef struct sched_pool {
    sched_shape left;
    sched_shape plan; /* what would be left had those before in the line got a worker */
    sched_gpus gpus, plan_gpus; /* what is left, and would be, of each gpu */
} sched_pool;

typedef struct sched_group {
    bool placed;
    uint32_t kept; /* in this pass: resources (bits) that are for one that has waited long */
    int n;
    sched_shape *size;
    sched_pool *bundles;
} sched_group;

typedef struct sched_pools {
    sched_shape total;
    sched_pool node;
    uint32_t kept; /* as in a group */
    MAP_U64(sched_group *) groups;
} sched_pools;

/* The gpus of a node that has `total`. */
sched_gpus gpus_of(const sched_shape *total);

/* Chooses gpus for an amount: whole ones that nobody uses, or, for a part, the
 * one that has least left and enough. false: there are none. */
bool gpus_choose(const sched_gpus *left, int64_t amount, sched_gpus *out);

void gpus_subtract(sched_gpus *left, const sched_gpus *x, int64_t times);
void shape_subtract(sched_shape *left, const sched_shape *shape, int64_t times);

/* The resources of which a shape takes anything, as bits. */
uint32_t shape_takes(const sched_shape *shape);
/* And those of which anything must be free for it. */
uint32_t shape_needs(const sched_shape *shape);

void pools_init(sched_pools *p, const sched_shape *total);
void pools_release(sched_pools *p);

/* A group by its number; NULL: there is none, as there is none of number 0. */
sched_group *pools_group(const sched_pools *p, uint64_t id);

/* The pool that lends to one with `shape`, which was given `bundle`. What a group that is no more had
 * lent is the node's. */
sched_pool *pools_lender(sched_pools *p, const sched_shape *shape, int bundle);

/* The pool in whose plan a shape has room; NULL: none now. `group` is one that is to be placed, whose
 * bundles together are the shape; 0: it is for a worker. */
sched_pool *pools_find(sched_pools *p, const sched_shape *shape, uint64_t group, int *bundle);

/* The resources of which a shape finds too little, as bits, in any of the pools it may be
 * served from. */
uint32_t pools_lacking(const sched_pools *p, const sched_shape *shape);

/* What is kept, in this pass, for one that has waited long, of the pools that a shape is served from. */
uint32_t *pools_kept(sched_pools *p, const sched_shape *shape);

/* The line is looked at from its beginning: every plan is what is left, and nothing is kept. */
void pools_plan_anew(sched_pools *p);

/* One more of a shape would be given out: takes it from the plan of a pool in which it has room. */
void pools_plan_one(sched_pool *p, const sched_shape *shape);

/* Takes a shape, for which pools_find() has said that there is room; the devices go to *gpus. */
void pools_take(sched_pool *p, const sched_shape *shape, sched_gpus *gpus);
void pools_give(sched_pool *p, const sched_shape *shape, const sched_gpus *gpus);

/* A new group, which has no place yet; *sum: all its bundles together. false: n is not 1 to
 * GROUP_BUNDLES, or there is one of this number. */
bool pools_group_add(sched_pools *p, uint64_t id, const sched_shape *bundles, int64_t n, sched_shape *sum);

/* The bundles of a group, `sum` together, are set apart, all at once; pools_find() has said that there
 * is room. */
void pools_group_place(sched_pools *p, uint64_t id, const sched_shape *sum);

/* A group is no more: what is left of its bundles is the node's. false: there was none. */
bool pools_group_remove(sched_pools *p, uint64_t id);

#endif
