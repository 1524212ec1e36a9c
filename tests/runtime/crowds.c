/* crowds.c - many that want workers at once, of several sorts: calls that hold all cores and
 * call others, which gives cores back and takes them again, and actors by the hundred. Nobody
 * may be left standing in the scheduler's line, neither by others nor by itself. */
#include <manta/actor.h>
#include <manta/context.h>
#include <manta/node.h>

#include "scenario.h"

/* Calls `add` so often, and waits for all. */
static manta_status crowd_caller(manta_task *t)
{
    enum { MOST = 600 };
    int64_t n;
    manta_ref r[MOST];

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    if (n > MOST) return manta_fail(MANTA_EINVAL, "%lld calls, at most %d", (long long)n, MOST);
    for (int64_t i = 0; i < n; i++) r[i] = manta_remote(add, manta_f64((double)i), manta_f64(1));
    manta_status st = manta_get_all(r, (size_t)n, LONG);
    manta_release_all(r, (size_t)n);
    return st;
}
MANTA_REMOTE(crowd_caller)

/* How many the daemon believes to be waiting for a worker. */
static uint64_t waiting_now(void)
{
    manta_node_info info;
    manta_view *v;
    char pid[16];

    OK(manta_node_get(&info));
    snprintf(pid, sizeof pid, "%d", info.daemon_pid);
    OK(manta_view_take(pid, 0, 0, &v));
    uint64_t n = v->waiting;
    manta_view_free(v);
    return n;
}

/* When everything asked for has come, the daemon knows it too. What we tell it and a picture of
 * it go by two ways, so the picture may be taken too early. */
static void nobody_waits(void)
{
    double end = now() + LONG / 1000;

    while (waiting_now() > 0) CHECK(now() < end);
}

/* Calls that call others, more of them than cores, in bursts of all sizes, so that demands and
 * grants pass each other on the way. */
static void burst(int round)
{
    enum { CALLERS = 4, MOST = 200 };
    manta_ref callers[CALLERS], own[MOST];
    int n = round % 2 ? 1 + round * 7 % MOST : 1 + round % 8;

    for (int i = 0; i < CALLERS; i++)
        callers[i] = manta_remote(crowd_caller, manta_i64(1 + round * 53 % 600));
    for (int i = 0; i < n; i++) own[i] = manta_remote(add, manta_f64(i), manta_f64(1));
    OK(manta_get_all(own, (size_t)n, LONG));
    OK(manta_get_all(callers, CALLERS, LONG));
    manta_release_all(own, (size_t)n);
    manta_release_all(callers, CALLERS);
}

/* Two sorts of calls in turn, so that each has to be demanded anew, and each demand is raised
 * while the first grants may be on their way. */
static void two_sorts(int round)
{
    static const manta_task_options half = {.num_cpus = 0.5};
    const manta_task_options *sort = round % 2 ? &half : NULL;
    enum { MOST = 8 };
    manta_ref r[MOST];
    int n = 2 + round % (MOST - 1);

    for (int i = 0; i < n; i++) {
        double until = now() + (round / 14 % 40) * 1e-6;
        r[i] = manta_remote_with(sort, add, manta_f64(i), manta_f64(1));
        while (i < 2 && now() < until) {} /* every interleaving that a few microseconds make */
    }
    OK(manta_get_all(r, (size_t)n, LONG));
    manta_release_all(r, (size_t)n);
}

/* More actors than the scheduler's patience, none of which takes a core. */
static void actors_by_the_dozen(void)
{
    enum { N = 40 };
    manta_actor a[N];

    for (int i = 0; i < N; i++) a[i] = manta_actor_new(NULL, counter, manta_i64(i));
    for (int i = 0; i < N; i++) OK(manta_actor_ready(a[i], LONG));
    for (int i = 0; i < N; i++) manta_actor_release(a[i]);
}

void scenario_crowds(void)
{
    for (int round = 0; round < 60; round++) {
        burst(round);
        nobody_waits();
        if (round % 20 == 19) actors_by_the_dozen();
    }
    for (int round = 0; round < 1200; round++) {
        two_sorts(round);
        if (round % 4 == 3) nobody_waits();
    }
    actors_by_the_dozen();
}

/* Says that it runs, and runs until it may end. */
static manta_status crowd_hold(manta_task *t)
{
    const char *begun, *may_end;

    MANTA_TRY(manta_arg_str(t, 0, &begun));
    MANTA_TRY(manta_arg_str(t, 1, &may_end));
    MANTA_TRY(touch(begun));
    while (access(may_end, F_OK)) usleep(1000);
    return MANTA_OK;
}
MANTA_REMOTE(crowd_hold)

static manta_ref hold_core(const char *begun, const char *may_end)
{
    char first[128];

    snprintf(first, sizeof first, "%s", path_of(begun));
    return manta_remote(crowd_hold, manta_str(first), manta_str(path_of(may_end)));
}

/* A call holds the only core until the actors are there, and more such calls wait: the actors,
 * which take no core, come all the same. */
void scenario_crowd_of_actors(void)
{
    enum { HELD = 6 };
    manta_ref r[HELD];

    folder_make();
    r[0] = hold_core("begun", "end");
    until_there("begun");
    for (int i = 1; i < HELD; i++) r[i] = hold_core("later", "end");
    actors_by_the_dozen();
    OK(touch(path_of("end")));
    OK(manta_get_all(r, HELD, LONG));
    manta_release_all(r, HELD);
    folder_remove();
}

/* Calls the actor until it has ended; counts what was answered. A call that is lost with the
 * actor fails; one that is forgotten would wait for ever. */
static manta_status crowd_callers_of_one(manta_task *t)
{
    enum { BATCH = 16 };
    manta_actor a;
    manta_status st = MANTA_OK;
    manta_ref r[BATCH];

    MANTA_TRY(manta_arg_actor(t, 0, &a));
    while (!st) {
        for (int i = 0; i < BATCH; i++) r[i] = manta_actor_call(a, counter_add, manta_i64(1));
        for (int i = 0; i < BATCH; i++) {
            manta_status one = manta_get(r[i], LONG);
            if (one) st = one;
        }
        manta_release_all(r, BATCH);
    }
    return st == MANTA_EDIED ? MANTA_OK : manta_fail(st, "an actor that ended: %s", manta_error_text());
}
MANTA_REMOTE(crowd_callers_of_one)

/* An actor ends while others call it: each of their calls has an end as well. */
void scenario_ended_while_called(void)
{
    for (int round = 0; round < 40; round++) {
        manta_ref r[2];
        int64_t v;
        manta_actor a = manta_actor_new(NULL, counter, manta_i64(0));
        for (int i = 0; i < 2; i++) r[i] = manta_remote(crowd_callers_of_one, manta_handle(a));
        manta_ref one = manta_actor_call(a, counter_add, manta_i64(1));
        OK(manta_get_i64(one, &v, LONG));
        manta_release(one);
        OK(manta_actor_end(a));
        OK(manta_get_all(r, 2, LONG));
        manta_release_all(r, 2);
        manta_actor_release(a);
    }
}

static manta_status crowd_twice(manta_task *t)
{
    int64_t v;

    MANTA_TRY(manta_arg_i64(t, 0, &v));
    return manta_return_i64(t, 0, 2 * v);
}
MANTA_REMOTE(crowd_twice)

/* A method that makes calls, and returns their references. */
static manta_status crowd_promise(manta_task *t)
{
    enum { PROMISED = 20 };
    manta_ref r[PROMISED];

    for (int i = 0; i < PROMISED; i++) r[i] = manta_remote(crowd_twice, manta_i64(i));
    manta_status st = manta_return(t, 0, manta_refs(r, PROMISED));
    manta_release_all(r, PROMISED);
    return st;
}
MANTA_REMOTE(crowd_promise)

/* An actor that has the only core ends, by its last handle or because it is told to. What it
 * has promised is made afterwards, with that core; and who calls it hears that it has ended. */
void scenario_ended_makers(void)
{
    const manta_task_options core = {.num_cpus = 1};

    for (int round = 0; round < 20; round++) {
        const manta_ref *made;
        size_t n;
        int64_t v;
        manta_actor a = manta_actor_new(&core, counter, manta_i64(0));
        manta_ref promises = manta_actor_call(a, crowd_promise);
        if (round % 2) OK(manta_actor_end(a));
        if (round % 2 == 0) manta_actor_release(a);
        OK(manta_get_refs(promises, &made, &n, LONG));
        for (size_t i = 0; i < n; i++) {
            OK(manta_get_i64(made[i], &v, LONG));
            CHECK(v == 2 * (int64_t)i);
        }
        manta_release(promises);
        if (round % 2 == 0) continue;
        manta_ref late = manta_actor_call(a, counter_add, manta_i64(1));
        CHECK(manta_get(late, LONG) == MANTA_EDIED);
        manta_release(late);
        manta_actor_release(a);
    }
    until_nothing_is_held();
}

/* Says that it has begun, and waits for what is given by reference. */
static manta_status crowd_waiter(manta_task *t)
{
    const manta_ref *gate;
    const char *began;
    size_t n;

    MANTA_TRY(manta_arg_refs(t, 0, &gate, &n));
    MANTA_TRY(manta_arg_str(t, 1, &began));
    MANTA_TRY(touch(began));
    return manta_get(gate[0], LONG);
}
MANTA_REMOTE(crowd_waiter)

/* Holds a core until the file is there. */
static manta_status crowd_gate(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    for (double end = now() + LONG / 1000; access(path, F_OK) && now() < end;) usleep(200);
    return touch(path);
}
MANTA_REMOTE(crowd_gate)

/* More calls wait at once than leases are asked for at once: all of them begin, and what is
 * called behind them runs. */
void scenario_crowd_that_waits(void)
{
    enum { WAITERS = 130 };
    manta_ref r[WAITERS];
    char name[16];
    double v;

    folder_make();
    manta_ref gate = manta_remote(crowd_gate, manta_str(path_of("open")));
    for (int i = 0; i < WAITERS; i++) {
        snprintf(name, sizeof name, "%d", i);
        r[i] = manta_remote(crowd_waiter, manta_refs(&gate, 1), manta_str(path_of(name)));
    }
    for (int i = 0; i < WAITERS; i++) {
        snprintf(name, sizeof name, "%d", i);
        until_there(name);
    }
    manta_ref behind = manta_remote(add, manta_f64(1), manta_f64(2));
    OK(manta_get_f64(behind, &v, LONG));
    CHECK(v == 3);
    OK(touch(path_of("open")));
    OK(manta_get_all(r, WAITERS, LONG));
    manta_release_all(r, WAITERS);
    manta_release(behind);
    manta_release(gate);
    folder_remove();
}
