/* leader_threads_test.c - which thread of a concurrent actor takes the next call: one at
 * a time, another while a call takes its time or waits, and always somebody. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/thread.h"
#include "task/call.h"
#include "task/incoming.h"
#include "task/leader.h"
#include "task/runtime.h"

enum { LONG_MS = 60000, BRIEF = 300, LENGTHY = 5000000 }; /* ns, of calls */

static incoming in_call;

static int begin(void **state)
{
    static int64_t live;

    live = mem_live();
    *state = &live;
    assert_int_equal(runtime_open_local(), MANTA_OK);
    rt->threads = 1;
    rt->is_worker = true;
    mutex_lock(&rt->lock);
    return 0;
}

static int end(void **state)
{
    mutex_unlock(&rt->lock);
    rt_current = NULL;
    runtime_close();
    assert_int_equal(mem_live(), *(const int64_t *)*state);
    return 0;
}

/* Another thread, which leads as soon as it can, and then no more. */
typedef struct follower {
    thread_id thread;
    bool has_led;
} follower;

static void follower_main(void *arg)
{
    follower *f = arg;

    mutex_lock(&rt->lock);
    leader_become();
    f->has_led = leader_is_me();
    mutex_unlock(&rt->lock);
}

static void follower_start(follower *f)
{
    f->has_led = false;
    assert_int_equal(thread_start(&f->thread, "follower", follower_main, f), MANTA_OK);
}

/* It leads while this thread is somewhere else. */
static void follower_leads(follower *f)
{
    mutex_unlock(&rt->lock);
    thread_join(&f->thread);
    mutex_lock(&rt->lock);
    assert_true(f->has_led && !leader_is_me());
    rt->leader.turn = 0; /* and it is gone */
}

static void lead_now(void)
{
    leader_become();
    assert_true(leader_is_me());
}

static void run(function *f, int64_t ns)
{
    rt_current = &in_call;
    leader_call_begins(f);
    leader_call_ends(f, ns);
    rt_current = NULL;
}

/* A function whose calls are known to be short. */
static function *brief(void)
{
    function *f = function_find("brief");

    lead_now();
    run(f, BRIEF); /* the first: not known yet */
    lead_now();
    return f;
}

static void unknown_calls_pass_it_on(void **state)
{
    follower other;
    (void)state;

    lead_now();
    follower_start(&other);
    function *f = function_find("new");
    rt_current = &in_call;
    leader_call_begins(f);
    follower_leads(&other);
    leader_call_ends(f, LENGTHY);
    lead_now();
    leader_call_begins(f); /* which is known now, and takes its time */
    assert_false(leader_is_me());
    leader_call_ends(f, LENGTHY);
}

static void short_calls_keep_it(void **state)
{
    (void)state;
    function *f = brief();
    for (int i = 0; i < 1000; i++) {
        rt_current = &in_call;
        leader_call_begins(f);
        assert_true(leader_is_me() && leader_is_watched());
        leader_call_ends(f, BRIEF);
        rt_current = NULL;
        assert_true(leader_is_me());
    }
    leader_watch();
    assert_false(leader_is_watched()); /* nothing has begun since */
    assert_true(leader_is_me());
}

/* Something came between once; that does not make the function a long one for long.
 * One that goes on to be long is. */
static void one_long_call_proves_little(void **state)
{
    (void)state;
    function *f = brief();
    run(f, LENGTHY);
    for (int i = 0; i < 8; i++) {
        leader_become();
        run(f, BRIEF);
    }
    lead_now();
    leader_call_begins(f);
    assert_true(leader_is_me());
    leader_call_ends(f, LENGTHY);
    run(f, LENGTHY);
    lead_now();
    leader_call_begins(f);
    assert_false(leader_is_me());
    leader_call_ends(f, LENGTHY);
}

/* A call that does not end: somebody else goes on, once the watcher has seen it twice. */
static void the_watcher_passes_it_on(void **state)
{
    follower other;
    (void)state;
    function *f = brief();

    follower_start(&other);
    rt_current = &in_call;
    leader_call_begins(f);
    leader_watch();
    assert_true(leader_is_me() && leader_is_watched());
    leader_watch();
    assert_false(leader_is_me());
    follower_leads(&other);
    leader_call_ends(f, LENGTHY);
    assert_false(leader_is_watched());
    lead_now();
}

/* The end of a call that has lost the leadership takes nothing from who has it now. */
static void who_lost_it_does_not_touch_it(void **state)
{
    (void)state;
    function *f = brief();
    rt_current = &in_call;
    leader_call_begins(f);
    leader_watch();
    leader_watch();
    rt->leader.turn = 1000; /* another's, in a call of its own */
    rt->leader.runs = true;
    leader_call_ends(f, LENGTHY);
    leader_call_waits();
    assert_true(rt->leader.turn == 1000 && rt->leader.runs && !leader_is_me());
    rt->leader.turn = 0;
}

static bool never(void *ctx)
{
    (void)ctx;
    return false;
}

static bool at_once(void *ctx)
{
    (void)ctx;
    return true;
}

static void a_call_that_waits_passes_it_on(void **state)
{
    follower other;
    (void)state;
    function *f = brief();

    follower_start(&other);
    assert_int_equal(rt_wait(at_once, NULL, CLOCK_NEVER), MANTA_OK); /* in no call */
    assert_int_equal(rt_wait(never, NULL, CLOCK_NEVER), MANTA_ETIMEDOUT);
    assert_true(leader_is_me());
    rt_current = &in_call;
    leader_call_begins(f);
    assert_int_equal(rt_wait(at_once, NULL, CLOCK_NEVER), MANTA_OK); /* has not waited */
    assert_true(leader_is_me());
    assert_int_equal(rt_wait(never, NULL, CLOCK_NEVER), MANTA_ETIMEDOUT);
    follower_leads(&other);
    leader_call_ends(f, LENGTHY);
    lead_now();
    leader_call_begins(f); /* what it waited does not count */
    assert_true(leader_is_me());
    leader_call_ends(f, BRIEF);
}

static void all_wake_at_the_end(void **state)
{
    enum { N = 3 };
    follower others[N];
    (void)state;

    lead_now();
    for (int i = 0; i < N; i++) follower_start(&others[i]);
    leader_stop_all();
    mutex_unlock(&rt->lock);
    for (int i = 0; i < N; i++) thread_join(&others[i].thread);
    mutex_lock(&rt->lock);
    for (int i = 0; i < N; i++) assert_true(others[i].has_led); /* may take what is left */
}

/* ---- many ---- */

enum { THREADS = 6, CALLS = 20000 };

static struct {
    int left, inside, most;
} work;

/* Takes calls of two functions, a third of which "wait". */
static void crowd_main(void *arg)
{
    function *const *f = arg;

    mutex_lock(&rt->lock);
    for (;;) {
        leader_become();
        while (leader_is_me() && work.left > 0) {
            int n = work.left--;
            rt_current = &in_call;
            leader_call_begins(f[n % 2]);
            if (++work.inside > work.most) work.most = work.inside;
            if (n % 3 == 0) leader_call_waits();
            mutex_unlock(&rt->lock);
            if (n % 3 == 0) sched_yield();
            mutex_lock(&rt->lock);
            work.inside--;
            leader_call_ends(f[n % 2], n % 2 ? BRIEF : LENGTHY);
            rt_current = NULL;
        }
        if (work.left == 0) break;
    }
    leader_stop_all(); /* or who sleeps would do so for ever */
    mutex_unlock(&rt->lock);
}

static void no_call_is_left_lying(void **state)
{
    thread_id all[THREADS];
    function *f[2] = {function_find("lengthy"), function_find("brief")};
    (void)state;

    work.left = CALLS;
    work.inside = work.most = 0;
    rt->threads = THREADS - 1;
    mutex_unlock(&rt->lock);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(thread_start(&all[i], "crowd", crowd_main, f), MANTA_OK);
    for (int i = 0; i < THREADS; i++) thread_join(&all[i]);
    mutex_lock(&rt->lock);
    assert_true(work.left == 0 && work.inside == 0 && work.most <= THREADS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(unknown_calls_pass_it_on, begin, end),
        cmocka_unit_test_setup_teardown(short_calls_keep_it, begin, end),
        cmocka_unit_test_setup_teardown(one_long_call_proves_little, begin, end),
        cmocka_unit_test_setup_teardown(the_watcher_passes_it_on, begin, end),
        cmocka_unit_test_setup_teardown(who_lost_it_does_not_touch_it, begin, end),
        cmocka_unit_test_setup_teardown(a_call_that_waits_passes_it_on, begin, end),
        cmocka_unit_test_setup_teardown(all_wake_at_the_end, begin, end),
        cmocka_unit_test_setup_teardown(no_call_is_left_lying, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
