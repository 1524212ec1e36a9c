/* nested.c - calls that wait for calls they have made: how many processes that takes, and that
 * failures, deaths, cancels, values and waits are what they are when others run them. */
#include <pthread.h>
#include <signal.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>
#include <manta/stream.h>

#include "scenario.h"

/* Waits for r and returns the most workers that the node had meanwhile. */
static int most_workers(manta_ref r)
{
    manta_node_info info;
    int most = 0;
    manta_status st;

    do {
        st = manta_get(r, 2);
        OK(manta_node_get(&info));
        if (info.workers > most) most = info.workers;
    } while (st == MANTA_ETIMEDOUT);
    OK(st);
    return most;
}

/* is_odd(n) and is_even(n) ask each other. */
static manta_status ask_other(manta_task *t, const char *other, bool at_zero)
{
    int64_t n, v;
    manta_status st = manta_arg_i64(t, 0, &n);

    if (st || n == 0) return st ? st : manta_return_i64(t, 0, at_zero);
    manta_arg args[2] = {{0}, manta_i64(n - 1)};
    manta_ref r = manta_submit_one(other, NULL, 1, args);
    if (!(st = manta_get_i64(r, &v, MANTA_FOREVER))) st = manta_return_i64(t, 0, v);
    manta_release(r);
    return st;
}

static manta_status is_odd(manta_task *t)
{
    return ask_other(t, "is_even", false);
}
MANTA_REMOTE(is_odd)

static manta_status is_even(manta_task *t)
{
    return ask_other(t, "is_odd", true);
}
MANTA_REMOTE(is_even)

void scenario_nested_deep(void)
{
    static const int64_t fibs[] = {0,  1,  1,   2,   3,   5,   8,   13,   21,  34,
                                   55, 89, 144, 233, 377, 610, 987, 1597, 2584};
    int64_t v;

    /* A worker that waits for a call which another has begun does nothing, so a chain of them
     * may be as long as the calls are deep; all others have a core each. */
    for (int n = 3; n <= 18; n++) {
        manta_ref r = manta_remote(fib, manta_i64(n));
        int most = most_workers(r);
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == fibs[n]);
        CHECK(most <= n + 2 * 3);
        manta_release(r);
    }
    /* Deeper than calls may lie on one stack. */
    manta_ref r = manta_remote(is_even, manta_i64(1001));
    int most = most_workers(r);
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 0 && most <= 100);
    manta_release(r);
}

/* ---- failures and deaths, at each depth ---- */

enum { FAILS = 1, DIES_ONCE, DIES_ALWAYS, DEPTH = 6 };

/* sink(folder, depth, at, what): calls itself until depth is 0; at depth `at` it does what it is
 * told. What comes of the call below is its own answer, one more; a death below that nobody
 * could mend is 100. */
static manta_status sink(manta_task *t)
{
    const char *where_to;
    int64_t depth, at, what, v;
    char path[160];

    MANTA_TRY(manta_arg_str(t, 0, &where_to));
    MANTA_TRY(manta_arg_i64(t, 1, &depth));
    MANTA_TRY(manta_arg_i64(t, 2, &at));
    MANTA_TRY(manta_arg_i64(t, 3, &what));
    if (depth == at && what == FAILS) return manta_fail(MANTA_EIO, "depth %d fails", (int)depth);
    if (depth == at && what == DIES_ALWAYS) raise(SIGKILL);
    snprintf(path, sizeof path, "%s/died-%d", where_to, (int)depth);
    if (depth == at && what == DIES_ONCE && access(path, F_OK) != 0) {
        MANTA_TRY(touch(path));
        raise(SIGKILL);
    }
    if (depth == 0) return manta_return_i64(t, 0, 0);
    manta_ref r =
        manta_remote(sink, manta_str(where_to), manta_i64(depth - 1), manta_i64(at), manta_i64(what));
    manta_status st = manta_get_i64(r, &v, MANTA_FOREVER);
    if (st == MANTA_EDIED && failure_of(r).kind == MANTA_FAILURE_WORKER) {
        st = MANTA_OK;
        v = 100;
    }
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v + 1);
}
MANTA_REMOTE(sink)

static manta_ref sink_to(int at, int what, const manta_task_options *o)
{
    return manta_remote_with(o, sink, manta_str(folder), manta_i64(DEPTH), manta_i64(at), manta_i64(what));
}

static manta_status boss(manta_task *t)
{
    manta_actor a;
    int64_t v;

    MANTA_TRY(manta_arg_actor(t, 0, &a));
    manta_ref r = manta_actor_call(a, boss_method, manta_i64(8));
    manta_status st = manta_get_i64(r, &v, MANTA_FOREVER);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(boss)

static manta_status boss_method(manta_task *t)
{
    int64_t n, v;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    manta_ref r = manta_remote(fib, manta_i64(n));
    manta_status st = manta_get_i64(r, &v, MANTA_FOREVER);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(boss_method)

void scenario_nested_ends(void)
{
    int64_t v;

    folder_make();
    for (int at = 0; at < DEPTH; at++) {
        manta_ref r = sink_to(at, FAILS, NULL);
        char text[32];
        snprintf(text, sizeof text, "depth %d fails", at);
        CHECK(manta_get_i64(r, &v, LONG) == MANTA_EIO);
        SAYS(text);
        CHECK(failure_of(r).kind == MANTA_FAILURE_TASK && strstr(failure_of(r).chain, "sink > sink"));
        manta_release(r);
        r = sink_to(at, DIES_ONCE, NULL);
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == DEPTH);
        manta_release(r);
        /* The call above is the one that learns of it. */
        r = sink_to(at, DIES_ALWAYS, NULL);
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == 100 + DEPTH - at);
        manta_release(r);
    }
    /* One that is never tried again dies of nothing but itself. */
    const manta_task_options once = {.max_retries = MANTA_NONE};
    manta_ref r = sink_to(DEPTH - 1, DIES_ALWAYS, &once);
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 101);
    manta_release(r);
    /* Through an actor, whose process runs nobody else's calls. */
    manta_actor a = manta_actor_new(NULL, counter);
    r = manta_remote(boss, manta_handle(a));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 21);
    manta_release(r);
    manta_actor_release(a);
    folder_remove();
}

/* ---- values and references ---- */

enum { WIDE = 60000 };

/* widen(depth, array): an array that is one larger everywhere for each depth, and references to
 * a small and to a large object. */
static manta_status widen(manta_task *t)
{
    int64_t depth, n = WIDE;
    manta_array in, out, below;

    MANTA_TRY(manta_arg_i64(t, 0, &depth));
    MANTA_TRY(manta_arg_array(t, 1, &in));
    const char *name = manta_task_name(t);
    uint64_t id = manta_task_id(t);
    MANTA_TRY(manta_return_create(t, 0, MANTA_DTYPE_F32, 1, &n, &out));
    const float *from = in.data;
    manta_ref both[2] = {{0}, {0}};
    if (depth > 0) {
        manta_remote_n(2, both, NULL, widen, manta_i64(depth - 1), manta_elements(&in));
        MANTA_TRY(manta_get_array(both[0], &below, MANTA_FOREVER));
        from = below.data;
        const manta_ref *refs;
        size_t n_refs;
        double small;
        manta_array large;
        MANTA_TRY(manta_get_refs(both[1], &refs, &n_refs, MANTA_FOREVER));
        MANTA_TRY(manta_get_f64(refs[0], &small, MANTA_FOREVER));
        MANTA_TRY(manta_get_array(refs[1], &large, MANTA_FOREVER));
        if (n_refs != 2 || small != (double)(depth - 1) ||
            ((float *)large.data)[WIDE - 1] != ((float *)in.data)[WIDE - 1])
            return manta_fail(MANTA_ECORRUPT, "the references lead elsewhere");
    }
    for (int i = 0; i < WIDE; i++) ((float *)out.data)[i] = from[i] + 1;
    manta_ref give[2] = {manta_put(manta_f64((double)depth)), manta_put(manta_elements(&in))};
    manta_status st = manta_results(t) > 1 ? manta_return(t, 1, manta_refs(give, 2)) : MANTA_OK;
    manta_release_all(give, 2);
    manta_release_all(both, 2);
    if (strcmp(manta_task_name(t), name) != 0 || manta_task_id(t) != id)
        return manta_fail(MANTA_ECORRUPT, "the call is another than it was");
    return st;
}
MANTA_REMOTE(widen)

/* chain_of(n): add() n times, each with the result of the one before as its argument. */
static manta_status chain_of(manta_task *t)
{
    int64_t n;
    double v;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    manta_ref r = manta_remote(add, manta_f64(0), manta_f64(1));
    MANTA_TRY(manta_get(r, MANTA_FOREVER)); /* from now on it is known to be short */
    for (int64_t i = 1; i < n; i++) {
        manta_ref next = manta_remote(add, r, manta_f64(1));
        manta_release(r);
        r = next;
    }
    manta_status st = manta_get_f64(r, &v, MANTA_FOREVER);
    manta_release(r);
    return st ? st : manta_return_f64(t, 0, v);
}
MANTA_REMOTE(chain_of)

void scenario_nested_values(void)
{
    float *ones = malloc(WIDE * sizeof *ones);
    int64_t n = WIDE;
    double d;

    for (int i = 0; i < WIDE; i++) ones[i] = (float)i;
    manta_array in = manta_array_of(MANTA_DTYPE_F32, 1, &n, ones), out;
    for (int round = 0; round < 20; round++) {
        manta_ref r = manta_remote(widen, manta_i64(9), manta_elements(&in));
        OK(manta_get_array(r, &out, LONG));
        for (int i = 0; i < WIDE; i++) CHECK(((float *)out.data)[i] == (float)i + 10);
        manta_release(r);
    }
    manta_ref r = manta_remote(chain_of, manta_i64(300));
    OK(manta_get_f64(r, &d, LONG));
    CHECK(d == 300);
    manta_release(r);
    free(ones);
    /* Nothing is left of it. */
    until_nothing_is_held();
}

/* ---- waits, and what is not run by who waits ---- */

/* gather(n): n calls of add, by all ways to wait for several. */
static manta_status gather(manta_task *t)
{
    enum { MOST = 200 };
    manta_ref r[MOST];
    bool ready[MOST];
    int64_t n;
    size_t found;
    double sum = 0, v;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < n; i++) r[i] = manta_remote(add, manta_f64(i), manta_f64(round));
        if (round == 0) MANTA_TRY(manta_get_all(r, (size_t)n, MANTA_FOREVER));
        if (round == 1) MANTA_TRY(manta_wait(r, (size_t)n, (size_t)n, MANTA_FOREVER, ready, &found));
        if (round == 2) MANTA_TRY(manta_wait(r, (size_t)n, 3, MANTA_FOREVER, ready, &found));
        if (round == 2 && found != 3) return manta_fail(MANTA_ECORRUPT, "%zu are ready, expected 3", found);
        for (int i = (int)n; i-- > 0;) {
            MANTA_TRY(manta_get_f64(r[i], &v, round == 3 ? LONG : MANTA_FOREVER));
            sum += v;
        }
        manta_release_all(r, (size_t)n);
    }
    return manta_return_f64(t, 0, sum);
}
MANTA_REMOTE(gather)

/* elsewhere(): whether calls that need something else, or are to be apart, run in another
 * process, and a call of this function's own name in this one. */
static manta_status elsewhere(manta_task *t)
{
    const manta_task_options disk = {.resources = "disk=1"}, apart = {.strategy = MANTA_CALL_STRATEGY_SPREAD};
    int64_t inner, p[4] = {0};

    MANTA_TRY(manta_arg_i64(t, 0, &inner));
    if (inner) return manta_return_i64(t, 0, getpid());
    for (int round = 0; round < 2; round++) {
        manta_ref r[4] = {manta_remote_with(&disk, elsewhere, manta_i64(1)),
                          manta_remote_with(&apart, elsewhere, manta_i64(1)),
                          manta_remote(elsewhere, manta_i64(1)), manta_remote(elsewhere, manta_i64(1))};
        for (int i = 0; i < 2; i++) MANTA_TRY(manta_get_i64(r[i], &p[i], MANTA_FOREVER));
        manta_release_all(r, 4);
    }
    if (p[0] == getpid() || p[1] == getpid())
        return manta_fail(MANTA_ECORRUPT, "one ran in its caller's process");
    return manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(elsewhere)

/* in_time(): a wait with a time limit ends when it is over, whatever it waits for. */
static manta_status in_time(manta_task *t)
{
    manta_ref slow = manta_remote(linger);
    manta_status st = manta_get(slow, 30);
    manta_status end = manta_cancel(slow, 0);

    manta_release(slow);
    if (st != MANTA_ETIMEDOUT) return manta_fail(MANTA_ECORRUPT, "the wait ended with %d", st);
    return end ? end : manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(in_time)

/* taker(): the items of a stream that it has opened itself. */
static manta_status taker(manta_task *t)
{
    int64_t sum = 0, v;
    manta_ref item;
    manta_status st;
    manta_stream s = manta_remote_stream(NULL, count_up, manta_i64(100));

    while (!(st = manta_stream_next(s, &item, MANTA_FOREVER))) {
        MANTA_TRY(manta_get_i64(item, &v, MANTA_FOREVER));
        manta_release(item);
        sum += v;
    }
    manta_stream_close(s);
    return st == MANTA_ENOENT ? manta_return_i64(t, 0, sum) : st;
}
MANTA_REMOTE(taker)

static manta_status count_up(manta_task *t)
{
    int64_t n;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    for (int64_t i = 0; i < n; i++) MANTA_TRY(manta_yield(t, manta_i64(i)));
    return MANTA_OK;
}
MANTA_REMOTE(count_up)

void scenario_nested_waits(void)
{
    double d;
    int64_t v;

    for (int round = 0; round < 20; round++) {
        manta_ref r[3] = {manta_remote(gather, manta_i64(100)), manta_remote(gather, manta_i64(7)),
                          manta_remote(taker)};
        OK(manta_get_f64(r[0], &d, LONG));
        CHECK(d == 4 * 4950 + 100 * 6);
        OK(manta_get_f64(r[1], &d, LONG));
        CHECK(d == 4 * 21 + 7 * 6);
        OK(manta_get_i64(r[2], &v, LONG));
        CHECK(v == 4950);
        manta_release_all(r, 3);
    }
    manta_ref r[2] = {manta_remote(elsewhere, manta_i64(0)), manta_remote(in_time)};
    OK(manta_get_i64(r[0], &v, LONG));
    OK(manta_get_i64(r[1], &v, LONG));
    manta_release_all(r, 2);
}

/* ---- as many workers as there may be ---- */

/* dig(depth): as is_even(), but never run by who waits for it. */
static manta_status dig(manta_task *t)
{
    const manta_task_options apart = {.strategy = MANTA_CALL_STRATEGY_SPREAD};
    int64_t depth, v;
    manta_status st = manta_arg_i64(t, 0, &depth);

    if (st || depth == 0) return st ? st : manta_return_i64(t, 0, 0);
    manta_ref r = manta_remote_with(&apart, dig, manta_i64(depth - 1));
    if (!(st = manta_get_i64(r, &v, MANTA_FOREVER))) st = manta_return_i64(t, 0, v + 1);
    manta_release(r);
    return st;
}
MANTA_REMOTE(dig)

void scenario_nested_cap(void)
{
    int64_t v;

    for (int round = 0; round < 3; round++) {
        manta_ref r = manta_remote(dig, manta_i64(3));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == 3);
        manta_release(r);
        r = manta_remote(dig, manta_i64(30));
        CHECK(manta_get_i64(r, &v, LONG) == MANTA_ENOSPC);
        SAYS("max_workers");
        manta_release(r);
    }
    manta_node_info info;
    OK(manta_node_get(&info));
    CHECK(info.workers <= 5);
}
