/* recipe_run.c - what is kept of a training, from settings: the folder of its run, checkpoints, logs, and the
 * settings themselves. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/args.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "train/recipe/recipe.h"
#include "train/recipe/settings.h"

enum { KEEP = 2 }; /* checkpoints when nothing is set */

/* ---- the settings as JSON ---- */

/* Whether a setting says where a run lies, and not what it is. */
static bool is_place(const char *name)
{
    return !strcmp(name, "name") || !strcmp(name, "storage") || !strcmp(name, "run-dir");
}

/* Adds a text to the object, unless it cannot be written in JSON. */
static manta_status put_text(manta_recipe *r, json_t *all, const char *name, const char *text)
{
    json_t *v = json_string(text);

    if (v) {
        json_object_set_new(all, name, v);
        return MANTA_OK;
    }
    return recipe_fail(r, name,
                       "it is not UTF-8, and the configuration of a run that is kept holds nothing else");
}

manta_status manta_recipe_config(manta_recipe *r, const char **out)
{
    REFUSE_NULL(r);
    REFUSE_NULL(out);

    json_t *all = json_object();
    manta_status st = MANTA_OK;
    char *text;

    recipe_begin(r);
    if (r->name) st = put_text(r, all, "model", r->name);
    for (int i = 0; !st && i < settings_count(); i++) {
        const manta_setting *s = manta_setting_at(i);
        if (!r->text[i] || is_place(s->name)) continue;
        if (s->kind == MANTA_SETTING_FLAG) {
            json_object_set_new(all, s->name, json_true());
        } else {
            st = put_text(r, all, s->name, r->text[i]);
        }
    }
    if (!st) {
        text = json_dumps(all, JSON_INDENT(1));
        if (!text) abort(); /* small control memory */
        mem_free(r->config);
        *out = r->config = mem_strdup(text);
        free(text);
    }
    json_decref(all);
    return st;
}

/* ---- checkpoints and logs ---- */

/* 20steps, 20 (steps), 1epoch, 2epochs. */
static manta_status read_pace(manta_recipe *r, manta_checkpointing_options *pace)
{
    const char *text = recipe_text(r, "checkpoint-every");
    char *end;
    long long n;

    *pace = (manta_checkpointing_options){0};
    if (!text) return MANTA_OK;
    n = strtoll(text, &end, 10);
    if (end != text && n >= 1 && (!*end || !strcmp(end, "steps") || !strcmp(end, "step"))) {
        pace->every_steps = n;
    } else if (end != text && n >= 1 && (!strcmp(end, "epoch") || !strcmp(end, "epochs"))) {
        pace->every_epochs = n;
    } else {
        return recipe_fail(r, "checkpoint-every", "'%.80s', expected such as 20steps or 1epoch", text);
    }
    return MANTA_OK;
}

/* 500k, 64M, 2G, 1000 (bytes), all. */
static manta_status read_size(manta_recipe *r, int64_t *out)
{
    static const char units[] = "kMG";
    const char *text = recipe_text(r, "log-size"), *unit;
    char *end;
    long long n;

    if (!text) return MANTA_OK;
    if (!strcmp(text, "all")) {
        *out = MANTA_NONE;
        return MANTA_OK;
    }
    errno = 0;
    n = strtoll(text, &end, 10);
    unit = *end ? strchr(units, *end) : NULL;
    if (end == text || errno || n < 1 || n > INT64_C(1) << 30 || (*end && (!unit || end[1])))
        return recipe_fail(r, "log-size", "'%.80s', expected such as 500k, 64M or all", text);
    *out = n << (unit ? 10 * (unit - units + 1) : 0);
    return MANTA_OK;
}

static manta_status read_log_to(manta_recipe *r, manta_log_to *out)
{
    static const char *const places[] = {"file", "output", "both"};
    const char *text = recipe_text(r, "log-to");
    char hint[SUGGEST_TEXT];

    if (!text) return MANTA_OK;
    for (int i = 0; i < 3; i++) {
        if (strcmp(text, places[i])) continue;
        *out = (manta_log_to)i;
        return MANTA_OK;
    }
    return recipe_fail(r, "log-to", "'%.80s', expected file, output or both%s", text,
                       suggest_among(text, 3, places, hint, sizeof hint));
}

static manta_status read_logging(manta_recipe *r, manta_logging_config *c)
{
    static const char *const levels[] = {"debug", "info", "warn", "error", "off"};
    char hint[SUGGEST_TEXT];
    int level;

    c->level = recipe_text(r, "log-level");
    if (c->level && log_level_find(c->level, &level))
        return recipe_fail(r, "log-level", "'%.80s', expected debug, info, warn, error or off%s", c->level,
                           suggest_among(c->level, 5, levels, hint, sizeof hint));
    c->stamp = recipe_flag(r, "log-stamp");
    TRY(read_log_to(r, &c->to));
    return read_size(r, &c->max_size);
}

/* What a run without a name is called after: the model, without folders and ending. */
static const char *stem_of(manta_recipe *r)
{
    const char *slash = r->name ? strrchr(r->name, '/') : NULL;

    snprintf(r->stem, sizeof r->stem, "%s", slash ? slash + 1 : r->name ? r->name : "");
    r->stem[strcspn(r->stem, ".")] = '\0';
    return *r->stem ? r->stem : NULL;
}

manta_status manta_recipe_run_options(manta_recipe *r, manta_run_options *out,
                                      manta_checkpointing_options *pace)
{
    REFUSE_NULL(r);
    REFUSE_NULL(out);
    REFUSE_NULL(pace);

    manta_run_options ro = {.folder = recipe_text(r, "run-dir"),
                            .storage = recipe_text(r, "storage"),
                            .name = recipe_text(r, "name"),
                            .checkpoints = {.score = recipe_text(r, "keep-best")}};
    const char *p = r->prefix;

    recipe_begin(r);
    TRY(read_pace(r, pace));
    if (ro.folder && (ro.name || ro.storage))
        return recipe_blame(r, "run-dir",
                            manta_fail(MANTA_EINVAL,
                                       "%srun-dir is the folder itself: leave %sname and %sstorage out", p, p,
                                       p));
    TRY(recipe_small(r, "keep", KEEP, INT_MAX, &ro.checkpoints.keep));
    TRY(read_logging(r, &ro.logging));
    ro.stem = stem_of(r);
    *out = ro;
    return MANTA_OK;
}
