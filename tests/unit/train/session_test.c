/* Sessions: one result whatever the fusion, threads and parts of a step; weights in
 * and out. */
#include "session_fixture.h"

#include "format/scratch.h"
#include "tensor/kernel.h"

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

/* The same in mixed bfloat16, where products are rounded; the state is float32 there too. */
static void mixed_bfloat16_fused_or_not(void **state)
{
    static const char *const names[] = {"sgd", "adam"};
    static const char *const families[] = {"reference", "avx2", "avx512"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        manta_session_options one = {.threads = 1, .precision = "mixed_bfloat16"}, two = one, plain = one;
        two.threads = 2;
        plain.no_fusion = true;
        assert_same_training(names[i], one, false, two, false);
        assert_same_training(names[i], one, false, plain, false);
        assert_same_training(names[i], one, false, two, true);
        for (int f = 0; f < 3; f++) {
            if (!kernels_of((kern_family)f)) continue;
            two.kernels = families[f];
            assert_same_training(names[i], one, false, two, false);
        }
        one.debug = true;
        assert_same_training(names[i], one, false, plain, false);
    }
}

static void float32_is_exact_on_a_processor(void **state)
{
    (void)state;
    assert_same_training("adam", (manta_session_options){.threads = 1}, false,
                         (manta_session_options){.threads = 1, .precision = "float32"}, false);
    assert_same_training("adam", (manta_session_options){.threads = 1}, false,
                         (manta_session_options){.threads = 1, .precision = "exact"}, false);
}

static void precisions_that_cannot_be_are_refused(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = NULL;
    manta_session_options o = {.precision = "mixed_float16"};

    (void)state;
    assert_fails_with(manta_session_open(m, NULL, &o, &s), MANTA_EUNSUPPORTED, "mixed_float16");
    o.precision = "half";
    assert_fails_with(manta_session_open(m, NULL, &o, &s), MANTA_EINVAL, "expected");
    o.precision = "mixed_bfloat16";
    o.kernels = "onednn";
    if (kernels_of(KERN_ONEDNN))
        assert_fails_with(manta_session_open(m, NULL, &o, &s), MANTA_EUNSUPPORTED, "'onednn' have none");
    assert_null(s);
    o.kernels = "reference";
    assert_ok(manta_session_open(m, NULL, &o, &s));
    assert_non_null(strstr(manta_session_about(s), "reference kernels, mixed_bfloat16"));
    manta_session_close(s);
    manta_model_free(m);
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
        manta_model_add(m, manta_flatten(m));
        manta_model_add(m, manta_dropout(m, (manta_dropout_options){.rate = 0.3}));
        manta_model_add(m, manta_dense(m, (manta_dense_options){.units = CLASSES}));
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
    assert_error_says("no gradients");
    mem_try_free(w);
    mem_try_free(g);
    mem_try_free(h);
    manta_session_close(a);
    manta_session_close(b);
    manta_model_free(m);
}

/* An interrupted run that goes on from a file ends where the other ended. */
static void saved_and_loaded_goes_on_the_same(void **state)
{
    const char *path = scratch_path("session.npz");
    manta_model *m = model((manta_regularizer){0});
    manta_session *a = session(m, "adam", (manta_session_options){.threads = 1}), *b;
    size_t size;
    float *x, *y;
    manta_feed f;

    (void)state;
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
    manta_session_close(a);
    manta_model_free(m);
}

static void a_file_that_does_not_fit_changes_nothing(void **state)
{
    const char *path = scratch_path("session.npz");
    manta_model *m = model((manta_regularizer){0}), *other = manta_model_new("other");
    manta_session *s = session(m, "sgd", (manta_session_options){.threads = 1}), *o;
    size_t size;
    float *before = weights_after(m, s, &size), *after;

    (void)state;
    manta_input(other, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1});
    manta_model_add(other, manta_conv2d(other, (manta_conv2d_options){.filters = 5, .kernel_size = {3, 3}}));
    manta_model_add(other, manta_flatten(other));
    manta_model_add(other, manta_dense(other, (manta_dense_options){.units = CLASSES}));
    assert_ok(manta_model_build(other));
    o = session(other, "sgd", (manta_session_options){.threads = 1});
    assert_ok(manta_session_save(o, path));
    assert_int_equal(manta_session_load(s, path, false), MANTA_EINVAL);
    assert_error_says("array 'conv2d/kernel' has shape (3, 3, 1, 5), model 'small' expects (3, 3, 1, 6)");
    after = weights_after(m, s, &size);
    assert_memory_equal(before, after, size);
    mem_try_free(before);
    mem_try_free(after);
    manta_session_close(s);
    manta_session_close(o);
    manta_model_free(m);
    manta_model_free(other);
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
        manta_model_add(m, manta_flatten(m));
        manta_model_add(m, manta_dense(m, (manta_dense_options){.units = CLASSES}));
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
    assert_error_says("conv2d/kernel");
    free(a);
    free(b);
    manta_session_close(plain);
    manta_session_close(debug);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_or_not_threads_or_not),
        cmocka_unit_test(mixed_bfloat16_fused_or_not),
        cmocka_unit_test(float32_is_exact_on_a_processor),
        cmocka_unit_test(precisions_that_cannot_be_are_refused),
        cmocka_unit_test(shards_do_not_depend_on_threads_or_parts),
        cmocka_unit_test(shards_agree_with_one_up_to_rounding),
        cmocka_unit_test(gradients_exchanged_by_hand),
        cmocka_unit_test(saved_and_loaded_goes_on_the_same),
        cmocka_unit_test(a_file_that_does_not_fit_changes_nothing),
        cmocka_unit_test(a_fitting_step_allocates_nothing),
        cmocka_unit_test(accumulation_over_four_batches_is_one_step),
        cmocka_unit_test(the_average_replaces_the_weights),
        cmocka_unit_test(debug_runs_the_reference_loops),
        cmocka_unit_test(forward_in_training_mode_needs_no_target),
    };

    make_data();
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
