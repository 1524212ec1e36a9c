/* sched.h - who gets which worker: the daemon's placing. Pure.
 *
 * A client says how many calls of one shape (an amount of every resource) it
 * has waiting; the scheduler leases it workers, as long as there is enough of
 * everything, in turn with the other clients. A lease is the client's until it
 * returns it: calls then go from client to worker without the daemon. An actor
 * takes a worker for itself. When somebody waits for what others hold, the
 * holders are asked to return what they do not use.
 *
 * A placement group reserves bundles of resources, all of them or none. Calls
 * and actors whose shape names the group take from its bundles and from nothing
 * else, and stand in nobody's way outside. When the group is removed its
 * workers are to be killed, and what they hold is the node's again.
 *
 * Gpus are told apart: who asks for whole ones gets devices that nobody else
 * uses, who asks for a part of one shares a device with others like it.
 *
 * sched_step() takes one event and writes actions; no input, output, clock or
 * random number. Amounts are in 1/10000. The free amount may be negative for a
 * while: a call that waits gives its cores back and takes them again, asking
 * nobody, when its wait ends.
 *
 * Workers belong to a job, the program whose functions they have, and have one of its
 * environments for life: a request is served by workers of its own job and environment, while
 * resources are shared by all. Idle workers of environments that have a name are few: the one that was
 * idle longest goes when there are too many, or when it stands in the way of another. */
#ifndef TASK_SCHED_H
#define TASK_SCHED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

#define SCHED_RESOURCES 12 /* cpu, gpu, memory (bytes), and what the node's options name */
#define SCHED_NAMED     3 /* the first of the latter */
#define SCHED_GPU       1
#define SCHED_DEVICES   16 /* most that the gpus of a node are told apart */
#define SCHED_UNIT      10000
#define GROUP_BUNDLES   64 /* most of one group */
#define SCHED_NEVER     (INT64_MAX / 4) /* of cores: more than there ever are */
#define SCHED_ANY       (-1) /* of a group's bundles: whichever has room */
#define SCHED_SCARCE    1 /* n of START_FAILED: something is used up that other workers have, too */
#define SCHED_REFUSED   2 /* the worker itself said that it cannot work */

typedef struct sched_shape {
    int64_t amount[SCHED_RESOURCES];
    uint64_t group; /* 0: of what no group has reserved */
    int64_t bundle; /* of the group, or SCHED_ANY */
    uint64_t environment; /* that the worker is to have, a number of its job; 0: the plain one */
    int64_t place; /* cores that must be free when it is placed, beside its amounts, and are not taken */
} sched_shape;

typedef struct sched sched;

typedef enum sched_kind {
    SCHED_DEMAND, /* client, shape, n: so many calls wait (an absolute number); grants name its `demand` */
    SCHED_RETURN, /* client, worker: the lease ends */
    SCHED_STARTING, /* job, environment, n: workers are on their way that nobody has asked for */
    SCHED_RENEW, /* job: better workers of its plain environment can be had: the idle ones are stopped and
                  * others started, those that are leased stopped when they come back */
    SCHED_WORKER_UP, /* worker */
    SCHED_START_FAILED, /* a worker of job and environment that was to be started was not; n > 0: nor
                         * would the next be, until a worker of the job is gone, or there is none of the
                         * environment and somebody asks again */
    SCHED_STAYS, /* worker, job: it was to be stopped, and is not: others wait for what it is to make */
    SCHED_WORKER_GONE, /* worker: is dead */
    SCHED_CLIENT_GONE, /* client: is dead; its leases end, its workers are to be killed */
    SCHED_RETIRE, /* worker: is to be stopped when its lease ends */
    SCHED_STARVED, /* job: sched_is_starved(), and none of its processes, its driver neither, will ever do
                    * anything unless another does: its calls that wait for a worker are refused */
    SCHED_BLOCKED, /* worker: its call waits */
    SCHED_RUNNING, /* worker: its call goes on */
    SCHED_ACTOR, /* client = actor's number, shape: wants a worker */
    SCHED_ACTOR_CANCEL, /* client = actor's number: no longer */
    SCHED_JOB_GONE, /* job: its workers cannot be started any more, its requests are void */
    SCHED_GROUP, /* client = group's number, bundles, n */
    SCHED_GROUP_REMOVE /* client = group's number */
} sched_kind;

typedef struct sched_event {
    sched_kind kind;
    uint64_t client;
    uint32_t worker;
    uint32_t job; /* of DEMAND, ACTOR, STARTING, WORKER_UP, STAYS, START_FAILED and STARVED */
    uint64_t environment; /* of STARTING, WORKER_UP, STAYS and START_FAILED */
    sched_shape shape;
    int64_t n;
    uint64_t demand; /* of DEMAND: its number, the client's own */
    const sched_shape *bundles;
} sched_event;

typedef enum sched_action_kind {
    SCHED_DO_GRANT, /* client gets worker for shape */
    SCHED_DO_ACTOR, /* actor `client` gets worker */
    SCHED_DO_START, /* start a worker of job and environment */
    SCHED_DO_STOP, /* end an idle worker */
    SCHED_DO_KILL, /* end a worker whose caller died in the middle of a call */
    SCHED_DO_RECLAIM, /* ask client to return worker as soon as it has nothing to do */
    SCHED_DO_GROUP, /* group `client` has its bundles */
    SCHED_DO_REFUSE, /* client gets no worker for shape: none can be started, and its job has none, or
                      * client is one, and all that it has wait, as it does, or the job is STARVED */
    SCHED_DO_REFUSE_ACTOR, /* actor `client` gets no worker: none can be started */
    SCHED_DO_CAP, /* job has as many workers for calls as it may, and more calls; said once until it
                   * has fewer */
    SCHED_DO_REFUSE_CAPPED /* client, a worker, gets none for shape: all that job may have wait, as it does;
                            * or any client, of a job that is STARVED */
} sched_action_kind;

typedef struct sched_action {
    sched_action_kind kind;
    uint64_t client;
    uint32_t worker;
    uint32_t job;
    uint64_t environment; /* of START */
    uint64_t demand; /* of GRANT: the last that the client had made when it was served */
    sched_shape shape;
} sched_action;

typedef VEC(sched_action) sched_actions;

/* `idle`: how many workers of a job to keep ready in the plain environment, and as many in all others
 * together. */
sched *sched_new(sched_shape total, int idle);
void sched_free(sched *s); /* accepts NULL */
/* Allows a job at most n workers beside those of actors; 0: any number. A call that waits gives its
 * core back, so that calls which wait for calls would be as many processes. */
void sched_cap(sched *s, int64_t n);
void sched_step(sched *s, const sched_event *e, sched_actions *out);

/* Whether the node could ever run it; the number of the resource that is
 * missing goes to *missing. */
bool sched_feasible(const sched_shape *total, const sched_shape *shape, int *missing);

/* Whether an empty node has gpus for all of n bundles. */
bool sched_gpus_fit(const sched_shape *total, const sched_shape *bundles, int n);

sched_shape sched_total(const sched *s);
sched_shape sched_left(const sched *s); /* outside groups */
/* What is left of bundle i of a group; false: no such bundle is placed. */
bool sched_bundle_left(const sched *s, uint64_t group, int i, sched_shape *out);
/* What a worker holds, its bundle as it was chosen; false: nothing. */
bool sched_held(const sched *s, uint32_t worker, sched_shape *out);
/* Which gpus it holds, or a part of: bit i for the i-th. */
uint32_t sched_devices(const sched *s, uint32_t worker);
int sched_leases(const sched *s);
int sched_workers(const sched *s);
int64_t sched_waiting(const sched *s); /* calls and actors in the line */
/* Whether calls of the job lack nothing but a worker, of which it may or can have no more, and all that
 * it has, beside those of actors, are in calls that wait. */
bool sched_is_starved(const sched *s, uint32_t job);
uint64_t sched_holder(const sched *s, uint32_t worker); /* the client that leases it; 0: none */

#endif
