/* manta/context.h - where this runs: the node of this program, and the call under way.
 *
 * manta/node.h looks at nodes from outside, without manta_init().
 *
 * Threads: any thread of the program. */
#ifndef MANTA_CONTEXT_H
#define MANTA_CONTEXT_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/placement.h>
#include <manta/status.h>
#include <manta/task.h>
#include <manta/value.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_resource {
    char name[32]; /* "cpu", "gpu", "memory" (bytes), and those of the node's options */
    double total, available; /* available: what neither a call nor a group holds */
} manta_resource;

typedef struct manta_node_info {
    uint64_t node; /* number of the node */
    int n_resources;
    manta_resource resources[16];
    int daemon_pid, keeper_pid, zygote_pid;
    double cpus, free_cpus, gpus, free_gpus;
    int workers, actors, leases;
    uint64_t objects; /* objects that the daemon holds for more than one process */
    uint64_t store_limit, store_used; /* bytes of segments in memory */
    uint64_t spill_used; /* bytes on disk */
    uint64_t spill_written, spill_read; /* bytes that went there and came back, since the start */
    uint64_t tasks_done; /* tasks that have ended in this process */
    int n_worker_pids;
    int worker_pids[64];
    char path[108]; /* of its socket, an address for manta/node.h; "": there is none */
} manta_node_info;

/* Asks the daemon. */
MANTA_API manta_status manta_node_get(manta_node_info *out) MANTA_MUST_USE;

typedef struct manta_context {
    uint64_t node;
    uint32_t worker; /* number of this process in the node; never used again */
    int pid;
    bool is_worker, in_process;
    /* of the call; zeros outside calls */
    uint64_t task;
    char function[64], name[64]; /* name: of the options */
    int attempt;
    bool is_cancelled;
    /* what it holds */
    double cpus, gpus;
    uint64_t memory;
    char resources[256]; /* "cpu=1,disk=2" */
    int n_gpu_ids, gpu_ids[16]; /* its devices, from 0: its own, or shared when it has a part of one;
                                 no variable of the environment is touched */
    manta_placement_group placement_group;
    int bundle; /* counted from 1; 0: none */
    /* of the actor that this process is */
    manta_actor actor; /* borrowed */
    char actor_name[64];
    bool was_restarted;
} manta_context;

/* Where this runs, and what it may use. `t` may be NULL, outside calls. Asks the
 * daemon. */
MANTA_API manta_status manta_context_get(const manta_task *t, manta_context *out) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
