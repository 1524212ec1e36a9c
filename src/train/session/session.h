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
#include "train/session/shared.h"
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

/* Other processes that train the same session, each with data of its own: what
 * fit() asks of whoever brought them together. All of them call the same, in the
 * same order. */
typedef struct session_peers {
    void *ctx;
    manta_status (*step)(void *ctx, manta_session *s, const manta_feed *f); /* count 0: it has no data */
    manta_status (*most)(void *ctx, double *value); /* the greatest of all */
    manta_status (*sum)(void *ctx, double *values, int n);
    void (*leave)(void *ctx); /* the session is about to be closed */
} session_peers;

struct manta_session {
    const manta_model *m; /* borrowed */
    manta_optimizer opt;
    manta_loss *losses; /* copies, names owned */
    manta_metric *metrics;
    int n_losses, n_metrics;
    objective o;
    layout l;
    apply a;
    pool *pool; /* NULL until session_local() when there are workers */
    const kernels *k;
    exec *e; /* the same */
    struct lockstep *lockstep; /* the same, when shards meet */
    void *(*block)(void *ctx, size_t size); /* exec_options', for session_local(); NULL: none */
    void *block_ctx;
    uint64_t meetings; /* steps that it was used for in this process */
    bool debug;
    int shards;
    manta_statistics statistics;
    int workers; /* processes that compute fit() and evaluate(), at most; 1: this one */
    int servers; /* parameter servers; 0: training is synchronous */
    manta_cluster *ps_cluster; /* whose processes are servers and workers; NULL: forked ones */
    int ps_workers; /* processes that compute for them, instead of `workers` */
    int64_t staleness; /* see ps_tickets.h; -1: no bound */
    int min_workers, wanted_workers; /* as few as that will do; so many there are to be now */
    manta_cluster *cluster; /* whose processes fit and evaluate together, or NULL; borrowed */
    int ranks; /* of it; 1 without */
    session_peers peers; /* step NULL: none */
    int threads; /* of a worker, or of this process */
    shared *shared; /* holds the state, and the workers' slots, when there are some */
    bool grouped; /* workers are at it: calls from within an event compute in this process */
    bool fuse;
    bool meets; /* statistics are synchronised, and there is something to synchronise */
    void *state; /* the committed side; a step in this process updates it in place */
    bool touched; /* the state was changed other than by a step of the workers */
    void **slots; /* one per shard; of this process alone */
    const void **used; /* those with samples, in shard order */
    int n_used;
    session_phase phase;
    bool torn; /* a step failed in the middle of a fused update */
    double *eval_sums; /* of evaluation steps since the last reset, n_sums + 1 */
    bool evaluated; /* the last step was one */
    float *outputs[SESSION_OUTPUTS]; /* of predictions in parts; grown as needed */
    size_t outputs_cap[SESSION_OUTPUTS];
    trace *trace; /* when profiling with a trace */
    struct rank_logs *logs; /* where workers print, during a fit; NULL: where this process does */
    char about[64];
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

/* Plans for all these batch sizes, shards included. */
manta_status session_prepare(manta_session *s, plan_mode mode, const int64_t *sizes, int n);

/* Makes what computing in this process needs, threads and plans, if it is not
 * there yet. A session with workers does without as long as it can, because
 * workers are forked from it and a process with one thread forks cleanly. */
manta_status session_local(manta_session *s);

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

/* Ends a step in this process of which apply_begin() has the gradients: updates
 * parameters, statistics and the run section in place. */
void session_update(manta_session *s, int64_t count);

/* The call that computes these rows from the session's state into `slot`. */
exec_run session_run(const manta_session *s, plan_mode mode, const manta_feed *f, void *slot);

#endif
