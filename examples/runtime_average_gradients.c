/* runtime_average_gradients.c - data-parallel training by averaging gradients.
 *
 * As a parameter server does it: this process holds the network that is
 * trained; the actors compute gradients at its weights, each on a batch of its
 * own; the mean of the gradients is applied here. It converges to w = 0.1,
 * b = 0.3. */
#include "runtime_network.h"

/* network_gradients(weights): the mean gradient on this actor's data. */
static manta_status network_gradients(manta_task *t)
{
    network *n = manta_self(t);
    manta_array g;
    double loss;

    MANTA_TRY(network_set_weights(t));
    MANTA_TRY(manta_session_loss(n->session, &n->feed, &loss));
    MANTA_TRY(manta_session_backward(n->session, &n->feed));
    MANTA_TRY(
        manta_return_create(t, 0, MANTA_DTYPE_F32, 1, (int64_t[]){manta_session_params(n->session)}, &g));
    return manta_session_gradients(n->session, g.data);
}
MANTA_REMOTE(network_gradients)

static manta_status train_on(network *local, float w[2])
{
    manta_actor actors[NUM_BATCHES];
    manta_ref gradients[NUM_BATCHES];
    manta_status st;

    start_networks(actors);
    for (int it = 0; it < NUM_ITERS; it++) {
        float mean[2];
        manta_session_get_flat(local->session, w);
        manta_array a = vector_of(w);
        manta_ref weights = manta_put(manta_elements(&a));
        for (int i = 0; i < NUM_BATCHES; i++)
            gradients[i] = manta_actor_call(actors[i], network_gradients, weights);
        st = mean_of(gradients, mean);
        manta_release(weights);
        manta_release_all(gradients, NUM_BATCHES);
        if (st) return st;
        MANTA_TRY(manta_session_apply(local->session, mean));
        manta_session_get_flat(local->session, w);
        if (it % 20 == 0) printf("iteration %3d: w = %.4f, b = %.4f\n", it, (double)w[0], (double)w[1]);
    }
    for (int i = 0; i < NUM_BATCHES; i++) manta_actor_release(actors[i]);
    return MANTA_OK;
}

/* The local network gets data of its own; only its weights are of use. */
static manta_status train(float w[2])
{
    manta_ref test[2];
    manta_array x, y;
    network *local = NULL;

    manta_remote_n(2, test, NULL, generate_fake_data, manta_i64(BATCH_SIZE), manta_i64(NUM_BATCHES));
    manta_status st = manta_get_array(test[0], &x, MANTA_FOREVER);
    if (!st) st = manta_get_array(test[1], &y, MANTA_FOREVER);
    if (!st) st = network_open(&x, &y, &local);
    if (!st) st = train_on(local, w);
    network_free(local);
    manta_release_all(test, 2);
    return st;
}

int main(int argc, char **argv)
{
    float w[2] = {0};
    manta_status st = manta_init(&argc, &argv, NULL);

    if (!st) st = train(w);
    int rc = report(st, w);
    manta_shutdown();
    return rc;
}
