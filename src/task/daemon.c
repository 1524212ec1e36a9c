/* daemon.c - see daemon.h: start, the zygote and other children, the loop. */
#include "task/daemon.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/proc.h"
#include "os/spawn.h"
#include "os/sys.h"

/* ---- the zygote ---- */

static void start_zygote(node *d);

void daemon_ask_fork(node *d)
{
    proto_begin(&d->out, PROTO_FORK);
    d->forks++;
    /* A zygote that is dead is replaced, and asked again for what is open. */
    if (d->zygote_fd >= 0 && socket_send(d->zygote_fd, d->out.at, d->out.n, NULL, 0, true)) return;
}

static void on_zygote(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;
    (void)readable;
    (void)writable;
    for (;;) {
        manta_status st = socket_recv(fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st) break;
        wire w = wire_of(d->in, n);
        proto_kind kind = proto_kind_of(&w);
        pid_t pid = (pid_t)wire_u32(&w);
        int status = kind == PROTO_REAPED ? (int)wire_u32(&w) : 0;
        if (kind == PROTO_FORKED && n_fds == 2) {
            d->forks--;
            daemon_add_client(d, pid, fds[0], fds[1], true);
            continue;
        }
        socket_close_all(fds, n_fds);
        if (kind == PROTO_FORKED) {
            d->forks--;
            daemon_note_stillborn(d);
            daemon_act(d, (sched_event){.kind = SCHED_START_FAILED});
            continue;
        }
        for (size_t i = 0; i < d->clients.n; i++)
            if (d->clients.at[i].value->pid == pid) d->clients.at[i].value->status = status;
    }
    spawn_signal(d->zygote_pidfd, SIGKILL);
    loop_forget(d->loop, fd);
    socket_close_all((int[]){d->zygote_fd, d->zygote_pidfd}, 2);
    d->zygote_fd = d->zygote_pidfd = -1;
    d->zygote = 0;
    spawn_children(daemon_kill_stranger, d); /* a worker it had forked and not told of */
    if (!d->stop) start_zygote(d);
}

/* Every segment is a descriptor, in memory or on disk. Workers get the limit
 * that the program had. */
static struct rlimit user_files;

static void allow_files(void)
{
    if (getrlimit(RLIMIT_NOFILE, &user_files)) return;
    struct rlimit most = {.rlim_cur = user_files.rlim_max, .rlim_max = user_files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

static void start_zygote(node *d)
{
    int pair[2];
    pid_t pid;
    if (socket_pair(pair) || spawn_fork(&pid)) {
        log_error("no zygote", LOG_STR("why", manta_error_text()));
        d->stop = true;
        return;
    }
    if (pid == 0) {
        /* Not a fresh program: give up what is the daemon's alone. */
        prctl(PR_SET_CHILD_SUBREAPER, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (user_files.rlim_max) (void)setrlimit(RLIMIT_NOFILE, &user_files);
        node_close_others((int[]){pair[1], d->self_pidfd}, 2);
        zygote_main(pair[1], d->self_pidfd);
    }
    close(pair[1]);
    d->zygote = pid;
    d->zygote_fd = pair[0];
    int asked = d->forks;
    d->forks = 0;
    if (proc_pidfd_open(pid, &d->zygote_pidfd) || loop_watch(d->loop, d->zygote_fd, false, on_zygote, d))
        d->stop = true;
    for (int i = 0; i < asked; i++) daemon_ask_fork(d);
}

/* A child of ours has ended: an adopted worker, whose status its peers want to
 * know, the zygote, or an orphan that nobody else waits for. */
static void on_child(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    struct signalfd_siginfo info;
    pid_t pid;
    int status;
    (void)readable;
    (void)writable;
    (void)!read(fd, &info, sizeof info);
    while ((pid = os->waitpid(-1, &status, __WALL | WNOHANG)) > 0)
        for (size_t i = 0; i < d->clients.n; i++)
            if (d->clients.at[i].value->pid == pid) d->clients.at[i].value->status = status;
}

static int watch_children(void)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    return signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
}

static void on_keeper(void *ctx, int fd, bool readable, bool writable)
{
    (void)fd;
    (void)readable;
    (void)writable;
    ((node *)ctx)->stop = true;
}

_Noreturn void daemon_main(const node_config *config, int driver_fd, pid_t driver, int driver_pidfd,
                           int keeper_pidfd, pid_t keeper)
{
    node *d = mem_new(sizeof *d);
    d->config = *config;
    d->driver = driver;
    d->keeper = keeper;
    d->keeper_pidfd = keeper_pidfd;
    d->in = mem_new(SOCKET_MAX_MESSAGE);
    if (getrandom(&d->number, sizeof d->number, 0) != sizeof d->number)
        d->number = (uint64_t)clock_now_ns() ^ ((uint64_t)getpid() << 40);
    d->number |= 1; /* 0 is no node */
    prctl(PR_SET_NAME, "manta-daemon");
    spawn_reset_signals();
    allow_files();
    int children = watch_children();
    d->sched = sched_new(config->total, config->prestart > 0 ? config->prestart : 1);
    d->refs = refs_new();
    d->objects = directory_new();
    if (spawn_adopt_orphans() || proc_pidfd_open(getpid(), &d->self_pidfd) || loop_new(&d->loop) ||
        loop_watch(d->loop, keeper_pidfd, false, on_keeper, d) ||
        loop_watch(d->loop, children, false, on_child, d) || daemon_memory_init(d))
        _exit(1);
    start_zygote(d);
    daemon_add_client(d, driver, driver_fd, driver_pidfd, false);
    for (int i = 0; i < config->prestart && !d->stop; i++) daemon_ask_fork(d);
    bool waiting = false, more = false;
    while (!d->stop) {
        int due = daemon_memory_tick(d), look = daemon_limits_tick(d);
        if (due < 0 || (look >= 0 && look < due)) due = look;
        if (waiting && (due < 0 || due > 2)) due = 2;
        if (loop_run(d->loop, more ? 0 : due)) break;
        waiting = daemon_bury(d);
        more = daemon_settle(d);
    }
    spawn_end_all();
    _exit(0);
}
