/* cluster_blame.c - who is to be named, when all wait or one was lost.
 *
 * A rank sees connections, and a connection may break or be silent because the rank at its other end has
 * lost or waits for a third one. So each says what it sees, and all draw the same conclusion:
 *
 *   while all wait    the pulses of a rank (net/chan.h) carry whom it waits for. Of whom nothing is
 *                     heard is to blame; if everybody is heard, whom they wait for.
 *   after a loss      the words of the meeting (cluster_word) carry whom each rank has lost, and the generation
 *                     that it was part of. Who was not part of the last one has come anew, and is to
 *                     blame; if all were, the one that most have lost. */
#include <stdio.h>
#include <string.h>

#include "train/cluster/cluster.h"

enum { QUIET_MS = 2500 }; /* two pulses were due */

/* ---- while all wait ---- */

static bool is_quiet(const manta_cluster *c, int rank)
{
    return chan_quiet_ms(c->peers[rank].c) > QUIET_MS;
}

int cluster_blame(const manta_cluster *c, const bool *awaited)
{
    int first = -1, told = -1;

    for (int r = 0; r < c->n; r++) {
        int64_t note;
        if (r == c->rank || !awaited[r]) continue;
        if (is_quiet(c, r)) return r;
        note = (int64_t)chan_note(c->peers[r].c) - 1;
        if (told < 0 && note >= 0 && note < c->n && note != c->rank) told = (int)note;
        if (first < 0) first = r;
    }
    return told >= 0 ? told : first;
}

void cluster_say_awaited(manta_cluster *c, int rank)
{
    for (int r = 0; r < c->n; r++) {
        if (c->peers[r].c) chan_set_note(c->peers[r].c, (uint32_t)(rank + 1));
    }
}

/* ---- after a loss ---- */

static const cluster_word *said_by(const manta_cluster *c, int rank)
{
    return rank == c->rank ? &c->word : &c->peers[rank].word;
}

/* The lowest rank that was not part of the last generation; -1: all were. */
static int find_newcomer(const manta_cluster *c)
{
    uint64_t last = 0;

    for (int r = 0; r < c->n; r++) {
        if (said_by(c, r)->generation > last) last = said_by(c, r)->generation;
    }
    for (int r = 0; r < c->n; r++) {
        if (said_by(c, r)->generation < last) return r;
    }
    return -1;
}

static int find_most_lost(const manta_cluster *c)
{
    int who = -1, most = 0;

    for (int r = 0; r < c->n; r++) {
        int n = 0;
        for (int k = 0; k < c->n; k++) n += said_by(c, k)->lost == r;
        if (n > most) {
            who = r;
            most = n;
        }
    }
    return who;
}

void cluster_find_culprit(manta_cluster *c)
{
    int who = find_newcomer(c);
    const cluster_word *seen = NULL;

    if (who < 0) who = find_most_lost(c);
    c->culprit = who;
    for (int r = 0; r < c->n && !seen && who >= 0; r++) {
        if (said_by(c, r)->lost == who) seen = said_by(c, r);
    }
    if (who < 0) return;
    if (seen) {
        snprintf(c->culprit_cause, sizeof c->culprit_cause, "%.*s",
                 (int)strnlen(seen->cause, sizeof seen->cause), seen->cause);
        for (char *s = c->culprit_cause; *s; s++) {
            if (*s < ' ' || *s > '~') *s = '?';
        }
    } else {
        snprintf(c->culprit_cause, sizeof c->culprit_cause, "%s (%s): it was started again",
                 c->peers[who].node, c->peers[who].address);
    }
}
