/* vmath_test.c - accuracy of tensor/vmath.h against the C library in double,
 * over floats of every magnitude, and its special values. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <stdio.h>

#include "tensor/vmath.h"

/* Distance between a float and the true value, in units of the float's last place there. */
static double ulps(float got, double want)
{
    if (isnan(want)) return isnan(got) ? 0 : 1e9;
    if (isinf(got) || fabs(want) > FLT_MAX) {
        /* FLT_MAX against infinity is an error of one place only if it should round there. */
        float rounded = (float)want;
        return got == rounded ? 0 : 1e9;
    }
    int e;
    frexp(want, &e);
    double unit = ldexp(1.0, (e < -125 ? -125 : e) - 24);
    return fabs((double)got - want) / unit;
}

static float cdf_only(float x)
{
    float density;

    return vm_cdf(x, &density);
}

static float density_only(float x)
{
    float density;

    (void)vm_cdf(x, &density);
    return density;
}

static double true_cdf(double x)
{
    return 0.5 * erfc(-x / sqrt(2.0));
}

static double true_density(double x)
{
    return exp(-0.5 * x * x) / sqrt(2.0 * acos(-1.0));
}

static double true_sigmoid(double x)
{
    return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

typedef struct sweep {
    const char *name;
    float (*ours)(float);
    double (*theirs)(double);
    float lo, hi; /* arguments outside are not tried */
    double bound; /* in units of the last place */
} sweep;

static const sweep sweeps[] = {
    {"exp", vm_exp, exp, -INFINITY, INFINITY, 1.0},
    {"expm1_neg", vm_expm1_neg, expm1, -INFINITY, 0, 1.0},
    {"log", vm_log, log, 0, INFINITY, 1.0},
    {"log1p", vm_log1p, log1p, -0.5f, INFINITY, 1.5},
    {"tanh", vm_tanh, tanh, -INFINITY, INFINITY, 1.5},
    {"sigmoid", vm_sigmoid, true_sigmoid, -87, INFINITY, 2.5},
    {"sigmoid, denormal", vm_sigmoid, true_sigmoid, -INFINITY, -87, 1.5},
    {"cdf", cdf_only, true_cdf, -1, INFINITY, 2.5},
    {"cdf, lower tail", cdf_only, true_cdf, -INFINITY, -1, 5.0},
    {"density", density_only, true_density, -INFINITY, INFINITY, 3.0},
};

static void functions_are_accurate_everywhere(void **state)
{
    int failed = 0;
    (void)state;

    for (size_t k = 0; k < sizeof sweeps / sizeof *sweeps; k++) {
        const sweep *s = &sweeps[k];
        double worst = 0;
        float at = 0;
        long n = 0;
        /* A stride prime to the exponent's step reaches every exponent and all patterns of low bits. */
        for (uint64_t u = 0; u < 0x100000000u; u += 2039) {
            float x = vm_float((uint32_t)u);
            if (!(x >= s->lo && x <= s->hi)) continue;
            double e = ulps(s->ours(x), s->theirs((double)x));
            if (e > worst) worst = e, at = x;
            n++;
        }
        /* The range where most of the work is done, more densely. */
        for (int i = -400000; i <= 400000; i++) {
            float x = (float)i * 0.0000625f;
            if (!(x >= s->lo && x <= s->hi)) continue;
            double e = ulps(s->ours(x), s->theirs((double)x));
            if (e > worst) worst = e, at = x;
            n++;
        }
        print_message("%-18s %8ld values, worst %.3f units at %g\n", s->name, n, worst, (double)at);
        failed += worst > s->bound || n < 100000;
    }
    assert_int_equal(failed, 0);
}

static void special_values_are_met(void **state)
{
    (void)state;
    assert_true(vm_exp(INFINITY) == INFINITY && vm_exp(-INFINITY) == 0.0f && vm_exp(0.0f) == 1.0f);
    assert_true(vm_exp(88.72f) < INFINITY && vm_exp(88.73f) == INFINITY);
    assert_true(vm_exp(-103.9f) == 0x1p-149f && vm_exp(-104.5f) == 0.0f);
    assert_true(isnan(vm_exp(NAN)) && isnan(vm_exp(-NAN)));
    assert_true(vm_expm1_neg(-INFINITY) == -1.0f && vm_expm1_neg(0.0f) == 0.0f);
    assert_true(isnan(vm_expm1_neg(NAN)));
    assert_true(vm_log(0.0f) == -INFINITY && vm_log(-0.0f) == -INFINITY && vm_log(INFINITY) == INFINITY);
    assert_true(vm_log(1.0f) == 0.0f && isnan(vm_log(-1.0f)) && isnan(vm_log(NAN)) &&
                isnan(vm_log(-INFINITY)));
    assert_true(vm_log1p(0.0f) == 0.0f && vm_log1p(INFINITY) == INFINITY && vm_log1p(-1.0f) == -INFINITY);
    assert_true(isnan(vm_log1p(NAN)) && isnan(vm_log1p(-2.0f)));
    assert_true(vm_log1p(FLT_MIN) == FLT_MIN && vm_log1p(-0x1p-149f) == -0x1p-149f);
    assert_true(vm_tanh(INFINITY) == 1.0f && vm_tanh(-INFINITY) == -1.0f && isnan(vm_tanh(NAN)));
    assert_true(signbit(vm_tanh(-0.0f)) && vm_tanh(0x1p-149f) == 0x1p-149f);
    assert_true(vm_sigmoid(INFINITY) == 1.0f && vm_sigmoid(-INFINITY) == 0.0f && vm_sigmoid(0.0f) == 0.5f);
    assert_true(isnan(vm_sigmoid(NAN)));
    assert_true(cdf_only(INFINITY) == 1.0f && cdf_only(-INFINITY) == 0.0f && isnan(cdf_only(NAN)));
    assert_true(density_only(INFINITY) == 0.0f && density_only(-INFINITY) == 0.0f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_are_accurate_everywhere),
        cmocka_unit_test(special_values_are_met),
    };

    return cmocka_run_group_tests_name("tensor/vmath", tests, NULL, NULL);
}
