/* calls.c - calls, their arguments and results, and waiting for them. */
#include <signal.h>

#include <manta/actor.h>
#include <manta/context.h>

#include "scenario.h"

static manta_status divmod(manta_task *t)
{
    int64_t a, b;
    manta_status st;

    if ((st = manta_arg_i64(t, 0, &a)) || (st = manta_arg_i64(t, 1, &b))) return st;
    if ((st = manta_return_i64(t, 0, a / b))) return st;
    return manta_return_i64(t, 1, a % b);
}
MANTA_REMOTE(divmod)

static manta_status total(manta_task *t)
{
    manta_array a;
    double sum = 0;
    manta_status st = manta_arg_array(t, 0, &a);

    for (int64_t i = 0; !st && i < manta_array_count(&a); i++) sum += (double)((float *)a.data)[i];
    return st ? st : manta_return_f64(t, 0, sum);
}
MANTA_REMOTE(total)

void scenario_calls(void)
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
    /* What no call uses is free, though leases are kept for the next one, and though more were asked for
     * than were needed in the end: one may be granted while the answer is on its way. */
    for (int i = 0; i < 300; i++) {
        manta_node_info info;
        for (int k = 0; k < 8; k++) many[k] = manta_remote(add, manta_f64(k), manta_f64(i));
        OK(manta_get_all(many, 8, MANTA_FOREVER));
        manta_release_all(many, 8);
        OK(manta_node_get(&info));
        CHECK(info.free_cpus == info.cpus);
    }
}

void scenario_values(void)
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

/* Results are taken as they come and released at once, those that fail among them. */
static void wait_one_by_one(void)
{
    enum { N = 400 };
    static manta_ref left[N];
    static bool ready[N], taken[N];
    size_t n = N, got, failed = 0;

    for (size_t i = 0; i < N; i++)
        left[i] = i % 7 == 3 ? manta_remote(fail) : manta_remote(echo, manta_i64((int64_t)i));
    const uint64_t first = left[0].id;
    while (n > 0) {
        size_t k = 0;
        OK(manta_wait(left, n, 1, LONG, ready, &got));
        CHECK(got == 1);
        for (size_t i = 0; i < n; i++) {
            if (!ready[i]) {
                left[k++] = left[i];
                continue;
            }
            size_t at = (size_t)(left[i].id - first);
            CHECK(at < N && !taken[at]);
            taken[at] = true;
            manta_status st = manta_get(left[i], 0);
            CHECK(st == (at % 7 == 3 ? MANTA_ENAN : MANTA_OK));
            failed += st != MANTA_OK;
            manta_release(left[i]);
        }
        CHECK(k == n - 1);
        n = k;
    }
    CHECK(failed == (N - 4) / 7 + 1);
}

void scenario_waits(void)
{
    manta_ref r[4];
    bool ready[4];
    size_t n;
    manta_task_options light = {.num_cpus = MANTA_NONE};

    for (int i = 0; i < 4; i++) r[i] = manta_remote_with(&light, pause_ms, manta_i64(i == 2 ? 1 : 600000));
    OK(manta_wait(r, 4, 1, LONG, ready, &n));
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
    wait_one_by_one();
}

void scenario_nested(void)
{
    int64_t v;
    double d;
    manta_ref r = manta_remote(fib, manta_i64(9));

    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 34);
    manta_release(r);
    /* References inside a value stay references: pending, small and large. */
    manta_ref in[3] = {manta_put(manta_f64(1)), manta_remote(add, manta_f64(1), manta_f64(1)),
                       manta_put(manta_f64(4))};
    r = manta_remote(sum_refs, manta_refs(in, 3));
    manta_release_all(in, 3); /* the call holds them */
    OK(manta_get_f64(r, &d, LONG));
    CHECK(d == 7);
    manta_release(r);
    const manta_ref *out;
    size_t n;
    manta_array a;
    manta_ref both[2];
    manta_remote_n(2, both, NULL, make_refs);
    OK(manta_get_refs(both[0], &out, &n, LONG));
    CHECK(n == 2);
    OK(manta_get_i64(both[1], &v, LONG));
    CHECK(kill((pid_t)v, SIGKILL) == 0); /* its maker dies; the objects do not */
    r = manta_remote(pid);
    OK(manta_get(r, LONG));
    manta_release(r);
    OK(manta_get_f64(out[0], &d, LONG));
    CHECK(d == 42);
    OK(manta_get_array(out[1], &a, LONG));
    CHECK(((float *)a.data)[1000] == 1000);
    manta_release_all(both, 2);
}

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

/* A short call, by experience, unless it is asked to wait. */
static manta_status short_or_not(manta_task *t)
{
    int64_t wait;

    MANTA_TRY(manta_arg_i64(t, 0, &wait));
    while (wait && !manta_task_is_cancelled(t)) usleep(200);
    return wait ? manta_fail(MANTA_ECANCELLED, "I was asked to stop") : MANTA_OK;
}
MANTA_REMOTE(short_or_not)

/* Spread: nothing is sent behind a call that turns out to be long. */
void scenario_spread(void)
{
    enum { N = 60 };
    manta_ref r[N];
    manta_task_options o = {.strategy = MANTA_CALL_STRATEGY_SPREAD};

    for (int i = 0; i < N; i++) r[i] = manta_remote(short_or_not, manta_i64(0));
    OK(manta_get_all(r, N, LONG));
    manta_release_all(r, N);
    manta_ref stuck = manta_remote_with(&o, short_or_not, manta_i64(1));
    for (int i = 0; i < N; i++) r[i] = manta_remote_with(&o, short_or_not, manta_i64(0));
    OK(manta_get_all(r, N, LONG));
    manta_release_all(r, N);
    OK(manta_cancel(stuck, 0));
    CHECK(manta_get(stuck, LONG) == MANTA_ECANCELLED);
    manta_release(stuck);
}
