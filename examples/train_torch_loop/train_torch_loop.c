/* train_torch_loop.c - a loop with PyTorch's shape, run by the trainer in several workers.
 *
 *     train_torch_loop [--data SPEC] [--epochs N] [--batch N] [--workers N] [--name NAME] [--resume 1]
 *     train_torch_loop --alone 1 [--data SPEC] [--epochs N] [--batch N]
 *
 * ResNet-18 on Fashion-MNIST with Adam: the model and the loader are prepared,
 * every rank computes batches of its own part of the data, and each epoch is
 * reported with a checkpoint, which holds a state dict that torch.load() reads
 * (README.md). With --alone the same loop runs in this process, without a trainer. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <manta.h>

/* The loop's config: copied to every worker, so no pointers. */
typedef struct settings {
    int64_t epochs, batch; /* batch: of each worker */
} settings;

typedef struct training {
    manta_worker *w;
    manta_model *model;
    manta_session *session;
    manta_loader *loader;
    int64_t steps; /* of an epoch, of the rank that has most */
} training;

/* ---- in the workers ---- */

static const manta_loss criterion = {.name = "sparse_categorical_crossentropy", .from_logits = true};
static const manta_metric accuracy = {.name = "accuracy"};

/* torchvision's, with one channel and ten classes, started as PyTorch starts it. */
static manta_status model_and_optimizer(manta_model **m, manta_optimizer *adam)
{
    MANTA_TRY(manta_zoo("resnet18", m));
    MANTA_TRY(manta_optimizer_named("torch.adam", adam));
    adam->learning_rate = 0.001;
    return MANTA_OK;
}

static manta_status open_training(training *t, int64_t batch)
{
    manta_optimizer adam;

    MANTA_TRY(model_and_optimizer(&t->model, &adam));
    /* Statistics of batch norm, gradients and weights are one for all ranks. When
     * there is a checkpoint to begin from that this kind of session wrote, its
     * state is taken; ours is a folder of its own, read below. */
    MANTA_TRY(manta_prepare_model(
        t->w, t->model,
        &(manta_compile){
            .optimizer = &adam, .n_losses = 1, .losses = &criterion, .n_metrics = 1, .metrics = &accuracy},
        NULL, &t->session));
    /* The distributed sampler: every rank its own part, shuffled anew each epoch. */
    return manta_prepare_loader(t->w, "train", &(manta_loader_options){.batch_size = batch}, &t->loader,
                                &t->steps);
}

/* The weights of the checkpoint that this run, or this attempt, begins from. */
static manta_status load_state_dict(training *t)
{
    const manta_checkpoint *c = manta_worker_checkpoint(t->w);
    char path[1200];

    if (!c) return MANTA_OK;
    snprintf(path, sizeof path, "%s/model.pth", manta_checkpoint_path(c));
    printf("begins from %s\n", path);
    return manta_session_load(t->session, path, true);
}

/* One epoch, step by step; *m: loss and accuracy over all ranks. */
static manta_status train_epoch(training *t, int64_t epoch, manta_metrics *m)
{
    MANTA_TRY(manta_loader_seek(t->loader, epoch, 0)); /* sampler.set_epoch(epoch) */
    manta_session_reset_metrics(t->session);
    for (int64_t step = 0; step < t->steps; step++) {
        manta_feed f = {.n_inputs = 1, .n_targets = 1};
        manta_batch b;
        if (step < manta_loader_steps(t->loader)) {
            if (!manta_loader_next(t->loader, &b)) return manta_loader_status(t->loader);
            f.count = b.count;
            f.first = b.first;
            f.inputs[0] = *manta_batch_find(&b, "x");
            f.targets[0] = *manta_batch_find(&b, "y");
        }
        /* outputs = model(images); loss = criterion(outputs, labels);
         * optimizer.zero_grad(); loss.backward(); optimizer.step() */
        MANTA_TRY(manta_worker_train_step(t->w, t->session, &f));
    }
    return manta_worker_metrics(t->w, t->session, m);
}

/* torch.save(model.state_dict()), then train.report(metrics, checkpoint): rank 0
 * has the files, the others have none to add. */
static manta_status report_epoch(training *t, const manta_metrics *m, int64_t epoch)
{
    char *folder, path[1200];
    manta_status st;

    if (manta_worker_rank(t->w)) return manta_report_checkpoint(t->w, m, NULL, NULL);
    MANTA_TRY(manta_worker_temp_folder(t->w, &folder));
    snprintf(path, sizeof path, "%s/model.pth", folder);
    if (!(st = manta_session_save(t->session, path)))
        st = manta_report_checkpoint(t->w, m, folder, &(manta_checkpoint_info){.epoch = epoch + 1});
    free(folder);
    return st;
}

static manta_status train_epochs(training *t)
{
    const settings *c = manta_worker_config(t->w, NULL);
    manta_metrics m;

    MANTA_TRY(open_training(t, c->batch));
    MANTA_TRY(load_state_dict(t));
    printf("rank %d of %d: %lld images, %lld steps of %lld\n", manta_worker_rank(t->w),
           manta_worker_world_size(t->w), (long long)manta_loader_samples(t->loader), (long long)t->steps,
           (long long)c->batch * manta_worker_world_size(t->w));
    for (int64_t e = manta_worker_epoch(t->w); e < c->epochs && !manta_worker_should_stop(t->w); e++) {
        MANTA_TRY(train_epoch(t, e, &m));
        MANTA_TRY(report_epoch(t, &m, e));
    }
    return MANTA_OK;
}

static manta_status train_func(manta_worker *w)
{
    training t = {.w = w};
    manta_status st = train_epochs(&t);

    manta_loader_close(t.loader);
    manta_session_close(t.session);
    manta_model_free(t.model);
    return st;
}
MANTA_LOOP(train_func)

/* ---- in the driver ---- */

/* Compose([ToTensor(), Normalize((0.5,), (0.5,))]): [0, 1], then [-1, 1]. */
static manta_status images(const char *spec, manta_dataset **out)
{
    MANTA_TRY(manta_dataset_open(spec, NULL, out));
    *out = manta_dataset_normalize(*out, "x", 1, (float[]){0.5F}, (float[]){0.5F});
    return manta_dataset_status(*out);
}

static void show(const manta_result *r)
{
    printf("path %s\n", r->path);
    for (int i = 0; i < r->metrics.n; i++) printf("%s %.6f\n", r->metrics.name[i], r->metrics.value[i]);
    printf("checkpoint %s\n", r->checkpoint ? r->checkpoint : "none");
    printf("error %s\n", r->error ? r->error : "none");
}

typedef struct arguments {
    settings config;
    const char *data, *name;
    int64_t workers, resume, alone;
} arguments;

/* ---- without a trainer ---- */

/* One epoch in this process; *loss: of its last batch. */
static manta_status alone_epoch(training *t, int64_t epoch, double *loss)
{
    manta_batch b;

    MANTA_TRY(manta_loader_seek(t->loader, epoch, 0));
    while (manta_loader_next(t->loader, &b)) {
        manta_feed f = {.count = b.count, .first = b.first, .n_inputs = 1, .n_targets = 1};
        f.inputs[0] = *manta_batch_find(&b, "x");
        f.targets[0] = *manta_batch_find(&b, "y");
        MANTA_TRY(manta_session_loss(t->session, &f, loss)); /* criterion(model(images), labels) */
        MANTA_TRY(manta_session_backward(t->session, &f)); /* optimizer.zero_grad(); loss.backward() */
        MANTA_TRY(manta_session_apply(t->session, NULL)); /* optimizer.step() */
    }
    return manta_loader_status(t->loader);
}

static manta_status alone_epochs(training *t, manta_dataset *d, const settings *c)
{
    const char *temp = getenv("TMPDIR");
    char path[1200];
    manta_optimizer adam;
    double loss = 0;

    MANTA_TRY(model_and_optimizer(&t->model, &adam));
    MANTA_TRY(manta_session_open(t->model,
                                 &(manta_compile){.optimizer = &adam, .n_losses = 1, .losses = &criterion},
                                 &(manta_session_options){.seed = 1}, &t->session));
    MANTA_TRY(manta_loader_open(
        d, &(manta_loader_options){.batch_size = c->batch, .sampler = MANTA_SAMPLER_RANDOM, .seed = 1},
        &t->loader));
    snprintf(path, sizeof path, "%s/model.pth", temp && *temp ? temp : "/tmp");
    for (int64_t e = 0; e < c->epochs; e++) {
        MANTA_TRY(alone_epoch(t, e, &loss));
        MANTA_TRY(manta_session_save(t->session, path)); /* torch.save(model.state_dict(), path) */
        printf("epoch %lld: loss %.6f, saved %s\n", (long long)e + 1, loss, path);
    }
    return MANTA_OK;
}

static manta_status run_alone(const arguments *a)
{
    manta_dataset *d = NULL;
    training t = {0};
    manta_status st = images(a->data, &d);

    if (!st) st = alone_epochs(&t, d, &a->config);
    manta_loader_close(t.loader);
    manta_session_close(t.session);
    manta_model_free(t.model);
    manta_dataset_unref(d);
    return st;
}

/* ---- with one ---- */

static manta_status run(const arguments *a)
{
    manta_dataset *d = NULL;
    manta_result *r = NULL;
    manta_status st = images(a->data, &d);
    manta_named_dataset train = {.name = "train", .dataset = d, .shuffle = true};

    if (!st)
        st = manta_trainer_fit(
            &(manta_trainer_options){
                .loop = train_func,
                .config = &a->config,
                .config_size = sizeof a->config,
                .scaling = {.num_workers = (int)a->workers},
                .run = {.name = a->name, .resume = a->resume != 0, .checkpoints = {.keep = 1}},
                .n_datasets = 1,
                .datasets = &train,
                .seed = 1},
            &r);
    if (r) show(r);
    manta_result_free(r);
    manta_dataset_unref(d);
    return st;
}

static bool read_number(const char *text, int64_t *out)
{
    char *end;

    *out = strtoll(text, &end, 10);
    return end != text && !*end && *out > 0 && *out < 10000;
}

static bool read_arguments(int argc, char **argv, arguments *a)
{
    for (int i = 1; i < argc; i += 2) {
        int64_t *number = NULL;
        if (i + 1 == argc) return false;
        if (strcmp(argv[i], "--epochs") == 0) number = &a->config.epochs;
        if (strcmp(argv[i], "--batch") == 0) number = &a->config.batch;
        if (strcmp(argv[i], "--workers") == 0) number = &a->workers;
        if (strcmp(argv[i], "--resume") == 0) number = &a->resume;
        if (strcmp(argv[i], "--alone") == 0) number = &a->alone;
        if (number) {
            if (!read_number(argv[i + 1], number)) return false;
        } else if (strcmp(argv[i], "--data") == 0) {
            a->data = argv[i + 1];
        } else if (strcmp(argv[i], "--name") == 0) {
            a->name = argv[i + 1];
        } else {
            return false;
        }
    }
    return true;
}

int main(int argc, char **argv)
{
    arguments a = {.config = {.epochs = 10, .batch = 128}, .data = "fashion-mnist", .workers = 2};
    manta_status st;

    if (!read_arguments(argc, argv, &a)) {
        fprintf(stderr, "usage: train_torch_loop [--data SPEC] [--epochs N] [--batch N] [--workers N]\n"
                        "       [--name NAME] [--resume 1] [--alone 1]\n");
        return 2;
    }
    if (a.alone) {
        st = run_alone(&a);
    } else {
        st = manta_init(&argc, &argv, NULL); /* workers are forked from here */
        if (!st) st = run(&a);
    }
    if (st) fprintf(stderr, "train_torch_loop: %s\n", manta_error_text());
    manta_shutdown();
    return st ? 1 : 0;
}
