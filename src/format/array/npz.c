/* npz.c - datasets out of .npz archives. */
#include <string.h>

#include "base/mem.h"
#include "base/suggest.h"
#include "data/source.h"
#include "format/array/files.h"
#include "format/array/npy.h"
#include "format/array/npz.h"

static const zip_entry *find_member(const zip *z, const char *name)
{
    char *with = mem_printf("%s.npy", name);
    const zip_entry *e = zip_find(z, with);

    mem_free(with);
    return e ? e : zip_find(z, name);
}

static manta_status no_member(const zip *z, const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    char **names = mem_new(((size_t)z->n + 1) * sizeof *names), hint[SUGGEST_TEXT];
    buf list = {0};

    for (int i = 0; i < z->n; i++) {
        const char *m = z->entries[i].name;
        size_t n = strlen(m);
        if (n > 4 && strcmp(m + n - 4, ".npy") == 0) n -= 4;
        names[i] = mem_strndup(m, n < 100 ? n : 100);
        manta_suggestion_offer(&near, names[i]);
        if (list.n < 200) buf_printf(&list, "%s%s", i ? ", " : "", names[i]);
    }
    manta_status st = manta_fail(MANTA_ENOENT, "%s: there is no member '%s', the members are: %s%s", z->path,
                                 name, buf_text(&list), manta_suggestion_text(&near, hint, sizeof hint));
    for (int i = 0; i < z->n; i++) mem_free(names[i]);
    mem_free(names);
    buf_release(&list);
    return st;
}

manta_status npz_member(const zip *z, const char *name, bool allow_nan, blob *out)
{
    const zip_entry *e = find_member(z, name);
    const uint8_t *bytes = NULL;
    void *owned = NULL;

    if (!e) return no_member(z, name);
    TRY(zip_extract(z, e, &bytes, &owned));
    char *what = mem_printf("%s:%s", z->path, e->name);
    manta_status st = npy_parse(what, bytes, e->size, allow_nan, out);
    mem_free(what);
    mem_try_free(owned);
    return st;
}

/* Which member becomes which column. */
typedef struct wish {
    const char *column, *member;
} wish;

typedef struct blobs {
    blob at[MANTA_MAX_COLUMNS];
} blobs;

static void blobs_free(void *ctx)
{
    blobs *b = ctx;

    for (int i = 0; i < MANTA_MAX_COLUMNS; i++) blob_release(&b->at[i]);
    mem_free(b);
}

static manta_status load_members(const zip *z, int n, const wish *wishes, bool allow_nan, blobs *b,
                                 source_memory *m)
{
    for (int i = 0; i < n; i++) {
        const char *member = wishes[i].member;
        manta_column_spec *s = &m->columns[i];
        TRY(npz_member(z, member, allow_nan, &b->at[i]));
        const manta_array *a = &b->at[i].array;
        if (a->ndim < 1) {
            return manta_fail(MANTA_EINVAL,
                              "%s: the member '%s' is a single number, expected an array of samples", z->path,
                              member);
        }
        if (i && a->shape[0] != m->count) {
            return manta_fail(MANTA_EINVAL, "%s: the member '%s' has %lld samples, '%s' has %lld", z->path,
                              member, (long long)a->shape[0], wishes[0].member, (long long)m->count);
        }
        strcpy(s->name, wishes[i].column);
        s->dtype = a->dtype;
        s->ndim = a->ndim - 1;
        memcpy(s->shape, a->shape + 1, (size_t)s->ndim * sizeof s->shape[0]);
        m->count = a->shape[0];
        m->data[i] = a->data;
        m->n = i + 1;
    }
    return MANTA_OK;
}

/* What to read when nobody said. */
static manta_status choose_members(const zip *z, const char **x, const char **y)
{
    if (*x) return MANTA_OK;
    if (find_member(z, "x")) {
        *x = "x";
        *y = find_member(z, "y") ? "y" : NULL;
        return MANTA_OK;
    }
    if (z->n != 1) return no_member(z, "x");
    *x = z->entries[0].name;
    return MANTA_OK;
}

/* The dataset of n members of the archive. */
static manta_status open_members(const zip *z, int n, const wish *wishes, const manta_open_options *o,
                                 manta_dataset **out)
{
    blobs *b = mem_new(sizeof *b);
    source_memory m = {.ctx = b, .release = blobs_free};
    manta_status st = load_members(z, n, wishes, o->allow_nan, b, &m);

    if (st) {
        blobs_free(b);
        return st;
    }
    manta_dataset *d = files_finish_labels(source_from_memory(&m)); /* takes b */
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

manta_status npz_open(const char *path, const char *x, const char *y, const manta_open_options *o,
                      manta_dataset **out)
{
    input in = {0};
    zip z = {0};
    manta_status st;

    if ((st = input_read(path, &in))) goto out;
    if ((st = zip_parse(path, in.data, in.size, &z))) goto out;
    if ((st = choose_members(&z, &x, &y))) goto out;
    st = open_members(&z, y ? 2 : 1, (const wish[]){{"x", x}, {"y", y}}, o, out);
out:
    zip_release(&z);
    input_release(&in);
    return st;
}

/* Takes `text` apart, which it changes; *n wishes. */
static manta_status parse_wishes(const char *path, char *text, wish *out, int *n)
{
    for (*n = 0; text;) {
        char *one = strsep(&text, ","), *member = one;
        strsep(&member, "=");
        if (*n == MANTA_MAX_COLUMNS)
            return manta_fail(MANTA_EINVAL, "%s: more than %d columns are asked for", path,
                              MANTA_MAX_COLUMNS);
        if (strlen(one) >= MANTA_COLUMN_NAME)
            return manta_fail(MANTA_EINVAL,
                              "%s: '%.40s...' is too long for a column's name, expected %d bytes", path, one,
                              MANTA_COLUMN_NAME - 1);
        for (int i = 0; i < *n; i++) {
            if (!strcmp(out[i].column, one))
                return manta_fail(MANTA_EINVAL, "%s: the column '%s' is asked for twice", path, one);
        }
        out[(*n)++] = (wish){one, member};
    }
    return MANTA_OK;
}

manta_status npz_open_columns(const char *path, const char *columns, const manta_open_options *o,
                              manta_dataset **out)
{
    wish wishes[MANTA_MAX_COLUMNS];
    char *text = mem_strdup(columns);
    input in = {0};
    zip z = {0};
    int n;
    manta_status st;

    if ((st = parse_wishes(path, text, wishes, &n))) goto out;
    if ((st = input_read(path, &in))) goto out;
    if ((st = zip_parse(path, in.data, in.size, &z))) goto out;
    st = open_members(&z, n, wishes, o, out);
out:
    zip_release(&z);
    input_release(&in);
    mem_free(text);
    return st;
}
