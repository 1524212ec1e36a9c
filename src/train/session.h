/* train/session.h - the inside of a session. */
#ifndef TRAIN_SESSION_H
#define TRAIN_SESSION_H

#include <manta/train.h>

#include "nn/apply.h"
#include "nn/exec.h"
#include "nn/layout.h"
#include "nn/objective.h"
#include "os/pool.h"
#include "tensor/kernel.h"
#include "train/trace.h"

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
    pool *pool;
    const kernels *k;
    exec *e;
    int shards;
    bool fuse;
    void *state; /* one side: updates happen in place */
    void **slots; /* one per shard */
    const void **used; /* those with samples, in shard order */
    int n_used;
    session_phase phase;
    bool torn; /* a step failed in the middle of a fused update */
    double *eval_sums; /* of evaluation steps since the last reset, n_sums + 1 */
    bool evaluated; /* the last step was one */
    float *class_weights; /* per sample, for a batch */
    int64_t class_weights_cap;
    trace *trace; /* when profiling with a trace */
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

#endif
