/* cluster_rendezvous.c - connections between the ranks of a cluster: meeting, and
 * meeting again when one was lost. See cluster.h.
 *
 * Of two ranks the higher one connects. Whoever connects to us first goes to
 * the lobby, where it has to show the key and say hello; only then it is
 * somebody. While a step is under way the lobby is looked after too, so that a
 * rank that was started again is noticed even when the loss of its former
 * process was not. */
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/mem.h"
#include "train/cluster/cluster.h"

enum { RETRY_MS = 20, RETRY_MOST_MS = 1000, SAY_AFTER_MS = 1000 };

/* ---- losing and closing ---- */

static void forget_peer(cluster_peer *p)
{
    chan_close(p->c);
    p->c = NULL;
    p->said = p->heard = p->began = p->done = false;
    p->waits = 0;
    p->got = 0;
}

void cluster_part(manta_cluster *c)
{
    c->met = false;
    for (int r = 0; r < c->n; r++) forget_peer(&c->peers[r]);
}

manta_status cluster_lose(manta_cluster *c, int rank)
{
    snprintf(c->cause, sizeof c->cause, "%s", manta_error_text());
    c->lost = rank;
    return MANTA_EDIED;
}

manta_status cluster_read_failure(manta_cluster *c, int rank)
{
    cluster_peer *p = &c->peers[rank];
    manta_error e;
    size_t got;

    if (chan_left(p->c) != sizeof e && !p->got)
        return manta_fail(MANTA_ECORRUPT, "%s: an error of %llu bytes", chan_name(p->c),
                          (unsigned long long)chan_left(p->c));
    while (p->got < sizeof e) {
        TRY(chan_take(p->c, (char *)&c->failure + p->got, sizeof e - p->got, &got));
        if (!got) return MANTA_EBUSY;
        p->got += got;
    }
    e = c->failure;
    e.text[sizeof e.text - 1] = '\0';
    for (char *s = e.text; *s; s++) {
        if (*s < ' ') *s = ' ';
    }
    c->failed = true;
    return manta_fail(e.code > MANTA_OK && e.code <= MANTA_EINTERNAL ? e.code : MANTA_EDIED,
                      "%s has given up: %s", p->node, e.text);
}

/* ---- the lobby ---- */

static int rank_of(const manta_cluster *c, const char *node)
{
    for (int r = 0; r < c->n; r++) {
        if (r != c->rank && !strcmp(c->peers[r].node, node)) return r;
    }
    return -1;
}

static void leave_lobby(manta_cluster *c, int i)
{
    memmove(&c->lobby[i], &c->lobby[i + 1], sizeof *c->lobby * (size_t)(CLUSTER_LOBBY - 1 - i));
    c->lobby[CLUSTER_LOBBY - 1] = NULL;
}

static void take_in(manta_cluster *c)
{
    chan *came;
    int i;

    while (!chan_accept(c->end, c->listener, &came)) {
        if (c->lobby[CLUSTER_LOBBY - 1]) { /* full: who came first has had the most time */
            chan_close(c->lobby[0]);
            leave_lobby(c, 0);
        }
        for (i = 0; c->lobby[i]; i++) continue;
        c->lobby[i] = came;
    }
}

/* Turns away who has failed to become somebody. */
static void tend_lobby(manta_cluster *c)
{
    for (int i = 0; i < CLUSTER_LOBBY && c->lobby[i];) {
        if (!chan_work(c->lobby[i])) {
            i++;
            continue;
        }
        log_warn("a connection was turned away", LOG_STR("why", manta_error_text()));
        chan_close(c->lobby[i]);
        leave_lobby(c, i);
    }
}

/* Who is somebody takes its place; a former connection of the same rank goes. */
static void promote_lobby(manta_cluster *c)
{
    for (int i = 0; i < CLUSTER_LOBBY && c->lobby[i];) {
        chan *came = c->lobby[i];
        int r = chan_is_open(came) ? rank_of(c, chan_peer(came)->node) : -1;
        if (r < 0) {
            i++;
            continue;
        }
        leave_lobby(c, i);
        forget_peer(&c->peers[r]);
        c->peers[r].c = came;
    }
}

/* Whether a rank that we count as connected has come anew. */
static manta_status look_for_newcomers(manta_cluster *c)
{
    for (int i = 0; i < CLUSTER_LOBBY && c->lobby[i]; i++) {
        int r = chan_is_open(c->lobby[i]) ? rank_of(c, chan_peer(c->lobby[i])->node) : -1;
        if (r < 0) continue;
        (void)!manta_fail(MANTA_EDIED, "%s: it was started again, or has lost its connection",
                          chan_name(c->lobby[i]));
        return cluster_lose(c, r);
    }
    return MANTA_OK;
}

manta_status cluster_pump(manta_cluster *c, int64_t deadline)
{
    struct pollfd door = {.fd = c->listener, .events = POLLIN};
    int64_t tick = clock_deadline(CLUSTER_TICK_MS);

    for (int r = 0; r < c->n; r++)
        c->items[r] = (chan_item){.c = c->peers[r].c, .read = c->peers[r].waits > 0};
    for (int i = 0; i < CLUSTER_LOBBY; i++) c->items[c->n + i] = (chan_item){.c = c->lobby[i]};
    (void)chan_wait(c->items, c->n + CLUSTER_LOBBY, &door, 1, deadline < tick ? deadline : tick);
    if (door.revents) take_in(c);
    tend_lobby(c);
    if (!c->met) return MANTA_OK;
    for (int r = 0; r < c->n; r++) {
        if (c->peers[r].c && chan_work(c->peers[r].c)) return cluster_lose(c, r);
    }
    return look_for_newcomers(c);
}

/* ---- meeting ---- */

static void retry_later(cluster_peer *p)
{
    int64_t ms = RETRY_MS << (p->tries < 8 ? p->tries : 8);

    snprintf(p->why, sizeof p->why, "%s", manta_error_text());
    p->tries++;
    p->retry_ns = clock_deadline(ms < RETRY_MOST_MS ? ms : RETRY_MOST_MS);
}

/* Connects to those of lower rank that are not there. */
static void reach_out(manta_cluster *c)
{
    for (int r = 0; r < c->rank; r++) {
        cluster_peer *p = &c->peers[r];
        tcp_place where;
        if (p->c || clock_now_ns() < p->retry_ns) continue;
        if (tcp_resolve(p->address, &where) || chan_connect(c->end, &where, p->node, &p->c)) retry_later(p);
    }
}

/* Gives our word to a rank that is connected, and takes its own. */
static manta_status exchange_words(manta_cluster *c, int rank)
{
    cluster_peer *p = &c->peers[rank];
    chan_part part = {&c->word, sizeof c->word};
    manta_status st = chan_work(p->c);
    frame f;
    size_t got;

    if (st || !chan_is_open(p->c)) return st;
    p->tries = 0;
    if (!p->said) {
        chan_set_generation(p->c, 0);
        TRY(chan_post(p->c, &(frame){.kind = CLUSTER_STATE}, &part, 1, false));
        p->said = true;
        p->waits = 1;
        TRY(chan_work(p->c));
    }
    if (p->heard) return MANTA_OK;
    st = chan_peek(p->c, &f);
    if (st == MANTA_EBUSY) return MANTA_OK;
    if (st) return st;
    if (f.kind == CLUSTER_FAILED) {
        st = cluster_read_failure(c, rank);
        return st == MANTA_EBUSY ? MANTA_OK : st;
    }
    if (f.kind != CLUSTER_STATE || f.length != sizeof p->word)
        return manta_fail(MANTA_ECORRUPT, "%s: message %u of %llu bytes while all meet", chan_name(p->c),
                          f.kind, (unsigned long long)f.length);
    TRY(chan_take(p->c, (char *)&p->word + p->got, sizeof p->word - p->got, &got));
    p->got += got;
    if (p->got < sizeof p->word) return MANTA_OK;
    p->got = 0;
    p->heard = true;
    p->waits = 0;
    return MANTA_OK;
}

/* "worker/1 (10.0.0.2:4711: Connection refused), worker/2 (...)"; the first
 * missing rank, or -1. */
static int name_missing(const manta_cluster *c, buf *out)
{
    int first = -1, here = 0;

    buf_cut(out, 0);
    for (int r = 0; r < c->n; r++) {
        const cluster_peer *p = &c->peers[r];
        if (r == c->rank || p->heard) continue;
        if (out->n < 300)
            buf_printf(out, "%s%s (%s%s%s)", out->n ? ", " : "waiting for ", p->node, p->address,
                       *p->why ? ": " : "", p->why);
        if (first < 0) first = r;
    }
    for (int r = 0; r < c->n; r++) {
        if (r == c->rank || !c->peers[r].heard || out->n > 400) continue;
        buf_printf(out, "%s%s", here++ ? ", " : "; here are ", c->peers[r].node);
    }
    return first;
}

/* Until everybody is connected and has given its word. */
static manta_status gather_ranks(manta_cluster *c)
{
    int64_t begin = clock_now_ns(), deadline = clock_deadline(c->timeout_ms), said = 0;
    buf missing = {0};
    manta_status st = MANTA_OK;

    for (;;) {
        int64_t wake = deadline, now;
        bool all = true;
        int first;
        reach_out(c);
        promote_lobby(c);
        for (int r = 0; r < c->n && !st; r++) {
            cluster_peer *p = &c->peers[r];
            if (r == c->rank) continue;
            if (p->c && (st = exchange_words(c, r))) {
                if (st == MANTA_EPERM || c->failed) break;
                retry_later(p);
                forget_peer(p);
                st = MANTA_OK;
            }
            all &= p->c && p->heard && !chan_unsent(p->c);
            if (!p->c && r < c->rank && p->retry_ns < wake) wake = p->retry_ns;
        }
        if (st || all) break;
        now = clock_now_ns();
        first = name_missing(c, &missing);
        if (now >= deadline) {
            st = manta_fail(MANTA_ETIMEDOUT, "not all of the cluster have come in %.0f s: %s",
                            (double)(now - begin) / 1e9, buf_text(&missing));
            break;
        }
        if (now - begin > (int64_t)SAY_AFTER_MS * 1000000 && now - said > (int64_t)10000 * 1000000) {
            log_info("not all are here", LOG_STR("missing", buf_text(&missing)));
            said = now;
        }
        if (c->watch && !c->watch(c->ctx, buf_text(&missing), first, (double)(now - begin) / 1e6)) {
            st = manta_fail(MANTA_ECANCELLED, "stopped on request while %s", buf_text(&missing));
            break;
        }
        if ((st = cluster_pump(c, wake))) break;
    }
    buf_release(&missing);
    return st;
}

/* ---- agreeing ---- */

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
            (void)!manta_fail(MANTA_ETIMEDOUT, "%s does not take the state", c->peers[rank].node);
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
                st = manta_fail(MANTA_ECORRUPT, "%s: message %u of %llu bytes instead of the state", p->node,
                                f.kind, (unsigned long long)f.length);
        }
        if (f.kind && !st && !(st = chan_take(p->c, copy + n, size - n, &got))) n += got;
        if (st && st != MANTA_EBUSY) {
            st = cluster_lose(c, rank);
            goto out;
        }
        st = MANTA_OK;
        if (n < size && clock_now_ns() >= deadline) {
            (void)!manta_fail(MANTA_ETIMEDOUT, "%s does not send the state", p->node);
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

/* The furthest wins; ranks that are equally far must have the same state. */
static manta_status agree_on_state(manta_cluster *c)
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
    for (int r = 0; r < c->n; r++) {
        const cluster_word *w = r == c->rank ? &c->word : &c->peers[r].word;
        if (w->at.call == best->at.call && memcmp(w->work, best->work, sizeof w->work)) {
            return manta_fail(MANTA_EINVAL, "%s and %s were started for other work: %.159s, and %.159s",
                              c->peers[holder].node, c->peers[r].node, best->work, w->work);
        }
        if (compare_places(&w->at, &best->at) || w->digest == best->digest) continue;
        return manta_fail(
            MANTA_EINVAL,
            "%s and %s are both at iteration %lld with different weights: start all processes with "
            "the same --seed, --weights and program",
            c->peers[holder].node, c->peers[r].node, (long long)best->at.iterations);
    }
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

manta_status cluster_rendezvous(manta_cluster *c)
{
    for (;;) {
        manta_status st;
        cluster_part(c);
        cluster_crash(CLUSTER_CRASH_MEET_BEGIN);
        c->word = (cluster_word){.generation = c->generation, .at = c->at, .digest = cluster_digest(c)};
        memcpy(c->word.work, c->work, sizeof c->work);
        chan_end_say(c->end, c->generation, c->description, strlen(c->description));
        TRY(gather_ranks(c));
        cluster_crash(CLUSTER_CRASH_MEET_GATHERED);
        st = agree_on_state(c);
        if (st != MANTA_EDIED || c->lost < 0) return st;
        log_info("a rank was lost while all met", LOG_STR("cause", c->cause));
    }
}
