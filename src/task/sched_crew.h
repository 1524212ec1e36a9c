/* sched_crew.h - the workers that there are, and what each of them holds. Pure.
 *
 *                   grant                      grant to an actor
 *     (up) --> IDLE ------> LEASED             IDLE ------> ACTOR
 *               ^  |           |                              |
 *               |  +-----------+ return                       | dead
 *               |  |                                          v
 *         stays |  | makes room for another                (gone)
 *               |  v
 *              LEAVING --> (gone)
 *
 * `idle_since` grows with each that becomes idle: which of several has been so for longest is known
 * without a clock. */
#ifndef TASK_SCHED_CREW_H
#define TASK_SCHED_CREW_H

#include "task/sched_pools.h"

typedef enum crew_state { CREW_IDLE, CREW_LEASED, CREW_ACTOR, CREW_LEAVING } crew_state;

typedef struct crew_worker {
    crew_state state;
    uint32_t job;
    uint64_t environment;
    uint64_t idle_since; /* a number that grows */
    uint64_t holder; /* client or actor */
    sched_shape shape; /* as it was asked for */
    int bundle; /* that it takes from */
    sched_gpus gpus;
    bool blocked;
    bool asked; /* its holder knows that others wait for it */
    bool old; /* to be stopped when it is idle */
    bool retired; /* old, and in no call: it waits for its holder alone */
    bool stays; /* idle: it was to leave and has to stay, as far as is known */
} crew_worker;

typedef struct crew {
    MAP_U64(crew_worker) at;
    uint64_t idled; /* workers that became idle */
} crew;

void crew_release(crew *c);

/* A worker by its number; NULL: there is none. Valid until one comes or goes. */
crew_worker *crew_find(const crew *c, uint64_t id);

/* One that was started, or stays though it was to be stopped, is idle. */
void crew_add(crew *c, uint32_t id, uint32_t job, uint64_t environment, bool stays);

/* What a worker holds is its pool's again, and it is idle. */
void crew_free(crew *c, crew_worker *w, sched_pools *p);

/* The cores of a worker's call that waits are given back (-1), and taken again (1). What else it holds
 * (memory on a device, a license) it still uses. */
void crew_take_cores(const crew_worker *w, sched_pools *p, int64_t sign);

/* An idle worker of a job and environment, other than `itself`; 0: none. */
uint32_t crew_find_idle(const crew *c, uint32_t job, uint64_t environment, uint64_t itself);

/* Whether there is any worker of the job and environment. */
bool crew_has(const crew *c, uint32_t job, uint64_t environment);

/* Whether a worker of the job and environment, other than `itself`, runs calls, or could: one that an
 * actor has does not. */
bool crew_runs_calls(const crew *c, uint32_t job, uint64_t environment, uint64_t itself);

/* Whether a worker of the job that no actor has goes on: its call does not wait, or it has none and leaves
 * before long. `itself` does not when it is idle: it is nobody's who asks, and asks itself. */
bool crew_goes_on(const crew *c, uint32_t job, uint64_t itself);

/* How many workers of the job no actor has. */
int64_t crew_for_calls(const crew *c, uint32_t job);

/* Whether a worker of the job is leaving for another. */
bool crew_makes_room(const crew *c, uint32_t job);

/* The worker of the job that is idle in another environment than this one, for longest, and may leave;
 * 0: none. */
uint32_t crew_find_idle_elsewhere(const crew *c, uint32_t job, uint64_t environment);

/* Whether workers of the job have another environment, and could make room before long. */
bool crew_has_others(const crew *c, uint32_t job, uint64_t environment);

/* Asks the holder of a worker, once, to return it. */
void crew_reclaim(crew_worker *w, uint32_t id, sched_actions *out);

/* Stops an idle worker: it is no more. */
void crew_stop(crew *c, uint32_t id, sched_actions *out);

/* Stops an idle worker at once, and a leased one when its lease ends, for which its holder is asked. */
void crew_retire(crew *c, uint32_t id, sched_actions *out);

/* Worker `id` has become idle: stops it, or, of environments that have a name, the one that has been
 * idle longest, when more than `most` are idle that are alike. */
void crew_stop_surplus(crew *c, uint32_t id, int most, sched_actions *out);

/* A worker that had to stay, because others waited for what it was to make, may have made it: when it
 * has, it returns what it had leased for that. */
void crew_ask_again(crew *c);

#endif
