/* tensor_test.c - storage: shapes, ownership, failures; and the random fills. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <manta/tensor.h>

#include "base/mem.h"
#include "ok.h"
#include "tensor/init.h"

static void a_tensor_is_made_in_every_dtype(void **state)
{
    int64_t shape[] = {3, 0, 5}, live = mem_live();
    manta_tensor *t = NULL;
    (void)state;

    for (int d = 0; d < MANTA_DTYPE_COUNT; d++) {
        int64_t two[] = {7, 9};
        assert_int_equal(manta_tensor_new((manta_dtype)d, 2, two, &t), MANTA_OK);
        assert_int_equal(manta_tensor_count(t), 63);
        assert_int_equal(manta_tensor_size(t), 63 * manta_dtype_size((manta_dtype)d));
        assert_int_equal(manta_tensor_dtype(t), d);
        assert_int_equal((uintptr_t)manta_tensor_data(t) % 64, 0);
        for (size_t i = 0; i < manta_tensor_size(t); i++)
            assert_int_equal(((char *)manta_tensor_data(t))[i], 0);
        manta_tensor_unref(t);
    }
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 3, shape, &t), MANTA_OK);
    assert_int_equal(manta_tensor_count(t), 0);
    assert_non_null(manta_tensor_data(t));
    manta_tensor_unref(t);
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 0, NULL, &t), MANTA_OK);
    assert_int_equal(manta_tensor_count(t), 1);
    manta_tensor_unref(t);
    manta_tensor_unref(NULL);
    assert_int_equal(mem_live(), live);
}

static void wrong_shapes_are_refused(void **state)
{
    int64_t negative[] = {3, -1}, huge[] = {INT64_MAX, 2}, wraps[] = {(int64_t)1 << 32, (int64_t)1 << 32, 0},
            wraps2[] = {(int64_t)1 << 32, (int64_t)1 << 32}, live = mem_live(), four[] = {4};
    manta_tensor *t = NULL;
    (void)state;

    assert_int_equal(manta_tensor_new(MANTA_DTYPE_COUNT, 1, four, &t), MANTA_EINVAL);
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 2, negative, &t), MANTA_EINVAL);
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 9, negative, &t), MANTA_EINVAL);
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 2, huge, &t), MANTA_ENOMEM);
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 2, wraps2, &t), MANTA_ENOMEM);
    assert_int_equal(manta_tensor_from_bytes(MANTA_DTYPE_F32, 1, four, "0123456789abcde", 15, &t),
                     MANTA_EINVAL);
    assert_error_says("15");
    assert_int_equal(manta_tensor_wrap(MANTA_DTYPE_F32, 1, four, NULL, NULL, NULL, &t), MANTA_EINVAL);
    assert_null(t);
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 3, wraps, &t), MANTA_OK); /* empty is empty */
    manta_tensor_unref(t);
    t = NULL;
    mem_fail_at(1, 0);
    assert_int_equal(manta_tensor_new(MANTA_DTYPE_F32, 1, four, &t), MANTA_ENOMEM);
    mem_fail_at(1, 0);
    assert_int_equal(manta_tensor_from_bytes(MANTA_DTYPE_U8, 1, four, "abcd", 4, &t), MANTA_ENOMEM);
    mem_fail_at(1, 0);
    manta_array a = manta_array_of(MANTA_DTYPE_U8, 1, four, &four);
    assert_int_equal(manta_tensor_from_array(&a, MANTA_DTYPE_F32, &t), MANTA_ENOMEM);
    mem_fail_at(0, 0);
    assert_null(t);
    assert_int_equal(mem_live(), live);
}

static void count_release(void *ctx, void *data)
{
    assert_string_equal(data, "abc");
    ++*(int *)ctx;
}

static void wrapped_memory_is_released_once(void **state)
{
    int64_t shape[] = {4}, live = mem_live();
    int released = 0;
    char bytes[4] = "abc";
    manta_tensor *t;
    (void)state;

    assert_int_equal(manta_tensor_wrap(MANTA_DTYPE_U8, 1, shape, bytes, count_release, &released, &t),
                     MANTA_OK);
    assert_ptr_equal(manta_tensor_data(t), bytes);
    assert_ptr_equal(manta_tensor_ref(t), t);
    manta_tensor_unref(t);
    assert_int_equal(released, 0);
    manta_tensor_unref(t);
    assert_int_equal(released, 1);
    assert_int_equal(manta_tensor_wrap(MANTA_DTYPE_U8, 1, shape, bytes, NULL, NULL, &t), MANTA_OK);
    manta_tensor_unref(t);
    assert_int_equal(mem_live(), live);
}

static void contents_are_copied_in_and_out(void **state)
{
    int64_t shape[] = {2, 3}, flipped[] = {3, 2};
    float x[] = {1, 2, 3, 4, 5, 6.5f};
    manta_tensor *t, *u;
    (void)state;

    assert_int_equal(manta_tensor_from_bytes(MANTA_DTYPE_F32, 2, shape, x, sizeof x, &t), MANTA_OK);
    assert_memory_equal(manta_tensor_data(t), x, sizeof x);
    manta_array a = manta_tensor_array(t);
    a.shape[0] = 3, a.shape[1] = 2, a.strides[0] = 1, a.strides[1] = 3; /* transposed */
    assert_int_equal(manta_tensor_from_array(&a, MANTA_DTYPE_I32, &u), MANTA_OK);
    int32_t want[] = {1, 4, 2, 5, 3, 6};
    assert_memory_equal(manta_tensor_data(u), want, sizeof want);
    manta_array b = manta_tensor_array(u), c = manta_array_of(MANTA_DTYPE_F32, 2, flipped, x);
    assert_int_equal(manta_array_copy(&c, &b), MANTA_OK);
    assert_true(x[0] == 1 && x[1] == 4 && x[5] == 6);
    assert_int_equal(manta_array_fill(&c, -2.5), MANTA_OK);
    for (int i = 0; i < 6; i++) assert_true(x[i] == -2.5f);
    b.ndim = 1;
    assert_int_equal(manta_array_copy(&c, &b), MANTA_EINVAL);
    manta_tensor_unref(t);
    manta_tensor_unref(u);
}

/* ---- random fills ---- */

typedef void fill(rng_key k, int64_t first, int64_t n, float a, float b, float *out);

static void moments(const float *x, int n, double *mean, double *var)
{
    *mean = *var = 0;
    for (int i = 0; i < n; i++) *mean += (double)x[i] / n;
    for (int i = 0; i < n; i++) *var += ((double)x[i] - *mean) * ((double)x[i] - *mean) / n;
}

static void random_fills_match_their_distributions(void **state)
{
    enum { N = 200003 };
    static float all[N], part[N];
    fill *const fills[] = {init_uniform, init_normal, init_truncated_normal};
    /* Means and variances of uniform on [-1, 3), normal(-1, 3), and the latter cut at two deviations. */
    const double mean[] = {1, -1, -1}, var[] = {16.0 / 12, 9, 9 * 0.7737413};
    rng_key k = rng_make(7, 1);
    (void)state;

    for (int f = 0; f < 3; f++) {
        fills[f](k, 0, N, -1.0f, 3.0f, all);
        double m, v;
        moments(all, N, &m, &v);
        assert_true(fabs(m - mean[f]) <
                    5 * sqrt(var[f] / N)); /* five deviations: fixed seed, so no luck involved */
        assert_true(fabs(v - var[f]) < 0.015 * var[f]);
        /* Any part alone, cut anywhere. */
        for (int64_t at = 0, len = 1; at < N; at += len, len = len * 2 + 1) {
            if (len > N - at) len = N - at;
            fills[f](k, at, len, -1.0f, 3.0f, part + at);
        }
        assert_memory_equal(part, all, sizeof all);
        fills[f](rng_make(7, 2), 0, N, -1.0f, 3.0f, part);
        int same = 0;
        for (int i = 0; i < N; i++) same += part[i] == all[i];
        assert_true(same < N / 1000);
    }
    init_uniform(k, 0, N, -1.0f, 3.0f, all);
    for (int i = 0; i < N; i++) assert_true(all[i] >= -1.0f && all[i] < 3.0f);
    init_uniform(k, 0, N, 1.0f, 1.0000001f, all); /* one place apart: the end is still not reached */
    for (int i = 0; i < N; i++) assert_true(all[i] == 1.0f);
    init_truncated_normal(k, 0, N, 0.0f, 1.0f, all);
    int outer = 0;
    for (int i = 0; i < N; i++) {
        assert_true(fabsf(all[i]) <= 2.0f);
        outer += fabsf(all[i]) > 1.0f;
    }
    /* P(1 < |x| <= 2 | |x| <= 2) = 0.28475 */
    assert_true(fabs(outer / (double)N - 0.28475) < 0.005);
    init_constant(N, 0.1f, all);
    for (int i = 0; i < N; i++) assert_true(all[i] == 0.1f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tensor_is_made_in_every_dtype),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(wrapped_memory_is_released_once),
        cmocka_unit_test(contents_are_copied_in_and_out),
        cmocka_unit_test(random_fills_match_their_distributions),
    };

    return cmocka_run_group_tests_name("tensor/tensor", tests, NULL, NULL);
}
