/* spec.c - what the text of a dataset specification means. */
#include <string.h>

#include "base/mem.h"
#include "format/builtin_datasets.h"
#include "format/spec.h"

void spec_release(spec *s)
{
    mem_free(s->a);
    mem_free(s->b);
    mem_free(s->x);
    mem_free(s->y);
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

    s->kind = SPEC_BUILTIN;
    s->a = mem_strndup(text, n);
    s->test = strcmp(part, ":test") == 0;
    if (*part == '\0' || s->test || strcmp(part, ":train") == 0) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "dataset '%s': the parts of %s are :train and :test", text, s->a);
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

static manta_status parse_csv(const char *text, const char *rest, spec *s)
{
    s->kind = SPEC_CSV;
    s->a = mem_strndup(text, (size_t)(rest - text));
    if (*rest == '\0') return MANTA_OK;
    if (strncmp(rest, ":label=", 7) == 0 && rest[7]) {
        s->y = mem_strdup(rest + 7);
        return MANTA_OK;
    }
    return manta_fail(MANTA_EINVAL, "dataset '%s': expected :label=COLUMN after the file", text);
}

/* f.parquet:x=A+B,label=C, either of the two or none. */
static manta_status parse_parquet(const char *text, const char *rest, spec *s)
{
    s->kind = SPEC_PARQUET;
    s->a = mem_strndup(text, (size_t)(rest - text));
    while (*rest) {
        const char *key = rest + 1, *value = strchr(key, '=');
        size_t n = value ? strcspn(++value, ",") : 0;
        char **to = strncmp(key, "x=", 2) == 0 ? &s->x : strncmp(key, "label=", 6) == 0 ? &s->y : NULL;
        if (!to || *to || n == 0) {
            return manta_fail(
                MANTA_EINVAL,
                "dataset '%s': expected :label=COLUMN or :x=COLUMN+COLUMN,label=COLUMN after the file", text);
        }
        *to = mem_strndup(value, n);
        rest = value + n;
    }
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
                          "f.csv:label=COLUMN, f.parquet:label=COLUMN, shard-000000.tar, two IDX files or an "
                          "image folder");
    }
    if (builtin_is_name(text, n)) return parse_builtin(text, n, s);
    if ((rest = after_ending(text, ".npz"))) return parse_pair(text, rest, SPEC_NPZ, "f.npz:x,y", s);
    if ((rest = after_ending(text, ".csv"))) return parse_csv(text, rest, s);
    if ((rest = after_ending(text, ".parquet"))) return parse_parquet(text, rest, s);
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
