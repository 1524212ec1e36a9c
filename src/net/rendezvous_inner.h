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
    manta_error why; /* the last call failed */
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
    chan **lobby; /* n_lobby of room */
    int n_lobby, room;
    int greet_first, greet_end; /* nodes that the meeting under way greets */
    /* for waiting: the caller's, the lobby's, the nodes' */
    chan_item *items;
    struct pollfd *fds;
    int n_items, n_fds;
};

int rendezvous_find(const rendezvous *r, const char *name); /* -1: no node is called so */
/* An open connection of a node, whichever way it came. */
void rendezvous_arrive(node *n, chan *c);
/* Fails with why a node is not let in. */
manta_status rendezvous_fail_claim(const rendezvous *r, rendezvous_verdict v, const char *name);

/* ---- the lobby: rendezvous_lobby.c ---- */

void rendezvous_accept(rendezvous *r); /* takes the connections that wait */
void rendezvous_tend_lobby(rendezvous *r); /* who has shown who it is becomes a node, or goes */

#endif
