/* keras_compile_write.c - Keras's compile_config of what is written.
 *
 * The keys are those that every Keras 3 writes. A program's own loss or metric,
 * a number that Keras has no key for, are left out, and the log says so: the
 * model itself is whole without them. */
#include <math.h>
#include <pthread.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/option.h"
#include "format/keras/keras_compile.h"
#include "format/keras/keras_layer.h"
#include "nn/loss.h"

enum { MOST_TOLD = 64 };

/* Whether nobody has been told yet that the program's own loss or metric `name` is left
 * out: who saves after every epoch reads it once. Beyond so many names all was said. */
static bool is_untold(const char *kind, const char *name)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static uint64_t told[MOST_TOLD];
    static int n;
    uint64_t h = hash_bytes(name, strlen(name), hash_bytes(kind, strlen(kind), 0));
    bool untold = true;

    pthread_mutex_lock(&lock);
    for (int i = 0; i < n; i++) untold &= told[i] != h;
    untold &= n < MOST_TOLD;
    if (untold) told[n++] = h;
    pthread_mutex_unlock(&lock);
    return untold;
}

static void set_member(json_t *o, const char *key, json_t *v)
{
    json_object_set_new(o, key, v);
}

/* null where the number is none. */
static json_t *number_or_null(double v)
{
    return v != 0 ? json_real(v) : json_null();
}

static json_t *count_or_null(int v, int least)
{
    return v >= least ? json_integer(v) : json_null();
}

/* ---- optimizer ---- */

static json_t *write_schedule(const manta_schedule *s)
{
    json_t *c = json_object(), *boundaries, *values;
    const char *class = "CosineDecay";

    if (s->kind == MANTA_SCHEDULE_PIECEWISE) {
        class = "PiecewiseConstantDecay";
        boundaries = json_array();
        values = json_array();
        for (int i = 0; i < s->n_boundaries; i++)
            json_array_append_new(boundaries, json_integer(s->boundaries[i]));
        for (int i = 0; i <= s->n_boundaries; i++) json_array_append_new(values, json_real(s->values[i]));
        set_member(c, "boundaries", boundaries);
        set_member(c, "values", values);
    } else {
        set_member(c, "initial_learning_rate", json_real(s->initial_learning_rate));
        set_member(c, "decay_steps", json_integer(s->decay_steps));
    }
    if (s->kind == MANTA_SCHEDULE_EXPONENTIAL || s->kind == MANTA_SCHEDULE_INVERSE_TIME) {
        class = s->kind == MANTA_SCHEDULE_EXPONENTIAL ? "ExponentialDecay" : "InverseTimeDecay";
        set_member(c, "decay_rate", json_real(s->decay_rate));
        set_member(c, "staircase", json_boolean(s->staircase));
    } else if (s->kind == MANTA_SCHEDULE_POLYNOMIAL) {
        class = "PolynomialDecay";
        set_member(c, "end_learning_rate", json_real(s->end_learning_rate));
        set_member(c, "power", json_real(s->power));
        set_member(c, "cycle", json_boolean(s->cycle));
    } else if (s->kind == MANTA_SCHEDULE_COSINE) {
        bool warm = s->warmup_steps > 0 || s->warmup_target != 0;
        set_member(c, "alpha", json_real(s->alpha));
        set_member(c, "warmup_target", warm ? json_real(s->warmup_target) : json_null());
        set_member(c, "warmup_steps", json_integer(s->warmup_steps));
    }
    set_member(c, "name", json_string(class));
    return keras_envelope("keras.optimizers.schedules", class, c, NULL);
}

static json_t *write_optimizer(const manta_optimizer *o)
{
    static const char *const classes[] = {"SGD", "Adam", "AdamW", "RMSprop"};
    static const char *const names[] = {"sgd", "adam", "adam_w", "rm_sprop"};
    json_t *c = json_object();

    if (o->torch || o->dampening != 0) {
        log_warn("Keras has no words for PyTorch's formulas: the file says the optimizer's Keras form");
    }
    set_member(c, "name", json_string(names[o->kind]));
    /* Keras prints the float32 it computes with. */
    set_member(c, "learning_rate",
               o->schedule.kind
                   ? write_schedule(&o->schedule)
                   : json_real((double)(float)(o->learning_rate == MANTA_ZERO ? 0 : o->learning_rate)));
    set_member(c, "weight_decay", number_or_null(o->weight_decay));
    set_member(c, "clipnorm", number_or_null(o->clipnorm));
    set_member(c, "global_clipnorm", number_or_null(o->global_clipnorm));
    set_member(c, "clipvalue", number_or_null(o->clipvalue));
    set_member(c, "use_ema", json_boolean(o->use_ema));
    set_member(c, "ema_momentum", json_real(o->use_ema ? o->ema_momentum : 0.99));
    set_member(c, "ema_overwrite_frequency", count_or_null(o->ema_overwrite_frequency, 1));
    set_member(c, "loss_scale_factor", json_null());
    set_member(c, "gradient_accumulation_steps", count_or_null(o->gradient_accumulation_steps, 2));
    if (o->kind == MANTA_OPTIMIZER_SGD) {
        set_member(c, "momentum", json_real(o->momentum));
        set_member(c, "nesterov", json_boolean(o->nesterov));
    } else if (o->kind == MANTA_OPTIMIZER_RMSPROP) {
        set_member(c, "rho", json_real(o->rho));
        set_member(c, "momentum", json_real(o->momentum));
        set_member(c, "epsilon", json_real(o->epsilon));
        set_member(c, "centered", json_boolean(o->centered));
    } else {
        set_member(c, "beta_1", json_real(o->beta_1));
        set_member(c, "beta_2", json_real(o->beta_2));
        set_member(c, "epsilon", json_real(o->epsilon));
        set_member(c, "amsgrad", json_boolean(o->amsgrad));
    }
    return keras_envelope("keras.optimizers", classes[o->kind], c, NULL);
}

/* ---- losses ---- */

static const struct {
    const char *name, *class_name;
    bool category, sparse;
} classes[] = {
    {"sparse_categorical_crossentropy", "SparseCategoricalCrossentropy", true, true},
    {"categorical_crossentropy", "CategoricalCrossentropy", true, false},
    {"binary_crossentropy", "BinaryCrossentropy", true, false},
    {"mean_squared_error", "MeanSquaredError", false, false},
    {"mean_absolute_error", "MeanAbsoluteError", false, false},
    {"huber", "Huber", false, false},
};

static const char *const reductions[] = {"sum_over_batch_size", "mean_with_sample_weight", "sum"};

/* JSON null for what Keras has no words for. */
static json_t *write_loss(const manta_loss *l)
{
    json_t *c;
    loss_fn found;
    size_t i = 0;

    if (l->fn || loss_find(l, &found)) {
        const char *name = l->name ? l->name : "";
        if (is_untold("loss", name))
            log_warn("a loss of the program's own is not in the file: who loads it names one",
                     LOG_STR("loss", name));
        return json_null();
    }
    while (i < sizeof classes / sizeof *classes && strcmp(classes[i].name, found.name)) i++;
    if (i == sizeof classes / sizeof *classes) return json_null();
    if (classes[i].sparse && l->label_smoothing > 0) {
        log_warn("Keras has no label_smoothing for a sparse loss: the file says none");
    }
    /* mean_with_sample_weight came with Keras 3.10; without weights it is the default. */
    c = json_object();
    set_member(c, "name", json_string(strcmp(found.name, "huber") ? found.name : "huber_loss"));
    set_member(c, "reduction", json_string(reductions[l->reduction]));
    if (classes[i].category) set_member(c, "from_logits", json_boolean(l->from_logits));
    if (classes[i].sparse) set_member(c, "ignore_class", json_null());
    if (classes[i].category && !classes[i].sparse) {
        set_member(c, "label_smoothing", json_real((double)l->label_smoothing));
        set_member(c, "axis", json_integer(-1));
    }
    if (!strcmp(found.name, "huber") && l->delta != 0 && l->delta != 1)
        set_member(c, "delta", json_real(option_real((double)l->delta, 1)));
    return keras_envelope("keras.losses", classes[i].class_name, c, NULL);
}

static json_t *write_losses(const manta_contents *c)
{
    json_t *list;

    if (c->n_losses == 0) return json_null();
    if (c->n_losses == 1) return write_loss(&c->losses[0]);
    list = json_array();
    for (int i = 0; i < c->n_losses; i++) json_array_append_new(list, write_loss(&c->losses[i]));
    return list;
}

static json_t *write_loss_weights(const manta_contents *c)
{
    json_t *list;
    bool any = false;

    for (int i = 0; i < c->n_losses; i++) any |= c->losses[i].weight != 0 && c->losses[i].weight != 1;
    if (!any) return json_null();
    list = json_array();
    for (int i = 0; i < c->n_losses; i++) {
        json_array_append_new(list, json_real(option_real((double)c->losses[i].weight, 1)));
    }
    if (c->n_losses > 1) return list;
    {
        json_t *one = json_incref(json_array_get(list, 0));
        json_decref(list);
        return one;
    }
}

/* ---- metrics ---- */

/* A name where Keras knows what it means, else the class. */
static json_t *write_metric(const manta_metric *m)
{
    bool top = strstr(m->name, "top_k") != NULL;
    const char *class = !strcmp(m->name, "sparse_top_k_categorical_accuracy")
                            ? "SparseTopKCategoricalAccuracy"
                        : !strcmp(m->name, "top_k_categorical_accuracy") ? "TopKCategoricalAccuracy"
                        : !strcmp(m->name, "binary_accuracy")            ? "BinaryAccuracy"
                                                                         : NULL;
    json_t *c;

    if (!class || (!top && m->threshold == 0)) return json_string(m->name);
    c = json_object();
    set_member(c, "name", json_string(m->name));
    set_member(c, "dtype", json_string("float32"));
    if (top) {
        set_member(c, "k", json_integer(m->k ? m->k : 5));
    } else {
        set_member(c, "threshold", json_real(option_real((double)m->threshold, 0.5)));
    }
    return keras_envelope("keras.metrics", class, c, NULL);
}

static json_t *metrics_of(const manta_contents *c, int output)
{
    json_t *list = json_array();

    for (int i = 0; i < c->n_metrics; i++) {
        const manta_metric *m = &c->metrics[i];
        metric_fn found;
        if (m->output != output) continue;
        if (m->fn || metric_find(m, NULL, 2, &found)) {
            if (is_untold("metric", m->name))
                log_warn("a metric of the program's own is not in the file: who loads it adds it",
                         LOG_STR("metric", m->name));
            continue;
        }
        json_array_append_new(list, write_metric(m));
    }
    return list;
}

static json_t *write_metrics(const manta_contents *c, int outputs)
{
    json_t *list;

    if (!c->n_metrics) return json_null();
    if (outputs == 1) return metrics_of(c, 0);
    list = json_array();
    for (int i = 0; i < outputs; i++) json_array_append_new(list, metrics_of(c, i));
    return list;
}

json_t *keras_compile_write(const manta_contents *c, bool legacy)
{
    json_t *o;

    if (!c->optimizer && !c->n_losses) return json_null();
    o = json_object();
    if (c->optimizer) {
        set_member(o, legacy ? "optimizer_config" : "optimizer", write_optimizer(c->optimizer));
    } else {
        set_member(o, legacy ? "optimizer_config" : "optimizer", json_string("rmsprop"));
    }
    set_member(o, "loss", write_losses(c));
    set_member(o, "loss_weights", write_loss_weights(c));
    set_member(o, "metrics", write_metrics(c, manta_model_outputs(c->model)));
    set_member(o, "weighted_metrics", json_null());
    set_member(o, "run_eagerly", json_false());
    set_member(o, "steps_per_execution", json_integer(1));
    set_member(o, "jit_compile", json_false());
    return o;
}
