/* train/session/engine.h - who computes the steps of a fit or an evaluation.
 *
 * fit.c, evaluate.c and pass.c know this interface and nothing of what is behind
 * it; a session holds one engine. Those that there are:
 *
 *   engine_local     this process                              session/engine.c
 *   engine_group     workers of this host, sharing memory      group/group_engine.c
 *   engine_cluster   processes of several hosts (TF_CONFIG)    cluster/cluster_engine.c
 *   engine_served    parameter servers, here or on hosts       ps/ps_engine.c
 *   engine_ranks     a trainer's loops, each with data of its
 *                    own                                       trainer/trainer_engine.c
 *
 * An engine lives as long as its session; a call of fit or evaluate is an
 * engine_call on it. The order of calls, all on the thread that called fit:
 *
 *   open   memory                                 the session is opened
 *     begin                                       fit or evaluate begins
 *       train   evaluate   settle   pull          epoch by epoch; train not when
 *                                                 only evaluating
 *     finish   end                                also when begin has failed
 *   close                                         the session is closed
 *
 * Invariants that fit relies on
 * 1. Whenever the watch is called, and between two operations, the session's state
 *    is that of the last step that was told (with `reads_state`; engine_served
 *    brings it no sooner than asked) and belongs to the caller: it may be read and
 *    changed. A change sets the session's `touched`, and the next step starts from
 *    the changed state.
 * 2. A step that was told is committed: no loss of a process takes it back.
 * 3. The state after a step is a function of the state before, the batch and the
 *    number of shards, to the bit (docs/numerics.md); engine_served promises that
 *    only without staleness.
 * 4. An operation that fails leaves the session with the state of the last commit.
 *
 * What comes next plugs in here. A GPU that computes a whole step is another
 * engine: `memory` keeps the state where the device finds it, `train` launches steps
 * and `pull` brings the state back before somebody looks. A GPU within each worker,
 * or another transport between processes, is a part of an engine that there is (the
 * step core in step_core.h, channels in net/) and changes nothing here. Either way
 * the new one gets a row in engines/engines.c, and fit stays as it is. */
#ifndef TRAIN_SESSION_ENGINE_H
#define TRAIN_SESSION_ENGINE_H

#include <manta/train.h>

#include "nn/exec.h"
#include "train/session/feed.h"
#include "train/session/position.h"
#include "train/session/worker_events.h"

typedef struct engine_ops engine_ops;

/* An engine: what it does, and what it keeps for its session. */
typedef struct engine {
    const engine_ops *ops;
    void *ctx;
} engine;

/* Where the samples of a pass are read. */
typedef enum engine_reading {
    ENGINE_READS_HERE, /* in this process, batch by batch, ahead of need */
    ENGINE_READS_ROWS, /* in this process, the rows that it computes; the length must be known */
    ENGINE_READS_ELSEWHERE /* in other processes: no threads and no plans here; the length must be known */
} engine_reading;

/* How an engine divides a step. */
typedef struct engine_share {
    int shards; /* V of docs/numerics.md */
    int threads; /* of a process that computes */
    int here; /* threads of this process when it computes itself, as in a prediction */
    int replicas; /* so many times fit's `batch` makes a step */
    char about[40]; /* for manta_session_about(): "2 workers of " */
} engine_share;

/* What fit or evaluate wants to hear; ctx is its own. A status other than MANTA_OK
 * ends the operation, which returns it. */
typedef struct engine_watch {
    void *ctx;
    bool reads_state; /* the whole state is looked at after each step, not only its sums */
    bool (*every_step)(void *ctx, plan_mode mode); /* each is to be told, and the next is not to be committed
                                                      before; else one now and then, and the last */
    int64_t (*next_look)(void *ctx); /* when the next is to be told then; CLOCK_NEVER: the last will do */
    void (*reached)(void *ctx,
                    int64_t step); /* `step` is the last that is committed: said before worker events */
    manta_status (*begins)(void *ctx, plan_mode mode, int64_t step); /* nobody has begun to commit it */
    manta_status (*done)(void *ctx, plan_mode mode, int64_t step); /* `step` is the last that is committed */
    bool (*stops)(void *ctx); /* whether training is to end early: after the step that was told */
    void (*stop)(void *ctx, const char *why); /* it is: somebody else has decided so */
    manta_status (*worker_event)(void *ctx, const worker_event *e,
                                 const char *cause); /* something happened to a process */
    bool (*waiting)(void *ctx, const char *missing, int rank, double ms); /* for others, again and again;
                                                                             false: give up */
} engine_watch;

/* A fit or an evaluation under way. The caller fills in the first part. */
typedef struct engine_call {
    engine e;
    manta_session *s;
    feed_pass *train; /* NULL: an evaluation alone */
    feed_pass *evaluate; /* NULL: no validation. Opened later, before the first evaluate(), when it is
                            read here: that brings threads, and an engine may fork in begin() */
    int64_t epochs;
    int64_t worker_deadline_ms; /* manta_fit_options' */
    int max_failures; /* manta_fit_options' */
    engine_watch watch;
    /* Where to begin: the caller's wish, and after begin() what the engine has found: who
     * joins a training that is under way begins where that is. */
    train_position at;
    bool over; /* set by begin(): the others are through already, nothing is left to do */
    void *job; /* the engine's; freed by end() */
    bool nested; /* engine_begin()'s: this is a call from within an event of another one */
} engine_call;

/* Entries that say "optional" may be NULL. */
struct engine_ops {
    engine_reading reads_training, reads_evaluation;
    bool forks; /* processes are made from this one, which therefore has no threads before it must */

    /* Checks the options and divides the work. *ctx: the engine's, for close(). */
    manta_status (*open)(const manta_session_options *o, engine_share *out, void **ctx);
    /* Optional: memory for the session's state, zeroed, valid until close(). NULL: the heap's. */
    manta_status (*memory)(void *ctx, const manta_session *s, void **state);
    void (*close)(void *ctx); /* optional */

    /* Optional, both: engines whose processes may come and go (manta_session_resize(),
     * manta_session_workers()). */
    manta_status (*resize)(void *ctx, int workers);
    int (*workers)(const void *ctx);
    /* Optional: engines that measure (manta_session_worker_work()). */
    bool (*work)(const void *ctx, int rank, manta_worker_work *out);

    /* Optional: gets everybody ready, and says with whom and where it begins (c->at, c->over). */
    manta_status (*begin)(engine_call *c);
    /* Steps `first` and on of an epoch, until its end or until the watch wants no more. *steps: how
     * many of the epoch are done then, whoever did them. */
    manta_status (*train)(engine_call *c, int64_t epoch, int64_t first, int64_t *steps);
    /* One pass over c->evaluate; sums in the session's eval_sums. *steps: how many were done. */
    manta_status (*evaluate)(engine_call *c, int64_t epoch, int64_t *steps);
    /* Optional: all processes agree whether training ends with this epoch, and continue from the same state. *stop:
     * this one's wish, then everybody's; *why: when it was another's, borrowed. */
    manta_status (*settle)(engine_call *c, int64_t epoch, bool *stop, const char **why);
    /* Optional: the session's state becomes that of all steps told. */
    manta_status (*pull)(engine_call *c);
    /* Optional: parts from processes that this one does not own. `st`: how it went here;
     * returns it, or what went wrong in parting. */
    manta_status (*finish)(engine_call *c, manta_status st);
    void (*end)(engine_call *c); /* optional */
};

extern const engine_ops engine_local;

/* ---- calls, for fit and evaluate ---- */

/* The engine for a pass: the session's, or this process for a prediction and for calls
 * from within an event of another call. */
engine engine_for(const manta_session *s, plan_mode mode);
engine_reading engine_reads(const manta_session *s, plan_mode mode);

/* Begins a call, and ends one that was begun, in two parts: after engine_finish(),
 * which returns st or what went wrong in parting, the state can still be pulled. */
manta_status engine_begin(engine_call *c) MANTA_MUST_USE;
manta_status engine_finish(engine_call *c, manta_status st) MANTA_MUST_USE;
void engine_end(engine_call *c); /* accepts zeroed memory */

/* ---- for engines ---- */

/* Tells the watch all that is in the queue; fails with the first failure. */
manta_status engine_tell(const engine_call *c, worker_events *q) MANTA_MUST_USE;
/* engine_local's: for engines that evaluate in this process. */
manta_status engine_evaluate_here(engine_call *c, int64_t epoch, int64_t *steps) MANTA_MUST_USE;
/* The sums of an evaluation begin anew. */
void engine_reset_sums(const manta_session *s);

#endif
