/* recipe.c - the settings of a recipe, and its model. */
#include "train/recipe/recipe.h"

#include <assert.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/args.h"
#include "base/mem.h"
#include "train/recipe/model_open.h"
#include "train/recipe/settings.h"

manta_recipe *manta_recipe_new(const char *prefix)
{
    manta_recipe *r = mem_new(sizeof *r);

    r->prefix = mem_strdup(prefix ? prefix : "");
    r->text = mem_new((size_t)settings_count() * sizeof *r->text);
    return r;
}

static void drop_model(manta_recipe *r)
{
    recipe_forget_compile(r);
    manta_saved_free(r->saved);
    manta_table_free(r->table);
    r->table = NULL;
    if (r->owns_model) manta_model_free(r->m);
    mem_free(r->name);
    r->saved = NULL;
    r->m = NULL;
    r->name = NULL;
    r->preset = NULL;
}

void manta_recipe_free(manta_recipe *r)
{
    if (!r) return;
    recipe_forget_callbacks(r);
    drop_model(r);
    for (int i = 0; i < settings_count(); i++) mem_free(r->text[i]);
    mem_free(r->text);
    mem_free(r->class_weight);
    mem_free(r->config);
    mem_free(r->prefix);
    mem_free(r);
}

/* ---- faults ---- */

void recipe_begin(manta_recipe *r)
{
    *r->fault = '\0';
}

const char *manta_recipe_fault(const manta_recipe *r)
{
    REFUSE_NULL_OR(r, NULL);
    return *r->fault ? r->fault : NULL;
}

manta_status recipe_blame(manta_recipe *r, const char *setting, manta_status st)
{
    snprintf(r->fault, sizeof r->fault, "%s", setting);
    return st;
}

const char *recipe_word(const manta_recipe *r, const char *setting, char *buf, size_t size)
{
    snprintf(buf, size, "%s%s", r->prefix, setting);
    return buf;
}

manta_status recipe_fail(manta_recipe *r, const char *setting, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return recipe_blame(r, setting, manta_fail(MANTA_EINVAL, "%s%s: %s", r->prefix, setting, text));
}

/* ---- settings ---- */

static manta_status fail_unknown_setting(manta_recipe *r, const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    char hint[96];

    for (int i = 0; i < settings_count(); i++) manta_suggestion_offer(&near, manta_setting_at(i)->name);
    return recipe_blame(r, name,
                        manta_fail(MANTA_ENOENT, "no setting is called '%s%.80s'%s", r->prefix, name,
                                   manta_suggestion_text(&near, hint, sizeof hint)));
}

manta_status manta_recipe_set(manta_recipe *r, const char *name, const char *text)
{
    REFUSE_NULL(r);
    REFUSE_NULL(name);

    int i = settings_index(name);
    const manta_setting *s = manta_setting_at(i);
    bool off =
        !text || (s && s->kind == MANTA_SETTING_FLAG && (!strcmp(text, "no") || !strcmp(text, "false")));
    char *copy;

    recipe_begin(r);
    if (!s) return fail_unknown_setting(r, name);
    if (text && manta_setting_check(s, r->prefix, text)) return recipe_blame(r, s->name, MANTA_EINVAL);
    copy = off ? NULL : mem_strdup(text); /* before it is freed: it may be the text itself */
    mem_free(r->text[i]);
    r->text[i] = copy;
    r->compiled = false;
    return MANTA_OK;
}

manta_status manta_recipe_add(manta_recipe *r, const char *word)
{
    REFUSE_NULL(r);
    REFUSE_NULL(word);

    size_t n = strcspn(word, "=");
    char *name = mem_strndup(word, n);
    const manta_setting *s = manta_setting_find(name);
    manta_status st;

    recipe_begin(r);
    if (!word[n] && s && s->kind != MANTA_SETTING_FLAG) {
        st = recipe_fail(r, s->name, "expected %s=%s", name, s->value);
    } else {
        st = manta_recipe_set(r, name, word[n] ? word + n + 1 : "yes");
    }
    mem_free(name);
    return st;
}

const char *manta_recipe_get(const manta_recipe *r, const char *name)
{
    REFUSE_NULL_OR(r, NULL);
    REFUSE_NULL_OR(name, NULL);

    int i = settings_index(name);

    return i >= 0 ? r->text[i] : NULL;
}

const char *recipe_text(const manta_recipe *r, const char *name)
{
    int i = settings_index(name);

    assert(i >= 0 && "there is no such setting");
    return r->text[i];
}

bool recipe_flag(const manta_recipe *r, const char *name)
{
    return recipe_text(r, name) != NULL;
}

int64_t recipe_int(const manta_recipe *r, const char *name, int64_t fallback)
{
    const char *text = recipe_text(r, name);

    return text ? strtoll(text, NULL, 10) : fallback;
}

double recipe_real(const manta_recipe *r, const char *name, double fallback)
{
    const char *text = recipe_text(r, name);

    return text ? strtod(text, NULL) : fallback;
}

manta_status recipe_small(manta_recipe *r, const char *name, int fallback, int most, int *out)
{
    int64_t n = recipe_int(r, name, fallback);

    if (n > most) return recipe_fail(r, name, "%" PRId64 ", expected at most %d", n, most);
    *out = (int)n;
    return MANTA_OK;
}

/* ---- the model ---- */

manta_status manta_recipe_open(manta_recipe *r, const char *name)
{
    REFUSE_NULL(r);
    REFUSE_NULL(name);

    char word[96], *copy;
    manta_model *m;
    manta_saved *saved;

    recipe_begin(r);
    TRY(model_open(name, recipe_word(r, "weights", word, sizeof word), &saved, &m));
    copy = mem_strdup(name); /* it may be the name of the one before */
    drop_model(r);
    r->m = m;
    r->name = copy;
    r->owns_model = true;
    r->saved = saved;
    r->preset = saved ? NULL : manta_recipe_defaults_of(name);
    return MANTA_OK;
}

manta_status manta_recipe_use(manta_recipe *r, manta_model *m)
{
    REFUSE_NULL(r);
    REFUSE_NULL(m);

    recipe_begin(r);
    if (!m) return manta_fail(MANTA_EINVAL, "a recipe was given no model, expected one that is built");
    drop_model(r);
    r->m = m;
    r->owns_model = false;
    return MANTA_OK;
}

manta_model *manta_recipe_model(const manta_recipe *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->m;
}

manta_saved *manta_recipe_saved(const manta_recipe *r)
{
    REFUSE_NULL_OR(r, NULL);
    return r->saved;
}
