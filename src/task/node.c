/* node.c - see node.h: the keeper and the zygote, which do almost nothing, so
 * that they can be relied on. */
#include "task/node.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/vec.h"
#include "os/file.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/spawn.h"
#include "os/sys.h"
#include "os/thread.h"
#include "task/proto.h"
#include "task/stack.h"

bool node_has_threads;

static VEC(int) users; /* descriptors that were open before the node was */

static void list_fds(void (*fn)(int fd))
{
    file_names names = {0};

    if (file_list("/proc/self/fd", &names)) return;
    for (size_t i = 0; i < names.n; i++) fn((int)strtol(names.at[i], NULL, 10));
    file_names_release(&names);
}

static void remember_fd(int fd)
{
    vec_push(&users, fd);
}

static const int *kept;
static int n_kept;

static void close_other(int fd)
{
    for (size_t i = 0; i < users.n; i++)
        if (users.at[i] == fd) return;
    for (int i = 0; i < n_kept; i++)
        if (kept[i] == fd) return;
    if (fd > 2) close(fd); /* fails for the descriptor of the listing, which is closed by now */
}

void node_close_others(const int *keep, int n)
{
    kept = keep;
    n_kept = n;
    list_fds(close_other);
}

static void poll_until_readable(struct pollfd *p, nfds_t n)
{
    for (;;) {
        int got = os->poll(p, n, -1);
        if (got > 0 || (got < 0 && errno != EINTR)) return;
    }
}

void node_remember_files(void)
{
    node_has_threads = spawn_threads() > 1;
    vec_clear(&users);
    list_fds(remember_fd);
}

/* ---- the keeper ---- */

static void keeper_wait(pid_t child, int other_pidfd)
{
    int pidfd = -1;

    if (proc_pidfd_open(child, &pidfd) == MANTA_OK) {
        node_close_others((int[]){other_pidfd, pidfd}, 2);
        struct pollfd p[2] = {{.fd = pidfd, .events = POLLIN}, {.fd = other_pidfd, .events = POLLIN}};
        poll_until_readable(p, other_pidfd >= 0 ? 2 : 1);
    }
    spawn_end_all();
}

/* What the daemon would have removed had it not been killed. */
static void sweep_node_socket(const char *name)
{
    char folder[NODE_SOCKET_PATH], path[NODE_SOCKET_PATH];

    if (node_socket_folder(folder, false)) return;
    snprintf(path, sizeof path, "%.80s/%s", folder, name);
    node_socket_sweep(path);
}

/* Waits until the driver or the daemon has ended, then ends all. */
static _Noreturn void keeper_main(const node_config *c, int driver_fd, pid_t driver, int driver_pidfd)
{
    pid_t self = getpid(), daemon;
    int own = -1;
    char name[24];

    prctl(PR_SET_NAME, "manta-keeper");
    setsid();
    spawn_reset_signals();
    spawn_ignore_requests(); /* the driver's end is the node's */
    if (spawn_adopt_orphans() || proc_pidfd_open(self, &own) || spawn_fork(&daemon)) _exit(1);
    if (daemon == 0) daemon_main(c, driver_fd, driver, driver_pidfd, own, self);
    keeper_wait(daemon, driver_pidfd);
    snprintf(name, sizeof name, "%d.sock", (int)daemon);
    sweep_node_socket(name);
    _exit(0);
}

typedef struct birth {
    const node_config *config;
    int pair[2], self;
    pid_t driver, pid;
    manta_status st;
    manta_error e;
} birth;

/* Forks the keeper; in the child it does not return. */
static void give_birth(void *arg)
{
    birth *b = arg;

    /* The quiet fork knows nothing of locks: where other threads may hold one,
     * it has to be the one that does (malloc's and stdio's are then open in the
     * child), though the program's own wait() sees that child. */
    b->st = spawn_threads() > 1 ? spawn_fork(&b->pid) : spawn_fork_quiet(&b->pid);
    if (!b->st && b->pid == 0) {
        close(b->pair[0]);
        keeper_main(b->config, b->pair[1], b->driver, b->self);
    }
    if (b->st) manta_error_get(&b->e);
}

/* A program with several threads: the fork is made by a new one, whose stack and
 * thread-local memory no library has used yet. What such libraries know of other
 * threads (the team of a parallel region) would be waited for in vain. */
static manta_status give_birth_apart(birth *b)
{
    thread_id id;

    TRY(thread_start(&id, "manta-birth", give_birth, b));
    thread_join(&id);
    return b->st ? manta_error_raise(&b->e) : MANTA_OK;
}

manta_status node_start(const node_config *c, pid_t *keeper, int *fd, int *keeper_pidfd)
{
    manta_status st;
    birth b = {.config = c, .pair = {-1, -1}, .self = -1, .driver = getpid()};
    int *pair = b.pair;
    pid_t pid;

    node_remember_files();
    if ((st = socket_pair(pair))) return st;
    if ((st = proc_pidfd_open(b.driver, &b.self))) goto out;
    fflush(NULL); /* what is buffered now must not be written by every child as well */
    if (spawn_threads() > 1) {
        st = give_birth_apart(&b);
    } else {
        give_birth(&b);
        st = b.st;
    }
    if (st) goto out;
    pid = b.pid;
    if ((st = proc_pidfd_open(pid, keeper_pidfd))) {
        os->kill(pid, SIGKILL);
        spawn_wait(pid);
        goto out;
    }
    *keeper = pid;
    *fd = pair[0];
    pair[0] = -1;
out:
    socket_close_all((int[]){pair[0], pair[1], b.self}, 3);
    return st;
}

/* ---- processes that are nobody's children ---- */

typedef struct birth_away {
    void (*fn)(const node_config *c, int fd, int tell); /* does not return */
    const node_config *config;
    int fd, tell;
    manta_status st;
    manta_error e;
} birth_away;

/* Forks twice, so that the grandchild is not ours to wait for. */
static void give_birth_away(void *arg)
{
    birth_away *b = arg;
    pid_t pid, child;

    b->st = spawn_threads() > 1 ? spawn_fork(&pid) : spawn_fork_quiet(&pid);
    if (!b->st && pid == 0) {
        if (spawn_fork(&child)) _exit(1);
        if (child == 0) b->fn(b->config, b->fd, b->tell);
        _exit(0);
    }
    if (!b->st && spawn_wait(pid) != 0)
        b->st = manta_fail(MANTA_EBUSY, "a process that was started ended at once");
    if (b->st) manta_error_get(&b->e);
}

static manta_status fork_away(void (*fn)(const node_config *c, int fd, int tell), const node_config *c,
                              int fd, int tell)
{
    birth_away b = {.fn = fn, .config = c, .fd = fd, .tell = tell};
    thread_id id;

    fflush(NULL);
    if (spawn_threads() > 1) { /* see give_birth_apart() */
        TRY(thread_start(&id, "manta-birth", give_birth_away, &b));
        thread_join(&id);
        return b.st ? manta_error_raise(&b.e) : MANTA_OK;
    }
    give_birth_away(&b);
    return b.st;
}

/* The keeper of a node without a driver. */
static _Noreturn void alone_main(const node_config *c, int log, int tell)
{
    pid_t self = getpid(), daemon;
    int own = -1;

    prctl(PR_SET_NAME, "manta-keeper");
    setsid();
    spawn_reset_signals();
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0 || chdir("/")) _exit(1);
    node_close_others((int[]){tell}, 1);
    if (spawn_adopt_orphans() || proc_pidfd_open(self, &own) || spawn_fork(&daemon)) _exit(1);
    if (daemon == 0) daemon_main_alone(c, tell, own, self);
    keeper_wait(daemon, -1);
    sweep_node_socket(NODE_SOCKET_MAIN);
    _exit(0);
}

manta_status node_start_alone(const node_config *c, int log, pid_t *daemon, char path[NODE_SOCKET_PATH])
{
    int pair[2] = {-1, -1}, fds[SOCKET_MAX_FDS], n_fds = 0;
    char in[1024], text[NODE_SOCKET_PATH + 512];
    size_t n = 0;

    vec_clear(&users); /* it keeps none of this program's files */
    TRY(socket_pair(pair));
    manta_status st = fork_away(alone_main, c, log, pair[1]);
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

/* The keeper of a program that joined. */
static _Noreturn void guest_main(const node_config *c, int fd, int tell)
{
    pid_t self = getpid(), supervisor;
    int own = -1;
    buf b = {0};

    prctl(PR_SET_NAME, "manta-keeper");
    setsid();
    spawn_reset_signals();
    spawn_ignore_requests();
    /* It may outlive its driver, whose readers must see the end of its output all
     * the same. */
    int null = c->plain_output ? -1 : open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int i = 0; i < 3 && null >= 0; i++) dup2(null, i);
    if (spawn_adopt_orphans() || proc_pidfd_open(self, &own) || spawn_fork(&supervisor)) _exit(1);
    if (supervisor == 0) {
        node_close_others((int[]){fd, own}, 2);
        supervisor_main(c, fd, own);
    }
    proto_begin(&b, PROTO_HELLO);
    wire_put_u32(&b, (uint32_t)self);
    if (socket_send(tell, b.at, b.n, &own, 1, true)) _exit(1);
    keeper_wait(supervisor, -1);
    _exit(0);
}

manta_status node_join(const node_config *c, int fd, pid_t *keeper, int *keeper_pidfd)
{
    int pair[2] = {-1, -1}, tell[2] = {-1, -1}, fds[SOCKET_MAX_FDS], n_fds = 0;
    char in[64];
    size_t n = 0;
    manta_status st = socket_pair(pair);

    if (!st) st = socket_pair(tell);
    if (!st) st = fork_away(guest_main, c, pair[1], tell[1]);
    socket_close_all((int[]){pair[1], tell[1]}, 2);
    if (!st) st = socket_recv(tell[0], in, sizeof in, &n, fds, &n_fds, true);
    if (!st) {
        wire w = wire_of(in, n);
        (void)proto_kind_of(&w);
        *keeper = (pid_t)wire_u32(&w);
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

typedef struct child {
    pid_t pid;
    int pidfd;
} child;

typedef VEC(child) children;

static manta_status make_pipe(int out[2])
{
    if (os->pipe2(out, O_CLOEXEC) == 0) return MANTA_OK;
    return manta_fail(MANTA_EIO, "a pipe cannot be made: %s", strerror(errno));
}

/* Forks one worker and tells the daemon: pid 0 when it could not be done. */
static void zygote_fork(int fd, children *all, buf *b, bool plain_output, const struct rlimit *files)
{
    int pair[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1}, pidfd = -1;
    pid_t pid = 0;
    manta_status st = socket_pair(pair);

    if (!st && !plain_output) st = make_pipe(out);
    if (!st && !plain_output) st = make_pipe(err);
    if (!st) st = spawn_fork(&pid);
    if (!st && pid == 0) {
        for (size_t i = 0; i < all->n; i++) close(all->at[i].pidfd);
        socket_close_all((int[]){fd, pair[0], out[0], err[0]}, 4);
        proc_restore_files(RLIM_INFINITY, files);
        if (!plain_output && (dup2(out[1], 1) < 0 || dup2(err[1], 2) < 0)) _exit(1);
        worker_main(pair[1], (int[]){out[1], err[1]});
    }
    if (!st && (st = proc_pidfd_open(pid, &pidfd))) {
        os->kill(pid, SIGKILL);
        spawn_wait(pid);
    }
    if (st)
        log_error("a worker could not be forked", LOG_STR("why", manta_error_text()));
    else
        vec_push(all, ((child){.pid = pid, .pidfd = pidfd}));
    proto_begin(b, PROTO_FORKED);
    wire_put_u32(b, st ? 0 : (uint32_t)pid);
    wire_put_u32(b, 0);
    wire_put_text(b, st ? manta_error_text() : "");
    if (socket_send(fd, b->at, b->n, (int[]){pair[0], pidfd, out[0], err[0]},
                    st             ? 0
                    : plain_output ? 2
                                   : 4,
                    true))
        _exit(0);
    socket_close_all((int[]){pair[0], pair[1], out[0], out[1], err[0], err[1]}, 6);
}

static void zygote_reap(int fd, children *all, size_t i, buf *b)
{
    int status = spawn_wait(all->at[i].pid);

    proto_begin(b, PROTO_REAPED);
    wire_put_u32(b, (uint32_t)all->at[i].pid);
    wire_put_u32(b, (uint32_t)status);
    close(all->at[i].pidfd);
    vec_remove(all, i);
    if (socket_send(fd, b->at, b->n, NULL, 0, true)) _exit(0);
}

_Noreturn void zygote_main(int fd, int parent_pidfd, bool plain_output)
{
    children all = {0};
    buf b = {0};
    char message[256];
    VEC(struct pollfd) polls = {0};
    struct rlimit files;

    prctl(PR_SET_NAME, "manta-zygote");
    proc_raise_files(RLIM_INFINITY,
                     &files); /* a descriptor for each worker; workers have the program's limit */
    spawn_ignore_requests(); /* workers take them again */
    stack_prepare();
    /* Nobody may compete with the user's program for its standard input. */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) == 0 && null > 2) close(null);
    for (;;) {
        size_t n;
        int fds[SOCKET_MAX_FDS], n_fds;
        vec_clear(&polls);
        vec_push(&polls, ((struct pollfd){.fd = fd, .events = POLLIN}));
        vec_push(&polls, ((struct pollfd){.fd = parent_pidfd, .events = POLLIN}));
        for (size_t i = 0; i < all.n; i++)
            vec_push(&polls, ((struct pollfd){.fd = all.at[i].pidfd, .events = POLLIN}));
        poll_until_readable(polls.at, (nfds_t)polls.n);
        if (polls.at[1].revents) _exit(0);
        for (size_t i = all.n; i-- > 0;)
            if (polls.at[i + 2].revents) zygote_reap(fd, &all, i, &b);
        if (!polls.at[0].revents) continue;
        if (socket_recv(fd, message, sizeof message, &n, fds, &n_fds, true)) _exit(0);
        wire w = wire_of(message, n);
        if (proto_kind_of(&w) == PROTO_FORK) zygote_fork(fd, &all, &b, plain_output, &files);
    }
}
