/* claim.h - who runs a call that was sent and not begun: its worker, or the caller
 * that wants it back. Private to task/.
 *
 * A worker's calls to another worker have a word each, in the page of the receiver's
 * bell, which both map. The caller writes SENT before it publishes the call; then each
 * of the two may change SENT once, by compare-and-swap:
 *
 *     caller: SENT ──▶ publish ──▶ ...          SENT ──▶ TAKEN: it is the caller's again
 *     worker:                      read ──▶ ... SENT ──▶ BEGUN: it is the worker's
 *
 * One of them wins. Who loses leaves the call alone: the worker drops it without an
 * answer, the caller waits for the answer.
 *
 * A word holds the caller's client number, the number n of the sending, which counts what
 * that caller has sent to that worker, and the state. A worker is leased to one caller at a
 * time, and a caller uses a word again only when its call was answered or taken back. So
 * a copy that was taken back, and that the worker has not read yet, finds something else in its
 * word whatever came there since: another state, a later sending of the same call, or
 * a call of the next caller. */
#ifndef TASK_CLAIM_H
#define TASK_CLAIM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define CLAIM_AT    1024 /* where the words are, in the bell's page */
#define CLAIM_SLOTS 256 /* at least as many as calls are sent ahead (sizes.h) */

typedef enum claim_state { CLAIM_SENT = 1, CLAIM_TAKEN, CLAIM_BEGUN } claim_state;

/* What a word holds. Clients have fewer than 2^24 numbers (object.h). */
static inline uint64_t claim_value(uint32_t caller, uint32_t n, claim_state state)
{
    return (uint64_t)caller << 34 | (uint64_t)n << 2 | (uint64_t)state;
}

/* The word of number n (never 0) in the page at `page`. */
static inline _Atomic uint64_t *claim_word(void *page, uint32_t n)
{
    return (_Atomic uint64_t *)(void *)((char *)page + CLAIM_AT) + n % CLAIM_SLOTS;
}

/* Says that call n of `caller` is on its way; to be done before it is published. */
static inline void claim_send(void *page, uint32_t caller, uint32_t n)
{
    atomic_store_explicit(claim_word(page, n), claim_value(caller, n, CLAIM_SENT), memory_order_relaxed);
}

/* Says whether nobody has claimed call n yet; it may be wrong a moment later. */
static inline bool claim_is_open(void *page, uint32_t caller, uint32_t n)
{
    return atomic_load_explicit(claim_word(page, n), memory_order_relaxed) ==
           claim_value(caller, n, CLAIM_SENT);
}

/* Claims call n: as TAKEN by its caller, as BEGUN by its worker. False: the other did. */
static inline bool claim_make(void *page, uint32_t caller, uint32_t n, claim_state how)
{
    uint64_t sent = claim_value(caller, n, CLAIM_SENT);

    return atomic_compare_exchange_strong(claim_word(page, n), &sent, claim_value(caller, n, how));
}

#endif
