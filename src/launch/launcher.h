/* launch/launcher.h - the launcher of `manta launch`, from inside.
 *
 *   launcher ─┬─ ssh, srun, mpirun ══ agent of host 0 ── ranks 0, 1
 *             └─ ssh, srun, mpirun ══ agent of host 1 ── ranks 2, 3
 *
 *   a host:   STARTING ──hello──▶ SETTING ──ports──▶ CHECKING ──checked──▶ READY ──all are──▶ RUNNING ──▶ GONE
 *
 * All hosts have their ports before any is asked to reach the others, and all have reached all before any rank is
 * started: a launch that cannot work ends before there is anything to undo. What other code relies on:
 *
 * 1. A failure to start is said once, in a block that names host, step and remedy; then everything is ended.
 * 2. A rank that a signal killed is started again, max_restarts times, as long as no rank has ended well.
 * 3. The end has deadlines: ranks are asked, after the grace killed, and what started the agents is killed then.
 * 4. A reader who stands still stops output, and neither signals nor pulses: nothing here writes to standard output or
 *    error but the sinks. Once there was a signal nobody waits for that reader either.
 *
 * One thread. */
#ifndef LAUNCH_LAUNCHER_H
#define LAUNCH_LAUNCHER_H

#include <manta/tool_launch.h>
#include <manta/tool_text.h>

#include "launch/lines.h"
#include "launch/route.h"
#include "launch/talk.h"
#include "os/proc.h"
#include "os/spawner.h"

typedef enum host_state {
    HOST_STARTING,
    HOST_SETTING,
    HOST_CHECKING,
    HOST_READY,
    HOST_RUNNING,
    HOST_GONE
} host_state;

typedef struct launch_host {
    const char *name; /* borrowed from the list */
    int first, count; /* its ranks */
    host_state state;
    spawn_child child; /* ssh, srun, mpirun, or the agent itself */
    int in, out, err; /* our ends of its pipes; -1: closed */
    talk t;
    lines said; /* what the command prints on its standard error */
    char last[400]; /* the end of that */
} launch_host;

typedef struct launch_rank {
    int host;
    bool ended;
    int status; /* as of waitpid(), when it has ended; -1: unknown */
    int restarts;
    char *address;
    lines output[2];
} launch_rank;

typedef struct launcher {
    const manta_launch_options *o;
    route_way way;
    route_hosts list;
    char *job; /* of this launch */
    const char *pod; /* the name of the Job, in a pod of it; NULL: this is none. Borrowed */
    int base; /* the number of our first rank: other pods have those before it */
    char key[65]; /* hexadecimal digits; made when the first agent has greeted */
    char *slurm_job; /* NULL: none */
    spawn_child allocation; /* salloc, which holds nodes for us */
    int hold; /* what holds it: our end of its input */
    launch_host *hosts;
    int n_hosts;
    int n_begun; /* those whose command was started: the first ones */
    launch_rank *ranks;
    int n_ranks, n_ended, n_well;
    int max_restarts;
    sink sinks[2];
    sink *error; /* the one of the two that standard error goes to */
    int signals; /* a signalfd */
    struct rlimit files; /* of open files, as it was; all zero: not raised */
    int64_t start_deadline;
    bool failed; /* to start, or a host was lost */
    int culprit; /* the first rank that failed; -1: none */
    int signal; /* that the launch was asked to end by, here or by an agent; 0: none */
    int64_t signal_ns; /* when the first one came here; 0: none has */
    int64_t deadline; /* of the end; CLOCK_NEVER: it is not near */
    int urgency; /* 0: goes on, 1: ranks were asked, 2: they were killed, 3: so were the commands */
} launcher;

/* What can be said before anything is started: way, hosts, ranks. `allocate`: gets nodes of Slurm. */
manta_status launcher_open(launcher *l, const manta_launch_options *o, bool allocate) MANTA_MUST_USE;
void launcher_close(launcher *l);

/* In a pod: which of all it is, by JOB_COMPLETION_INDEX, and the key of all, from the file that MANTA_CLUSTER_KEY names. */
manta_status launcher_open_pod(launcher *l) MANTA_MUST_USE;
/* The addresses of all ranks, by names that the headless Service of the Job gives to its pods. */
json_t *launcher_pod_addresses(const launcher *l);

/* Starts the command of a host. */
manta_status launcher_start_host(launcher *l, launch_host *h) MANTA_MUST_USE;

/* Heeds a message of a host. MANTA_ECORRUPT: it makes no sense. */
manta_status launcher_heed(launcher *l, launch_host *h, const talk_message *m) MANTA_MUST_USE;

/* Says a block on standard error, behind the lines that wait there. */
void launcher_say(launcher *l, const manta_block *b);

/* Says why a host cannot take part, and begins the end. */
void launcher_fail(launcher *l, const launch_host *h, const char *step, const char *what, const char *remedy);

/* Asks all ranks to end, or kills them. */
void launcher_end(launcher *l, int number);

#endif
