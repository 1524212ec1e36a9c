/* recipe_callbacks.c - callbacks from settings, and whether the metrics that they watch are there. */
#include <stdio.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "train/recipe/choice.h"
#include "train/recipe/recipe.h"

void recipe_forget_callbacks(manta_recipe *r)
{
    for (int i = 0; i < r->n_callbacks; i++) manta_callback_free(r->callbacks[i]);
    r->n_callbacks = 0;
}

static void add_callback(manta_recipe *r, manta_callback *c)
{
    r->callbacks[r->n_callbacks++] = c; /* RECIPE_CALLBACKS: one for each setting */
}

static void check_mode(choice *c, const char *mode)
{
    static const char *const modes[] = {"min", "max", "auto"};
    char hint[SUGGEST_TEXT];

    if (mode && strcmp(mode, "min") && strcmp(mode, "max") && strcmp(mode, "auto"))
        choice_fail(c, "mode=%.80s, expected min, max or auto%s", mode,
                    suggest_among(mode, 3, modes, hint, sizeof hint));
}

static manta_status add_early_stop(manta_recipe *r, const char *text)
{
    manta_early_stopping_options e = {0};
    char word[96];
    manta_status st;
    choice c;

    choice_init(&c, recipe_word(r, "early-stop", word, sizeof word), text);
    e.monitor = c.name;
    e.patience = choice_count(&c, "patience", NULL, 0);
    e.min_delta = choice_real(&c, "min-delta", NULL, 0);
    e.start_from_epoch = choice_count(&c, "from", "start-from-epoch", 0);
    e.mode = choice_value(&c, "mode", NULL);
    e.restore_best_weights = choice_flag(&c, "restore-best", "restore-best-weights");
    e.baseline = choice_real(&c, "baseline", NULL, 0);
    if (choice_value(&c, "baseline", NULL) && e.baseline == 0) e.baseline = MANTA_ZERO;
    check_mode(&c, e.mode);
    st = choice_done(&c, "patience, min-delta, baseline, from, mode, restore-best");
    if (!st) add_callback(r, manta_early_stopping(&e));
    choice_release(&c);
    return st ? recipe_blame(r, "early-stop", st) : MANTA_OK;
}

static manta_status add_reduce_lr(manta_recipe *r, const char *text)
{
    manta_reduce_lr_options e = {0};
    char word[96];
    manta_status st;
    choice c;

    choice_init(&c, recipe_word(r, "reduce-lr", word, sizeof word), text);
    e.monitor = c.name;
    e.factor = choice_real(&c, "factor", NULL, 0.1);
    e.patience = choice_count(&c, "patience", NULL, 10);
    e.min_delta = choice_real(&c, "min-delta", NULL, 1e-4);
    if (e.min_delta < 0) e.min_delta = MANTA_ZERO;
    e.cooldown = choice_count(&c, "cooldown", NULL, 0);
    e.min_lr = choice_real(&c, "min", "min-lr", 0);
    e.mode = choice_value(&c, "mode", NULL);
    check_mode(&c, e.mode);
    if (!(e.factor > 0 && e.factor < 1)) choice_fail(&c, "factor=%g, expected between 0 and 1", e.factor);
    st = choice_done(&c, "factor, patience, min-delta, cooldown, min, mode");
    if (!st) add_callback(r, manta_reduce_lr_on_plateau(&e));
    choice_release(&c);
    return st ? recipe_blame(r, "reduce-lr", st) : MANTA_OK;
}

manta_status manta_recipe_callbacks(manta_recipe *r, bool validated, int *n, manta_callback *const **out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(n);
    REFUSE_NULL(out);

    const char *text;

    recipe_begin(r);
    recipe_forget_callbacks(r);
    if (recipe_flag(r, "terminate-on-nan")) add_callback(r, manta_terminate_on_nan());
    if ((text = recipe_text(r, "reduce-lr"))) TRY(add_reduce_lr(r, text));
    if ((text = recipe_text(r, "early-stop"))) TRY(add_early_stop(r, text));
    if ((text = recipe_text(r, "csv-log"))) add_callback(r, manta_csv_logger(text, NULL));
    if ((text = recipe_text(r, "tensorboard"))) add_callback(r, manta_tensorboard(text, NULL));
    if ((text = recipe_text(r, "save-best")))
        add_callback(r, manta_model_checkpoint(
                            text, &(manta_model_checkpoint_options){
                                      .monitor = validated ? "val_loss" : "loss", .save_best_only = true}));
    *n = r->n_callbacks;
    *out = r->callbacks;
    return MANTA_OK;
}

/* ---- metrics ---- */

static manta_status check_metric(manta_recipe *r, const manta_session *s, bool validated, const char *setting,
                                 const char *metric)
{
    manta_suggestion near = manta_suggestion_for(metric);
    bool of_validation = !strncmp(metric, "val_", 4);
    char known[512] = "", hint[96];
    manta_metrics all;

    if (!validated && of_validation)
        return recipe_blame(r, setting,
                            manta_fail(MANTA_EINVAL,
                                       "%s%s %s: there is no validation; give %svalidation or "
                                       "%svalidation-split",
                                       r->prefix, setting, metric, r->prefix, r->prefix));
    manta_session_metrics(s, &all);
    if (!strcmp(metric, "learning_rate")) return MANTA_OK;
    for (int i = 0; i < all.n; i++) {
        size_t at = strlen(known);
        if (!strcmp(of_validation ? metric + 4 : metric, all.name[i])) return MANTA_OK;
        manta_suggestion_offer(&near, all.name[i]);
        snprintf(known + at, sizeof known - at, "%s%s", at ? ", " : "", all.name[i]);
    }
    return recipe_fail(r, setting, "no metric is called '%.80s'; there are %s%s%s", metric, known,
                       validated ? ", and the same with val_" : "",
                       manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status manta_recipe_check_metrics(manta_recipe *r, const manta_session *s, bool validated)
{
    REFUSE_NULL(r);
    REFUSE_NULL(s);

    static const char *const asking[] = {"keep-best", "early-stop", "reduce-lr"};

    recipe_begin(r);
    for (size_t k = 0; k < sizeof asking / sizeof *asking; k++) {
        const char *text = recipe_text(r, asking[k]);
        char *metric = text ? mem_strndup(text, strcspn(text, ":")) : NULL;
        manta_status st = text ? check_metric(r, s, validated, asking[k], metric) : MANTA_OK;
        mem_free(metric);
        if (st) return st;
    }
    return MANTA_OK;
}
