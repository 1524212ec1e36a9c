/* model.h - what a value must be, and how an operation may end.
 *
 * A value is `size` bytes that a number, its tag, decides. A function adds up what it is
 * given, byte by byte (a digest), and the tag of its result follows from that, so a wrong
 * byte anywhere on the way is a wrong result at the end. The model computes the same from
 * the tags alone.
 *
 * How a call may fail is decided when its result is looked at, since a kill or a cancel
 * may have come in between: an expectation names the slots that it depends on, and what
 * became of those (soak_run) says which failures are allowed. */
#ifndef SOAK_MODEL_H
#define SOAK_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <manta/task.h>

/* What a function is asked for; travels as bytes. */
typedef struct soak_work {
    uint64_t key;
    int64_t size; /* of the argument beside it; -1: there is none */
    int64_t result; /* bytes of each result */
    int32_t results, depth, width, refs, sleep_us, fails, retries, in_place;
} soak_work;

#define SOAK_BIT(id)      ((uint64_t)1 << (id))
#define SOAK_UNLIMITED    1000000
#define SOAK_REF_IS_CALL  4 /* every so many-th reference of a result is a call, the others are puts */
#define SOAK_PART(tag, i) soak_mix((tag) + (uint64_t)(i))

/* ---- bytes ---- */

void soak_fill(void *at, int64_t size, uint64_t tag);
uint64_t soak_digest_of(const void *at, int64_t size);
uint64_t soak_digest(uint64_t tag, int64_t size); /* of those that soak_fill() makes */

/* ---- what functions compute ---- */

uint64_t soak_fold(uint64_t sum, uint64_t digest);
soak_work soak_work_inner(const soak_work *w, int i); /* of the i-th call that it makes */
/* The sum of a call that is given values of these digests; result k has the tag
 * SOAK_PART(sum, k). */
uint64_t soak_work_sum(const soak_work *w, const uint64_t *digests, int n);
/* The digest of a value that is `refs` references to values, or with 0 of one itself. */
uint64_t soak_value_digest(uint64_t tag, int64_t size, int refs);

/* ---- expectations ---- */

typedef struct soak_expect {
    uint64_t tag;
    int64_t size;
    int refs; /* the value is so many references */
    bool is_array;
    bool must_fail;
    unsigned failures; /* MANTA_ON() of those that are allowed in any case */
    uint64_t depends; /* slots that it is made of, its own included */
    uint64_t others; /* slots of actors that others than the program call for it */
    int retries; /* least of all calls that it is made of */
    bool mortal; /* an actor that is not restarted takes part */
    bool fragile; /* made by a call whose caller may die and is not there to make it again */
    bool needs_core;
} soak_expect;

/* One that depends on nothing yet. */
soak_expect soak_expect_of(int id);
/* What is true of `from` is true of *e, which is made of it. */
void soak_expect_add(soak_expect *e, const soak_expect *from);

#endif
