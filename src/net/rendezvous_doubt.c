/* rendezvous_doubt.c - whether a node has another cluster key.
 *
 * Who has another key is told nothing, and can tell nothing. What there is to see of it:
 *
 *   we call it       it closes the connection when it is shown our key
 *   it calls us      somebody calls itself so, with another key: that may be anybody, so it
 *                    is a doubt and no more. Then we call the node's own address, which is
 *                    known, and look at what happens there.
 *
 * So nobody can end a meeting who does not have the address of one of its nodes. And both sides
 * find out, however fast one of them is: who probes does so because it has closed a call of
 * the other, which has seen that before the probe comes, and is given the doubt by it. */
#include "base/clock.h"
#include "net/rendezvous_inner.h"

enum { PROBE_MS = 100 }; /* between two probes */

void rendezvous_trust(node *n)
{
    chan_close(n->probe);
    n->probe = NULL;
    n->doubted = false;
    n->unanswered = 0;
}

void rendezvous_note_silence(node *n, const chan *c)
{
    if (chan_is_proven(c)) {
        n->doubted = false;
        n->unanswered = 0;
    } else if (chan_is_unanswered(c)) {
        if (!n->unanswered++) n->unanswered_ns = clock_now_ns();
    }
}

static void end_probe(node *n)
{
    rendezvous_note_silence(n, n->probe);
    chan_close(n->probe);
    n->probe = NULL;
    n->again_ns = clock_deadline(PROBE_MS);
}

void rendezvous_probe(rendezvous *r, node *n, int64_t *wake)
{
    tcp_place where;

    if (n->probe && (chan_work(n->probe) || chan_is_proven(n->probe))) end_probe(n);
    if (n->called || !n->doubted || n->here || n->taken || !n->address) return;
    if (!n->probe && clock_now_ns() >= n->again_ns &&
        (tcp_resolve(n->address, &where) || chan_connect(r->end, &where, n->name, &n->probe)))
        n->again_ns = clock_deadline(PROBE_MS);
    if (!n->probe && n->again_ns < *wake) *wake = n->again_ns;
}

manta_status rendezvous_check_key(const node *n)
{
    int64_t ms = n->unanswered ? (clock_now_ns() - n->unanswered_ns) / 1000000 : 0;

    if (!rendezvous_is_silent(n->unanswered, ms, n->doubted)) return MANTA_OK;
    return manta_fail(MANTA_EPERM,
                      "%s (%s) closes every connection that shows the cluster key: it has another key "
                      "(give all processes the same file with --cluster-key), or is another program",
                      n->name, n->address ? n->address : "");
}
