/* cmd_launch.c - manta launch and manta agent: processes on many hosts. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/tool_launch.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/print.h"

static const option_group where = {
    "Where:",
    (const cli_option[]){
        {"on", OPTION_TEXT, "LAUNCHER",
         "ssh:FILE, where FILE has a host a line; slurm; mpi:FILE; k8s, with --print. This host when not "
         "given"},
        {"processes", OPTION_COUNT, "N", "Processes on each host, also -n N; 1 when not given"},
        {"nodes", OPTION_COUNT, "N",
         "With slurm: nodes to ask for or, inside an allocation, to use of it; there all when not given. "
         "With "
         "k8s: pods, 1 when not given"},
        {"slurm", OPTION_TEXT, "OPTIONS",
         "More options for salloc, such as '--partition=gpu --time=2:00:00'"},
        {"ssh", OPTION_TEXT, "COMMAND", "What ssh is called, such as 'ssh -F config'; ssh when not given"},
        {"manta", OPTION_TEXT, "PATH", "Where manta is on the hosts; where this one is when not given"},
        {"folder", OPTION_TEXT, "DIR",
         "Where processes run, a path from / on; in the folder of this one when not given"},
        {"export", OPTION_TEXT, "NAMES", "Variables that processes get as they are here, apart by commas"},
        {0}}};

static const option_group kubernetes = {
    "With --on k8s:",
    (const cli_option[]){
        {"print", OPTION_FLAG, NULL, "Write manifests to standard output; kubectl apply takes them"},
        {"image", OPTION_TEXT, "IMAGE", "The image of the pods, in which manta and the data are"},
        {"job", OPTION_TEXT, "NAME", "What Job and Service are called; manta when not given"},
        {"namespace", OPTION_TEXT, "NAME", "Their namespace; kubectl's own when not given"},
        {"secret", OPTION_TEXT, "NAME", "The Secret with the key; JOB-key when not given"},
        {"env-from", OPTION_TEXT, "NAME",
         "A Secret whose entries are variables of the pods, such as AWS_SECRET_ACCESS_KEY"},
        {"claim", OPTION_TEXT, "CLAIM:PATH",
         "A PersistentVolumeClaim and the folder where pods have it; runs lie there"},
        {"cpus", OPTION_TEXT, "N", "Processors of a pod, such as 4 or 500m"},
        {"memory", OPTION_TEXT, "N", "Memory of a pod, such as 16Gi"},
        {"user", OPTION_COUNT, "UID", "The user as which pods run; as the image says when not given"},
        {0}}};

static const option_group running = {
    "Running:", (const cli_option[]){
                    {"max-restarts", OPTION_INT, "K",
                     "How often a process that a signal killed is started again; 3 for train, 0 for other "
                     "programs when not given"},
                    {"grace", OPTION_COUNT, "S",
                     "Seconds from SIGTERM to SIGKILL for processes that have to end; 30 when not given"},
                    {"lease", OPTION_COUNT, "S", "Seconds that a host may be silent; 30 when not given"},
                    {"start-timeout", OPTION_COUNT, "S",
                     "Seconds within which all hosts must have begun; 120 when not given"},
                    {"no-prefix", OPTION_FLAG, NULL, "Lines of processes do not begin with [rank N]"},
                    {"dry-run", OPTION_FLAG, NULL, "Print what would be started, and start nothing"},
                    {0}}};

static int count_of(const options *o, const char *name, int most)
{
    int64_t n = options_int(o, name, 0);

    if (n > most) cli_usage("--%s: at most %d", name, most);
    return (int)n;
}

/* 0 means none here, and the usual number to the library. */
static int restarts_of(const options *o)
{
    int n = count_of(o, "max-restarts", 1000000);

    return options_text(o, "max-restarts") && !n ? MANTA_NONE : n;
}

/* Options of manifests are for manifests, and those of a launch that runs are not. */
static void check_kubernetes(const options *o, const char *on)
{
    static const char *const others[] = {"ssh", "slurm", "lease", "start-timeout", "dry-run"};
    bool prints = on && !strcmp(on, "k8s");

    for (const cli_option *k = kubernetes.options; k->name && !prints; k++) {
        if (k->kind == OPTION_FLAG ? options_flag(o, k->name) : options_text(o, k->name) != NULL)
            cli_usage("--%s is for --on k8s", k->name);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others && prints; i++) {
        if (i + 1 < sizeof others / sizeof *others ? options_text(o, others[i]) != NULL
                                                   : options_flag(o, others[i]))
            cli_usage("--%s is not for --on k8s", others[i]);
    }
    if (prints && !options_flag(o, "print"))
        cli_usage("--on k8s needs --print: manifests are written, and kubectl applies them");
}

static int run_launch(const options *o)
{
    manta_launch_options l = {.argv = options_rest(o),
                              .on = options_text(o, "on"),
                              .processes = count_of(o, "processes", 1024),
                              .nodes = count_of(o, "nodes", 1024),
                              .max_restarts = restarts_of(o),
                              .grace_ms = 1000 * count_of(o, "grace", 100000),
                              .lease_ms = 1000 * count_of(o, "lease", 100000),
                              .start_ms = 1000 * count_of(o, "start-timeout", 100000),
                              .program = options_text(o, "manta"),
                              .folder = options_text(o, "folder"),
                              .ssh = options_text(o, "ssh"),
                              .slurm = options_text(o, "slurm"),
                              .variables = options_text(o, "export"),
                              .plain = options_flag(o, "no-prefix"),
                              .image = options_text(o, "image"),
                              .job = options_text(o, "job"),
                              .space = options_text(o, "namespace"),
                              .secret = options_text(o, "secret"),
                              .environment = options_text(o, "env-from"),
                              .claim = options_text(o, "claim"),
                              .cpus = options_text(o, "cpus"),
                              .memory = options_text(o, "memory"),
                              .user = count_of(o, "user", 2000000000)};
    int status = CLI_DONE;
    char *plan;

    if (!l.argv[0])
        cli_usage("launch needs a program behind --, such as: manta launch -n 4 -- train mlp --data mnist");
    check_kubernetes(o, l.on);
    if (options_flag(o, "dry-run") || options_flag(o, "print")) {
        if (options_flag(o, "print") ? manta_launch_manifest(&l, &plan) : manta_launch_plan(&l, &plan))
            return cli_fail();
        print_lines(plan);
        free(plan);
        return CLI_DONE;
    }
    return manta_launch(&l, &status) ? cli_fail() : status;
}

static int run_agent(const options *o)
{
    (void)o;
    if (isatty(STDIN_FILENO))
        cli_usage("agent is what 'manta launch' starts on each host, and nothing for a terminal");
    return manta_agent() ? cli_fail() : CLI_DONE;
}

const command cmd_launch = {
    .name = "launch",
    .args = "-- PROGRAM [ARGUMENT...]",
    .about = "Start a program on many hosts as one cluster",
    .text =
        "Starts an agent on each host, which starts PROGRAM once for each of its ranks, with TF_CONFIG "
        "in its "
        "environment. 'train' is Manta's own: 'manta launch --on ssh:hosts.txt -- train mnist-cnn --data "
        "mnist' "
        "trains on all hosts, to the bytes that one process with the same --shards ends with.\n\n"
        "FILE has a host a line, '[USER@]HOST[:PORT] [slots=N]'; slots is how many processes it has. "
        "With ssh each "
        "host must let this user in without a question. With slurm nodes are asked for by salloc, unless "
        "this "
        "is inside an allocation. With mpi the agent of each host is started by mpirun. With k8s nothing is "
        "started: manifests are printed, whose pods run 'manta launch --on pod:JOB'. manta must be at "
        "the same "
        "path everywhere, or --manta says where; and so must the folder.\n\n"
        "A key for this launch alone is made and sent over the channels to the agents, never on a "
        "command line; "
        "processes listen at ports from 20000 to 31999.\n\n"
        "What processes print comes out here, each line with its rank. One that a signal killed is "
        "started again; the "
        "others wait for it, and it receives the state from them. One that fails ends all. SIGTERM and "
        "Ctrl-C are "
        "passed on: a training with --name or --run-dir writes a checkpoint and this ends with status "
        "75, or 130. When "
        "this process dies, or a host cannot hear it for --lease seconds, the agents end their processes "
        "in the "
        "same way. A host that is lost ends the launch.",
    .examples =
        "  manta launch -n 4 -- ./my_trainer\n"
        "  manta launch --on ssh:hosts.txt -- train mnist-cnn --data mnist --name big\n"
        "  manta launch --on slurm --nodes 4 --slurm '--exclusive --time=60' -- train resnet18 "
        "--data fashion-mnist\n"
        "  manta launch --on mpi:hosts.txt --dry-run -- ./my_trainer\n"
        "  manta launch --on k8s --image IMAGE --nodes 4 --claim data:/data --print -- train mnist-cnn "
        "--data mnist --name big >job.yaml",
    .max_args = 0,
    .rest = true,
    .groups = {&where, &kubernetes, &running},
    .run = run_launch,
};

const command cmd_agent = {
    .name = "agent",
    .args = "",
    .about = "Start processes as 'manta launch' says",
    .text = "This is what 'manta launch' runs on each host. It does as it is told over its standard input "
            "and says over "
            "its standard output what happens, in a protocol of their own, until its input ends; then it "
            "ends what it "
            "has started. It listens nowhere, and is nothing for people.",
    .max_args = 0,
    .groups = {NULL},
    .run = run_agent,
};
