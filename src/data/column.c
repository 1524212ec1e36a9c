/* column.c - stages that change one column: cast, scale, normalize, labels.
 *
 * They read the column where it lies when the source is memory, so that
 * conversion happens in the gather itself and a sample is touched once. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "data/convert.h"
#include "data/stage.h"

typedef enum column_work { COLUMN_CAST, COLUMN_SCALE, COLUMN_NORMALIZE, COLUMN_LABELS } column_work;

typedef struct column_state {
    column_work work;
    int column;
    int64_t elements; /* of a row */
    float divisor;
    int channels;
    float *mean, *std;
    int64_t classes;
} column_state;

static manta_status column_open(reader *r)
{
    const column_state *s = r->d->state;
    reader *below = r->in[0];

    /* A source that can be peeked at needs no scratch; anything else does. */
    while (below->d->class->locate && below->in[1] == NULL) below = below->in[0];
    if (below->d->class->peek) return MANTA_OK;
    return reader_scratch(r, r->d->in[0], s->column);
}

static manta_status check_labels(const reader *r, const void *x, int64_t n, const visit *v)
{
    const column_state *s = r->d->state;
    const manta_column_spec *spec = &r->d->columns[s->column];

    for (int64_t i = 0; i < n; i++) {
        double label = convert_get(x, spec->dtype, i);
        if (label >= 0 && label < (double)s->classes) continue;
        return manta_fail(MANTA_EINVAL,
                          "labels: sample %lld has the label %g in column '%s', expected 0 to %lld",
                          (long long)v->key_sample, label, spec->name, (long long)s->classes - 1);
    }
    return MANTA_OK;
}

static manta_status convert_column(const reader *r, const void *from, int64_t rows, void *to, const visit *v)
{
    const column_state *s = r->d->state;
    const manta_column_spec *in = &r->d->in[0]->columns[s->column], *out = &r->d->columns[s->column];
    int64_t n = rows * s->elements, bad;

    switch (s->work) {
    case COLUMN_CAST:
        bad = convert_any(from, in->dtype, n, to, out->dtype);
        if (bad < 0) return MANTA_OK;
        return manta_fail(MANTA_EINVAL,
                          "cast: element %lld of column '%s' of sample %lld is %g, which %s cannot hold",
                          (long long)bad, in->name, (long long)v->key_sample,
                          convert_get(from, in->dtype, bad), manta_dtype_name(out->dtype));
    case COLUMN_SCALE: convert_to_f32(from, in->dtype, n, s->divisor, to); return MANTA_OK;
    case COLUMN_NORMALIZE:
        convert_to_f32(from, in->dtype, n, 1, to);
        convert_normalize(to, n, s->channels, s->mean, s->std);
        return MANTA_OK;
    case COLUMN_LABELS:
        TRY(check_labels(r, from, n, v));
        memcpy(to, from, (size_t)n * manta_dtype_size(in->dtype));
        return MANTA_OK;
    }
    return MANTA_OK;
}

/* Rows of the answer that were asked for. */
static int64_t rows_given(const manta_dataset *d, const visit *v)
{
    if (!d->batch) return 1;
    int64_t hi = v->hi < v->rows ? v->hi : v->rows;
    return hi > v->lo ? hi - v->lo : 0;
}

static manta_status column_fetch(reader *r, visit *v)
{
    const column_state *s = r->d->state;
    void *out[MANTA_MAX_COLUMNS];

    void *const *wanted = v->out;
    void *to = wanted[s->column];
    reader *below = r->in[0];
    manta_status st = MANTA_OK;

    if (!to) {
        return reader_fetch(below, v); /* nobody looks at the column */
    }
    TRY(reader_resolve(&below, v));
    if (v->end) return MANTA_OK;
    memcpy(out, wanted, (size_t)r->d->n * sizeof out[0]);
    v->out = out;
    if (below->d->class->peek) {
        const void *from = below->d->class->peek(below, v, s->column, &st);
        if (st) return st;
        TRY(convert_column(r, from, 1, to, v));
        out[s->column] = NULL;
        st = below->d->class->fetch(below, v);
    } else {
        out[s->column] = r->scratch[s->column];
        st = below->d->class->fetch(below, v);
        if (!st && !v->end) st = convert_column(r, r->scratch[s->column], rows_given(r->d, v), to, v);
    }
    v->out = wanted;
    return st;
}

static void column_release(manta_dataset *d)
{
    column_state *s = d->state;

    if (!s) return;
    mem_free(s->mean);
    mem_free(s->std);
    mem_free(s);
}

static const stage_class column_class = {
    .name = "column", .fetch = column_fetch, .open = column_open, .release = column_release};

static manta_dataset *column_stage(manta_dataset *in, column_work w, const char *column, column_state **state)
{
    bool ok;
    manta_dataset *d = stage_new(&column_class, in, &ok);

    *state = NULL;
    if (!ok) return d;
    column_state *s = mem_new(sizeof *s);
    d->state = s;
    s->work = w;
    manta_status st = stage_need_column(d, column, &s->column);
    if (st) return stage_fail(d, st);
    s->elements = spec_elements(&d->columns[s->column]);
    if (w == COLUMN_SCALE || w == COLUMN_NORMALIZE) d->columns[s->column].dtype = MANTA_DTYPE_F32;
    *state = s;
    return d;
}

manta_dataset *manta_dataset_cast(manta_dataset *in, const char *column, manta_dtype dtype)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    column_state *s;
    manta_dataset *d = column_stage(in, COLUMN_CAST, column, &s);

    if (!s) return d;
    if (manta_dtype_size(dtype) == 0)
        return stage_fail(d, manta_fail(MANTA_EINVAL, "cast: %d is no dtype, expected 0 to %d", (int)dtype,
                                        MANTA_DTYPE_COUNT - 1));
    d->columns[s->column].dtype = dtype;
    return d;
}

manta_dataset *manta_dataset_scale(manta_dataset *in, const char *column, float divisor)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    column_state *s;
    manta_dataset *d = column_stage(in, COLUMN_SCALE, column, &s);

    if (!s) return d;
    s->divisor = divisor;
    if (divisor == 0 || !isfinite(divisor)) {
        return stage_fail(
            d, manta_fail(MANTA_EINVAL,
                          "scale: column '%s' is to be divided by %g, expected a finite number other than 0",
                          column, (double)divisor));
    }
    return d;
}

manta_dataset *manta_dataset_normalize(manta_dataset *in, const char *column, int n, const float *mean,
                                       const float *std)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");
    if (n > 0 && !mean) return stage_refuse(in, __func__, "mean");
    if (n > 0 && !std) return stage_refuse(in, __func__, "std");

    column_state *s;
    manta_dataset *d = column_stage(in, COLUMN_NORMALIZE, column, &s);

    if (!s) return d;
    const manta_column_spec *c = &d->columns[s->column];
    if (n < 1 || (n > 1 && (c->ndim < 1 || c->shape[c->ndim - 1] != n))) {
        char text[96];
        return stage_fail(
            d, manta_fail(MANTA_EINVAL,
                          "normalize: %d means given, column '%s' has the shape %s: give 1, or one "
                          "for each of its last dimension",
                          n, column, manta_shape_text(c->ndim, c->shape, text, sizeof text)));
    }
    s->channels = n;
    s->mean = mem_new((size_t)n * sizeof *mean);
    s->std = mem_new((size_t)n * sizeof *std);
    for (int i = 0; i < n; i++) {
        s->mean[i] = mean[i];
        s->std[i] = std[i];
        if (isfinite(mean[i]) && isfinite(std[i]) && std[i] > 0) continue;
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "normalize: mean %g and deviation %g of channel %d, expected finite "
                                        "numbers and a deviation above 0",
                                        (double)mean[i], (double)std[i], i));
    }
    return d;
}

manta_dataset *manta_dataset_labels(manta_dataset *in, const char *column, int64_t classes)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!column) return stage_refuse(in, __func__, "column");

    column_state *s;
    manta_dataset *d = column_stage(in, COLUMN_LABELS, column, &s);

    if (!s) return d;
    s->classes = classes;
    manta_dtype t = d->columns[s->column].dtype;
    if (d->batch)
        return stage_fail(
            d, manta_fail(MANTA_EINVAL,
                          "labels: the dataset holds batches, expected samples; put it before batch()"));
    if (classes < 1)
        return stage_fail(
            d, manta_fail(MANTA_EINVAL, "labels: %lld classes, expected at least 1", (long long)classes));
    if (t != MANTA_DTYPE_U8 && t != MANTA_DTYPE_I32 && t != MANTA_DTYPE_I64) {
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "labels: column '%s' is %s, expected integers (cast it first)",
                                        column, manta_dtype_name(t)));
    }
    return d;
}
