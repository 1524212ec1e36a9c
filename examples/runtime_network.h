/* runtime_network.h - what the two data-parallel examples share: made-up data,
 * and a network y = w x + b that lives in an actor and gives and takes its
 * weights. */
#ifndef EXAMPLES_RUNTIME_NETWORK_H
#define EXAMPLES_RUNTIME_NETWORK_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include <manta/actor.h>
#include <manta/model.h>
#include <manta/task.h>
#include <manta/train.h>

#define BATCH_SIZE  100
#define NUM_BATCHES 2
#define NUM_ITERS   201

/* generate_fake_data(n, seed): two results, x uniform in [0, 1) and y = 0.1 x + 0.3. */
static manta_status generate_fake_data(manta_task *t)
{
    int64_t n, seed;
    manta_array x, y;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    MANTA_TRY(manta_arg_i64(t, 1, &seed));
    MANTA_TRY(manta_return_create(t, 0, MANTA_DTYPE_F32, 2, (int64_t[]){n, 1}, &x));
    MANTA_TRY(manta_return_create(t, 1, MANTA_DTYPE_F32, 2, (int64_t[]){n, 1}, &y));
    unsigned short state[3] = {(unsigned short)seed, 1, 2}; /* the same data in every run */
    for (int64_t i = 0; i < n; i++) {
        ((float *)x.data)[i] = (float)erand48(state);
        ((float *)y.data)[i] = ((float *)x.data)[i] * 0.1f + 0.3f;
    }
    return MANTA_OK;
}
MANTA_REMOTE(generate_fake_data)

typedef struct network {
    manta_model *model;
    manta_session *session;
    manta_feed feed; /* of all its data */
    float *x, *y;
} network;

static void network_free(void *p)
{
    network *n = p;

    if (!n) return;
    manta_session_close(n->session);
    manta_model_free(n->model);
    free(n->x);
    free(n->y);
    free(n);
}

/* A network that will train on the data x, y, which it copies. */
static manta_status network_open(const manta_array *x, const manta_array *y, network **out)
{
    manta_optimizer sgd;
    const manta_loss mse = {.name = "mse"};
    const int64_t count = x->shape[0], shape[2] = {count, 1};
    network *n = calloc(1, sizeof *n);
    manta_status st = manta_optimizer_named("sgd", &sgd);

    sgd.learning_rate = 0.5;
    n->x = malloc(manta_array_bytes(x));
    n->y = malloc(manta_array_bytes(y));
    for (int64_t i = 0; i < count; i++) {
        n->x[i] = ((const float *)x->data)[i];
        n->y[i] = ((const float *)y->data)[i];
    }
    n->feed = (manta_feed){.count = count, .n_inputs = 1, .n_targets = 1};
    n->feed.inputs[0] = manta_array_of(MANTA_DTYPE_F32, 2, shape, n->x);
    n->feed.targets[0] = manta_array_of(MANTA_DTYPE_F32, 2, shape, n->y);
    if (!st) st = manta_zoo("linear", &n->model);
    if (!st)
        st = manta_session_open(n->model, &(manta_compile){.optimizer = &sgd, .n_losses = 1, .losses = &mse},
                                &(manta_session_options){.threads = 1, .seed = 0}, &n->session);
    if (st)
        network_free(n);
    else
        *out = n;
    return st;
}

/* ---- the network as an actor ---- */

static manta_status network_new(manta_task *t)
{
    manta_array x, y;
    network *n = NULL;

    MANTA_TRY(manta_arg_array(t, 0, &x));
    MANTA_TRY(manta_arg_array(t, 1, &y));
    MANTA_TRY(network_open(&x, &y, &n));
    manta_set_self(t, n, network_free);
    return MANTA_OK;
}
MANTA_REMOTE(network_new)

static manta_status network_get_weights(manta_task *t)
{
    network *n = manta_self(t);
    manta_array w;

    MANTA_TRY(
        manta_return_create(t, 0, MANTA_DTYPE_F32, 1, (int64_t[]){manta_session_params(n->session)}, &w));
    manta_session_get_flat(n->session, w.data);
    return MANTA_OK;
}
MANTA_REMOTE(network_get_weights)

static manta_status network_set_weights(manta_task *t)
{
    network *n = manta_self(t);
    manta_array w;

    MANTA_TRY(manta_arg_array(t, 0, &w));
    if (manta_array_count(&w) != manta_session_params(n->session))
        return manta_fail(MANTA_EINVAL, "%lld weights, where the network has %lld",
                          (long long)manta_array_count(&w), (long long)manta_session_params(n->session));
    manta_session_set_flat(n->session, w.data);
    return MANTA_OK;
}
MANTA_REMOTE(network_set_weights)

/* One network for each batch of data, made where the data is made. */
static void start_networks(manta_actor *actors)
{
    for (int i = 0; i < NUM_BATCHES; i++) {
        manta_ref xy[2];
        manta_remote_n(2, xy, NULL, generate_fake_data, manta_i64(BATCH_SIZE), manta_i64(i));
        actors[i] = manta_actor_new(NULL, network_new, xy[0], xy[1]);
        manta_release_all(xy, 2);
    }
}

/* The mean of NUM_BATCHES vectors of two numbers. */
static manta_status mean_of(const manta_ref *refs, float mean[2])
{
    mean[0] = mean[1] = 0;
    for (int i = 0; i < NUM_BATCHES; i++) {
        manta_array a;
        MANTA_TRY(manta_get_array(refs[i], &a, MANTA_FOREVER));
        for (int k = 0; k < 2; k++) mean[k] += ((const float *)a.data)[k] / NUM_BATCHES;
    }
    return MANTA_OK;
}

static manta_array vector_of(float *w)
{
    return manta_array_of(MANTA_DTYPE_F32, 1, (int64_t[]){2}, w);
}

static int report(manta_status st, const float w[2])
{
    bool good = !st && fabsf(w[0] - 0.1f) < 1e-3f && fabsf(w[1] - 0.3f) < 1e-3f;

    if (st)
        fprintf(stderr, "%s\n", manta_error_text());
    else
        printf("%s w = %.4f, b = %.4f\n", good ? "converged to" : "did not converge:", (double)w[0],
               (double)w[1]);
    return good ? 0 : 1;
}

#endif
