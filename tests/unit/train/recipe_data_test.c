/* What words open: models, datasets, inputs, states and files; and a whole training from words, which ends
 * with the bytes of one that was written out. */
#include "recipe_fixture.h"

#include <unistd.h>

#include "format/scratch.h"

enum { SAMPLES = 24, FEATURES = 4 };

static float x[SAMPLES][FEATURES];
static int64_t y[SAMPLES];

static void save_array(const char *name, manta_dtype dtype, int ndim, const int64_t *shape, void *data)
{
    manta_column c = {.name = "", .array = manta_array_of(dtype, ndim, shape, data)};

    assert_ok(manta_arrays_save(scratch_path(name), 1, &c));
}

/* x.npy: numbers from 0 to 95; y.npy: classes 0, 1, 2 in turn; in a folder that is the working one. */
static int enter_scratch(void **state)
{
    if (scratch_setup(state) || chdir(scratch_dir)) return -1;
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = i % 3;
        for (int j = 0; j < FEATURES; j++) x[i][j] = (float)(i * FEATURES + j);
    }
    save_array("x.npy", MANTA_DTYPE_F32, 2, (int64_t[]){SAMPLES, FEATURES}, x);
    save_array("y.npy", MANTA_DTYPE_I64, 1, (int64_t[]){SAMPLES}, y);
    save_array("short.npy", MANTA_DTYPE_F32, 2, (int64_t[]){SAMPLES - 1, FEATURES}, x);
    return 0;
}

static int leave_scratch(void **state)
{
    return chdir("/") ? -1 : scratch_teardown(state);
}

/* One sample's first number of a column, and how many samples there are. */
static float first_of(manta_dataset *d, const char *column, int64_t *count)
{
    manta_loader *loader;
    manta_batch b;
    float v = -1;

    assert_ok(manta_loader_open(d, NULL, &loader));
    assert_true(manta_loader_next(loader, &b));
    assert_non_null(manta_batch_find(&b, column));
    v = *(const float *)manta_batch_find(&b, column)->data;
    manta_loader_close(loader);
    if (count) *count = manta_dataset_count(d);
    return v;
}

/* ---- models ---- */

static void a_model_is_opened_by_name_or_from_a_file(void **state)
{
    manta_recipe *r = recipe_of("");
    const manta_compile *c;
    manta_session *s;
    manta_saved *saved;
    manta_model *m;

    (void)state;
    assert_ok(manta_model_open("mlp", &saved, &m));
    assert_null(saved);
    manta_model_free(m);
    assert_ok(manta_recipe_open(r, "linear"));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_ok(manta_session_save(s, "linear.keras"));
    assert_ok(manta_session_save(s, "linear.npz"));
    manta_session_close(s);
    assert_ok(manta_recipe_open(r, "linear.keras")); /* in the place of the other */
    assert_non_null(manta_recipe_saved(r));
    assert_true(manta_recipe_has_weights(r));
    assert_string_equal(manta_model_name(manta_recipe_model(r)), "linear");
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c));
    assert_int_equal(c->optimizer->kind, MANTA_OPTIMIZER_SGD); /* what it was compiled with */
    assert_string_equal(c->losses[0].name, "mean_squared_error");
    assert_int_equal(c->n_metrics, 1);
    assert_ok(manta_model_open("linear.keras", NULL, &m));
    manta_model_free(m);
    assert_fails_outside(r, manta_recipe_open(r, "linear.npz"), MANTA_EINVAL,
                         "linear.npz: holds weights but no model; name the model and give it to weights");
    assert_fails_outside(r, manta_recipe_open(r, "none.keras"), MANTA_ENOENT, "none.keras");
    assert_fails_outside(r, manta_recipe_open(r, "mnist-cn"), MANTA_ENOENT, "did you mean mnist-cnn?");
    assert_string_equal(manta_model_name(manta_recipe_model(r)), "linear"); /* it stays */
    manta_recipe_free(r);
}

static void what_is_set_wins_over_the_file_and_the_zoo(void **state)
{
    manta_recipe *r = recipe_of("");
    const manta_recipe_defaults *defaults;
    const manta_compile *c;
    const char *name;
    manta_session *s;

    (void)state;
    for (int i = 0; (name = manta_zoo_name(i, NULL)); i++) {
        assert_non_null(defaults = manta_recipe_defaults_of(name));
        assert_ok(manta_recipe_open(r, name));
        assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c));
        assert_string_equal(manta_optimizer_name(c->optimizer), defaults->optimizer);
        assert_string_equal(c->losses[0].name, defaults->loss);
        assert_true(c->losses[0].from_logits == defaults->from_logits);
        assert_string_equal(c->metrics[0].name, defaults->metrics);
    }
    assert_null(manta_recipe_defaults_of("mlp.keras"));
    assert_ok(manta_recipe_open(r, "mlp"));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_ok(manta_session_save(s, "mlp.keras"));
    manta_session_close(s);
    assert_ok(manta_recipe_open(r, "mlp.keras"));
    assert_ok(manta_recipe_add(r, "optimizer=sgd"));
    assert_ok(manta_recipe_add(r, "metrics=none"));
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c));
    assert_int_equal(c->optimizer->kind, MANTA_OPTIMIZER_SGD);
    assert_int_equal(c->n_metrics, 0);
    assert_true(c->losses[0].from_logits); /* the file's still */
    assert_ok(manta_recipe_add(r, "optimizer=adam"));
    assert_ok(manta_recipe_add(r, "lr=0.25"));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_true(manta_session_learning_rate(s) == 0.25); /* over the state's, too */
    manta_session_close(s);
    manta_recipe_free(r);
}

static void layers_are_frozen_for_a_training(void **state)
{
    manta_recipe *r = recipe_of("freeze=conv*,dense_1");
    const manta_compile *c;

    (void)state;
    assert_ok(manta_recipe_open(r, "mnist-cnn"));
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_EVALUATE, &c));
    assert_int_equal(manta_model_params(manta_recipe_model(r), true), 2770634);
    assert_ok(manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c));
    assert_int_equal(manta_model_params(manta_recipe_model(r), true), 2769024);
    assert_ok(manta_recipe_set(r, "freeze", "nope*"));
    assert_fails_outside(r, manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c), MANTA_ENOENT, "nope*");
    manta_recipe_free(r);
}

/* ---- data ---- */

static void samples_are_scaled_and_normalized(void **state)
{
    manta_recipe *r = recipe_of("scale=2 normalize=1,4");
    manta_model *m = dense_model(3, NULL);
    manta_dataset *d;
    int64_t n;

    (void)state;
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_dataset(r, "x.npy", false, &d));
    assert_true(first_of(d, "x", &n) == (0.0f / 2 - 1) / 4);
    assert_int_equal(n, SAMPLES);
    manta_dataset_unref(d);
    assert_ok(manta_recipe_set(r, "scale", NULL));
    assert_ok(manta_recipe_set(r, "normalize", "-1,-2,-3,-4,2,2,2,2")); /* a mean for each channel */
    assert_ok(manta_recipe_dataset(r, "x.npy", false, &d));
    assert_true(first_of(d, "x", NULL) == 0.5f);
    manta_dataset_unref(d);
    manta_recipe_free(r);
    manta_model_free(m);
}

static void a_model_brings_its_own_normalization(void **state)
{
    manta_recipe *r = recipe_of("");
    manta_dataset *d;

    (void)state;
    save_array("i.npy", MANTA_DTYPE_F32, 2, (int64_t[]){SAMPLES, FEATURES}, x);
    assert_ok(manta_recipe_open(r, "resnet18"));
    assert_ok(manta_recipe_dataset(r, "i.npy", false, &d));
    assert_true(first_of(d, "x", NULL) == -1.0f); /* 0.5,0.5 */
    manta_dataset_unref(d);
    assert_ok(manta_recipe_set(r, "normalize", "0,1"));
    assert_ok(manta_recipe_dataset(r, "i.npy", false, &d));
    assert_true(first_of(d, "x", NULL) == 0.0f);
    manta_dataset_unref(d);
    assert_ok(manta_recipe_set(r, "normalize", NULL));
    assert_ok(manta_recipe_set(r, "raw", "yes"));
    assert_ok(manta_recipe_dataset(r, "i.npy", false, &d));
    assert_true(first_of(d, "x", NULL) == 0.0f);
    manta_dataset_unref(d);
    manta_recipe_free(r);
}

static void targets_are_what_the_loss_needs(void **state)
{
    manta_recipe *r = recipe_of("loss=SparseCategoricalCrossentropy");
    manta_model *two = dense_model(2, NULL), *three = dense_model(3, NULL);
    manta_loader *loader;
    manta_dataset *d;
    manta_batch b;

    (void)state;
    assert_ok(manta_recipe_use(r, three));
    assert_ok(manta_recipe_dataset(r, "x.npy,y.npy", true, &d));
    assert_int_equal(manta_dataset_count(d), SAMPLES);
    manta_dataset_unref(d);
    assert_ok(manta_recipe_use(r, two)); /* class 2 has no output */
    assert_ok(manta_recipe_dataset(r, "x.npy,y.npy", true, &d));
    assert_ok(manta_loader_open(d, NULL, &loader));
    while (manta_loader_next(loader, &b)) {}
    assert_fails_with(manta_loader_status(loader), MANTA_EINVAL, "2");
    manta_loader_close(loader);
    manta_dataset_unref(d);
    manta_recipe_free(r);
    r = recipe_of("");
    assert_ok(manta_recipe_open(r, "autoencoder")); /* the target is the sample */
    assert_ok(manta_recipe_dataset(r, "x.npy", true, &d));
    assert_true(first_of(d, "y", NULL) == 0.0f);
    manta_dataset_unref(d);
    manta_recipe_free(r);
    manta_model_free(two);
    manta_model_free(three);
}

static void data_is_split_before_it_is_shuffled(void **state)
{
    manta_recipe *r =
        recipe_of("data=x.npy,y.npy loss=sparse_categorical_crossentropy validation-split=0.25");
    manta_model *m = dense_model(3, NULL);
    manta_dataset *data, *validation;
    int64_t n;

    (void)state;
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_datasets(r, &data, &validation));
    assert_int_equal(manta_dataset_count(data), 18);
    assert_true(first_of(validation, "x", &n) == 72.0f);
    assert_int_equal(n, 6);
    manta_dataset_unref(data);
    manta_dataset_unref(validation);
    assert_ok(manta_recipe_set(r, "validation-split", "0.99"));
    assert_fails_outside(r, manta_recipe_datasets(r, &data, &validation), MANTA_EINVAL,
                         "leaves one part empty");
    assert_ok(manta_recipe_set(r, "validation-split", NULL));
    assert_ok(manta_recipe_datasets(r, &data, &validation));
    assert_null(validation);
    manta_dataset_unref(data);
    assert_ok(manta_recipe_set(r, "validation", "short.npy"));
    assert_ok(manta_recipe_datasets(r, &data, &validation));
    assert_int_equal(manta_dataset_count(validation), SAMPLES - 1);
    manta_dataset_unref(data);
    manta_dataset_unref(validation);
    manta_recipe_free(r);
    manta_model_free(m);
}

static void data_that_cannot_be_is_refused(void **state)
{
    static const char *const cases[][3] = {
        {"scale=0", "scale", "cannot be divided by 0"},
        {"normalize=0.5", "normalize", "1 numbers, expected a mean and a deviation"},
        {"normalize=0.5,0", "normalize", "a deviation of 0, expected more than 0"},
        {"normalize=0.5,x", "normalize", "normalize: 'x' is not a number"},
    };
    manta_model *m = dense_model(3, NULL);
    manta_dataset *d = NULL, *v = NULL;
    manta_recipe *r;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        r = recipe_of(cases[i][0]);
        assert_ok(manta_recipe_use(r, m));
        assert_blames(r, manta_recipe_dataset(r, "x.npy", false, &d), MANTA_EINVAL, cases[i][1], cases[i][2]);
        manta_recipe_free(r);
    }
    r = recipe_of("");
    assert_ok(manta_recipe_use(r, m));
    assert_blames(r, manta_recipe_datasets(r, &d, &v), MANTA_EINVAL, "data", "not set");
    assert_fails_outside(r, manta_recipe_dataset(r, "mnits", false, &d), MANTA_ENOENT, "did you mean mnist?");
    assert_fails_outside(r, manta_recipe_dataset(r, "nothing", false, &d), MANTA_ENOENT,
                         "no dataset and no file");
    assert_fails_outside(r, manta_recipe_dataset(r, "no.npy", false, &d), MANTA_ENOENT, "no.npy");
    assert_null(d);
    manta_recipe_free(r);
    manta_model_free(m);
}

/* ---- inputs ---- */

static void inputs_are_given_by_name_or_alone(void **state)
{
    manta_model *one = dense_model(2, NULL), *m = manta_model_new("two");
    manta_value a = manta_input(m, "left", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    manta_value b = manta_input(m, "right", MANTA_DTYPE_F32, 1, (int64_t[]){4});
    manta_recipe *r = recipe_of("");
    const manta_column_spec *c;
    manta_dataset *d = NULL;

    (void)state;
    manta_output(m, manta_call_n(m, manta_merge_add(m), 2, (manta_value[]){a, b}));
    assert_ok(manta_model_build(m));
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_inputs(r, "right=x.npy,y.npy,left=x.npy", &d));
    assert_int_equal(manta_dataset_columns(d, &c), 2); /* y is left out */
    assert_string_equal(c[0].name, "right");
    assert_string_equal(c[1].name, "left");
    manta_dataset_unref(d);
    d = NULL;
    assert_fails_outside(r, manta_recipe_inputs(r, "x.npy", &d), MANTA_EINVAL,
                         "two has 2 inputs, expected NAME=X");
    assert_fails_outside(r, manta_recipe_inputs(r, "up=x.npy", &d), MANTA_ENOENT,
                         "no input called 'up'; they are called 'left', 'right'");
    assert_fails_outside(r, manta_recipe_inputs(r, "left=x.npy", &d), MANTA_EINVAL,
                         "nothing is given for the input 'right'");
    assert_fails_outside(r, manta_recipe_inputs(r, "left=x.npy,left=x.npy", &d), MANTA_EINVAL,
                         "'left' is given twice");
    assert_fails_outside(r, manta_recipe_inputs(r, "left=x.npy,right=short.npy", &d), MANTA_EINVAL,
                         "one input has 24 samples and another 23");
    assert_fails_outside(r, manta_recipe_inputs(r, "left=no.npy", &d), MANTA_ENOENT, "no.npy");
    assert_null(d);
    assert_ok(manta_recipe_use(r, one));
    assert_ok(manta_recipe_inputs(r, "x.npy,y.npy", &d));
    assert_int_equal(manta_dataset_columns(d, &c), 1);
    manta_dataset_unref(d);
    manta_recipe_free(r);
    manta_model_free(m);
    manta_model_free(one);
}

/* ---- states ---- */

static void a_state_is_found_in_files_checkpoints_and_runs(void **state)
{
    manta_model *m = dense_model(3, NULL);
    manta_recipe *r = recipe_of("seed=3");
    manta_checkpoints *all;
    manta_checkpoint *from = NULL;
    manta_session *s;
    char *path = NULL;

    (void)state;
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_ok(manta_session_save(s, "w.npz"));
    assert_ok(manta_checkpoints_open("run/checkpoints", NULL, &all));
    assert_ok(manta_checkpoints_save(all, s, &(manta_checkpoint_info){0}, true));
    assert_ok(manta_checkpoints_wait(all));
    manta_checkpoints_close(all);
    manta_session_close(s);
    assert_ok(manta_state_find("w.npz", &path, &from));
    assert_string_equal(path, "w.npz");
    assert_null(from);
    free(path);
    assert_ok(manta_state_find("run", &path, &from));
    assert_non_null(strstr(path, "run/checkpoints/checkpoint-000001/state.safetensors"));
    assert_non_null(from);
    manta_checkpoint_close(from);
    free(path);
    assert_ok(mkdir("here", 0700) || chdir("here") ? MANTA_EIO
                                                   : MANTA_OK); /* where no run of that name lies */
    assert_ok(setenv("MANTA_STORAGE", scratch_dir, 1) ? MANTA_EIO : MANTA_OK);
    assert_ok(manta_state_find("run", &path, NULL));
    assert_non_null(strstr(path, "/run/checkpoints/checkpoint-000001/state.safetensors"));
    free(path);
    assert_ok(unsetenv("MANTA_STORAGE") || chdir("..") ? MANTA_EIO : MANTA_OK);
    assert_ok(manta_recipe_set(r, "weights", "run/checkpoints/checkpoint-000001"));
    assert_true(manta_recipe_has_weights(r));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_EVALUATE, &s));
    manta_session_close(s);
    assert_fails_with(manta_state_find("norun", &path, NULL), MANTA_ENOENT,
                      "no file, no checkpoint and no run is called 'norun'");
    assert_ok(manta_recipe_set(r, "weights", "none.npz"));
    assert_fails_outside(r, manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s), MANTA_ENOENT, "none.npz");
    manta_recipe_free(r);
    manta_model_free(m);
}

static void weights_begin_a_training_with_or_without_the_optimizer(void **state)
{
    manta_model *m = dense_model(3, NULL);
    manta_recipe *r =
        recipe_of("data=x.npy,y.npy loss=sparse_categorical_crossentropy:from-logits optimizer=adam "
                  "scale=100");
    manta_dataset *d, *v;
    const manta_compile *c;
    manta_session *s;

    (void)state;
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_datasets(r, &d, &v));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_ok(manta_fit(s, d, &(manta_fit_options){.batch = 8}, NULL));
    assert_ok(manta_session_save(s, "w.npz"));
    manta_session_close(s);
    manta_dataset_unref(d);
    assert_ok(manta_recipe_set(r, "weights", "w.npz"));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_int_equal(manta_session_iterations(s), 3);
    manta_session_close(s);
    assert_ok(manta_recipe_set(r, "reset-optimizer", "yes"));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_int_equal(manta_session_iterations(s), 0);
    manta_session_close(s);
    assert_ok(manta_recipe_set(r, "weights", NULL));
    assert_blames(r, manta_recipe_compile(r, MANTA_PURPOSE_TRAIN, &c), MANTA_EINVAL, "reset-optimizer",
                  "reset-optimizer needs weights");
    manta_recipe_free(r);
    manta_model_free(m);
}

static void a_place_to_write_is_checked_before_the_work(void **state)
{
    (void)state;
    assert_ok(manta_output_check("m.keras", NULL));
    assert_ok(manta_output_check("m.npz", NULL));
    assert_ok(manta_output_check("t.json", ".svg .json"));
    assert_fails_with(manta_output_check("m.txt", NULL), MANTA_EINVAL,
                      "m.txt: the name must end in one of: ");
    assert_error_says(".keras");
    assert_fails_with(manta_output_check("t.json", ".svg .png"), MANTA_EINVAL, ".svg .png");
    assert_fails_with(manta_output_check("no/folder/m.npz", NULL), MANTA_ENOENT, "no/folder");
    assert_ok(mkdir("d.npz", 0700) ? MANTA_EIO : MANTA_OK);
    assert_fails_with(manta_output_check("d.npz", NULL), MANTA_EINVAL, "it is a folder");
}

/* ---- all of it ---- */

/* The weights of a training in which every part is written out. */
static void train_by_hand(const manta_model *m, float *weights)
{
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_metric metric = {.name = "accuracy"};
    manta_dataset *d;
    manta_session *s;
    manta_optimizer o;

    assert_ok(manta_optimizer_named("sgd", &o));
    o.momentum = 0.5;
    o.schedule = (manta_schedule){.kind = MANTA_SCHEDULE_COSINE,
                                  .decay_steps = 20,
                                  .warmup_steps = 4,
                                  .warmup_target = o.learning_rate};
    assert_ok(manta_session_open(
        m,
        &(manta_compile){.optimizer = &o, .n_losses = 1, .losses = &loss, .n_metrics = 1, .metrics = &metric},
        &(manta_session_options){.seed = 7, .shards = 2, .workers = 1}, &s));
    assert_ok(manta_dataset_open("x.npy,y.npy", NULL, &d));
    d = manta_dataset_labels(manta_dataset_scale(d, "x", 100), "y", 3);
    assert_ok(manta_fit(s, d, &(manta_fit_options){.epochs = 3, .batch = 8}, NULL));
    manta_session_get_flat(s, weights);
    manta_session_close(s);
    manta_dataset_unref(d);
}

static void words_train_to_the_same_bytes(void **state)
{
    manta_recipe *r =
        recipe_of("data=x.npy,y.npy scale=100 epochs=3 batch=8 seed=7 shards=2 optimizer=sgd momentum=0.5 "
                  "lr-schedule=cosine:steps=20,warmup=4 loss=sparse_categorical_crossentropy:from-logits "
                  "metrics=accuracy");
    manta_model *m = dense_model(3, NULL);
    manta_dataset *data, *validation;
    float a[64] = {0}, b[64] = {0};
    manta_fit_options fit;
    manta_session *s;

    (void)state;
    assert_ok(manta_recipe_use(r, m));
    assert_ok(manta_recipe_datasets(r, &data, &validation));
    assert_ok(manta_recipe_fit_options(r, &fit));
    assert_ok(manta_recipe_session(r, NULL, MANTA_PURPOSE_TRAIN, &s));
    assert_int_equal(manta_session_params(s), 4 * 5 + 5 + 5 * 3 + 3);
    assert_ok(manta_fit(s, data, &fit, NULL));
    manta_session_get_flat(s, a);
    train_by_hand(m, b);
    assert_memory_equal(a, b, sizeof a);
    assert_true(a[0] != 0 && a[42] != 0);
    manta_session_close(s);
    manta_dataset_unref(data);
    manta_recipe_free(r);
    manta_model_free(m);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, enter_scratch, leave_scratch)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_model_is_opened_by_name_or_from_a_file),
        TEST(what_is_set_wins_over_the_file_and_the_zoo),
        TEST(layers_are_frozen_for_a_training),
        TEST(samples_are_scaled_and_normalized),
        TEST(a_model_brings_its_own_normalization),
        TEST(targets_are_what_the_loss_needs),
        TEST(data_is_split_before_it_is_shuffled),
        TEST(data_that_cannot_be_is_refused),
        TEST(inputs_are_given_by_name_or_alone),
        TEST(a_state_is_found_in_files_checkpoints_and_runs),
        TEST(weights_begin_a_training_with_or_without_the_optimizer),
        TEST(a_place_to_write_is_checked_before_the_work),
        TEST(words_train_to_the_same_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
