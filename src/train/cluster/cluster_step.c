/* cluster_step.c - one step of a cluster, and the end of an epoch, seen from one rank.
 *
 *   step_once()        expect: what each other rank has to send
 *                      the chief's learning rate goes to all
 *                      our shards, one after the other (or in lockstep with everybody's):
 *                      samples, forward, backward; gradients leave while it runs
 *                      await: all sums of blocks, all rests of slots; ours are sent
 *                      update_parameters(): the commit, of this rank
 *   cluster_step()     a rank is lost anywhere before the commit: all meet anew, and the
 *                      step is done again from the same state, or copied from a rank that
 *                      has committed it
 *   cluster_decide()   the chief's verdict on the epoch goes to all. When its callbacks
 *                      have changed the weights it goes ahead alone, and all meet and
 *                      copy its state.
 *
 * Who writes what: the session's state is written by update_parameters() alone, and by
 * cluster_sync.c between steps; c->at by whoever has come to the end of a step or phase.
 * What messages write is cluster_exchange.h's.
 *
 * Why that is safe: a rank commits step k when it has the sums of all blocks of step k,
 * for which every rank has computed its shards from the state of step k - 1. So nobody
 * is further than one step, and whoever is has what the others need.
 *
 * What may be changed: the order of our shards, and what is sent before the commit. What
 * may not: to change anything of the state before exchange_await() has returned. */
#include <string.h>

#include "base/clock.h"
#include "train/cluster/cluster_exchange.h"
#include "train/session/lockstep.h"
#include "train/session/step_core.h"

/* ---- computing ---- */

static manta_status compute_shard(exchange *t, int shard)
{
    manta_session *s = t->s;
    plan_mode mode = t->train ? PLAN_TRAIN : PLAN_EVALUATE;
    manta_feed f;
    exec_run r;

    TRY(cluster_fetch_shard(t->c, t->count, shard, &f));
    r = session_run(s, mode, &f, s->slots[shard]);
    r.settled = exchange_look_around;
    r.settled_ctx = t;
    TRY(exec_forward(s->e, &r));
    if (t->train) TRY(exec_backward(s->e, &r));
    return t->st;
}

/* ---- shards in lockstep ---- */

/* Brings our shards on as far as one way goes, with those of the others. */
static manta_status go_together(exchange *t, bool backward)
{
    manta_cluster *c = t->c;
    int64_t begin = clock_now_ns(), said = 0;

    for (;;) {
        bool waits = false, moved = false;
        int64_t heard = t->heard;
        for (int64_t v = cluster_first_shard(c, c->rank); v < cluster_first_shard(c, c->rank + 1); v++) {
            bool this_waits;
            if (!exchange_uses(t, v)) continue;
            TRY(backward ? lockstep_backward(t->s->lockstep, (int)v, &this_waits)
                         : lockstep_forward(t->s->lockstep, (int)v, &this_waits));
            TRY(exchange_send_numbers(t, (int)v, &moved));
            waits |= this_waits;
        }
        if (!waits) return MANTA_OK;
        TRY(exchange_receive(t));
        if (moved || t->heard != heard) {
            begin = clock_now_ns();
            continue;
        }
        TRY(exchange_say_waiting(t, begin, &said));
        TRY(cluster_pump(c, CLOCK_NEVER));
    }
}

static manta_status compute_together(exchange *t)
{
    manta_cluster *c = t->c;
    manta_session *s = t->s;

    t->flag = ++s->meetings;
    for (int64_t v = cluster_first_shard(c, c->rank); v < cluster_first_shard(c, c->rank + 1); v++) {
        manta_feed f;
        if (!exchange_uses(t, v)) continue;
        TRY(cluster_fetch_shard(c, t->count, (int)v, &f));
        TRY(lockstep_begin(s->lockstep, (int)v, t->flag, t->count, &f, s->slots[v], true));
    }
    TRY(go_together(t, false));
    return go_together(t, true);
}

/* ---- the update ---- */

static void update_parameters(exchange *t)
{
    manta_session *s = t->s;

    layout_run(&s->l, s->state)->learning_rate = t->c->rate;
    step_begin(s, s->state);
    apply_summed(&s->a, t->c->sum);
    step_update(s, t->count);
}

/* The chief's callbacks rule the learning rate, whatever the others' say. */
static manta_status send_rate(exchange *t)
{
    manta_cluster *c = t->c;

    if (!t->train || c->rank) return MANTA_OK;
    c->rate = layout_run(&t->s->l, t->s->state)->learning_rate;
    for (int r = 1; r < c->n; r++)
        TRY(exchange_post(t, r, CLUSTER_RATE, 0, (chan_part){&c->rate, sizeof c->rate}));
    return MANTA_OK;
}

static manta_status step_once(exchange *t)
{
    manta_cluster *c = t->c;

    cluster_crash(CLUSTER_CRASH_STEP_BEGIN);
    TRY(cluster_count_samples(c, &t->count));
    exchange_expect(t);
    step_collect(t->s, t->count);
    if (t->train) exchange_begin_sum(t);
    TRY(send_rate(t));
    if (t->together) TRY(compute_together(t));
    for (int64_t v = cluster_first_shard(c, c->rank); v < cluster_first_shard(c, c->rank + 1); v++) {
        if (!exchange_uses(t, v)) continue;
        exchange_begin_shard(t, v);
        if (!t->together) TRY(compute_shard(t, (int)v));
        cluster_crash(CLUSTER_CRASH_SHARD_COMPUTED);
        TRY(exchange_send_shard(t, v));
        cluster_crash(CLUSTER_CRASH_SHARD_SENT);
    }
    TRY(exchange_await(t, true)); /* what is sent from the slots is gone before they are written again */
    cluster_crash(CLUSTER_CRASH_SUMS_HEARD);
    if (t->train) {
        update_parameters(t);
    } else {
        step_add_sums(t->s, t->s->eval_sums, t->s->eval_sums);
    }
    cluster_crash(CLUSTER_CRASH_UPDATED);
    c->at.step++;
    c->at.iterations = layout_run(&t->s->l, t->s->state)->calls;
    return MANTA_OK;
}

manta_status cluster_step(manta_cluster *c)
{
    exchange t = {.c = c, .s = c->s, .train = c->at.phase == CLUSTER_TRAIN};
    manta_status st;

    t.together = t.train && c->s->meets;
    t.number = c->number++;
    st = step_once(&t);
    if (st != MANTA_EDIED || c->lost < 0) return st;
    return cluster_recover(c);
}

static manta_status hear_verdict(manta_cluster *c)
{
    exchange t = {.c = c, .s = c->s, .deciding = true, .number = c->number++};

    exchange_forget(&t);
    for (int r = 0; r < c->n; r++) {
        c->peers[r].waits = c->rank && !r;
        c->peers[r].got = 0;
        if (!c->rank && r)
            TRY(exchange_post(&t, r, CLUSTER_VERDICT, 0, (chan_part){&c->verdict, sizeof c->verdict}));
    }
    return exchange_await(&t, true);
}

/* The chief goes ahead alone; whoever then meets it copies what it has. */
static manta_status go_ahead(manta_cluster *c, int64_t epoch, bool stop)
{
    if (stop) {
        c->at.step = 1;
    } else {
        cluster_enter(c, epoch + 1, CLUSTER_TRAIN);
    }
    return cluster_regroup(c);
}

manta_status cluster_decide(manta_cluster *c, int64_t epoch, bool changed, bool *stop)
{
    run_state *run = layout_run(&c->s->l, c->s->state);

    cluster_enter(c, epoch, CLUSTER_DECIDE);
    if (!c->rank && changed && cluster_is_in(c, epoch, CLUSTER_DECIDE) && !c->at.step)
        TRY(go_ahead(c, epoch, *stop));
    while (cluster_is_in(c, epoch, CLUSTER_DECIDE) && !c->at.step) {
        manta_status st;
        if (!c->rank) c->verdict = (cluster_verdict){.rate = run->learning_rate, .stop = *stop};
        cluster_crash(CLUSTER_CRASH_DECIDE_BEGIN);
        st = hear_verdict(c);
        if (!st) {
            cluster_crash(CLUSTER_CRASH_DECIDED);
            c->at.step = 1;
            run->learning_rate = c->verdict.rate;
            *stop = c->verdict.stop != 0;
            return MANTA_OK;
        }
        if (st != MANTA_EDIED || c->lost < 0) return st;
        TRY(cluster_recover(c));
    }
    /* Taken along by those who have heard it: who goes on is in the next epoch already. */
    *stop = cluster_is_in(c, epoch, CLUSTER_DECIDE);
    return MANTA_OK;
}
