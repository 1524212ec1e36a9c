/* zygote.c - see node.h: the zygote, which does almost nothing, so that it can be relied on.
 *
 * The zygote is the fork server: a process with one thread, which has every function of the
 * program and none of its state. It starts a worker whenever the daemon asks and tells it of
 * the worker's end. It keeps its workers' pidfds and nothing else, and when it dies its
 * workers are adopted by the daemon or supervisor, which starts another. It watches that
 * parent by `parent_pidfd`, and ends with it. A nursery (nursery.c) does the same from zygote_main() on,
 * in a program of its own. */
#include "task/node.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/log.h"
#include "base/vec.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/spawner.h"
#include "os/sys.h"
#include "task/hooks.h"
#include "task/nursery.h"
#include "task/proto.h"
#include "task/stack.h"

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
    const char *environment; /* NULL: the plain one */
    int pair[2], out[2], err[2];
} zygote_worker;

static manta_status make_pipe(int out[2])
{
    if (os->pipe2(out, O_CLOEXEC) == 0) return MANTA_OK;
    return manta_fail(MANTA_EIO, "a pipe cannot be made: %s", strerror(errno));
}

/* The program's hook says that it cannot be a worker: those who wait for one hear why. */
static _Noreturn void refuse_work(int fd, manta_status st)
{
    buf b = {0};

    proto_begin(&b, PROTO_NOT_READY);
    wire_put_u32(&b, (uint32_t)st);
    wire_put_text(&b, manta_error_text());
    (void)!socket_send(fd, b.at, b.n, NULL, 0, true);
    _exit(1);
}

static void run_worker(void *ctx)
{
    const zygote_worker *w = ctx;

    for (size_t i = 0; i < w->z->all.n; i++) close(w->z->all.at[i].pidfd);
    socket_close_all((int[]){w->z->fd, w->z->parent_pidfd, w->pair[0], w->out[0], w->err[0]}, 5);
    proc_restore_files(RLIM_INFINITY, &w->z->files);
    manta_status st = hooks_in_worker(w->environment);
    if (st) refuse_work(w->pair[1], st);
    worker_main(w->pair[1], (int[]){w->out[1], w->err[1]});
}

static manta_status fork_worker(zygote_worker *w, const int standard[3], spawn_child *out)
{
    hooks_before_fork();
    manta_status st = spawn_start(&(spawn_options){.run = run_worker,
                                                   .ctx = w,
                                                   .name = "manta-worker",
                                                   .signals = SPAWN_SIGNALS_RESET,
                                                   .standard = standard},
                                  out);
    hooks_after_fork();
    return st;
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
    return fork_worker(w, standard, out);
}

/* Forks one worker and tells the daemon: pid 0 when it could not be done. */
static void zygote_fork(zygote *z, const char *environment)
{
    zygote_worker w = {
        .z = z, .environment = environment, .pair = {-1, -1}, .out = {-1, -1}, .err = {-1, -1}};
    spawn_child c = {0};
    manta_status st = start_worker(&w, &c);
    int n_fds = st ? 0 : z->plain_output ? 2 : 4;

    if (st)
        log_error("a worker could not be forked", LOG_STR("why", manta_error_text()));
    else
        vec_push(&z->all, c);
    proto_begin(&z->out, PROTO_FORKED);
    wire_put_u32(&z->out, (uint32_t)c.pid);
    wire_put_u32(&z->out, hooks.after_fork_child != NULL);
    wire_put_text(&z->out, st ? manta_error_text() : "");
    if (socket_send(z->fd, z->out.at, z->out.n, (int[]){w.pair[0], c.pidfd, w.out[0], w.err[0]}, n_fds, true))
        _exit(0);
    socket_close_all((int[]){w.pair[0], w.pair[1], w.out[0], w.out[1], w.err[0], w.err[1]}, 6);
}

/* The text of the message has its end, or it is none of ours. */
static void zygote_asked(zygote *z, wire *w)
{
    size_t n;
    const char *environment = wire_bytes(w, &n);

    if (!environment || wire_end(w, "fork") || n == 0 || environment[n - 1]) _exit(0);
    zygote_fork(z, environment[0] ? environment : NULL);
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

static _Noreturn void zygote_serve(zygote *z)
{
    static char message[SOCKET_MAX_MESSAGE];
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
        (void)socket_poll(polls.at, (int)polls.n, -1);
        if (polls.at[1].revents) _exit(0);
        for (size_t i = z->all.n; i-- > 0;)
            if (polls.at[i + 2].revents) zygote_reap(z, i);
        if (!polls.at[0].revents) continue;
        if (socket_recv(z->fd, message, sizeof message, &n, fds, &n_fds, true)) _exit(0);
        wire w = wire_of(message, n);
        if (proto_kind_of(&w) == PROTO_FORK) zygote_asked(z, &w);
    }
}

_Noreturn void zygote_main(int fd, int parent_pidfd, bool plain_output, const struct rlimit *files)
{
    zygote z = {.fd = fd, .parent_pidfd = parent_pidfd, .plain_output = plain_output};

    if (files) z.files = *files;
    zygote_serve(&z);
}

static void run_zygote(void *ctx)
{
    zygote_serve(ctx);
}

/* Nobody may compete with the user's program for its standard input. */
manta_status node_start_zygote(int parent_pidfd, const node_config *c, const struct rlimit *files, int *fd,
                               spawn_child *out)
{
    zygote z = {.parent_pidfd = parent_pidfd, .plain_output = c->plain_output};
    int pair[2];
    manta_status st;

    if (c->n_nursery > 0) return nursery_start(parent_pidfd, c, files, fd, out);
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
