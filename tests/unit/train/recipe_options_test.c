/* What words make: the options of a session and of a fit, callbacks; and what of it is refused, with which
 * setting to blame. */
#include "recipe_fixture.h"

/* ---- sessions and fits ---- */

static void the_options_of_a_session_are_read(void **state)
{
    manta_recipe *r = recipe_of("workers=2:3 threads-per-worker=4 seed=5 shards=6 batch-norm=sync "
                                "kernels=reference debug strategy=mirrored");
    manta_session_options so;

    (void)state;
    assert_ok(manta_recipe_session_options(r, &so));
    assert_int_equal(so.workers, 3);
    assert_int_equal(so.min_workers, 2);
    assert_int_equal(so.threads, 4);
    assert_int_equal(so.seed, 5);
    assert_int_equal(so.shards, 6);
    assert_int_equal(so.statistics, MANTA_STATISTICS_SYNC);
    assert_int_equal(so.strategy, MANTA_STRATEGY_SYNC);
    assert_string_equal(so.kernels, "reference");
    assert_true(so.debug);
    manta_recipe_free(r);
    r = recipe_of("");
    assert_ok(manta_recipe_session_options(r, &so));
    assert_int_equal(so.workers, 1);
    assert_int_equal(so.statistics, MANTA_STATISTICS_MEAN);
    manta_recipe_free(r);
    r = recipe_of("strategy=parameter-server servers=2 staleness=0 workers=2 batch-norm=first");
    assert_ok(manta_recipe_session_options(r, &so));
    assert_int_equal(so.strategy, MANTA_STRATEGY_PARAMETER_SERVER);
    assert_int_equal(so.servers, 2);
    assert_int_equal(so.staleness, MANTA_ZERO);
    assert_int_equal(so.statistics, MANTA_STATISTICS_FIRST);
    manta_recipe_free(r);
}

static void the_options_of_a_fit_are_read(void **state)
{
    manta_recipe *r = recipe_of("epochs=5 initial-epoch=2 batch_size=7 steps-per-epoch=3 validation=mnist "
                                "validation-steps=4 no-shuffle class-weight=1,0.5 max-failures=9");
    manta_fit_options fit;

    (void)state;
    assert_ok(manta_recipe_fit_options(r, &fit));
    assert_int_equal(fit.epochs, 5);
    assert_int_equal(fit.initial_epoch, 2);
    assert_int_equal(fit.batch, 7);
    assert_int_equal(fit.global_batch, 0);
    assert_int_equal(fit.steps_per_epoch, 3);
    assert_int_equal(fit.validation_steps, 4);
    assert_true(fit.no_shuffle);
    assert_int_equal(fit.n_classes, 2);
    assert_true(fit.class_weight[0] == 1.0f && fit.class_weight[1] == 0.5f);
    assert_int_equal(fit.max_failures, 9);
    manta_recipe_free(r);
    r = recipe_of("");
    assert_ok(manta_recipe_fit_options(r, &fit));
    assert_int_equal(fit.epochs, 1);
    assert_int_equal(fit.batch, MANTA_RECIPE_BATCH);
    assert_null(fit.class_weight);
    assert_ok(manta_recipe_set(r, "global-batch", "64"));
    assert_ok(manta_recipe_fit_options(r, &fit));
    assert_int_equal(fit.batch, 0);
    assert_int_equal(fit.global_batch, 64);
    manta_recipe_free(r);
}

static void options_that_cannot_be_are_refused(void **state)
{
    static const struct {
        const char *words, *setting, *part;
        bool fit;
    } cases[] = {
        {"workers=x", "workers", "'x' is not a whole number", false},
        {"workers=2x", "workers", "'2x'", false},
        {"workers=0", "workers", "expected 1 to 256", false},
        {"workers=257", "workers", "expected 1 to 256", false},
        {"workers=4:2", "workers", "at least as many behind the colon", false},
        {"workers=2:", "workers", "workers: ''", false},
        {"workers=2:257", "workers", "at most 256", false},
        {"threads-per-worker=4097", "threads-per-worker", "at most 4096", false},
        {"shards=1 workers=2", "shards", "each worker needs one", false},
        {"shards=4097", "shards", "at most 4096", false},
        {"batch-norm=median", "batch-norm", "expected mean, first or sync", false},
        {"strategy=ring", "strategy", "expected mirrored, one-device or parameter-server", false},
        {"strategy=one-device workers=2", "strategy", "leave workers out", false},
        {"servers=2", "servers", "are for strategy parameter-server", false},
        {"staleness=0", "staleness", "are for strategy parameter-server", false},
        {"strategy=parameter-server shards=2", "strategy", "neither shards", false},
        {"strategy=parameter-server workers=1:2", "strategy", "nor workers N:M", false},
        {"strategy=parameter-server servers=65", "servers", "expected 1 to 64", false},
        {"batch=8 global-batch=16", "batch", "give one of them", true},
        {"validation-split=0", "validation-split", "expected between 0 and 1", true},
        {"validation-split=1", "validation-split", "expected between 0 and 1", true},
        {"validation-split=0.5 validation=mnist", "validation-split", "give one of them", true},
        {"validation-steps=3", "validation-steps", "needs validation or validation-split", true},
        {"initial-epoch=3 epochs=3", "initial-epoch", "leaves nothing of epochs 3", true},
        {"class-weight=1,x", "class-weight", "class-weight: 'x' is not a number", true},
        {"max-failures=3000000000", "max-failures", "at most 2147483647", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_recipe *r = recipe_of(cases[i].words);
        manta_session_options so;
        manta_fit_options fit;
        if (cases[i].fit) {
            assert_blames(r, manta_recipe_fit_options(r, &fit), MANTA_EINVAL, cases[i].setting,
                          cases[i].part);
        } else {
            assert_blames(r, manta_recipe_session_options(r, &so), MANTA_EINVAL, cases[i].setting,
                          cases[i].part);
        }
        manta_recipe_free(r);
    }
}

/* ---- callbacks ---- */

static void callbacks_come_in_their_order(void **state)
{
    static const char *const order[] = {"terminate_on_nan", "reduce_lr",   "early_stopping",
                                        "csv_logger",       "tensorboard", "model_checkpoint"};
    manta_recipe *r =
        recipe_of("save-best=b.npz tensorboard=tb csv-log=l.csv terminate-on-nan "
                  "early-stop=loss:patience=3,min_delta=0.5,baseline=0,from=2,mode=min,restore-best "
                  "reduce-lr=loss:factor=0.5,patience=2,min-delta=-1,cooldown=1,min=0.001,mode=max");
    manta_callback *const *all;
    int n;

    (void)state;
    for (int again = 0; again < 2; again++) {
        assert_ok(manta_recipe_callbacks(r, again, &n, &all));
        assert_int_equal(n, 6);
        for (int i = 0; i < n; i++) assert_non_null(strstr(all[i]->ops->name, order[i]));
    }
    manta_recipe_free(r);
}

static void callbacks_that_cannot_be_are_refused(void **state)
{
    static const char *const cases[][3] = {
        {"early-stop=loss:patiense=3", "early-stop", "did you mean patience?"},
        {"early-stop=loss:patience=2.5", "early-stop", "'2.5' is not a whole number"},
        {"early-stop=loss:from=-1", "early-stop", "from is -1, expected 0 or more"},
        {"early-stop=loss:mode=up", "early-stop", "mode=up, expected min, max or auto"},
        {"early-stop=loss:baseline=low", "early-stop", "'low' is not a number"},
        {"reduce-lr=loss:factor=1", "reduce-lr", "factor=1, expected between 0 and 1"},
        {"reduce-lr=loss:mode=down", "reduce-lr", "mode=down"},
        {"reduce-lr=loss:foo=1", "reduce-lr", "no setting 'foo'"},
    };
    manta_callback *const *all;
    int n;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_recipe *r = recipe_of(cases[i][0]);
        assert_blames(r, manta_recipe_callbacks(r, false, &n, &all), MANTA_EINVAL, cases[i][1], cases[i][2]);
        manta_recipe_free(r);
    }
}

static void a_metric_to_go_by_must_be_the_session_s(void **state)
{
    manta_model *m = dense_model(1, NULL);
    manta_recipe *r = recipe_of("loss=mse metrics=mae early-stop=los:patience=1");
    manta_session *s;

    (void)state;
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_blames(r, manta_recipe_check_metrics(r, s, false), MANTA_EINVAL, "early-stop",
                  "early-stop: no metric is called 'los'; there are loss, mae; did you mean loss?");
    assert_ok(manta_recipe_set(r, "early-stop", "loss"));
    assert_ok(manta_recipe_set(r, "reduce-lr", "val_mae:factor=0.5"));
    assert_blames(r, manta_recipe_check_metrics(r, s, false), MANTA_EINVAL, "reduce-lr",
                  "reduce-lr val_mae: there is no validation");
    assert_ok(manta_recipe_check_metrics(r, s, true));
    assert_ok(manta_recipe_set(r, "keep-best", "learning_rate"));
    assert_ok(manta_recipe_check_metrics(r, s, true));
    assert_ok(manta_recipe_set(r, "keep-best", "val_auc"));
    assert_blames(r, manta_recipe_check_metrics(r, s, true), MANTA_EINVAL, "keep-best",
                  "and the same with val_");
    manta_session_close(s);
    manta_recipe_free(r);
    manta_model_free(m);
}

/* ---- runs ---- */

static void the_options_of_a_run_are_read(void **state)
{
    manta_recipe *r =
        recipe_of("name=a storage=s keep=3 keep-best=val_loss log-level=warn log-to=both log-stamp "
                  "log-size=3k checkpoint-every=20steps");
    manta_checkpointing_options pace;
    manta_run_options ro;

    (void)state;
    assert_ok(manta_recipe_open(r, "linear"));
    assert_ok(manta_recipe_run_options(r, &ro, &pace));
    assert_string_equal(ro.name, "a");
    assert_string_equal(ro.storage, "s");
    assert_string_equal(ro.stem, "linear");
    assert_null(ro.folder);
    assert_null(ro.config);
    assert_int_equal(ro.checkpoints.keep, 3);
    assert_string_equal(ro.checkpoints.score, "val_loss");
    assert_string_equal(ro.logging.level, "warn");
    assert_int_equal(ro.logging.to, MANTA_LOG_TO_BOTH);
    assert_true(ro.logging.stamp);
    assert_int_equal(ro.logging.max_size, 3072);
    assert_int_equal(pace.every_steps, 20);
    manta_recipe_free(r);
    r = recipe_of("run-dir=here log-size=all checkpoint-every=2epochs");
    assert_ok(manta_recipe_run_options(r, &ro, &pace));
    assert_string_equal(ro.folder, "here");
    assert_null(ro.stem);
    assert_int_equal(ro.checkpoints.keep, 2);
    assert_int_equal(ro.logging.max_size, MANTA_NONE);
    assert_int_equal(pace.every_epochs, 2);
    assert_int_equal(pace.every_steps, 0);
    manta_recipe_free(r);
}

static void a_run_that_cannot_be_is_refused(void **state)
{
    static const char *const cases[][3] = {
        {"run-dir=d name=n", "run-dir", "run-dir is the folder itself: leave name and storage out"},
        {"checkpoint-every=often", "checkpoint-every", "expected such as 20steps or 1epoch"},
        {"checkpoint-every=0steps", "checkpoint-every", "expected such as 20steps or 1epoch"},
        {"checkpoint-every=2days", "checkpoint-every", "'2days'"},
        {"keep=3000000000", "keep", "at most 2147483647"},
        {"log-level=loud", "log-level", "expected debug, info, warn, error or off"},
        {"log-to=paper", "log-to", "expected file, output or both"},
        {"log-size=big", "log-size", "expected such as 500k, 64M or all"},
        {"log-size=3kB", "log-size", "'3kB'"},
        {"log-size=0", "log-size", "'0'"},
    };
    manta_checkpointing_options pace;
    manta_run_options ro;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        manta_recipe *r = recipe_of(cases[i][0]);
        assert_blames(r, manta_recipe_run_options(r, &ro, &pace), MANTA_EINVAL, cases[i][1], cases[i][2]);
        manta_recipe_free(r);
    }
}

static void settings_are_kept_as_json(void **state)
{
    manta_recipe *r = recipe_of("lr=0.5 nesterov name=a storage=s run-dir=d data=x.npy");
    const char *text;

    (void)state;
    assert_ok(manta_recipe_open(r, "linear"));
    assert_ok(manta_recipe_config(r, &text));
    assert_string_equal(text,
                        "{\n \"model\": \"linear\",\n \"data\": \"x.npy\",\n \"learning-rate\": \"0.5\",\n "
                        "\"nesterov\": true\n}");
    assert_ok(manta_recipe_set(r, "data", "\xff.npy"));
    assert_blames(r, manta_recipe_config(r, &text), MANTA_EINVAL, "data", "not UTF-8");
    manta_recipe_free(r);
}

static void nothing_can_be_made_without_a_model(void **state)
{
    manta_recipe *r = recipe_of("data=mnist");
    manta_dataset *d = NULL, *v = NULL;
    manta_session *s = NULL;
    const manta_compile *c;

    (void)state;
    assert_fails_outside(r, manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c), MANTA_EINVAL, "no model");
    assert_fails_outside(r, manta_recipe_dataset(r, "mnist", false, &d), MANTA_EINVAL, "no model");
    assert_fails_outside(r, manta_recipe_datasets(r, &d, &v), MANTA_EINVAL, "no model");
    assert_fails_outside(r, manta_recipe_inputs(r, "mnist", &d), MANTA_EINVAL, "no model");
    assert_fails_outside(r, manta_recipe_session(r, NULL, MANTA_PURPOSE_PREDICT, &s), MANTA_EINVAL,
                         "no model");
    assert_fails_outside(r, manta_recipe_use(r, NULL), MANTA_EINVAL, "m is NULL");
    assert_null(manta_recipe_model(r));
    assert_null(manta_recipe_saved(r));
    assert_null(d);
    assert_null(s);
    manta_recipe_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RECIPE_TEST(the_options_of_a_session_are_read),
        RECIPE_TEST(the_options_of_a_fit_are_read),
        RECIPE_TEST(options_that_cannot_be_are_refused),
        RECIPE_TEST(callbacks_come_in_their_order),
        RECIPE_TEST(callbacks_that_cannot_be_are_refused),
        RECIPE_TEST(a_metric_to_go_by_must_be_the_session_s),
        RECIPE_TEST(the_options_of_a_run_are_read),
        RECIPE_TEST(a_run_that_cannot_be_is_refused),
        RECIPE_TEST(settings_are_kept_as_json),
        RECIPE_TEST(nothing_can_be_made_without_a_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
