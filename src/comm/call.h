/* comm/call.h - one collective: what it is, how far it is, and the words that
 * ranks exchange to see that they mean the same one. The words and their
 * comparison are pure. */
#ifndef COMM_CALL_H
#define COMM_CALL_H

#include <stdatomic.h>

#include <manta/comm.h>

#include "base/status.h"

/* What a rank says about the call it is in. It lies in shared memory and is
 * sent as it is (little-endian); whoever reads it copies it first. */
typedef struct call_words {
    uint32_t kind, dtype, reduce, peer;
    uint64_t n;
    uint64_t number; /* number of the collective in the group, or of the message between a pair */
} call_words;

struct manta_work {
    manta_collective c;
    struct manta_group *_Atomic g; /* NULL: it is done */
    struct manta_work *next; /* the next work in the group's list */
    size_t size; /* bytes of n elements */
    call_words words;
    int64_t deadline; /* set when it is first waited for */
    bool begun, done;
    manta_status status;
    manta_error error; /* the sentence, when status is a failure */

    /* the implementation's */
    uint32_t base; /* shm: its first step */
    int64_t steps, produced, consumed;
    size_t chunk; /* bytes of a step, of one part where there are parts */
    bool two_phase;
    int phase; /* ring */
    void *scratch;
};

/* Checks a call before anything is done: a kind, a type, a reduction that the
 * type has, a peer, a size. */
manta_status call_check(const manta_collective *c, int rank, int size) MANTA_MUST_USE;

/* What the call says. `number` counts the collectives of a group, or the
 * messages of a pair. */
call_words call_words_of(const manta_collective *c, uint64_t number);

/* Whether w can be what a rank says; anything may be in it. */
bool call_words_are_valid(const call_words *w);

/* MANTA_EINVAL with a sentence when the two differ. */
manta_status call_compare(int rank_a, const call_words *a, int rank_b, const call_words *b) MANTA_MUST_USE;

/* "all-reduce (sum) of 10 float32", into text, cut to fit; returns text. */
char *call_text(const call_words *w, char *text, size_t size);

bool call_reduces(manta_collective_kind k);
bool call_is_message(manta_collective_kind k); /* send or receive */

/* Elements of in and out, of a rank in a group of `size`. */
int64_t call_parts_in(const manta_collective *c, int size);
int64_t call_parts_out(const manta_collective *c, int size);

#endif
