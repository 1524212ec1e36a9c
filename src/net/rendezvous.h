/* net/rendezvous.h - how the processes of a job find each other over channels.
 *
 * A process has a name ("worker/1") and talks to others that have names. Of two
 * one calls and the other is called: in a mesh the higher number calls the
 * lower (rendezvous_calls()), with parameter servers a worker calls a server.
 *
 *                       a node, seen from here
 *
 *            called by us                             calls us
 *    AWAY --------------------> CALLED         listener
 *     ^   address known, and      |               |
 *     |   the pause is over       |               v
 *     |                           |         the lobby: who is there has not
 *     |  fails: pause, why <------+         shown who it is; a bounded number
 *     |                           |               |
 *     |                     open, |               | open, known, fits
 *     |                           v               v
 *     +<--- its end is seen --- HERE <------------+   the last that came wins
 *     ^                           |
 *     |          rendezvous_take()|
 *     |                           v
 *     +<-- rendezvous_miss() -- TAKEN: the channel is the caller's
 *
 * What each says is the caller's business, and bytes here. The *word* goes with
 * the hello of every channel: what all must have in common. Each side checks
 * the other's (options.check), and one that differs is refused with a sentence
 * that the other side reads. A *greeting* follows in a meeting, if the caller
 * wants one: what a node has to say this time, such as how far it is.
 *
 * Invariants
 * 1. Nobody is HERE who has not proven the cluster key (net/secure.h), said the
 *    name that it proved, and passed the check.
 * 2. At most RENDEZVOUS_LOBBY connections have not shown who they are, and one
 *    more for each node that calls us. When another comes, the one that has been
 *    there longest goes.
 * 3. A node has at most one connection that is HERE. When it comes anew, the
 *    former one is closed, since a process that was started again is the same
 *    node and the end of its former connection may not have been noticed; with
 *    options.once it is refused instead. A channel that was taken is never
 *    touched: that its node is HERE again tells whoever took it.
 * 4. A node is called only in a meeting, so that no connection is begun that
 *    nobody attends to.
 *
 * A connection belongs to one generation of whoever took it: who begins another
 * closes what it has, misses all nodes and meets them again.
 *
 * Who calls whom, when to call again and who is let in are pure functions
 * (rendezvous_policy.c), which can be changed without touching a connection.
 *
 * Threads: a rendezvous is used by one at a time. */
#ifndef NET_RENDEZVOUS_H
#define NET_RENDEZVOUS_H

#include "base/buf.h"
#include "net/chan.h"

enum {
    RENDEZVOUS_LOBBY = 32, /* places for strangers, besides one for each node that calls us */
    RENDEZVOUS_TICK_MS = 200, /* a meeting looks up at least so often */
};

/* ---- policy: pure, rendezvous_policy.c ---- */

/* Whether of two numbers of a mesh the first calls the second. */
bool rendezvous_calls(int self, int other);

/* The pause before a node is called again that was called `tries` times in vain. */
int64_t rendezvous_pause_ms(int tries);

/* Whether there is no point in waiting for a node whose connection failed so: it was called,
 * and does not want us, or we not it, as opposed to not being there. */
bool rendezvous_is_final(manta_status st, bool called);

/* Whether a node has another key for all that can be told: it has closed `times` connections
 * in a row, over `ms`, when it was shown ours. `doubted`: somebody with another key has
 * called itself so. */
bool rendezvous_is_silent(int times, int64_t ms, bool doubted);

/* A connection that has shown a name, and what is known of that name. */
typedef struct rendezvous_claim {
    bool known; /* one of the nodes is called so */
    bool called; /* it is us who call that node */
    bool came; /* the connection came to our listener */
    bool there; /* the node has a connection, taken or not */
    bool once; /* nobody comes twice */
} rendezvous_claim;

typedef enum rendezvous_verdict {
    RENDEZVOUS_ADMIT,
    RENDEZVOUS_REPLACE, /* the former connection goes */
    RENDEZVOUS_UNKNOWN, /* refused: no node is called so */
    RENDEZVOUS_BACKWARDS, /* refused: it calls whom we call */
    RENDEZVOUS_TAKEN /* refused: it is there already */
} rendezvous_verdict;

rendezvous_verdict rendezvous_judge(rendezvous_claim c);

/* ---- making one ---- */

typedef struct rendezvous rendezvous; /* opaque, see rendezvous.c */

typedef struct rendezvous_node {
    const char *name; /* "worker/1" */
    const char *address; /* "host:port"; NULL: not known, or not yet */
    bool called; /* we call it; else it calls us */
} rendezvous_node;

typedef struct rendezvous_options {
    const char *what; /* of what all are a part, for sentences: "cluster" */
    chan_options chan; /* who we are; its check and ctx are the rendezvous' own */
    const cluster_key *key;
    /* A node is known by its number here. One that is called as we are is us, and is
     * never missing. */
    const rendezvous_node *nodes;
    int n;
    bool once;
    /* May refuse node `i` for its word, by failing with MANTA_EPERM and a sentence that
     * both sides read; optional. */
    manta_status (*check)(void *ctx, int i, const hello *theirs);
    void *ctx;
} rendezvous_options;

/* Texts are copied. *out: owned, give back with rendezvous_free(). */
manta_status rendezvous_new(const rendezvous_options *o, rendezvous **out) MANTA_MUST_USE;

/* Closes the listener and every channel that was not taken. Those that were taken need
 * the end that they were made of, so they are closed before. Accepts NULL. */
void rendezvous_free(rendezvous *r);

/* In a child of a fork: closes the descriptors, which are the parent's, and nothing else. */
void rendezvous_close_descriptors(const rendezvous *r);

/* Hands the end over to whoever took the channels; then they outlive the rendezvous. */
chan_end *rendezvous_take_end(rendezvous *r);

/* What hellos say from now on: the generation that this process was part of, for people,
 * and its word. n <= FRAME_WORD. */
void rendezvous_say(rendezvous *r, uint64_t generation, const void *word, size_t n);
/* Sets the profile and the largest frame, as chan_end_settle(). */
manta_status rendezvous_settle(rendezvous *r, const char *profile, uint64_t max_frame) MANTA_MUST_USE;
/* Where a node that we call listens, when that becomes known. */
void rendezvous_set_address(rendezvous *r, int i, const char *address);

/* Listens at `address`; with `inherit` by the socket that a launcher holds there and
 * names in MANTA_LISTEN_FD, if it does. *port (or NULL): where that is. */
manta_status rendezvous_listen(rendezvous *r, const char *address, bool inherit, int *port) MANTA_MUST_USE;
/* Listens with a socket of the caller's, which stays open. */
void rendezvous_listen_with(rendezvous *r, int fd);

/* ---- waiting, and who is here ---- */

/* Attends to the listener, the lobby and all that comes, and waits as chan_wait() does,
 * also for the caller's own channels and descriptors. */
manta_status rendezvous_wait(rendezvous *r, chan_item *items, int n, struct pollfd *fds, int n_fds,
                             int64_t deadline);

/* Whether a connection of node i is HERE. When one was taken before, the node has come anew. */
bool rendezvous_is_here(const rendezvous *r, int i);
/* The note of the pulses (net/chan.h) to those that are HERE. */
void rendezvous_note(rendezvous *r, uint32_t note);
/* The connection of node i, which is open and the caller's from now on; NULL: none is HERE. */
chan *rendezvous_take(rendezvous *r, int i);
/* What was taken of node i is gone, or is being closed: it is AWAY unless it is HERE anew. */
void rendezvous_miss(rendezvous *r, int i);

/* ---- meeting ---- */

typedef struct rendezvous_meeting {
    int64_t timeout_ms; /* negative: none */
    bool patient; /* who refuses, or is refused, may be followed by one that fits */
    bool strict; /* a node of this job that calls us and does not fit, or one that has another
                    key, is the end of it when nobody else is missing: MANTA_EPERM */
    /* Says and hears what is to be said on the connection of node i, which is open, without
     * waiting; called whenever something may have moved. `first`: nothing was said on this
     * connection before. *done: all is heard and posted; the
     * node is here when it is sent. A failure costs the connection, and with *done the meeting. Optional. */
    manta_status (*greet)(void *ctx, int i, chan *c, bool first, bool *done);
    /* Node i, which was greeted, has closed its end behind what it sent: whether that ends
     * the meeting, by failing. Optional. */
    manta_status (*last_words)(void *ctx, int i, chan *c);
    /* The meeting has failed with the thread's last error: what is posted to node i, which is
     * here, is sent before its connection is closed. Optional. */
    void (*part)(void *ctx, int i, chan *c);
    /* Is told who is missing and why, and whom of them to name first, RENDEZVOUS_TICK_MS
     * apart at most. A failure ends the meeting. Optional. */
    manta_status (*watch)(void *ctx, const char *missing, int i, double ms);
    void *ctx;
} rendezvous_meeting;

/* Until all nodes from `first` to before `end` that were not taken are here and greeted.
 * MANTA_ETIMEDOUT: some were not in time, MANTA_EPERM: one that we call is refused, or
 * refuses us; with sentences that name them. Then the connections are closed on which
 * something was said. */
manta_status rendezvous_meet(rendezvous *r, int first, int end, const rendezvous_meeting *m) MANTA_MUST_USE;

/* Those of `first` to before `end` that are missing, with addresses and reasons, and those
 * that are here: "waiting for worker/1 (10.0.0.2:4711: Connection refused); here are
 * worker/0". Returns the first that is missing, -1: none. */
int rendezvous_missing(const rendezvous *r, int first, int end, buf *out);

#endif
