/* spec.c - what the text of a dataset specification means. */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "format/builtin_datasets.h"
#include "format/spec.h"

void spec_release(spec *s)
{
    mem_free(s->a);
    mem_free(s->b);
    mem_free(s->x);
    mem_free(s->y);
    mem_free(s->columns);
    *s = (spec){0};
}

/* Where `text` goes on after a path that ends in `ending`; NULL when it has no
 * such path. The path ends with the text or at a colon. */
static const char *after_ending(const char *text, const char *ending)
{
    size_t n = strlen(ending);

    for (const char *p = text; (p = strstr(p, ending)); p += n) {
        if (p > text && (p[n] == '\0' || p[n] == ':')) return p + n;
    }
    return NULL;
}

static manta_status parse_builtin(const char *text, size_t n, spec *s)
{
    const char *part = text + n;
    char hint[SUGGEST_TEXT];

    s->kind = SPEC_BUILTIN;
    s->a = mem_strndup(text, n);
    s->test = strcmp(part, ":test") == 0;
    if (*part == '\0' || s->test || strcmp(part, ":train") == 0) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "dataset '%s': the parts of %s are :train and :test%s", text, s->a,
                      suggest_among(part, 2, (const char *const[]){":train", ":test"}, hint, sizeof hint));
}

/* FILE:x or FILE:x,y. `example` shows how. */
static manta_status parse_pair(const char *text, const char *rest, spec_kind kind, const char *example,
                               spec *s)
{
    s->kind = kind;
    s->a = mem_strndup(text, (size_t)(rest - text));
    if (*rest == '\0') return MANTA_OK;
    const char *x = rest + 1, *comma = strchr(x, ',');
    size_t n = comma ? (size_t)(comma - x) : strlen(x);
    s->x = mem_strndup(x, n);
    if (comma) s->y = mem_strdup(comma + 1);
    if (n > 0 && (!comma || (comma[1] && !strchr(comma + 1, ',')))) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "dataset '%s': expected one or two members after the colon, as in %s",
                      text, example);
}

/* FILE:x,y or FILE:COLUMN=MEMBER,... */
static manta_status parse_npz(const char *text, const char *rest, spec *s)
{
    if (!strchr(rest, '=')) return parse_pair(text, rest, SPEC_NPZ, "f.npz:x,y", s);
    s->kind = SPEC_NPZ;
    s->a = mem_strndup(text, (size_t)(rest - text));
    s->columns = mem_strdup(rest + 1);
    for (const char *p = s->columns;; p++) {
        size_t n = strcspn(p, ","), name = strcspn(p, "=");
        if (!name || name + 1 >= n)
            return manta_fail(
                MANTA_EINVAL,
                "dataset '%s': expected COLUMN=MEMBER after the colon and between commas, as in "
                "f.npz:image=a,meta=b,y=c",
                text);
        p += n;
        if (!*p) return MANTA_OK;
    }
}

/* ---- tables ---- */

/* The bytes of a value: up to a comma that no backslash stands before. */
static size_t value_length(const char *p)
{
    size_t n = 0;

    while (p[n] && p[n] != ',') n += p[n] == '\\' && p[n + 1] ? 2 : 1;
    return n;
}

static bool is_word(const char *p, size_t n, const char *word)
{
    return strlen(word) == n && memcmp(p, word, n) == 0;
}

/* The words for options of a table. */
static const struct {
    const char *key, *value;
    int number;
} words[] = {
    {"missing", "refuse", MANTA_TABLE_MISSING_REFUSE},
    {"missing", "drop", MANTA_TABLE_MISSING_DROP},
    {"missing", "mean", MANTA_TABLE_MISSING_MEAN},
    {"missing", "zero", MANTA_TABLE_MISSING_ZERO},
    {"missing", "nan", MANTA_TABLE_MISSING_NAN},
    {"categories", "onehot", MANTA_TABLE_ENCODING_ONEHOT},
    {"categories", "integer", MANTA_TABLE_ENCODING_INTEGER},
    {"header", "yes", MANTA_TABLE_HEADER_YES},
    {"header", "no", MANTA_TABLE_HEADER_NO},
    {"delimiter", "comma", ','},
    {"delimiter", "semicolon", ';'},
    {"delimiter", "tab", '\t'},
    {"delimiter", "bar", '|'},
};

enum { WORDS = sizeof words / sizeof *words };

/* "; did you mean missing=mean?" for an option that is none, or "". `value` NULL: there is no "=". */
static const char *suggest_word(const char *key, size_t key_n, const char *value, size_t n, char *hint,
                                size_t size)
{
    char *typed =
        value ? mem_printf("%.*s=%.*s", (int)key_n, key, (int)n, value) : mem_strndup(key, strcspn(key, ","));
    char both[WORDS][32], *name = mem_strndup(typed, strcspn(typed, "="));
    manta_suggestion whole = manta_suggestion_for(typed), near = manta_suggestion_for(name);

    for (size_t i = 0; i < WORDS; i++) {
        snprintf(both[i], sizeof both[i], "%s=%s", words[i].key, words[i].value);
        manta_suggestion_offer(&whole, both[i]);
        manta_suggestion_offer(&near, words[i].key);
    }
    manta_suggestion_offer(&near, "label");
    manta_suggestion_text(whole.best ? &whole : &near, hint, size);
    mem_free(typed);
    mem_free(name);
    return hint;
}

/* One of the words for an option of a table; false: it is none. */
static bool apply_option(const char *key, size_t key_n, const char *value, size_t n, manta_table_options *how)
{
    for (size_t i = 0; i < WORDS; i++) {
        if (!is_word(key, key_n, words[i].key) || !is_word(value, n, words[i].value)) continue;
        switch (words[i].key[0]) {
        case 'm': how->missing = (manta_table_missing)words[i].number; break;
        case 'c': how->categories = (manta_table_encoding)words[i].number; break;
        case 'h': how->header = (manta_table_header)words[i].number; break;
        default: how->delimiter = (char)words[i].number; break;
        }
        return true;
    }
    return false;
}

static manta_status no_word(const spec *s, const char *key, size_t key_n, const char *value, size_t n)
{
    char hint[SUGGEST_TEXT];

    return manta_fail(
        MANTA_EINVAL,
        "dataset '%.80s': '%.40s' means nothing, expected :label=COLUMN or "
        ":x=COLUMN+COLUMN,y=COLUMN, "
        "and with commas between missing=drop (mean, zero, nan), categories=onehot (integer), "
        "delimiter=comma (semicolon, tab, bar), header=yes (no); \\, is a comma inside a name%s",
        s->a, key, suggest_word(key, key_n, value, n, hint, sizeof hint));
}

/* FILE:x=A+B,y=C,missing=RULE,...; label=C is another word for y=C. */
static manta_status parse_table(const char *text, const char *rest, spec_kind kind, spec *s)
{
    s->kind = kind;
    s->a = mem_strndup(text, (size_t)(rest - text));
    s->plain = true;
    while (*rest) {
        const char *key = rest + 1, *value = strchr(key, '=');
        size_t key_n = value ? (size_t)(value - key) : 0, n = value ? value_length(++value) : 0;
        bool y = value && (is_word(key, key_n, "y") || is_word(key, key_n, "label"));
        char **to = y ? &s->y : value && is_word(key, key_n, "x") ? &s->x : NULL;
        if (!value || n == 0 || (to && *to) || (!to && !apply_option(key, key_n, value, n, &s->how)))
            return no_word(s, key, value ? key_n : 0, value, n);
        if (to) *to = mem_strndup(value, n);
        if (y) s->named_y = key[0] == 'y';
        if (!to) s->plain = false;
        rest = value + n;
    }
    if (s->x || (s->y && strpbrk(s->y, "@\\"))) s->plain = false;
    return MANTA_OK;
}

static const char *after_tar(const char *text)
{
    const char *rest = after_ending(text, ".tar");

    if (!rest) rest = after_ending(text, ".tar.gz");
    return rest ? rest : after_ending(text, ".tgz");
}

static manta_status parse_files(const char *text, spec *s)
{
    const char *comma = strchr(text, ',');
    size_t n = comma ? (size_t)(comma - text) : strlen(text);

    s->kind = SPEC_FILES;
    s->a = mem_strndup(text, n);
    if (comma) s->b = mem_strdup(comma + 1);
    if (n > 0 && (!comma || (comma[1] && !strchr(comma + 1, ',')))) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "dataset '%s': expected one or two files, as in x.npy,y.npy", text);
}

static manta_status parse_spec(const char *text, spec *s)
{
    const char *rest;
    size_t n = strcspn(text, ":");

    if (!text[0]) {
        return manta_fail(MANTA_EINVAL,
                          "dataset: nothing given, expected mnist, fashion-mnist, x.npy,y.npy, f.npz:x,y, "
                          "f.csv:y=COLUMN, f.parquet:y=COLUMN, shard-000000.tar, two IDX files or an "
                          "image folder");
    }
    if (builtin_is_name(text, n)) return parse_builtin(text, n, s);
    if ((rest = after_ending(text, ".npz"))) return parse_npz(text, rest, s);
    if ((rest = after_ending(text, ".csv"))) return parse_table(text, rest, SPEC_CSV, s);
    if ((rest = after_ending(text, ".tsv"))) return parse_table(text, rest, SPEC_CSV, s);
    if ((rest = after_ending(text, ".parquet"))) return parse_table(text, rest, SPEC_PARQUET, s);
    if ((rest = after_tar(text))) return parse_pair(text, rest, SPEC_TAR, "f.tar:jpg,cls", s);
    return parse_files(text, s);
}

manta_status spec_parse(const char *text, spec *out)
{
    spec s = {0};
    manta_status st = parse_spec(text, &s);

    if (st) {
        spec_release(&s);
        return st;
    }
    *out = s;
    return MANTA_OK;
}
