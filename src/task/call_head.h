/* call_head.h - the head of a CALL message, which stands before the function's name. Pure.
 *
 *     task 8 | actor 8 | attempt, or what it lends 4 | results and marks 4
 *         | chain 8 | claim 4 | 0 4 | window 4 | 0 4 | most calls 4 | 0 4
 *           \____ if BELOW ____/     \_ if WINDOW _/   \__ if MOST __/
 *
 * It is as short as it can be, because a call that nobody nests is to cost nothing for those that
 * are: a message takes one or two cache lines from one core to the other, and that is much of what
 * a call takes. So a call that no call has made is sent without a chain and a claim, and since a call
 * lends only as long as it was not tried before (nested.c), attempt and lends have one word. */
#ifndef TASK_CALL_HEAD_H
#define TASK_CALL_HEAD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/buf.h"
#include "net/wire.h"

/* Marks beside the number of results. */
#define CALL_HEAD_STREAM 0x80000000u /* the function may yield */
#define CALL_HEAD_LENDS  0x40000000u /* the word before is what it lends, and the attempt is 0 */
#define CALL_HEAD_BELOW  0x20000000u /* chain and claim follow */
#define CALL_HEAD_WINDOW                                                                                     \
    0x10000000u /* of a stream: how far the function may be ahead follows, 4 bytes and 0 */
#define CALL_HEAD_MOST                                                                                       \
    0x08000000u /* its worker ends after so many calls of the function: 4 bytes and 0 follow */
#define CALL_HEAD_GROUP 0x04000000u /* a text follows the label: a call's group, a constructor's groups */
#define CALL_HEAD_MARKS                                                                                      \
    (CALL_HEAD_STREAM | CALL_HEAD_LENDS | CALL_HEAD_BELOW | CALL_HEAD_WINDOW | CALL_HEAD_MOST |              \
     CALL_HEAD_GROUP)

typedef struct call_head {
    uint64_t task; /* 0: a constructor */
    uint64_t actor; /* 0: none */
    uint64_t chain; /* the functions of the calls above it (nested.h) */
    uint32_t claim; /* by which it can be taken back (claim.h); 0: it cannot */
    uint32_t lends; /* to calls that it makes, cores in 1/10000, and 1; 0: nothing */
    uint32_t attempt; /* 0 if it lends anything */
    uint32_t results;
    bool is_stream;
    uint32_t max_calls; /* of its function in one process; 0: any number */
    uint32_t window; /* items that a stream may be ahead of its reader; 0: as many as usual */
    bool has_group; /* concurrency.h */
} call_head;

static inline void call_head_put(buf *b, const call_head *h)
{
    bool below = h->chain || h->claim;
    uint64_t bytes[5] = {h->task, h->actor};
    uint32_t words[2] = {h->lends ? h->lends : h->attempt,
                         h->results | (h->is_stream ? CALL_HEAD_STREAM : 0) |
                             (h->lends ? CALL_HEAD_LENDS : 0) | (below ? CALL_HEAD_BELOW : 0) |
                             (h->window ? CALL_HEAD_WINDOW : 0) | (h->max_calls ? CALL_HEAD_MOST : 0) |
                             (h->has_group ? CALL_HEAD_GROUP : 0)};

    memcpy(&bytes[2], words, sizeof words);
    bytes[3] = h->chain;
    bytes[4] = h->claim;
    buf_add(b, bytes, below ? 40 : 24);
    if (h->window) wire_put_u64(b, h->window);
    if (h->max_calls) wire_put_u64(b, h->max_calls);
}

/* Reads a head; of one that is cut short all is zero, and w is broken. */
static inline void call_head_take(wire *w, call_head *h)
{
    *h = (call_head){.task = wire_u64(w)};
    h->actor = wire_u64(w);
    uint32_t word = wire_u32(w), marked = wire_u32(w);

    if (marked & CALL_HEAD_LENDS)
        h->lends = word;
    else
        h->attempt = word;
    h->results = marked & ~CALL_HEAD_MARKS;
    h->is_stream = (marked & CALL_HEAD_STREAM) != 0;
    h->has_group = (marked & CALL_HEAD_GROUP) != 0;
    if (marked & CALL_HEAD_BELOW) {
        h->chain = wire_u64(w);
        h->claim = wire_u32(w);
        (void)wire_u32(w);
    }
    if (marked & CALL_HEAD_WINDOW) h->window = (uint32_t)wire_u64(w);
    if (marked & CALL_HEAD_MOST) h->max_calls = (uint32_t)wire_u64(w);
    if (w->broken) *h = (call_head){0};
}

#endif
