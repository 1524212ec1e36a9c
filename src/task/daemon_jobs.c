/* daemon_jobs.c - the programs that use the node, and who forks their workers.
 *
 * A job has a zygote: a process with the program's memory as it was in
 * manta_init(). The daemon that a driver started for itself forks that zygote,
 * for it is a fork of the driver. A program that joins brings its own: its
 * supervisor (job_supervisor.c) keeps the zygote, adopts the job's orphans and ends all
 * of them when its connection to us closes. */
#include "task/daemon.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "os/descendants.h"
#include "os/proc.h"
#include "os/spawner.h"
#include "os/sys.h"

static void start_zygote(node *d, job *j);
static void on_zygote(void *ctx, int fd, bool readable, bool writable);
static void on_supervisor(void *ctx, int fd, bool readable, bool writable);

job *daemon_job(node *d, uint32_t id)
{
    job **j = map_u64_find(&d->jobs, id);

    return j ? *j : NULL;
}

/* ---- workers ---- */

/* Asks the zygote for what is open, as far as it takes messages now. */
static void send_forks(node *d, job *j)
{
    while (j->unsent > 0 && j->zygote_fd >= 0) {
        proto_begin(&d->out, PROTO_FORK);
        manta_status st = socket_send(j->zygote_fd, d->out.at, d->out.n, NULL, 0, false);
        if (st == MANTA_ENOMEM) {
            d->is_short = true;
            return;
        }
        if (st == MANTA_EBUSY && !loop_watch(d->loop, j->zygote_fd, true, on_zygote, d)) return;
        if (st && st != MANTA_EDIED) {
            log_error("a zygote cannot be asked: it is replaced", LOG_STR("why", manta_error_text()));
            proc_signal(j->zygote_pidfd, SIGKILL);
        }
        if (st) return; /* its successor is asked for what is open */
        j->unsent--;
    }
}

void daemon_send_forks(node *d)
{
    for (size_t i = 0; i < d->jobs.n; i++) send_forks(d, d->jobs.at[i].value);
}

void daemon_ask_fork(node *d, uint32_t id)
{
    job *j = daemon_job(d, id);

    if (!j) return;
    j->forks++;
    j->unsent++;
    send_forks(d, j);
}

void daemon_note_stillborn(node *d, uint32_t id)
{
    daemon_registry(d, (registry_event){.kind = REGISTRY_WORKER_STILLBORN, .job = id});
}

/* Workers of the job cannot start: a node of its own ends with it. */
static void do_give_up(node *d, uint32_t id)
{
    const job *j = daemon_job(d, id);

    if (d->stop || !j) return;
    log_error("workers cannot start: the job ends", LOG_INT("job", (int64_t)id));
    if (j->supervisor_fd < 0) d->stop = true;
}

static void job_broken(node *d, uint32_t id)
{
    daemon_registry(d, (registry_event){.kind = REGISTRY_JOB_BROKEN, .job = id});
}

void daemon_start_failed(node *d, uint32_t id, bool is_limit, const char *why)
{
    job *j = daemon_job(d, id);
    int64_t workers = 0;

    for (size_t i = 0; i < d->clients.n; i++) {
        const client *c = d->clients.at[i].value;
        workers += c->job == id && c->is_worker && !c->dying && !c->refusal[0];
    }
    if (j && strcmp(j->shortage, why) != 0) {
        snprintf(j->shortage, sizeof j->shortage, "%s", why);
        log_warn("a worker could not be started", LOG_STR("why", why), LOG_INT("workers", workers));
    }
    is_limit = is_limit || workers > 0;
    if (!is_limit) daemon_note_stillborn(d, id);
    daemon_act(d, (sched_event){.kind = SCHED_START_FAILED, .job = id, .n = is_limit});
}

void daemon_refuse(node *d, const sched_action *a)
{
    const job *j = daemon_job(d, a->job);
    client *c = daemon_client(d, (uint32_t)a->client);
    const char *why = j ? j->shortage : "its program has ended";

    if (a->kind == SCHED_DO_REFUSE_ACTOR) daemon_refuse_actor(d, a->client, why);
    if (a->kind != SCHED_DO_REFUSE || !c) return;
    failure *f = failure_make(MANTA_FAILURE_WORKER, MANTA_ENOSPC, NULL, 0,
                              "no worker can be started for the call: %s", why);
    proto_begin(&d->out, PROTO_NO_WORKER);
    daemon_put_shape(&d->out, &a->shape);
    failure_put(&d->out, f);
    failure_unref(f);
    daemon_send(d, c);
}

static void worker_forked(node *d, job *j, wire *w, const int *fds, int n_fds)
{
    char why[256];
    pid_t pid = (pid_t)wire_u32(w);

    (void)wire_u32(w);
    wire_text(w, why, sizeof why);
    if (wire_end(w, "forked")) pid = 0;
    if (j->forks > 0) j->forks--;
    if (pid > 0 && (n_fds == 2 || n_fds == 4)) {
        daemon_add_worker(d, j->id, pid, fds, n_fds);
        return;
    }
    if (pid > 0) { /* nobody else knows of it; its parent reaps it */
        (void)proc_fail_files("a worker cannot be started");
        snprintf(why, sizeof why, "%s", manta_error_text());
        os->kill(pid, SIGKILL);
    }
    socket_close_all(fds, n_fds);
    daemon_start_failed(d, j->id, false, why);
}

static void worker_reaped(node *d, pid_t pid, int status)
{
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->pid == pid) d->clients.at[i].value->status = status;
}

void daemon_sweep_strangers(node *d, uint32_t id)
{
    job *j = daemon_job(d, id);

    if (!j) return;
    if (j->supervisor_fd < 0) {
        descendants_each(daemon_kill_stranger, d);
        return;
    }
    uint64_t n = 0;
    for (size_t i = 0; i < d->clients.n; i++) n += d->clients.at[i].value->job == id;
    buf *b = proto_begin(&d->out, PROTO_SWEEP);
    wire_put_u64(b, n);
    for (size_t i = 0; i < d->clients.n; i++)
        if (d->clients.at[i].value->job == id) wire_put_u32(b, (uint32_t)d->clients.at[i].value->pid);
    /* A supervisor that does not take it sweeps at the end of the job. */
    manta_status st = socket_send(j->supervisor_fd, b->at, b->n, NULL, 0, false);
    (void)st;
}

/* ---- the zygote ---- */

static void zygote_gone(node *d, job *j)
{
    if (j->zygote_fd >= 0) loop_forget(d->loop, j->zygote_fd);
    if (j->zygote_pidfd >= 0) proc_signal(j->zygote_pidfd, SIGKILL);
    socket_close_all((int[]){j->zygote_fd, j->zygote_pidfd}, 2);
    j->zygote_fd = j->zygote_pidfd = -1;
    j->zygote = 0;
    daemon_sweep_strangers(d, j->id); /* a worker it had forked and not told of */
}

static void on_zygote(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    job *j = NULL;
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;

    for (size_t i = 0; i < d->jobs.n && !j; i++)
        if (d->jobs.at[i].value->zygote_fd == fd) j = d->jobs.at[i].value;
    if (!j) return;
    if (writable) {
        if (loop_watch(d->loop, fd, false, on_zygote, d)) log_error("a zygote cannot be watched");
        send_forks(d, j);
    }
    while (readable) {
        manta_status st = socket_recv(fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st) break; /* also when it says what cannot be: it is replaced */
        wire w = wire_of(d->in, n);
        proto_kind kind = proto_kind_of(&w);
        if (kind == PROTO_FORKED) {
            worker_forked(d, j, &w, fds, n_fds);
            if (j->zygote_fd != fd) return;
            continue;
        }
        socket_close_all(fds, n_fds);
        pid_t pid = (pid_t)wire_u32(&w);
        if (kind == PROTO_REAPED) worker_reaped(d, pid, (int)wire_u32(&w));
    }
    if (!readable) return;
    if (j->forks > 0) daemon_note_stillborn(d, j->id); /* the next may fare no better, either */
    zygote_gone(d, j);
    if (!d->stop && j->supervisor_fd < 0) start_zygote(d, j);
}

static void take_zygote(node *d, job *j, pid_t pid, int fd, int pidfd)
{
    j->zygote = pid;
    j->zygote_fd = fd;
    j->zygote_pidfd = pidfd;
    j->unsent = j->forks;
    if (loop_watch(d->loop, fd, false, on_zygote, d)) {
        if (j->supervisor_fd < 0)
            d->stop = true;
        else
            job_broken(d, j->id);
        return;
    }
    send_forks(d, j);
}

static void start_zygote(node *d, job *j)
{
    spawn_child zygote;
    int fd;

    /* on_child() of daemon.c reaps it, as all that this process adopts. */
    if (node_start_zygote(d->self_pidfd, d->config.plain_output, &d->files, &fd, &zygote)) {
        log_error("no zygote could be started, so the node ends", LOG_STR("why", manta_error_text()));
        d->stop = true;
        return;
    }
    take_zygote(d, j, zygote.pid, fd, zygote.pidfd);
}

/* ---- jobs ---- */

static job *job_new(node *d, const char *space, bool is_joined)
{
    job *j = mem_new(sizeof *j);

    *j = (job){.id = ++d->next_job, .zygote_fd = -1, .zygote_pidfd = -1, .supervisor_fd = -1};
    *map_u64_put(&d->jobs, j->id) = j;
    daemon_registry(
        d, (registry_event){.kind = REGISTRY_JOB_NEW, .job = j->id, .name = space, .is_joined = is_joined});
    return j;
}

uint32_t daemon_start_job(node *d, const char *space)
{
    job *j = job_new(d, space, false);

    start_zygote(d, j);
    return j->id;
}

uint32_t daemon_join_job(node *d, const char *space, int supervisor_fd)
{
    job *j = job_new(d, space, true);

    j->supervisor_fd = supervisor_fd;
    if (loop_watch(d->loop, supervisor_fd, false, on_supervisor, d)) job_broken(d, j->id);
    return j->id;
}

static void on_supervisor(void *ctx, int fd, bool readable, bool writable)
{
    node *d = ctx;
    job *j = NULL;
    size_t n;
    int fds[SOCKET_MAX_FDS], n_fds;
    (void)readable;
    (void)writable;

    for (size_t i = 0; i < d->jobs.n && !j; i++)
        if (d->jobs.at[i].value->supervisor_fd == fd) j = d->jobs.at[i].value;
    if (!j) return;
    for (;;) {
        manta_status st = socket_recv(fd, d->in, SOCKET_MAX_MESSAGE, &n, fds, &n_fds, false);
        if (st == MANTA_EBUSY) return;
        if (st) break;
        wire w = wire_of(d->in, n);
        proto_kind kind = proto_kind_of(&w);
        pid_t pid = (pid_t)wire_u32(&w);
        if (kind == PROTO_ZYGOTE && n_fds == SOCKET_FDS_LOST) {
            (void)proc_fail_files("a program cannot be taken in");
            log_error("a job ends", LOG_STR("why", manta_error_text()));
            break;
        }
        if (kind == PROTO_ZYGOTE && n_fds == 2) {
            j->supervisor = (pid_t)wire_u32(&w);
            zygote_gone(d, j);
            take_zygote(d, j, pid, fds[0], fds[1]);
            continue;
        }
        socket_close_all(fds, n_fds);
        if (kind == PROTO_REAPED) worker_reaped(d, pid, (int)wire_u32(&w));
    }
    loop_forget(d->loop, fd);
    job_broken(d, j->id); /* the supervisor is dead: its keeper ends what it had */
}

/* Ends a job that joined: its supervisor, on whose connection it hangs, ends every
 * process of it. */
static void do_end(node *d, uint32_t id)
{
    job *j = daemon_job(d, id);

    if (!j) return;
    for (size_t i = 0; i < d->clients.n; i++) {
        client *c = d->clients.at[i].value;
        if (c->job != j->id) continue;
        if (c->is_worker) {
            proc_signal(c->pidfd, SIGKILL);
        } else if (!c->dying) { /* the driver is told by the end of its connection */
            c->dying = true;
            c->died_ns = clock_now_ns();
        }
    }
    if (j->zygote_fd >= 0) loop_forget(d->loop, j->zygote_fd);
    loop_forget(d->loop, j->supervisor_fd);
    socket_close_all((int[]){j->zygote_fd, j->zygote_pidfd, j->supervisor_fd}, 3);
    map_u64_remove(&d->jobs, j->id);
    daemon_drop_code(d, j);
    mem_free(j);
}

bool daemon_jobs_action(node *d, const registry_action *a)
{
    switch (a->kind) {
    case REGISTRY_DO_JOB_GIVE_UP: do_give_up(d, a->job); return true;
    case REGISTRY_DO_JOB_GONE:
        daemon_act(d, (sched_event){.kind = SCHED_JOB_GONE, .job = a->job});
        return true;
    case REGISTRY_DO_JOB_END: do_end(d, a->job); return true;
    default: return false;
    }
}
