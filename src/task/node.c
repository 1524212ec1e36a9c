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

static VEC(int) users; /* descriptors that were open before the node was */

static void list_fds(void (*fn)(int fd))
{
    file_names names = {0};
    if (file_list("/proc/self/fd", &names)) return;
    for (size_t i = 0; i < names.n; i++) fn((int)strtol(names.at[i], NULL, 10));
    file_names_release(&names);
}

static void remember(int fd)
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

/* The keeper: waits until the driver or the daemon has ended, then ends all. */
static _Noreturn void keeper_main(const node_config *c, int driver_fd, pid_t driver, int driver_pidfd)
{
    pid_t self = getpid(), daemon;
    int own = -1, daemon_pidfd = -1;
    prctl(PR_SET_NAME, "manta-keeper");
    setsid();
    spawn_reset_signals();
    if (spawn_adopt_orphans() || proc_pidfd_open(self, &own) || spawn_fork(&daemon)) _exit(1);
    if (daemon == 0) daemon_main(c, driver_fd, driver, driver_pidfd, own, self);
    if (proc_pidfd_open(daemon, &daemon_pidfd) == MANTA_OK) {
        node_close_others((int[]){driver_pidfd, daemon_pidfd}, 2);
        struct pollfd p[2] = {{.fd = driver_pidfd, .events = POLLIN}, {.fd = daemon_pidfd, .events = POLLIN}};
        poll_until_readable(p, 2);
    }
    spawn_end_all();
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
    vec_clear(&users);
    list_fds(remember);
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

/* ---- the zygote ---- */

typedef struct child {
    pid_t pid;
    int pidfd;
} child;

typedef VEC(child) children;

/* Forks one worker and tells the daemon: pid 0 when it could not be done. */
static void zygote_fork(int fd, children *all, buf *b)
{
    int pair[2] = {-1, -1}, pidfd = -1;
    pid_t pid = 0;
    manta_status st = socket_pair(pair);
    if (!st) st = spawn_fork(&pid);
    if (!st && pid == 0) {
        for (size_t i = 0; i < all->n; i++) close(all->at[i].pidfd);
        close(fd);
        close(pair[0]);
        worker_main(pair[1]);
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
    if (socket_send(fd, b->at, b->n, (int[]){pair[0], pidfd}, st ? 0 : 2, true)) _exit(0);
    socket_close_all(pair, 2);
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

_Noreturn void zygote_main(int fd, int daemon_pidfd)
{
    children all = {0};
    buf b = {0};
    char message[256];
    VEC(struct pollfd) polls = {0};
    prctl(PR_SET_NAME, "manta-zygote");
    /* Nobody may compete with the user's program for its standard input. */
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0 && dup2(null, 0) == 0 && null > 2) close(null);
    for (;;) {
        size_t n;
        int fds[SOCKET_MAX_FDS], n_fds;
        vec_clear(&polls);
        vec_push(&polls, ((struct pollfd){.fd = fd, .events = POLLIN}));
        vec_push(&polls, ((struct pollfd){.fd = daemon_pidfd, .events = POLLIN}));
        for (size_t i = 0; i < all.n; i++)
            vec_push(&polls, ((struct pollfd){.fd = all.at[i].pidfd, .events = POLLIN}));
        poll_until_readable(polls.at, (nfds_t)polls.n);
        if (polls.at[1].revents) _exit(0);
        for (size_t i = all.n; i-- > 0;)
            if (polls.at[i + 2].revents) zygote_reap(fd, &all, i, &b);
        if (!polls.at[0].revents) continue;
        if (socket_recv(fd, message, sizeof message, &n, fds, &n_fds, true)) _exit(0);
        wire w = wire_of(message, n);
        if (proto_kind_of(&w) == PROTO_FORK) zygote_fork(fd, &all, &b);
    }
}
