/* bench_core.c - see bench_core.h. */
#include "cli/bench_core.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/task.h>

#include "cli/cli.h"

enum { MOST_ROUNDS = 16, LARGE = 100000000, PART = 80000000 };

static bench_say *say;
static const char *wanted; /* text in the names of the rows that are told; NULL: all */
static int rounds = 9;

static double now_seconds(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Rows that are no work a second; each begins or ends with a process of its own. */
static const char FIRST_RESULT[] = "manta_init to first result";
static const char IDLE_WORKER[] = "idle worker, private memory";
static const char FIRST_TOUCH[] = "single client put gigabytes, first touch";

static void must_succeed(manta_status st)
{
    if (st) exit(cli_fail());
}

static void check_result(bool ok, const char *what)
{
    if (ok) return;
    cli_note("bench core: %s gave a wrong result", what);
    exit(CLI_FAILED);
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return x < y ? -1 : x > y;
}

static double median_of(double *x, int n)
{
    qsort(x, (size_t)n, sizeof x[0], compare_doubles);
    return x[n / 2];
}

static bool is_wanted(const char *row)
{
    return !wanted || strstr(row, wanted);
}

static void tell_row(const char *row, double value, const char *unit)
{
    if (is_wanted(row)) say(&(bench_figure){.row = row, .value = value, .unit = unit});
}

/* ---- remote functions ---- */

static manta_status small_value(manta_task *t)
{
    return manta_return(t, 0, manta_bytes("ok", 2));
}
MANTA_REMOTE(small_value)

static manta_status ten_thousand(manta_task *t)
{
    enum { N = 10000 };
    static manta_ref r[N];

    for (int i = 0; i < N; i++) r[i] = manta_put(manta_i64(1));
    manta_status st = manta_return(t, 0, manta_refs(r, N));
    manta_release_all(r, N);
    return st;
}
MANTA_REMOTE(ten_thousand)

static manta_status put_small(manta_task *t)
{
    (void)t;
    for (int i = 0; i < 10000; i++) manta_release(manta_put(manta_i64(0)));
    return MANTA_OK;
}
MANTA_REMOTE(put_small)

/* Puts arrays of 80 MB, as Ray's row does, two instead of ten. */
static manta_status put_arrays(manta_task *t)
{
    static char *bytes;
    int64_t dims[1] = {PART};
    (void)t;

    if (!bytes && (bytes = malloc(PART))) memset(bytes, 1, PART); /* zero pages would copy faster */
    if (!bytes) return manta_fail(MANTA_ENOMEM, "no memory for an array");
    manta_array a = manta_array_of(MANTA_DTYPE_U8, 1, dims, bytes);
    manta_status st = MANTA_OK;
    for (int i = 0; i < 2 && !st; i++) {
        manta_ref r = manta_put(manta_elements(&a));
        st = manta_get(r, 0);
        manta_release(r);
    }
    return st;
}
MANTA_REMOTE(put_arrays)

/* Submits n tasks and waits for them. */
static manta_status submit_tasks(manta_task *t)
{
    int64_t n;
    manta_status st = manta_arg_i64(t, 0, &n);

    if (st) return st;
    manta_ref *r = malloc((size_t)n * sizeof *r);
    if (!r) return manta_fail(MANTA_ENOMEM, "no memory for %lld references", (long long)n);
    for (int64_t i = 0; i < n; i++) r[i] = manta_remote(small_value);
    st = manta_get_all(r, (size_t)n, MANTA_FOREVER);
    manta_release_all(r, (size_t)n);
    free(r);
    return st;
}
MANTA_REMOTE(submit_tasks)

static manta_status bench_actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(bench_actor)

/* Calls each actor it is given n times; the second argument: with an object. */
static manta_status call_actors(manta_task *t)
{
    int64_t n, with;
    manta_status st = manta_arg_i64(t, 0, &n);

    if (!st) st = manta_arg_i64(t, 1, &with);
    if (st) return st;
    int k = manta_args(t) - 2, total = (int)n * k, done = 0;
    manta_ref *r = calloc((size_t)total + 1, sizeof *r);
    if (!r) return manta_fail(MANTA_ENOMEM, "no memory for %d references", total);
    manta_ref x = manta_put(manta_i64(0));
    for (int a = 0; a < k && !st; a++) {
        manta_actor to;
        if ((st = manta_arg_actor(t, 2 + a, &to))) break;
        for (int64_t i = 0; i < n; i++)
            r[done++] = with ? manta_actor_call(to, small_value, x) : manta_actor_call(to, small_value);
    }
    if (!st) st = manta_get_all(r, (size_t)done, MANTA_FOREVER);
    manta_release(x);
    manta_release_all(r, (size_t)done);
    free(r);
    return st;
}
MANTA_REMOTE(call_actors)

/* ---- rows ---- */

static manta_ref one, container;
static manta_actor peer, wide, peers[4];
static manta_array large;

static void get_calls(void)
{
    int64_t v = 0;

    for (int i = 0; i < 20000; i++) must_succeed(manta_get_i64(one, &v, MANTA_FOREVER));
    check_result(v == 7, "get");
}

static void put_calls(void)
{
    for (int i = 0; i < 20000; i++) manta_release(manta_put(manta_i64(i)));
}

static void run_ten(const char *name)
{
    manta_ref r[10];

    for (int i = 0; i < 10; i++) manta_submit(name, NULL, 0, NULL, 1, &r[i]);
    must_succeed(manta_get_all(r, 10, MANTA_FOREVER));
    manta_release_all(r, 10);
}

static void multi_put(void)
{
    run_ten("put_small");
}

static void put_large(void)
{
    for (int i = 0; i < 4; i++) {
        manta_ref r = manta_put(manta_elements(&large));
        must_succeed(manta_get(r, 0));
        manta_release(r);
    }
}

static void multi_put_large(void)
{
    run_ten("put_arrays");
}

static void bench_batch(void)
{
    static manta_ref r[1000];

    for (int i = 0; i < 1000; i++) r[i] = manta_remote(small_value);
    must_succeed(manta_get_all(r, 1000, MANTA_FOREVER));
    manta_release_all(r, 1000);
}

static void get_container(void)
{
    const manta_ref *r;
    size_t n;

    must_succeed(manta_get_refs(container, &r, &n, MANTA_FOREVER));
    check_result(n == 10000, "a get of 10k references");
}

static void wait_refs(void)
{
    static manta_ref r[1000], rest[1000];
    static bool ready[1000];
    size_t n = 1000, got;

    for (size_t i = 0; i < n; i++) rest[i] = r[i] = manta_remote(small_value);
    while (n > 0) {
        size_t k = 0;
        must_succeed(manta_wait(rest, n, 1, MANTA_FOREVER, ready, &got));
        check_result(got == 1, "wait");
        for (size_t i = 0; i < n; i++)
            if (!ready[i]) rest[k++] = rest[i];
        n = k;
    }
    manta_release_all(r, 1000);
}

static void task_sync(void)
{
    for (int i = 0; i < 2000; i++) {
        manta_ref r = manta_remote(small_value);
        must_succeed(manta_get(r, MANTA_FOREVER));
        manta_release(r);
    }
}

static void multi_client(void)
{
    manta_ref r[4];

    for (int i = 0; i < 4; i++) r[i] = manta_actor_call(peers[i], submit_tasks, manta_i64(10000));
    must_succeed(manta_get_all(r, 4, MANTA_FOREVER));
    manta_release_all(r, 4);
}

static void actor_sync(void)
{
    for (int i = 0; i < 2000; i++) {
        manta_ref r = manta_actor_call(peer, small_value);
        must_succeed(manta_get(r, MANTA_FOREVER));
        manta_release(r);
    }
}

static void call_thousand(manta_actor a)
{
    static manta_ref r[1000];

    for (int i = 0; i < 1000; i++) r[i] = manta_actor_call(a, small_value);
    must_succeed(manta_get_all(r, 1000, MANTA_FOREVER));
    manta_release_all(r, 1000);
}

static void actor_async(void)
{
    call_thousand(peer);
}

static void actor_concurrent(void)
{
    call_thousand(wide);
}

static void one_to_n(void)
{
    manta_ref r = manta_actor_call(peer, call_actors, manta_i64(5000), manta_i64(0), manta_handle(peers[0]),
                                   manta_handle(peers[1]));

    must_succeed(manta_get(r, MANTA_FOREVER));
    manta_release(r);
}

static void n_to_n(void)
{
    manta_ref r[4];

    for (int i = 0; i < 4; i++)
        r[i] = manta_remote(call_actors, manta_i64(2500), manta_i64(0), manta_handle(peers[0]),
                            manta_handle(peers[1]));
    must_succeed(manta_get_all(r, 4, MANTA_FOREVER));
    manta_release_all(r, 4);
}

static void n_to_n_with_arg(void)
{
    manta_ref r[2];

    for (int i = 0; i < 2; i++)
        r[i] = manta_actor_call(peers[2 + i], call_actors, manta_i64(1000), manta_i64(1),
                                manta_handle(peers[i]));
    must_succeed(manta_get_all(r, 2, MANTA_FOREVER));
    manta_release_all(r, 2);
}

static const struct row {
    const char *name;
    void (*fn)(void);
    double work;
} rows[] = {{"single client get calls", get_calls, 20000},
            {"single client put calls", put_calls, 20000},
            {"multi client put calls", multi_put, 100000},
            {"single client put gigabytes", put_large, 4 * LARGE * 1e-9},
            {"multi client put gigabytes", multi_put_large, 10 * 2 * PART * 1e-9},
            {"single client tasks and get batch", bench_batch, 1},
            {"single client get object containing 10k refs", get_container, 1},
            {"single client wait 1k refs", wait_refs, 1},
            {"single client tasks sync", task_sync, 2000},
            {"single client tasks async", bench_batch, 1000},
            {"multi client tasks async", multi_client, 40000},
            {"1:1 actor calls sync", actor_sync, 2000},
            {"1:1 actor calls async", actor_async, 1000},
            {"1:1 actor calls concurrent", actor_concurrent, 1000},
            {"1:n actor calls async", one_to_n, 10000},
            {"n:n actor calls async", n_to_n, 20000},
            {"n:n actor calls with arg async", n_to_n_with_arg, 2000}};

static void run_row(const struct row *r)
{
    double s[MOST_ROUNDS];

    r->fn();
    for (int i = 0; i < rounds; i++) {
        double begin = now_seconds();
        r->fn();
        s[i] = now_seconds() - begin;
    }
    tell_row(r->name, r->work / median_of(s, rounds), NULL);
}

/* ---- figures of another shape ---- */

/* A put into memory that nobody has touched yet: the price of fresh pages. */
static void first_touch(void)
{
    double begin = now_seconds();
    manta_ref r = manta_put(manta_elements(&large));

    must_succeed(manta_get(r, 0));
    tell_row(FIRST_TOUCH, LARGE * 1e-9 / (now_seconds() - begin), NULL);
    manta_release(r);
}

static void copy_rate(void)
{
    char *to = malloc(LARGE);
    double s[5];

    if (!to) return;
    memset(to, 1, LARGE);
    for (int i = 0; i < 5; i++) {
        double begin = now_seconds();
        memcpy(to, large.data, LARGE);
        s[i] = now_seconds() - begin;
        check_result(to[i] == 3, "memcpy"); /* which also keeps the copy from being left out */
    }
    tell_row("memcpy gigabytes, warm", LARGE * 1e-9 / median_of(s, 5), NULL);
    free(to);
}

/* The first get of such an object in this process: every reference is taken in
 * and counted. The objects are there when the clock starts. */
static void first_gets(void)
{
    enum { N = 15 };
    static manta_ref r[N];
    const manta_ref *inner;
    size_t n;
    double s[N];

    for (int round = 0; round < 3; round++) { /* the last is counted: memory is warm, as in the other rows */
        for (int i = 0; i < N; i++) r[i] = manta_remote(ten_thousand);
        must_succeed(manta_get_all(r, N, MANTA_FOREVER));
        for (int i = 0; i < N; i++) {
            double begin = now_seconds();
            must_succeed(manta_get_refs(r[i], &inner, &n, MANTA_FOREVER));
            s[i] = now_seconds() - begin;
            check_result(n == 10000, "a first get of 10k references");
        }
        manta_release_all(r, N);
    }
    tell_row("get object containing 10k refs, first time", 1 / median_of(s, N), NULL);
}

static double one_call(void)
{
    double begin = now_seconds();
    manta_ref r = manta_actor_call(peer, small_value);

    must_succeed(manta_get(r, MANTA_FOREVER));
    double s = now_seconds() - begin;
    manta_release(r);
    return s * 1e6;
}

static void bench_latency(void)
{
    enum { N = 20000, IDLE = 40 };
    static double us[N];

    for (int i = 0; i < N; i++) us[i] = one_call();
    tell_row("sync call, both awake, p50", median_of(us, N), "us");
    tell_row("sync call, both awake, p99", us[N * 99 / 100], "us");
    for (int i = 0; i < IDLE; i++) {
        usleep(10000);
        us[i] = one_call();
    }
    tell_row("sync call after 10 ms idle, p50", median_of(us, IDLE), "us");
    tell_row("sync call after 10 ms idle, p99", us[IDLE - 1], "us");
}

static void new_actors(void)
{
    enum { N = 100, ONE = 15 };
    static manta_actor a[N];
    double s[ONE];

    for (int i = 0; i < ONE; i++) {
        double begin = now_seconds();
        a[0] = manta_actor_new(NULL, bench_actor);
        must_succeed(manta_actor_ready(a[0], MANTA_FOREVER));
        s[i] = now_seconds() - begin;
        manta_actor_release(a[0]);
    }
    tell_row("new actor ready", median_of(s, ONE) * 1e3, "ms");
    double begin = now_seconds();
    for (int i = 0; i < N; i++) a[i] = manta_actor_new(NULL, bench_actor);
    for (int i = 0; i < N; i++) must_succeed(manta_actor_ready(a[i], MANTA_FOREVER));
    tell_row("100 new actors ready", (now_seconds() - begin) * 1e3, "ms");
    for (int i = 0; i < N; i++) manta_actor_release(a[i]);
}

/* Private memory of a process in KiB, from /proc/PID/smaps_rollup. */
static long private_kib(int pid)
{
    char path[64], line[256];
    static const char *const keys[] = {"Private_Clean:", "Private_Dirty:"};
    long kib = 0;

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        for (int i = 0; i < 2; i++)
            if (!strncmp(line, keys[i], strlen(keys[i]))) kib += strtol(line + strlen(keys[i]), NULL, 10);
    if (f) fclose(f);
    return kib;
}

static void bench_million(void)
{
    const int n = 1000000;
    manta_ref *r = malloc((size_t)n * sizeof *r);
    manta_node_info info;

    if (!r) return;
    double begin = now_seconds();
    for (int i = 0; i < n; i++) r[i] = manta_remote(small_value);
    double queued = now_seconds() - begin;
    must_succeed(manta_get_all(r, (size_t)n, MANTA_FOREVER));
    double s = now_seconds() - begin;
    must_succeed(manta_node_get(&info));
    tell_row("1,000,000 tasks queued", queued * 1e3, "ms");
    tell_row("1,000,000 tasks queued, then drained", s * 1e3, "ms");
    tell_row("daemon, private memory then", (double)private_kib(info.daemon_pid), "KiB");
    manta_release_all(r, (size_t)n);
    free(r);
}

static void idle_worker(void)
{
    manta_node_info info;

    must_succeed(manta_node_get(&info));
    if (info.n_worker_pids > 0) tell_row(IDLE_WORKER, (double)private_kib(info.worker_pids[0]), "KiB");
}

/* What is timed besides the rows, and the names of the rows that it tells. */
static const struct figure {
    void (*fn)(void);
    const char *names[5];
} figures[] = {
    {bench_latency,
     {"sync call, both awake, p50", "sync call, both awake, p99", "sync call after 10 ms idle, p50",
      "sync call after 10 ms idle, p99"}},
    {new_actors, {"new actor ready", "100 new actors ready"}},
    {bench_million,
     {"1,000,000 tasks queued", "1,000,000 tasks queued, then drained", "daemon, private memory then"}},
    {first_gets, {"get object containing 10k refs, first time"}}, /* the daemon clears up for a while */
    {copy_rate, {"memcpy gigabytes, warm"}}};

static bool figure_is_wanted(const struct figure *f)
{
    for (int i = 0; f->names[i]; i++)
        if (is_wanted(f->names[i])) return true;
    return false;
}

static bool any_is_wanted(void)
{
    bool any = is_wanted(FIRST_RESULT) || is_wanted(IDLE_WORKER) || is_wanted(FIRST_TOUCH);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) any |= is_wanted(rows[i].name);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++) any |= figure_is_wanted(&figures[i]);
    return any;
}

/* ---- all of it ---- */

static void prepare_bench(void)
{
    int64_t dims[1] = {LARGE};
    manta_task_options many = {.max_concurrency = 16};
    char *bytes = malloc(LARGE);

    if (!bytes) exit(CLI_FAILED);
    memset(bytes, 3, LARGE);
    large = manta_array_of(MANTA_DTYPE_U8, 1, dims, bytes);
    one = manta_put(manta_i64(7));
    container = manta_remote(ten_thousand);
    peer = manta_actor_new(NULL, bench_actor);
    wide = manta_actor_new(&many, bench_actor);
    for (int i = 0; i < 4; i++) peers[i] = manta_actor_new(NULL, bench_actor);
    must_succeed(manta_actor_ready(wide, MANTA_FOREVER));
}

bool bench_core_run(const char *only, bool quick, bench_say *to)
{
    manta_node_options o = {.address = "local"};

    say = to;
    wanted = only;
    if (!any_is_wanted()) return false;
    if (quick) rounds = 3;
    double begin = now_seconds();
    must_succeed(manta_init(NULL, NULL, &o));
    manta_ref first = manta_remote(small_value);
    must_succeed(manta_get(first, MANTA_FOREVER));
    double s = now_seconds() - begin;
    manta_release(first);
    tell_row(FIRST_RESULT, s * 1e3, "ms");
    if (is_wanted(IDLE_WORKER)) idle_worker();
    prepare_bench();
    if (is_wanted(FIRST_TOUCH)) first_touch();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (is_wanted(rows[i].name)) run_row(&rows[i]);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (figure_is_wanted(&figures[i])) figures[i].fn();
    manta_shutdown();
    free(large.data);
    return true;
}
