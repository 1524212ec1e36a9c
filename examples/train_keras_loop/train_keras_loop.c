/* train_keras_loop.c - a loop with Keras's shape, run by the trainer in several workers.
 *
 *     train_keras_loop PART [--data SPEC] [--epochs N] [--steps N] [--workers N]
 *
 *     quickstart    a convolutional network on MNIST, four workers; --workers 1 is the same alone
 *     folder        a checkpoint is a folder: model.keras and a file of the loop's own
 *     arrays        a checkpoint is named arrays: the weights and the epoch
 *     fit           manta_fit() with a callback that reports and checkpoints
 *     autoencoder   batches of named columns from a dataset that the trainer divides
 *
 * Each part trains, prints its result, and begins a second run from the first
 * one's checkpoint (README.md). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta.h>

enum { TOY_SAMPLES = 100, TOY_FEATURES = 4, PIXELS = 784, WORKER_BATCH = 64 };

/* train_loop_config: copied to every worker, so no pointers. */
typedef struct settings {
    int64_t epochs, steps; /* steps: of an epoch, where the loop does not take them from the data */
} settings;

/* What a loop holds. */
typedef struct training {
    manta_worker *w;
    manta_model *model;
    manta_session *session;
    manta_loader *loader;
    int64_t steps; /* of an epoch, of the rank that has most */
} training;

static void training_close(training *t)
{
    manta_loader_close(t->loader);
    manta_session_close(t->session);
    manta_model_free(t->model);
}

/* model.compile() within the strategy's scope: every rank has the same state,
 * which is that of the checkpoint to begin from if there is one. */
static manta_status prepare(training *t, const char *loss_name, const char *metric_name, int64_t batch)
{
    manta_loss loss = {.name = loss_name};
    manta_metric metric = {.name = metric_name};
    manta_optimizer adam;

    MANTA_TRY(manta_model_build(t->model));
    MANTA_TRY(manta_optimizer_named("adam", &adam));
    MANTA_TRY(manta_prepare_model(
        t->w, t->model,
        &(manta_compile){
            .optimizer = &adam, .n_losses = 1, .losses = &loss, .n_metrics = 1, .metrics = &metric},
        NULL, &t->session));
    return manta_prepare_loader(t->w, "train", &(manta_loader_options){.batch_size = batch}, &t->loader,
                                &t->steps);
}

/* ---- quickstart ---- */

static manta_model *cnn_model(void)
{
    manta_model *m = manta_model_new("mnist");

    manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}));
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){
                                           .filters = 32, .kernel_size = {3, 3}, .activation = "relu"}));
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 128, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 10}));
    return m;
}

static manta_status quickstart_compile(training *t)
{
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_metric accuracy = {.name = "accuracy"};
    manta_optimizer sgd;

    t->model = cnn_model();
    MANTA_TRY(manta_model_build(t->model));
    MANTA_TRY(manta_optimizer_named("sgd", &sgd));
    sgd.learning_rate = 0.001;
    return manta_prepare_model(
        t->w, t->model,
        &(manta_compile){
            .optimizer = &sgd, .n_losses = 1, .losses = &loss, .n_metrics = 1, .metrics = &accuracy},
        NULL, &t->session);
}

/* What one worker would do, and all do: model.fit(dataset, epochs=, steps_per_epoch=),
 * with the same batch in each worker as in one alone. */
static manta_status quickstart_epochs(training *t, manta_callback *report)
{
    const settings *c = manta_worker_config(t->w, NULL);
    manta_fit_options o = {.epochs = c->epochs,
                           .initial_epoch = manta_worker_epoch(t->w),
                           .steps_per_epoch = c->steps,
                           .batch = WORKER_BATCH,
                           .n_callbacks = 1,
                           .callbacks = &report};
    manta_dataset *shard;
    manta_status st;

    MANTA_TRY(quickstart_compile(t));
    MANTA_TRY(manta_worker_dataset(t->w, "train", &shard));
    st = manta_fit(t->session, shard, &o, NULL);
    manta_dataset_unref(shard);
    return st;
}

static manta_status quickstart_loop(manta_worker *w)
{
    training t = {.w = w};
    manta_callback *report = manta_report_callback(w, 1);
    manta_status st = quickstart_epochs(&t, report);

    manta_callback_free(report);
    training_close(&t);
    return st;
}
MANTA_LOOP(quickstart_loop)

/* ---- folder ---- */

static manta_model *toy_model(void)
{
    manta_model *m = manta_model_new("toy");

    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){TOY_FEATURES});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 1, .activation = "linear"}));
    return m;
}

static manta_status write_epoch(const char *folder, int64_t epoch)
{
    char path[1200];
    FILE *f;
    bool written;

    snprintf(path, sizeof path, "%s/checkpoint.json", folder);
    if (!(f = fopen(path, "w"))) return manta_fail(MANTA_EIO, "cannot write %s", path);
    written = fprintf(f, "{\"epoch\": %lld}\n", (long long)epoch) > 0;
    if (fclose(f) || !written) return manta_fail(MANTA_EIO, "cannot write %s", path);
    return MANTA_OK;
}

/* Rank 0 gives the files; each rank could give some, and they would merge. */
static manta_status report_folder(training *t, const manta_metrics *m, int64_t epoch)
{
    char *folder, path[1200];
    manta_status st;

    if (manta_worker_rank(t->w)) return manta_report_checkpoint(t->w, m, NULL, NULL);
    MANTA_TRY(manta_worker_temp_folder(t->w, &folder));
    snprintf(path, sizeof path, "%s/model.keras", folder);
    if (!(st = manta_session_save(t->session, path)) && !(st = write_epoch(folder, epoch)))
        st = manta_report_checkpoint(t->w, m, folder, &(manta_checkpoint_info){.epoch = epoch + 1});
    free(folder);
    return st;
}

/* The model of the checkpoint that this run, or this attempt, begins from. */
static manta_status load_folder(training *t)
{
    const manta_checkpoint *c = manta_worker_checkpoint(t->w);
    char path[1200];

    if (!c) return MANTA_OK;
    snprintf(path, sizeof path, "%s/model.keras", manta_checkpoint_path(c));
    printf("begins from %s\n", path);
    return manta_session_load(t->session, path, false);
}

static manta_status folder_epochs(training *t)
{
    const settings *c = manta_worker_config(t->w, NULL);
    int64_t first = manta_worker_attempt(t->w) ? manta_worker_epoch(t->w) : 0;
    manta_metrics m;

    t->model = toy_model();
    /* A batch of 20 over all workers. */
    MANTA_TRY(prepare(t, "mean_squared_error", "mse", 20 / manta_worker_world_size(t->w)));
    MANTA_TRY(load_folder(t));
    for (int64_t e = first; e < c->epochs; e++) {
        MANTA_TRY(manta_worker_train_epoch(t->w, t->session, t->loader, e, &m)); /* model.fit(X, Y) */
        MANTA_TRY(report_folder(t, &m, e));
    }
    return MANTA_OK;
}

static manta_status folder_loop(manta_worker *w)
{
    training t = {.w = w};
    manta_status st = folder_epochs(&t);

    training_close(&t);
    return st;
}
MANTA_LOOP(folder_loop)

/* ---- arrays ---- */

/* model.get_weights() and the epoch, as one dictionary. */
static manta_status report_arrays(training *t, int64_t epoch)
{
    manta_column dict[MANTA_MAX_COLUMNS] = {{"epoch", manta_array_of(MANTA_DTYPE_I64, 0, NULL, &epoch)}};
    int n = 1;

    for (int i = 0; i < manta_model_variables(t->model) && n < MANTA_MAX_COLUMNS; i++, n++) {
        dict[n].name = manta_model_variable(t->model, i).name;
        MANTA_TRY(manta_session_weight(t->session, dict[n].name, &dict[n].array));
    }
    return manta_report_arrays(t->w, NULL, n, dict, epoch + 1, 0);
}

/* checkpoint.to_dict(), model.set_weights(): *first is the epoch to go on with. */
static manta_status load_arrays(training *t, int64_t *first)
{
    const manta_checkpoint *c = manta_worker_checkpoint(t->w);
    const manta_array *epoch;
    manta_saved *dict;
    manta_status st = MANTA_OK;

    if (!c) return MANTA_OK;
    MANTA_TRY(manta_checkpoint_arrays(c, &dict));
    for (int i = 0; !st && i < manta_model_variables(t->model); i++) {
        const char *name = manta_model_variable(t->model, i).name;
        const manta_array *a = manta_saved_find(dict, name);
        st = a ? manta_session_set_weight(t->session, name, a)
               : manta_fail(MANTA_ENOENT, "%s has no '%s'", manta_checkpoint_path(c), name);
    }
    epoch = manta_saved_find(dict, "epoch");
    if (epoch && epoch->dtype == MANTA_DTYPE_I64) *first = *(const int64_t *)epoch->data + 1;
    manta_saved_free(dict);
    return st;
}

static manta_status arrays_epochs(training *t)
{
    const settings *c = manta_worker_config(t->w, NULL);
    int64_t first = 0;

    t->model = toy_model();
    MANTA_TRY(prepare(t, "mean_squared_error", "mse", 20 / manta_worker_world_size(t->w)));
    MANTA_TRY(load_arrays(t, &first));
    for (int64_t e = first; e < c->epochs; e++) {
        MANTA_TRY(manta_worker_train_epoch(t->w, t->session, t->loader, e, NULL));
        MANTA_TRY(report_arrays(t, e));
    }
    return MANTA_OK;
}

static manta_status arrays_loop(manta_worker *w)
{
    training t = {.w = w};
    manta_status st = arrays_epochs(&t);

    training_close(&t);
    return st;
}
MANTA_LOOP(arrays_loop)

/* ---- autoencoder ---- */

static manta_model *autoencoder(void)
{
    static const int64_t units[] = {128, 32, 128};
    manta_model *m = manta_model_new("autoencoder");

    manta_input(m, "image", MANTA_DTYPE_F32, 1, (int64_t[]){PIXELS});
    for (int i = 0; i < 3; i++)
        manta_model_add(m, manta_dense(m, (manta_dense_options){.units = units[i], .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = PIXELS, .activation = "sigmoid"}));
    return m;
}

/* One pass over this rank's shard, batch by batch, column by column. A rank
 * whose shard is a batch shorter takes part in the last step with nothing. */
static manta_status columns_epoch(training *t, int64_t epoch)
{
    MANTA_TRY(manta_loader_seek(t->loader, epoch, 0));
    manta_session_reset_metrics(t->session);
    for (int64_t step = 0; step < t->steps; step++) {
        manta_feed f = {.n_inputs = 1, .n_targets = 1};
        manta_batch b;
        if (step < manta_loader_steps(t->loader)) {
            if (!manta_loader_next(t->loader, &b)) return manta_loader_status(t->loader);
            f.count = b.count;
            f.first = b.first;
            f.inputs[0] = *manta_batch_find(&b, "image");
            f.targets[0] = *manta_batch_find(&b, "label");
        }
        MANTA_TRY(manta_worker_train_step(t->w, t->session, &f));
    }
    return MANTA_OK;
}

static manta_status autoencoder_epochs(training *t)
{
    const settings *c = manta_worker_config(t->w, NULL);
    manta_metrics m;

    t->model = autoencoder();
    MANTA_TRY(prepare(t, "mean_squared_error", "mae", WORKER_BATCH));
    printf("rank %d of %d has %lld samples, %lld of a step\n", manta_worker_rank(t->w),
           manta_worker_world_size(t->w), (long long)manta_loader_samples(t->loader),
           (long long)WORKER_BATCH * manta_worker_world_size(t->w));
    for (int64_t e = manta_worker_epoch(t->w); e < c->epochs && !manta_worker_should_stop(t->w); e++) {
        MANTA_TRY(columns_epoch(t, e));
        MANTA_TRY(manta_worker_metrics(t->w, t->session, &m));
        MANTA_TRY(manta_report_session(t->w, &m, t->session, e + 1, 0));
    }
    return MANTA_OK;
}

static manta_status autoencoder_loop(manta_worker *w)
{
    training t = {.w = w};
    manta_status st = autoencoder_epochs(&t);

    training_close(&t);
    return st;
}
MANTA_LOOP(autoencoder_loop)

/* ---- fit ---- */

static bool print_epoch(void *user, manta_session *s, const manta_event *e)
{
    (void)user;
    (void)s;
    if (e->kind == MANTA_EVENT_EPOCH_END)
        printf("epoch %lld: loss %.6f\n", (long long)e->epoch + 1, manta_metrics_get(e->metrics, "loss"));
    return true;
}

/* model.fit(shard, callbacks=[ReportCheckpointCallback()]): all ranks together. */
static manta_status fit_epochs(training *t, manta_callback *report)
{
    const settings *c = manta_worker_config(t->w, NULL);
    manta_fit_options o = {.epochs = c->epochs,
                           .initial_epoch = manta_worker_epoch(t->w),
                           .batch = 20 / manta_worker_world_size(t->w),
                           .event = print_epoch,
                           .n_callbacks = 1,
                           .callbacks = &report};
    manta_dataset *shard;
    manta_status st;

    t->model = toy_model();
    MANTA_TRY(prepare(t, "mean_squared_error", "mse", o.batch));
    MANTA_TRY(manta_worker_dataset(t->w, "train", &shard));
    st = manta_fit(t->session, shard, &o, NULL);
    manta_dataset_unref(shard);
    return st;
}

static manta_status fit_loop(manta_worker *w)
{
    training t = {.w = w};
    manta_callback *report = manta_report_callback(w, 1);
    manta_status st = fit_epochs(&t, report);

    manta_callback_free(report);
    training_close(&t);
    return st;
}
MANTA_LOOP(fit_loop)

/* ---- data, made by the driver ---- */

static double uniform(uint32_t *state) /* in (0, 1); the same at every start */
{
    *state = *state * 1664525 + 1013904223;
    return ((*state >> 8) + 0.5) / (1 << 24);
}

/* np.random.normal(0, 1), near enough: the sum of twelve uniform ones has a variance of 1. */
static double normal(uint32_t *state)
{
    double sum = -6;

    for (int i = 0; i < 12; i++) sum += uniform(state);
    return sum;
}

/* X: normal(0, 1, size=(n, 4)), Y: uniform(0, 1, size=(n, 1)). */
static manta_status toy_data(const char *spec, manta_dataset **out)
{
    static float x[TOY_SAMPLES * TOY_FEATURES], y[TOY_SAMPLES];
    manta_column c[2] = {{"x", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){TOY_SAMPLES, TOY_FEATURES}, x)},
                         {"y", manta_array_of(MANTA_DTYPE_F32, 2, (int64_t[]){TOY_SAMPLES, 1}, y)}};
    uint32_t r = 1;

    (void)spec;
    for (int i = 0; i < TOY_SAMPLES * TOY_FEATURES; i++) x[i] = (float)normal(&r);
    for (int i = 0; i < TOY_SAMPLES; i++) y[i] = (float)uniform(&r);
    *out = manta_dataset_arrays(2, c, MANTA_OWNERSHIP_COPY);
    return MANTA_OK;
}

/* An image of 784 numbers, and itself as what is to come out. */
static manta_status image_twice(manta_sample *s, void *user)
{
    (void)user;
    for (int i = 0; i < 2; i++) memcpy(s->out[i].array.data, s->in[0].array.data, PIXELS * sizeof(float));
    return MANTA_OK;
}

static manta_status digit_data(const char *spec, manta_dataset **out)
{
    return manta_dataset_open(spec, NULL, out);
}

static manta_status image_data(const char *spec, manta_dataset **out)
{
    const manta_column_spec columns[2] = {
        {.name = "image", .dtype = MANTA_DTYPE_F32, .ndim = 1, .shape = {PIXELS}},
        {.name = "label", .dtype = MANTA_DTYPE_F32, .ndim = 1, .shape = {PIXELS}}};
    const manta_column_spec *in;
    int64_t pixels = 1;

    MANTA_TRY(manta_dataset_open(spec, NULL, out));
    manta_dataset_columns(*out, &in);
    for (int i = 0; i < in[0].ndim; i++) pixels *= in[0].shape[i];
    if (in[0].dtype != MANTA_DTYPE_F32 || pixels != PIXELS)
        return manta_fail(MANTA_EINVAL, "%s: images of %lld numbers, expected %d floats", spec,
                          (long long)pixels, PIXELS);
    *out = manta_dataset_map(*out, image_twice, NULL, 0, 2, columns);
    return MANTA_OK;
}

/* ---- the trainer ---- */

static void show(const char *title, const manta_result *r)
{
    printf("%s: path %s\n", title, r->path);
    printf("%s: checkpoint %s\n", title, r->checkpoint ? r->checkpoint : "none");
    for (int i = 0; i < r->metrics.n; i++)
        printf("%s: %s %.6f\n", title, r->metrics.name[i], r->metrics.value[i]);
    for (int i = 0; i < r->n_series; i++)
        printf("%s: %lld reports of %s\n", title, (long long)r->series[i].n, r->series[i].name);
    if (r->error) printf("%s: error %s\n", title, r->error);
}

/* result.checkpoint.to_dict(), where it is one. */
static manta_status show_arrays(const char *path)
{
    manta_checkpoint *c;
    manta_saved *dict;
    manta_status st;

    MANTA_TRY(manta_checkpoint_open(path, &c));
    if (!(st = manta_checkpoint_arrays(c, &dict))) {
        for (int i = 0; i < manta_saved_arrays(dict); i++) {
            const manta_column *a = manta_saved_at(dict, i);
            printf("  %s:", a->name);
            for (int64_t k = 0; k < manta_array_count(&a->array); k++) {
                if (a->array.dtype == MANTA_DTYPE_F32) printf(" %.5f", (double)((float *)a->array.data)[k]);
                if (a->array.dtype == MANTA_DTYPE_I64)
                    printf(" %lld", (long long)((int64_t *)a->array.data)[k]);
            }
            printf("\n");
        }
        manta_saved_free(dict);
    }
    manta_checkpoint_close(c);
    return st;
}

typedef struct part {
    const char *name;
    manta_loop_fn *loop;
    manta_status (*data)(const char *spec, manta_dataset **out);
    int64_t epochs[2]; /* of the run, and of the one that begins from its checkpoint */
    int workers;
    bool has_arrays;
} part;

static const part parts[] = {
    {"quickstart", quickstart_loop, digit_data, {3, 4}, 4, false},
    {"folder", folder_loop, toy_data, {5, 5}, 2, false},
    {"arrays", arrays_loop, toy_data, {2, 5}, 2, true},
    {"fit", fit_loop, toy_data, {3, 5}, 2, false},
    {"autoencoder", autoencoder_loop, image_data, {2, 3}, 2, false},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static manta_status train(const part *p, manta_dataset *d, settings config, int workers, const char *from,
                          manta_result **out)
{
    return manta_trainer_fit(
        &(manta_trainer_options){.loop = p->loop,
                                 .config = &config,
                                 .config_size = sizeof config,
                                 .scaling = {.num_workers = workers},
                                 .run = {.checkpoints = {.keep = 2}},
                                 .n_datasets = 1,
                                 .datasets =
                                     &(manta_named_dataset){.name = "train", .dataset = d, .shuffle = true},
                                 .resume_from_checkpoint = from,
                                 .seed = 1},
        out);
}

static manta_status run(const part *p, const char *spec, settings given, int workers)
{
    manta_dataset *d = NULL;
    manta_result *first = NULL, *second = NULL;
    settings begin = given, go_on = given;
    manta_status st = p->data(spec, &d);

    begin.epochs = given.epochs ? given.epochs : p->epochs[0];
    go_on.epochs = given.epochs ? given.epochs + 1 : p->epochs[1];
    if (!workers) workers = p->workers;
    if (!st) st = train(p, d, begin, workers, NULL, &first);
    if (first) show("first", first);
    if (!st) st = train(p, d, go_on, workers, first->checkpoint, &second);
    if (second) show("second", second);
    if (!st && p->has_arrays) st = show_arrays(second->checkpoint);
    manta_result_free(second);
    manta_result_free(first);
    manta_dataset_unref(d);
    return st;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: train_keras_loop quickstart|folder|arrays|fit|autoencoder [--data SPEC] [--epochs N]\n"
            "       [--steps N] [--workers N]\n");
    return 2;
}

static bool read_number(const char *text, int64_t *out)
{
    char *end;

    *out = strtoll(text, &end, 10);
    return end != text && !*end && *out > 0 && *out < 10000;
}

int main(int argc, char **argv)
{
    const char *spec = "mnist";
    settings given = {.steps = 70};
    int64_t workers = 0;
    int which = 0;
    manta_status st;

    for (int i = 2; i < argc; i += 2) {
        int64_t *number = strcmp(argv[i], "--epochs") == 0    ? &given.epochs
                          : strcmp(argv[i], "--steps") == 0   ? &given.steps
                          : strcmp(argv[i], "--workers") == 0 ? &workers
                                                              : NULL;
        if (i + 1 == argc || (!number && strcmp(argv[i], "--data") != 0)) return usage();
        if (!number) spec = argv[i + 1];
        if (number && !read_number(argv[i + 1], number)) return usage();
    }
    while (which < N_PARTS && (argc < 2 || strcmp(argv[1], parts[which].name) != 0)) which++;
    if (which == N_PARTS) return usage();
    st = manta_init(&argc, &argv, NULL); /* workers are forked from here */
    if (!st) st = run(&parts[which], spec, given, (int)workers);
    if (st) fprintf(stderr, "train_keras_loop: %s\n", manta_error_text());
    manta_shutdown();
    return st ? 1 : 0;
}
