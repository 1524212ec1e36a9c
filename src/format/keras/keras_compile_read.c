/* keras_compile_read.c - what a model was compiled with, from Keras's compile_config. */
#include <string.h>

#include "base/mem.h"
#include "format/keras/keras_compile.h"
#include "nn/loss.h"
#include "nn/name.h"

static const char *class_or_text(const json_t *v)
{
    return json_is_string(v) ? json_string_value(v) : keras_json_text(v, "class_name");
}

static bool is_set(const json_t *v)
{
    return v && !json_is_null(v) && !json_is_false(v);
}

static double number_or(const json_t *config, const char *key, double otherwise)
{
    const json_t *v = json_object_get(config, key);

    return json_is_number(v) ? json_number_value(v) : otherwise;
}

/* A number of an options struct whose default is not 0: a zero that the file says is MANTA_ZERO. */
static float option_of(const json_t *v)
{
    if (!json_is_number(v)) return 0;
    return json_number_value(v) == 0 ? (float)MANTA_ZERO : (float)json_number_value(v);
}

static int64_t int_or(const json_t *config, const char *key, int64_t otherwise)
{
    double v = number_or(config, key, (double)otherwise);

    return v > -1e15 && v < 1e15 ? (int64_t)v : otherwise;
}

/* ---- schedules and optimizers ---- */

static manta_status read_pieces(const char *path, const json_t *config, manta_schedule *s)
{
    const json_t *boundaries = json_object_get(config, "boundaries"),
                 *values = json_object_get(config, "values");
    size_t n = json_array_size(boundaries);

    if (n < 1 || n > MANTA_SCHEDULE_PIECES || json_array_size(values) != n + 1) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "%s: the PiecewiseConstantDecay has %zu boundaries and %zu values; expected 1 to %d and one "
            "more",
            path, n, json_array_size(values), MANTA_SCHEDULE_PIECES);
    }
    s->n_boundaries = (int)n;
    for (size_t i = 0; i < n; i++)
        s->boundaries[i] = (int64_t)json_number_value(json_array_get(boundaries, i));
    for (size_t i = 0; i <= n; i++) s->values[i] = json_number_value(json_array_get(values, i));
    return MANTA_OK;
}

static manta_status read_schedule(const char *path, const json_t *v, manta_schedule *s)
{
    const json_t *config = keras_json_config(v);
    const char *class = keras_json_text(v, "class_name");

    *s = (manta_schedule){.initial_learning_rate = number_or(config, "initial_learning_rate", 0),
                          .decay_steps = int_or(config, "decay_steps", 0),
                          .decay_rate = number_or(config, "decay_rate", 0),
                          .staircase = json_is_true(json_object_get(config, "staircase")),
                          .alpha = number_or(config, "alpha", 0),
                          .warmup_target = number_or(config, "warmup_target", 0),
                          .warmup_steps = int_or(config, "warmup_steps", 0),
                          .end_learning_rate = number_or(config, "end_learning_rate", 0.0001),
                          .power = number_or(config, "power", 1),
                          .cycle = json_is_true(json_object_get(config, "cycle"))};
    if (class && !strcmp(class, "ExponentialDecay")) {
        s->kind = MANTA_SCHEDULE_EXPONENTIAL;
    } else if (class && !strcmp(class, "CosineDecay")) {
        s->kind = MANTA_SCHEDULE_COSINE;
    } else if (class && !strcmp(class, "PolynomialDecay")) {
        s->kind = MANTA_SCHEDULE_POLYNOMIAL;
    } else if (class && !strcmp(class, "InverseTimeDecay")) {
        s->kind = MANTA_SCHEDULE_INVERSE_TIME;
    } else if (class && !strcmp(class, "PiecewiseConstantDecay")) {
        s->kind = MANTA_SCHEDULE_PIECEWISE;
        return read_pieces(path, config, s);
    } else {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the optimizer uses the learning-rate schedule %s, which Manta does not have",
                          path, class ? class : "?");
    }
    return MANTA_OK;
}

manta_status keras_optimizer_read(const char *path, const json_t *v, manta_optimizer *out)
{
    const json_t *config = keras_json_config(v), *rate = json_object_get(config, "learning_rate");
    const char *class = class_or_text(v);
    manta_optimizer o;

    if (!class || !strncmp(class, "torch", 5) || manta_optimizer_named(class, &o)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the model is compiled with the optimizer %s, which Manta does not have", path,
                          class ? class : "?");
    }
    if (json_is_object(rate)) TRY(read_schedule(path, rate, &o.schedule));
    o.learning_rate = number_or(config, "learning_rate", o.learning_rate);
    if (o.learning_rate == 0) o.learning_rate = MANTA_ZERO;
    o.momentum = number_or(config, "momentum", o.momentum);
    o.nesterov = json_is_true(json_object_get(config, "nesterov"));
    o.beta_1 = number_or(config, "beta_1", o.beta_1);
    o.beta_2 = number_or(config, "beta_2", o.beta_2);
    o.epsilon = number_or(config, "epsilon", o.epsilon);
    o.rho = number_or(config, "rho", o.rho);
    o.amsgrad = json_is_true(json_object_get(config, "amsgrad"));
    o.centered = json_is_true(json_object_get(config, "centered"));
    if (config && json_object_get(config, "weight_decay"))
        o.weight_decay = number_or(config, "weight_decay", 0);
    o.clipvalue = number_or(config, "clipvalue", 0);
    o.clipnorm = number_or(config, "clipnorm", 0);
    o.global_clipnorm = number_or(config, "global_clipnorm", 0);
    o.gradient_accumulation_steps = (int)int_or(config, "gradient_accumulation_steps", 0);
    o.use_ema = json_is_true(json_object_get(config, "use_ema"));
    o.ema_momentum = number_or(config, "ema_momentum", 0.99);
    o.ema_overwrite_frequency = (int)int_or(config, "ema_overwrite_frequency", 0);
    if (is_set(json_object_get(config, "loss_scale_factor"))) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the optimizer has a loss_scale_factor, which Manta does not have", path);
    }
    if (!o.use_ema) o.ema_momentum = 0;
    if (manta_optimizer_check(&o)) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: %s", path, manta_error_text());
    }
    *out = o;
    return MANTA_OK;
}

/* ---- losses ---- */

static manta_status read_reduction(const char *path, const char *loss, const json_t *config,
                                   manta_reduction *out)
{
    const char *r = keras_json_text(config, "reduction");

    if (!r || !strcmp(r, "sum_over_batch_size") || !strcmp(r, "auto") || !strcmp(r, "mean")) {
        *out = MANTA_REDUCTION_SUM_OVER_BATCH_SIZE;
    } else if (!strcmp(r, "mean_with_sample_weight")) {
        *out = MANTA_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT;
    } else if (!strcmp(r, "sum")) {
        *out = MANTA_REDUCTION_SUM;
    } else {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "%s: the model is compiled with the loss %s and the reduction '%s', which Manta does not have",
            path, loss, r);
    }
    return MANTA_OK;
}

static manta_status read_loss(manta_saved *s, const char *path, const json_t *v, float weight)
{
    const json_t *config = keras_json_config(v);
    const char *name = class_or_text(v);
    manta_loss l = {.weight = weight};
    loss_fn found;

    if (name && !strcmp(name, "function")) name = json_string_value(json_object_get(v, "config"));
    if (!name) return manta_fail(MANTA_EUNSUPPORTED, "%s: one of the losses has no name", path);
    l.name = saved_text(s, name);
    l.from_logits = json_is_true(json_object_get(config, "from_logits"));
    l.label_smoothing = (float)number_or(config, "label_smoothing", 0);
    l.delta = option_of(json_object_get(config, "delta"));
    TRY(read_reduction(path, name, config, &l.reduction));
    if (is_set(json_object_get(config, "ignore_class")) || int_or(config, "axis", -1) != -1) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "%s: the model is compiled with the loss %s and ignore_class or axis, which Manta does not have",
            path, name);
    }
    if (loss_find(&l, &found)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the model is compiled with the loss %s, which Manta does not have", path,
                          name);
    }
    l.name = saved_text(s, found.name);
    vec_push(&s->losses, l);
    return MANTA_OK;
}

/* What a setting given per output says of output i: the setting itself when it is
 * one for all, an element of a list, or the value under the output's name. */
static const json_t *of_output(const json_t *v, const manta_model *m, int i)
{
    const char *name = NULL;

    if (json_is_array(v)) return json_array_get(v, (size_t)i);
    if (json_is_object(v) && !keras_json_text(v, "class_name")) {
        (void)manta_model_output(m, i, &name);
        return name ? json_object_get(v, name) : NULL;
    }
    return v;
}

static manta_status read_losses(manta_saved *s, const char *path, const json_t *compile, const manta_model *m)
{
    const json_t *loss = json_object_get(compile, "loss"),
                 *weights = json_object_get(compile, "loss_weights");
    const char *own = manta_saved_note(s, "own_loss");
    int n = manta_model_outputs(m);

    if (own && (!is_set(loss) || json_is_array(loss))) {
        return manta_fail(
            MANTA_ENOENT,
            "%s: the model was trained with a loss of a program's own ('%.80s'), which no file holds", path,
            own);
    }
    if (!is_set(loss)) return manta_fail(MANTA_ENOENT, "%s: the model was compiled without a loss", path);
    for (int i = 0; i < n; i++) {
        const json_t *mine = of_output(loss, m, i),
                     *weight = is_set(weights) ? of_output(weights, m, i) : NULL;
        const char *name = NULL;
        (void)manta_model_output(m, i, &name);
        if (!is_set(mine) || (n > 1 && mine == loss)) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: output %d ('%s') has no loss; Manta needs one for each", path, i,
                              name ? name : "");
        }
        if (json_is_array(mine) && json_array_size(mine) == 1) mine = json_array_get(mine, 0);
        TRY(read_loss(s, path, mine, option_of(weight)));
    }
    return MANTA_OK;
}

/* ---- metrics ---- */

static manta_status read_metric(manta_saved *s, const char *path, const manta_model *m, const json_t *v,
                                int output)
{
    const json_t *config = keras_json_config(v);
    const char *name = class_or_text(v);
    manta_metric metric = {.output = output, .k = (int)int_or(config, "k", 0)};
    manta_array shape = manta_model_output(m, output, NULL);
    metric_fn found;

    if (name && !strcmp(name, "function")) name = json_string_value(json_object_get(v, "config"));
    if (!name) return manta_fail(MANTA_EUNSUPPORTED, "%s: one of the metrics has no name", path);
    metric.name = saved_text(s, name);
    metric.threshold = option_of(json_object_get(config, "threshold"));
    if (metric_find(&metric, NULL, shape.shape[shape.ndim - 1], &found)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the model is compiled with the metric %s, which Manta does not have", path,
                          name);
    }
    metric.name = saved_text(s, found.name);
    vec_push(&s->metrics, metric);
    return MANTA_OK;
}

static manta_status read_output_metrics(manta_saved *s, const char *path, const manta_model *m,
                                        const json_t *v, int output)
{
    if (!is_set(v)) return MANTA_OK;
    if (!json_is_array(v)) return read_metric(s, path, m, v, output);
    for (size_t i = 0; i < json_array_size(v); i++) {
        TRY(read_output_metrics(s, path, m, json_array_get(v, i), output));
    }
    return MANTA_OK;
}

static manta_status read_metrics(manta_saved *s, const char *path, const json_t *compile,
                                 const manta_model *m)
{
    const json_t *v = json_object_get(compile, "metrics"),
                 *weighted = json_object_get(compile, "weighted_metrics");
    int n = manta_model_outputs(m);

    if (json_array_size(weighted) || json_object_size(weighted)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the model is compiled with weighted_metrics, which Manta does not have", path);
    }
    if (!is_set(v)) return MANTA_OK;
    for (int i = 0; i < n; i++) {
        /* With one output a list is that output's; with several, one entry for each. */
        const json_t *mine = n == 1 && json_is_array(v) ? v : of_output(v, m, i);
        TRY(read_output_metrics(s, path, m, mine, i));
    }
    return MANTA_OK;
}

/* ---- all of it ---- */

static void note_failure(manta_error *e, manta_status st)
{
    e->code = MANTA_OK;
    if (st) manta_error_get(e);
}

void keras_compile_read(manta_saved *s, const char *path, const json_t *compile, const manta_model *m)
{
    const json_t *optimizer = json_object_get(compile, "optimizer");

    if (!json_object_size(compile)) return;
    if (!optimizer) optimizer = json_object_get(compile, "optimizer_config"); /* .h5 */
    if (is_set(optimizer)) {
        note_failure(&s->optimizer_error, keras_optimizer_read(path, optimizer, &s->optimizer));
    }
    note_failure(&s->losses_error, read_losses(s, path, compile, m));
    note_failure(&s->metrics_error, read_metrics(s, path, compile, m));
}
