/* layers_test.c - the classes of layers: their names, options and fields, a program's
 * own, and what is said of mistakes. Their values: layer_values_test.c. */
#include <math.h>

#include "golden.h"
#include "base/mem.h"
#include "nn/layer.h"
#include "nn/exec.h"
#include "nn/walk.h"
#include "ok.h"

/* ---- classes and options ---- */

static void every_class_is_found_by_its_name(void **state)
{
    static const char *const names[] = {"Dense",
                                        "Conv2D",
                                        "DepthwiseConv2D",
                                        "Conv2DTranspose",
                                        "MaxPooling2D",
                                        "AveragePooling2D",
                                        "GlobalAveragePooling2D",
                                        "GlobalMaxPooling2D",
                                        "BatchNormalization",
                                        "LayerNormalization",
                                        "Dropout",
                                        "Flatten",
                                        "Reshape",
                                        "Permute",
                                        "Activation",
                                        "ReLU",
                                        "LeakyReLU",
                                        "ELU",
                                        "Softmax",
                                        "Add",
                                        "Subtract",
                                        "Multiply",
                                        "Concatenate",
                                        "ZeroPadding2D",
                                        "UpSampling2D",
                                        "Rescaling",
                                        "Normalization",
                                        "Embedding",
                                        "SeparableConv2D",
                                        "Cropping2D",
                                        "LayerScale",
                                        "StochasticDepth",
                                        "CustomScaleLayer"};
    int n = (int)(sizeof names / sizeof *names);
    (void)state;

    for (int i = 0; i < n; i++) {
        assert_non_null(manta_layer_class_find(names[i]));
        assert_string_equal(manta_layer_class_find(names[i])->name, names[i]);
        assert_non_null(manta_layer_class_at(i));
    }
    assert_null(manta_layer_class_at(n));
    assert_null(manta_layer_class_at(-1));
    assert_null(manta_layer_class_find("LSTM"));
}

static void fields_lie_within_their_options(void **state)
{
    static const size_t sizes[] = {[MANTA_FIELD_INT] = 8,
                                   [MANTA_FIELD_INTS] = 8 * MANTA_MAX_DIMS,
                                   [MANTA_FIELD_PAIR] = 16,
                                   [MANTA_FIELD_PAIRS] = 32,
                                   [MANTA_FIELD_FLOAT] = 8,
                                   [MANTA_FIELD_BOOL] = 1,
                                   [MANTA_FIELD_NOT] = 1,
                                   [MANTA_FIELD_TEXT] = sizeof(char *),
                                   [MANTA_FIELD_INIT] = sizeof(manta_initializer),
                                   [MANTA_FIELD_REG] = sizeof(manta_regularizer),
                                   [MANTA_FIELD_FLOATS] = sizeof(float *),
                                   [MANTA_FIELD_FLOAT_DEFAULT] = 8};
    const manta_layer_class *cls;
    (void)state;

    for (int c = 0; (cls = manta_layer_class_at(c)); c++) {
        char *used = calloc(1, cls->options_size + 1);
        for (int i = 0; i < cls->n_fields; i++) {
            const manta_field *f = &cls->fields[i];
            assert_true(f->offset + sizes[f->kind] <= cls->options_size);
            assert_true(f->extra < cls->options_size || f->extra == 0);
            for (size_t b = f->offset; b < f->offset + sizes[f->kind]; b++) assert_int_equal(used[b]++, 0);
        }
        free(used);
    }
}

static void options_are_copied(void **state)
{
    manta_model *m = manta_model_new("m");
    char activation[] = "relu", name[] = "first";
    float mean[] = {1, 2}, variance[] = {3, 4};
    manta_layer *d, *n;
    (void)state;

    d = manta_dense(m, (manta_dense_options){.units = 3, .activation = activation, .name = name});
    n = manta_normalization(m, (manta_normalization_options){.mean = mean, .variance = variance, .n = 2});
    activation[0] = name[0] = 'x';
    mean[0] = variance[1] = 99;
    const manta_dense_options *o = manta_layer_options(d);
    const manta_normalization_options *p = manta_layer_options(n);
    assert_string_equal(o->activation, "relu");
    assert_string_equal(manta_layer_name(d), "first");
    assert_null(o->name);
    assert_true(p->mean[0] == 1 && p->mean[1] == 2 && p->variance[0] == 3 && p->variance[1] == 4);
    assert_ptr_equal(manta_layer_class_of(d), &layer_dense);
    manta_model_free(m);
}

/* What all-zero options mean; recordings always say every option. */
static void zero_options_are_keras_defaults(void **state)
{
    static const char *const classes[] = {
        "LeakyReLU", "ELU",  "LayerNormalization", "MaxPooling2D",      "AveragePooling2D", "UpSampling2D",
        "Rescaling", "ReLU", "ZeroPadding2D",      "BatchNormalization"};
    manta_model *m = manta_model_new("m");
    (void)state;

    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){9, 9, 3});
    for (int i = 0; i < 10; i++)
        manta_model_add(m, manta_layer_new(m, manta_layer_class_find(classes[i]), NULL, NULL));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(m->n_nodes, 10);
    const op_act_attrs *leaky = m->nodes[0].attrs, *elu = m->nodes[1].attrs, *relu = m->nodes[7].attrs;
    const op_ln_attrs *ln = m->nodes[2].attrs;
    const op_upsample_attrs *up = m->nodes[5].attrs;
    const op_affine_attrs *scale = m->nodes[6].attrs;
    const op_pad_attrs *pad = m->nodes[8].attrs;
    const op_bn_attrs *bn = m->nodes[9].attrs;
    assert_true(leaky->act == KERN_LEAKY_RELU && leaky->alpha == 0.3f);
    assert_true(elu->act == KERN_ELU && elu->alpha == 1);
    assert_true(relu->act == KERN_RELU);
    assert_true(ln->epsilon == 0.001f && ln->axes == 1 && ln->has_gamma && ln->has_beta);
    for (int i = 3; i < 5; i++) {
        const op_pool_attrs *w = m->nodes[i].attrs;
        assert_true(w->kh == 2 && w->kw == 2 && w->sh == 2 && w->sw == 2 && w->top == 0);
        assert_false(w->count_padding);
    }
    assert_true(up->sh == 2 && up->sw == 2 && !up->bilinear);
    assert_true(scale->scale == 1 && scale->offset == 0);
    assert_true(pad->top == 0 && pad->bottom == 0 && pad->left == 0 && pad->right == 0);
    assert_true(bn->momentum == 0.99f && bn->epsilon == 0.001f && !bn->unbiased && bn->has_gamma &&
                bn->has_beta);
    manta_model_free(m);
}

/* MANTA_ZERO says zero where the default is not. */
static void a_default_can_be_overruled_by_zero(void **state)
{
    manta_model *m = manta_model_new("m");
    const graph_node *n;
    (void)state;

    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    manta_model_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_model_add(
        m, manta_batch_normalization(m, (manta_batch_normalization_options){.momentum = MANTA_ZERO}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    n = m->nodes;
    assert_true(((const op_bn_attrs *)n[0].attrs)->momentum == 0.99f);
    assert_true(((const op_bn_attrs *)n[1].attrs)->momentum == 0);
    assert_true(((const op_bn_attrs *)n[1].attrs)->epsilon == 0.001f);
    assert_true(((const manta_batch_normalization_options *)m->layers[1]->options)->momentum == MANTA_ZERO);
    manta_model_free(m);
}

/* A zero is the default whatever its sign, and where the default is 0 MANTA_ZERO is that. */
static void a_zero_has_no_sign(void **state)
{
    manta_model *m = manta_model_new("m");
    const graph_node *n;
    const manta_relu_options *kept;

    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    manta_model_add(m, manta_batch_normalization(
                           m, (manta_batch_normalization_options){.momentum = -0.0, .epsilon = -0.0}));
    manta_model_add(m, manta_relu(m, (manta_relu_options){.max_value = MANTA_ZERO,
                                                          .negative_slope = MANTA_ZERO,
                                                          .threshold = MANTA_ZERO}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    n = m->nodes;
    assert_true(((const op_bn_attrs *)n[0].attrs)->momentum == 0.99f);
    assert_true(((const op_bn_attrs *)n[0].attrs)->epsilon == 0.001f);
    assert_true(((const op_relu_attrs *)n[1].attrs)->max_value == 0);
    assert_true(((const op_relu_attrs *)n[1].attrs)->negative_slope == 0);
    kept = m->layers[1]->options;
    assert_true(kept->max_value == MANTA_ZERO && kept->negative_slope == 0 && kept->threshold == 0);
    manta_model_free(m);
}

static void integers_are_converted_where_a_layer_computes(void **state)
{
    manta_model *m = manta_model_new("m");
    (void)state;

    manta_input(m, "x", MANTA_DTYPE_U8, 2, (int64_t[]){2, 2});
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 3}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(m->n_nodes, 3);
    assert_ptr_equal(m->nodes[1].op, &op_affine);
    assert_int_equal(m->values[m->nodes[0].out[0]].a.dtype, MANTA_DTYPE_U8);
    manta_model_free(m);
}

static void weights_have_keras_names_shapes_and_starts(void **state)
{
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[4];
        manta_init_kind init;
        bool trainable;
    } want[] = {
        {"conv2d/kernel", 4, {3, 5, 4, 6}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"conv2d/bias", 1, {6}, MANTA_INIT_ZEROS, true},
        {"batch_normalization/gamma", 1, {6}, MANTA_INIT_ONES, true},
        {"batch_normalization/beta", 1, {6}, MANTA_INIT_ZEROS, true},
        {"batch_normalization/moving_mean", 1, {6}, MANTA_INIT_ZEROS, false},
        {"batch_normalization/moving_variance", 1, {6}, MANTA_INIT_ONES, false},
        {"depthwise_conv2d/kernel", 4, {3, 3, 6, 2}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"depthwise_conv2d/bias", 1, {12}, MANTA_INIT_ZEROS, true},
        {"separable_conv2d/depthwise_kernel", 4, {3, 1, 12, 2}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"separable_conv2d/pointwise_kernel", 4, {1, 1, 24, 12}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"separable_conv2d/bias", 1, {12}, MANTA_INIT_ZEROS, true},
        {"layer_scale/gamma", 1, {12}, MANTA_INIT_CONSTANT, true},
        {"conv2d_transpose/kernel", 4, {2, 2, 3, 12}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"conv2d_transpose/bias", 1, {3}, MANTA_INIT_ZEROS, true},
        {"layer_normalization/gamma", 1, {3}, MANTA_INIT_ONES, true},
        {"layer_normalization/beta", 1, {3}, MANTA_INIT_ZEROS, true},
        {"dense/kernel", 2, {3, 7}, MANTA_INIT_TORCH, true},
        {"dense/bias", 1, {7}, MANTA_INIT_TORCH, true},
    };
    manta_model *m = manta_model_new("m");
    manta_initializer torch = {.kind = MANTA_INIT_TORCH};
    (void)state;

    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){9, 9, 8});
    manta_model_add(
        m, manta_conv2d(m, (manta_conv2d_options){.filters = 6, .kernel_size = {3, 5}, .groups = 2}));
    manta_model_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_model_add(m, manta_depthwise_conv2d(m, (manta_depthwise_conv2d_options){.kernel_size = {3, 3},
                                                                                  .depth_multiplier = 2}));
    manta_model_add(m, manta_separable_conv2d(m, (manta_separable_conv2d_options){.filters = 12,
                                                                                  .kernel_size = {3, 1},
                                                                                  .padding = "same",
                                                                                  .depth_multiplier = 2}));
    manta_model_add(
        m, manta_layer_scale(m, (manta_layer_scale_options){.init_values = 1e-6, .projection_dim = 12}));
    manta_model_add(
        m, manta_conv2d_transpose(m, (manta_conv2d_transpose_options){.filters = 3, .kernel_size = {2, 2}}));
    manta_model_add(m, manta_layer_normalization(m, (manta_layer_normalization_options){0}));
    manta_model_add(
        m, manta_dense(
               m, (manta_dense_options){.units = 7, .kernel_initializer = torch, .bias_initializer = torch}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(m->n_variables, (int)(sizeof want / sizeof *want));
    for (int i = 0; i < m->n_variables; i++) {
        const graph_variable *v = &m->variables[i];
        assert_string_equal(v->name, want[i].name);
        assert_int_equal(v->ndim, want[i].ndim);
        assert_memory_equal(v->shape, want[i].shape, (size_t)v->ndim * sizeof(int64_t));
        assert_int_equal(v->init.kind, want[i].init);
        assert_int_equal(v->trainable, want[i].trainable);
    }
    assert_int_equal(m->variables[17].fan_in, 3); /* torch starts a bias by its weight's fan-in */
    manta_model_free(m);
}

static void concatenate_takes_any_number(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_value x[20];
    (void)state;

    for (int i = 0; i < 20; i++) x[i] = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){i + 1});
    manta_output(m, manta_call_n(m, manta_merge_concatenate(m, (manta_merge_concatenate_options){0}), 20, x));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(manta_model_output(m, 0, NULL).shape[1], 210);
    manta_model_free(m);
}

/* ---- a program's own layer and operation: the example of docs/extending.md ---- */

static manta_status gain_shape(manta_op_shape *s)
{
    const manta_array *x = &s->in[0], *g = &s->in[1];

    if (s->n_in == 2 && g->ndim == 1 && g->shape[0] == x->shape[x->ndim - 1]) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected %lld channels, given %lld", (long long)g->shape[0],
                      (long long)x->shape[x->ndim - 1]);
}

static manta_status gain_forward(const manta_op_call *c)
{
    const float *x = c->in[0].data, *g = c->in[1].data;
    float *y = c->out[0].data;

    for (int64_t i = 0, n = manta_array_count(&c->in[0]), k = c->in[1].shape[0]; i < n; i++)
        y[i] = x[i] * g[i % k];
    return MANTA_OK;
}

static manta_status gain_backward(const manta_op_call *c)
{
    const float *x = c->in[0].data, *g = c->in[1].data, *dy = c->dout[0].data;
    int64_t n = manta_array_count(&c->dout[0]), k = c->in[1].shape[0];
    float *dx = c->din[0].data, *dg = c->din[1].data;

    for (int64_t i = 0; dx && i < n; i++) dx[i] = dy[i] * g[i % k] + (c->accumulate[0] ? dx[i] : 0);
    for (int64_t i = 0; dg && !c->accumulate[1] && i < k; i++) dg[i] = 0;
    for (int64_t i = 0; dg && i < n; i++) dg[i % k] += dy[i] * x[i];
    return MANTA_OK;
}

static const manta_op gain_op = {.name = "gain",
                                 .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1),
                                 .shape = gain_shape,
                                 .forward = gain_forward,
                                 .backward = gain_backward};

typedef struct gain_options {
    double start;
} gain_options;

static manta_status gain_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                              manta_value *out)
{
    const gain_options *o = options;
    manta_array a = manta_layer_shape(l, in[0]);
    manta_initializer init = {MANTA_INIT_CONSTANT, o->start != 0 ? (float)o->start : 1, 0};
    manta_value x[2] = {in[0]};

    if (n_in != 1) return manta_fail(MANTA_EINVAL, "expected 1 input, given %d", n_in);
    x[1] = manta_layer_weight(l, "gain", 1, &a.shape[a.ndim - 1], init, 0, (manta_regularizer){0}, true);
    *out = manta_layer_apply(l, &gain_op, NULL, 2, x);
    return MANTA_OK;
}

static const manta_field gain_fields[] = {{"start", MANTA_FIELD_FLOAT, offsetof(gain_options, start), 0}};
static const manta_layer_class gain_class = {"Gain", sizeof(gain_options), gain_fields, 1, gain_call};

static void a_program_adds_a_layer_and_an_operation(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_value x = manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    pool *p;
    walk w;
    (void)state;

    x = manta_call(m, manta_layer_new(m, &gain_class, NULL, &(gain_options){.start = 0.5}), x);
    x = manta_call(m, manta_layer_new(m, &gain_class, NULL, NULL), x);
    manta_output(m, x);
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_string_equal(m->variables[1].name, "gain_1/gain");
    assert_true(m->variables[0].init.a == 0.5f && m->variables[1].init.a == 1);
    assert_int_equal(pool_new(1, KERN_SCRATCH, &p), MANTA_OK);
    walk_open(&w, m, kernels_of(KERN_REFERENCE), p, 2, true);
    memcpy(w.v[m->inputs[0].value].data, (float[]){1, 2, 3, 4, 5, 6}, 6 * sizeof(float));
    memcpy(w.v[m->variables[0].value].data, (float[]){2, 3, 4}, 3 * sizeof(float));
    memcpy(w.v[m->variables[1].value].data, (float[]){1, 10, 100}, 3 * sizeof(float));
    assert_int_equal(walk_forward(&w), MANTA_OK);
    assert_memory_equal(w.v[x.id].data, ((float[]){2, 60, 1200, 8, 150, 2400}), 6 * sizeof(float));
    memcpy(w.g[x.id].data, (float[]){1, 1, 1, 1, 1, 1}, 6 * sizeof(float));
    assert_int_equal(walk_backward(&w), MANTA_OK);
    assert_memory_equal(w.g[m->inputs[0].value].data, ((float[]){2, 30, 400, 2, 30, 400}), 6 * sizeof(float));
    assert_memory_equal(w.g[m->variables[0].value].data, ((float[]){5, 70, 900}), 3 * sizeof(float));
    assert_memory_equal(w.g[m->variables[1].value].data, ((float[]){10, 21, 36}), 3 * sizeof(float));
    walk_close(&w);
    pool_free(p);
    manta_model_free(m);
}

/* ---- sentences ---- */

/* The sentence of building one layer on an input of that shape. */
static const char *refused(manta_model *m, manta_layer *l, int ndim, const int64_t *shape,
                           manta_status status)
{
    static char text[512];

    manta_call(m, l, manta_input(m, "x", MANTA_DTYPE_F32, ndim, shape));
    assert_int_equal(manta_model_build(m), status);
    snprintf(text, sizeof text, "%s", manta_error_text());
    manta_model_free(m);
    return text;
}

#define REFUSED(constructor, options, ndim, shape, status, sentence)                                         \
    do {                                                                                                     \
        manta_model *refused_m = manta_model_new("m");                                                       \
        assert_string_equal(refused(refused_m, constructor(refused_m, options), ndim, shape, status),        \
                            "model 'm': layer " sentence);                                                   \
    } while (0)
#define SHAPE(...) ((int64_t[]){__VA_ARGS__})
#define MAP        "expected an input of shape (batch, height, width, channels), given "

static void errors_name_layer_expected_and_given(void **state)
{
    float variance[] = {1, -1};
    (void)state;

    REFUSED(manta_dense, ((manta_dense_options){.units = 0}), 1, SHAPE(4), MANTA_EINVAL,
            "'dense': expected units of at least 1, given 0");
    REFUSED(manta_dense, ((manta_dense_options){.units = 2}), 0, SHAPE(0), MANTA_EINVAL,
            "'dense': expected an input of shape (batch, ..., features), given (batch,)");
    REFUSED(manta_dense, ((manta_dense_options){.units = 2, .activation = "rleu"}), 1, SHAPE(4), MANTA_ENOENT,
            "'dense': no activation is called 'rleu'; there are linear, relu, relu6, leaky_relu, elu, gelu, "
            "gelu_tanh, "
            "silu, swish, sigmoid, tanh, hard_sigmoid, hard_silu, hard_swish, softmax; did you mean relu?");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}}), 2, SHAPE(28, 28),
            MANTA_EINVAL, "'conv2d': " MAP "(batch, 28, 28)");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}}), 3, SHAPE(2, 9, 1),
            MANTA_EINVAL,
            "'conv2d': expected a padded height and width of at least 3 and 3, given (batch, 2, 9, 1)");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8}), 3, SHAPE(2, 9, 1), MANTA_EINVAL,
            "'conv2d': expected a kernel_size of at least (1, 1), given (0, 0)");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}, .groups = 3}), 3,
            SHAPE(9, 9, 4), MANTA_EINVAL,
            "'conv2d': expected channels and filters that 3 groups divide, given 4 and 8");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}, .padding = "full"}), 3,
            SHAPE(9, 9, 4), MANTA_EINVAL,
            "'conv2d': expected padding 'valid', 'same' or 'explicit', given 'full'");
    REFUSED(manta_depthwise_conv2d, ((manta_depthwise_conv2d_options){.kernel_size = {3, 3}}), 1, SHAPE(9),
            MANTA_EINVAL, "'depthwise_conv2d': " MAP "(batch, 9)");
    REFUSED(manta_conv2d_transpose,
            ((manta_conv2d_transpose_options){.filters = 2, .kernel_size = {3, 3}, .output_padding = {2, 2}}),
            3, SHAPE(9, 9, 4), MANTA_EINVAL,
            "'conv2d_transpose': expected an output_padding below the stride 1, given 2");
    REFUSED(manta_conv2d_transpose,
            ((manta_conv2d_transpose_options){.filters = 2, .kernel_size = {3, 3}, .output_padding = {1, 0}}),
            3, SHAPE(9, 9, 4), MANTA_EINVAL,
            "'conv2d_transpose': expected an output_padding for both axes or none (MANTA_ZERO is 0), given "
            "(1, 0)");
    REFUSED(
        manta_max_pooling2d, ((manta_pooling2d_options){0}), 3, SHAPE(1, 9, 4), MANTA_EINVAL,
        "'max_pooling2d': expected a padded height and width of at least 2 and 2, given (batch, 1, 9, 4)");
    REFUSED(manta_average_pooling2d, ((manta_pooling2d_options){0}), 1, SHAPE(9), MANTA_EINVAL,
            "'average_pooling2d': " MAP "(batch, 9)");
    REFUSED(manta_global_max_pooling2d, ((manta_global_pooling2d_options){0}), 1, SHAPE(9), MANTA_EINVAL,
            "'global_max_pooling2d': " MAP "(batch, 9)");
    REFUSED(manta_batch_normalization, ((manta_batch_normalization_options){.axis = 1}), 3, SHAPE(9, 9, 4),
            MANTA_EUNSUPPORTED,
            "'batch_normalization': expected axis 3, the last of (batch, 9, 9, 4), given 1");
    REFUSED(manta_layer_normalization, ((manta_layer_normalization_options){.axis = {1, 3}, .n_axis = 2}), 3,
            SHAPE(9, 9, 4), MANTA_EUNSUPPORTED,
            "'layer_normalization': expected the last axes of (batch, 9, 9, 4), given axis (1, 3)");
    REFUSED(manta_separable_conv2d, ((manta_separable_conv2d_options){.kernel_size = {3, 3}}), 3,
            SHAPE(9, 9, 4), MANTA_EINVAL,
            "'separable_conv2d': expected filters and a depth_multiplier of at least 1, given 0 and 1");
    REFUSED(manta_cropping2d, ((manta_cropping2d_options){.cropping = {{2, 1}, {0, 0}}}), 3, SHAPE(3, 9, 4),
            MANTA_EINVAL,
            "'cropping2d': expected a height and width above (3, 0), which cropping takes, given (batch, 3, "
            "9, 4)");
    REFUSED(manta_layer_scale, ((manta_layer_scale_options){.projection_dim = 5}), 3, SHAPE(9, 9, 4),
            MANTA_EINVAL,
            "'layer_scale': expected an input of shape (batch, ..., 5), given (batch, 9, 9, 4)");
    REFUSED(manta_stochastic_depth, ((manta_stochastic_depth_options){.drop_path_rate = 1}), 1, SHAPE(9),
            MANTA_EINVAL, "'stochastic_depth': expected a rate of at least 0 and below 1, given 1");
    REFUSED(manta_merge_custom_scale, ((manta_merge_custom_scale_options){.scale = 1}), 1, SHAPE(9),
            MANTA_EINVAL, "'custom_scale_layer': expected 2 inputs, given 1");
    REFUSED(manta_dropout, ((manta_dropout_options){.rate = 0.5, .noise_shape = {-1, 1, 2}, .n_noise = 3}), 2,
            SHAPE(4, 4), MANTA_EUNSUPPORTED,
            "'dropout': expected a noise_shape of -1 for the batch, then -1, 1 or the length of each axis of "
            "(batch, 4, 4), given (-1, 1, 2)");
    REFUSED(
        manta_normalization,
        ((manta_normalization_options){.mean = (float[]){0}, .variance = (float[]){1}, .n = 1, .axis = 1}), 2,
        SHAPE(4, 4), MANTA_EUNSUPPORTED,
        "'normalization': expected axis 2, the last of (batch, 4, 4), given 1");
    REFUSED(manta_dropout, ((manta_dropout_options){.rate = 1.5}), 1, SHAPE(9), MANTA_EINVAL,
            "'dropout': expected a rate of at least 0 and below 1, given 1.5");
    REFUSED(manta_reshape, ((manta_reshape_options){.shape = {5, -1}, .ndim = 2}), 2, SHAPE(4, 4),
            MANTA_EINVAL,
            "'reshape': expected a multiple of 5 elements per sample for (5, -1), given (batch, 4, 4)");
    REFUSED(manta_reshape, ((manta_reshape_options){.shape = {5, 3}, .ndim = 2}), 2, SHAPE(4, 4),
            MANTA_EINVAL,
            "'reshape': expected 15 elements per sample, as (batch, 5, 3) has, given (batch, 4, 4) with 16");
    REFUSED(manta_reshape, ((manta_reshape_options){.shape = {-1, -1}, .ndim = 2}), 2, SHAPE(4, 4),
            MANTA_EINVAL,
            "'reshape': expected a target_shape of positive numbers and at most one -1, given (-1, -1)");
    REFUSED(manta_permute, ((manta_permute_options){.dims = {2, 2}, .ndim = 2}), 2, SHAPE(4, 4), MANTA_EINVAL,
            "'permute': expected each of the dimensions 1 to 2 once, given 2");
    REFUSED(manta_relu, ((manta_relu_options){.negative_slope = -1}), 1, SHAPE(4), MANTA_EINVAL,
            "'re_lu': expected max_value, negative_slope and threshold of at least 0, given 0, -1 and 0");
    REFUSED(manta_softmax, ((manta_softmax_options){.axis = 1}), 2, SHAPE(4, 4), MANTA_EUNSUPPORTED,
            "'softmax': expected axis 2, the last of (batch, 4, 4), given 1");
    REFUSED(manta_merge_concatenate, ((manta_merge_concatenate_options){.axis = 2}), 1, SHAPE(4),
            MANTA_EINVAL, "'concatenate': expected an axis from 1 to 1 for (batch, 4), given 2");
    REFUSED(manta_zero_padding2d, ((manta_zero_padding2d_options){0}), 1, SHAPE(4), MANTA_EINVAL,
            "'zero_padding2d': " MAP "(batch, 4)");
    REFUSED(manta_upsampling2d, ((manta_upsampling2d_options){.interpolation = "cubic"}), 3, SHAPE(4, 4, 1),
            MANTA_EUNSUPPORTED,
            "'up_sampling2d': expected interpolation 'nearest' or 'bilinear', given 'cubic'");
    REFUSED(manta_normalization, ((manta_normalization_options){0}), 1, SHAPE(4), MANTA_EINVAL,
            "'normalization': expected a mean and a variance, given none");
    REFUSED(manta_normalization,
            ((manta_normalization_options){.mean = variance, .variance = variance, .n = 2}), 1, SHAPE(2),
            MANTA_EINVAL, "'normalization': expected variances of at least 0, given -1 for channel 1");
    REFUSED(manta_embedding, ((manta_embedding_options){.input_dim = 4}), 1, SHAPE(2), MANTA_EINVAL,
            "'embedding': expected input_dim and output_dim of at least 1, given 4 and 0");
}

static void merging_other_shapes_is_refused(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_value x[3];
    (void)state;

    x[0] = manta_input(m, "a", MANTA_DTYPE_F32, 2, SHAPE(3, 5));
    x[1] = manta_input(m, "b", MANTA_DTYPE_F32, 2, SHAPE(3, 4));
    manta_call_n(m, manta_merge_add(m), 2, x);
    assert_int_equal(manta_model_build(m), MANTA_EINVAL);
    assert_string_equal(
        manta_error_text(),
        "model 'm': layer 'add': expected inputs of one shape, given (batch, 3, 5) and (batch, 3, 4)");
    manta_model_free(m);

    m = manta_model_new("m");
    for (int i = 0; i < 3; i++) x[i] = manta_input(m, NULL, MANTA_DTYPE_F32, 1, SHAPE(3));
    manta_call_n(m, manta_merge_subtract(m), 3, x);
    assert_int_equal(manta_model_build(m), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "model 'm': layer 'subtract': expected 2 inputs, given 3");
    manta_model_free(m);
}

static void a_shared_layer_keeps_its_shape(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_layer *l = manta_dense(m, (manta_dense_options){.units = 2});
    (void)state;

    manta_call(m, l, manta_input(m, "a", MANTA_DTYPE_F32, 1, SHAPE(3)));
    manta_call(m, l, manta_input(m, "b", MANTA_DTYPE_F32, 1, SHAPE(4)));
    assert_int_equal(manta_model_build(m), MANTA_EINVAL);
    assert_error_says("layer 'dense'");
    assert_error_says("(3, 2)");
    assert_error_says("(4, 2)");
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_class_is_found_by_its_name),
        cmocka_unit_test(fields_lie_within_their_options),
        cmocka_unit_test(options_are_copied),
        cmocka_unit_test(zero_options_are_keras_defaults),
        cmocka_unit_test(a_default_can_be_overruled_by_zero),
        cmocka_unit_test(a_zero_has_no_sign),
        cmocka_unit_test(integers_are_converted_where_a_layer_computes),
        cmocka_unit_test(weights_have_keras_names_shapes_and_starts),
        cmocka_unit_test(concatenate_takes_any_number),
        cmocka_unit_test(a_program_adds_a_layer_and_an_operation),
        cmocka_unit_test(errors_name_layer_expected_and_given),
        cmocka_unit_test(merging_other_shapes_is_refused),
        cmocka_unit_test(a_shared_layer_keeps_its_shape),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
