/* deferred.c - calls of an actor that go on after their function has returned, and are finished by a
 * thread of the actor's: in any order, well and badly, cancelled, ended and killed. */
#include <pthread.h>
#include <signal.h>

#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/stream.h>

#include "scenario.h"

enum { MOST = 200, LARGE = 300000 };

/* A thread that finishes what it is given when `wanted` calls have come, the last first. */
typedef struct finisher {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    manta_task *tasks[MOST];
    int n, wanted;
} finisher;

static finisher loop = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .wanted = 1};

static void finish_one(manta_task *t)
{
    static char bytes[LARGE];
    int64_t x = 0;
    const char *how = "";

    if (manta_arg_i64(t, 0, &x) || manta_arg_str(t, 1, &how)) {
        manta_task_finish(t, MANTA_EINVAL);
    } else if (!strcmp(how, "fails")) {
        manta_task_finish(t, manta_fail(MANTA_ENAN, "number %d is none", (int)x));
    } else if (!strcmp(how, "carries")) {
        memset(bytes, (int)x, sizeof bytes);
        manta_task_finish(t, manta_fail_with(t, MANTA_EIO, "it carries", bytes, (size_t)x * 1000));
    } else if (!strcmp(how, "large")) {
        memset(bytes, (int)x, sizeof bytes);
        manta_task_finish(t, manta_return(t, 0, manta_bytes(bytes, sizeof bytes)));
    } else if (!strcmp(how, "yields")) {
        manta_status st = MANTA_OK;
        for (int64_t i = 0; i < x && !st; i++) st = manta_yield(t, manta_i64(i));
        manta_task_finish(t, st);
    } else if (!strcmp(how, "until-cancelled")) {
        while (!manta_task_is_cancelled(t)) usleep(200);
        manta_task_finish(t, manta_fail(MANTA_ECANCELLED, "it was told"));
    } else {
        manta_task_finish(t, manta_return_i64(t, 0, x + 1));
    }
}

static void *finish_all(void *arg)
{
    finisher *f = arg;

    pthread_mutex_lock(&f->lock);
    for (;;) {
        while (f->n < f->wanted) pthread_cond_wait(&f->changed, &f->lock);
        while (f->n > 0) {
            manta_task *t = f->tasks[--f->n];
            pthread_mutex_unlock(&f->lock);
            finish_one(t);
            pthread_mutex_lock(&f->lock);
        }
    }
    return NULL;
}

static manta_status df_actor(manta_task *t)
{
    static bool started;
    pthread_t id;

    if (manta_task_defer(t) != MANTA_EINVAL || !strstr(manta_error_text(), "a constructor"))
        return manta_fail(MANTA_EINTERNAL, "a constructor was deferred");
    if (!started && pthread_create(&id, NULL, finish_all, &loop))
        return manta_fail(MANTA_EBUSY, "there is no thread");
    started = true;
    manta_set_self(t, &loop, NULL);
    return MANTA_OK;
}
MANTA_REMOTE(df_actor)

/* df_call(x, how): x + 1, later. */
static manta_status df_call(manta_task *t)
{
    finisher *f = manta_self(t);

    MANTA_TRY(manta_task_defer(t));
    pthread_mutex_lock(&f->lock);
    f->tasks[f->n++] = t;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return MANTA_EUNKNOWN; /* is not looked at */
}
MANTA_REMOTE(df_call)

static manta_status df_want(manta_task *t)
{
    finisher *f = manta_self(t);
    int64_t n;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    pthread_mutex_lock(&f->lock);
    f->wanted = (int)n;
    pthread_cond_signal(&f->changed);
    pthread_mutex_unlock(&f->lock);
    return MANTA_OK;
}
MANTA_REMOTE(df_want)

/* Finishes in the function itself. */
static manta_status df_at_once(manta_task *t)
{
    int64_t x;

    MANTA_TRY(manta_arg_i64(t, 0, &x));
    MANTA_TRY(manta_task_defer(t));
    manta_task_finish(t, manta_return_i64(t, 0, x + 1));
    return MANTA_OK;
}
MANTA_REMOTE(df_at_once)

/* Is called by its own actor, from a thread that no call runs on. */
static void *call_self(void *arg)
{
    manta_task *t = arg;
    manta_actor a;
    int64_t x = 0;
    manta_status st = manta_arg_actor(t, 0, &a);

    if (!st) {
        manta_ref r = manta_actor_call(a, df_at_once, manta_i64(41));
        st = manta_get_i64(r, &x, LONG);
        manta_release(r);
    }
    if (!st) st = manta_return_i64(t, 0, x);
    manta_task_finish(t, st);
    return NULL;
}

static manta_status df_self(manta_task *t)
{
    pthread_t id;

    MANTA_TRY(manta_task_defer(t));
    if (pthread_create(&id, NULL, call_self, t)) manta_task_finish(t, manta_fail(MANTA_EBUSY, "no thread"));
    pthread_detach(id);
    return MANTA_OK;
}
MANTA_REMOTE(df_self)

static manta_status df_task(manta_task *t)
{
    return manta_task_defer(t);
}
MANTA_REMOTE(df_task)

static manta_ref call(manta_actor a, int64_t x, const char *how)
{
    return manta_actor_call(a, df_call, manta_i64(x), manta_str(how));
}

static void expect_number(manta_ref r, int64_t x)
{
    int64_t got;

    OK(manta_get_i64(r, &got, LONG));
    CHECK(got == x);
    manta_release(r);
}

static void want(manta_actor a, int64_t n)
{
    manta_ref r = manta_actor_call(a, df_want, manta_i64(n));

    OK(manta_get(r, LONG));
    manta_release(r);
}

/* All are under way at once, in an actor of one thread. */
static void many_at_once(manta_actor a)
{
    manta_ref r[MOST];

    want(a, MOST);
    for (int i = 0; i < MOST; i++) r[i] = call(a, i, "");
    for (int i = 0; i < MOST; i++) expect_number(r[i], i + 1);
    want(a, 1);
}

static void one_by_one(manta_actor a)
{
    for (int i = 0; i < 1000; i++) {
        expect_number(call(a, i, ""), i + 1);
        expect_number(manta_actor_call(a, df_at_once, manta_i64(i)), i + 1);
    }
}

static void ends_badly(manta_actor a)
{
    manta_ref r = call(a, 13, "fails");
    const void *at;
    size_t n;

    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    SAYS("number 13 is none");
    CHECK(!strcmp(failure_of(r).function, "df_call"));
    manta_release(r);
    for (int64_t x = 1; x < 200; x += 66) {
        r = call(a, x, "carries");
        CHECK(manta_get(r, LONG) == MANTA_EIO);
        OK(manta_failure_payload(r, &at, &n));
        CHECK((int64_t)n == x * 1000 && ((const char *)at)[n - 1] == (char)x);
        manta_release(r);
    }
    r = manta_remote(df_task);
    CHECK(manta_get(r, LONG) == MANTA_EINVAL);
    SAYS("it is a task, expected one of an actor");
    manta_release(r);
}

static void gives_much(manta_actor a)
{
    const void *at;
    size_t n;
    manta_ref r = call(a, 9, "large"), item;

    OK(manta_get_bytes(r, &at, &n, LONG));
    CHECK(n == LARGE && ((const char *)at)[n - 1] == 9);
    manta_release(r);
    manta_stream s = manta_actor_stream(a, NULL, df_call, manta_i64(50), manta_str("yields"));
    for (int64_t i = 0; i < 50; i++) {
        OK(manta_stream_next(s, &item, LONG));
        expect_number(item, i);
    }
    CHECK(manta_stream_next(s, &item, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
}

void scenario_deferred(void)
{
    manta_actor a = manta_actor_new(NULL, df_actor);

    one_by_one(a);
    ends_badly(a);
    gives_much(a);
    if (!inside) {
        many_at_once(a);
        expect_number(manta_actor_call(a, df_self, manta_handle(a)), 42);
    }
    manta_actor_release(a);
    if (!inside) until_nothing_is_held();
}

void scenario_deferred_ends(void)
{
    manta_actor a = manta_actor_new(NULL, df_actor);
    manta_ref r = call(a, 1, "until-cancelled");

    CHECK(manta_get(r, 50) == MANTA_ETIMEDOUT);
    OK(manta_cancel(r, 0));
    CHECK(manta_get(r, LONG) == MANTA_ECANCELLED && failure_of(r).kind == MANTA_FAILURE_CANCELLED);
    manta_release(r);
    /* An actor that is to end waits for what is deferred. */
    manta_ref two[2];
    want(a, 2);
    two[0] = call(a, 1, "");
    two[1] = call(a, 2, "");
    OK(manta_actor_end(a));
    expect_number(two[0], 2);
    expect_number(two[1], 3);
    manta_actor_release(a);
    /* One that is killed does not. */
    a = manta_actor_new(NULL, df_actor);
    OK(manta_actor_ready(a, LONG));
    want(a, 2);
    r = call(a, 1, "");
    CHECK(manta_get(r, 50) == MANTA_ETIMEDOUT);
    CHECK(kill(manta_actor_pid(a), SIGKILL) == 0);
    CHECK(manta_get(r, LONG) == MANTA_EUNKNOWN);
    manta_release(r);
    manta_actor_release(a);
    until_nothing_is_held();
}
