/* yields.c - streams that make their items when there is room, share room with others, are looked at
 * without being taken from and left while they run; results that fail one by one. */
#include "scenario.h"

#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/stream.h>

/* Yields n numbers, each made when there is room for it, and says each time that it makes one; `limit`:
 * of all streams of its process. */
static manta_status yi_count(manta_task *t)
{
    const char *at;
    char path[160];
    int64_t n, limit;

    MANTA_TRY(manta_arg_str(t, 0, &at));
    MANTA_TRY(manta_arg_i64(t, 1, &n));
    MANTA_TRY(manta_arg_i64(t, 2, &limit));
    for (int64_t i = 0; i < n; i++) {
        MANTA_TRY(manta_yield_room(t, 1, (uint64_t)limit, MANTA_FOREVER));
        snprintf(path, sizeof path, "%s%d", at, (int)i);
        MANTA_TRY(touch(path));
        MANTA_TRY(manta_yield(t, manta_i64(i)));
    }
    MANTA_TRY(manta_yield_taken(t, MANTA_FOREVER));
    snprintf(path, sizeof path, "%send", at);
    return touch(path);
}
MANTA_REMOTE(yi_count)

static bool is_there(const char *name)
{
    return access(path_of(name), F_OK) == 0;
}

static void take(manta_stream s, int64_t expected)
{
    manta_ref r;
    int64_t v;

    OK(manta_stream_next(s, &r, LONG));
    OK(manta_get_i64(r, &v, LONG));
    CHECK(v == expected);
    manta_release(r);
}

static void rooms(void)
{
    const manta_task_options one = {.stream_window = 1}, three = {.stream_window = 3};

    folder_make();
    manta_stream s = manta_remote_stream(&one, yi_count, manta_str(path_of("a")), manta_i64(5), manta_i64(0));
    for (int i = 0; i < 5; i++) { /* looking takes nothing, and each is made when the one before was taken */
        char name[16], next[16];
        snprintf(name, sizeof name, "a%d", i);
        snprintf(next, sizeof next, "a%d", i + 1);
        OK(manta_stream_wait(s, LONG));
        CHECK(is_there(name) && !is_there(next) && !is_there("aend"));
        take(s, i);
    }
    CHECK(manta_stream_wait(s, LONG) == MANTA_ENOENT);
    CHECK(is_there("aend"));
    manta_stream_close(s);
    CHECK(manta_stream_wait(s, 0) == MANTA_EINVAL);
    s = manta_remote_stream(&three, yi_count, manta_str(path_of("b")), manta_i64(9), manta_i64(0));
    until_there("b2");
    CHECK(!is_there("b3"));
    take(s, 0);
    until_there("b3");
    CHECK(!is_there("b4"));
    manta_stream_leave(s); /* nothing holds it back any more */
    until_there("bend");
    manta_stream_leave(s);
    folder_remove();
}

static manta_status yi_actor(manta_task *t)
{
    manta_set_self(t, calloc(1, 8), free);
    return MANTA_OK;
}
MANTA_REMOTE(yi_actor)

/* Two streams of one actor have three items together. */
static void limits(void)
{
    const manta_task_options actor = {.max_concurrency = 2}, any = {.stream_window = MANTA_UNLIMITED};
    manta_actor a = manta_actor_new(&actor, yi_actor);

    folder_make();
    manta_stream x =
        manta_actor_stream(a, &any, yi_count, manta_str(path_of("x")), manta_i64(20), manta_i64(3));
    until_there("x2");
    CHECK(!is_there("x3"));
    manta_stream y =
        manta_actor_stream(a, &any, yi_count, manta_str(path_of("y")), manta_i64(20), manta_i64(3));
    CHECK(manta_stream_wait(y, 30) == MANTA_ETIMEDOUT && !is_there("y0"));
    take(x, 0);
    manta_stream_leave(x); /* it goes on to its end, and counts for nothing */
    until_there("xend");
    until_there("y2");
    CHECK(!is_there("y3"));
    take(y, 0);
    until_there("y3");
    CHECK(!is_there("y4"));
    manta_stream_leave(y);
    until_there("yend");
    manta_actor_release(a);
    folder_remove();
}

/* Of three results the second fails, with bytes. */
static manta_status yi_partly(manta_task *t)
{
    MANTA_TRY(manta_return_i64(t, 0, 1));
    MANTA_TRY(manta_return_failure(t, 1, MANTA_ENAN, "the second is none", "bytes", 5));
    MANTA_TRY(manta_return_failure(t, 2, MANTA_ENAN, "this is told again", NULL, 0));
    MANTA_TRY(manta_return_i64(t, 2, 3));
    if (manta_return_failure(t, 3, MANTA_ENAN, "there is none", NULL, 0) != MANTA_EINVAL)
        return manta_fail(MANTA_EINTERNAL, "a fourth of three results failed");
    return MANTA_OK;
}
MANTA_REMOTE(yi_partly)

static void failures(void)
{
    const manta_task_options again = {.retry_errors = true};
    manta_ref r[3];
    int64_t v;
    const void *at;
    size_t n;

    manta_submit("yi_partly", &again, 0, NULL, 3, r);
    OK(manta_get_i64(r[0], &v, LONG));
    CHECK(v == 1);
    CHECK(manta_get(r[1], LONG) == MANTA_ENAN);
    SAYS("the second is none");
    OK(manta_failure_payload(r[1], &at, &n));
    CHECK(n == 5 && !memcmp(at, "bytes", 5));
    OK(manta_get_i64(r[2], &v, LONG));
    CHECK(v == 3);
    manta_release_all(r, 3);
}

void scenario_yields(void)
{
    rooms();
    limits();
    failures();
    until_nothing_is_held();
}
