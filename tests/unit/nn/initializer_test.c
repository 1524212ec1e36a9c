/* initializer_test.c - initial weights: their spread, their limits, and that
 * they are a function of their place. */
#include "golden.h"

#include "nn/initializer.h"
#include "ok.h"

enum { N = 40000 };

static float w[N], other[N];

typedef struct spread {
    double mean, deviation, low, high;
} spread;

static spread spread_of(int64_t n, const float *v)
{
    spread s = {0, 0, HUGE_VAL, -HUGE_VAL};

    for (int64_t i = 0; i < n; i++) {
        s.mean += (double)v[i] / (double)n;
        s.low = fmin(s.low, (double)v[i]);
        s.high = fmax(s.high, (double)v[i]);
    }
    for (int64_t i = 0; i < n; i++) s.deviation += pow((double)v[i] - s.mean, 2) / (double)n;
    s.deviation = sqrt(s.deviation);
    return s;
}

/* A uniform within its limits and close to them; a cut normal within two of its uncut deviations. */
static void values_spread_as_their_distribution(void **state)
{
    (void)state;
    const int64_t dense[2] = {100, 400}, conv[4] = {5, 5, 16, 100}, bias[1] = {N};
    const struct {
        manta_init_kind kind;
        int ndim;
        const int64_t *shape;
        int64_t fan_in;
        double variance;
        bool normal;
    } cases[] = {
        {MANTA_INIT_GLOROT_UNIFORM, 2, dense, 0, 1.0 / 250, false},
        {MANTA_INIT_DEFAULT, 2, dense, 0, 1.0 / 250, false},
        {MANTA_INIT_GLOROT_NORMAL, 2, dense, 0, 1.0 / 250, true},
        {MANTA_INIT_GLOROT_UNIFORM, 4, conv, 0, 2.0 / (25 * 116), false},
        {MANTA_INIT_HE_UNIFORM, 2, dense, 0, 2.0 / 100, false},
        {MANTA_INIT_HE_NORMAL, 2, dense, 0, 2.0 / 100, true},
        {MANTA_INIT_HE_NORMAL, 4, conv, 0, 2.0 / 400, true},
        {MANTA_INIT_LECUN_UNIFORM, 4, conv, 0, 1.0 / 400, false},
        {MANTA_INIT_LECUN_NORMAL, 2, dense, 0, 1.0 / 100, true},
        {MANTA_INIT_TORCH, 2, dense, 0, 1.0 / 300, false},
        {MANTA_INIT_TORCH, 4, conv, 0, 1.0 / 1200, false},
        {MANTA_INIT_TORCH, 1, bias, 64, 1.0 / 192, false}, /* a bias starts by its weight's fan_in */
        {MANTA_INIT_LECUN_UNIFORM, 1, bias, 0, 1.0 / N, false},
        {MANTA_INIT_FAN_OUT_NORMAL, 2, dense, 0, 2.0 / 400, true},
        {MANTA_INIT_FAN_OUT_UNIFORM, 4, conv, 0, 2.0 / 2500, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        initializer_fill(&(manta_initializer){.kind = cases[i].kind, .a = 2}, cases[i].ndim, cases[i].shape,
                         cases[i].fan_in, 7, i, w);
        spread s = spread_of(N, w);
        double deviation = sqrt(cases[i].variance);
        double limit = cases[i].normal ? 2 * deviation / 0.87962566103423978 : sqrt(3) * deviation;
        if (!(fabs(s.deviation - deviation) < 0.015 * deviation && fabs(s.mean) < 0.02 * deviation))
            fail_msg("%s: deviation %g, expected %g", initializer_name(cases[i].kind), s.deviation,
                     deviation);
        assert_true(-s.low <= limit * (1 + 1e-6) && s.high <= limit * (1 + 1e-6));
        assert_true(-s.low > 0.98 * limit && s.high > 0.98 * limit);
    }
}

static void parameters_bound_the_values(void **state)
{
    (void)state;
    const int64_t shape[1] = {N};
    initializer_fill(&(manta_initializer){MANTA_INIT_UNIFORM, 2, 6}, 1, shape, 0, 1, 0, w);
    spread s = spread_of(N, w);
    assert_true(s.low >= 2 && s.low < 2.01 && s.high <= 6 && s.high > 5.99 && fabs(s.mean - 4) < 0.03);
    initializer_fill(&(manta_initializer){MANTA_INIT_NORMAL, 3, 0.5f}, 1, shape, 0, 1, 0, w);
    s = spread_of(N, w);
    assert_true(fabs(s.mean - 3) < 0.01 && fabs(s.deviation - 0.5) < 0.01 && s.high > 4.5 && s.low < 1.5);
    initializer_fill(&(manta_initializer){MANTA_INIT_TRUNCATED_NORMAL, 3, 0.5f}, 1, shape, 0, 1, 0, w);
    s = spread_of(N, w);
    assert_true(s.low >= 2 && s.high <= 4 && fabs(s.mean - 3) < 0.01);
    assert_true(fabs(s.deviation - 0.5 * 0.87962566103423978) < 0.01);

    const int64_t five[1] = {5};
    initializer_fill(&(manta_initializer){.kind = MANTA_INIT_ONES}, 1, five, 0, 1, 0, w);
    for (int i = 0; i < 5; i++) assert_true(w[i] == 1);
    initializer_fill(&(manta_initializer){.kind = MANTA_INIT_ZEROS}, 1, five, 0, 1, 0, w);
    for (int i = 0; i < 5; i++) assert_true(w[i] == 0);
    initializer_fill(&(manta_initializer){MANTA_INIT_CONSTANT, -2.5f, 0}, 1, five, 0, 1, 0, w);
    for (int i = 0; i < 5; i++) assert_true(w[i] == -2.5f);
    initializer_fill(&(manta_initializer){MANTA_INIT_CONSTANT, 3, 0}, 0, NULL, 0, 1, 0, w);
    assert_true(w[0] == 3 && w[1] == -2.5f); /* a scalar is one element */
}

/* Element i depends on seed, stream and i, not on how many are asked for. */
static void an_element_depends_on_seed_stream_and_index(void **state)
{
    (void)state;
    static const manta_init_kind kinds[] = {MANTA_INIT_UNIFORM, MANTA_INIT_NORMAL,
                                            MANTA_INIT_TRUNCATED_NORMAL};
    for (int k = 0; k < 3; k++) {
        manta_initializer init = {kinds[k], 0, 1};
        int64_t all[1] = {10000};
        initializer_fill(&init, 1, all, 0, 11, 3, w);
        for (int64_t n = 1; n < 10000; n = 3 * n + 1) {
            other[n] = 77;
            initializer_fill(&init, 1, &n, 0, 11, 3, other);
            assert_memory_equal(other, w, (size_t)n * sizeof(float));
            assert_true(other[n] == 77);
        }
        static const struct {
            uint64_t seed, stream;
        } elsewhere[] = {{12, 3}, {11, 4}, {3, 11}, {11, 0}, {11, (uint64_t)1 << 40}};
        for (int e = 0; e < 5; e++) {
            int same = 0;
            initializer_fill(&init, 1, all, 0, elsewhere[e].seed, elsewhere[e].stream, other);
            for (int i = 0; i < 10000; i++) same += w[i] == other[i];
            assert_true(same < 10);
        }
    }
}

/* The first numbers of seed 1, so that a change of the generator or its keys is noticed: runs would
 * no longer start as they did. */
static void the_first_numbers_of_seed_1_stay(void **state)
{
    (void)state;
    const int64_t shape[2] = {4, 2};
    initializer_fill(&(manta_initializer){.kind = MANTA_INIT_GLOROT_UNIFORM}, 2, shape, 0, 1, 0, w);
    const float uniform[4] = {0x1.6e5004p-1f, 0x1.035cfp-3f, -0x1.e90e6p-1f, -0x1.1b148p-2f};
    assert_memory_equal(w, uniform, sizeof uniform);
    initializer_fill(&(manta_initializer){.kind = MANTA_INIT_HE_NORMAL}, 2, shape, 0, 1, 0, w);
    const float normal[4] = {-0.410575718f, -0.172553018f, -1.43129265f, 0.13746579f};
    for (int i = 0; i < 4; i++) assert_true(fabsf(w[i] - normal[i]) < 1e-6f); /* libm's cosine may differ */
}

static void initializers_are_found_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *given;
        manta_init_kind kind;
        float a, b;
    } names[] = {
        {"glorot_uniform", MANTA_INIT_GLOROT_UNIFORM, 0, 0},
        {"GlorotUniform", MANTA_INIT_GLOROT_UNIFORM, 0, 0},
        {"glorot_normal", MANTA_INIT_GLOROT_NORMAL, 0, 0},
        {"HeNormal", MANTA_INIT_HE_NORMAL, 0, 0},
        {"he_uniform", MANTA_INIT_HE_UNIFORM, 0, 0},
        {"LecunNormal", MANTA_INIT_LECUN_NORMAL, 0, 0},
        {"lecun_uniform", MANTA_INIT_LECUN_UNIFORM, 0, 0},
        {"zeros", MANTA_INIT_ZEROS, 0, 0},
        {"Ones", MANTA_INIT_ONES, 0, 0},
        {"constant", MANTA_INIT_CONSTANT, 0, 0},
        {"RandomNormal", MANTA_INIT_NORMAL, 0, 0.05f},
        {"normal", MANTA_INIT_NORMAL, 0, 0.05f},
        {"uniform", MANTA_INIT_UNIFORM, -0.05f, 0.05f},
        {"random_uniform", MANTA_INIT_UNIFORM, -0.05f, 0.05f},
        {"TruncatedNormal", MANTA_INIT_TRUNCATED_NORMAL, 0, 0.05f},
        {"torch_default", MANTA_INIT_TORCH, 0, 0},
    };
    manta_initializer init;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        assert_int_equal(initializer_parse(names[i].given, &init), MANTA_OK);
        assert_int_equal(init.kind, names[i].kind);
        assert_true(init.a == names[i].a && init.b == names[i].b);
    }
    for (int k = MANTA_INIT_DEFAULT; k <= MANTA_INIT_FAN_OUT_NORMAL; k++) {
        assert_int_equal(initializer_parse(initializer_name((manta_init_kind)k), &init), MANTA_OK);
        assert_int_equal(init.kind, k);
    }
    assert_int_equal(initializer_parse("orthogonal", &init), MANTA_ENOENT);
    assert_error_says("orthogonal");
    assert_error_says("he_normal");
    assert_int_equal(initializer_parse("glorot_unifrom", &init), MANTA_ENOENT);
    assert_error_says("did you mean glorot_uniform?");
    assert_string_equal(initializer_name((manta_init_kind)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_spread_as_their_distribution),
        cmocka_unit_test(parameters_bound_the_values),
        cmocka_unit_test(an_element_depends_on_seed_stream_and_index),
        cmocka_unit_test(the_first_numbers_of_seed_1_stay),
        cmocka_unit_test(initializers_are_found_by_name),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
