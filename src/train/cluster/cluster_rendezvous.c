/* cluster_rendezvous.c - connections between the ranks of a cluster: meeting, and
 * meeting again when one was lost.
 *
 *        +----------------------- a rank is lost, or has come anew <--------+
 *        v                                                                  |
 *   all connections ----> meeting: every rank is ----> agreement on ----> steps, over
 *   are closed            connected and has said       the furthest       connections of
 *        ^                where it is                  state              this generation
 *        |                (net/rendezvous.h)           (cluster_sync.c)     |
 *        +------------ a call begins; the chief goes ahead alone <----------+
 *
 * A rank is a node of the rendezvous, with the same number; of two ranks the higher
 * calls. The word of a hello is the settings of the session, which all must have in
 * common (agreement.h). The greeting is a cluster_word: how far a rank is. It is said anew in every
 * meeting, on a connection that carries generation 0 until all have agreed.
 *
 * While a step is under way the listener and the lobby are attended to as well, so that
 * a rank that was started again is noticed even when the loss of its former process was
 * not. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "train/cluster/cluster.h"

enum { SAY_AFTER_MS = 1000, SAY_EVERY_MS = 10000 };

/* ---- losing and closing ---- */

void cluster_part(manta_cluster *c)
{
    c->met = false;
    for (int r = 0; r < c->n; r++) {
        cluster_peer *p = &c->peers[r];
        chan_close(p->c);
        p->c = NULL;
        p->done = false;
        p->waits = 0;
        p->got = 0;
        if (c->meeting) rendezvous_miss(c->meeting, r);
    }
}

manta_status cluster_lose(manta_cluster *c, int rank)
{
    snprintf(c->cause, sizeof c->cause, "%s", manta_error_text());
    c->lost = rank;
    return MANTA_EDIED;
}

manta_status cluster_read_failure(manta_cluster *c, int rank, chan *from)
{
    cluster_peer *p = &c->peers[rank];
    manta_status st;
    manta_error e;
    size_t got;
    frame f;

    TRY(chan_peek(from, &f));
    if (chan_left(from) != sizeof e && !p->got)
        return manta_fail(MANTA_ECORRUPT, "%s: an error of %llu bytes, expected %zu", chan_name(from),
                          (unsigned long long)chan_left(from), sizeof e);
    while (p->got < sizeof e) {
        TRY(chan_take(from, (char *)&c->failure + p->got, sizeof e - p->got, &got));
        if (!got) return MANTA_EBUSY;
        p->got += got;
    }
    e = c->failure;
    e.text[sizeof e.text - 1] = '\0';
    for (char *s = e.text; *s; s++) {
        if (*s < ' ') *s = ' ';
    }
    c->failed = true;
    st = e.code > MANTA_OK && e.code <= MANTA_EINTERRUPTED ? e.code : MANTA_EDIED;
    return f.item == CLUSTER_SAID_OF_ALL ? manta_fail(st, "%s", e.text)
                                         : manta_fail(st, "%s has given up: %s", p->node, e.text);
}

manta_status cluster_pump(manta_cluster *c, int64_t deadline)
{
    int64_t tick = clock_deadline(CLUSTER_TICK_MS);

    for (int r = 0; r < c->n; r++)
        c->items[r] = (chan_item){.c = c->peers[r].c, .read = c->peers[r].waits > 0};
    (void)rendezvous_wait(c->meeting, c->items, c->n, NULL, 0, deadline < tick ? deadline : tick);
    for (int r = 0; r < c->n; r++) {
        if (c->peers[r].c && chan_work(c->peers[r].c)) return cluster_lose(c, r);
    }
    for (int r = 0; r < c->n; r++) {
        if (!rendezvous_is_here(c->meeting, r)) continue;
        (void)!manta_fail(MANTA_EDIED, "%s (%s): it was started again, or has lost its connection",
                          c->peers[r].node, c->peers[r].address);
        return cluster_lose(c, r);
    }
    return MANTA_OK;
}

/* ---- meeting ---- */

/* Says where we are, and hears where the other is. A rank that has given up ends it for
 * all. */
static manta_status exchange_words(void *ctx, int rank, chan *with, bool first, bool *done)
{
    manta_cluster *c = ctx;
    cluster_peer *p = &c->peers[rank];
    chan_part part = {&c->word, sizeof c->word};
    manta_status st;
    size_t got;
    frame f;

    if (first) {
        p->got = 0;
        TRY(chan_post(with, &(frame){.kind = CLUSTER_STATE}, &part, 1, false));
        TRY(chan_work(with));
    }
    st = chan_peek(with, &f);
    if (st == MANTA_EBUSY) return MANTA_OK;
    TRY(st);
    if (f.kind == CLUSTER_FAILED) {
        st = cluster_read_failure(c, rank, with);
        *done = c->failed;
        return st == MANTA_EBUSY ? MANTA_OK : st;
    }
    if (f.kind != CLUSTER_STATE || f.length != sizeof p->word)
        return manta_fail(MANTA_ECORRUPT, "%s: message %u of %llu bytes while all meet, expected %u of %zu",
                          chan_name(with), f.kind, (unsigned long long)f.length, CLUSTER_STATE,
                          sizeof p->word);
    TRY(chan_take(with, (char *)&p->word + p->got, sizeof p->word - p->got, &got));
    p->got += got;
    *done = p->got == sizeof p->word;
    return MANTA_OK;
}

/* A rank that was heard has left while others are still missing: it may have said why. */
static manta_status hear_last_words(void *ctx, int rank, chan *with)
{
    manta_cluster *c = ctx;
    manta_status st;
    frame f;

    if (chan_peek(with, &f) || f.kind != CLUSTER_FAILED) return MANTA_OK; /* it is met again */
    c->peers[rank].got = 0;
    st = cluster_read_failure(c, rank, with);
    return st == MANTA_EBUSY ? MANTA_OK : st;
}

/* We leave: whoever is here is told why, in our words. */
static void say_last_words(void *ctx, int rank, chan *with)
{
    manta_cluster *c = ctx;
    chan_part part = {&c->failure, sizeof c->failure};

    (void)rank;
    manta_error_get(&c->failure); /* ours, or what we were told: the one it was may be gone */
    if (c->failure.code == MANTA_ECANCELLED || c->failure.code == MANTA_ETIMEDOUT) return;
    (void)!chan_post(with, &(frame){.kind = CLUSTER_FAILED, .item = CLUSTER_SAID_OF_ALL}, &part, 1, false);
}

static manta_status watch_meeting(void *ctx, const char *missing, int rank, double ms)
{
    manta_cluster *c = ctx;

    rendezvous_note(c->meeting, (uint32_t)rank + 1);
    if (ms > SAY_AFTER_MS && ms > c->say_ms) {
        log_info("not all are here", LOG_STR("missing", missing));
        c->say_ms = ms + SAY_EVERY_MS;
    }
    if (c->watch && !c->watch(c->ctx, missing, rank, ms))
        return manta_fail(MANTA_ECANCELLED, "stopped on request while %s", missing);
    return MANTA_OK;
}

/* Until everybody is connected and has said where it is. */
static manta_status gather_ranks(manta_cluster *c)
{
    rendezvous_meeting m = {.timeout_ms = c->timeout_ms,
                            .strict = !c->generation,
                            .greet = exchange_words,
                            .last_words = hear_last_words,
                            .part = say_last_words,
                            .watch = watch_meeting,
                            .ctx = c};

    c->say_ms = 0;
    TRY(rendezvous_meet(c->meeting, 0, c->n, &m));
    for (int r = 0; r < c->n; r++) {
        c->peers[r].c = rendezvous_take(c->meeting, r);
        c->peers[r].got = 0;
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
        c->word.lost = c->lost;
        if (c->lost >= 0) snprintf(c->word.cause, sizeof c->word.cause, "%.190s", c->cause);
        c->word.seed = layout_run(&c->s->l, c->s->state)->seed;
        c->word.n_work = (uint32_t)c->work.n;
        memcpy(c->word.work, c->work.text, c->work.n);
        rendezvous_say(c->meeting, c->generation, c->settings.text, c->settings.n);
        TRY(gather_ranks(c));
        cluster_crash(CLUSTER_CRASH_MEET_GATHERED);
        st = cluster_agree(c);
        if (st != MANTA_EDIED || c->lost < 0) return st;
        log_info("a rank was lost while all met", LOG_STR("cause", c->cause));
    }
}
