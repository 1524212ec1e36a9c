/* bf16_test.c - how bfloat16 numbers are rounded and multiplied, and that the
 * processor's instructions do the same. */
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <immintrin.h>

#include "families.h"
#include "tensor/bf16.h"

static uint64_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* ---- rounding ---- */

static void rounding_goes_to_the_nearest(void **state)
{
    (void)state;
    for (int i = 0; i < 2000000; i++) {
        const float x = half_float(random_u32());
        const float r = bf16_round(x);
        assert_int_equal(half_bits(r) & 0xFFFFu, 0);
        if (isnan(x)) {
            assert_true(isnan(r));
            continue;
        }
        assert_int_equal(signbit(x) != 0, signbit(r) != 0);
        if (fabsf(x) < FLT_MIN) {
            assert_true(r == 0.0f);
            continue;
        }
        const uint32_t down = half_bits(x) & 0xFFFF0000u;
        const double below = fabs((double)x - (double)half_float(down));
        const double step = ldexp(1, (int)((down >> 23 & 0xFF)) - 127 - 7), above = step - below;
        const uint32_t want =
            below < above || (below == above && (down >> 16 & 1u) == 0) ? down : down + 0x10000u;
        assert_int_equal(half_bits(r), want);
    }
}

static void rounding_keeps_what_is_rounded(void **state)
{
    (void)state;
    for (uint32_t u = 0; u < 0x10000u; u++) {
        const float x = half_float(u << 16), r = bf16_round(x);
        if (isnan(x)) {
            assert_true(isnan(r) && (half_bits(r) & 0x400000u));
        } else if ((u & 0x7F80u) == 0) {
            assert_int_equal(half_bits(r), (u & 0x8000u) << 16);
        } else {
            assert_int_equal(half_bits(r), u << 16);
        }
    }
    assert_true(isinf(bf16_round(FLT_MAX)));
    assert_int_equal(bf16_pair(1.0f, -2.0f), 0xC0003F80u);
}

/* ---- one step ---- */

/* A bfloat16 number of the kind that case `kind` is about. */
static uint32_t random_half(int kind)
{
    const uint32_t u = random_u32() & 0xFFFFu;

    switch (kind) {
    case 1: return (u & 0x807Fu) | (100 + random_u32() % 55) << 7; /* sums that do not overflow */
    case 2: return (u & 0x807Fu) | (random_u32() % 12) << 7; /* denormals, and near them */
    case 3: return (u & 0x807Fu) | (60 + random_u32() % 8) << 7; /* whose products are */
    case 4: /* zeros and infinities */
        if (random_u32() % 4) return u;
        return (random_u32() & 1u) << 15 | (random_u32() % 3 ? 0 : 0x7F80u);
    default: return u;
    }
}

static uint32_t random_sum(int kind)
{
    const uint32_t u = random_u32();

    if (kind == 1) return (u & 0x807FFFFFu) | (75 + random_u32() % 105) << 23;
    return kind == 3 ? (u & 0x807FFFFFu) | (random_u32() % 10) << 23 : u;
}

/* Away from denormals a step is an fma for each half, and near the exact sum. */
static void a_step_is_two_fma(void **state)
{
    (void)state;
    for (int i = 0; i < 1000000; i++) {
        const uint32_t a = random_half(i % 4) << 16, b = random_half(i % 4) << 16;
        const float acc = half_float(random_sum(i % 4)), got = bf16_step(a, b, acc);
        const float fa = bf16_flush(half_float(a)), fb = bf16_flush(half_float(b)), fc = bf16_flush(acc);
        const long double exact = (long double)fa * (long double)fb + (long double)fc;
        if (isnan(got) || fabsl(exact) < 2 * (long double)FLT_MIN) continue;
        assert_true(got == fmaf(fa, fb, fc));
        assert_true(isinf(got) || fabsl((long double)got - exact) <= fabsl(exact) * 0x1p-23L);
    }
    /* The odd half comes first: 1 + 2^24 loses the 1, where 1 - 2^24 would keep it. */
    const uint32_t ones = bf16_pair(1.0f, 1.0f);
    assert_true(bf16_step(bf16_pair(-0x1p24f, 0x1p24f), ones, 1.0f) == 0.0f);
    assert_true(bf16_step(bf16_pair(0x1p24f, -0x1p24f), ones, 1.0f) == 1.0f);
}

/* Sums just below FLT_MIN: what rounds to it with 24 bits of any exponent stays, all else goes. */
static void the_last_denormals_are_flushed_as_the_processor_does(void **state)
{
    (void)state;
    const float quarter = 0x1p-76f;
    assert_true(bf16_step(bf16_pair(-quarter, 0), bf16_pair(0x1p-76f, 0), FLT_MIN) == FLT_MIN); /* 2^-152 */
    assert_true(bf16_step(bf16_pair(-0x1.8p-76f, 0), bf16_pair(0x1p-75f, 0), FLT_MIN) ==
                0.0f); /* 0.75 2^-150 */
    assert_true(bf16_step(bf16_pair(-0x1p-75f, 0), bf16_pair(0x1p-75f, 0), FLT_MIN) == 0.0f); /* 2^-150 */
    assert_true(signbit(bf16_step(bf16_pair(0x1p-75f, 0), bf16_pair(0x1p-75f, 0), -FLT_MIN)));
    assert_true(bf16_step(bf16_pair(0x1p-75f, 0), bf16_pair(0x1p-75f, 0), FLT_MIN) == FLT_MIN);
}

/* ---- the instructions ---- */

typedef struct lanes {
    uint32_t a[16], b[16];
    uint32_t acc[16], step[16];
    uint32_t round[16];
} lanes;

__attribute__((target("avx512f,avx512vl,avx512bf16"))) static void run_instructions(lanes *l)
{
    const __m512 acc = _mm512_loadu_ps(l->acc);
    const __m512i a = _mm512_loadu_si512(l->a), b = _mm512_loadu_si512(l->b);

    _mm512_storeu_ps(l->step, _mm512_dpbf16_ps(acc, (__m512bh)a, (__m512bh)b));
    const __m512i wide = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(acc));
    _mm512_storeu_si512(l->round, _mm512_slli_epi32(wide, 16));
}

static void same_float(uint32_t got, float want)
{
    if (isnan(want) && isnan(half_float(got))) return;
    assert_int_equal(got, half_bits(want));
}

/* BF16_STEPS in the environment: how many vectors of sixteen. */
static void the_instructions_step_and_round_as_defined(void **state)
{
    const char *told = getenv("BF16_STEPS");
    const long n = told ? atol(told) : 100000;
    (void)state;

    if (!__builtin_cpu_supports("avx512bf16")) skip();
    for (long i = 0; i < n; i++) {
        lanes l;
        const int kind = (int)(i % 6);
        for (int j = 0; j < 16; j++) {
            l.a[j] = random_half(kind) << 16 | random_half(kind);
            l.b[j] = random_half(kind) << 16 | random_half(kind);
            l.acc[j] = random_sum(kind);
            if (kind == 5) { /* the last denormals */
                l.acc[j] = half_bits(FLT_MIN) | (random_u32() & 1u) << 31;
                l.a[j] = 0x1A80u + (random_u32() % 0x300u);
                l.b[j] = 0x9A00u + (random_u32() % 0x80u);
            }
        }
        run_instructions(&l);
        for (int j = 0; j < 16; j++) {
            same_float(l.step[j], bf16_step(l.a[j], l.b[j], half_float(l.acc[j])));
            same_float(l.round[j], bf16_round(half_float(l.acc[j])));
        }
    }
}

/* ---- the kernels that round ---- */

static void round_case(run *r, const void *arg)
{
    const int64_t n = *(const int64_t *)arg;
    float *x = case_fill(r, n, 3, 0), *want = case_new(n);

    for (int64_t i = 0; i < n; i++) {
        if (i % 7 == 0) x[i] *= 0x1p-127f;
        if (i % 11 == 0) x[i] = i % 2 ? INFINITY : -INFINITY;
        want[i] = bf16_round(x[i]);
    }
    r->k->round(r->p, n, x);
    assert_memory_equal(x, want, (size_t)n * sizeof *x);
    case_out(r, n, x);
    free(x);
    free(want);
}

static void every_family_rounds_alike(void **state)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 1000, 16384, 16385, 40000};
    (void)state;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) case_everywhere("round", round_case, &sizes[i]);
}

typedef struct bn_case {
    int64_t rows, c;
    bool relu, residual, accumulate, frozen;
} bn_case;

/* Batch norm that rounds is batch norm, rounded. */
static void bn_round_case(run *r, const void *arg)
{
    const bn_case *k = arg;
    const int64_t n = k->rows * k->c;
    float *x = case_fill(r, n, 2, 0.5f), *res = case_fill(r, n, 1, 0), *dy = case_fill(r, n, 1, 0);
    float *gamma = case_fill(r, k->c, 0.5f, 1), *beta = case_fill(r, k->c, 0.5f, 0);
    float *start = case_fill(r, n, 1, 0), *out[2], *dx[2], *mean = case_new(k->c), *var = case_new(k->c);
    bn_call b = {.rows = k->rows, .c = k->c, .x = x, .gamma = gamma, .beta = beta, .eps = 1e-3f};

    b.relu = k->relu;
    b.mean = mean;
    b.var = var;
    for (int round = 0; round < 2; round++) {
        out[round] = case_new(n);
        dx[round] = case_new(n);
        memcpy(dx[round], start, (size_t)n * sizeof *start);
        b.round = round;
        b.residual = k->residual ? res : NULL;
        b.out = out[round];
        r->k->bn_forward(r->p, &b);
        b.dy = dy;
        b.y = out[0];
        b.dx = dx[round];
        b.accumulate_dx = k->accumulate;
        (k->frozen ? r->k->bn_backward_frozen : r->k->bn_backward)(r->p, &b);
    }
    for (int64_t i = 0; i < n; i++) {
        assert_true(bf16_round(out[0][i]) == out[1][i]);
        assert_true(bf16_round(dx[0][i]) == dx[1][i]);
    }
    case_out(r, n, out[1]);
    case_out(r, n, dx[1]);
    float *all[] = {x, res, dy, gamma, beta, start, mean, var, out[0], out[1], dx[0], dx[1]};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

static void batch_norm_rounds_its_results(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        const bn_case k = {.rows = 37 + 100 * (i & 1),
                           .c = i & 2 ? 5 : 67,
                           .relu = i & 1,
                           .residual = i & 2,
                           .accumulate = i & 4,
                           .frozen = i & 8};
        case_everywhere("bn", bn_round_case, &k);
    }
}

static void tables_of_bfloat16_are_of_their_family(void **state)
{
    (void)state;
    for (int f = 0; f < KERN_FAMILIES; f++) {
        const kernels *k = kernels_of((kern_family)f), *b = k ? kernels_in(k, KERN_BF16) : NULL;
        if (!k) continue;
        assert_ptr_equal(kernels_in(k, KERN_F32), k);
        if (f == KERN_ONEDNN) {
            assert_null(b);
            continue;
        }
        assert_int_equal(b->family, f);
        assert_int_equal(b->precision, KERN_BF16);
        assert_ptr_equal(kernels_in(b, KERN_F32), k);
        assert_ptr_equal(b->bn_forward, k->bn_forward);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_goes_to_the_nearest),
        cmocka_unit_test(rounding_keeps_what_is_rounded),
        cmocka_unit_test(a_step_is_two_fma),
        cmocka_unit_test(the_last_denormals_are_flushed_as_the_processor_does),
        cmocka_unit_test(the_instructions_step_and_round_as_defined),
        cmocka_unit_test(every_family_rounds_alike),
        cmocka_unit_test(batch_norm_rounds_its_results),
        cmocka_unit_test(tables_of_bfloat16_are_of_their_family),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
