/* options.c - options of calls and actors that other runtimes have: how far a stream may be ahead,
 * processes that end after some calls, calls that do not wait for earlier ones, cores for being
 * placed, work that waits for ever. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/stream.h>

/* ---- how far a stream may be ahead ---- */

/* Yields n numbers, and says each time that it is about to. */
static manta_status op_count(manta_task *t)
{
    const char *at;
    char path[160];
    int64_t n;

    MANTA_TRY(manta_arg_str(t, 0, &at));
    MANTA_TRY(manta_arg_i64(t, 1, &n));
    for (int64_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%d", at, (int)i);
        MANTA_TRY(touch(path));
        MANTA_TRY(manta_yield(t, manta_i64(i)));
    }
    snprintf(path, sizeof path, "%s/end", at);
    return touch(path);
}
MANTA_REMOTE(op_count)

static bool is_there(int i)
{
    char name[16];

    snprintf(name, sizeof name, "%d", i);
    return access(path_of(name), F_OK) == 0;
}

static void take_items(manta_stream s, int n)
{
    manta_ref r;
    int64_t v;

    for (int i = 0; i < n; i++) {
        OK(manta_stream_next(s, &r, LONG));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == i);
        manta_release(r);
    }
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
}

static void window_of(int window, int ahead)
{
    char name[16];
    const manta_task_options o = {.stream_window = window};

    folder_make();
    manta_stream s = manta_remote_stream(&o, op_count, manta_str(folder), manta_i64(100));
    snprintf(name, sizeof name, "%d", ahead);
    until_there(name); /* it is at the one that it cannot give yet */
    CHECK(!is_there(ahead + 1));
    take_items(s, 100);
    folder_remove();
}

static void windows(void)
{
    const manta_task_options any = {.stream_window = MANTA_UNLIMITED}, bad = {.stream_window = -7};
    manta_ref r;

    window_of(0, 8);
    window_of(1, 1);
    window_of(3, 3);
    window_of(7, 7);
    window_of(9, 9);
    window_of(50, 50);
    window_of(80, 80);
    folder_make();
    manta_stream s = manta_remote_stream(&any, op_count, manta_str(folder), manta_i64(3000));
    until_there("end"); /* without anybody who takes anything */
    take_items(s, 3000);
    folder_remove();
    s = manta_remote_stream(&bad, op_count, manta_str("/"), manta_i64(1));
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_EINVAL);
    SAYS("stream_window of a call of op_count is -7");
    manta_stream_close(s);
}

/* ---- processes that end after some calls ---- */

static manta_status op_pid(manta_task *t)
{
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(op_pid)

static int64_t number_of(manta_ref r)
{
    int64_t v;

    OK(manta_get_i64(r, &v, LONG));
    manta_release(r);
    return v;
}

/* How often the most frequent of n numbers is there. */
static int most_alike(const int64_t *x, int n)
{
    int most = 0;

    for (int i = 0; i < n; i++) {
        int alike = 0;
        for (int k = 0; k < n; k++) alike += x[k] == x[i];
        if (alike > most) most = alike;
    }
    return most;
}

/* Makes calls of its own, and leaves before they are done. */
static manta_status op_leaves(manta_task *t)
{
    manta_ref r = manta_remote(op_pid);
    manta_status st = manta_return(t, 0, manta_refs(&r, 1));

    manta_release(r);
    return st;
}
MANTA_REMOTE(op_leaves)

static manta_status op_until(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    while (access(path, F_OK)) usleep(500);
    return manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(op_until)

/* The same as op_leaves(), of a call that goes on until a file is there. */
static manta_status op_leaves_late(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    manta_ref r = manta_remote(op_until, manta_str(path));
    manta_status st = manta_return(t, 0, manta_refs(&r, 1));
    manta_release(r);
    return st;
}
MANTA_REMOTE(op_leaves_late)

/* A process that takes no more calls stays until it has made what it has promised. */
static void promises_are_kept(void)
{
    const manta_task_options once = {.max_calls = 1, .max_retries = MANTA_NONE};
    const manta_ref *inner;
    size_t n;

    folder_make();
    manta_ref r = manta_remote_with(&once, op_leaves_late, manta_str(path_of("go")));
    OK(manta_get_refs(r, &inner, &n, LONG));
    for (int i = 0; i < 20; i++) (void)number_of(manta_remote_with(&once, op_pid));
    CHECK(manta_get(inner[0], 30) == MANTA_ETIMEDOUT);
    OK(touch(path_of("go")));
    OK(manta_get(inner[0], LONG));
    manta_release(r);
    folder_remove();
}

static void max_calls(void)
{
    enum { N = 40 };
    const manta_task_options bad = {.max_calls = -1};
    int64_t pids[N];
    manta_ref r[N];

    for (int most = 1; most <= 4; most += 3) { /* none is tried again, so none may be lost */
        const manta_task_options o = {.max_calls = most, .max_retries = MANTA_NONE};
        for (int i = 0; i < N / 4; i++) pids[i] = number_of(manta_remote_with(&o, op_pid));
        CHECK(most_alike(pids, N / 4) <= most);
        for (int i = 0; i < N; i++) r[i] = manta_remote_with(&o, op_pid);
        for (int i = 0; i < N; i++) pids[i] = number_of(r[i]);
        CHECK(most_alike(pids, N) <= most);
        for (int i = 0; i < 5; i++) {
            const manta_ref *inner;
            size_t n;
            r[0] = manta_remote_with(&o, op_leaves);
            OK(manta_get_refs(r[0], &inner, &n, LONG));
            CHECK(n == 1);
            OK(manta_get(inner[0], LONG));
            manta_release(r[0]);
        }
    }
    r[0] = manta_remote_with(&bad, op_pid);
    CHECK(manta_get(r[0], LONG) == MANTA_EINVAL);
    SAYS("max_calls of a call of op_pid is -1");
    manta_release(r[0]);
}

/* ---- calls that do not wait for earlier ones ---- */

static manta_status op_actor(manta_task *t)
{
    manta_set_self(t, calloc(1, sizeof(int64_t)), free);
    return MANTA_OK;
}
MANTA_REMOTE(op_actor)

/* Which call of the actor it is. */
static manta_status op_turn(manta_task *t)
{
    int64_t *n = manta_self(t);

    return manta_return_i64(t, 0, (*n)++);
}
MANTA_REMOTE(op_turn)

static void orders(void)
{
    const manta_task_options any = {.out_of_order = true, .name = "any order"};
    manta_actor a = manta_actor_new(&any, op_actor), found, in_order = manta_actor_new(NULL, op_actor);

    folder_make();
    manta_ref late = manta_remote(op_until, manta_str(path_of("go")));
    manta_ref waits = manta_actor_call(a, op_turn, late),
              waits_too = manta_actor_call(in_order, op_turn, late);
    CHECK(number_of(manta_actor_call(a, op_turn)) == 0);
    CHECK(number_of(manta_actor_call(a, op_turn)) == 1);
    OK(manta_actor_find("any order", &found)); /* also who did not make it */
    CHECK(found.id == a.id);
    manta_ref behind = manta_actor_call(in_order, op_turn);
    CHECK(manta_get(behind, 30) == MANTA_ETIMEDOUT);
    OK(touch(path_of("go")));
    CHECK(number_of(waits) == 2);
    CHECK(number_of(waits_too) == 0 && number_of(behind) == 1);
    manta_release(late);
    manta_actor_release(found);
    manta_actor_release(a);
    manta_actor_release(in_order);
    folder_remove();
}

/* ---- cores for being placed ---- */

static void placing(void) /* three cores */
{
    const manta_task_options all = {.num_cpus = 3}, one = {.place_cpus = 1}, many = {.place_cpus = 4};
    manta_ref r;

    folder_make();
    manta_ref holds = manta_remote_with(&all, op_until, manta_str(path_of("go")));
    for (double begin = now(); available("cpu") > 0;) CHECK(now() - begin < LONG / 1000);
    manta_actor a = manta_actor_new(&one, op_actor), free_of = manta_actor_new(NULL, op_actor);
    OK(manta_actor_ready(free_of, LONG));
    CHECK(manta_actor_ready(a, 30) == MANTA_ETIMEDOUT);
    OK(touch(path_of("go")));
    OK(manta_actor_ready(a, LONG));
    (void)number_of(holds);
    r = manta_remote_with(&all, op_until, manta_str(path_of("go"))); /* the actor holds none of them */
    (void)number_of(r);
    manta_actor_release(a);
    manta_actor_release(free_of);
    a = manta_actor_new(&many, op_actor);
    CHECK(manta_actor_ready(a, LONG) == MANTA_EUNSUPPORTED);
    SAYS("it asks for 4 cpu, and the node has 3");
    manta_actor_release(a);
    folder_remove();
}

/* ---- what can never run, and waits ---- */

static manta_status op_nop(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(op_nop)

static void infeasible(void)
{
    const manta_task_options all[] = {{.num_cpus = 1000, .wait_infeasible = true},
                                      {.num_gpus = 3, .wait_infeasible = true},
                                      {.resources = "unicorn=1", .wait_infeasible = true},
                                      {.node = 12345, .wait_infeasible = true}};
    enum { N = sizeof all / sizeof all[0] };
    manta_ref calls[N], of_actors[N], after[N];
    manta_actor actors[N];

    for (int i = 0; i < N; i++) {
        calls[i] = manta_remote_with(&all[i], op_nop);
        after[i] = manta_remote(op_nop, calls[i]);
        actors[i] = manta_actor_new(&all[i], op_actor);
        of_actors[i] = manta_actor_call(actors[i], op_nop);
    }
    for (int i = 0; i < 200; i++) { /* others are not in their way */
        manta_ref r = manta_remote(op_nop);
        OK(manta_get(r, LONG));
        manta_release(r);
    }
    for (int i = 0; i < N; i++) {
        CHECK(manta_get(calls[i], 10) == MANTA_ETIMEDOUT && manta_get(of_actors[i], 10) == MANTA_ETIMEDOUT);
        OK(manta_cancel(calls[i], 0));
        CHECK(manta_get(calls[i], LONG) == MANTA_ECANCELLED && manta_get(after[i], LONG) == MANTA_ECANCELLED);
        OK(manta_cancel(of_actors[i], 0));
        CHECK(manta_get(of_actors[i], LONG) == MANTA_ECANCELLED);
        manta_release(calls[i]);
        manta_release(after[i]);
        manta_release(of_actors[i]);
        manta_actor_release(actors[i]);
    }
}

void scenario_options(void)
{
    windows();
    max_calls();
    promises_are_kept();
    orders();
    placing();
    infeasible();
    until_nothing_is_held();
}
