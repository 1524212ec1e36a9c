/* manta/node.h - a node that stays, and looking at nodes.
 *
 * A node is found by a socket in a folder of the user's own (docs/runtime.md).
 * `address` says which: a path, the pid of its daemon, or NULL: the one that was
 * started, else the only one that runs.
 *
 * Threads: any; nothing here needs or touches manta_init(). */
#ifndef MANTA_NODE_H
#define MANTA_NODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/status.h>
#include <manta/task.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_node_place {
    int daemon_pid;
    char path[108]; /* path of the node's socket */
    char log[128]; /* what it, and detached actors without a driver, have to say */
} manta_node_place;

/* Starts a node that lives until it is stopped. Of the options the amounts count. MANTA_EEXIST one runs already;
 * MANTA_EPERM its folder is not ours alone. */
MANTA_API manta_status manta_node_start(const manta_node_options *options,
                                        manta_node_place *out) MANTA_MUST_USE;

/* Ends a node and everything in it, and waits until it has. A daemon that does
 * not answer within timeout_ms is killed, which has the same effect. */
MANTA_API manta_status manta_node_stop(const char *address, int64_t timeout_ms,
                                       manta_node_place *out) MANTA_MUST_USE;

/* ---- looking ---- */

#define MANTA_VIEW_RESOURCES 12

typedef struct manta_view_amount {
    char name[32];
    double total, used;
} manta_view_amount;

typedef struct manta_view_job {
    uint32_t id;
    int driver_pid, zygote_pid, supervisor_pid; /* 0: gone, or none */
    char name_space[64];
} manta_view_job;

typedef struct manta_view_worker {
    uint32_t id, job;
    int pid, caller_pid; /* caller: who leases it; 0 nobody */
    bool is_dead; /* kept for the recent past */
    uint64_t actor; /* the actor that lives in the worker; 0: none */
    uint64_t calls; /* how many calls have ended */
    uint64_t task; /* the task that runs, of the function `function`; 0 and "": none */
    int64_t since_ns; /* CLOCK_MONOTONIC */
    char function[64];
} manta_view_worker;

typedef enum manta_view_state {
    MANTA_VIEW_STATE_WAITING, /* for a worker; of objects: to be made */
    MANTA_VIEW_STATE_STARTING,
    MANTA_VIEW_STATE_ALIVE, /* an actor that lives; an object that is there */
    MANTA_VIEW_STATE_DEAD /* an actor that is dead; an object that failed */
} manta_view_state;

typedef struct manta_view_actor {
    uint64_t id;
    uint32_t job;
    int pid; /* 0: has no process now */
    manta_view_state state;
    bool detached;
    int restarts; /* left; negative: without end */
    char name[64], name_space[64], constructor[64];
} manta_view_actor;

typedef struct manta_view_object {
    uint64_t id, size;
    int owner_pid; /* process that made the object; 0: it is gone, and the node keeps the object */
    int64_t holders;
    manta_view_state state;
    manta_kind kind;
    bool in_memory; /* in shared memory; else small, inside the daemon */
} manta_view_object;

/* A call that has ended, on some worker. */
typedef struct manta_view_call {
    int pid;
    uint32_t job;
    uint64_t task;
    int64_t begin_ns, end_ns; /* CLOCK_MONOTONIC */
    bool failed;
    char function[64];
} manta_view_call;

typedef struct manta_view {
    int daemon_pid, keeper_pid;
    int driver_pid; /* 0: a node that stays */
    int64_t started_ns, now_ns;
    char path[108], version[32];
    int n_amounts;
    manta_view_amount amounts[MANTA_VIEW_RESOURCES];
    uint64_t store_limit, store_used, store_spilled, segments; /* spilled: on disk */
    uint64_t all_objects, all_actors; /* how many there are, those not asked for included */
    int workers, leases;
    uint64_t waiting; /* calls and actors that wait for a worker */
    size_t n_jobs, n_workers, n_actors, n_objects, n_calls;
    manta_view_job *jobs;
    manta_view_worker *worker;
    manta_view_actor *actors;
    manta_view_object *objects; /* the largest first */
    manta_view_call *calls; /* in the order in which they began */
} manta_view;

enum {
    MANTA_VIEW_WORKERS = 1,
    MANTA_VIEW_ACTORS = 2,
    MANTA_VIEW_OBJECTS = 4,
    MANTA_VIEW_CALLS = 8 /* the recent past of every worker, some dead ones included */
};

/* Takes a picture of a node at one moment: what of the above, and at most
 * most_objects of its objects. *out: give back with manta_view_free(). */
MANTA_API manta_status manta_view_take(const char *address, unsigned what, size_t most_objects,
                                       manta_view **out) MANTA_MUST_USE;
MANTA_API void manta_view_free(manta_view *v); /* accepts NULL */

/* Where the first thread of a worker is, a line for each function, the innermost
 * first. *text: give back with free(). MANTA_ENOENT it is no worker of the node;
 * MANTA_ETIMEDOUT it does not answer. */
MANTA_API manta_status manta_view_stack(const char *address, int pid, char **text) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
