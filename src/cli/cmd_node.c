/* cmd_node.c - manta start, stop and status. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/node.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/node_text.h"
#include "cli/options.h"
#include "cli/print.h"
#include "cli/runs.h"
#include "cli/stop.h"

static const option_group starting = {
    "The node:",
    (const cli_option[]){
        {"num-cpus", OPTION_COUNT, "N", "Cores that tasks may use; those of this machine when not given"},
        {"num-gpus", OPTION_INT, "N", "Devices that tasks may use; 0 when not given"},
        {"resources", OPTION_TEXT, "NAME=X,...", "More of what tasks may ask for, such as disk=2"},
        {"store-memory", OPTION_TEXT, "SIZE",
         "Most memory of objects, such as 4G; 30 % of the machine's when not given"},
        {"spill-folder", OPTION_TEXT, "DIR",
         "Where objects go that memory has no room for; $TMPDIR or /var/tmp when not given"},
        {"spill-limit", OPTION_TEXT, "SIZE",
         "Most disk space of objects, such as 100G; no limit when not given"},
        {"foreground", OPTION_FLAG, NULL, "Stay until Ctrl-C, and stop the node then"},
        {"json", OPTION_FLAG, NULL, "One JSON object instead of lines for people"},
        {0}}};

static const option_group stopping = {
    "The node:",
    (const cli_option[]){
        NODE_OPTION,
        {"timeout", OPTION_COUNT, "S",
         "Seconds before a daemon that does not end is killed, 5 when not given; or to wait for a run, 60"},
        {"storage", OPTION_TEXT, "DIR",
         "Where runs lie, a folder or s3://BUCKET/PREFIX; $MANTA_STORAGE or ~/manta-runs when not given"},
        {0}}};

static const option_group showing = {
    "Output:", (const cli_option[]){NODE_OPTION, {"json", OPTION_FLAG, NULL, "One JSON object"}, {0}}};

/* ---- start ---- */

/* 512M, 4G, 1.5T, or bytes; 0: not given. */
static uint64_t size_of(const options *o, const char *name)
{
    static const char units[] = "KMGT";
    const char *text = options_text(o, name);
    char *end;
    double x = text ? strtod(text, &end) : 0;

    if (!text) return 0;
    const char *unit = *end ? strchr(units, *end) : NULL;

    for (int i = 0; unit && i <= unit - units; i++) x *= 1024;
    if (end == text || (*end && !unit) || (unit && end[1]) || !(x >= 1) || x > 1e18)
        cli_usage("--%s %s: a number of bytes is expected, such as 512M or 4G", name, text);
    return (uint64_t)x;
}

static int stay_until_stopped(const manta_node_place *place)
{
    manta_view *v;
    manta_node_place gone;

    while (!stop_requested()) {
        if (manta_view_take(place->path, 0, 0, &v)) {
            cli_note("the node is gone: its daemon was process %d", place->daemon_pid);
            return CLI_FAILED;
        }
        manta_view_free(v);
        (void)poll(NULL, 0, 500); /* a signal ends it early */
    }
    if (manta_node_stop(place->path, 5000, &gone)) return cli_fail();
    return CLI_INTERRUPTED;
}

static int run_start(const options *o)
{
    manta_node_options n = {.num_cpus = (int)options_int(o, "num-cpus", 0),
                            .num_gpus = (int)options_int(o, "num-gpus", 0),
                            .resources = options_text(o, "resources"),
                            .store_memory = size_of(o, "store-memory"),
                            .spill_folder = options_text(o, "spill-folder"),
                            .spill_limit = size_of(o, "spill-limit")};
    manta_node_place place;

    if (options_flag(o, "foreground")) stop_install();
    if (manta_node_start(&n, &place)) return cli_fail();
    if (options_flag(o, "json")) {
        json_emit(json_pack("{s:s, s:i, s:s, s:s}", "event", "started", "pid", place.daemon_pid, "address",
                            place.path, "log", place.log));
    } else {
        print_out("A node runs: process %d, at %s\n", place.daemon_pid, place.path);
        print_out("Programs join it by themselves; 'manta status' shows it, 'manta stop' ends it.\n");
    }
    if (!cli_flush() || !options_flag(o, "foreground")) return CLI_DONE;
    return stay_until_stopped(&place);
}

const command cmd_start = {
    .name = "start",
    .args = "",
    .about = "Start a node that programs join",
    .text =
        "Starts a node on this host and leaves it running. Programs that call manta_init() join it, several "
        "at "
        "once, unless they say how many cores or how much memory they want, or MANTA_ADDRESS is local. Their "
        "detached actors live in it until they are killed or the node is stopped.\n\n"
        "It listens on a socket in $XDG_RUNTIME_DIR/manta, or in /tmp/manta-UID without that variable "
        "(in ~/.cache/manta/run-HOST where another user has that name), which only "
        "this user can open; there is no port. What it has to say, and what detached actors print when their "
        "program is gone, is in node.log beside the socket.",
    .examples = "  manta start\n"
                "  manta start --num-cpus 8 --store-memory 4G --resources disk=2",
    .groups = {&starting},
    .run = run_start,
};

/* ---- stop ---- */

static int run_stop(const options *o)
{
    manta_node_place place;

    if (options_arg(o, 0)) return runs_stop(o);
    if (manta_node_stop(options_text(o, "node"), 1000 * options_int(o, "timeout", 5), &place))
        return cli_fail();
    print_out("The node of process %d has ended.\n", place.daemon_pid);
    return CLI_DONE;
}

const command cmd_stop = {
    .name = "stop",
    .args = "[NAME]",
    .about = "End a node and everything in it, or a run after a checkpoint",
    .text =
        "Ends the node that was started, or the one that --node names, with its workers and actors, and "
        "waits "
        "until nothing of it is left. Programs that use it get an error from what they wait for.\n\n"
        "With NAME it is a run that ends: it saves a checkpoint, and 'manta train --resume' goes on from it.",
    .examples = "  manta stop\n"
                "  manta stop --node 1234\n"
                "  manta stop my-run",
    .max_args = 1,
    .groups = {&stopping},
    .run = run_stop,
};

/* ---- status ---- */

static void status_json(const manta_view *v)
{
    json_t *amounts = json_object(), *jobs = json_array();

    for (int i = 0; i < v->n_amounts; i++)
        json_object_set_new(amounts, v->amounts[i].name,
                            json_pack("{s:o, s:o}", "total", json_number(v->amounts[i].total), "used",
                                      json_number(v->amounts[i].used)));
    for (size_t i = 0; i < v->n_jobs; i++)
        json_array_append_new(jobs,
                              json_pack("{s:i, s:i, s:s, s:i, s:i}", "id", (int)v->jobs[i].id, "pid",
                                        v->jobs[i].driver_pid, "namespace", v->jobs[i].name_space, "zygote",
                                        v->jobs[i].zygote_pid, "supervisor", v->jobs[i].supervisor_pid));
    json_emit(json_pack(
        "{s:s, s:i, s:s, s:s, s:b, s:f, s:o, s:o, s:i, s:i, s:I, s:I, s:I, s:{s:I, s:I, s:I}}", "event",
        "status", "pid", v->daemon_pid, "address", v->path, "version", v->version, "started",
        v->driver_pid == 0, "uptime_s", (double)(v->now_ns - v->started_ns) * 1e-9, "resources", amounts,
        "programs", jobs, "workers", v->workers, "leased", v->leases, "waiting", (json_int_t)v->waiting,
        "actors", (json_int_t)v->all_actors, "objects", (json_int_t)v->all_objects, "store", "limit",
        (json_int_t)v->store_limit, "used", (json_int_t)v->store_used, "segments", (json_int_t)v->segments));
}

static void status_text(const manta_view *v)
{
    char age[32], used[32], limit[32];

    print_out("Node     process %d at %s, manta %s, up %s\n", v->daemon_pid, v->path, v->version,
              node_text_time(age, v->now_ns - v->started_ns));
    if (v->driver_pid) print_out("         of process %d, and ends with it\n", v->driver_pid);
    for (int i = 0; i < v->n_amounts; i++)
        print_out("%-8s %g of %g used\n", v->amounts[i].name, v->amounts[i].used, v->amounts[i].total);
    print_out("Store    %s of %s in %llu segment%s, %llu shared object%s\n",
              node_text_size(used, v->store_used), node_text_size(limit, v->store_limit),
              (unsigned long long)v->segments, v->segments == 1 ? "" : "s",
              (unsigned long long)v->all_objects, v->all_objects == 1 ? "" : "s");
    print_out("Workers  %d, %d of them leased; %llu call%s wait%s for one\n", v->workers, v->leases,
              (unsigned long long)v->waiting, v->waiting == 1 ? "" : "s", v->waiting == 1 ? "s" : "");
    print_out("Actors   %llu\n", (unsigned long long)v->all_actors);
    for (size_t i = 0; i < v->n_jobs; i++) {
        const manta_view_job *j = &v->jobs[i];
        if (j->driver_pid)
            print_out("Program  process %d, namespace %s\n", j->driver_pid, j->name_space);
        else
            print_out("Program  gone, its detached actors stay; namespace %s\n", j->name_space);
    }
}

static int run_status(const options *o)
{
    manta_view *v;

    if (manta_view_take(options_text(o, "node"), 0, 0, &v)) return cli_fail();
    if (options_flag(o, "json"))
        status_json(v);
    else
        status_text(v);
    manta_view_free(v);
    return CLI_DONE;
}

const command cmd_status = {
    .name = "status",
    .args = "",
    .about = "Show what a node has and uses",
    .text = "Shows the cores and other resources of a node, how much of them is used, its store, workers, "
            "actors and "
            "the programs that use it. 'manta ps' lists each of them.\n\n"
            "Which node: the one that manta start began; without one, the only node that runs, which may be "
            "the own "
            "node of a program; --node where several run.",
    .examples = "  manta status\n"
                "  manta status --node 1234 --json",
    .groups = {&showing},
    .run = run_status,
};
