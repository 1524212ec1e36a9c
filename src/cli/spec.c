/* spec.c - values of the form NAME:KEY=VALUE,KEY=VALUE,FLAG. */
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/options.h"
#include "cli/spec.h"

void spec_init(spec *s, const char *option, const char *text)
{
    char *rest;

    *s = (spec){.option = option, .text = strdup(text)};
    s->name = rest = s->text;
    strsep(&rest, ":");
    for (char *part; (part = strsep(&rest, ","));) {
        char *equals = strchr(part, '=');
        if (s->n == SPEC_PAIRS)
            cli_usage("%s: expected at most %d settings in '%s'", option, SPEC_PAIRS, text);
        if (equals) *equals = '\0';
        s->key[s->n] = part;
        s->value[s->n++] = equals ? equals + 1 : "yes";
    }
}

void spec_release(spec *s)
{
    free(s->text);
    s->text = NULL;
}

const char *spec_value(spec *s, const char *key)
{
    for (int i = 0; i < s->n; i++) {
        if (strcmp(s->key[i], key)) continue;
        s->used[i] = true;
        return s->value[i];
    }
    return NULL;
}

double spec_real(spec *s, const char *key, double fallback)
{
    const char *text = spec_value(s, key);

    return text ? options_real_of(s->option, text) : fallback;
}

int64_t spec_count(spec *s, const char *key, int64_t fallback)
{
    const char *text = spec_value(s, key);
    int64_t n = text ? options_int_of(s->option, text) : fallback;

    if (n < 0) cli_usage("%s: %s is %s, expected 0 or more", s->option, key, text);
    return n;
}

bool spec_flag(spec *s, const char *key)
{
    const char *text = spec_value(s, key);

    if (text && strcmp(text, "yes") && strcmp(text, "no")) {
        cli_usage("%s: %s is '%s', expected yes or no", s->option, key, text);
    }
    return text && !strcmp(text, "yes");
}

void spec_done(const spec *s, const char *keys)
{
    for (int i = 0; i < s->n; i++) {
        if (!s->used[i])
            cli_usage("%s: %s has no setting '%s'; there are: %s", s->option, s->name, s->key[i], keys);
    }
}
