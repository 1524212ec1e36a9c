/* runtime_average_weights.c - data-parallel training by averaging weights.
 *
 * Each actor holds a network and a batch of data. In every round all of them
 * start from the same weights, do one step of training, and return their new
 * weights, whose mean begins the next round. The weights are put once and
 * given to all as a reference. They converge to w = 0.1, b = 0.3. */
#include "runtime_network.h"

/* network_step(weights): takes them, trains one step, returns the new ones. */
static manta_status network_step(manta_task *t)
{
    network *n = manta_self(t);

    MANTA_TRY(network_set_weights(t));
    MANTA_TRY(manta_session_step(n->session, &n->feed));
    return network_get_weights(t);
}
MANTA_REMOTE(network_step)

static manta_status train(float w[2])
{
    manta_actor actors[NUM_BATCHES];
    manta_ref steps[NUM_BATCHES];
    manta_array first;
    manta_status st;

    start_networks(actors);
    manta_ref initial = manta_actor_call(actors[0], network_get_weights);
    MANTA_TRY(manta_get_array(initial, &first, MANTA_FOREVER));
    w[0] = ((float *)first.data)[0];
    w[1] = ((float *)first.data)[1];
    manta_release(initial);
    for (int it = 0; it < NUM_ITERS; it++) {
        manta_array a = vector_of(w);
        manta_ref weights = manta_put(manta_elements(&a));
        for (int i = 0; i < NUM_BATCHES; i++) steps[i] = manta_actor_call(actors[i], network_step, weights);
        st = mean_of(steps, w);
        manta_release(weights);
        manta_release_all(steps, NUM_BATCHES);
        if (st) return st;
        if (it % 20 == 0) printf("iteration %3d: w = %.4f, b = %.4f\n", it, (double)w[0], (double)w[1]);
    }
    for (int i = 0; i < NUM_BATCHES; i++) manta_actor_release(actors[i]);
    return MANTA_OK;
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
