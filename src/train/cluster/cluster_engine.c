/* cluster_engine.c - the processes of a cluster as an engine (engine.h). Each of them
 * runs fit with the same data; whoever was lost and has come back is taken along by
 * the others, so that an epoch may be at any phase and step when it comes to it. */
#include <stdio.h>

#include "base/mem.h"
#include "os/cpu.h"
#include "train/cluster/cluster.h"

/* Of a call. */
typedef struct cluster_job {
    bool met; /* cluster_begin() was called */
    uint32_t weights; /* digest of the weights that the last operation left: callbacks may change them */
} cluster_job;

static manta_status open_ranks(const manta_session_options *o, engine_share *out, void **ctx)
{
    int cores = cpu_cores(), ranks = manta_cluster_size(o->cluster), here = cluster_local(o->cluster);
    int threads = o->threads > 0 ? o->threads : cores > here ? cores / here : 1;

    *out = (engine_share){
        .shards = o->shards > 0 ? o->shards : ranks, .threads = threads, .here = threads, .replicas = ranks};
    if (o->workers > 1) {
        return manta_fail(
            MANTA_EINVAL,
            "%d workers in a process of a cluster: each of its %d processes computes itself, with as "
            "many threads as it may have",
            o->workers, ranks);
    }
    if (out->shards < ranks)
        return manta_fail(MANTA_EINVAL, "%d shards for %d processes: each needs one at least", out->shards,
                          ranks);
    snprintf(out->about, sizeof out->about, "rank %d of %d, ", manta_cluster_rank(o->cluster), ranks);
    *ctx = o->cluster;
    return MANTA_OK;
}

/* Tells of a rank that was lost and has come back. */
static manta_status tell_recovery(engine_call *c)
{
    worker_event e = {.kind = WORKER_EVENT_RECOVERED};
    const char *cause;

    if (!cluster_take_recovery(c->e.ctx, &e.rank, &e.ms, &cause)) return MANTA_OK;
    return c->watch.worker_event(c->watch.ctx, &e, cause);
}

/* Where to begin is what the caller says, or where the others are. */
static manta_status begin_fit(engine_call *c)
{
    manta_cluster *k = c->e.ctx;
    cluster_work w = {.phase = c->train ? CLUSTER_TRAIN : CLUSTER_EVALUATE,
                      .epochs = c->epochs,
                      .at = c->train ? c->at : (train_position){0},
                      .watch = c->watch.waiting,
                      .ctx = c->watch.ctx};
    cluster_job *j = mem_new(sizeof *j);

    c->job = j;
    if (c->train) {
        w.readers[CLUSTER_TRAIN] = &c->train->reader;
        w.steps = c->train->steps;
    }
    if (c->evaluate) {
        w.readers[CLUSTER_EVALUATE] = &c->evaluate->reader;
        w.validation_steps = c->evaluate->steps;
    }
    j->met = true;
    TRY(cluster_begin(k, c->s, &w, &c->over));
    if (c->train && !c->over) {
        c->at.epoch = k->at.epoch;
        c->at.step = k->at.phase == CLUSTER_TRAIN ? k->at.step : layout_run(&c->s->l, c->s->state)->step;
    }
    return tell_recovery(c);
}

static void note_weights(engine_call *c)
{
    cluster_job *j = c->job;

    if (c->train) j->weights = cluster_weights_digest(c->e.ctx);
}

/* Whether it ends early is the chief's decision. */
static manta_status train_epoch(engine_call *c, int64_t epoch, int64_t first, int64_t *done)
{
    const engine_watch *w = &c->watch;
    manta_cluster *k = c->e.ctx;
    int64_t steps = c->train->steps;

    (void)first; /* the cluster knows how far it is */
    cluster_enter(k, epoch, CLUSTER_TRAIN);
    *done = cluster_is_in(k, epoch, CLUSTER_TRAIN) ? k->at.step : steps;
    while (cluster_is_in(k, epoch, CLUSTER_TRAIN) && k->at.step < steps) {
        int64_t before = k->at.step;
        TRY(w->begins(w->ctx, PLAN_TRAIN, before));
        TRY(cluster_step(k));
        TRY(tell_recovery(c));
        if (cluster_is_in(k, epoch, CLUSTER_TRAIN) && k->at.step > before) {
            *done = k->at.step;
            TRY(w->done(w->ctx, PLAN_TRAIN, k->at.step - 1));
        }
        if (w->stops(w->ctx) && !k->rank && k->at.step < steps) {
            cluster_enter(k, epoch, c->evaluate ? CLUSTER_EVALUATE : CLUSTER_DECIDE);
            TRY(cluster_regroup(k));
            break;
        }
    }
    note_weights(c);
    return MANTA_OK;
}

static manta_status evaluate_data(engine_call *c, int64_t epoch, int64_t *steps)
{
    const engine_watch *w = &c->watch;
    manta_cluster *k = c->e.ctx;

    *steps = c->evaluate->steps; /* those that this process missed, the others did */
    if (!*steps) return MANTA_OK;
    cluster_enter(k, epoch, CLUSTER_EVALUATE);
    while (cluster_is_in(k, epoch, CLUSTER_EVALUATE) && k->at.step < *steps) {
        TRY(w->begins(w->ctx, PLAN_EVALUATE, k->at.step));
        TRY(cluster_step(k));
        TRY(tell_recovery(c));
        if (cluster_is_in(k, epoch, CLUSTER_EVALUATE)) TRY(w->done(w->ctx, PLAN_EVALUATE, k->at.step - 1));
    }
    note_weights(c);
    return MANTA_OK;
}

static manta_status settle_epoch(engine_call *c, int64_t epoch, bool *stop, const char **why)
{
    const cluster_job *j = c->job;

    TRY(cluster_decide(c->e.ctx, epoch, cluster_weights_digest(c->e.ctx) != j->weights, stop));
    *why = "the chief has ended it";
    return tell_recovery(c);
}

static manta_status finish_fit(engine_call *c, manta_status st)
{
    const cluster_job *j = c->job;

    return j && j->met ? cluster_end(c->e.ctx, st) : st;
}

static void end_fit(engine_call *c)
{
    mem_free(c->job);
    c->job = NULL;
}

const engine_ops engine_cluster = {.reads_training = ENGINE_READS_ROWS,
                                   .reads_evaluation = ENGINE_READS_ROWS,
                                   .open = open_ranks,
                                   .begin = begin_fit,
                                   .train = train_epoch,
                                   .evaluate = evaluate_data,
                                   .settle = settle_epoch,
                                   .finish = finish_fit,
                                   .end = end_fit};
