/* multi_worker_mnist.c - the multi-worker tutorial with Keras's shape, part by part.
 *
 *     multi_worker_mnist PART [OPTION VALUE]...
 *
 * The same program is every worker: TF_CONFIG in its environment says which
 * (README.md). Without TF_CONFIG it trains alone. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <manta.h>

typedef struct settings {
    const char *data, *validation; /* of manta_dataset_open() */
    const char *folder; /* where models, checkpoints, logs and backups go */
    int64_t epochs, steps, batch; /* batch: of each worker */
    int64_t every; /* backup: steps between two; 0: an epoch */
    int64_t crash_after; /* backup: steps until this process kills itself; 0: never */
    int workers; /* parameter-server */
} settings;

/* ---- the tutorial's dataset and model ---- */

/* Shuffled anew every epoch, without end, in batches. Images come as f32 in
 * [0, 1], labels as i64. */
static manta_status mnist_dataset(const char *spec, int64_t batch, manta_dataset **out)
{
    manta_dataset *d;

    MANTA_TRY(manta_dataset_open(spec, NULL, &d));
    d = manta_dataset_shuffle(d, 60000, 1);
    d = manta_dataset_repeat(d, MANTA_FOREVER_COUNT);
    *out = manta_dataset_batch(d, batch, false);
    return MANTA_OK; /* what is wrong with a stage, manta_fit() says */
}

static manta_status build_cnn_model(manta_model **out)
{
    manta_model *m = manta_model_new("mnist");

    manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}));
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){
                                           .filters = 32, .kernel_size = {3, 3}, .activation = "relu"}));
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 128, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 10}));
    *out = m;
    return manta_model_build(m);
}

/* model.compile(): what is minimised, how, and what is watched. */
static manta_status open_session(const manta_model *m, const manta_session_options *o, manta_session **out)
{
    manta_loss loss = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    manta_metric accuracy = {.name = "accuracy"};
    manta_optimizer sgd;

    MANTA_TRY(manta_optimizer_named("sgd", &sgd));
    sgd.learning_rate = 0.001;
    return manta_session_open(
        m,
        &(manta_compile){
            .optimizer = &sgd, .n_losses = 1, .losses = &loss, .n_metrics = 1, .metrics = &accuracy},
        o, out);
}

/* ---- one worker ---- */

typedef struct worker {
    const settings *o;
    manta_cluster *cluster; /* NULL: alone */
    manta_model *model;
    manta_session *session;
    manta_dataset *data; /* batches for all workers together; each takes its part */
} worker;

static manta_status worker_open(worker *w, const settings *o, manta_session_options so)
{
    w->o = o;
    MANTA_TRY(manta_cluster_open(NULL, &w->cluster));
    so.cluster = w->cluster;
    so.seed = 1;
    MANTA_TRY(mnist_dataset(o->data, o->batch * manta_cluster_size(w->cluster), &w->data));
    MANTA_TRY(build_cnn_model(&w->model));
    return open_session(w->model, &so, &w->session);
}

static void worker_close(worker *w)
{
    manta_session_close(w->session);
    manta_model_free(w->model);
    manta_dataset_unref(w->data);
    manta_cluster_close(w->cluster);
}

static bool show(void *user, manta_session *s, const manta_event *e)
{
    static char said[256];
    const manta_cluster *c = user;

    (void)s;
    if (e->kind == MANTA_EVENT_EPOCH_END) {
        printf("%s %d: epoch %lld/%lld: %lld steps, loss %.6f, accuracy %.4f\n", manta_cluster_task_type(c),
               manta_cluster_task_index(c), (long long)e->epoch + 1, (long long)e->epochs, (long long)e->step,
               manta_metrics_get(e->metrics, "loss"), manta_metrics_get(e->metrics, "accuracy"));
        fflush(stdout);
    }
    if (e->kind == MANTA_EVENT_WAITING && strcmp(said, e->cause) != 0) { /* it comes again and again */
        snprintf(said, sizeof said, "%s", e->cause);
        fprintf(stderr, "%s\n", said);
    }
    return true;
}

static manta_status fit(worker *w, int64_t epochs, int64_t steps, int n, manta_callback *const *callbacks)
{
    manta_fit_options fo = {.epochs = epochs,
                            .steps_per_epoch = steps,
                            .no_shuffle = true, /* the dataset does it */
                            .event = show,
                            .user = w->cluster,
                            .n_callbacks = n,
                            .callbacks = callbacks};

    return manta_fit(w->session, w->data, &fo, NULL);
}

/* As the tutorial goes on with what it has loaded: two short epochs. */
static manta_status fit_on(worker *w)
{
    return fit(w, 2, w->o->steps < 20 ? w->o->steps : 20, 0, NULL);
}

/* ---- places ---- */

static manta_status make_folder(const char *path)
{
    if (mkdir(path, 0777) && errno != EEXIST)
        return manta_fail(MANTA_EIO, "cannot make %s: %s", path, strerror(errno));
    return MANTA_OK;
}

typedef struct place {
    char folder[1024]; /* the chief's own, or a temporary one; "" for nothing to remove */
    char path[1100];
} place;

/* Where this worker writes what is called `name`: the chief to its place, every
 * other one to a temporary folder beside it, since all of them have to save. */
static manta_status write_place(const worker *w, const char *name, place *p)
{
    memset(p, 0, sizeof *p);
    MANTA_TRY(make_folder(w->o->folder));
    if (manta_cluster_is_chief(w->cluster)) {
        snprintf(p->path, sizeof p->path, "%s/%s", w->o->folder, name);
        return MANTA_OK;
    }
    snprintf(p->folder, sizeof p->folder, "%s/workertemp_%d", w->o->folder,
             manta_cluster_task_index(w->cluster));
    snprintf(p->path, sizeof p->path, "%s/%s", p->folder, name);
    return make_folder(p->folder);
}

static manta_status remove_temporary(const place *p)
{
    if (!*p->folder) return MANTA_OK;
    if ((remove(p->path) && errno != ENOENT) || rmdir(p->folder))
        return manta_fail(MANTA_EIO, "cannot remove %s: %s", p->folder, strerror(errno));
    return MANTA_OK;
}

/* ---- the parts ---- */

static manta_status part_train(worker *w)
{
    return fit(w, w->o->epochs, w->o->steps, 0, NULL);
}

static bool show_validation(void *user, manta_session *s, const manta_event *e)
{
    if (e->kind == MANTA_EVENT_EPOCH_END)
        printf("%s %d: val_loss %.6f, val_accuracy %.4f\n", manta_cluster_task_type(user),
               manta_cluster_task_index(user), manta_metrics_get(e->metrics, "val_loss"),
               manta_metrics_get(e->metrics, "val_accuracy"));
    return show(user, s, e);
}

/* Training and evaluation in turn, both by all workers; a dataset that repeats, so
 * that validation_steps says how much of it. All have the same result. */
static manta_status part_validation(worker *w)
{
    manta_dataset *d;
    manta_status st = mnist_dataset(w->o->validation, w->o->batch * manta_cluster_size(w->cluster), &d);

    if (st) return st;
    st = manta_fit(w->session, w->data,
                   &(manta_fit_options){.epochs = w->o->epochs,
                                        .steps_per_epoch = w->o->steps,
                                        .no_shuffle = true,
                                        .validation = d,
                                        .validation_steps = 10,
                                        .event = show_validation,
                                        .user = w->cluster},
                   NULL);
    manta_dataset_unref(d);
    return st;
}

/* Every worker saves, each to a place of its own; the chief's stays. */
static manta_status part_save(worker *w)
{
    place p;

    MANTA_TRY(part_train(w));
    MANTA_TRY(write_place(w, "keras-model.keras", &p));
    MANTA_TRY(manta_session_save(w->session, p.path));
    printf("saved %s\n", p.path);
    return remove_temporary(&p);
}

/* Continues on one worker with what several have trained: model, weights,
 * optimizer and what it was compiled with come from the file. */
static manta_status part_load(worker *w)
{
    char path[1100];
    manta_saved *saved;
    manta_optimizer optimizer;
    manta_compile c = {.optimizer = &optimizer};
    manta_status st;

    snprintf(path, sizeof path, "%s/keras-model.keras", w->o->folder);
    MANTA_TRY(manta_file_read(path, NULL, &saved));
    manta_session_close(w->session);
    w->session = NULL;
    manta_model_free(w->model);
    w->model = manta_saved_take_model(saved);
    if (!(st = manta_saved_optimizer(saved, &optimizer)) &&
        !(st = manta_saved_losses(saved, &c.n_losses, &c.losses)) &&
        !(st = manta_saved_metrics(saved, &c.n_metrics, &c.metrics)) &&
        !(st = manta_session_open(w->model, &c, &(manta_session_options){.cluster = w->cluster, .seed = 1},
                                  &w->session)))
        st = manta_session_restore(w->session, saved, false);
    manta_saved_free(saved);
    return st ? st : fit_on(w);
}

/* A checkpoint manager that keeps one; then training goes on from the latest. */
static manta_status part_checkpoint(worker *w)
{
    manta_checkpoints *manager;
    manta_checkpoint *latest = NULL;
    place p;
    manta_status st;

    MANTA_TRY(part_train(w));
    MANTA_TRY(write_place(w, "ckpt", &p));
    MANTA_TRY(manta_checkpoints_open(p.path, &(manta_checkpoints_options){.keep = 1}, &manager));
    st = manta_checkpoints_save(manager, w->session, &(manta_checkpoint_info){.epoch = w->o->epochs}, true);
    if (!st) st = manta_checkpoints_wait(manager); /* it is on the disk now */
    if (!st && !(st = manta_checkpoints_latest(manager, &latest, NULL))) {
        printf("checkpoint %lld of %d kept, epoch %lld\n", (long long)manta_checkpoint_get(latest)->sequence,
               manta_checkpoints_count(manager), (long long)manta_checkpoint_get(latest)->epoch);
        st = manta_session_from_checkpoint(w->session, latest, true);
    }
    manta_checkpoint_close(latest);
    if (!st && *p.folder) st = manta_checkpoints_clear(manager);
    manta_checkpoints_close(manager);
    if (!st) st = remove_temporary(&p);
    return st ? st : fit_on(w);
}

/* ---- a callback of one's own: the crash ---- */

static manta_status crash_batch_end(void *self, manta_fit_context *f)
{
    int64_t *left = self;

    (void)f;
    if (--*left == 0) raise(SIGKILL); /* as if the machine were gone */
    return MANTA_OK;
}

static const manta_callback_ops crash_ops = {.name = "crash", .train_batch_end = crash_batch_end};

/* Started again after a crash, it goes on where the backup was made, and ends
 * with the same weights as if nothing had been. The backup is removed then. */
static manta_status part_backup(worker *w)
{
    int64_t left = w->o->crash_after;
    manta_callback *list[2];
    char path[1100];
    manta_status st;

    MANTA_TRY(make_folder(w->o->folder));
    snprintf(path, sizeof path, "%s/backup-%d", w->o->folder, manta_cluster_task_index(w->cluster));
    list[0] = manta_backup_and_restore(path, &(manta_backup_options){.every_steps = w->o->every});
    list[1] = manta_callback_new(&crash_ops, &left);
    st = fit(w, w->o->epochs, w->o->steps, left ? 2 : 1, list);
    manta_callback_free(list[0]);
    manta_callback_free(list[1]);
    snprintf(path, sizeof path, "%s/backed-up.keras", w->o->folder);
    if (!st && manta_cluster_is_chief(w->cluster)) st = manta_session_save(w->session, path);
    return st;
}

/* ---- callbacks ---- */

static double halve(void *user, int64_t epoch, double rate)
{
    (void)user;
    return epoch ? rate / 2 : rate;
}

static manta_status part_callbacks(worker *w)
{
    char csv[1100], board[1100], model[1100];
    manta_callback *list[5];
    manta_status st;

    MANTA_TRY(make_folder(w->o->folder));
    snprintf(csv, sizeof csv, "%s/log.csv", w->o->folder);
    snprintf(board, sizeof board, "%s/logs", w->o->folder);
    snprintf(model, sizeof model, "%s/epoch-{epoch:02d}.keras", w->o->folder);
    list[0] = manta_learning_rate_scheduler(halve, NULL);
    list[1] = manta_early_stopping(&(manta_early_stopping_options){.monitor = "loss", .patience = 2});
    list[2] = manta_terminate_on_nan();
    list[3] = manta_model_checkpoint(
        model, &(manta_model_checkpoint_options){.monitor = "loss", .save_best_only = true});
    list[4] = manta_csv_logger(csv, NULL);
    manta_callback *chief = manta_tensorboard(board, NULL);
    manta_callback *all[] = {list[0], list[1], list[2], list[3], list[4], chief};
    /* Those that write are the chief's; those that decide are everybody's. */
    st = fit(w, w->o->epochs, w->o->steps, manta_cluster_is_chief(w->cluster) ? 6 : 3, all);
    for (int i = 0; i < 6; i++) manta_callback_free(all[i]);
    return st;
}

/* ---- which part ---- */

static const struct {
    const char *name, *about;
    manta_status (*run)(worker *w);
} parts[] = {
    {"train", "epochs of a number of steps", part_train},
    {"validation", "train, and evaluate on 10 batches after every epoch", part_validation},
    {"save", "train; every worker saves, the chief's model stays", part_save},
    {"load", "go on alone with the saved model", part_load},
    {"checkpoint", "train, save with a checkpoint manager, restore the latest, go on", part_checkpoint},
    {"backup", "train with backups; started again after a crash, go on", part_backup},
    {"callbacks", "train with a list of callbacks", part_callbacks},
    {"parameter-server", "train asynchronously: a server and --workers workers", part_train},
};
enum { N_PARTS = sizeof parts / sizeof *parts };

static int usage(void)
{
    fprintf(stderr, "usage: multi_worker_mnist PART [--data SPEC] [--validation SPEC] [--folder FOLDER] "
                    "[--epochs N] [--steps N]\n"
                    "       [--batch N] [--workers N] [--every STEPS] [--crash-after STEPS]\n");
    for (int i = 0; i < N_PARTS; i++) fprintf(stderr, "  %-17s %s\n", parts[i].name, parts[i].about);
    return 2;
}

static bool read_number(const char *text, int64_t *out)
{
    char *end;

    errno = 0;
    *out = strtoll(text, &end, 10);
    return !errno && end != text && !*end && *out >= 0 && *out < 1000000;
}

static bool read_options(int argc, char **argv, settings *o)
{
    int64_t workers = o->workers;
    const struct {
        const char *name;
        int64_t *number;
        const char **text;
    } known[] = {
        {"--data", NULL, &o->data},
        {"--folder", NULL, &o->folder},
        {"--validation", NULL, &o->validation},
        {"--epochs", &o->epochs, NULL},
        {"--steps", &o->steps, NULL},
        {"--batch", &o->batch, NULL},
        {"--every", &o->every, NULL},
        {"--workers", &workers, NULL},
        {"--crash-after", &o->crash_after, NULL},
    };

    for (int i = 2; i < argc; i += 2) {
        size_t k = 0;
        while (k < sizeof known / sizeof *known && strcmp(argv[i], known[k].name) != 0) k++;
        if (k == sizeof known / sizeof *known || i + 1 == argc) return false;
        if (known[k].text)
            *known[k].text = argv[i + 1];
        else if (!read_number(argv[i + 1], known[k].number))
            return false;
    }
    o->workers = (int)workers;
    return o->batch > 0 && o->workers > 0;
}

int main(int argc, char **argv)
{
    settings o = {.data = "mnist",
                  .validation = "mnist:test",
                  .folder = "mnist-run",
                  .epochs = 3,
                  .steps = 70,
                  .batch = 64,
                  .workers = 2};
    manta_session_options so = {0};
    worker w = {0};
    manta_status st;
    int part = 0;

    if (argc < 2 || !read_options(argc, argv, &o)) return usage();
    while (part < N_PARTS && strcmp(argv[1], parts[part].name) != 0) part++;
    if (part == N_PARTS) return usage();
    if (strcmp(argv[1], "parameter-server") == 0) {
        so.strategy = MANTA_STRATEGY_PARAMETER_SERVER;
        so.workers = o.workers;
    }
    st = worker_open(&w, &o, so);
    if (!st) st = parts[part].run(&w);
    if (st) fprintf(stderr, "multi_worker_mnist: %s\n", manta_error_text());
    worker_close(&w);
    return st ? 1 : 0;
}
