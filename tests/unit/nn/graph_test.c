/* Building models: what comes out, and the one sentence of what cannot be. */
#include "nn/net.h"
#include "ok.h"

static void assert_build_fails(manta_model *m, manta_status code, const char *text)
{
    assert_fails_with(manta_model_build(m), code, text);
    manta_model_free(m);
}

static manta_value input(manta_model *m, int64_t n)
{
    return manta_input(m, NULL, MANTA_DTYPE_F32, 1, &n);
}

static void sequential_and_functional_agree(void **state)
{
    manta_model *a = manta_model_new("a"), *b = manta_model_new("b");
    manta_value x;

    (void)state;
    input(a, 8);
    manta_model_add(a, manta_dense(a, (manta_dense_options){.units = 4, .activation = "relu"}));
    manta_model_add(a, manta_dense(a, (manta_dense_options){.units = 2}));
    x = input(b, 8);
    x = manta_call(b, manta_dense(b, (manta_dense_options){.units = 4, .activation = "relu"}), x);
    x = manta_call(b, manta_dense(b, (manta_dense_options){.units = 2}), x);
    manta_output(b, x);
    assert_ok(manta_model_build(a));
    assert_ok(manta_model_build(b));
    assert_int_equal(manta_model_variables(a), 4);
    assert_int_equal(manta_model_params(a, false), 8 * 4 + 4 + 4 * 2 + 2);
    for (int i = 0; i < 4; i++) {
        manta_variable_info u = manta_model_variable(a, i), v = manta_model_variable(b, i);
        assert_string_equal(u.name, v.name);
        assert_int_equal(u.ndim, v.ndim);
    }
    assert_string_equal(manta_model_variable(a, 2).name, "dense_1/kernel");
    assert_true(a->sequential && !b->sequential);
    manta_model_free(a);
    manta_model_free(b);
}

static void shape_errors_name_layer_and_shapes(void **state)
{
    manta_model *m = manta_model_new("bad");
    manta_value pair[2];

    (void)state;
    pair[0] = manta_input(m, "left", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    pair[1] = manta_input(m, "right", MANTA_DTYPE_F32, 1, (int64_t[]){5});
    manta_output(m, manta_call_n(m, manta_merge_add(m), 2, pair));
    assert_int_equal(manta_model_build(m), MANTA_EINVAL);
    assert_error_says("model 'bad': layer 'add'");
    assert_error_says("4");
    assert_error_says("5");
    manta_model_free(m);
}

static void a_shared_layer_called_on_another_shape(void **state)
{
    manta_model *m = manta_model_new("shared");
    manta_layer *d = manta_dense(m, (manta_dense_options){.units = 3});
    manta_value a = input(m, 4), b = input(m, 5);

    (void)state;
    manta_output(m, manta_call(m, d, a));
    manta_output(m, manta_call(m, d, b));
    assert_build_fails(m, MANTA_EINVAL, "its kernel is (4, 3) and would have to be (5, 3)");
}

static void errors_latch_and_the_first_is_told(void **state)
{
    manta_model *m = manta_model_new("latch");
    manta_value x = input(m, 4);

    (void)state;
    x = manta_call(m, manta_conv2d(m, (manta_conv2d_options){.filters = 2, .kernel_size = {3, 3}}), x);
    assert_int_equal(x.id, -1);
    for (int i = 0; i < 5; i++) x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 2}), x);
    manta_output(m, x);
    assert_build_fails(m, MANTA_EINVAL, "layer 'conv2d'");
}

static void other_mistakes(void **state)
{
    manta_model *m, *other;
    manta_layer *l;
    manta_value x;

    (void)state;
    m = manta_model_new("empty");
    assert_build_fails(m, MANTA_EINVAL, "no input");
    m = manta_model_new("early");
    manta_model_add(m, manta_flatten(m));
    assert_build_fails(m, MANTA_EINVAL, "before any input");
    m = manta_model_new("zero");
    manta_input(m, "x", MANTA_DTYPE_F32, 2, (int64_t[]){4, 0});
    assert_build_fails(m, MANTA_EINVAL, "dimension 1 of input 'x' is 0");
    m = manta_model_new("dims");
    manta_input(m, "x", MANTA_DTYPE_F32, 99, (int64_t[]){1});
    assert_build_fails(m, MANTA_EINVAL, "99 dimensions");
    m = manta_model_new("mine");
    other = manta_model_new("other");
    l = manta_dense(other, (manta_dense_options){.units = 1});
    x = input(m, 2);
    manta_call(m, l, x);
    assert_build_fails(m, MANTA_EINVAL, "belongs to model 'other'");
    manta_model_free(other);
    m = manta_model_new("twice");
    x = input(m, 2);
    manta_output_named(m, "y", x);
    manta_output_named(m, "y", x);
    assert_build_fails(m, MANTA_EEXIST, "two outputs are called 'y'");
    m = manta_model_new("late");
    x = input(m, 2);
    manta_output(m, x);
    assert_ok(manta_model_build(m));
    manta_call(m, manta_flatten(m), x);
    assert_build_fails(m, MANTA_EINVAL, "built already");
}

static void nested_models_share_their_weights(void **state)
{
    manta_model *inner = manta_model_new("encoder"), *m = manta_model_new("outer");
    manta_layer *nest;
    manta_value x, y, pair[2];

    (void)state;
    input(inner, 6);
    manta_model_add(inner, manta_dense(inner, (manta_dense_options){.units = 6}));
    assert_ok(manta_model_build(inner));
    x = input(m, 6);
    nest = manta_nested(m, inner);
    manta_model_free(inner);
    y = manta_call(m, nest, x);
    y = manta_call(m, nest, y);
    pair[0] = x;
    pair[1] = y;
    manta_output(m, manta_call_n(m, manta_merge_subtract(m), 2, pair));
    assert_ok(manta_model_build(m));
    assert_int_equal(manta_model_variables(m), 2);
    assert_string_equal(manta_model_variable(m, 0).name, "encoder/dense/kernel");
    assert_int_equal(manta_model_params(m, true), 42);
    assert_ok(manta_model_freeze(m, "encoder", true));
    assert_int_equal(manta_model_params(m, true), 0);
    assert_int_equal(manta_model_freeze(m, "decoder*", true), MANTA_ENOENT);
    manta_model_free(m);
}

static void names_as_keras_makes_them(void **state)
{
    static const char *const names[][2] = {{"Conv2D", "conv2d"},
                                           {"MaxPooling2D", "max_pooling2d"},
                                           {"ReLU", "re_lu"},
                                           {"LeakyReLU", "leaky_re_lu"},
                                           {"ELU", "elu"},
                                           {"ZeroPadding2D", "zero_padding2d"},
                                           {"BatchNormalization", "batch_normalization"},
                                           {"PReLU", "p_re_lu"},
                                           {"GlobalAveragePooling2D", "global_average_pooling2d"}};
    char buf[64];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        graph_snake_case(names[i][0], buf);
        assert_string_equal(buf, names[i][1]);
    }
}

/* ---- a program's own operation and layer, through the public table ---- */

static manta_status square_shape(manta_op_shape *s)
{
    return s->n_in == 1 ? MANTA_OK : manta_fail(MANTA_EINVAL, "square takes one value, not %d", s->n_in);
}

static manta_status square_forward(const manta_op_call *c)
{
    const float *x = c->in[0].data;
    float *y = c->out[0].data;

    for (int64_t i = 0; i < manta_array_count(&c->in[0]); i++) y[i] = x[i] * x[i];
    return MANTA_OK;
}

static manta_status square_backward(const manta_op_call *c)
{
    const float *x = c->in[0].data, *dy = c->dout[0].data;
    float *dx = c->din[0].data;

    for (int64_t i = 0; dx && i < manta_array_count(&c->in[0]); i++) {
        dx[i] = 2 * x[i] * dy[i] + (c->accumulate[0] ? dx[i] : 0);
    }
    return MANTA_OK;
}

static const manta_op square = {.name = "square",
                                .flags = MANTA_OP_READS_INPUT(0),
                                .shape = square_shape,
                                .forward = square_forward,
                                .backward = square_backward};

typedef struct scale_options {
    double start;
} scale_options;

/* y = x^2 * w, w one number per channel. */
static manta_status scale_call(manta_layer *l, const void *options, int n, const manta_value *in,
                               manta_value *out)
{
    const scale_options *o = options;
    manta_array a = manta_layer_shape(l, in[0]);
    manta_value pair[2];

    if (n != 1) return manta_fail(MANTA_EINVAL, "expected one value");
    pair[0] = manta_layer_apply(l, &square, NULL, 1, in);
    pair[1] = manta_layer_weight(l, "w", 2, (int64_t[]){1, a.shape[a.ndim - 1]},
                                 (manta_initializer){MANTA_INIT_CONSTANT, (float)o->start, 0}, 0,
                                 (manta_regularizer){0}, true);
    *out = manta_layer_apply(l, manta_op_find("multiply"), NULL, 2, pair);
    return MANTA_OK;
}

static const manta_layer_class scale_class = {
    .name = "SquareScale", .options_size = sizeof(scale_options), .call = scale_call};

static void a_layer_of_the_users_own(void **state)
{
    manta_model *m = manta_model_new("own");
    manta_value x = input(m, 3);
    net t;
    manta_array y;

    (void)state;
    x = manta_call(m, manta_layer_new(m, &scale_class, NULL, &(scale_options){.start = 1.5}), x);
    manta_output(m, x);
    net_open(&t, m, false, 2, 1, NULL, NULL);
    assert_string_equal(manta_model_variable(m, 0).name, "square_scale/w");
    net_loss(&t);
    y = exec_output(t.e, 0);
    for (int i = 0; i < 6; i++) {
        float v = ((float *)t.x.data)[i];
        assert_true(((float *)y.data)[i] == v * v * 1.5f);
    }
    assert_ok(exec_backward(t.e, &t.run));
    for (int c = 0; c < 3; c++) {
        float want = 0;
        for (int r = 0; r < 2; r++) {
            float v = ((float *)t.x.data)[3 * r + c], e = v * v * 1.5f - ((float *)t.y.data)[3 * r + c];
            want += 2 * e / 3 * v * v;
        }
        assert_float_equal(layout_slot_grads(&t.l, t.slot)[c], want, 1e-6);
    }
    net_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential_and_functional_agree),
        cmocka_unit_test(shape_errors_name_layer_and_shapes),
        cmocka_unit_test(a_shared_layer_called_on_another_shape),
        cmocka_unit_test(errors_latch_and_the_first_is_told),
        cmocka_unit_test(other_mistakes),
        cmocka_unit_test(nested_models_share_their_weights),
        cmocka_unit_test(names_as_keras_makes_them),
        cmocka_unit_test(a_layer_of_the_users_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
