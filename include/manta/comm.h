/* manta/comm.h - groups of ranks and the collectives between them.
 *
 * A group is `size` ranks, each a process or a thread, that call the same
 * collectives in the same order. The result is the same on every rank and does
 * not depend on the implementation: contributions are combined by one binary
 * tree over rank numbers (docs/numerics.md), element by element.
 *
 *     manta_group_plan *p;                                    // in the parent
 *     MANTA_TRY(manta_group_plan_new(2, NULL, &p));
 *     for (int rank = 0; rank < 2; rank++) {
 *         if (fork()) continue;
 *         manta_group *g;                                     // in each child
 *         MANTA_TRY(manta_group_join(p, rank, &g));
 *         MANTA_TRY(manta_group_all_reduce(g, x, x, n, MANTA_DTYPE_F32, MANTA_REDUCE_SUM));
 *         manta_group_close(g);
 *         _exit(0);
 *     }
 *
 * It never hangs: a call ends with its result, or at once with a sentence
 * that names the rank when a rank that is still needed dies, leaves or gives
 * up, or with a sentence that names who is missing when its time is over. (A
 * message that a rank did not send before it left fails within a second while
 * a collective is under way, so that one that is over for others is over here
 * too.) After any of these the group is broken on every rank, and each later
 * call repeats the sentence. Ranks that call different things (another
 * collective, type, number of elements, reduction or root) are all told so
 * (MANTA_EINVAL), nothing is written to any rank's output, and the group
 * stays usable.
 *
 * Threads: one thread of a rank uses its group at a time. */
#ifndef MANTA_COMM_H
#define MANTA_COMM_H

#include <manta/array.h>
#include <manta/option.h>
#include <manta/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_GROUP_MAX 256 /* ranks */

typedef struct manta_group manta_group;
typedef struct manta_group_plan manta_group_plan;
typedef struct manta_work manta_work;

/* How contributions are combined. float16 and bfloat16 are combined in float32
 * and rounded once, at the end, to nearest even. Integer sums and products wrap;
 * the mean of integers is the exact sum divided toward zero (an int64 sum
 * wraps). MIN and MAX give a NaN where any rank has one, that of the lowest
 * such rank, and of two zeros that of the lower rank. */
typedef enum manta_reduce {
    MANTA_REDUCE_SUM = 0,
    MANTA_REDUCE_MEAN,
    MANTA_REDUCE_MIN,
    MANTA_REDUCE_MAX,
    MANTA_REDUCE_PRODUCT,
    MANTA_REDUCE_COUNT
} manta_reduce;

/* "sum", "mean", ...; "?" for no reduction. */
MANTA_API const char *manta_reduce_name(manta_reduce r);

typedef enum manta_comm_kind {
    MANTA_COMM_AUTO = 0, /* shared memory where all ranks are on one host, else the network */
    MANTA_COMM_RING, /* TCP: each rank sends and receives 2 (size - 1) / size of the bytes */
    MANTA_COMM_SHM /* shared memory */
} manta_comm_kind;

/* Zeroed memory means the defaults. */
typedef struct manta_group_options {
    manta_comm_kind implementation;
    int64_t timeout_ms; /* of one collective; 0: 60,000; MANTA_NONE: none (a death still ends it) */
    int64_t join_timeout_ms; /* until all ranks are there; 0: 60,000; MANTA_NONE: none */
    int64_t bytes_per_pack; /* small tensors are packed up to this size; 0: 1 MiB; MANTA_NONE: never */
    size_t shared_bytes; /* memory of each rank that every rank sees (SHM); 0: none */
    bool progress_thread; /* started collectives go on by themselves; else only in calls of this group */
    const char *key_file; /* RING: the cluster key for TLS; NULL: this user's own */
    bool insecure_bulk; /* RING: data in the clear after an authenticated handshake */
    int listener; /* RING, rank 0: a socket that listens at the address already, which stays the caller's; 0: none */
} manta_group_options;

/* ---- making a group ---- */

/* For ranks that are forked from this process or are its threads: reserves the
 * shared memory. *out: give back with manta_group_plan_free(), in each process;
 * the groups that were joined stay. */
MANTA_API manta_status manta_group_plan_new(int size, const manta_group_options *o,
                                            manta_group_plan **out) MANTA_MUST_USE;
MANTA_API void manta_group_plan_free(manta_group_plan *p); /* accepts NULL */

/* Becomes rank `rank` and waits until all have joined. *out: give back with
 * manta_group_close(). MANTA_EEXIST the rank is taken; MANTA_ETIMEDOUT some have
 * not come, and the sentence says who. */
MANTA_API manta_status manta_group_join(const manta_group_plan *p, int rank,
                                        manta_group **out) MANTA_MUST_USE;

/* For programs that were started separately: meets the others at `address`,
 * "unix:PATH" (one host, one user) or "HOST:PORT" (rank 0 listens there). Ranks
 * may come in any order. *out as above. MANTA_EINVAL also when the ranks
 * disagree about the size of the group or its options. */
MANTA_API manta_status manta_group_open(const char *address, int rank, int size, const manta_group_options *o,
                                        manta_group **out) MANTA_MUST_USE;

/* Leaves. Ranks that still need this one are told. Accepts NULL. */
MANTA_API void manta_group_close(manta_group *g);

/* Breaks the group: every waiting and later call of every rank fails with
 * `reason` and this rank's number. */
MANTA_API void manta_group_abort(manta_group *g, const char *reason);

MANTA_API int manta_group_rank(const manta_group *g);
MANTA_API int manta_group_size(const manta_group *g);
MANTA_API const char *manta_group_implementation(const manta_group *g); /* "shm" or "ring" */

/* ---- collectives ---- */

typedef enum manta_collective_kind {
    MANTA_COLLECTIVE_BARRIER = 0, /* nobody leaves before all have come */
    MANTA_COLLECTIVE_ALL_REDUCE, /* out[n] = reduction of every rank's in[n] */
    MANTA_COLLECTIVE_BROADCAST, /* out[n] = the root's in[n] */
    MANTA_COLLECTIVE_REDUCE, /* as all-reduce, on the root only */
    MANTA_COLLECTIVE_ALL_GATHER, /* out[size * n] = all ranks' in[n], in rank order */
    MANTA_COLLECTIVE_REDUCE_SCATTER, /* out[n] = reduction of every rank's in[rank * n ...] */
    MANTA_COLLECTIVE_ALL_TO_ALL, /* out[r * n ...] = rank r's in[rank * n ...] */
    MANTA_COLLECTIVE_SEND, /* in[n] to the peer; messages of a pair keep their order */
    MANTA_COLLECTIVE_RECEIVE, /* out[n] from the peer */
    MANTA_COLLECTIVE_COUNT
} manta_collective_kind;

/* "all-reduce", ...; "?" for no kind. */
MANTA_API const char *manta_collective_name(manta_collective_kind k);

typedef enum manta_memory_kind {
    MANTA_MEMORY_HOST = 0,
    MANTA_MEMORY_DEVICE /* for implementations to come */
} manta_memory_kind;

/* What is to be done. `out` may be `in` where both have the same length; for
 * all-gather `in` may be this rank's part of `out`, and for reduce-scatter
 * `out` this rank's part of `in`. Other overlaps are not allowed. Reductions
 * are of the seven numeric types; what only moves may also be bool. */
typedef struct manta_collective {
    manta_collective_kind kind;
    const void *in;
    void *out;
    int64_t n; /* elements, of one rank's part where there are parts */
    manta_dtype dtype;
    manta_reduce reduce;
    int peer; /* root, or the other rank of send and receive */
    manta_memory_kind memory;
    void *queue; /* queue of the device; NULL on the host */
} manta_collective;

/* Does it and waits for the result. */
MANTA_API manta_status manta_group_run(manta_group *g, const manta_collective *c) MANTA_MUST_USE;

/* Starts it. Collectives of a group are done in the order in which they were
 * started or run; sends and receives keep the order of their pair only. Memory
 * named in *c is the group's until the work is done. With `progress_thread`
 * it goes on by itself, else whenever this rank is in a call of the group,
 * manta_work_test() among them. *out: owned until manta_work_wait(). */
MANTA_API manta_status manta_group_start(manta_group *g, const manta_collective *c,
                                         manta_work **out) MANTA_MUST_USE;

/* Whether it is done, well or not; moves things on and does not wait. */
MANTA_API bool manta_work_test(manta_work *w);

/* Waits until it is done, gives w back, and returns how it went. */
MANTA_API manta_status manta_work_wait(manta_work *w) MANTA_MUST_USE;

/* One function for each collective: starts it and waits until it is done. */
MANTA_API manta_status manta_group_barrier(manta_group *g) MANTA_MUST_USE;
MANTA_API manta_status manta_group_all_reduce(manta_group *g, const void *in, void *out, int64_t n,
                                              manta_dtype t, manta_reduce r) MANTA_MUST_USE;
MANTA_API manta_status manta_group_broadcast(manta_group *g, void *data, int64_t n, manta_dtype t,
                                             int root) MANTA_MUST_USE;
MANTA_API manta_status manta_group_reduce(manta_group *g, const void *in, void *out, int64_t n, manta_dtype t,
                                          manta_reduce r, int root) MANTA_MUST_USE;
MANTA_API manta_status manta_group_all_gather(manta_group *g, const void *in, void *out, int64_t n,
                                              manta_dtype t) MANTA_MUST_USE;
MANTA_API manta_status manta_group_reduce_scatter(manta_group *g, const void *in, void *out, int64_t n,
                                                  manta_dtype t, manta_reduce r) MANTA_MUST_USE;
MANTA_API manta_status manta_group_all_to_all(manta_group *g, const void *in, void *out, int64_t n,
                                              manta_dtype t) MANTA_MUST_USE;
MANTA_API manta_status manta_group_send(manta_group *g, const void *in, int64_t n, manta_dtype t,
                                        int to) MANTA_MUST_USE;
MANTA_API manta_status manta_group_receive(manta_group *g, void *out, int64_t n, manta_dtype t,
                                           int from) MANTA_MUST_USE;

/* All-reduces `count` tensors of one type in place. Neighbours are packed into
 * one message up to bytes_per_pack; a larger tensor goes alone. The bytes are
 * those of one all-reduce for each. */
MANTA_API manta_status manta_group_all_reduce_many(manta_group *g, int count, void *const *data,
                                                   const int64_t *n, manta_dtype t,
                                                   manta_reduce r) MANTA_MUST_USE;

/* ---- memory that every rank sees (SHM) ---- */

/* The shared_bytes of rank `rank`, 64-byte aligned and zeroed at first; NULL
 * when there are none. Borrowed until manta_group_close(). */
MANTA_API void *manta_group_memory(manta_group *g, int rank);

/* The elements [*begin, *end) of n that are `rank`'s to work on: a run of
 * blocks of 4,096 elements, so that no vector tail moves with the group's size. */
MANTA_API void manta_group_range(int64_t n, int size, int rank, int64_t *begin, int64_t *end);

/* All-reduce and what follows it in one pass over memory: waits until all
 * ranks are here (their contributions lie in shared memory), calls fn for this
 * rank's range of n elements, which reads every rank's part of it and writes
 * where it likes, and returns when every rank's range is done. A failure of fn
 * breaks the group. */
MANTA_API manta_status manta_group_fused(manta_group *g, int64_t n,
                                         manta_status (*fn)(void *ctx, int64_t begin, int64_t end),
                                         void *ctx) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
