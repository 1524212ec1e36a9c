/* watch_threads_test.c - watches while other threads settle and release what they watch: every
 * token comes once, the descriptor is readable while there are some, and nothing is left. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <poll.h>
#include <sched.h>
#include <string.h>

#include <manta/watch.h>

#include "base/mem.h"
#include "os/thread.h"
#include "task/object.h"
#include "task/runtime.h"
#include "task/value.h"

enum { OBJECTS = 500, ADDERS = 2, LONG_MS = 60000 };

static eventcount doorbell;

static int begin(void **state)
{
    static int64_t live;

    live = mem_live();
    *state = &live;
    assert_int_equal(runtime_open_local(), MANTA_OK);
    rt->is_local = false; /* waits sleep; the node is gone, so that only the test does anything */
    rt->is_dead = true;
    rt->death = failure_make(MANTA_FAILURE_NODE, MANTA_EDIED, NULL, 0, "there is no node");
    rt->bell = &doorbell;
    return 0;
}

static int end(void **state)
{
    rt->bell = NULL;
    runtime_close();
    assert_int_equal(mem_live(), *(const int64_t *)*state);
    return 0;
}

static manta_ref refs[OBJECTS];

static void make_objects(void)
{
    for (int i = 0; i < OBJECTS; i++) {
        object *o = object_new(object_id(1));
        o->refs = 1;
        refs[i].id = o->id;
    }
}

/* As an answer does it, or a death. */
static void settle(int i)
{
    const value v = {.kind = MANTA_KIND_I64, .size = 8, .word = (uint64_t)i};

    mutex_lock(&rt->lock);
    object *o = object_find(refs[i].id);
    if (o && i % 5 == 0)
        object_fail(o, failure_ref(rt->death));
    else if (o)
        object_set(o, &v, false);
    rt_changed();
    mutex_unlock(&rt->lock);
}

static void settle_all(void *arg)
{
    (void)arg;
    for (int i = 0; i < OBJECTS; i++) {
        settle(i);
        if (i % 16 == 0) sched_yield();
    }
}

typedef struct adder {
    manta_watch *w;
    uint64_t first; /* token */
} adder;

/* From the last to the first: some are settled by then, some will be. */
static void add_all(void *arg)
{
    const adder *a = arg;

    for (int i = OBJECTS; i-- > 0;)
        assert_int_equal(manta_watch_add(a->w, refs[i], a->first + (uint64_t)i), MANTA_OK);
}

static void take_all(manta_watch *w, size_t n, unsigned char *seen)
{
    struct pollfd p = {manta_watch_fd(w), POLLIN, 0};
    uint64_t tokens[33];
    size_t k;

    while (n > 0) {
        assert_int_equal(poll(&p, 1, LONG_MS), 1);
        assert_int_equal(manta_watch_take(w, tokens, 33, &k), MANTA_OK);
        assert_true(k > 0 && k <= n);
        for (size_t i = 0; i < k; i++) seen[tokens[i]]++;
        n -= k;
    }
    assert_int_equal(poll(&p, 1, 0), 0);
}

static void every_token_comes_once(void **state)
{
    static unsigned char seen[ADDERS * OBJECTS];
    manta_watch *w = NULL;
    thread_id settler, threads[ADDERS];
    adder a[ADDERS];
    (void)state;

    memset(seen, 0, sizeof seen);
    make_objects();
    assert_int_equal(manta_watch_new(&w), MANTA_OK);
    for (int i = 0; i < ADDERS; i++) {
        a[i] = (adder){w, (uint64_t)i * OBJECTS};
        assert_int_equal(thread_start(&threads[i], "add", add_all, &a[i]), MANTA_OK);
    }
    assert_int_equal(thread_start(&settler, "settle", settle_all, NULL), MANTA_OK);
    take_all(w, sizeof seen, seen);
    for (size_t i = 0; i < sizeof seen; i++) assert_int_equal(seen[i], 1);
    for (int i = 0; i < ADDERS; i++) thread_join(&threads[i]);
    thread_join(&settler);
    manta_release_all(refs, OBJECTS);
    assert_int_equal(rt->objects.n, 0);
    manta_watch_free(w);
}

/* Released by the program, watched, and settled by nobody: they go with the watch. */
static void a_watch_gives_back_what_it_holds(void **state)
{
    manta_watch *w = NULL, *other = NULL;
    (void)state;

    make_objects();
    assert_int_equal(manta_watch_new(&w), MANTA_OK);
    assert_int_equal(manta_watch_new(&other), MANTA_OK);
    for (int i = 0; i < OBJECTS; i++) {
        assert_int_equal(manta_watch_add(w, refs[i], 0), MANTA_OK);
        assert_int_equal(manta_watch_add(i % 2 ? w : other, refs[i], 0), MANTA_OK);
    }
    manta_release_all(refs, OBJECTS);
    assert_int_equal(rt->objects.n, OBJECTS);
    manta_watch_free(w);
    assert_int_equal(rt->objects.n, OBJECTS / 2);
    manta_watch_free(other);
    assert_int_equal(rt->objects.n, 0);
    manta_watch_free(NULL);
}

static void what_cannot_be_watched_is_refused(void **state)
{
    manta_watch *w = NULL;
    manta_array a;
    manta_ref r;
    (void)state;

    assert_int_equal(manta_watch_new(&w), MANTA_OK);
    assert_int_equal(manta_watch_add(w, (manta_ref){0}, 1), MANTA_EINVAL);
    rt->is_local = true; /* where memory comes from here */
    assert_int_equal(manta_create(MANTA_DTYPE_F32, 0, NULL, &a, &r), MANTA_OK);
    rt->is_local = false;
    assert_int_equal(manta_watch_add(w, r, 1), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "not sealed"));
    manta_release(r);
    manta_watch_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_token_comes_once, begin, end),
        cmocka_unit_test_setup_teardown(a_watch_gives_back_what_it_holds, begin, end),
        cmocka_unit_test_setup_teardown(what_cannot_be_watched_is_refused, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
