/* layers_norm.c - normalisation: by the batch, by the sample, by given numbers. */
#include "base/args.h"
#include "nn/layer.h"
#include "nn/ops.h"

static const manta_regularizer none = {0};

/* ---- BatchNormalization ---- */

static manta_status batch_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                               manta_value *out)
{
    const manta_batch_normalization_options *o = options;
    op_bn_attrs attrs = {.momentum = (float)layer_or(o->momentum, 0.99),
                         .epsilon = (float)layer_or(o->epsilon, 0.001),
                         .unbiased = o->unbiased,
                         .has_gamma = !o->no_scale,
                         .has_beta = !o->no_center};
    manta_initializer zeros = {.kind = MANTA_INIT_ZEROS}, ones = {.kind = MANTA_INIT_ONES};
    manta_value x[5];
    manta_array a;
    int n = 1;
    char text[96];

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_last_axis(l, in[0], o->axis));
    a = manta_layer_shape(l, in[0]);
    if (a.ndim < 2) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., channels), given %s",
                          op_shape_text(&a, text, sizeof text));
    }
    x[0] = layer_f32(l, in[0]);
    if (!o->no_scale) {
        x[n++] = manta_layer_weight(l, "gamma", 1, &a.shape[a.ndim - 1],
                                    layer_init(o->gamma_initializer, MANTA_INIT_ONES), 0, none, true);
    }
    if (!o->no_center) {
        x[n++] = manta_layer_weight(l, "beta", 1, &a.shape[a.ndim - 1],
                                    layer_init(o->beta_initializer, MANTA_INIT_ZEROS), 0, none, true);
    }
    x[n++] = manta_layer_weight(l, "moving_mean", 1, &a.shape[a.ndim - 1], zeros, 0, none, false);
    x[n++] = manta_layer_weight(l, "moving_variance", 1, &a.shape[a.ndim - 1], ones, 0, none, false);
    *out = manta_layer_apply(l, &op_batch_norm, &attrs, n, x);
    return MANTA_OK;
}

static const manta_field batch_fields[] = {
    LAYER_FIELD(manta_batch_normalization_options, "axis", INT, axis),
    LAYER_FIELD(manta_batch_normalization_options, "momentum", FLOAT_DEFAULT, momentum),
    LAYER_FIELD(manta_batch_normalization_options, "epsilon", FLOAT_DEFAULT, epsilon),
    LAYER_FIELD(manta_batch_normalization_options, "center", NOT, no_center),
    LAYER_FIELD(manta_batch_normalization_options, "scale", NOT, no_scale),
    LAYER_FIELD(manta_batch_normalization_options, "unbiased", BOOL, unbiased),
    LAYER_FIELD(manta_batch_normalization_options, "gamma_initializer", INIT, gamma_initializer),
    LAYER_FIELD(manta_batch_normalization_options, "beta_initializer", INIT, beta_initializer),
};

const manta_layer_class layer_batch_normalization = {
    "BatchNormalization", sizeof(manta_batch_normalization_options), batch_fields, 8, batch_call};

manta_layer *manta_batch_normalization(manta_model *m, manta_batch_normalization_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_batch_normalization, &o, &o.name);
}

/* ---- LayerNormalization ---- */

/* How many axes are normalised together; they must be the last ones, each once. */
static manta_status trailing_axes(const manta_layer_normalization_options *o, const manta_array *a, int *n)
{
    unsigned seen = 0;
    char axes[96], shape[96];

    *n = o->n_axis > 0 ? o->n_axis : 1;
    for (int i = 0; i < o->n_axis; i++) {
        int64_t axis = o->axis[i] < 0 ? o->axis[i] + a->ndim : o->axis[i];
        if (axis >= a->ndim - *n && axis > 0 && axis < a->ndim) seen |= 1u << (a->ndim - 1 - axis);
    }
    if (o->n_axis == 0 || seen == (1u << *n) - 1) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "expected the last axes of %s, given axis %s",
                      op_shape_text(a, shape, sizeof shape),
                      manta_shape_text(o->n_axis, o->axis, axes, sizeof axes));
}

static manta_status layer_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                               manta_value *out)
{
    const manta_layer_normalization_options *o = options;
    op_ln_attrs attrs = {
        .epsilon = (float)layer_or(o->epsilon, 0.001), .has_gamma = !o->no_scale, .has_beta = !o->no_center};
    manta_value x[3];
    manta_array a;
    const int64_t *group;
    int n = 1;
    char text[96];

    TRY(layer_expect_inputs(n_in, 1));
    a = manta_layer_shape(l, in[0]);
    TRY(trailing_axes(o, &a, &attrs.axes));
    if (a.ndim <= attrs.axes) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., channels), given %s",
                          op_shape_text(&a, text, sizeof text));
    }
    group = a.shape + a.ndim - attrs.axes;
    x[0] = layer_f32(l, in[0]);
    if (!o->no_scale) {
        x[n++] = manta_layer_weight(l, "gamma", attrs.axes, group,
                                    layer_init(o->gamma_initializer, MANTA_INIT_ONES), 0, none, true);
    }
    if (!o->no_center) {
        x[n++] = manta_layer_weight(l, "beta", attrs.axes, group,
                                    layer_init(o->beta_initializer, MANTA_INIT_ZEROS), 0, none, true);
    }
    *out = manta_layer_apply(l, &op_layer_norm, &attrs, n, x);
    return MANTA_OK;
}

static const manta_field layer_fields[] = {
    LAYER_FIELD_EXTRA(manta_layer_normalization_options, "axis", INTS, axis, n_axis),
    LAYER_FIELD(manta_layer_normalization_options, "epsilon", FLOAT_DEFAULT, epsilon),
    LAYER_FIELD(manta_layer_normalization_options, "center", NOT, no_center),
    LAYER_FIELD(manta_layer_normalization_options, "scale", NOT, no_scale),
    LAYER_FIELD(manta_layer_normalization_options, "gamma_initializer", INIT, gamma_initializer),
    LAYER_FIELD(manta_layer_normalization_options, "beta_initializer", INIT, beta_initializer),
};

const manta_layer_class layer_layer_normalization = {
    "LayerNormalization", sizeof(manta_layer_normalization_options), layer_fields, 6, layer_call};

manta_layer *manta_layer_normalization(manta_model *m, manta_layer_normalization_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_layer_normalization, &o, &o.name);
}

/* ---- Rescaling and Normalization: no weights ---- */

static manta_status rescaling_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                   manta_value *out)
{
    const manta_rescaling_options *o = options;
    op_affine_attrs attrs = {.scale = (float)layer_or(o->scale, 1), .offset = (float)o->offset};

    TRY(layer_expect_inputs(n_in, 1));
    *out = manta_layer_apply(l, &op_affine, &attrs, 1, in);
    return MANTA_OK;
}

static const manta_field rescaling_fields[] = {
    LAYER_FIELD(manta_rescaling_options, "scale", FLOAT_DEFAULT, scale),
    LAYER_FIELD(manta_rescaling_options, "offset", FLOAT, offset),
};

const manta_layer_class layer_rescaling = {"Rescaling", sizeof(manta_rescaling_options), rescaling_fields, 2,
                                           rescaling_call};

manta_layer *manta_rescaling(manta_model *m, manta_rescaling_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_rescaling, &o, &o.name);
}

static manta_status normalization_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                       manta_value *out)
{
    const manta_normalization_options *o = options;
    op_normalize_attrs attrs = {.n = o->n, .mean = o->mean, .variance = o->variance, .invert = o->invert};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_last_axis(l, in[0], o->axis));
    if (o->n < 1 || !o->mean || !o->variance) {
        return manta_fail(MANTA_EINVAL, "expected a mean and a variance, given none");
    }
    for (int64_t i = 0; i < o->n; i++) {
        if (!(o->variance[i] >= 0)) {
            return manta_fail(MANTA_EINVAL, "expected variances of at least 0, given %g for channel %lld",
                              (double)o->variance[i], (long long)i);
        }
    }
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_normalize, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field normalization_fields[] = {
    LAYER_FIELD_EXTRA(manta_normalization_options, "mean", FLOATS, mean, n),
    LAYER_FIELD_EXTRA(manta_normalization_options, "variance", FLOATS, variance, n),
    LAYER_FIELD(manta_normalization_options, "invert", BOOL, invert),
    LAYER_FIELD(manta_normalization_options, "axis", INT, axis),
};

const manta_layer_class layer_normalization = {"Normalization", sizeof(manta_normalization_options),
                                               normalization_fields, 4, normalization_call};

manta_layer *manta_normalization(manta_model *m, manta_normalization_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_normalization, &o, &o.name);
}
