/* net.h - small models and the means to run them, for the tests of nn/. */
#ifndef TESTS_UNIT_NN_NET_H
#define TESTS_UNIT_NN_NET_H

#include <stdlib.h>
#include <string.h>

#include <manta/layer.h>
#include <manta/loss.h>

#include "base/mem.h"
#include "base/rng.h"
#include "nn/apply.h"
#include "nn/exec.h"
#include "ok.h"

/* A model with everything needed to run it, one batch of made-up samples. */
typedef struct net {
    manta_model *m;
    manta_optimizer opt;
    manta_loss loss;
    manta_metric metric;
    objective o;
    layout l;
    pool *pool;
    const kernels *k;
    exec *e;
    void *state, *slot;
    int64_t batch;
    manta_array x, y;
    exec_run run;
} net;

static inline void net_fill(float *v, int64_t n, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++) v[i] = 2 * rng_uniform(rng_at(rng_make(7, stream), (uint64_t)i).w[0]) - 1;
}

/* Opens a built model (taken) with an MSE loss, or cross-entropy from logits
 * when `classes`. */
static inline void net_open(net *t, manta_model *m, bool classes, int64_t batch, int threads,
                            const char *kernels_name, const manta_optimizer *opt)
{
    manta_array y;

    memset(t, 0, sizeof *t);
    t->m = m;
    t->batch = batch;
    assert_ok(manta_model_build(m));
    if (opt) {
        t->opt = *opt;
    } else {
        assert_ok(manta_optimizer_named("sgd", &t->opt));
    }
    t->loss =
        (manta_loss){.name = classes ? "sparse_categorical_crossentropy" : "mse", .from_logits = classes};
    t->metric = (manta_metric){.name = classes ? "accuracy" : "mae"};
    assert_ok(objective_init(&t->o, m, 1, &t->loss, 1, &t->metric));
    layout_init(&t->l, m, &t->o, &t->opt);
    assert_ok(pool_new(threads, KERN_SCRATCH, &t->pool));
    assert_ok(kernels_find(kernels_name, &t->k));
    assert_ok(exec_new(m, &t->l, &t->o, &(exec_options){.pool = t->pool, .kernels = t->k}, &t->e));
    t->state = mem_try(t->l.state_size);
    t->slot = mem_try(t->l.slot_size);
    layout_start(&t->l, t->state, 3, &t->opt);

    t->x = manta_model_input(m, 0, NULL);
    t->x.shape[0] = batch;
    t->x = manta_array_of(MANTA_DTYPE_F32, t->x.ndim, t->x.shape, NULL);
    t->x.data = mem_try(manta_array_bytes(&t->x));
    net_fill(t->x.data, manta_array_count(&t->x), 1);
    y = manta_model_output(m, 0, NULL);
    y.shape[0] = batch;
    if (classes) {
        t->y = manta_array_of(MANTA_DTYPE_I64, 1, y.shape, NULL);
        t->y.data = mem_try(manta_array_bytes(&t->y));
        for (int64_t i = 0; i < batch; i++) ((int64_t *)t->y.data)[i] = (i * 7 + 3) % y.shape[1];
    } else {
        t->y = manta_array_of(MANTA_DTYPE_F32, y.ndim, y.shape, NULL);
        t->y.data = mem_try(manta_array_bytes(&t->y));
        net_fill(t->y.data, manta_array_count(&t->y), 2);
    }
    t->run = (exec_run){.mode = PLAN_TRAIN,
                        .batch = batch,
                        .state = t->state,
                        .slot = t->slot,
                        .inputs = &t->x,
                        .targets = &t->y,
                        .seed = 11,
                        .step = 5};
}

static inline void net_close(net *t)
{
    mem_try_free(t->x.data);
    mem_try_free(t->y.data);
    mem_try_free(t->state);
    mem_try_free(t->slot);
    exec_free(t->e);
    pool_free(t->pool);
    layout_release(&t->l);
    objective_release(&t->o);
    manta_model_free(t->m);
}

/* Has the net compute in that precision from now on. */
static inline void net_set_precision(net *t, kern_precision p)
{
    t->k = kernels_in(t->k, p);
    exec_free(t->e);
    assert_ok(exec_new(t->m, &t->l, &t->o, &(exec_options){.pool = t->pool, .kernels = t->k}, &t->e));
}

static inline double net_loss(net *t)
{
    const double *sums = layout_slot_sums(&t->l, t->slot);

    assert_ok(exec_forward(t->e, &t->run));
    return sums[SUM_LOSS];
}

/* A model with one of each thing the planner treats specially: fused relus, a
 * batch norm, a residual add whose input is used twice, a view, a layer called
 * twice, a nested model, a dropout, a weight decay free bias. */
static inline manta_model *net_mixed(void)
{
    manta_model *inner = manta_model_new("inner"), *m = manta_model_new("mixed");
    manta_layer *shared, *nest;
    manta_value x, y, z, pair[2];

    manta_input(inner, "in", MANTA_DTYPE_F32, 1, (int64_t[]){12});
    manta_model_add(inner, manta_dense(inner, (manta_dense_options){.units = 12, .activation = "tanh"}));
    assert_ok(manta_model_build(inner));

    x = manta_input(m, "image", MANTA_DTYPE_F32, 3, (int64_t[]){6, 6, 2});
    x = manta_call(m,
                   manta_conv2d(m, (manta_conv2d_options){.filters = 4,
                                                          .kernel_size = {3, 3},
                                                          .padding = "same",
                                                          .activation = "relu"}),
                   x);
    y = manta_call(m,
                   manta_conv2d(m,
                                (manta_conv2d_options){
                                    .filters = 4, .kernel_size = {3, 3}, .padding = "same", .no_bias = true}),
                   x);
    y = manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), y);
    y = manta_call(m, manta_activation(m, (manta_activation_options){.activation = "relu"}), y);
    pair[0] = x;
    pair[1] = y;
    x = manta_call_n(m, manta_merge_add(m), 2, pair);
    x = manta_call(m, manta_average_pooling2d(m, (manta_pooling2d_options){0}), x);
    x = manta_call(m, manta_flatten(m), x);
    x = manta_call(m, manta_dropout(m, (manta_dropout_options){.rate = 0.25}), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 12, .activation = "relu"}), x);
    shared = manta_dense(m, (manta_dense_options){.units = 12});
    z = manta_call(m, shared, x);
    z = manta_call(m, manta_activation(m, (manta_activation_options){.activation = "sigmoid"}), z);
    z = manta_call(m, shared, z);
    nest = manta_nested(m, inner);
    z = manta_call(m, nest, z);
    manta_model_free(inner);
    z = manta_call(m, manta_dense(m, (manta_dense_options){.units = 5}), z);
    manta_output(m, z);
    return m;
}

#endif
