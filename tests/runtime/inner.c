/* inner.c - references and handles inside objects: they are counted wherever the object
 * goes, whoever made it, and no longer than it is there. */
#include "scenario.h"

#include <manta/actor.h>

enum { MANY = 2000 }; /* references that do not fit into a message */

/* Adds up the numbers that its argument refers to. */
static manta_status inner_sum(manta_task *t)
{
    const manta_ref *r;
    size_t n;
    int64_t total = 0, x;

    MANTA_TRY(manta_arg_refs(t, 0, &r, &n));
    for (size_t i = 0; i < n; i++) {
        MANTA_TRY(manta_get_i64(r[i], &x, LONG));
        total += x;
    }
    return manta_return_i64(t, 0, total);
}
MANTA_REMOTE(inner_sum)

/* Numbers of its own, inside references. */
static manta_status inner_make(manta_task *t)
{
    manta_ref r[MANY];
    int64_t n;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    for (int64_t i = 0; i < n; i++) r[i] = manta_put(manta_i64(i));
    manta_status st = manta_return(t, 0, manta_refs(r, (size_t)n));
    manta_release_all(r, (size_t)n);
    return st;
}
MANTA_REMOTE(inner_make)

/* Counts one further with the counter that its argument is. */
static manta_status inner_count(manta_task *t)
{
    manta_actor counter;
    int64_t x;

    MANTA_TRY(manta_arg_actor(t, 0, &counter));
    const manta_ref r = manta_actor_call(counter, counter_add, manta_i64(1));
    manta_status st = manta_get_i64(r, &x, LONG);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, x);
}
MANTA_REMOTE(inner_count)

typedef struct keeper {
    manta_ref kept;
} keeper;

static manta_status keeper_new(manta_task *t)
{
    static keeper k;

    manta_set_self(t, &k, NULL);
    return MANTA_OK;
}
MANTA_REMOTE(keeper_new)

static manta_status keeper_keep(manta_task *t)
{
    keeper *k = manta_self(t);
    const manta_ref *r;
    size_t n;

    MANTA_TRY(manta_arg_refs(t, 0, &r, &n));
    k->kept = r[0];
    return manta_retain(r[0]);
}
MANTA_REMOTE(keeper_keep)

static manta_status keeper_give(manta_task *t)
{
    keeper *k = manta_self(t);
    manta_status st = manta_return(t, 0, manta_refs(&k->kept, 1));

    manta_release(k->kept);
    return st;
}
MANTA_REMOTE(keeper_give)

static int64_t number_of(manta_ref r)
{
    int64_t x;

    OK(manta_get_i64(r, &x, LONG));
    manta_release(r);
    return x;
}

/* An object that holds references is an argument by its own reference: what it
 * refers to, here and of a worker, is there for the function. */
static void by_reference(int n)
{
    manta_ref r[MANY];

    for (int i = 0; i < n; i++) r[i] = manta_put(manta_i64(i));
    const manta_ref mine = manta_put(manta_refs(r, (size_t)n));
    manta_release_all(r, (size_t)n);
    CHECK(number_of(manta_remote(inner_sum, mine)) == (int64_t)n * (n - 1) / 2);
    manta_release(mine);
    const manta_ref theirs = manta_remote(inner_make, manta_i64(n));
    CHECK(number_of(manta_remote(inner_sum, theirs)) == (int64_t)n * (n - 1) / 2);
    manta_release(theirs);
}

/* A result that a call still makes is inside an object that is an argument. */
static void not_there_yet(void)
{
    const manta_ref slow = manta_remote(pause_ms, manta_i64(20)), one = manta_put(manta_refs(&slow, 1));

    manta_release(slow);
    CHECK(number_of(manta_remote(inner_sum, one)) > 0);
    manta_release(one);
}

/* A handle inside an object keeps the actor, whoever has the object. */
static void handles(void)
{
    manta_actor five = manta_actor_new(NULL, counter, manta_i64(5));
    manta_actor k = manta_actor_new(NULL, keeper_new);
    manta_ref handle = manta_put(manta_handle(five));
    manta_ref done = manta_actor_call(k, keeper_keep, manta_refs(&handle, 1));

    OK(manta_get(done, LONG));
    manta_release(done);
    manta_release(handle);
    manta_actor_release(five); /* from now on the object alone holds it */
    CHECK(number_of(manta_remote(pid)) > 0);
    manta_ref back = manta_actor_call(k, keeper_give), used = {0};
    const manta_ref *r;
    size_t n;
    OK(manta_get_refs(back, &r, &n, LONG));
    used = manta_remote(inner_count, r[0]);
    CHECK(number_of(used) == 6);
    manta_release(back);
    manta_actor_release(k);
}

void scenario_inner(void)
{
    by_reference(1);
    by_reference(MANY);
    not_there_yet();
    handles();
    if (!inside) until_nothing_is_held();
}
