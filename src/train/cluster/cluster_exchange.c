/* cluster_exchange.c - what the ranks of a cluster send each other in a step; see
 * cluster_exchange.h. */
#include "train/cluster/cluster_exchange.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/session/lockstep.h"
#include "train/session/step_core.h"

enum { SAY_AFTER_MS = 2000, SAY_EVERY_MS = 10000, HEARD_MS = 2500 };

/* ---- what is where ---- */

bool exchange_uses(const exchange *t, int64_t shard)
{
    return step_has_samples(t->s, t->count, (int)shard);
}

/* A piece of a rank's blocks in `from`, which has the parameters' layout. */
static chan_part piece_of(const exchange *t, const float *from, int rank, int64_t k)
{
    int64_t lo = cluster_first_block(t->c, rank) + k * cluster_piece,
            end = cluster_first_block(t->c, rank + 1);
    int64_t hi = lo + cluster_piece < end ? lo + cluster_piece : end;

    return (chan_part){from + lo * LAYOUT_BLOCK, (size_t)(hi - lo) * LAYOUT_BLOCK * sizeof *from};
}

static const float *grads_of(const exchange *t, int64_t shard)
{
    return layout_slot_grads(&t->s->l, t->s->slots[shard]);
}

/* What of a slot everybody needs whole. */
static chan_part rest_of(const exchange *t, int64_t shard)
{
    const layout *l = &t->s->l;
    size_t from = t->train ? l->slot_stats : l->slot_sums;

    return (chan_part){(char *)t->s->slots[shard] + from, l->slot_size - from};
}

/* ---- receiving ---- */

/* Whether a rank computes this shard in this step. */
static bool is_theirs(const exchange *t, int rank, int64_t shard)
{
    return !t->deciding && shard >= cluster_first_shard(t->c, rank) &&
           shard < cluster_first_shard(t->c, rank + 1) && exchange_uses(t, shard);
}

/* Numbers of a shard under way: their item is place and shard. */
static chan_part numbers_place(const exchange *t, int rank, uint32_t item)
{
    uint32_t shards = (uint32_t)t->s->shards;
    double *to = NULL;
    int64_t n = 0;

    if (t->together && is_theirs(t, rank, item % shards))
        to = lockstep_find(t->s->lockstep, item / shards, item % shards, t->flag, &n);
    return (chan_part){to, (size_t)n * sizeof *to};
}

/* The place of a message among those of a step (cluster_heard_bits), numbers
 * aside, which lockstep.h keeps account of. It is one that is expected. */
static size_t bit_of(const exchange *t, int rank, const frame *f)
{
    const manta_cluster *c = t->c;
    int64_t gradients = t->s->shards * cluster_pieces(c, c->rank), sums = gradients + t->s->shards;

    if (f->kind == CLUSTER_GRADIENTS) return f->item;
    if (f->kind == CLUSTER_REST) return (size_t)(gradients + f->item);
    if (f->kind == CLUSTER_SUM) return (size_t)(sums + cluster_first_block(c, rank) + f->item);
    return (size_t)(sums + t->s->l.param_blocks + (f->kind == CLUSTER_VERDICT));
}

static bool is_heard(const exchange *t, int rank, const frame *f)
{
    size_t bit = bit_of(t, rank, f);

    return f->kind != CLUSTER_NUMBERS && t->c->heard[bit / 8] >> bit % 8 & 1;
}

static void note_heard(exchange *t, int rank, const frame *f)
{
    size_t bit = bit_of(t, rank, f);

    t->c->heard[bit / 8] = (unsigned char)(t->c->heard[bit / 8] | 1U << bit % 8);
}

void exchange_forget(exchange *t)
{
    memset(t->c->heard, 0, cluster_heard_bits(t->c) / 8 + 1);
}

/* What each rank has to send in this step. */
void exchange_expect(exchange *t)
{
    manta_cluster *c = t->c;

    exchange_forget(t);
    for (int r = 0; r < c->n; r++) {
        int n = 0;
        if (r == c->rank) continue;
        for (int64_t v = cluster_first_shard(c, r); v < cluster_first_shard(c, r + 1); v++)
            n += exchange_uses(t, v);
        c->peers[r].waits = n;
        c->peers[r].got = 0;
        if (t->train) c->peers[r].waits += n * (int)cluster_pieces(c, c->rank) + (int)cluster_pieces(c, r);
        if (t->train && !r) c->peers[r].waits++; /* the chief's learning rate */
    }
}

/* Where the bytes of a message belong; MANTA_ECORRUPT when it is none that is
 * expected from this rank, or has come before. */
static manta_status place_of(exchange *t, int rank, const frame *f, chan_part *out)
{
    manta_cluster *c = t->c;
    bool theirs = is_theirs(t, rank, f->item);
    int64_t own = cluster_pieces(c, c->rank);

    *out = (chan_part){0};
    if (f->kind == CLUSTER_NUMBERS) *out = numbers_place(t, rank, f->item);
    if (f->kind == CLUSTER_GRADIENTS && t->train && own && is_theirs(t, rank, f->item / own))
        *out = piece_of(t, grads_of(t, f->item / own), c->rank, f->item % own);
    if (f->kind == CLUSTER_REST && theirs) *out = rest_of(t, f->item);
    if (f->kind == CLUSTER_RATE && t->train && !rank) *out = (chan_part){&c->rate, sizeof c->rate};
    if (f->kind == CLUSTER_VERDICT && t->deciding && !rank)
        *out = (chan_part){&c->verdict, sizeof c->verdict};
    if (f->kind == CLUSTER_SUM && t->train && f->item < cluster_pieces(c, rank))
        *out = piece_of(t, c->sum, rank, f->item);
    if (out->data && f->length == out->n && !is_heard(t, rank, f)) return MANTA_OK;
    if (out->data && f->length == out->n)
        return manta_fail(MANTA_ECORRUPT, "%s sent message %u, item %u, of step %llu twice",
                          c->peers[rank].node, f->kind, f->item, (unsigned long long)f->step);
    return manta_fail(MANTA_ECORRUPT, "%s: message %u, item %u, of %llu bytes is not part of the step",
                      c->peers[rank].node, f->kind, f->item, (unsigned long long)f->length);
}

/* Receives what is here from a rank; at most as many messages as are awaited. */
static manta_status receive_from(exchange *t, int rank)
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
            return (st = cluster_read_failure(c, rank, p->c)) == MANTA_EBUSY ? MANTA_OK : st;
        if (f.step != t->number)
            st = manta_fail(MANTA_ECORRUPT, "%s sent a message of step %llu: expected one of step %llu",
                            p->node, (unsigned long long)f.step, (unsigned long long)t->number);
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
        note_heard(t, rank, &f);
        if (f.kind == CLUSTER_GRADIENTS) c->pieces[f.item % cluster_pieces(c, c->rank)]++;
        p->waits--;
    }
    return MANTA_OK;
}

manta_status exchange_receive(exchange *t)
{
    for (int r = 0; r < t->c->n; r++) {
        if (r != t->c->rank) TRY(receive_from(t, r));
    }
    return MANTA_OK;
}

/* Whom we wait for, for people: "worker/1 (b:4711) at step 3 of epoch 1". */
static void name_awaited(const exchange *t, int rank, char *out, size_t size)
{
    const manta_cluster *c = t->c;
    int64_t quiet = chan_quiet_ms(c->peers[rank].c);
    char how[80] = "";
    int heard = 0;

    for (int r = 0; r < c->n; r++) heard += r != c->rank && chan_quiet_ms(c->peers[r].c) < HEARD_MS;
    if (quiet >= HEARD_MS)
        snprintf(how, sizeof how, ", of which nothing is heard for %.0f s%s", (double)quiet / 1e3,
                 heard || c->n < 3 ? "" : ", nor of anybody else: is this host cut off?");
    snprintf(out, size, "waiting for %s (%s) at step %lld of epoch %lld%s%s", c->peers[rank].node,
             c->peers[rank].address, (long long)c->at.step + 1, (long long)c->at.epoch + 1,
             t->train ? "" : " (evaluation)", how);
}

/* Whom we wait for, and how long: said after a while. */
manta_status exchange_say_waiting(exchange *t, int64_t begin, int64_t *said)
{
    manta_cluster *c = t->c;
    int64_t now = clock_now_ns(), ms = (now - begin) / 1000000;
    char text[TCP_TEXT + 300];
    int who;

    if (ms < CLUSTER_TICK_MS) return MANTA_OK;
    for (int r = 0; r < c->n; r++)
        c->awaited[r] = r != c->rank && (c->peers[r].waits || chan_unsent(c->peers[r].c));
    if ((who = cluster_blame(c, c->awaited)) < 0) return MANTA_OK;
    cluster_say_awaited(c, who);
    name_awaited(t, who, text, sizeof text);
    if (c->timeout_ms >= 0 && ms > c->timeout_ms)
        return manta_fail(MANTA_ETIMEDOUT, "%s: nothing has come for %.0f s", text, (double)ms / 1e3);
    if (ms > SAY_AFTER_MS && now - *said > (int64_t)SAY_EVERY_MS * 1000000) {
        log_info("a rank is silent", LOG_STR("state", text), LOG_F64("seconds", (double)ms / 1e3));
        *said = now;
    }
    if (c->watch && !c->watch(c->ctx, text, who, (double)ms))
        return manta_fail(MANTA_ECANCELLED, "stopped on request while %s", text);
    return MANTA_OK;
}

/* ---- sending ---- */

/* Waits for room where there is none; meanwhile what comes is taken, since the
 * other side may be waiting for that. */
manta_status exchange_post(exchange *t, int rank, uint16_t kind, int64_t item, chan_part part)
{
    chan *to = t->c->peers[rank].c;
    frame f = {.kind = kind, .step = t->number, .item = (uint32_t)item};
    int64_t begin = 0, said = 0;
    manta_status st;

    while ((st = chan_post(to, &f, &part, 1, true)) == MANTA_EBUSY) {
        if (!begin) begin = clock_now_ns();
        TRY(exchange_receive(t));
        TRY(exchange_say_waiting(t, begin, &said));
        TRY(cluster_pump(t->c, clock_deadline(CLUSTER_TICK_MS)));
    }
    if (cluster_echo_plan.kind == kind && !--cluster_echo_plan.nth) st = chan_post(to, &f, &part, 1, true);
    return st ? cluster_lose(t->c, rank) : MANTA_OK;
}

static manta_status post_all(exchange *t, uint16_t kind, int64_t item, chan_part part)
{
    manta_cluster *c = t->c;

    for (int i = 1; i < c->n; i++) TRY(exchange_post(t, (c->rank + i) % c->n, kind, item, part));
    return MANTA_OK;
}

/* Gives the sockets what they take. */
static manta_status flush_some(exchange *t)
{
    for (int r = 0; r < t->c->n; r++) {
        if (r != t->c->rank && chan_work(t->c->peers[r].c)) return cluster_lose(t->c, r);
    }
    return MANTA_OK;
}

void exchange_begin_shard(exchange *t, int64_t shard)
{
    t->shard = (int)shard;
    t->piece_rank = t->c->n - 1;
    t->piece = cluster_pieces(t->c, t->piece_rank) - 1;
}

/* Posts the shard's pieces that lie from element `from` on. */
static manta_status send_pieces(exchange *t, int64_t from)
{
    manta_cluster *c = t->c;

    while (t->piece_rank >= 0) {
        int r = t->piece_rank;
        int64_t lo = (cluster_first_block(c, r) + t->piece * cluster_piece) * LAYOUT_BLOCK;
        if (t->piece < 0) {
            t->piece_rank--;
            t->piece = r ? cluster_pieces(c, r - 1) - 1 : -1;
            continue;
        }
        if (lo < from) break;
        if (r == c->rank) {
            c->pieces[t->piece]++;
        } else {
            TRY(exchange_post(t, r, CLUSTER_GRADIENTS, t->shard * cluster_pieces(c, r) + t->piece,
                              piece_of(t, grads_of(t, t->shard), r, t->piece)));
        }
        t->piece--;
    }
    return MANTA_OK;
}

/* What adding pieces needs: where the slots are. Their counts are not known yet. */
void exchange_begin_sum(exchange *t)
{
    manta_cluster *c = t->c;

    t->unsummed = cluster_pieces(c, c->rank);
    memset(c->pieces, 0, (size_t)t->unsummed * sizeof *c->pieces);
    step_begin(t->s, t->s->state);
}

static void sum_piece(exchange *t, int64_t k)
{
    int64_t lo = cluster_first_block(t->c, t->c->rank) + k * cluster_piece,
            end = cluster_first_block(t->c, t->c->rank + 1);

    step_reduce(t->s, lo, lo + cluster_piece < end ? lo + cluster_piece : end, t->c->sum);
    t->c->pieces[k] = -1;
    t->unsummed--;
}

/* Adds those of our pieces that all shards have given, and sends the sums. */
static manta_status sum_pieces(exchange *t)
{
    manta_cluster *c = t->c;

    for (int64_t k = cluster_pieces(c, c->rank) - 1; k >= 0; k--) {
        if (c->pieces[k] != t->s->n_used) continue;
        cluster_crash(CLUSTER_CRASH_SHARDS_HEARD);
        sum_piece(t, k);
        TRY(post_all(t, CLUSTER_SUM, k, piece_of(t, c->sum, c->rank, k)));
        cluster_crash(CLUSTER_CRASH_SUM_POSTED);
        if (crash_is_planned(&cluster_crash_points[CLUSTER_CRASH_SUM_SENT]))
            (void)chan_work(c->peers[!c->rank].c);
        cluster_crash(CLUSTER_CRASH_SUM_SENT);
    }
    return MANTA_OK;
}

/* The end of a shard: what is left of it. */
manta_status exchange_send_shard(exchange *t, int64_t shard)
{
    if (t->train) TRY(send_pieces(t, 0));
    TRY(post_all(t, CLUSTER_REST, shard, rest_of(t, shard)));
    return flush_some(t);
}

/* Whether a rank has a shard with samples. */
static bool rank_computes(const exchange *t, int rank)
{
    for (int64_t v = cluster_first_shard(t->c, rank); v < cluster_first_shard(t->c, rank + 1); v++) {
        if (exchange_uses(t, v)) return true;
    }
    return false;
}

/* What a shard has left at batch norms goes to all who wait there; *moved: something. */
manta_status exchange_send_numbers(exchange *t, int shard, bool *moved)
{
    manta_cluster *c = t->c;
    lockstep_numbers left;

    while (lockstep_take_left(t->s->lockstep, shard, &left)) {
        int64_t item = (int64_t)left.place * t->s->shards + shard;
        chan_part part = {left.values, (size_t)left.n * sizeof *left.values};
        *moved = true;
        for (int i = 1; i < c->n; i++) {
            int r = (c->rank + i) % c->n;
            if (rank_computes(t, r)) TRY(exchange_post(t, r, CLUSTER_NUMBERS, item, part));
        }
        TRY(flush_some(t));
        cluster_crash(CLUSTER_CRASH_NUMBERS_SENT);
    }
    return MANTA_OK;
}

/* Until every rank has sent what it has to; with `flush` also until ours is sent. */
manta_status exchange_await(exchange *t, bool flush)
{
    manta_cluster *c = t->c;
    int64_t begin = clock_now_ns(), said = 0, last = INT64_MAX;

    for (;;) {
        int64_t left = 0;
        bool all = true;
        TRY(exchange_receive(t));
        if (t->unsummed) TRY(sum_pieces(t));
        for (int r = 0; r < c->n; r++) {
            const cluster_peer *p = &c->peers[r];
            if (r == c->rank) continue;
            left += p->waits + chan_unsent(p->c);
            all &= !p->waits && !(flush && chan_unsent(p->c));
        }
        if (all && !t->unsummed) {
            cluster_say_awaited(c, -1);
            return MANTA_OK;
        }
        if (left != last) begin = clock_now_ns();
        last = left;
        TRY(exchange_say_waiting(t, begin, &said));
        TRY(cluster_pump(c, CLOCK_NEVER));
    }
}

/* Between two nodes of backward: what is settled goes, what has come is taken
 * and added. */
void exchange_look_around(void *ctx, int64_t from)
{
    exchange *t = ctx;

    if (!t->st) t->st = send_pieces(t, from);
    if (!t->st) t->st = exchange_receive(t);
    if (!t->st) t->st = sum_pieces(t);
    if (!t->st) t->st = flush_some(t);
}
