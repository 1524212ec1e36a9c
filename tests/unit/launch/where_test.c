/* where_test.c - environments as launchers leave them, and what manta_where_find() makes of each. Those of Slurm
 * 22.05 and Open MPI 4.1 are taken from processes that they started, and shortened to what says where one is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include <manta/tool_launch.h>

#include "base/buf.h"
#include "base/mem.h"

enum { NO = MANTA_WHERE_UNKNOWN };

#define TWO_WORKERS "TF_CONFIG={\"cluster\":{\"worker\":[\"a:4711\",\"a:4712\",\"b:4711\"]},\"task\":"

/* The variables of a step of two tasks on each of two nodes: the last task. */
#define SRUN_JOB "SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_NTASKS=4", "SLURM_NODELIST=n[1-2]"
#define SRUN_STEP                                                                                            \
    SRUN_JOB, "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n[1-2]", "SLURM_STEP_NUM_NODES=2",                     \
        "SLURM_STEP_NUM_TASKS=4", "SLURM_STEP_TASKS_PER_NODE=2(x2)", "SLURM_PROCID=3", "SLURM_LOCALID=1",    \
        "SLURM_NODEID=1"

typedef struct found {
    const char *name;
    const char *environment[24];
    const char *launcher;
    int size, rank, local_size, local_rank;
    const char *job, *job_of;
    const char *hosts, *addresses; /* apart by blanks */
    const char *hint; /* a part of it */
} found;

static const found rows[] = {
    {"alone", {"HOME=/root"}, "alone", 1, 0, 1, 0, NULL, NULL, "", "", NULL},
    {"srun", {SRUN_STEP}, "slurm", 4, 3, 2, 1, "17", "slurm", "n1 n2", "", NULL},
    {"a step on some of the job's nodes",
     {"SLURM_JOB_ID=17", "SLURM_JOB_NODELIST=n[1-4]", "SLURM_STEP_ID=3", "SLURM_STEP_NODELIST=n4",
      "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_PROCID=0",
      "SLURM_LOCALID=0", "SLURM_NODEID=0"},
     "slurm",
     1,
     0,
     1,
     0,
     "17",
     "slurm",
     "n4",
     "",
     NULL},
    {"srun --mpi=pmix",
     {SRUN_STEP, "PMIX_RANK=3", "PMIX_NAMESPACE=slurm.pmix.17.0"},
     "pmix",
     4,
     3,
     NO,
     1,
     "17",
     "slurm",
     "n1 n2",
     "",
     NULL},
    {"PMIx of somebody else", {"PMIX_RANK=2"}, "pmix", NO, 2, NO, NO, NULL, NULL, "", "", NULL},
    {"srun --mpi=pmi2",
     {SRUN_STEP, "PMI_RANK=3", "PMI_SIZE=4", "PMI_JOBID=17.0"},
     "pmi",
     4,
     3,
     NO,
     NO,
     "17",
     "slurm",
     "n1 n2",
     "",
     NULL},
    {"MPICH",
     {"PMI_RANK=1", "PMI_SIZE=3", "MPI_LOCALRANKID=0", "MPI_LOCALNRANKS=1"},
     "pmi",
     3,
     1,
     1,
     0,
     NULL,
     NULL,
     "",
     "",
     NULL},
    {"mpirun in sbatch: its daemon is a step of Slurm's with one task a node",
     {"SLURM_JOB_ID=18", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_STEP_ID=0", "SLURM_STEP_NODELIST=n2",
      "SLURM_STEP_NUM_NODES=1", "SLURM_STEP_NUM_TASKS=1", "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_PROCID=0",
      "SLURM_LOCALID=0", "SLURM_NODEID=0", "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",
      "OMPI_COMM_WORLD_LOCAL_RANK=1", "OMPI_COMM_WORLD_LOCAL_SIZE=2", "PMIX_RANK=3",
      "PMIX_NAMESPACE=1894318081"},
     "openmpi",
     4,
     3,
     2,
     1,
     "18",
     "slurm",
     "n1 n2",
     "",
     NULL},
    {"torchrun by an address of version 6",
     {"RANK=0", "WORLD_SIZE=1", "MASTER_ADDR=fd00::1", "MASTER_PORT=29500"},
     "torchrun",
     1,
     0,
     NO,
     NO,
     NULL,
     NULL,
     "",
     "[fd00::1]:29500",
     NULL},
    {"torchrun in srun: two processes in each of two tasks",
     {"SLURM_JOB_ID=19", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_STEP_ID=0", "SLURM_STEP_NUM_TASKS=2",
      "SLURM_PROCID=1", "SLURM_LOCALID=0", "SLURM_NODEID=1", "RANK=3", "WORLD_SIZE=4", "LOCAL_RANK=1",
      "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=n1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none"},
     "torchrun",
     4,
     3,
     2,
     1,
     "none",
     "torchrun",
     "n1 n2",
     "n1:29500",
     NULL},
    {"RANK alone is anybody's word", {"RANK=general"}, "alone", 1, 0, 1, 0, NULL, NULL, "", "", NULL},
    {"an indexed Job",
     {"JOB_COMPLETION_INDEX=2", "MANTA_WORLD_SIZE=4", "HOSTNAME=train-2"},
     "kubernetes",
     4,
     2,
     1,
     0,
     "train",
     "kubernetes",
     "",
     "",
     NULL},
    {"an indexed Job that is not told how many it has",
     {"JOB_COMPLETION_INDEX=2", "HOSTNAME=elsewhere"},
     "kubernetes",
     NO,
     2,
     1,
     0,
     NULL,
     NULL,
     "",
     "",
     "MANTA_WORLD_SIZE"},
    {"TF_CONFIG",
     {TWO_WORKERS "{\"type\":\"worker\",\"index\":1}}"},
     "tf_config",
     3,
     1,
     2,
     1,
     NULL,
     NULL,
     "a b",
     "a:4711 a:4712 b:4711",
     NULL},
    {"an evaluator",
     {"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\"]},\"task\":{\"type\":\"evaluator\",\"index\":0}}"},
     "tf_config",
     1,
     NO,
     NO,
     NO,
     NULL,
     NULL,
     "a",
     "a:1",
     NULL},
    {"TF_CONFIG of manta's, in a job of Slurm's",
     {TWO_WORKERS "{\"type\":\"worker\",\"index\":2}}", "MANTA_JOB=17-1a2b", SRUN_STEP},
     "tf_config",
     3,
     2,
     1,
     0,
     "17-1a2b",
     "manta",
     "a b",
     "a:4711 a:4712 b:4711",
     NULL},
    {"a TF_CONFIG of nobody is none",
     {"TF_CONFIG={}", SRUN_STEP},
     "slurm",
     4,
     3,
     2,
     1,
     "17",
     "slurm",
     "n1 n2",
     "",
     NULL},
    {"a batch script without srun",
     {"SLURM_JOB_ID=20", "SLURM_JOB_NODELIST=n[1-2]", "SLURM_PROCID=0", "SLURM_LOCALID=0", "SLURM_NODEID=0",
      "SLURM_NTASKS=2", "SLURM_TASKS_PER_NODE=1(x2)"},
     "alone",
     1,
     0,
     1,
     0,
     "20",
     "slurm",
     "n1 n2",
     "",
     "srun"},
    {"the shell of an interactive step",
     {"SLURM_JOB_ID=20", "SLURM_STEP_ID=4294967290", "SLURM_PROCID=0", "SLURM_LOCALID=0"},
     "alone",
     1,
     0,
     1,
     0,
     "20",
     "slurm",
     "",
     "",
     "srun"},
    {"an allocation's shell",
     {"SLURM_JOB_ID=21", "SLURM_JOB_NODELIST=n1"},
     "alone",
     1,
     0,
     1,
     0,
     "21",
     "slurm",
     "n1",
     "",
     "srun"},
};

static void assert_joined(const char *name, char **list, int n, const char *expected)
{
    buf all = {0};

    for (int i = 0; i < n; i++) buf_printf(&all, "%s%s", i ? " " : "", list[i]);
    if (strcmp(buf_text(&all), expected) != 0)
        fail_msg("%s: \"%s\" instead of \"%s\"", name, buf_text(&all), expected);
    buf_release(&all);
}

static void assert_text(const char *name, const char *text, const char *expected)
{
    if (!text != !expected || (text && strcmp(text, expected) != 0))
        fail_msg("%s: %s instead of %s", name, text ? text : "nothing", expected ? expected : "nothing");
}

static void found_ones(void **state)
{
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const found *r = &rows[i];
        int64_t live = mem_live();
        manta_where w;
        if (manta_where_find(r->environment, &w)) fail_msg("%s: %s", r->name, manta_error_text());
        assert_text(r->name, w.launcher, r->launcher);
        if (w.size != r->size || w.rank != r->rank || w.local_size != r->local_size ||
            w.local_rank != r->local_rank)
            fail_msg("%s: rank %d of %d, locally %d of %d", r->name, w.rank, w.size, w.local_rank,
                     w.local_size);
        assert_text(r->name, w.job, r->job);
        assert_text(r->name, w.job_of, r->job_of);
        assert_joined(r->name, w.hosts, w.n_hosts, r->hosts);
        assert_joined(r->name, w.addresses, w.n_addresses, r->addresses);
        if (!w.hint != !r->hint || (r->hint && !strstr(w.hint, r->hint)))
            fail_msg("%s: hint %s", r->name, w.hint ? w.hint : "none");
        assert_true(strlen(w.why) > 0 && w.why[strlen(w.why) - 1] == '\n');
        manta_where_release(&w);
        assert_int_equal(mem_live(), live);
    }
}

/* The same, said in another order: nothing depends on it. */
static void order_is_no_matter(void **state)
{
    (void)state;

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *turned[24] = {0};
        int n = 0;
        manta_where w, v;
        while (rows[i].environment[n]) n++;
        for (int k = 0; k < n; k++) turned[k] = rows[i].environment[n - 1 - k];
        assert_int_equal(manta_where_find(rows[i].environment, &w), MANTA_OK);
        assert_int_equal(manta_where_find(turned, &v), MANTA_OK);
        assert_string_equal(w.why, v.why);
        manta_where_release(&w);
        manta_where_release(&v);
    }
}

typedef struct refused {
    const char *environment[16];
    const char *says;
} refused;

static void refused_ones(void **state)
{
    static const refused bad[] = {
        {{"TF_CONFIG={"}, "TF_CONFIG"},
        {{"TF_CONFIG={\"cluster\":{\"worker\":[\"a:1\"]},\"task\":{\"type\":\"worker\",\"index\":1}}"},
         "worker"},
        {{"RANK=2", "WORLD_SIZE=2", "MASTER_ADDR=a"}, "RANK is 2, but WORLD_SIZE is 2"},
        {{"RANK=0", "MASTER_ADDR=a"}, "WORLD_SIZE is not"},
        {{"WORLD_SIZE=3", "MASTER_ADDR=a"}, "RANK is not"},
        {{"RANK=-1", "WORLD_SIZE=2", "MASTER_ADDR=a"}, "RANK is \"-1\""},
        {{"RANK=0", "WORLD_SIZE=0", "MASTER_ADDR=a"}, "WORLD_SIZE is \"0\""},
        {{"RANK= 0", "WORLD_SIZE=2", "MASTER_ADDR=a"}, "RANK is \" 0\""},
        {{"RANK=0", "WORLD_SIZE=2x", "MASTER_ADDR=a"}, "\"2x\""},
        {{"RANK=0", "WORLD_SIZE=99999999999999999999", "MASTER_ADDR=a"}, "WORLD_SIZE"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "MASTER_PORT=65536"}, "MASTER_PORT"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=1"}, "LOCAL_RANK"},
        {{"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=a", "LOCAL_RANK=0", "LOCAL_WORLD_SIZE=3"},
         "LOCAL_WORLD_SIZE"},
        {{"OMPI_COMM_WORLD_RANK=4", "OMPI_COMM_WORLD_SIZE=4"}, "OMPI_COMM_WORLD_RANK is 4"},
        {{"OMPI_COMM_WORLD_RANK=1"}, "OMPI_COMM_WORLD_SIZE is not"},
        {{"PMI_SIZE=1"}, "PMI_RANK is not"},
        {{"PMIX_RANK=x"}, "PMIX_RANK"},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=2", "SLURM_STEP_NUM_TASKS=2"}, "SLURM_PROCID is 2"},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=0"}, "SLURM_STEP_NUM_TASKS"},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=2",
          "SLURM_STEP_NUM_NODES=2"},
         "SLURM_NODEID is 2"},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=0", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=0",
          "SLURM_STEP_NUM_NODES=2", "SLURM_STEP_NODELIST=n[1-3]"},
         "SLURM_STEP_NODELIST has 3 hosts"},
        {{"SLURM_STEP_ID=0", "SLURM_PROCID=1", "SLURM_STEP_NUM_TASKS=2", "SLURM_NODEID=0", "SLURM_LOCALID=1",
          "SLURM_STEP_TASKS_PER_NODE=1(x2)"},
         "SLURM_LOCALID is 1"},
        {{"SLURM_STEP_ID=x", "SLURM_PROCID=1"}, "SLURM_STEP_ID"},
        {{"SLURM_JOB_ID=1", "SLURM_JOB_NODELIST=n[1"}, "SLURM_JOB_NODELIST"},
        {{"JOB_COMPLETION_INDEX=4", "MANTA_WORLD_SIZE=4"}, "JOB_COMPLETION_INDEX is 4"},
    };
    (void)state;

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t live = mem_live();
        manta_where w;
        if (manta_where_find(bad[i].environment, &w) != MANTA_EINVAL) fail_msg("row %zu was taken", i);
        if (!strstr(manta_error_text(), bad[i].says)) fail_msg("row %zu: %s", i, manta_error_text());
        assert_null(w.launcher);
        assert_int_equal(mem_live(), live);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(found_ones),
        cmocka_unit_test(order_is_no_matter),
        cmocka_unit_test(refused_ones),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
