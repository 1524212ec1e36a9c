/* node.h - the processes of a node.
 *
 *     driver ── keeper ── daemon ── zygote ── worker, worker, ...
 *
 * Each is a fork of the one before. The keeper and the daemon adopt orphans
 * and watch each other: when the driver or the daemon ends, the keeper kills
 * and waits for everything below it, and when the keeper is killed the daemon
 * does the same. A zygote that dies is replaced; its workers live on. Workers
 * leave by themselves when their connection to the daemon closes, so nothing
 * outlives even the death of all the others at once. */
#ifndef TASK_NODE_H
#define TASK_NODE_H

#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "task/sched.h"

typedef struct node_config {
    sched_shape total;
    char names[SCHED_RESOURCES][32]; /* "" ends the list */
    uint64_t store_limit, spill_limit; /* bytes in memory, and on disk */
    char spill_folder[256];
    uint64_t worker_memory; /* most bytes of a worker's own; 0: no limit */
    uint64_t memory_floor; /* the machine is short when it has less than that */
    int prestart; /* workers to fork before anyone asks */
} node_config;

/* Starts a node for this process. *fd: the connection to the daemon, and
 * *keeper_pidfd; both owned. */
manta_status node_start(const node_config *c, pid_t *keeper, int *fd, int *keeper_pidfd) MANTA_MUST_USE;

/* What a new process does; none of these returns. */
_Noreturn void daemon_main(const node_config *c, int driver_fd, pid_t driver, int driver_pidfd,
                           int keeper_pidfd, pid_t keeper);
_Noreturn void zygote_main(int fd, int daemon_pidfd);
_Noreturn void worker_main(int fd); /* worker.c */

/* Closes every descriptor but those open when node_start() was called, and
 * those in keep[0 .. n). */
void node_close_others(const int *keep, int n);

#endif
