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
 * has not answered its successor is asked. */
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

#define LOST_WAIT_NS 2000000000 /* how long to wait for the reason of an end */

static void on_forker(void *ctx, int fd, bool readable, bool writable);

/* ---- asking ---- */

/* Asks for what is open, as far as it takes messages now. */
static void send_forks(node *d, job *j)
{
    forker *f = &j->forker;

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
    for (size_t i = 0; i < d->jobs.n; i++) send_forks(d, d->jobs.at[i].value);
}

void daemon_ask_fork(node *d, uint32_t id, uint32_t environment)
{
    job *j = daemon_job(d, id);

    if (!j) return;
    vec_push(&j->forker.asked, environment);
    send_forks(d, j);
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

void daemon_forget_forker(node *d, job *j)
{
    forker_forget(d, &j->forker);
    daemon_sweep_strangers(d, j->id); /* a worker it had forked and not told of */
}

/* A nursery cannot be had: this thread's last error says why. */
static void forker_failed(node *d, job *j)
{
    forker_forget(d, &j->forker);
    daemon_end_job(d, j);
}

static void fail_with_status(node *d, job *j)
{
    char text[64];
    const forker *f = &j->forker;

    (void)!manta_fail(MANTA_EDIED, "the nursery \"%s\" (process %d) ended before it was ready: %s", f->name,
                      (int)f->pid, spawn_status_text(f->status, text, sizeof text));
    forker_failed(d, j);
}

void daemon_forker_reaped(node *d, pid_t pid, int status)
{
    for (size_t i = 0; i < d->jobs.n; i++) {
        job *j = d->jobs.at[i].value;
        if (j->forker.pid != pid || pid == 0) continue;
        j->forker.status = status;
        if (j->forker.state == FORKER_LOST) {
            fail_with_status(d, j);
            return;
        }
    }
}

static void forker_closed(node *d, job *j)
{
    forker *f = &j->forker;

    if (f->state == FORKER_STARTING && !f->was_ready) {
        loop_forget(d->loop, f->fd);
        socket_close_all(&f->fd, 1);
        f->fd = -1;
        f->state = FORKER_LOST;
        f->due_ns = clock_now_ns() + LOST_WAIT_NS;
        if (f->status != FORKER_RUNS) fail_with_status(d, j);
        return;
    }
    if (f->asked.n > 0) daemon_note_stillborn(d, j->id); /* the next may fare no better, either */
    daemon_forget_forker(d, j);
    if (!d->stop && j->supervisor_fd < 0) daemon_start_forker(d, j);
}

/* One that has said nothing until it is due, or closed its connection and lives on. */
static void forker_overdue(node *d, job *j)
{
    const forker *f = &j->forker;

    if (f->was_ready) {
        log_warn("a nursery that was started again is not ready: the next is started",
                 LOG_INT("pid", f->pid));
        proc_signal(f->pidfd, SIGKILL);
        j->forker.due_ns = INT64_MAX;
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
    forker_failed(d, j);
}

int daemon_forks_tick(node *d)
{
    int64_t now = clock_now_ns(), next = INT64_MAX;

    for (size_t i = 0; i < d->jobs.n; i++) {
        job *j = d->jobs.at[i].value;
        if (j->forker.state != FORKER_STARTING && j->forker.state != FORKER_LOST) continue;
        if (now >= j->forker.due_ns) forker_overdue(d, j);
        if (j->forker.state == FORKER_NONE || j->forker.state == FORKER_READY) continue;
        if (j->forker.due_ns < next) next = j->forker.due_ns;
    }
    return next == INT64_MAX ? -1 : (int)((next - now) / 1000000) + 1;
}

/* ---- what it says ---- */

static void worker_forked(node *d, job *j, wire *w, const int *fds, int n_fds)
{
    char why[256];
    pid_t pid = (pid_t)wire_u32(w);

    bool is_awaited = wire_u32(w) != 0;
    wire_text(w, why, sizeof why);
    if (wire_end(w, "forked")) pid = 0;
    uint32_t environment = j->forker.asked.n > 0 ? j->forker.asked.at[0] : 0;
    if (j->forker.asked.n > 0) vec_remove(&j->forker.asked, 0);
    if (j->forker.sent > 0) j->forker.sent--;
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
static bool forker_greets(node *d, job *j, proto_kind kind, wire *w)
{
    forker *f = &j->forker;
    char text[256] = "";
    uint32_t magic = wire_u32(w), protocol = wire_u32(w);

    wire_text(w, text, sizeof text);
    if (kind == PROTO_NURSERY && !wire_end(w, "greeting") && magic == PROTO_MAGIC &&
        protocol == PROTO_VERSION && !strcmp(text, MANTA_VERSION_TEXT)) {
        f->state = FORKER_READY;
        f->was_ready = true;
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
    forker_failed(d, j);
    return false;
}

/* One message. False: its connection is no more. */
static bool forker_says(node *d, job *j, wire *w, const int *fds, int n_fds)
{
    const int fd = j->forker.fd;
    proto_kind kind = proto_kind_of(w);

    if (j->forker.state == FORKER_STARTING) {
        socket_close_all(fds, n_fds);
        return forker_greets(d, j, kind, w);
    }
    if (kind == PROTO_FORKED) {
        worker_forked(d, j, w, fds, n_fds);
        return j->forker.fd == fd;
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
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;

    for (size_t i = 0; i < d->jobs.n && !j; i++)
        if (d->jobs.at[i].value->forker.fd == fd) j = d->jobs.at[i].value;
    if (!j) return;
    if (writable) {
        if (loop_watch(d->loop, fd, false, on_forker, d)) log_error("a zygote cannot be watched");
        send_forks(d, j);
    }
    while (readable) {
        manta_status st = socket_recv(fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st) break; /* also when it says what cannot be: it is replaced */
        wire w = wire_of(d->in, n);
        if (!forker_says(d, j, &w, fds, n_fds)) return;
    }
    if (readable) forker_closed(d, j);
}

/* ---- its beginning ---- */

void daemon_take_forker(node *d, job *j, pid_t pid, int fd, int pidfd, int64_t limit_ms, const char *name)
{
    forker *f = &j->forker;

    f->pid = pid;
    f->fd = fd;
    f->pidfd = pidfd;
    f->sent = 0;
    f->status = FORKER_RUNS;
    f->state = limit_ms > 0 ? FORKER_STARTING : FORKER_READY;
    f->was_ready = f->was_ready || f->state == FORKER_READY;
    f->limit_ms = limit_ms;
    f->due_ns = clock_now_ns() + limit_ms * 1000000;
    snprintf(f->name, sizeof f->name, "%s", name);
    if (loop_watch(d->loop, fd, false, on_forker, d)) {
        daemon_end_job(d, j);
        return;
    }
    send_forks(d, j);
}

void daemon_start_forker(node *d, job *j)
{
    spawn_child c;
    char name[NURSERY_NAME];
    int fd;

    /* on_child() of daemon.c reaps it, as all that this process adopts. */
    if (node_start_zygote(d->self_pidfd, &d->config, &d->files, &fd, &c)) {
        daemon_end_job(d, j);
        return;
    }
    nursery_name(&d->config, name);
    daemon_take_forker(d, j, c.pid, fd, c.pidfd, d->config.n_nursery > 0 ? d->config.nursery_ms : 0, name);
}
