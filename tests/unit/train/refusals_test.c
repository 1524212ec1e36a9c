/* refusals_test.c - options, views and sizes that cannot be are refused, and what was being made is not begun. */
#include <manta/callback.h>
#include <manta/layer.h>
#include <manta/tensor.h>
#include <manta/train.h>

#include "ok.h"

static const manta_loss mse = {.name = "mse"};
static const manta_compile plain = {.n_losses = 1, .losses = &mse};
static float numbers[16];

static manta_model *small_model(void)
{
    manta_model *m = manta_model_new("m");

    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 1}));
    assert_ok(manta_model_build(m));
    return m;
}

static void refuse_session(const manta_compile *c, const manta_session_options *o, const char *says)
{
    manta_model *m = small_model();
    manta_session *s = NULL;

    assert_fails_with(manta_session_open(m, c, o, &s), MANTA_EINVAL, says);
    assert_null(s);
    manta_model_free(m);
}

static void a_session_refuses_its_options(void **state)
{
    (void)state;
    refuse_session(&plain, &(manta_session_options){.threads = -4}, "-4 threads");
    refuse_session(&plain, &(manta_session_options){.workers = -4}, "-4 workers");
    refuse_session(&plain, &(manta_session_options){.shards = -4}, "-4 shards");
    refuse_session(&plain, &(manta_session_options){.servers = -4}, "-4 parameter servers");
    refuse_session(&plain, &(manta_session_options){.strategy = (manta_strategy_kind)55}, "strategy 55");
    refuse_session(&plain, &(manta_session_options){.statistics = (manta_statistics)55}, "statistics 55");
}

static void a_session_refuses_what_it_is_compiled_with(void **state)
{
    manta_optimizer zeros = {0}, odd;
    manta_loss reduced = {.name = "mse", .reduction = (manta_reduction)55};

    (void)state;
    assert_ok(manta_optimizer_named("adam", &odd));
    odd.kind = (manta_optimizer_kind)55;
    refuse_session(&(manta_compile){.n_losses = -1, .losses = &mse}, NULL, "-1 losses");
    refuse_session(&(manta_compile){.n_losses = 1}, NULL, "losses at NULL");
    refuse_session(&(manta_compile){.n_losses = 1, .losses = &mse, .n_metrics = 1}, NULL, "metrics at NULL");
    refuse_session(&(manta_compile){.n_losses = 1, .losses = &reduced}, NULL, "numbered 55");
    refuse_session(&(manta_compile){.n_losses = 1, .losses = &mse, .optimizer = &odd}, NULL, "numbered 55");
    refuse_session(&(manta_compile){.n_losses = 1, .losses = &mse, .optimizer = &zeros}, NULL,
                   "learning_rate is 0");
}

/* A rate of zero is to be asked for; then it is one. */
static void a_rate_of_zero_is_asked_for(void **state)
{
    manta_optimizer o = {.learning_rate = MANTA_ZERO};
    manta_compile c = {.n_losses = 1, .losses = &mse, .optimizer = &o};
    manta_model *m = small_model();
    manta_session *s;

    (void)state;
    assert_ok(manta_session_open(m, &c, NULL, &s));
    assert_true(manta_session_learning_rate(s) == 0);
    manta_session_close(s);
    manta_model_free(m);
}

static manta_feed good_feed(void)
{
    manta_feed f = {.count = 2, .n_inputs = 1, .n_targets = 1};

    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 2}, numbers);
    f.targets[0] = manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 1}, numbers);
    return f;
}

static void a_step_refuses_arrays_that_cannot_be(void **state)
{
    manta_model *m = small_model();
    manta_session *s;
    manta_feed f = good_feed();

    (void)state;
    assert_ok(manta_session_open(m, &plain, NULL, &s));
    assert_ok(manta_session_step(s, &f));
    f.inputs[0].data = NULL;
    assert_fails_with(manta_session_step(s, &f), MANTA_EINVAL, "no memory");
    f = good_feed();
    f.inputs[0].dtype = (manta_dtype)55;
    assert_fails_with(manta_session_step(s, &f), MANTA_EINVAL, "dtype 55");
    f = good_feed();
    f.inputs[0].ndim = 1000;
    assert_fails_with(manta_session_step(s, &f), MANTA_EINVAL, "1000 dimensions");
    f = good_feed();
    f.targets[0].data = NULL;
    assert_fails_with(manta_session_step(s, &f), MANTA_EINVAL, "no memory");
    f = good_feed();
    f.targets[0].dtype = (manta_dtype)-1;
    assert_fails_with(manta_session_step(s, &f), MANTA_EINVAL, "dtype -1");
    f = good_feed();
    assert_ok(manta_session_step(s, &f));
    manta_session_close(s);
    manta_model_free(m);
}

static void a_fit_refuses_its_options(void **state)
{
    manta_callback *none[] = {NULL};
    const struct {
        manta_fit_options o;
        const char *says;
    } cases[] = {
        {{.epochs = -1}, "-1 epochs"},
        {{.batch = -1}, "-1"},
        {{.batch = INT64_MAX}, "overflow"},
        {{.steps_per_epoch = -3}, "-3"},
        {{.initial_epoch = -3}, "-3"},
        {{.validation_steps = -3}, "-3"},
        {{.validation_batch = -3}, "-3"},
        {{.n_callbacks = 2}, "callbacks at NULL"},
        {{.n_callbacks = -2}, "-2 callbacks"},
        {{.n_callbacks = 1, .callbacks = none}, "callback 0 of 1 is NULL"},
        {{.n_classes = 3}, "3 classes at NULL"},
        {{.max_failures = -3}, "-3"},
        {{.event_interval_ms = -3}, "-3"},
    };
    manta_column columns[] = {{"x", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 2}, numbers)},
                              {"y", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){2, 1}, numbers)}};
    manta_dataset *d = manta_dataset_arrays(2, columns, MANTA_OWNERSHIP_BORROW);
    manta_model *m = small_model();
    manta_session *s;

    (void)state;
    assert_ok(manta_session_open(m, &plain, NULL, &s));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_fails_with(manta_fit(s, d, &cases[i].o, NULL), MANTA_EINVAL, cases[i].says);
    assert_int_equal(manta_session_iterations(s), 0);
    assert_ok(manta_fit(s, d, NULL, NULL));
    manta_session_close(s);
    manta_model_free(m);
    manta_dataset_unref(d);
}

/* Sizes that memory cannot have are refused when the model is built or the session opened, without an abort. */
static void sizes_beyond_memory_are_refused(void **state)
{
    const int64_t units[] = {INT64_MAX, 20000000}, inputs[] = {INT64_MAX, INT64_MAX};
    manta_model *m = manta_model_new("m");
    manta_session *s = NULL;
    manta_tensor *t = NULL;

    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 2, inputs);
    assert_fails_with(manta_model_build(m), MANTA_EINVAL, "2^48");
    manta_model_free(m);
    for (int i = 0; i < 2; i++) {
        m = manta_model_new("m");
        manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){1000000});
        manta_model_add(m, manta_dense(m, (manta_dense_options){.units = units[i]}));
        manta_status st = manta_model_build(m);
        if (!st) st = manta_session_open(m, &plain, NULL, &s);
        assert_int_equal(st, i ? MANTA_ENOMEM : MANTA_EINVAL);
        assert_null(s);
        manta_model_free(m);
    }
    assert_fails_with(manta_tensor_new(MANTA_DTYPE_F32, 2, inputs, &t), MANTA_ENOMEM, "addressed");
    assert_null(t);
}

static void an_input_refuses_a_dtype_that_is_none(void **state)
{
    manta_model *m = manta_model_new("m");

    (void)state;
    manta_input(m, "x", (manta_dtype)55, 1, (int64_t[]){2});
    assert_fails_with(manta_model_build(m), MANTA_EINVAL, "dtype 55");
    manta_model_free(m);
}

static void views_that_cannot_be_are_not_copied(void **state)
{
    manta_array good = manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){2}, numbers), bad = good;

    (void)state;
    bad.dtype = (manta_dtype)55;
    assert_fails_with(manta_array_copy(&good, &bad), MANTA_EINVAL, "src has the dtype 55");
    bad = good;
    bad.ndim = -3;
    assert_fails_with(manta_array_copy(&bad, &good), MANTA_EINVAL, "dst has -3 dimensions");
    bad = good;
    bad.data = NULL;
    assert_fails_with(manta_array_copy(&good, &bad), MANTA_EINVAL, "no memory");
    bad = good;
    bad.shape[0] = -3;
    assert_fails_with(manta_array_fill(&bad, 1), MANTA_EINVAL, "size -3");
    assert_int_equal(manta_array_of(MANTA_DTYPE_F32, -1, NULL, numbers).ndim, 0);
    assert_null(manta_array_of((manta_dtype)55, 1, (int64_t[]){2}, numbers).data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_refuses_its_options),
        cmocka_unit_test(a_session_refuses_what_it_is_compiled_with),
        cmocka_unit_test(a_rate_of_zero_is_asked_for),
        cmocka_unit_test(a_step_refuses_arrays_that_cannot_be),
        cmocka_unit_test(a_fit_refuses_its_options),
        cmocka_unit_test(sizes_beyond_memory_are_refused),
        cmocka_unit_test(an_input_refuses_a_dtype_that_is_none),
        cmocka_unit_test(views_that_cannot_be_are_not_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
