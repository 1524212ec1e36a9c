/* Whole datasets: fit, evaluate and predict; weights of samples and classes; several
 * outputs, and losses and metrics of the user's own. */
#include "session_fixture.h"

static void fit_learns_and_evaluates_every_sample(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "adam", (manta_session_options){.threads = 2});
    manta_dataset *d = dataset();
    manta_metrics out, other;

    (void)state;
    assert_ok(manta_fit(s, d, &(manta_fit_options){.epochs = 15, .batch = 32, .validation = d}, &out));
    assert_true(manta_metrics_get(&out, "val_accuracy") > 0.95);
    assert_true(manta_metrics_get(&out, "loss") < 0.5);
    assert_true(isnan(manta_metrics_get(&out, "no such")));
    /* 150 samples in batches of 32 or of 7 or at once: the same mean over samples. */
    assert_ok(manta_evaluate(s, d, &(manta_fit_options){.batch = 7}, &out));
    assert_ok(manta_evaluate(s, d, &(manta_fit_options){.batch = 150}, &other));
    assert_true(manta_metrics_get(&out, "accuracy") == manta_metrics_get(&other, "accuracy"));
    assert_true(fabs(manta_metrics_get(&out, "loss") - manta_metrics_get(&other, "loss")) < 1e-6);
    manta_dataset_unref(d);
    manta_session_close(s);
    manta_model_free(m);
}

typedef struct taken {
    int64_t next;
    int right;
} taken;

static manta_status take(void *user, int64_t first, int64_t count, int n, const manta_array *outputs)
{
    taken *t = user;

    assert_int_equal(first, t->next);
    assert_int_equal(n, 1);
    assert_int_equal(outputs[0].shape[0], count);
    for (int64_t i = 0; i < count; i++) {
        const float *row = (const float *)outputs[0].data + i * CLASSES;
        int best = 0;
        for (int c = 1; c < CLASSES; c++) best = row[c] > row[best] ? c : best;
        t->right += best == labels[first + i];
    }
    t->next = first + count;
    return MANTA_OK;
}

static void predictions_come_in_order(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "adam", (manta_session_options){.threads = 2});
    manta_dataset *d = dataset();
    manta_metrics out;
    taken t = {0};

    (void)state;
    assert_ok(manta_fit(s, d, &(manta_fit_options){.epochs = 3, .batch = 32}, NULL));
    assert_ok(manta_evaluate(s, d, NULL, &out));
    assert_ok(manta_predict(s, d, &(manta_fit_options){.batch = 40}, take, &t));
    assert_int_equal(t.next, N);
    assert_true(t.right / (double)N == manta_metrics_get(&out, "accuracy"));
    manta_dataset_unref(d);
    manta_session_close(s);
    manta_model_free(m);
}

/* The fourth document's network: y = 0.1 x + 0.3, learned. */
static void a_line_is_found(void **state)
{
    manta_model *m = NULL;
    manta_session *s = NULL;
    manta_optimizer opt;
    manta_loss mse = {.name = "mse"};
    float x[100], y[100];
    manta_feed f = {.count = 100, .n_inputs = 1, .n_targets = 1};
    float w[2];

    (void)state;
    for (int i = 0; i < 100; i++) {
        x[i] = rng_uniform(rng_at(rng_make(1, 0), (uint64_t)i).w[0]);
        y[i] = x[i] * 0.1f + 0.3f;
    }
    assert_ok(manta_zoo("linear", &m));
    assert_ok(manta_optimizer_named("sgd", &opt));
    opt.learning_rate = 0.5;
    assert_ok(
        manta_session_open(m, &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &mse}, NULL, &s));
    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){100, 1}, x);
    f.targets[0] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){100, 1}, y);
    for (int i = 0; i < 201; i++) assert_ok(manta_session_step(s, &f));
    assert_int_equal(manta_session_params(s), 2);
    manta_session_get_flat(s, w);
    assert_float_equal(w[0], 0.1f, 1e-3);
    assert_float_equal(w[1], 0.3f, 1e-3);
    manta_session_close(s);
    manta_model_free(m);
}

/* Weight 0 takes a sample out; class weights do it by label. */
static void weights_of_samples_and_classes(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1});
    manta_feed whole = feed(0, 20), half = feed(0, 10);
    float weight[20];
    double a, b;
    manta_metrics out;
    manta_dataset *d = dataset();

    (void)state;
    for (int i = 0; i < 20; i++) weight[i] = i < 10 ? 1 : 0;
    whole.weights[0] = weight;
    {
        manta_array ya, yb;
        assert_ok(manta_session_forward(s, &whole, false, 1, &ya));
        a = (double)((float *)ya.data)[0];
        assert_ok(manta_session_forward(s, &half, false, 1, &yb));
        assert_true(a == (double)((float *)yb.data)[0]);
    }
    assert_ok(manta_session_evaluate_step(s, &whole));
    manta_session_metrics(s, &out);
    a = manta_metrics_get(&out, "loss");
    manta_session_reset_metrics(s);
    assert_ok(manta_session_evaluate_step(s, &half));
    manta_session_metrics(s, &out);
    b = manta_metrics_get(&out, "loss");
    assert_true(fabs(2 * a - b) < 1e-6); /* divided by the samples, not by the weights: Keras's rule */
    assert_int_equal(
        manta_fit(s, d, &(manta_fit_options){.batch = 10, .class_weight = (float[]){1, 1, 1}, .n_classes = 3},
                  NULL),
        MANTA_EINVAL);
    assert_error_says("label 3 has no class weight");
    assert_ok(manta_fit(
        s, d, &(manta_fit_options){.batch = 10, .class_weight = (float[]){1, 0, 2, 1}, .n_classes = 4},
        NULL));
    manta_dataset_unref(d);
    manta_session_close(s);
    manta_model_free(m);
}

static bool stop_at_third(void *user, manta_session *s, const manta_event *e)
{
    int *seen = user;

    (void)s;
    return e->kind != MANTA_EVENT_STEP || ++*seen < 3;
}

static void stopping_and_mistakes(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1}), *none = NULL;
    manta_dataset *d = dataset(), *forever = manta_dataset_repeat(dataset(), MANTA_FOREVER_COUNT);
    int seen = 0;
    double loss;
    manta_feed f = feed(0, 4);

    (void)state;
    assert_int_equal(
        manta_fit(s, d, &(manta_fit_options){.batch = 10, .event = stop_at_third, .user = &seen}, NULL),
        MANTA_ECANCELLED);
    assert_int_equal(manta_session_iterations(s), 3);
    assert_int_equal(manta_fit(s, forever, &(manta_fit_options){.batch = 10, .no_shuffle = true}, NULL),
                     MANTA_EINVAL);
    assert_ok(manta_fit(s, forever,
                        &(manta_fit_options){.batch = 10, .no_shuffle = true, .steps_per_epoch = 20}, NULL));
    assert_int_equal(manta_session_iterations(s), 23);
    assert_int_equal(manta_session_backward(s, &f), MANTA_EINVAL);
    f.n_inputs = 2;
    assert_int_equal(manta_session_step(s, &f), MANTA_EINVAL);
    f = feed(0, 4);
    labels[1] = 9;
    assert_int_equal(manta_session_step(s, &f), MANTA_EINVAL);
    assert_error_says("9");
    labels[1] = 7 % CLASSES;
    assert_ok(manta_session_loss(s, &f, &loss)); /* nothing was torn */
    assert_int_equal(manta_session_open(m, NULL, &(manta_session_options){.kernels = "mmx"}, &none),
                     MANTA_EUNSUPPORTED);
    assert_null(none);
    manta_dataset_unref(d);
    manta_dataset_unref(forever);
    manta_session_close(s);
    manta_model_free(m);
}

/* ---- several inputs and outputs, losses and metrics of the user's own ---- */

/* Mean of |p - t|^3 over a row. */
static manta_status cubic(const manta_loss_call *c)
{
    const float *t = c->target.data;

    for (int64_t r = 0; r < c->rows; r++) {
        float w = (c->weight ? c->weight[r] : 1) * c->scale, sum = 0;
        for (int64_t j = r * c->classes; j < (r + 1) * c->classes; j++) {
            float e = c->pred[j] - t[j];
            sum += fabsf(e) * e * e;
            if (c->grad) c->grad[j] = w * 3 * e * fabsf(e) / (float)c->classes;
        }
        c->loss[r] = sum / (float)c->classes;
    }
    return MANTA_OK;
}

/* Counts rows whose first number is positive; `config` says how much a hit is worth. */
static manta_status positives(const manta_loss_call *c, double *sum, double *count)
{
    for (int64_t r = 0; r < c->rows; r++)
        *sum += c->pred[r * c->classes] > 0 ? *(const double *)c->config : 0;
    *count += (double)c->rows;
    return MANTA_OK;
}

static manta_model *two_headed(void)
{
    manta_model *m = manta_model_new("two");
    manta_value pair[2], x;

    pair[0] = manta_input(m, "left", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    pair[1] = manta_input(m, "right", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    x = manta_call_n(m, manta_merge_concatenate(m, (manta_merge_concatenate_options){0}), 2, pair);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 8, .activation = "tanh"}), x);
    manta_output_named(m, "class", manta_call(m, manta_dense(m, (manta_dense_options){.units = 4}), x));
    manta_output_named(m, "value", manta_call(m, manta_dense(m, (manta_dense_options){.units = 2}), x));
    assert_ok(manta_model_build(m));
    return m;
}

static void several_outputs_and_own_losses(void **state)
{
    static const double worth = 2;
    manta_model *m = two_headed();
    manta_optimizer opt;
    manta_session *s = NULL;
    manta_loss losses[2] = {{.name = "sparse_categorical_crossentropy", .from_logits = true, .weight = 0.5f},
                            {.name = "cubic", .fn = cubic, .weight = 3}};
    manta_metric metrics[2] = {{.name = "accuracy"},
                               {.name = "positives", .output = 1, .fn = positives, .config = &worth}};
    float left[30 * 3], right[30 * 2], value[30 * 2], *w, *g;
    int64_t label[30], n;
    manta_feed f = {.count = 30, .n_inputs = 2, .n_targets = 2};
    manta_metrics out;
    double loss, up, down;

    (void)state;
    for (int i = 0; i < 90; i++) left[i] = rng_uniform(rng_at(rng_make(8, 1), (uint64_t)i).w[0]) - 0.5f;
    for (int i = 0; i < 60; i++) right[i] = rng_uniform(rng_at(rng_make(8, 2), (uint64_t)i).w[0]) - 0.5f;
    for (int i = 0; i < 60; i++) value[i] = left[i] * 2;
    for (int i = 0; i < 30; i++) label[i] = i % 4;
    assert_ok(manta_optimizer_named("sgd", &opt));
    assert_ok(manta_session_open(
        m,
        &(manta_compile){
            .optimizer = &opt, .n_losses = 2, .losses = losses, .n_metrics = 2, .metrics = metrics},
        &(manta_session_options){.threads = 1}, &s));
    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){30, 3}, left);
    f.inputs[1] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){30, 2}, right);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){30}, label);
    f.targets[1] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){30, 2}, value);
    n = manta_session_params(s);
    w = mem_try((size_t)n * sizeof *w);
    g = mem_try((size_t)n * sizeof *g);
    assert_ok(manta_session_loss(s, &f, &loss));
    assert_ok(manta_session_backward(s, &f));
    assert_ok(manta_session_gradients(s, g));
    manta_session_get_flat(s, w);
    for (int64_t i = 0; i < n; i += 7) { /* the gradient of the whole weighted loss */
        float keep = w[i];
        w[i] = keep + 5e-3f;
        manta_session_set_flat(s, w);
        assert_ok(manta_session_loss(s, &f, &up));
        w[i] = keep - 5e-3f;
        manta_session_set_flat(s, w);
        assert_ok(manta_session_loss(s, &f, &down));
        w[i] = keep;
        manta_session_set_flat(s, w);
        assert_true(fabs((up - down) / 1e-2 - (double)g[i]) < 1e-3);
    }
    assert_ok(manta_session_evaluate_step(s, &f));
    manta_session_metrics(s, &out);
    assert_int_equal(out.n, 5);
    assert_string_equal(out.name[0], "loss");
    assert_string_equal(out.name[1], "class_loss");
    assert_string_equal(out.name[2], "value_loss");
    assert_string_equal(out.name[3], "class_accuracy");
    assert_string_equal(out.name[4], "value_positives");
    assert_true(fabs(out.value[0] - (0.5 * out.value[1] + 3 * out.value[2])) < 1e-9);
    {
        manta_array y[2];
        double hits = 0;
        assert_ok(manta_session_forward(s, &f, false, 2, y));
        for (int i = 0; i < 30; i++) hits += ((float *)y[1].data)[2 * i] > 0;
        assert_true(out.value[4] == 2 * hits / 30);
    }
    mem_try_free(w);
    mem_try_free(g);
    manta_session_close(s);
    manta_model_free(m);
}

/* Class weights, a column of sample weights and weights in a feed are one thing. */
static void class_weights_are_sample_weights(void **state)
{
    static const float of_class[CLASSES] = {0.5f, 0, 2, 1};
    manta_fit_options plain = {.batch = 25, .no_shuffle = true}, classes = plain;
    manta_model *m = model((manta_regularizer){0});
    manta_session *s[3];
    float weight[N], *w[3];
    manta_dataset *d = dataset(), *weighted;

    (void)state;
    for (int i = 0; i < N; i++) weight[i] = of_class[labels[i]];
    weighted = manta_dataset_zip(
        dataset(),
        manta_dataset_arrays(
            1, &(manta_column){"sample_weight", manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){N}, weight)},
            MANTA_OWNERSHIP_BORROW));
    classes.class_weight = of_class;
    classes.n_classes = CLASSES;
    for (int i = 0; i < 3; i++) s[i] = session(m, "adam", (manta_session_options){.threads = 1});
    assert_ok(manta_fit(s[0], d, &classes, NULL));
    assert_ok(manta_fit(s[1], weighted, &plain, NULL));
    for (int lo = 0; lo < N; lo += 25) {
        manta_feed f = feed(lo, lo + 25);
        f.weights[0] = weight + lo;
        assert_ok(manta_session_step(s[2], &f));
    }
    for (int i = 0; i < 3; i++) w[i] = flat_of(s[i]);
    for (int i = 1; i < 3; i++) {
        assert_memory_equal(w[0], w[i], (size_t)manta_session_params(s[0]) * sizeof *w[0]);
    }
    for (int i = 0; i < 3; i++) {
        free(w[i]);
        manta_session_close(s[i]);
    }
    manta_dataset_unref(d);
    manta_dataset_unref(weighted);
    manta_model_free(m);
}

/* Larger than a part, and no multiple of it: every row as if it came alone. */
static void a_large_prediction_is_that_of_its_rows(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 2});
    manta_array y, one;
    size_t row;
    char *all;

    (void)state;
    for (int64_t n = N - 20; n <= N; n += 20) { /* it grows, too */
        manta_feed f = feed(0, n);
        assert_ok(manta_session_forward(s, &f, false, 1, &y));
        assert_int_equal(y.shape[0], n);
        row = manta_array_bytes(&y) / (size_t)n;
        all = test_malloc(manta_array_bytes(&y));
        memcpy(all, y.data, manta_array_bytes(&y));
        for (int64_t i = 0; i < n; i++) {
            manta_feed g = feed(i, i + 1);
            assert_ok(manta_session_forward(s, &g, false, 1, &one));
            assert_memory_equal(one.data, all + (size_t)i * row, row);
        }
        test_free(all);
    }
    manta_session_close(s);
    manta_model_free(m);
}

/* A negative number is MANTA_NONE where the field takes it, and else a mistake, whoever computes. */
static void negative_numbers_are_refused(void **state)
{
    static const struct {
        manta_fit_options o;
        const char *say; /* NULL: fine */
    } rows[] = {{{.worker_deadline_ms = MANTA_NONE}, NULL},
                {{.worker_deadline_ms = -2}, "worker_deadline_ms is -2, expected 0 or more, or MANTA_NONE"},
                {{.worker_deadline_ms = MANTA_ZERO}, "worker_deadline_ms"},
                {{.max_failures = MANTA_NONE}, "max_failures is -1, expected 0 or more"}};
    manta_model *m = model((manta_regularizer){0});
    manta_dataset *d = dataset();

    (void)state;
    for (int workers = 1; workers <= 2; workers++) {
        manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1, .workers = workers});
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            manta_fit_options o = rows[i].o;
            o.steps_per_epoch = o.validation_steps = 1;
            if (rows[i].say) {
                assert_fails_with(manta_fit(s, d, &o, NULL), MANTA_EINVAL, rows[i].say);
                assert_fails_with(manta_evaluate(s, d, &o, NULL), MANTA_EINVAL, rows[i].say);
            } else {
                assert_ok(manta_fit(s, d, &o, NULL));
                assert_ok(manta_evaluate(s, d, &o, NULL));
            }
        }
        manta_session_close(s);
    }
    manta_dataset_unref(d);
    manta_model_free(m);
}

static void no_data_is_an_error(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1});
    manta_dataset *d = dataset(), *empty = manta_dataset_take(dataset(), 0);

    (void)state;
    assert_int_equal(manta_fit(s, empty, NULL, NULL), MANTA_EINVAL);
    assert_error_says("the training data is empty");
    assert_int_equal(manta_evaluate(s, empty, NULL, NULL), MANTA_EINVAL);
    assert_error_says("the evaluation data is empty");
    assert_int_equal(manta_fit(s, d, &(manta_fit_options){.validation = empty}, NULL), MANTA_EINVAL);
    assert_error_says("the validation data is empty");
    manta_dataset_unref(d);
    manta_dataset_unref(empty);
    manta_session_close(s);
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fit_learns_and_evaluates_every_sample),
        cmocka_unit_test(predictions_come_in_order),
        cmocka_unit_test(a_line_is_found),
        cmocka_unit_test(weights_of_samples_and_classes),
        cmocka_unit_test(stopping_and_mistakes),
        cmocka_unit_test(several_outputs_and_own_losses),
        cmocka_unit_test(class_weights_are_sample_weights),
        cmocka_unit_test(a_large_prediction_is_that_of_its_rows),
        cmocka_unit_test(negative_numbers_are_refused),
        cmocka_unit_test(no_data_is_an_error),
    };

    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
