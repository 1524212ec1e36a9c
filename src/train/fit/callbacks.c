/* callbacks.c - Keras's callbacks that steer a training: early stopping, the learning rate (by a
 * function of the epoch, or lowered on a plateau), the end at a NaN.
 *
 * Each is a struct of its options and a plain struct of what it remembers (stopping_memory,
 * plateau_memory), which a checkpoint keeps as it is: a run that is taken up counts its epochs
 * without improvement from where it was. What comes from a file may be anything, so sizes are
 * compared and truth values are whole numbers there.
 *
 * What "better" means is the monitor's (monitor.h): smaller, or greater for metrics such as an
 * accuracy, unless `mode` says. A metric that is not there is warned of once, and the callback then
 * does nothing, as in Keras. */
#include <manta/callback.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "train/checkpoint/manifest.h"
#include "train/fit/monitor.h"
#include "train/session/session.h"

/* ---- monitors ---- */

void monitor_init(monitor *m, const char *name, const char *mode)
{
    m->name = mem_strdup(name ? name : "val_loss");
    m->greater = manifest_greater_is_better(m->name, mode);
    m->odd = mode && strcmp(mode, "min") != 0 && strcmp(mode, "max") != 0 && strcmp(mode, "auto") != 0
                 ? mem_strdup(mode)
                 : NULL;
    m->warned = false;
}

void monitor_release(monitor *m)
{
    mem_free(m->name);
    mem_free(m->odd);
}

manta_status monitor_check(const monitor *m)
{
    if (!m->odd) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "mode '%s' for %s, expected min, max or auto", m->odd, m->name);
}

bool monitor_value(monitor *m, const manta_fit_context *f, const char *who, double *out)
{
    const manta_metrics *logs = manta_fit_context_logs((manta_fit_context *)(uintptr_t)f);

    for (int i = 0; i < logs->n; i++) {
        if (strcmp(logs->name[i], m->name) != 0) continue;
        *out = logs->value[i];
        return true;
    }
    if (!m->warned)
        log_warn("there is no such metric: the callback does nothing", LOG_STR("callback", who),
                 LOG_STR("metric", m->name));
    m->warned = true;
    return false;
}

/* A state that is one struct. */
static manta_status load_struct(const char *who, void *to, size_t size, const void *data, size_t n)
{
    if (n != size) {
        return manta_fail(MANTA_ECORRUPT, "the checkpoint's state of %s has %zu bytes, expected %zu", who, n,
                          size);
    }
    memcpy(to, data, size);
    return MANTA_OK;
}

/* ---- early stopping ---- */

typedef struct stopping_memory {
    int64_t wait, best_epoch, stopped_epoch;
    double best;
    int64_t has_best; /* no bool: it comes from a file, where anything may be */
} stopping_memory;

typedef struct stopping {
    manta_early_stopping_options o;
    monitor m;
    stopping_memory at;
    float *weights; /* the best ones, when they are to be restored */
    int64_t n_weights;
} stopping;

/* All variables, statistics too, as the session holds them. */
static int64_t weights_count(const manta_session *s)
{
    return s->l.params_size + s->l.stats_size;
}

static manta_status keep_weights(stopping *c, const manta_session *s)
{
    if (!c->weights) {
        TRY(mem_try_array(weights_count(s), sizeof *c->weights, "the best weights", (void **)&c->weights));
        c->n_weights = weights_count(s);
    }
    TRY(session_pull(s));
    memcpy(c->weights, layout_params(&s->l, s->state), (size_t)s->l.params_size * sizeof(float));
    memcpy(c->weights + s->l.params_size, layout_stats(&s->l, s->state),
           (size_t)s->l.stats_size * sizeof(float));
    return MANTA_OK;
}

static bool value_improves(const stopping *c, double value, double reference)
{
    double delta = fabs(c->o.min_delta);

    return c->m.greater ? value - delta > reference : value + delta < reference;
}

static manta_status stopping_begin(void *self, manta_fit_context *f)
{
    stopping *c = self;

    (void)f;
    if (c->at.has_best || c->at.wait) return MANTA_OK; /* taken up from a checkpoint */
    c->at = (stopping_memory){0};
    return MANTA_OK;
}

static manta_status stopping_epoch(void *self, manta_fit_context *f)
{
    stopping *c = self;
    int64_t epoch = manta_fit_context_epoch(f);
    double value;
    char why[160];

    if (!monitor_value(&c->m, f, "early_stopping", &value) || epoch < c->o.start_from_epoch) return MANTA_OK;
    if (c->o.restore_best_weights && !c->weights) {
        TRY(keep_weights(c, manta_fit_context_session(f)));
        c->at.best_epoch = epoch;
    }
    c->at.wait++;
    if (!c->at.has_best ? !isnan(value) : value_improves(c, value, c->at.best)) {
        c->at.best = value;
        c->at.has_best = true;
        c->at.best_epoch = epoch;
        if (c->o.restore_best_weights) TRY(keep_weights(c, manta_fit_context_session(f)));
        if (c->o.baseline == 0 || value_improves(c, value, option_real(c->o.baseline, 0))) c->at.wait = 0;
        return MANTA_OK;
    }
    if (c->at.wait < c->o.patience || epoch == 0) return MANTA_OK;
    c->at.stopped_epoch = epoch;
    snprintf(why, sizeof why, "%s has not improved for %lld epochs (best %.4g in epoch %lld)", c->m.name,
             (long long)c->at.wait, c->at.best, (long long)c->at.best_epoch + 1);
    manta_fit_context_stop(f, why);
    return MANTA_OK;
}

static manta_status stopping_end(void *self, manta_fit_context *f)
{
    stopping *c = self;
    manta_session *s = manta_fit_context_session(f);

    if (c->o.restore_best_weights && c->weights) {
        TRY(session_pull(s));
        memcpy(layout_params(&s->l, s->state), c->weights, (size_t)s->l.params_size * sizeof(float));
        memcpy(layout_stats(&s->l, s->state), c->weights + s->l.params_size,
               (size_t)s->l.stats_size * sizeof(float));
        s->touched = true;
        session_changed(s);
    }
    c->at = (stopping_memory){0}; /* the next fit begins anew */
    mem_try_free(c->weights);
    c->weights = NULL;
    return MANTA_OK;
}

static void stopping_save(void *self, void *out)
{
    const stopping *c = self;

    manta_blob_put(out, &c->at, sizeof c->at);
    if (c->weights) manta_blob_put(out, c->weights, (size_t)c->n_weights * sizeof *c->weights);
}

static manta_status stopping_load(void *self, const void *data, size_t n)
{
    stopping *c = self;
    size_t rest = n > sizeof c->at ? n - sizeof c->at : 0;

    TRY(load_struct("early_stopping", &c->at, sizeof c->at, data, n - rest));
    if (!rest) return MANTA_OK;
    mem_try_free(c->weights);
    c->weights = NULL;
    c->n_weights = (int64_t)(rest / sizeof *c->weights);
    TRY(mem_try_array(c->n_weights, sizeof *c->weights, "the best weights", (void **)&c->weights));
    memcpy(c->weights, (const char *)data + sizeof c->at, (size_t)c->n_weights * sizeof *c->weights);
    return MANTA_OK;
}

/* Weights from a checkpoint must be of this model. */
static manta_status stopping_check(void *self, manta_fit_context *f)
{
    stopping *c = self;

    if (c->weights && c->n_weights != weights_count(manta_fit_context_session(f))) {
        return manta_fail(
            MANTA_ECORRUPT,
            "early_stopping: the best weights of the checkpoint are %lld numbers, the model expects %lld",
            (long long)c->n_weights, (long long)weights_count(manta_fit_context_session(f)));
    }
    return stopping_begin(self, f);
}

static manta_status stopping_before(void *self, manta_fit_context *f)
{
    (void)f;
    return monitor_check(&((stopping *)self)->m);
}

static void stopping_free(void *self)
{
    stopping *c = self;

    monitor_release(&c->m);
    mem_try_free(c->weights);
    mem_free(c);
}

static const manta_callback_ops stopping_ops = {.name = "early_stopping",
                                                .before_fit = stopping_before,
                                                .train_begin = stopping_check,
                                                .epoch_end = stopping_epoch,
                                                .train_end = stopping_end,
                                                .save = stopping_save,
                                                .load = stopping_load,
                                                .free = stopping_free};

manta_callback *manta_early_stopping(const manta_early_stopping_options *o)
{
    stopping *c = mem_new(sizeof *c);

    if (o) c->o = *o;
    monitor_init(&c->m, c->o.monitor, c->o.mode);
    return manta_callback_new(&stopping_ops, c);
}

/* ---- learning rates ---- */

typedef struct plateau_memory {
    int64_t wait, cooldown;
    double best;
} plateau_memory;

typedef struct plateau {
    manta_reduce_lr_options o;
    monitor m;
    plateau_memory at;
} plateau;

static manta_status plateau_epoch(void *self, manta_fit_context *f)
{
    plateau *c = self;
    manta_session *s = manta_fit_context_session(f);
    double value, rate;
    bool better;

    if (!monitor_value(&c->m, f, "reduce_lr_on_plateau", &value)) return MANTA_OK;
    if (c->at.cooldown > 0) {
        c->at.cooldown--;
        c->at.wait = 0;
    }
    better = c->m.greater ? value > c->at.best + c->o.min_delta : value < c->at.best - c->o.min_delta;
    if (better) {
        c->at.best = value;
        c->at.wait = 0;
        return MANTA_OK;
    }
    if (c->at.cooldown > 0 || ++c->at.wait < c->o.patience) return MANTA_OK;
    rate = manta_session_learning_rate(s);
    if (rate <= c->o.min_lr) return MANTA_OK;
    rate = fmax(rate * c->o.factor, c->o.min_lr);
    c->at.cooldown = c->o.cooldown;
    c->at.wait = 0;
    log_info("the learning rate is reduced", LOG_F64("rate", rate), LOG_STR("because", c->m.name));
    return manta_session_set_learning_rate(s, rate);
}

static void plateau_save(void *self, void *out)
{
    const plateau *c = self;

    manta_blob_put(out, &c->at, sizeof c->at);
}

static manta_status plateau_load(void *self, const void *data, size_t n)
{
    plateau *c = self;

    return load_struct("reduce_lr_on_plateau", &c->at, sizeof c->at, data, n);
}

static void plateau_free(void *self)
{
    plateau *c = self;

    monitor_release(&c->m);
    mem_free(c);
}

static manta_status plateau_before(void *self, manta_fit_context *f)
{
    const plateau *c = self;

    (void)f;
    if (!(c->o.factor > 0 && c->o.factor < 1))
        return manta_fail(MANTA_EINVAL, "reduce_lr: factor %g, expected between 0 and 1", c->o.factor);
    if (!(c->o.min_delta >= 0))
        return manta_fail(MANTA_EINVAL, "reduce_lr: min_delta %g, expected 0 or more (MANTA_ZERO is 0)",
                          c->o.min_delta);
    return monitor_check(&c->m);
}

static const manta_callback_ops plateau_ops = {.name = "reduce_lr_on_plateau",
                                               .before_fit = plateau_before,
                                               .epoch_end = plateau_epoch,
                                               .save = plateau_save,
                                               .load = plateau_load,
                                               .free = plateau_free};

manta_callback *manta_reduce_lr_on_plateau(const manta_reduce_lr_options *o)
{
    plateau *c = mem_new(sizeof *c);

    if (o) c->o = *o;
    if (c->o.factor == 0) c->o.factor = 0.1;
    if (c->o.patience == 0) c->o.patience = 10;
    c->o.min_delta = option_real(c->o.min_delta, 1e-4);
    monitor_init(&c->m, c->o.monitor, c->o.mode);
    c->at.best = c->m.greater ? -(double)INFINITY : (double)INFINITY;
    return manta_callback_new(&plateau_ops, c);
}

typedef struct scheduler {
    manta_lr_fn *fn;
    void *user;
} scheduler;

static manta_status scheduler_epoch(void *self, manta_fit_context *f)
{
    const scheduler *c = self;
    manta_session *s = manta_fit_context_session(f);

    return manta_session_set_learning_rate(
        s, c->fn(c->user, manta_fit_context_epoch(f), manta_session_learning_rate(s)));
}

static manta_status scheduler_log(void *self, manta_fit_context *f)
{
    manta_metrics *logs = manta_fit_context_logs(f);

    (void)self;
    if (logs->n == MANTA_MAX_METRICS) return MANTA_OK;
    snprintf(logs->name[logs->n], sizeof logs->name[0], "learning_rate");
    logs->value[logs->n++] = manta_session_learning_rate(manta_fit_context_session(f));
    return MANTA_OK;
}

static const manta_callback_ops scheduler_ops = {.name = "learning_rate_scheduler",
                                                 .epoch_begin = scheduler_epoch,
                                                 .epoch_end = scheduler_log,
                                                 .free = mem_free};

manta_callback *manta_learning_rate_scheduler(manta_lr_fn *fn, void *user)
{
    REFUSE_NULL_OR(fn, NULL);

    scheduler *c = mem_new(sizeof *c);

    c->fn = fn;
    c->user = user;
    return manta_callback_new(&scheduler_ops, c);
}

/* ---- NaN ---- */

static manta_status nan_batch(void *self, manta_fit_context *f)
{
    double loss = manta_metrics_get(manta_fit_context_logs(f), "loss");
    char why[96];

    (void)self;
    if (isfinite(loss)) return MANTA_OK;
    snprintf(why, sizeof why, "the loss is %s after batch %lld of epoch %lld",
             isnan(loss) ? "NaN" : "infinite", (long long)manta_fit_context_batch(f) + 1,
             (long long)manta_fit_context_epoch(f) + 1);
    manta_fit_context_stop(f, why);
    return MANTA_OK;
}

static const manta_callback_ops nan_ops = {.name = "terminate_on_nan", .train_batch_end = nan_batch};

manta_callback *manta_terminate_on_nan(void)
{
    return manta_callback_new(&nan_ops, NULL);
}
