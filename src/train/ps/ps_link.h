/* train/ps/ps_link.h - one conversation of the parameter servers: a channel over
 * which whole messages go, a bounded size each, one out at a time. */
#ifndef TRAIN_PS_PS_LINK_H
#define TRAIN_PS_PS_LINK_H

#include "net/chan.h"

/* What is said. W worker, S server, C coordinator. */
typedef enum ps_kind {
    /* W to S: the weights, please. `step`: 0, or one more than the number of a step before which they are to
     * be, also if its gradients have come since */
    PS_PULL = FRAME_USER,
    PS_WEIGHTS, /* S to W: they */
    PS_PUSH, /* W to S: gradients of step `step` */
    PS_PUSHED, /* S to W: they are applied, or were before */
    PS_LOAD, /* C to S: begin with this state */
    PS_LOADED, /* S to C */
    PS_WHERE, /* C to S, first of all: where does it stand?  S to C: this journal; empty: nowhere */
    PS_BEGIN, /* C to S: an epoch begins, with this run section and journal */
    PS_BEGUN, /* S to C */
    PS_STATE, /* C to S: what is the state?  S to C: this */
    PS_RATE, /* C to S: the learning rate from now on */
    PS_READY, /* W to C: give me, worker `step`, a step */
    PS_STEP, /* C to W: do step `step` of the epoch; `item` 1: from the weights before it, whoever has begun it */
    PS_DONE, /* W to C: it is done, and these are its sums and its share of the regulariser; another, please */
    PS_FAILED, /* W to C: a status (item) and a sentence: it cannot be done */
    PS_END /* C to all: go; with a status (item) and a sentence: it has come to nothing */
} ps_kind;

typedef struct ps_link {
    chan *c; /* NULL: none */
    frame head; /* of the message that comes in */
    bool coming; /* it has begun to */
    char *in, *out; /* messages, `room` bytes each */
    size_t room, got;
} ps_link;

/* Takes over the channel. `room`: of the longest message. MANTA_ENOMEM, and then
 * the channel is closed. */
manta_status ps_link_open(ps_link *l, chan *c, size_t room) MANTA_MUST_USE;
void ps_link_close(ps_link *l); /* accepts zeroed memory */

/* Whether a message is whole: its head is l->head, its bytes l->in. It stays
 * until the next call. Fails when the channel has. */
manta_status ps_link_receive(ps_link *l, bool *whole) MANTA_MUST_USE;

/* Hands every whole message that there is to `hear`. Ends with the first failure,
 * of the channel or of what was heard. */
manta_status ps_link_listen(ps_link *l, manta_status (*hear)(void *ctx, ps_link *l),
                            void *ctx) MANTA_MUST_USE;

/* Queues a message whose bytes were put to l->out. The one before must have
 * gone: it has when its answer came. MANTA_EINTERNAL otherwise. */
manta_status ps_link_send(ps_link *l, ps_kind kind, int64_t step, uint32_t item, size_t n) MANTA_MUST_USE;

/* Sends, and waits for an answer of kind `want`. Looks up every half second
 * whether `alone` says that there is nobody left to wait for. */
manta_status ps_link_ask(ps_link *l, ps_kind kind, int64_t step, size_t n, ps_kind want,
                         bool (*alone)(void *ctx), void *ctx) MANTA_MUST_USE;

/* What a PS_END that has come says: MANTA_OK, or why it has come to nothing. */
manta_status ps_link_end(const ps_link *l) MANTA_MUST_USE;

#endif
