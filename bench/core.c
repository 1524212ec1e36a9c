/* core.c - the speed of the runtime: `bench_core [--json] [ROW...]`.
 *
 * Rows are named and built as `ray microbenchmark` builds them, so that the two
 * can be laid side by side; behind each stands what Ray 2.60 reached on the
 * two-core machine of peers/README.md. Each row checks what it times and gives
 * the median of several rounds. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/task.h>

static bool json;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void must(manta_status st, const char *what)
{
    if (!st) return;
    fprintf(stderr, "%s: %s\n", what, manta_error_text());
    exit(1);
}

static void check(bool ok, const char *what)
{
    if (ok) return;
    fprintf(stderr, "wrong result: %s\n", what);
    exit(1);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void say(const char *row, double per_s, double ray)
{
    if (json)
        printf("{\"row\": \"%s\", \"per_s\": %.2f}\n", row, per_s);
    else if (ray > 0)
        printf("%-44s %14.1f /s   Ray %9.1f   x %.0f\n", row, per_s, ray, per_s / ray);
    else
        printf("%-44s %14.1f /s\n", row, per_s);
    fflush(stdout);
}

static void say_us(const char *row, double us)
{
    if (json)
        printf("{\"row\": \"%s\", \"us\": %.2f}\n", row, us);
    else
        printf("%-44s %14.2f us\n", row, us);
    fflush(stdout);
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
    for (int i = 0; i < 10000; i++) manta_release(manta_put(manta_i64(0)));
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(put_small)

/* Submits n tasks and waits for them. */
static manta_status submit_tasks(manta_task *t)
{
    int64_t n;
    manta_status st = manta_arg_i64(t, 0, &n);
    manta_ref *r = malloc((size_t)n * sizeof *r);
    for (int64_t i = 0; i < n; i++) r[i] = manta_remote(small_value);
    if (!st) st = manta_get_all(r, (size_t)n, MANTA_FOREVER);
    manta_release_all(r, (size_t)n);
    free(r);
    return st;
}
MANTA_REMOTE(submit_tasks)

static manta_status actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(actor)

/* Calls the actors it is given n times each, in turn. */
static manta_status call_actors(manta_task *t)
{
    int64_t n;
    manta_status st = manta_arg_i64(t, 0, &n);
    int k = manta_args(t) - 1, total = (int)n * k;
    manta_ref *r = calloc((size_t)total + 1, sizeof *r);
    for (int i = 0; i < total && !st; i++) {
        manta_actor a;
        if ((st = manta_arg_actor(t, 1 + i % k, &a))) break;
        r[i] = manta_actor_call(a, small_value);
    }
    if (!st) st = manta_get_all(r, (size_t)total, MANTA_FOREVER);
    manta_release_all(r, (size_t)total);
    free(r);
    return st;
}
MANTA_REMOTE(call_actors)

/* ---- rows ---- */

/* The median rate of `rounds` calls of fn, each doing `work` things. */
static double rate(void (*fn)(void), double work, int rounds)
{
    double s[32];
    fn();
    for (int i = 0; i < rounds; i++) {
        double begin = now();
        fn();
        s[i] = now() - begin;
    }
    qsort(s, (size_t)rounds, sizeof s[0], compare);
    return work / s[rounds / 2];
}

static manta_ref one;
static manta_actor peer, peers[4];

static void get_calls(void)
{
    int64_t v = 0;
    for (int i = 0; i < 20000; i++) must(manta_get_i64(one, &v, MANTA_FOREVER), "get");
    check(v == 7, "get");
}

static void put_calls(void)
{
    for (int i = 0; i < 20000; i++) manta_release(manta_put(manta_i64(i)));
}

static void multi_put(void)
{
    manta_ref r[10];
    for (int i = 0; i < 10; i++) r[i] = manta_remote(put_small);
    must(manta_get_all(r, 10, MANTA_FOREVER), "multi put");
    manta_release_all(r, 10);
}

static manta_array large;

static void put_large(void)
{
    for (int i = 0; i < 4; i++) {
        manta_ref r = manta_put(manta_elements(&large));
        must(manta_get(r, 0), "put");
        manta_release(r);
    }
}

static void batch(void)
{
    static manta_ref r[1000];
    for (int i = 0; i < 1000; i++) r[i] = manta_remote(small_value);
    must(manta_get_all(r, 1000, MANTA_FOREVER), "batch");
    manta_release_all(r, 1000);
}

static manta_ref container;

static void get_container(void)
{
    const manta_ref *r;
    size_t n;
    int64_t v;
    must(manta_get_refs(container, &r, &n, MANTA_FOREVER), "container");
    check(n == 10000, "container");
    (void)v;
}

static void fresh_container(void)
{
    manta_ref r = manta_remote(ten_thousand);
    const manta_ref *inner;
    size_t n;
    must(manta_get_refs(r, &inner, &n, MANTA_FOREVER), "container");
    check(n == 10000, "container");
    manta_release(r);
}

/* The first get of such an object in this process: every reference is taken
 * in and counted. The objects are there when the clock starts. */
static void first_gets(void)
{
    enum { N = 15 };
    static manta_ref r[N];
    const manta_ref *inner;
    size_t n;
    double s[N];
    for (int round = 0; round < 4; round++) { /* the last is counted: memory is warm, as in the other rows */
        for (int i = 0; i < N; i++) r[i] = manta_remote(ten_thousand);
        must(manta_get_all(r, N, MANTA_FOREVER), "containers");
        for (int i = 0; i < N; i++) {
            double begin = now();
            must(manta_get_refs(r[i], &inner, &n, MANTA_FOREVER), "container");
            s[i] = now() - begin;
            check(n == 10000, "container");
        }
        manta_release_all(r, N);
    }
    qsort(s, N, sizeof s[0], compare);
    say("get object containing 10k refs, first time", 1 / s[N / 2], 8.8);
}

static void wait_refs(void)
{
    static manta_ref r[1000], rest[1000];
    static bool ready[1000];
    size_t n = 1000, got;
    for (size_t i = 0; i < n; i++) rest[i] = r[i] = manta_remote(small_value);
    while (n > 0) {
        size_t k = 0;
        must(manta_wait(rest, n, 1, MANTA_FOREVER, ready, &got), "wait");
        check(got == 1, "wait");
        for (size_t i = 0; i < n; i++)
            if (!ready[i]) rest[k++] = rest[i];
        n = k;
    }
    manta_release_all(r, 1000);
}

static void task_sync(void)
{
    for (int i = 0; i < 5000; i++) {
        manta_ref r = manta_remote(small_value);
        must(manta_get(r, MANTA_FOREVER), "task");
        manta_release(r);
    }
}

static void multi_client(void)
{
    manta_ref r[4];
    for (int i = 0; i < 4; i++) r[i] = manta_actor_call(peers[i], submit_tasks, manta_i64(10000));
    must(manta_get_all(r, 4, MANTA_FOREVER), "multi client");
    manta_release_all(r, 4);
}

static void actor_sync(void)
{
    for (int i = 0; i < 5000; i++) {
        manta_ref r = manta_actor_call(peer, small_value);
        must(manta_get(r, MANTA_FOREVER), "actor");
        manta_release(r);
    }
}

static void actor_async(void)
{
    static manta_ref r[10000];
    for (int i = 0; i < 10000; i++) r[i] = manta_actor_call(peer, small_value);
    must(manta_get_all(r, 10000, MANTA_FOREVER), "actor");
    manta_release_all(r, 10000);
}

static void one_to_n(void)
{
    manta_ref r =
        manta_actor_call(peer, call_actors, manta_i64(5000), manta_handle(peers[0]), manta_handle(peers[1]));
    must(manta_get(r, MANTA_FOREVER), "1:n");
    manta_release(r);
}

static void n_to_n(void)
{
    manta_ref r[4];
    for (int i = 0; i < 4; i++)
        r[i] = manta_remote(call_actors, manta_i64(5000), manta_handle(peers[0]), manta_handle(peers[1]));
    must(manta_get_all(r, 4, MANTA_FOREVER), "n:n");
    manta_release_all(r, 4);
}

static void latency(void)
{
    static double us[20000];
    const int n = 20000;
    for (int i = 0; i < n; i++) {
        double begin = now();
        manta_ref r = manta_actor_call(peer, small_value);
        must(manta_get(r, MANTA_FOREVER), "actor");
        manta_release(r);
        us[i] = (now() - begin) * 1e6;
    }
    qsort(us, (size_t)n, sizeof us[0], compare);
    say_us("sync call p50, both awake", us[n / 2]);
    say_us("sync call p99, both awake", us[n * 99 / 100]);
    for (int i = 0; i < 60; i++) {
        usleep(10000);
        double begin = now();
        manta_ref r = manta_actor_call(peer, small_value);
        must(manta_get(r, MANTA_FOREVER), "actor");
        manta_release(r);
        us[i] = (now() - begin) * 1e6;
    }
    qsort(us, 60, sizeof us[0], compare);
    say_us("sync call p50, after 10 ms of idleness", us[30]);
}

static void new_actors(void)
{
    double begin = now();
    for (int i = 0; i < 20; i++) {
        manta_actor a = manta_actor_new(NULL, actor);
        must(manta_actor_ready(a, MANTA_FOREVER), "actor");
        manta_actor_release(a);
    }
    say_us("new actor ready", (now() - begin) / 20 * 1e6);
    static manta_actor a[100];
    begin = now();
    for (int i = 0; i < 100; i++) a[i] = manta_actor_new(NULL, actor);
    for (int i = 0; i < 100; i++) must(manta_actor_ready(a[i], MANTA_FOREVER), "actor");
    say_us("100 new actors ready", (now() - begin) * 1e6);
    for (int i = 0; i < 100; i++) manta_actor_release(a[i]);
}

/* Private memory of a process in KiB, from /proc/PID/smaps_rollup. */
static long private_kib(int pid)
{
    char path[64], line[256];
    long kib = 0, x;
    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
    FILE *f = fopen(path, "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "Private_Clean: %ld", &x) == 1 || sscanf(line, "Private_Dirty: %ld", &x) == 1)
            kib += x;
    if (f) fclose(f);
    return kib;
}

static void million(void)
{
    const int n = 1000000;
    manta_ref *r = malloc((size_t)n * sizeof *r);
    manta_node_info info;
    double begin = now();
    for (int i = 0; i < n; i++) r[i] = manta_remote(small_value);
    must(manta_get_all(r, (size_t)n, MANTA_FOREVER), "million");
    double s = now() - begin;
    manta_release_all(r, (size_t)n);
    must(manta_node_get(&info), "node");
    say_us("1,000,000 tasks queued, then drained", s * 1e6);
    if (!json) printf("%-44s %14ld KiB\n", "daemon, private memory afterwards", private_kib(info.daemon_pid));
    if (!json && info.n_worker_pids > 0)
        printf("%-44s %14ld KiB\n", "an idle worker, private memory", private_kib(info.worker_pids[0]));
    free(r);
}

static bool wanted(int argc, char **argv, const char *row)
{
    bool any = false;
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--json")) continue;
        any = true;
        if (strstr(row, argv[i])) return true;
    }
    return !any;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*fn)(void);
        double work;
        int rounds;
        double ray;
    } rows[] = {{"single client get calls", get_calls, 20000, 9, 5783},
                {"single client put calls", put_calls, 20000, 9, 999},
                {"multi client put calls", multi_put, 100000, 5, 699},
                {"single client put gigabytes", put_large, 4 * 0.1, 9, 0.8},
                {"single client tasks and get batch", batch, 1, 15, 1.2},
                {"single client get object containing 10k refs", get_container, 1, 15, 8.8},
                {"task making an object of 10k refs, and get", fresh_container, 1, 5, 0},
                {"single client wait 1k refs", wait_refs, 1, 9, 1.0},
                {"single client tasks sync", task_sync, 5000, 5, 511},
                {"single client tasks async", batch, 1000, 15, 1468},
                {"multi client tasks async", multi_client, 40000, 3, 1196},
                {"1:1 actor calls sync", actor_sync, 5000, 5, 871},
                {"1:1 actor calls async", actor_async, 10000, 7, 2032},
                {"1:n actor calls async", one_to_n, 10000, 5, 2401},
                {"n:n actor calls async", n_to_n, 40000, 3, 2121}};
    double begin = now();
    for (int i = 1; i < argc; i++) json = json || !strcmp(argv[i], "--json");
    must(manta_init(&argc, &argv, NULL), "init");
    double after_init = now();
    manta_ref first = manta_remote(small_value);
    must(manta_get(first, MANTA_FOREVER), "first");
    say_us("manta_init to first task's result", (now() - begin) * 1e6);
    say_us("manta_init alone", (after_init - begin) * 1e6);
    manta_release(first);
    one = manta_put(manta_i64(7));
    int64_t dims[1] = {100000000};
    large = manta_array_of(MANTA_DTYPE_U8, 1, dims, malloc(100000000));
    memset(large.data, 1, 100000000);
    container = manta_remote(ten_thousand);
    peer = manta_actor_new(NULL, actor);
    for (int i = 0; i < 4; i++) peers[i] = manta_actor_new(NULL, actor);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (wanted(argc, argv, rows[i].name))
            say(rows[i].name, rate(rows[i].fn, rows[i].work, rows[i].rounds), rows[i].ray);
    if (wanted(argc, argv, "get object containing 10k refs, first time")) first_gets();
    if (wanted(argc, argv, "latency")) latency();
    if (wanted(argc, argv, "new actor ready")) new_actors();
    if (wanted(argc, argv, "million")) million();
    char *copy = malloc(100000000);
    memset(copy, 1, 100000000);
    begin = now();
    for (int i = 0; i < 4; i++) memcpy(copy, large.data, 100000000);
    if (!json) printf("%-44s %14.2f GB/s\n", "memcpy, warm", 0.4 / (now() - begin));
    free(copy);
    free(large.data);
    manta_shutdown();
    return 0;
}
