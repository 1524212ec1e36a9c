/* onnx_test.c - ONNX files: what they say of themselves, refusals, and failing
 * systems. That they compute the same is onnxruntime's to say (tests/cli). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/layer.h>
#include <manta/onnx.h>

#include "alloc_fail.h"
#include "base/mem.h"
#include "format/onnx/onnx.h"
#include "ok.h"
#include "os/fault.h"
#include "scratch.h"

/* Every variable of a model, element i being i / 64. */
typedef struct weights {
    manta_column at[128];
    int n;
} weights;

static void fill(const manta_model *m, weights *w)
{
    w->n = manta_model_variables(m);
    for (int i = 0; i < w->n; i++) {
        manta_variable_info v = manta_model_variable(m, i);
        manta_array a = manta_array_of(MANTA_DTYPE_F32, v.ndim, v.shape, NULL);
        float *data = mem_try_raw(manta_array_bytes(&a));
        for (int64_t k = 0; k < manta_array_count(&a); k++) data[k] = (float)k / 64;
        a.data = data;
        w->at[i] = (manta_column){v.name, a};
    }
}

static void release(weights *w)
{
    for (int i = 0; i < w->n; i++) mem_try_free(w->at[i].array.data);
}

static manta_model *small(void)
{
    manta_model *m = manta_model_new("small");
    manta_value x = manta_input(m, "image", MANTA_DTYPE_U8, 3, (int64_t[]){5, 6, 2});

    x = manta_call(m, manta_rescaling(m, (manta_rescaling_options){.scale = 0.5}), x);
    x = manta_call(
        m, manta_conv2d(m, (manta_conv2d_options){.filters = 3, .kernel_size = {2, 1}, .activation = "relu"}),
        x);
    x = manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.5}), x);
    x = manta_call(m, manta_flatten(m), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 4}), x);
    manta_output_named(m, "scores", x);
    assert_int_equal(manta_model_build(m), MANTA_OK);
    return m;
}

static int64_t count_of(const manta_onnx *x, const char *op)
{
    for (int i = 0; i < manta_onnx_ops(x); i++) {
        if (!strcmp(manta_onnx_op_at(x, i).name, op)) return manta_onnx_op_at(x, i).count;
    }
    return 0;
}

static void a_written_model_describes_itself(void **state)
{
    (void)state;
    const char *path = scratch_path("m.onnx");
    manta_model *m = small();
    manta_onnx *x = NULL;
    weights w;

    fill(m, &w);
    assert_int_equal(manta_onnx_write(path, m, w.n, w.at), MANTA_OK);
    assert_int_equal(manta_onnx_read(path, &x), MANTA_OK);
    assert_int_equal(manta_onnx_ir_version(x), 8);
    assert_int_equal(manta_onnx_opset(x), 17);
    assert_string_equal(manta_onnx_producer(x), "manta");
    assert_string_equal(manta_onnx_graph(x), "small");
    assert_int_equal(manta_onnx_inputs(x), 1);
    manta_onnx_value v = manta_onnx_input(x, 0);
    assert_string_equal(v.name, "image");
    assert_string_equal(v.dtype, "uint8");
    assert_true(v.ndim == 4 && v.shape[0] == -1 && v.shape[1] == 5 && v.shape[2] == 6 && v.shape[3] == 2);
    v = manta_onnx_output(x, 0);
    assert_string_equal(v.name, "scores");
    assert_string_equal(v.dtype, "float32");
    assert_true(v.ndim == 2 && v.shape[0] == -1 && v.shape[1] == 4);
    assert_int_equal(count_of(x, "Conv"), 1);
    assert_int_equal(count_of(x, "Relu"), 1);
    assert_int_equal(count_of(x, "Gemm"), 1);
    assert_int_equal(count_of(x, "Dropout"), 0);
    assert_int_equal(count_of(x, "Transpose"),
                     2); /* in, and out again before the elements are put in a row */
    for (int i = 0; i < manta_onnx_weights(x); i++) {
        v = manta_onnx_weight(x, i);
        if (strcmp(v.name, "conv2d/kernel")) continue;
        assert_true(v.ndim == 4 && v.shape[0] == 3 && v.shape[1] == 2 && v.shape[2] == 2 && v.shape[3] == 1);
    }
    manta_onnx_free(x);
    manta_model_free(m);
    release(&w);
}

/* Weights come in any dtype and strides. */
static void weights_of_any_dtype_and_strides_are_written(void **state)
{
    (void)state;
    manta_model *m = small();
    weights w;
    buf a = {0}, b = {0};
    double *wide;

    fill(m, &w);
    assert_int_equal(onnx_model(m, w.n, w.at, &a), MANTA_OK);
    manta_array *k = &w.at[2].array; /* the dense kernel, transposed and as doubles */
    assert_int_equal(k->ndim, 2);
    wide = mem_try_raw((size_t)manta_array_count(k) * sizeof *wide);
    for (int64_t i = 0; i < k->shape[0]; i++) {
        for (int64_t j = 0; j < k->shape[1]; j++) {
            wide[j * k->shape[0] + i] = (double)((float *)k->data)[i * k->shape[1] + j];
        }
    }
    manta_array strided = manta_array_of(MANTA_DTYPE_F64, 2, k->shape, wide);
    strided.strides[0] = 1;
    strided.strides[1] = k->shape[0];
    manta_array kept = *k;
    *k = strided;
    assert_int_equal(onnx_model(m, w.n, w.at, &b), MANTA_OK);
    assert_int_equal(a.n, b.n);
    assert_memory_equal(a.at, b.at, a.n);
    *k = kept;
    mem_try_free(wide);
    buf_release(&a);
    buf_release(&b);
    manta_model_free(m);
    release(&w);
}

static manta_status no_shape(manta_op_shape *s)
{
    (void)s;
    return MANTA_OK;
}

static manta_status no_forward(const manta_op_call *c)
{
    (void)c;
    return MANTA_OK;
}

static void what_onnx_has_not_is_refused(void **state)
{
    (void)state;
    static const manta_op own = {.name = "own", .shape = no_shape, .forward = no_forward};
    const char *path = scratch_path("refused.onnx");
    manta_model *m = small();
    weights w;

    fill(m, &w);
    w.n--;
    assert_int_equal(manta_onnx_write(path, m, w.n, w.at), MANTA_ENOENT);
    assert_error_says("dense/bias");
    w.n++;
    w.at[0].array.shape[0]++;
    assert_int_equal(manta_onnx_write(path, m, w.n, w.at), MANTA_EINVAL);
    assert_error_says("conv2d/kernel");
    manta_model_free(m);
    release(&w);

    m = manta_model_new("own");
    manta_value x = manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    assert_int_equal(manta_onnx_write(path, m, 0, NULL), MANTA_EINVAL); /* not built */
    manta_output(m, manta_apply(m, &own, NULL, 1, &x));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(manta_onnx_write(path, m, 0, NULL), MANTA_EUNSUPPORTED);
    assert_error_says("'own'");
    manta_model_free(m);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_int_equal(model_onnx.write(path, &(manta_contents){0}), MANTA_EINVAL);
    assert_int_equal(model_onnx.read(path, NULL, NULL), MANTA_EUNSUPPORTED);
}

static void a_file_cut_at_any_byte_is_refused(void **state)
{
    (void)state;
    manta_model *m = small();
    weights w;
    buf b = {0};

    fill(m, &w);
    assert_int_equal(onnx_model(m, w.n, w.at, &b), MANTA_OK);
    for (size_t cut = 0; cut < b.n; cut++) {
        manta_onnx *x = NULL;
        int64_t live = mem_live();
        uint8_t *copy = mem_try_raw(cut ? cut : 1);
        memcpy(copy, b.at, cut);
        assert_int_equal(onnx_read_bytes("cut", copy, cut, &x), MANTA_ECORRUPT);
        mem_try_free(copy);
        assert_int_equal(mem_live(), live);
    }
    buf_release(&b);
    manta_model_free(m);
    release(&w);
}

typedef struct onnx_job {
    manta_model *m;
    weights *w;
} onnx_job;

static manta_status build_model(void *ctx)
{
    onnx_job *j = ctx;
    buf b = {0};
    manta_status st = onnx_model(j->m, j->w->n, j->w->at, &b);

    buf_release(&b);
    return st;
}

static void failing_calls_and_allocations_are_reported(void **state)
{
    (void)state;
    const char *path = scratch_path("fault.onnx");
    manta_model *m = small();
    weights w;
    int failures = 0;

    fill(m, &w);
    for (int64_t n = 1;; n++) {
        int64_t live = mem_live();
        fault_begin((fault_plan){.at = n, .err = ENOSPC, .sticky = true, .spare_unlink = true});
        manta_status st = manta_onnx_write(path, m, w.n, w.at);
        bool hit = fault_end() > 0;
        assert_int_equal(mem_live(), live);
        if (!hit) {
            assert_int_equal(st, MANTA_OK);
            break;
        }
        /* closing may fail behind what is already done */
        if (st != MANTA_EUNKNOWN) assert_int_equal(access(path, F_OK) == 0, st == MANTA_OK);
        failures += st != MANTA_OK;
        remove(path);
    }
    assert_true(failures >= 4);
    alloc_fail_each(build_model, &(onnx_job){.m = m, .w = &w});
    manta_model_free(m);
    release(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_written_model_describes_itself),
        cmocka_unit_test(weights_of_any_dtype_and_strides_are_written),
        cmocka_unit_test(what_onnx_has_not_is_refused),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(failing_calls_and_allocations_are_reported),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
