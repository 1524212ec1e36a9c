/* failures.c - calls that fail, workers that die, objects that are lost. */
#include <signal.h>

#include <manta/actor.h>
#include <manta/failure.h>

#include "scenario.h"

static manta_status fail_once(manta_task *t)
{
    if (manta_task_attempt(t) < 1) return manta_fail(MANTA_EIO, "not yet");
    return manta_return_i64(t, 0, manta_task_attempt(t));
}
MANTA_REMOTE(fail_once)

void scenario_failures(void)
{
    manta_failure f;
    manta_ref r = manta_remote(fail);

    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_ENAN);
    CHECK(strstr(manta_error_text(), "the loss is not a number at step 812"));
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILURE_TASK && f.code == MANTA_ENAN && !strcmp(f.function, "fail") && f.pid > 0);
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
    CHECK(f.kind == MANTA_FAILURE_IMPOSSIBLE);
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
    CHECK(f.kind == MANTA_FAILURE_CANCELLED);
    manta_release(r);
    r = manta_remote(linger);
    CHECK(manta_get(r, 20) == MANTA_ETIMEDOUT);
    OK(manta_cancel(r, true));
    CHECK(manta_get(r, MANTA_FOREVER) == MANTA_ECANCELLED);
    manta_release(r);
    CHECK(manta_get((manta_ref){12345}, 0) == MANTA_EINVAL);
}

void scenario_deaths(void)
{
    int64_t v;
    manta_failure f;
    manta_task_options never = {.max_retries = MANTA_NONE};
    manta_ref r = manta_remote_with(&never, die);

    CHECK(manta_get(r, LONG) == MANTA_EDIED);
    CHECK(strstr(manta_error_text(), "killed by signal 9") && strstr(manta_error_text(), "die"));
    manta_failure_get(r, &f);
    CHECK(f.kind == MANTA_FAILURE_WORKER && f.pid > 0);
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

static manta_status inner(manta_task *t)
{
    (void)t;
    return manta_fail(MANTA_ENAN, "the loss is not a number at step %d", 812);
}
MANTA_REMOTE(inner)

static manta_status middle(manta_task *t)
{
    (void)t;
    manta_ref r = manta_remote(inner);
    manta_status st = manta_get(r, LONG);
    manta_release(r);
    return st;
}
MANTA_REMOTE(middle)

static manta_status outer(manta_task *t)
{
    (void)t;
    manta_ref r = manta_remote(middle);
    manta_status st = manta_get(r, LONG);
    manta_release(r);
    return st;
}
MANTA_REMOTE(outer)

/* Fails with a status in its first attempt. */
static manta_status flaky(manta_task *t)
{
    int64_t code;

    MANTA_TRY(manta_arg_i64(t, 0, &code));
    if (manta_task_attempt(t) == 0) return manta_fail((manta_status)code, "not yet");
    return manta_return_i64(t, 0, manta_task_attempt(t));
}
MANTA_REMOTE(flaky)

void scenario_causes(void)
{
    char host[64], said[256];
    int64_t v;

    CHECK(gethostname(host, sizeof host) == 0);
    /* The sentence, function, process and host of the origin, and who called whom. */
    manta_ref r = manta_remote(outer);
    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    manta_failure f = failure_of(r);
    CHECK(f.kind == MANTA_FAILURE_TASK && f.code == MANTA_ENAN && !strcmp(f.function, "inner"));
    CHECK(!strcmp(f.chain, "outer > middle > inner") && !strcmp(f.host, host) && f.pid > 0);
    CHECK(!strcmp(f.text, "the loss is not a number at step 812") && (f.pid == getpid()) == inside);
    snprintf(said, sizeof said, "step 812 (in outer > middle > inner, process %d on %s)", f.pid, host);
    SAYS(said);
    manta_release(r);
    /* Again with some failures and not with others. */
    manta_task_options o = {.retry_on = MANTA_ON(MANTA_EIO) | MANTA_ON(MANTA_EBUSY)};
    r = manta_remote_with(&o, flaky, manta_i64(MANTA_EBUSY));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 1);
    manta_release(r);
    r = manta_remote_with(&o, flaky, manta_i64(MANTA_ENAN));
    CHECK(manta_get(r, LONG) == MANTA_ENAN);
    manta_release(r);
    /* The same of a method, with options of that one call. */
    manta_actor a = manta_actor_new(NULL, counter);
    o.max_task_retries = 2;
    r = manta_actor_call_with(a, &o, flaky, manta_i64(MANTA_EIO));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 1);
    manta_release(r);
    r = manta_actor_call(a, flaky, manta_i64(MANTA_EIO));
    CHECK(manta_get(r, LONG) == MANTA_EIO);
    manta_release(r);
    manta_actor_release(a);
    /* Options that cannot be. */
    const manta_task_options odd[] = {
        {.num_cpus = -3}, {.max_retries = -3}, {.max_task_retries = MANTA_ZERO}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) {
        r = manta_remote_with(&odd[i], pid);
        CHECK(manta_get(r, 0) == MANTA_EINVAL && failure_of(r).kind == MANTA_FAILURE_SUBMIT);
        SAYS("MANTA_NONE");
        manta_release(r);
    }
    o = (manta_task_options){.resources = "cpu=1"};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EINVAL && failure_of(r).kind == MANTA_FAILURE_SUBMIT);
    SAYS("option of its own");
    manta_release(r);
    o = (manta_task_options){.num_gpus = 1};
    r = manta_remote_with(&o, pid);
    CHECK(manta_get(r, 0) == MANTA_EUNSUPPORTED && failure_of(r).kind == MANTA_FAILURE_IMPOSSIBLE);
    SAYS("it asks for 1 gpu, and the node has 0");
    manta_release(r);
}

/* An object that a process was to make, and did not: lost. */
static manta_status promise(manta_task *t)
{
    manta_ref r = manta_remote(linger);

    MANTA_TRY(manta_return(t, 0, manta_refs(&r, 1)));
    MANTA_TRY(manta_return_i64(t, 1, getpid()));
    manta_release(r);
    return MANTA_OK;
}
MANTA_REMOTE(promise)

static manta_status slow_counter(manta_task *t)
{
    const char *path;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    while (access(path, F_OK)) usleep(200);
    manta_set_self(t, calloc(1, sizeof(int64_t)), free);
    return MANTA_OK;
}
MANTA_REMOTE(slow_counter)

void scenario_losses(void)
{
    manta_ref both[2];
    const manta_ref *in;
    size_t n;
    int64_t p;

    manta_remote_n(2, both, NULL, promise);
    OK(manta_get_refs(both[0], &in, &n, LONG));
    OK(manta_get_i64(both[1], &p, LONG));
    CHECK(manta_get(in[0], 20) == MANTA_ETIMEDOUT);
    CHECK(kill((pid_t)p, SIGKILL) == 0);
    CHECK(manta_get(in[0], LONG) == MANTA_EDIED && failure_of(in[0]).kind == MANTA_FAILURE_LOST);
    SAYS("which was to make the object, killed by signal 9");
    manta_release_all(both, 2);
    /* An actor that is being restarted: its calls wait, or fail if they should not. */
    folder_make();
    for (int fail_away = 0; fail_away < 2; fail_away++) {
        char path[128];
        snprintf(path, sizeof path, "%s", path_of("go"));
        OK(touch(path));
        manta_task_options o = {.max_restarts = 1, .fail_away = fail_away};
        manta_actor a = manta_actor_new(&o, slow_counter, manta_str(path));
        manta_ref r = manta_actor_call(a, counter_add, manta_i64(1));
        OK(manta_get(r, LONG));
        manta_release(r);
        CHECK(unlink(path) == 0); /* the next constructor waits */
        r = manta_actor_call(a, die);
        CHECK(manta_get(r, LONG) == MANTA_EUNKNOWN && failure_of(r).kind == MANTA_FAILURE_UNKNOWN);
        manta_release(r);
        r = manta_actor_call(a, counter_add, manta_i64(1));
        if (fail_away)
            CHECK(manta_get(r, LONG) == MANTA_EBUSY && failure_of(r).kind == MANTA_FAILURE_UNAVAILABLE);
        else
            CHECK(manta_get(r, 20) == MANTA_ETIMEDOUT);
        OK(touch(path));
        if (!fail_away) OK(manta_get(r, LONG));
        manta_release(r);
        time_t begin = time(NULL);
        manta_status st; /* and then it is there again */
        do st = manta_actor_ready(a, LONG);
        while (st == MANTA_EBUSY && time(NULL) - begin < LONG / 1000);
        OK(st);
        manta_actor_release(a);
    }
    folder_remove();
}
