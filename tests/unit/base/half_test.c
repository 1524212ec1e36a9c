/* half_test.c - all 65,536 values of both formats, every rounding boundary, and
 * the processor's own conversion where there is one. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>

#include "base/half.h"
#include "base/rng.h"

static int f16_is_nan(unsigned h)
{
    return (h & 0x7FFF) > 0x7C00;
}

static int bf16_is_nan(unsigned h)
{
    return (h & 0x7FFF) > 0x7F80;
}

static void widening_then_narrowing_is_the_identity(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        unsigned f = f16_from_f32(f16_to_f32((uint16_t)h)), b = bf16_from_f32(bf16_to_f32((uint16_t)h));
        assert_int_equal(f, f16_is_nan(h) ? h | 0x200 : h);
        assert_int_equal(b, bf16_is_nan(h) ? h | 0x40 : h);
    }
}

static void widening_gives_the_number_the_bits_mean(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7C00; h++) {
        int exponent = (int)(h >> 10);
        double fraction = h & 0x3FF;
        double expected = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
        assert_true((double)f16_to_f32((uint16_t)h) == expected);
        assert_true((double)f16_to_f32((uint16_t)(h | 0x8000)) == -expected);
    }
    assert_true(isinf(f16_to_f32(0x7C00)) && f16_to_f32(0xFC00) < 0);
    assert_true(signbit(f16_to_f32(0x8000)));
    assert_true(isnan(f16_to_f32(0x7C01)));
}

/* Between each pair of neighbours: a little below the middle goes down, the
 * middle to the even one, a little above goes up. */
static void narrowing_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7C00; h++) {
        float low = f16_to_f32((uint16_t)h);
        float high = h + 1 < 0x7C00 ? f16_to_f32((uint16_t)(h + 1)) : 65536.0f;
        float middle = low + (high - low) / 2; /* exact: float has bits to spare */
        assert_int_equal(f16_from_f32(nextafterf(middle, 0)), h);
        assert_int_equal(f16_from_f32(middle), h + (h & 1));
        assert_int_equal(f16_from_f32(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(f16_from_f32(-middle), 0x8000 | (h + (h & 1)));
    }
    for (unsigned h = 0; h < 0x7F80; h++) {
        uint32_t middle = h << 16 | 0x8000;
        assert_int_equal(bf16_from_f32(half_float(middle - 1)), h);
        assert_int_equal(bf16_from_f32(half_float(middle)), h + (h & 1));
        assert_int_equal(bf16_from_f32(half_float(middle + 1)), h + 1);
    }
    assert_int_equal(f16_from_f32(0x1p-149f), 0);
    assert_int_equal(f16_from_f32(-0.0f), 0x8000);
    assert_int_equal(f16_from_f32(INFINITY), 0x7C00);
    assert_int_equal(f16_from_f32(3e38f), 0x7C00);
    assert_int_equal(bf16_from_f32(INFINITY), 0x7F80);
    assert_int_equal(bf16_from_f32(half_float(0x7F7FFFFF)), 0x7F80);
}

static void nan_stays_nan(void **state)
{
    (void)state;
    static const uint32_t nans[] = {0x7F800001, 0x7FC00000, 0xFFFFFFFF, 0x7F8FFFFF, 0xFF800001};
    for (size_t i = 0; i < sizeof nans / sizeof *nans; i++) {
        float x = half_float(nans[i]);
        assert_true(f16_is_nan(f16_from_f32(x)) && bf16_is_nan(bf16_from_f32(x)));
        assert_int_equal(f16_from_f32(x) >> 15, nans[i] >> 31);
        assert_int_equal(bf16_from_f32(x) >> 15, nans[i] >> 31);
    }
}

#if defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("f16c"))) static uint16_t narrow_by_processor(float x)
{
    return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

__attribute__((target("f16c"))) static float widen_by_processor(uint16_t h)
{
    return _cvtsh_ss(h);
}

static void agrees_with_the_processor(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2")) skip(); /* every such processor has f16c */
    for (unsigned h = 0; h < 65536; h++)
        assert_int_equal(half_bits(f16_to_f32((uint16_t)h)), half_bits(widen_by_processor((uint16_t)h)));
    for (uint64_t i = 0; i < 250000; i++) {
        rng_words r = rng_at(rng_make(1, 1), i);
        for (int j = 0; j < 4; j++) {
            float x = half_float(r.w[j]), near = half_float((r.w[j] & 0x8FFFFFFF) | 0x38000000);
            assert_int_equal(f16_from_f32(x), narrow_by_processor(x));
            assert_int_equal(f16_from_f32(near), narrow_by_processor(near));
        }
    }
}
#else
static void agrees_with_the_processor(void **state)
{
    (void)state;
    skip();
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widening_then_narrowing_is_the_identity),
        cmocka_unit_test(widening_gives_the_number_the_bits_mean),
        cmocka_unit_test(narrowing_rounds_to_nearest_even),
        cmocka_unit_test(nan_stays_nan),
        cmocka_unit_test(agrees_with_the_processor),
    };

    return cmocka_run_group_tests_name("base/half", tests, NULL, NULL);
}
