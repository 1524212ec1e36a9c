/* feed.c - columns to inputs, targets and weights. */
#include "train/feed.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"

static int find_column(const char *name, int n, const manta_column_spec *columns)
{
    for (int i = 0; name && i < n; i++) {
        if (!strcmp(columns[i].name, name)) return i;
    }
    return -1;
}

static manta_status no_column(const char *what, const char *name, int n, const manta_column_spec *columns)
{
    buf b = {0};
    manta_status st;

    for (int i = 0; i < n; i++) buf_printf(&b, "%s%s", i ? ", " : "", columns[i].name);
    st = manta_fail(MANTA_EINVAL, "no column of the data is for the model's %s '%s'; there are: %s", what,
                    name, buf_text(&b));
    buf_release(&b);
    return st;
}

manta_status feed_map_init(feed_map *f, const manta_model *m, bool targets, int n_columns,
                           const manta_column_spec *columns)
{
    const char *name = NULL;

    *f = (feed_map){
        .n_inputs = manta_model_inputs(m), .n_targets = targets ? manta_model_outputs(m) : 0, .weight = -1};
    if (f->n_inputs > 8 || f->n_targets > 8) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "a model of more than 8 inputs or outputs cannot be fed from columns");
    }
    for (int i = 0; i < f->n_inputs; i++) {
        manta_model_input(m, i, &name);
        f->inputs[i] = find_column(name, n_columns, columns);
        if (f->inputs[i] < 0 && f->n_inputs == 1) {
            f->inputs[i] = find_column("x", n_columns, columns);
            if (f->inputs[i] < 0 && n_columns) f->inputs[i] = 0;
        }
        if (f->inputs[i] < 0) return no_column("input", name ? name : "", n_columns, columns);
    }
    for (int i = 0; i < f->n_targets; i++) {
        name = NULL;
        manta_model_output(m, i, &name);
        f->targets[i] = find_column(name, n_columns, columns);
        if (f->targets[i] < 0 && f->n_targets == 1) {
            f->targets[i] = find_column("y", n_columns, columns);
            if (f->targets[i] < 0 && n_columns > 1) f->targets[i] = 1;
        }
        if (f->targets[i] < 0) return no_column("output", name ? name : "y", n_columns, columns);
    }
    f->weight = find_column("sample_weight", n_columns, columns);
    if (f->weight >= 0 && columns[f->weight].dtype != MANTA_DTYPE_F32) {
        return manta_fail(MANTA_EINVAL, "the column sample_weight is %s, expected float32",
                          manta_dtype_name(columns[f->weight].dtype));
    }
    return MANTA_OK;
}

static int64_t label_at(const manta_array *y, int64_t i)
{
    switch (y->dtype) {
    case MANTA_DTYPE_I64: return ((const int64_t *)y->data)[i];
    case MANTA_DTYPE_I32: return ((const int32_t *)y->data)[i];
    case MANTA_DTYPE_U8: return ((const uint8_t *)y->data)[i];
    default: return -1;
    }
}

manta_status feed_of(const feed_map *f, const manta_batch *b, const float *class_weight, int n_classes,
                     float *weights, manta_feed *out)
{
    const float *given = NULL;

    *out = (manta_feed){.count = b->count, .n_inputs = f->n_inputs, .n_targets = f->n_targets};
    for (int i = 0; i < f->n_inputs; i++) out->inputs[i] = b->columns[f->inputs[i]].array;
    for (int i = 0; i < f->n_targets; i++) out->targets[i] = b->columns[f->targets[i]].array;
    if (f->weight >= 0) given = b->columns[f->weight].array.data;
    for (int i = 0; i < f->n_targets; i++) out->weights[i] = given;
    if (!class_weight || !f->n_targets) return MANTA_OK;
    for (int64_t i = 0; i < b->count; i++) {
        int64_t y = label_at(&out->targets[0], i);
        if (y < 0 || y >= n_classes) {
            return manta_fail(MANTA_EINVAL, "sample %lld: label %lld has no class weight; there are %d",
                              (long long)(b->first + i), (long long)y, n_classes);
        }
        weights[i] = class_weight[y] * (given ? given[i] : 1);
    }
    out->weights[0] = weights;
    return MANTA_OK;
}
