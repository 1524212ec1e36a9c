/* starved.c - a program that may have one worker for calls, which waits for what only another could do:
 * the call that has no worker fails, with what to raise, and the rest goes on. */
#include <poll.h>

#include <manta/actor.h>
#include <manta/failure.h>
#include <manta/queue.h>
#include <manta/stream.h>
#include <manta/watch.h>

#include "scenario.h"

enum { ITEMS = 100 }; /* more than a stream is ahead of its reader */
enum { LONGER_MS = 27000 }; /* than a driver that polls has to do so before anything is refused */

static manta_status starved_count(manta_task *t)
{
    for (int64_t i = 0; i < ITEMS; i++) MANTA_TRY(manta_yield(t, manta_i64(i)));
    return MANTA_OK;
}
MANTA_REMOTE(starved_count)

static manta_status starved_twice(manta_task *t)
{
    int64_t v;

    MANTA_TRY(manta_arg_i64(t, 0, &v));
    return manta_return_i64(t, 0, 2 * v);
}
MANTA_REMOTE(starved_twice)

static manta_status starved_actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(starved_actor)

/* A method that ends when the file is there, and not before so many seconds are over. */
static manta_status starved_gate(manta_task *t)
{
    const char *path;
    double least, begin = now();

    MANTA_TRY(manta_arg_str(t, 0, &path));
    MANTA_TRY(manta_arg_f64(t, 1, &least));
    while (access(path, F_OK) || now() - begin < least) usleep(1000);
    return manta_return_i64(t, 0, 21);
}
MANTA_REMOTE(starved_gate)

/* Says that it has begun, and waits for what another call returns. */
static manta_status starved_wait(manta_task *t)
{
    const char *begun;
    const manta_ref *refs;
    size_t n;
    int64_t v;

    MANTA_TRY(manta_arg_str(t, 0, &begun));
    MANTA_TRY(manta_arg_refs(t, 1, &refs, &n));
    MANTA_TRY(touch(begun));
    MANTA_TRY(manta_get_i64(refs[0], &v, MANTA_FOREVER));
    return manta_return_i64(t, 0, v);
}
MANTA_REMOTE(starved_wait)

/* Returns a reference to a call that it has made and does not wait for. */
static manta_status starved_promise(manta_task *t)
{
    manta_ref r = manta_remote(starved_twice, manta_i64(4));
    manta_status st = manta_return(t, 0, manta_refs(&r, 1));

    manta_release(r);
    return st;
}
MANTA_REMOTE(starved_promise)

static void check_value(manta_ref r, int64_t expected)
{
    int64_t v;

    OK(manta_get_i64(r, &v, MANTA_FOREVER));
    CHECK(v == expected);
    manta_release(r);
}

/* It fails, or what it has waited for has failed (`kind`). */
static void check_refused(manta_ref r, manta_failure_kind kind)
{
    int64_t v;

    CHECK(manta_get_i64(r, &v, MANTA_FOREVER) == MANTA_ENOSPC);
    SAYS("max_workers");
    CHECK(failure_of(r).kind == kind);
    manta_release(r);
}

/* The worker waits for who reads its stream, and that is who waits for another call. */
static void nobody_reads_the_stream(void)
{
    manta_stream s = manta_remote_stream(NULL, starved_count);
    manta_ref item;

    for (int64_t i = 0; i < ITEMS; i++) {
        OK(manta_stream_next(s, &item, LONG));
        check_value(item, i);
        if (i > 0) continue;
        check_refused(manta_remote(starved_twice, manta_i64(1)), MANTA_FAILURE_WORKER);
    }
    CHECK(manta_stream_next(s, &item, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
    check_value(manta_remote(starved_twice, manta_i64(4)), 8);
}

static manta_ref wait_elsewhere(manta_ref for_what)
{
    manta_ref r = manta_remote(starved_wait, manta_str(path_of("begun")), manta_refs(&for_what, 1));

    until_there("begun");
    return r;
}

/* The worker waits for the call that would need another one. */
static void all_wait_for_the_call(void)
{
    folder_make();
    manta_actor a = manta_actor_new(NULL, starved_actor);
    manta_ref gate = manta_actor_call(a, starved_gate, manta_str(path_of("open")), manta_f64(0));
    manta_ref call = manta_remote(starved_twice, manta_of_ref(gate));
    manta_ref waits = wait_elsewhere(call);
    OK(touch(path_of("open")));
    check_refused(call, MANTA_FAILURE_WORKER);
    check_refused(waits, MANTA_FAILURE_TASK);
    manta_release(gate);
    manta_actor_release(a);
    check_value(manta_remote(starved_twice, manta_i64(5)), 10);
    folder_remove();
}

/* The worker has nothing to do, and is not to be had by the call that it has made. */
static void nobody_but_the_maker_is_there(void)
{
    manta_ref r = manta_remote(starved_promise);
    const manta_ref *inner;
    size_t n;
    int64_t v;

    OK(manta_get_refs(r, &inner, &n, MANTA_FOREVER));
    CHECK(n == 1 && manta_get_i64(inner[0], &v, MANTA_FOREVER) == MANTA_ENOSPC);
    SAYS("max_workers");
    manta_release(r);
    check_value(manta_remote(starved_twice, manta_i64(6)), 12);
}

/* An actor works for longer than a program has to be still before anything is refused. */
static void an_actor_is_waited_for(void)
{
    folder_make();
    manta_actor a = manta_actor_new(NULL, starved_actor);
    manta_ref gate = manta_actor_call(a, starved_gate, manta_str(path_of("begun")), manta_f64(5));
    manta_ref waits = wait_elsewhere(gate);
    check_value(manta_remote(starved_twice, manta_i64(3)), 6);
    check_value(waits, 21);
    manta_release(gate);
    manta_actor_release(a);
    folder_remove();
}

/* ---- drivers that might do something else at any time ---- */

static manta_stream begin_stream(void)
{
    manta_stream s = manta_remote_stream(NULL, starved_count);
    manta_ref item;

    OK(manta_stream_next(s, &item, LONG));
    check_value(item, 0);
    return s;
}

static void read_stream(manta_stream s)
{
    manta_ref item;

    for (int64_t i = 1; i < ITEMS; i++) {
        OK(manta_stream_next(s, &item, LONG));
        check_value(item, i);
    }
    CHECK(manta_stream_next(s, &item, LONG) == MANTA_ENOENT);
    manta_stream_close(s);
    check_value(manta_remote(starved_twice, manta_i64(4)), 8);
}

/* Waits again and again, each time so many milliseconds. */
static void refused_while_it_polls(int64_t timeout_ms)
{
    manta_stream s = begin_stream();
    manta_ref r = manta_remote(starved_twice, manta_i64(1));
    int64_t v;

    while (manta_get_i64(r, &v, timeout_ms) == MANTA_ETIMEDOUT) usleep(1000);
    check_refused(r, MANTA_FAILURE_WORKER);
    read_stream(s);
}

void scenario_starved_polls(void)
{
    refused_while_it_polls(100);
}

void scenario_starved_looks(void)
{
    refused_while_it_polls(0);
}

/* Looks into a queue again and again, in which nothing comes: each look is a call of an actor, and no sign of life. */
void scenario_starved_queue(void)
{
    manta_queue q;
    manta_ref item;
    int64_t v;

    OK(manta_queue_new(1, NULL, &q));
    manta_stream s = begin_stream();
    manta_ref r = manta_remote(starved_twice, manta_i64(1));
    while (manta_get_i64(r, &v, 0) == MANTA_ETIMEDOUT)
        CHECK(manta_queue_get(q, &item, 200) == MANTA_ETIMEDOUT);
    check_refused(r, MANTA_FAILURE_WORKER);
    manta_queue_release(q);
    read_stream(s);
}

void scenario_starved_loop(void)
{
    manta_stream s = begin_stream();
    manta_ref r = manta_remote(starved_twice, manta_i64(1));
    manta_watch *w;
    uint64_t token;
    size_t n;

    OK(manta_watch_new(&w));
    OK(manta_watch_add(w, r, 7));
    CHECK(poll(&(struct pollfd){.fd = manta_watch_fd(w), .events = POLLIN}, 1, -1) == 1);
    OK(manta_watch_take(w, &token, 1, &n));
    CHECK(n == 1 && token == 7);
    check_refused(r, MANTA_FAILURE_WORKER);
    manta_watch_free(w);
    read_stream(s);
}

/* What a program does after a wait that has a time limit cannot be known: here it reads the stream. */
void scenario_starved_once(void)
{
    manta_stream s = begin_stream();
    manta_ref r = manta_remote(starved_twice, manta_i64(1));
    int64_t v;

    CHECK(manta_get_i64(r, &v, LONGER_MS) == MANTA_ETIMEDOUT);
    read_stream(s);
    check_value(r, 2);
}

void scenario_starved(void)
{
    nobody_reads_the_stream();
    all_wait_for_the_call();
    nobody_but_the_maker_is_there();
    an_actor_is_waited_for();
}
