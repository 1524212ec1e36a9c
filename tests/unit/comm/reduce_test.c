/* reduce_test.c - the arithmetic of collectives: every instruction set gives the
 * bits of the plain tree, also in place, and halves are rounded once. */
#include "comm/cases.h"
#include "comm/reduce.h"

enum { N = 2500, MOST = 17 };

static void every_set_and_number_of_ranks(void **state)
{
    (void)state;
    bool avx2 = cpu_detect() >= CPU_AVX2;
    for (int size = 1; size <= MOST; size += size < 5 ? 1 : 6)
        for (int t = 0; t < SEVEN; t++)
            for (int r = 0; r < MANTA_REDUCE_COUNT; r++) {
                manta_dtype d = (manta_dtype)t;
                void *in[MOST], *want = malloc(N * 8), *got = malloc(N * 8);
                for (int i = 0; i < size; i++) {
                    in[i] = malloc(N * 8);
                    for (int64_t k = 0; k < N; k++) case_put(d, in[i], k, i, k);
                }
                for (int64_t k = 0; k < N; k++) case_reduce(d, (manta_reduce)r, in, size, k, want);
                const void *const *src = (const void *const *)in;
                reduce_run_base(d, (manta_reduce)r, src, size, got, N);
                assert_true(case_same(d, got, want, N));
#if defined(__x86_64__)
                if (avx2) reduce_run_avx2(d, (manta_reduce)r, src, size, got, N);
                assert_true(case_same(d, got, want, N));
#endif
                reduce_run(d, (manta_reduce)r, src, size, in[size / 2], N); /* in place */
                assert_true(case_same(d, in[size / 2], want, N));
                for (int i = 0; i < size; i++) free(in[i]);
                free(want);
                free(got);
            }
    (void)avx2;
}

/* 2048 + 1 is 2048 in float16, and 256 + 1 is 256 in bfloat16; but 2048 + 1 + 1 + 1
 * is 2051, which lies halfway and goes to the even 2052. */
static void halves_are_rounded_once(void **state)
{
    (void)state;
    uint16_t big = f16_from_f32(2048), one = f16_from_f32(1), out;
    const void *src[4] = {&big, &one, &one, &one};
    reduce_run(MANTA_DTYPE_F16, MANTA_REDUCE_SUM, src, 4, &out, 1);
    assert_int_equal(out, f16_from_f32(2052));
    reduce_run(MANTA_DTYPE_F16, MANTA_REDUCE_SUM, src, 3, &out, 1);
    assert_int_equal(out, f16_from_f32(2050));
    big = bf16_from_f32(256);
    one = bf16_from_f32(1);
    reduce_run(MANTA_DTYPE_BF16, MANTA_REDUCE_SUM, src, 3, &out, 1);
    assert_int_equal(out, bf16_from_f32(258));
    reduce_run(MANTA_DTYPE_BF16, MANTA_REDUCE_MEAN, src, 2, &out, 1);
    assert_int_equal(out, bf16_from_f32(128.5f));
    /* too large for float16 on the way, but not at the end */
    big = f16_from_f32(60000);
    const void *mean[2] = {&big, &big};
    reduce_run(MANTA_DTYPE_F16, MANTA_REDUCE_MEAN, mean, 2, &out, 1);
    assert_int_equal(out, f16_from_f32(60000));
}

static void integers_wrap_and_means_do_not(void **state)
{
    (void)state;
    int32_t a = INT32_MAX, b = 3, out;
    uint8_t u = 200, v = 101, small;
    const void *src[2] = {&a, &b}, *bytes[2] = {&u, &v};
    reduce_run(MANTA_DTYPE_I32, MANTA_REDUCE_SUM, src, 2, &out, 1);
    assert_int_equal(out, INT32_MIN + 2);
    reduce_run(MANTA_DTYPE_I32, MANTA_REDUCE_MEAN, src, 2, &out, 1);
    assert_int_equal(out, 1073741825);
    a = -3;
    b = 0;
    reduce_run(MANTA_DTYPE_I32, MANTA_REDUCE_MEAN, src, 2, &out, 1);
    assert_int_equal(out, -1); /* toward zero */
    reduce_run(MANTA_DTYPE_U8, MANTA_REDUCE_SUM, bytes, 2, &small, 1);
    assert_int_equal(small, 45);
    reduce_run(MANTA_DTYPE_U8, MANTA_REDUCE_MEAN, bytes, 2, &small, 1);
    assert_int_equal(small, 150);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_and_number_of_ranks),
        cmocka_unit_test(halves_are_rounded_once),
        cmocka_unit_test(integers_wrap_and_means_do_not),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
