/* wait_threads_test.c - manta_wait() beside a plain reading of what it promises: lists
 * in any order, with gaps, with what is there twice, was released or failed; and
 * waits of several threads while others settle and release what they wait for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "os/thread.h"
#include "task/object.h"
#include "task/runtime.h"
#include "task/value.h"

enum { N = 60, MANY = 500, ROUNDS = 3000, LONG_MS = 60000 };

static eventcount doorbell;

static int begin(void **state)
{
    static int64_t live;

    live = mem_live();
    *state = &live;
    assert_int_equal(runtime_open_local(), MANTA_OK);
    return 0;
}

static int end(void **state)
{
    rt->bell = NULL;
    runtime_close();
    assert_int_equal(mem_live(), *(const int64_t *)*state);
    return 0;
}

/* From now on waits sleep; the node is gone, so that only the test does anything. */
static void with_sleep(void)
{
    rt->is_local = false;
    rt->is_dead = true;
    rt->death = failure_make(MANTA_FAILURE_NODE, MANTA_EDIED, NULL, 0, "there is no node");
    rt->bell = &doorbell;
}

static object *make(uint64_t id)
{
    object *o = object_new(id);

    o->refs = 1;
    return o;
}

static manta_ref ref_of(const object *o)
{
    return (manta_ref){o->id};
}

static void settle(object *o, bool well)
{
    const value v = {.kind = MANTA_KIND_I64, .size = 8, .word = 7};

    if (well)
        object_set(o, &v, true);
    else
        object_fail(o, failure_make(MANTA_FAILURE_TASK, MANTA_ENAN, "f", 0, "no number"));
}

/* ---- in one thread ---- */

static bool is_ready(manta_ref r)
{
    return object_find(r.id)->state != OBJECT_PENDING;
}

/* What the header says, and nothing else is touched. */
static void wait_and_check(const manta_ref *refs, size_t n, size_t want)
{
    bool ready[N + 1];
    size_t n_ready = 99, left = want, found = 0;

    memset(ready, true, sizeof ready);
    assert_int_equal(manta_wait(refs, n, want, 0, ready, &n_ready), MANTA_OK);
    for (size_t i = 0; i < n; i++) {
        bool expected = left > 0 && is_ready(refs[i]);
        left -= expected;
        found += expected;
        assert_int_equal(ready[i], expected);
    }
    assert_int_equal(n_ready, found);
    assert_true(ready[n]);
}

static void wait_is_refused(const manta_ref *refs, size_t n, size_t want, const char *why)
{
    bool ready[N + 1];
    size_t n_ready = 99;

    memset(ready, true, sizeof ready);
    assert_int_equal(manta_wait(refs, n, want, 0, ready, &n_ready), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), why));
    assert_int_equal(n_ready, 99);
    for (size_t i = 0; i < n; i++) assert_true(ready[i]);
}

/* The next of some random numbers below n. */
static size_t below(size_t n)
{
    static uint64_t index;

    return rng_at(rng_make(42, 0), index++).w[0] % n;
}

static void shuffle(manta_ref *refs, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t k = below(i);
        manta_ref x = refs[i - 1];
        refs[i - 1] = refs[k];
        refs[k] = x;
    }
}

/* Objects of two processes come, settle and go at random, so that the table of
 * objects is in any order; every list is either as they were made or shuffled. */
static void any_list_is_answered_in_its_order(void **state)
{
    manta_ref all[N], some[N];
    size_t n = 0;
    uint64_t foreign = 0;
    (void)state;

    for (int round = 0; round < ROUNDS; round++) {
        if (n < N && below(3) > 0) {
            bool ours = below(4) > 0;
            all[n++] = ref_of(make(ours ? object_id(1) : (2ULL << CLIENT_SHIFT) + ++foreign));
        }
        if (n > 0 && below(4) == 0) {
            size_t k = below(n);
            manta_release(all[k]);
            memmove(all + k, all + k + 1, (--n - k) * sizeof *all);
        }
        if (n > 0 && below(2) == 0) {
            object *o = object_find(all[below(n)].id);
            if (o->state == OBJECT_PENDING) settle(o, below(4) > 0);
        }
        size_t m = 0;
        for (size_t i = 0; i < n; i++)
            if (below(5) > 0) some[m++] = all[i];
        if (below(2)) shuffle(some, m);
        wait_and_check(some, m, below(m + 1));
        wait_and_check(some, m, m);
        if (m > 1) {
            size_t a = below(m), b = below(m - 1);
            some[a] = some[b < a ? b : b + 1];
            wait_is_refused(some, m, below(m + 1), "twice");
        }
        if (m > 0) {
            some[below(m)].id = 3ULL << CLIENT_SHIFT;
            wait_is_refused(some, m, below(m + 1), "is none, was released");
        }
    }
    manta_release_all(all, n);
    assert_int_equal(rt->objects.n, 0);
}

/* Ready ones before it do not let a bad reference pass. */
static void what_is_no_reference_is_refused(void **state)
{
    int64_t dims[1] = {4};
    manta_array a;
    manta_ref refs[3] = {ref_of(make(object_id(1))), ref_of(make(object_id(1)))};
    (void)state;

    settle(object_find(refs[0].id), true);
    settle(object_find(refs[1].id), false);
    assert_int_equal(manta_create(MANTA_DTYPE_F32, 1, dims, &a, &refs[2]), MANTA_OK);
    wait_is_refused(refs, 3, 1, "reference 2 is none");
    assert_int_equal(manta_seal(refs[2]), MANTA_OK);
    wait_and_check(refs, 3, 1);
    wait_and_check(refs, 3, 3);
    manta_release(refs[2]);
    wait_is_refused(refs, 3, 0, "reference 2 is none");
    wait_is_refused((manta_ref[]){refs[0], refs[1], refs[0]}, 3, 1, "twice");
    wait_and_check(refs, 0, 0);
    assert_int_equal(manta_wait(refs, 2, 3, 0, NULL, NULL), MANTA_EINVAL);
    manta_release_all(refs, 2);
}

/* ---- in several ---- */

typedef struct waiter {
    thread_id thread;
    const manta_ref *refs;
    size_t n, want, n_ready;
    bool ready[MANY];
    manta_status st;
} waiter;

static void waiter_main(void *arg)
{
    waiter *w = arg;

    w->st = manta_wait(w->refs, w->n, w->want, LONG_MS, w->ready, &w->n_ready);
}

static void waiter_start(waiter *w, const manta_ref *refs, size_t n, size_t want)
{
    *w = (waiter){.refs = refs, .n = n, .want = want};
    assert_int_equal(thread_start(&w->thread, "waiter", waiter_main, w), MANTA_OK);
}

/* Until so many have looked and found nothing. */
static void until_waiting(int n)
{
    int64_t deadline = clock_deadline(LONG_MS);

    for (bool all = false; !all; sched_yield()) {
        assert_true(clock_now_ns() < deadline);
        mutex_lock(&rt->lock);
        all = rt->waiters == n;
        mutex_unlock(&rt->lock);
    }
}

static void settle_now(manta_ref r, bool well)
{
    mutex_lock(&rt->lock);
    settle(object_find(r.id), well);
    rt_changed();
    mutex_unlock(&rt->lock);
}

/* A wait for many looks at each a few times, and not at all of them whenever one is ready. */
static void a_wait_for_many_looks_at_each_a_few_times(void **state)
{
    enum { FEW_TIMES = 8 };
    static manta_ref refs[MANY];
    waiter w;
    (void)state;

    with_sleep();
    for (uint64_t i = 0; i < MANY; i++) refs[i] = ref_of(make(i + 1));
    uint64_t before = rt->looks;
    waiter_start(&w, refs, MANY, MANY);
    until_waiting(1);
    for (int i = 0; i < MANY; i++) {
        settle_now(refs[i], true);
        sched_yield();
    }
    thread_join(&w.thread);
    assert_int_equal(w.st, MANTA_OK);
    assert_int_equal(w.n_ready, MANY);
    assert_true(rt->looks - before > 0 && rt->looks - before <= FEW_TIMES * MANY);
    manta_release_all(refs, MANY);
}

/* Two wait for the same list, one of them for more of it. */
static void each_wakes_with_what_it_waits_for(void **state)
{
    manta_ref refs[3];
    waiter one, two;
    (void)state;

    with_sleep();
    for (int i = 0; i < 3; i++) refs[i] = ref_of(make(object_id(1)));
    waiter_start(&one, refs, 3, 1);
    waiter_start(&two, refs, 3, 2);
    until_waiting(2);
    settle_now(refs[2], false);
    thread_join(&one.thread);
    assert_int_equal(one.st, MANTA_OK);
    assert_true(one.n_ready == 1 && !one.ready[0] && !one.ready[1] && one.ready[2]);
    until_waiting(1);
    settle_now(refs[0], true);
    thread_join(&two.thread);
    assert_int_equal(two.st, MANTA_OK);
    assert_true(two.n_ready == 2 && two.ready[0] && !two.ready[1] && two.ready[2]);
    manta_release_all(refs, 3);
}

/* What is waited for stays until the wait is over, and its result counts. */
static void what_is_released_meanwhile_still_counts(void **state)
{
    manta_ref refs[2];
    waiter w;
    (void)state;

    with_sleep();
    for (int i = 0; i < 2; i++) refs[i] = ref_of(make(object_id(1)));
    waiter_start(&w, refs, 2, 1);
    until_waiting(1);
    manta_release_all(refs, 2);
    assert_int_equal(rt->objects.n, 2);
    settle_now(refs[1], true);
    thread_join(&w.thread);
    assert_int_equal(w.st, MANTA_OK);
    assert_true(w.n_ready == 1 && !w.ready[0] && w.ready[1]);
    assert_int_equal(rt->objects.n, 0);
    assert_int_equal(manta_wait(refs, 2, 1, 0, w.ready, NULL), MANTA_EINVAL);
}

/* No time at all is a look, also where others wait. */
static void without_time_it_only_looks(void **state)
{
    manta_ref refs[2];
    waiter w;
    (void)state;

    with_sleep();
    for (int i = 0; i < 2; i++) refs[i] = ref_of(make(object_id(1)));
    waiter_start(&w, refs, 2, 2);
    until_waiting(1);
    wait_and_check(refs, 2, 2);
    settle_now(refs[1], true);
    wait_and_check(refs, 2, 2);
    wait_and_check(refs, 2, 1);
    settle_now(refs[0], true);
    thread_join(&w.thread);
    assert_true(w.st == MANTA_OK && w.n_ready == 2);
    manta_release_all(refs, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_list_is_answered_in_its_order, begin, end),
        cmocka_unit_test_setup_teardown(what_is_no_reference_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_wait_for_many_looks_at_each_a_few_times, begin, end),
        cmocka_unit_test_setup_teardown(each_wakes_with_what_it_waits_for, begin, end),
        cmocka_unit_test_setup_teardown(what_is_released_meanwhile_still_counts, begin, end),
        cmocka_unit_test_setup_teardown(without_time_it_only_looks, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
