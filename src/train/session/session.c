/* session.c - a session is opened and closed, and what lies in its state is read and changed from outside:
 * weights, metrics, the learning rate. Steps are in step.c, and whole trainings behind the engine (engine.h).
 *
 *     session_open ──▶ opened ──session_local──▶ local: threads, plans, slots ──▶ manta_session_close
 *       engine: shards     │                        │
 *       kernels, device    │                        └─ fork: session_after_fork() forgets threads and plans
 *       objective, layout  └─ where the engine forks it stays so until something is computed in this process: one
 *       state                 that has a single thread forks cleanly
 *
 * Everything is made in that order because each needs the one before: the engine says how many shards there are,
 * the objective what is summed, the layout how large the state is, and the engine, or this process, has memory for
 * it. An opening that fails closes what was made, so manta_session_close() accepts a session that is half made.
 *
 * Who writes what: one thread at a time uses a session. The state is its engine's while a fit computes, and the
 * caller's between steps (engine.h, invariant 1). Who reads or changes parameters here calls session_pull()
 * before, and session_changed() after a change, because with a device s->state is a mirror; a change also sets
 * `touched`, so that the next step of workers starts from it. Learning rate and sums of metrics lie in the run's
 * part of the state, which is always here.
 *
 * What may be changed: what is measured and how it is named. What may not: that nothing before session_local()
 * starts a thread when the engine forks. */
#include "train/session/session.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/log.h"
#include "tensor/copy.h"
#include "train/session/device.h"
#include "train/session/lockstep.h"

static char *copy_name(const char *name)
{
    return name ? mem_strdup(name) : NULL;
}

static void copy_objective(manta_session *s, const manta_compile *c)
{
    s->losses = mem_new((size_t)(c->n_losses + 1) * sizeof *s->losses);
    s->metrics = mem_new((size_t)(c->n_metrics + 1) * sizeof *s->metrics);
    for (; s->n_losses < c->n_losses; s->n_losses++) {
        s->losses[s->n_losses] = c->losses[s->n_losses];
        s->losses[s->n_losses].name = copy_name(c->losses[s->n_losses].name);
    }
    for (; s->n_metrics < c->n_metrics; s->n_metrics++) {
        s->metrics[s->n_metrics] = c->metrics[s->n_metrics];
        s->metrics[s->n_metrics].name = copy_name(c->metrics[s->n_metrics].name);
    }
}

static manta_status make_memory(manta_session *s)
{
    s->slots = mem_new((size_t)s->shards * sizeof *s->slots);
    s->used = mem_new((size_t)s->shards * sizeof *s->used);
    s->eval_sums = mem_new(((size_t)s->l.n_sums + 1) * sizeof *s->eval_sums);
    if (s->engine.ops->memory) return s->engine.ops->memory(s->engine.ctx, s, &s->state);
    return mem_try_array(1, s->l.state_size, "the state of the model", &s->state);
}

/* How the work is divided is the engine's decision. */
static manta_status divide_work(manta_session *s, const manta_session_options *o, engine_share *share)
{
    TRY(s->engine.ops->open(o, share, &s->engine.ctx));
    s->shards = share->shards;
    s->threads = share->here;
    s->replicas = share->replicas;
    s->debug = o->debug;
    s->statistics = o->statistics;
    s->meets = o->statistics == MANTA_STATISTICS_SYNC && s->shards > 1 && lockstep_size(s->m, s->shards) > 0;
    if (s->shards <= LAYOUT_MAX_SHARDS) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%d shards, expected 1 to %d", s->shards, LAYOUT_MAX_SHARDS);
}

/* Whoever looks for a NaN wants the plain loops, unless they say otherwise. */
static const char *kernels_of_choice(const manta_session_options *o)
{
    const char *told = getenv("MANTA_KERNELS");

    if (o->kernels || !o->debug || (told && *told)) return o->kernels;
    return "reference";
}

static manta_status find_kernels(manta_session *s, const manta_session_options *o)
{
    kern_precision precision;
    const kernels *k;

    TRY(kernels_precision(o->precision, &precision));
    TRY(kernels_find(kernels_of_choice(o), &k));
    s->k = kernels_in(k, precision);
    if (s->k) return MANTA_OK;
    return manta_fail(
        MANTA_EUNSUPPORTED,
        "precision '%s': the kernels '%s' have none of it, expected kernels of auto, reference, "
        "avx2 or avx512",
        kernels_precision_name(precision), k->name);
}

static manta_status open_session(manta_session *s, const manta_compile *c, const manta_session_options *o)
{
    engine_share share = {0};

    if (c->optimizer) {
        s->opt = *c->optimizer;
    } else {
        TRY(manta_optimizer_named("rmsprop", &s->opt));
    }
    if (c->n_losses) TRY(manta_optimizer_check(&s->opt));
    TRY(divide_work(s, o, &share));
    TRY(find_kernels(s, o));
    copy_objective(s, c);
    TRY(objective_init(&s->o, s->m, s->n_losses, s->losses, s->n_metrics, s->metrics));
    if (3 + s->o.n_heads + s->o.n_metrics > MANTA_MAX_METRICS / 2) {
        return manta_fail(MANTA_EINVAL, "%d outputs and %d metrics, expected at most %d together",
                          s->o.n_heads, s->o.n_metrics, MANTA_MAX_METRICS / 2 - 3);
    }
    TRY(session_device_choose(s, o));
    layout_init(&s->l, s->m, &s->o, s->n_losses ? &s->opt : NULL);
    TRY(apply_init(&s->a, &s->l, &s->opt, s->k));
    TRY(make_memory(s));
    (o->blank ? layout_start_blank : layout_start)(&s->l, s->state, o->seed, &s->opt);
    s->a.first_stats = s->statistics != MANTA_STATISTICS_MEAN; /* synchronised ones are all the same */
    s->fuse = s->shards == 1 && !o->no_fusion && !o->debug && !s->on && apply_can_sink(&s->a);
    if (s->on)
        session_device_about(s, s->about, sizeof s->about);
    else
        snprintf(s->about, sizeof s->about, "%s%d thread%s, %s kernels%s%s", share.about, share.threads,
                 share.threads == 1 ? "" : "s", s->k->name, s->k->precision == KERN_F32 ? "" : ", ",
                 s->k->precision == KERN_F32 ? "" : kernels_precision_name(s->k->precision));
    return s->engine.ops->forks ? MANTA_OK : session_local(s);
}

manta_status session_local(manta_session *s)
{
    exec_options o = {.kernels = s->k, .debug = s->debug, .block = s->block, .block_ctx = s->block_ctx};

    if (s->e) return MANTA_OK;
    if (s->on && s->pool) return session_device_local(s);
    for (int i = 0; s->n_losses && i < s->shards; i++) {
        if (!s->slots[i]) TRY(mem_try_array(1, s->l.slot_size, "the gradients of a shard", &s->slots[i]));
    }
    if (!s->pool) TRY(pool_new(s->threads, KERN_SCRATCH, &s->pool));
    if (s->on) return session_device_local(s);
    o.pool = s->pool;
    if (s->meets && !s->lockstep) TRY(lockstep_new(s, NULL, NULL, NULL, &s->lockstep));
    return exec_new(s->m, &s->l, &s->o, &o, &s->e);
}

void session_after_fork(manta_session *s)
{
    s->pool = NULL;
    s->e = NULL;
    s->lockstep = NULL;
    session_device_after_fork(s);
}

manta_status session_open(const manta_model *m, const manta_compile *c, const manta_session_options *o,
                          const engine_ops *ops, manta_session **out)
{
    manta_session *s = mem_new(sizeof *s);
    manta_status st;

    s->m = m;
    s->engine.ops = ops;
    st = open_session(s, c, o);
    if (!st) {
        *out = s;
        s = NULL;
    }
    manta_session_close(s);
    return st;
}

void manta_session_close(manta_session *s)
{
    if (!s) return;
    if (s->engine.ops->close) s->engine.ops->close(s->engine.ctx);
    session_device_close(s);
    lockstep_free(s->lockstep);
    exec_free(s->e);
    pool_free(s->pool);
    for (int i = 0; s->slots && i < s->shards; i++) mem_try_free(s->slots[i]);
    mem_free(s->slots);
    mem_free((void *)s->used);
    if (!s->engine.ops->memory) mem_try_free(s->state);
    apply_release(&s->a);
    layout_release(&s->l);
    objective_release(&s->o);
    for (int i = 0; i < s->n_losses; i++) mem_free((char *)(uintptr_t)s->losses[i].name);
    for (int i = 0; i < s->n_metrics; i++) mem_free((char *)(uintptr_t)s->metrics[i].name);
    mem_free(s->losses);
    mem_free(s->metrics);
    mem_free(s->eval_sums);
    for (int i = 0; i < SESSION_OUTPUTS; i++) mem_try_free(s->outputs[i]);
    trace_free(s->trace);
    mem_free(s);
}

const manta_model *manta_session_model(const manta_session *s)
{
    REFUSE_NULL_OR(s, NULL);
    return s->m;
}

manta_status manta_session_resize(manta_session *s, int workers)
{
    REFUSE_NULL(s);

    if (s->engine.ops->resize) return s->engine.ops->resize(s->engine.ctx, workers);
    return workers == 1 ? MANTA_OK
                        : manta_fail(MANTA_EINVAL,
                                     "%d workers, expected 1: this session trains in one process", workers);
}

int manta_session_workers(const manta_session *s)
{
    REFUSE_NULL_OR(s, 0);
    return s->engine.ops->workers ? s->engine.ops->workers(s->engine.ctx) : 1;
}

bool manta_session_worker_work(const manta_session *s, int rank, manta_worker_work *out)
{
    REFUSE_NULL_OR(s, false);
    REFUSE_NULL_OR(out, false);
    return s->busy && s->engine.ops->work && s->engine.ops->work(s->engine.ctx, rank, out);
}

const char *manta_session_about(const manta_session *s)
{
    REFUSE_NULL_OR(s, NULL);
    return s->about;
}

const char *manta_session_precision(const manta_session *s)
{
    REFUSE_NULL_OR(s, NULL);
    if (s->on) return session_device_precision(s);
    return s->k->precision == KERN_F32 ? "exact" : kernels_precision_name(s->k->precision);
}

/* ---- metrics ---- */

static void add_metric(manta_metrics *out, const char *prefix, const char *name, double value)
{
    if (out->n == MANTA_MAX_METRICS) return;
    snprintf(out->name[out->n], sizeof out->name[0], "%s%s", prefix, name);
    out->value[out->n++] = value;
}

void session_metrics_of(const manta_session *s, const double *sums, const char *prefix, manta_metrics *out)
{
    double divisor = sums[SUM_DIVISOR], samples = sums[SUM_SAMPLES];
    double penalty = samples > 0 ? sums[s->l.n_sums] / samples : 0;

    add_metric(out, prefix, "loss", divisor > 0 ? sums[SUM_LOSS] / divisor + penalty : NAN);
    for (int h = 0; s->o.n_heads > 1 && h < s->o.n_heads; h++) {
        const double *head = &sums[objective_head_sum(h)];
        const char *output = s->m->outputs[s->o.heads[h].output].name;
        char name[64];
        if (output) {
            snprintf(name, sizeof name, "%.50s_loss", output);
        } else {
            snprintf(name, sizeof name, "output_%d_loss", h);
        }
        add_metric(out, prefix, name, divisor > 0 ? head[0] / divisor : NAN);
    }
    for (int i = 0; i < s->o.n_metrics; i++) {
        const double *metric = &sums[objective_metric_sum(&s->o, i)];
        add_metric(out, prefix, s->o.metrics[i].name, metric[1] > 0 ? metric[0] / metric[1] : NAN);
    }
}

void manta_session_metrics(const manta_session *s, manta_metrics *out)
{
    REFUSE_NULL_AND_RETURN(s);
    REFUSE_NULL_AND_RETURN(out);

    memset(out, 0, sizeof *out);
    session_metrics_of(s, s->evaluated ? s->eval_sums : session_sums(s), "", out);
}

void manta_session_reset_metrics(manta_session *s)
{
    REFUSE_NULL_AND_RETURN(s);

    memset(session_sums(s), 0, ((size_t)s->l.n_sums + 1) * sizeof(double));
    memset(s->eval_sums, 0, ((size_t)s->l.n_sums + 1) * sizeof(double));
    s->evaluated = false;
    s->touched = true;
}

double manta_metrics_get(const manta_metrics *m, const char *name)
{
    REFUSE_NULL_OR(m, NAN);
    REFUSE_NULL_OR(name, NAN);

    for (int i = 0; i < m->n; i++) {
        if (!strcmp(m->name[i], name)) return m->value[i];
    }
    return NAN;
}

/* ---- weights ---- */

manta_status manta_session_weight(manta_session *s, const char *name, manta_array *out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    for (int i = 0; i < s->m->n_variables; i++) {
        const graph_variable *g = &s->m->variables[i];
        if (strcmp(g->name, name)) continue;
        TRY(session_pull(s));
        session_changed(s); /* the view may be written to */
        *out = manta_array_of(MANTA_DTYPE_F32, g->ndim, g->shape, layout_variable_at(&s->l, s->state, i));
        return MANTA_OK;
    }
    return manta_fail(MANTA_ENOENT, "model '%s' has no variable called '%s'", s->m->name, name);
}

manta_status manta_session_set_weight(manta_session *s, const char *name, const manta_array *value)
{
    REFUSE_NULL(s);
    REFUSE_NULL(name);
    REFUSE_NULL(value);

    char given[96], expected[96];
    manta_array a;

    TRY(manta_session_weight(s, name, &a));
    if (a.ndim != value->ndim || memcmp(a.shape, value->shape, (size_t)a.ndim * sizeof *a.shape)) {
        return manta_fail(MANTA_EINVAL, "variable '%s' was given an array of shape %s, expected %s", name,
                          manta_shape_text(value->ndim, value->shape, given, sizeof given),
                          manta_shape_text(a.ndim, a.shape, expected, sizeof expected));
    }
    s->touched = true;
    return copy_strided(s->pool, &a, value, false);
}

int64_t manta_session_params(const manta_session *s)
{
    REFUSE_NULL_OR(s, 0);

    int64_t n = 0;

    for (int i = 0; i < s->l.n_params; i++) n += s->l.params[i].count;
    return n;
}

void session_pack(const layout *l, const float *padded, float *flat)
{
    for (int i = 0; i < l->n_params; flat += l->params[i++].count) {
        memcpy(flat, padded + l->params[i].offset, (size_t)l->params[i].count * sizeof *flat);
    }
}

void session_unpack(const layout *l, const float *flat, float *padded)
{
    for (int i = 0; i < l->n_params; flat += l->params[i++].count) {
        memcpy(padded + l->params[i].offset, flat, (size_t)l->params[i].count * sizeof *flat);
    }
}

void manta_session_get_flat(const manta_session *s, float *out)
{
    REFUSE_NULL_AND_RETURN(s);
    REFUSE_NULL_AND_RETURN(out);
    if (session_pull(s)) log_error("weights that are not the last", LOG_STR("why", manta_error_text()));
    session_pack(&s->l, layout_params(&s->l, s->state), out);
}

void manta_session_set_flat(manta_session *s, const float *in)
{
    REFUSE_NULL_AND_RETURN(s);
    REFUSE_NULL_AND_RETURN(in);

    if (session_pull(s)) log_error("weights that are not the last", LOG_STR("why", manta_error_text()));
    session_unpack(&s->l, in, layout_params(&s->l, s->state));
    s->touched = true;
    session_changed(s);
}

manta_status manta_session_gradients(const manta_session *s, float *out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(out);

    float *padded = NULL;

    if (s->phase != SESSION_BACKWARD) {
        return manta_fail(MANTA_EINVAL, "the session has no gradients: call manta_session_backward() first");
    }
    TRY(session_pull(s)); /* regularisers look at the weights */
    TRY(mem_try_array(s->l.params_size, sizeof *padded, "a copy of the gradients", (void **)&padded));
    apply_gradient(&s->a, padded);
    session_pack(&s->l, padded, out);
    mem_try_free(padded);
    return MANTA_OK;
}

double manta_session_learning_rate(const manta_session *s)
{
    REFUSE_NULL_OR(s, 0);

    const run_state *run = layout_run(&s->l, s->state);

    return optimizer_rate(&s->opt, run->learning_rate, run->calls);
}

manta_status manta_session_set_learning_rate(manta_session *s, double rate)
{
    REFUSE_NULL(s);

    if (s->opt.schedule.kind != MANTA_SCHEDULE_CONSTANT) {
        return manta_fail(MANTA_EINVAL, "the learning rate follows a schedule and cannot be set");
    }
    if (!(rate >= 0) || isinf(rate)) {
        return manta_fail(MANTA_EINVAL, "a learning rate of %g, expected a number that is not negative",
                          rate);
    }
    layout_run(&s->l, s->state)->learning_rate = rate;
    s->touched = true;
    return MANTA_OK;
}

int64_t manta_session_iterations(const manta_session *s)
{
    REFUSE_NULL_OR(s, 0);
    return layout_run(&s->l, s->state)->calls;
}
