/* node.h - the processes of a node.
 *
 *     driver ── keeper ── daemon ── zygote ── worker, worker, ...
 *
 * Each is a fork of the one before. The keeper and the daemon adopt orphans
 * and watch each other: when the driver or the daemon ends, the keeper kills
 * and waits for everything below it, and when the keeper is killed the daemon
 * does the same. A zygote that dies is replaced; its workers live on. Workers
 * leave by themselves when their connection to the daemon closes, so nothing
 * outlives even the death of all the others at once.
 *
 * A node that `manta start` began has no driver and no zygote. A program that
 * joins it forks the same shape for itself, with a job supervisor in the daemon's place:
 *
 *     driver ── keeper ── supervisor ── zygote ── worker, worker, ...
 *
 * The supervisor adopts orphans, replaces a dead zygote, and ends everything when
 * its connection to the daemon closes. Detached actors therefore outlive their
 * driver, and nothing outlives the daemon.
 *
 * With a nursery (nursery.h) nothing here is a fork of the driver: the keeper is the program
 * manta-node (node_program.h), daemon and supervisor are its forks, and the nursery is in the zygote's place. */
#ifndef TASK_NODE_H
#define TASK_NODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include <manta/task.h>

#include "base/status.h"
#include "os/spawner.h"
#include "task/node_socket.h"
#include "task/sched.h"

typedef struct node_config {
    sched_shape total;
    char names[SCHED_RESOURCES][32]; /* "" ends the list */
    uint64_t store_limit, spill_limit; /* bytes in memory, and on disk */
    char spill_folder[256];
    uint64_t worker_memory; /* most bytes of a worker's own; 0: no limit */
    bool memory_is_free; /* what a call reserves is no limit */
    uint64_t memory_floor; /* the machine is short when it has less than that */
    int prestart; /* workers to fork before anyone asks */
    int max_workers; /* of a program, beside its actors; 0: any number */
    char space[64]; /* namespace of the driver; "" its own */
    bool plain_output; /* workers write to the driver's own output */
    /* For processes that are no forks of the driver: */
    const char *nursery; /* the command whose forks the workers are (nursery.h), borrowed */
    size_t n_nursery; /* its bytes; 0: they are forks of the driver */
    int nursery_ms; /* how long it may take until it is ready */
    uint64_t lineage; /* rebuild_limit (rebuild.h) */
    int log_level;
} node_config;

/* Turns the options of a program into a configuration, with the machine's own cores and
 * memory where they say nothing; `o` may be NULL. Without a nursery. */
manta_status node_config_of(const manta_node_options *o, node_config *c) MANTA_MUST_USE;

/* Starts a node for this process. *fd: the connection to the daemon, and
 * *keeper_pidfd; both owned. *keeper: the child that is to be reaped; 0: it is nobody's, which it is
 * when there is a nursery. */
manta_status node_start(const node_config *c, pid_t *keeper, int *fd, int *keeper_pidfd) MANTA_MUST_USE;

/* Starts a node that stays until it is stopped; `log` receives what it has to
 * say. *daemon: its pid; path: where it is found (node_socket.h). */
manta_status node_start_alone(const node_config *c, int log, pid_t *daemon,
                              char path[NODE_SOCKET_PATH]) MANTA_MUST_USE;

/* Joins the node behind the connection *fd; keeper and descriptors as of
 * node_start(). The connection is closed on failure. */
manta_status node_join(const node_config *c, int fd, pid_t *keeper, int *keeper_pidfd) MANTA_MUST_USE;

/* Removes the socket of a program's own node whose daemon and keeper are dead, if they have left it. */
void node_sweep(pid_t daemon);

/* The program had several threads when its node was started. */
extern bool node_has_threads;

/* What a new process does; none of these returns. */
_Noreturn void daemon_main(const node_config *c, int driver_fd, pid_t driver, int driver_pidfd,
                           int keeper_pidfd, pid_t keeper);
_Noreturn void daemon_main_alone(const node_config *c, int tell_fd, int keeper_pidfd, pid_t keeper);
_Noreturn void supervisor_main(const node_config *c, int fd, int keeper_pidfd); /* job_supervisor.c */
_Noreturn void worker_main(int fd, const int pipes[2]); /* worker.c; pipes: -1 when it writes to its own */
_Noreturn void zygote_main(int fd, int parent_pidfd, bool plain_output, const struct rlimit *files);
/* The keeper of a program's own node, and of one that joined; the program listens at fd, or at tell. */
_Noreturn void node_keep(const node_config *c, int fd, pid_t driver, int driver_pidfd);
_Noreturn void node_keep_guest(const node_config *c, int fd, int tell);

/* Starts what forks the workers, a zygote or the nursery of the configuration, below this process, which
 * it watches by parent_pidfd. `files`: the limit of open files that the program had; NULL, or
 * all zero: this process has it too. *fd: the connection to it, owned; *out: as of spawn_start(). */
manta_status node_start_zygote(int parent_pidfd, const node_config *c, const struct rlimit *files, int *fd,
                               spawn_child *out) MANTA_MUST_USE;

/* Remembers which descriptors are open now, and whether there are threads: the processes of
 * the node that is started next keep those descriptors and no others. */
void node_remember_files(void);

#endif
