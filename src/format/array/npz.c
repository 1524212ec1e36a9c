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

typedef struct blobs {
    blob at[2];
} blobs;

static void blobs_free(void *ctx)
{
    blobs *b = ctx;

    blob_release(&b->at[0]);
    blob_release(&b->at[1]);
    mem_free(b);
}

static manta_status load_members(const zip *z, const char *x, const char *y, bool allow_nan, blobs *b,
                                 source_memory *m)
{
    const char *names[] = {x, y};

    for (int i = 0; i < 2 && names[i]; i++) {
        manta_column_spec *s = &m->columns[i];
        TRY(npz_member(z, names[i], allow_nan, &b->at[i]));
        const manta_array *a = &b->at[i].array;
        if (a->ndim < 1) {
            return manta_fail(MANTA_EINVAL,
                              "%s: the member '%s' is a single number, expected an array of samples", z->path,
                              names[i]);
        }
        if (i && a->shape[0] != m->count) {
            return manta_fail(MANTA_EINVAL, "%s: the member '%s' has %lld samples, '%s' has %lld", z->path, y,
                              (long long)a->shape[0], x, (long long)m->count);
        }
        strcpy(s->name, i ? "y" : "x");
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

manta_status npz_open(const char *path, const char *x, const char *y, const manta_open_options *o,
                      manta_dataset **out)
{
    input in = {0};
    zip z = {0};
    blobs *b = mem_new(sizeof *b);
    source_memory m = {.ctx = b, .release = blobs_free};
    manta_status st;

    if ((st = input_read(path, &in))) goto out;
    if ((st = zip_parse(path, in.data, in.size, &z))) goto out;
    if ((st = choose_members(&z, &x, &y))) goto out;
    if ((st = load_members(&z, x, y, o->allow_nan, b, &m))) goto out;
    manta_dataset *d = files_finish_labels(source_from_memory(&m));
    b = NULL; /* now the dataset's */
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        goto out;
    }
    *out = d;
out:
    if (b) blobs_free(b);
    zip_release(&z);
    input_release(&in);
    return st;
}
