/* where.c - manta_where_find(): an environment in, a description out. Pure, but for manta_where_ask().
 *
 *   innermost                                                                        outermost
 *   TF_CONFIG   torchrun   Open MPI   PMIx   PMI (MPICH)   a step of Slurm   an indexed Job   alone
 *
 * Launchers nest: sbatch starts mpirun, which starts a program; srun starts torchrun, which starts a program. The
 * variables of all of them are there, and each counts its own processes. The first of the row above
 * that has left its variables has started this process, and its numbers are taken whole; what is outside of it
 * gives the job's number and the hosts, if it has not said them itself. Contradictions are looked for within
 * one launcher's variables: between two they are what nesting looks like. */
#include <manta/tool_launch.h>
#include <manta/tool_text.h>

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "launch/hostlist.h"
#include "net/tcp.h"
#include "train/cluster/tf_config.h"

enum { MOST_RANKS = 1 << 24, UNKNOWN = MANTA_WHERE_UNKNOWN };

/* Numbers from here on are what Slurm calls its own steps: the batch script, an interactive shell. */
#define FIRST_SPECIAL_STEP 4294967280LL

typedef struct finder {
    const char *const *environment;
    manta_where *w;
    buf why;
} finder;

/* ---- variables ---- */

/* The value of a variable; NULL when it is not there, or is empty. */
static const char *value_of(const finder *f, const char *name)
{
    size_t n = strlen(name);

    for (const char *const *e = f->environment; *e; e++) {
        if (!strncmp(*e, name, n) && (*e)[n] == '=') return (*e)[n + 1] ? *e + n + 1 : NULL;
    }
    return NULL;
}

/* A number from `least` on; *out is UNKNOWN when the variable is not there. */
static manta_status read_long(const finder *f, const char *name, long long least, long long most,
                              long long *out)
{
    const char *text = value_of(f, name);
    char *end;
    long long v;

    *out = UNKNOWN;
    if (!text) return MANTA_OK;
    errno = 0;
    v = strtoll(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9' || v < least || v > most)
        return manta_fail(MANTA_EINVAL, "%s is \"%.100s\": expected a whole number from %lld to %lld", name,
                          text, least, most);
    *out = v;
    return MANTA_OK;
}

static manta_status read_int(const finder *f, const char *name, int least, int *out)
{
    long long v;

    TRY(read_long(f, name, least, MOST_RANKS, &v));
    *out = (int)v;
    return MANTA_OK;
}

/* A number of processes, and which of them this one is: both or none. */
static manta_status read_place(const finder *f, const char *of_rank, const char *of_size, int *rank,
                               int *size)
{
    TRY(read_int(f, of_rank, 0, rank));
    TRY(read_int(f, of_size, 1, size));
    if (*rank != UNKNOWN && *size != UNKNOWN && *rank >= *size)
        return manta_fail(MANTA_EINVAL, "%s is %d, but %s is %d: ranks are counted from 0", of_rank, *rank,
                          of_size, *size);
    return MANTA_OK;
}

/* All four numbers of a launcher. Of the world's none may be missing; on this host they may. */
static manta_status read_numbers(finder *f, const char *rank, const char *size, const char *local_rank,
                                 const char *local_size)
{
    manta_where *w = f->w;

    TRY(read_place(f, rank, size, &w->rank, &w->size));
    if (w->rank == UNKNOWN || w->size == UNKNOWN)
        return manta_fail(MANTA_EINVAL, "%s is set, but %s is not: one process was started with both or none",
                          w->rank == UNKNOWN ? size : rank, w->rank == UNKNOWN ? rank : size);
    TRY(read_place(f, local_rank, local_size, &w->local_rank, &w->local_size));
    if (w->local_size > w->size)
        return manta_fail(MANTA_EINVAL, "%s is %d, but %s is %d: a host has no more processes than all have",
                          local_size, w->local_size, size, w->size);
    return MANTA_OK;
}

/* ---- what was found ---- */

/* A value as it may stand in a line: the why of one who sets variables has no lines of its own. Owned. */
static char *show_value(const char *value)
{
    return manta_printable(mem_strdup(value), "");
}

static void say_rank(finder *f, const char *by)
{
    buf_printf(&f->why, "%s: rank %d of %d\n", by, f->w->rank, f->w->size);
}

static void add_text(char ***list, int *n, const char *text, size_t size)
{
    for (int i = 0; i < *n; i++) {
        if (strlen((*list)[i]) == size && !strncmp((*list)[i], text, size)) return;
    }
    *list = mem_resize(*list, (size_t)(*n + 1) * sizeof **list);
    (*list)[(*n)++] = mem_strndup(text, size);
}

/* The host of "host:port" joins the list of hosts, the whole that of addresses. */
static void add_address(manta_where *w, const char *address)
{
    const char *colon = strrchr(address, ':');

    add_text(&w->addresses, &w->n_addresses, address, strlen(address));
    if (colon) add_text(&w->hosts, &w->n_hosts, address, (size_t)(colon - address));
}

static void say_job(finder *f, const char *by)
{
    char *job = show_value(f->w->job);

    buf_printf(&f->why, "%s: the job is %s\n", by, job);
    mem_free(job);
}

static void take_job(finder *f, const char *variable, const char *of)
{
    const char *job = value_of(f, variable);

    if (!job || f->w->job) return;
    f->w->job = mem_strdup(job);
    f->w->job_of = of;
    say_job(f, variable);
}

static manta_status take_hosts(finder *f, const char *variable)
{
    const char *text = value_of(f, variable);
    char **hosts;
    int n;

    if (!text || f->w->n_hosts) return MANTA_OK;
    if (hostlist_parse(text, &hosts, &n))
        return manta_fail(MANTA_EINVAL, "%s: %s", variable, manta_error_text());
    mem_free(f->w->hosts);
    f->w->hosts = hosts;
    f->w->n_hosts = n;
    buf_printf(&f->why, "%s: %d %s\n", variable, n, n == 1 ? "host" : "hosts");
    return MANTA_OK;
}

/* ---- launchers, the innermost first. Each sets w->launcher when it is the one. ---- */

static void count_locals(manta_where *w, const tf_config *c, int rank)
{
    tf_job job;
    int index;
    const char *own, *colon;

    if (rank < 0) return;
    tf_config_task(c, rank, &job, &index);
    own = c->address[job][index];
    colon = strrchr(own, ':');
    w->local_size = w->local_rank = 0;
    for (int r = 0; r < tf_config_ranks(c); r++) {
        const char *other;
        tf_config_task(c, r, &job, &index);
        other = c->address[job][index];
        if (strrchr(other, ':') - other != colon - own || strncmp(other, own, (size_t)(colon - own)) != 0)
            continue;
        if (r < rank) w->local_rank++;
        w->local_size++;
    }
}

static manta_status find_tf_config(finder *f)
{
    const char *text = value_of(f, "TF_CONFIG");
    tf_config c = {0};

    if (!text) return MANTA_OK;
    TRY(tf_config_parse(text, &c));
    if (c.local) {
        buf_add_text(&f->why, "TF_CONFIG: names nobody, so it counts as not set\n");
        tf_config_release(&c);
        return MANTA_OK;
    }
    f->w->launcher = "tf_config";
    f->w->size = tf_config_ranks(&c);
    f->w->rank = tf_config_rank(&c);
    for (int j = 0; j < TF_JOBS; j++) {
        for (int i = 0; i < c.n[j]; i++) {
            if (c.address[j][i]) add_address(f->w, c.address[j][i]);
        }
    }
    count_locals(f->w, &c, f->w->rank);
    buf_printf(&f->why, "TF_CONFIG: task %s/%d, ", tf_job_name(c.type), c.index);
    if (f->w->rank < 0) {
        buf_printf(&f->why, "which does not train, beside %d that do\n", f->w->size);
    } else {
        buf_printf(&f->why, "rank %d of %d\n", f->w->rank, f->w->size);
    }
    take_job(f, "MANTA_JOB", "manta");
    tf_config_release(&c);
    return MANTA_OK;
}

static manta_status find_torchrun(finder *f)
{
    const char *host = value_of(f, "MASTER_ADDR");
    int port;
    char *address, *text;

    if (!host || (!value_of(f, "RANK") && !value_of(f, "WORLD_SIZE"))) return MANTA_OK;
    TRY(read_numbers(f, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"));
    TRY(read_int(f, "MASTER_PORT", 1, &port));
    if (port > 65535)
        return manta_fail(MANTA_EINVAL, "MASTER_PORT is %d: expected a port from 1 to 65535", port);
    f->w->launcher = "torchrun";
    say_rank(f, "RANK, WORLD_SIZE and MASTER_ADDR, as torchrun sets them");
    if (port != UNKNOWN) {
        address = mem_printf(strchr(host, ':') && *host != '[' ? "[%s]:%d" : "%s:%d", host, port);
        text = show_value(address);
        add_text(&f->w->addresses, &f->w->n_addresses, address, strlen(address));
        buf_printf(&f->why, "MASTER_ADDR and MASTER_PORT: rank 0 listens at %s\n", text);
        mem_free(address);
        mem_free(text);
    }
    take_job(f, "TORCHELASTIC_RUN_ID", "torchrun");
    return MANTA_OK;
}

static manta_status find_openmpi(finder *f)
{
    if (!value_of(f, "OMPI_COMM_WORLD_RANK") && !value_of(f, "OMPI_COMM_WORLD_SIZE")) return MANTA_OK;
    TRY(read_numbers(f, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                     "OMPI_COMM_WORLD_LOCAL_SIZE"));
    f->w->launcher = "openmpi";
    say_rank(f, "OMPI_COMM_WORLD_RANK and _SIZE, as Open MPI's mpirun sets them");
    return MANTA_OK;
}

/* Whether this process is a task of a step: SLURM_PROCID is there in a batch script, too. */
static manta_status find_step(const finder *f, bool *out)
{
    long long step;

    TRY(read_long(f, "SLURM_STEP_ID", 0, LLONG_MAX, &step));
    *out = step != UNKNOWN && step < FIRST_SPECIAL_STEP && value_of(f, "SLURM_PROCID");
    return MANTA_OK;
}

/* How many tasks of a step its node number `node` has, from "2(x3),1"; UNKNOWN: the text does not say. */
static int tasks_of_node(const char *text, int node)
{
    while (text && *text && node >= 0) {
        char *end;
        long tasks = strtol(text, &end, 10), times = 1;
        if (end == text || tasks < 0 || tasks > MOST_RANKS) return UNKNOWN;
        if (!strncmp(end, "(x", 2)) {
            times = strtol(end + 2, &end, 10);
            if (*end != ')' || times < 1) return UNKNOWN;
            end++;
        }
        if (node < times) return (int)tasks;
        node -= (int)(times > node ? node : times);
        text = *end == ',' ? end + 1 : NULL;
    }
    return UNKNOWN;
}

static const char *step_size_name(const finder *f)
{
    return value_of(f, "SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
}

/* PMIx tells a rank and leaves the size to a call of its library. srun --mpi=pmix sets its own variables,
 * too, and counts the same processes. */
static manta_status find_pmix(finder *f)
{
    int rank, task, size;
    bool step;

    TRY(read_int(f, "PMIX_RANK", 0, &rank));
    if (rank == UNKNOWN) return MANTA_OK;
    TRY(find_step(f, &step));
    TRY(read_place(f, "SLURM_PROCID", step_size_name(f), &task, &size));
    f->w->launcher = "pmix";
    f->w->rank = rank;
    if (step && task == rank && size != UNKNOWN) {
        f->w->size = size;
        TRY(read_int(f, "SLURM_LOCALID", 0, &f->w->local_rank));
        buf_printf(&f->why, "PMIX_RANK, which is SLURM_PROCID, and %s: rank %d of %d\n", step_size_name(f),
                   rank, size);
    } else {
        buf_printf(&f->why, "PMIX_RANK: rank %d; how many there are PMIx tells by a call, no variable does\n",
                   rank);
    }
    return MANTA_OK;
}

static manta_status find_pmi(finder *f)
{
    if (!value_of(f, "PMI_RANK") && !value_of(f, "PMI_SIZE")) return MANTA_OK;
    TRY(read_numbers(f, "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"));
    f->w->launcher = "pmi";
    say_rank(f, "PMI_RANK and PMI_SIZE, as MPICH's mpiexec and srun --mpi=pmi2 set them");
    return MANTA_OK;
}

static manta_status find_slurm(finder *f)
{
    manta_where *w = f->w;
    int node, nodes;
    bool step;

    TRY(find_step(f, &step));
    if (!step) return MANTA_OK;
    TRY(read_place(f, "SLURM_PROCID", step_size_name(f), &w->rank, &w->size));
    TRY(read_int(f, "SLURM_LOCALID", 0, &w->local_rank));
    TRY(read_place(f, "SLURM_NODEID", "SLURM_STEP_NUM_NODES", &node, &nodes));
    w->local_size = tasks_of_node(value_of(f, "SLURM_STEP_TASKS_PER_NODE"), node);
    if (w->local_size != UNKNOWN && w->local_rank >= w->local_size)
        return manta_fail(MANTA_EINVAL,
                          "SLURM_LOCALID is %d, but by SLURM_STEP_TASKS_PER_NODE node %d has %d tasks",
                          w->local_rank, node, w->local_size);
    w->launcher = "slurm";
    if (w->size == UNKNOWN)
        return manta_fail(MANTA_EINVAL,
                          "SLURM_PROCID is set, but neither SLURM_STEP_NUM_TASKS nor SLURM_NTASKS: "
                          "a task of a step was started with both");
    buf_printf(&f->why, "SLURM_PROCID and %s, in step %s: rank %d of %d\n", step_size_name(f),
               value_of(f, "SLURM_STEP_ID"), w->rank, w->size);
    TRY(take_hosts(f, "SLURM_STEP_NODELIST"));
    if (nodes != UNKNOWN && w->n_hosts && w->n_hosts != nodes)
        return manta_fail(MANTA_EINVAL, "SLURM_STEP_NUM_NODES is %d, but SLURM_STEP_NODELIST has %d hosts",
                          nodes, w->n_hosts);
    return MANTA_OK;
}

static manta_status find_kubernetes(finder *f)
{
    manta_where *w = f->w;

    TRY(read_place(f, "JOB_COMPLETION_INDEX", "MANTA_WORLD_SIZE", &w->rank, &w->size));
    if (w->rank == UNKNOWN) {
        w->size = UNKNOWN;
        return MANTA_OK;
    }
    w->launcher = "kubernetes";
    w->local_size = 1; /* a pod is a host */
    w->local_rank = 0;
    if (w->size == UNKNOWN) {
        buf_printf(&f->why, "JOB_COMPLETION_INDEX, of an indexed Job: rank %d\n", w->rank);
        w->hint = mem_strdup(
            "a Job does not tell its pods how many they are: set MANTA_WORLD_SIZE in the manifest to "
            "its completions");
    } else {
        say_rank(f, "JOB_COMPLETION_INDEX, of an indexed Job, and MANTA_WORLD_SIZE");
    }
    return MANTA_OK;
}

/* ---- outside of it ---- */

/* An indexed Job's pods are called JOB-INDEX. */
static void take_pod(finder *f)
{
    const char *pod = value_of(f, "HOSTNAME"), *dash = pod ? strrchr(pod, '-') : NULL;
    const char *index = value_of(f, "JOB_COMPLETION_INDEX");

    if (!index || f->w->job || !dash || dash == pod || strcmp(dash + 1, index) != 0) return;
    f->w->job = mem_strndup(pod, (size_t)(dash - pod));
    f->w->job_of = "kubernetes";
    say_job(f, "HOSTNAME");
}

static manta_status find_outside(finder *f)
{
    manta_where *w = f->w;
    bool alone = !strcmp(w->launcher, "alone");

    take_job(f, "SLURM_JOB_ID", "slurm");
    TRY(take_hosts(f, "SLURM_JOB_NODELIST"));
    take_pod(f);
    if (alone && value_of(f, "SLURM_JOB_ID")) {
        buf_add_text(&f->why, "no task of a step: an allocation's own script, which Slurm starts once\n");
        w->hint =
            mem_strdup("one process of a Slurm job, on its first host: 'srun PROGRAM' starts one for each "
                       "task, 'manta launch --on slurm' an agent for each node");
    }
    return MANTA_OK;
}

static manta_status find_all(finder *f)
{
    static manta_status (*const finders[])(finder *) = {
        find_tf_config, find_torchrun, find_openmpi, find_pmix, find_pmi, find_slurm, find_kubernetes};
    manta_where *w = f->w;

    for (size_t i = 0; i < sizeof finders / sizeof *finders && !w->launcher; i++) TRY(finders[i](f));
    if (!w->launcher) {
        w->launcher = "alone";
        w->size = w->local_size = 1;
        w->rank = w->local_rank = 0;
        buf_add_text(&f->why, "no launcher's variables: one process, alone\n");
    }
    return find_outside(f);
}

manta_status manta_where_find(const char *const *environment, manta_where *out)
{
    finder f = {.environment = environment, .w = out};
    manta_status st;

    if (!out) return manta_fail(MANTA_EINVAL, "manta_where_find: out is NULL, expected a place");
    *out = (manta_where){0};
    if (!environment)
        return manta_fail(MANTA_EINVAL,
                          "manta_where_find: environment is NULL, expected a list of variables");
    *out = (manta_where){.size = UNKNOWN, .rank = UNKNOWN, .local_size = UNKNOWN, .local_rank = UNKNOWN};
    st = find_all(&f);
    out->why = buf_take(&f.why);
    if (st) manta_where_release(out);
    return st;
}

static void free_texts(char **list, int n)
{
    for (int i = 0; i < n; i++) mem_free(list[i]);
    mem_free(list);
}

void manta_where_release(manta_where *w)
{
    if (!w) return;
    free_texts(w->hosts, w->n_hosts);
    free_texts(w->addresses, w->n_addresses);
    mem_free(w->job);
    mem_free(w->why);
    mem_free(w->hint);
    *w = (manta_where){0};
}
