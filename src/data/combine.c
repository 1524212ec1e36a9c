/* combine.c - stages about which columns there are: zip, select, rename. */
#include <string.h>

#include "base/mem.h"
#include "data/stage.h"

/* ---- zip ---------------------------------------------------------------------- */

static manta_status zip_fetch(reader *r, visit *v)
{
    visit a = *v, b = *v;

    b.out = v->out + r->d->in[0]->n;
    TRY(reader_fetch(r->in[0], &a));
    if (!a.end) TRY(reader_fetch(r->in[1], &b));
    v->end = a.end || b.end;
    if (v->end) return MANTA_OK;
    if (a.rows != b.rows) {
        return manta_fail(MANTA_EINVAL, "zip: batch %lld has %lld rows on the left and %lld on the right",
                          (long long)v->index, (long long)a.rows, (long long)b.rows);
    }
    v->rows = a.rows;
    v->key_epoch = a.key_epoch;
    v->key_sample = a.key_sample;
    return MANTA_OK;
}

static const stage_class zip_class = {.name = "zip", .fetch = zip_fetch};

static manta_status check_zip(const manta_dataset *a, const manta_dataset *b)
{
    if (a->batch != b->batch) {
        return manta_fail(
            MANTA_EINVAL,
            "zip: %s on the left, %s on the right; the batch sizes %lld and %lld must agree (0: "
            "samples)",
            a->batch ? "batches" : "samples", b->batch ? "batches" : "samples", (long long)a->batch,
            (long long)b->batch);
    }
    if (a->n + b->n > MANTA_MAX_COLUMNS) {
        return manta_fail(MANTA_EINVAL, "zip: %d columns together, expected at most %d", a->n + b->n,
                          MANTA_MAX_COLUMNS);
    }
    for (int c = 0; c < b->n; c++) {
        if (stage_column(a, b->columns[c].name) >= 0) {
            return manta_fail(MANTA_EINVAL, "zip: both sides have a column '%s'; rename() one",
                              b->columns[c].name);
        }
    }
    return MANTA_OK;
}

/* The shorter of two lengths, either of which may be forever or unknown. */
static int64_t shorter_count(int64_t a, int64_t b)
{
    if (a == MANTA_UNKNOWN_COUNT || b == MANTA_UNKNOWN_COUNT) return MANTA_UNKNOWN_COUNT;
    if (a == MANTA_FOREVER_COUNT) return b;
    if (b == MANTA_FOREVER_COUNT) return a;
    return a < b ? a : b;
}

manta_dataset *manta_dataset_zip(manta_dataset *a, manta_dataset *b)
{
    if (!a) return stage_refuse(b, __func__, "a");
    if (!b) return stage_refuse(a, __func__, "b");

    bool ok;

    if (b->error && !a->error) {
        manta_dataset_unref(a);
        return b;
    }
    manta_dataset *d = stage_new(&zip_class, a, &ok);
    if (!ok) {
        manta_dataset_unref(b);
        return d;
    }
    d->in[1] = b;
    manta_status st = check_zip(a, b);
    if (st) return stage_fail(d, st);
    d->count = shorter_count(a->count, b->count);
    d->indexable = a->indexable && b->indexable;
    if (b->prefetch > d->prefetch) d->prefetch = b->prefetch;
    memcpy(d->columns + a->n, b->columns, (size_t)b->n * sizeof b->columns[0]);
    d->n = a->n + b->n;
    return d;
}

/* ---- select -------------------------------------------------------------------- */

typedef struct selection {
    int from[MANTA_MAX_COLUMNS];
} selection;

static manta_status select_fetch(reader *r, visit *v)
{
    const selection *s = r->d->state;
    void *out[MANTA_MAX_COLUMNS] = {0};

    void *const *wanted = v->out;

    for (int c = 0; c < r->d->n; c++) out[s->from[c]] = wanted[c];
    v->out = out;
    manta_status st = reader_fetch(r->in[0], v);
    v->out = wanted;
    return st;
}

static void select_release(manta_dataset *d)
{
    mem_free(d->state);
}

static const stage_class select_class = {.name = "select", .fetch = select_fetch, .release = select_release};

manta_dataset *manta_dataset_select(manta_dataset *in, int n, const char *const *columns)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (n > 0 && !columns) return stage_refuse(in, __func__, "columns");

    bool ok;
    manta_dataset *d = stage_new(&select_class, in, &ok);

    if (!ok) return d;
    selection *s = mem_new(sizeof *s);
    d->state = s;
    if (n < 1 || n > in->n) {
        return stage_fail(d, manta_fail(MANTA_EINVAL, "select: %d columns given, there are %d", n, in->n));
    }
    for (int c = 0; c < n; c++) {
        manta_status st = stage_need_column(in, columns[c], &s->from[c]);
        if (st) return stage_fail(d, st);
        d->columns[c] = in->columns[s->from[c]];
    }
    manta_status st = stage_check_columns("select", n, d->columns);
    if (st) return stage_fail(d, st);
    d->n = n;
    return d;
}

/* ---- rename -------------------------------------------------------------------- */

static manta_status rename_locate(reader *r, visit *v, reader **from)
{
    (void)v;
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class rename_class = {.name = "rename", .locate = rename_locate};

manta_dataset *manta_dataset_rename(manta_dataset *in, const char *from, const char *to)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!from) return stage_refuse(in, __func__, "from");
    if (!to) return stage_refuse(in, __func__, "to");

    bool ok;
    int c = 0;
    manta_dataset *d = stage_new(&rename_class, in, &ok);

    if (!ok) return d;
    manta_status st = stage_need_column(in, from, &c);
    if (st) return stage_fail(d, st);
    if (!to || !to[0] || strlen(to) >= sizeof d->columns[c].name) {
        return stage_fail(d, manta_fail(MANTA_EINVAL, "rename: a column's name must have 1 to %d bytes",
                                        MANTA_COLUMN_NAME - 1));
    }
    memcpy(d->columns[c].name, to, strlen(to) + 1);
    return stage_fail(d, stage_check_columns("rename", d->n, d->columns));
}
