/* daemon_forks.c - who forks the workers of a program, seen from the daemon.
 *
 *                 forker_take()            PROTO_NURSERY
 *     (none) ─────────────────▶ STARTING ───────────────▶ READY ──── its connection ends ──▶ (none), the
 *                                  │                        ▲                                next is started
 *                                  │ a zygote, which is a fork of the program, is READY at once
 *                                  │
 *                                  ├─ its connection ends ──▶ LOST ─ its wait status is known ─▶ the job ends
 *                                  └─ it says nothing until it is due, or something else ──────▶ the job ends
 *
 * A nursery that never was ready would not be the next time: the job ends with a sentence
 * for its driver. One that was ready before is tried again, as often as workers that cannot
 * start (REGISTRY_MOST_STILLBORN in a row).
 *
 * Forks are asked for in the order of `asked` and answered in that order. What a forker that died
 * has not answered its successor is asked.
 *
 * A program has a first forker, and may have a warm nursery beside it, from which workers of the plain
 * environment are forked while it is READY. Its end is nobody's: the first is asked in its place, and it
 * is started again if it was ever ready. */
#include "task/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <manta/version.h>

#include "base/clock.h"
#include "base/log.h"
#include "os/proc.h"
#include "os/spawner.h"
#include "os/sys.h"

#define LOST_WAIT_NS  2000000000 /* how long to wait for the reason of an end */
#define MOST_RESTARTS 3 /* of a warm nursery */

static void on_forker(void *ctx, int fd, bool readable, bool writable);

/* ---- asking ---- */

/* Asks for what is open, as far as it takes messages now. */
static void send_forks(node *d, const job *j, forker *f)
{
    while (f->sent < f->asked.n && f->fd >= 0) {
        const char *environment = daemon_environment(j, f->asked.at[f->sent]);
        proto_begin(&d->out, PROTO_FORK);
        wire_put_bytes(&d->out, environment ? environment : "", environment ? strlen(environment) + 1 : 1);
        manta_status st = socket_send(f->fd, d->out.at, d->out.n, NULL, 0, false);
        if (st == MANTA_ENOMEM) {
            d->is_short = true;
            return;
        }
        if (st == MANTA_EBUSY && !loop_watch(d->loop, f->fd, true, on_forker, d)) return;
        if (st && st != MANTA_EDIED) {
            log_error("a zygote cannot be asked: it is replaced", LOG_STR("why", manta_error_text()));
            proc_signal(f->pidfd, SIGKILL);
        }
        if (st) return; /* its successor is asked for what is open */
        f->sent++;
    }
}

void daemon_send_forks(node *d)
{
    for (size_t i = 0; i < d->jobs.n; i++)
        for (int k = 0; k < FORKERS; k++)
            send_forks(d, d->jobs.at[i].value, &d->jobs.at[i].value->forkers[k]);
}

void daemon_ask_fork(node *d, uint32_t id, uint32_t environment)
{
    job *j = daemon_job(d, id);

    if (!j) return;
    bool warm = environment == 0 && j->forkers[FORKER_WARM].state == FORKER_READY;
    forker *f = &j->forkers[warm ? FORKER_WARM : FORKER_FIRST];
    vec_push(&f->asked, environment);
    send_forks(d, j, f);
}

void daemon_prestart(node *d, uint32_t id, uint32_t n)
{
    daemon_act(d, (sched_event){.kind = SCHED_STARTING, .job = id, .n = n});
    for (uint32_t i = 0; i < n; i++) daemon_ask_fork(d, id, 0);
}

/* ---- its end ---- */

/* Kills it, should it live, and forgets it. */
static void forker_forget(node *d, forker *f)
{
    if (f->fd >= 0) loop_forget(d->loop, f->fd);
    if (f->pidfd >= 0) proc_signal(f->pidfd, SIGKILL);
    socket_close_all((int[]){f->fd, f->pidfd}, 2);
    f->fd = f->pidfd = -1;
    f->pid = 0;
    f->sent = 0;
    f->state = FORKER_NONE;
}

void daemon_forget_forker(node *d, job *j, forker_kind kind)
{
    forker_forget(d, &j->forkers[kind]);
    daemon_sweep_strangers(d, j->id); /* a worker it had forked and not told of */
}

void daemon_close_forkers(node *d, job *j)
{
    for (int k = 0; k < FORKERS; k++) {
        forker *f = &j->forkers[k];
        if (f->fd >= 0) loop_forget(d->loop, f->fd);
        socket_close_all((int[]){f->fd, f->pidfd}, 2);
        vec_release(&f->asked);
    }
    buf_release(&j->warm);
}

bool daemon_is_forker(const node *d, pid_t pid)
{
    for (size_t i = 0; i < d->jobs.n; i++)
        for (int k = 0; k < FORKERS; k++)
            if (d->jobs.at[i].value->forkers[k].pid == pid) return true;
    return false;
}

/* The warm nursery is gone: the first forks what it was to fork. */
static void warm_is_gone(node *d, job *j)
{
    forker *warm = &j->forkers[FORKER_WARM], *first = &j->forkers[FORKER_FIRST];

    daemon_forget_forker(d, j, FORKER_WARM);
    for (size_t i = 0; i < warm->asked.n; i++) vec_push(&first->asked, warm->asked.at[i]);
    vec_clear(&warm->asked);
    send_forks(d, j, first);
}

void daemon_warm_failed(node *d, job *j)
{
    log_warn("the warm nursery does not work: workers are forked without it",
             LOG_STR("why", manta_error_text()));
    warm_is_gone(d, j);
    buf_release(&j->warm);
}

/* A nursery cannot be had: this thread's last error says why. */
static void forker_failed(node *d, job *j, forker_kind kind)
{
    if (kind == FORKER_WARM) {
        daemon_warm_failed(d, j);
        return;
    }
    forker_forget(d, &j->forkers[kind]);
    daemon_end_job(d, j);
}

static void fail_with_status(node *d, job *j, forker_kind kind)
{
    char text[64];
    const forker *f = &j->forkers[kind];

    (void)!manta_fail(MANTA_EDIED, "the nursery \"%s\" (process %d) ended before it was ready: %s", f->name,
                      (int)f->pid, spawn_status_text(f->status, text, sizeof text));
    forker_failed(d, j, kind);
}

void daemon_forker_reaped(node *d, pid_t pid, int status)
{
    for (size_t i = 0; i < d->jobs.n && pid > 0; i++) {
        job *j = d->jobs.at[i].value;
        for (int k = 0; k < FORKERS; k++) {
            if (j->forkers[k].pid != pid) continue;
            j->forkers[k].status = status;
            if (j->forkers[k].state == FORKER_LOST) fail_with_status(d, j, (forker_kind)k);
            return;
        }
    }
}

static void start_warm_again(node *d, job *j);

static void forker_closed(node *d, job *j, forker_kind kind)
{
    forker *f = &j->forkers[kind];

    if (f->state == FORKER_STARTING && (!f->was_ready || kind == FORKER_WARM)) {
        loop_forget(d->loop, f->fd);
        socket_close_all(&f->fd, 1);
        f->fd = -1;
        f->state = FORKER_LOST;
        f->due_ns = clock_now_ns() + LOST_WAIT_NS;
        if (f->status != FORKER_RUNS) fail_with_status(d, j, kind);
        return;
    }
    if (kind == FORKER_WARM) {
        warm_is_gone(d, j);
        if (!d->stop) start_warm_again(d, j);
        return;
    }
    if (f->asked.n > 0) daemon_note_stillborn(d, j->id); /* the next may fare no better, either */
    daemon_forget_forker(d, j, kind);
    if (!d->stop && j->supervisor_fd < 0) daemon_start_forker(d, j);
}

/* One that has said nothing until it is due, or closed its connection and lives on. */
static void forker_overdue(node *d, job *j, forker_kind kind)
{
    forker *f = &j->forkers[kind];

    if (f->was_ready && kind == FORKER_FIRST) {
        log_warn("a nursery that was started again is not ready: the next is started",
                 LOG_INT("pid", f->pid));
        proc_signal(f->pidfd, SIGKILL);
        f->due_ns = INT64_MAX;
        return;
    }
    if (f->state == FORKER_LOST)
        (void)!manta_fail(MANTA_EDIED,
                          "the nursery \"%s\" (process %d) closed its connection before it was ready",
                          f->name, (int)f->pid);
    else
        (void)!manta_fail(MANTA_ETIMEDOUT,
                          "the nursery \"%s\" (process %d) was not ready after %lld ms: it has to call "
                          "manta_nursery_run()",
                          f->name, (int)f->pid, (long long)f->limit_ms);
    forker_failed(d, j, kind);
}

static bool is_due(const forker *f)
{
    return f->state == FORKER_STARTING || f->state == FORKER_LOST;
}

int daemon_forks_tick(node *d)
{
    int64_t now = clock_now_ns(), next = INT64_MAX;

    for (size_t i = 0; i < d->jobs.n * FORKERS; i++) {
        job *j = d->jobs.at[i / FORKERS].value;
        forker_kind kind = (forker_kind)(i % FORKERS);
        const forker *f = &j->forkers[kind];
        if (is_due(f) && now >= f->due_ns) forker_overdue(d, j, kind);
        if (is_due(f) && f->due_ns < next) next = f->due_ns;
    }
    return next == INT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

/* ---- what it says ---- */

static void worker_forked(node *d, job *j, forker *f, wire *w, const int *fds, int n_fds)
{
    char why[256];
    pid_t pid = (pid_t)wire_u32(w);

    bool is_awaited = wire_u32(w) != 0;
    wire_text(w, why, sizeof why);
    if (wire_end(w, "forked")) pid = 0;
    uint32_t environment = f->asked.n > 0 ? f->asked.at[0] : 0;
    if (f->asked.n > 0) vec_remove(&f->asked, 0);
    if (f->sent > 0) f->sent--;
    if (pid > 0 && (n_fds == 2 || n_fds == 4)) {
        daemon_add_worker(d, j->id, environment, pid, is_awaited, fds, n_fds);
        return;
    }
    if (pid > 0) { /* nobody else knows of it; its parent reaps it */
        (void)proc_fail_files("a worker cannot be started");
        snprintf(why, sizeof why, "%s", manta_error_text());
        os->kill(pid, SIGKILL);
    }
    socket_close_all(fds, n_fds);
    daemon_start_failed(d, j->id, environment, START_AGAIN, MANTA_ENOSPC, why);
}

/* The first words of a nursery. False: they are others, and the job ends. */
static bool forker_greets(node *d, job *j, forker_kind which, proto_kind kind, wire *w)
{
    forker *f = &j->forkers[which];
    char text[256] = "";
    uint32_t magic = wire_u32(w), protocol = wire_u32(w);

    wire_text(w, text, sizeof text);
    if (kind == PROTO_NURSERY && !wire_end(w, "greeting") && magic == PROTO_MAGIC &&
        protocol == PROTO_VERSION && !strcmp(text, MANTA_VERSION_TEXT)) {
        f->state = FORKER_READY;
        f->was_ready = true;
        if (which == FORKER_WARM) daemon_act(d, (sched_event){.kind = SCHED_RENEW, .job = j->id});
        return true;
    }
    if (kind == PROTO_REFUSED && !w->broken)
        (void)!manta_fail(MANTA_EUNSUPPORTED, "the nursery \"%s\" (process %d): %s", f->name, (int)f->pid,
                          text);
    else
        (void)!manta_fail(
            MANTA_ECORRUPT,
            "the nursery \"%s\" (process %d) said something that is no greeting of manta %s: it "
            "has to call manta_nursery_run()",
            f->name, (int)f->pid, MANTA_VERSION_TEXT);
    forker_failed(d, j, which);
    return false;
}

/* One message. False: its connection is no more. */
static bool forker_says(node *d, job *j, forker_kind which, wire *w, const int *fds, int n_fds)
{
    forker *f = &j->forkers[which];
    const int fd = f->fd;
    proto_kind kind = proto_kind_of(w);

    if (f->state == FORKER_STARTING) {
        socket_close_all(fds, n_fds);
        return forker_greets(d, j, which, kind, w);
    }
    if (kind == PROTO_FORKED) {
        worker_forked(d, j, f, w, fds, n_fds);
        return f->fd == fd;
    }
    socket_close_all(fds, n_fds);
    pid_t pid = (pid_t)wire_u32(w);
    if (kind == PROTO_REAPED) daemon_worker_reaped(d, pid, (int)wire_u32(w));
    return true;
}

static void on_forker(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    job *j = NULL;
    forker_kind which = FORKER_FIRST;
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;

    for (size_t i = 0; i < d->jobs.n * FORKERS && !j; i++) {
        which = (forker_kind)(i % FORKERS);
        if (d->jobs.at[i / FORKERS].value->forkers[which].fd == fd) j = d->jobs.at[i / FORKERS].value;
    }
    if (!j) return;
    if (writable) {
        if (loop_watch(d->loop, fd, false, on_forker, d)) log_error("a zygote cannot be watched");
        send_forks(d, j, &j->forkers[which]);
    }
    while (readable) {
        manta_status st = socket_recv(fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st) break; /* also when it says what cannot be: it is replaced */
        wire w = wire_of(d->in, n);
        if (!forker_says(d, j, which, &w, fds, n_fds)) return;
    }
    if (readable) forker_closed(d, j, which);
}

/* ---- its beginning ---- */

void daemon_take_forker(node *d, job *j, forker_kind kind, const spawn_child *c, int fd, int64_t limit_ms,
                        const char *name)
{
    forker *f = &j->forkers[kind];

    f->pid = c->pid;
    f->fd = fd;
    f->pidfd = c->pidfd;
    f->sent = 0;
    f->status = FORKER_RUNS;
    f->state = limit_ms > 0 ? FORKER_STARTING : FORKER_READY;
    f->was_ready = f->was_ready || f->state == FORKER_READY;
    f->limit_ms = limit_ms;
    f->due_ns = clock_now_ns() + limit_ms * 1000000;
    snprintf(f->name, sizeof f->name, "%s", name);
    if (loop_watch(d->loop, fd, false, on_forker, d)) {
        forker_failed(d, j, kind);
        return;
    }
    send_forks(d, j, f);
}

/* Starts one below this process; on_child() of daemon.c reaps it, as all that this process adopts. */
static manta_status start_below(node *d, job *j, forker_kind kind, const node_config *config)
{
    spawn_child c;
    char name[NURSERY_NAME];
    int fd;

    TRY(node_start_zygote(d->self_pidfd, config, &d->files, &fd, &c));
    nursery_name(config, name);
    daemon_take_forker(d, j, kind, &c, fd, config->n_nursery > 0 ? config->nursery_ms : 0, name);
    return MANTA_OK;
}

void daemon_start_forker(node *d, job *j)
{
    if (start_below(d, j, FORKER_FIRST, &d->config)) daemon_end_job(d, j);
}

/* ---- a warm one ---- */

/* The supervisor of a program that joined starts it, and tells us. */
static manta_status ask_supervisor(node *d, const job *j)
{
    proto_begin(&d->out, PROTO_WARM);
    wire_put_bytes(&d->out, j->warm.at, j->warm.n);
    manta_status st = socket_send(j->supervisor_fd, d->out.at, d->out.n, NULL, 0, false);
    if (st == MANTA_EBUSY) return manta_fail(st, "the supervisor of the program does not listen");
    return st;
}

static manta_status try_warm(node *d, job *j)
{
    node_config config = d->config;

    if (j->supervisor_fd >= 0) return ask_supervisor(d, j);
    config.nursery = j->warm.at;
    config.n_nursery = j->warm.n;
    return start_below(d, j, FORKER_WARM, &config);
}

static void start_warm_again(node *d, job *j)
{
    forker *f = &j->forkers[FORKER_WARM];
    manta_status st =
        ++f->restarts > MOST_RESTARTS
            ? manta_fail(MANTA_EDIED, "the nursery \"%s\" has ended %d times", f->name, f->restarts)
            : try_warm(d, j);

    if (st) daemon_warm_failed(d, j);
}

void daemon_start_warm(node *d, client *c, wire *w)
{
    uint64_t request = wire_u64(w);
    size_t n;
    const char *command = wire_bytes(w, &n);
    job *j = daemon_job(d, c->job);
    manta_status st;

    if (!command || wire_end(w, "command") || !j) return;
    const forker *first = &j->forkers[FORKER_FIRST];
    if (c->is_worker || first->limit_ms == 0 || n == 0 || n > NURSERY_COMMAND || command[n - 1])
        st = manta_fail(MANTA_EINVAL, "a warm nursery is a driver's whose workers come from a nursery");
    else if (j->warm.n > 0)
        st = manta_fail(MANTA_EEXIST, "the program has a warm nursery: \"%s\"", j->forkers[FORKER_WARM].name);
    else {
        buf_add(&j->warm, command, n);
        j->forkers[FORKER_WARM].restarts = 0;
        st = try_warm(d, j);
        if (st) buf_release(&j->warm);
    }
    daemon_answer_found(d, c, request, st, 0);
}
