/* lower_losses_test.c - every loss and metric on the fake device, against itself on the processor.
 *
 * Rows of predictions and targets, among them numbers that are not finite, exactly on a clip's or
 * threshold's edge, or equally large; the loss of each row, its gradient and the sums of a metric must be
 * the same bytes, all NaNs being one. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta/option.h>

#include "nn/loss_impl.h"
#include "nn/lower.h"
#include "ok.h"

enum { ROWS = 70 };

/* Predictions of a kind, the targets and weights of their rows, here and on the device. */
typedef struct rows {
    int64_t classes;
    float *pred, *weight, *share; /* share: dense targets */
    int32_t *label;
    float *loss, *grad, *want_loss, *want_grad;
    device *d;
    dev_addr d_pred, d_weight, d_share, d_label, d_loss, d_grad, d_scratch, d_sums;
} rows;

static uint64_t random_state;

static float number(void)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (float)((double)(random_state >> 11) * 0x1p-53); /* [0, 1) */
}

/* From probabilities to large logits; now and then what is special. */
static float prediction(int64_t i, bool logits)
{
    static const float special[] = {NAN,   INFINITY, -INFINITY, 0.0f,   -0.0f,  1.0f,
                                    1e-7f, 0.5f,     1e-40f,    100.0f, -100.0f};

    if (i % 11 == 5) return 0.625f; /* equally large */
    if (i % 97 == 13) return special[(uint64_t)(i / 97) % (sizeof special / sizeof *special)];
    return logits ? 20.0f * number() - 10.0f : number();
}

static void *lines(size_t n)
{
    void *p = calloc(n + 1, sizeof(float));

    assert_non_null(p);
    return p;
}

static dev_addr on_device(device *d, const void *from, size_t size)
{
    dev_addr at;

    assert_ok(device_alloc(d, size, "a test", &at));
    if (from) assert_ok(device_put(d, at, from, size));
    return at;
}

static void rows_open(rows *r, int64_t classes, bool logits, bool hard)
{
    size_t n = (size_t)(ROWS * classes), f = sizeof(float);

    *r = (rows){.classes = classes};
    random_state = 42;
    r->pred = lines(n);
    r->share = lines(n);
    r->loss = lines(ROWS);
    r->want_loss = lines(ROWS);
    r->grad = lines(n);
    r->want_grad = lines(n);
    r->weight = lines(ROWS);
    r->label = lines(ROWS);
    for (int64_t i = 0; i < (int64_t)n; i++) {
        r->pred[i] = prediction(i, logits);
        r->share[i] = hard || i % 5 == 0 ? (float)(number() < 0.5f) : number();
    }
    for (int64_t i = 0; i < ROWS; i++) {
        r->weight[i] = i % 6 ? number() * 3.0f : 0.0f;
        r->label[i] = (int32_t)(i * 7 % classes);
    }
    assert_ok(device_fake_open(4 << 20, &r->d));
    r->d_pred = on_device(r->d, r->pred, n * f);
    r->d_share = on_device(r->d, r->share, n * f);
    r->d_weight = on_device(r->d, r->weight, ROWS * f);
    r->d_label = on_device(r->d, r->label, ROWS * f);
    r->d_loss = on_device(r->d, NULL, ROWS * f);
    r->d_grad = on_device(r->d, NULL, n * f);
    r->d_scratch = on_device(r->d, NULL, ROWS * sizeof(double));
    r->d_sums = on_device(r->d, NULL, 2 * sizeof(double));
}

static void rows_close(rows *r)
{
    device_close(r->d);
    free(r->pred);
    free(r->share);
    free(r->loss);
    free(r->want_loss);
    free(r->grad);
    free(r->want_grad);
    free(r->weight);
    free(r->label);
}

static manta_loss_call host_call(const rows *r, bool sparse, const loss_config *config)
{
    int64_t shape[2] = {ROWS, r->classes};

    return (manta_loss_call){.config = config,
                             .rows = ROWS,
                             .classes = r->classes,
                             .pred = r->pred,
                             .target = sparse ? manta_array_of(MANTA_DTYPE_I32, 1, shape, r->label)
                                              : manta_array_of(MANTA_DTYPE_F32, 2, shape, r->share)};
}

static void same(const char *what, int64_t n, const float *got, const float *want)
{
    for (int64_t i = 0; i < n; i++) {
        if (memcmp(&got[i], &want[i], sizeof *got) != 0 && !(isnan(got[i]) && isnan(want[i])))
            fail_msg("%s[%lld] is %a on the device, expected %a", what, (long long)i, (double)got[i],
                     (double)want[i]);
    }
}

static void play_one(device *d, int kernel, int64_t items, const void *args, size_t size)
{
    dev_program *p = program_new(d);

    program_add(p, kernel, items, args, size);
    assert_ok(program_play(p));
    program_free(p);
}

/* ---- losses ---- */

static void compare_loss(rows *r, const loss_fn *l, const loss_config *config, bool weighted, bool graded)
{
    manta_loss_call c = host_call(r, l->sparse, config);
    loss_args a = {.rows = ROWS,
                   .classes = r->classes,
                   .pred = r->d_pred,
                   .target = l->sparse ? r->d_label : r->d_share,
                   .weight = weighted ? r->d_weight : 0,
                   .loss = r->d_loss,
                   .grad = graded ? r->d_grad : 0,
                   .scale = 0.37f,
                   .smoothing = config->label_smoothing,
                   .delta = config->delta};
    int kernel = lower_more_loss(l->fn, config->from_logits);
    char what[128];

    if (l->sparse) kernel = config->from_logits ? DEV_sparse_logits : DEV_sparse_probs;
    assert_true(kernel >= 0);
    c.weight = weighted ? r->weight : NULL;
    c.scale = a.scale;
    c.loss = r->want_loss;
    c.grad = graded ? r->want_grad : NULL;
    assert_ok(l->fn(&c));
    play_one(r->d, kernel, ROWS, &a, sizeof a);
    assert_ok(device_get(r->d, r->loss, r->d_loss, ROWS * sizeof(float)));
    assert_ok(device_get(r->d, r->grad, r->d_grad, (size_t)(ROWS * r->classes) * sizeof(float)));
    snprintf(what, sizeof what, "%s of %lld classes, logits %d, smoothing %g, loss", l->name,
             (long long)r->classes, config->from_logits, (double)config->label_smoothing);
    same(what, ROWS, r->loss, r->want_loss);
    snprintf(what + strlen(what) - 4, 16, "gradient");
    if (graded) same(what, ROWS * r->classes, r->grad, r->want_grad);
}

static void every_loss_is_the_same(void **state)
{
    static const char *const names[] = {"sparse_categorical_crossentropy",
                                        "categorical_crossentropy",
                                        "binary_crossentropy",
                                        "mean_squared_error",
                                        "mean_absolute_error",
                                        "huber"};
    static const int64_t classes[] = {1, 3, 16, 37, 300};
    (void)state;

    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 5; k++)
            for (int way = 0; way < 16; way++) {
                manta_loss named = {.name = names[i]};
                loss_config config = {.from_logits = way & 1,
                                      .label_smoothing = way & 2 ? 0.1f : 0.0f,
                                      .delta = way & 8 ? 1.0f : 0.3f};
                loss_fn l;
                rows r;
                if (way & 2 && i > 2) continue; /* others have no smoothing */
                assert_ok(loss_find(&named, &l));
                rows_open(&r, classes[k], config.from_logits, false);
                compare_loss(&r, &l, &config, way & 4, !(way & 8));
                rows_close(&r);
            }
}

/* ---- metrics ---- */

static void compare_metric(rows *r, const char *name, const loss_fn *loss, int top, float threshold)
{
    manta_metric named = {.name = name, .k = top, .threshold = threshold};
    objective_metric t = {.classes = r->classes, .config = {.k = top, .threshold = threshold}};
    double want[2] = {3.5, 2}, got[2] = {3.5, 2};
    lowering w = {.scratch = r->d_scratch};
    manta_loss_call c = host_call(r, loss->sparse, &t.config);
    dev_addr target = loss->sparse ? r->d_label : r->d_share;

    assert_ok(metric_find(&named, loss, r->classes, &t.metric));
    assert_ok(t.metric.fn(&c, &want[0], &want[1]));
    assert_true(lower_more_metric(NULL, name, &t, loss->sparse, 0, 0, 0, 0));
    assert_true(lower_more_metric(&w, name, &t, loss->sparse, ROWS, r->d_pred, target, r->d_sums));
    assert_true(w.scratch_most > 0 && w.scratch_most <= (ROWS * sizeof(double) + 255) / 256 * 256);
    w = (lowering){.scratch = r->d_scratch, .program = program_new(r->d)};
    assert_ok(device_put(r->d, r->d_sums, got, sizeof got));
    assert_true(lower_more_metric(&w, name, &t, loss->sparse, ROWS, r->d_pred, target, r->d_sums));
    assert_ok(program_play(w.program));
    program_free(w.program);
    assert_ok(device_get(r->d, got, r->d_sums, sizeof got));
    if (memcmp(got, want, sizeof got) != 0 && !(isnan(got[0]) && isnan(want[0]) && got[1] == want[1]))
        fail_msg("%s of %lld classes: %a of %a on the device, expected %a of %a", name, (long long)r->classes,
                 got[0], got[1], want[0], want[1]);
}

static void every_metric_is_the_same(void **state)
{
    static const struct {
        const char *name, *loss;
        int64_t classes;
        int k;
        float threshold;
    } cases[] = {
        {"accuracy", "mse", 1, 0, 0},
        {"accuracy", "categorical_crossentropy", 5, 0, 0},
        {"categorical_accuracy", "categorical_crossentropy", 37, 0, 0},
        {"binary_accuracy", "binary_crossentropy", 1, 0, 0},
        {"binary_accuracy", "binary_crossentropy", 7, 0, 0.3f},
        {"binary_accuracy", "binary_crossentropy", 7, 0, (float)MANTA_ZERO},
        {"sparse_top_k_categorical_accuracy", "sparse_categorical_crossentropy", 20, 0, 0},
        {"sparse_top_k_categorical_accuracy", "sparse_categorical_crossentropy", 20, 2, 0},
        {"top_k_categorical_accuracy", "categorical_crossentropy", 20, 3, 0},
        {"mean_squared_error", "mse", 9, 0, 0},
        {"mean_absolute_error", "mse", 9, 0, 0},
        {"sparse_categorical_crossentropy", "sparse_categorical_crossentropy", 37, 0, 0},
        {"categorical_crossentropy", "categorical_crossentropy", 37, 0, 0},
        {"binary_crossentropy", "binary_crossentropy", 19, 0, 0},
        {"huber", "mse", 9, 0, 0},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_loss named = {.name = cases[i].loss};
        loss_fn loss;
        rows r;
        assert_ok(loss_find(&named, &loss));
        rows_open(&r, cases[i].classes, false, i % 2);
        compare_metric(&r, cases[i].name, &loss, cases[i].k, cases[i].threshold);
        for (int64_t k = 0; k < ROWS * r.classes; k++) /* and without what makes a sum NaN */
            if (!isfinite(r.pred[k])) r.pred[k] = 0.25f;
        assert_ok(device_put(r.d, r.d_pred, r.pred, (size_t)(ROWS * r.classes) * sizeof(float)));
        compare_metric(&r, cases[i].name, &loss, cases[i].k, cases[i].threshold);
        rows_close(&r);
    }
}

/* A metric that reads targets of another form than the loss's has no kernel. */
static void other_forms_of_targets_are_not_lowered(void **state)
{
    objective_metric one = {.classes = 1}, five = {.classes = 5};
    (void)state;

    assert_false(lower_more_metric(NULL, "accuracy", &one, true, 0, 0, 0, 0));
    assert_false(lower_more_metric(NULL, "binary_accuracy", &one, true, 0, 0, 0, 0));
    assert_false(lower_more_metric(NULL, "sparse_top_k_categorical_accuracy", &five, false, 0, 0, 0, 0));
    assert_false(lower_more_metric(NULL, "no such metric", &five, false, 0, 0, 0, 0));
    assert_int_equal(lower_more_loss(loss_sparse_category, true), -1); /* lower_objective.c's own */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loss_is_the_same),
        cmocka_unit_test(every_metric_is_the_same),
        cmocka_unit_test(other_forms_of_targets_are_not_lowered),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
