/* A small training for the tests of several workers: a model with everything
 * that has state or chance (convolutions with a residual, batch norm, dropout),
 * data that it can learn, and the whole state at the end, byte by byte. */
#ifndef GROUP_FIXTURE_H
#define GROUP_FIXTURE_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <manta/callback.h>
#include <manta/layer.h>

#include "base/mem.h"
#include "ok.h"
#include "temp.h"
#include "train/session/session.h"
#include "train/session/shared.h"

enum { N = 90 };

#include "corner_data.h"

static inline manta_model *residual_model(manta_regularizer reg)
{
    manta_model *m = manta_model_new("residual");
    manta_value x = manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1}), y;

    x = manta_call(
        m, manta_conv2d(m, (manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}, .padding = "same"}),
        x);
    x = manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    y = manta_call(m,
                   manta_conv2d(m, (manta_conv2d_options){.filters = 8,
                                                          .kernel_size = {3, 3},
                                                          .padding = "same",
                                                          .activation = "relu",
                                                          .kernel_regularizer = reg}),
                   x);
    y = manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), y);
    x = manta_call_n(m, manta_merge_add(m), 2, (manta_value[]){x, y});
    x = manta_call(m, manta_flatten(m), x);
    x = manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.2}), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 32, .activation = "relu"}), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = CLASSES}), x);
    manta_output(m, x);
    assert_ok(manta_model_build(m));
    return m;
}

/* One training of it. */
typedef struct training {
    int workers, min_workers, threads, shards;
    manta_cluster *cluster;
    manta_statistics statistics;
    int servers; /* parameter servers */
    int64_t staleness;
    bool hard; /* Adam with clipping by global norm, moving averages, a regulariser; else momentum */
    bool validate, no_shuffle;
    const char *precision;
    int64_t epochs, steps_per_epoch;
    int64_t global_batch; /* 0: 32; negative: the data has batches of its own */
    manta_event_fn event;
    void *user;
    int64_t event_interval_ms;
    manta_callback *callback; /* NULL: none; borrowed */
    int64_t deadline_ms;
    int max_failures;
    manta_dataset *data; /* NULL: the images; taken */
} training;

typedef struct outcome {
    manta_status st;
    void *state;
    size_t size;
    size_t share; /* where in it the regulariser's share of the loss is */
    manta_metrics metrics;
    manta_error error;
} outcome;

static inline outcome train(const training *t)
{
    static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
    static const manta_metric accuracy = {.name = "accuracy"};
    manta_model *m = residual_model(t->hard ? (manta_regularizer){.l2 = 0.01f} : (manta_regularizer){0});
    manta_dataset *d = t->data ? t->data : dataset();
    manta_optimizer opt;
    manta_session *s = NULL;
    outcome out = {0};

    assert_ok(manta_optimizer_named(t->hard ? "adam" : "sgd", &opt));
    opt.learning_rate = 0.01;
    if (t->hard) {
        opt.global_clipnorm = 0.5;
        opt.use_ema = true;
        opt.ema_momentum = 0.9;
    } else {
        opt.momentum = 0.9;
    }
    assert_ok(manta_session_open(
        m,
        &(manta_compile){
            .optimizer = &opt, .n_losses = 1, .losses = &cross_entropy, .n_metrics = 1, .metrics = &accuracy},
        &(manta_session_options){.seed = 42,
                                 .workers = t->workers,
                                 .cluster = t->cluster,
                                 .min_workers = t->min_workers,
                                 .threads = t->threads ? t->threads : 1,
                                 .shards = t->shards,
                                 .statistics = t->statistics,
                                 .precision = t->precision,
                                 .strategy =
                                     t->servers ? MANTA_STRATEGY_PARAMETER_SERVER : MANTA_STRATEGY_SYNC,
                                 .servers = t->servers,
                                 .staleness = t->staleness},
        &s));
    out.st = manta_fit(s, d,
                       &(manta_fit_options){.epochs = t->epochs ? t->epochs : 2,
                                            .global_batch = t->global_batch < 0 ? 0
                                                            : t->global_batch   ? t->global_batch
                                                                                : 32,
                                            .steps_per_epoch = t->steps_per_epoch,
                                            .validation = t->validate ? d : NULL,
                                            .no_shuffle = t->no_shuffle,
                                            .event = t->event,
                                            .user = t->user,
                                            .event_interval_ms = t->event_interval_ms,
                                            .n_callbacks = t->callback != NULL,
                                            .callbacks = &(manta_callback *){t->callback},
                                            .worker_deadline_ms = t->deadline_ms,
                                            .max_failures = t->max_failures},
                       &out.metrics);
    manta_error_get(&out.error);
    out.size = s->l.state_size;
    out.share = s->l.off_run + sizeof(run_state) + (size_t)s->l.n_sums * sizeof(double);
    out.state = mem_try(out.size);
    memcpy(out.state, s->state, out.size);
    manta_session_close(s);
    manta_dataset_unref(d);
    manta_model_free(m);
    return out;
}

static inline void assert_same_outcome(const outcome *a, const outcome *b)
{
    if (b->st) fail_msg("%s: %s", manta_status_name(b->st), b->error.text);
    assert_int_equal(a->size, b->size);
    assert_memory_equal(a->state, b->state, a->size);
    assert_int_equal(a->metrics.n, b->metrics.n);
    for (int i = 0; i < a->metrics.n; i++) {
        assert_string_equal(a->metrics.name[i], b->metrics.name[i]);
        assert_memory_equal(&a->metrics.value[i], &b->metrics.value[i], sizeof(double));
    }
}

/* No child is left, dead or alive. */
static inline void assert_childless(void)
{
    assert_int_equal(waitpid(-1, NULL, WNOHANG | __WALL), -1);
    assert_int_equal(errno, ECHILD);
}

/* ---- a group of tests with the data, and a cluster key of its own ---- */

static char key_folder[64];

static inline int data_and_key(void **state)
{
    (void)state;
    make_data();
    if (!temp_folder(key_folder, sizeof key_folder, "/tmp", "key")) return -1;
    return setenv("XDG_CONFIG_HOME", key_folder, 1);
}

static inline int remove_key(void **state)
{
    char path[128];

    (void)state;
    snprintf(path, sizeof path, "%s/manta/cluster.key", key_folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/manta", key_folder);
    rmdir(path);
    return rmdir(key_folder);
}

#endif
