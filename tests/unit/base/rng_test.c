/* rng_test.c - the published vectors, and that what is made of the words has
 * the distribution its name says. All numbers are functions of fixed seeds, so
 * the statistical bounds below cannot fail by chance. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

static void philox_gives_the_published_vectors(void **state)
{
    (void)state;
    static const struct {
        rng_words counter;
        uint32_t k0, k1;
        rng_words expected;
    } cases[] = {
        {{{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}}},
        {{{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}},
         0xffffffff,
         0xffffffff,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}}},
        {{{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}},
         0xa4093822,
         0x299f31d0,
         {{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rng_words r = rng_philox(cases[i].counter, cases[i].k0, cases[i].k1);
        assert_memory_equal(r.w, cases[i].expected.w, sizeof r.w);
    }
}

static void the_place_is_laid_out_as_documented(void **state)
{
    (void)state;
    rng_key k = rng_make(0x299f31d0a4093822, 0x0370734413198a2e);
    rng_words r = rng_at(k, 0x85a308d3243f6a88);
    static const uint32_t expected[4] = {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
    assert_memory_equal(r.w, expected, sizeof expected);
}

static void fill_equals_one_by_one(void **state)
{
    (void)state;
    uint32_t out[4 * 9];
    rng_key k = rng_make(42, 7);
    uint64_t at = 0xFFFFFFFFu - 3; /* across the carry into the upper word */
    rng_fill(k, at, 9, out);
    for (uint64_t i = 0; i < 9; i++) {
        rng_words r = rng_at(k, at + i);
        assert_memory_equal(out + 4 * i, r.w, sizeof r.w);
    }
}

static void keys_below_differ(void **state)
{
    (void)state;
    rng_key k = rng_make(1, 2), a = rng_sub(k, 0), b = rng_sub(k, 1), c = rng_sub(rng_make(1, 3), 0);
    rng_words own = rng_at(k, 0);
    assert_true(a.seed != b.seed && a.seed != c.seed && b.seed != c.seed);
    assert_true(a.seed != ((uint64_t)own.w[1] << 32 | own.w[0])); /* no number doubles as a key */
    rng_key again = rng_sub(k, 0);
    assert_memory_equal(&a, &again, sizeof a);
}

static void uniform_covers_its_range_and_no_more(void **state)
{
    (void)state;
    assert_true(rng_uniform(0) == 0.0f);
    assert_true(rng_uniform(UINT32_MAX) < 1.0f);
    assert_true(rng_uniform(UINT32_MAX) == 1.0f - 0x1p-24f);
    assert_true(rng_uniform64(UINT32_MAX, UINT32_MAX) == 1.0 - 0x1p-53);
    double sum = 0, square = 0;
    int n = 0;
    for (uint64_t i = 0; i < 25000; i++) {
        rng_words r = rng_at(rng_make(3, 0), i);
        for (int j = 0; j < 4; j++, n++) {
            double u = (double)rng_uniform(r.w[j]);
            sum += u;
            square += u * u;
        }
    }
    assert_true(fabs(sum / n - 0.5) < 0.003);
    assert_true(fabs(square / n - 1.0 / 3) < 0.003);
}

static void normal_has_the_moments_of_one(void **state)
{
    (void)state;
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0, cross = 0;
    int n = 0;
    for (uint64_t i = 0; i < 50000; i++) {
        float x[4];
        rng_normal(rng_at(rng_make(11, 5), i), x);
        cross += (double)x[0] * (double)x[1];
        for (int j = 0; j < 4; j++, n++) {
            double v = (double)x[j];
            m1 += v, m2 += v * v, m3 += v * v * v, m4 += v * v * v * v;
        }
    }
    assert_true(fabs(m1 / n) < 0.01);
    assert_true(fabs(m2 / n - 1) < 0.015);
    assert_true(fabs(m3 / n) < 0.03);
    assert_true(fabs(m4 / n - 3) < 0.06);
    assert_true(fabs(cross / 50000) < 0.015); /* the pair is uncorrelated */
    float x[4];
    rng_normal((rng_words){{0, 0, UINT32_MAX, UINT32_MAX}}, x); /* the extremes */
    for (int j = 0; j < 4; j++) assert_true(isfinite(x[j]) && fabsf(x[j]) < 6.7f);
}

static void below_is_even_and_below(void **state)
{
    (void)state;
    int count[7] = {0};
    for (uint64_t i = 0; i < 70000; i++) {
        uint64_t v = rng_below(rng_make(5, 9), i, 7);
        assert_true(v < 7);
        count[v]++;
    }
    for (int v = 0; v < 7; v++) assert_true(abs(count[v] - 10000) < 400);
    assert_int_equal(rng_below(rng_make(1, 1), 0, 1), 0);
    /* Four words fall on three values when n is three quarters of 2^64: a
     * quarter of all words must be thrown away, or every third value is twice as
     * likely. The path through the keys below is taken often. */
    uint64_t n = (uint64_t)3 << 62;
    int rest[3] = {0}, half = 0;
    for (uint64_t i = 0; i < 30000; i++) {
        uint64_t v = rng_below(rng_make(6, 6), i, n);
        assert_true(v < n);
        rest[v % 3]++;
        half += v < n / 2;
    }
    for (int r = 0; r < 3; r++) assert_true(abs(rest[r] - 10000) < 400);
    assert_true(abs(half - 15000) < 500);
}

static void permutation_is_a_bijection_with_its_inverse(void **state)
{
    (void)state;
    unsigned char *seen = malloc(70000);
    assert_non_null(seen);
    for (uint64_t n = 1; n <= 70000; n = n < 300 ? n + 1 : n * 3 / 2 + 1) {
        rng_perm p;
        rng_perm_init(&p, rng_make(n, 77), n);
        memset(seen, 0, n);
        for (uint64_t i = 0; i < n; i++) {
            uint64_t to = rng_perm_at(&p, i);
            assert_true(to < n);
            assert_int_equal(seen[to], 0);
            seen[to] = 1;
            assert_int_equal(rng_perm_find(&p, to), i);
        }
        assert_int_equal(rng_permute(rng_make(n, 77), n, n / 2), rng_perm_at(&p, n / 2));
    }
    for (unsigned bits = 17; bits <= 62; bits++) {
        uint64_t n = bits == 62 ? (uint64_t)1 << 62 : ((uint64_t)1 << bits) + 1;
        rng_perm p;
        rng_perm_init(&p, rng_make(bits, 78), n);
        for (uint64_t i = 0; i < 100; i++) {
            uint64_t from = rng_below(rng_make(bits, 79), i, n), to = rng_perm_at(&p, from);
            assert_true(to < n);
            assert_int_equal(rng_perm_find(&p, to), from);
        }
    }
    free(seen);
}

/* For small n every (i, place) pair is as likely as any other over keys; for
 * larger n neighbours are torn apart. */
static void permutation_is_even_over_keys(void **state)
{
    (void)state;
    enum { KEYS = 20000 };
    for (uint64_t n = 2; n <= 9; n++) {
        int count[9][9] = {{0}};
        for (uint64_t key = 0; key < KEYS; key++) {
            rng_perm p;
            rng_perm_init(&p, rng_make(key, 3), n);
            for (uint64_t i = 0; i < n; i++) count[i][rng_perm_at(&p, i)]++;
        }
        double expected = (double)KEYS / (double)n, chi = 0;
        for (uint64_t i = 0; i < n; i++)
            for (uint64_t j = 0; j < n; j++) chi += pow(count[i][j] - expected, 2) / expected;
        /* Rows and columns each sum to KEYS: so many degrees of freedom, and this scale. */
        double freedom = (double)((n - 1) * (n - 1));
        chi *= (double)(n - 1) / (double)n;
        assert_true(chi < freedom + 5 * sqrt(2 * freedom));
    }
    rng_perm p;
    uint64_t n = 60000, close = 0;
    rng_perm_init(&p, rng_make(1, 0), n);
    for (uint64_t i = 0; i + 1 < n; i++) {
        uint64_t a = rng_perm_at(&p, i), b = rng_perm_at(&p, i + 1), d = a > b ? a - b : b - a;
        close += d < 600; /* expected: 2 % of 60000 */
    }
    assert_true(close > 1000 && close < 1400);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_vectors),
        cmocka_unit_test(the_place_is_laid_out_as_documented),
        cmocka_unit_test(fill_equals_one_by_one),
        cmocka_unit_test(keys_below_differ),
        cmocka_unit_test(uniform_covers_its_range_and_no_more),
        cmocka_unit_test(normal_has_the_moments_of_one),
        cmocka_unit_test(below_is_even_and_below),
        cmocka_unit_test(permutation_is_a_bijection_with_its_inverse),
        cmocka_unit_test(permutation_is_even_over_keys),
    };

    return cmocka_run_group_tests_name("base/rng", tests, NULL, NULL);
}
