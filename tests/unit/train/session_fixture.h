/* session_fixture.h - small images with labels, a model that has state and chance,
 * and sessions of it. */
#ifndef TEST_SESSION_FIXTURE_H
#define TEST_SESSION_FIXTURE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <manta/layer.h>

#include "base/mem.h"
#include "ok.h"

enum { N = 150 };

#include "corner_data.h"

static inline manta_feed feed(int64_t lo, int64_t hi)
{
    manta_feed f = {.count = hi - lo, .n_inputs = 1, .n_targets = 1};

    f.inputs[0] =
        manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){hi - lo, SIDE, SIDE, 1}, images + lo * SIDE * SIDE);
    f.targets[0] = manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){hi - lo}, labels + lo);
    return f;
}

/* Convolution, batch norm, dropout, dense: everything that has state or chance. */
static inline manta_model *model(manta_regularizer reg)
{
    manta_model *m = manta_model_new("small");

    manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){SIDE, SIDE, 1});
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){
                                           .filters = 6, .kernel_size = {3, 3}, .activation = "relu"}));
    manta_model_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_model_add(m, manta_flatten(m));
    manta_model_add(m, manta_dropout(m, (manta_dropout_options){.rate = 0.2}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){
                                          .units = 16, .activation = "relu", .kernel_regularizer = reg}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = CLASSES}));
    assert_ok(manta_model_build(m));
    return m;
}

static const manta_loss cross_entropy = {.name = "sparse_categorical_crossentropy", .from_logits = true};
static const manta_metric accuracy = {.name = "accuracy"};

static inline manta_session *session(const manta_model *m, const char *optimizer, manta_session_options o)
{
    manta_optimizer opt;
    manta_session *s = NULL;

    assert_ok(manta_optimizer_named(optimizer, &opt));
    opt.learning_rate = 0.01;
    o.seed = 42;
    assert_ok(manta_session_open(
        m,
        &(manta_compile){
            .optimizer = &opt, .n_losses = 1, .losses = &cross_entropy, .n_metrics = 1, .metrics = &accuracy},
        &o, &s));
    return s;
}

/* All weights and statistics after some steps of uneven batches. */
static inline float *weights_after(manta_model *m, manta_session *s, size_t *size)
{
    float *all;
    size_t n = 0;

    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_array a;
        assert_ok(manta_session_weight(s, manta_model_variable(m, i).name, &a));
        n += (size_t)manta_array_count(&a);
    }
    all = mem_try(n * sizeof *all);
    n = 0;
    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_array a;
        assert_ok(manta_session_weight(s, manta_model_variable(m, i).name, &a));
        memcpy(all + n, a.data, manta_array_bytes(&a));
        n += (size_t)manta_array_count(&a);
    }
    *size = n * sizeof *all;
    return all;
}

static inline float *flat_of(const manta_session *s)
{
    float *w = malloc((size_t)manta_session_params(s) * sizeof *w);

    assert_non_null(w);
    manta_session_get_flat(s, w);
    return w;
}

#endif
