/* engines.c - which engine computes for a session. */
#include "base/args.h"
#include "train/cluster/cluster.h"
#include "train/group/group.h"
#include "train/ps/ps.h"
#include "train/session/session.h"

/* A row: the engine, and whether it is what these options ask for. */
typedef struct engine_row {
    const engine_ops *ops;
    bool (*asked)(const manta_compile *c, const manta_session_options *o);
} engine_row;

static bool asks_for_servers(const manta_compile *c, const manta_session_options *o)
{
    return c->n_losses &&
           (o->strategy == MANTA_STRATEGY_PARAMETER_SERVER || (o->cluster && o->cluster->config.n[TF_PS]));
}

static bool asks_for_cluster(const manta_compile *c, const manta_session_options *o)
{
    return c->n_losses && manta_cluster_rank(o->cluster) >= 0 && manta_cluster_size(o->cluster) > 1;
}

static bool asks_for_workers(const manta_compile *c, const manta_session_options *o)
{
    return c->n_losses && o->workers > 1;
}

/* The first that is asked for has the session; else it is this process's. */
static const engine_row engines[] = {{&engine_served, asks_for_servers},
                                     {&engine_cluster, asks_for_cluster},
                                     {&engine_group, asks_for_workers}};

static manta_status check_compile(const manta_compile *c)
{
    if (c->n_losses < 0 || (c->n_losses && !c->losses))
        return manta_fail(MANTA_EINVAL, "compile: %d losses at %s, expected 0 or more, and an array of them",
                          c->n_losses, c->losses ? "an address" : "NULL");
    if (c->n_metrics < 0 || (c->n_metrics && !c->metrics))
        return manta_fail(MANTA_EINVAL, "compile: %d metrics at %s, expected 0 or more, and an array of them",
                          c->n_metrics, c->metrics ? "an address" : "NULL");
    return MANTA_OK;
}

static manta_status check_options(const manta_session_options *o)
{
    if (o->workers < 0 || o->workers > SHARED_WORKERS)
        return manta_fail(MANTA_EINVAL, "%d workers, expected 1 to %d", o->workers, SHARED_WORKERS);
    if (o->threads < 0) return manta_fail(MANTA_EINVAL, "%d threads, expected 0 or more", o->threads);
    if (o->shards < 0) return manta_fail(MANTA_EINVAL, "%d shards, expected 0 or more", o->shards);
    if (o->servers < 0)
        return manta_fail(MANTA_EINVAL, "%d parameter servers, expected 0 or more", o->servers);
    if ((int)o->statistics < 0 || o->statistics > MANTA_STATISTICS_SYNC)
        return manta_fail(MANTA_EINVAL, "there are no statistics %d, expected 0 to %d", (int)o->statistics,
                          MANTA_STATISTICS_SYNC);
    if ((int)o->strategy < 0 || o->strategy > MANTA_STRATEGY_PARAMETER_SERVER)
        return manta_fail(MANTA_EINVAL, "there is no strategy %d, expected 0 to %d", (int)o->strategy,
                          MANTA_STRATEGY_PARAMETER_SERVER);
    return MANTA_OK;
}

manta_status manta_session_open(const manta_model *m, const manta_compile *c,
                                const manta_session_options *options, manta_session **out)
{
    REFUSE_NULL(m);
    REFUSE_NULL(out);

    static const manta_session_options none;
    static const manta_compile nothing;
    const engine_ops *ops = &engine_local;

    if (!options) options = &none;
    if (!c) c = &nothing;
    TRY(check_compile(c));
    TRY(check_options(options));
    for (size_t i = sizeof engines / sizeof *engines; i-- > 0;) {
        if (engines[i].asked(c, options)) ops = engines[i].ops;
    }
    return session_open(m, c, options, ops, out);
}
