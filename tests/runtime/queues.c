/* queues.c - items between processes. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/queue.h>

/* Puts so many numbers, beginning with `first`, one by one. */
static manta_status produce(manta_task *t)
{
    manta_queue q;
    int64_t first, n;

    MANTA_TRY(manta_arg_actor(t, 0, &q.actor));
    MANTA_TRY(manta_arg_i64(t, 1, &first));
    MANTA_TRY(manta_arg_i64(t, 2, &n));
    for (int64_t i = 0; i < n; i++) MANTA_TRY(manta_queue_put(q, manta_i64(first + i), LONG));
    return MANTA_OK;
}
MANTA_REMOTE(produce)

static manta_status take_one(manta_task *t)
{
    manta_queue q;
    manta_ref r;
    int64_t v;

    MANTA_TRY(manta_arg_actor(t, 0, &q.actor));
    MANTA_TRY(manta_queue_get(q, &r, LONG));
    manta_status st = manta_get_i64(r, &v, LONG);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(take_one)

/* A queue that could not be made leaves nothing: its actor is nobody's. */
static void queues_born_dead(void)
{
    const manta_task_options named = {.name = "a queue"};
    manta_node_info info;
    manta_queue q, none = {{77}};

    OK(manta_queue_new(0, &named, &q));
    CHECK(manta_queue_new(0, &named, &none) == MANTA_EEXIST);
    CHECK(none.actor.id == 77);
    manta_queue_release(q);
    until_nothing_is_held();
    do {
        OK(manta_node_get(&info));
    } while (info.actors > 0);
}

void scenario_queues(void)
{
    manta_queue q;
    manta_ref r, many[64];
    manta_arg in[3] = {manta_f64(1), manta_str("two"), manta_i64(3)};
    double d;
    int64_t v;
    const char *s;
    size_t n;

    OK(manta_queue_new(3, NULL, &q));
    CHECK(manta_queue_get(q, &r, 0) == MANTA_ETIMEDOUT);
    SAYS("empty");
    OK(manta_queue_put_all(q, in, 3, 0));
    OK(manta_queue_size(q, &n));
    CHECK(n == 3);
    CHECK(manta_queue_put(q, manta_f64(4), 0) == MANTA_ETIMEDOUT);
    SAYS("full");
    CHECK(manta_queue_put(q, manta_f64(4), 20) == MANTA_ETIMEDOUT);
    OK(manta_queue_get(q, &r, 0));
    OK(manta_get_f64(r, &d, LONG));
    CHECK(d == 1);
    manta_release(r);
    CHECK(manta_queue_put_all(q, in, 2, 0) == MANTA_ETIMEDOUT); /* both or none */
    CHECK(manta_queue_get_many(q, 3, 5, many, &n, 0) == MANTA_ETIMEDOUT);
    OK(manta_queue_get_many(q, 1, 5, many, &n, 0));
    CHECK(n == 2);
    OK(manta_get_str(many[0], &s, LONG));
    OK(manta_get_i64(many[1], &v, LONG));
    CHECK(!strcmp(s, "two") && v == 3);
    manta_release_all(many, 2);
    /* A large item, and a reference that is ready later. */
    int64_t dims[1] = {100000};
    float *f = calloc(100000, 4);
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, dims, f);
    f[99999] = 7;
    OK(manta_queue_put(q, manta_elements(&a), 0));
    manta_ref later = manta_remote(add, manta_f64(20), manta_f64(22));
    OK(manta_queue_put(q, manta_of_ref(later), 0));
    manta_release(later);
    OK(manta_queue_get_many(q, 2, 2, many, &n, 0));
    OK(manta_get_array(many[0], &a, LONG));
    OK(manta_get_f64(many[1], &d, LONG));
    CHECK(((float *)a.data)[99999] == 7 && d == 42);
    manta_release_all(many, 2);
    free(f);
    if (!inside) {
        /* Two that put wait for one that takes; each one's items keep their order. */
        manta_ref put[2] = {manta_remote(produce, manta_handle(q.actor), manta_i64(0), manta_i64(50)),
                            manta_remote(produce, manta_handle(q.actor), manta_i64(1000), manta_i64(50))};
        int64_t last[2] = {-1, 999};
        for (int i = 0; i < 100; i++) {
            OK(manta_queue_get(q, &r, LONG));
            OK(manta_get_i64(r, &v, LONG));
            CHECK(v == ++last[v >= 1000]);
            manta_release(r);
        }
        OK(manta_get_all(put, 2, LONG));
        manta_release_all(put, 2);
        /* More takers than the queue has threads: each gets one. */
        enum { TAKERS = 40 };
        manta_task_options light = {.num_cpus = MANTA_NONE};
        manta_ref takers[TAKERS];
        bool seen[TAKERS] = {false};
        for (int i = 0; i < TAKERS; i++)
            takers[i] = manta_remote_with(&light, take_one, manta_handle(q.actor));
        CHECK(manta_get(takers[0], 50) == MANTA_ETIMEDOUT);
        for (int i = 0; i < TAKERS; i++) OK(manta_queue_put(q, manta_i64(i), LONG));
        for (int i = 0; i < TAKERS; i++) {
            OK(manta_get_i64(takers[i], &v, LONG));
            CHECK(v >= 0 && v < TAKERS && !seen[v]);
            seen[v] = true;
        }
        manta_release_all(takers, TAKERS);
        /* A taker that is cancelled takes nothing with it. */
        manta_ref gone = manta_remote(take_one, manta_handle(q.actor));
        CHECK(manta_get(gone, 50) == MANTA_ETIMEDOUT);
        OK(manta_cancel(gone, 0));
        CHECK(manta_get(gone, LONG) == MANTA_ECANCELLED);
        manta_release(gone);
        OK(manta_queue_put(q, manta_i64(5), LONG));
        OK(manta_queue_get(q, &r, LONG));
        manta_release(r);
    }
    manta_queue_release(q);
    /* The end of its actor is the end of all waits. */
    OK(manta_queue_new(0, NULL, &q));
    OK(manta_actor_kill(q.actor, true));
    CHECK(manta_queue_get(q, &r, MANTA_FOREVER) != MANTA_OK);
    manta_queue_release(q);
    queues_born_dead();
}
