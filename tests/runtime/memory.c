/* memory.c - the store gives everything back, and processes have limits. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>

/* Everything comes back: after many objects the store is as it was. */
void scenario_memory(void)
{
    manta_node_info before = {0}, after;
    int64_t dims[1] = {100000};
    float *f = calloc(100000, 4);
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, dims, f);

    for (int i = 0; i < 600; i++) {
        manta_ref in = manta_put(manta_elements(&a)), out = manta_remote(echo, in),
                  refs = manta_remote(make_refs);
        OK(manta_get(out, MANTA_FOREVER));
        OK(manta_get(refs, MANTA_FOREVER));
        manta_release(in);
        manta_release(out);
        manta_release(refs);
        if (i == 299) OK(manta_node_get(&before));
    }
    double begin = now();
    do OK(manta_node_get(&after));
    while (after.objects > 0 && now() - begin < LONG / 1000);
    CHECK(after.objects == 0);
    CHECK(after.store_used <= before.store_used + (16u << 20));
    free(f);
}

void scenario_full(void)
{
    int64_t dims[1] = {40 << 20};
    manta_array a;
    manta_ref r, s;
    manta_failure f;

    OK(manta_create(MANTA_DTYPE_U8, 1, dims, &a, &r));
    memset(a.data, 1, 40 << 20);
    CHECK(manta_create(MANTA_DTYPE_U8, 1, dims, &a, &s) == MANTA_ENOSPC);
    CHECK(strstr(manta_error_text(), "the store is full"));
    s = manta_put(manta_elements(&a));
    CHECK(manta_get(s, 0) == MANTA_ENOSPC);
    manta_failure_get(s, &f);
    CHECK(f.kind == MANTA_FAILURE_FULL);
    manta_release(s);
    OK(manta_seal(r));
    manta_release(r);
    OK(manta_create(MANTA_DTYPE_U8, 1, dims, &a, &s)); /* the same pages again */
    OK(manta_seal(s));
    manta_release(s);
}

/* Takes memory, 8 MiB at a time, up to so many MiB, then waits. */
static manta_status hog(manta_task *t)
{
    enum { STEP = 8 };
    int64_t mib;

    MANTA_TRY(manta_arg_i64(t, 0, &mib));
    char **at = calloc((size_t)mib, sizeof *at);
    for (int64_t i = 0; i < mib / STEP; i++) {
        at[i] = malloc((size_t)STEP << 20);
        if (at[i]) memset(at[i], 1, (size_t)STEP << 20);
    }
    while (!manta_task_is_cancelled(t)) usleep(200);
    for (int64_t i = 0; i < mib; i++) free(at[i]);
    free(at);
    return manta_fail(MANTA_ECANCELLED, "I was asked to stop");
}
MANTA_REMOTE(hog)

static double total(const char *resource)
{
    manta_node_info n;

    OK(manta_node_get(&n));
    for (int i = 0; i < n.n_resources; i++)
        if (!strcmp(n.resources[i].name, resource)) return n.resources[i].total;
    return -1;
}

void scenario_memory_limits(void)
{
    manta_task_options o = {.memory = (uint64_t)120 << 20};
    manta_ref r = manta_remote_with(&o, hog, manta_i64(400));

    CHECK(manta_get(r, LONG) == MANTA_ENOMEM);
    manta_failure f = failure_of(r);
    CHECK(f.kind == MANTA_FAILURE_MEMORY && f.pid > 0 && !strcmp(f.function, "hog"));
    SAYS("while it ran hog: it had ");
    SAYS("and its limit is 120.0 MiB");
    manta_release(r);
    /* Without the option the node's limit holds (150 MiB here). */
    r = manta_remote(hog, manta_i64(400));
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM && failure_of(r).kind == MANTA_FAILURE_MEMORY);
    SAYS("its limit is 150.0 MiB");
    manta_release(r);
    /* An actor: the call says why, and so does every call after it. */
    manta_actor a = manta_actor_new(&o, counter);
    r = manta_actor_call(a, hog, manta_i64(400));
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM && failure_of(r).kind == MANTA_FAILURE_MEMORY);
    manta_release(r);
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_ENOMEM);
    SAYS("its limit is 120.0 MiB");
    manta_release(r);
    manta_actor_release(a);
    /* One that stays below is left alone, and memory is a resource like others. */
    double all = total("memory"), begin = now();
    o.memory = (uint64_t)140 << 20;
    r = manta_remote_with(&o, hog, manta_i64(16));
    while (available("memory") != all - (double)o.memory) CHECK(now() - begin < LONG / 1000);
    CHECK(manta_get(r, 300) == MANTA_ETIMEDOUT);
    CHECK(available("memory") == all - (double)o.memory);
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    manta_release(r);
    o.memory = (uint64_t)1 << 45;
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && failure_of(r).kind == MANTA_FAILURE_IMPOSSIBLE);
    manta_release(r);
}

/* The node was told that the machine must keep more than it has. */
void scenario_memory_short(void)
{
    manta_task_options once = {.max_retries = MANTA_NONE};
    manta_ref r = manta_remote_with(&once, linger);

    CHECK(manta_get(r, LONG) == MANTA_ENOMEM && failure_of(r).kind == MANTA_FAILURE_MEMORY);
    SAYS("while it ran linger: the machine had ");
    manta_release(r);
}
