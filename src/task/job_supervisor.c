/* job_supervisor.c - the daemon's deputy for a program that joined a node: keeps its
 * zygote, adopts its orphans, and ends all of it when the daemon says so, which
 * it does by closing the connection or by dying.
 *
 *     daemon ◀── ZYGOTE, REAPED, NOT_READY, ENDS ── supervisor ──▶ zygote ──▶ workers
 *            ─── WARM, SWEEP, the end ────────────▶            ──▶ warm nursery ──▶ workers
 *
 * One loop waits for three things:
 *
 *     the daemon        WARM: start a nursery of that command beside the zygote. SWEEP: of the children
 *                       that we have adopted all end but those that are named. Its end is ours
 *     the keeper        its end is ours too: then the daemon cannot be far
 *     a child's end     it is told with its status; a zygote is replaced before the next wait
 *
 * What is below this process never outlives it: orphans of workers are ours (descendants_adopt()), and
 * supervisor_end() ends all of them before it goes. A zygote that cannot be started is the end, with
 * the reason; a warm nursery is only a saving of time, and the program goes on without it. */
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/vec.h"
#include "os/descendants.h"
#include "os/proc.h"
#include "os/socket.h"
#include "os/spawner.h"
#include "os/sys.h"
#include "task/node.h"
#include "task/nursery.h"
#include "task/proto.h"

typedef struct supervisor {
    const node_config *config;
    int fd, keeper_pidfd, self_pidfd;
    pid_t zygote; /* 0: none, one is to be started */
    pid_t warm; /* a warm nursery, which the daemon asked for; 0: none */
    buf out;
    VEC(uint32_t) spared; /* pids that the daemon knows */
} supervisor;

static _Noreturn void supervisor_end(void)
{
    descendants_end();
    _exit(0);
}

static void tell_daemon(supervisor *s, const int *fds, int n_fds)
{
    if (socket_send(s->fd, s->out.at, s->out.n, fds, n_fds, true)) supervisor_end();
}

/* Starts the zygote, or the nursery of the configuration, and hands it to the daemon. */
static manta_status start_forker(supervisor *s, const node_config *c, bool warm, pid_t *pid)
{
    spawn_child child;
    char name[NURSERY_NAME];
    int fd;

    TRY(node_start_zygote(s->self_pidfd, c, NULL, &fd, &child));
    *pid = child.pid;
    nursery_name(c, name);
    proto_begin(&s->out, PROTO_ZYGOTE);
    wire_put_u32(&s->out, (uint32_t)child.pid);
    wire_put_u32(&s->out, (uint32_t)getpid());
    wire_put_u32(&s->out, c->n_nursery > 0 ? (uint32_t)c->nursery_ms : 0);
    wire_put_u32(&s->out, warm);
    wire_put_text(&s->out, name);
    tell_daemon(s, (int[]){fd, child.pidfd}, 2);
    socket_close_all((int[]){fd, child.pidfd}, 2);
    return MANTA_OK;
}

static void start_zygote(supervisor *s)
{
    if (!start_forker(s, s->config, false, &s->zygote)) return;
    proto_begin(&s->out, PROTO_ENDS);
    wire_put_text(&s->out, manta_error_text());
    tell_daemon(s, NULL, 0);
    supervisor_end();
}

/* The program goes on without it when it cannot be started. */
static void start_warm(supervisor *s, wire *w)
{
    node_config c = *s->config;
    manta_status st;

    c.nursery = wire_bytes(w, &c.n_nursery);
    if (!c.nursery || wire_end(w, "command") || c.n_nursery == 0 || c.nursery[c.n_nursery - 1]) return;
    if (!(st = start_forker(s, &c, true, &s->warm))) return;
    proto_begin(&s->out, PROTO_NOT_READY);
    wire_put_u32(&s->out, (uint32_t)st);
    wire_put_text(&s->out, manta_error_text());
    tell_daemon(s, NULL, 0);
}

/* A child has ended: the zygote or nursery, which is replaced, a worker that it left to us, whose
 * status its callers want to know, or what a worker had started. */
static void tell_end(void *ctx, pid_t pid, int status)
{
    supervisor *s = ctx;

    if (pid == s->zygote) s->zygote = 0;
    if (pid == s->warm) s->warm = 0;
    proto_begin(&s->out, PROTO_REAPED);
    wire_put_u32(&s->out, (uint32_t)pid);
    wire_put_u32(&s->out, (uint32_t)status);
    tell_daemon(s, NULL, 0);
}

static void kill_stranger(void *ctx, pid_t child)
{
    const supervisor *s = ctx;

    if (child == s->zygote || child == s->warm) return;
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
    proto_kind kind = proto_kind_of(&w);
    if (kind == PROTO_WARM) start_warm(s, &w);
    if (kind != PROTO_SWEEP) return;
    uint64_t count = wire_u64(&w);
    vec_clear(&s->spared);
    for (uint64_t i = 0; i < count && !w.broken; i++) vec_push(&s->spared, wire_u32(&w));
    if (!wire_end(&w, "sweep")) descendants_each(kill_stranger, s);
}

_Noreturn void supervisor_main(const node_config *c, int fd, int keeper_pidfd)
{
    supervisor s = {.config = c, .fd = fd, .keeper_pidfd = keeper_pidfd, .self_pidfd = -1};
    int children;

    if (descendants_watch(&children) || descendants_adopt() || proc_pidfd_open(getpid(), &s.self_pidfd))
        supervisor_end();
    for (;;) {
        if (!s.zygote) start_zygote(&s);
        struct pollfd p[3] = {{.fd = fd, .events = POLLIN},
                              {.fd = keeper_pidfd, .events = POLLIN},
                              {.fd = children, .events = POLLIN}};
        if (socket_poll(p, 3, -1) < 0 || p[1].revents) supervisor_end();
        if (p[2].revents) descendants_reap(children, tell_end, &s);
        if (p[0].revents) listen_to_daemon(&s);
    }
}
