/* device_test.c - sessions on the fake device end with the bytes of the processor: the zoo's models, optimizers,
 * shards, parts of steps, evaluations, predictions, files between the two; and what is refused. */
#include "device_twins.h"

#include <manta/model.h>
#include <sys/wait.h>
#include <unistd.h>

#include "format/scratch.h"
#include "nn/graph.h"

/* ---- the zoo ---- */

/* Samples that look like chance, and what is wanted of them: labels, or the sample itself. */
typedef struct zoo_data {
    float x[16 * 784];
    int64_t y[16];
} zoo_data;

static manta_feed zoo_feed(const manta_model *m, bool labelled, zoo_data *d, int64_t n, int64_t first)
{
    manta_feed f = {.count = n, .n_inputs = 1, .n_targets = 1, .first = first};
    manta_array a = m->values[m->inputs[0].value].a;

    a.shape[0] = n;
    f.inputs[0] = manta_array_of(MANTA_DTYPE_F32, a.ndim, a.shape, d->x);
    for (int64_t i = 0; i < manta_array_count(&f.inputs[0]); i++)
        d->x[i] = (float)((first * 784 + i) * 2654435761 % 1000) / 1000.0f;
    for (int64_t i = 0; i < n; i++) d->y[i] = (first + i) * 7 % 10;
    f.targets[0] = labelled ? manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){n}, d->y) : f.inputs[0];
    return f;
}

static void train_zoo(const char *name, const char *optimizer, const manta_loss *loss,
                      const manta_metric *metric, int64_t batch, int steps)
{
    static zoo_data d;
    bool labelled = loss == &cross_entropy;
    manta_compile c = {.n_losses = 1, .losses = loss, .n_metrics = 1, .metrics = metric};
    manta_optimizer opt;
    manta_model *m;
    manta_feed f;
    twins t;

    assert_ok(manta_zoo(name, &m));
    assert_ok(manta_optimizer_named(optimizer, &opt));
    c.optimizer = &opt;
    t = twins_of(m, &c, (manta_session_options){.threads = 2});
    for (int i = 0; i < steps; i++) {
        f = zoo_feed(m, labelled, &d, batch, i * batch);
        twins_step(&t, &f);
        assert_same_metrics(t.cpu, t.dev);
    }
    assert_same_state(t.cpu, t.dev);
    f = zoo_feed(m, labelled, &d, batch > 1 ? batch - 1 : 1, 1000);
    twins_evaluate(&t, &f);
    twins_predict(&t, &f);
    twins_close(&t);
}

static void zoo_models_train_alike(void **state)
{
    static const manta_loss squared = {.name = "mean_squared_error"},
                            binary = {.name = "binary_crossentropy"};
    static const manta_metric absolute = {.name = "mean_absolute_error"}, half = {.name = "binary_accuracy"};

    (void)state;
    train_zoo("mlp", "adam", &cross_entropy, &accuracy, 16, 4);
    train_zoo("mnist-cnn", "sgd", &cross_entropy, &accuracy, 3, 2);
    train_zoo("resnet18", "adam", &cross_entropy, &accuracy, 1, 1);
    train_zoo("linear", "rmsprop", &squared, &absolute, 16, 8);
    train_zoo("autoencoder", "adam", &binary, &half, 4, 2);
}

/* ---- optimizers, shards, weights ---- */

static manta_compile compile_of(const manta_optimizer *o, manta_loss *loss, manta_reduction reduction)
{
    *loss = cross_entropy;
    loss->reduction = reduction;
    return (manta_compile){
        .optimizer = o, .n_losses = 1, .losses = loss, .n_metrics = 1, .metrics = &accuracy};
}

/* Steps of uneven batches, some with weights of samples. */
static void train_small(manta_optimizer opt, manta_session_options o, manta_regularizer reg,
                        manta_reduction reduction)
{
    static const int64_t cuts[] = {0, 32, 64, 77, 109, 150};
    float weights[N];
    manta_loss loss;
    manta_compile c = compile_of(&opt, &loss, reduction);
    twins t = twins_of(model(reg), &c, o);

    for (int i = 0; i < N; i++) weights[i] = (float)(i % 5) / 3.0f;
    for (int i = 0; i < 5; i++) {
        manta_feed f = feed(cuts[i], cuts[i + 1]);
        f.first = cuts[i];
        if (i % 2) f.weights[0] = weights;
        twins_step(&t, &f);
    }
    assert_same_state(t.cpu, t.dev);
    assert_same_metrics(t.cpu, t.dev);
    manta_feed f = feed(0, 100);
    twins_evaluate(&t, &f);
    twins_close(&t);
}

static void optimizers_update_alike(void **state)
{
    static const char *const names[] = {"sgd",       "adam",        "rmsprop",
                                        "torch.sgd", "torch.adamw", "torch.rmsprop"};

    (void)state;
    for (int i = 0; i < 6; i++) {
        manta_optimizer opt;
        assert_ok(manta_optimizer_named(names[i], &opt));
        opt.learning_rate = 0.01;
        if (strstr(names[i], "sgd")) opt.momentum = 0.9;
        train_small(opt, (manta_session_options){.shards = 1 + 2 * (i % 2)}, (manta_regularizer){0},
                    MANTA_REDUCTION_SUM_OVER_BATCH_SIZE);
    }
}

static void clipping_averages_and_regularisers_alike(void **state)
{
    manta_optimizer opt;

    (void)state;
    assert_ok(manta_optimizer_named("adam", &opt));
    opt.learning_rate = 0.01;
    opt.clipnorm = 0.1;
    train_small(opt, (manta_session_options){.shards = 5}, (manta_regularizer){.l2 = 0.01f},
                MANTA_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT);
    opt.clipnorm = 0;
    opt.global_clipnorm = 0.2;
    opt.gradient_accumulation_steps = 2;
    train_small(opt, (manta_session_options){.shards = 2, .statistics = MANTA_STATISTICS_FIRST},
                (manta_regularizer){.l1 = 0.001f}, MANTA_REDUCTION_SUM);
    opt.global_clipnorm = 0;
    opt.clipvalue = 0.01;
    opt.ema_momentum = 0.9;
    opt.use_ema = true;
    opt.weight_decay = 0.01;
    train_small(opt, (manta_session_options){0}, (manta_regularizer){0}, MANTA_REDUCTION_SUM_OVER_BATCH_SIZE);
}

/* ---- parts of a step, gradients, weights in and out ---- */

static void parts_of_a_step_alike(void **state)
{
    manta_optimizer opt;
    manta_loss loss;
    manta_feed f = feed(3, 40);
    manta_compile c;
    twins t;

    (void)state;
    assert_ok(manta_optimizer_named("adam", &opt));
    c = compile_of(&opt, &loss, MANTA_REDUCTION_SUM_OVER_BATCH_SIZE);
    t = twins_of(model((manta_regularizer){.l2 = 0.1f}), &c, (manta_session_options){.shards = 2});
    for (int i = 0; i < 3; i++) {
        manta_session *both[2] = {t.cpu, t.dev};
        float *g[2];
        double losses[2];
        for (int k = 0; k < 2; k++) {
            g[k] = malloc((size_t)manta_session_params(both[k]) * sizeof(float));
            assert_ok(manta_session_loss(both[k], &f, &losses[k]));
            assert_ok(manta_session_backward(both[k], &f));
            assert_ok(manta_session_gradients(both[k], g[k]));
            assert_ok(manta_session_apply(both[k], i == 1 ? g[k] : NULL));
        }
        assert_memory_equal(&losses[0], &losses[1], sizeof losses[0]);
        assert_memory_equal(g[0], g[1], (size_t)manta_session_params(t.cpu) * sizeof(float));
        free(g[0]);
        free(g[1]);
        twins_step(&t, &f); /* and on from what the host has applied */
    }
    assert_same_state(t.cpu, t.dev);
    twins_close(&t);
}

/* Whoever has called backward finds the gradients of all shards in the host's slots, and may change them. */
static void slots_are_the_hosts_after_backward(void **state)
{
    manta_optimizer opt;
    manta_loss loss;
    manta_feed f = feed(0, 31);
    manta_compile c;
    double ignored;
    twins t;

    (void)state;
    assert_ok(manta_optimizer_named("sgd", &opt));
    c = compile_of(&opt, &loss, MANTA_REDUCTION_SUM_OVER_BATCH_SIZE);
    t = twins_of(model((manta_regularizer){0}), &c, (manta_session_options){.shards = 2});
    manta_session *both[2] = {t.cpu, t.dev};
    for (int k = 0; k < 2; k++) {
        assert_ok(manta_session_loss(both[k], &f, &ignored));
        assert_ok(manta_session_backward(both[k], &f));
    }
    for (int v = 0; v < 2; v++)
        assert_memory_equal(layout_slot_grads(&t.cpu->l, t.cpu->slots[v]),
                            layout_slot_grads(&t.dev->l, t.dev->slots[v]),
                            (size_t)t.cpu->l.params_size * sizeof(float));
    for (int k = 0; k < 2; k++) {
        layout_slot_grads(&both[k]->l, both[k]->slots[1])[0] += 1;
        assert_ok(manta_session_apply(both[k], NULL));
    }
    assert_same_state(t.cpu, t.dev);
    twins_close(&t);
}

/* Gradients of somebody's own behind a forward pass: its statistics count. */
static void given_gradients_are_applied_after_a_loss(void **state)
{
    manta_optimizer opt;
    manta_loss loss;
    manta_feed f = feed(0, 20);
    manta_compile c;
    double ignored;
    float *g;
    twins t;

    (void)state;
    assert_ok(manta_optimizer_named("adam", &opt));
    c = compile_of(&opt, &loss, MANTA_REDUCTION_SUM_OVER_BATCH_SIZE);
    t = twins_of(model((manta_regularizer){0}), &c, (manta_session_options){.shards = 2});
    g = malloc((size_t)manta_session_params(t.cpu) * sizeof *g);
    for (int64_t i = 0; i < manta_session_params(t.cpu); i++) g[i] = (float)(i % 9 - 4) / 10.0f;
    for (int i = 0; i < 2; i++) {
        manta_session *both[2] = {t.cpu, t.dev};
        for (int k = 0; k < 2; k++) {
            assert_ok(manta_session_loss(both[k], &f, &ignored));
            assert_ok(manta_session_apply(both[k], g));
        }
        twins_step(&t, &f);
    }
    assert_same_state(t.cpu, t.dev);
    free(g);
    twins_close(&t);
}

static void weights_that_are_set_are_used(void **state)
{
    manta_session_options o = {0};
    manta_model *m = model((manta_regularizer){0});
    manta_feed f = feed(0, 50);
    manta_session *cpu = session(m, "sgd", o), *dev;
    manta_array a, b;

    (void)state;
    o.device = twins_device();
    o.precision = "exact";
    dev = session(m, "sgd", o);
    for (int i = 0; i < 3; i++) {
        const char *name = manta_model_variable(m, i).name;
        assert_ok(manta_session_step(cpu, &f));
        assert_ok(manta_session_step(dev, &f));
        assert_ok(manta_session_weight(cpu, name, &a));
        assert_ok(manta_session_weight(dev, name, &b));
        assert_memory_equal(a.data, b.data, manta_array_bytes(&a));
        ((float *)a.data)[0] += 1;
        ((float *)b.data)[0] += 1;
    }
    assert_ok(manta_session_step(cpu, &f));
    assert_ok(manta_session_step(dev, &f));
    assert_same_state(cpu, dev);
    manta_session_close(cpu);
    manta_session_close(dev);
    manta_model_free(m);
}

/* From the processor to the device, by a file, and back. */
static void a_state_moves_between_devices(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *whole = session(m, "adam", (manta_session_options){.shards = 2}), *s = NULL;
    const char *path = scratch_path("moves.npz");

    (void)state;
    for (int part = 0; part < 4; part++) {
        manta_feed f = feed(part * 30, part * 30 + 30);
        s = session(m, "adam",
                    (manta_session_options){
                        .shards = 2, .device = part % 2 ? twins_device() : "cpu", .precision = "exact"});
        if (part) assert_ok(manta_session_load(s, path, false));
        for (int i = 0; i < 2; i++) {
            assert_ok(manta_session_step(whole, &f));
            assert_ok(manta_session_step(s, &f));
        }
        assert_ok(manta_session_save(s, path));
        if (part == 3)
            assert_same_bytes(whole, s, s->l.off_run); /* a file of weights has no place in an epoch */
        manta_session_close(s);
    }
    manta_session_close(whole);
    manta_model_free(m);
}

/* ---- refusals ---- */

static manta_status own_loss(const manta_loss_call *c)
{
    for (int64_t i = 0; i < c->rows; i++) c->loss[i] = 0;
    return MANTA_OK;
}

static void what_devices_cannot_is_refused(void **state)
{
    static const manta_loss own = {.name = "my_own", .fn = own_loss};
    manta_model *m = model((manta_regularizer){0});
    manta_compile c = {.n_losses = 1, .losses = &cross_entropy}, mine = {.n_losses = 1, .losses = &own};
    manta_session *s = NULL;
    manta_session_options o = {.device = twins_device(), .debug = true};

    (void)state;
    assert_fails_with(manta_session_open(m, &c, &o, &s), MANTA_EUNSUPPORTED, "debug");
    o = (manta_session_options){.device = twins_device(), .workers = 2};
    assert_fails_with(manta_session_open(m, &c, &o, &s), MANTA_EUNSUPPORTED, "one process");
    o = (manta_session_options){.device = twins_device(), .precision = "mixed_float16"};
    assert_fails_with(manta_session_open(m, &c, &o, &s), MANTA_EUNSUPPORTED, "float16");
    o = (manta_session_options){.device = twins_device(), .kernels = "onednn"};
    if (kernels_of(KERN_ONEDNN))
        assert_fails_with(manta_session_open(m, &c, &o, &s), MANTA_EUNSUPPORTED, "onednn out");
    o = (manta_session_options){.device = twins_device(), .shards = 2, .statistics = MANTA_STATISTICS_SYNC};
    assert_fails_with(manta_session_open(m, &c, &o, &s), MANTA_EUNSUPPORTED, "sync");
    o = (manta_session_options){.device = twins_device()};
    assert_fails_with(manta_session_open(m, &mine, &o, &s), MANTA_EUNSUPPORTED, "my_own");
    o.device = "toaster";
    assert_fails_with(manta_session_open(m, &c, &o, &s), MANTA_EINVAL, "toaster");
    assert_null(s);
    manta_model_free(m);
}

/* Memory that cannot be had is said before a step; smaller batches go on as before. */
static void a_batch_that_has_no_room_is_refused(void **state)
{
    const int64_t many = 1000000000;
    manta_optimizer opt;
    manta_loss loss;
    manta_feed f = feed(0, 32);
    manta_compile c;
    twins t;

    (void)state;
    assert_ok(manta_optimizer_named("adam", &opt));
    c = compile_of(&opt, &loss, MANTA_REDUCTION_SUM_OVER_BATCH_SIZE);
    t = twins_of(model((manta_regularizer){0}), &c, (manta_session_options){0});
    twins_step(&t, &f);
    assert_fails_with(session_prepare(t.dev, PLAN_TRAIN, &many, 1), MANTA_ENOMEM, "could not be had");
    twins_step(&t, &f);
    twins_evaluate(&t, &f);
    twins_predict(&t, &f);
    assert_same_state(t.cpu, t.dev);
    twins_close(&t);
}

/* What a child of this process is told that computes with the parent's session; 0: it was not. */
static int told_in_a_child(manta_session *s, const manta_feed *f)
{
    int status = 0;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        session_after_fork(s);
        bool told =
            manta_session_step(s, f) == MANTA_EUNSUPPORTED && strstr(manta_error_text(), "that opened");
        manta_session_close(s); /* and leaves the parent's device alone */
        _exit(told);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

static void a_device_belongs_to_one_process(void **state)
{
    static const engine_ops ranks = {0};
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.device = twins_device()});
    manta_feed f = feed(0, 8);

    (void)state;
    assert_ok(manta_session_step(s, &f));
    assert_true(told_in_a_child(s, &f));
    s->engine.ops = &ranks; /* as a trainer's ranks take a session over */
    assert_fails_with(manta_session_step(s, &f), MANTA_EUNSUPPORTED, "leave the device out");
    s->engine.ops = &engine_local;
    assert_ok(manta_session_step(s, &f));
    manta_session_close(s);
    manta_model_free(m);
}

static void a_label_out_of_range_is_found_before_the_device(void **state)
{
    manta_model *m = model((manta_regularizer){0});
    manta_session *s = session(m, "sgd", (manta_session_options){.device = twins_device()});
    manta_feed f = feed(0, 8);
    int64_t bad[8] = {0, 1, 2, CLASSES, 0, 0, 0, 0};

    (void)state;
    f.targets[0].data = bad;
    assert_fails_with(manta_session_step(s, &f), MANTA_EINVAL, "label of row 3");
    f = feed(0, 8);
    f.inputs[0].shape[1]--;
    assert_fails_with(manta_session_step(s, &f), MANTA_EINVAL, "input 'image'");
    f = feed(0, 8);
    assert_ok(manta_session_step(s, &f));
    manta_session_close(s);
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(zoo_models_train_alike),
                                       cmocka_unit_test(optimizers_update_alike),
                                       cmocka_unit_test(clipping_averages_and_regularisers_alike),
                                       cmocka_unit_test(parts_of_a_step_alike),
                                       cmocka_unit_test(slots_are_the_hosts_after_backward),
                                       cmocka_unit_test(given_gradients_are_applied_after_a_loss),
                                       cmocka_unit_test(weights_that_are_set_are_used),
                                       cmocka_unit_test(a_state_moves_between_devices),
                                       cmocka_unit_test(what_devices_cannot_is_refused),
                                       cmocka_unit_test(a_batch_that_has_no_room_is_refused),
                                       cmocka_unit_test(a_device_belongs_to_one_process),
                                       cmocka_unit_test(a_label_out_of_range_is_found_before_the_device)};

    make_data();
    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
