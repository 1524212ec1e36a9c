/* train/session/session.h - the inside of a session. */
#ifndef TRAIN_SESSION_SESSION_H
#define TRAIN_SESSION_SESSION_H

#include <manta/train.h>

#include "nn/apply.h"
#include "nn/exec.h"
#include "nn/layout.h"
#include "nn/objective.h"
#include "os/pool.h"
#include "tensor/kernel.h"
#include "train/session/engine.h"
#include "train/session/trace.h"

enum {
    SESSION_OUTPUTS = 8, /* of a model whose predictions are handed out */
    SESSION_PART = 256, /* samples of a forward pass at a time: weights are read once for as many */
};

/* What the last call left behind. */
typedef enum session_phase {
    SESSION_IDLE,
    SESSION_FORWARD, /* losses and sums are in the slots */
    SESSION_BACKWARD /* gradients too */
} session_phase;

struct manta_session {
    const manta_model *m; /* borrowed */
    manta_optimizer opt;
    manta_loss *losses; /* copies, names owned */
    manta_metric *metrics;
    int n_losses, n_metrics;
    objective o;
    layout l;
    apply a;
    pool *pool; /* NULL until session_local() */
    const kernels *k;
    exec *e; /* NULL until session_local() */
    struct session_device
        *on; /* the device that computes, or NULL: this processor (train/session/device.h) */
    struct lockstep *lockstep; /* NULL until session_local(), and unless shards meet */
    void *(*block)(void *ctx, size_t size); /* exec_options', for session_local(); NULL: none */
    void *block_ctx;
    uint64_t meetings; /* steps that it was used for in this process */
    bool debug;
    int shards;
    manta_statistics statistics;
    engine engine; /* who computes fit() and evaluate() */
    bool busy; /* the engine is in a call: calls from within an event compute in this process */
    int replicas; /* so many batches make a step (engine_share) */
    int threads; /* of this process, once it computes */
    bool fuse;
    bool meets; /* statistics are synchronised, and there is something to synchronise */
    void *
        state; /* the committed buffer; a step in this process updates it in place. With a device a mirror of the
                    device's: session_pull() */
    bool touched; /* the state was changed other than by a step of the workers */
    void **slots; /* one per shard; of this process alone */
    const void **used; /* those with samples, in shard order */
    int n_used;
    bool factored; /* step_core.h: the clip factors of this step are made */
    session_phase phase;
    bool torn; /* a step failed in the middle of a fused update */
    double *eval_sums; /* of evaluation steps since the last reset, n_sums + 1 */
    bool evaluated; /* the last step was one */
    float *outputs[SESSION_OUTPUTS]; /* of predictions in parts; grown as needed */
    size_t outputs_cap[SESSION_OUTPUTS];
    trace *trace; /* when profiling with a trace */
    struct rank_logs *logs; /* where workers print, during a fit; NULL: where this process does */
    char about[96];
};

/* Adds metrics with their names from sums over steps; prefix "" or "val_". */
void session_metrics_of(const manta_session *s, const double *sums, const char *prefix, manta_metrics *out);

/* The f64 sums that training steps add to. */
static inline double *session_sums(const manta_session *s)
{
    return layout_run(&s->l, s->state)->sums;
}

/* Between the layout's padded parameters and one vector without padding. */
void session_pack(const layout *l, const float *padded, float *flat);
void session_unpack(const layout *l, const float *flat, float *padded);

/* With a device s->state is a mirror (train/session/device.h): session_pull() before parameters, statistics or
 * the optimizer's arrays of it are read or changed in part, session_changed() after they were changed. Without one
 * they do nothing. */
manta_status session_pull(const manta_session *s) MANTA_MUST_USE;
void session_changed(manta_session *s);

/* Plans for all these batch sizes, shards included. */
manta_status session_prepare(manta_session *s, plan_mode mode, const int64_t *sizes, int n);

/* Opens a session whose steps an engine computes; manta_session_open() chooses one. */
manta_status session_open(const manta_model *m, const manta_compile *c, const manta_session_options *o,
                          const engine_ops *ops, manta_session **out) MANTA_MUST_USE;

/* Makes what computing in this process needs, threads and plans, if it is not
 * there yet. A session whose engine forks does without as long as it can, because a
 * process with one thread forks cleanly. */
manta_status session_local(manta_session *s);

/* In a process that was forked with the session: it is this process's from now on, but the
 * parent's threads and plans are not, and session_local() makes others. */
void session_after_fork(manta_session *s);

/* ---- parts of a prediction ---- */

/* A prediction mixes no samples, so a large batch is computed in parts, nearly
 * equal ones: the same numbers from less memory. */
static inline int64_t session_parts(int64_t count)
{
    return (count + SESSION_PART - 1) / SESSION_PART;
}

static inline int64_t session_part_begin(int64_t count, int64_t part)
{
    return count * part / session_parts(count);
}

/* ---- parts of a step, for workers ---- */

/* The first row of a shard of a batch of `count`. */
static inline int64_t session_shard_begin(const manta_session *s, int64_t count, int shard)
{
    return count * shard / s->shards;
}

/* Whether the arrays fit the model. */
manta_status session_check_feed(const manta_session *s, const manta_feed *f, bool targets);

/* Rows [lo, hi) of a batch. */
manta_feed session_feed_rows(const manta_feed *f, int64_t lo, int64_t hi);

/* The call that computes these rows from the session's state into `slot`. */
exec_run session_run(const manta_session *s, plan_mode mode, const manta_feed *f, void *slot);

#endif
