/* job_supervisor.c - the daemon's deputy for a program that joined a node: keeps its
 * zygote, adopts its orphans, and ends all of it when the daemon says so, which
 * it does by closing the connection or by dying. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/vec.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/spawn.h"
#include "os/sys.h"
#include "task/node.h"
#include "task/proto.h"

typedef struct supervisor {
    const node_config *config;
    int fd, keeper_pidfd, self_pidfd;
    pid_t zygote;
    buf out;
    VEC(uint32_t) spared; /* pids that the daemon knows */
} supervisor;

static _Noreturn void supervisor_end(void)
{
    spawn_end_all();
    _exit(0);
}

static void tell_daemon(supervisor *s, const int *fds, int n_fds)
{
    if (socket_send(s->fd, s->out.at, s->out.n, fds, n_fds, true)) supervisor_end();
}

static void start_zygote(supervisor *s)
{
    int pair[2], pidfd;

    if (socket_pair(pair) || spawn_fork(&s->zygote)) supervisor_end();
    if (s->zygote == 0) {
        prctl(PR_SET_CHILD_SUBREAPER, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        spawn_reset_signals();
        node_close_others((int[]){pair[1], s->self_pidfd}, 2);
        zygote_main(pair[1], s->self_pidfd, s->config->plain_output);
    }
    if (proc_pidfd_open(s->zygote, &pidfd)) supervisor_end();
    proto_begin(&s->out, PROTO_ZYGOTE);
    wire_put_u32(&s->out, (uint32_t)s->zygote);
    wire_put_u32(&s->out, (uint32_t)getpid());
    tell_daemon(s, (int[]){pair[0], pidfd}, 2);
    socket_close_all((int[]){pair[0], pair[1], pidfd}, 3);
}

/* Children have ended: the zygote, which is replaced, workers that it left to
 * us, whose status their callers want to know, or what workers had started. */
static void reap_children(supervisor *s, int signal_fd)
{
    struct signalfd_siginfo info;
    pid_t pid;
    int status;
    bool zygote_died = false;

    (void)!read(signal_fd, &info, sizeof info);
    while ((pid = os->waitpid(-1, &status, __WALL | WNOHANG)) > 0) {
        if (pid == s->zygote) {
            zygote_died = true;
            continue;
        }
        proto_begin(&s->out, PROTO_REAPED);
        wire_put_u32(&s->out, (uint32_t)pid);
        wire_put_u32(&s->out, (uint32_t)status);
        tell_daemon(s, NULL, 0);
    }
    if (zygote_died) start_zygote(s);
}

static void kill_stranger(void *ctx, pid_t child)
{
    const supervisor *s = ctx;

    if (child == s->zygote) return;
    for (size_t i = 0; i < s->spared.n; i++)
        if ((pid_t)s->spared.at[i] == child) return;
    os->kill(child, SIGKILL);
}

static void listen_to_daemon(supervisor *s)
{
    static char in[SOCKET_MAX_MESSAGE];
    int fds[SOCKET_MAX_FDS], n_fds;
    size_t n;

    if (socket_recv(s->fd, in, sizeof in, &n, fds, &n_fds, true)) supervisor_end();
    socket_close_all(fds, n_fds);
    wire w = wire_of(in, n);
    if (proto_kind_of(&w) != PROTO_SWEEP) return;
    uint64_t count = wire_u64(&w);
    vec_clear(&s->spared);
    for (uint64_t i = 0; i < count && !w.broken; i++) vec_push(&s->spared, wire_u32(&w));
    if (!wire_end(&w, "sweep")) spawn_children(kill_stranger, s);
}

_Noreturn void supervisor_main(const node_config *c, int fd, int keeper_pidfd)
{
    supervisor s = {.config = c, .fd = fd, .keeper_pidfd = keeper_pidfd, .self_pidfd = -1};
    sigset_t child;

    prctl(PR_SET_NAME, "manta-supervise");
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    sigprocmask(SIG_BLOCK, &child, NULL);
    int signal_fd = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signal_fd < 0 || spawn_adopt_orphans() || proc_pidfd_open(getpid(), &s.self_pidfd)) supervisor_end();
    start_zygote(&s);
    for (;;) {
        struct pollfd p[3] = {{.fd = fd, .events = POLLIN},
                              {.fd = keeper_pidfd, .events = POLLIN},
                              {.fd = signal_fd, .events = POLLIN}};
        if (socket_poll(p, 3, -1) < 0 || p[1].revents) supervisor_end();
        if (p[2].revents) reap_children(&s, signal_fd);
        if (p[0].revents) listen_to_daemon(&s);
    }
}
