/* joined.c - see joined.h. */
#include "format/joined.h"

#include <string.h>

#include "base/mem.h"
#include "format/array/files.h"
#include "format/table/table.h"
#include "os/file.h"

/* The bytes of a name that "=" ends; 0: none stands there. Before the "=" of a file's own options there
 * is a point, a colon or a slash. */
static size_t name_length(const char *text)
{
    size_t n = strcspn(text, "=/:.,");

    return text[n] == '=' ? n : 0;
}

/* The bytes of a specification: up to a comma that a name follows. */
static size_t spec_length(const char *text)
{
    const char *p = text;

    while (*p && !(*p == ',' && name_length(p + 1))) p++;
    return (size_t)(p - text);
}

bool joined_is_spec(const char *text)
{
    char *first = mem_strndup(text, strcspn(text, ","));
    file_info info;
    bool is = name_length(text) && file_stat(text, &info) && file_stat(first, &info);

    mem_free(first);
    return is;
}

/* Which column of d becomes `name`. */
static const char *column_for(const manta_dataset *d, const char *name)
{
    const manta_column_spec *c;
    int n = manta_dataset_columns(d, &c);

    for (int i = 0; i < n; i++) {
        if (!strcmp(c[i].name, name)) return c[i].name;
    }
    return n == 1 ? c[0].name : "x";
}

/* Whether numbers of this column cannot be made row by row: they depend on other rows, or rows go. */
static bool depends_on_rows(const table_column *c)
{
    return c->n > 0 || c->missing == MANTA_TABLE_MISSING_MEAN || c->missing == MANTA_TABLE_MISSING_DROP;
}

/* Such a mapping would have to be kept with the model, which has a place for one; and rows that go would
 * leave samples beside others than their own. Accepts NULL. */
static bool needs_whole_table(const manta_table *t)
{
    bool needs = t && t->has_y && depends_on_rows(&t->y);

    for (int i = 0; t && i < t->n_x; i++) needs |= depends_on_rows(&t->x[i]);
    return needs;
}

/* Opens one of them, as a dataset of the one column. */
static manta_status open_part(const char *name, const char *spec, const manta_open_options *o,
                              manta_dataset **out)
{
    manta_table *learnt = NULL;
    manta_open_options how = *o;
    manta_dataset *d = NULL;
    char column[MANTA_COLUMN_NAME];
    manta_status st;

    if (joined_is_spec(spec))
        return manta_fail(MANTA_EINVAL, "dataset '%.40s=%.40s': a name within a name, expected a dataset",
                          name, spec);
    how.shards = how.shard = 0;
    if (!strcmp(name, "y")) how.raw = true; /* labels are numbers, not shades */
    how.table = NULL;
    how.learnt = &learnt;
    TRY(manta_dataset_open(spec, &how, &d));
    bool fits = !needs_whole_table(learnt);
    manta_table_free(learnt);
    if (!fits) {
        manta_dataset_unref(d);
        return manta_fail(MANTA_EUNSUPPORTED,
                          "dataset '%s=%s': texts, categories, missing=mean and missing=drop are for a table "
                          "that is all of the data; expected columns of numbers here",
                          name, spec);
    }
    strcpy(column, column_for(d, name));
    d = manta_dataset_select(d, 1, (const char *const[]){column});
    if (strcmp(column, name)) d = manta_dataset_rename(d, column, name);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}

/* Puts one beside those that are there. Takes both. */
static manta_status join_part(const char *name, manta_dataset *one, manta_dataset **all)
{
    int64_t have = *all ? manta_dataset_count(*all) : 0, more = manta_dataset_count(one);

    if (*all && have >= 0 && more >= 0 && have != more) {
        manta_dataset_unref(one);
        return manta_fail(MANTA_EINVAL, "dataset: '%s' has %lld samples, and those before it have %lld", name,
                          (long long)more, (long long)have);
    }
    *all = *all ? manta_dataset_zip(*all, one) : one;
    return manta_dataset_status(*all);
}

/* NAME=SPEC at *text, which goes on behind it. */
static manta_status add_part(const char **text, const manta_open_options *o, manta_dataset **all)
{
    size_t n = name_length(*text), k = spec_length(*text + n + 1);
    char *name = mem_strndup(*text, n), *spec = mem_strndup(*text + n + 1, k);
    manta_dataset *one = NULL;
    manta_status st = MANTA_OK;

    if (n >= MANTA_COLUMN_NAME) {
        st = manta_fail(MANTA_EINVAL, "dataset: the name '%.40s...' has %zu bytes, expected at most %d", name,
                        n, MANTA_COLUMN_NAME - 1);
    } else if (!k) {
        st =
            manta_fail(MANTA_EINVAL,
                       "dataset: nothing stands behind '%s=', expected a dataset such as %s.npy", name, name);
    }
    if (!st) st = open_part(name, spec, o, &one);
    if (!st) st = join_part(name, one, all);
    *text += n + 1 + k + ((*text)[n + 1 + k] == ',');
    mem_free(name);
    mem_free(spec);
    return st;
}

manta_status joined_open(const char *text, const manta_open_options *o, manta_dataset **out)
{
    manta_dataset *all = NULL;
    manta_status st = MANTA_OK;

    if (o->learnt) *o->learnt = NULL;
    while (!st && *text) st = add_part(&text, o, &all);
    if (st) {
        manta_dataset_unref(all);
        return st;
    }
    all = files_finish_labels(all);
    if ((st = manta_dataset_status(all))) {
        manta_dataset_unref(all);
        return st;
    }
    *out = all;
    return MANTA_OK;
}
