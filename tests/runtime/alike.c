/* alike.c - with and without other processes: a program sees the same. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>
#include <manta/packed.h>

static manta_status refuse(manta_task *t)
{
    (void)t;
    return manta_fail(MANTA_EINVAL, "no actor today");
}
MANTA_REMOTE(refuse)

static manta_status pair_of_refs(manta_task *t)
{
    manta_ref r[2] = {manta_put(manta_f64(1)), manta_remote(add, manta_f64(1), manta_f64(1))};
    manta_status st = manta_return(t, 0, manta_refs(r, 2));

    manta_release_all(r, 2);
    return st;
}
MANTA_REMOTE(pair_of_refs)

static manta_status sum_of(manta_task *t)
{
    const manta_ref *r;
    size_t n;
    double sum = 0, x;

    MANTA_TRY(manta_arg_refs(t, 0, &r, &n));
    for (size_t i = 0; i < n; i++) {
        MANTA_TRY(manta_get_f64(r[i], &x, LONG));
        sum += x;
    }
    return manta_return_f64(t, 0, sum);
}
MANTA_REMOTE(sum_of)

/* Leaves a file when it ends gracefully. */
static void leave_note(void *self)
{
    (void)touch(self);
    free(self);
}

static manta_status noted(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    manta_set_self(t, strdup(path), leave_note);
    return MANTA_OK;
}
MANTA_REMOTE(noted)

/* A method that ends its own actor. */
static manta_status leave(manta_task *t)
{
    manta_context c;

    MANTA_TRY(manta_context_get(t, &c));
    MANTA_TRY(manta_actor_end(c.actor));
    return manta_return_i64(t, 0, 7);
}
MANTA_REMOTE(leave)

static void alike_calls(void)
{
    double d;
    int64_t v;
    const manta_ref *in;
    size_t n;
    bool ready[2];
    manta_ref r = manta_remote(pair_of_refs);

    OK(manta_get_refs(r, &in, &n, LONG));
    CHECK(n == 2);
    manta_ref s = manta_remote(sum_of, r); /* resolved to references, which stay references */
    OK(manta_get_f64(s, &d, LONG));
    CHECK(d == 3);
    manta_release(r);
    manta_release(s);
    /* A failure of an argument is the call's; both count as ready. */
    manta_ref bad = manta_remote(inner), next = manta_remote(add, bad, manta_f64(1));
    manta_ref two[2] = {bad, next};
    OK(manta_wait(two, 2, 2, LONG, ready, &n));
    CHECK(n == 2 && manta_get(next, 0) == MANTA_ENAN && !strcmp(failure_of(next).function, "inner"));
    CHECK(manta_get_all(two, 2, LONG) == MANTA_ENAN);
    CHECK(manta_wait((manta_ref[]){bad, bad}, 2, 1, 0, ready, &n) == MANTA_EINVAL);
    OK(manta_cancel(bad, 0)); /* it has ended */
    CHECK(manta_get(bad, 0) == MANTA_ENAN);
    manta_release_all(two, 2);
    CHECK(manta_get(bad, 0) == MANTA_EINVAL);
    r = manta_submit_one("nothing_of_that_name", NULL, 0, (manta_arg[1]){{0}});
    CHECK(manta_get(r, LONG) == MANTA_ENOENT);
    manta_release(r);
    r = manta_remote(add, manta_f64(1), manta_str("x"));
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    SAYS("argument 1 is a text");
    manta_release(r);
    r = manta_remote(add, manta_f64(1), manta_f64(2));
    CHECK(manta_get_i64(r, &v, LONG) == MANTA_EINVAL);
    SAYS("not an integer");
    manta_release(r);
    r = manta_put(manta_of_ref((manta_ref){1}));
    CHECK(manta_get(r, 0) == MANTA_EINVAL);
    manta_release(r);
}

/* A value whose kind nobody knows before. */
static void alike_values(void)
{
    const int64_t shape[] = {2, 3};
    float elements[6] = {1, 2, 3, 4, 5, 6};
    manta_array given = manta_array_of(MANTA_DTYPE_F32, 2, shape, elements), a;
    manta_packed p = {.head = "head", .head_size = 4};
    manta_ref one = manta_put(manta_i64(1));
    const manta_arg values[] = {{.kind = MANTA_KIND_NONE}, manta_f64(0.5),      manta_i64(-3),
                                manta_bool(true),          manta_str("text"),   manta_bytes("\0b", 2),
                                manta_elements(&given),    manta_refs(&one, 1), manta_pack(&p)};
    enum { N = sizeof values / sizeof values[0] };
    manta_ref r[N], late = manta_remote(add, manta_f64(1), manta_f64(2));
    manta_arg v[N];

    for (int i = 0; i < N; i++) {
        r[i] = manta_put(values[i]);
        OK(manta_get_value(r[i], &v[i], &a, LONG));
        CHECK(v[i].kind == values[i].kind && (v[i].kind == MANTA_KIND_ARRAY) == (v[i].as.array == &a));
    }
    CHECK(v[1].as.f64 == 0.5 && v[2].as.i64 == -3 && v[3].as.i64 == 1);
    CHECK(v[4].as.bytes.n == 4 && !strcmp(v[4].as.bytes.at, "text"));
    CHECK(v[5].as.bytes.n == 2 && !memcmp(v[5].as.bytes.at, "\0b", 2));
    CHECK(a.dtype == MANTA_DTYPE_F32 && a.ndim == 2 && a.shape[1] == 3 && ((const float *)a.data)[5] == 6);
    CHECK(v[7].as.bytes.n == 1 && ((const manta_ref *)v[7].as.bytes.at)->id == one.id);
    OK(manta_get_value(late, v, &a, LONG));
    CHECK(v->kind == MANTA_KIND_F64 && v->as.f64 == 3);
    manta_release_all(r, N);
    CHECK(manta_get_value(r[0], v, &a, 0) == MANTA_EINVAL);
    manta_release(one);
    manta_release(late);
}

static void alike_actors(void)
{
    int64_t v;
    manta_actor a, b, c;
    manta_ref r;

    a = manta_actor_new(NULL, counter, manta_i64(10));
    for (int i = 1; i <= 100; i++) {
        r = manta_actor_call(a, counter_add, manta_i64(i));
        OK(manta_get_i64(r, &v, i == 100 ? LONG : MANTA_FOREVER));
        CHECK(v == 10 + i * (i + 1) / 2);
        manta_release(r);
    }
    OK(manta_actor_kill(a, true));
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_EDIED && failure_of(r).kind == MANTA_FAILURE_ACTOR);
    manta_release(r);
    manta_actor_release(a);
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    manta_release(r);
    a = manta_actor_new(NULL, refuse);
    CHECK(manta_actor_ready(a, LONG) == MANTA_EINVAL);
    SAYS("no actor today");
    r = manta_actor_call(a, counter_add, manta_i64(1));
    CHECK(manta_get(r, LONG) == MANTA_EINVAL && !strcmp(failure_of(r).function, "refuse"));
    manta_release(r);
    manta_actor_release(a);
    /* Names and their spaces. */
    manta_task_options o = {.name = "tally"};
    CHECK(manta_actor_find("tally", &b) == MANTA_ENOENT);
    a = manta_actor_new(&o, counter);
    OK(manta_actor_find("tally", &b));
    OK(manta_actor_find_in("default", "tally", &c));
    CHECK(b.id == a.id && c.id == a.id);
    manta_actor_release(b);
    manta_actor_release(c);
    CHECK(manta_actor_find_in("elsewhere", "tally", &b) == MANTA_ENOENT);
    CHECK(manta_actor_find_in("a/b", "tally", &b) == MANTA_EINVAL);
    b = manta_actor_new(&o, counter);
    CHECK(manta_actor_ready(b, LONG) == MANTA_EEXIST);
    manta_actor_release(b);
    o.name_space = "elsewhere"; /* is another name */
    b = manta_actor_new(&o, counter, manta_i64(5));
    OK(manta_actor_ready(b, LONG));
    CHECK(b.id != a.id);
    o.get_if_exists = true;
    c = manta_actor_new(&o, counter, manta_i64(9));
    CHECK(c.id == b.id);
    r = manta_actor_call(c, counter_add, manta_i64(1));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 6);
    manta_release(r);
    manta_actor_release(c);
    manta_actor_release(b);
    manta_actor_release(a);
    time_t begin = time(NULL);
    while (manta_actor_find("tally", &b) == MANTA_OK && time(NULL) - begin < LONG / 1000) {
        manta_actor_release(b);
        usleep(500);
    }
    CHECK(manta_actor_find("tally", &b) == MANTA_ENOENT); /* it ended with its last handle */
    /* Three ways to end gracefully: each leaves its note. */
    folder_make();
    a = manta_actor_new(NULL, noted, manta_str(path_of("released")));
    OK(manta_actor_ready(a, LONG));
    manta_actor_release(a);
    until_there("released");
    a = manta_actor_new(&(manta_task_options){.max_restarts = 5}, noted, manta_str(path_of("ended")));
    manta_ref before = manta_actor_call(a, add, manta_f64(1), manta_f64(1));
    OK(manta_actor_end(a));
    OK(manta_get(before, LONG)); /* what came before is done */
    until_there("ended");
    begin = time(NULL);
    manta_status st;
    do st = manta_actor_ready(a, LONG); /* dead, and not restarted */
    while (st == MANTA_OK && time(NULL) - begin < LONG / 1000);
    CHECK(st == MANTA_EDIED);
    SAYS("has ended");
    manta_release(before);
    manta_actor_release(a);
    a = manta_actor_new(NULL, noted, manta_str(path_of("left")));
    r = manta_actor_call(a, leave);
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 7);
    until_there("left");
    manta_release(r);
    manta_actor_release(a);
    folder_remove();
}

void scenario_alike(void)
{
    alike_calls();
    alike_values();
    alike_actors();
}
