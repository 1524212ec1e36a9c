/* loss_test.c - the losses against their formulas in double precision, their
 * gradients against finite differences of those, and both against recordings
 * of Keras and PyTorch. */
#include "golden.h"

#include "base/half.h"
#include "nn/loss.h"
#include "nn/loss_impl.h"
#include "nn/loss_rows.h"
#include "ok.h"

enum { MAX = 1300 };

static uint64_t random_state;

/* Uniform in [low, high); the same numbers in every run. */
static float random_in(double low, double high)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)(low + (high - low) * (double)(random_state >> 40) * 0x1p-24);
}

typedef enum kind { SPARSE, DENSE, BINARY, SQUARED, ABSOLUTE, HUBER } kind;

static const struct {
    kind kind;
    const char *name;
    manta_loss_fn fn;
} kinds[] = {{SPARSE, "sparse_categorical_crossentropy", loss_sparse_category},
             {DENSE, "categorical_crossentropy", loss_dense_category},
             {BINARY, "binary_crossentropy", loss_binary},
             {SQUARED, "mean_squared_error", loss_squared},
             {ABSOLUTE, "mean_absolute_error", loss_absolute},
             {HUBER, "huber", loss_huber}};

typedef struct loss_case {
    kind kind;
    loss_config k;
} loss_case;

static const loss_case cases[] = {
    {SPARSE, {.from_logits = true}},
    {SPARSE, {.from_logits = true, .label_smoothing = 0.1f}},
    {SPARSE, {.from_logits = false}},
    {SPARSE, {.from_logits = false, .label_smoothing = 0.2f}},
    {DENSE, {.from_logits = true}},
    {DENSE, {.from_logits = true, .label_smoothing = 0.1f}},
    {DENSE, {.from_logits = false}},
    {DENSE, {.from_logits = false, .label_smoothing = 0.1f}},
    {BINARY, {.from_logits = true}},
    {BINARY, {.from_logits = true, .label_smoothing = 0.2f}},
    {BINARY, {.from_logits = false}},
    {BINARY, {.from_logits = false, .label_smoothing = 0.2f}},
    {SQUARED, {0}},
    {ABSOLUTE, {0}},
    {HUBER, {.delta = 1.0f}},
    {HUBER, {.delta = 0.4f}},
};
enum { N_CASES = sizeof cases / sizeof cases[0] };

/* ---- the formulas, in double ---- */

static double clip(double p)
{
    const double low = (double)1e-7f, high = (double)(float)(1 - 1e-7);

    return p < low ? low : p > high ? high : p;
}

/* t: the row's target as shares or numbers, one-hot for the sparse loss; not yet smoothed. */
static double formula(const loss_case *c, int n, const double *x, const double *target)
{
    double t[MAX], max = -HUGE_VAL, sum = 0, clipped = 0, loss = 0, s = (double)c->k.label_smoothing;

    for (int i = 0; i < n; i++) {
        t[i] = c->kind == BINARY  ? target[i] * (1 - s) + 0.5 * s
               : c->kind <= DENSE ? target[i] * (1 - s) + s / n
                                  : target[i];
        max = fmax(max, x[i]);
    }
    if (c->kind <= DENSE && c->k.from_logits) {
        for (int i = 0; i < n; i++) sum += exp(x[i] - max);
        for (int i = 0; i < n; i++) loss += t[i] * (log(sum) - (x[i] - max));
        return loss;
    }
    for (int i = 0; i < n; i++) sum += x[i];
    for (int i = 0; i < n; i++) clipped += clip(x[i]);
    for (int i = 0; i < n; i++) {
        double d = x[i] - t[i], delta = (double)c->k.delta;
        switch (c->kind) {
        case SPARSE: loss += t[i] * (log(clipped) - log(clip(x[i]))); break;
        case DENSE: loss -= t[i] * log(clip(x[i] / sum)); break;
        case BINARY:
            if (c->k.from_logits)
                loss += (fmax(x[i], 0) - x[i] * t[i] + log1p(exp(-fabs(x[i])))) / n;
            else
                loss -= (t[i] * log(clip(x[i])) + (1 - t[i]) * log(1 - clip(x[i]))) / n;
            break;
        case SQUARED: loss += d * d / n; break;
        case ABSOLUTE: loss += fabs(d) / n; break;
        case HUBER:
            loss += (fabs(d) <= delta ? 0.5 * d * d : delta * fabs(d) - 0.5 * delta * delta) / n;
            break;
        }
    }
    return loss;
}

/* ---- one call with everything it needs ---- */

typedef struct work {
    int rows, classes;
    float pred[MAX], target[MAX], weight[MAX], loss[MAX], grad[MAX];
    int64_t labels[MAX];
    manta_loss_call call;
} work;

static void fill(work *w, const loss_case *c, int rows, int classes)
{
    assert_true(rows * classes <= MAX);
    *w = (work){.rows = rows, .classes = classes};
    for (int r = 0; r < rows; r++) {
        float *x = w->pred + r * classes, *t = w->target + r * classes, sum = 0;
        for (int i = 0; i < classes; i++) {
            bool share = c->kind <= BINARY && !c->k.from_logits;
            x[i] = share ? random_in(0.01, 0.99) : random_in(-4, 4);
            t[i] = c->kind == BINARY  ? random_in(0, 1)
                   : c->kind == DENSE ? random_in(0.1, 1)
                                      : random_in(-4, 4);
            sum += t[i];
        }
        /* The third row's shares add up to a half: its gradient is still that of its loss. */
        for (int i = 0; i < classes && c->kind == DENSE; i++) t[i] /= r == 2 ? 2 * sum : sum;
        w->labels[r] = (int64_t)random_in(0, classes);
        w->weight[r] = random_in(0.2, 2);
    }
    int64_t shape[2] = {rows, classes};
    w->call = (manta_loss_call){.config = &c->k,
                                .rows = rows,
                                .classes = classes,
                                .pred = w->pred,
                                .weight = w->weight,
                                .scale = 0.37f,
                                .loss = w->loss,
                                .grad = w->grad};
    w->call.target = c->kind == SPARSE ? manta_array_of(MANTA_DTYPE_I64, 1, shape, w->labels)
                                       : manta_array_of(MANTA_DTYPE_F32, 2, shape, w->target);
}

static void check_row(const work *w, const loss_case *c, int r)
{
    double x[MAX], t[MAX];
    int n = w->classes;

    for (int i = 0; i < n; i++) {
        x[i] = (double)w->pred[r * n + i];
        t[i] = c->kind == SPARSE ? (double)(w->labels[r] == i) : (double)w->target[r * n + i];
    }
    double want = formula(c, n, x, t), got = (double)w->loss[r];
    if (!(fabs(got - want) <= 3e-6 * fabs(want) + 3e-7))
        fail_msg("%s, %d classes: loss %.9g, formula %.9g", kinds[c->kind].name, n, got, want);
    double g = (double)w->weight[r] * 0.37;
    for (int i = 0; i<n; i += n> 64 ? 7 : 1) {
        double at = x[i], h = 1e-6;
        x[i] = at + h;
        double up = formula(c, n, x, t);
        x[i] = at - h;
        double down = formula(c, n, x, t);
        x[i] = at;
        double slope = g * (up - down) / (2 * h), mine = (double)w->grad[r * n + i];
        if (!(fabs(mine - slope) <= 3e-6 * fabs(slope) + 3e-7))
            fail_msg("%s, %d classes: gradient %.9g, finite difference %.9g", kinds[c->kind].name, n, mine,
                     slope);
    }
}

static void losses_match_formulas_and_finite_differences(void **state)
{
    (void)state;
    static const int widths[] = {1, 2, 3, 10, 15, 16, 17, 100, 127, 128, 129, 400};
    static work w;
    random_state = 1;
    for (int i = 0; i < N_CASES; i++)
        for (size_t j = 0; j < sizeof widths / sizeof widths[0]; j++) {
            fill(&w, &cases[i], 3, widths[j]);
            assert_int_equal(kinds[cases[i].kind].fn(&w.call), MANTA_OK);
            for (int r = 0; r < 3; r++) check_row(&w, &cases[i], r);
        }
}

/* The loss does not depend on whether a gradient is wanted, nor a row on its neighbours. */
static void a_row_depends_on_no_other(void **state)
{
    (void)state;
    static work w, one;
    random_state = 2;
    for (int i = 0; i < N_CASES; i++) {
        fill(&w, &cases[i], 5, 33);
        assert_int_equal(kinds[cases[i].kind].fn(&w.call), MANTA_OK);
        for (int r = 0; r < 5; r++) {
            int64_t shape[2] = {1, 33};
            one = w;
            one.call.rows = 1;
            one.call.pred = one.pred + r * 33;
            one.call.weight = one.weight + r;
            one.call.loss = one.loss;
            one.call.grad = NULL;
            one.call.target = cases[i].kind == SPARSE
                                  ? manta_array_of(MANTA_DTYPE_I64, 1, shape, one.labels + r)
                                  : manta_array_of(MANTA_DTYPE_F32, 2, shape, one.target + r * 33);
            assert_int_equal(kinds[cases[i].kind].fn(&one.call), MANTA_OK);
            assert_memory_equal(one.loss, w.loss + r, sizeof(float));
            one.call.grad = one.grad;
            assert_int_equal(kinds[cases[i].kind].fn(&one.call), MANTA_OK);
            assert_memory_equal(one.loss, w.loss + r, sizeof(float));
            assert_memory_equal(one.grad, w.grad + r * 33, 33 * sizeof(float));
        }
    }
}

static void weight_and_scale_multiply(void **state)
{
    (void)state;
    static work w;
    float plain[MAX], loss[MAX];
    random_state = 3;
    for (int i = 0; i < N_CASES; i++) {
        fill(&w, &cases[i], 4, 6);
        w.call.weight = NULL;
        w.call.scale = 1.0f;
        assert_int_equal(kinds[cases[i].kind].fn(&w.call), MANTA_OK);
        memcpy(plain, w.grad, sizeof plain);
        memcpy(loss, w.loss, sizeof loss);
        w.call.weight = w.weight;
        w.call.scale = 0.25f;
        assert_int_equal(kinds[cases[i].kind].fn(&w.call), MANTA_OK);
        assert_memory_equal(w.loss, loss, 4 * sizeof(float));
        for (int j = 0; j < 24; j++) {
            float want = plain[j] * w.weight[j / 6] * 0.25f;
            assert_true(fabsf(w.grad[j] - want) <= 1e-6f * fabsf(want) + 1e-8f);
        }
    }
}

static void nan_comes_out_again(void **state)
{
    (void)state;
    static const int places[] = {0, 7, 15, 16, 20, 129, 149};
    static work w;
    random_state = 4;
    for (int i = 0; i < N_CASES; i++)
        for (size_t j = 0; j < sizeof places / sizeof places[0]; j++) {
            fill(&w, &cases[i], 2, 150);
            w.labels[0] = 3; /* the sparse loss must see a NaN beside the label too */
            w.pred[places[j]] = NAN;
            assert_int_equal(kinds[cases[i].kind].fn(&w.call), MANTA_OK);
            if (!isnan(w.loss[0])) fail_msg("%s hides a NaN at %d", kinds[cases[i].kind].name, places[j]);
            assert_true(isnan(w.grad[places[j]]));
            assert_true(w.loss[1] == w.loss[1]);
        }
}

static void large_logits_do_not_overflow(void **state)
{
    (void)state;
    float x[4] = {1e4f, -1e4f, 9999.0f, 0}, loss, grad[4];
    int32_t label = 2;
    loss_config k = {.from_logits = true};
    int64_t one = 1;
    manta_loss_call c = {
        .config = &k, .rows = 1, .classes = 4, .pred = x, .scale = 1, .loss = &loss, .grad = grad};
    c.target = manta_array_of(MANTA_DTYPE_I32, 1, &one, &label);
    assert_int_equal(loss_sparse_category(&c), MANTA_OK);
    assert_true(fabs((double)loss - (1 + log1p(exp(-1)))) < 1e-6);
    assert_true(fabs((double)grad[0] - 1 / (1 + exp(-1))) < 1e-6);
    assert_true(grad[1] == 0.0f);

    float t[4] = {0, 1, 0.5f, 1}, y[4] = {1e4f, -1e4f, 100, 100};
    int64_t shape[2] = {1, 4};
    c.pred = y;
    c.target = manta_array_of(MANTA_DTYPE_F32, 2, shape, t);
    assert_int_equal(loss_binary(&c), MANTA_OK);
    assert_true(fabs((double)loss - (1e4 + 1e4 + 50 + 0) / 4) < 1e-2);
    assert_true(grad[0] == 0.25f && grad[1] == -0.25f && grad[3] == 0.0f);
}

/* Beyond the clip the loss is flat, and so is its gradient. */
static void the_clip_cuts_the_gradient(void **state)
{
    (void)state;
    float p[3] = {0.0f, 1.0f, 0.25f}, t[3] = {1, 0, 1}, loss, grad[3];
    int64_t shape[2] = {1, 3}, one = 1;
    loss_config k = {0};
    manta_loss_call c = {
        .config = &k, .rows = 1, .classes = 3, .pred = p, .scale = 1, .loss = &loss, .grad = grad};
    c.target = manta_array_of(MANTA_DTYPE_F32, 2, shape, t);
    assert_int_equal(loss_binary(&c), MANTA_OK);
    double low = -log((double)1e-7f), high = -log(1 - (double)(float)(1 - 1e-7));
    assert_true(fabs((double)loss - (low + high - log(0.25)) / 3) < 1e-5);
    assert_true(grad[0] == 0.0f && grad[1] == 0.0f);
    assert_true(fabsf(grad[2] + 4.0f / 3) < 1e-6f);

    int32_t label = 0;
    float q[3] = {0.0f, 0.5f, 0.5f};
    c.pred = q;
    c.target = manta_array_of(MANTA_DTYPE_I32, 1, &one, &label);
    assert_int_equal(loss_sparse_category(&c), MANTA_OK);
    assert_true(fabs((double)loss - low) < 1e-5);
    assert_true(grad[0] == 0.0f && fabsf(grad[1] - 1.0f) < 1e-6f);

    float h[3] = {1, 0, 0};
    c.target = manta_array_of(MANTA_DTYPE_F32, 2, shape, h);
    assert_int_equal(loss_dense_category(&c), MANTA_OK);
    assert_true(fabs((double)loss - low) < 1e-5);
    assert_true(grad[0] == 0.0f && grad[1] == 0.0f && grad[2] == 0.0f);
}

/* ---- targets ---- */

static void labels_come_in_every_integer_dtype(void **state)
{
    (void)state;
    float x[9], want[9], loss[3], grad[9];
    uint8_t u8[3] = {2, 0, 1};
    int32_t i32[3] = {2, 0, 1};
    int64_t i64[3] = {2, 0, 1}, three = 3;
    float f32[3] = {2, 0, 1};
    double f64[3] = {2, 0, 1};
    struct {
        manta_dtype t;
        void *data;
    } forms[] = {{MANTA_DTYPE_U8, u8},
                 {MANTA_DTYPE_I32, i32},
                 {MANTA_DTYPE_I64, i64},
                 {MANTA_DTYPE_F32, f32},
                 {MANTA_DTYPE_F64, f64}};
    loss_config k = {.from_logits = true};
    manta_loss_call c = {
        .config = &k, .rows = 3, .classes = 3, .pred = x, .scale = 1, .loss = loss, .grad = grad};
    random_state = 5;
    for (int i = 0; i < 9; i++) x[i] = random_in(-2, 2);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        c.target = manta_array_of(forms[i].t, 1, &three, forms[i].data);
        assert_int_equal(loss_sparse_category(&c), MANTA_OK);
        if (i == 0) memcpy(want, grad, sizeof want);
        assert_memory_equal(grad, want, sizeof want);
    }
    assert_true(want[2] < 0 && want[3] < 0 && want[7] < 0); /* at the labels */
}

static void dense_targets_come_in_every_dtype(void **state)
{
    (void)state;
    float p[4] = {0.2f, 0.9f, 0.6f, 0.3f}, want[4], loss[2], grad[4], f32[4] = {0, 1, 1, 0};
    double f64[4] = {0, 1, 1, 0};
    uint8_t u8[4] = {0, 1, 1, 0};
    int32_t i32[4] = {0, 1, 1, 0};
    int64_t i64[4] = {0, 1, 1, 0}, shape[2] = {2, 2};
    uint16_t f16[4] = {0, f16_from_f32(1), f16_from_f32(1), 0},
             bf16[4] = {0, bf16_from_f32(1), bf16_from_f32(1), 0};
    void *data[MANTA_DTYPE_COUNT] = {
        [MANTA_DTYPE_F32] = f32, [MANTA_DTYPE_F64] = f64, [MANTA_DTYPE_F16] = f16, [MANTA_DTYPE_BF16] = bf16,
        [MANTA_DTYPE_I32] = i32, [MANTA_DTYPE_I64] = i64, [MANTA_DTYPE_U8] = u8,   [MANTA_DTYPE_BOOL] = u8};
    manta_loss_call c = {.rows = 2, .classes = 2, .pred = p, .scale = 1, .loss = loss, .grad = grad};
    for (int t = 0; t < MANTA_DTYPE_COUNT; t++) {
        c.target = manta_array_of((manta_dtype)t, 2, shape, data[t]);
        assert_int_equal(loss_binary(&c), MANTA_OK);
        if (t == 0) memcpy(want, grad, sizeof want);
        assert_memory_equal(grad, want, sizeof want);
    }
    assert_true(want[0] > 0 && want[1] < 0 && want[2] < 0 && want[3] > 0);
}

static void bad_labels_are_refused(void **state)
{
    (void)state;
    float x[6] = {0}, loss[2], grad[6];
    int64_t two = 2;
    int32_t i32[2] = {1, -1};
    int64_t i64[2] = {INT64_MAX, 0};
    uint8_t u8[2] = {2, 3};
    float f32[2] = {0, 1.5f}, nan32[2] = {0, NAN}, huge[2] = {0, 1e30f}, below[2] = {0, -1};
    struct {
        manta_dtype t;
        void *data;
        manta_status st;
        const char *row, *value;
    } bad[] = {
        {MANTA_DTYPE_I32, i32, MANTA_EINVAL, "row 1", "-1"},
        {MANTA_DTYPE_I64, i64, MANTA_EINVAL, "row 0", "9223372036854775807"},
        {MANTA_DTYPE_U8, u8, MANTA_EINVAL, "row 1", "3"},
        {MANTA_DTYPE_F32, f32, MANTA_EINVAL, "row 1", "1.5"},
        {MANTA_DTYPE_F32, nan32, MANTA_ENAN, "row 1", "nan"},
        {MANTA_DTYPE_F32, huge, MANTA_EINVAL, "row 1", "1e+30"},
        {MANTA_DTYPE_F32, below, MANTA_EINVAL, "row 1", "-1"},
    };
    manta_loss_call c = {.rows = 2, .classes = 3, .pred = x, .scale = 1, .loss = loss, .grad = grad};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        c.target = manta_array_of(bad[i].t, 1, &two, bad[i].data);
        assert_int_equal(loss_sparse_category(&c), bad[i].st);
        assert_error_says(bad[i].row);
        assert_error_says(bad[i].value);
        assert_error_says("from 0 to 2");
    }
    c.target = manta_array_of(MANTA_DTYPE_F16, 1, &two, u8);
    assert_int_equal(loss_sparse_category(&c), MANTA_EINVAL);
    assert_error_says("float16");
}

static void bad_dense_targets_are_refused(void **state)
{
    (void)state;
    static const struct {
        kind kind;
        float value;
        manta_status st;
        const char *expected;
    } bad[] = {
        {DENSE, -0.5f, MANTA_EINVAL, "0 to 1"}, {DENSE, 2, MANTA_EINVAL, "0 to 1"},
        {DENSE, NAN, MANTA_ENAN, "0 to 1"},     {BINARY, 255, MANTA_EINVAL, "0 to 1"},
        {BINARY, -1, MANTA_EINVAL, "0 to 1"},   {BINARY, NAN, MANTA_ENAN, "0 to 1"},
        {SQUARED, NAN, MANTA_ENAN, "finite"},   {SQUARED, INFINITY, MANTA_EINVAL, "finite"},
        {ABSOLUTE, NAN, MANTA_ENAN, "finite"},  {HUBER, -INFINITY, MANTA_EINVAL, "finite"},
    };
    static work w;
    static const loss_case by_kind[] = {[DENSE] = {DENSE, {0}},
                                        [BINARY] = {BINARY, {0}},
                                        [SQUARED] = {SQUARED, {0}},
                                        [ABSOLUTE] = {ABSOLUTE, {0}},
                                        [HUBER] = {HUBER, {0}}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        fill(&w, &by_kind[bad[i].kind], 3, 140);
        w.target[2 * 140 + 137] = bad[i].value;
        assert_int_equal(kinds[bad[i].kind].fn(&w.call), bad[i].st);
        assert_error_says("row 2, column 137");
        assert_error_says(bad[i].expected);
    }
    /* A share that rounding put a little above 1 is one. */
    fill(&w, &by_kind[BINARY], 1, 2);
    w.target[0] = 1.0000001f;
    assert_int_equal(loss_binary(&w.call), MANTA_OK);
}

static void wrong_shapes_at_the_call_are_refused(void **state)
{
    (void)state;
    static work w;
    int64_t shape[2] = {3, 5};
    fill(&w, &cases[0], 3, 4);
    w.call.target = manta_array_of(MANTA_DTYPE_I64, 2, shape, w.labels);
    assert_int_equal(loss_sparse_category(&w.call), MANTA_EINVAL);
    assert_error_says("(3, 5)");
    w.call.target.dtype = MANTA_DTYPE_F32;
    assert_int_equal(loss_squared(&w.call), MANTA_EINVAL);
    assert_error_says("(3, 4)");
    w.call.target = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){3, 4}, w.target);
    w.call.target.strides[0] = 8;
    assert_int_equal(loss_squared(&w.call), MANTA_EINVAL);
    assert_error_says("row-major");
    w.call.target.dtype = (manta_dtype)99;
    assert_int_equal(loss_squared(&w.call), MANTA_EINVAL);
}

/* ---- names and checks ---- */

static void losses_are_found_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *given, *canonical;
        bool sparse, softmax, sigmoid;
    } names[] = {
        {"sparse_categorical_crossentropy", "sparse_categorical_crossentropy", true, true, false},
        {"SparseCategoricalCrossentropy", "sparse_categorical_crossentropy", true, true, false},
        {"CategoricalCrossentropy", "categorical_crossentropy", false, true, false},
        {"bce", "binary_crossentropy", false, false, true},
        {"BinaryCrossentropy", "binary_crossentropy", false, false, true},
        {"mse", "mean_squared_error", false, false, false},
        {"MSE", "mean_squared_error", false, false, false},
        {"MeanSquaredError", "mean_squared_error", false, false, false},
        {"mae", "mean_absolute_error", false, false, false},
        {"Huber", "huber", false, false, false},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        loss_fn f;
        assert_int_equal(loss_find(&(manta_loss){.name = names[i].given}, &f), MANTA_OK);
        assert_string_equal(f.name, names[i].canonical);
        assert_int_equal(f.sparse, names[i].sparse);
        assert_int_equal(f.logits_of_softmax, names[i].softmax);
        assert_int_equal(f.logits_of_sigmoid, names[i].sigmoid);
        bool sparse;
        assert_string_equal(loss_name_of(f.fn, &sparse), f.name);
    }
}

static manta_status own_loss(const manta_loss_call *c)
{
    c->loss[0] = 42;
    return MANTA_OK;
}

static void wrong_options_are_refused(void **state)
{
    (void)state;
    loss_fn f = {.name = "untouched"};
    assert_int_equal(loss_find(&(manta_loss){.name = "hinge"}, &f), MANTA_ENOENT);
    assert_error_says("hinge");
    assert_error_says("huber");
    assert_int_equal(loss_find(&(manta_loss){0}, &f), MANTA_EINVAL);
    static const struct {
        manta_loss l;
        const char *says;
    } bad[] = {
        {{.name = "bce", .label_smoothing = 1.5f}, "label_smoothing is 1.5"},
        {{.name = "bce", .label_smoothing = NAN}, "label_smoothing is nan"},
        {{.name = "mse", .label_smoothing = 0.1f}, "only cross-entropies"},
        {{.name = "huber", .delta = -1}, "delta is -1"},
        {{.name = "mse", .weight = INFINITY}, "weight is inf"},
        {{.name = "mse", .reduction = (manta_reduction)7}, "numbered 7"},
        {{.name = "mine", .fn = own_loss, .weight = -1}, "mine"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(loss_find(&bad[i].l, &f), MANTA_EINVAL);
        assert_error_says(bad[i].says);
    }
    assert_string_equal(f.name, "untouched");
    assert_int_equal(loss_find(&(manta_loss){.name = "mine", .fn = own_loss}, &f), MANTA_OK);
    assert_string_equal(f.name, "mine");
    assert_true(f.fn == own_loss && !f.sparse);
}

/* 0 is the default of delta and of a weight, MANTA_ZERO is 0. */
static void a_zero_can_be_asked_for(void **state)
{
    float p[2] = {0.5f, 3}, t[2] = {0, 0}, loss, grad[2];
    loss_config k = {0};
    manta_loss_call c = {.config = &k, .rows = 1, .classes = 2, .pred = p, .scale = 1, .loss = &loss};
    manta_loss none = {.name = "huber", .delta = MANTA_ZERO, .weight = MANTA_ZERO};
    loss_fn f;

    (void)state;
    c.grad = grad;
    c.target = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){1, 2}, t);
    assert_int_equal(loss_huber(&c), MANTA_OK);
    assert_true(loss == (0.125f + 2.5f) / 2 && grad[1] == 0.5f);
    k.delta = MANTA_ZERO;
    assert_int_equal(loss_huber(&c), MANTA_OK);
    assert_true(loss == 0 && grad[0] == 0 && grad[1] == 0);
    assert_int_equal(loss_find(&none, &f), MANTA_OK);
    none.delta = MANTA_NONE;
    assert_int_equal(loss_find(&none, &f), MANTA_EINVAL);
    assert_error_says("delta is -1; expected a positive number, 0 for 1, or MANTA_ZERO");
}

static void targets_are_checked_against_the_loss(void **state)
{
    (void)state;
    loss_fn sparse, dense, mse, own;
    assert_int_equal(loss_find(&(manta_loss){.name = "sparse_categorical_crossentropy"}, &sparse), MANTA_OK);
    assert_int_equal(loss_find(&(manta_loss){.name = "categorical_crossentropy"}, &dense), MANTA_OK);
    assert_int_equal(loss_find(&(manta_loss){.name = "mse"}, &mse), MANTA_OK);
    assert_int_equal(loss_find(&(manta_loss){.name = "mine", .fn = own_loss}, &own), MANTA_OK);
    const struct {
        const loss_fn *l;
        manta_dtype t;
        int ndim;
        int64_t shape[3], classes;
        const char *says; /* NULL: fits */
    } checks[] = {
        {&sparse, MANTA_DTYPE_U8, 1, {8}, 10, NULL},
        {&sparse, MANTA_DTYPE_I64, 2, {8, 1}, 10, NULL},
        {&sparse, MANTA_DTYPE_I64, 2, {2, 4}, 10, NULL},
        {&sparse, MANTA_DTYPE_F32, 2, {8, 10}, 10, "categorical_crossentropy takes one-hot"},
        {&sparse, MANTA_DTYPE_I32, 1, {7}, 10, "(7,)"},
        {&sparse, MANTA_DTYPE_BF16, 1, {8}, 10, "bfloat16"},
        {&dense, MANTA_DTYPE_F32, 2, {8, 10}, 10, NULL},
        {&dense, MANTA_DTYPE_U8, 3, {2, 4, 10}, 10, NULL},
        {&dense, MANTA_DTYPE_I32, 1, {8}, 10, "sparse_categorical_crossentropy takes integers"},
        {&dense, MANTA_DTYPE_F32, 2, {10, 8}, 10, "(8, 10)"},
        {&mse, MANTA_DTYPE_F32, 1, {8}, 1, NULL},
        {&mse, MANTA_DTYPE_F32, 2, {8, 1}, 1, NULL},
        {&mse,
         MANTA_DTYPE_F32,
         1,
         {8},
         3,
         "output y: mean_squared_error expects a target of shape (8, 3), given "
         "float32 (8,)"},
        {&own, MANTA_DTYPE_F32, 1, {5}, 3, NULL},
    };
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        manta_array t = manta_array_of(checks[i].t, checks[i].ndim, checks[i].shape, NULL);
        manta_status st = loss_check_target(checks[i].l, "y", 8, checks[i].classes, &t);
        assert_int_equal(st, checks[i].says ? MANTA_EINVAL : MANTA_OK);
        if (checks[i].says) assert_error_says(checks[i].says);
    }
    manta_array gaps = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){8, 3}, NULL);
    gaps.strides[0] = 4;
    assert_int_equal(loss_check_target(&mse, "y", 8, 3, &gaps), MANTA_EINVAL);
    assert_error_says("row-major");
}

/* ---- the same bits with and without AVX2 ---- */

static void rows_agree_on_both_instruction_sets(void **state)
{
    (void)state;
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        assert_ptr_equal(loss_rows_of(), &loss_rows_plain);
        skip();
    }
    assert_ptr_equal(loss_rows_of(), &loss_rows_avx2);
    static float x[MAX], t[MAX], a[2][MAX], b[2][MAX];
    random_state = 6;
    for (int n = 1; n <= MAX; n += n < 40 ? 1 : 97) {
        for (int i = 0; i < n; i++) x[i] = random_in(-30, 30);
        loss_softmax p = loss_rows_plain.softmax(n, x, a[0]), q = loss_rows_avx2.softmax(n, x, b[0]);
        assert_memory_equal(&p, &q, sizeof p);
        assert_memory_equal(a[0], b[0], (size_t)n * sizeof(float));
    }
    for (int round = 0; round < 50; round++) {
        int n = 1 + (int)random_in(0, LOSS_BLOCK);
        for (int i = 0; i < n; i++) {
            x[i] = random_in(-12, 12);
            t[i] = random_in(0, 1);
        }
        loss_rows_plain.binary_logits(n, x, t, a[0], a[1]);
        loss_rows_avx2.binary_logits(n, x, t, b[0], b[1]);
        assert_memory_equal(a[0], b[0], (size_t)n * sizeof(float));
        assert_memory_equal(a[1], b[1], (size_t)n * sizeof(float));
        for (int i = 0; i < n; i++) x[i] = random_in(-0.1, 1.1);
        loss_rows_plain.binary_probs(n, x, t, a[0], a[1]);
        loss_rows_avx2.binary_probs(n, x, t, b[0], b[1]);
        assert_memory_equal(a[0], b[0], (size_t)n * sizeof(float));
        assert_memory_equal(a[1], b[1], (size_t)n * sizeof(float));
        for (int i = 0; i < n; i++) x[i] = random_in(0.001, 3);
        loss_rows_plain.log(n, x, a[0]);
        loss_rows_avx2.log(n, x, b[0]);
        assert_memory_equal(a[0], b[0], (size_t)n * sizeof(float));
    }
}

/* ---- recordings ---- */

/* The divisor of a reduction, and the recorded loss of (rows) or one number. */
static double divisor_of(const char *path, const char *reduction, int64_t rows, const float *weight)
{
    double sum = 0;

    if (!strcmp(reduction, "sum") || !strcmp(reduction, "none")) return 1;
    if (!weight || !strcmp(reduction, "sum_over_batch_size")) return (double)rows;
    if (strcmp(reduction, "mean_with_sample_weight") != 0 && strcmp(reduction, "mean") != 0)
        fail_msg("%s: reduction %s", path, reduction);
    for (int64_t r = 0; r < rows; r++) sum += (double)weight[r];
    return sum;
}

static void check_recording(const char *path, manta_loss_fn fn, const loss_config *k, const char *reduction,
                            const float *weight)
{
    manta_array pred = golden_array(path, "y_pred"), target = golden_array(path, "y_true"),
                loss = golden_array(path, "loss"), want = golden_array(path, "dy_pred");
    float got[64], grad[256], total = 0;
    int64_t classes = pred.shape[pred.ndim - 1], rows = manta_array_count(&pred) / classes;

    assert_true(rows <= 64 && rows * classes <= 256);
    double divisor = divisor_of(path, reduction, rows, weight), sum = 0;
    manta_loss_call c = {.config = k,
                         .rows = rows,
                         .classes = classes,
                         .pred = pred.data,
                         .target = target,
                         .weight = weight,
                         .scale = (float)(1 / divisor),
                         .loss = got,
                         .grad = grad};
    if (fn(&c)) fail_msg("%s: %s", path, manta_error_text());
    for (int64_t r = 0; r < rows; r++) {
        got[r] *= weight ? weight[r] : 1.0f;
        sum += (double)got[r];
    }
    total = (float)(sum / divisor);
    bool each = !strcmp(reduction, "none");
    golden_near(path, each ? got : &total, loss.data, each ? rows : 1, 2e-6, 2e-7);
    golden_near(path, grad, want.data, rows * classes, 5e-6, 3e-7);
    golden_free(&pred);
    golden_free(&target);
    golden_free(&loss);
    golden_free(&want);
}

static void keras_recording(const char *path, void *ctx)
{
    (void)ctx;
    char name[64], reduction[64];
    loss_fn f;
    manta_array weight = {0};
    assert_true(golden_text(path, "class_name", name, sizeof name));
    assert_true(golden_text(path, "reduction", reduction, sizeof reduction));
    assert_int_equal(loss_find(&(manta_loss){.name = name}, &f), MANTA_OK);
    loss_config k = {.from_logits = golden_number(path, "from_logits", 0) != 0,
                     .label_smoothing = (float)golden_number(path, "label_smoothing", 0),
                     .delta = (float)golden_number(path, "delta", 0)};
    golden_load(path, "sample_weight", &weight);
    check_recording(path, f.fn, &k, reduction, weight.data);
    golden_free(&weight);
}

static void losses_match_keras(void **state)
{
    (void)state;
    assert_true(golden_each("keras_loss_", keras_recording, NULL) >= 60);
}

static void torch_recording(const char *path, void *ctx)
{
    /* PyTorch weighs the smoothed share of each class by that class's weight, which is no weight of rows. */
    if (strstr(path, "class_weights_smooth")) return;
    char reduction[64];
    float weight[64];
    manta_array by_class = {0}, labels = golden_array(path, "y_true");
    assert_true(golden_text(path, "reduction", reduction, sizeof reduction));
    loss_config k = {.from_logits = true,
                     .label_smoothing = (float)golden_number(path, "label_smoothing", 0)};
    bool weighted = golden_load(path, "class_weight", &by_class);
    for (int64_t r = 0; weighted && r < labels.shape[0]; r++)
        weight[r] = ((float *)by_class.data)[((int32_t *)labels.data)[r]];
    check_recording(path, loss_sparse_category, &k, reduction, weighted ? weight : NULL);
    golden_free(&by_class);
    golden_free(&labels);
    ++*(int *)ctx;
}

static void losses_match_torch(void **state)
{
    (void)state;
    int n = 0;
    golden_each("torch_loss_cross_entropy", torch_recording, &n);
    assert_true(n >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses_match_formulas_and_finite_differences),
        cmocka_unit_test(a_row_depends_on_no_other),
        cmocka_unit_test(weight_and_scale_multiply),
        cmocka_unit_test(nan_comes_out_again),
        cmocka_unit_test(large_logits_do_not_overflow),
        cmocka_unit_test(the_clip_cuts_the_gradient),
        cmocka_unit_test(labels_come_in_every_integer_dtype),
        cmocka_unit_test(dense_targets_come_in_every_dtype),
        cmocka_unit_test(bad_labels_are_refused),
        cmocka_unit_test(bad_dense_targets_are_refused),
        cmocka_unit_test(wrong_shapes_at_the_call_are_refused),
        cmocka_unit_test(losses_are_found_by_name),
        cmocka_unit_test(wrong_options_are_refused),
        cmocka_unit_test(a_zero_can_be_asked_for),
        cmocka_unit_test(targets_are_checked_against_the_loss),
        cmocka_unit_test(rows_agree_on_both_instruction_sets),
        cmocka_unit_test(losses_match_keras),
        cmocka_unit_test(losses_match_torch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
