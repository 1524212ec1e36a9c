/* layers_core.c - Dense, Embedding, Dropout and the activations. */
#include <math.h>

#include "base/args.h"
#include "base/option.h"
#include "nn/layer.h"
#include "nn/ops.h"

/* ---- Dense ---- */

static manta_status dense_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                               manta_value *out)
{
    const manta_dense_options *o = options;
    manta_value x[3];
    manta_array a;
    char text[96];

    TRY(layer_expect_inputs(n_in, 1));
    if (o->units < 1)
        return manta_fail(MANTA_EINVAL, "expected units of at least 1, given %lld", (long long)o->units);
    x[0] = layer_f32(l, in[0]);
    a = manta_layer_shape(l, x[0]);
    if (a.ndim < 2) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., features), given %s",
                          op_shape_text(&a, text, sizeof text));
    }
    x[1] = manta_layer_weight(l, "kernel", 2, (int64_t[]){a.shape[a.ndim - 1], o->units},
                              layer_init(o->kernel_initializer, MANTA_INIT_GLOROT_UNIFORM), 0,
                              o->kernel_regularizer, true);
    if (!o->no_bias)
        x[2] = layer_bias(l, o->units, o->bias_initializer, a.shape[a.ndim - 1], o->bias_regularizer);
    x[0] = manta_layer_apply(l, &op_dense, NULL, o->no_bias ? 2 : 3, x);
    return manta_layer_activate(l, o->activation, x[0], out);
}

static const manta_field dense_fields[] = {
    LAYER_FIELD(manta_dense_options, "units", INT, units),
    LAYER_FIELD(manta_dense_options, "activation", TEXT, activation),
    LAYER_FIELD(manta_dense_options, "use_bias", NOT, no_bias),
    LAYER_FIELD(manta_dense_options, "kernel_initializer", INIT, kernel_initializer),
    LAYER_FIELD(manta_dense_options, "bias_initializer", INIT, bias_initializer),
    LAYER_FIELD(manta_dense_options, "kernel_regularizer", REG, kernel_regularizer),
    LAYER_FIELD(manta_dense_options, "bias_regularizer", REG, bias_regularizer),
};

const manta_layer_class layer_dense = {"Dense", sizeof(manta_dense_options), dense_fields, 7, dense_call};

manta_layer *manta_dense(manta_model *m, manta_dense_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_dense, &o, &o.name);
}

/* ---- Embedding ---- */

static manta_status embedding_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                   manta_value *out)
{
    const manta_embedding_options *o = options;
    manta_initializer init = o->embeddings_initializer;
    manta_value x[2];

    TRY(layer_expect_inputs(n_in, 1));
    if (o->input_dim < 1 || o->output_dim < 1) {
        return manta_fail(MANTA_EINVAL,
                          "expected input_dim and output_dim of at least 1, given %lld and %lld",
                          (long long)o->input_dim, (long long)o->output_dim);
    }
    if (init.kind == MANTA_INIT_DEFAULT) init = (manta_initializer){MANTA_INIT_UNIFORM, -0.05f, 0.05f};
    x[0] = in[0];
    x[1] = manta_layer_weight(l, "embeddings", 2, (int64_t[]){o->input_dim, o->output_dim}, init, 0,
                              o->embeddings_regularizer, true);
    *out = manta_layer_apply(l, &op_embedding, NULL, 2, x);
    return MANTA_OK;
}

static const manta_field embedding_fields[] = {
    LAYER_FIELD(manta_embedding_options, "input_dim", INT, input_dim),
    LAYER_FIELD(manta_embedding_options, "output_dim", INT, output_dim),
    LAYER_FIELD(manta_embedding_options, "embeddings_initializer", INIT, embeddings_initializer),
    LAYER_FIELD(manta_embedding_options, "embeddings_regularizer", REG, embeddings_regularizer),
};

const manta_layer_class layer_embedding = {"Embedding", sizeof(manta_embedding_options), embedding_fields, 4,
                                           embedding_call};

manta_layer *manta_embedding(manta_model *m, manta_embedding_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_embedding, &o, &o.name);
}

/* ---- Dropout ---- */

/* Which axes share a draw, by the shape of what is drawn. */
static manta_status shared_draws(const manta_dropout_options *o, const manta_array *x,
                                 op_dropout_attrs *attrs)
{
    char given[96], shape[96];
    bool fits = o->n_noise == 0 || (o->n_noise == x->ndim && o->noise_shape[0] == -1);

    attrs->ndim = o->n_noise;
    for (int i = 1; i < o->n_noise && fits; i++) {
        attrs->shared[i] = o->noise_shape[i] == 1;
        fits = o->noise_shape[i] == 1 || o->noise_shape[i] == -1 || o->noise_shape[i] == x->shape[i];
    }
    if (fits) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED,
                      "expected a noise_shape of -1 for the batch, then -1, 1 or the length of each axis of "
                      "%s, given %s",
                      op_shape_text(x, shape, sizeof shape),
                      manta_shape_text(o->n_noise, o->noise_shape, given, sizeof given));
}

static manta_status dropout_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                 manta_value *out)
{
    const manta_dropout_options *o = options;
    op_dropout_attrs attrs = {.rate = (float)o->rate};
    manta_array a;
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    a = manta_layer_shape(l, in[0]);
    TRY(shared_draws(o, &a, &attrs));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_dropout, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field dropout_fields[] = {
    LAYER_FIELD(manta_dropout_options, "rate", FLOAT, rate),
    LAYER_FIELD_EXTRA(manta_dropout_options, "noise_shape", INTS, noise_shape, n_noise),
};

const manta_layer_class layer_dropout = {"Dropout", sizeof(manta_dropout_options), dropout_fields, 2,
                                         dropout_call};

manta_layer *manta_dropout(manta_model *m, manta_dropout_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_dropout, &o, &o.name);
}

/* ---- activations ---- */

static manta_status activation_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                    manta_value *out)
{
    const manta_activation_options *o = options;

    TRY(layer_expect_inputs(n_in, 1));
    return manta_layer_activate(l, o->activation, layer_f32(l, in[0]), out);
}

static const manta_field activation_fields[] = {
    LAYER_FIELD(manta_activation_options, "activation", TEXT, activation)};

const manta_layer_class layer_activation = {"Activation", sizeof(manta_activation_options), activation_fields,
                                            1, activation_call};

manta_layer *manta_activation(manta_model *m, manta_activation_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_activation, &o, &o.name);
}

/* A layer that is one activation with a slope. */
static manta_status slope_call(manta_layer *l, int n_in, const manta_value *in, kern_act act, double alpha,
                               manta_value *out)
{
    op_act_attrs attrs = {.act = act, .alpha = (float)alpha};
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_activation, &attrs, 1, &x);
    return MANTA_OK;
}

/* The plain relu and leaky relu have kernels, and the planner fuses the first;
 * only a ceiling or a threshold needs the general operation. */
static manta_status relu_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                              manta_value *out)
{
    const manta_relu_options *o = options;
    double most = layer_or(o->max_value, HUGE_VAL);
    op_relu_attrs attrs = {.max_value = (float)most,
                           .negative_slope = (float)o->negative_slope,
                           .threshold = (float)o->threshold};
    manta_value x;

    if (most < 0 || o->negative_slope < 0 || o->threshold < 0) {
        return manta_fail(
            MANTA_EINVAL,
            "expected max_value, negative_slope and threshold of at least 0, given %g, %g and %g",
            option_real(o->max_value, 0), o->negative_slope, o->threshold);
    }
    if (isinf(attrs.max_value) && o->threshold == 0) {
        return slope_call(l, n_in, in, o->negative_slope == 0 ? KERN_RELU : KERN_LEAKY_RELU,
                          o->negative_slope, out);
    }
    TRY(layer_expect_inputs(n_in, 1));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_relu, &attrs, 1, &x);
    return MANTA_OK;
}

static const manta_field relu_fields[] = {
    LAYER_FIELD(manta_relu_options, "max_value", FLOAT_DEFAULT, max_value),
    LAYER_FIELD(manta_relu_options, "negative_slope", FLOAT, negative_slope),
    LAYER_FIELD(manta_relu_options, "threshold", FLOAT, threshold),
};

const manta_layer_class layer_relu = {"ReLU", sizeof(manta_relu_options), relu_fields, 3, relu_call};

manta_layer *manta_relu(manta_model *m, manta_relu_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_relu, &o, &o.name);
}

static manta_status leaky_relu_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                    manta_value *out)
{
    const manta_leaky_relu_options *o = options;

    return slope_call(l, n_in, in, KERN_LEAKY_RELU, layer_or(o->negative_slope, 0.3), out);
}

static const manta_field leaky_relu_fields[] = {
    LAYER_FIELD(manta_leaky_relu_options, "negative_slope", FLOAT_DEFAULT, negative_slope)};

const manta_layer_class layer_leaky_relu = {"LeakyReLU", sizeof(manta_leaky_relu_options), leaky_relu_fields,
                                            1, leaky_relu_call};

manta_layer *manta_leaky_relu(manta_model *m, manta_leaky_relu_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_leaky_relu, &o, &o.name);
}

static manta_status elu_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                             manta_value *out)
{
    const manta_elu_options *o = options;

    return slope_call(l, n_in, in, KERN_ELU, layer_or(o->alpha, 1), out);
}

static const manta_field elu_fields[] = {LAYER_FIELD(manta_elu_options, "alpha", FLOAT_DEFAULT, alpha)};

const manta_layer_class layer_elu = {"ELU", sizeof(manta_elu_options), elu_fields, 1, elu_call};

manta_layer *manta_elu(manta_model *m, manta_elu_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_elu, &o, &o.name);
}

static manta_status softmax_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                 manta_value *out)
{
    const manta_softmax_options *o = options;
    manta_value x;

    TRY(layer_expect_inputs(n_in, 1));
    TRY(layer_expect_last_axis(l, in[0], o->axis));
    x = layer_f32(l, in[0]);
    *out = manta_layer_apply(l, &op_softmax, NULL, 1, &x);
    return MANTA_OK;
}

static const manta_field softmax_fields[] = {LAYER_FIELD(manta_softmax_options, "axis", INT, axis)};

const manta_layer_class layer_softmax = {"Softmax", sizeof(manta_softmax_options), softmax_fields, 1,
                                         softmax_call};

manta_layer *manta_softmax(manta_model *m, manta_softmax_options o)
{
    REFUSE_NULL_OR(m, NULL);
    return layer_named(m, &layer_softmax, &o, &o.name);
}
