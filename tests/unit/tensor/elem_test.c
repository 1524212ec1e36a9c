/* elem_test.c - activations and element-wise arithmetic: every family against
 * the reference bit for bit, values against double precision, slopes against
 * finite differences. */
#include "families.h"
#include "ok.h"

static const int64_t sizes[] = {0, 1, 7, 15, 16, 17, 63, 64, 65, 1000, 4097, 16384, 16385, 40000};
enum { SIZES = sizeof sizes / sizeof *sizes };

/* Values a loop might treat differently from ordinary ones. */
static const float odd[] = {0.0f,      -0.0f,  1.0f,        -1.0f,  1e-30f, -1e-30f, 1e-42f,
                            -1e-42f,   20.0f,  -20.0f,      88.7f,  -88.7f, 104.0f,  -104.0f,
                            3e38f,     -3e38f, 15.0f,       -15.0f, 0.625f, -0.625f, INFINITY,
                            -INFINITY, NAN,    0.99999994f, 5e-8f,  -5e-8f, 1e13f,   -1e13f};
enum { ODD = sizeof odd / sizeof *odd };

static double true_act(kern_act a, double alpha, double x)
{
    const double k = sqrt(2 / acos(-1.0));

    switch (a) {
    case KERN_RELU: return x < 0 ? 0 : x;
    case KERN_LEAKY_RELU: return x > 0 ? x : alpha * x;
    case KERN_ELU: return x > 0 ? x : alpha * expm1(x);
    case KERN_GELU: return 0.5 * x * erfc(-x / sqrt(2));
    case KERN_GELU_TANH: return x / (1 + exp(-2 * k * (x + 0.044715 * x * x * x)));
    case KERN_SILU: return x / (1 + exp(-x));
    case KERN_SIGMOID: return 1 / (1 + exp(-x));
    case KERN_TANH: return tanh(x);
    case KERN_HARD_SIGMOID: return fmin(fmax(x / 6 + 0.5, 0), 1);
    case KERN_HARD_SILU: return x * fmin(fmax(x / 6 + 0.5, 0), 1);
    case KERN_LINEAR:
    case KERN_ACTS: break;
    }
    return x;
}

typedef struct act_case {
    kern_act a;
    float alpha;
    int64_t n;
} act_case;

static void run_act(run *r, const void *arg)
{
    const act_case *c = arg;
    int64_t n = c->n;
    float *x = case_fill(r, n, 6.0f, 0.0f), *dy = case_fill(r, n, 2.0f, 0.0f);
    float *y = case_new(n), *dx = case_new(n), *acc = case_fill(r, n, 1.0f, 0.0f), *before = case_new(n);

    memcpy(before, acc, (size_t)n * sizeof *acc);

    r->k->act_forward(r->p, c->a, c->alpha, n, x, y);
    case_out(r, n, y);
    r->k->act_backward(r->p, c->a, c->alpha, n, x, y, dy, dx, false);
    case_out(r, n, dx);
    r->k->act_backward(r->p, c->a, c->alpha, n, x, y, dy, acc, true);
    case_out(r, n, acc);
    for (int64_t i = 0; i < n; i++) {
        double v = (double)x[i], h = 1e-5;
        double slope =
            (true_act(c->a, (double)c->alpha, v + h) - true_act(c->a, (double)c->alpha, v - h)) / (2 * h);
        /* The hard ones take a difference, which near their cuts has few digits. */
        case_near(r, "y", i, y[i], true_act(c->a, (double)c->alpha, v), 4e-6,
                  c->a == KERN_HARD_SIGMOID || c->a == KERN_HARD_SILU ? 0.1 : 1e-30);
        /* Not where a slope jumps: at 0, and of the hard ones at -3 and 3. */
        if (fabs(v) > 1e-4 && fabs(fabs(v) - 3) > 1e-4)
            case_near(r, "dx", i, dx[i], slope * (double)dy[i], 2e-6, 0.1);
        case_near(r, "dx added", i, acc[i], (double)before[i] + (double)dx[i], 1e-6, 1e-6);
    }
    /* In place, both ways, gives the same. */
    r->k->act_backward(r->p, c->a, c->alpha, n, x, y, dy, dy, false);
    assert_memory_equal(dy, dx, (size_t)n * sizeof *dx);
    r->k->act_forward(r->p, c->a, c->alpha, n, x, x);
    assert_memory_equal(x, y, (size_t)n * sizeof *y);
    free(x), free(dy), free(y), free(dx), free(acc), free(before);
}

static void run_act_odd(run *r, const void *arg)
{
    const act_case *c = arg;
    float y[ODD + 1], dx[ODD + 1], dy[ODD];

    y[ODD] = dx[ODD] = 12345.0f;
    for (int i = 0; i < ODD; i++) dy[i] = 1.0f;
    r->k->act_forward(r->p, c->a, c->alpha, ODD, odd, y);
    case_out(r, ODD, y);
    r->k->act_backward(r->p, c->a, c->alpha, ODD, odd, y, dy, dx, false);
    case_out(r, ODD, dx);
    for (int i = 0; i < ODD; i++) {
        if (isnan(odd[i]))
            assert_true(isnan(y[i]));
        else if (isfinite(odd[i]))
            assert_true(isfinite(y[i]) && isfinite(dx[i]));
    }
}

static void activations_agree_in_all_families(void **state)
{
    (void)state;
    for (int a = 0; a < KERN_ACTS; a++) {
        for (int s = 0; s < SIZES; s++)
            case_everywhere(
                "activation", run_act,
                &(act_case){.a = (kern_act)a, .alpha = a == KERN_ELU ? 1.5f : 0.3f, .n = sizes[s]});
        case_everywhere("activation of odd values", run_act_odd,
                        &(act_case){.a = (kern_act)a, .alpha = 0.3f});
    }
}

typedef struct binary_case {
    kern_binary op;
    int64_t n, nb;
} binary_case;

static float true_binary(kern_binary op, float a, float b)
{
    return op == KERN_ADD ? a + b : op == KERN_SUB ? a - b : a * b;
}

static void run_binary(run *r, const void *arg)
{
    const binary_case *c = arg;
    float *a = case_fill(r, c->n, 3.0f, 0.0f), *b = case_fill(r, c->nb, 3.0f, 0.0f), *out = case_new(c->n);

    r->k->binary(r->p, c->op, c->n, a, c->nb, b, out);
    case_out(r, c->n, out);
    for (int64_t i = 0; i < c->n; i++) assert_true(out[i] == true_binary(c->op, a[i], b[i % c->nb]));
    r->k->binary(r->p, c->op, c->n, a, c->nb, b, a);
    assert_memory_equal(a, out, (size_t)c->n * sizeof *a);
    free(a), free(b), free(out);
}

static void binary_operations_agree_in_all_families(void **state)
{
    static const int64_t shapes[][2] = {
        {1, 1},     {17, 17},        {4097, 4097},    {40000, 40000},     {40000, 1},         {39990, 10},
        {30000, 3}, {511 * 70, 511}, {513 * 70, 513}, {3 * 20000, 20000}, {16384 * 3, 16384}, {640, 10}};
    (void)state;

    for (int op = 0; op < KERN_BINARIES; op++)
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            case_everywhere("binary", run_binary,
                            &(binary_case){.op = (kern_binary)op, .n = shapes[s][0], .nb = shapes[s][1]});
}

static void run_axpby(run *r, const void *arg)
{
    int64_t n = *(const int64_t *)arg;
    static const float factors[][2] = {{1, 1}, {2, 0}, {-0.5f, 3}, {0.1f, 0.9f}};

    for (int k = 0; k < 4; k++) {
        float alpha = factors[k][0], beta = factors[k][1];
        float *a = case_fill(r, n, 1.0f, 0.0f), *out = case_fill(r, n, 1.0f, 0.0f), *was = case_new(n);
        memcpy(was, out, (size_t)n * sizeof *out);
        if (beta == 0.0f && n > 0) out[0] = NAN; /* must not be read */
        r->k->axpby(r->p, n, alpha, a, beta, out);
        case_out(r, n, out);
        for (int64_t i = 0; i < n; i++)
            case_near(r, "out", i, out[i], (double)alpha * (double)a[i] + (double)beta * (double)was[i], 2e-7,
                      1);
        free(a), free(out), free(was);
    }
}

static void axpby_agrees_in_all_families(void **state)
{
    (void)state;
    for (int s = 0; s < SIZES; s++) case_everywhere("axpby", run_axpby, &sizes[s]);
}

static void families_are_found_by_name(void **state)
{
    const kernels *k = NULL;
    (void)state;

    unsetenv("MANTA_KERNELS");
    assert_int_equal(kernels_find("reference", &k), MANTA_OK);
    assert_string_equal(k->name, "reference");
    assert_int_equal(kernels_find(NULL, &k), MANTA_OK);
    const kernels *fastest = k;
    assert_true(fastest->family != KERN_ONEDNN);
    assert_int_equal(kernels_find("auto", &k), MANTA_OK);
    assert_ptr_equal(k, fastest);
    setenv("MANTA_KERNELS", "reference", 1);
    assert_int_equal(kernels_find("", &k), MANTA_OK);
    assert_string_equal(k->name, "reference");
    setenv("MANTA_KERNELS", "sse9", 1);
    assert_int_equal(kernels_find("auto", &k), MANTA_EUNSUPPORTED);
    assert_error_says("sse9");
    unsetenv("MANTA_KERNELS");
    for (int f = 0; f < KERN_FAMILIES; f++)
        if ((k = kernels_of((kern_family)f))) { /* every entry of every table is there */
            assert_int_equal(k->family, f);
            void (*const *entry)(void) = (void (*const *)(void)) & k->gemm;
            size_t n = (sizeof *k - offsetof(kernels, gemm)) / sizeof *entry;
            for (size_t i = 0; i < n; i++) assert_non_null(entry[i]);
        }
    assert_null(kernels_of(KERN_FAMILIES));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_agree_in_all_families),
        cmocka_unit_test(binary_operations_agree_in_all_families),
        cmocka_unit_test(axpby_agrees_in_all_families),
        cmocka_unit_test(families_are_found_by_name),
    };

    return cmocka_run_group_tests_name("tensor/elem", tests, NULL, NULL);
}
