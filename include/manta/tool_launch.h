/* manta/tool_launch.h - starting processes on many hosts (`manta launch`), and who started this one (`manta where`).
 *
 * For the program `manta` alone: no part of the stable interface (docs/abi.md),
 * not in manta.h, and it may change or go in any version. */
#ifndef MANTA_TOOL_LAUNCH_H
#define MANTA_TOOL_LAUNCH_H

#include <stdbool.h>
#include <stdint.h>

#include <manta/option.h>
#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { MANTA_WHERE_UNKNOWN = -1 };

/* What an environment says. Numbers are MANTA_WHERE_UNKNOWN and texts NULL where it does not say. */
typedef struct manta_where {
    /* The innermost of "tf_config", "torchrun", "openmpi", "pmix", "pmi", "slurm" and "kubernetes" that has
     * left its variables; "alone" when none has. Static. */
    const char *launcher;
    int size, rank; /* rank -1 with a size: a task of TF_CONFIG that does not train */
    int local_size, local_rank; /* on this host */
    char *job; /* what the launcher, or one outside of it, calls the job */
    const char *job_of; /* who calls it so: static */
    char **hosts; /* each once */
    int n_hosts;
    char **addresses; /* "host:port" of processes that listen */
    int n_addresses;
    char *why; /* what was found and what follows from it, a line each */
    char *hint; /* what to do when this is probably not what was meant */
} manta_where;

/* Reads `environment`, NAME=VALUE each and NULL behind the last, and nothing else: no file, no network.
 * *out: manta_where_release(); zeroed on failure. MANTA_EINVAL: variables of the innermost launcher
 * contradict each other, or one has a value that it cannot have; the sentence names them. */
MANTA_API manta_status manta_where_find(const char *const *environment, manta_where *out) MANTA_MUST_USE;
MANTA_API void manta_where_release(manta_where *w); /* accepts NULL and zeroed memory */

/* Whether somebody listens at "host:port": connects and closes. MANTA_ENOENT nobody knows the name;
 * MANTA_ETIMEDOUT no answer within timeout_ms, MANTA_EDIED it is refused, or there is no way to the host. */
MANTA_API manta_status manta_where_ask(const char *address, int timeout_ms) MANTA_MUST_USE;

/* What to start, and where. Zeroed but for argv: one process on this host. */
typedef struct manta_launch_options {
    const char *const *argv; /* the program and its arguments, NULL behind the last; "train" is manta's own */
    const char
        *on; /* "ssh:FILE", "slurm", "mpi:FILE", "pod:NAME"; NULL: this host; "k8s" for a manifest alone */
    int processes; /* on each host; 0: one */
    int nodes; /* of Slurm: how many to ask for, or to use of an allocation, 0: all of it; of Kubernetes: pods, 0: one */
    int max_restarts; /* of a rank that a signal has killed; 0: 3 for a training, none else; MANTA_NONE: none */
    int64_t grace_ms; /* from SIGTERM to SIGKILL for ranks that have to end; 0: 30 s */
    int64_t lease_ms; /* how long a host may be silent; 0: 30 s */
    int64_t start_ms; /* within which all agents must have begun; 0: 120 s */
    const char *program; /* the path of manta on the hosts; NULL: this one's */
    const char *folder; /* where ranks run; NULL: the folder of this process */
    const char *ssh; /* the words of ssh; NULL: "ssh" */
    const char *slurm; /* more words for salloc; NULL: none */
    const char *variables; /* names, apart by commas, that ranks get as this process has them; NULL: none */
    bool plain; /* lines of ranks do not begin with [rank N] */
    /* For manta_launch_manifest() alone; NULL or 0: nothing is said about it. */
    const char *image; /* in which manta is; needed */
    const char *job; /* the name of Job and Service; NULL: "manta" */
    const char *space; /* their namespace */
    const char *secret; /* that has the key; NULL: the job's name and "-key" */
    const char *environment; /* a Secret whose entries are variables of the pods */
    const char *claim; /* "CLAIM:PATH": a PersistentVolumeClaim, and where pods have it */
    const char *cpus, *memory; /* of a pod, as Kubernetes writes them */
    int user; /* as which pods run; 0: as the image says */
} manta_launch_options;

/* Says what manta_launch() would do, in whole lines. *out: owned, free(). */
MANTA_API manta_status manta_launch_plan(const manta_launch_options *launch, char **out) MANTA_MUST_USE;

/* The manifests by which Kubernetes runs the launch, as YAML: a headless Service and an indexed Job, whose pods run
 * manta_launch() on "pod:NAME". No key is in it. *out: owned, free(). MANTA_EINVAL: the options cannot be. */
MANTA_API manta_status manta_launch_manifest(const manta_launch_options *launch, char **out) MANTA_MUST_USE;

/* Starts an agent on each host, by them the ranks, and hands on what they print until all have ended. What goes wrong
 * meanwhile is said on standard error. *status: what the process is to end with: 0, that of the first rank that
 * failed, 75 when a training was told to end and can be resumed. SIGINT, SIGTERM and SIGHUP are this function's.
 * MANTA_EINVAL: the options cannot be; nothing was started. */
MANTA_API manta_status manta_launch(const manta_launch_options *launch, int *status) MANTA_MUST_USE;

/* What a launch runs on each host: does as it is told over standard input, until that ends. */
MANTA_API manta_status manta_agent(void) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
