/* layers_applications.c - LayerScale, StochasticDepth and CustomScaleLayer, which
 * are no layers of Keras itself: its ready-made models define them. */
#include "base/args.h"
#include "nn/layer.h"
#include "nn/ops.h"

/* ---- LayerScale ---- */

static manta_status scale_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                               manta_value *out)
{
    const manta_layer_scale_options *o = options;
    manta_initializer init = {.kind = MANTA_INIT_CONSTANT, .a = (float)o->init_values};
    manta_value x[2];
    manta_array a;
    char text[96];

    TRY(layer_expect_inputs(n_in, 1));
    a = manta_layer_shape(l, in[0]);
    if (a.ndim < 2 || o->projection_dim != a.shape[a.ndim - 1]) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., %lld), given %s",
                          (long long)o->projection_dim, op_shape_text(&a, text, sizeof text));
    }
    x[0] = layer_f32(l, in[0]);
    x[1] = manta_layer_weight(l, "gamma", 1, &o->projection_dim, init, 0, (manta_regularizer){0}, true);
    *out = manta_layer_apply(l, &op_scale, NULL, 2, x);
    return MANTA_OK;
}

static const manta_field scale_fields[] = {
    LAYER_FIELD(manta_layer_scale_options, "init_values", FLOAT, init_values),
    LAYER_FIELD(manta_layer_scale_options, "projection_dim", INT, projection_dim),
};

const manta_layer_class layer_layer_scale = {"LayerScale", sizeof(manta_layer_scale_options), scale_fields, 2,
                                             scale_call};

manta_layer *manta_layer_scale(manta_model *m, manta_layer_scale_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_layer_scale, &o, &o.name);
}

/* ---- StochasticDepth ---- */

static manta_status depth_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                               manta_value *out)
{
    const manta_stochastic_depth_options *o = options;
    op_dropout_attrs attrs = {.rate = (float)o->drop_path_rate};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    x = layer_f32(l, in[0]);
    attrs.ndim = manta_layer_shape(l, x).ndim;
    for (int i = 1; i < attrs.ndim; i++) attrs.shared[i] = true;
    *out = manta_layer_apply(l, &op_dropout, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field depth_fields[] = {
    LAYER_FIELD(manta_stochastic_depth_options, "drop_path_rate", FLOAT, drop_path_rate)};

const manta_layer_class layer_stochastic_depth = {"StochasticDepth", sizeof(manta_stochastic_depth_options),
                                                  depth_fields, 1, depth_call};

manta_layer *manta_stochastic_depth(manta_model *m, manta_stochastic_depth_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_stochastic_depth, &o, &o.name);
}

/* ---- CustomScaleLayer ---- */

static manta_status custom_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                manta_value *out)
{
    const manta_merge_custom_scale_options *o = options;
    op_affine_attrs attrs = {.scale = (float)o->scale};
    manta_value x[2];

    TRY(layer_expect_inputs(n_in, 2));
    x[0] = layer_f32(l, in[0]);
    x[1] = manta_layer_apply(l, &op_affine, &attrs, 1, &in[1]);
    *out = manta_layer_apply(l, &op_add, NULL, 2, x);
    return MANTA_OK;
}

static const manta_field custom_fields[] = {
    LAYER_FIELD(manta_merge_custom_scale_options, "scale", FLOAT, scale)};

const manta_layer_class layer_custom_scale = {"CustomScaleLayer", sizeof(manta_merge_custom_scale_options),
                                              custom_fields, 1, custom_call};

manta_layer *manta_merge_custom_scale(manta_model *m, manta_merge_custom_scale_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_custom_scale, &o, &o.name);
}
