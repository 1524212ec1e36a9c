/* train/session/lockstep.h - the shards of a step, node by node side by side.
 *
 * With synchronised statistics a batch norm needs the sums of all shards before
 * any of them goes on, forward and backward. Each shard leaves its own in a
 * place of the *area* and waits, which means that its call returns and is made
 * again; whoever finds everybody's there adds them up in shard order.
 *
 * The area may be shared by processes. A place is a flag, which names the step,
 * and numbers, which are stored before it. They are a function of the step and
 * the shard: a successor that computes a shard again finds what its
 * predecessor left, or leaves the same. Processes that share no memory send
 * each other what their shards leave, into areas of their own.
 *
 * Each shard has activations of its own, since several are under way at once. */
#ifndef TRAIN_SESSION_LOCKSTEP_H
#define TRAIN_SESSION_LOCKSTEP_H

#include "train/session/session.h"

typedef struct lockstep lockstep; /* opaque, see lockstep.c */

/* Bytes of the area for this model; 0: its shards have nothing to meet for. */
size_t lockstep_size(const manta_model *m, int shards);

/* For a session whose exec there is. The area is borrowed (zeroed memory);
 * NULL: one of its own. `told` is called when somebody may be able to go on. */
manta_status lockstep_new(manta_session *s, void *area, void (*told)(void *ctx), void *ctx, lockstep **out);
void lockstep_free(lockstep *l); /* accepts NULL */

/* Begins `shard` of the step called `flag` (not 0), of `count` samples in all:
 * rows `f`, with at least one. `keep`: f is copied, else borrowed until the
 * shard is done. */
manta_status lockstep_begin(lockstep *l, int shard, uint64_t flag, int64_t count, const manta_feed *f,
                            void *slot, bool keep);
/* Whether it was begun for that step, and not since for another. */
bool lockstep_is_begun(const lockstep *l, int shard, uint64_t flag);

/* Goes on with a shard: forward, then backward. *waits: others are missing.
 * Calling again what has ended does nothing. */
manta_status lockstep_forward(lockstep *l, int shard, bool *waits);
manta_status lockstep_backward(lockstep *l, int shard, bool *waits);

/* ---- shards of processes that share no memory ---- */

/* What a shard leaves somewhere; the place has the same number everywhere. */
typedef struct lockstep_numbers {
    uint32_t place;
    const double *values;
    int64_t n;
} lockstep_numbers;

/* The next of what `shard`, which is under way here, has left in its step; false
 * when that was all so far. Borrowed until the shard begins another step. */
bool lockstep_take_left(lockstep *l, int shard, lockstep_numbers *out);

/* Where the n numbers of a shard that is under way elsewhere belong in the step
 * called `flag`; NULL: there is no such place or shard, or they are there. */
double *lockstep_find(lockstep *l, uint32_t where, int64_t shard, uint64_t flag, int64_t *n);

/* They are there. */
void lockstep_arrived(lockstep *l, uint32_t where, int64_t shard, uint64_t flag);

#endif
