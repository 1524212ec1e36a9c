/* recipe_compile.c - optimizer, schedule, loss and metrics from settings.
 *
 * Each of them is, in this order: what is set; what the model's file was compiled with; what the
 * zoo trains the model with; Keras's default. */
#include <limits.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

#include "base/args.h"
#include "base/mem.h"
#include "nn/name.h"
#include "train/recipe/choice.h"
#include "train/recipe/recipe.h"
#include "train/recipe/schedule_text.h"
#include "train/recipe/settings.h"

/* Of a model that is neither a file's nor the zoo's. */
static const manta_recipe_defaults plain = {
    .loss = "mean_squared_error", .metrics = "none", .optimizer = "rmsprop"};

void recipe_forget_compile(manta_recipe *r)
{
    mem_free(r->metric_names);
    mem_free(r->loss_name);
    r->metric_names = NULL;
    r->loss_name = NULL;
    r->compile = (manta_compile){0};
    r->compiled = false;
}

/* ---- optimizer ---- */

static manta_status read_ema(manta_recipe *r, manta_optimizer *p)
{
    p->use_ema = p->use_ema || recipe_flag(r, "ema");
    p->ema_momentum = recipe_real(r, "ema", p->ema_momentum);
    if (recipe_flag(r, "ema-overwrite") && !p->use_ema)
        return recipe_blame(r, "ema-overwrite",
                            manta_fail(MANTA_EINVAL, "%sema-overwrite needs %sema", r->prefix, r->prefix));
    return recipe_small(r, "ema-overwrite", p->ema_overwrite_frequency, INT_MAX, &p->ema_overwrite_frequency);
}

/* The fields of an optimizer that are numbers or flags, by their settings. */
static const struct {
    const char *name;
    size_t at;
    bool flag;
} fields[] = {
    {"learning-rate", offsetof(manta_optimizer, learning_rate), false},
    {"momentum", offsetof(manta_optimizer, momentum), false},
    {"dampening", offsetof(manta_optimizer, dampening), false},
    {"nesterov", offsetof(manta_optimizer, nesterov), true},
    {"beta-1", offsetof(manta_optimizer, beta_1), false},
    {"beta-2", offsetof(manta_optimizer, beta_2), false},
    {"epsilon", offsetof(manta_optimizer, epsilon), false},
    {"rho", offsetof(manta_optimizer, rho), false},
    {"amsgrad", offsetof(manta_optimizer, amsgrad), true},
    {"centered", offsetof(manta_optimizer, centered), true},
    {"weight-decay", offsetof(manta_optimizer, weight_decay), false},
    {"clipvalue", offsetof(manta_optimizer, clipvalue), false},
    {"clipnorm", offsetof(manta_optimizer, clipnorm), false},
    {"global-clipnorm", offsetof(manta_optimizer, global_clipnorm), false},
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

static void read_field(const manta_recipe *r, int i, manta_optimizer *p)
{
    void *at = (char *)p + fields[i].at;

    if (!recipe_flag(r, fields[i].name)) return;
    if (fields[i].flag) {
        *(bool *)at = true;
    } else {
        *(double *)at = recipe_real(r, fields[i].name, 0);
    }
}

/* Which setting makes an optimizer of `base` that cannot be: the first with which the check
 * fails. */
static const char *find_culprit(const manta_recipe *r, const manta_optimizer *base)
{
    manta_error said;
    manta_optimizer p = *base;
    const char *culprit = NULL;

    manta_error_get(&said);
    for (int i = 0; !culprit && i < N_FIELDS; i++) {
        if (!recipe_flag(r, fields[i].name)) continue;
        read_field(r, i, &p);
        if (manta_optimizer_check(&p)) culprit = fields[i].name;
    }
    (void)!manta_error_raise(&said); /* the sentence stays what it was */
    if (culprit) return culprit;
    return recipe_flag(r, "lr-schedule") ? "lr-schedule" : recipe_flag(r, "ema") ? "ema" : "optimizer";
}

/* *p is what the model's file says when `given`, and is otherwise filled in by name. */
static manta_status read_optimizer(manta_recipe *r, const char *preset, bool given, manta_optimizer *p)
{
    const char *name = recipe_text(r, "optimizer"), *schedule = recipe_text(r, "lr-schedule");
    manta_optimizer base;
    manta_error e;
    char word[96];

    if ((name || !given) && manta_optimizer_named(name ? name : preset, p)) {
        manta_error_get(&e);
        return recipe_fail(r, "optimizer", "%s", e.text);
    }
    if (recipe_flag(r, "learning-rate")) p->schedule = (manta_schedule){0};
    base = *p;
    for (int i = 0; i < N_FIELDS; i++) read_field(r, i, p);
    TRY(recipe_small(r, "gradient-accumulation", p->gradient_accumulation_steps, INT_MAX,
                     &p->gradient_accumulation_steps));
    TRY(read_ema(r, p));
    if (schedule && schedule_text(recipe_word(r, "lr-schedule", word, sizeof word), schedule,
                                  p->learning_rate, &p->schedule))
        return recipe_blame(r, "lr-schedule", MANTA_EINVAL);
    if (p->learning_rate == 0) p->learning_rate = MANTA_ZERO; /* a rate of 0 that words ask for */
    if (manta_optimizer_check(p)) return recipe_blame(r, find_culprit(r, &base), MANTA_EINVAL);
    return MANTA_OK;
}

/* ---- loss and metrics ---- */

static manta_status read_loss(manta_recipe *r, const char *text)
{
    manta_loss *loss = &r->losses[0];
    const char *keys = "none";
    char word[96];
    bool entropy;
    manta_status st;
    choice c;

    choice_init(&c, recipe_word(r, "loss", word, sizeof word), text);
    r->loss_name = mem_strdup(c.name);
    entropy = strcasestr(c.name, "crossentropy") || name_same(c.name, "bce");
    *loss = (manta_loss){.name = r->loss_name, .from_logits = entropy && r->preset && r->preset->from_logits};
    if (entropy) {
        if (choice_value(&c, "from-logits", NULL)) loss->from_logits = choice_flag(&c, "from-logits", NULL);
        loss->label_smoothing = (float)choice_real(&c, "label-smoothing", NULL, 0);
        keys = "from-logits, label-smoothing";
    } else if (name_same(c.name, "huber")) {
        loss->delta = (float)choice_real(&c, "delta", NULL, 0);
        keys = "delta";
    }
    st = choice_done(&c, keys);
    choice_release(&c);
    r->compile.n_losses = 1;
    r->compile.losses = r->losses;
    for (int n = manta_model_outputs(r->m); n <= RECIPE_OUTPUTS && r->compile.n_losses < n;)
        r->losses[r->compile.n_losses++] = *loss;
    return st ? recipe_blame(r, "loss", st) : MANTA_OK;
}

static manta_status read_metric(manta_recipe *r, char *part, manta_metric *out)
{
    char *k = strstr(part, ":k="), word[96];
    int64_t n = 0;

    *out = (manta_metric){.name = part};
    if (!k) return MANTA_OK;
    *k = '\0';
    if (settings_int(recipe_word(r, "metrics", word, sizeof word), k + 3, &n))
        return recipe_blame(r, "metrics", MANTA_EINVAL);
    if (n < 0 || n > INT_MAX) return recipe_fail(r, "metrics", "k=%s, expected a positive number", k + 3);
    out->k = (int)n;
    return MANTA_OK;
}

static manta_status read_metrics(manta_recipe *r, const char *text)
{
    char *rest = r->metric_names = mem_strdup(text);
    int n = 0;

    r->compile.metrics = r->metrics;
    if (!strcmp(text, "none")) return MANTA_OK;
    for (char *part; (part = strsep(&rest, ","));) {
        if (n == RECIPE_METRICS)
            return recipe_fail(r, "metrics", "too many, expected at most %d", RECIPE_METRICS);
        TRY(read_metric(r, part, &r->metrics[n++]));
    }
    r->compile.n_metrics = n;
    return MANTA_OK;
}

/* ---- of a file ---- */

/* Adds what to do about something of a file that Manta has not. */
static manta_status fail_naming_setting(const manta_recipe *r, manta_status st, const char *setting)
{
    manta_error e;

    manta_error_get(&e);
    return manta_fail(st, "%s; %s%s chooses one", e.text, r->prefix, setting);
}

/* Loss and metrics of the file, where no setting says otherwise. */
static manta_status take_losses(manta_recipe *r)
{
    const char *metrics = recipe_text(r, "metrics");
    manta_status st = manta_saved_losses(r->saved, &r->compile.n_losses, &r->compile.losses);

    if (st) return fail_naming_setting(r, st, "loss");
    r->loss_name = mem_strdup(r->compile.losses[0].name);
    if (metrics) return read_metrics(r, metrics);
    st = manta_saved_metrics(r->saved, &r->compile.n_metrics, &r->compile.metrics);
    return st ? fail_naming_setting(r, st, "metrics") : MANTA_OK;
}

/* A file that says nothing of an optimizer leaves Keras's default. */
static manta_status take_optimizer(manta_recipe *r)
{
    manta_status st = manta_saved_optimizer(r->saved, &r->optimizer);

    if (st && st != MANTA_ENOENT && !recipe_flag(r, "optimizer"))
        return fail_naming_setting(r, st, "optimizer");
    return read_optimizer(r, "rmsprop", !st, &r->optimizer);
}

/* ---- all of it ---- */

static manta_status read_objective(manta_recipe *r, const manta_recipe_defaults *preset)
{
    const char *loss = recipe_text(r, "loss"), *metrics = recipe_text(r, "metrics");

    if (r->saved && !loss) return take_losses(r);
    TRY(read_loss(r, loss ? loss : preset->loss));
    /* Another loss is no reason to measure less than the file says; what of it Manta lacks is not measured. */
    if (r->saved && !metrics && !manta_saved_metrics(r->saved, &r->compile.n_metrics, &r->compile.metrics) &&
        r->compile.n_metrics)
        return MANTA_OK;
    /* A loss of the user's own has no use for the default's accuracy. */
    if (!metrics) metrics = loss && !name_same(r->loss_name, preset->loss) ? "none" : preset->metrics;
    return read_metrics(r, metrics);
}

/* Freezes what the comma-separated patterns match. */
static manta_status freeze_layers(manta_recipe *r)
{
    const char *patterns = recipe_text(r, "freeze");
    char *copy = patterns ? mem_strdup(patterns) : NULL, *rest = copy;
    manta_status st = MANTA_OK;

    for (char *part; !st && (part = strsep(&rest, ","));) st = manta_model_freeze(r->m, part, true);
    mem_free(copy);
    return st;
}

static manta_status compile_for(manta_recipe *r, manta_purpose purpose)
{
    const manta_recipe_defaults *preset = r->preset ? r->preset : &plain;

    if (purpose == MANTA_PURPOSE_PREDICT) return MANTA_OK;
    if (purpose == MANTA_PURPOSE_EVALUATE) return read_objective(r, preset);
    if (recipe_flag(r, "reset-optimizer") && !recipe_flag(r, "weights") && !r->saved)
        return recipe_blame(
            r, "reset-optimizer",
            manta_fail(MANTA_EINVAL, "%sreset-optimizer needs %sweights", r->prefix, r->prefix));
    if (r->saved) TRY(take_optimizer(r));
    TRY(read_objective(r, preset));
    if (!r->saved) TRY(read_optimizer(r, preset->optimizer, false, &r->optimizer));
    r->compile.optimizer = &r->optimizer;
    return freeze_layers(r);
}

manta_status recipe_check_purpose(const char *function, manta_purpose purpose)
{
    if ((int)purpose >= 0 && purpose <= MANTA_PURPOSE_PREDICT) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "%s: there is no purpose %d, expected 0 to %d", function, (int)purpose,
                      MANTA_PURPOSE_PREDICT);
}

manta_status manta_recipe_compile(manta_recipe *r, manta_purpose purpose, const manta_compile **out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(out);

    recipe_begin(r);
    TRY(recipe_check_purpose(__func__, purpose));
    if (!r->m)
        return manta_fail(MANTA_EINVAL, "the recipe has no model yet, expected one to be opened first");
    if (!r->compiled || r->purpose != purpose) {
        recipe_forget_compile(r);
        TRY(compile_for(r, purpose));
        r->compiled = true;
        r->purpose = purpose;
    }
    *out = &r->compile;
    return MANTA_OK;
}

manta_status recipe_need_loss(manta_recipe *r)
{
    const manta_compile *c;

    if (r->compiled && r->purpose != MANTA_PURPOSE_PREDICT) return MANTA_OK;
    return manta_recipe_compile(r, MANTA_PURPOSE_EVALUATE, &c);
}

bool manta_recipe_is_sparse(const manta_recipe *r)
{
    REFUSE_NULL_OR(r, false);
    return r->loss_name && !strncasecmp(r->loss_name, "sparse", 6);
}
