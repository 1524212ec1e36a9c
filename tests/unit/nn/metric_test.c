/* metric_test.c - metrics by hand-made cases, by name, and against Keras's recordings. */
#include "golden.h"

#include <float.h>

#include "nn/loss.h"
#include "ok.h"

static metric_fn find(const char *name, const loss_fn *loss, int64_t classes)
{
    metric_fn f;

    assert_ok(metric_find(&(manta_metric){.name = name}, loss, classes, &f));
    return f;
}

/* Runs a metric over (rows, classes) predictions and gives sum and count. */
static void run(const char *name, const loss_config *k, int64_t rows, int64_t classes, const float *pred,
                manta_array target, const float *weight, double *sum, double *count)
{
    manta_loss_call c = {
        .config = k, .rows = rows, .classes = classes, .pred = pred, .target = target, .weight = weight};

    *sum = *count = 0;
    assert_ok(find(name, NULL, classes).fn(&c, sum, count));
}

static void accuracies_count_right_rows(void **state)
{
    (void)state;
    float x[12] = {0.1f, 0.9f, 0.0f, 0.5f, 0.5f, 0.1f, -1, -2, -0.5f, 3, 3, 3};
    int32_t labels[4] = {1, 1, 2, 0};
    float onehot[12] = {0, 1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0}, weight[4] = {1, 2, 4, 8};
    int64_t shape[2] = {4, 3};
    double sum, count;
    manta_array sparse = manta_array_of(MANTA_DTYPE_I32, 1, shape, labels);
    manta_array dense = manta_array_of(MANTA_DTYPE_F32, 2, shape, onehot);
    /* Row 1 is a tie that the first class wins, so label 1 is wrong; row 3's tie goes to label 0. */
    run("sparse_categorical_accuracy", NULL, 4, 3, x, sparse, NULL, &sum, &count);
    assert_true(sum == 3 && count == 4);
    run("categorical_accuracy", NULL, 4, 3, x, dense, NULL, &sum, &count);
    assert_true(sum == 3 && count == 4);
    run("SparseCategoricalAccuracy", NULL, 4, 3, x, sparse, weight, &sum, &count);
    assert_true(sum == 13 && count == 15);
    run("accuracy", NULL, 4, 3, x, sparse, weight, &sum, &count);
    assert_true(sum == 13 && count == 15);
    run("acc", NULL, 4, 3, x, dense, weight, &sum, &count);
    assert_true(sum == 13 && count == 15);
}

/* Sums are added to, not set: a metric runs over many batches. */
static void sums_go_on_over_batches(void **state)
{
    (void)state;
    float x[2] = {0.2f, 0.8f};
    uint8_t label = 1;
    int64_t one = 1;
    double sum = 5, count = 7;
    manta_loss_call c = {
        .rows = 1, .classes = 2, .pred = x, .target = manta_array_of(MANTA_DTYPE_U8, 1, &one, &label)};
    assert_int_equal(find("accuracy", NULL, 2).fn(&c, &sum, &count), MANTA_OK);
    assert_true(sum == 6 && count == 8);
}

static void the_first_largest_is_found_in_wide_rows(void **state)
{
    (void)state;
    enum { N = 300 };
    float x[N];
    int64_t one = 1;
    double sum, count;
    for (int32_t label = 0; label < N; label += 13) {
        for (int i = 0; i < N; i++) x[i] = (float)(i % 7);
        x[label] = 10;
        manta_array t = manta_array_of(MANTA_DTYPE_I32, 1, &one, &label);
        run("accuracy", NULL, 1, N, x, t, NULL, &sum, &count);
        assert_true(sum == 1);
        int other = (label + 151) % N;
        x[other] = 10; /* now a tie: right only when the label comes first */
        run("accuracy", NULL, 1, N, x, t, NULL, &sum, &count);
        assert_true(sum == (label < other ? 1 : 0));
        x[other] = 11;
        run("accuracy", NULL, 1, N, x, t, NULL, &sum, &count);
        assert_true(sum == 0);
    }
}

static void top_k_counts_the_k_largest(void **state)
{
    (void)state;
    float x[6] = {0.6f, 0.1f, 0.5f, 0.4f, 0.3f, 0.2f}, tied[6] = {0};
    int64_t shape[2] = {1, 6};
    double sum, count;
    for (int k = 1; k <= 6; k++)
        for (int32_t label = 0; label < 6; label++) {
            static const int rank[6] = {0, 5, 1, 2, 3, 4};
            float onehot[6] = {0};
            onehot[label] = 1;
            loss_config c = {.k = k};
            manta_array t = manta_array_of(MANTA_DTYPE_I32, 1, shape, &label);
            run("sparse_top_k_categorical_accuracy", &c, 1, 6, x, t, NULL, &sum, &count);
            assert_true(sum == (rank[label] < k) && count == 1);
            run("top_k_categorical_accuracy", &c, 1, 6, x, manta_array_of(MANTA_DTYPE_F32, 2, shape, onehot),
                NULL, &sum, &count);
            assert_true(sum == (rank[label] < k) && count == 1);
            run("sparse_top_k_categorical_accuracy", &c, 1, 6, tied, t, NULL, &sum, &count);
            assert_true(sum == 1); /* ties count as in */
        }
    int32_t last = 1;
    run("sparse_top_k_categorical_accuracy", NULL, 1, 6, x, manta_array_of(MANTA_DTYPE_I32, 1, shape, &last),
        NULL, &sum, &count);
    assert_true(sum == 0); /* k is 5 unless said */
}

static void binary_accuracy_has_a_threshold(void **state)
{
    (void)state;
    float p[4] = {0.5f, 0.51f, 0.2f, 0.9f}, t[4] = {0, 1, 1, 0.5f};
    int64_t shape[2] = {2, 2}, flat[1] = {4};
    double sum, count;
    /* Exactly the threshold is not above it; a target that is neither 0 nor 1 is never met. */
    run("binary_accuracy", NULL, 2, 2, p, manta_array_of(MANTA_DTYPE_F32, 2, shape, t), NULL, &sum, &count);
    assert_true(sum == 1.0 && count == 2);
    loss_config k = {.threshold = 0.1f};
    run("binary_accuracy", &k, 2, 2, p, manta_array_of(MANTA_DTYPE_F32, 2, shape, t), NULL, &sum, &count);
    assert_true(sum == 1.0 && count == 2);
    /* "accuracy" of one class is binary, with targets (rows) or (rows, 1). */
    run("accuracy", NULL, 4, 1, p, manta_array_of(MANTA_DTYPE_F32, 1, flat, t), NULL, &sum, &count);
    assert_true(sum == 2 && count == 4);
    /* Logits: above 0. */
    float x[2] = {-1, 1}, bits[2] = {0, 1};
    for (int i = 0; i < 2; i++) {
        k.threshold = i ? MANTA_ZERO : FLT_MIN;
        run("binary_accuracy", &k, 2, 1, x, manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){2}, bits), NULL,
            &sum, &count);
        assert_true(sum == 2);
    }
    x[1] = FLT_MIN; /* above 0, and not above itself */
    run("binary_accuracy", &k, 2, 1, x, manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){2}, bits), NULL, &sum,
        &count);
    assert_true(sum == 2);
}

/* A broken model must not look good. */
static void nan_is_never_right(void **state)
{
    (void)state;
    float x[3] = {NAN, 0.9f, 0.1f}, y[3] = {0.1f, 0.9f, NAN}, z[3] = {NAN, NAN, NAN}, onehot[3] = {0, 1, 0};
    const float *rows[3] = {x, y, z};
    int32_t label = 1;
    int64_t shape[2] = {1, 3};
    double sum, count;
    manta_array sparse = manta_array_of(MANTA_DTYPE_I32, 1, shape, &label);
    manta_array dense = manta_array_of(MANTA_DTYPE_F32, 2, shape, onehot);
    for (int i = 0; i < 3; i++) {
        run("sparse_categorical_accuracy", NULL, 1, 3, rows[i], sparse, NULL, &sum, &count);
        assert_true(sum == 0 && count == 1);
        run("categorical_accuracy", NULL, 1, 3, rows[i], dense, NULL, &sum, &count);
        assert_true(sum == 0);
        run("sparse_top_k_categorical_accuracy", NULL, 1, 3, rows[i], sparse, NULL, &sum, &count);
        assert_true(sum == 0);
        run("mse", NULL, 1, 3, rows[i], dense, NULL, &sum, &count);
        assert_true(isnan(sum));
    }
    float zeros[3] = {0};
    run("binary_accuracy", NULL, 1, 3, z, manta_array_of(MANTA_DTYPE_F32, 2, shape, zeros), NULL, &sum,
        &count);
    assert_true(sum == 0);
}

/* More rows than one block of the mean-of-a-loss metric holds. */
static void the_mean_of_a_loss_runs_over_many_rows(void **state)
{
    (void)state;
    enum { ROWS = 201 };
    float p[ROWS * 2], weight[ROWS];
    int64_t t[ROWS * 2], shape[2] = {ROWS, 2};
    double sum, count, squares = 0, absolutes = 0, weights = 0;
    for (int r = 0; r < ROWS; r++) {
        weight[r] = (float)(1 + r % 3);
        for (int j = 0; j < 2; j++) {
            int i = 2 * r + j;
            p[i] = (float)i * 0.5f;
            t[i] = i % 5;
            double d = (double)p[i] - (double)t[i];
            squares += (double)weight[r] * d * d / 2;
            absolutes += (double)weight[r] * fabs(d) / 2;
        }
        weights += (double)weight[r];
    }
    manta_array target = manta_array_of(MANTA_DTYPE_I64, 2, shape, t);
    run("mse", NULL, ROWS, 2, p, target, weight, &sum, &count);
    assert_true(fabs(sum - squares) < 1e-6 * squares && count == weights);
    run("MeanAbsoluteError", NULL, ROWS, 2, p, target, weight, &sum, &count);
    assert_true(fabs(sum - absolutes) < 1e-6 * absolutes && count == weights);

    int32_t labels[ROWS];
    double entropy = 0;
    loss_config k = {.from_logits = true};
    for (int r = 0; r < ROWS; r++) {
        labels[r] = r % 2;
        p[2 * r] = (float)r * 0.01f;
        p[2 * r + 1] = 1;
        double d = (double)p[2 * r + 1 - labels[r]] - (double)p[2 * r + labels[r]];
        entropy += log1p(exp(d));
    }
    run("sparse_categorical_crossentropy", &k, ROWS, 2, p, manta_array_of(MANTA_DTYPE_I32, 1, shape, labels),
        NULL, &sum, &count);
    assert_true(fabs(sum - entropy) < 1e-6 * entropy && count == ROWS);
}

static void bad_labels_are_refused(void **state)
{
    (void)state;
    float x[6] = {0};
    int32_t labels[2] = {0, 3};
    float real[2] = {0, NAN};
    int64_t two = 2;
    double sum = 0, count = 0;
    manta_loss_call c = {
        .rows = 2, .classes = 3, .pred = x, .target = manta_array_of(MANTA_DTYPE_I32, 1, &two, labels)};
    static const char *const names[] = {"accuracy", "sparse_top_k_categorical_accuracy",
                                        "sparse_categorical_crossentropy"};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(find(names[i], NULL, 3).fn(&c, &sum, &count), MANTA_EINVAL);
        assert_error_says("row 1 is 3");
    }
    c.target = manta_array_of(MANTA_DTYPE_F32, 1, &two, real);
    assert_int_equal(find("accuracy", NULL, 3).fn(&c, &sum, &count), MANTA_ENAN);
    c.target = manta_array_of(MANTA_DTYPE_I32, 1, (int64_t[]){5}, labels);
    assert_int_equal(find("categorical_accuracy", NULL, 3).fn(&c, &sum, &count), MANTA_EINVAL);
    assert_error_says("(5,)");
    assert_int_equal(find("mse", NULL, 3).fn(&c, &sum, &count), MANTA_EINVAL);
}

static manta_status own_metric(const manta_loss_call *c, double *sum, double *count)
{
    *sum += 1;
    *count += (double)c->rows;
    return MANTA_OK;
}

static void metrics_are_found_by_name(void **state)
{
    (void)state;
    loss_fn sparse, dense, own = {.fn = NULL, .name = "own"};
    metric_fn f = {.name = "untouched"};
    assert_int_equal(loss_find(&(manta_loss){.name = "sparse_categorical_crossentropy"}, &sparse), MANTA_OK);
    assert_int_equal(loss_find(&(manta_loss){.name = "mse"}, &dense), MANTA_OK);

    assert_int_equal(metric_find(&(manta_metric){.name = "recall"}, &dense, 3, &f), MANTA_ENOENT);
    assert_error_says("recall");
    assert_error_says("binary_accuracy");
    assert_int_equal(metric_find(&(manta_metric){0}, &dense, 3, &f), MANTA_EINVAL);
    assert_int_equal(metric_find(&(manta_metric){.name = "accuracy", .k = -1}, &dense, 3, &f), MANTA_EINVAL);
    assert_error_says("k is -1");
    assert_int_equal(metric_find(&(manta_metric){.name = "binary_accuracy", .threshold = NAN}, &dense, 3, &f),
                     MANTA_EINVAL);
    /* The metric reads what the loss reads. */
    assert_int_equal(metric_find(&(manta_metric){.name = "categorical_accuracy"}, &sparse, 3, &f),
                     MANTA_EINVAL);
    assert_error_says("categorical_accuracy takes one number per prediction");
    assert_int_equal(metric_find(&(manta_metric){.name = "sparse_categorical_accuracy"}, &dense, 3, &f),
                     MANTA_EINVAL);
    assert_string_equal(f.name, "untouched");
    assert_int_equal(metric_find(&(manta_metric){.name = "sparse_categorical_accuracy"}, &own, 3, &f),
                     MANTA_OK);

    f = find("accuracy", &sparse, 10);
    assert_true(f.sparse);
    assert_string_equal(f.name, "accuracy");
    f = find("acc", &dense, 10);
    assert_false(f.sparse);
    assert_string_equal(f.name, "acc");
    assert_true(find("sparse_top_k_categorical_accuracy", &sparse, 10).sparse);

    assert_int_equal(metric_find(&(manta_metric){.name = "mine", .fn = own_metric}, &sparse, 3, &f),
                     MANTA_OK);
    assert_true(f.fn == own_metric && f.sparse);
    assert_string_equal(f.name, "mine");
}

/* ---- recordings ---- */

static void recording(const char *path, void *ctx)
{
    (void)ctx;
    char name[64], key[32];
    double sum = 0, count = 0;
    assert_true(golden_text(path, "class_name", name, sizeof name));
    loss_config k = {.from_logits = golden_number(path, "from_logits", 0) != 0,
                     .threshold = (float)golden_number(path, "threshold", 0),
                     .k = (int)golden_number(path, "k", 0)};
    for (int batch = 0; batch < 2; batch++) {
        manta_array weight = {0};
        snprintf(key, sizeof key, "y_pred%d", batch);
        manta_array pred = golden_array(path, key);
        snprintf(key, sizeof key, "y_true%d", batch);
        manta_array target = golden_array(path, key);
        snprintf(key, sizeof key, "result%d", batch);
        manta_array want = golden_array(path, key);
        snprintf(key, sizeof key, "sample_weight%d", batch);
        golden_load(path, key, &weight);
        manta_loss_call c = {.config = &k,
                             .rows = pred.shape[0],
                             .classes = pred.shape[1],
                             .pred = pred.data,
                             .target = target,
                             .weight = weight.data};
        if (find(name, NULL, c.classes).fn(&c, &sum, &count)) fail_msg("%s: %s", path, manta_error_text());
        float value = (float)(sum / count);
        golden_near(path, &value, want.data, 1, 2e-6, 1e-7);
        golden_free(&weight);
        golden_free(&pred);
        golden_free(&target);
        golden_free(&want);
    }
}

static void metrics_match_keras(void **state)
{
    (void)state;
    assert_true(golden_each("keras_metric_", recording, NULL) >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracies_count_right_rows),
        cmocka_unit_test(sums_go_on_over_batches),
        cmocka_unit_test(the_first_largest_is_found_in_wide_rows),
        cmocka_unit_test(top_k_counts_the_k_largest),
        cmocka_unit_test(binary_accuracy_has_a_threshold),
        cmocka_unit_test(nan_is_never_right),
        cmocka_unit_test(the_mean_of_a_loss_runs_over_many_rows),
        cmocka_unit_test(bad_labels_are_refused),
        cmocka_unit_test(metrics_are_found_by_name),
        cmocka_unit_test(metrics_match_keras),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
