/* progress_threads_test.c - what a call of the program leaves under way goes on in the progress thread, which slept
 * meanwhile and waited for something else. The transport is one that has a rank's socket in place of ranks: a frame
 * comes by it, and then there has to be room in it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "comm/group.h"
#include "os/thread.h"

enum { LIMIT_MS = 240000 };

typedef struct line {
    mutex lock;
    cond changed;
    bool frame, room; /* what there is */
    bool needs_room; /* what the collective under way waits for; else for the frame */
    bool woken, sleeps, done;
} line;

static manta_status line_poll(void *ctx, manta_work *w, bool *moved)
{
    line *l = ctx;

    mutex_lock(&l->lock);
    if (call_is_message(w->c.kind)) {
        w->done = *moved = true;
    } else if (!l->needs_room && l->frame) {
        l->frame = false;
        l->needs_room = *moved = true;
    } else if (l->needs_room && l->room) {
        l->done = w->done = *moved = true;
        cond_broadcast(&l->changed);
    }
    mutex_unlock(&l->lock);
    return MANTA_OK;
}

static uint32_t line_arm(void *ctx)
{
    (void)ctx;
    return 0;
}

/* Like poll(): waits for what was asked for when the sleep began. */
static void line_sleep(void *ctx, uint32_t armed, int64_t deadline)
{
    line *l = ctx;
    (void)armed;

    mutex_lock(&l->lock);
    bool needs_room = l->needs_room;
    while (!l->woken && !l->frame && !(needs_room && l->room)) {
        l->sleeps = true;
        cond_broadcast(&l->changed);
        if (!cond_wait(&l->changed, &l->lock, deadline)) break;
    }
    l->woken = l->sleeps = false;
    mutex_unlock(&l->lock);
}

static void line_disarm(void *ctx)
{
    (void)ctx;
}

static void line_wake(void *ctx)
{
    line *l = ctx;

    mutex_lock(&l->lock);
    l->woken = true;
    cond_broadcast(&l->changed);
    mutex_unlock(&l->lock);
}

static void line_missing(void *ctx, const manta_work *w, char *text, size_t size)
{
    (void)ctx;
    (void)w;
    (void)size;
    text[0] = '\0';
}

static void line_abort(void *ctx, const manta_error *e)
{
    (void)ctx;
    (void)e;
}

static const transport line_transport = {.name = "line",
                                         .poll = line_poll,
                                         .arm = line_arm,
                                         .sleep = line_sleep,
                                         .disarm = line_disarm,
                                         .wake = line_wake,
                                         .missing = line_missing,
                                         .abort = line_abort,
                                         .close = line_disarm};

static bool is_asleep(const line *l)
{
    return l->sleeps && !l->woken;
}

static bool is_done(const line *l)
{
    return l->done;
}

static bool wait_until(line *l, bool (*is)(const line *l))
{
    int64_t deadline = clock_deadline(LIMIT_MS);

    while (!is(l) && cond_wait(&l->changed, &l->lock, deadline)) {}
    return is(l);
}

/* A frame comes for a collective that was started, and a call of the program is faster than the progress thread, which
 * sleeps until there is one; then there is room. Whether the collective ends without another call. */
static bool goes_on(bool by_test)
{
    const manta_collective barrier = {.kind = MANTA_COLLECTIVE_BARRIER};
    const manta_group_options o = {.timeout_ms = LIMIT_MS, .progress_thread = true};
    line l = {.woken = false};
    manta_group *g;
    manta_work *w;
    float x;
    const manta_collective receive = {
        .kind = MANTA_COLLECTIVE_RECEIVE, .out = &x, .n = 1, .dtype = MANTA_DTYPE_F32, .peer = 1};

    mutex_init(&l.lock);
    cond_init(&l.changed);
    assert_int_equal(group_new(&line_transport, &l, 0, 2, &o, &g), MANTA_OK);
    assert_int_equal(manta_group_start(g, &barrier, &w), MANTA_OK);
    mutex_lock(&l.lock);
    assert_true(wait_until(&l, is_asleep));
    l.frame = true; /* of which who sleeps hears too late */
    mutex_unlock(&l.lock);
    if (by_test)
        assert_false(manta_work_test(w));
    else
        assert_int_equal(manta_group_run(g, &receive), MANTA_OK);
    mutex_lock(&l.lock);
    l.room = true;
    cond_broadcast(&l.changed);
    bool done = wait_until(&l, is_done);
    mutex_unlock(&l.lock);
    assert_int_equal(manta_work_wait(w), MANTA_OK);
    manta_group_close(g);
    cond_release(&l.changed);
    mutex_release(&l.lock);
    return done;
}

static void what_a_wait_leaves_goes_on(void **state)
{
    (void)state;
    assert_true(goes_on(false));
}

static void what_a_test_leaves_goes_on(void **state)
{
    (void)state;
    assert_true(goes_on(true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_wait_leaves_goes_on),
        cmocka_unit_test(what_a_test_leaves_goes_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
