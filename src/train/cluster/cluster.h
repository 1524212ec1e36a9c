/* train/cluster/cluster.h - the processes of several hosts as a group, from inside.
 *
 * Every process holds the whole state and computes its shards of each step.
 *
 *                  rank 0               rank 1               rank 2        V shards, B blocks
 *   state          all of it            all of it            all of it
 *   computes       shards 0 .. V/3      shards V/3 .. 2V/3   shards 2V/3 .. V
 *   adds           blocks 0 .. B/3      blocks B/3 .. 2B/3   blocks 2B/3 .. B
 *   updates        all of it            all of it            all of it
 *
 *   shard v belongs to the rank r with V r / N <= v < V (r + 1) / N
 *   block b of the parameter grid to the rank with B r / N <= b < B (r + 1) / N
 *
 * A step: of each slot a rank sends every rank the gradients of that rank's blocks, and
 * the rest of the slot (proposed statistics, sums) whole. Who has all shards of some
 * of its blocks adds them by the shard tree and sends the sum to all; who has the
 * sum of all blocks applies the update to its whole state, with the functions that
 * one process uses: that is the commit. Nothing of the state changes before. The
 * messages are drawn in cluster_exchange.h.
 *
 * A generation: from a meeting of all ranks to the next loss.
 *
 *   meeting --> agreement on the furthest state --> steps --> ... --> the call's end
 *      ^                                              |
 *      +------ all connections are closed <-----------+ a rank is lost, or comes anew
 *
 * Invariants
 * 1. Nobody can commit step k + 1 before all have computed their shards from
 *    the state of step k, so two ranks never differ by more than one step.
 * 2. A connection belongs to one generation. When one is lost, all are closed
 *    and everybody meets anew: each says how far it is, the furthest state
 *    wins, and who is behind (or has just been started) copies it.
 * 3. A message carries generation and step; one of another generation is
 *    refused, one of a later step waits.
 * 4. Each message of a step is heard once: what came is noted by what it is and
 *    whose, and a rank that sends it again is treated as lost.
 *
 * Threads: one, and one that reads samples ahead (cluster_feed.c). */
#ifndef TRAIN_CLUSTER_CLUSTER_H
#define TRAIN_CLUSTER_CLUSTER_H

#include <manta/cluster.h>

#include "net/rendezvous.h"
#include "os/crash.h"
#include "train/cluster/agreement.h"
#include "train/cluster/tf_config.h"
#include "train/group/worker_main.h"
#include "train/session/position.h"
#include "train/session/session.h"

enum {
    CLUSTER_TICK_MS = 200, /* at least so often a waiting rank looks up */
    CLUSTER_WORK = 1024, /* bytes of what a call is to do, in words */
};

/* Of an epoch, in this order. */
typedef enum cluster_phase {
    CLUSTER_TRAIN,
    CLUSTER_EVALUATE,
    CLUSTER_DECIDE /* whether there is another; step 1: it is decided */
} cluster_phase;

/* How far a rank is; the first field that differs says who is further. */
typedef struct cluster_at {
    int64_t call; /* of fit or evaluate, from 0 */
    int64_t iterations; /* of the optimizer */
    int64_t epoch;
    int64_t phase;
    int64_t step; /* within the phase */
} cluster_at;

enum cluster_message {
    CLUSTER_STATE = FRAME_USER, /* where I am */
    CLUSTER_SYNC, /* a whole state */
    CLUSTER_GRADIENTS, /* of a shard, a piece of the receiver's blocks */
    CLUSTER_REST, /* of a shard: statistics and sums */
    CLUSTER_NUMBERS, /* of a shard, in the middle of the step: what it leaves at a place (lockstep.h) */
    CLUSTER_SUM, /* of all shards, a piece of the sender's blocks */
    CLUSTER_RATE, /* the chief's learning rate, which its callbacks may have changed */
    CLUSTER_VERDICT, /* the chief's: whether training ends with this epoch */
    CLUSTER_DONE, /* I am at the end of the call */
    CLUSTER_ALL_DONE, /* and so is everybody */
    CLUSTER_FAILED /* I have given up; the error */
};

/* The item of CLUSTER_FAILED: the sentence is not about me, and everybody says it as it is. */
enum { CLUSTER_SAID_OF_ALL = 1 };

/* What a rank says when all meet: plain numbers, as they lie in memory. */
typedef struct cluster_word {
    uint64_t generation;
    cluster_at at;
    uint64_t seed; /* of the state */
    int32_t lost; /* the rank whose loss ended the generation, as seen from here; -1: none */
    uint32_t reserved;
    char cause[200]; /* why that rank counts as lost */
    uint32_t digest; /* of the state */
    uint32_t n_work;
    char work[CLUSTER_WORK]; /* what the call is to do (agreement.h): the same for all that are in it */
} cluster_word;

typedef struct cluster_peer {
    char node[SECURE_NODE]; /* "worker/1" */
    const char *address;
    chan *c; /* NULL: not connected */
    cluster_word word; /* of the last meeting */
    bool done; /* it is at the end of the call */
    uint32_t end; /* with a state of this digest */
    int waits; /* messages of this step still to come */
    uint64_t got; /* bytes of the message that is being received */
} cluster_peer;

/* What the chief says at the end of an epoch. */
typedef struct cluster_verdict {
    double rate; /* its learning rate */
    uint64_t stop; /* training ends with this epoch */
} cluster_verdict;

/* What waiting is told about; false stops it. */
typedef bool cluster_watch(void *ctx, const char *missing, int rank, double ms);

struct manta_cluster {
    tf_config config;
    cluster_key *key; /* key_hold()'s; NULL: none is needed */
    rendezvous *meeting; /* its nodes are the ranks; NULL: alone, or with parameter servers */
    int n, rank;
    int64_t timeout_ms;
    bool plain;
    char job[FRAME_NAME];
    cluster_peer *peers; /* by rank; the own one is unused */
    chan_item *items; /* for waiting, by rank */
    bool *awaited; /* for telling of it, by rank */
    double say_ms; /* of a meeting, after which it is said again who is missing */
    int64_t calls; /* of fit and evaluate begun by this process */
    uint64_t generation;
    bool met; /* connections are up, in this generation */
    int lost; /* why they are not: a rank, or -1 */
    char cause[400];
    int culprit; /* of the last meeting, as all see it: who was lost before it; -1: nobody */
    char culprit_cause[400];
    /* of the call at hand */
    manta_session *s;
    agreement basis; /* without which no state can be copied: the same for all */
    agreement settings; /* what ranks in the same call must have in common beside the basis */
    agreement work; /* of the call; CLUSTER_WORK bytes at most */
    cluster_at at;
    cluster_word word; /* ours, while it is being sent */
    float *sum; /* of all shards' gradients */
    int64_t n_sum; /* params_size */
    int *pieces; /* of our blocks: shards whose gradients are here; -1: added and sent */
    unsigned char *heard; /* a bit for each message that others may send in this step */
    feed_reader *readers[2]; /* by phase; borrowed */
    int64_t epochs, steps[2]; /* of the call; of a phase */
    uint64_t number; /* steps begun in this generation */
    double rate; /* the chief's learning rate, on its way */
    cluster_verdict verdict; /* the chief's, on its way */
    cluster_watch *watch;
    void *ctx;
    uint32_t digest; /* of the state at the end */
    manta_error failure; /* of a rank that has given up */
    bool failed; /* there is one */
    bool differ; /* our own is that not all were started alike: it is said by all in the same words */
    /* recoveries not told yet */
    bool recovered;
    int recovered_rank;
    double recovered_ms;
    char recovered_cause[400];
};

/* Blocks of the parameter grid that are sent together; the same for all ranks. */
extern int64_t cluster_piece;

/* ---- for tests ---- */

/* Where a test may have a process kill itself (os/crash.h). */
#define CLUSTER_CRASH_POINTS(X)                                                                              \
    X(CLUSTER_CRASH_MEET_BEGIN, "cluster/meet_begin", "a process has parted from all others")                \
    X(CLUSTER_CRASH_MEET_GATHERED, "cluster/meet_gathered", "a process has heard how far all others are")    \
    X(CLUSTER_CRASH_SYNC_POSTED, "cluster/sync_posted", "the state is on its way to whoever lacks it")       \
    X(CLUSTER_CRASH_SYNC_HEARD, "cluster/sync_heard", "the state has come, nothing of it is used")           \
    X(CLUSTER_CRASH_STEP_BEGIN, "cluster/step_begin", "a step is begun")                                     \
    X(CLUSTER_CRASH_SHARD_COMPUTED, "cluster/shard_computed", "a shard is computed, and not sent")           \
    X(CLUSTER_CRASH_SHARD_SENT, "cluster/shard_sent", "a shard's pieces are on their way")                   \
    X(CLUSTER_CRASH_SHARDS_HEARD, "cluster/shards_heard", "all shards of a piece have come")                 \
    X(CLUSTER_CRASH_SUM_POSTED, "cluster/sum_posted", "a piece's sum is on its way")                         \
    X(CLUSTER_CRASH_SUM_SENT, "cluster/sum_sent", "a piece's sum is sent")                                   \
    X(CLUSTER_CRASH_SUMS_HEARD, "cluster/sums_heard", "all sums of a step have come, nothing is updated")    \
    X(CLUSTER_CRASH_UPDATED, "cluster/updated", "the state is updated, the step not counted")                \
    X(CLUSTER_CRASH_DECIDE_BEGIN, "cluster/decide_begin", "the verdict on an epoch is to come")              \
    X(CLUSTER_CRASH_DECIDED, "cluster/decided", "the verdict on an epoch has come")                          \
    X(CLUSTER_CRASH_END_BEGIN, "cluster/end_begin", "a call is to be ended")                                 \
    X(CLUSTER_CRASH_NUMBERS_SENT, "cluster/numbers_sent", "a shard's statistics are on their way")
CRASH_DECLARE(cluster, CLUSTER_CRASH_POINTS)

/* This process sends the n-th message of this kind in its steps twice. */
typedef struct cluster_echo {
    uint16_t kind; /* 0: none */
    int nth;
} cluster_echo;
extern cluster_echo cluster_echo_plan;

extern const engine_ops engine_cluster;

/* ---- calls: cluster.c ---- */

/* What a call works on. Borrowed until cluster_end(). */
typedef struct cluster_work {
    feed_reader *readers[2]; /* by phase; NULL: none */
    train_position at; /* where to begin, if nobody is further */
    cluster_phase phase;
    int64_t epochs, steps, validation_steps; /* all ranks must have the same */
    cluster_watch *watch;
    void *ctx;
} cluster_work;

/* How many ranks are on this host, as far as the addresses tell: at least 1. */
int cluster_local(const manta_cluster *c);

/* Begins a fit or an evaluation: meets the others and agrees on where to
 * begin, which is then in c->at (and in the session, if others are further).
 * *over: the others are through with this call already. */
manta_status cluster_begin(manta_cluster *c, manta_session *s, const cluster_work *w,
                           bool *over) MANTA_MUST_USE;

/* Ends it: waits until all are through when st is MANTA_OK, tells them the
 * error when it is one of ours. Returns st, or what went wrong. */
manta_status cluster_end(manta_cluster *c, manta_status st) MANTA_MUST_USE;

/* Enters a phase of an epoch, unless the cluster is there or further. */
void cluster_enter(manta_cluster *c, int64_t epoch, cluster_phase phase);

/* Whether the next thing to do is a step of this phase of this epoch. */
bool cluster_is_in(const manta_cluster *c, int64_t epoch, cluster_phase phase);

/* Computes the step at hand with the others. When it returns MANTA_OK, c->at
 * has moved: by the step, or to where the others are. */
manta_status cluster_step(manta_cluster *c) MANTA_MUST_USE;

/* At the end of an epoch: whether training ends with it. The chief's *stop goes
 * to all, and so does its learning rate; with `changed` (its callbacks have
 * given it other weights) its whole state. */
manta_status cluster_decide(manta_cluster *c, int64_t epoch, bool changed, bool *stop) MANTA_MUST_USE;

/* Has everybody come to where this rank is. */
manta_status cluster_regroup(manta_cluster *c) MANTA_MUST_USE;

/* A rank is lost (c->lost, c->cause): waits for it and meets all again. */
manta_status cluster_recover(manta_cluster *c) MANTA_MUST_USE;

/* A recovery that has not been told; the cause is borrowed until the next. */
bool cluster_take_recovery(manta_cluster *c, int *rank, double *ms, const char **cause);

/* ---- samples: cluster_feed.c ---- */

/* How many samples the step at hand has. */
manta_status cluster_count_samples(manta_cluster *c, int64_t *count) MANTA_MUST_USE;

/* Those of one of this rank's shards, of `count` in the step at hand. Valid until the next
 * are fetched. Those that come after them are read meanwhile. */
manta_status cluster_fetch_shard(manta_cluster *c, int64_t count, int shard, manta_feed *f) MANTA_MUST_USE;

/* ---- connections: cluster_rendezvous.c ---- */

/* Moves bytes and waits a little. MANTA_EDIED: a rank is lost (c->lost,
 * c->cause), or has come back as a new process. */
manta_status cluster_pump(manta_cluster *c, int64_t deadline) MANTA_MUST_USE;

/* Meets all others and copies the furthest state. */
manta_status cluster_rendezvous(manta_cluster *c) MANTA_MUST_USE;

/* Notes that a rank is lost because of the thread's last error. */
manta_status cluster_lose(manta_cluster *c, int rank);

/* Closes all connections between ranks. */
void cluster_part(manta_cluster *c);

/* The error that a rank has told; takes the message. MANTA_EBUSY: not all here. */
manta_status cluster_read_failure(manta_cluster *c, int rank, chan *from) MANTA_MUST_USE;

/* ---- who is to be named: cluster_blame.c ---- */

/* Finds in the words of those who have met who was lost before: c->culprit and its cause, the
 * same for all ranks. */
void cluster_find_culprit(manta_cluster *c);

/* Whom a waiting rank waits for in the end, of those that it has something to get from (`awaited`, by
 * rank): one of which nothing is heard or, if all are, whom they say that they wait for. -1: nobody. */
int cluster_blame(const manta_cluster *c, const bool *awaited);
/* Says to all whom we wait for, -1: nobody. It goes with the pulses of net/chan.h. */
void cluster_say_awaited(manta_cluster *c, int rank);

/* ---- one state for all: cluster_sync.c ---- */

/* Agrees with those who have met on a generation and on the furthest state, and copies
 * that. MANTA_EDIED: a rank is lost (c->lost). */
manta_status cluster_agree(manta_cluster *c) MANTA_MUST_USE;

/* Of the state, as far as ranks that are equally far have it in common. */
uint32_t cluster_digest(const manta_cluster *c);

/* Of weights, statistics and optimizer, without counters and rate. */
uint32_t cluster_weights_digest(const manta_cluster *c);

static inline int64_t cluster_first_shard(const manta_cluster *c, int rank)
{
    return (int64_t)c->s->shards * rank / c->n;
}

static inline int64_t cluster_first_block(const manta_cluster *c, int rank)
{
    return c->s->l.param_blocks * rank / c->n;
}

/* Bits of `heard`: gradients by shard and piece of ours, rests by shard, sums
 * by block, the rate, the verdict. */
static inline size_t cluster_heard_bits(const manta_cluster *c)
{
    int64_t own = cluster_first_block(c, c->rank + 1) - cluster_first_block(c, c->rank);

    return (size_t)(c->s->shards * (own + 1) + c->s->l.param_blocks + 2);
}

/* Pieces of a rank's blocks. */
static inline int64_t cluster_pieces(const manta_cluster *c, int rank)
{
    int64_t blocks = cluster_first_block(c, rank + 1) - cluster_first_block(c, rank);

    return (blocks + cluster_piece - 1) / cluster_piece;
}

#endif
