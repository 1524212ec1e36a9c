/* launch/agent.h - the agent of `manta launch` on one host, from inside.
 *
 *   launcher ══ ssh, srun, mpirun ══ keeper ── agent ─┬─ rank 2 ── what it starts
 *                                                     └─ rank 3
 *
 * The agent does as the launcher says over its standard input and output (launch/talk.h): it takes ports, starts ranks,
 * hands on what they print, tells of their ends. The keeper is its parent, adopts whatever is left of ranks, and ends
 * all of it when the agent has ended, however that came about. What other code relies on:
 *
 * 1. A rank dies with the agent, and the agent with the keeper (PR_SET_PDEATHSIG).
 * 2. The agent ends its ranks when the launcher has closed its pipe, or is silent for the lease: it asks them to end
 *    (SIGTERM: a training writes a checkpoint), and kills them when the grace is over.
 * 3. A rank leads a process group, which is signalled only before its leader has been waited for. When it has
 *    ended, what it left of the group is killed.
 * 4. The key is in a file without a name (memfd) that ranks inherit: nothing of it is in the file system.
 *
 * One thread. */
#ifndef LAUNCH_AGENT_H
#define LAUNCH_AGENT_H

#include "launch/address.h"
#include "launch/talk.h"
#include "os/proc.h"
#include "os/spawner.h"

typedef struct agent_rank {
    int number;
    spawn_child child; /* zeroed: it does not run */
    int pipes[2]; /* what it prints: output and error; -1: at their end */
    int listener; /* held here, so that a successor has the same port */
    char address[ADDRESS_TEXT + 8];
} agent_rank;

typedef struct agent {
    talk t;
    int signals; /* a signalfd */
    int key; /* a memfd; -1: none yet */
    char *job, *host; /* the host's address */
    agent_rank *ranks;
    int n;
    int64_t lease_ns, grace_ms;
    int64_t pulse; /* when the next one is due */
    json_t *go; /* what to run; NULL: not yet */
    bool bye; /* the launcher has nothing more to say */
    bool alone; /* it is gone, or silent */
    struct rlimit files; /* of open files, as it was: what ranks have */
    bool asked; /* a signal has asked this host to end: it does when no rank is left */
    int64_t deadline; /* when ranks that were asked to end are killed; CLOCK_NEVER: they were not */
} agent;

/* Does what the launcher says until there is nothing more to do. */
void agent_run(agent *a);

/* ---- ranks: agent_ranks.c ---- */

/* Takes the ports of all ranks: from `port` on, or with 0 candidates of each. */
manta_status agent_take_ports(agent *a, int first, int count, int port) MANTA_MUST_USE;
/* Lets connections go that others made to see whether they can. */
void agent_drain_ports(agent *a);
/* Starts a rank of which a->go says what it is. */
manta_status agent_start_rank(agent *a, agent_rank *r) MANTA_MUST_USE;
/* Sends a signal to the groups of all ranks that run. */
void agent_signal_ranks(agent *a, int number);
/* Hands on what has come from pipe `i` of a rank. */
void agent_read_pipe(agent *a, agent_rank *r, int i);
/* Takes leave of a rank that has ended. Returns its status as of waitpid(). */
int agent_bury_rank(agent *a, agent_rank *r);

#endif
