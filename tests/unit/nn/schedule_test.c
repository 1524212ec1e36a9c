/* schedule_test.c - schedules against their formulas and Keras's recordings. */
#include "golden.h"

#include "nn/schedule.h"
#include "ok.h"

static void near(double got, double want)
{
    if (!(fabs(got - want) <= 1e-6 * fabs(want) + 1e-9)) fail_msg("%.9g, expected %.9g", got, want);
}

static void a_constant_stays(void **state)
{
    (void)state;
    manta_schedule s = {.initial_learning_rate = 0.1};
    assert_true(manta_schedule_at(&s, 0) == (double)0.1f);
    assert_true(manta_schedule_at(&s, 1000000) == (double)0.1f);
    assert_int_equal(schedule_check(&s), MANTA_OK);
}

static void exponential_decay_matches_its_formula(void **state)
{
    (void)state;
    manta_schedule s = {.kind = MANTA_SCHEDULE_EXPONENTIAL,
                        .initial_learning_rate = 0.2,
                        .decay_steps = 10,
                        .decay_rate = 0.5};
    for (int64_t t = 0; t < 100; t += 3) near(manta_schedule_at(&s, t), 0.2 * pow(0.5, (double)t / 10));
    s.staircase = true;
    for (int64_t t = 0; t < 100; t += 3)
        near(manta_schedule_at(&s, t), 0.2 * pow(0.5, floor((double)t / 10)));
}

static void inverse_time_decay_matches_its_formula(void **state)
{
    (void)state;
    manta_schedule s = {.kind = MANTA_SCHEDULE_INVERSE_TIME,
                        .initial_learning_rate = 0.2,
                        .decay_steps = 10,
                        .decay_rate = 0.5};
    for (int64_t t = 0; t < 100; t += 3) near(manta_schedule_at(&s, t), 0.2 / (1 + 0.5 * (double)t / 10));
    s.staircase = true;
    for (int64_t t = 0; t < 100; t += 3)
        near(manta_schedule_at(&s, t), 0.2 / (1 + 0.5 * floor((double)t / 10)));
}

static void cosine_decay_matches_its_formula(void **state)
{
    (void)state;
    manta_schedule s = {.kind = MANTA_SCHEDULE_COSINE,
                        .initial_learning_rate = 0.01,
                        .decay_steps = 100,
                        .alpha = 0.1,
                        .warmup_target = 0.2,
                        .warmup_steps = 20};
    near(manta_schedule_at(&s, 0), 0.01);
    near(manta_schedule_at(&s, 10), 0.105);
    near(manta_schedule_at(&s, 20), 0.2);
    near(manta_schedule_at(&s, 70), 0.2 * (0.9 * 0.5 + 0.1));
    near(manta_schedule_at(&s, 120), 0.02);
    near(manta_schedule_at(&s, 5000), 0.02);
    /* A target without steps starts the cosine there; neither is no warm-up. */
    s.warmup_steps = 0;
    near(manta_schedule_at(&s, 0), 0.2);
    s.warmup_target = 0;
    near(manta_schedule_at(&s, 0), 0.01);
    near(manta_schedule_at(&s, 100), 0.001);
}

static void polynomial_decay_matches_its_formula(void **state)
{
    (void)state;
    manta_schedule s = {.kind = MANTA_SCHEDULE_POLYNOMIAL,
                        .initial_learning_rate = 0.1,
                        .decay_steps = 50,
                        .end_learning_rate = 0.01,
                        .power = 2};
    near(manta_schedule_at(&s, 0), 0.1);
    near(manta_schedule_at(&s, 25), 0.09 * 0.25 + 0.01);
    near(manta_schedule_at(&s, 50), 0.01);
    near(manta_schedule_at(&s, 75), 0.01);
    s.cycle = true;
    near(manta_schedule_at(&s, 0), 0.1);
    near(manta_schedule_at(&s, 50), 0.01);
    near(manta_schedule_at(&s, 75), 0.09 * 0.0625 + 0.01); /* a cycle of 100 */
    near(manta_schedule_at(&s, 150), 0.01);
}

static void piecewise_values_change_at_their_boundaries(void **state)
{
    (void)state;
    manta_schedule s = {.kind = MANTA_SCHEDULE_PIECEWISE,
                        .n_boundaries = 2,
                        .boundaries = {10, 30},
                        .values = {1, 0.5, 0.25}};
    assert_true(manta_schedule_at(&s, 0) == 1);
    assert_true(manta_schedule_at(&s, 10) == 1); /* up to and including */
    assert_true(manta_schedule_at(&s, 11) == 0.5);
    assert_true(manta_schedule_at(&s, 30) == 0.5);
    assert_true(manta_schedule_at(&s, 31) == 0.25);
    s.n_boundaries = 1000; /* never checked, and still not read past the end */
    assert_true(manta_schedule_at(&s, INT64_MAX) == s.values[MANTA_SCHEDULE_PIECES]);
}

static void wrong_schedules_are_refused(void **state)
{
    (void)state;
    static const struct {
        manta_schedule s;
        const char *says;
    } bad[] = {
        {{.kind = (manta_schedule_kind)17}, "numbered 17"},
        {{.kind = MANTA_SCHEDULE_EXPONENTIAL, .decay_steps = 0}, "decay_steps is 0"},
        {{.kind = MANTA_SCHEDULE_COSINE, .decay_steps = -5}, "cosine schedule: decay_steps is -5"},
        {{.kind = MANTA_SCHEDULE_COSINE, .decay_steps = 5, .warmup_steps = -1}, "warmup_steps is -1"},
        {{.kind = MANTA_SCHEDULE_COSINE, .decay_steps = 5, .alpha = NAN}, "alpha is nan"},
        {{.kind = MANTA_SCHEDULE_POLYNOMIAL, .decay_steps = 5, .power = -2}, "power is -2"},
        {{.kind = MANTA_SCHEDULE_INVERSE_TIME, .decay_steps = 5, .initial_learning_rate = INFINITY},
         "is inf"},
        {{.kind = MANTA_SCHEDULE_PIECEWISE, .n_boundaries = 0}, "0 boundaries"},
        {{.kind = MANTA_SCHEDULE_PIECEWISE, .n_boundaries = 17}, "17 boundaries"},
        {{.kind = MANTA_SCHEDULE_PIECEWISE, .n_boundaries = 2, .boundaries = {9, 9}},
         "boundary 9 comes after 9"},
        {{.kind = MANTA_SCHEDULE_PIECEWISE, .n_boundaries = 1, .values = {0.1, -1}}, "a value is -1"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(schedule_check(&bad[i].s), MANTA_EINVAL);
        assert_error_says(bad[i].says);
    }
}

static manta_schedule_kind kind_of(const char *name)
{
    if (!strcmp(name, "ExponentialDecay")) return MANTA_SCHEDULE_EXPONENTIAL;
    if (!strcmp(name, "CosineDecay")) return MANTA_SCHEDULE_COSINE;
    if (!strcmp(name, "PiecewiseConstantDecay")) return MANTA_SCHEDULE_PIECEWISE;
    if (!strcmp(name, "PolynomialDecay")) return MANTA_SCHEDULE_POLYNOMIAL;
    if (!strcmp(name, "InverseTimeDecay")) return MANTA_SCHEDULE_INVERSE_TIME;
    fail_msg("%s is no schedule", name);
    return MANTA_SCHEDULE_CONSTANT;
}

static void recording(const char *path, void *ctx)
{
    (void)ctx;
    char name[64];
    double boundaries[MANTA_SCHEDULE_PIECES];
    assert_true(golden_text(path, "class_name", name, sizeof name));
    manta_schedule s = {
        .kind = kind_of(name),
        .initial_learning_rate = golden_number(path, "initial_learning_rate", 0),
        .decay_steps = (int64_t)golden_number(path, "decay_steps", 0),
        .decay_rate = golden_number(path, "decay_rate", 0),
        .staircase = golden_number(path, "staircase", 0) != 0,
        .alpha = golden_number(path, "alpha", 0),
        .warmup_target = golden_number(path, "warmup_target", 0),
        .warmup_steps = (int64_t)golden_number(path, "warmup_steps", 0),
        .end_learning_rate = golden_number(path, "end_learning_rate", 0),
        .power = golden_number(path, "power", 0),
        .cycle = golden_number(path, "cycle", 0) != 0,
    };
    s.n_boundaries = golden_list(path, "boundaries", boundaries, MANTA_SCHEDULE_PIECES);
    for (int i = 0; i < s.n_boundaries; i++) s.boundaries[i] = (int64_t)boundaries[i];
    golden_list(path, "values", s.values, MANTA_SCHEDULE_PIECES + 1);
    assert_int_equal(schedule_check(&s), MANTA_OK);

    manta_array steps = golden_array(path, "steps"), want = golden_array(path, "values");
    for (int64_t i = 0; i < steps.shape[0]; i++) {
        float got = (float)manta_schedule_at(&s, ((int32_t *)steps.data)[i]);
        /* Two units in the last place, and what the cosine loses near its end. */
        golden_near(path, &got, (float *)want.data + i, 1, 2.4e-7, 6e-9);
    }
    golden_free(&steps);
    golden_free(&want);
}

static void schedules_match_keras(void **state)
{
    (void)state;
    assert_true(golden_each("keras_schedule_", recording, NULL) >= 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_constant_stays),
        cmocka_unit_test(exponential_decay_matches_its_formula),
        cmocka_unit_test(inverse_time_decay_matches_its_formula),
        cmocka_unit_test(cosine_decay_matches_its_formula),
        cmocka_unit_test(polynomial_decay_matches_its_formula),
        cmocka_unit_test(piecewise_values_change_at_their_boundaries),
        cmocka_unit_test(wrong_schedules_are_refused),
        cmocka_unit_test(schedules_match_keras),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
