/* layers_pool.c - pooling layers, NHWC. */
#include "base/args.h"
#include "nn/layer.h"
#include "nn/ops.h"

#define MAP "(batch, height, width, channels)"

/* ---- windows ---- */

static manta_status pooling_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                 const manta_op *op, manta_value *out)
{
    const manta_pooling2d_options *o = options;
    op_pool_attrs a = {.kh = layer_or_int(o->pool_size[0], 2),
                       .kw = layer_or_int(o->pool_size[1], 2),
                       .count_padding = o->count_padding};
    manta_array shape;
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    shape = manta_layer_shape(l, in[0]);
    a.sh = layer_or_int(o->strides[0], a.kh);
    a.sw = layer_or_int(o->strides[1], a.kw);
    if (a.kh < 1 || a.kw < 1 || a.sh < 1 || a.sw < 1) {
        return manta_fail(MANTA_EINVAL,
                          "expected pool_size and strides of at least 1, given (%lld, %lld) and (%lld, %lld)",
                          (long long)a.kh, (long long)a.kw, (long long)a.sh, (long long)a.sw);
    }
    TRY(layer_padding(o->padding, shape.shape[1], a.kh, a.sh, o->pad[0], &a.top, &a.bottom));
    TRY(layer_padding(o->padding, shape.shape[2], a.kw, a.sw, o->pad[1], &a.left, &a.right));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, op, &a, 1, &x);
    return MANTA_OK;
}

static manta_status max_pooling_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                     manta_value *out)
{
    return pooling_call(l, options, n_in, in, &op_max_pool, out);
}

static manta_status average_pooling_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                         manta_value *out)
{
    return pooling_call(l, options, n_in, in, &op_avg_pool, out);
}

static const manta_field pooling_fields[] = {
    LAYER_FIELD(manta_pooling2d_options, "pool_size", PAIR, pool_size),
    LAYER_FIELD(manta_pooling2d_options, "strides", PAIR, strides),
    LAYER_FIELD(manta_pooling2d_options, "padding", TEXT, padding),
    LAYER_FIELD(manta_pooling2d_options, "pad", PAIRS, pad),
    LAYER_FIELD(manta_pooling2d_options, "count_padding", BOOL, count_padding),
};

const manta_layer_class layer_max_pooling2d = {"MaxPooling2D", sizeof(manta_pooling2d_options),
                                               pooling_fields, 5, max_pooling_call};
const manta_layer_class layer_average_pooling2d = {"AveragePooling2D", sizeof(manta_pooling2d_options),
                                                   pooling_fields, 5, average_pooling_call};

manta_layer *manta_max_pooling2d(manta_model *m, manta_pooling2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_max_pooling2d, &o, &o.name);
}

manta_layer *manta_average_pooling2d(manta_model *m, manta_pooling2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_average_pooling2d, &o, &o.name);
}

/* ---- global ---- */

static manta_status global_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                const manta_op *op, manta_value *out)
{
    const manta_global_pooling2d_options *o = options;
    op_global_pool_attrs a = {.keepdims = o->keepdims};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, op, &a, 1, &x);
    return MANTA_OK;
}

static manta_status global_average_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                        manta_value *out)
{
    return global_call(l, options, n_in, in, &op_global_avg_pool, out);
}

static manta_status global_max_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                    manta_value *out)
{
    return global_call(l, options, n_in, in, &op_global_max_pool, out);
}

static const manta_field global_fields[] = {
    LAYER_FIELD(manta_global_pooling2d_options, "keepdims", BOOL, keepdims)};

const manta_layer_class layer_global_average_pooling2d = {
    "GlobalAveragePooling2D", sizeof(manta_global_pooling2d_options), global_fields, 1, global_average_call};
const manta_layer_class layer_global_max_pooling2d = {
    "GlobalMaxPooling2D", sizeof(manta_global_pooling2d_options), global_fields, 1, global_max_call};

manta_layer *manta_global_average_pooling2d(manta_model *m, manta_global_pooling2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_global_average_pooling2d, &o, &o.name);
}

manta_layer *manta_global_max_pooling2d(manta_model *m, manta_global_pooling2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_global_max_pooling2d, &o, &o.name);
}
