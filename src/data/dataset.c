/* dataset.c - the life of a dataset node: references, latched errors, columns. */
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "data/stage.h"

manta_dataset *stage_new(const stage_class *c, manta_dataset *in, bool *ok)
{
    if (in && in->error) {
        *ok = false;
        return in;
    }
    manta_dataset *d = mem_new(sizeof *d);
    atomic_init(&d->refs, 1);
    d->class = c;
    d->in[0] = in;
    d->indexable = true;
    if (in) {
        d->count = in->count;
        d->batch = in->batch;
        d->indexable = in->indexable;
        d->prefetch = in->prefetch;
        d->n = in->n;
        memcpy(d->columns, in->columns, sizeof d->columns);
    }
    *ok = true;
    return d;
}

manta_dataset *stage_fail(manta_dataset *d, manta_status st)
{
    if (!st || d->error) return d;
    d->error = mem_new(sizeof *d->error);
    manta_error_get(d->error);
    return d;
}

static const stage_class refused_class = {.name = "refused"};

manta_dataset *stage_refuse(manta_dataset *in, const char *function, const char *argument)
{
    bool ok;

    if (in && in->error) return in;
    manta_dataset *d = stage_new(&refused_class, NULL, &ok);
    manta_dataset_unref(in);
    return stage_fail(d, args_fail_null(function, argument));
}

manta_dataset *manta_dataset_ref(manta_dataset *d)
{
    REFUSE_NULL_OR(d, NULL);

    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    return d;
}

void manta_dataset_unref(manta_dataset *d)
{
    /* A chain is long rather than deep in branches: follow in[0] in a loop. */
    while (d && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1) {
        manta_dataset *next = d->in[0];
        manta_dataset_unref(d->in[1]);
        if (d->class->release) d->class->release(d);
        mem_free(d->error);
        mem_free(d);
        d = next;
    }
}

manta_status manta_dataset_status(const manta_dataset *d)
{
    REFUSE_NULL(d);
    return d->error ? manta_error_raise(d->error) : MANTA_OK;
}

bool manta_dataset_is_batched(const manta_dataset *d)
{
    REFUSE_NULL_OR(d, false);
    return d->batch > 0;
}

int64_t manta_dataset_count(const manta_dataset *d)
{
    REFUSE_NULL_OR(d, 0);
    return d->error ? 0 : d->count;
}

int manta_dataset_columns(const manta_dataset *d, const manta_column_spec **columns)
{
    REFUSE_NULL_OR(d, 0);

    if (columns) *columns = d->columns;
    return d->error ? 0 : d->n;
}

int stage_column(const manta_dataset *d, const char *name)
{
    for (int c = 0; c < d->n; c++) {
        if (strcmp(d->columns[c].name, name) == 0) return c;
    }
    return -1;
}

manta_status stage_need_column(const manta_dataset *d, const char *name, int *out)
{
    manta_suggestion near;
    char list[256], hint[SUGGEST_TEXT];
    size_t used = 0;

    if (name && (*out = stage_column(d, name)) >= 0) return MANTA_OK;
    list[0] = '\0';
    for (int c = 0; c < d->n && used < sizeof list; c++) {
        int k = snprintf(list + used, sizeof list - used, "%s%s", c ? ", " : "", d->columns[c].name);
        used += (size_t)k;
    }
    if (!name) name = "(null)";
    near = manta_suggestion_for(name);
    for (int c = 0; c < d->n; c++) manta_suggestion_offer(&near, d->columns[c].name);
    return manta_fail(MANTA_EINVAL, "dataset: there is no column '%s', the columns are: %s%s", name, list,
                      manta_suggestion_text(&near, hint, sizeof hint));
}

int64_t spec_elements(const manta_column_spec *s)
{
    int64_t n = 1;

    for (int i = 0; i < s->ndim; i++) n *= s->shape[i];
    return n;
}

size_t spec_bytes(const manta_column_spec *s)
{
    return (size_t)spec_elements(s) * manta_dtype_size(s->dtype);
}

static manta_status check_column(const char *who, const manta_column_spec *s)
{
    int64_t n = 1;

    if (!memchr(s->name, '\0', sizeof s->name) || !s->name[0]) {
        return manta_fail(MANTA_EINVAL, "%s: a column's name must have 1 to %d bytes", who,
                          MANTA_COLUMN_NAME - 1);
    }
    if (manta_dtype_size(s->dtype) == 0) {
        return manta_fail(MANTA_EINVAL, "%s: column '%s' has the dtype %d, expected 0 to %d", who, s->name,
                          (int)s->dtype, MANTA_DTYPE_COUNT - 1);
    }
    if (s->ndim < 0 || s->ndim >= MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EINVAL, "%s: column '%s' has %d dimensions per sample, expected at most %d",
                          who, s->name, s->ndim, MANTA_MAX_DIMS - 1);
    }
    for (int i = 0; i < s->ndim; i++) {
        if (s->shape[i] < 0 || __builtin_mul_overflow(n, s->shape[i], &n) || n > INT64_MAX / 16) {
            return manta_fail(MANTA_EINVAL,
                              "%s: column '%s' has the size %lld in dimension %d, expected at least 0 and no "
                              "more elements than can be addressed",
                              who, s->name, (long long)s->shape[i], i);
        }
    }
    return MANTA_OK;
}

manta_status stage_check_columns(const char *who, int n, const manta_column_spec *columns)
{
    if (n < 1 || n > MANTA_MAX_COLUMNS) {
        return manta_fail(MANTA_EINVAL, "%s: %d columns given, expected 1 to %d", who, n, MANTA_MAX_COLUMNS);
    }
    for (int c = 0; c < n; c++) {
        TRY(check_column(who, &columns[c]));
        for (int o = 0; o < c; o++) {
            if (strcmp(columns[o].name, columns[c].name) == 0) {
                return manta_fail(MANTA_EINVAL, "%s: two columns are called '%s'", who, columns[c].name);
            }
        }
    }
    return MANTA_OK;
}
