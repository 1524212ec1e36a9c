/* ps_engine.c - parameter servers as an engine (engine.h): forked on this host, or the
 * processes that TF_CONFIG names. Of those the chief calls fit as everybody does; in the
 * others begin_fit() is the whole training. Evaluation is this process's. */
#include "base/mem.h"
#include "base/option.h"
#include "os/cpu.h"
#include "train/ps/ps.h"

/* With the session. */
typedef struct ps_cast {
    int servers, workers;
    int64_t staleness; /* ps_step_queue.h's bound */
    manta_cluster *cluster; /* whose processes they are; NULL: forked ones */
} ps_cast;

/* ---- with the session ---- */

/* How many steps before it a step may do without; -1: no bound. */
static manta_status read_staleness(const manta_session_options *o, int64_t *out)
{
    if (o->staleness < 0 && o->staleness != MANTA_ZERO)
        return manta_fail(MANTA_EINVAL, "staleness is %lld, expected 0 or more (MANTA_ZERO is 0)",
                          (long long)o->staleness);
    *out = option_int(o->staleness, -1);
    return MANTA_OK;
}

/* The cluster says who is what. */
static manta_status count_cluster(const manta_session_options *o, ps_cast *r, engine_share *out)
{
    r->cluster = o->cluster;
    r->servers = o->cluster->config.n[TF_PS];
    r->workers = o->cluster->config.n[TF_WORKER];
    out->threads = o->threads > 0 ? o->threads : cpu_cores();
    if (o->workers <= 1 && o->shards <= 1 && o->servers <= 1) return MANTA_OK;
    return manta_fail(
        MANTA_EINVAL,
        "numbers of workers, shards or servers were given, expected none: TF_CONFIG says who they are");
}

static manta_status count_forked(const manta_session_options *o, ps_cast *r, engine_share *out)
{
    int cores = cpu_cores();

    r->servers = o->servers > 0 ? o->servers : 1;
    r->workers = o->workers > 0 ? o->workers : 1;
    out->threads = o->threads > 0 ? o->threads : cores > r->workers ? cores / r->workers : 1;
    if (!o->cluster || manta_cluster_rank(o->cluster) < 0) return MANTA_OK;
    return manta_fail(
        MANTA_EUNSUPPORTED,
        "parameter servers below a process of a cluster are not there yet: name them in TF_CONFIG");
}

static manta_status open_cast(const manta_session_options *o, engine_share *out, void **ctx)
{
    ps_cast r = {0};

    TRY(read_staleness(o, &r.staleness));
    *out = (engine_share){.shards = o->shards > 0 ? o->shards : 1, .replicas = 1};
    TRY(o->cluster && o->cluster->config.n[TF_PS] ? count_cluster(o, &r, out) : count_forked(o, &r, out));
    out->here = out->threads;
    *ctx = mem_new(sizeof r);
    *(ps_cast *)*ctx = r;
    return MANTA_OK;
}

static void close_cast(void *ctx)
{
    mem_free(ctx);
}

/* ---- a call ---- */

static manta_status begin_fit(engine_call *c)
{
    const ps_cast *r = c->e.ctx;
    ps_options o = {.staleness = r->staleness, .max_failures = c->max_failures};
    const feed_pass *t = c->train;
    ps *p = NULL;

    if (!t) return MANTA_OK;
    if (r->cluster && !manta_cluster_is_chief(r->cluster)) {
        c->over = true; /* when this returns */
        return ps_join(c->s, r->cluster, &t->source, t->steps, c->watch.waiting, c->watch.ctx);
    }
    TRY(r->cluster ? ps_open_cluster(c->s, r->cluster, &t->source, t->steps, &o, &p)
                   : ps_open(c->s, &t->source, t->steps, r->servers, r->workers, &o, &p));
    c->job = p;
    (void)ps_took_up(p, &c->at);
    return engine_tell(c, ps_worker_events(p));
}

static void end_fit(engine_call *c)
{
    ps_close(c->job);
    c->job = NULL;
}

static manta_status pull_state(engine_call *c)
{
    return c->job ? ps_pull(c->job) : MANTA_OK;
}

/* Steps in whatever order they come to be done. */
static manta_status train_epoch(engine_call *c, int64_t epoch, int64_t first, int64_t *done)
{
    const engine_watch *w = &c->watch;
    ps *p = c->job;
    bool more;

    *done = first;
    TRY(ps_begin(p, (train_position){epoch, first}));
    for (int64_t step = first; !w->stops(w->ctx); step++) {
        TRY(ps_next(p, &more));
        TRY(engine_tell(c, ps_worker_events(p)));
        if (!more) break;
        if (w->reads_state) TRY(ps_pull(p));
        *done = step + 1;
        TRY(w->done(w->ctx, PLAN_TRAIN, step));
    }
    return ps_pull(p);
}

const engine_ops engine_served = {.reads_training = ENGINE_READS_ELSEWHERE,
                                  .forks = true,
                                  .open = open_cast,
                                  .close = close_cast,
                                  .begin = begin_fit,
                                  .train = train_epoch,
                                  .evaluate = engine_evaluate_here,
                                  .pull = pull_state,
                                  .end = end_fit};
