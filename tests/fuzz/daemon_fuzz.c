/* daemon_fuzz.c - what clients say to the daemon: every message, in any order,
 * by three clients that may die, and by a guest at the node socket, who comes again when
 * it was sent away. An input is a row of letters: whose (one byte; 200 to 239:
 * the guest's; from 240 on: a client dies, or the daemon makes its pass), how
 * long (two bytes), and the message. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "fuzz.h"
#include "manta/log.h"
#include "os/sys.h"
#include "task/bare_node.h"

enum { CLIENTS = 3 };

/* A node with a driver and workers that are no processes: connections lead nowhere. */
static node *node_of_nobody(void)
{
    node *d = bare_node_new();

    daemon_registry(d, (registry_event){.kind = REGISTRY_JOB_DRIVER, .job = BARE_JOB, .client = 1});
    for (int i = 0; i < CLIENTS; i++) {
        client *c = mem_new(sizeof *c);
        *c = (client){.id = ++d->next_client,
                      .job = BARE_JOB,
                      .pid = 0x7ffffff0 + i, /* no process has it */
                      .fd = -1,
                      .pidfd = -1,
                      .bell_fd = -1,
                      .trace_fd = -1,
                      .out_fds = {-1, -1},
                      .is_worker = i > 0,
                      .status = -1};
        *map_u64_put(&d->clients, c->id) = c;
        if (i > 0) daemon_act(d, (sched_event){.kind = SCHED_WORKER_UP, .worker = c->id, .job = BARE_JOB});
    }
    return d;
}

/* The daemon never ends this way: it leaves everything to the system. */
static void node_end(node *d)
{
    for (size_t i = 0; i < directory_count(d->objects); i++) {
        object *o = *directory_data(d->objects, directory_at(d->objects, i));
        if (!o) continue;
        mem_free((void *)(uintptr_t)o->v.at);
        failure_unref(o->failure);
        mem_free(o);
    }
    for (size_t i = 0; i < d->segments.n; i++) {
        socket_close_all((int[]){d->segments.at[i].value->fd, d->segments.at[i].value->file}, 2);
        mem_free(d->segments.at[i].value);
    }
    for (size_t i = 0; i < d->jobs.n; i++) {
        map_release(&d->jobs.at[i].value->codes);
        map_release(&d->jobs.at[i].value->environments);
        daemon_close_forkers(d, d->jobs.at[i].value);
        mem_free(d->jobs.at[i].value);
    }
    for (size_t i = 0; i < d->pasts.n; i++) socket_close_all(&d->pasts.at[i].trace_fd, 1);
    map_u64_release(&d->segments);
    map_u64_release(&d->jobs);
    map_u64_release(&d->clients);
    vec_release(&d->later);
    vec_release(&d->wants);
    vec_release(&d->stops);
    vec_release(&d->kills);
    vec_release(&d->pasts);
    vec_release(&d->guests);
    buf_release(&d->out);
    mem_free(d->in);
    sched_free(d->sched);
    registry_free(d->registry);
    refs_free(d->refs);
    gifts_free(d->gifts);
    directory_free(d->objects);
    daemon_memory_end(d);
    loop_free(d->loop);
    mem_free(d);
}

static void die(node *d, client *c)
{
    c->dying = true;
    c->status = 9;
    c->died_ns = 0;
    (void)daemon_bury(d);
}

/* A daemon ends children that it does not know; here they are the fuzzer's own,
 * such as the program that finds names for addresses. */
static int kill_nobody(pid_t pid, int signal)
{
    (void)pid;
    (void)signal;
    return 0;
}

/* The guest's end of its connection; -1: it is not here. */
static int guest_fd = -1;

static void guest_leaves(node *d)
{
    if (guest_fd >= 0) close(guest_fd);
    guest_fd = -1;
    if (loop_run(d->loop, 0)) abort();
}

static void guest_says(node *d, const unsigned char *message, size_t n)
{
    static char answer[65536];
    int pair[2];

    if (guest_fd < 0) {
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair)) abort();
        guest_fd = pair[0];
        daemon_guest(d, pair[1], getpid());
    }
    if (n > 0 && send(guest_fd, message, n, MSG_NOSIGNAL) < 0) guest_leaves(d);
    if (loop_run(d->loop, 0)) abort();
    for (ssize_t got = 1; guest_fd >= 0 && got > 0;) {
        got = recv(guest_fd, answer, sizeof answer, 0);
        if (got == 0) guest_leaves(d);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static os_sys harmless;
    int64_t live = mem_live();

    harmless = os_real;
    harmless.kill = kill_nobody;
    os_use(&harmless);
    manta_log_set_level(MANTA_LOG_LEVEL_OFF);
    node *d = node_of_nobody();
    _Alignas(16) static unsigned char message[65536];
    while (size > 0) {
        unsigned who = data[0];
        data++;
        size--;
        client *c = daemon_client(d, who % CLIENTS + 1);
        if (who >= 250) {
            daemon_end_workers(d);
            for (int i = 0; i < 4 && daemon_settle(d); i++) {}
            (void)daemon_memory_tick(d);
            continue;
        }
        if (who >= 240) {
            if (c) die(d, c);
            continue;
        }
        if (size < 2) break;
        size_t n = data[0] | (size_t)data[1] << 8;
        data += 2;
        size -= 2;
        if (n > size) n = size;
        memcpy(message, data, n);
        data += n;
        size -= n;
        if (who >= 200) {
            guest_says(d, message, n);
            continue;
        }
        if (!c) continue;
        wire w = wire_of(message, n);
        daemon_message(d, c, &w);
    }
    for (uint32_t i = 1; i <= CLIENTS; i++)
        if (daemon_client(d, i)) die(d, daemon_client(d, i));
    for (int i = 0; i < 100 && daemon_settle(d); i++) {}
    guest_leaves(d);
    node_end(d);
    fuzz_balance(live);
    return 0;
}
