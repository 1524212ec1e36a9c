/* chan.h - a connection to another node, over which frames go.
 *
 *   chan_end        this node: its key, its name, what it says of itself
 *   chan            one connection, made by chan_connect() or chan_accept()
 *
 * A channel never blocks. chan_work() moves what can be moved; chan_wait()
 * sleeps until something can. It first connects, proves the key in both
 * directions (net/secure.h) and exchanges hellos (net/frame.h); when that is
 * done it is *open*. Until then it has a deadline of its own, so a stranger
 * who connects and says nothing costs a descriptor for a while, no more.
 *
 * Sending: chan_post() queues a frame. Its bytes are borrowed, not copied,
 * until chan_unsent() no longer counts it. Receiving: chan_peek() has the next
 * frame's head when it is there, and chan_take() moves its bytes to where the
 * caller wants them, as they come. Both directions are independent, so two
 * nodes may send each other more than any buffer holds.
 *
 *   chan_post(c, &(frame){.kind = K, .step = s, .length = n}, parts, 1);
 *   while (chan_unsent(c) || !got) {
 *       TRY(chan_wait(&item, 1, NULL, 0, deadline));
 *       TRY(chan_work(c));
 *       ... chan_peek(), chan_take() ...
 *   }
 *
 * A channel that has failed stays failed: every call repeats its sentence,
 * which names the node at the other end.
 *
 * Threads: a channel is used by one thread at a time; an end by many. */
#ifndef NET_CHAN_H
#define NET_CHAN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "net/frame.h"
#include "net/key.h"
#include "net/secure.h"
#include "net/tcp.h"

typedef struct chan chan; /* opaque, see chan_inner.h */
typedef struct chan_end chan_end;

/* What a node is. Texts are copied. */
typedef struct chan_options {
    const char *node; /* the node's name, unique in the job: "worker/1" */
    const char *job; /* its name, the same for all nodes */
    const char *profile; /* arithmetic, the same for all; "" when it does not matter */
    bool plain; /* frames posted as bulk are not encrypted */
    int64_t handshake_ms; /* for a channel to become open; 0: 10 s */
    int silence_ms; /* a machine that is gone is noticed after about so long by who waits; 0: 6 s */
    uint64_t max_frame; /* bytes; 0: 1 GiB */
    /* May refuse a node by failing with a sentence; optional. */
    manta_status (*check)(void *ctx, const hello *theirs);
    void *ctx;
} chan_options;

manta_status chan_end_new(const chan_options *o, const cluster_key *key, chan_end **out) MANTA_MUST_USE;
void chan_end_free(chan_end *e); /* after its channels; accepts NULL */

/* What channels made from now on say in their hello. n <= FRAME_WORD. */
void chan_end_say(chan_end *e, uint64_t generation, const void *word, size_t n);
/* Sets the profile and the largest frame of an end that was made before they were known. */
manta_status chan_end_settle(chan_end *e, const char *profile, uint64_t max_frame) MANTA_MUST_USE;

/* Listens. Beyond loopback only with a key that was given: MANTA_EPERM.
 * *out: owned descriptor; readable when chan_accept() has something. */
manta_status chan_listen(const chan_end *e, const tcp_place *at, int *out) MANTA_MUST_USE;
/* Listens with a socket that a launcher has bound, left to this process and calls `address`; `fd`
 * is its descriptor, as text. *out as chan_listen() gives it. */
manta_status chan_inherit(const chan_end *e, const char *address, const char *fd, int *out) MANTA_MUST_USE;

/* Begins a connection to the node called `peer`. *out: owned. */
manta_status chan_connect(chan_end *e, const tcp_place *to, const char *peer, chan **out) MANTA_MUST_USE;
/* Takes a connection that waits; MANTA_EBUSY (no sentence): there is none. */
manta_status chan_accept(chan_end *e, int listener, chan **out) MANTA_MUST_USE;
/* A channel over a socket that is connected already, which it takes over. The
 * side with a `peer` is the one that connects. For tests and inherited ones. */
manta_status chan_adopt(chan_end *e, int fd, const char *peer, chan **out) MANTA_MUST_USE;
void chan_close(chan *c); /* accepts NULL */

/* Moves what can be moved without waiting. Not needed after chan_wait(). */
manta_status chan_work(chan *c);
bool chan_is_open(const chan *c);
/* Who is at the other end: its hello, once the channel is open. */
const hello *chan_peer(const chan *c);
/* Which node the other end says it is, "": none; and whether it has shown the key, without
 * which anybody may have said so. Also of a channel that has failed. */
const char *chan_claims(const chan *c);
bool chan_is_proven(const chan *c);
/* Whether a channel that we have made failed because the other side closed it when it was shown
 * the key, without a word: it has another one, or was ended at that moment. */
bool chan_is_unanswered(const chan *c);
/* For people: "worker/1 (10.0.0.2:4711)". */
const char *chan_name(const chan *c);
int chan_fd(const chan *c);
/* Whether an open channel is still good, of whose other side nothing is awaited: fails when
 * that has refused us after all, or has closed with nothing left to take. Takes nothing. */
manta_status chan_look(chan *c) MANTA_MUST_USE;

/* Frames sent from now on carry this generation; received ones must. */
void chan_set_generation(chan *c, uint32_t generation);

/* ---- signs of life ---- */

/* Who waits on an open channel sends a pulse when it has said nothing for a second; a pulse is never
 * peeked. It carries a note, a number of the caller's: ours from now on, and the last that came (0: none). */
void chan_set_note(chan *c, uint32_t note);
uint32_t chan_note(const chan *c);
/* How long nothing has come. */
int64_t chan_quiet_ms(const chan *c);

/* ---- sending ---- */

enum { CHAN_PARTS = 4, CHAN_QUEUE = 256 };

typedef struct chan_part {
    const void *data;
    size_t n;
} chan_part;

/* Queues a frame whose bytes are those of the parts; f's kind, step and item
 * are the caller's, the rest is filled in. `bulk`: may go unencrypted when the
 * end was made so. MANTA_EBUSY (no sentence): CHAN_QUEUE frames are queued. */
manta_status chan_post(chan *c, const frame *f, const chan_part *parts, int n, bool bulk) MANTA_MUST_USE;

/* Frames that are not wholly with the system yet: their bytes are still needed,
 * and closing the channel would lose them. */
int chan_unsent(const chan *c);
/* Whether all that was posted is in the socket: nothing is left for chan_work(). */
bool chan_is_idle(const chan *c);

/* ---- receiving ---- */

/* The head of the next frame. MANTA_EBUSY (no sentence): not here yet. */
manta_status chan_peek(chan *c, frame *out) MANTA_MUST_USE;

/* Moves up to n bytes of the peeked frame to `out`; *got says how many, which
 * may be 0. When the last was taken the next frame can be peeked; an empty
 * frame is taken with n = 0. */
manta_status chan_take(chan *c, void *out, size_t n, size_t *got) MANTA_MUST_USE;

/* Bytes of the peeked frame not yet taken. */
uint64_t chan_left(const chan *c);

/* ---- waiting ---- */

typedef struct chan_item {
    chan *c; /* NULL: none */
    bool read; /* wake up for something to peek or take */
    bool ready; /* set: there may be, or it has failed */
} chan_item;

/* Works on all channels and waits until one may be read, has sent all it had,
 * has become open, or has failed; or one of the descriptors is readable
 * (revents is set); or the deadline (base/clock.h) has passed: MANTA_ETIMEDOUT,
 * no sentence. Failures are found by the next call of the channel. While bytes
 * trickle in it says MANTA_OK also past the deadline: who has one looks at the
 * clock. */
manta_status chan_wait(chan_item *items, int n, struct pollfd *fds, int n_fds, int64_t deadline);

/* ---- one thing at a time ---- */

/* Sends a frame and waits until it is handed over; receives one whose bytes
 * fit into size. Failures name the node; MANTA_ETIMEDOUT does too. */
manta_status chan_send(chan *c, const frame *f, const void *data, size_t n, int64_t deadline) MANTA_MUST_USE;
manta_status chan_recv(chan *c, frame *f, void *out, size_t size, int64_t deadline) MANTA_MUST_USE;
/* Waits until it is open. */
manta_status chan_await_open(chan *c, int64_t deadline) MANTA_MUST_USE;

/* Sends and receives at the same time, on two channels or one: a ring's step. */
manta_status chan_exchange(chan *to, const frame *f, const void *data, size_t n, chan *from, frame *got,
                           void *out, size_t size, int64_t deadline) MANTA_MUST_USE;

#endif
