/* cluster_sync.c - one state for all ranks of a cluster, after they have met.
 *
 *   words of all ranks --> the furthest place wins; of several equally far ones the
 *                          lowest rank is the holder
 *     equally far, other digest   the run ends: the ranks were started differently
 *     behind                      copies the holder's state
 *     the holder                  sends it to those that are behind, one after the other
 *
 * Every rank decides this for itself, from the same words, so nobody has to be asked. A
 * state is received into memory apart and compared with the digest that its sender said:
 * what a rank has stays whole until all of the other is here. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/cluster/cluster.h"

static int compare_places(const cluster_at *a, const cluster_at *b)
{
    const int64_t x[] = {a->call, a->iterations, a->epoch, a->phase, a->step};
    const int64_t y[] = {b->call, b->iterations, b->epoch, b->phase, b->step};

    for (int i = 0; i < 5; i++) {
        if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
    }
    return 0;
}

uint32_t cluster_weights_digest(const manta_cluster *c)
{
    return crc32c(0, c->s->state, c->s->l.off_run);
}

/* What two ranks that are equally far have in common. Before the first step of an epoch
 * one may have begun it, and the other come with the checkpoint of the end of the last:
 * sums, place and rate are what the beginning makes of them. The sums of an evaluation
 * count while it goes on. */
static uint32_t digest_at(const manta_cluster *c, const cluster_at *at)
{
    const manta_session *s = c->s;
    const run_state *run = layout_run(&s->l, s->state);
    uint32_t crc = cluster_weights_digest(c);

    if (at->phase == CLUSTER_TRAIN && at->step == 0) {
        const int64_t common[] = {run->calls, run->position, (int64_t)run->seed};
        return crc32c(crc, common, sizeof common);
    }
    crc = crc32c(crc, run, s->l.state_size - s->l.off_run);
    if (at->phase != CLUSTER_EVALUATE) return crc;
    return crc32c(crc, s->eval_sums, ((size_t)s->l.n_sums + 1) * sizeof(double));
}

uint32_t cluster_digest(const manta_cluster *c)
{
    return digest_at(c, &c->at);
}

static manta_status await_sent(manta_cluster *c, int rank, int64_t deadline)
{
    while (chan_unsent(c->peers[rank].c)) {
        if (clock_now_ns() >= deadline) {
            (void)!manta_fail(MANTA_ETIMEDOUT, "%s has not taken the state in %.0f s", c->peers[rank].node,
                              (double)c->timeout_ms / 1e3);
            return cluster_lose(c, rank);
        }
        TRY(cluster_pump(c, deadline));
    }
    return MANTA_OK;
}

static manta_status send_state(manta_cluster *c, int rank, int64_t deadline)
{
    manta_session *s = c->s;
    chan_part parts[3] = {{&c->word, sizeof c->word},
                          {s->eval_sums, ((size_t)s->l.n_sums + 1) * sizeof(double)},
                          {s->state, s->l.state_size}};

    log_info("a rank receives the state", LOG_STR("node", c->peers[rank].node));
    if (chan_post(c->peers[rank].c, &(frame){.kind = CLUSTER_SYNC}, parts, 3, true))
        return cluster_lose(c, rank);
    cluster_crash(CLUSTER_CRASH_SYNC_POSTED);
    return await_sent(c, rank, deadline);
}

/* Receives into memory apart: what we have stays whole until all of it is here. */
static manta_status receive_state(manta_cluster *c, int rank, int64_t deadline)
{
    manta_session *s = c->s;
    cluster_peer *p = &c->peers[rank];
    size_t sums = ((size_t)s->l.n_sums + 1) * sizeof(double),
           size = sizeof(cluster_word) + sums + s->l.state_size;
    size_t n = 0, got;
    cluster_word w;
    char *copy;
    frame f = {0};
    manta_status st = mem_try_array(1, size, "a copy of the state", (void **)&copy);

    if (st) return st;
    p->waits = 1;
    while (n < size) {
        if (!f.kind) {
            st = chan_peek(p->c, &f);
            if (!st && (f.kind != CLUSTER_SYNC || f.length != size))
                st = manta_fail(MANTA_ECORRUPT, "%s: message %u of %llu bytes, expected the state of %zu",
                                p->node, f.kind, (unsigned long long)f.length, size);
        }
        if (f.kind && !st && !(st = chan_take(p->c, copy + n, size - n, &got))) n += got;
        if (st && st != MANTA_EBUSY) {
            st = cluster_lose(c, rank);
            goto out;
        }
        st = MANTA_OK;
        if (n < size && clock_now_ns() >= deadline) {
            (void)!manta_fail(MANTA_ETIMEDOUT, "%s has not sent the state in %.0f s", p->node,
                              (double)c->timeout_ms / 1e3);
            st = cluster_lose(c, rank);
            goto out;
        }
        if (n < size && (st = cluster_pump(c, deadline))) goto out;
    }
    p->waits = 0;
    cluster_crash(CLUSTER_CRASH_SYNC_HEARD);
    memcpy(&w, copy, sizeof w);
    memcpy(s->eval_sums, copy + sizeof w, sums);
    memcpy(s->state, copy + sizeof w + sums, s->l.state_size);
    if (digest_at(c, &w.at) != w.digest) {
        st = manta_fail(MANTA_ECORRUPT, "the state that %s sent is not what it says it is", p->node);
        c->at = (cluster_at){.call = -1}; /* whatever this is, it does not count */
        goto out;
    }
    c->at = w.at;
    s->touched = true;
out:
    mem_try_free(copy);
    return st;
}

/* ---- the same settings ---- */

/* What a rank says of its settings (`work` false) or of its call, and in how many bytes. */
static const char *words_of(const manta_cluster *c, int rank, bool work, size_t *n)
{
    const cluster_word *w = rank == c->rank ? &c->word : &c->peers[rank].word;

    if (work) {
        *n = w->n_work < sizeof w->work ? w->n_work : sizeof w->work;
        return w->work;
    }
    *n = rank == c->rank ? c->settings.n : chan_peer(c->peers[rank].c)->n_word;
    return rank == c->rank ? c->settings.text : (const char *)chan_peer(c->peers[rank].c)->word;
}

static bool says_the_same(const manta_cluster *c, int a, int b, bool work)
{
    size_t na, nb;
    const char *x = words_of(c, a, work, &na), *y = words_of(c, b, work, &nb);

    return na == nb && !memcmp(x, y, na);
}

/* Of the ranks of this call the one whose settings most have; of several the lowest. */
static int most_common(const manta_cluster *c, int64_t call, bool work)
{
    int best = -1, most = 0;

    for (int r = 0; r < c->n; r++) {
        int n = 0;
        if ((r == c->rank ? &c->word : &c->peers[r].word)->at.call != call) continue;
        for (int k = 0; k < c->n; k++) n += says_the_same(c, r, k, work);
        if (n > most) {
            best = r;
            most = n;
        }
    }
    return best;
}

/* Whether all that are in this call were started alike. All ranks compare the same words, and so
 * end with the same sentence, which names the one that differs from most. */
static manta_status compare_words(manta_cluster *c, int64_t call, bool work)
{
    int right = most_common(c, call, work);

    for (int r = 0; r < c->n && right >= 0; r++) {
        char who[TCP_TEXT + SECURE_NODE + 8];
        size_t n, n_right;
        const char *text, *good;
        if ((r == c->rank ? &c->word : &c->peers[r].word)->at.call != call ||
            says_the_same(c, r, right, work))
            continue;
        c->differ = true;
        text = words_of(c, r, work, &n);
        good = words_of(c, right, work, &n_right);
        snprintf(who, sizeof who, "%s (%s)", c->peers[r].node, c->peers[r].address);
        TRY(agreement_compare(who, text, n, c->peers[right].node, good, n_right));
        return manta_fail(MANTA_EPERM, "%s is at another training than %s: it has settings besides", who,
                          c->peers[right].node);
    }
    return MANTA_OK;
}

/* Of ranks that are equally far; who is behind takes over the seed with the state. */
static manta_status compare_seeds(manta_cluster *c, int holder)
{
    const cluster_word *best = holder == c->rank ? &c->word : &c->peers[holder].word;

    for (int r = 0; r < c->n; r++) {
        const cluster_word *w = r == c->rank ? &c->word : &c->peers[r].word;
        if (compare_places(&w->at, &best->at) || w->seed == best->seed) continue;
        c->differ = true;
        return manta_fail(MANTA_EPERM, "%s (%s) is at another training than %s: its seed is %llu, not %llu",
                          c->peers[r].node, c->peers[r].address, c->peers[holder].node,
                          (unsigned long long)w->seed, (unsigned long long)best->seed);
    }
    return MANTA_OK;
}

/* ---- the furthest state ---- */

/* The furthest wins; ranks that are equally far must have the same state. */
manta_status cluster_agree(manta_cluster *c)
{
    int64_t deadline = clock_deadline(c->timeout_ms);
    const cluster_word *best = &c->word;
    uint64_t generation = c->generation;
    int holder = c->rank;

    for (int r = 0; r < c->n; r++) {
        const cluster_word *w = r == c->rank ? &c->word : &c->peers[r].word;
        int order = compare_places(&w->at, &best->at);
        if (w->generation > generation) generation = w->generation;
        if (order > 0 || (!order && r < holder)) {
            best = w;
            holder = r;
        }
    }
    TRY(compare_words(c, best->at.call, false));
    TRY(compare_seeds(c, holder));
    TRY(compare_words(c, best->at.call, true));
    for (int r = 0; r < c->n; r++) {
        const cluster_word *w = r == c->rank ? &c->word : &c->peers[r].word;
        if (compare_places(&w->at, &best->at) || w->digest == best->digest) continue;
        return manta_fail(
            MANTA_EINVAL,
            "%s and %s are both at iteration %lld with different weights: start all processes with "
            "the same --seed, --weights and program",
            c->peers[holder].node, c->peers[r].node, (long long)best->at.iterations);
    }
    cluster_find_culprit(c);
    c->generation = generation + 1;
    for (int r = 0; r < c->n; r++) {
        if (c->peers[r].c) chan_set_generation(c->peers[r].c, (uint32_t)c->generation);
    }
    c->met = true;
    c->number = 0;
    c->lost = -1;
    if (holder != c->rank && compare_places(&c->word.at, &best->at) < 0)
        return receive_state(c, holder, deadline);
    for (int r = 0; holder == c->rank && r < c->n; r++) {
        if (r != c->rank && compare_places(&c->peers[r].word.at, &best->at) < 0)
            TRY(send_state(c, r, deadline));
    }
    return MANTA_OK;
}
