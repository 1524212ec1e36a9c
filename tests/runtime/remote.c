/* remote.c - functions and an actor that more than one file of scenarios calls, by
 * their names. */
#include <signal.h>

#include <manta/actor.h>

#include "scenario.h"

static manta_status add(manta_task *t)
{
    double a, b;

    MANTA_TRY(manta_arg_f64(t, 0, &a));
    MANTA_TRY(manta_arg_f64(t, 1, &b));
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

/* Tells that it runs (the path of a file to make), then waits for the end. */
static manta_status linger(manta_task *t)
{
    const char *path;

    if (manta_arg_kind(t, 0) == MANTA_KIND_STR) {
        MANTA_TRY(manta_arg_str(t, 0, &path));
        (void)!touch(path); /* when it is tried again, who waited for the file may have removed its folder */
    }
    while (!manta_task_is_cancelled(t)) usleep(200);
    return manta_fail(MANTA_ECANCELLED, "I was asked to stop");
}
MANTA_REMOTE(linger)

static manta_status pause_ms(manta_task *t)
{
    int64_t ms;

    MANTA_TRY(manta_arg_i64(t, 0, &ms));
    usleep((useconds_t)ms * 1000);
    return manta_return_i64(t, 0, getpid());
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

manta_status counter_add(manta_task *t)
{
    int64_t *n = manta_self(t), x;

    MANTA_TRY(manta_arg_i64(t, 0, &x));
    return manta_return_i64(t, 0, *n += x);
}
MANTA_REMOTE(counter_add)
