/* cluster_step.c - one step of a cluster: see cluster.h for how it goes. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/cluster.h"
#include "train/lockstep.h"

enum { BLOCKS_PER_TASK = 16, SAY_AFTER_MS = 2000 };

/* A step under way. */
typedef struct stepping {
    manta_cluster *c;
    manta_session *s;
    feed_reader *reader;
    bool train, deciding;
    bool together; /* the shards of all ranks in lockstep */
    uint64_t number; /* what its messages carry: steps begun in this generation, in order */
    uint64_t flag; /* of its meetings, in this process; an attempt has its own */
    int64_t count; /* samples */
    int64_t heard; /* numbers of other ranks' shards */
} stepping;

/* ---- computing ---- */

static bool is_used(const stepping *t, int64_t shard)
{
    return session_shard_begin(t->s, t->count, (int)shard) <
           session_shard_begin(t->s, t->count, (int)shard + 1);
}

static manta_status fetch_shard(stepping *t, int shard, manta_feed *f)
{
    int64_t lo = session_shard_begin(t->s, t->count, shard),
            hi = session_shard_begin(t->s, t->count, shard + 1);

    TRY(feed_reader_rows(t->reader, t->c->at.epoch, t->c->at.step, lo, hi, f));
    return session_check_feed(t->s, f, true);
}

static manta_status compute_shard(stepping *t, int shard)
{
    manta_session *s = t->s;
    plan_mode mode = t->train ? PLAN_TRAIN : PLAN_EVALUATE;
    manta_feed f;
    exec_run r;

    TRY(fetch_shard(t, shard, &f));
    r = session_run(s, mode, &f, s->slots[shard]);
    TRY(exec_forward(s->e, &r));
    return t->train ? exec_backward(s->e, &r) : MANTA_OK;
}

/* ---- sending ---- */

static float *grads_of(const stepping *t, int64_t shard, int rank)
{
    return layout_slot_grads(&t->s->l, t->s->slots[shard]) + cluster_first_block(t->c, rank) * LAYOUT_BLOCK;
}

static size_t range_bytes(const stepping *t, int rank)
{
    return (size_t)(cluster_first_block(t->c, rank + 1) - cluster_first_block(t->c, rank)) * LAYOUT_BLOCK *
           sizeof(float);
}

/* What of a slot everybody needs whole. */
static chan_part rest_of(const stepping *t, int64_t shard)
{
    const layout *l = &t->s->l;
    size_t from = t->train ? l->slot_stats : l->slot_sums;

    return (chan_part){(char *)t->s->slots[shard] + from, l->slot_size - from};
}

static manta_status post(stepping *t, int rank, uint16_t kind, int64_t item, chan_part part)
{
    chan *to = t->c->peers[rank].c;
    frame f = {.kind = kind, .step = t->number, .item = (uint32_t)item};
    manta_status st;

    while ((st = chan_post(to, &f, &part, 1, true)) == MANTA_EBUSY) {
        TRY(cluster_pump(t->c, clock_deadline(CLUSTER_TICK_MS)));
    }
    return st ? cluster_lose(t->c, rank) : MANTA_OK;
}

/* A shard is computed: on its way while the next one is. */
static manta_status send_shard(stepping *t, int64_t shard)
{
    manta_cluster *c = t->c;

    for (int i = 1; i < c->n; i++) {
        int r = (c->rank + i) % c->n;
        if (t->train)
            TRY(post(t, r, CLUSTER_GRADIENTS, shard, (chan_part){grads_of(t, shard, r), range_bytes(t, r)}));
        TRY(post(t, r, CLUSTER_REST, shard, rest_of(t, shard)));
        if (chan_work(c->peers[r].c)) return cluster_lose(c, r);
    }
    return MANTA_OK;
}

/* Whether a rank has a shard with samples. */
static bool computes(const stepping *t, int rank)
{
    for (int64_t v = cluster_first_shard(t->c, rank); v < cluster_first_shard(t->c, rank + 1); v++) {
        if (is_used(t, v)) return true;
    }
    return false;
}

/* What a shard has left at batch norms goes to all who wait there; *moved: something. */
static manta_status send_numbers(stepping *t, int shard, bool *moved)
{
    manta_cluster *c = t->c;
    lockstep_numbers left;

    while (lockstep_take_left(t->s->lockstep, shard, &left)) {
        int64_t item = (int64_t)left.place * t->s->shards + shard;
        chan_part part = {left.values, (size_t)left.n * sizeof *left.values};
        *moved = true;
        for (int i = 1; i < c->n; i++) {
            int r = (c->rank + i) % c->n;
            if (!computes(t, r)) continue;
            TRY(post(t, r, CLUSTER_NUMBERS, item, part));
            if (chan_work(c->peers[r].c)) return cluster_lose(c, r);
        }
        cluster_crash(CLUSTER_CRASH_NUMBERS_SENT);
    }
    return MANTA_OK;
}

static manta_status send_sum(stepping *t)
{
    manta_cluster *c = t->c;
    chan_part part = {c->sum + cluster_first_block(c, c->rank) * LAYOUT_BLOCK, range_bytes(t, c->rank)};

    for (int i = 1; i < c->n; i++) TRY(post(t, (c->rank + i) % c->n, CLUSTER_SUM, 0, part));
    return MANTA_OK;
}

/* ---- receiving ---- */

/* Whether a rank computes this shard in this step. */
static bool is_theirs(const stepping *t, int rank, int64_t shard)
{
    return !t->deciding && shard >= cluster_first_shard(t->c, rank) &&
           shard < cluster_first_shard(t->c, rank + 1) && is_used(t, shard);
}

/* Numbers of a shard under way: their item is place and shard. */
static chan_part numbers_place(const stepping *t, int rank, uint32_t item)
{
    uint32_t shards = (uint32_t)t->s->shards;
    double *to = NULL;
    int64_t n = 0;

    if (t->together && is_theirs(t, rank, item % shards))
        to = lockstep_find(t->s->lockstep, item / shards, item % shards, t->flag, &n);
    return (chan_part){to, (size_t)n * sizeof *to};
}

/* Where the bytes of a message belong; MANTA_ECORRUPT when it is none that is
 * expected from this rank. */
static manta_status place_of(stepping *t, int rank, const frame *f, chan_part *out)
{
    manta_cluster *c = t->c;
    bool theirs = is_theirs(t, rank, f->item);

    *out = (chan_part){0};
    if (f->kind == CLUSTER_NUMBERS) *out = numbers_place(t, rank, f->item);
    if (f->kind == CLUSTER_GRADIENTS && t->train && theirs)
        *out = (chan_part){grads_of(t, f->item, c->rank), range_bytes(t, c->rank)};
    if (f->kind == CLUSTER_REST && theirs) *out = rest_of(t, f->item);
    if (f->kind == CLUSTER_RATE && t->train && !rank) *out = (chan_part){&c->rate, sizeof c->rate};
    if (f->kind == CLUSTER_VERDICT && t->deciding && !rank)
        *out = (chan_part){&c->verdict, sizeof c->verdict};
    if (f->kind == CLUSTER_SUM && t->train)
        *out = (chan_part){c->sum + cluster_first_block(c, rank) * LAYOUT_BLOCK, range_bytes(t, rank)};
    if (out->data && f->length == out->n) return MANTA_OK;
    return manta_fail(MANTA_ECORRUPT, "%s: message %u, item %u, of %llu bytes is not part of the step",
                      c->peers[rank].node, f->kind, f->item, (unsigned long long)f->length);
}

/* Receives what is here from a rank; at most as many messages as are awaited. */
static manta_status receive(stepping *t, int rank)
{
    manta_cluster *c = t->c;
    cluster_peer *p = &c->peers[rank];

    while (p->waits > 0) {
        manta_status st;
        chan_part to;
        frame f;
        size_t got;
        if ((st = chan_peek(p->c, &f)) == MANTA_EBUSY) return MANTA_OK;
        if (st) return cluster_lose(c, rank);
        if (f.kind == CLUSTER_FAILED)
            return (st = cluster_read_failure(c, rank)) == MANTA_EBUSY ? MANTA_OK : st;
        if (f.step != t->number)
            st = manta_fail(MANTA_ECORRUPT, "%s: a message of step %llu in step %llu", p->node,
                            (unsigned long long)f.step, (unsigned long long)t->number);
        if (!st) st = place_of(t, rank, &f, &to);
        if (!st) st = chan_take(p->c, (char *)(uintptr_t)to.data + p->got, to.n - (size_t)p->got, &got);
        if (st) return cluster_lose(c, rank);
        p->got += got;
        if (p->got < to.n) return MANTA_OK;
        p->got = 0;
        if (f.kind == CLUSTER_NUMBERS) { /* not counted: they all come before the shard's gradients */
            uint32_t shards = (uint32_t)t->s->shards;
            lockstep_arrived(t->s->lockstep, f.item / shards, f.item % shards, t->flag);
            t->heard++;
            continue;
        }
        p->waits--;
    }
    return MANTA_OK;
}

/* Whom we wait for, and how long: said after a while. */
static manta_status say_waiting(stepping *t, int64_t begin, int64_t *said)
{
    manta_cluster *c = t->c;
    int64_t now = clock_now_ns(), ms = (now - begin) / 1000000;
    char text[300];
    int first = -1;

    for (int r = 0; r < c->n && first < 0; r++) {
        if (r != c->rank && (c->peers[r].waits || chan_unsent(c->peers[r].c))) first = r;
    }
    if (first < 0 || ms < CLUSTER_TICK_MS) return MANTA_OK;
    snprintf(text, sizeof text, "waiting for %s (%s) at step %lld of epoch %lld%s", c->peers[first].node,
             c->peers[first].address, (long long)c->at.step + 1, (long long)c->at.epoch + 1,
             t->train ? "" : " (evaluation)");
    if (c->timeout_ms >= 0 && ms > c->timeout_ms)
        return manta_fail(MANTA_ETIMEDOUT, "%s: nothing has come for %.0f s", text, (double)ms / 1e3);
    if (ms > SAY_AFTER_MS && now - *said > (int64_t)10 * 1000000000) {
        log_info("a rank is silent", LOG_STR("state", text), LOG_F64("seconds", (double)ms / 1e3));
        *said = now;
    }
    if (c->watch && !c->watch(c->ctx, text, first, (double)ms))
        return manta_fail(MANTA_ECANCELLED, "stopped on request while %s", text);
    return MANTA_OK;
}

/* Until every rank has sent what it has to; with `flush` also until ours is sent. */
static manta_status await_all(stepping *t, bool flush)
{
    manta_cluster *c = t->c;
    int64_t begin = clock_now_ns(), said = 0;

    for (;;) {
        int64_t before = 0, after = 0;
        bool all = true;
        for (int r = 0; r < c->n; r++) {
            cluster_peer *p = &c->peers[r];
            if (r == c->rank) continue;
            before += p->waits + chan_unsent(p->c);
            TRY(receive(t, r));
            after += p->waits + chan_unsent(p->c);
            all &= !p->waits && !(flush && chan_unsent(p->c));
        }
        if (all) return MANTA_OK;
        if (after < before) begin = clock_now_ns();
        TRY(say_waiting(t, begin, &said));
        TRY(cluster_pump(c, CLOCK_NEVER));
    }
}

/* ---- shards in lockstep ---- */

/* Brings our shards on as far as one way goes, with those of the others. */
static manta_status go_together(stepping *t, bool backward)
{
    manta_cluster *c = t->c;
    int64_t begin = clock_now_ns(), said = 0;

    for (;;) {
        bool waits = false, moved = false;
        int64_t heard = t->heard;
        for (int64_t v = cluster_first_shard(c, c->rank); v < cluster_first_shard(c, c->rank + 1); v++) {
            bool this_waits;
            if (!is_used(t, v)) continue;
            TRY(backward ? lockstep_backward(t->s->lockstep, (int)v, &this_waits)
                         : lockstep_forward(t->s->lockstep, (int)v, &this_waits));
            TRY(send_numbers(t, (int)v, &moved));
            waits |= this_waits;
        }
        if (!waits) return MANTA_OK;
        for (int r = 0; r < c->n; r++) {
            if (r != c->rank) TRY(receive(t, r));
        }
        if (moved || t->heard != heard) {
            begin = clock_now_ns();
            continue;
        }
        TRY(say_waiting(t, begin, &said));
        TRY(cluster_pump(c, CLOCK_NEVER));
    }
}

static manta_status compute_together(stepping *t)
{
    manta_cluster *c = t->c;
    manta_session *s = t->s;

    t->flag = ++s->meetings;
    for (int64_t v = cluster_first_shard(c, c->rank); v < cluster_first_shard(c, c->rank + 1); v++) {
        manta_feed f;
        if (!is_used(t, v)) continue;
        TRY(fetch_shard(t, (int)v, &f));
        TRY(lockstep_begin(s->lockstep, (int)v, t->flag, t->count, &f, s->slots[v], true));
    }
    TRY(go_together(t, false));
    return go_together(t, true);
}

/* ---- the update ---- */

typedef struct reduction {
    const apply *a;
    int64_t lo, hi;
    float *out;
} reduction;

static void reduce_task(void *ctx, int task, int thread)
{
    const reduction *r = ctx;
    int64_t lo = r->lo + (int64_t)task * BLOCKS_PER_TASK;

    (void)thread;
    apply_reduce(r->a, lo, lo + BLOCKS_PER_TASK < r->hi ? lo + BLOCKS_PER_TASK : r->hi, r->out);
}

/* The slots of the shards that have samples, in shard order. */
static void collect_slots(stepping *t)
{
    manta_session *s = t->s;

    s->n_used = 0;
    for (int v = 0; v < s->shards; v++) {
        if (is_used(t, v)) s->used[s->n_used++] = s->slots[v];
    }
}

static manta_status sum_and_update(stepping *t)
{
    manta_cluster *c = t->c;
    manta_session *s = t->s;
    reduction mine = {.a = &s->a,
                      .lo = cluster_first_block(c, c->rank),
                      .hi = cluster_first_block(c, c->rank + 1),
                      .out = c->sum};

    layout_run(&s->l, s->state)->learning_rate = c->rate;
    apply_begin(&s->a, s->state, s->state, s->n_used, s->used);
    pool_run(s->pool, (int)((mine.hi - mine.lo + BLOCKS_PER_TASK - 1) / BLOCKS_PER_TASK), reduce_task, &mine);
    for (int r = 0; r < c->n; r++) {
        if (r != c->rank) c->peers[r].waits = 1;
    }
    TRY(send_sum(t));
    cluster_crash(CLUSTER_CRASH_SUM_POSTED);
    if (cluster_crash_plan.point == CLUSTER_CRASH_SUM_SENT) (void)chan_work(c->peers[!c->rank].c);
    cluster_crash(CLUSTER_CRASH_SUM_SENT);
    TRY(await_all(t, true)); /* what is sent from the slots is gone before they are written again */
    cluster_crash(CLUSTER_CRASH_SUMS_HEARD);
    apply_summed(&s->a, c->sum);
    session_update(s, t->count);
    return MANTA_OK;
}

static void add_sums(stepping *t)
{
    manta_session *s = t->s;
    double sums[SUM_FIXED + 4 * MANTA_MAX_METRICS];

    apply_sums(&s->l, s->n_used, s->used, sums);
    for (int i = 0; i < s->l.n_sums; i++) s->eval_sums[i] += sums[i];
    s->eval_sums[s->l.n_sums] += apply_penalty(&s->a, s->state) * sums[SUM_SAMPLES];
}

/* What each rank has to send before anybody can add. */
static void expect_shards(stepping *t)
{
    manta_cluster *c = t->c;

    for (int r = 0; r < c->n; r++) {
        int n = 0;
        if (r == c->rank) continue;
        for (int64_t v = cluster_first_shard(c, r); v < cluster_first_shard(c, r + 1); v++)
            n += is_used(t, v);
        c->peers[r].waits = t->train ? 2 * n : n;
        c->peers[r].got = 0;
        if (t->train && !r) c->peers[r].waits++; /* the chief's learning rate */
    }
}

/* The chief's callbacks rule the learning rate, whatever the others' say. */
static manta_status send_rate(stepping *t)
{
    manta_cluster *c = t->c;

    if (!t->train || c->rank) return MANTA_OK;
    c->rate = layout_run(&t->s->l, t->s->state)->learning_rate;
    for (int r = 1; r < c->n; r++) TRY(post(t, r, CLUSTER_RATE, 0, (chan_part){&c->rate, sizeof c->rate}));
    return MANTA_OK;
}

static manta_status step_once(stepping *t)
{
    manta_cluster *c = t->c;

    cluster_crash(CLUSTER_CRASH_STEP_BEGIN);
    TRY(feed_reader_count(t->reader, c->at.epoch, c->at.step, &t->count));
    expect_shards(t);
    TRY(send_rate(t));
    if (t->together) TRY(compute_together(t));
    for (int64_t v = cluster_first_shard(c, c->rank); v < cluster_first_shard(c, c->rank + 1); v++) {
        if (!is_used(t, v)) continue;
        if (!t->together) TRY(compute_shard(t, (int)v));
        cluster_crash(CLUSTER_CRASH_SHARD_COMPUTED);
        TRY(send_shard(t, v));
        cluster_crash(CLUSTER_CRASH_SHARD_SENT);
    }
    TRY(await_all(t, !t->train));
    cluster_crash(CLUSTER_CRASH_SHARDS_HEARD);
    collect_slots(t);
    if (t->train) {
        TRY(sum_and_update(t));
    } else {
        add_sums(t);
    }
    cluster_crash(CLUSTER_CRASH_UPDATED);
    c->at.step++;
    c->at.iterations = layout_run(&t->s->l, t->s->state)->calls;
    return MANTA_OK;
}

manta_status cluster_step(manta_cluster *c)
{
    stepping t = {
        .c = c, .s = c->s, .reader = c->readers[c->at.phase], .train = c->at.phase == CLUSTER_TRAIN};
    manta_status st;

    t.together = t.train && c->s->meets;
    t.number = c->number++;
    st = step_once(&t);
    if (st != MANTA_EDIED || c->lost < 0) return st;
    return cluster_recover(c);
}

static manta_status hear_verdict(manta_cluster *c)
{
    stepping t = {.c = c, .s = c->s, .deciding = true, .number = c->number++};

    for (int r = 0; r < c->n; r++) {
        c->peers[r].waits = c->rank && !r;
        c->peers[r].got = 0;
        if (!c->rank && r) TRY(post(&t, r, CLUSTER_VERDICT, 0, (chan_part){&c->verdict, sizeof c->verdict}));
    }
    return await_all(&t, true);
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
