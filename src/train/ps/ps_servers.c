/* ps_servers.c - the servers, as the coordinator deals with them: reaching them, giving them a
 * state and an epoch, asking for theirs.
 *
 *     not reached ── reach_server() ──▶ reached ── LOAD, once it is clear with what they ──▶ furnished
 *          ▲                                       begin (p->settled); BEGIN: the epoch        │
 *          └──────────────── it is lost: its link fails, or its process has ended ─────────────┘
 *
 * A server of ours that is lost is started anew as a child (ps_replace_lost()); one that somebody
 * else starts is waited for until the training's patience is over. Either way the successor gets
 * the state that the coordinator has, which is that of the last ps_pull(). What the lost one had
 * taken since is nowhere else: without a bound on staleness these are a few steps that nobody
 * misses; with a bound of 0 the result would be another one, and the training ends
 * (ps_check_loss()).
 *
 * Who writes what: each server has a range of the parameters (ps_range.h) that it alone updates;
 * steps and sums are counted by the coordinator, so ps_pull() keeps its run section. A server that
 * answers with another training's settings is the end of this one before it has begun, and is
 * waited out afterwards (p->settled).
 *
 * Threads: the coordinator's one. */
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/ps/ps_coordinator.h"
#include "train/ps/ps_range.h"

enum { PATIENCE_MS = 200 };

/* ---- reaching them ---- */

/* Of a server that is not ours the channel tells. */
static bool server_is_dead(void *ctx)
{
    const ps_child *c = ctx;

    return spawn_has_ended(&c->process);
}

/* Whom a meeting waits for. */
typedef struct server_wait {
    ps *p;
    int i;
    bool said;
} server_wait;

static manta_status watch_server(void *ctx, const char *missing, int i, double ms)
{
    server_wait *w = ctx;

    (void)i;
    (void)ms;
    if (spawn_has_ended(&w->p->server[w->i].process))
        return manta_fail(MANTA_EDIED, "parameter server %d ended before it could be reached", w->i);
    if (w->p->cluster && !w->said) log_info("a parameter server is missing", LOG_STR("missing", missing));
    w->said = true;
    return MANTA_OK;
}

/* Calls a server until it is there. One that is at another training is the end of ours,
 * unless that has begun: then the right one is waited for. */
static manta_status reach_server(ps *p, int i, int64_t timeout_ms)
{
    server_wait w = {.p = p, .i = i};
    rendezvous_meeting m = {.timeout_ms = timeout_ms,
                            .patient = p->settled,
                            .strict = p->cluster && !p->settled,
                            .watch = watch_server,
                            .ctx = &w};

    ps_link_close(&p->to[i]);
    rendezvous_miss(p->meeting, i);
    TRY(rendezvous_meet(p->meeting, i, i + 1, &m));
    return ps_link_open(&p->to[i], rendezvous_take(p->meeting, i), ps_server_room(&p->plan, i));
}

manta_status ps_ask(ps *p, int i, ps_kind kind, size_t n, ps_kind want)
{
    return ps_link_ask(&p->to[i], kind, 0, n, want, server_is_dead, &p->server[i]);
}

/* Tells a server what the epoch at hand is. */
manta_status ps_tell_epoch(ps *p, int i)
{
    const layout *l = &p->s->l;
    char *out = p->to[i].out;
    size_t n = l->run_size;

    if (!ps_journal_is_begun(&p->journal)) return MANTA_OK;
    memcpy(out, layout_run(l, p->s->state), n);
    n += ps_journal_pack(&p->journal, out + n);
    return ps_ask(p, i, PS_BEGIN, n, PS_BEGUN);
}

/* Gives a server the state that we have. */
manta_status ps_load(ps *p, int i)
{
    ps_range range = ps_range_of(&p->s->l, i, p->plan.servers);

    ps_range_get_state(&range, p->s->state, p->to[i].out);
    TRY(ps_ask(p, i, PS_LOAD, ps_range_state_size(&range), PS_LOADED));
    return ps_tell_epoch(p, i);
}

static manta_status try_furnish(ps *p, int i, int64_t timeout_ms)
{
    TRY(reach_server(p, i, timeout_ms));
    return p->settled ? ps_load(p, i) : MANTA_OK;
}

/* A server that somebody else starts: until it is there, or the time is over. */
static manta_status await_server(ps *p, int i)
{
    int64_t deadline = clock_deadline(p->plan.timeout_ms);

    for (;;) {
        manta_status st = try_furnish(p, i, clock_left_ms(deadline));
        if (st == MANTA_EPERM && p->check.differs[i] && !p->check.at_work) return st;
        p->mistaken |= st == MANTA_EPERM; /* it is not for us, or we are not for it */
        if (!st || p->mistaken || st == MANTA_ETIMEDOUT) return st;
        log_info("a parameter server was lost again", LOG_INT("rank", i), LOG_STR("why", manta_error_text()));
        st = rendezvous_wait(p->meeting, NULL, 0, NULL, 0, clock_deadline(PATIENCE_MS));
        if (st && st != MANTA_ETIMEDOUT) return st;
    }
}

/* What a lost server had taken since our copy was made is nowhere else. Without a bound on staleness
 * that is a few steps that nobody misses; with one of 0 it would be another result. */
manta_status ps_check_loss(ps *p, int i)
{
    bool whole = !p->since_snapshot && ps_step_queue_is_idle(&p->queue); /* our copy has all of it */
    manta_status st;

    if (p->o.staleness || whole) return MANTA_OK;
    st =
        manta_fail(MANTA_EDIED,
                   "parameter server %d was lost in the middle of an epoch, with steps that nobody else has: "
                   "with a staleness of 0 the result would not be that of one process; start again, with "
                   "--resume from the last checkpoint",
                   i);
    manta_error_get(&p->failure); /* all end with it */
    return st;
}

/* The end of a server that somebody else started, seen by the thread's last error. */
static manta_status note_loss(ps *p, int i, worker_event *e)
{
    *e = (worker_event){.kind = WORKER_EVENT_RECOVERED, .server = true, .rank = i};
    snprintf(e->cause, sizeof e->cause, "%.90s", manta_error_text());
    log_info("a parameter server was lost", LOG_INT("rank", i), LOG_STR("why", manta_error_text()));
    return ps_check_loss(p, i);
}

/* Connects to server i and gives it what it begins with; one that is lost meanwhile is replaced, and its successor
 * gets it, however often that takes. */
manta_status ps_furnish(ps *p, int i)
{
    bool lost = p->cluster && p->settled && p->to[i].c;
    int64_t begin = clock_now_ns();
    worker_event e;

    if (lost) TRY(note_loss(p, i, &e));
    if (p->cluster) {
        TRY(await_server(p, i));
        if (lost) e.ms = (double)(clock_now_ns() - begin) / 1e6;
        if (lost) worker_events_add(&p->events, &e);
        return MANTA_OK;
    }
    while (try_furnish(p, i, PS_REACH_MS)) {
        spawn_signal(&p->server[i].process, SIGKILL);
        TRY(ps_replace_lost(p, true, i));
        if (p->to[i].c) return MANTA_OK; /* that has furnished the successor */
    }
    return MANTA_OK;
}

/* ---- what they have ---- */

/* A callback may have changed it. */
manta_status ps_say_rate(ps *p)
{
    double rate = layout_run(&p->s->l, p->s->state)->learning_rate;

    if (!(rate < p->rate || rate > p->rate)) return MANTA_OK;
    for (int i = 0; i < p->plan.servers; i++) {
        memcpy(p->to[i].out, &rate, sizeof rate);
        if (ps_link_send(&p->to[i], PS_RATE, 0, 0, sizeof rate)) TRY(ps_furnish(p, i));
    }
    p->rate = rate;
    return MANTA_OK;
}

manta_status ps_pull(ps *p)
{
    manta_session *s = p->s;
    run_state *run = layout_run(&s->l, s->state), *mine = mem_new(s->l.run_size);
    manta_status st = MANTA_OK;

    memcpy(mine, run, s->l.run_size);
    for (int i = 0; i < p->plan.servers && !st;) {
        ps_range range = ps_range_of(&s->l, i, p->plan.servers);
        st = ps_link_ask(&p->to[i], PS_STATE, 0, 0, PS_STATE, server_is_dead, &p->server[i]);
        if (!st && p->to[i].head.length == ps_range_state_size(&range)) {
            ps_range_set_state(&range, s->state, p->to[i].in);
            i++;
        } else {
            memcpy(run, mine, s->l.run_size);
            st = ps_furnish(p, i);
        }
    }
    memcpy(run, mine, s->l.run_size); /* steps and sums are counted here */
    mem_free(mine);
    p->since_snapshot = 0;
    s->touched = true;
    return st;
}
