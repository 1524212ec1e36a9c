/* actors.c - actors: their calls, their lives, several of them as a pool. */
#include <errno.h>
#include <signal.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/failure.h>
#include <manta/pool.h>
#include <manta/stream.h>

#include "scenario.h"

void scenario_actors(void)
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
    CHECK(f.kind == MANTA_FAILURE_ACTOR);
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
    slow = manta_promise(); /* which is never kept */
    r = manta_actor_call(c, counter_add, slow);
    OK(manta_actor_kill(c, true));
    manta_actor_release(c);
    CHECK(manta_get(r, LONG) == MANTA_EDIED);
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
    while (kill(p, 0) == 0 && now() - begin < LONG / 1000) usleep(500);
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
    CHECK(f.kind == MANTA_FAILURE_UNKNOWN);
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

/* An actor that runs several calls at once, and one that takes only so many. */
void scenario_concurrent(void)
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
    CHECK(now() - begin >= 2 * 0.2); /* never more than four at once: two rounds of four */
    manta_release_all(r, N);
    manta_actor meets = manta_actor_new(&four, meeting);
    for (int i = 0; i < 4; i++) r[i] = manta_actor_call(meets, meet, manta_i64(4));
    OK(manta_get_all(r, 4, LONG)); /* and four at once: none ends before all have come */
    manta_release_all(r, 4);
    manta_actor_release(meets);
    manta_ref stuck = manta_actor_call(c, linger);
    manta_ref quick = manta_actor_call(c, counter_add, manta_i64(3));
    OK(manta_get_i64(quick, &v, LONG)); /* is not behind it */
    CHECK(v == 3);
    OK(manta_cancel(stuck, false));
    CHECK(manta_get(stuck, LONG) == MANTA_ECANCELLED);
    manta_release(stuck);
    manta_release(quick);
    int p = manta_actor_pid(c);
    manta_actor_release(c);
    begin = now();
    while (kill(p, 0) == 0 && now() - begin < LONG / 1000) usleep(500);
    CHECK(kill(p, 0) != 0);
    manta_task_options two = {.max_pending_calls = 2};
    c = manta_actor_new(&two, counter);
    for (int i = 0; i < 3; i++) r[i] = manta_actor_call(c, linger);
    CHECK(manta_get(r[2], 0) == MANTA_EBUSY);
    for (int i = 0; i < 2; i++) OK(manta_cancel(r[i], 0));
    for (int i = 0; i < 2; i++) CHECK(manta_get(r[i], LONG) == MANTA_ECANCELLED);
    r[3] = manta_actor_call(c, counter_add, manta_i64(1));
    OK(manta_get(r[3], MANTA_FOREVER));
    manta_release_all(r, 4);
    manta_actor_release(c);
}

/* Calls of one actor wait for each other. */
static manta_status meeting(manta_task *t)
{
    static _Atomic int came;

    manta_set_self(t, &came, NULL);
    return MANTA_OK;
}
MANTA_REMOTE(meeting)

/* Says that it is there, and waits until n have: where the runtime does not see it. */
static manta_status meet(manta_task *t)
{
    _Atomic int *came = manta_self(t);
    int64_t n;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    if (n == 0) return MANTA_OK;
    ++*came;
    for (double begin = now(); *came < n; usleep(200))
        if (now() - begin > LONG / 1000) return manta_fail(MANTA_ETIMEDOUT, "%d came", *came);
    return MANTA_OK;
}
MANTA_REMOTE(meet)

static manta_status call_meet(manta_task *t)
{
    manta_actor a;
    int64_t n;

    MANTA_TRY(manta_arg_actor(t, 0, &a));
    MANTA_TRY(manta_arg_i64(t, 1, &n));
    manta_ref r = manta_actor_call(a, meet, manta_i64(n));
    manta_status st = manta_get(r, LONG);
    manta_release(r);
    return st;
}
MANTA_REMOTE(call_meet)

/* The same by a call that comes back to this actor while it waits for it. */
static manta_status meet_behind(manta_task *t)
{
    manta_task_options light = {.num_cpus = MANTA_NONE};
    manta_actor self;
    int64_t n;

    MANTA_TRY(manta_arg_actor(t, 0, &self));
    MANTA_TRY(manta_arg_i64(t, 1, &n));
    if (n == 0) return MANTA_OK;
    manta_ref r = manta_remote_with(&light, call_meet, manta_handle(self), manta_i64(n));
    manta_status st = manta_get(r, LONG);
    manta_release(r);
    return st;
}
MANTA_REMOTE(meet_behind)

/* Functions that were always short, and now wait for calls behind them: as many run at
 * once as may, whatever is known of them. */
void scenario_leads(void)
{
    enum { N = 4, SHORT = 300, ROUNDS = 6 };
    manta_task_options four = {.max_concurrency = N};
    manta_actor a = manta_actor_new(&four, meeting);
    manta_ref r[SHORT + N];
    int came = 0;

    for (int round = 0; round < ROUNDS; round++) {
        int n = 0;
        while (n < SHORT) {
            r[n++] = manta_actor_call(a, meet, manta_i64(0));
            r[n++] = manta_actor_call(a, meet_behind, manta_handle(a), manta_i64(0));
        }
        bool behind = round % 2 == 1;
        came += behind ? N / 2 : N;
        for (int i = 0; i < (behind ? N / 2 : N); i++)
            r[n++] = behind ? manta_actor_call(a, meet_behind, manta_handle(a), manta_i64(came))
                            : manta_actor_call(a, meet, manta_i64(came));
        OK(manta_get_all(r, (size_t)n, LONG));
        manta_release_all(r, (size_t)n);
    }
    manta_actor_release(a);
}

/* Inputs of unequal length over three actors. */
void scenario_pools(void)
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
    for (int i = 0; i < N; i++) OK(manta_pool_call(p, LONG, counter_add, manta_i64(1)));
    CHECK(manta_pool_pending(p) == N);
    int64_t sum = 0;
    for (int i = 0; i < N; i++) {
        OK(manta_pool_next(p, &r, LONG));
        OK(manta_get_i64(r, &v, 0));
        sum += v;
        manta_release(r);
    }
    CHECK(sum >= N && manta_pool_pending(p) == 0);
    /* The slow one does not hold the others up, and keeps its place in order. */
    folder_make();
    manta_arg go = manta_str(path_of("go"));
    OK(manta_pool_call(p, LONG, after, go, manta_i64(1)));
    OK(manta_pool_call(p, LONG, counter_add, manta_i64(100)));
    OK(manta_pool_call(p, LONG, after, go, manta_i64(2)));
    OK(manta_pool_next_ready(p, &r, LONG));
    OK(manta_get_i64(r, &v, 0));
    CHECK(v > 100 && v < 200); /* the counter's, not that of one that waits */
    manta_release(r);
    OK(manta_pool_call(p, LONG, after, go, manta_i64(3)));
    CHECK(manta_pool_call(p, 0, counter_add, manta_i64(1)) == MANTA_ETIMEDOUT); /* all are busy */
    OK(touch(path_of("go")));
    OK(manta_pool_next(p, &r, LONG));
    OK(manta_get_i64(r, &v, 0));
    CHECK(v == 1);
    manta_release(r);
    CHECK(manta_pool_pending(p) == 2);
    manta_pool_free(p);
    for (int i = 0; i < 3; i++) manta_actor_release(a[i]);
    folder_remove();
}

/* Dies in the first life of its actor, then counts. */
static manta_status die_first(manta_task *t)
{
    manta_context c;

    MANTA_TRY(manta_context_get(t, &c));
    if (!c.was_restarted) raise(SIGKILL);
    return counter_add(t);
}
MANTA_REMOTE(die_first)

/* Makes a detached actor, and ends: the actor stays. */
static manta_status leave_behind(manta_task *t)
{
    manta_task_options o = {.name = "left behind", .detached = true};
    manta_actor a = manta_actor_new(&o, counter, manta_i64(100));

    MANTA_TRY(manta_actor_ready(a, LONG));
    manta_actor_release(a);
    return manta_return_i64(t, 0, getpid());
}
MANTA_REMOTE(leave_behind)

static manta_status wait_for_two(manta_task *t)
{
    manta_ref r[2] = {manta_remote(pid), manta_remote(pid)};
    manta_status st = manta_get_all(r, 2, LONG);

    manta_release_all(r, 2);
    return st ? st : manta_return_i64(t, 0, 1);
}
MANTA_REMOTE(wait_for_two)

/* after(path, x): x, when there is a file at path. */
static manta_status after(manta_task *t)
{
    const char *path;
    int64_t x;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    MANTA_TRY(manta_arg_i64(t, 1, &x));
    while (access(path, F_OK)) usleep(200);
    return manta_return_i64(t, 0, x);
}
MANTA_REMOTE(after)

/* An actor is made before the arguments of its constructor are there. */
static void early(void)
{
    char path[128];
    int64_t v;

    folder_make();
    snprintf(path, sizeof path, "%s", path_of("go"));
    manta_ref later = manta_remote(after, manta_str(path), manta_i64(41));
    manta_actor a = manta_actor_new(NULL, counter, later); /* does not wait for it */
    manta_ref r = manta_actor_call(a, counter_add, manta_i64(1));
    manta_release(later);
    CHECK(manta_get(r, 20) == MANTA_ETIMEDOUT);
    OK(touch(path));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 42);
    manta_release(r);
    manta_actor_release(a);
    /* What fails to come is the failure of the actor; so is what is of another kind. */
    later = manta_remote(inner);
    a = manta_actor_new(NULL, counter, later);
    CHECK(manta_actor_ready(a, LONG) == MANTA_ENAN);
    SAYS("step 812");
    manta_release(later);
    manta_actor_release(a);
    folder_remove();
}

void scenario_lives(void)
{
    int64_t v;
    manta_actor a;

    early();
    /* The call during which it died is made again, if that was asked for. */
    manta_task_options o = {.max_restarts = 1, .max_task_retries = 1};
    a = manta_actor_new(&o, counter, manta_i64(5));
    manta_ref r = manta_actor_call(a, die_first, manta_i64(1));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == 6);
    manta_release(r);
    manta_actor_release(a);
    /* Detached: it outlives its handles, and the process that made it. */
    r = manta_remote(leave_behind);
    OK(manta_get_i64(r, &v, LONG));
    manta_release(r);
    CHECK(kill((pid_t)v, SIGKILL) == 0);
    r = manta_remote(pid);
    OK(manta_get(r, LONG));
    manta_release(r);
    for (int i = 1; i <= 2; i++) {
        OK(manta_actor_find("left behind", &a));
        r = manta_actor_call(a, counter_add, manta_i64(1));
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v == 100 + i);
        manta_release(r);
        if (i == 2) OK(manta_actor_kill(a, true));
        manta_actor_release(a);
    }
    time_t begin = time(NULL);
    while (manta_actor_find("left behind", &a) == MANTA_OK && time(NULL) - begin < LONG / 1000) {
        manta_actor_release(a);
        usleep(500);
    }
    CHECK(manta_actor_find("left behind", &a) == MANTA_ENOENT);
    /* A wait gives its core back: three cores, three calls that each need others. */
    manta_ref w[6];
    for (int i = 0; i < 6; i++) w[i] = manta_remote(wait_for_two);
    OK(manta_get_all(w, 6, LONG));
    manta_release_all(w, 6);
    /* One caller may have so many calls pending, and not one more. */
    o = (manta_task_options){.max_pending_calls = 2};
    a = manta_actor_new(&o, counter);
    for (int i = 0; i < 3; i++) w[i] = manta_actor_call(a, linger);
    CHECK(manta_get(w[2], 0) == MANTA_EBUSY && failure_of(w[2]).kind == MANTA_FAILURE_SUBMIT);
    for (int i = 0; i < 2; i++) OK(manta_cancel(w[i], 0));
    for (int i = 0; i < 2; i++) CHECK(manta_get(w[i], LONG) == MANTA_ECANCELLED);
    manta_release_all(w, 3);
    r = manta_actor_call(a, counter_add, manta_i64(1));
    OK(manta_get(r, LONG));
    manta_release(r);
    manta_actor_release(a);
}

/* Workers that are killed before they have started say nothing about the next: the
 * node does not take them for a sign that no worker can start. */
void scenario_killed_early(void)
{
    enum { MANY = 40 };
    manta_actor a[MANY];

    for (int round = 0; round < 5; round++) {
        int64_t v;
        for (int i = 0; i < MANY; i++) a[i] = manta_actor_new(NULL, counter, manta_i64(1));
        for (int i = 0; i < MANY; i++) OK(manta_actor_kill(a[i], true));
        for (int i = 0; i < MANY; i++) manta_actor_release(a[i]);
        manta_ref r = manta_remote(pid);
        OK(manta_get_i64(r, &v, LONG));
        CHECK(v > 0);
        manta_release(r);
    }
}

/* ---- an actor that calls itself ---- */

/* myself(handle, how): calls counter_add of the handle, which is its own: 0 and waits, 1 and does not
 * wait, 2 and waits for all, 3 and waits for a while, 4 takes a stream of its own. */
static manta_status myself(manta_task *t)
{
    manta_actor a;
    int64_t how, v = 0;

    MANTA_TRY(manta_arg_actor(t, 0, &a));
    MANTA_TRY(manta_arg_i64(t, 1, &how));
    if (how == 4) {
        manta_ref item;
        manta_stream s = manta_actor_stream(a, NULL, counter_stream, manta_i64(50));
        while (!manta_stream_next(s, &item, LONG)) {
            int64_t x;
            MANTA_TRY(manta_get_i64(item, &x, LONG));
            manta_release(item);
            v += x;
        }
        manta_stream_close(s);
        return manta_return_i64(t, 0, v);
    }
    manta_ref r = manta_actor_call(a, counter_add, manta_i64(5));
    manta_status st = how == 0   ? manta_get_i64(r, &v, MANTA_FOREVER)
                      : how == 2 ? manta_get_all(&r, 1, MANTA_FOREVER)
                      : how == 3 ? manta_get(r, 20)
                                 : MANTA_OK;
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(myself)

static manta_status counter_stream(manta_task *t)
{
    int64_t n;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    for (int64_t i = 0; i < n; i++) MANTA_TRY(manta_yield(t, manta_i64(i)));
    return MANTA_OK;
}
MANTA_REMOTE(counter_stream)

static manta_status call_myself(manta_actor a, int how, int64_t *v)
{
    manta_ref r = manta_actor_call(a, myself, manta_handle(a), manta_i64(how));
    manta_status st = manta_get_i64(r, v, LONG);

    manta_release(r);
    return st;
}

/* around(handles, at, how): calls itself of the next handle, until it is at the last, which calls the
 * first: 0 directly, 1 through a remote function. */
static manta_status around(manta_task *t)
{
    const manta_ref *h;
    size_t n;
    int64_t at, how, v = 0;
    manta_actor next;

    MANTA_TRY(manta_arg_refs(t, 0, &h, &n));
    MANTA_TRY(manta_arg_i64(t, 1, &at));
    MANTA_TRY(manta_arg_i64(t, 2, &how));
    next.id = h[(size_t)(at + 1) % n].id;
    manta_ref r = how ? manta_remote(around_by, manta_handle(next), manta_refs(h, n), manta_i64(at + 1))
                      : manta_actor_call(next, around, manta_refs(h, n), manta_i64(at + 1), manta_i64(0));
    manta_status st = manta_get_i64(r, &v, MANTA_FOREVER);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(around)

static manta_status around_by(manta_task *t)
{
    const manta_ref *h;
    size_t n;
    int64_t at, v = 0;
    manta_actor a;

    MANTA_TRY(manta_arg_actor(t, 0, &a));
    MANTA_TRY(manta_arg_refs(t, 1, &h, &n));
    MANTA_TRY(manta_arg_i64(t, 2, &at));
    manta_ref r = manta_actor_call(a, around, manta_refs(h, n), manta_i64(at), manta_i64(1));
    manta_status st = manta_get_i64(r, &v, MANTA_FOREVER);
    manta_release(r);
    return st ? st : manta_return_i64(t, 0, v);
}
MANTA_REMOTE(around_by)

/* there(handles): the second actor's `back`, which calls counter_add of the first. */
static manta_status back(manta_task *t)
{
    const manta_ref *h;
    size_t n;
    int64_t v;

    MANTA_TRY(manta_arg_refs(t, 0, &h, &n));
    manta_ref r = manta_actor_call((manta_actor){h[0].id}, counter_add, manta_i64(1));
    manta_status st = manta_get_i64(r, &v, MANTA_FOREVER);
    manta_release(r);
    return st;
}
MANTA_REMOTE(back)

static manta_status there(manta_task *t)
{
    const manta_ref *h;
    size_t n;

    MANTA_TRY(manta_arg_refs(t, 0, &h, &n));
    manta_ref r = manta_actor_call((manta_actor){h[1].id}, back, manta_refs(h, n));
    manta_status st = manta_get(r, MANTA_FOREVER);
    manta_release(r);
    return st;
}
MANTA_REMOTE(there)

/* The words of a circle: who runs what, and last the call that cannot begin. Either of the two may be the one that finds it. */
static void circle_is_named(void)
{
    manta_actor a[2];
    manta_ref h[2];

    for (int i = 0; i < 2; i++) {
        a[i] = manta_actor_new(NULL, counter);
        OK(manta_actor_ready(a[i], LONG));
        h[i].id = a[i].id;
    }
    manta_ref r = manta_actor_call(a[0], there, manta_refs(h, 2));
    CHECK(manta_get(r, LONG) == MANTA_EBUSY);
    CHECK(strstr(manta_error_text(), ": there > back > counter_add") ||
          strstr(manta_error_text(), ": back > there > back"));
    manta_release(r);
    for (int i = 0; i < 2; i++) manta_actor_release(a[i]);
}

void scenario_circles(void)
{
    manta_actor a[4];
    manta_ref h[4];
    int64_t v;

    for (int round = 0; round < 12; round++) {
        int n = 2 + round % 3, how = round % 2;
        for (int i = 0; i < n; i++) {
            a[i] = manta_actor_new(NULL, counter);
            OK(manta_actor_ready(a[i], LONG));
            h[i].id = a[i].id;
        }
        manta_ref r = manta_actor_call(a[0], around, manta_refs(h, (size_t)n), manta_i64(0), manta_i64(how));
        CHECK(manta_get_i64(r, &v, LONG) == MANTA_EBUSY);
        SAYS("in a circle");
        if (!how) SAYS("around > around");
        manta_release(r);
        /* All are free again. */
        for (int i = 0; i < n; i++) {
            r = manta_actor_call(a[i], counter_add, manta_i64(0));
            OK(manta_get_i64(r, &v, LONG));
            manta_release(r);
            manta_actor_release(a[i]);
        }
    }
    circle_is_named();
}

static manta_status plus_one(manta_task *t)
{
    int64_t v;

    MANTA_TRY(manta_arg_i64(t, 0, &v));
    return manta_return_i64(t, 0, v + 1);
}
MANTA_REMOTE(plus_one)

/* Many calls wait for one value. Those of a dead actor fail when it comes, and all that stand behind them go on. */
void scenario_behind_the_dead(void)
{
    enum { N = 20 };
    manta_ref of_dead[N], others[N], p = manta_promise(), value = manta_put(manta_i64(1));
    manta_actor a = manta_actor_new(NULL, counter);
    int64_t v;

    OK(manta_actor_ready(a, LONG));
    OK(manta_actor_kill(a, true));
    do { /* until this process knows */
        of_dead[0] = manta_actor_call(a, counter_add, manta_i64(0));
        v = manta_get(of_dead[0], LONG);
        manta_release(of_dead[0]);
    } while (!v);
    for (int i = 0; i < N; i++) {
        of_dead[i] = manta_actor_call(a, counter_add, manta_of_ref(p));
        others[i] = manta_remote(plus_one, manta_of_ref(p));
    }
    OK(manta_promise_settle(p, value));
    for (int i = 0; i < N; i++) {
        CHECK(manta_get(of_dead[i], LONG) == MANTA_EDIED);
        OK(manta_get_i64(others[i], &v, LONG));
        CHECK(v == 2);
        manta_release(of_dead[i]);
        manta_release(others[i]);
    }
    manta_release(p);
    manta_release(value);
    manta_actor_release(a);
}

void scenario_selves(void)
{
    int64_t v, sum;
    manta_actor a = manta_actor_new(NULL, counter);
    manta_ref r = manta_actor_call(a, counter_add, manta_i64(0));

    OK(manta_get_i64(r, &sum, LONG));
    manta_release(r);
    for (int i = 0; i < 20; i++) {
        CHECK(call_myself(a, 0, &v) == MANTA_EBUSY);
        SAYS("myself > counter_add");
        CHECK(call_myself(a, 2, &v) == MANTA_EBUSY);
        CHECK(call_myself(a, 3, &v) == MANTA_ETIMEDOUT); /* it is run afterwards */
        OK(call_myself(a, 1, &v)); /* and this one too */
    }
    for (v = 0; v < sum + 40 * 5;) {
        r = manta_actor_call(a, counter_add, manta_i64(0));
        OK(manta_get_i64(r, &v, LONG));
        manta_release(r);
    }
    CHECK(v == sum + 40 * 5);
    manta_actor_release(a);
    /* One that runs several calls at once answers itself. */
    const manta_task_options many = {.max_concurrency = 4};
    a = manta_actor_new(&many, counter);
    for (int i = 0; i < 50; i++) OK(call_myself(a, 0, &v));
    CHECK(v == 50 * 5 + sum);
    OK(call_myself(a, 4, &v));
    CHECK(v == 49 * 50 / 2);
    manta_actor_release(a);
}
