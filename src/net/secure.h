/* secure.h - TLS 1.3 between two nodes that have the same cluster key.
 *
 * Nothing but external pre-shared keys with an ephemeral Diffie-Hellman: no
 * certificates, no tickets, no early data. The key of a connection is derived
 * from the cluster key, the node that connects and the node it means, so what
 * is recorded in one direction, or between two other nodes, is of no use here,
 * and a node that is called by its own name refuses.
 *
 * The first message of the connecting side carries the proof that it has the
 * key. Until that is verified the other side gives out not one byte, not even
 * an alert: to a stranger the port looks dead.
 *
 * This file moves no bytes: the caller lends two functions that do.
 *
 * Threads: a context is read by many, a session is used by one at a time. */
#ifndef NET_SECURE_H
#define NET_SECURE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/status.h"
#include "net/key.h"

enum { SECURE_NODE = 64, SECURE_RECORD = 16384 };

typedef struct secure_context secure_context; /* opaque, see secure.c */
typedef struct secure secure;

/* Where the bytes come from and go to. */
typedef struct secure_io {
    /* Up to n bytes; 0: the other end is closed; -1: none now. */
    ssize_t (*pull)(void *ctx, void *out, size_t n);
    /* Takes all n bytes. */
    void (*push)(void *ctx, const void *data, size_t n);
    void *ctx;
} secure_io;

/* Whether `name` can be a node's: 1 to 63 letters, digits and . _ : / - */
bool secure_node_ok(const char *name);

/* Prepares for connections of the node called `own`. *out: owned. */
manta_status secure_context_new(const cluster_key *key, const char *own, secure_context **out) MANTA_MUST_USE;
void secure_context_free(secure_context *c); /* accepts NULL */

/* A connection to `peer`, or (NULL) one that somebody makes to us. */
manta_status secure_new(secure_context *c, const char *peer, secure_io io, secure **out) MANTA_MUST_USE;
void secure_free(secure *s); /* accepts NULL */

/* Goes on with the handshake: MANTA_OK it is done, MANTA_EBUSY (no sentence)
 * more bytes are needed, MANTA_EPERM the other side has not the key,
 * MANTA_EDIED it is gone. Bytes pushed before secure_proven() must be kept
 * back, and dropped when this fails. */
manta_status secure_handshake(secure *s) MANTA_MUST_USE;

/* Whether the other side has shown that it has the key. */
bool secure_proven(const secure *s);

/* The node at the other end; "" before it has said so. */
const char *secure_peer(const secure *s);

/* Encrypts and pushes n bytes. */
manta_status secure_write(secure *s, const void *data, size_t n) MANTA_MUST_USE;

/* Decrypts up to n bytes. MANTA_EBUSY (no sentence) there are none now;
 * MANTA_EDIED the other side is gone; MANTA_ECORRUPT the bytes are not what it
 * sent. */
manta_status secure_read(secure *s, void *out, size_t n, size_t *got) MANTA_MUST_USE;

/* Whether decrypted bytes are waiting. */
bool secure_pending(const secure *s);

#endif
