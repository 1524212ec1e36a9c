/* cancels.c - calls that are cancelled, with those that they made or alone. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/failure.h>

/* descend(folder, depth): calls itself until depth is 0 and waits for it. Leaves
 * a file when it has begun, and one with what its wait said. */
static manta_status descend(manta_task *t)
{
    const char *where_to;
    int64_t depth;
    char path[160];

    MANTA_TRY(manta_arg_str(t, 0, &where_to));
    MANTA_TRY(manta_arg_i64(t, 1, &depth));
    snprintf(path, sizeof path, "%s/begun-%d", where_to, (int)depth);
    MANTA_TRY(touch(path));
    if (depth == 0) {
        while (!manta_task_is_cancelled(t)) usleep(200);
        snprintf(path, sizeof path, "%s/told", where_to);
        MANTA_TRY(touch(path));
        return manta_fail(MANTA_ECANCELLED, "I was asked to stop");
    }
    manta_ref r = manta_remote(descend, manta_str(where_to), manta_i64(depth - 1));
    manta_status st = manta_get(r, MANTA_FOREVER);
    manta_release(r);
    /* No more calls from here. */
    manta_ref more = manta_remote(linger);
    bool refused = manta_get(more, 0) == MANTA_ECANCELLED;
    manta_release(more);
    snprintf(path, sizeof path, "%s/%s-%d", where_to, st == MANTA_ECANCELLED && refused ? "ended" : "odd",
             (int)depth);
    MANTA_TRY(touch(path));
    return manta_fail(st, "as my call");
}
MANTA_REMOTE(descend)

/* alone(folder): one call, which lives when this one is cancelled alone. */
static manta_status alone(manta_task *t)
{
    const char *where_to;
    char path[160];
    manta_status st;

    MANTA_TRY(manta_arg_str(t, 0, &where_to));
    snprintf(path, sizeof path, "%s/child", where_to);
    manta_ref r = manta_remote(linger, manta_str(path));
    st = manta_get(r, MANTA_FOREVER);
    manta_failure f = failure_of(r);
    snprintf(path, sizeof path, "%s/%s", where_to,
             st == MANTA_ECANCELLED && f.kind == MANTA_FAILURE_NONE ? "child-lives" : "child-ended");
    if (touch(path)) st = MANTA_EIO;
    (void)!manta_cancel(r, 0); /* it may have ended */
    manta_release(r);
    return manta_fail(st, "done");
}
MANTA_REMOTE(alone)

/* returns_all_the_same(path, how): polls, and then returns a value all the same, small or large or references,
 * or fails in its own way. */
static manta_status returns_all_the_same(manta_task *t)
{
    const char *path;
    int64_t how;
    static const char large[100000];

    MANTA_TRY(manta_arg_str(t, 0, &path));
    MANTA_TRY(manta_arg_i64(t, 1, &how));
    MANTA_TRY(touch(path));
    while (!manta_task_is_cancelled(t)) usleep(200);
    if (how == 0) return manta_return_i64(t, 0, 7);
    if (how == 1) return manta_return(t, 0, manta_bytes(large, sizeof large));
    if (how == 2) return manta_fail(MANTA_EIO, "in my own way");
    manta_ref r = manta_put(manta_f64(1));
    manta_status st = manta_return(t, 0, manta_refs(&r, 1));
    manta_release(r);
    return st;
}
MANTA_REMOTE(returns_all_the_same)

/* calm(path): is cancelled, and waits all the same; then there is PATH-waited. */
static manta_status calm(manta_task *t)
{
    const char *path;
    char waited[256];

    MANTA_TRY(manta_arg_str(t, 0, &path));
    snprintf(waited, sizeof waited, "%s-waited", path);
    manta_task_stay_calm(t);
    MANTA_TRY(touch(path));
    while (!manta_task_is_cancelled(t)) usleep(200);
    manta_ref never = manta_promise();
    manta_status st = manta_get(never, 1);
    manta_release(never);
    return st == MANTA_ETIMEDOUT ? touch(waited) : st;
}
MANTA_REMOTE(calm)

static manta_status quick(manta_task *t)
{
    static const char large[100000];

    return manta_return(t, 0, manta_bytes(large, sizeof large));
}
MANTA_REMOTE(quick)

/* What a cancelled call returns is not seen, whichever was faster. */
static void cancelled_values(void)
{
    manta_ref calm_one = manta_remote(calm, manta_str(path_of("calm")));

    until_there("calm");
    OK(manta_cancel(calm_one, MANTA_CANCEL_ALONE));
    CHECK(manta_get(calm_one, LONG) == MANTA_ECANCELLED);
    until_there("calm-waited");
    manta_release(calm_one);
    for (int how = 0; how < 4; how++) {
        char name[16];
        snprintf(name, sizeof name, "all-the-same-%d", how);
        manta_ref r = manta_remote(returns_all_the_same, manta_str(path_of(name)), manta_i64(how));
        until_there(name);
        OK(manta_cancel(r, 0));
        CHECK(manta_get(r, LONG) == MANTA_ECANCELLED && failure_of(r).kind == MANTA_FAILURE_CANCELLED);
        manta_release(r);
    }
    for (int i = 0; i < 300; i++) {
        manta_ref r = manta_remote(quick);
        for (volatile int k = 0; k < i * 200; k++) {}
        OK(manta_cancel(r, 0));
        bool ready;
        OK(manta_wait(&r, 1, 1, LONG, &ready, NULL));
        manta_status st = manta_get(r, LONG);
        CHECK(st == MANTA_ECANCELLED); /* no answer was looked at before the cancel */
        manta_release(r);
    }
    until_nothing_is_held();
}

void scenario_cancels(void)
{
    folder_make();
    cancelled_values();
    /* Four deep: the deepest runs, the others wait; all end. */
    manta_ref r = manta_remote(descend, manta_str(folder), manta_i64(3));
    until_there("begun-0");
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED && failure_of(r).kind == MANTA_FAILURE_CANCELLED);
    manta_release(r);
    until_there("told");
    until_there("ended-1");
    until_there("ended-2");
    until_there("ended-3");
    /* Alone: its wait ends, its call does not. */
    r = manta_remote(alone, manta_str(folder));
    until_there("child");
    OK(manta_cancel(r, MANTA_CANCEL_ALONE));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED);
    until_there("child-lives");
    manta_release(r);
    /* Calls of an actor: waiting for an argument, waiting in line, running. */
    manta_actor a = manta_actor_new(NULL, counter);
    manta_ref never = manta_remote(linger);
    manta_ref pending = manta_actor_call(a, counter_add, never);
    OK(manta_cancel(pending, 0));
    CHECK(manta_get(pending, LONG) == MANTA_ECANCELLED);
    OK(manta_cancel(never, MANTA_CANCEL_FORCE));
    CHECK(manta_get(never, LONG) == MANTA_ECANCELLED);
    manta_ref running = manta_actor_call(a, linger, manta_str(path_of("actor-runs")));
    manta_ref behind = manta_actor_call(a, counter_add, manta_i64(1000));
    manta_ref last = manta_actor_call(a, counter_add, manta_i64(1));
    until_there("actor-runs");
    CHECK(manta_cancel(running, MANTA_CANCEL_FORCE) == MANTA_EINVAL);
    SAYS("without ending the actor");
    OK(manta_cancel(behind, 0));
    OK(manta_cancel(running, 0));
    int64_t v;
    CHECK(manta_get(running, LONG) == MANTA_ECANCELLED && manta_get(behind, LONG) == MANTA_ECANCELLED);
    OK(manta_get_i64(last, &v, LONG));
    CHECK(v == 1); /* the one that was cancelled did not happen */
    OK(manta_cancel(last, 0)); /* it has ended */
    OK(manta_get(last, 0));
    manta_ref all[] = {never, pending, running, behind, last};
    manta_release_all(all, 5);
    manta_actor_release(a);
    folder_remove();
}
