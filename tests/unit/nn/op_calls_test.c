/* op_calls_test.c - what the table of ops_test.c cannot say: random operations, indices,
 * other types, and what an operation may call. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "nn/op_fixture.h"

static manta_op_call call_of(void *const *state, const void *attrs, const manta_array *in,
                             const manta_array *out)
{
    pool *const *pools = *state;
    static const bool no[MAX_IN];
    static manta_op_inner inner;

    inner = (manta_op_inner){.kernels = kernels_of(KERN_REFERENCE), .pool = pools[1]};
    return (manta_op_call){.attrs = attrs,
                           .training = true,
                           .n_in = 1,
                           .n_out = 1,
                           .in = in,
                           .out = out,
                           .accumulate = no,
                           .inner = &inner,
                           .seed = 7,
                           .step = 3,
                           .call = 2};
}

/* Rows of 1000 ones through a dropout; row r belongs to position `first` + r. */
static void drop(void *const *state, int64_t first, int64_t rows, uint64_t seed, int64_t step, uint32_t node,
                 float *y)
{
    op_dropout_attrs attrs = {.rate = 0.3f};
    float *ones = room((size_t)rows * 1000, sizeof *ones);
    manta_array x = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){rows, 1000}, ones), out = x;

    for (int64_t i = 0; i < rows * 1000; i++) ones[i] = 1;
    out.data = y;
    manta_op_call c = call_of(state, &attrs, &x, &out);
    c.first = first;
    c.seed = seed;
    c.step = step;
    c.call = node;
    assert_int_equal(op_dropout.forward(&c), MANTA_OK);
    free(ones);
}

static void dropout_keeps_its_share_and_scales_it(void **state)
{
    float y[8000];
    int kept = 0;

    drop(state, 0, 8, 7, 3, 2, y);
    for (int i = 0; i < 8000; i++) {
        assert_true(y[i] == 0 || y[i] == 1 / (1 - 0.3f));
        kept += y[i] != 0;
    }
    assert_in_range(kept, 5600 - 150, 5600 + 150); /* 3.6 standard deviations */
}

static void dropout_depends_on_the_position_alone(void **state)
{
    float whole[8000], part[3000];

    drop(state, 10, 8, 7, 3, 2, whole);
    drop(state, 14, 3, 7, 3, 2, part);
    assert_memory_equal(whole + 4000, part, sizeof part);
}

static void dropout_differs_by_seed_step_node_and_row(void **state)
{
    float a[2000], b[1000];

    drop(state, 0, 2, 7, 3, 2, a);
    assert_memory_not_equal(a, a + 1000, 4000);
    drop(state, 0, 1, 8, 3, 2, b);
    assert_memory_not_equal(a, b, sizeof b);
    drop(state, 0, 1, 7, 4, 2, b);
    assert_memory_not_equal(a, b, sizeof b);
    drop(state, 0, 1, 7, 3, 1, b);
    assert_memory_not_equal(a, b, sizeof b);
}

static void dropout_backward_uses_the_same_mask(void **state)
{
    op_dropout_attrs attrs = {.rate = 0.3f};
    float x[3000], y[3000], dy[3000], dx[3000];
    bool add = true;
    manta_array in = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){3, 1000}, x), out = in, dout = in,
                din = in;

    for (int i = 0; i < 3000; i++) x[i] = dy[i] = (float)i + 1;
    for (int i = 0; i < 3000; i++) dx[i] = 0.5f;
    out.data = y;
    dout.data = dy;
    din.data = dx;
    manta_op_call c = call_of(state, &attrs, &in, &out);
    assert_int_equal(op_dropout.forward(&c), MANTA_OK);
    c.dout = &dout;
    c.din = &din;
    c.accumulate = &add;
    in.data = out.data = NULL; /* nothing is kept */
    assert_int_equal(op_dropout.backward(&c), MANTA_OK);
    for (int i = 0; i < 3000; i++) assert_true(dx[i] == 0.5f + y[i]);
}

/* Four samples of (5, 6) ones: `rows` and `cols` share a draw along that axis. */
static void drop_shared(void *const *state, bool rows, bool cols, float *y)
{
    op_dropout_attrs attrs = {.rate = 0.3f, .ndim = 3, .shared = {false, rows, cols}};
    float ones[120], dx[120];
    bool add = true;
    manta_array x = manta_array_of(MANTA_DTYPE_F32, 3, (int64_t[]){4, 5, 6}, ones), out = x, dout = x,
                din = x;

    for (int i = 0; i < 120; i++) ones[i] = dx[i] = 1;
    out.data = y;
    manta_op_call c = call_of(state, &attrs, &x, &out);
    c.first = 8;
    assert_int_equal(op_dropout.forward(&c), MANTA_OK);
    din.data = dx;
    c.dout = &dout;
    c.din = &din;
    c.accumulate = &add;
    assert_int_equal(op_dropout.backward(&c), MANTA_OK);
    for (int i = 0; i < 120; i++) {
        assert_true(y[i] == 0 || y[i] == 1 / (1 - 0.3f));
        assert_true(dx[i] == 1 + y[i]);
    }
}

static void dropout_shares_draws_along_axes(void **state)
{
    float plain[120], samples[120], by_row[120], by_col[120];

    drop_shared(state, false, false, plain);
    drop_shared(state, true, true, samples);
    drop_shared(state, false, true, by_row);
    drop_shared(state, true, false, by_col);
    for (int i = 0; i < 120; i++) {
        const float *first = plain + i / 30 * 30; /* the draws of the sample, in order */
        assert_true(samples[i] == first[0]);
        assert_true(by_row[i] == first[i % 30 / 6]);
        assert_true(by_col[i] == first[i % 6]);
    }
}

static void dropout_is_a_view_in_inference(void **state)
{
    (void)state;
    op_dropout_attrs attrs = {.rate = 0.3f};
    manta_array x = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 5}, NULL);
    manta_op_plan p = {.attrs = &attrs, .n_in = 1, .n_out = 1, .in = &x, .out = &x};
    assert_int_equal(op_dropout.plan(&p), MANTA_OK);
    assert_true(p.view);
    p = (manta_op_plan){.attrs = &attrs, .training = true, .n_in = 1, .n_out = 1, .in = &x, .out = &x};
    assert_int_equal(op_dropout.plan(&p), MANTA_OK);
    assert_false(p.view);
}

static void random_numbers_are_uniform_and_below_one(void **state)
{
    float v[4096];
    double sum = 0;
    manta_op_call c = call_of(state, NULL, NULL, NULL);

    manta_op_random(&c, 5, 4096, v);
    for (int i = 0; i < 4096; i++) {
        assert_true(v[i] >= 0 && v[i] < 1);
        sum += (double)v[i];
    }
    assert_true(fabs(sum / 4096 - 0.5) < 0.02); /* 4.4 standard deviations */
}

static void count_up(void *ctx, int64_t i)
{
    ((uint8_t *)ctx)[i]++;
}

static void parallel_runs_each_index_once(void **state)
{
    static uint8_t times[5000];
    manta_op_call c = call_of(state, NULL, NULL, NULL);

    for (int64_t n = 0; n <= 5000; n += 1250) {
        const manta_op_inner alone = {0}, *const ways[] = {c.inner, &alone,
                                                           NULL}; /* NULL: a program's own call */
        for (int way = 0; way < 3; way++) {
            manta_op_call own = c;
            memset(times, 0, sizeof times);
            own.inner = ways[way];
            manta_op_parallel(&own, n, count_up, times);
            for (int64_t i = 0; i < 5000; i++) assert_int_equal(times[i], i < n);
        }
    }
}

static manta_status embed(void *const *state, manta_dtype t, void *indices)
{
    float table[8] = {0}, y[8];
    int64_t work[4];
    manta_array in[2] = {manta_array_of(t, 2, (int64_t[]){2, 2}, indices),
                         manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){4, 2}, table)};
    manta_array out = manta_array_of(MANTA_DTYPE_F32, 3, (int64_t[]){2, 2, 2}, y);
    manta_op_call c = call_of(state, NULL, in, &out);

    c.n_in = 2;
    c.work = work;
    c.first = 40;
    return op_embedding.forward(&c);
}

static void embedding_names_an_index_out_of_range(void **state)
{
    assert_int_equal(embed(state, MANTA_DTYPE_I32, (int32_t[]){0, 3, 2, 1}), MANTA_OK);
    assert_int_equal(embed(state, MANTA_DTYPE_I32, (int32_t[]){0, 3, 2, 4}), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "expected indices from 0 to 3, given 4 at place 1 of sample 41");
    assert_int_equal(embed(state, MANTA_DTYPE_I64, (int64_t[]){0, -1, 2, 3}), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "expected indices from 0 to 3, given -1 at place 1 of sample 40");
    assert_int_equal(embed(state, MANTA_DTYPE_U8, (uint8_t[]){0, 3, 255, 3}), MANTA_EINVAL);
    assert_int_equal(embed(state, MANTA_DTYPE_F32, (float[]){0, 1, 2, 3}), MANTA_OK);
    assert_int_equal(embed(state, MANTA_DTYPE_F32, (float[]){0, 1.5f, 2, 3}), MANTA_EINVAL);
    assert_string_equal(manta_error_text(),
                        "expected indices from 0 to 3, given 1.5 at place 1 of sample 40");
    assert_int_equal(embed(state, MANTA_DTYPE_F32, (float[]){0, NAN, 2, 3}), MANTA_EINVAL);
    assert_int_equal(embed(state, MANTA_DTYPE_F64, (double[]){0, 1e300, 2, 3}), MANTA_EINVAL);
}

static void affine_reads_every_type(void **state)
{
    op_affine_attrs attrs = {.scale = 2, .offset = 1};
    struct {
        manta_dtype t;
        const void *data;
    } forms[] = {{MANTA_DTYPE_F32, (float[]){0, 1, 2}},
                 {MANTA_DTYPE_F64, (double[]){0, 1, 2}},
                 {MANTA_DTYPE_F16, (uint16_t[]){0, 0x3c00, 0x4000}},
                 {MANTA_DTYPE_BF16, (uint16_t[]){0, 0x3f80, 0x4000}},
                 {MANTA_DTYPE_I32, (int32_t[]){0, 1, 2}},
                 {MANTA_DTYPE_I64, (int64_t[]){0, 1, 2}},
                 {MANTA_DTYPE_U8, (uint8_t[]){0, 1, 2}}};

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        float y[3];
        manta_array x = manta_array_of(forms[i].t, 2, (int64_t[]){1, 3}, (void *)(uintptr_t)forms[i].data);
        manta_array out = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){1, 3}, y);
        manta_op_call c = call_of(state, &attrs, &x, &out);
        assert_int_equal(op_affine.forward(&c), MANTA_OK);
        assert_true(y[0] == 1 && y[1] == 3 && y[2] == 5);
    }
}

static void global_maximum_shares_among_equals(void **state)
{
    op_global_pool_attrs attrs = {0};
    float x[4] = {3, 1, 3, 2}, y[1] = {3}, dy[1] = {1}, dx[4], work[1];
    manta_array in = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){1, 2, 2, 1}, x), din = in;
    manta_array out = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){1, 1}, y), dout = out;

    din.data = dx;
    dout.data = dy;
    manta_op_call c = call_of(state, &attrs, &in, &out);
    c.din = &din;
    c.dout = &dout;
    c.work = work;
    assert_int_equal(op_global_max_pool.backward(&c), MANTA_OK);
    assert_true(dx[0] == 0.5f && dx[1] == 0 && dx[2] == 0.5f && dx[3] == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropout_keeps_its_share_and_scales_it),
        cmocka_unit_test(dropout_depends_on_the_position_alone),
        cmocka_unit_test(dropout_differs_by_seed_step_node_and_row),
        cmocka_unit_test(dropout_backward_uses_the_same_mask),
        cmocka_unit_test(dropout_shares_draws_along_axes),
        cmocka_unit_test(dropout_is_a_view_in_inference),
        cmocka_unit_test(random_numbers_are_uniform_and_below_one),
        cmocka_unit_test(parallel_runs_each_index_once),
        cmocka_unit_test(embedding_names_an_index_out_of_range),
        cmocka_unit_test(affine_reads_every_type),
        cmocka_unit_test(global_maximum_shares_among_equals),
    };

    return cmocka_run_group_tests(tests, start_pools, stop_pools);
}
