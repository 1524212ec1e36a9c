/* runtime_hello.c - remote functions, objects and an actor, in one page.
 *
 *     examples/runtime_hello
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <manta/actor.h>
#include <manta/task.h>

/* A remote function: it runs in another process of this same program. */
static manta_status add(manta_task *t)
{
    double a, b;

    MANTA_TRY(manta_arg_f64(t, 0, &a));
    MANTA_TRY(manta_arg_f64(t, 1, &b));
    return manta_return_f64(t, 0, a + b);
}
MANTA_REMOTE(add)

/* Two results. */
static manta_status divide(manta_task *t)
{
    int64_t a, b;

    MANTA_TRY(manta_arg_i64(t, 0, &a));
    MANTA_TRY(manta_arg_i64(t, 1, &b));
    if (b == 0) return manta_fail(MANTA_EINVAL, "%lld cannot be divided by zero", (long long)a);
    MANTA_TRY(manta_return_i64(t, 0, a / b));
    return manta_return_i64(t, 1, a % b);
}
MANTA_REMOTE(divide)

/* An actor keeps state between calls: a constructor and methods, which are
 * remote functions too. */
static manta_status counter(manta_task *t)
{
    manta_set_self(t, calloc(1, sizeof(int64_t)), free);
    return MANTA_OK;
}
MANTA_REMOTE(counter)

static manta_status counter_add(manta_task *t)
{
    int64_t *n = manta_self(t), x;

    MANTA_TRY(manta_arg_i64(t, 0, &x));
    return manta_return_i64(t, 0, *n += x);
}
MANTA_REMOTE(counter_add)

static manta_status run(void)
{
    double v;
    int64_t q, r, n;
    manta_ref x = manta_remote(add, manta_f64(1), manta_f64(2));
    manta_ref y = manta_remote(add, x, manta_f64(3)); /* x is resolved before the call */

    MANTA_TRY(manta_get_f64(y, &v, MANTA_FOREVER));
    printf("1 + 2 + 3 = %g\n", v);

    manta_ref both[2];
    manta_remote_n(2, both, NULL, divide, manta_i64(17), manta_i64(5));
    MANTA_TRY(manta_get_i64(both[0], &q, MANTA_FOREVER));
    MANTA_TRY(manta_get_i64(both[1], &r, MANTA_FOREVER));
    printf("17 = 5 * %lld + %lld\n", (long long)q, (long long)r);

    manta_ref bad = manta_remote(divide, manta_i64(1), manta_i64(0));
    if (manta_get(bad, MANTA_FOREVER)) printf("as it should: %s\n", manta_error_text());

    manta_actor c = manta_actor_new(NULL, counter);
    manta_ref last = {0};
    for (int i = 1; i <= 100; i++) {
        manta_release(last);
        last = manta_actor_call(c, counter_add, manta_i64(i));
    }
    MANTA_TRY(manta_get_i64(last, &n, MANTA_FOREVER));
    printf("1 + ... + 100 = %lld, counted by process %d\n", (long long)n, manta_actor_pid(c));

    manta_actor_release(c);
    manta_release(last);
    manta_release(bad);
    manta_release_all(both, 2);
    manta_release(y);
    manta_release(x);
    return MANTA_OK;
}

int main(int argc, char **argv)
{
    manta_status st = manta_init(&argc, &argv, NULL); /* workers begin here, too, and never return */

    if (!st) st = run();
    if (st) fprintf(stderr, "%s\n", manta_error_text());
    manta_shutdown();
    return st ? 1 : 0;
}
