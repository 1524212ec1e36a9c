/* inspect_compiled.c - optimizer, losses and metrics that a file's model was
 * compiled with. What Manta has not is said, and hides nothing else. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/table.h"

typedef struct setting {
    const char *name;
    double value;
    enum { NUMBER, WHOLE, FLAG } kind;
} setting;

enum { MOST = 24 };

typedef struct settings {
    int n;
    setting at[MOST];
} settings;

static void add_number(settings *s, const char *name, double value)
{
    s->at[s->n++] = (setting){.name = name, .value = value};
}

static void add_integer(settings *s, const char *name, int64_t value)
{
    s->at[s->n++] = (setting){.name = name, .value = (double)value, .kind = WHOLE};
}

static void add_flag(settings *s, const char *name, bool on)
{
    s->at[s->n++] = (setting){.name = name, .value = on, .kind = FLAG};
}

/* The settings that this kind of optimizer heeds. */
static settings optimizer_settings(const manta_optimizer *o)
{
    settings s = {0};

    if (o->schedule.kind == MANTA_SCHEDULE_CONSTANT)
        add_number(&s, "learning_rate", o->learning_rate == MANTA_ZERO ? 0 : o->learning_rate);
    if (o->kind == MANTA_OPTIMIZER_SGD || o->kind == MANTA_OPTIMIZER_RMSPROP)
        add_number(&s, "momentum", o->momentum);
    if (o->kind == MANTA_OPTIMIZER_SGD) {
        if (o->torch) add_number(&s, "dampening", o->dampening);
        add_flag(&s, "nesterov", o->nesterov);
    }
    if (o->kind == MANTA_OPTIMIZER_RMSPROP) {
        add_number(&s, "rho", o->rho);
        add_flag(&s, "centered", o->centered);
    }
    if (o->kind == MANTA_OPTIMIZER_ADAM || o->kind == MANTA_OPTIMIZER_ADAMW) {
        add_number(&s, "beta_1", o->beta_1);
        add_number(&s, "beta_2", o->beta_2);
        add_flag(&s, "amsgrad", o->amsgrad);
    }
    if (o->kind != MANTA_OPTIMIZER_SGD) add_number(&s, "epsilon", o->epsilon);
    add_number(&s, "weight_decay", o->weight_decay);
    add_number(&s, "clipvalue", o->clipvalue);
    add_number(&s, "clipnorm", o->clipnorm);
    add_number(&s, "global_clipnorm", o->global_clipnorm);
    add_integer(&s, "gradient_accumulation_steps", o->gradient_accumulation_steps);
    add_flag(&s, "use_ema", o->use_ema);
    if (o->use_ema) {
        add_number(&s, "ema_momentum", o->ema_momentum);
        add_integer(&s, "ema_overwrite_frequency", o->ema_overwrite_frequency);
    }
    return s;
}

/* Keras's name of the schedule, and its settings; NULL for a constant rate. */
static const char *schedule_settings(const manta_schedule *d, settings *s)
{
    add_number(s, "initial_learning_rate", d->initial_learning_rate);
    switch (d->kind) {
    case MANTA_SCHEDULE_CONSTANT: return NULL;
    case MANTA_SCHEDULE_EXPONENTIAL:
    case MANTA_SCHEDULE_INVERSE_TIME:
        add_integer(s, "decay_steps", d->decay_steps);
        add_number(s, "decay_rate", d->decay_rate);
        add_flag(s, "staircase", d->staircase);
        return d->kind == MANTA_SCHEDULE_EXPONENTIAL ? "ExponentialDecay" : "InverseTimeDecay";
    case MANTA_SCHEDULE_COSINE:
        add_integer(s, "decay_steps", d->decay_steps);
        add_number(s, "alpha", d->alpha);
        add_number(s, "warmup_target", d->warmup_target);
        add_integer(s, "warmup_steps", d->warmup_steps);
        return "CosineDecay";
    case MANTA_SCHEDULE_POLYNOMIAL:
        add_integer(s, "decay_steps", d->decay_steps);
        add_number(s, "end_learning_rate", d->end_learning_rate);
        add_number(s, "power", d->power);
        add_flag(s, "cycle", d->cycle);
        return "PolynomialDecay";
    case MANTA_SCHEDULE_PIECEWISE: s->n = 0; return "PiecewiseConstantDecay";
    }
    return NULL;
}

int64_t inspect_iterations(const manta_saved *s)
{
    const manta_array *a = manta_saved_find(s, "optimizer/iterations");

    if (!a || manta_array_count(a) != 1 || a->dtype != MANTA_DTYPE_I64) return -1;
    return *(const int64_t *)a->data;
}

/* ---- for people ---- */

/* What is off or zero is left out. */
static void print_settings(const settings *s, const char *apart)
{
    for (int i = 0; i < s->n; i++) {
        const setting *e = &s->at[i];
        if (e->value == 0) continue;
        print_out("%s%s", apart, e->name);
        if (e->kind != FLAG) print_out(" %.7g", e->value);
        apart = ", ";
    }
}

static void print_schedule(const manta_schedule *d)
{
    settings s = {0};
    const char *name = schedule_settings(d, &s);

    if (!name) return;
    print_out(", %s of", name);
    print_settings(&s, " ");
    if (d->kind != MANTA_SCHEDULE_PIECEWISE) return;
    for (int i = 0; i < d->n_boundaries; i++) {
        print_out(" %.7g to step %" PRId64 ",", d->values[i], d->boundaries[i]);
    }
    print_out(" %.7g", d->values[d->n_boundaries]);
}

/* A problem, where there is more than silence. */
static void print_problem(const char *word, manta_status st)
{
    if (st == MANTA_ENOENT) return;
    print_out("%-10s unusable: ", word);
    print_out("%s\n", manta_error_text());
}

static void print_optimizer(const manta_saved *s)
{
    int64_t steps = inspect_iterations(s);
    manta_optimizer o;
    manta_status st = manta_saved_optimizer(s, &o);

    if (st) {
        print_problem("optimizer", st);
        return;
    }
    settings list = optimizer_settings(&o);
    print_out("optimizer  %s", manta_optimizer_name(&o));
    print_settings(&list, ": ");
    print_schedule(&o.schedule);
    if (steps >= 0) print_out("; %" PRId64 " step%s done", steps, steps == 1 ? "" : "s");
    print_out("\n");
}

void inspect_compiled(const manta_saved *s)
{
    const manta_loss *losses;
    const manta_metric *metrics;
    manta_status st;
    int n = 0;

    print_optimizer(s);
    if ((st = manta_saved_losses(s, &n, &losses))) print_problem("loss", st);
    for (int i = 0; !st && i < n; i++) {
        print_out("%-10s %s%s\n", i ? "" : "loss", losses[i].name, losses[i].from_logits ? " of logits" : "");
    }
    n = 0;
    if ((st = manta_saved_metrics(s, &n, &metrics))) print_problem("metrics", st);
    for (int i = 0; !st && i < n; i++) print_out("%s%s", i ? ", " : "metrics    ", metrics[i].name);
    if (!st && n) print_out("\n");
}

/* ---- for programs ---- */

static void set_settings(json_t *to, const settings *s)
{
    for (int i = 0; i < s->n; i++) {
        const setting *e = &s->at[i];
        json_t *v = e->kind == FLAG    ? json_boolean(e->value != 0)
                    : e->kind == WHOLE ? json_integer((json_int_t)e->value)
                                       : json_number(e->value);
        json_object_set_new(to, e->name, v);
    }
}

static json_t *schedule_json(const manta_schedule *d)
{
    settings s = {0};
    const char *name = schedule_settings(d, &s);
    json_t *o, *boundaries = json_array(), *values = json_array();

    if (!name) {
        json_decref(boundaries);
        json_decref(values);
        return json_null();
    }
    o = json_pack("{s:s}", "name", name);
    set_settings(o, &s);
    for (int i = 0; i <= d->n_boundaries; i++) {
        if (i < d->n_boundaries) json_array_append_new(boundaries, json_integer(d->boundaries[i]));
        json_array_append_new(values, json_number(d->values[i]));
    }
    if (d->kind == MANTA_SCHEDULE_PIECEWISE) {
        json_object_set(o, "boundaries", boundaries);
        json_object_set(o, "values", values);
    }
    json_decref(boundaries);
    json_decref(values);
    return o;
}

/* A failure's sentence under `key`; silence adds nothing. */
static void set_problem(json_t *to, const char *key, manta_status st)
{
    if (st != MANTA_ENOENT) json_object_set_new(to, key, json_text(manta_error_text()));
}

static json_t *optimizer_json(const manta_saved *s, json_t *problems)
{
    int64_t steps = inspect_iterations(s);
    manta_optimizer o;
    manta_status st = manta_saved_optimizer(s, &o);
    json_t *to;

    if (st) {
        set_problem(problems, "optimizer", st);
        return json_null();
    }
    settings list = optimizer_settings(&o);
    to = json_pack("{s:s}", "name", manta_optimizer_name(&o));
    set_settings(to, &list);
    json_object_set_new(to, "schedule", schedule_json(&o.schedule));
    json_object_set_new(to, "iterations", steps >= 0 ? json_integer(steps) : json_null());
    return to;
}

void inspect_compiled_json(const manta_saved *s, json_t *to)
{
    json_t *problems = json_object(), *losses = json_array(), *metrics = json_array();
    const manta_loss *loss;
    const manta_metric *metric;
    manta_status st;
    int n = 0;

    json_object_set_new(to, "optimizer", optimizer_json(s, problems));
    if ((st = manta_saved_losses(s, &n, &loss))) set_problem(problems, "losses", st);
    for (int i = 0; !st && i < n; i++) {
        json_array_append_new(
            losses, json_pack("{s:s, s:b}", "name", loss[i].name, "from_logits", loss[i].from_logits));
    }
    n = 0;
    if ((st = manta_saved_metrics(s, &n, &metric))) set_problem(problems, "metrics", st);
    for (int i = 0; !st && i < n; i++) json_array_append_new(metrics, json_string(metric[i].name));
    json_object_set_new(to, "losses", losses);
    json_object_set_new(to, "metrics", metrics);
    json_object_set_new(to, "problems", problems);
}
