/* files.c - datasets out of array files: IDX and .npy, one per column. */
#include <string.h>

#include "base/mem.h"
#include "data/source.h"
#include "format/array/decode.h"
#include "format/array/files.h"
#include "format/array/idx.h"
#include "format/array/npy.h"
#include "format/codec/sizes.h"

/* One file: IDX with its decoder, or an array that is there already. */
typedef struct part {
    bool is_idx;
    idx_file idx;
    decode *job; /* of idx, while large */
    blob blob;
} part;

typedef struct parts {
    int n;
    part at[2];
} parts;

static void parts_free(void *ctx)
{
    parts *p = ctx;

    if (!p) return;
    for (int i = 0; i < p->n; i++) {
        decode_free(p->at[i].job);
        idx_release(&p->at[i].idx);
        blob_release(&p->at[i].blob);
    }
    mem_free(p);
}

static manta_status parts_wait(void *ctx)
{
    parts *p = ctx;

    for (int i = 0; i < p->n; i++) {
        if (p->at[i].job) TRY(decode_wait(p->at[i].job));
    }
    return MANTA_OK;
}

static manta_status finish_idx(void *ctx)
{
    return idx_finish(ctx);
}

static manta_status part_open(part *p, const char *path, bool allow_nan)
{
    input in = {0};

    TRY(input_read(path, &in));
    if (npy_is(in.data, in.size)) {
        manta_status st = npy_parse(path, in.data, in.size, allow_nan, &p->blob);
        input_release(&in);
        return st;
    }
    TRY(idx_begin(&in, &p->idx));
    p->is_idx = true;
    p->idx.allow_nan = allow_nan;
    if (p->idx.payload < FILES_BEHIND) return idx_finish(&p->idx);
    p->job = decode_start(finish_idx, &p->idx);
    return MANTA_OK;
}

static const manta_array *part_array(const part *p)
{
    return p->is_idx ? &p->idx.array : &p->blob.array;
}

/* Labels of a set whose classes are known, before anything trains on them. */
static manta_status check_labels(const char *path, const part *p, int classes)
{
    const manta_array *a = part_array(p);

    if (a->ndim != 1 || a->dtype != MANTA_DTYPE_U8) {
        return manta_fail(MANTA_ECORRUPT, "%s: the labels have %d dimensions of %s, expected one of bytes",
                          path, a->ndim, manta_dtype_name(a->dtype));
    }
    const uint8_t *label = a->data;
    for (int64_t i = 0; i < a->shape[0]; i++) {
        if (label[i] < classes) continue;
        return manta_fail(MANTA_ECORRUPT,
                          "%s: the label of sample %lld at offset %lld is %d, expected 0 to %d", path,
                          (long long)i, (long long)i + (long long)p->idx.header, label[i], classes - 1);
    }
    return MANTA_OK;
}

static manta_status add_column(source_memory *m, const char *name, const char *path, const manta_array *a)
{
    manta_column_spec *s = &m->columns[m->n];

    if (a->ndim < 1)
        return manta_fail(MANTA_EINVAL, "%s: the file holds a single number, expected an array of samples",
                          path);
    strcpy(s->name, name); /* "x" or "y" */
    s->dtype = a->dtype;
    s->ndim = a->ndim - 1;
    memcpy(s->shape, a->shape + 1, (size_t)s->ndim * sizeof s->shape[0]);
    if (m->n > 0 && a->shape[0] != m->count) {
        return manta_fail(MANTA_EINVAL, "%s: the file has %lld samples, expected %lld as in the other file",
                          path, (long long)a->shape[0], (long long)m->count);
    }
    m->count = a->shape[0];
    m->data[m->n++] = a->data;
    return MANTA_OK;
}

manta_dataset *files_finish_labels(manta_dataset *d)
{
    const manta_column_spec *c;
    int n = manta_dataset_columns(d, &c);

    for (int i = 0; i < n; i++) {
        bool integer = c[i].dtype == MANTA_DTYPE_U8 || c[i].dtype == MANTA_DTYPE_I32;
        if (strcmp(c[i].name, "y") == 0 && integer) return manta_dataset_cast(d, "y", MANTA_DTYPE_I64);
    }
    return d;
}

static manta_status open_parts(parts *p, source_memory *m, const char *x, const char *y, int classes,
                               bool allow_nan)
{
    const char *paths[] = {x, y};

    /* Labels first: they are small, and what is wrong with them is known before
     * a thread begins on the images. */
    for (int i = y ? 1 : 0; i >= 0; i--) {
        if (p->n < i + 1) p->n = i + 1;
        TRY(part_open(&p->at[i], paths[i], allow_nan));
        if (i == 1 && classes) TRY(check_labels(y, &p->at[1], classes));
    }
    for (int i = 0; i < p->n; i++) TRY(add_column(m, i ? "y" : "x", paths[i], part_array(&p->at[i])));
    return MANTA_OK;
}

manta_status files_open(const char *x, const char *y, int classes, const manta_open_options *o,
                        manta_dataset **out)
{
    parts *p = mem_new(sizeof *p);
    source_memory m = {.ctx = p, .wait = parts_wait, .release = parts_free};
    manta_status st = open_parts(p, &m, x, y, classes, o->allow_nan);

    if (st) {
        manta_error e;
        manta_error_get(&e); /* freeing may wait for a decoder that fails too */
        parts_free(p);
        return manta_error_raise(&e);
    }
    if (!p->at[0].job && (p->n < 2 || !p->at[1].job)) m.wait = NULL;
    bool image = p->at[0].is_idx && p->at[0].idx.array.dtype == MANTA_DTYPE_U8;
    manta_dataset *d = source_from_memory(&m);
    if (image && !o->raw) d = manta_dataset_scale(d, "x", 255);
    d = files_finish_labels(d);
    if ((st = manta_dataset_status(d))) {
        manta_dataset_unref(d);
        return st;
    }
    *out = d;
    return MANTA_OK;
}
