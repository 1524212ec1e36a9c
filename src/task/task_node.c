/* task_node.c - the public calls that begin and end a runtime, and ask about its node.
 *
 *     manta_init() ─┬─ in-process ──────────────────────────▶ no other process: calls run here
 *                   ├─ address, MANTA_ADDRESS, `manta start` ──▶ node_join(): one that others use
 *                   └─ none of these ───────────────────────▶ node_start(): one of our own
 *                                                                  │
 *                                         runtime_open(), the socket to the daemon
 *
 *     manta_shutdown(): SHUTDOWN to the daemon ──▶ the keeper ends when all is collected
 *          not within a second: the daemon is killed, and the keeper ends the rest
 *          not within ten more: the keeper is killed, and the daemon, or we, end the rest
 *     of a node that others use: SHUTDOWN, and what is ours ends; detached actors stay
 *
 * Resources and limits are the node's: a program that names any gets a node of its own, or, beside
 * an address, an error. A node of our own has as many cores as this process may use, and three
 * tenths of the memory for objects, unless the options say otherwise (node_config_of()).
 *
 * The keeper, not this process, is what nothing outlives (node.h). What is done here only makes an
 * end quicker and tidier, and a program that is killed leaves nothing either. */
#include <manta/context.h>
#include <manta/task.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/args.h"
#include "base/log.h"
#include "os/cpu.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/spawner.h"
#include "os/sys.h"
#include "task/actor_link.h"
#include "task/failure.h"
#include "task/needs.h"
#include "task/node.h"
#include "task/nursery.h"
#include "task/proto.h"
#include "task/rebuild.h"
#include "task/runtime.h"

#define STOP_LIMIT_MS    1000 /* for a daemon, which may be stopped, to end all others and itself */
#define KEEPER_LIMIT_MS  10000 /* for a keeper to do it in its place: many processes, on a busy machine */
#define NURSERY_LIMIT_MS 60000
#define INFO_ROUNDS      8 /* threads of the program that call may have a worker come with each answer */
#define PRESTART_MOST    4
#define WORKERS_PER_CORE 32
#define WORKERS_LEAST    256
#define FLOOR_MOST       (256u << 20)

/* ---- start and end ---- */

/* Reads "name=amount,..." into the resources behind cpu and gpu. */
static manta_status name_resources(const char *text, node_config *c)
{
    int n = SCHED_NAMED;

    while (text && *text) {
        const char *eq = strchr(text, '=');
        char *end = NULL;
        if (!eq || eq == text || (size_t)(eq - text) >= sizeof c->names[0])
            return manta_fail(MANTA_EINVAL, "resources \"%s\": name=amount is expected", text);
        double x = strtod(eq + 1, &end);
        if (end == eq + 1 || (*end && *end != ',') || !(x >= 0) || x > 1e12)
            return manta_fail(
                MANTA_EINVAL,
                "resources \"%s\": what follows the = is no amount, expected a number from 0 to 1e12", text);
        if (n == SCHED_RESOURCES)
            return manta_fail(MANTA_EINVAL,
                              "the resources name more than %d kinds, which is the most a node has",
                              SCHED_RESOURCES - SCHED_NAMED);
        memcpy(c->names[n], text, (size_t)(eq - text));
        c->total.amount[n++] = (int64_t)(x * SCHED_UNIT + 0.5);
        text = *end ? end + 1 : end;
    }
    return MANTA_OK;
}

/* Far more than can work at once, and fewer than a machine can bear. */
static int workers_for(int cores)
{
    return cores < WORKERS_LEAST / WORKERS_PER_CORE ? WORKERS_LEAST : cores * WORKERS_PER_CORE;
}

manta_status node_config_of(const manta_node_options *o, node_config *c)
{
    bool has_none = o && o->num_cpus == MANTA_NONE;
    int cores = has_none ? 0 : o && o->num_cpus > 0 ? o->num_cpus : cpu_cores();

    *c = (node_config){.prestart = cores < PRESTART_MOST ? cores : PRESTART_MOST};
    c->total.amount[0] = (int64_t)cores * SCHED_UNIT;
    if (o && o->num_gpus > SCHED_DEVICES)
        return manta_fail(MANTA_EINVAL, "num_gpus is %d, expected at most %d", o->num_gpus, SCHED_DEVICES);
    c->total.amount[SCHED_GPU] = (int64_t)(o && o->num_gpus > 0 ? o->num_gpus : 0) * SCHED_UNIT;
    memcpy(c->names[0], "cpu", 4);
    memcpy(c->names[1], "gpu", 4);
    memcpy(c->names[2], "memory", 7);
    c->plain_output = o && o->plain_output;
    uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    c->store_limit = o && o->store_memory ? o->store_memory : memory / 10 * 3;
    const char *tmp = getenv("TMPDIR"), *folder = o && o->spill_folder ? o->spill_folder
                                                  : tmp && *tmp        ? tmp
                                                                       : "/var/tmp";
    if (strlen(folder) >= sizeof c->spill_folder)
        return manta_fail(MANTA_EINVAL,
                          "spill_folder has more than %zu bytes, the longest path that is possible",
                          sizeof c->spill_folder - 1);
    memcpy(c->spill_folder, folder, strlen(folder));
    rebuild_limit =
        o && o->lineage_memory ? (size_t)o->lineage_memory : (size_t)64 << 20; /* workers are forks */
    c->spill_limit = !*folder ? 0 : o && o->spill_limit ? o->spill_limit : UINT64_MAX;
    c->worker_memory = o ? o->worker_memory : 0;
    c->memory_is_free = o && o->memory_is_free;
    c->max_workers = o && o->max_workers > 0 ? o->max_workers : workers_for(cores);
    c->memory_floor = o && o->memory_floor ? o->memory_floor : memory / 100;
    if (!(o && o->memory_floor) && c->memory_floor > FLOOR_MOST) c->memory_floor = FLOOR_MOST;
    c->total.amount[2] = (int64_t)(o && o->memory ? o->memory : memory / 10 * 7) * SCHED_UNIT;
    return o ? name_resources(o->resources, c) : MANTA_OK;
}

/* A program that ends without manta_shutdown() leaves nothing either way; this
 * lets it also wait for its keeper, so that not even a zombie is left to
 * whoever adopts it. Children forked by the program have no part in it. */
static bool exit_is_watched;

static void at_exit(void)
{
    if (rt && rt->owner == getpid()) manta_shutdown();
}

/* Joins the node that the options, the environment or `manta start` name, or
 * starts one; manta/task.h has the rule. */
static manta_status open_node(const manta_node_options *o, const node_config *c, pid_t *keeper, int *fd,
                              int *keeper_pidfd, bool *joined)
{
    const char *address = o && o->address ? o->address : getenv("MANTA_ADDRESS");
    bool own =
        o && (o->num_cpus > 0 || o->num_gpus > 0 || o->memory || o->resources || o->store_memory ||
              o->spill_folder || o->spill_limit || o->worker_memory || o->memory_floor || o->max_workers);
    char path[NODE_SOCKET_PATH];
    int socket = -1;
    manta_status st = MANTA_ENOENT;

    if (address && !address[0]) address = NULL;
    if (c->n_nursery == 0) node_remember_files();
    if (address && strcmp(address, "local") != 0) {
        if (own)
            return manta_fail(MANTA_EINVAL,
                              "cores, devices, resources and memory are those of the node at %s: "
                              "give them to manta start, or set the address to local",
                              address);
        TRY(strcmp(address, "auto") == 0
                ? node_socket_connect_main(path, &socket)
                : node_socket_connect(strcmp(address, "any") == 0 ? NULL : address, path, &socket));
        st = MANTA_OK;
    } else if (!address && !own) {
        st = node_socket_connect_main(path, &socket);
    }
    if (st) return node_start(c, keeper, fd, keeper_pidfd);
    TRY(node_join(c, socket, keeper, keeper_pidfd));
    *fd = socket;
    *joined = true;
    return MANTA_OK;
}

/* Adds what processes have to be told that are no forks of this one; command is to outlive *c. */
static manta_status add_nursery(const manta_node_options *o, node_config *c, buf *command)
{
    int level = MANTA_LOG_LEVEL_DEBUG;

    if (!o || !o->nursery) return MANTA_OK;
    if (o->nursery_timeout_ms < 0)
        return manta_fail(MANTA_EINVAL, "nursery_timeout_ms is %d, expected 0 or more",
                          o->nursery_timeout_ms);
    TRY(nursery_pack(o->nursery, command));
    while (level < MANTA_LOG_LEVEL_OFF && !log_enabled((manta_log_level)level)) level++;
    c->nursery = command->at;
    c->n_nursery = command->n;
    c->nursery_ms = o->nursery_timeout_ms > 0 ? o->nursery_timeout_ms : NURSERY_LIMIT_MS;
    c->lineage = rebuild_limit;
    c->log_level = level;
    return MANTA_OK;
}

/* What was started is of no use: this thread's last error says why. */
static manta_status undo_start(pid_t keeper, int keeper_pidfd)
{
    struct pollfd p = {.fd = keeper_pidfd, .events = POLLIN};
    manta_error e;

    manta_error_get(&e);
    proc_signal(keeper_pidfd, SIGKILL); /* its daemon or supervisor ends the rest */
    if (keeper > 0 && !rt->joined) spawn_reap(keeper);
    if (keeper == 0) (void)socket_poll(&p, 1, STOP_LIMIT_MS);
    runtime_close();
    return manta_error_raise(&e);
}

static manta_status start_runtime(const manta_node_options *options, const node_config *c)
{
    int fd = -1, keeper_pidfd = -1;
    pid_t keeper = 0;
    bool joined = false;

    TRY(open_node(options, c, &keeper, &fd, &keeper_pidfd, &joined));
    manta_status st = runtime_open(fd, keeper_pidfd, NULL);
    rt->keeper = keeper;
    rt->joined = joined;
    rt->owner = getpid();
    if (!exit_is_watched) exit_is_watched = atexit(at_exit) == 0;
    return st ? undo_start(keeper, keeper_pidfd) : MANTA_OK;
}

manta_status manta_init(int *argc, char ***argv, const manta_node_options *options)
{
    node_config c;
    buf command = {0};
    (void)argc;
    (void)argv;

    if (rt_is_forked()) return rt_none();
    if (rt)
        return manta_fail(MANTA_EEXIST,
                          "manta_init() was called before: a process has one runtime until manta_shutdown()");
    TRY(node_config_of(options, &c));
    if (options && options->name_space) {
        char full[PROTO_NAME];
        TRY(actor_full_name(options->name_space, "", full));
        snprintf(rt_space, sizeof rt_space, "%s", options->name_space);
    }
    memcpy(c.space, rt_space, sizeof c.space);
    if (options && options->log_level) TRY(log_level_named(options->log_level));
    const char *address = options && options->address ? options->address : getenv("MANTA_ADDRESS");
    if ((options && options->in_process) || (address && !strcmp(address, "in-process"))) {
        TRY(runtime_open_local());
        rt->total = c.total;
        memcpy(rt->names, c.names, sizeof rt->names);
        rt->node = 1;
        return MANTA_OK;
    }
    manta_status st = add_nursery(options, &c, &command);
    if (!st) st = start_runtime(options, &c);
    buf_release(&command);
    return st;
}

/* Leaves a node that goes on. Its detached actors stay, and with them the
 * processes that could start them again; otherwise nothing of ours is left. */
static void leave_node(void)
{
    reply r;
    struct pollfd p = {.fd = rt->keeper_pidfd, .events = POLLIN};

    mutex_lock(&rt->lock);
    manta_status st = rt->is_dead ? MANTA_EDIED : rt_request(rt_request_begin(PROTO_SHUTDOWN), &r);
    mutex_unlock(&rt->lock);
    if (!st && r.id) return;
    if (socket_poll(&p, 1, STOP_LIMIT_MS) <= 0) proc_signal(p.fd, SIGKILL); /* its supervisor ends the rest */
}

/* A keeper that ended as it should has collected everything. If it was killed, its end is what
 * makes the daemon end all the others, and then itself. */
static void await_daemon(void)
{
    struct pollfd p = {.fd = rt->daemon_pidfd, .events = POLLIN};

    if (p.fd < 0) return;
    if (socket_poll(&p, 1, KEEPER_LIMIT_MS) <= 0) {
        proc_signal(p.fd, SIGKILL);
        (void)socket_poll(&p, 1, STOP_LIMIT_MS);
    }
}

void manta_shutdown(void)
{
    if (!rt || rt->is_worker) return;
    if (rt->joined) {
        leave_node();
    } else if (!rt->is_local) {
        mutex_lock(&rt->lock);
        (void)rt_request_begin(PROTO_SHUTDOWN);
        rt_tell();
        struct pollfd p = {.fd = rt->keeper_pidfd, .events = POLLIN};
        pid_t keeper = rt->keeper, daemon = rt->daemon;
        mutex_unlock(&rt->lock);
        /* A daemon that does not end (it may be stopped) is killed, which its
         * keeper answers by ending all the rest. */
        if (socket_poll(&p, 1, STOP_LIMIT_MS) <= 0) os->kill(daemon, SIGKILL);
        bool is_late = socket_poll(&p, 1, KEEPER_LIMIT_MS) <= 0;
        if (is_late) proc_signal(p.fd, SIGKILL);
        if (keeper > 0) spawn_reap(keeper);
        await_daemon();
        if (is_late) node_sweep(daemon); /* on a busy machine neither of them may have come to it */
    }
    runtime_close();
}

bool manta_is_initialized(void)
{
    return rt != NULL;
}

/* ---- the node ---- */

/* Asks the daemon what the node has. It counts as taken what it has granted us, also while the grant is on its
 * way; a worker that came with the answer and that no call wants goes back, and the daemon is asked again. */
static manta_status ask_info(reply *r)
{
    manta_status st = MANTA_OK;

    (void)calls_return_idle();
    for (int i = 0; i < INFO_ROUNDS && !st; i++) {
        uint64_t request = rt_request_begin(PROTO_INFO);
        st = rt->is_dead ? failure_raise(rt->death) : rt_request(request, r);
        if (!calls_return_idle()) break;
    }
    return st;
}

manta_status manta_node_get(manta_node_info *out)
{
    REFUSE_NULL(out);

    reply r;

    if (!rt) return rt_none();
    *out = (manta_node_info){0};
    if (rt->is_local) {
        info_amounts(&rt->total, &rt->total, out);
        out->tasks_done = rt->done;
        return MANTA_OK;
    }
    mutex_lock(&rt->lock);
    manta_status st = ask_info(&r);
    if (!st) {
        *out = r.info;
        out->tasks_done = rt->done;
    }
    mutex_unlock(&rt->lock);
    return st;
}
