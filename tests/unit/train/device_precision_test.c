/* device_precision_test.c - sessions on a device in precisions float32 and mixed_bfloat16: gradients close to those of
 * exact, the same bytes twice, and what is taken when nobody says. */
#include "device_twins.h"

#include <manta/model.h>
#include <math.h>

#include "nn/graph.h"

typedef struct samples {
    float x[8 * 784];
    int64_t y[8];
} samples;

static manta_feed samples_feed(samples *d, int64_t n)
{
    manta_feed f = {.count = n, .n_inputs = 1, .n_targets = 1};

    for (int64_t i = 0; i < n * 784; i++) d->x[i] = (float)(i * 2654435761 % 1000) / 1000.0f;
    for (int64_t i = 0; i < n; i++) d->y[i] = i * 7 % 10;
    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 3, (int64_t[]){n, 28, 28}, d->x);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){n}, d->y);
    return f;
}

/* A session of plain descent, whose weights move by a hundredth of their gradients. */
static manta_session *open_descent(const manta_model *m, const char *device, const char *precision)
{
    manta_optimizer opt;
    manta_session *s;

    assert_ok(manta_optimizer_named("sgd", &opt));
    opt.learning_rate = 0.01;
    assert_ok(manta_session_open(
        (manta_model *)(uintptr_t)m,
        &(manta_compile){
            .optimizer = &opt, .n_losses = 1, .losses = &cross_entropy, .n_metrics = 1, .metrics = &accuracy},
        &(manta_session_options){.threads = 2, .seed = 5, .device = device, .precision = precision}, &s));
    return s;
}

/* Convolutions with batch norm behind them. */
static manta_model *normed_model(void)
{
    manta_model *m = manta_model_new("normed");

    manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}));
    for (int i = 0; i < 2; i++) {
        manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){
                                               .filters = 8, .kernel_size = {3, 3}, .strides = {2, 2}}));
        manta_model_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
        manta_model_add(m, manta_activation(m, (manta_activation_options){.activation = "relu"}));
    }
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 10}));
    assert_ok(manta_model_build(m));
    return m;
}

/* The parameters after some steps; the caller frees them. */
static float *train(const char *model, const char *device, const char *precision, int64_t batch, int steps,
                    int64_t *count)
{
    static samples d;
    manta_model *m;
    manta_session *s;
    manta_feed f = samples_feed(&d, batch);
    float *params;

    if (!strcmp(model, "normed"))
        m = normed_model();
    else
        assert_ok(manta_zoo(model, &m));
    s = open_descent(m, device, precision);
    for (int i = 0; i < steps; i++) assert_ok(manta_session_step(s, &f));
    assert_ok(session_pull(s));
    *count = s->l.params_size;
    params = malloc((size_t)*count * sizeof *params);
    memcpy(params, (const char *)s->state + s->l.off_params, (size_t)*count * sizeof *params);
    manta_session_close(s);
    manta_model_free(m);
    return params;
}

/* How far the weights moved otherwise, beside how far they moved. */
static double difference(const char *model, const char *precision, int64_t batch)
{
    int64_t n;
    float *start = train(model, "cpu", "exact", batch, 0, &n),
          *want = train(model, "cpu", "exact", batch, 1, &n),
          *got = train(model, twins_device(), precision, batch, 1, &n);
    double off = 0, all = 0;

    for (int64_t i = 0; i < n; i++) {
        double moved = (double)want[i] - (double)start[i], other = (double)got[i] - (double)want[i];
        off += other * other;
        all += moved * moved;
    }
    free(start);
    free(want);
    free(got);
    assert_true(all > 0);
    return sqrt(off / all);
}

static void assert_close(const char *model, const char *precision, int64_t batch, double most)
{
    double off = difference(model, precision, batch);

    if (!(off <= most)) fail_msg("%s, %s: gradients are off by %g, expected %g", model, precision, off, most);
}

static void gradients_are_close_to_exact_ones(void **state)
{
    (void)state;
    assert_close("mlp", "float32", 8, 0.005);
    assert_close("mlp", "mixed_bfloat16", 8, 0.1);
    assert_close("mnist-cnn", "float32", 2, 0.02);
    assert_close("mnist-cnn", "mixed_bfloat16", 2, 0.2);
    assert_close("normed", "float32", 8, 0.05);
    assert_close("normed", "mixed_bfloat16", 8, 0.3);
}

static void two_runs_are_the_same(void **state)
{
    static const char *const precisions[] = {"float32", "mixed_bfloat16"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        int64_t n;
        float *a = train("mnist-cnn", twins_device(), precisions[i], 2, 2, &n),
              *b = train("mnist-cnn", twins_device(), precisions[i], 2, 2, &n);
        assert_memory_equal(a, b, (size_t)n * sizeof *a);
        free(a);
        free(b);
    }
}

static void what_is_computed_in_is_said(void **state)
{
    static const char *const given[] = {NULL, "float32", "exact", "mixed_bfloat16"},
                             *const said[] = {"float32 (products in tf32)", "float32 (products in tf32)",
                                              "exact", "mixed_bfloat16"};
    manta_model *m = model((manta_regularizer){0});

    (void)state;
    for (int i = 0; i < 4; i++) {
        manta_session *s = open_descent(m, twins_device(), given[i]);
        assert_non_null(strstr(manta_session_about(s), said[i]));
        manta_session_close(s);
    }
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(gradients_are_close_to_exact_ones),
                                       cmocka_unit_test(two_runs_are_the_same),
                                       cmocka_unit_test(what_is_computed_in_is_said)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
