/* rendezvous_lobby.c - those who have called and not yet shown who they are. */
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "net/rendezvous_inner.h"

enum { DEAF_MS = 200 }; /* of a listener whose connections cannot be taken */

static void leave_lobby(rendezvous *r, int i)
{
    r->n_lobby--;
    memmove(&r->lobby[i], &r->lobby[i + 1], sizeof *r->lobby * (size_t)(r->n_lobby - i));
}

static void turn_away(rendezvous *r, int i)
{
    log_warn("a connection was turned away", LOG_STR("why", manta_error_text()));
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
            turn_away(r, 0);
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
    node *n;

    if (chan_work(c)) {
        turn_away(r, i);
        return true;
    }
    if (!chan_is_open(c)) return false;
    n = &r->nodes[rendezvous_find(r, chan_peer(c)->node)]; /* check_hello() has found it */
    v = rendezvous_judge((rendezvous_claim){
        .known = true, .called = n->called, .came = true, .there = n->here || n->taken, .once = r->once});
    if (v != RENDEZVOUS_ADMIT && v != RENDEZVOUS_REPLACE) {
        (void)!rendezvous_fail_claim(r, v, n->name);
        turn_away(r, i);
        return true;
    }
    leave_lobby(r, i);
    rendezvous_arrive(n, c);
    return true;
}

void rendezvous_tend_lobby(rendezvous *r)
{
    for (int i = 0; i < r->n_lobby;) i += !tend_stranger(r, i);
}
