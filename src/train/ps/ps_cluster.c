/* ps_cluster.c - parameter servers that TF_CONFIG names: joining, opening, taking up.
 *
 *   chief       ps_open_cluster():  reach every server ─▶ await every worker ─▶ take_up()
 *   ps, worker  ps_join():          ps_serve() or ps_work(), until the chief says PS_END
 *
 * take_up() decides with what the training begins. It asks every server where it stands:
 *
 *   all are in the same epoch      the chief before us was lost in the middle of it: their
 *                                  state becomes the session's, the first server's journal says
 *                                  which steps are in, and only the others are given out
 *   one is not, or is lost         they begin with what we have: its checkpoint, or the start
 *   one has another model or data  we are mistaken, not they: nothing of theirs is touched, and
 *                                  nobody is told to end (ps.c's `mistaken`)
 *
 * What makes it safe: a worker asks for a step only when it has none in hand, and all have
 * asked before the question is put, so no push is under way while journals and states are
 * read. The state is fetched whole or not at all (fetch_state() keeps a copy).
 *
 * Nobody here is our child: a process that is lost is started again by whoever started it, and
 * is waited for until `timeout_ms` has passed. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/cluster/cluster.h"
#include "train/ps/ps_coordinator.h"
#include "train/ps/ps_range.h"

static void plan_of_cluster(manta_session *s, const manta_cluster *c, const feed_source *feed, int64_t steps,
                            ps_plan *out)
{
    *out = (ps_plan){.s = s,
                     .feed = feed,
                     .steps = steps,
                     .servers = c->config.n[TF_PS],
                     .workers = c->config.n[TF_WORKER],
                     .key = c->key,
                     .plain = c->plain,
                     .timeout_ms = c->timeout_ms};
    snprintf(out->job, sizeof out->job, "%s", c->job);
    snprintf(out->coordinator, sizeof out->coordinator, "%s", c->config.address[TF_CHIEF][0]);
    for (int i = 0; i < out->servers; i++)
        snprintf(out->server[i], sizeof out->server[i], "%s", c->config.address[TF_PS][i]);
}

manta_status ps_join(manta_session *s, const manta_cluster *c, const feed_source *feed, int64_t steps,
                     cluster_watch *watch, void *ctx)
{
    ps_plan mine;

    TRY(ps_check(s, c->config.n[TF_PS], c->config.n[TF_WORKER]));
    plan_of_cluster(s, c, feed, steps, &mine);
    mine.watch = watch;
    mine.ctx = ctx;
    return c->config.type == TF_PS ? ps_serve(&mine, c->config.index, -1) : ps_work(&mine, c->config.index);
}

/* ---- taking up what a lost coordinator has left ---- */

static manta_status fail_mistake(ps *p, int i, const char *why)
{
    p->mistaken = true;
    return manta_fail(MANTA_EINVAL, "parameter server %d is at another training: %s", i, why);
}

/* Asks a server where it stands; *out stays as it was when that is nowhere. */
static manta_status ask_where(ps *p, int i, ps_journal *out)
{
    manta_status st = ps_ask(p, i, PS_WHERE, 0, PS_WHERE);

    if (!st && p->to[i].head.length)
        st = ps_journal_unpack(out, p->plan.steps, p->to[i].in, (size_t)p->to[i].head.length);
    return st == MANTA_ECORRUPT ? fail_mistake(p, i, manta_error_text()) : st;
}

/* Whether all servers are in the middle of the same epoch. One that has just been
 * lost is not. */
static manta_status find_journal(ps *p, bool *found)
{
    ps_journal other = {0};
    manta_status st = MANTA_OK;

    *found = true;
    for (int i = 0; i < p->plan.servers && !st && *found; i++) {
        ps_journal *j = i ? &other : &p->journal;
        st = ask_where(p, i, j);
        if (st && !p->mistaken && st != MANTA_ENOMEM) {
            *found = false;
            st = ps_furnish(p, i);
        }
        *found &= !st && ps_journal_is_same_epoch(j, &p->journal);
    }
    ps_journal_release(&other);
    return st;
}

/* The state of all servers; *whole false: one has been lost meanwhile. */
static manta_status fetch_ranges(ps *p, bool *whole)
{
    manta_session *s = p->s;
    run_state *run = layout_run(&s->l, s->state), *counted = mem_new(s->l.run_size);
    manta_status st = MANTA_OK;

    *whole = true;
    for (int i = 0; i < p->plan.servers && *whole && !st; i++) {
        ps_range range = ps_range_of(&s->l, i, p->plan.servers);
        manta_status got = ps_ask(p, i, PS_STATE, 0, PS_STATE);
        if (got == MANTA_ECORRUPT || (!got && p->to[i].head.length != ps_range_state_size(&range))) {
            st = fail_mistake(p, i, "it has another model");
        } else if (got) {
            *whole = false;
        } else {
            ps_range_set_state(&range, s->state, p->to[i].in);
            if (!i) memcpy(counted, run, s->l.run_size); /* the first server's counts: ps_journal.h */
        }
    }
    memcpy(run, counted, s->l.run_size);
    mem_free(counted);
    return st;
}

/* Their state becomes the session's, or none of it. */
static manta_status fetch_state(ps *p, bool *whole)
{
    manta_session *s = p->s;
    manta_status st;
    void *before;

    TRY(mem_try_array((int64_t)s->l.state_size, 1, "a copy of the state", &before));
    memcpy(before, s->state, s->l.state_size);
    st = fetch_ranges(p, whole);
    if (st || !*whole) memcpy(s->state, before, s->l.state_size);
    mem_try_free(before);
    return st;
}

/* Goes on where the servers stand, if they stand anywhere; else they begin with
 * what we have. No worker has a step in hand now: all have asked for one. */
static manta_status take_up(ps *p)
{
    run_state *run = layout_run(&p->s->l, p->s->state);
    bool found;

    TRY(find_journal(p, &found));
    if (found) TRY(fetch_state(p, &found));
    p->settled = true;
    if (found) {
        int64_t in = ps_journal_count(&p->journal);
        if (run->calls < p->journal.first + in) run->calls = p->journal.first + in; /* a server began anew */
        p->rate = run->learning_rate;
        p->took_up = true;
        p->s->touched = true;
        log_info("the training is taken up where the servers are", LOG_INT("epoch", p->journal.from.epoch),
                 LOG_INT("step", p->journal.from.step + in));
        return MANTA_OK;
    }
    ps_journal_release(&p->journal);
    for (int i = 0; i < p->plan.servers; i++) {
        if (ps_load(p, i)) TRY(ps_furnish(p, i));
    }
    return MANTA_OK;
}

bool ps_took_up(const ps *p, train_position *at)
{
    if (!p->took_up) return false;
    *at = p->journal.from;
    at->step += ps_journal_count(&p->journal);
    return true;
}

/* ---- opening ---- */

/* Waits until every worker has come once: one that came when all is over would
 * wait for nobody. */
static manta_status await_workers(ps *p)
{
    int64_t deadline = p->plan.timeout_ms < 0 ? CLOCK_NEVER : clock_deadline(p->plan.timeout_ms);
    bool came[PS_WORKERS] = {false}, said = false;

    for (;;) {
        int missing = -1;
        for (int w = 0; w < p->plan.workers; w++) {
            came[w] |= p->idle[w] || p->check.differs[ps_node_worker(&p->plan, w)];
            if (!came[w] && missing < 0) missing = w;
        }
        if (missing < 0) return MANTA_OK;
        if (clock_now_ns() > deadline)
            return manta_fail(MANTA_ETIMEDOUT, "worker/%d has not come in %.0f s; %d workers were expected",
                              missing, (double)p->plan.timeout_ms / 1e3, p->plan.workers);
        if (!said) log_info("waiting for workers", LOG_INT("missing", missing));
        said = true;
        TRY(ps_attend(p));
    }
}

/* Waits for everybody. Who differs from us at the beginning is the end of it, for all; the
 * others are heard first, so that they are told. */
static manta_status gather_all(ps *p)
{
    for (int i = 0; i < p->plan.servers; i++) {
        manta_status st = ps_furnish(p, i);
        if (st && (p->mistaken || !p->check.differs[i])) return st;
    }
    TRY(await_workers(p));
    return p->check.refused ? manta_error_raise(&p->check.why) : MANTA_OK;
}

manta_status ps_open_cluster(manta_session *s, const manta_cluster *c, const feed_source *feed, int64_t steps,
                             const ps_options *o, ps **out)
{
    ps *p;
    manta_status st;

    TRY(ps_check(s, c->config.n[TF_PS], c->config.n[TF_WORKER]));
    p = ps_new(s, o);
    p->cluster = true;
    plan_of_cluster(s, c, feed, steps, &p->plan);
    if ((st = ps_step_queue_init(&p->queue, 0, 0))) goto out;
    if ((st = ps_rendezvous_open(&p->plan, ps_node_coordinator(&p->plan), &p->check, &p->meeting))) goto out;
    if ((st = rendezvous_listen(p->meeting, p->plan.coordinator, true, NULL))) goto out;
    if (!(st = gather_all(p))) st = take_up(p);
    if (st) manta_error_get(&p->failure);
    if (st) goto out;
    *out = p;
    p = NULL;
out:
    ps_close(p);
    return st;
}
