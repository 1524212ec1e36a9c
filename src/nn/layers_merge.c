/* layers_merge.c - layers of several inputs: Add, Subtract, Multiply, Concatenate. */
#include "base/args.h"
#include "nn/layer.h"
#include "nn/ops.h"

/* ---- element by element ---- */

/* Folds the inputs pairwise from the left, as Keras does. */
static manta_status fold_inputs(manta_layer *l, const manta_op *op, int n_in, const manta_value *in,
                                manta_value *out)
{
    manta_value pair[2];

    if (n_in < 1) return manta_fail(MANTA_EINVAL, "expected at least 1 input, given %d", n_in);
    pair[0] = layer_f32(l, in[0]);
    for (int i = 1; i < n_in; i++) {
        pair[1] = layer_f32(l, in[i]);
        pair[0] = manta_layer_apply(l, op, NULL, 2, pair);
    }
    *out = pair[0];
    return MANTA_OK;
}

static manta_status add_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                             manta_value *out)
{
    (void)options;
    return fold_inputs(l, &op_add, n_in, in, out);
}

static manta_status subtract_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                  manta_value *out)
{
    (void)options;
    TRY(layer_expect_inputs(n_in, 2));
    return fold_inputs(l, &op_subtract, n_in, in, out);
}

static manta_status multiply_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                  manta_value *out)
{
    (void)options;
    return fold_inputs(l, &op_multiply, n_in, in, out);
}

const manta_layer_class layer_add = {"Add", 0, NULL, 0, add_call};
const manta_layer_class layer_subtract = {"Subtract", 0, NULL, 0, subtract_call};
const manta_layer_class layer_multiply = {"Multiply", 0, NULL, 0, multiply_call};

manta_layer *manta_merge_add(manta_model *m)
{
    REFUSE_NULL_OR(m, NULL);
    return manta_layer_new(m, &layer_add, NULL, NULL);
}

manta_layer *manta_merge_subtract(manta_model *m)
{
    REFUSE_NULL_OR(m, NULL);
    return manta_layer_new(m, &layer_subtract, NULL, NULL);
}

manta_layer *manta_merge_multiply(manta_model *m)
{
    REFUSE_NULL_OR(m, NULL);
    return manta_layer_new(m, &layer_multiply, NULL, NULL);
}

/* ---- Concatenate ---- */

static manta_status concatenate_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                     manta_value *out)
{
    const manta_merge_concatenate_options *o = options;
    int64_t axis = layer_or_int(o->axis, -1);
    op_concat_attrs attrs;
    manta_value x[MANTA_OP_MAX_IN];
    manta_array a;
    int n = 0;
    char text[96];

    if (n_in < 1) return manta_fail(MANTA_EINVAL, "expected at least 1 input, given %d", n_in);
    a = manta_layer_shape(l, in[0]);
    if (axis < 0) axis += a.ndim;
    if (axis < 1 || axis >= a.ndim) {
        return manta_fail(MANTA_EINVAL, "expected an axis from 1 to %d for %s, given %lld", a.ndim - 1,
                          op_shape_text(&a, text, sizeof text), (long long)o->axis);
    }
    attrs.axis = (int)axis;
    /* More inputs than an operation takes: what is joined so far becomes the first of the next group. */
    for (int i = 0; i < n_in; i++) {
        x[n++] = layer_f32(l, in[i]);
        if (n < MANTA_OP_MAX_IN && i + 1 < n_in) continue;
        x[0] = manta_layer_apply(l, &op_concatenate, &attrs, n, x);
        n = 1;
    }
    *out = x[0];
    return MANTA_OK;
}

static const manta_field concatenate_fields[] = {
    LAYER_FIELD(manta_merge_concatenate_options, "axis", INT, axis)};

const manta_layer_class layer_concatenate = {"Concatenate", sizeof(manta_merge_concatenate_options),
                                             concatenate_fields, 1, concatenate_call};

manta_layer *manta_merge_concatenate(manta_model *m, manta_merge_concatenate_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_concatenate, &o, &o.name);
}
