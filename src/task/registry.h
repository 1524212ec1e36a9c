/* registry.h - which programs, actors, names and placement groups a node has, and what
 * becomes of them. Pure.
 *
 * An actor:
 *
 *     ACTOR_NEW ──▶ WAITING ──PLACED──▶ STARTING ──ACTOR_UP──▶ ALIVE
 *                      ▲                    │                    │
 *                      └──── WORKER_GONE, restarts are left ─────┤
 *                                                                │
 *     DEAD ◀── ACTOR_FAILED, ACTOR_KILL, REFUSED, its group or its job ends, or
 *              WORKER_GONE and no restarts are left
 *
 * DEAD is for ever; the entry stays, so that whoever asks hears why, until RELEASED says
 * that nobody holds a handle any more. A group is there from GROUP_NEW until it is
 * removed or the process that made it dies; a job (a program) from JOB_NEW until the
 * PASS that finds it over.
 *
 * Other code relies on these:
 *  1. An actor has at most one worker, and a worker at most one actor: who is given a
 *     second one, or one for an actor that waits for none, has it killed.
 *  2. A name belongs to at most one actor that is not DEAD.
 *  3. Whoever wanted an actor (ACTOR_WANT) is told once that it is DEAD, and nothing
 *     of it afterwards, unless it asks again.
 *  4. With a group end the actors whose shape names it; with a job those of the job.
 *
 * registry_step() takes one event and writes actions; no input, output, clock or random
 * number, and no order that depends on addresses: the same events give the same
 * actions, on this host or on another that replays them. Actions are to be done in their
 * order and before the next event; what they lead to (the scheduler places at once, a
 * process cannot be reached) are events for later. Pointers in an action are valid until
 * the next event. The scheduler (sched.h), which is told by DO_PLACE and the like, and the
 * reference counts (refs.h), by DO_REFS, are machines of their own.
 *
 * Threads: a registry is used by one thread at a time. */
#ifndef TASK_REGISTRY_H
#define TASK_REGISTRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/task.h>

#include "base/buf.h"
#include "base/vec.h"
#include "store/refs.h"
#include "task/failure.h"
#include "task/proto.h"
#include "task/sched.h"

#define REGISTRY_MOST_STILLBORN 8 /* workers in a row that may end before they are ready */

typedef struct registry registry;

typedef enum registry_kind {
    REGISTRY_JOB_NEW, /* job, name: its name space, is_joined: it came to a node that others use */
    REGISTRY_JOB_DRIVER, /* job, client: its driver */
    REGISTRY_JOB_BROKEN, /* job: its processes cannot be kept any more */
    REGISTRY_WORKER_READY, /* job: a worker of it has started */
    REGISTRY_WORKER_STILLBORN, /* job: a worker of it ended before that, or could not be started */
    REGISTRY_WORKER_GONE, /* worker is dead, failure: what its actor dies of if it does */
    REGISTRY_DRIVER_GONE, /* job: its driver is dead */
    REGISTRY_CLIENT_GONE, /* client is dead: its groups end, actors that end with their maker too, it is told nothing more */
    REGISTRY_PASS, /* between messages: jobs that are over end */
    REGISTRY_ACTOR_NEW, /* client, job, request, id, name, and the fields of an actor */
    REGISTRY_ACTOR_WANT, /* client, id: tell it where the actor is, from now on */
    REGISTRY_ACTOR_FIND, /* client, request, name */
    REGISTRY_ACTOR_UP, /* worker, id: its constructor has returned */
    REGISTRY_ACTOR_FAILED, /* worker, id, failure: of its constructor */
    REGISTRY_ACTOR_KILL, /* id, how (PROTO_KILL_), failure: what it then dies of */
    REGISTRY_ACTOR_PLACED, /* id, worker: the scheduler has one for it */
    REGISTRY_ACTOR_REFUSED, /* id, failure: it gets no process, or cannot be reached in it */
    REGISTRY_ACTOR_RELEASED, /* id: nobody holds a handle any more */
    REGISTRY_GROUP_NEW, /* client, request, id, how, name, bundles, n, status: why it cannot be made; 0: it can */
    REGISTRY_GROUP_PLACED, /* id: the scheduler has set its bundles apart */
    REGISTRY_GROUP_REMOVE /* id */
} registry_kind;

typedef struct registry_event {
    registry_kind kind;
    uint32_t client, worker, job;
    uint64_t id; /* of an actor or a group */
    uint64_t request; /* 0: nobody waits for an answer */
    uint32_t how, flags; /* flags: PROTO_ACTOR_ */
    int restarts, retries, concurrency, most_pending;
    bool is_joined;
    manta_status status;
    sched_shape shape;
    const sched_shape *bundles; /* these are only read during the step */
    int n;
    const char *name, *function; /* function: the constructor's */
    const void *call; /* the constructor's message */
    size_t n_call;
    const void *inner; /* numbers (u64) of the objects that it refers to */
    uint64_t n_inner;
    failure *failure; /* NULL: none is known */
} registry_event;

typedef enum registry_action_kind {
    REGISTRY_DO_REFS, /* tell the reference counts: refs, id, inner, client */
    REGISTRY_DO_PLACE, /* ask the scheduler for a worker for actor id */
    REGISTRY_DO_UNPLACE, /* and do not any more */
    REGISTRY_DO_CONSTRUCT, /* worker is to run the constructor of actor id */
    REGISTRY_DO_EXIT, /* worker is to finish its calls and leave */
    REGISTRY_DO_KILL, /* kill worker */
    REGISTRY_DO_TELL_AT, /* tell client that actor id is in worker */
    REGISTRY_DO_TELL_DEAD, /* tell client that actor id is DEAD; an actor that is not there never was, or was released */
    REGISTRY_DO_ANSWER, /* answer request of client: status, id */
    REGISTRY_DO_GROUP_PLACE, /* promise group id, and ask the scheduler for its bundles */
    REGISTRY_DO_GROUP_READY, /* keep the promise */
    REGISTRY_DO_GROUP_TELL_GONE, /* tell all clients that group id is no more, */
    REGISTRY_DO_GROUP_BREAK, /* break the promise, if it was not kept, */
    REGISTRY_DO_GROUP_UNPLACE, /* and tell the scheduler, which kills what is in it */
    REGISTRY_DO_JOB_GIVE_UP, /* workers of job cannot start: a node of its own ends with it */
    REGISTRY_DO_JOB_GONE, /* tell the scheduler that job is no more, */
    REGISTRY_DO_JOB_END /* and end its processes */
} registry_action_kind;

typedef struct registry_action {
    registry_action_kind kind;
    uint32_t client, worker, job;
    uint64_t id, inner, request;
    refs_kind refs;
    manta_status status;
} registry_action;

typedef VEC(registry_action) registry_actions;

typedef enum registry_actor_state {
    ACTOR_IS_WAITING,
    ACTOR_IS_STARTING,
    ACTOR_IS_ALIVE,
    ACTOR_IS_DEAD
} registry_actor_state;

/* Why an actor is DEAD; the words are for whoever tells it. */
typedef enum registry_death { DEATH_OF_FAILURE, DEATH_OF_GROUP, DEATH_OF_JOB, DEATH_OF_MAKER } registry_death;

typedef struct registry_actor {
    uint64_t id;
    uint32_t job;
    registry_actor_state state;
    char name[PROTO_NAME]; /* "": none, or it is DEAD */
    char function[64]; /* its constructor */
    bool detached; /* lives without handles */
    uint32_t flags; /* PROTO_ACTOR_ */
    uint32_t maker; /* the worker whose actor has made it, and with whom it ends; 0: it does not */
    int restarts, restarted; /* how often it may be, less than 0: always; how often it was */
    int retries, concurrency, most_pending; /* for its callers and its worker */
    sched_shape shape;
    buf call; /* of the constructor */
    uint32_t worker; /* 0: none */
    registry_death death;
    failure *failure; /* of DEATH_OF_FAILURE; NULL: it is not known */
    VEC(uint32_t) wanters;
} registry_actor;

typedef struct registry_group {
    uint64_t id;
    char name[64]; /* "": none */
    uint32_t owner, how;
    bool placed;
    int n;
    sched_shape size[]; /* of the bundles */
} registry_group;

typedef struct registry_job {
    uint32_t id;
    uint32_t driver; /* its client; 0: gone */
    char space[64]; /* where the names of its actors are */
    bool is_joined;
    bool broken; /* to be ended */
    int stillborn; /* workers in a row */
} registry_job;

registry *registry_new(void);
void registry_free(registry *r); /* accepts NULL */

/* Applies one event and adds what follows to *out. */
void registry_step(registry *r, const registry_event *e, registry_actions *out);

/* Find by number, and an actor by the worker it lives in or was last in, a group by its
 * name; NULL: there is none. Borrowed until the next event. */
const registry_actor *registry_find_actor(const registry *r, uint64_t id);
const registry_actor *registry_actor_in(const registry *r, uint32_t worker);
const registry_group *registry_find_group(const registry *r, uint64_t id);
const registry_group *registry_group_named(const registry *r, const char *name);
const registry_job *registry_find_job(const registry *r, uint32_t id);

/* The number of the actor that the worker was given, also when that is no more; 0: none. */
uint64_t registry_number_in(const registry *r, uint32_t worker);

/* Says whether the job goes on without its driver: it has detached actors. */
bool registry_job_stays(const registry *r, uint32_t id);

/* Count and enumerate what there is, in an order that only events change. */
size_t registry_actors(const registry *r);
const registry_actor *registry_actor_at(const registry *r, size_t i);
size_t registry_groups(const registry *r);
size_t registry_jobs(const registry *r);
size_t registry_names(const registry *r);

#endif
