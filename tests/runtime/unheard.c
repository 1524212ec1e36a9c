/* unheard.c - workers that die between telling the daemon what their callers hold and answering. The ring
 * to the caller is full, which does not look: what was made is known to the daemon, and nobody will ever
 * be told of it. It is freed all the same. */
#include "scenario.h"

#include <signal.h>

#include <manta/actor.h>
#include <manta/context.h>
#include <manta/packed.h>
#include <manta/stream.h>

enum { CALLS = 100, INLINE = 8000, LARGE = 20000 };

static char filling[LARGE];

/* Something that is nobody else's, in a value that fills the ring. */
static manta_arg full_of(manta_packed *p, const manta_ref *r)
{
    *p = (manta_packed){.head = filling, .head_size = INLINE, .refs = r, .n_refs = 1};
    return manta_pack(p);
}

static manta_status un_actor(manta_task *t)
{
    (void)t;
    return MANTA_OK;
}
MANTA_REMOTE(un_actor)

/* A reference in a small value, or a large value; then says that it has. */
static manta_status un_answer(manta_task *t)
{
    int64_t i;
    const char *path;
    manta_packed p;

    MANTA_TRY(manta_arg_i64(t, 0, &i));
    MANTA_TRY(manta_arg_str(t, 1, &path));
    if (i == CALLS - 1) return touch(path);
    if (i % 2) return manta_return(t, 0, manta_bytes(filling, LARGE));
    manta_ref r = manta_put(manta_i64(i));
    manta_status st = manta_return(t, 0, full_of(&p, &r));
    manta_release(r);
    return st;
}
MANTA_REMOTE(un_answer)

/* The same as items; those after the first `read` when it is told to go on. */
static manta_status un_yield(manta_task *t)
{
    const char *path, *go;
    int64_t read;
    manta_packed p;

    MANTA_TRY(manta_arg_str(t, 0, &path));
    MANTA_TRY(manta_arg_str(t, 1, &go));
    MANTA_TRY(manta_arg_i64(t, 2, &read));
    for (int i = 0; i < CALLS; i++) {
        while (i == read && access(go, F_OK)) usleep(200);
        manta_ref r = manta_put(manta_i64(i));
        manta_status st =
            i % 2 ? manta_yield(t, manta_bytes(filling, LARGE)) : manta_yield(t, full_of(&p, &r));
        manta_release(r);
        MANTA_TRY(st);
    }
    MANTA_TRY(touch(path));
    for (;;) usleep(500); /* until it is killed */
}
MANTA_REMOTE(un_yield)

enum { ITEMS = 4 };

/* Gives items and fails; tried again, in the same process, it dies before it has given one. */
static manta_status un_fail(manta_task *t)
{
    if (manta_task_attempt(t) > 0) raise(SIGKILL);
    for (int i = 0; i < ITEMS; i++) MANTA_TRY(manta_yield(t, manta_bytes(filling, LARGE)));
    return manta_fail(MANTA_ENAN, "it is to be tried again");
}
MANTA_REMOTE(un_fail)

static void results_unheard(int retries)
{
    const manta_task_options o = {.max_restarts = retries, .max_task_retries = retries};
    manta_actor a = manta_actor_new(&o, un_actor);
    manta_ref r[CALLS];
    int ended = 0;

    folder_make();
    OK(manta_actor_ready(a, LONG));
    int pid = manta_actor_pid(a);
    for (int i = 0; i < CALLS; i++)
        r[i] = manta_actor_call(a, un_answer, manta_i64(i), manta_str(path_of("last")));
    until_there("last"); /* without a look at what has come */
    CHECK(kill(pid, SIGKILL) == 0);
    for (int i = 0; i < CALLS; i++) ended += manta_get(r[i], LONG) == MANTA_OK;
    CHECK(retries ? ended == CALLS : ended < CALLS);
    manta_release_all(r, CALLS);
    manta_actor_release(a);
    until_nothing_is_held();
    folder_remove();
}

static void items_unheard(int read)
{
    const manta_task_options o = {.stream_window = MANTA_UNLIMITED, .max_retries = MANTA_NONE};
    manta_actor a = manta_actor_new(NULL, un_actor);
    manta_ref r;
    int n = 0;

    folder_make();
    OK(manta_actor_ready(a, LONG));
    int pid = manta_actor_pid(a);
    char go[160];
    snprintf(go, sizeof go, "%s", path_of("go"));
    manta_stream s =
        manta_actor_stream(a, &o, un_yield, manta_str(path_of("last")), manta_str(go), manta_i64(read));
    for (; n < read; n++) {
        OK(manta_stream_next(s, &r, LONG));
        manta_release(r);
    }
    OK(touch(go));
    until_there("last");
    CHECK(kill(pid, SIGKILL) == 0);
    for (; manta_stream_next(s, &r, LONG) == MANTA_OK; n++) {
        OK(manta_get(r, LONG)); /* what was heard of is whole */
        manta_release(r);
    }
    CHECK(n >= read && n < CALLS);
    manta_stream_close(s);
    manta_actor_release(a);
    until_nothing_is_held();
    folder_remove();
}

/* What an earlier try gave was heard of, and stays. */
static void items_heard(void)
{
    const manta_task_options o = {.max_task_retries = 1, .retry_errors = true};
    manta_actor a = manta_actor_new(NULL, un_actor);
    manta_stream s = manta_actor_stream(a, &o, un_fail);
    manta_ref r[ITEMS], none;
    manta_node_info info;
    const void *at;
    size_t n;

    for (int i = 0; i < ITEMS; i++) OK(manta_stream_next(s, &r[i], LONG));
    CHECK(manta_stream_next(s, &none, LONG) != MANTA_OK && manta_stream_wait(s, LONG) == MANTA_OK);
    manta_stream_close(s);
    manta_actor_release(a);
    for (int i = 0; i < 100; i++) OK(manta_node_get(&info)); /* the daemon has freed what it would */
    for (int i = 0; i < ITEMS; i++) {
        OK(manta_get_bytes(r[i], &at, &n, LONG));
        CHECK(n == LARGE);
    }
    manta_release_all(r, ITEMS);
    until_nothing_is_held();
}

void scenario_unheard(void)
{
    results_unheard(0);
    results_unheard(1);
    items_unheard(0);
    items_unheard(5);
    items_heard();
}
