/* choice.c - values of the form NAME:KEY=VALUE,KEY=VALUE,FLAG. */
#include "train/recipe/choice.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <manta/tool_text.h>

#include "base/mem.h"
#include "train/recipe/settings.h"

void choice_init(choice *c, const char *what, const char *text)
{
    char *rest;

    *c = (choice){.what = what, .text = mem_strdup(text)};
    c->name = rest = c->text;
    strsep(&rest, ":");
    for (char *part; (part = strsep(&rest, ","));) {
        char *equals = strchr(part, '=');
        if (c->n == CHOICE_PAIRS) {
            choice_fail(c, "expected at most %d settings in '%s'", CHOICE_PAIRS, text);
            return;
        }
        if (equals) *equals = '\0';
        c->key[c->n] = part;
        c->value[c->n++] = equals ? equals + 1 : "yes";
    }
}

void choice_release(choice *c)
{
    mem_free(c->text);
    c->text = NULL;
}

void choice_fail(choice *c, const char *fmt, ...)
{
    char text[400];
    va_list args;

    if (c->status) return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    c->status = manta_fail(MANTA_EINVAL, "%s: %s", c->what, text);
}

const char *choice_value(choice *c, const char *key, const char *also)
{
    for (int i = 0; i < c->n; i++) {
        if (!settings_same_name(c->key[i], key) && !(also && settings_same_name(c->key[i], also))) continue;
        c->used[i] = true;
        return c->value[i];
    }
    return NULL;
}

double choice_real(choice *c, const char *key, const char *also, double fallback)
{
    const char *text = choice_value(c, key, also);

    if (text && !c->status) c->status = settings_real(c->what, text, &fallback);
    return fallback;
}

int64_t choice_int(choice *c, const char *key, const char *also, int64_t fallback)
{
    const char *text = choice_value(c, key, also);

    if (text && !c->status) c->status = settings_int(c->what, text, &fallback);
    return fallback;
}

int64_t choice_count(choice *c, const char *key, const char *also, int64_t fallback)
{
    int64_t n = choice_int(c, key, also, fallback);

    if (n < 0) choice_fail(c, "%s is %s, expected 0 or more", key, choice_value(c, key, also));
    return n < 0 ? fallback : n;
}

bool choice_flag(choice *c, const char *key, const char *also)
{
    const char *text = choice_value(c, key, also);

    if (text && strcmp(text, "yes") && strcmp(text, "no"))
        choice_fail(c, "%s is '%.80s', expected yes or no", key, text);
    return text && !strcmp(text, "yes");
}

/* The nearest of the keys that there are, as the end of a sentence. Returns buf. */
static const char *suggest_key(const char *typed, const char *keys, char *buf, size_t size)
{
    manta_suggestion near = manta_suggestion_for(typed);
    char *copy = mem_strdup(keys), *rest = copy;

    for (char *part; (part = strsep(&rest, ", "));) manta_suggestion_offer(&near, part);
    manta_suggestion_text(&near, buf, size);
    mem_free(copy);
    return buf;
}

manta_status choice_done(choice *c, const char *keys)
{
    char hint[96];

    for (int i = 0; i < c->n; i++) {
        if (c->used[i]) continue;
        choice_fail(c, "%s has no setting '%.80s'; there are: %s%s", c->name, c->key[i], keys,
                    suggest_key(c->key[i], keys, hint, sizeof hint));
    }
    return c->status;
}
