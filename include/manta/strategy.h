/* manta/strategy.h - training loops of a program's own, on several replicas.
 *
 * manta_fit() needs none of this. A strategy is for programs that write the loop
 * themselves, as with TensorFlow's strategy.run() or PyTorch's DDP: it runs a
 * function on every replica, gives them a group to exchange numbers
 * (manta/comm.h), and keeps what they commit.
 *
 *     static manta_status loop(manta_replica *r, void *user)
 *     {
 *         manta_array w;
 *         MANTA_TRY(manta_replica_variable(r, "w", &w));      // this replica's copy
 *         for (int64_t step = manta_replica_step(r); step < 100; step++) {
 *             gradient(r, &w, g);                             // of this replica's samples
 *             MANTA_TRY(manta_group_all_reduce(manta_replica_group(r), g, g, n, MANTA_DTYPE_F32, MANTA_REDUCE_MEAN));
 *             update(&w, g);
 *             MANTA_TRY(manta_replica_commit(r, step + 1));   // w and the step, for all replicas at once
 *         }
 *         return MANTA_OK;
 *     }
 *
 *     static manta_status train(manta_strategy *s, const manta_array *w)
 *     {
 *         MANTA_TRY(manta_strategy_variable(s, "w", w));      // the caller's array: start, and later the result
 *         return manta_strategy_run(s, loop, NULL);
 *     }
 *
 * What is promised: when a replica dies, every call of the others fails at once,
 * and all of them enter the function again with the variables and the step of
 * the last commit. A loop that is a function of these and its data therefore
 * ends with the same bytes, whoever died. Errors that the function returns are
 * not tried again: they end the run with their sentence and the replica's rank.
 *
 * Threads: a strategy is used by one thread. Replicas of MIRRORED are forked from
 * the calling process; locks that other threads hold then are held for ever. */
#ifndef MANTA_STRATEGY_H
#define MANTA_STRATEGY_H

#include <manta/comm.h>
#include <manta/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_strategy manta_strategy;
typedef struct manta_replica manta_replica;

typedef enum manta_replication {
    MANTA_REPLICATION_AUTO, /* as TF_CONFIG says when it is set, else MIRRORED */
    MANTA_REPLICATION_ONE_DEVICE, /* one replica: this process */
    MANTA_REPLICATION_MIRRORED, /* processes of this host, forked */
    MANTA_REPLICATION_MULTI_WORKER /* this process is one of those that TF_CONFIG names */
} manta_replication;

/* Zeroed memory means the defaults. */
typedef struct manta_strategy_options {
    manta_replication kind;
    int replicas; /* MIRRORED: how many; 0: one for each core */
    int max_failures; /* losses in a row without a commit; 0: 3 */
    size_t value_bytes; /* for what a replica leaves with manta_replica_leave(); 0: 1 MiB */
    manta_group_options group; /* of the replicas' group */
    /* Told when replicas were lost and enter again, on the calling thread; optional. */
    void (*recovered)(void *user, int rank, const char *cause, int64_t step);
    void *user;
} manta_strategy_options;

/* *out: give back with manta_strategy_close(). options may be NULL. MANTA_EINVAL
 * also for a TF_CONFIG that cannot be. */
MANTA_API manta_status manta_strategy_open(const manta_strategy_options *options,
                                           manta_strategy **out) MANTA_MUST_USE;
MANTA_API void manta_strategy_close(manta_strategy *s); /* accepts NULL */

MANTA_API int manta_strategy_replicas(const manta_strategy *s); /* TensorFlow's num_replicas_in_sync */
/* Whether this process speaks for all: saves, prints. */
MANTA_API bool manta_strategy_is_chief(const manta_strategy *s);

/* ---- variables ---- */

/* A variable that is committed with the step. `value` is borrowed while the
 * strategy lives: what it holds now is the start, and after
 * manta_strategy_run() it holds what was committed last, also when the run
 * failed. Row-major. MANTA_EEXIST a name that is taken; MANTA_EINVAL during a run. */
MANTA_API manta_status manta_strategy_variable(manta_strategy *s, const char *name,
                                               const manta_array *value) MANTA_MUST_USE;

/* Mirrors the whole state of a session: weights, optimizer, counters. Each replica
 * trains a copy of its own; all copies begin alike. */
MANTA_API manta_status manta_strategy_mirror(manta_strategy *s, manta_session *session) MANTA_MUST_USE;

/* ---- running ---- */

typedef manta_status (*manta_replica_fn)(manta_replica *r, void *user);

/* Runs fn on every replica and waits for all. Begins at step 0, or with
 * MULTI_WORKER where the others are. MANTA_EDIED: replicas were lost more often
 * in a row than is allowed. */
MANTA_API manta_status manta_strategy_run(manta_strategy *s, manta_replica_fn fn, void *user) MANTA_MUST_USE;

MANTA_API int manta_replica_rank(const manta_replica *r);
MANTA_API int manta_replica_count(const manta_replica *r);
MANTA_API manta_group *manta_replica_group(manta_replica *r);
/* The step of the last commit: where the loop begins. */
MANTA_API int64_t manta_replica_step(const manta_replica *r);
/* This replica's copy of a variable: borrowed until fn returns. MANTA_ENOENT. */
MANTA_API manta_status manta_replica_variable(manta_replica *r, const char *name,
                                              manta_array *out) MANTA_MUST_USE;

/* Waits for all replicas, and makes the variables of rank 0, which all should
 * have computed alike, and `step` what a loop begins with from now on. */
MANTA_API manta_status manta_replica_commit(manta_replica *r, int64_t step) MANTA_MUST_USE;

/* One step of data-parallel training of a mirrored session: gradients of this
 * replica's samples, their mean over all samples of all replicas, the update. A
 * replica's batch is one shard of the step, so that the result is, to the bit, that of
 * one process with as many shards (docs/numerics.md). A replica without samples (f NULL,
 * or of count 0) takes part and adds nothing; with MANTA_STATISTICS_FIRST the first one
 * that has samples gives the statistics, else all of these their mean.
 * MANTA_EINVAL no replica has samples. */
MANTA_API manta_status manta_replica_train_step(manta_replica *r, manta_session *s,
                                                const manta_feed *f) MANTA_MUST_USE;

/* ---- values of every replica ---- */

/* Leaves a value for the caller of manta_strategy_run(); a later one of the
 * same name takes its place. MANTA_ENOSPC: more than value_bytes. */
MANTA_API manta_status manta_replica_leave(manta_replica *r, const char *name,
                                           const manta_array *value) MANTA_MUST_USE;

/* What replica `rank` left in the last run; a view until the next one.
 * MANTA_ENOENT. Of another process (MULTI_WORKER) there is none. */
MANTA_API manta_status manta_strategy_value(const manta_strategy *s, int rank, const char *name,
                                            manta_array *out) MANTA_MUST_USE;
/* The reduction of what all replicas left, element by element, into out (same
 * shape and type); and what they left, one after the other along the first
 * dimension, which may differ. */
MANTA_API manta_status manta_strategy_reduce(const manta_strategy *s, const char *name, manta_reduce how,
                                             const manta_array *out) MANTA_MUST_USE;
MANTA_API manta_status manta_strategy_gather(const manta_strategy *s, const char *name, void *out,
                                             size_t size) MANTA_MUST_USE;

#ifdef __cplusplus
}
#endif
#endif
