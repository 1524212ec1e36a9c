/* node.c - see node.h: the keeper, which does almost nothing, so that it can be relied on.
 *
 *   node_start()         keeper ─── daemon          SPAWN_QUIET: the program's wait() does not see it;
 *                                                   or, with a nursery, by node_program.c, as node_join()
 *   node_start_alone()   keeper ─── daemon          SPAWN_DETACHED: it outlives the program
 *   node_join()          keeper ─── supervisor      SPAWN_DETACHED: detached actors do
 *
 * A keeper adopts orphans, starts the one process that it is there for, and sleeps until that
 * one, or the driver whose node it is, has ended; then it ends whatever is below it. It holds
 * two pidfds and nothing else, so nothing can go wrong in it.
 *
 * Who watches whom: the keeper its child by the pidfd that spawn_start() gave, the child the
 * keeper by `self_pidfd`. No process here waits for another in any other way. All starting,
 * waiting and ending is os/spawner.h's and os/descendants.h's. */
#include "task/node.h"

#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "os/descendants.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/spawner.h"
#include "task/node_program.h"
#include "task/proto.h"

bool node_has_threads;

void node_remember_files(void)
{
    node_has_threads = proc_threads() > 1;
    spawn_remember_files();
}

/* ---- the keeper ---- */

/* What the keeper of any of the three kinds runs on. */
typedef struct keeper {
    const node_config *config;
    int fd; /* the daemon's connection to the driver; of a node alone its log; of a guest to the node's daemon */
    int tell; /* where whoever started it listens */
    int driver_fd; /* the driver's end of `fd`, which must not be open in two processes */
    pid_t driver; /* with a descriptor of it, of a node that is the driver's own */
    int driver_pidfd;
    int self_pidfd; /* what its child watches it by */
    pid_t pid;
} keeper;

/* The process becomes a keeper. */
static void begin_keeper(keeper *k)
{
    k->pid = getpid();
    if (descendants_adopt() || proc_pidfd_open(getpid(), &k->self_pidfd)) _exit(1);
}

/* Starts the process that the keeper is there for. */
static spawn_child start_kept(keeper *k, const char *name, void (*run)(void *ctx))
{
    spawn_options o = {.run = run, .ctx = k, .name = name};
    spawn_child kept = {0};

    if (spawn_start(&o, &kept)) _exit(1);
    return kept;
}

/* Tells the driver, which has not forked it, who the keeper is. */
static void tell_keeper(const keeper *k)
{
    buf b = {0};

    proto_begin(&b, PROTO_HELLO);
    wire_put_u32(&b, (uint32_t)k->pid);
    if (socket_send(k->tell, b.at, b.n, &k->self_pidfd, 1, true)) _exit(1);
    buf_release(&b);
}

/* Waits until the kept process or the driver has ended, then ends all. */
static void keep_until_end(const spawn_child *kept, int driver_pidfd)
{
    struct pollfd p[2] = {{.fd = spawn_fd(kept), .events = POLLIN}, {.fd = driver_pidfd, .events = POLLIN}};

    spawn_close_files((int[]){driver_pidfd, spawn_fd(kept)}, 2);
    (void)socket_poll(p, driver_pidfd >= 0 ? 2 : 1, -1);
    descendants_end();
}

/* What the daemon would have removed had it not been killed. */
static void sweep_node_socket(const char *name)
{
    char folder[NODE_SOCKET_PATH], path[NODE_SOCKET_PATH];

    if (node_socket_folder(folder, false)) return;
    snprintf(path, sizeof path, "%.80s/%s", folder, name);
    node_socket_sweep(path);
}

void node_sweep(pid_t daemon)
{
    char name[24];

    snprintf(name, sizeof name, "%d.sock", (int)daemon);
    sweep_node_socket(name);
}

static void run_daemon(void *ctx)
{
    const keeper *k = ctx;

    daemon_main(k->config, k->fd, k->driver, k->driver_pidfd, k->self_pidfd, k->pid);
}

static void run_keeper(void *ctx)
{
    keeper *k = ctx;

    spawn_ignore_requests(); /* the driver's end is the node's */
    socket_close_all(&k->driver_fd, 1);
    begin_keeper(k);
    if (k->tell >= 0) tell_keeper(k); /* before the daemon says anything there */
    spawn_child daemon = start_kept(k, "manta-daemon", run_daemon);
    keep_until_end(&daemon, k->driver_pidfd);
    node_sweep(daemon.pid);
}

manta_status node_start(const node_config *c, pid_t *pid, int *fd, int *keeper_pidfd)
{
    int pair[2] = {-1, -1};
    keeper k = {.config = c, .driver = getpid(), .driver_pidfd = -1, .tell = -1};
    spawn_options o = {.run = run_keeper,
                       .ctx = &k,
                       .name = "manta-keeper",
                       .kin = SPAWN_QUIET,
                       .signals = SPAWN_SIGNALS_RESET,
                       .own_session = true,
                       .flush = true};
    spawn_child child;
    manta_status st;

    if (c->n_nursery > 0) {
        *pid = 0;
        return node_program_start(c, -1, fd, keeper_pidfd);
    }
    node_remember_files();
    if ((st = socket_pair(pair))) return st;
    if ((st = proc_pidfd_open(getpid(), &k.driver_pidfd))) goto out;
    k.fd = pair[1];
    k.driver_fd = pair[0];
    if ((st = spawn_start(&o, &child))) goto out;
    *pid = child.pid;
    *keeper_pidfd = child.pidfd;
    *fd = pair[0];
    pair[0] = -1;
out:
    socket_close_all((int[]){pair[0], pair[1], k.driver_pidfd}, 3);
    return st;
}

_Noreturn void node_keep(const node_config *c, int fd, pid_t driver, int driver_pidfd)
{
    run_keeper(&(keeper){
        .config = c, .fd = fd, .tell = fd, .driver_fd = -1, .driver = driver, .driver_pidfd = driver_pidfd});
    _exit(0);
}

/* ---- a node without a driver ---- */

static void run_daemon_alone(void *ctx)
{
    const keeper *k = ctx;

    daemon_main_alone(k->config, k->tell, k->self_pidfd, k->pid);
}

static void run_keeper_alone(void *ctx)
{
    keeper *k = ctx;

    if (chdir("/")) _exit(1);
    begin_keeper(k);
    spawn_child daemon = start_kept(k, "manta-daemon", run_daemon_alone);
    keep_until_end(&daemon, -1);
    sweep_node_socket(NODE_SOCKET_MAIN);
}

manta_status node_start_alone(const node_config *c, int log, pid_t *daemon, char path[NODE_SOCKET_PATH])
{
    int pair[2] = {-1, -1}, fds[SOCKET_MAX_FDS], n_fds = 0;
    char in[1024], text[NODE_SOCKET_PATH + 512];
    size_t n = 0;

    spawn_forget_files(); /* it keeps none of this program's files */
    TRY(socket_pair(pair));
    keeper k = {.config = c, .fd = log, .tell = pair[1]};
    manta_status st = spawn_start(&(spawn_options){.run = run_keeper_alone,
                                                   .ctx = &k,
                                                   .name = "manta-keeper",
                                                   .kin = SPAWN_DETACHED,
                                                   .signals = SPAWN_SIGNALS_RESET,
                                                   .own_session = true,
                                                   .flush = true,
                                                   .standard = (int[]){SPAWN_NULL, log, log},
                                                   .closes_files = true,
                                                   .keep = &pair[1],
                                                   .n_keep = 1},
                                  NULL);
    socket_close_all(&pair[1], 1);
    if (!st) st = socket_recv(pair[0], in, sizeof in, &n, fds, &n_fds, true);
    if (st == MANTA_EDIED) st = manta_fail(st, "the node ended before it had started; its log says why");
    if (!st) {
        wire w = wire_of(in, n);
        (void)proto_kind_of(&w);
        st = (manta_status)wire_u32(&w);
        *daemon = (pid_t)wire_u32(&w);
        wire_text(&w, text, sizeof text);
        if (st)
            st = manta_fail(st, "%s", text);
        else
            snprintf(path, NODE_SOCKET_PATH, "%.*s", NODE_SOCKET_PATH - 1, text);
    }
    socket_close_all(&pair[0], 1);
    return st;
}

/* ---- a program that joined ---- */

static void run_supervisor(void *ctx)
{
    const keeper *k = ctx;

    spawn_close_files((int[]){k->fd, k->self_pidfd}, 2);
    supervisor_main(k->config, k->fd, k->self_pidfd);
}

static void run_keeper_of_guest(void *ctx)
{
    keeper *k = ctx;

    spawn_ignore_requests();
    begin_keeper(k);
    spawn_child supervisor = start_kept(k, "manta-supervise", run_supervisor);
    tell_keeper(k);
    keep_until_end(&supervisor, -1);
}

_Noreturn void node_keep_guest(const node_config *c, int fd, int tell)
{
    run_keeper_of_guest(&(keeper){.config = c, .fd = fd, .tell = tell});
    _exit(0);
}

/* The keeper may outlive its driver, whose readers must see the end of its output all the
 * same. */
static manta_status start_keeper_of_guest(const node_config *c, int fd, int tell)
{
    keeper k = {.config = c, .fd = fd, .tell = tell};

    return spawn_start(
        &(spawn_options){.run = run_keeper_of_guest,
                         .ctx = &k,
                         .name = "manta-keeper",
                         .kin = SPAWN_DETACHED,
                         .signals = SPAWN_SIGNALS_RESET,
                         .own_session = true,
                         .flush = true,
                         .standard = c->plain_output ? NULL : (int[]){SPAWN_NULL, SPAWN_NULL, SPAWN_NULL}},
        NULL);
}

/* Starts the keeper by a fork, and hears from it. */
static manta_status fork_keeper_of_guest(const node_config *c, int fd, pid_t *pid, int *keeper_pidfd)
{
    int tell[2], fds[SOCKET_MAX_FDS], n_fds = 0;
    char in[64];
    size_t n = 0;

    TRY(socket_pair(tell));
    manta_status st = start_keeper_of_guest(c, fd, tell[1]);
    socket_close_all(&tell[1], 1);
    if (!st) st = socket_recv(tell[0], in, sizeof in, &n, fds, &n_fds, true);
    if (!st) {
        wire w = wire_of(in, n);
        (void)proto_kind_of(&w);
        *pid = (pid_t)wire_u32(&w);
        if (n_fds != 1) st = manta_fail(MANTA_EDIED, "the processes of this program could not be started");
        if (n_fds == 1) *keeper_pidfd = fds[0];
    }
    socket_close_all(&tell[0], 1);
    return st;
}

static manta_status start_keeper_program(const node_config *c, int fd, pid_t *pid, int *keeper_pidfd)
{
    int tell;

    TRY(node_program_start(c, fd, &tell, keeper_pidfd));
    socket_close_all(&tell, 1);
    *pid = 0;
    return MANTA_OK;
}

manta_status node_join(const node_config *c, int fd, pid_t *pid, int *keeper_pidfd)
{
    int pair[2] = {-1, -1};
    manta_status st = socket_pair(pair);

    if (!st)
        st = c->n_nursery > 0 ? start_keeper_program(c, pair[1], pid, keeper_pidfd)
                              : fork_keeper_of_guest(c, pair[1], pid, keeper_pidfd);
    socket_close_all(&pair[1], 1);
    if (!st) {
        buf b = {0};
        node_socket_hello(&b, PROTO_ROLE_DRIVER, c->space, c->prestart);
        st = socket_send(fd, b.at, b.n, &pair[0], 1, true);
        buf_release(&b);
    }
    socket_close_all(&pair[0], 1);
    if (st) socket_close_all(&fd, 1);
    return st;
}
