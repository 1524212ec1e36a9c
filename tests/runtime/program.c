/* program.c - the program that the process-level tests run: each argument is a
 * scenario. It prints what it found, one line per fact, and exits 0 when all
 * is as it should be. See test_runtime.py. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <manta/task.h>

#define CHECK(x)                                                                                             \
    do {                                                                                                     \
        if (!(x)) {                                                                                          \
            printf("line %d: %s: %s\n", __LINE__, #x, manta_error_text());                                   \
            fflush(stdout);                                                                                  \
            exit(1);                                                                                         \
        }                                                                                                    \
    } while (0)
#define OK(call) CHECK((call) == MANTA_OK)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- remote functions ---- */

static manta_status add(manta_task *t)
{
    double a, b;
    manta_status st;
    if ((st = manta_arg_f64(t, 0, &a)) || (st = manta_arg_f64(t, 1, &b))) return st;
    return manta_return_f64(t, 0, a + b);
}
MANTA_REMOTE(add)

static manta_status nop(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(nop)

static manta_status pid(manta_task *t)
{
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(pid)

static manta_status echo(manta_task *t)
{
    manta_array a;
    const char *s;
    const void *at;
    const manta_ref *r;
    size_t n;
    manta_actor handle;
    manta_status st;
    switch (manta_arg_kind(t, 0)) {
    case MANTA_KIND_ARRAY: return (st = manta_arg_array(t, 0, &a)) ? st : manta_return_array(t, 0, &a);
    case MANTA_KIND_STR: return (st = manta_arg_str(t, 0, &s)) ? st : manta_return(t, 0, manta_str(s));
    case MANTA_KIND_BYTES:
        return (st = manta_arg_bytes(t, 0, &at, &n)) ? st : manta_return(t, 0, manta_bytes(at, n));
    case MANTA_KIND_REFS:
        return (st = manta_arg_refs(t, 0, &r, &n)) ? st : manta_return(t, 0, manta_refs(r, n));
    case MANTA_KIND_ACTOR:
        return (st = manta_arg_actor(t, 0, &handle)) ? st : manta_return(t, 0, manta_handle(handle));
    default: return MANTA_OK;
    }
}
MANTA_REMOTE(echo)

static manta_status fail(manta_task *t)
{
    (void)t;
    return manta_fail(MANTA_ENAN, "the loss is not a number at step %d", 812);
}
MANTA_REMOTE(fail)

static manta_status die(manta_task *t)
{
    (void)t;
    raise(SIGKILL);
    return MANTA_OK;
}
MANTA_REMOTE(die)

/* Dies in its first attempts. */
static manta_status die_twice(manta_task *t)
{
    if (manta_task_attempt(t) < 2) raise(SIGKILL);
    return manta_return_i64(t, 0, manta_task_attempt(t));
}
MANTA_REMOTE(die_twice)

static manta_status fail_once(manta_task *t)
{
    if (manta_task_attempt(t) < 1) return manta_fail(MANTA_EIO, "not yet");
    return manta_return_i64(t, 0, manta_task_attempt(t));
}
MANTA_REMOTE(fail_once)

/* Waits until it is cancelled, or for ever. */
static manta_status linger(manta_task *t)
{
    while (!manta_task_is_cancelled(t)) usleep(200);
    return manta_fail(MANTA_ECANCELLED, "I was asked to stop");
}
MANTA_REMOTE(linger)

static manta_status pause_ms(manta_task *t)
{
    int64_t ms;
    manta_status st = manta_arg_i64(t, 0, &ms);
    if (!st) usleep((useconds_t)ms * 1000);
    return st ? st : manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(pause_ms)

/* fib(n) by two calls of itself, both awaited: deep nests must not starve. */
static manta_status fib(manta_task *t)
{
    int64_t n, a, b;
    manta_status st = manta_arg_i64(t, 0, &n);
    if (st || n < 2) return st ? st : manta_return_i64(t, 0, n);
    manta_ref x = manta_remote(fib, manta_i64(n - 1)), y = manta_remote(fib, manta_i64(n - 2));
    if (!(st = manta_get_i64(x, &a, MANTA_FOREVER)) && !(st = manta_get_i64(y, &b, MANTA_FOREVER)))
        st = manta_return_i64(t, 0, a + b);
    manta_release(x);
    manta_release(y);
    return st;
}
MANTA_REMOTE(fib)

static manta_status sum_refs(manta_task *t)
{
    const manta_ref *r;
    size_t n;
    double sum = 0, x;
    manta_status st = manta_arg_refs(t, 0, &r, &n);
    for (size_t i = 0; i < n && !st; i++) {
        st = manta_get_f64(r[i], &x, MANTA_FOREVER);
        sum += x;
    }
    return st ? st : manta_return_f64(t, 0, sum);
}
MANTA_REMOTE(sum_refs)

/* Puts objects and returns references to them: they outlive this process. */
static manta_status make_refs(manta_task *t)
{
    manta_ref r[2];
    float *big = malloc(1 << 20);
    int64_t dims[1] = {(1 << 20) / 4};
    for (int i = 0; i < dims[0]; i++) big[i] = (float)i;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 1, dims, big);
    r[0] = manta_put(manta_f64(42));
    r[1] = manta_put(manta_elements(&a));
    free(big);
    manta_status st = manta_return(t, 0, manta_refs(r, 2));
    if (!st && manta_results(t) > 1) st = manta_return_i64(t, 1, getpid());
    manta_release_all(r, 2);
    return st;
}
MANTA_REMOTE(make_refs)

static manta_status ramp(manta_task *t)
{
    int64_t n;
    manta_array a;
    manta_status st = manta_arg_i64(t, 0, &n);
    if (!st) st = manta_return_create(t, 0, MANTA_DTYPE_F32, 1, &n, &a);
    for (int64_t i = 0; i < n && !st; i++) ((float *)a.data)[i] = (float)i;
    if (!st && manta_results(t) > 1) st = manta_return_i64(t, 1, getpid());
    return st;
}
MANTA_REMOTE(ramp)

static manta_status total(manta_task *t)
{
    manta_array a;
    double sum = 0;
    manta_status st = manta_arg_array(t, 0, &a);
    for (int64_t i = 0; !st && i < manta_array_count(&a); i++) sum += (double)((float *)a.data)[i];
    return st ? st : manta_return_f64(t, 0, sum);
}
MANTA_REMOTE(total)

static manta_status divmod(manta_task *t)
{
    int64_t a, b;
    manta_status st;
    if ((st = manta_arg_i64(t, 0, &a)) || (st = manta_arg_i64(t, 1, &b))) return st;
    if ((st = manta_return_i64(t, 0, a / b))) return st;
    return manta_return_i64(t, 1, a % b);
}
MANTA_REMOTE(divmod)

/* A child of a worker that nobody waits for, in a session of its own. */
static manta_status grandchild(manta_task *t)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        for (;;) pause();
    }
    return manta_return_i64(t, 0, child);
}
MANTA_REMOTE(grandchild)

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

/* ---- an actor ---- */

static manta_status counter(manta_task *t)
{
    int64_t *n = calloc(1, sizeof *n);
    manta_status st = manta_args(t) > 0 ? manta_arg_i64(t, 0, n) : MANTA_OK;
    if (!st && *n < 0) {
        free(n);
        return manta_fail(MANTA_EINVAL, "a counter cannot begin at a negative number");
    }
    manta_set_self(t, n, free);
    return st;
}
MANTA_REMOTE(counter)

static manta_status counter_add(manta_task *t)
{
    int64_t *n = manta_self(t), x;
    manta_status st = manta_arg_i64(t, 0, &x);
    if (!st) *n += x;
    return st ? st : manta_return_i64(t, 0, *n);
}
MANTA_REMOTE(counter_add)

static manta_status use_counter(manta_task *t)
{
    manta_actor a;
    int64_t v = 0;
    manta_status st = manta_arg_actor(t, 0, &a);
    if (st) return st;
    manta_ref r = manta_actor_call(a, counter_add, manta_i64(100));
    st = manta_get_i64(r, &v, MANTA_FOREVER);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(use_counter)

/* ---- scenarios ---- */

static void calls(void)
{
    double v;
    int64_t q, r, p;
    manta_ref x = manta_remote(add, manta_f64(1), manta_f64(2));
    manta_ref y = manta_remote(add, x, manta_f64(3));
    OK(manta_get_f64(y, &v, MANTA_FOREVER));
    CHECK(v == 6);
    manta_release(x);
    manta_release(y);
    manta_ref both[2];
    manta_remote_n(2, both, NULL, divmod, manta_i64(17), manta_i64(5));
    OK(manta_get_i64(both[0], &q, MANTA_FOREVER));
    OK(manta_get_i64(both[1], &r, MANTA_FOREVER));
    CHECK(q == 3 && r == 2);
    manta_release_all(both, 2);
    manta_ref who = manta_remote(pid);
    OK(manta_get_i64(who, &p, MANTA_FOREVER));
    CHECK(p > 0);
    manta_release(who);
    enum { N = 2000 };
    static manta_ref many[N];
    for (int i = 0; i < N; i++) many[i] = manta_remote(add, manta_f64(i), manta_f64(1));
    OK(manta_get_all(many, N, MANTA_FOREVER));
    for (int i = 0; i < N; i++) {
        OK(manta_get_f64(many[i], &v, 0));
        CHECK(v == i + 1);
    }
    manta_release_all(many, N);
    /* A chain of references, each the argument of the next. */
    x = manta_put(manta_f64(0));
    for (int i = 0; i < 200; i++) {
        y = manta_remote(add, x, manta_f64(1));
        manta_release(x);
        x = y;
    }
    OK(manta_get_f64(x, &v, MANTA_FOREVER));
    CHECK(v == 200);
    manta_release(x);
}

static void values(void)
{
    const char *s;
    const void *at;
    size_t n;
    manta_array a;
    manta_ref r = manta_remote(echo, manta_str("grüße"));
    OK(manta_get_str(r, &s, MANTA_FOREVER));
    CHECK(!strcmp(s, "grüße"));
    manta_release(r);
    r = manta_remote(echo, manta_bytes("a\0b", 3));
    OK(manta_get_bytes(r, &at, &n, MANTA_FOREVER));
    CHECK(n == 3 && !memcmp(at, "a\0b", 3));
    manta_release(r);
    for (int64_t size = 1; size < 8000000; size *= 7) {
        int64_t dims[2] = {size, 1};
        float *f = malloc((size_t)size * 4);
        for (int64_t i = 0; i < size; i++) f[i] = (float)i;
        manta_array b = manta_array_of(MANTA_DTYPE_F32, 2, dims, f);
        r = manta_remote(echo, manta_elements(&b));
        manta_ref direct = manta_put(manta_elements(&b)), twice = manta_remote(echo, direct);
        manta_ref all[3] = {r, direct, twice};
        for (int k = 0; k < 3; k++) {
            OK(manta_get_array(all[k], &a, MANTA_FOREVER));
            CHECK(a.ndim == 2 && a.shape[0] == size && a.shape[1] == 1 && a.dtype == MANTA_DTYPE_F32);
            CHECK(!memcmp(a.data, f, (size_t)size * 4));
        }
        manta_release_all(all, 3);
        free(f);
    }
    /* A transposed view is gathered. */
    double m[6] = {1, 2, 3, 4, 5, 6};
    manta_array view = {.data = m, .dtype = MANTA_DTYPE_F64, .ndim = 2, .shape = {3, 2}, .strides = {1, 3}};
    r = manta_remote(echo, manta_elements(&view));
    OK(manta_get_array(r, &a, MANTA_FOREVER));
    const double want[6] = {1, 4, 2, 5, 3, 6};
    CHECK(!memcmp(a.data, want, sizeof want));
    manta_release(r);
    /* Created in place. */
    int64_t dims[1] = {100000};
    double v;
    OK(manta_create(MANTA_DTYPE_F32, 1, dims, &a, &r));
    for (int i = 0; i < 100000; i++) ((float *)a.data)[i] = 1;
    CHECK(manta_get(r, 0) == MANTA_EINVAL);
    OK(manta_seal(r));
    manta_ref t = manta_remote(total, r);
    OK(manta_get_f64(t, &v, MANTA_FOREVER));
    CHECK(v == 100000);
    manta_release(t);
    manta_release(r);
    manta_ref both[2];
    manta_remote_n(2, both, NULL, ramp, manta_i64(300000));
    t = manta_remote(total, both[0]);
    OK(manta_get_f64(t, &v, MANTA_FOREVER));
    CHECK(v == 300000.0 * 299999 / 2);
    manta_release(t);
    manta_release_all(both, 2);
}

static void failures(void)
{
    manta_failure f;
    manta_ref r = manta_remote(fail);
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_ENAN);
    CHECK(strstr(manta_error_text(), "the loss is not a number at step 812"));
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILED_TASK && f.code == MANTA_ENAN && !strcmp(f.function, "fail") && f.pid > 0);
    CHECK(f.pid != getpid() && f.host[0]);
    /* The failure of an argument is the failure of the call. */
    manta_ref next = manta_remote(add, r, manta_f64(1));
    CHECK(manta_get(next, MANTA_FOREVER) == MANTA_ENAN);
    manta_release(next);
    manta_release(r);
    r = manta_submit_one("nothing_of_that_name", NULL, 0, (manta_arg[1]){{0}});
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_ENOENT);
    manta_release(r);
    r = manta_remote(add, manta_f64(1), manta_str("x"));
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_EINVAL && strstr(manta_error_text(), "argument 1 is a text"));
    manta_release(r);
    /* What can never run is said at once. */
    manta_task_options huge = {.num_cpus = 10000};
    r = manta_remote_with(&huge, nop);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && strstr(manta_error_text(), "10000 cpu"));
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILED_IMPOSSIBLE);
    manta_release(r);
    manta_task_options odd = {.resources = "unicorn=1"};
    r = manta_remote_with(&odd, nop);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && strstr(manta_error_text(), "unicorn"));
    manta_release(r);
    r = manta_remote(linger);
    CHECK(manta_get(r, 20) == MANTA_ETIMEDOUT && strstr(manta_error_text(), "linger"));
    OK(manta_cancel(r, false));
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_ECANCELLED);
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILED_CANCELLED);
    manta_release(r);
    r = manta_remote(linger);
    CHECK(manta_get(r, 20) == MANTA_ETIMEDOUT);
    OK(manta_cancel(r, true));
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_ECANCELLED);
    manta_release(r);
    CHECK(manta_get((manta_ref){12345}, 0) == MANTA_EINVAL);
}

static void deaths(void)
{
    int64_t v;
    manta_failure f;
    manta_task_options never = {.max_retries = MANTA_NONE};
    double begin = now();
    manta_ref r = manta_remote_with(&never, die);
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_EDIED);
    CHECK(strstr(manta_error_text(), "killed by signal 9") && strstr(manta_error_text(), "die"));
    CHECK(now() - begin < 1);
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILED_WORKER && f.pid > 0);
    manta_release(r);
    r = manta_remote(die); /* three retries, then the same */
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_EDIED);
    manta_release(r);
    r = manta_remote(die_twice);
    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    CHECK(v == 2);
    manta_release(r);
    manta_task_options again = {.retry_errors = true};
    r = manta_remote_with(&again, fail_once);
    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    CHECK(v == 1);
    manta_release(r);
    r = manta_remote(fail_once);
    CHECK(manta_get_i64(r, &v, MANTA_FOREVER) == MANTA_EIO);
    manta_release(r);
    /* A large result outlives the process that made it. */
    manta_ref both[2];
    manta_array a;
    manta_remote_n(2, both, NULL, ramp, manta_i64(100000));
    OK(manta_get_i64(both[1], &v, MANTA_FOREVER));
    CHECK(kill((pid_t)v, SIGKILL) == 0);
    r = manta_remote(pid);
    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    manta_release(r);
    OK(manta_get_array(both[0], &a, MANTA_FOREVER));
    CHECK(((float *)a.data)[99999] == 99999);
    manta_release_all(both, 2);
}

static void nested(void)
{
    int64_t v;
    double d;
    manta_ref r = manta_remote(fib, manta_i64(9));
    OK(manta_get_i64(r, &v, 60000));
    CHECK(v == 34);
    manta_release(r);
    /* References inside a value stay references: pending, small and large. */
    manta_ref in[3] = {manta_put(manta_f64(1)), manta_remote(add, manta_f64(1), manta_f64(1)),
                       manta_put(manta_f64(4))};
    r = manta_remote(sum_refs, manta_refs(in, 3));
    manta_release_all(in, 3); /* the call holds them */
    OK(manta_get_f64(r, &d, 60000));
    CHECK(d == 7);
    manta_release(r);
    const manta_ref *out;
    size_t n;
    manta_array a;
    manta_ref both[2];
    manta_remote_n(2, both, NULL, make_refs);
    OK(manta_get_refs(both[0], &out, &n, 60000));
    CHECK(n == 2);
    OK(manta_get_i64(both[1], &v, 60000));
    CHECK(kill((pid_t)v, SIGKILL) == 0); /* its maker dies; the objects do not */
    r = manta_remote(pid);
    OK(manta_get(r, 60000));
    manta_release(r);
    OK(manta_get_f64(out[0], &d, 60000));
    CHECK(d == 42);
    OK(manta_get_array(out[1], &a, 60000));
    CHECK(((float *)a.data)[1000] == 1000);
    manta_release_all(both, 2);
}

static void actors(void)
{
    int64_t v;
    manta_ref r;
    manta_failure f;
    manta_actor c = manta_actor_new(NULL, counter, manta_i64(10));
    for (int i = 1; i <= 1000; i++) {
        r = manta_actor_call(c, counter_add, manta_i64(1));
        if (i < 1000) manta_release(r);
    }
    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    CHECK(v == 1010);
    manta_release(r);
    r = manta_remote(use_counter, manta_handle(c));
    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    CHECK(v == 1110);
    manta_release(r);
    int p = manta_actor_pid(c);
    CHECK(p > 0);
    OK(manta_actor_kill(c, true));
    r = manta_actor_call(c, counter_add, manta_i64(1));
    CHECK(manta_get(r, MANTA_FOREVER) != MANTA_OK);
    manta_release(r);
    r = manta_actor_call(c, counter_add, manta_i64(1));
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_EDIED);
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILED_ACTOR);
    manta_release(r);
    manta_actor_release(c);
    /* Calls that wait when the handle goes still end, and so does the actor. */
    c = manta_actor_new(NULL, counter, manta_i64(1));
    manta_ref slow = manta_remote(pause_ms, manta_i64(100));
    r = manta_actor_call(c, counter_add, slow);
    manta_ref behind = manta_actor_call(c, counter_add, manta_i64(5));
    manta_actor_release(c);
    manta_release(slow);
    OK(manta_get_i64(behind, &v, MANTA_FOREVER));
    manta_release(r);
    manta_release(behind);
    c = manta_actor_new(NULL, counter, manta_i64(1));
    OK(manta_actor_ready(c, MANTA_FOREVER));
    slow = manta_remote(pause_ms, manta_i64(100));
    r = manta_actor_call(c, counter_add, slow);
    OK(manta_actor_kill(c, true));
    manta_actor_release(c);
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_EDIED);
    manta_release(r);
    manta_release(slow);
    /* A constructor that fails says so with every call. */
    c = manta_actor_new(NULL, counter, manta_i64(-1));
    CHECK(manta_actor_ready(c, MANTA_FOREVER) == MANTA_EINVAL);
    CHECK(strstr(manta_error_text(), "negative"));
    manta_actor_release(c);
    /* Names. */
    manta_task_options named = {.name = "tally"};
    manta_actor found;
    CHECK(manta_actor_find("tally", &found) == MANTA_ENOENT);
    c = manta_actor_new(&named, counter);
    OK(manta_actor_find("tally", &found));
    CHECK(found.id == c.id);
    manta_actor_release(found);
    manta_actor twin = manta_actor_new(&named, counter);
    CHECK(manta_actor_ready(twin, MANTA_FOREVER) == MANTA_EEXIST);
    manta_actor_release(twin);
    named.get_if_exists = true;
    twin = manta_actor_new(&named, counter);
    CHECK(twin.id == c.id);
    manta_actor_release(twin);
    /* The last handle ends it. */
    OK(manta_actor_ready(c, MANTA_FOREVER));
    p = manta_actor_pid(c);
    manta_actor_release(c);
    double begin = now();
    while (kill(p, 0) == 0 && now() - begin < 5) usleep(500);
    CHECK(kill(p, 0) != 0 && errno == ESRCH);
    CHECK(manta_actor_find("tally", &found) == MANTA_ENOENT);
    /* Restarts: the constructor runs again; the call that was lost is not. */
    manta_task_options sturdy = {.max_restarts = 1};
    c = manta_actor_new(&sturdy, counter, manta_i64(5));
    r = manta_actor_call(c, counter_add, manta_i64(1));
    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    CHECK(v == 6);
    manta_release(r);
    r = manta_actor_call(c, die);
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_EUNKNOWN);
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILED_UNKNOWN);
    manta_release(r);
    r = manta_actor_call(c, counter_add, manta_i64(1));
    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    CHECK(v == 6);
    manta_release(r);
    r = manta_actor_call(c, die);
    CHECK(manta_get(r, MANTA_FOREVER) != MANTA_OK);
    manta_release(r);
    r = manta_actor_call(c, counter_add, manta_i64(1));
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_EDIED);
    manta_release(r);
    manta_actor_release(c);
}

static void waits(void)
{
    manta_ref r[4];
    bool ready[4];
    size_t n;
    manta_task_options light = {.num_cpus = MANTA_NONE};
    for (int i = 0; i < 4; i++) r[i] = manta_remote_with(&light, pause_ms, manta_i64(i == 2 ? 1 : 600000));
    OK(manta_wait(r, 4, 1, 60000, ready, &n));
    CHECK(n == 1 && ready[2] && !ready[0] && !ready[1] && !ready[3]);
    OK(manta_wait(r, 4, 4, 0, ready, &n));
    CHECK(n == 1);
    for (int i = 0; i < 4; i++)
        if (i != 2) OK(manta_cancel(r[i], true)); /* what failed is ready, too */
    OK(manta_wait(r, 4, 4, MANTA_FOREVER, ready, &n));
    CHECK(n == 4);
    OK(manta_wait(r, 4, 2, 0, ready, &n));
    CHECK(n == 2 && ready[0] && ready[1] && !ready[2] && !ready[3]);
    manta_ref same[2] = {r[0], r[0]};
    CHECK(manta_wait(same, 2, 1, 0, ready, &n) == MANTA_EINVAL);
    manta_release_all(r, 4);
    OK(manta_wait(r, 0, 0, 0, ready, &n));
    CHECK(n == 0);
}

/* Everything comes back: after many objects the store is as it was. */
static void memory(void)
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
    while (after.objects > 0 && now() - begin < 5);
    CHECK(after.objects == 0);
    CHECK(after.store_used <= before.store_used + (16u << 20));
    free(f);
}

static void full(void)
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
    CHECK(f.kind == MANTA_FAILED_FULL);
    manta_release(s);
    OK(manta_seal(r));
    manta_release(r);
    OK(manta_create(MANTA_DTYPE_U8, 1, dims, &a, &s)); /* the same pages again */
    OK(manta_seal(s));
    manta_release(s);
}

/* Prints who is there, then stays; the test kills. */
static void stay(void)
{
    manta_node_info n;
    int64_t child;
    manta_ref r = manta_remote(grandchild);
    OK(manta_get_i64(r, &child, MANTA_FOREVER));
    manta_actor c = manta_actor_new(NULL, counter);
    OK(manta_actor_ready(c, MANTA_FOREVER));
    manta_ref busy = manta_remote(linger);
    CHECK(manta_get(busy, 50) == MANTA_ETIMEDOUT);
    OK(manta_node_get(&n));
    printf("driver %d keeper %d daemon %d zygote %d grandchild %d actor %d workers", getpid(), n.keeper_pid,
           n.daemon_pid, n.zygote_pid, (int)child, manta_actor_pid(c));
    for (int i = 0; i < n.n_worker_pids; i++) printf(" %d", n.worker_pids[i]);
    printf("\n");
    fflush(stdout);
    double begin = now();
    manta_status st = manta_get(busy, MANTA_FOREVER);
    printf("ended %s: %s (%.3f s)\n", manta_status_name(st), manta_error_text(), now() - begin);
    fflush(stdout);
    r = manta_remote(nop);
    st = manta_get(r, 2000);
    printf("after %s: %s\n", manta_status_name(st), manta_error_text());
    fflush(stdout);
    if (getenv("STAY")) pause();
}

/* The zygote dies: nothing is noticed, and new workers can still be had. */
static void zygote(void)
{
    manta_node_info n, m;
    int64_t a, b;
    manta_ref r = manta_remote(nop); /* there is a worker, so there is a zygote */
    OK(manta_get(r, 20000));
    manta_release(r);
    OK(manta_node_get(&n));
    CHECK(n.zygote_pid > 1 && kill(n.zygote_pid, SIGKILL) == 0);
    r = manta_remote(pid);
    OK(manta_get_i64(r, &a, 5000));
    manta_release(r);
    CHECK(kill((pid_t)a, SIGKILL) == 0);
    r = manta_remote(die_twice);
    OK(manta_get_i64(r, &b, 10000));
    manta_release(r);
    OK(manta_node_get(&m));
    CHECK(m.zygote_pid > 0 && m.zygote_pid != n.zygote_pid);
}

static void take_numbers(int64_t n, int64_t bad, manta_status end)
{
    manta_stream s = manta_remote_stream(NULL, numbers, manta_i64(n), manta_i64(bad));
    manta_ref r;
    for (int64_t i = 0; i < (bad > 0 && bad < n ? bad : n); i++) {
        manta_array a;
        int64_t v;
        OK(manta_stream_next(s, &r, 20000));
        if (i % 10 == 9) {
            OK(manta_get_array(r, &a, 0));
            CHECK(((float *)a.data)[7] == (float)i);
        } else {
            OK(manta_get_i64(r, &v, 0));
            CHECK(v == i);
        }
        manta_release(r);
    }
    CHECK(manta_stream_next(s, &r, 20000) == end);
    CHECK(manta_stream_next(s, &r, 20000) == end); /* and again */
    manta_stream_close(s);
}

static void streams(void)
{
    manta_node_info n;
    manta_ref r;
    take_numbers(200, 1 << 20, MANTA_ENOENT);
    take_numbers(200, 57, MANTA_ENAN); /* what came before the failure is there */
    take_numbers(200, -63, MANTA_ENOENT); /* its worker dies: again, and no item twice */
    manta_stream s = manta_remote_stream(NULL, numbers, manta_i64(1000000), manta_i64(1 << 20));
    OK(manta_stream_next(s, &r, 20000));
    manta_release(r);
    manta_stream_close(s); /* and the function, which is far from its end, ends */
    double begin = now();
    r = manta_remote(pid);
    OK(manta_get(r, 20000));
    manta_release(r);
    do OK(manta_node_get(&n));
    while ((n.objects > 0 || n.free_cpus < 0) && now() - begin < 5);
    CHECK(n.objects == 0);
    r = manta_remote(numbers, manta_i64(3), manta_i64(100)); /* not as a stream */
    CHECK(manta_get(r, 20000) == MANTA_EINVAL);
    manta_release(r);
}

/* Inputs of unequal length over three actors. */
static void pools(void)
{
    enum { N = 30 };
    manta_actor a[3] = {{0}};
    manta_pool *p;
    manta_ref r;
    int64_t v;
    CHECK(manta_pool_new(0, a, &p) == MANTA_EINVAL);
    for (int i = 0; i < 3; i++) a[i] = manta_actor_new(NULL, counter);
    OK(manta_pool_new(3, a, &p));
    CHECK(manta_pool_next(p, &r, 0) == MANTA_ENOENT);
    for (int i = 0; i < N; i++) OK(manta_pool_call(p, 20000, counter_add, manta_i64(1)));
    CHECK(manta_pool_pending(p) == N);
    int64_t sum = 0;
    for (int i = 0; i < N; i++) {
        OK(manta_pool_next(p, &r, 20000));
        OK(manta_get_i64(r, &v, 0));
        sum += v;
        manta_release(r);
    }
    CHECK(sum >= N && manta_pool_pending(p) == 0);
    /* The slow one does not hold the others up, and keeps its place in order. */
    OK(manta_pool_call(p, 20000, pause_ms, manta_i64(1000)));
    OK(manta_pool_call(p, 20000, counter_add, manta_i64(100)));
    OK(manta_pool_call(p, 20000, pause_ms, manta_i64(1000)));
    OK(manta_pool_next_ready(p, &r, 20000));
    OK(manta_get_i64(r, &v, 0));
    CHECK(v > 100 && v < 200); /* the counter's, not a pid's turn */
    manta_release(r);
    OK(manta_pool_call(p, 20000, pause_ms, manta_i64(1000)));
    CHECK(manta_pool_call(p, 0, counter_add, manta_i64(1)) == MANTA_ETIMEDOUT); /* all are busy */
    OK(manta_pool_next(p, &r, 20000));
    manta_release(r);
    CHECK(manta_pool_pending(p) == 2);
    manta_pool_free(p);
    for (int i = 0; i < 3; i++) manta_actor_release(a[i]);
}

/* An actor that runs several calls at once, and one that takes only so many. */
static void concurrent(void)
{
    enum { N = 8 };
    manta_task_options four = {.max_concurrency = 4};
    manta_ref r[N];
    int64_t v;
    manta_actor c = manta_actor_new(&four, counter, manta_i64(0));
    OK(manta_actor_ready(c, MANTA_FOREVER));
    double begin = now();
    for (int i = 0; i < N; i++) r[i] = manta_actor_call(c, pause_ms, manta_i64(200));
    OK(manta_get_all(r, N, MANTA_FOREVER));
    CHECK(now() - begin < 8 * 0.2 * 0.75 && now() - begin >= 2 * 0.2); /* two rounds of four */
    manta_release_all(r, N);
    manta_ref stuck = manta_actor_call(c, linger);
    manta_ref quick = manta_actor_call(c, counter_add, manta_i64(3));
    OK(manta_get_i64(quick, &v, 10000)); /* is not behind it */
    CHECK(v == 3);
    OK(manta_cancel(stuck, false));
    CHECK(manta_get(stuck, 10000) == MANTA_ECANCELLED);
    manta_release(stuck);
    manta_release(quick);
    int p = manta_actor_pid(c);
    manta_actor_release(c);
    begin = now();
    while (kill(p, 0) == 0 && now() - begin < 5) usleep(500);
    CHECK(kill(p, 0) != 0);
    manta_task_options two = {.max_pending_calls = 2};
    c = manta_actor_new(&two, counter);
    for (int i = 0; i < 3; i++) r[i] = manta_actor_call(c, pause_ms, manta_i64(50));
    CHECK(manta_get(r[2], 0) == MANTA_EBUSY);
    OK(manta_get_all(r, 2, MANTA_FOREVER));
    r[3] = manta_actor_call(c, counter_add, manta_i64(1));
    OK(manta_get(r[3], MANTA_FOREVER));
    manta_release_all(r, 4);
    manta_actor_release(c);
}

/* Several threads of one driver, each with calls, objects and waits of its own. */
static manta_actor shared_actor;

static void *caller(void *arg)
{
    double base = *(double *)arg, v;
    int64_t n;
    for (int i = 0; i < 300; i++) {
        manta_ref x = manta_put(manta_f64(base)), y = manta_remote(add, x, manta_f64(i));
        manta_ref z = manta_remote(add, y, x), c = manta_actor_call(shared_actor, counter_add, manta_i64(1));
        OK(manta_get_f64(z, &v, 30000));
        CHECK(v == 2 * base + i);
        OK(manta_get_i64(c, &n, 30000));
        manta_ref all[4] = {x, y, z, c};
        manta_release_all(all, 4);
    }
    return NULL;
}

static void threads(void)
{
    enum { N = 4 };
    pthread_t id[N];
    double base[N];
    int64_t n;
    shared_actor = manta_actor_new(NULL, counter);
    for (int i = 0; i < N; i++) {
        base[i] = 1000 * i;
        CHECK(pthread_create(&id[i], NULL, caller, &base[i]) == 0);
    }
    for (int i = 0; i < N; i++) CHECK(pthread_join(id[i], NULL) == 0);
    manta_ref r = manta_actor_call(shared_actor, counter_add, manta_i64(0));
    OK(manta_get_i64(r, &n, MANTA_FOREVER));
    CHECK(n == 300 * N);
    manta_release(r);
    manta_actor_release(shared_actor);
}

/* Work of all kinds while workers and zygotes are killed at random: every call
 * must end, with the right value, and in the end nothing may be held. */
static void chaos(void)
{
    const char *env = getenv("CHAOS_SECONDS"), *seed = getenv("CHAOS_SEED");
    double limit = env ? atof(env) : 3, begin = now();
    unsigned short random[3] = {(unsigned short)(seed ? atoi(seed) : 1), 2, 3};
    manta_task_options sturdy = {.max_retries = MANTA_UNLIMITED};
    manta_task_options phoenix = {.max_restarts = MANTA_UNLIMITED, .max_task_retries = MANTA_UNLIMITED};
    manta_node_info n;
    int rounds = 0, kills = 0;
    while (now() - begin < limit) {
        enum { N = 12 };
        manta_ref r[N], big[4], in[4], nest[2], sum;
        int64_t v;
        double d;
        manta_array a;
        manta_actor c = manta_actor_new(&phoenix, counter, manta_i64(5));
        for (int i = 0; i < N; i++) r[i] = manta_remote_with(&sturdy, add, manta_f64(i), manta_f64(rounds));
        int64_t dims[1] = {50000};
        float *f = malloc(200000);
        for (int i = 0; i < 50000; i++) f[i] = (float)(i + rounds);
        manta_array src = manta_array_of(MANTA_DTYPE_F32, 1, dims, f);
        for (int i = 0; i < 4; i++) {
            in[i] = manta_put(manta_elements(&src));
            big[i] = manta_remote_with(&sturdy, echo, in[i]);
        }
        for (int i = 0; i < 2; i++) nest[i] = manta_remote_with(&sturdy, fib, manta_i64(5));
        sum = manta_remote_with(&sturdy, sum_refs, manta_refs(r, N));
        manta_ref count = manta_actor_call(c, counter_add, manta_i64(1));
        OK(manta_node_get(&n));
        int k = (int)(erand48(random) * 3);
        for (int i = 0; i < k && n.n_worker_pids > 0; i++) {
            kills++;
            kill(n.worker_pids[(int)(erand48(random) * n.n_worker_pids)], SIGKILL);
        }
        if (erand48(random) < 0.1 && n.zygote_pid > 1) kill(n.zygote_pid, SIGKILL);
        for (int i = 0; i < N; i++) {
            OK(manta_get_f64(r[i], &d, 20000));
            CHECK(d == i + rounds);
        }
        for (int i = 0; i < 4; i++) {
            OK(manta_get_array(big[i], &a, 20000));
            CHECK(!memcmp(a.data, f, 200000));
        }
        for (int i = 0; i < 2; i++) {
            OK(manta_get_i64(nest[i], &v, 20000));
            CHECK(v == 5);
        }
        OK(manta_get_f64(sum, &d, 20000));
        CHECK(d == N * (N - 1) / 2 + N * rounds);
        OK(manta_get_i64(count, &v, 20000));
        CHECK(v >= 6); /* at least once */
        manta_release_all(r, N);
        manta_release_all(big, 4);
        manta_release_all(in, 4);
        manta_release_all(nest, 2);
        manta_release(sum);
        manta_release(count);
        manta_actor_release(c);
        free(f);
        rounds++;
    }
    double end = now();
    do OK(manta_node_get(&n));
    while ((n.objects > 0 || n.actors > 0) && now() - end < 5);
    printf("%d rounds, %d kills; %llu objects and %d actors are left\n", rounds, kills,
           (unsigned long long)n.objects, n.actors);
    CHECK(n.objects == 0 && n.actors == 0);
}

static void shutdown_twice(void)
{
    manta_node_info n;
    OK(manta_node_get(&n));
    CHECK(kill(n.daemon_pid, SIGSTOP) == 0); /* even so */
    double begin = now();
    manta_shutdown();
    CHECK(now() - begin < 3);
    CHECK(kill(n.daemon_pid, 0) != 0 && kill(n.keeper_pid, 0) != 0);
    manta_shutdown();
    CHECK(!manta_is_initialized());
    OK(manta_init(NULL, NULL, NULL));
    CHECK(manta_init(NULL, NULL, NULL) == MANTA_EEXIST);
    calls();
}

/* ---- speed: rows of the table ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void row(const char *name, double n, double seconds)
{
    printf("{\"row\": \"%s\", \"per_s\": %.0f, \"us\": %.3f}\n", name, n / seconds, seconds / n * 1e6);
    fflush(stdout);
}

static void speed(void)
{
    double begin = now(), v;
    static double us[20000];
    static manta_ref r[20000];
    manta_ref x = manta_remote(add, manta_f64(1), manta_f64(2));
    OK(manta_get_f64(x, &v, MANTA_FOREVER));
    printf("first call %.2f ms\n", (now() - begin) * 1e3);
    manta_release(x);
    int n = 20000;
    begin = now();
    for (int i = 0; i < n; i++) {
        r[i] = manta_put(manta_i64(i));
        manta_release(r[i]);
    }
    row("single client put calls", n, now() - begin);
    x = manta_put(manta_i64(1));
    begin = now();
    for (int i = 0; i < n; i++) OK(manta_get(x, 0));
    row("single client get calls", n, now() - begin);
    manta_release(x);
    for (int k = 0; k < 2; k++) {
        begin = now();
        for (int i = 0; i < n; i++) {
            double b = now();
            x = manta_remote(nop);
            OK(manta_get(x, MANTA_FOREVER));
            manta_release(x);
            us[i] = (now() - b) * 1e6;
        }
        if (k) row("single client tasks sync", n, now() - begin);
    }
    qsort(us, (size_t)n, sizeof us[0], compare);
    printf("task sync p50 %.2f us p99 %.2f us\n", us[n / 2], us[n * 99 / 100]);
    for (int k = 0; k < 3; k++) {
        begin = now();
        for (int i = 0; i < n; i++) r[i] = manta_remote(nop);
        OK(manta_get_all(r, (size_t)n, MANTA_FOREVER));
        double s = now() - begin;
        manta_release_all(r, (size_t)n);
        if (k == 2) row("single client tasks async", n, s);
    }
    manta_actor c = manta_actor_new(NULL, counter);
    OK(manta_actor_ready(c, MANTA_FOREVER));
    for (int k = 0; k < 2; k++) {
        begin = now();
        for (int i = 0; i < n; i++) {
            double b = now();
            x = manta_actor_call(c, counter_add, manta_i64(1));
            OK(manta_get(x, MANTA_FOREVER));
            manta_release(x);
            us[i] = (now() - b) * 1e6;
        }
        if (k) row("1:1 actor calls sync", n, now() - begin);
    }
    qsort(us, (size_t)n, sizeof us[0], compare);
    printf("actor sync p50 %.2f us p99 %.2f us\n", us[n / 2], us[n * 99 / 100]);
    for (int k = 0; k < 3; k++) {
        begin = now();
        for (int i = 0; i < n; i++) r[i] = manta_actor_call(c, counter_add, manta_i64(1));
        OK(manta_get_all(r, (size_t)n, MANTA_FOREVER));
        double s = now() - begin;
        manta_release_all(r, (size_t)n);
        if (k == 2) row("1:1 actor calls async", n, s);
    }
    manta_actor_release(c);
    int64_t dims[1] = {16 << 20};
    char *bytes = malloc(16 << 20), *copy = malloc(16 << 20);
    memset(bytes, 1, 16 << 20);
    memset(copy, 1, 16 << 20);
    manta_array a = manta_array_of(MANTA_DTYPE_U8, 1, dims, bytes);
    for (int k = 0; k < 2; k++) {
        begin = now();
        for (int i = 0; i < 20; i++) {
            x = manta_put(manta_elements(&a));
            manta_release(x);
        }
        double s = now() - begin;
        printf("{\"row\": \"single client put gigabytes%s\", \"per_s\": %.2f}\n", k ? " (warm)" : " (first)",
               20 * 0.015625 / s);
    }
    begin = now();
    for (int i = 0; i < 20; i++) memcpy(copy, bytes, 16 << 20);
    printf("memcpy %.2f GiB/s\n", 20 * 0.015625 / (now() - begin));
    begin = now();
    for (int i = 0; i < 20; i++) {
        c = manta_actor_new(NULL, counter);
        OK(manta_actor_ready(c, MANTA_FOREVER));
        manta_actor_release(c);
    }
    row("new actor ready", 20, now() - begin);
    free(bytes);
    free(copy);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {{"calls", calls},     {"values", values},   {"failures", failures},
                 {"deaths", deaths},   {"nested", nested},   {"actors", actors},
                 {"waits", waits},     {"memory", memory},   {"full", full},
                 {"stay", stay},       {"zygote", zygote},   {"shutdown", shutdown_twice},
                 {"chaos", chaos},     {"threads", threads}, {"concurrent", concurrent},
                 {"streams", streams}, {"pools", pools},     {"speed", speed}};

int main(int argc, char **argv)
{
    manta_node_options o = {.address = getenv("MANTA_ADDRESS") ? NULL : "local"};
    const char *name = argc > 1 ? argv[1] : "";
    o.in_process = argc > 2 && !strcmp(argv[2], "inside");
    if (!strcmp(name, "full")) o.store_memory = 64 << 20;
    if (!strcmp(name, "shutdown")) o.num_cpus = 1;
    double begin = now();
    OK(manta_init(&argc, &argv, &o));
    if (!strcmp(name, "speed")) printf("init %.2f ms\n", (now() - begin) * 1e3);
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        if (strcmp(scenarios[i].name, name)) continue;
        scenarios[i].run();
        if (!getenv("LEAVE")) manta_shutdown();
        printf("%s: all is well\n", name);
        return 0;
    }
    fprintf(stderr, "no scenario is called %s\n", name);
    return 2;
}
