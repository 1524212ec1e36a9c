/* rendezvous_lobby.c - those who have called and not yet shown who they are.
 *
 *     listener ── accept ──▶ lobby[0..n_lobby), in the order of arrival
 *                              ├── the channel is open ──▶ rendezvous_judge() ──▶ a node, or refused:
 *                              │                                                 one of its name is here
 *                              └── it fails, or is the oldest of a full lobby ──▶ turned away
 *
 * Nobody in the lobby has cost more than a connection and a handshake under way, and it has r->room
 * places: strangers by the thousand push each other out, not the nodes that are here.
 *
 * What is learned from who is turned away: without a proven key only a doubt about the node whose name
 * it used (anybody can); with one, that this node is of another job or has other words, which is why
 * a meeting may end (rendezvous_policy.c). The first that is turned away is said at once and so is what
 * is new of a node with the key; else a count, ever more seldom. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/rendezvous_inner.h"

enum {
    DEAF_MS = 200, /* of a listener whose connections cannot be taken */
    SAY_MS = 10000, /* how many were turned away is said so often, and then ever more seldom */
    SAY_MOST_MS = 600000,
};

static void leave_lobby(rendezvous *r, int i)
{
    r->n_lobby--;
    memmove(&r->lobby[i], &r->lobby[i + 1], sizeof *r->lobby * (size_t)(r->n_lobby - i));
}

void rendezvous_say_turned(rendezvous *r, const char *last)
{
    if (!r->unsaid) return;
    log_warn("more connections were turned away", LOG_INT("count", r->unsaid), LOG_INT("in all", r->turned),
             LOG_STR("the last", last ? last : ""));
    r->unsaid = 0;
    r->pause_ms = r->pause_ms < SAY_MOST_MS / 2 ? 2 * r->pause_ms : SAY_MOST_MS;
    r->say_ns = clock_deadline(r->pause_ms);
}

/* The first is said at once, and so is what is new of a node that has shown the key; else
 * how many there were, now and then. */
static void count_turned(rendezvous *r, bool is_new)
{
    if (!r->turned++ || is_new) {
        log_warn("a connection was turned away", LOG_STR("why", manta_error_text()));
        if (r->pause_ms) return;
        r->pause_ms = SAY_MS;
        r->say_ns = clock_deadline(SAY_MS);
        return;
    }
    r->unsaid++;
    if (clock_now_ns() >= r->say_ns) rendezvous_say_turned(r, manta_error_text());
}

/* What is to be learned from somebody who is turned away, because of the thread's last error. */
static bool note_refusal(rendezvous *r, const chan *c, manta_status st)
{
    int i = rendezvous_find(r, chan_claims(c));
    node *n = i < 0 ? NULL : &r->nodes[i];
    manta_error before;

    if (!n) return false;
    if (!chan_is_proven(c)) {
        n->doubted |= st == MANTA_EPERM;
        return false;
    }
    if (n->called) return false;
    if (st != MANTA_EPERM) return false; /* it has gone by itself */
    n->unfit |= !strcmp(chan_peer(c)->job, r->job);
    before = n->why;
    rendezvous_note_why(n, c);
    return strcmp(before.text, n->why.text) != 0;
}

static void turn_away(rendezvous *r, int i, manta_status st)
{
    count_turned(r, note_refusal(r, r->lobby[i], st));
    chan_close(r->lobby[i]);
    leave_lobby(r, i);
}

void rendezvous_accept(rendezvous *r)
{
    manta_status st;
    chan *came;

    while (!(st = chan_accept(r->end, r->listener, &came))) {
        if (r->n_lobby == r->room) { /* who came first has had the most time */
            (void)!manta_fail(MANTA_EBUSY, "%s has not shown who it is while %d others came",
                              chan_name(r->lobby[0]), r->room);
            turn_away(r, 0, MANTA_EBUSY);
        }
        r->lobby[r->n_lobby++] = came;
    }
    if (st == MANTA_EBUSY) return;
    log_warn("no connection is taken for a while", LOG_STR("why", manta_error_text()));
    r->listen_ns = clock_deadline(DEAF_MS);
}

/* Whether the stranger at i has left the lobby, as a node or for good. */
static bool tend_stranger(rendezvous *r, int i)
{
    chan *c = r->lobby[i];
    rendezvous_verdict v;
    manta_status st;
    node *n;

    if ((st = chan_work(c))) {
        turn_away(r, i, st);
        return true;
    }
    if (!chan_is_open(c)) return false;
    n = &r->nodes[rendezvous_find(r, chan_peer(c)->node)]; /* check_hello() has found it */
    v = rendezvous_judge((rendezvous_claim){
        .known = true, .called = n->called, .came = true, .there = n->here || n->taken, .once = r->once});
    if (v != RENDEZVOUS_ADMIT && v != RENDEZVOUS_REPLACE) {
        (void)!rendezvous_fail_claim(r, v, n->name);
        count_turned(r, false); /* of the node it says nothing: this may be its probe */
        chan_close(c);
        leave_lobby(r, i);
        return true;
    }
    leave_lobby(r, i);
    rendezvous_arrive(r, n, c);
    return true;
}

void rendezvous_tend_lobby(rendezvous *r)
{
    for (int i = 0; i < r->n_lobby;) i += !tend_stranger(r, i);
}
