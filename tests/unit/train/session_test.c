/* Sessions: one result whatever the fusion, threads and parts of a step; whole
 * datasets; weights in and out. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include <manta/layer.h>
#include <manta/train.h>

#include "base/mem.h"
#include "base/rng.h"

#define assert_ok(call)                                                                                      \
    do {                                                                                                     \
        manta_status ok_ = (call);                                                                           \
        if (ok_) fail_msg("%s: %s", manta_status_name(ok_), manta_error_text());                             \
    } while (0)

enum { N = 150, CLASSES = 4, SIDE = 6 };

static float images[N * SIDE * SIDE];
static int64_t labels[N];

/* Images whose brightest corner is the label, with noise. */
static void make_data(void)
{
    for (int i = 0; i < N; i++) {
        labels[i] = (i * 7) % CLASSES;
        for (int p = 0; p < SIDE * SIDE; p++) {
            int corner = (p / SIDE >= SIDE / 2) * 2 + (p % SIDE >= SIDE / 2);
            float noise = rng_uniform(rng_at(rng_make(5, (uint64_t)i), (uint64_t)p).w[0]);
            images[i * SIDE * SIDE + p] = 0.7f * noise + (corner == labels[i] ? 0.5f : 0);
        }
    }
}

static manta_dataset *dataset(void)
{
    manta_column c[2] = {{"x", manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){N, SIDE, SIDE, 1}, images)},
                         {"y", manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){N}, labels)}};

    return manta_dataset_arrays(2, c, MANTA_BORROW);
}

static manta_feed feed(int64_t lo, int64_t hi)
{
    manta_feed f = {.count = hi - lo, .n_inputs = 1, .n_targets = 1};

    f.inputs[0] =
        manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){hi - lo, SIDE, SIDE, 1}, images + lo * SIDE * SIDE);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){hi - lo}, labels + lo);
    return f;
}

/* Convolution, batch norm, dropout, dense: everything that has state or chance. */
static manta_model *model(manta_regularizer reg)
{
    manta_model *m = manta_model_new("small");

    manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1});
    manta_add(m, manta_conv2d(
                     m, (manta_conv2d_options){.filters = 6, .kernel_size = {3, 3}, .activation = "relu"}));
    manta_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_add(m, manta_flatten(m));
    manta_add(m, manta_dropout(m, (manta_dropout_options){.rate = 0.2}));
    manta_add(m, manta_dense(
                     m, (manta_dense_options){.units = 16, .activation = "relu", .kernel_regularizer = reg}));
    manta_add(m, manta_dense(m, (manta_dense_options){.units = CLASSES}));
    assert_ok(manta_model_build(m));
    return m;
}

static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
static const manta_metric accuracy = {.name = "accuracy"};

static manta_session *session(const manta_model *m, const char *optimizer, manta_session_options o)
{
    manta_optimizer opt;
    manta_session *s = NULL;

    assert_ok(manta_optimizer_named(optimizer, &opt));
    opt.learning_rate = 0.01;
    o.seed = 42;
    assert_ok(manta_session_open(
        m,
        &(manta_compile){
            .optimizer = &opt, .n_losses = 1, .losses = &cross_entropy, .n_metrics = 1, .metrics = &accuracy},
        &o, &s));
    return s;
}

/* All weights and statistics after some steps of uneven batches. */
static float *weights_after(manta_model *m, manta_session *s, size_t *size)
{
    float *all;
    size_t n = 0;

    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_array a;
        assert_ok(manta_session_weight(s, manta_model_variable(m, i).name, &a));
        n += (size_t)manta_array_count(&a);
    }
    all = mem_try(n * sizeof *all);
    n = 0;
    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_array a;
        assert_ok(manta_session_weight(s, manta_model_variable(m, i).name, &a));
        memcpy(all + n, a.data, manta_array_bytes(&a));
        n += (size_t)manta_array_count(&a);
    }
    *size = n * sizeof *all;
    return all;
}

static const int64_t cuts[] = {0, 32, 64, 77, 109, 150};

static float *train(const char *optimizer, manta_session_options o, bool in_parts, size_t *size)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, optimizer, o);
    float *all;

    for (int i = 0; i < 5; i++) {
        manta_feed f = feed(cuts[i], cuts[i + 1]);
        double loss;
        if (!in_parts) {
            assert_ok(manta_session_step(s, &f));
        } else {
            assert_ok(manta_session_loss(s, &f, &loss));
            assert_ok(manta_session_backward(s, &f));
            assert_ok(manta_session_apply(s, NULL));
        }
    }
    assert_int_equal(manta_session_iterations(s), 5);
    all = weights_after(m, s, size);
    manta_session_close(s);
    manta_model_free(m);
    return all;
}

static void assert_same_training(const char *optimizer, manta_session_options a, bool a_parts,
                                 manta_session_options b, bool b_parts)
{
    size_t a_size, b_size;
    float *x = train(optimizer, a, a_parts, &a_size), *y = train(optimizer, b, b_parts, &b_size);

    assert_int_equal(a_size, b_size);
    assert_memory_equal(x, y, a_size);
    mem_try_free(x);
    mem_try_free(y);
}

static void fused_or_not_threads_or_not(void **state)
{
    static const char *const names[] = {"sgd", "adam", "rmsprop", "torch.adamw"};

    (void)state;
    for (int i = 0; i < 4; i++) {
        manta_session_options one = {.threads = 1}, two = {.threads = 2},
                              plain = {.threads = 2, .no_fusion = true};
        assert_same_training(names[i], one, false, two, false);
        assert_same_training(names[i], one, false, plain, false);
        assert_same_training(names[i], one, false, two, true);
        assert_same_training(names[i], one, false,
                             (manta_session_options){.threads = 2, .kernels = "reference"}, false);
    }
}

static void shards_do_not_depend_on_threads_or_parts(void **state)
{
    manta_session_options one = {.threads = 1, .shards = 3}, two = {.threads = 2, .shards = 3};

    (void)state;
    assert_same_training("adam", one, false, two, false);
    assert_same_training("adam", one, false, two, true);
}

/* A model without batch norm: V shards sum the same numbers in another order. */
static void shards_agree_with_one_up_to_rounding(void **state)
{
    size_t size[2];
    float *w[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        manta_model *m = manta_model_new("plain");
        manta_session *s;
        manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1});
        manta_add(m, manta_flatten(m));
        manta_add(m, manta_dropout(m, (manta_dropout_options){.rate = 0.3}));
        manta_add(m, manta_dense(m, (manta_dense_options){.units = CLASSES}));
        assert_ok(manta_model_build(m));
        s = session(m, "sgd", (manta_session_options){.threads = 1, .shards = i ? 4 : 1});
        for (int j = 0; j < 5; j++) {
            manta_feed f = feed(cuts[j], cuts[j + 1]);
            assert_ok(manta_session_step(s, &f));
        }
        w[i] = weights_after(m, s, &size[i]);
        manta_session_close(s);
        manta_model_free(m);
    }
    for (size_t i = 0; i < size[0] / sizeof(float); i++) assert_float_equal(w[0][i], w[1][i], 1e-6);
    mem_try_free(w[0]);
    mem_try_free(w[1]);
}

/* Gradients taken out, averaged and put back in: what programs do that exchange
 * them (a parameter server of two). */
static void gradients_exchanged_by_hand(void **state)
{
    manta_model *m = model((manta_regularizer){.l2 = 0.01f});
    manta_session *a = session(m, "adam", (manta_session_options){.threads = 1});
    manta_session *b = session(m, "adam", (manta_session_options){.threads = 1});
    int64_t n = manta_session_params(a);
    float *w = mem_try((size_t)n * sizeof *w), *g = mem_try((size_t)n * sizeof *g),
          *h = mem_try((size_t)n * sizeof *h);

    (void)state;
    assert_int_equal(n, manta_model_params(m, true));
    for (int i = 0; i < 4; i++) {
        manta_feed f = feed(cuts[i], cuts[i + 1]);
        double loss, again;
        manta_session_get_flat(a, w);
        manta_session_set_flat(b, w);
        assert_ok(manta_session_loss(a, &f, &loss));
        assert_ok(manta_session_loss(b, &f, &again));
        assert_true(loss == again);
        assert_ok(manta_session_backward(b, &f));
        assert_ok(manta_session_gradients(b, g));
        assert_ok(manta_session_backward(a, &f));
        assert_ok(manta_session_gradients(a, h));
        assert_memory_equal(g, h, (size_t)n * sizeof *g);
        assert_ok(manta_session_apply(a, NULL)); /* its own */
        assert_ok(manta_session_apply(b, g)); /* the same, given */
        manta_session_get_flat(a, w);
        manta_session_get_flat(b, h);
        for (int64_t j = 0; j < n; j++) assert_float_equal(w[j], h[j], 1e-6);
    }
    assert_int_equal(manta_session_apply(a, NULL), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "no gradients"));
    mem_try_free(w);
    mem_try_free(g);
    mem_try_free(h);
    manta_session_close(a);
    manta_session_close(b);
    manta_model_free(m);
}

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

/* An interrupted run that goes on from a file ends where the other ended. */
static void saved_and_loaded_goes_on_the_same(void **state)
{
    char path[] = "/tmp/manta-session-XXXXXX.npz";
    int fd = mkstemps(path, 4);
    manta_model *m = model((manta_regularizer){0});
    manta_session *a = session(m, "adam", (manta_session_options){.threads = 1}), *b;
    size_t size;
    float *x, *y;
    manta_feed f;

    (void)state;
    close(fd);
    for (int i = 0; i < 3; i++) {
        f = feed(cuts[i], cuts[i + 1]);
        assert_ok(manta_session_step(a, &f));
    }
    assert_ok(manta_session_save(a, path));
    b = session(m, "adam", (manta_session_options){.threads = 1});
    assert_ok(manta_session_load(b, path, false));
    assert_int_equal(manta_session_iterations(b), 3);
    for (int i = 3; i < 5; i++) {
        f = feed(cuts[i], cuts[i + 1]);
        assert_ok(manta_session_step(a, &f));
        assert_ok(manta_session_step(b, &f));
    }
    x = weights_after(m, a, &size);
    y = weights_after(m, b, &size);
    assert_memory_equal(x, y, size);
    manta_session_close(b);

    b = session(m, "sgd", (manta_session_options){.threads = 1}); /* another optimizer: weights only */
    assert_ok(manta_session_load(b, path, false));
    assert_ok(manta_session_load(b, path, true));
    assert_int_equal(manta_session_load(b, "/nonexistent.npz", true), MANTA_ENOENT);
    manta_session_close(b);
    mem_try_free(x);
    mem_try_free(y);
    unlink(path);
    manta_session_close(a);
    manta_model_free(m);
}

static void a_file_that_does_not_fit_changes_nothing(void **state)
{
    char path[] = "/tmp/manta-session-XXXXXX.npz";
    int fd = mkstemps(path, 4);
    manta_model *m = model((manta_regularizer){0}), *other = manta_model_new("other");
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1}), *o;
    size_t size;
    float *before = weights_after(m, s, &size), *after;

    (void)state;
    close(fd);
    manta_input(other, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1});
    manta_add(other, manta_conv2d(other, (manta_conv2d_options){.filters = 5, .kernel_size = {3, 3}}));
    manta_add(other, manta_flatten(other));
    manta_add(other, manta_dense(other, (manta_dense_options){.units = CLASSES}));
    assert_ok(manta_model_build(other));
    o = session(other, "sgd", (manta_session_options){.threads = 1});
    assert_ok(manta_session_save(o, path));
    assert_int_equal(manta_session_load(s, path, false), MANTA_EINVAL);
    assert_non_null(
        strstr(manta_error_text(),
               "array 'conv2d/kernel' has shape (3, 3, 1, 5), model 'small' expects (3, 3, 1, 6)"));
    after = weights_after(m, s, &size);
    assert_memory_equal(before, after, size);
    mem_try_free(before);
    mem_try_free(after);
    unlink(path);
    manta_session_close(s);
    manta_session_close(o);
    manta_model_free(m);
    manta_model_free(other);
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
    assert_non_null(strstr(manta_error_text(), "label 3 has no class weight"));
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
    assert_non_null(strstr(manta_error_text(), "9"));
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

static void a_fitting_step_allocates_nothing(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "adam", (manta_session_options){.threads = 2});
    manta_feed f = feed(0, 32);
    int64_t before;

    (void)state;
    assert_ok(manta_session_step(s, &f));
    before = mem_count();
    for (int i = 0; i < 5; i++) assert_ok(manta_session_step(s, &f));
    assert_int_equal(mem_count(), before);
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
    x = manta_call_n(m, manta_concatenate(m, (manta_concatenate_options){0}), 2, pair);
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

/* N calls that accumulate make one step of the mean gradient. */
static void accumulation_over_four_batches_is_one_step(void **state)
{
    float *w[2];
    size_t size;

    (void)state;
    for (int i = 0; i < 2; i++) {
        manta_model *m = manta_model_new("plain");
        manta_optimizer opt;
        manta_session *s = NULL;
        manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1});
        manta_add(m, manta_flatten(m));
        manta_add(m, manta_dense(m, (manta_dense_options){.units = CLASSES}));
        assert_ok(manta_model_build(m));
        assert_ok(manta_optimizer_named("adam", &opt));
        opt.gradient_accumulation_steps = i ? 4 : 0;
        assert_ok(manta_session_open(
            m, &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &cross_entropy},
            &(manta_session_options){.seed = 4}, &s));
        for (int step = 0; step < 8; step++) {
            manta_feed f = i ? feed(16 * step, 16 * step + 16) : feed(64 * (step / 4), 64 * (step / 4) + 64);
            if (i || step % 4 == 0) assert_ok(manta_session_step(s, &f));
        }
        w[i] = weights_after(m, s, &size);
        manta_session_close(s);
        manta_model_free(m);
    }
    for (size_t i = 0; i < size / sizeof(float); i++) assert_float_equal(w[0][i], w[1][i], 2e-6);
    mem_try_free(w[0]);
    mem_try_free(w[1]);
}

static float *flat_of(const manta_session *s)
{
    float *w = malloc((size_t)manta_session_params(s) * sizeof *w);

    assert_non_null(w);
    manta_session_get_flat(s, w);
    return w;
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
            MANTA_BORROW));
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

static manta_session *averaging(const manta_model *m, int frequency)
{
    manta_optimizer opt;
    manta_session *s = NULL;

    assert_ok(manta_optimizer_named("sgd", &opt));
    opt.learning_rate = 0.05;
    opt.use_ema = true;
    opt.ema_momentum = 0.75;
    opt.ema_overwrite_frequency = frequency;
    assert_ok(manta_session_open(m,
                                 &(manta_compile){.optimizer = &opt, .n_losses = 1, .losses = &cross_entropy},
                                 &(manta_session_options){.threads = 1, .seed = 42}, &s));
    return s;
}

/* The average of the weights after each step takes their place when fit ends. */
static void the_average_replaces_the_weights(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *fitted = averaging(m, 0), *stepped = averaging(m, 0), *often = averaging(m, 3);
    manta_dataset *d = dataset();
    int64_t n = manta_session_params(fitted);
    float *w, *average = calloc((size_t)n, sizeof *average);

    (void)state;
    assert_ok(manta_fit(fitted, d, &(manta_fit_options){.batch = 50, .no_shuffle = true}, NULL));
    for (int step = 0; step < 3; step++) {
        manta_feed f = feed(50 * step, 50 * step + 50);
        assert_ok(manta_session_step(stepped, &f));
        assert_ok(manta_session_step(often, &f));
        w = flat_of(stepped);
        for (int64_t i = 0; i < n; i++) average[i] = step ? 0.75f * average[i] + 0.25f * w[i] : w[i];
        free(w);
    }
    for (int round = 0; round < 2; round++) { /* at the end, and every third step */
        w = flat_of(round ? often : fitted);
        for (int64_t i = 0; i < n; i++)
            assert_true(fabsf(w[i] - average[i]) <= 1e-6f * (1 + fabsf(average[i])));
        free(w);
    }
    w = flat_of(stepped);
    assert_true(memcmp(w, average, (size_t)n * sizeof *w) != 0);
    free(w);
    free(average);
    manta_dataset_unref(d);
    manta_session_close(fitted);
    manta_session_close(stepped);
    manta_session_close(often);
    manta_model_free(m);
}

static void debug_runs_the_reference_loops(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *plain = session(m, "adam", (manta_session_options){.threads = 1}),
                  *debug = session(m, "adam", (manta_session_options){.threads = 1, .debug = true});
    manta_feed f = feed(0, 20);
    float *a, *b;

    (void)state;
    if (!getenv("MANTA_KERNELS")) assert_non_null(strstr(manta_session_about(debug), "reference kernels"));
    assert_ok(manta_session_step(plain, &f));
    assert_ok(manta_session_step(debug, &f));
    a = flat_of(plain);
    b = flat_of(debug);
    assert_memory_equal(a, b, (size_t)manta_session_params(plain) * sizeof *a);
    a[3] = NAN;
    manta_session_set_flat(debug, a);
    assert_int_equal(manta_session_step(debug, &f), MANTA_ENAN);
    assert_non_null(strstr(manta_error_text(), "conv2d/kernel"));
    free(a);
    free(b);
    manta_session_close(plain);
    manta_session_close(debug);
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

static void forward_in_training_mode_needs_no_target(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1});
    manta_feed f = feed(0, 20);
    manta_array y;
    float *before = flat_of(s), *after, inference[20 * CLASSES];

    (void)state;
    f.n_targets = 0;
    assert_ok(manta_session_forward(s, &f, false, 1, &y));
    memcpy(inference, y.data, sizeof inference);
    assert_ok(manta_session_forward(s, &f, true, 1, &y));
    assert_memory_not_equal(inference, y.data, sizeof inference); /* dropout, statistics of the batch */
    assert_int_equal(manta_session_backward(s, &f), MANTA_EINVAL);
    after = flat_of(s);
    assert_memory_equal(before, after, (size_t)manta_session_params(s) * sizeof *before);
    free(before);
    free(after);
    manta_session_close(s);
    manta_model_free(m);
}

static void no_data_is_an_error(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1});
    manta_dataset *d = dataset(), *empty = manta_dataset_take(dataset(), 0);

    (void)state;
    assert_int_equal(manta_fit(s, empty, NULL, NULL), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "the training data is empty"));
    assert_int_equal(manta_evaluate(s, empty, NULL, NULL), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "the evaluation data is empty"));
    assert_int_equal(manta_fit(s, d, &(manta_fit_options){.validation = empty}, NULL), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "the validation data is empty"));
    manta_dataset_unref(d);
    manta_dataset_unref(empty);
    manta_session_close(s);
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_or_not_threads_or_not),
        cmocka_unit_test(shards_do_not_depend_on_threads_or_parts),
        cmocka_unit_test(shards_agree_with_one_up_to_rounding),
        cmocka_unit_test(gradients_exchanged_by_hand),
        cmocka_unit_test(fit_learns_and_evaluates_every_sample),
        cmocka_unit_test(predictions_come_in_order),
        cmocka_unit_test(saved_and_loaded_goes_on_the_same),
        cmocka_unit_test(a_file_that_does_not_fit_changes_nothing),
        cmocka_unit_test(a_line_is_found),
        cmocka_unit_test(weights_of_samples_and_classes),
        cmocka_unit_test(stopping_and_mistakes),
        cmocka_unit_test(a_fitting_step_allocates_nothing),
        cmocka_unit_test(several_outputs_and_own_losses),
        cmocka_unit_test(accumulation_over_four_batches_is_one_step),
        cmocka_unit_test(class_weights_are_sample_weights),
        cmocka_unit_test(the_average_replaces_the_weights),
        cmocka_unit_test(debug_runs_the_reference_loops),
        cmocka_unit_test(forward_in_training_mode_needs_no_target),
        cmocka_unit_test(a_large_prediction_is_that_of_its_rows),
        cmocka_unit_test(no_data_is_an_error),
    };

    make_data();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
