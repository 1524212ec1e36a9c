/* rendezvous_inner.h - what rendezvous.c and rendezvous_lobby.c know of a rendezvous. */
#ifndef NET_RENDEZVOUS_INNER_H
#define NET_RENDEZVOUS_INNER_H

#include "net/rendezvous.h"

typedef struct node {
    char name[SECURE_NODE];
    char *address; /* NULL: not known */
    bool called, here, taken;
    bool begun, greeted; /* in this meeting, on this connection: something, all was said */
    bool closing; /* its end was seen, behind bytes that are for whoever takes it */
    chan *c;
    int tries; /* calls in vain */
    int64_t again_ns; /* when to call again */
    manta_error why; /* the last call failed, or it was refused */
    bool unfit; /* it or we were refused in this meeting: a process of this job that does not fit */
    bool told; /* it has left, and `why` is the sentence that it left with, for all */
    bool doubted; /* somebody with another key has called itself so */
    chan *probe; /* a call to see whether that was the node: to one that is doubted and calls us */
    int unanswered; /* calls and probes in a row that it closed when it was shown the key */
    int64_t unanswered_ns; /* since then */
} node;

struct rendezvous {
    char what[32];
    chan_end *end;
    bool once;
    manta_status (*check)(void *ctx, int i, const hello *theirs);
    void *ctx;
    int listener; /* -1: none */
    bool lent; /* it is the caller's */
    int64_t listen_ns; /* the listener is left alone until then */
    node *nodes;
    int n, self; /* self: our own number, which counts as taken; -1: none */
    char job[FRAME_NAME];
    int64_t turned; /* away, of strangers and nodes */
    int64_t unsaid; /* of them since that was last said */
    int64_t say_ns, pause_ms; /* when to say it again */
    chan **lobby; /* n_lobby of room */
    int n_lobby, room;
    int greet_first, greet_end; /* nodes that the meeting under way greets */
    /* for waiting: the caller's, the lobby's, the nodes' */
    chan_item *items;
    struct pollfd *fds;
    int n_items, n_fds;
};

int rendezvous_find(const rendezvous *r, const char *name); /* -1: no node is called so */
/* Notes the thread's last error as why the node is not here, without the name of its connection. */
void rendezvous_note_why(node *n, const chan *c);
/* An open connection of a node, whichever way it came. */
void rendezvous_arrive(rendezvous *r, node *n, chan *c);
/* Fails with why a node is not let in. */
manta_status rendezvous_fail_claim(const rendezvous *r, rendezvous_verdict v, const char *name);

/* ---- the lobby: rendezvous_lobby.c ---- */

void rendezvous_accept(rendezvous *r); /* takes the connections that wait */
void rendezvous_tend_lobby(rendezvous *r); /* who has shown who it is becomes a node, or goes */
/* Says how many were turned away, if that was not said of all; `last` or NULL: why the last one was. */
void rendezvous_say_turned(rendezvous *r, const char *last);

/* ---- another key: rendezvous_doubt.c ---- */

/* A connection of ours to the node has failed; c is it. */
void rendezvous_note_silence(node *n, const chan *c);
/* Calls a node that is doubted, and sees what has become of that. *wake: when to look again at
 * the latest. */
void rendezvous_probe(rendezvous *r, node *n, int64_t *wake);
/* There is nothing to doubt any more, or nobody to do so. */
void rendezvous_trust(node *n);
/* MANTA_EPERM: the node has another key, as far as can be told. */
manta_status rendezvous_check_key(const node *n) MANTA_MUST_USE;

#endif
