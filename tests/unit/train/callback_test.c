/* Callbacks: Keras's meanings, their state in checkpoints, and trainings cut
 * anywhere that end with the same bytes. */
#include <math.h>
#include <unistd.h>

#include <manta/callback.h>

#include "format/scratch.h"
#include "group_fixture.h"
#include "train/fit/fit_context.h"

/* ---- scripted epochs: what a callback makes of given metrics ---- */

typedef struct script {
    manta_fit_context f;
    manta_fit_options o;
    manta_callback *list[1];
    manta_metrics logs;
    manta_model *m;
    manta_session *s;
} script;

static void script_init(script *p, manta_callback *c)
{
    manta_optimizer sgd;
    manta_loss loss = {.name = "mean_squared_error"};

    memset(p, 0, sizeof *p);
    assert_ok(manta_optimizer_named("sgd", &sgd));
    p->m = manta_model_new("one");
    manta_input(p->m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){1});
    manta_model_add(p->m, manta_dense(p->m, (manta_dense_options){.units = 1}));
    assert_ok(manta_model_build(p->m));
    assert_ok(manta_session_open(p->m, &(manta_compile){.optimizer = &sgd, .n_losses = 1, .losses = &loss},
                                 &(manta_session_options){.threads = 1}, &p->s));
    p->list[0] = c;
    p->o = (manta_fit_options){.epochs = 100, .n_callbacks = 1, .callbacks = p->list};
    fit_context_init(&p->f, p->s, &p->o);
    p->f.logs = &p->logs;
    assert_ok(fit_context_run(&p->f, HOOK_train_begin));
}

/* Runs epochs whose metric has these values; how many until it was stopped. */
static int script_run(script *p, const char *name, int n, const double *values)
{
    for (int i = 0; i < n; i++, p->f.epoch++) {
        p->logs = (manta_metrics){.n = 1};
        snprintf(p->logs.name[0], 64, "%s", name);
        p->logs.value[0] = values[i];
        float w[2] = {(float)p->f.epoch, 0};
        manta_session_set_flat(p->s, w);
        assert_ok(fit_context_run(&p->f, HOOK_epoch_begin));
        assert_ok(fit_context_run(&p->f, HOOK_epoch_end));
        if (p->f.stop) return i + 1;
    }
    return n;
}

static void script_release(script *p)
{
    fit_context_release(&p->f);
    manta_callback_free(p->list[0]);
    manta_session_close(p->s);
    manta_model_free(p->m);
}

/* Saves what the callback remembers and gives it to a fresh one of its kind. */
static void script_swap(script *p, manta_callback *fresh)
{
    buf state = {0};

    p->list[0]->ops->save(p->list[0]->self, &state);
    assert_ok(fresh->ops->load(fresh->self, state.at, state.n));
    assert_int_not_equal(fresh->ops->load(fresh->self, state.at, 3), MANTA_OK);
    assert_ok(fresh->ops->load(fresh->self, state.at, state.n));
    buf_release(&state);
    manta_callback_free(p->list[0]);
    p->list[0] = fresh;
}

static void early_stopping(void **state)
{
    static const double falling[] = {5, 4, 3, 3, 3.5, 2.9, 3, 3, 3, 3};
    manta_early_stopping_options o = {.monitor = "val_loss", .patience = 3, .restore_best_weights = true};
    float w[2];
    script p;

    (void)state;
    script_init(&p, manta_early_stopping(&o));
    assert_int_equal(script_run(&p, "val_loss", 10, falling), 9); /* best in epoch 6, three more */
    assert_non_null(strstr(p.f.stop, "val_loss"));
    assert_ok(fit_context_run(&p.f, HOOK_train_end));
    manta_session_get_flat(p.s, w);
    assert_true(w[0] == 5);
    script_release(&p);

    script_init(&p, manta_early_stopping(&o)); /* cut in the middle: nothing is forgotten */
    assert_int_equal(script_run(&p, "val_loss", 7, falling), 7);
    script_swap(&p, manta_early_stopping(&o));
    assert_int_equal(script_run(&p, "val_loss", 3, falling + 7), 2);
    assert_ok(fit_context_run(&p.f, HOOK_train_end));
    manta_session_get_flat(p.s, w);
    assert_true(w[0] == 5);
    script_release(&p);

    o = (manta_early_stopping_options){.monitor = "val_accuracy", .patience = 2, .min_delta = 0.1};
    script_init(&p, manta_early_stopping(&o)); /* greater is better; small steps do not count */
    assert_int_equal(script_run(&p, "val_accuracy", 5, (double[]){0.5, 0.55, 0.59, 0.7, 0.9}), 3);
    script_release(&p);

    o = (manta_early_stopping_options){.patience = 1, .baseline = 1};
    script_init(&p, manta_early_stopping(&o)); /* improving, but not below the baseline */
    assert_int_equal(script_run(&p, "val_loss", 4, (double[]){5, 4, 3, 2}), 4);
    script_release(&p);

    o = (manta_early_stopping_options){.patience = 2}; /* 0 is no baseline, MANTA_ZERO one of 0 */
    script_init(&p, manta_early_stopping(&o));
    assert_int_equal(script_run(&p, "val_loss", 4, (double[]){5, 4, 4.5, 4.2}), 4);
    script_release(&p);
    o.baseline = MANTA_ZERO;
    script_init(&p, manta_early_stopping(&o));
    assert_int_equal(script_run(&p, "val_loss", 4, (double[]){5, 4, 4.5, 4.2}), 3);
    script_release(&p);

    o = (manta_early_stopping_options){.monitor = "missing"};
    script_init(&p, manta_early_stopping(&o));
    assert_int_equal(script_run(&p, "val_loss", 10, falling), 10);
    script_release(&p);

    o = (manta_early_stopping_options){.patience = 2}; /* NaN never improves */
    script_init(&p, manta_early_stopping(&o));
    assert_int_equal(script_run(&p, "val_loss", 4, (double[]){3, (double)NAN, (double)NAN, 1}), 3);
    script_release(&p);
}

static void reduce_lr(void **state)
{
    manta_reduce_lr_options o = {.factor = 0.5, .patience = 2, .cooldown = 2, .min_lr = 0.3};
    script p;

    (void)state;
    script_init(&p, manta_reduce_lr_on_plateau(&o));
    assert_ok(manta_session_set_learning_rate(p.s, 1));
    script_run(&p, "val_loss", 3, (double[]){1, 1, 1});
    assert_true(manta_session_learning_rate(p.s) == 0.5);
    script_run(&p, "val_loss", 1, (double[]){1}); /* cooling down */
    script_swap(&p, manta_reduce_lr_on_plateau(&o));
    script_run(&p, "val_loss", 1, (double[]){1});
    assert_true(manta_session_learning_rate(p.s) == 0.5);
    script_run(&p, "val_loss", 1, (double[]){1});
    assert_true(manta_session_learning_rate(p.s) == 0.3); /* not below the least */
    script_run(&p, "val_loss", 6, (double[]){1, 1, 1, 1, 1, 1});
    assert_true(manta_session_learning_rate(p.s) == 0.3);
    script_release(&p);
}

static double halve(void *user, int64_t epoch, double rate)
{
    int *calls = user;

    (*calls)++;
    return epoch ? rate / 2 : 1;
}

static void a_scheduler_sets_the_rate_of_each_epoch(void **state)
{
    int calls = 0;
    script p;

    (void)state;
    script_init(&p, manta_learning_rate_scheduler(halve, &calls));
    script_run(&p, "loss", 3, (double[]){1, 1, 1});
    assert_int_equal(calls, 3);
    assert_true(manta_session_learning_rate(p.s) == 0.25);
    assert_true(manta_metrics_get(&p.logs, "learning_rate") == 0.25);
    script_release(&p);
}

static void model_checkpoint(void **state)
{
    script p;

    (void)state;
    script_init(&p, manta_model_checkpoint(scratch_path("m-{epoch:02d}-{val_loss:.1f}.npz"),
                                           &(manta_model_checkpoint_options){.save_best_only = true}));
    script_run(&p, "val_loss", 4, (double[]){3, 2.25, 2.5, 1});
    assert_int_equal(access(scratch_path("m-01-3.0.npz"), F_OK), 0);
    assert_int_equal(access(scratch_path("m-02-2.2.npz"), F_OK), 0);
    assert_int_not_equal(access(scratch_path("m-03-2.5.npz"), F_OK), 0);
    assert_int_equal(access(scratch_path("m-04-1.0.npz"), F_OK), 0);
    script_release(&p);
    script_init(&p, manta_model_checkpoint(scratch_path("m-{nothing}.npz"), NULL));
    p.logs = (manta_metrics){0};
    assert_int_equal(fit_context_run(&p.f, HOOK_epoch_end), MANTA_EINVAL);
    assert_error_says("model_checkpoint");
    assert_error_says("{nothing}");
    script_release(&p);
    script_init(&p, manta_model_checkpoint(scratch_path("new/{epoch}/m.npz"), NULL));
    assert_ok(fit_context_run(&p.f, HOOK_before_fit));
    assert_ok(fit_context_run(&p.f, HOOK_epoch_end));
    assert_int_equal(access(scratch_path("new/1/m.npz"), F_OK), 0);
    script_release(&p);
}

static void refuse(manta_callback *c, const char *says)
{
    script p;

    script_init(&p, c);
    assert_int_not_equal(fit_context_run(&p.f, HOOK_before_fit), MANTA_OK);
    assert_error_says(says);
    script_release(&p);
}

/* What can be seen to be wrong is said before the first step, not after an epoch. */
static void mistakes_are_said_before_the_first_step(void **state)
{
    (void)state;
    refuse(manta_early_stopping(&(manta_early_stopping_options){.mode = "big"}), "mode 'big' for val_loss");
    refuse(manta_reduce_lr_on_plateau(&(manta_reduce_lr_options){.mode = "big"}),
           "expected min, max or auto");
    refuse(manta_reduce_lr_on_plateau(&(manta_reduce_lr_options){.factor = 1.5}), "factor 1.5");
    refuse(manta_reduce_lr_on_plateau(&(manta_reduce_lr_options){.min_delta = -1}), "min_delta -1");
    refuse(manta_model_checkpoint("m.npz", &(manta_model_checkpoint_options){.mode = "big"}), "mode 'big'");
    refuse(manta_model_checkpoint("m.docx", NULL), "m.docx: its ending names no format");
    refuse(manta_model_checkpoint("/proc/no/m.npz", NULL), "/proc/no");
}

/* ---- whole trainings ---- */

typedef struct cut {
    int64_t at; /* steps of the run after which it is cut; -1: never */
    int64_t seen;
} cut;

static bool on_event(void *user, manta_session *s, const manta_event *e)
{
    cut *c = user;

    (void)s;
    if (e->kind == MANTA_EVENT_STEP || e->kind == MANTA_EVENT_VALIDATE_STEP) c->seen++;
    return c->at < 0 || c->seen < c->at;
}

enum { EPOCHS = 3 };

static outcome train_cut(int workers, const char *backup, cut *c)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    static const manta_metric accuracy = {.name = "accuracy"};
    manta_callback *list[] = {
        manta_early_stopping(&(manta_early_stopping_options){.patience = 50}),
        manta_reduce_lr_on_plateau(
            &(manta_reduce_lr_options){.monitor = "loss", .patience = 1, .min_delta = 0.05}),
        backup ? manta_backup_and_restore(backup, &(manta_backup_options){.every_steps = 1}) : NULL};
    manta_model *m = residual_model((manta_regularizer){0});
    manta_dataset *d = dataset();
    manta_optimizer opt;
    manta_session *s;
    outcome out = {0};

    assert_ok(manta_optimizer_named("adam", &opt));
    assert_ok(manta_session_open(
        m,
        &(manta_compile){
            .optimizer = &opt, .n_losses = 1, .losses = &cross_entropy, .n_metrics = 1, .metrics = &accuracy},
        &(manta_session_options){.seed = 42, .workers = workers, .threads = 1, .shards = 2}, &s));
    out.st = manta_fit(s, d,
                       &(manta_fit_options){.epochs = EPOCHS,
                                            .global_batch = 32,
                                            .validation = d,
                                            .event = on_event,
                                            .user = c,
                                            .n_callbacks = backup ? 3 : 2,
                                            .callbacks = list},
                       &out.metrics);
    manta_error_get(&out.error);
    out.size = s->l.state_size;
    out.state = mem_try(out.size);
    memcpy(out.state, s->state, out.size);
    for (int i = 0; i < 3; i++) manta_callback_free(list[i]);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
    return out;
}

/* Cut after every step, of training and of validation, and taken up again. */
static void cut_anywhere(void **state)
{
    cut calm = {.at = -1};
    outcome whole = train_cut(1, NULL, &calm);

    (void)state;
    assert_ok(whole.st);
    for (int workers = 1; workers <= 2; workers++) {
        int64_t stride = workers == 1 ? 1 : 4;
        for (int64_t at = 1; at <= calm.seen; at += stride) {
            cut first = {.at = at}, rest = {.at = -1};
            outcome got;
            (void)scratch_remove(scratch_path("backup"));
            got = train_cut(workers, scratch_path("backup"), &first);
            assert_int_equal(got.st, MANTA_ECANCELLED);
            mem_try_free(got.state);
            assert_int_equal(access(scratch_path("backup"), F_OK), 0);
            got = train_cut(3 - workers, scratch_path("backup"),
                            &rest); /* as many or as few as there are now */
            assert_same_outcome(&whole, &got);
            mem_try_free(got.state);
            assert_int_not_equal(access(scratch_path("backup"), F_OK), 0); /* removed on success */
        }
    }
    mem_try_free(whole.state);
}

/* ---- the user's own ---- */

typedef struct own {
    int hooks[FIT_HOOK_COUNT];
    int fail_at; /* hook; -1: none */
    int stop_after; /* batches; 0: never */
} own;

static manta_status count_hook(own *c, fit_hook h, manta_fit_context *f)
{
    c->hooks[h]++;
    if (c->stop_after && h == HOOK_train_batch_end && c->hooks[h] == c->stop_after)
        manta_fit_context_stop(f, "enough");
    return (int)h == c->fail_at ? manta_fail(MANTA_EIO, "the moon is down") : MANTA_OK;
}

#define X(name)                                                                                              \
    static manta_status own_##name(void *self, manta_fit_context *f)                                         \
    {                                                                                                        \
        return count_hook(self, HOOK_##name, f);                                                             \
    }
FIT_HOOKS(X)
#undef X

static const manta_callback_ops own_ops = {.name = "own",
                                           .before_fit = own_before_fit,
                                           .train_begin = own_train_begin,
                                           .train_end = own_train_end,
                                           .epoch_begin = own_epoch_begin,
                                           .epoch_end = own_epoch_end,
                                           .train_batch_begin = own_train_batch_begin,
                                           .train_batch_end = own_train_batch_end,
                                           .test_begin = own_test_begin,
                                           .test_end = own_test_end,
                                           .test_batch_begin = own_test_batch_begin,
                                           .test_batch_end = own_test_batch_end,
                                           .predict_begin = own_predict_begin,
                                           .predict_end = own_predict_end,
                                           .predict_batch_begin = own_predict_batch_begin,
                                           .predict_batch_end = own_predict_batch_end,
                                           .interrupted = own_interrupted};

static manta_status take_nothing(void *user, int64_t first, int64_t count, int n, const manta_array *outputs)
{
    (void)user;
    (void)first;
    (void)count;
    (void)n;
    (void)outputs;
    return MANTA_OK;
}

static void run_own(int workers, own *c, manta_status expected)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_callback *list[] = {manta_callback_new(&own_ops, c)};
    manta_model *m = residual_model((manta_regularizer){0});
    manta_dataset *d = dataset();
    manta_session *s;
    manta_fit_options o = {
        .epochs = 2, .global_batch = 32, .validation = d, .n_callbacks = 1, .callbacks = list};

    assert_ok(manta_session_open(m, &(manta_compile){.n_losses = 1, .losses = &cross_entropy},
                                 &(manta_session_options){.workers = workers, .threads = 1, .shards = 2},
                                 &s));
    assert_int_equal(manta_fit(s, d, &o, NULL), expected);
    if (!expected && !c->stop_after) {
        assert_ok(manta_evaluate(s, d, &o, NULL));
        o.global_batch = 0;
        assert_ok(manta_predict(s, d, &o, take_nothing, NULL));
    }
    manta_callback_free(list[0]);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
}

static void every_hook(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 2; workers++) {
        own c = {.fail_at = -1};
        run_own(workers, &c, MANTA_OK);
        assert_int_equal(c.hooks[HOOK_before_fit], 1);
        assert_int_equal(c.hooks[HOOK_train_begin], 1);
        assert_int_equal(c.hooks[HOOK_train_end], 1);
        assert_int_equal(c.hooks[HOOK_epoch_begin], 2);
        assert_int_equal(c.hooks[HOOK_epoch_end], 2);
        assert_int_equal(c.hooks[HOOK_train_batch_begin], 6); /* 90 samples by 32: 3 an epoch */
        assert_int_equal(c.hooks[HOOK_train_batch_end], 6);
        assert_int_equal(c.hooks[HOOK_test_begin], 3); /* two validations and an evaluation */
        assert_int_equal(c.hooks[HOOK_test_end], 3);
        assert_int_equal(c.hooks[HOOK_test_batch_begin], 9);
        assert_int_equal(c.hooks[HOOK_test_batch_end], 9);
        assert_int_equal(c.hooks[HOOK_predict_begin], 1);
        assert_int_equal(c.hooks[HOOK_predict_end], 1);
        assert_int_equal(c.hooks[HOOK_predict_batch_end], c.hooks[HOOK_predict_batch_begin]);
        assert_int_equal(c.hooks[HOOK_interrupted], 0);
        c = (own){.fail_at = -1, .stop_after = 2}; /* in the middle of an epoch: validated, ended */
        run_own(workers, &c, MANTA_OK);
        assert_int_equal(c.hooks[HOOK_train_batch_end], 2);
        assert_int_equal(c.hooks[HOOK_epoch_end], 1);
        assert_int_equal(c.hooks[HOOK_test_end], 1);
        assert_int_equal(c.hooks[HOOK_train_end], 1);
    }
}

static void a_hook_that_fails(void **state)
{
    (void)state;
    for (int h = HOOK_before_fit; h <= HOOK_test_batch_end; h++) {
        own c = {.fail_at = h};
        run_own(1 + h % 2, &c, MANTA_EIO);
        assert_error_says("callback own");
        assert_error_says("the moon is down");
    }
}

static int setup(void **state)
{
    make_data();
    return scratch_setup_quick(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(early_stopping),
        cmocka_unit_test(reduce_lr),
        cmocka_unit_test(a_scheduler_sets_the_rate_of_each_epoch),
        cmocka_unit_test(model_checkpoint),
        cmocka_unit_test(mistakes_are_said_before_the_first_step),
        cmocka_unit_test(cut_anywhere),
        cmocka_unit_test(every_hook),
        cmocka_unit_test(a_hook_that_fails),
    };

    return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
