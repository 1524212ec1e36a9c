/* comm/ring.h - a group over the network: a channel (net/chan.h) between each
 * two ranks.
 *
 * Frames on a channel. `step` is the number of the collective, or of the
 * message of the pair; `item` is 2 * chunk + phase.
 *
 *   CALL     the call's words, and the data when it is small: everything a rank
 *            has to say when it enters a collective
 *   DATA     a chunk of a collective, phase 0: a contribution, 1: a result
 *   READY    a receive is waiting; its words
 *   MESSAGE  a chunk of a message
 *   REFUSED  the message that comes is not the one that is awaited; its words
 *   BYE      the rank leaves in peace
 *   ABORT    the rank has given up: a sentence
 *
 * Invariants
 * 1. A rank sends DATA only after it has every rank's CALL and all are the
 *    same. So ranks that called different things have sent nothing but words
 *    and copies, and the group lives.
 * 2. A rank is at most one collective ahead of another, which has yet to send
 *    its own CALL: two places for CALLs suffice.
 * 3. MESSAGE follows READY only, so what a channel brings is always expected and
 *    goes straight to where it belongs; nothing waits behind anything else.
 * 4. A contribution goes into one of RING_WINDOW places at its receiver; the
 *    next one for the same place is sent when the result of the last is here.
 * 5. Every frame's kind, number, chunk and length are compared with what is
 *    expected before a byte of it is taken. What a rank sends of one kind it
 *    sends in order, so the next number is all there is to know of what has
 *    come: a frame that comes again is refused, and its rank with it.
 *
 * A reduction goes to and fro once: each rank owns a share of every chunk,
 * receives the others' contributions to it, adds all by the tree, and sends
 * the result to all. That is as many bytes as a ring sends, but the sum's order
 * is ours. Two ranks with not too much just exchange what they have. */
#ifndef COMM_RING_H
#define COMM_RING_H

#include <stdatomic.h>

#include "comm/transport.h"
#include "comm/sizes.h"
#include "net/chan.h"

enum {
    RING_CALL = FRAME_USER,
    RING_DATA,
    RING_READY,
    RING_MESSAGE,
    RING_REFUSED,
    RING_BYE,
    RING_ABORT,
};

enum { RING_WINDOW = 4 };

/* What a rank said when it entered a collective. */
typedef struct ring_entry {
    bool is_here;
    call_words words;
    size_t n; /* bytes of data */
    char *data; /* RING_EAGER bytes */
} ring_entry;

typedef struct ring_peer {
    chan *c; /* NULL: ourselves */
    _Atomic int fd; /* descriptor of the channel; -1: the channel has failed */
    bool left, gone, aborted; /* said goodbye; the channel has failed; it has given up: `why` */
    manta_error why;
    ring_entry entry[2]; /* entries of two collectives, at their number % 2 */
    uint64_t called, readied; /* CALLs and READYs that came from it */
    char *say; /* our CALL to it: words and data; borrowed by the channel */
    /* the frame at hand */
    bool taking;
    frame f;
    char *to; /* where the bytes of the frame go */
    uint64_t at;
    char small[sizeof(call_words) + RING_EAGER]; /* bytes that are checked before they are used */
    /* the collective at hand */
    int64_t contributions, results; /* chunks that came from it */
    int64_t sent; /* chunks of contributions posted to it */
    /* messages */
    uint64_t sends, receives;
    bool is_ready; /* `wanted` is what it waits for */
    call_words wanted, answer; /* answer: our READY or REFUSED; borrowed by the channel */
    manta_work *receiving; /* the work that receives from this peer */
    _Atomic bool wants_out; /* the channel has bytes for the socket */
} ring_peer;

typedef struct ring {
    int rank, size;
    ring_peer *peers;
    chan_end *end;
    uint64_t calls; /* collectives begun */
    manta_work *current; /* the collective at hand */
    int64_t reduced; /* chunks of it */
    char *scratch; /* RING_WINDOW x size x RING_CHUNK, made on first use */
    char *copy; /* a copy of `in`, for calls in place that would overwrite it too early */
    int wake; /* eventfd */
    bool aborted;
} ring;

extern const transport ring_transport;

/* A group over open channels, peers[i] to rank i (NULL at our own place); takes
 * them and the end over, also when it fails. */
manta_status ring_new(int rank, int size, chan_end *end, chan **peers, ring **out) MANTA_MUST_USE;

/* A channel has failed, for the reason that was last recorded. What it brought
 * before still counts; whether the rank is missed is the call's to say. */
void ring_lose(ring_peer *p);

/* Takes what has come on all channels, and sends what can be sent. */
manta_status ring_pump(ring *t, bool *moved) MANTA_MUST_USE;

/* ring_call.c: where the bytes of a frame of the collective go (MANTA_EBUSY, no
 * sentence: the place is still taken), and what follows when they are there. */
manta_status ring_place(ring *t, int from, const frame *f, char **to) MANTA_MUST_USE;
void ring_arrived(ring *t, int from, const frame *f);
manta_status ring_poll(void *t, manta_work *w, bool *moved);
void ring_missing(void *t, const manta_work *w, char *text, size_t size);

#endif
