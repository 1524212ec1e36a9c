/* node.c - see node.h: the keeper and the zygote, which do almost nothing, so that they can
 * be relied on.
 *
 *   node_start()         keeper ─── daemon          SPAWN_QUIET: the program's wait() does not see it
 *   node_start_alone()   keeper ─── daemon          SPAWN_DETACHED: it outlives the program
 *   node_join()          keeper ─── supervisor      SPAWN_DETACHED: detached actors do
 *   node_start_zygote()  zygote ─── worker, ...     below a daemon or a supervisor
 *
 * A keeper adopts orphans, starts the one process that it is there for, and sleeps until that
 * one, or the driver whose node it is, has ended; then it ends whatever is below it. It holds
 * two pidfds and nothing else, so nothing can go wrong in it.
 *
 * The zygote is the fork server: a process with one thread, which has every function of the
 * program and none of its state. It starts a worker whenever the daemon asks and tells it of
 * the worker's end. It keeps its workers' pidfds and nothing else, and when it dies its
 * workers are adopted by the daemon or supervisor, which starts another.
 *
 * Who watches whom: the keeper its child by the pidfd that spawn_start() gave, the child the
 * keeper by `self_pidfd`, the zygote its parent by `parent_pidfd`. No process here waits for
 * another in any other way. All starting, waiting and ending is os/spawner.h's and
 * os/descendants.h's. */
#include "task/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "os/descendants.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/spawner.h"
#include "os/sys.h"
#include "task/proto.h"
#include "task/stack.h"

bool node_has_threads;

static void poll_until_readable(struct pollfd *p, nfds_t n)
{
    for (;;) {
        int got = os->poll(p, n, -1);
        if (got > 0 || (got < 0 && errno != EINTR)) return;
    }
}

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

/* Starts the process that the keeper is there for. */
static spawn_child start_kept(keeper *k, const char *name, void (*run)(void *ctx))
{
    spawn_options o = {.run = run, .ctx = k, .name = name};
    spawn_child kept = {0};

    k->pid = getpid();
    if (descendants_adopt() || proc_pidfd_open(getpid(), &k->self_pidfd) || spawn_start(&o, &kept)) _exit(1);
    return kept;
}

/* Waits until the kept process or the driver has ended, then ends all. */
static void keep_until_end(const spawn_child *kept, int driver_pidfd)
{
    struct pollfd p[2] = {{.fd = spawn_fd(kept), .events = POLLIN}, {.fd = driver_pidfd, .events = POLLIN}};

    spawn_close_files((int[]){driver_pidfd, spawn_fd(kept)}, 2);
    poll_until_readable(p, driver_pidfd >= 0 ? 2 : 1);
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

static void run_daemon(void *ctx)
{
    const keeper *k = ctx;

    daemon_main(k->config, k->fd, k->driver, k->driver_pidfd, k->self_pidfd, k->pid);
}

static void run_keeper(void *ctx)
{
    keeper *k = ctx;
    char name[24];

    spawn_ignore_requests(); /* the driver's end is the node's */
    socket_close_all(&k->driver_fd, 1);
    spawn_child daemon = start_kept(k, "manta-daemon", run_daemon);
    snprintf(name, sizeof name, "%d.sock", (int)daemon.pid);
    keep_until_end(&daemon, k->driver_pidfd);
    sweep_node_socket(name);
}

manta_status node_start(const node_config *c, pid_t *pid, int *fd, int *keeper_pidfd)
{
    int pair[2] = {-1, -1};
    keeper k = {.config = c, .driver = getpid(), .driver_pidfd = -1};
    spawn_options o = {.run = run_keeper,
                       .ctx = &k,
                       .name = "manta-keeper",
                       .kin = SPAWN_QUIET,
                       .signals = SPAWN_SIGNALS_RESET,
                       .own_session = true,
                       .flush = true};
    spawn_child child;
    manta_status st;

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
    buf b = {0};

    spawn_ignore_requests();
    spawn_child supervisor = start_kept(k, "manta-supervise", run_supervisor);
    proto_begin(&b, PROTO_HELLO);
    wire_put_u32(&b, (uint32_t)getpid());
    if (socket_send(k->tell, b.at, b.n, &k->self_pidfd, 1, true)) _exit(1);
    keep_until_end(&supervisor, -1);
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

manta_status node_join(const node_config *c, int fd, pid_t *pid, int *keeper_pidfd)
{
    int pair[2] = {-1, -1}, tell[2] = {-1, -1}, fds[SOCKET_MAX_FDS], n_fds = 0;
    char in[64];
    size_t n = 0;
    manta_status st = socket_pair(pair);

    if (!st) st = socket_pair(tell);
    if (!st) st = start_keeper_of_guest(c, pair[1], tell[1]);
    socket_close_all((int[]){pair[1], tell[1]}, 2);
    if (!st) st = socket_recv(tell[0], in, sizeof in, &n, fds, &n_fds, true);
    if (!st) {
        wire w = wire_of(in, n);
        (void)proto_kind_of(&w);
        *pid = (pid_t)wire_u32(&w);
        if (n_fds != 1) st = manta_fail(MANTA_EDIED, "the processes of this program could not be started");
        if (n_fds == 1) *keeper_pidfd = fds[0];
    }
    if (!st) {
        buf b = {0};
        node_socket_hello(&b, PROTO_ROLE_DRIVER, c->space, c->prestart);
        st = socket_send(fd, b.at, b.n, &pair[0], 1, true);
        buf_release(&b);
    }
    socket_close_all((int[]){pair[0], tell[0]}, 2);
    if (st) socket_close_all(&fd, 1);
    return st;
}

/* ---- the zygote ---- */

typedef VEC(spawn_child) children;

typedef struct zygote {
    int fd, parent_pidfd;
    bool plain_output;
    struct rlimit files; /* the limit that the program has, and workers too */
    children all;
    buf out;
} zygote;

/* A worker that is to be: both ends of all that it and the daemon share. */
typedef struct zygote_worker {
    zygote *z;
    int pair[2], out[2], err[2];
} zygote_worker;

static manta_status make_pipe(int out[2])
{
    if (os->pipe2(out, O_CLOEXEC) == 0) return MANTA_OK;
    return manta_fail(MANTA_EIO, "a pipe cannot be made: %s", strerror(errno));
}

static void run_worker(void *ctx)
{
    const zygote_worker *w = ctx;

    for (size_t i = 0; i < w->z->all.n; i++) close(w->z->all.at[i].pidfd);
    socket_close_all((int[]){w->z->fd, w->pair[0], w->out[0], w->err[0]}, 4);
    proc_restore_files(RLIM_INFINITY, &w->z->files);
    worker_main(w->pair[1], (int[]){w->out[1], w->err[1]});
}

static manta_status start_worker(zygote_worker *w, spawn_child *out)
{
    int standard[3] = {SPAWN_PARENTS, SPAWN_PARENTS, SPAWN_PARENTS};

    TRY(socket_pair(w->pair));
    if (!w->z->plain_output) {
        TRY(make_pipe(w->out));
        TRY(make_pipe(w->err));
        standard[1] = w->out[1];
        standard[2] = w->err[1];
    }
    return spawn_start(&(spawn_options){.run = run_worker,
                                        .ctx = w,
                                        .name = "manta-worker",
                                        .signals = SPAWN_SIGNALS_RESET,
                                        .standard = standard},
                       out);
}

/* Forks one worker and tells the daemon: pid 0 when it could not be done. */
static void zygote_fork(zygote *z)
{
    zygote_worker w = {.z = z, .pair = {-1, -1}, .out = {-1, -1}, .err = {-1, -1}};
    spawn_child c = {0};
    manta_status st = start_worker(&w, &c);
    int n_fds = st ? 0 : z->plain_output ? 2 : 4;

    if (st)
        log_error("a worker could not be forked", LOG_STR("why", manta_error_text()));
    else
        vec_push(&z->all, c);
    proto_begin(&z->out, PROTO_FORKED);
    wire_put_u32(&z->out, (uint32_t)c.pid);
    wire_put_u32(&z->out, 0);
    wire_put_text(&z->out, st ? manta_error_text() : "");
    if (socket_send(z->fd, z->out.at, z->out.n, (int[]){w.pair[0], c.pidfd, w.out[0], w.err[0]}, n_fds, true))
        _exit(0);
    socket_close_all((int[]){w.pair[0], w.pair[1], w.out[0], w.out[1], w.err[0], w.err[1]}, 6);
}

static void zygote_reap(zygote *z, size_t i)
{
    pid_t pid = z->all.at[i].pid;
    int status = spawn_wait(&z->all.at[i]);

    proto_begin(&z->out, PROTO_REAPED);
    wire_put_u32(&z->out, (uint32_t)pid);
    wire_put_u32(&z->out, (uint32_t)status);
    vec_remove(&z->all, i);
    if (socket_send(z->fd, z->out.at, z->out.n, NULL, 0, true)) _exit(0);
}

static void run_zygote(void *ctx)
{
    zygote *z = ctx;
    char message[256];
    VEC(struct pollfd) polls = {0};

    if (z->files.rlim_max)
        (void)setrlimit(RLIMIT_NOFILE, &z->files); /* the daemon's own is not the program's */
    proc_raise_files(RLIM_INFINITY, &z->files); /* a descriptor for each worker */
    spawn_ignore_requests(); /* workers take them again */
    stack_prepare();
    for (;;) {
        size_t n;
        int fds[SOCKET_MAX_FDS], n_fds;
        vec_clear(&polls);
        vec_push(&polls, ((struct pollfd){.fd = z->fd, .events = POLLIN}));
        vec_push(&polls, ((struct pollfd){.fd = z->parent_pidfd, .events = POLLIN}));
        for (size_t i = 0; i < z->all.n; i++)
            vec_push(&polls, ((struct pollfd){.fd = z->all.at[i].pidfd, .events = POLLIN}));
        poll_until_readable(polls.at, (nfds_t)polls.n);
        if (polls.at[1].revents) _exit(0);
        for (size_t i = z->all.n; i-- > 0;)
            if (polls.at[i + 2].revents) zygote_reap(z, i);
        if (!polls.at[0].revents) continue;
        if (socket_recv(z->fd, message, sizeof message, &n, fds, &n_fds, true)) _exit(0);
        wire w = wire_of(message, n);
        if (proto_kind_of(&w) == PROTO_FORK) zygote_fork(z);
    }
}

/* Nobody may compete with the user's program for its standard input. */
manta_status node_start_zygote(int parent_pidfd, bool plain_output, const struct rlimit *files, int *fd,
                               spawn_child *out)
{
    zygote z = {.parent_pidfd = parent_pidfd, .plain_output = plain_output};
    int pair[2];
    manta_status st;

    if (files) z.files = *files;
    TRY(socket_pair(pair));
    z.fd = pair[1];
    st = spawn_start(&(spawn_options){.run = run_zygote,
                                      .ctx = &z,
                                      .name = "manta-zygote",
                                      .signals = SPAWN_SIGNALS_RESET,
                                      .dies_with_parent = true,
                                      .standard = (int[]){SPAWN_NULL, SPAWN_PARENTS, SPAWN_PARENTS},
                                      .closes_files = true,
                                      .keep = (int[]){pair[1], parent_pidfd},
                                      .n_keep = 2},
                     out);
    socket_close_all(&pair[1], 1);
    if (st) socket_close_all(&pair[0], 1);
    if (!st) *fd = pair[0];
    return st;
}
