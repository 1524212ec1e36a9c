/* daemon.c - see daemon.h: start, children, the loop.
 *
 *     loop_run() ──▶ messages and deaths ──▶ daemon_bury() ──▶ daemon_settle() ──▶ PASS ──┐
 *         ▲                                                                              │
 *         └─────────────── at most until the next thing is due ◀─────────────────────────┘
 *
 * One turn of the loop: what has arrived is read (each connection as far as it had come);
 * workers that are one too many are stopped, after one pass over all connections;
 * clients whose end is known are buried, after what they had sent was read; objects that
 * nobody holds are freed after one pass over all connections; programs that are over end.
 * Nothing but this thread touches a node, except the copier of daemon_memory.c, which has a
 * segment's descriptors and nothing else.
 *
 * The daemon ends (d->stop) with its keeper, with the driver of a node of its own, or when
 * it is told to; it kills and waits for every process below it first, and leaves its memory
 * to the system. */
#include "task/daemon.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/descendants.h"
#include "os/proc.h"
#include "os/spawner.h"
#include "os/sys.h"

/* An adopted worker, whose status its peers want to know, the zygote, or an orphan that
 * nobody else waits for. */
static void note_end(void *ctx, pid_t pid, int status)
{
    daemon_worker_reaped(ctx, pid, status);
}

static void on_child(void *ctx, int fd, bool readable, bool writable)
{
    (void)readable;
    (void)writable;
    descendants_reap(fd, note_end, ctx);
}

static void on_keeper(void *ctx, int fd, bool readable, bool writable)
{
    (void)fd;
    (void)readable;
    (void)writable;
    ((node *)ctx)->stop = true;
}

/* Every segment is a descriptor, in memory or on disk, and every worker some
 * more. Workers get the limit that the program had. */
static void allow_files(node *d)
{
    if (getrlimit(RLIMIT_NOFILE, &d->files)) return;
    struct rlimit most = {.rlim_cur = d->files.rlim_max, .rlim_max = d->files.rlim_max};
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

static manta_status node_prepare(node *d, int keeper_pidfd)
{
    int children;

    TRY(descendants_watch(&children));
    TRY(descendants_adopt());
    TRY(proc_pidfd_open(getpid(), &d->self_pidfd));
    TRY(loop_new(&d->loop));
    TRY(loop_watch(d->loop, keeper_pidfd, false, on_keeper, d));
    TRY(loop_watch(d->loop, children, false, on_child, d));
    return daemon_memory_init(d);
}

static _Noreturn void node_serve(node *d)
{
    bool waiting = false, more = false;

    while (!d->stop) {
        int due = daemon_memory_tick(d), look = daemon_limits_tick(d), forks = daemon_forks_tick(d);
        if (due < 0 || (look >= 0 && look < due)) due = look;
        if (due < 0 || (forks >= 0 && forks < due)) due = forks;
        if (d->stop) break;
        if ((waiting || d->is_short) && (due < 0 || due > 2)) due = 2;
        if (loop_run(d->loop, more ? 0 : due)) break;
        if (d->is_short) daemon_send_again(d);
        daemon_end_workers(d);
        waiting = daemon_bury(d);
        more = daemon_settle(d);
        daemon_registry(d, (registry_event){.kind = REGISTRY_PASS});
        waiting = daemon_bury(d) || waiting;
        more = more || d->stops.n > 0 || d->kills.n > 0;
    }
    descendants_end();
    if (d->socket_fd >= 0) {
        close(d->socket_fd);
        node_socket_sweep(d->socket_path);
    }
    _exit(0);
}

static node *node_new(const node_config *config, int keeper_pidfd, pid_t keeper)
{
    node *d = mem_new(sizeof *d);

    d->config = *config;
    d->keeper = keeper;
    d->keeper_pidfd = keeper_pidfd;
    d->socket_fd = -1;
    d->started_ns = clock_now_ns();
    d->in = mem_new(SOCKET_MAX_MESSAGE);
    if (getrandom(&d->number, sizeof d->number, 0) != sizeof d->number)
        d->number = (uint64_t)clock_now_ns() ^ ((uint64_t)getpid() << 40);
    d->number |= 1; /* 0 is no node */
    d->sched = sched_new(config->total, config->prestart > 0 ? config->prestart : 1);
    sched_cap(d->sched, config->max_workers);
    d->registry = registry_new();
    d->refs = refs_new();
    d->gifts = gifts_new();
    d->objects = directory_new();
    allow_files(d);
    return d;
}

/* There is nothing that could fork workers: manta_init() says why. */
static _Noreturn void refuse_driver(node *d, int driver_fd)
{
    buf *b = proto_begin(&d->out, PROTO_REFUSED);

    wire_put_u32(b, d->why_status);
    wire_put_text(b, d->why);
    (void)!socket_send(driver_fd, b->at, b->n, NULL, 0, true);
    node_serve(d);
}

_Noreturn void daemon_main(const node_config *config, int driver_fd, pid_t driver, int driver_pidfd,
                           int keeper_pidfd, pid_t keeper)
{
    node *d = node_new(config, keeper_pidfd, keeper);

    spawn_ignore_requests();
    d->driver = driver;
    if (node_prepare(d, keeper_pidfd)) _exit(1);
    uint32_t job_id = daemon_start_job(d, config->space);
    if (d->stop) refuse_driver(d, driver_fd);
    daemon_add_driver(d, job_id, driver, driver_fd, driver_pidfd);
    if (!d->stop) daemon_prestart(d, job_id, (uint32_t)config->prestart);
    daemon_open_socket(d);
    node_serve(d);
}

_Noreturn void daemon_main_alone(const node_config *config, int tell_fd, int keeper_pidfd, pid_t keeper)
{
    node *d = node_new(config, keeper_pidfd, keeper);
    manta_status st = node_prepare(d, keeper_pidfd);

    if (!st) st = daemon_open_main_socket(d);
    buf *b = proto_begin(&d->out, st ? PROTO_REFUSED : PROTO_HELLO);
    wire_put_u32(b, (uint32_t)st);
    wire_put_u32(b, (uint32_t)getpid());
    wire_put_text(b, st ? manta_error_text() : d->socket_path);
    manta_status said = socket_send(tell_fd, b->at, b->n, NULL, 0, true);
    close(tell_fd);
    if (st || said) _exit(1);
    node_serve(d);
}
