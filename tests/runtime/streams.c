/* streams.c - results that come one by one. */
#include <signal.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/stream.h>

#include "scenario.h"

/* Yields n numbers, a large array after each tenth, and dies or fails at `bad`. */
static manta_status numbers(manta_task *t)
{
    int64_t n, bad;
    manta_status st;

    if ((st = manta_arg_i64(t, 0, &n)) || (st = manta_arg_i64(t, 1, &bad))) return st;
    float *big = calloc(50000, 4);
    int64_t dims[1] = {50000};
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, dims, big);
    for (int64_t i = 0; i < n && !st; i++) {
        if (i == bad) st = manta_fail(MANTA_ENAN, "number %lld is bad", (long long)i);
        if (i == -bad && manta_task_attempt(t) == 0) raise(SIGKILL);
        big[7] = (float)i;
        if (!st) st = manta_yield(t, i % 10 == 9 ? manta_elements(&a) : manta_i64(i));
    }
    free(big);
    return st;
}
MANTA_REMOTE(numbers)

static void take_numbers(int64_t n, int64_t bad, manta_status end)
{
    manta_stream s = manta_remote_stream(NULL, numbers, manta_i64(n), manta_i64(bad));
    manta_ref r;

    for (int64_t i = 0; i < (bad > 0 && bad < n ? bad : n); i++) {
        manta_array a;
        int64_t v;
        OK(manta_stream_next(s, &r, LONG));
        if (i % 10 == 9) {
            OK(manta_get_array(r, &a, 0));
            CHECK(((float *)a.data)[7] == (float)i);
        } else {
            OK(manta_get_i64(r, &v, 0));
            CHECK(v == i);
        }
        manta_release(r);
    }
    CHECK(manta_stream_next(s, &r, LONG) == end);
    CHECK(manta_stream_next(s, &r, LONG) == end); /* and again */
    manta_stream_close(s);
}

void scenario_streams(void)
{
    manta_node_info n;
    manta_ref r;

    take_numbers(200, 1 << 20, MANTA_ENOENT);
    take_numbers(200, 57, MANTA_ENAN); /* what came before the failure is there */
    take_numbers(200, -63, MANTA_ENOENT); /* its worker dies: again, and no item twice */
    manta_stream s = manta_remote_stream(NULL, numbers, manta_i64(1000000), manta_i64(1 << 20));
    OK(manta_stream_next(s, &r, LONG));
    manta_release(r);
    manta_stream_close(s); /* and the function, which is far from its end, ends */
    double begin = now();
    r = manta_remote(pid);
    OK(manta_get(r, LONG));
    manta_release(r);
    do OK(manta_node_get(&n));
    while ((n.objects > 0 || n.free_cpus < 0) && now() - begin < LONG / 1000);
    CHECK(n.objects == 0);
    r = manta_remote(numbers, manta_i64(3), manta_i64(100)); /* not as a stream */
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    manta_release(r);
}

/* Yields n values that hold references: to a small object, to a large one, and
 * every tenth time so many that the value itself is large. */
static manta_status referring(manta_task *t)
{
    enum { MANY = 2000 };
    static float big[5000];
    static manta_ref many[MANY];
    int64_t n, dims[1] = {5000};
    manta_status st = MANTA_OK;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, dims, big);
    for (int64_t i = 0; i < n && !st; i++) {
        big[4999] = (float)i;
        manta_ref in[2] = {manta_put(manta_f64((double)i)), manta_put(manta_elements(&a))};
        for (int k = 0; k < MANY; k++) many[k] = in[k % 2];
        st = manta_yield(t, i % 10 == 9 ? manta_refs(many, MANY) : manta_refs(in, 2));
        manta_release_all(in, 2);
        if (i == 12 && manta_task_attempt(t) == 0 && manta_args(t) > 1) raise(SIGKILL);
    }
    return st;
}
MANTA_REMOTE(referring)

static void take_referring(manta_stream s, int n)
{
    manta_ref r;

    for (int i = 0; i < n; i++) {
        const manta_ref *in;
        size_t k;
        double d;
        manta_array a;
        OK(manta_stream_next(s, &r, LONG));
        OK(manta_get_refs(r, &in, &k, LONG));
        CHECK(k == (i % 10 == 9 ? 2000 : 2));
        OK(manta_get_f64(in[0], &d, LONG));
        OK(manta_get_array(in[k - 1], &a, LONG));
        CHECK(d == i && ((float *)a.data)[4999] == (float)i);
        manta_release(r);
    }
    CHECK(manta_stream_next(s, &r, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
}

/* Counts how often it was asked for the next item: the caller's pace is its own. */
static manta_status eager(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    for (int64_t i = 0;; i++) {
        char now[160];
        snprintf(now, sizeof now, "%s/%lld", path, (long long)i);
        MANTA_TRY(touch(now));
        MANTA_TRY(manta_yield(t, manta_i64(i)));
    }
}
MANTA_REMOTE(eager)

void scenario_references_in_streams(void)
{
    take_referring(manta_remote_stream(NULL, referring, manta_i64(25)), 25);
    if (!inside) /* its worker dies: again, and nothing twice */
        take_referring(manta_remote_stream(NULL, referring, manta_i64(25), manta_i64(1)), 25);
    manta_actor a = manta_actor_new(NULL, counter);
    take_referring(manta_actor_stream(a, NULL, referring, manta_i64(3)), 3);
    manta_actor_release(a);
    if (inside) return;
    manta_stream s = manta_remote_stream(NULL, referring, manta_i64(100));
    manta_ref r;
    OK(manta_stream_next(s, &r, LONG));
    manta_stream_close(s); /* with items on the way */
    manta_release(r);
    /* Back-pressure: it begins item 8 (it may be 8 ahead), and 9 only after one is taken. */
    folder_make();
    s = manta_remote_stream(NULL, eager, manta_str(folder));
    until_there("8");
    r = manta_remote(pid); /* a round trip, in which it could go on */
    OK(manta_get(r, LONG));
    manta_release(r);
    CHECK(access(path_of("9"), F_OK) != 0);
    OK(manta_stream_next(s, &r, LONG));
    manta_release(r);
    until_there("9");
    CHECK(access(path_of("10"), F_OK) != 0);
    manta_stream_close(s);
    manta_node_info n;
    time_t begin = time(NULL);
    do OK(manta_node_get(&n));
    while (n.objects > 0 && time(NULL) - begin < LONG / 1000);
    CHECK(n.objects == 0); /* what items held, taken or not, is gone */
    folder_remove();
}
