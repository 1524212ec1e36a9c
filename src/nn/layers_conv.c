/* layers_conv.c - Conv2D, DepthwiseConv2D, SeparableConv2D, Conv2DTranspose. NHWC. */
#include <string.h>

#include "base/args.h"
#include "base/option.h"
#include "nn/layer.h"
#include "nn/ops.h"

#define MAP "(batch, height, width, channels)"

/* Elements a kernel of k reaches over. */
static int64_t kernel_reach(int64_t k, int64_t dilation)
{
    return (k - 1) * dilation + 1;
}

static manta_status expect_positive(const char *what, const int64_t v[2])
{
    if (v[0] > 0 && v[1] > 0) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected %s of at least (1, 1), given (%lld, %lld)", what,
                      (long long)v[0], (long long)v[1]);
}

/* Strides, dilation and padding of a convolution over x, checked. */
static manta_status conv_attrs(const manta_array *x, const int64_t kernel[2], const int64_t strides[2],
                               const int64_t dilation[2], const char *padding, const int64_t pad[2][2],
                               op_conv_attrs *a)
{
    *a = (op_conv_attrs){.sh = layer_or_int(strides[0], 1),
                         .sw = layer_or_int(strides[1], 1),
                         .dh = layer_or_int(dilation[0], 1),
                         .dw = layer_or_int(dilation[1], 1),
                         .groups = 1};
    TRY(expect_positive("a kernel_size", kernel));
    TRY(expect_positive("strides", (int64_t[]){a->sh, a->sw}));
    TRY(expect_positive("a dilation_rate", (int64_t[]){a->dh, a->dw}));
    TRY(layer_padding(padding, x->shape[1], kernel_reach(kernel[0], a->dh), a->sh, pad[0], &a->top,
                      &a->bottom));
    return layer_padding(padding, x->shape[2], kernel_reach(kernel[1], a->dw), a->sw, pad[1], &a->left,
                         &a->right);
}

/* ---- Conv2D ---- */

static manta_status conv2d_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                manta_value *out)
{
    const manta_conv2d_options *o = options;
    int64_t groups = layer_or_int(o->groups, 1);
    op_conv_attrs attrs;
    manta_value x[3];
    manta_array a;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    a = manta_layer_shape(l, in[0]);
    if (o->filters < 1) {
        return manta_fail(MANTA_EINVAL, "expected filters of at least 1, given %lld", (long long)o->filters);
    }
    TRY(conv_attrs(&a, o->kernel_size, o->strides, o->dilation_rate, o->padding, o->pad, &attrs));
    if (groups < 1 || a.shape[3] % groups || o->filters % groups) {
        return manta_fail(MANTA_EINVAL,
                          "expected channels and filters that %lld groups divide, given %lld and %lld",
                          (long long)groups, (long long)a.shape[3], (long long)o->filters);
    }
    attrs.groups = groups;
    x[0] = layer_f32(l, in[0]);
    x[1] = manta_layer_weight(
        l, "kernel", 4, (int64_t[]){o->kernel_size[0], o->kernel_size[1], a.shape[3] / groups, o->filters},
        layer_init(o->kernel_initializer, MANTA_INIT_GLOROT_UNIFORM), 0, o->kernel_regularizer, true);
    if (!o->no_bias) {
        x[2] = layer_bias(l, o->filters, o->bias_initializer,
                          o->kernel_size[0] * o->kernel_size[1] * (a.shape[3] / groups), o->bias_regularizer);
    }
    x[0] = manta_layer_apply(l, &op_conv2d, &attrs, o->no_bias ? 2 : 3, x);
    return manta_layer_activate(l, o->activation, x[0], out);
}

static const manta_field conv2d_fields[] = {
    LAYER_FIELD(manta_conv2d_options, "filters", INT, filters),
    LAYER_FIELD(manta_conv2d_options, "kernel_size", PAIR, kernel_size),
    LAYER_FIELD(manta_conv2d_options, "strides", PAIR, strides),
    LAYER_FIELD(manta_conv2d_options, "padding", TEXT, padding),
    LAYER_FIELD(manta_conv2d_options, "pad", PAIRS, pad),
    LAYER_FIELD(manta_conv2d_options, "dilation_rate", PAIR, dilation_rate),
    LAYER_FIELD(manta_conv2d_options, "groups", INT, groups),
    LAYER_FIELD(manta_conv2d_options, "activation", TEXT, activation),
    LAYER_FIELD(manta_conv2d_options, "use_bias", NOT, no_bias),
    LAYER_FIELD(manta_conv2d_options, "kernel_initializer", INIT, kernel_initializer),
    LAYER_FIELD(manta_conv2d_options, "bias_initializer", INIT, bias_initializer),
    LAYER_FIELD(manta_conv2d_options, "kernel_regularizer", REG, kernel_regularizer),
    LAYER_FIELD(manta_conv2d_options, "bias_regularizer", REG, bias_regularizer),
};

const manta_layer_class layer_conv2d = {"Conv2D", sizeof(manta_conv2d_options), conv2d_fields, 13,
                                        conv2d_call};

manta_layer *manta_conv2d(manta_model *m, manta_conv2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_conv2d, &o, &o.name);
}

/* ---- DepthwiseConv2D: one group per channel ---- */

static manta_status depthwise_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                   manta_value *out)
{
    const manta_depthwise_conv2d_options *o = options;
    int64_t mult = layer_or_int(o->depth_multiplier, 1);
    op_conv_attrs attrs;
    manta_value x[3];
    manta_array a;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    a = manta_layer_shape(l, in[0]);
    if (mult < 1) {
        return manta_fail(MANTA_EINVAL, "expected a depth_multiplier of at least 1, given %lld",
                          (long long)mult);
    }
    TRY(conv_attrs(&a, o->kernel_size, o->strides, o->dilation_rate, o->padding, o->pad, &attrs));
    attrs.groups = a.shape[3];
    x[0] = layer_f32(l, in[0]);
    x[1] = manta_layer_weight(
        l, "kernel", 4, (int64_t[]){o->kernel_size[0], o->kernel_size[1], a.shape[3], mult},
        layer_init(o->depthwise_initializer, MANTA_INIT_GLOROT_UNIFORM), 0, o->depthwise_regularizer, true);
    if (!o->no_bias) {
        x[2] = layer_bias(l, a.shape[3] * mult, o->bias_initializer, o->kernel_size[0] * o->kernel_size[1],
                          o->bias_regularizer);
    }
    x[0] = manta_layer_apply(l, &op_conv2d, &attrs, o->no_bias ? 2 : 3, x);
    return manta_layer_activate(l, o->activation, x[0], out);
}

static const manta_field depthwise_fields[] = {
    LAYER_FIELD(manta_depthwise_conv2d_options, "kernel_size", PAIR, kernel_size),
    LAYER_FIELD(manta_depthwise_conv2d_options, "strides", PAIR, strides),
    LAYER_FIELD(manta_depthwise_conv2d_options, "padding", TEXT, padding),
    LAYER_FIELD(manta_depthwise_conv2d_options, "pad", PAIRS, pad),
    LAYER_FIELD(manta_depthwise_conv2d_options, "depth_multiplier", INT, depth_multiplier),
    LAYER_FIELD(manta_depthwise_conv2d_options, "dilation_rate", PAIR, dilation_rate),
    LAYER_FIELD(manta_depthwise_conv2d_options, "activation", TEXT, activation),
    LAYER_FIELD(manta_depthwise_conv2d_options, "use_bias", NOT, no_bias),
    LAYER_FIELD(manta_depthwise_conv2d_options, "depthwise_initializer", INIT, depthwise_initializer),
    LAYER_FIELD(manta_depthwise_conv2d_options, "bias_initializer", INIT, bias_initializer),
    LAYER_FIELD(manta_depthwise_conv2d_options, "depthwise_regularizer", REG, depthwise_regularizer),
    LAYER_FIELD(manta_depthwise_conv2d_options, "bias_regularizer", REG, bias_regularizer),
};

const manta_layer_class layer_depthwise_conv2d = {"DepthwiseConv2D", sizeof(manta_depthwise_conv2d_options),
                                                  depthwise_fields, 12, depthwise_call};

manta_layer *manta_depthwise_conv2d(manta_model *m, manta_depthwise_conv2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_depthwise_conv2d, &o, &o.name);
}

/* ---- SeparableConv2D: a depthwise convolution, then one of (1, 1) ---- */

static manta_status separable_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                   manta_value *out)
{
    const manta_separable_conv2d_options *o = options;
    int64_t mult = layer_or_int(o->depth_multiplier, 1), channels;
    op_conv_attrs attrs, point = {.sh = 1, .sw = 1, .dh = 1, .dw = 1, .groups = 1};
    manta_value x[2], y[3];
    manta_array a;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    a = manta_layer_shape(l, in[0]);
    if (mult < 1 || o->filters < 1) {
        return manta_fail(MANTA_EINVAL,
                          "expected filters and a depth_multiplier of at least 1, given %lld and %lld",
                          (long long)o->filters, (long long)mult);
    }
    TRY(conv_attrs(&a, o->kernel_size, o->strides, o->dilation_rate, o->padding, o->pad, &attrs));
    attrs.groups = a.shape[3];
    channels = a.shape[3] * mult;
    x[0] = layer_f32(l, in[0]);
    x[1] = manta_layer_weight(
        l, "depthwise_kernel", 4, (int64_t[]){o->kernel_size[0], o->kernel_size[1], a.shape[3], mult},
        layer_init(o->depthwise_initializer, MANTA_INIT_GLOROT_UNIFORM), 0, o->depthwise_regularizer, true);
    y[1] = manta_layer_weight(l, "pointwise_kernel", 4, (int64_t[]){1, 1, channels, o->filters},
                              layer_init(o->pointwise_initializer, MANTA_INIT_GLOROT_UNIFORM), 0,
                              o->pointwise_regularizer, true);
    if (!o->no_bias) y[2] = layer_bias(l, o->filters, o->bias_initializer, channels, o->bias_regularizer);
    y[0] = manta_layer_apply(l, &op_conv2d, &attrs, 2, x);
    y[0] = manta_layer_apply(l, &op_conv2d, &point, o->no_bias ? 2 : 3, y);
    return manta_layer_activate(l, o->activation, y[0], out);
}

static const manta_field separable_fields[] = {
    LAYER_FIELD(manta_separable_conv2d_options, "filters", INT, filters),
    LAYER_FIELD(manta_separable_conv2d_options, "kernel_size", PAIR, kernel_size),
    LAYER_FIELD(manta_separable_conv2d_options, "strides", PAIR, strides),
    LAYER_FIELD(manta_separable_conv2d_options, "padding", TEXT, padding),
    LAYER_FIELD(manta_separable_conv2d_options, "pad", PAIRS, pad),
    LAYER_FIELD(manta_separable_conv2d_options, "depth_multiplier", INT, depth_multiplier),
    LAYER_FIELD(manta_separable_conv2d_options, "dilation_rate", PAIR, dilation_rate),
    LAYER_FIELD(manta_separable_conv2d_options, "activation", TEXT, activation),
    LAYER_FIELD(manta_separable_conv2d_options, "use_bias", NOT, no_bias),
    LAYER_FIELD(manta_separable_conv2d_options, "depthwise_initializer", INIT, depthwise_initializer),
    LAYER_FIELD(manta_separable_conv2d_options, "pointwise_initializer", INIT, pointwise_initializer),
    LAYER_FIELD(manta_separable_conv2d_options, "bias_initializer", INIT, bias_initializer),
    LAYER_FIELD(manta_separable_conv2d_options, "depthwise_regularizer", REG, depthwise_regularizer),
    LAYER_FIELD(manta_separable_conv2d_options, "pointwise_regularizer", REG, pointwise_regularizer),
    LAYER_FIELD(manta_separable_conv2d_options, "bias_regularizer", REG, bias_regularizer),
};

const manta_layer_class layer_separable_conv2d = {"SeparableConv2D", sizeof(manta_separable_conv2d_options),
                                                  separable_fields, 15, separable_call};

manta_layer *manta_separable_conv2d(manta_model *m, manta_separable_conv2d_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_separable_conv2d, &o, &o.name);
}

/* ---- Conv2DTranspose ---- */

/* Length of the output along one axis, and the padding of the convolution that
 * leads back from it, as Keras has both. */
static manta_status transpose_axis(const manta_conv2d_transpose_options *o, int axis, int64_t n,
                                   int64_t stride, int64_t window, int64_t *length, int64_t *before)
{
    int64_t extra = option_int(o->output_padding[axis], 0), after;
    bool given = o->output_padding[0] != 0;

    if (given != (o->output_padding[1] != 0)) {
        return manta_fail(
            MANTA_EINVAL,
            "expected an output_padding for both axes or none (MANTA_ZERO is 0), given (%lld, %lld)",
            (long long)o->output_padding[0], (long long)o->output_padding[1]);
    }
    if (extra < 0 || (extra && extra >= stride)) {
        return manta_fail(MANTA_EINVAL, "expected an output_padding below the stride %lld, given %lld",
                          (long long)stride, (long long)extra);
    }
    if (o->padding && !strcmp(o->padding, "same")) {
        *length = given ? (n - 1) * stride + window % 2 + extra : n * stride;
        return layer_padding(o->padding, *length, window, stride, NULL, before, &after);
    }
    TRY(layer_padding(o->padding, n, window, stride, o->pad[axis], before, &after));
    if (!given && window < stride) extra = stride - window;
    *length = (n - 1) * stride + window + extra - *before - after;
    return MANTA_OK;
}

static manta_status transpose_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                   manta_value *out)
{
    const manta_conv2d_transpose_options *o = options;
    op_conv_transpose_attrs attrs = {.sh = layer_or_int(o->strides[0], 1),
                                     .sw = layer_or_int(o->strides[1], 1),
                                     .dh = layer_or_int(o->dilation_rate[0], 1),
                                     .dw = layer_or_int(o->dilation_rate[1], 1)};
    manta_value x[3];
    manta_array a;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_ndim(l, in[0], 4, MAP));
    a = manta_layer_shape(l, in[0]);
    if (o->filters < 1) {
        return manta_fail(MANTA_EINVAL, "expected filters of at least 1, given %lld", (long long)o->filters);
    }
    TRY(expect_positive("a kernel_size", o->kernel_size));
    TRY(expect_positive("strides", (int64_t[]){attrs.sh, attrs.sw}));
    TRY(expect_positive("a dilation_rate", (int64_t[]){attrs.dh, attrs.dw}));
    TRY(transpose_axis(o, 0, a.shape[1], attrs.sh, kernel_reach(o->kernel_size[0], attrs.dh), &attrs.oh,
                       &attrs.top));
    TRY(transpose_axis(o, 1, a.shape[2], attrs.sw, kernel_reach(o->kernel_size[1], attrs.dw), &attrs.ow,
                       &attrs.left));
    x[0] = layer_f32(l, in[0]);
    x[1] = manta_layer_weight(
        l, "kernel", 4, (int64_t[]){o->kernel_size[0], o->kernel_size[1], o->filters, a.shape[3]},
        layer_init(o->kernel_initializer, MANTA_INIT_GLOROT_UNIFORM), 0, o->kernel_regularizer, true);
    if (!o->no_bias) {
        x[2] = layer_bias(l, o->filters, o->bias_initializer,
                          o->kernel_size[0] * o->kernel_size[1] * o->filters, o->bias_regularizer);
    }
    x[0] = manta_layer_apply(l, &op_conv2d_transpose, &attrs, o->no_bias ? 2 : 3, x);
    return manta_layer_activate(l, o->activation, x[0], out);
}

static const manta_field transpose_fields[] = {
    LAYER_FIELD(manta_conv2d_transpose_options, "filters", INT, filters),
    LAYER_FIELD(manta_conv2d_transpose_options, "kernel_size", PAIR, kernel_size),
    LAYER_FIELD(manta_conv2d_transpose_options, "strides", PAIR, strides),
    LAYER_FIELD(manta_conv2d_transpose_options, "padding", TEXT, padding),
    LAYER_FIELD(manta_conv2d_transpose_options, "pad", PAIRS, pad),
    LAYER_FIELD_EXTRA(manta_conv2d_transpose_options, "output_padding", PAIR, output_padding, output_padding),
    LAYER_FIELD(manta_conv2d_transpose_options, "dilation_rate", PAIR, dilation_rate),
    LAYER_FIELD(manta_conv2d_transpose_options, "activation", TEXT, activation),
    LAYER_FIELD(manta_conv2d_transpose_options, "use_bias", NOT, no_bias),
    LAYER_FIELD(manta_conv2d_transpose_options, "kernel_initializer", INIT, kernel_initializer),
    LAYER_FIELD(manta_conv2d_transpose_options, "bias_initializer", INIT, bias_initializer),
    LAYER_FIELD(manta_conv2d_transpose_options, "kernel_regularizer", REG, kernel_regularizer),
    LAYER_FIELD(manta_conv2d_transpose_options, "bias_regularizer", REG, bias_regularizer),
};

const manta_layer_class layer_conv2d_transpose = {"Conv2DTranspose", sizeof(manta_conv2d_transpose_options),
                                                  transpose_fields, 13, transpose_call};

manta_layer *manta_conv2d_transpose(manta_model *m, manta_conv2d_transpose_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_conv2d_transpose, &o, &o.name);
}
