/* maps.c - a function over many inputs. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/map.h>
#include <manta/pool.h>

typedef struct inputs {
    size_t n, asked;
    char text[32];
} inputs;

static manta_status number_input(void *user, size_t i, manta_arg *out)
{
    inputs *in = user;

    CHECK(i == in->asked++);
    if (i == in->n) return manta_fail(MANTA_ENOENT, "no more");
    *out = manta_i64((int64_t)i);
    return MANTA_OK;
}

static manta_status text_input(void *user, size_t i, manta_arg *out)
{
    inputs *in = user;

    if (i == in->n) return manta_fail(MANTA_ENOENT, "no more");
    snprintf(in->text, sizeof in->text, "text %zu", i); /* the same memory each time */
    *out = manta_str(in->text);
    return MANTA_OK;
}

static manta_status bad_input(void *user, size_t i, manta_arg *out)
{
    (void)user;
    *out = manta_i64(1);
    return i < 3 ? MANTA_OK : manta_fail(MANTA_EIO, "the inputs are broken");
}

/* The square; 13 is unlucky. */
static manta_status square(manta_task *t)
{
    int64_t x;

    MANTA_TRY(manta_arg_i64(t, 0, &x));
    if (x == 13) return manta_fail(MANTA_ENAN, "13 has no square today");
    return manta_return_i64(t, 0, x * x);
}
MANTA_REMOTE(square)

static manta_status last_digit(manta_task *t)
{
    const char *s;

    MANTA_TRY(manta_arg_str(t, 0, &s));
    return manta_return_i64(t, 0, strtol(s + 5, NULL, 10));
}
MANTA_REMOTE(last_digit)

static void check_squares(manta_map_options o, size_t n)
{
    inputs in = {.n = n};
    manta_map *m;
    manta_ref r;
    bool seen[200] = {false};
    size_t index, most = (o.window ? o.window : 12) * (o.chunk ? o.chunk : 1);

    OK(manta_map(square, &o, number_input, &in, &m));
    for (size_t i = 0; i < n; i++) {
        int64_t v;
        OK(manta_map_next(m, &index, &r, LONG));
        CHECK(index < n && !seen[index] && (o.unordered || index == i));
        CHECK(in.asked <= i + most + 1); /* no further ahead than the window */
        seen[index] = true;
        if (index == 13) {
            CHECK(manta_get_i64(r, &v, LONG) == MANTA_ENAN && !strcmp(failure_of(r).function, "square"));
            SAYS("13 has no square today (in square");
        } else {
            OK(manta_get_i64(r, &v, LONG));
            CHECK(v == (int64_t)(index * index));
        }
        manta_release(r);
    }
    CHECK(manta_map_next(m, &index, &r, LONG) == MANTA_ENOENT);
    CHECK(manta_map_next(m, &index, &r, LONG) == MANTA_ENOENT);
    manta_map_free(m);
}

void scenario_maps(void)
{
    manta_map *m;
    manta_ref r;
    size_t index;
    int64_t v;
    manta_actor actors[3];

    for (int i = 0; i < 3; i++) actors[i] = manta_actor_new(NULL, counter);
    for (int unordered = 0; unordered < 2; unordered++) {
        check_squares((manta_map_options){.unordered = unordered}, 100);
        check_squares((manta_map_options){.unordered = unordered, .chunk = 7, .window = 3}, 100);
        check_squares((manta_map_options){.unordered = unordered, .n_actors = 3, .actors = actors}, 60);
        check_squares(
            (manta_map_options){
                .unordered = unordered, .chunk = 5, .n_actors = 3, .actors = actors, .window = 4},
            61);
    }
    check_squares((manta_map_options){.chunk = 255}, 200);
    check_squares((manta_map_options){.chunk = 256}, 200);
    check_squares((manta_map_options){.chunk = 4}, 0);
    inputs in = {.n = 20};
    OK(manta_map(last_digit, &(manta_map_options){.chunk = 4}, text_input, &in, &m));
    for (size_t i = 0; i < 20; i++) {
        OK(manta_map_next(m, &index, &r, LONG));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == (int64_t)i);
        manta_release(r);
    }
    manta_map_free(m);
    OK(manta_map(square, NULL, bad_input, NULL, &m));
    CHECK(manta_map_next(m, NULL, &r, LONG) == MANTA_EIO);
    SAYS("broken");
    manta_map_free(m);
    if (!inside) { /* what is not taken is cancelled */
        inputs many = {.n = 100};
        OK(manta_map(linger, NULL, number_input, &many, &m));
        CHECK(manta_map_next(m, NULL, &r, 20) == MANTA_ETIMEDOUT);
        manta_map_free(m);
        r = manta_remote(pid);
        OK(manta_get(r, LONG));
        manta_release(r);
    }
    for (size_t chunk = 257; chunk <= 2560; chunk += 2560 - 257)
        CHECK(manta_map(square, &(manta_map_options){.chunk = chunk}, number_input, &in, &m) == MANTA_EINVAL);
    CHECK(manta_map(square, &(manta_map_options){.chunk = 1000}, number_input, &in, &m) == MANTA_EINVAL);
    manta_map_free(NULL);
    /* A pool whose actors come and go. */
    manta_pool *p;
    manta_actor popped;
    OK(manta_pool_new(2, actors, &p));
    CHECK(manta_pool_idle(p) == 2);
    OK(manta_pool_pop(p, &popped));
    OK(manta_pool_pop(p, &popped));
    CHECK(manta_pool_pop(p, &popped) == MANTA_ENOENT);
    CHECK(manta_pool_call(p, 0, counter_add, manta_i64(1)) == MANTA_EINVAL);
    manta_pool_push(p, popped);
    manta_pool_push(p, actors[2]);
    for (int i = 0; i < 6; i++) OK(manta_pool_call(p, LONG, counter_add, manta_i64(1)));
    for (int i = 0; i < 6; i++) {
        OK(manta_pool_next(p, &r, LONG));
        OK(manta_get(r, LONG));
        manta_release(r);
    }
    CHECK(manta_pool_idle(p) == 2);
    manta_pool_free(p);
    for (int i = 0; i < 3; i++) manta_actor_release(actors[i]);
}
