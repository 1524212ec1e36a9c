/* ps_children.c - servers and workers that the coordinator has forked: their births and
 * their end. */
#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "os/sys.h"
#include "train/log/rank_logs.h"
#include "train/ps/ps_coordinator.h"

/* ---- births ---- */

/* A server or worker that is to be. */
typedef struct ps_birth {
    const ps *p;
    bool server;
    int rank;
    rank_log_task log;
} ps_birth;

/* The connections of the coordinator and the listeners of other servers are not the
 * child's: they would stay open when the coordinator closes them. */
static void close_others(const ps_birth *b)
{
    const ps *p = b->p;

    for (int i = 0; i < PS_WORKERS; i++) {
        if (p->link[i].c) os->close(chan_fd(p->link[i].c));
    }
    for (int i = 0; i < p->plan.servers; i++) {
        if (p->to[i].c) os->close(chan_fd(p->to[i].c));
        if (!b->server || i != b->rank) os->close(p->server_listener[i]);
    }
    rendezvous_close_descriptors(p->meeting);
}

static void run_child(void *ctx)
{
    const ps_birth *b = ctx;
    ps_plan mine = b->p->plan;
    rank_logs *logs = mine.s->logs;
    manta_status st;

    manta_error_origin(NULL, b->rank);
    close_others(b);
    session_after_fork(mine.s);
    if (logs) rank_logs_follow(rank_logs_folder(logs), &b->log, b->server ? "server" : "rank", b->rank);
    st = b->server ? ps_serve(&mine, b->rank, b->p->server_listener[b->rank]) : ps_work(&mine, b->rank);
    if (st)
        log_error(b->server ? "a parameter server failed" : "a worker failed",
                  LOG_STR("why", manta_error_text()));
    _exit(st ? 1 : 0);
}

manta_status ps_start_child(ps *p, bool server, int rank)
{
    ps_child *c = server ? &p->server[rank] : &p->worker[rank];
    rank_logs *logs = p->plan.s->logs;
    ps_birth b = {.p = p, .server = server, .rank = rank};
    spawn_options o = {.run = run_child, .ctx = &b, .signals = SPAWN_SIGNALS_LEFT, .dies_with_parent = true};

    if (logs) TRY(rank_logs_expect(logs, server ? "server" : "rank", rank, &b.log));
    TRY(spawn_start(&o, &c->process));
    worker_events_add(
        &p->events,
        &(worker_event){.kind = WORKER_EVENT_STARTED, .server = server, .rank = rank, .pid = c->process.pid});
    return MANTA_OK;
}

/* ---- the end ---- */

void ps_end_children(ps *p, int64_t deadline)
{
    spawn_child *all[PS_WORKERS + PS_SERVERS];
    int n = 0;

    for (int i = 0; i < PS_WORKERS; i++) all[n++] = &p->worker[i].process;
    for (int i = 0; i < PS_SERVERS; i++) all[n++] = &p->server[i].process;
    spawn_end_all(all, n, deadline);
}
