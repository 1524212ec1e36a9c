/* random_training.h - a training that follows from a seed: what it reads, its model, its optimizer, how many shards,
 * epochs and steps. It is drawn anew, to the same, in every process that takes part. */
#ifndef TEST_RANDOM_TRAINING_H
#define TEST_RANDOM_TRAINING_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include <manta/data_file.h>
#include <manta/layer.h>
#include <manta/train.h>

#include "base/buf.h"
#include "base/rng.h"

enum { MOST_SAMPLES = 64, MOST_SIDE = 9, CLASSES = 3 };

/* ---- chance ---- */

typedef struct dice {
    rng_key key;
    uint64_t at;
} dice;

static inline int roll(dice *d, int n)
{
    return (int)rng_below(d->key, d->at++, (uint64_t)n);
}

static inline int between(dice *d, int low, int high)
{
    return low + roll(d, high - low + 1);
}

static inline bool flip(dice *d)
{
    return roll(d, 2) == 1;
}

/* ---- what must be ---- */

/* Whether this is a process of a training that is not the test's own: cmocka is not at home there. */
static bool in_rank;

static unsigned long long seed_in_hand;

/* The call succeeds, or it is the end: of the test, or of a process that takes part in a training. */
static inline void must(manta_status st)
{
    if (!st) return;
    if (!in_rank) fail_msg("seed %llu: %s: %s", seed_in_hand, manta_status_name(st), manta_error_text());
    fprintf(stderr, "seed %llu, a rank: %s: %s\n", seed_in_hand, manta_status_name(st), manta_error_text());
    _exit(9);
}

/* ---- a training ---- */

typedef enum source {
    SOURCE_ARRAYS,
    SOURCE_NPY,
    SOURCE_NPZ,
    SOURCE_CSV,
    SOURCE_TFRECORD,
    SOURCE_PARQUET,
    SOURCE_PICTURES, /* a folder of PNG and JPEG files */
    SOURCES
} source;

typedef struct training {
    uint64_t seed;
    char folder[300]; /* of its files; a process that draws the training is told */
    bool images, classes; /* what it reads, and whether it learns classes or a number */
    int side, channels, features, samples;
    source source;
    char spec[700]; /* of the dataset, where it lies in files, and how it is opened: write_data()'s */
    manta_open_options open;
    manta_optimizer optimizer;
    manta_statistics statistics;
    int shards, epochs, batch, steps;
    bool no_shuffle, validates;
    int event_ms;
    buf words;
} training;

static inline void draw_optimizer(dice *d, manta_optimizer *o)
{
    static const char *const names[] = {"sgd", "adam", "adamw", "rmsprop", "torch.sgd", "torch.adam"};
    int which = roll(d, 6);

    must(manta_optimizer_named(names[which], o));
    o->learning_rate = 0.01;
    if ((which == 0 || which == 4) && flip(d)) {
        o->momentum = 0.9;
        o->nesterov = flip(d);
    }
    switch (roll(d, 5)) {
    case 0: o->clipvalue = 0.1; break;
    case 1: o->clipnorm = 0.5; break;
    case 2: o->global_clipnorm = 0.5; break;
    default: break;
    }
    if (!roll(d, 4)) o->gradient_accumulation_steps = between(d, 2, 3);
    if (!roll(d, 3)) {
        o->use_ema = true;
        o->ema_momentum = 0.9;
    }
    if (!roll(d, 3))
        o->schedule = (manta_schedule){.kind = MANTA_SCHEDULE_EXPONENTIAL,
                                       .initial_learning_rate = 0.02,
                                       .decay_steps = 5,
                                       .decay_rate = 0.7};
}

static inline training draw_training(uint64_t seed, const char *folder)
{
    static const char *const sources[] = {"arrays", "npy", "npz", "CSV", "TFRecord", "Parquet", "pictures"};
    dice dice_of_it = {.key = rng_make(seed, 1)}, *d = &dice_of_it;
    training t = {.seed = seed};

    seed_in_hand = seed;
    t.images = flip(d);
    t.classes = flip(d);
    snprintf(t.folder, sizeof t.folder, "%s", folder);
    t.side = between(d, 4, MOST_SIDE);
    t.channels = between(d, 1, 3);
    t.features = between(d, 1, 17);
    t.samples = between(d, 3, MOST_SAMPLES);
    t.source = (source)roll(d, SOURCES);
    if (t.source == SOURCE_CSV) t.images = false;
    if (t.source == SOURCE_PICTURES) t.images = t.classes = true;
    draw_optimizer(d, &t.optimizer);
    t.statistics = (manta_statistics)roll(d, 3);
    t.shards = between(d, 1, 5);
    t.epochs = between(d, 1, 3);
    t.batch = between(d, 1, t.samples + 3);
    t.steps = roll(d, 3) ? 0 : between(d, 1, 5);
    t.no_shuffle = flip(d);
    t.validates = !roll(d, 3);
    t.event_ms = roll(d, 3) ? 0 : 1;
    buf_printf(&t.words,
               "%d samples of %s, %s, %s, %s, batches of %d, %d shards, %d epochs of %d steps, "
               "statistics %d%s%s",
               t.samples, t.images ? "images" : "features", sources[t.source],
               t.classes ? "classes" : "numbers", manta_optimizer_name(&t.optimizer), t.batch, t.shards,
               t.epochs, t.steps, (int)t.statistics, t.no_shuffle ? ", in order" : "",
               t.validates ? ", validated" : "");
    return t;
}

/* ---- its model ---- */

static inline const char *draw_activation(dice *d)
{
    static const char *const names[] = {NULL, "relu", "tanh", "sigmoid", "elu", "gelu", "swish"};

    return names[roll(d, 7)];
}

static inline manta_regularizer draw_regularizer(dice *d)
{
    return roll(d, 4) ? (manta_regularizer){0} : (manta_regularizer){.l1 = 0.001f, .l2 = 0.01f};
}

/* A convolution that keeps the size, and now and then what it was given added to it. */
static inline manta_value add_convolution(manta_model *m, dice *d, manta_value x, int64_t filters)
{
    manta_conv2d_options o = {.filters = filters,
                              .kernel_size = {between(d, 1, 3), between(d, 1, 3)},
                              .padding = "same",
                              .activation = draw_activation(d),
                              .no_bias = flip(d),
                              .kernel_regularizer = draw_regularizer(d)};
    manta_value y = manta_call(m, manta_conv2d(m, o), x);

    o.padding = "same";
    return roll(d, 3) ? y
                      : manta_call_n(m, manta_merge_add(m), 2,
                                     (manta_value[]){y, manta_call(m, manta_conv2d(m, o), y)});
}

static inline manta_value add_image_layer(manta_model *m, dice *d, manta_value x, buf *words)
{
    static const char *const names[] = {"conv",     "depthwise", "batch norm",
                                        "max pool", "mean pool", "dropout"};
    int which = roll(d, 6);

    buf_printf(words, " %s", names[which]);
    switch (which) {
    case 0: return add_convolution(m, d, x, between(d, 1, 6));
    case 1:
        return manta_call(m,
                          manta_depthwise_conv2d(
                              m, (manta_depthwise_conv2d_options){.kernel_size = {3, 3}, .padding = "same"}),
                          x);
    case 2: return manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    case 3:
        return manta_call(
            m, manta_max_pooling2d(m, (manta_pooling2d_options){.strides = {1, 1}, .padding = "same"}), x);
    case 4:
        return manta_call(
            m, manta_average_pooling2d(m, (manta_pooling2d_options){.strides = {1, 1}, .padding = "same"}),
            x);
    default: return manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.3}), x);
    }
}

static inline manta_value add_flat_layer(manta_model *m, dice *d, manta_value x, buf *words)
{
    static const char *const names[] = {"dense", "layer norm", "batch norm", "dropout"};
    int which = roll(d, 4);

    buf_printf(words, " %s", names[which]);
    switch (which) {
    case 0:
        return manta_call(m,
                          manta_dense(m, (manta_dense_options){.units = between(d, 1, 9),
                                                               .activation = draw_activation(d),
                                                               .no_bias = flip(d),
                                                               .kernel_regularizer = draw_regularizer(d)}),
                          x);
    case 1: return manta_call(m, manta_layer_normalization(m, (manta_layer_normalization_options){0}), x);
    case 2: return manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    default: return manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.2}), x);
    }
}

/* A model of samples like x, equal for equal seeds however often it is asked for. */
static inline manta_model *model_of(const training *t, const manta_column_spec *x_spec, buf *words)
{
    manta_model *m = manta_model_new("random");
    dice d = {.key = rng_make(t->seed, 2)};
    manta_value x = manta_input(m, "x", MANTA_DTYPE_F32, x_spec->ndim, x_spec->shape);

    for (int n = t->images ? between(&d, 0, 3) : 0; n > 0; n--) x = add_image_layer(m, &d, x, words);
    if (t->images && flip(&d))
        x = manta_call(m, manta_global_average_pooling2d(m, (manta_global_pooling2d_options){0}), x);
    else if (t->images)
        x = manta_call(m, manta_flatten(m), x);
    for (int n = between(&d, 0, 3); n > 0; n--) x = add_flat_layer(m, &d, x, words);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = t->classes ? CLASSES : 1}), x);
    manta_output(m, x);
    must(manta_model_build(m));
    return m;
}

/* ---- its session, and its fit ---- */

/* Borrows from the training. */
static inline manta_compile compile_of(const training *t)
{
    static const manta_loss classes = {.name = "sparse_categorical_crossentropy", .from_logits = true},
                            numbers = {.name = "mse"};

    return (manta_compile){
        .optimizer = &t->optimizer, .n_losses = 1, .losses = t->classes ? &classes : &numbers};
}

/* `o` says who computes. */
static inline manta_session *session_of(const training *t, const manta_model *m, manta_session_options o)
{
    manta_compile compile = compile_of(t);
    manta_session *s;

    o.seed = t->seed;
    o.shards = t->shards;
    o.statistics = t->statistics;
    must(manta_session_open(m, &compile, &o, &s));
    return s;
}

/* Epochs from `first` to `last` - 1; o says who looks on. */
static inline manta_status fit_part(manta_session *s, manta_dataset *d, const training *t, int64_t first,
                                    int64_t last, manta_fit_options o, manta_metrics *out)
{
    o.initial_epoch = first;
    o.epochs = last;
    o.global_batch = t->batch;
    o.steps_per_epoch = t->steps;
    o.no_shuffle = t->no_shuffle;
    o.validation = t->validates ? d : NULL;
    return manta_fit(s, d, &o, out);
}

#endif
