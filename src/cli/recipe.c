/* recipe.c - how a model is trained. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/recipe.h"
#include "cli/spec.h"

static const recipe_default defaults[] = {
    {"mnist-cnn", "sparse_categorical_crossentropy", "accuracy", "adam", .logits = true},
    {"resnet18", "sparse_categorical_crossentropy", "accuracy", "adam", .logits = true,
     .normalize = "0.5,0.5"},
    {"mlp", "sparse_categorical_crossentropy", "accuracy", "adam", .logits = true},
    {"linear", "mean_squared_error", "mean_absolute_error", "sgd", .logits = false},
    {"autoencoder", "mean_squared_error", "mean_absolute_error", "adam", .give_back = true},
};

#define DEFAULTS (int)(sizeof defaults / sizeof *defaults)

const option_group recipe_loss_options = {
    "Loss and metrics:",
    (const cli_option[]){{"loss", OPTION_TEXT, "L",
                          "What to minimise, by Keras's name, with settings after a colon: "
                          "sparse_categorical_crossentropy:label-smoothing=0.1. Cross-entropies take logits "
                          "when the model gives "
                          "logits (from-logits=no says otherwise); huber takes delta"},
                         {"metrics", OPTION_TEXT, "M,...",
                          "What to report beside the loss, by Keras's names; none for no metric"},
                         {0}}};

const option_group recipe_options = {
    "Optimizer (names and defaults are Keras's; torch.NAME takes PyTorch's):",
    (const cli_option[]){
        {"optimizer", OPTION_TEXT, "NAME", "sgd, adam, adamw or rmsprop"},
        {"learning-rate", OPTION_REAL, "X", "The rate, or where a schedule begins"},
        {"lr-schedule", OPTION_TEXT, "S",
         "cosine:steps=1000,warmup=100,alpha=0; exponential:steps=1000,rate=0.96,staircase; "
         "inverse-time:steps=1000,rate=0.5,staircase; polynomial:steps=1000,end=0.0001,power=1,cycle; "
         "piecewise:1000=0.01,2000=0.001 (after step 1000 the rate is 0.01, and so on)"},
        {"momentum", OPTION_REAL, "X", "Of sgd and rmsprop"},
        {"nesterov", OPTION_FLAG, NULL, "Nesterov's momentum (sgd)"},
        {"dampening", OPTION_REAL, "X", "Of the momentum (torch.sgd)"},
        {"beta-1", OPTION_REAL, "X", "Decay of the first moment (adam, adamw)"},
        {"beta-2", OPTION_REAL, "X", "Decay of the second moment (adam, adamw)"},
        {"epsilon", OPTION_REAL, "X", "The small number that keeps a division from zero"},
        {"rho", OPTION_REAL, "X", "Decay of rmsprop's average"},
        {"amsgrad", OPTION_FLAG, NULL, "Keep the largest second moment (adam, adamw)"},
        {"centered", OPTION_FLAG, NULL, "Subtract the mean gradient (rmsprop)"},
        {"weight-decay", OPTION_REAL, "X", "Decoupled decay of the weights"},
        {"clipvalue", OPTION_REAL, "X", "Cut every gradient to [-X, X]"},
        {"clipnorm", OPTION_REAL, "X", "Scale a variable's gradient to at most this norm"},
        {"global-clipnorm", OPTION_REAL, "X", "Scale all gradients together to at most this norm"},
        {"gradient-accumulation", OPTION_COUNT, "N", "Update once every N steps with their mean gradient"},
        {"ema", OPTION_REAL, "MOMENTUM", "Keep a moving average of the weights, and end with it"},
        {"ema-overwrite", OPTION_COUNT, "N", "Replace the weights by their average every N updates"},
        {0}}};

const recipe_default *recipe_default_of(const char *model)
{
    for (int i = 0; i < DEFAULTS; i++) {
        if (!strcmp(defaults[i].model, model)) return &defaults[i];
    }
    return NULL;
}

const recipe_default *recipe_default_at(int i)
{
    return i >= 0 && i < DEFAULTS ? &defaults[i] : NULL;
}

/* ---- schedule ---- */

static void parse_piecewise(manta_schedule *s, spec *p, double rate)
{
    s->kind = MANTA_SCHEDULE_PIECEWISE;
    s->values[0] = rate;
    if (!p->n) cli_usage("--lr-schedule: piecewise needs STEP=RATE pairs, such as piecewise:1000=0.01");
    if (p->n > MANTA_SCHEDULE_PIECES)
        cli_usage("--lr-schedule: too many pieces, expected at most %d", MANTA_SCHEDULE_PIECES);
    for (int i = 0; i < p->n; i++) {
        s->boundaries[i] = options_int_of("--lr-schedule", p->key[i]);
        s->values[i + 1] = options_real_of("--lr-schedule", p->value[i]);
        p->used[i] = true;
    }
    s->n_boundaries = p->n;
}

static int64_t decay_steps(spec *p)
{
    const char *text = spec_value(p, "steps");

    if (!text) cli_usage("--lr-schedule: %s needs steps=N", p->name);
    return options_int_of("--lr-schedule", text);
}

static void parse_cosine(manta_schedule *s, spec *p, double rate)
{
    s->kind = MANTA_SCHEDULE_COSINE;
    s->decay_steps = decay_steps(p);
    s->alpha = spec_real(p, "alpha", 0);
    s->warmup_steps = spec_count(p, "warmup", 0);
    if (s->warmup_steps) { /* from `start` up to the rate, then down */
        s->warmup_target = rate;
        s->initial_learning_rate = spec_real(p, "start", 0);
    }
    spec_done(p, "steps, warmup, start, alpha");
}

static void schedule_of(manta_schedule *s, const char *text, double rate)
{
    spec p;

    spec_init(&p, "--lr-schedule", text);
    *s = (manta_schedule){.initial_learning_rate = rate};
    if (!strcmp(p.name, "cosine")) {
        parse_cosine(s, &p, rate);
    } else if (!strcmp(p.name, "exponential") || !strcmp(p.name, "inverse-time")) {
        s->kind = *p.name == 'e' ? MANTA_SCHEDULE_EXPONENTIAL : MANTA_SCHEDULE_INVERSE_TIME;
        s->decay_steps = decay_steps(&p);
        s->decay_rate = spec_real(&p, "rate", *p.name == 'e' ? 0.96 : 0.5);
        s->staircase = spec_flag(&p, "staircase");
        spec_done(&p, "steps, rate, staircase");
    } else if (!strcmp(p.name, "polynomial")) {
        s->kind = MANTA_SCHEDULE_POLYNOMIAL;
        s->decay_steps = decay_steps(&p);
        s->end_learning_rate = spec_real(&p, "end", 1e-4);
        s->power = spec_real(&p, "power", 1);
        s->cycle = spec_flag(&p, "cycle");
        spec_done(&p, "steps, end, power, cycle");
    } else if (!strcmp(p.name, "piecewise")) {
        parse_piecewise(s, &p, rate);
    } else {
        cli_usage("--lr-schedule: no schedule is called '%s'; there are cosine, exponential, inverse-time, "
                  "piecewise and polynomial",
                  p.name);
    }
    spec_release(&p);
}

/* ---- optimizer ---- */

/* *p is what the model's file says when `given`, and is otherwise filled in by name. */
static void optimizer_of(manta_optimizer *p, const options *o, const char *preset, bool given)
{
    const char *name = options_text(o, "optimizer"), *schedule = options_text(o, "lr-schedule");

    if ((name || !given) && manta_optimizer_named(name ? name : preset, p))
        cli_usage("--optimizer: %s", manta_error_text());
    if (options_text(o, "learning-rate")) p->schedule = (manta_schedule){0};
    p->learning_rate = options_real(o, "learning-rate", p->learning_rate);
    p->momentum = options_real(o, "momentum", p->momentum);
    p->dampening = options_real(o, "dampening", p->dampening);
    p->nesterov = p->nesterov || options_flag(o, "nesterov");
    p->beta_1 = options_real(o, "beta-1", p->beta_1);
    p->beta_2 = options_real(o, "beta-2", p->beta_2);
    p->epsilon = options_real(o, "epsilon", p->epsilon);
    p->rho = options_real(o, "rho", p->rho);
    p->amsgrad = p->amsgrad || options_flag(o, "amsgrad");
    p->centered = p->centered || options_flag(o, "centered");
    p->weight_decay = options_real(o, "weight-decay", p->weight_decay);
    p->clipvalue = options_real(o, "clipvalue", p->clipvalue);
    p->clipnorm = options_real(o, "clipnorm", p->clipnorm);
    p->global_clipnorm = options_real(o, "global-clipnorm", p->global_clipnorm);
    p->gradient_accumulation_steps =
        (int)options_int(o, "gradient-accumulation", p->gradient_accumulation_steps);
    p->use_ema = p->use_ema || options_flag(o, "ema");
    if (options_flag(o, "ema")) p->ema_momentum = options_real(o, "ema", 0);
    if (options_flag(o, "ema-overwrite") && !p->use_ema) cli_usage("--ema-overwrite needs --ema");
    p->ema_overwrite_frequency = (int)options_int(o, "ema-overwrite", p->ema_overwrite_frequency);
    if (schedule) schedule_of(&p->schedule, schedule, p->learning_rate);
    if (manta_optimizer_check(p)) cli_usage("%s", manta_error_text());
}

/* ---- loss and metrics ---- */

static void loss_of(recipe *r, const char *text)
{
    spec p;
    bool entropy;

    spec_init(&p, "--loss", text);
    r->loss_name = strdup(p.name);
    entropy = strstr(p.name, "crossentropy") != NULL;
    r->loss = (manta_loss){.name = r->loss_name, .from_logits = entropy && r->preset && r->preset->logits};
    if (entropy) {
        if (spec_value(&p, "from-logits")) r->loss.from_logits = spec_flag(&p, "from-logits");
        r->loss.label_smoothing = (float)spec_real(&p, "label-smoothing", 0);
    }
    if (!strcmp(p.name, "huber")) r->loss.delta = (float)spec_real(&p, "delta", 0);
    spec_done(&p, entropy ? "from-logits, label-smoothing" : !strcmp(p.name, "huber") ? "delta" : "none");
    spec_release(&p);
}

static void metrics_of(recipe *r, const char *text)
{
    char *rest = r->names = strdup(text);
    int n = 0;

    if (!strcmp(text, "none")) return;
    for (char *part; (part = strsep(&rest, ","));) {
        char *k = strstr(part, ":k=");
        if (n == RECIPE_METRICS) cli_usage("--metrics: too many, expected at most %d", RECIPE_METRICS);
        r->metrics[n] = (manta_metric){.name = part};
        if (k) {
            *k = '\0';
            r->metrics[n].k = (int)options_int_of("--metrics", k + 3);
        }
        n++;
    }
    r->compile.n_metrics = n;
}

/* Adds what to do about a setting of a file that Manta has not. */
static manta_status fail_naming_option(manta_status st, const char *option)
{
    return manta_fail(st, "%s; %s chooses one", manta_error_text(), option);
}

/* Loss and metrics of the file, where no option says otherwise. */
static manta_status losses_of_file(recipe *r, const options *o, const manta_saved *saved)
{
    manta_status st = manta_saved_losses(saved, &r->compile.n_losses, &r->compile.losses);

    if (st) return fail_naming_option(st, "--loss");
    r->loss_name = strdup(r->compile.losses[0].name);
    if (options_text(o, "metrics")) {
        metrics_of(r, options_text(o, "metrics"));
        return MANTA_OK;
    }
    st = manta_saved_metrics(saved, &r->compile.n_metrics, &r->compile.metrics);
    return st ? fail_naming_option(st, "--metrics") : MANTA_OK;
}

static manta_status optimizer_of_file(recipe *r, const options *o, const manta_saved *saved)
{
    manta_status st = manta_saved_optimizer(saved, &r->optimizer);

    /* A file that says nothing of it leaves Keras's default. */
    if (st && st != MANTA_ENOENT && !options_text(o, "optimizer"))
        return fail_naming_option(st, "--optimizer");
    optimizer_of(&r->optimizer, o, "rmsprop", !st);
    r->compile.optimizer = &r->optimizer;
    return MANTA_OK;
}

manta_status recipe_init(recipe *r, const options *o, const char *model, const manta_saved *saved)
{
    static const recipe_default plain = {
        .loss = "mean_squared_error", .metrics = "none", .optimizer = "rmsprop"};
    const recipe_default *preset = saved ? NULL : recipe_default_of(model);
    const char *loss = options_text(o, "loss"), *metrics = options_text(o, "metrics");
    manta_status st;

    *r = (recipe){.preset = preset};
    if (!preset) preset = &plain;
    r->compile.metrics = r->metrics;
    r->compile.n_losses = 1;
    r->compile.losses = &r->loss;
    if (saved && options_knows(o, "optimizer") && (st = optimizer_of_file(r, o, saved))) return st;
    if (saved && !loss) return losses_of_file(r, o, saved);
    loss_of(r, loss ? loss : preset->loss);
    /* A loss of the user's own has no use for the default's accuracy. */
    metrics_of(r, metrics ? metrics : loss && strcmp(r->loss_name, preset->loss) ? "none" : preset->metrics);
    if (!saved && options_knows(o, "optimizer")) {
        optimizer_of(&r->optimizer, o, preset->optimizer, false);
        r->compile.optimizer = &r->optimizer;
    }
    return MANTA_OK;
}

void recipe_release(recipe *r)
{
    free(r->names);
    free(r->loss_name);
    *r = (recipe){0};
}

bool recipe_is_sparse(const recipe *r)
{
    return r->loss_name && !strncmp(r->loss_name, "sparse", 6);
}
