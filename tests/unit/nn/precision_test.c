/* Models in mixed bfloat16: near float32, the same bits whatever the threads and
 * the family, and what is rounded and what is not. */
#include "nn/net.h"
#include "ok.h"

#include <math.h>
#include <stdio.h>

#include "tensor/bf16.h"

static manta_model *zoo_cnn(void)
{
    manta_model *m = NULL;

    assert_ok(manta_zoo("mnist-cnn", &m));
    return m;
}

static manta_model *zoo_resnet(void)
{
    manta_model *m = NULL;

    assert_ok(manta_zoo("resnet18", &m));
    return m;
}

/* Loss and slot of one training step. */
static double step_slot(net *t)
{
    double loss = net_loss(t);

    assert_ok(exec_backward(t->e, &t->run));
    return loss;
}

/* ---- how near it is ---- */

static double norm_of(const float *v, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++) sum += (double)v[i] * (double)v[i];
    return sqrt(sum);
}

/* How near a gradient is to float32's, in its own length. Rounding takes 2^-9 of a number, and what a dense layer sums
 * is right to a few of these; sums over the positions of a map cancel, and lose ten times as much. */
static double tolerance_of(const char *variable)
{
    return strstr(variable, "conv") || strstr(variable, "batch") ? 0.15 : 0.01;
}

/* exec_test.c holds the gradients of float32 against finite differences. */
static void check_against_float32(manta_model *m, int64_t batch)
{
    float *want, *diff;
    double loss;
    net t;

    net_open(&t, m, true, batch, 2, NULL, NULL);
    want = mem_try((size_t)t.l.params_size * sizeof *want);
    diff = mem_try((size_t)t.l.params_size * sizeof *diff);
    loss = step_slot(&t);
    memcpy(want, t.slot, (size_t)t.l.params_size * sizeof *want);
    net_set_precision(&t, KERN_BF16);
    assert_true(fabs(step_slot(&t) - loss) < 0.02 * loss);
    for (int i = 0; i < t.l.n_params; i++) {
        const layout_variable *v = &t.l.params[i];
        const float *got = (const float *)t.slot + v->offset;
        double length = norm_of(want + v->offset, v->count), off;
        for (int64_t j = 0; j < v->count; j++) diff[j] = got[j] - want[v->offset + j];
        off = norm_of(diff, v->count);
        assert_true(off > 0); /* it was computed in another precision */
        if (off > tolerance_of(t.m->variables[v->variable].name) * length)
            fail_msg("%s: the gradient is off by %g of %g", t.m->variables[v->variable].name, off, length);
    }
    mem_try_free(want);
    mem_try_free(diff);
    net_close(&t);
}

static void gradients_are_near_those_of_float32(void **state)
{
    (void)state;
    check_against_float32(net_mixed(), 32);
    check_against_float32(zoo_cnn(), 8);
}

/* ---- the same bits ---- */

static void *slot_of(manta_model *m, int64_t batch, int threads, const char *family, size_t *size)
{
    net t;
    void *copy;

    net_open(&t, m, true, batch, threads, family, NULL);
    net_set_precision(&t, KERN_BF16);
    step_slot(&t);
    *size = t.l.slot_size;
    copy = mem_try(*size);
    memcpy(copy, t.slot, *size);
    net_close(&t);
    return copy;
}

static void assert_same_slot(manta_model *(*make)(void), int64_t batch, const char *first, int threads,
                             const char *family)
{
    size_t a_size, b_size;
    void *a = slot_of(make(), batch, 1, first, &a_size),
         *b = slot_of(make(), batch, threads, family, &b_size);

    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    mem_try_free(a);
    mem_try_free(b);
}

static void same_bits_for_threads_and_families(void **state)
{
    (void)state;
    for (int f = KERN_REFERENCE; f <= KERN_AVX512; f++) {
        const kernels *k = kernels_of((kern_family)f);
        if (!k) continue;
        for (int threads = 1; threads <= 3; threads++)
            assert_same_slot(net_mixed, 9, "reference", threads, k->name);
    }
}

static void same_bits_for_models_of_the_zoo(void **state)
{
    (void)state;
    assert_same_slot(zoo_cnn, 5, "auto", 2, "auto");
    assert_same_slot(zoo_resnet, 6, "auto", 2, "auto");
    if (!kernels_of(KERN_AVX2)) return;
    assert_same_slot(zoo_cnn, 5, "auto", 1, "avx2");
    assert_same_slot(zoo_resnet, 3, "auto", 2, "avx2");
}

/* ---- what is rounded ---- */

/* Multiplies what it is given by four thirds, and keeps count of what it saw that is not rounded. */
static int64_t seen, seen_back, not_rounded;

static void look_at(const manta_array *a, int64_t *count)
{
    const float *v = a->data;

    for (int64_t i = 0; i < manta_array_count(a); i++) {
        (*count)++;
        not_rounded += half_bits(bf16_round(v[i])) != half_bits(v[i]);
    }
}

static manta_status probe_shape(manta_op_shape *s)
{
    (void)s;
    return MANTA_OK;
}

static manta_status probe_forward(const manta_op_call *c)
{
    const float *x = c->in[0].data;
    float *y = c->out[0].data;

    look_at(&c->in[0], &seen);
    for (int64_t i = 0; i < manta_array_count(&c->in[0]); i++) y[i] = x[i] * 1.3333333f;
    return MANTA_OK;
}

static manta_status probe_backward(const manta_op_call *c)
{
    const float *dy = c->dout[0].data;
    float *dx = c->din[0].data;

    look_at(&c->dout[0], &seen_back);
    for (int64_t i = 0; dx && i < manta_array_count(&c->din[0]); i++)
        dx[i] = (c->accumulate[0] ? dx[i] : 0) + dy[i] * 1.3333333f;
    return MANTA_OK;
}

static const manta_op probe = {
    .name = "probe", .shape = probe_shape, .forward = probe_forward, .backward = probe_backward};

static manta_status probe_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                               manta_value *out)
{
    (void)options;
    *out = manta_layer_apply(l, &probe, NULL, n_in, in);
    return MANTA_OK;
}

static const manta_layer_class probe_class = {"Probe", 0, NULL, 0, probe_call};

static manta_value probed(manta_model *m, manta_value x)
{
    return manta_call(m, manta_layer_new(m, &probe_class, NULL, NULL), x);
}

/* A layer of a program's own sees rounded numbers, before and behind every kind of layer. */
static void operations_see_rounded_numbers(void **state)
{
    manta_model *m = manta_model_new("probed");
    manta_value x = manta_input(m, NULL, MANTA_DTYPE_F32, 3, (int64_t[]){8, 8, 2}), y, pair[2];
    net t;

    (void)state;
    x = manta_call(m, manta_conv2d(m, (manta_conv2d_options){.filters = 6, .kernel_size = {3, 3}}), x);
    x = probed(m, x);
    x = manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    y = probed(m, x);
    pair[0] = x;
    pair[1] = y;
    x = manta_call_n(m, manta_merge_add(m), 2, pair);
    x = probed(m, x);
    x = manta_call(m, manta_average_pooling2d(m, (manta_pooling2d_options){.pool_size = {3, 3}}), x);
    x = probed(m, x);
    x = manta_call(m, manta_flatten(m), x);
    x = manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.3}), x);
    x = probed(m, x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 7, .activation = "gelu"}), x);
    x = probed(m, x);
    manta_output(m, manta_call(m, manta_dense(m, (manta_dense_options){.units = 3}), x));
    net_open(&t, m, true, 5, 2, NULL, NULL);
    seen = seen_back = not_rounded = 0;
    step_slot(&t);
    assert_true(not_rounded > 1000); /* in float32 hardly a number is */
    net_set_precision(&t, KERN_BF16);
    seen = seen_back = not_rounded = 0;
    step_slot(&t);
    assert_true(seen > 3000 && seen_back > 3000);
    assert_int_equal(not_rounded, 0);
    net_close(&t);
}

/* What comes out of a model and what a loss looks at keeps its float32, in all modes alike. */
static void outputs_are_not_rounded(void **state)
{
    manta_model *m = manta_model_new("classes");
    int64_t rough = 0;
    manta_array out;
    float kept[6 * 5];
    net t;

    (void)state;
    manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){9});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 12, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 5, .activation = "softmax"}));
    net_open(&t, m, false, 6, 1, NULL, NULL);
    net_set_precision(&t, KERN_BF16);
    for (int mode = PLAN_PREDICT; mode <= PLAN_TRAIN; mode++) {
        t.run.mode = (plan_mode)mode;
        assert_ok(exec_forward(t.e, &t.run));
        out = exec_output(t.e, 0);
        assert_int_equal(manta_array_count(&out), 30);
        if (mode == PLAN_PREDICT) memcpy(kept, out.data, sizeof kept);
        assert_memory_equal(kept, out.data, sizeof kept);
    }
    for (int i = 0; i < 30; i++) rough += bf16_round(kept[i]) != kept[i];
    assert_true(rough > 20);
    net_close(&t);
}

/* ---- the names ---- */

static void precisions_by_name(void **state)
{
    static const char *const float32[] = {NULL, "", "exact", "float32"};
    kern_precision p;

    (void)state;
    for (int i = 0; i < 4; i++) {
        p = KERN_BF16;
        assert_ok(kernels_precision(float32[i], &p));
        assert_int_equal(p, KERN_F32);
    }
    assert_ok(kernels_precision("mixed_bfloat16", &p));
    assert_int_equal(p, KERN_BF16);
    assert_int_equal(kernels_precision("mixed_float16", &p), MANTA_EUNSUPPORTED);
    assert_non_null(strstr(manta_error_text(), "expected exact, float32 or mixed_bfloat16"));
    assert_int_equal(kernels_precision("mixed_bfloat61", &p), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "did you mean mixed_bfloat16?"));
    assert_string_equal(kernels_precision_name(KERN_BF16), "mixed_bfloat16");
    assert_string_equal(kernels_precision_name(KERN_F32), "exact");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_near_those_of_float32),
        cmocka_unit_test(same_bits_for_threads_and_families),
        cmocka_unit_test(same_bits_for_models_of_the_zoo),
        cmocka_unit_test(operations_see_rounded_numbers),
        cmocka_unit_test(outputs_are_not_rounded),
        cmocka_unit_test(precisions_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
