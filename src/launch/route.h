/* launch/route.h - how the agent of a host is started, and what to do when it is not. Pure, but for reading a file.
 *
 *   this host   MANTA agent; a pod of Kubernetes is one of several such hosts
 *   ssh         ssh -T -o BatchMode=yes ... HOST exec MANTA agent
 *   Slurm       srun --nodes=1 --ntasks=1 --nodelist=HOST --overlap ... MANTA agent
 *   MPI         mpirun -n 1 -host HOST MANTA agent
 *
 * One command for each host: each has a standard input and output of its own, which is the channel to its agent. */
#ifndef LAUNCH_ROUTE_H
#define LAUNCH_ROUTE_H

#include "base/status.h"
#include "base/vec.h"

typedef enum route_way { ROUTE_HERE, ROUTE_SSH, ROUTE_SLURM, ROUTE_MPI, ROUTE_POD } route_way;

typedef struct route_host {
    char *name; /* as it was given, a user and a port with it */
    int processes; /* 0: as many as everywhere */
} route_host;

typedef VEC(route_host) route_hosts;
typedef VEC(char *) route_words; /* NULL behind the last */

/* What "--on" says: NULL, "ssh:FILE", "slurm", "mpi:FILE", "pod:NAME". *file: what is behind the colon, borrowed from the
 * text; NULL without one. MANTA_EINVAL. */
manta_status route_parse(const char *on, route_way *way, const char **file) MANTA_MUST_USE;

/* The hosts of a file's text: a line each, "[USER@]HOST[:PORT] [slots=N]"; what is behind a # is a remark. `where`
 * is what to call it. MANTA_EINVAL with the line: another word, a name that would be an option, no host, one twice. */
manta_status route_read_hosts(const char *where, const char *text, route_hosts *out) MANTA_MUST_USE;
void route_release_hosts(route_hosts *h); /* accepts zeroed memory */

/* The command that starts the agent of a host. `with`: for ssh its words, "ssh" or more; for Slurm the number of the
 * job. `program`: the path of manta there. *out: route_release_words(). */
void route_words_for(route_way way, const char *host, const char *with, const char *program,
                     route_words *out);
/* The command that gets n nodes of Slurm, says "JOB HOSTS" and holds them until its input ends. `more`: options. */
void route_words_to_allocate(int nodes, const char *more, route_words *out);
void route_release_words(route_words *w);

/* A word of any length as a shell takes it for one. Owned: mem_free(). */
char *route_shell_word(const char *word);

/* What to do about a command that ended before its agent said anything: its status as of waitpid(), and what it printed
 * last. Static. */
const char *route_remedy(route_way way, int status, const char *said);

#endif
