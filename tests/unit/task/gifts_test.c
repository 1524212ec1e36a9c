/* gifts_test.c - what callers hold of workers that died before they answered. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/gifts.h"

enum { WORKER = 7, OTHER_WORKER = 8, CALLER = 1, OTHER = 2 };

static gifts_objects out;

static void assert_lost(gifts *g, uint32_t from, uint32_t to, uint64_t task, uint64_t items, size_t n,
                        const uint64_t *objects)
{
    vec_clear(&out);
    gifts_unheard(g, from, to, task, items, &out);
    assert_int_equal(out.n, n);
    for (size_t i = 0; i < n; i++) assert_int_equal(out.at[i], objects[i]);
}

static int clear(void **state)
{
    (void)state;
    vec_release(&out);
    return 0;
}

static void only_calls_without_an_answer_lose(void **state)
{
    gifts *g = gifts_new();
    (void)state;

    gifts_add(g, WORKER, CALLER, 10, GIFTS_RESULT, 100);
    gifts_add(g, WORKER, CALLER, 10, GIFTS_RESULT, 101);
    gifts_add(g, WORKER, CALLER, 11, GIFTS_RESULT, 102);
    gifts_add(g, WORKER, OTHER, 10, GIFTS_RESULT, 103); /* a call of the same number */
    gifts_add(g, OTHER_WORKER, CALLER, 10, GIFTS_RESULT, 104); /* the call, tried again */
    assert_lost(g, WORKER, CALLER, 10, 0, 2, (uint64_t[]){100, 101});
    assert_lost(g, WORKER, CALLER, 10, 0, 0, NULL); /* not twice */
    gifts_settled(g, WORKER, CALLER);
    assert_lost(g, WORKER, CALLER, 11, 0, 0, NULL); /* that was read */
    assert_int_equal(gifts_count(g), 2);
    assert_lost(g, WORKER, OTHER, 10, 0, 1, (uint64_t[]){103});
    assert_lost(g, OTHER_WORKER, CALLER, 10, 0, 1, (uint64_t[]){104});
    gifts_free(g);
}

static void items_that_were_read_stay(void **state)
{
    gifts *g = gifts_new();
    (void)state;

    for (uint64_t i = 0; i < 5; i++) gifts_add(g, WORKER, CALLER, 10, i, 200 + i);
    gifts_add(g, WORKER, CALLER, 10, GIFTS_RESULT, 300);
    assert_lost(g, WORKER, CALLER, 10, 3, 3, (uint64_t[]){203, 204, 300});
    assert_int_equal(gifts_count(g), 3);
    gifts_free(g);
}

/* A call that has failed and is tried again by the same worker: what the first try gave was read. */
static void earlier_tries_stay(void **state)
{
    gifts *g = gifts_new();
    (void)state;

    for (uint64_t i = 0; i < 3; i++) gifts_add(g, WORKER, CALLER, 10, gifts_item(0, i), 200 + i);
    gifts_add(g, WORKER, CALLER, 10, gifts_item(0, GIFTS_RESULT), 300);
    for (uint64_t i = 0; i < 2; i++) gifts_add(g, WORKER, CALLER, 10, gifts_item(1, i), 400 + i);
    assert_lost(g, WORKER, CALLER, 10, gifts_item(1, 1), 1, (uint64_t[]){401});
    assert_lost(g, WORKER, CALLER, 10, gifts_item(1, 0), 1, (uint64_t[]){400});
    assert_int_equal(gifts_count(g), 4);
    gifts_free(g);
}

static void the_dead_are_given_nothing(void **state)
{
    gifts *g = gifts_new();
    (void)state;

    gifts_add(g, WORKER, CALLER, 10, GIFTS_RESULT, 100);
    gifts_add(g, OTHER_WORKER, CALLER, 11, GIFTS_RESULT, 101);
    gifts_add(g, OTHER_WORKER, OTHER, 12, GIFTS_RESULT, 102);
    gifts_gone(g, WORKER); /* what it gave is still asked for */
    assert_int_equal(gifts_count(g), 3);
    gifts_gone(g, CALLER);
    assert_int_equal(gifts_count(g), 1);
    gifts_settled(g, OTHER_WORKER, OTHER);
    gifts_settled(g, OTHER_WORKER, OTHER);
    assert_int_equal(gifts_count(g), 0);
    gifts_free(g);
    gifts_free(NULL);
}

/* The last are kept, at least so many of each worker, and not many more. */
static void only_the_last_are_kept(void **state)
{
    gifts *g = gifts_new();
    const uint64_t n = 10 * GIFTS_KEPT;
    (void)state;

    for (uint64_t i = 0; i < n; i++) {
        gifts_add(g, WORKER, CALLER, i, GIFTS_RESULT, i);
        assert_true(gifts_count(g) <= 2 * GIFTS_KEPT);
        assert_true(gifts_count(g) >= (i < GIFTS_KEPT ? i + 1 : GIFTS_KEPT));
    }
    assert_lost(g, WORKER, CALLER, n - 1, 0, 1, (uint64_t[]){n - 1});
    assert_lost(g, WORKER, CALLER, n - GIFTS_KEPT, 0, 1, (uint64_t[]){n - GIFTS_KEPT});
    assert_lost(g, WORKER, CALLER, 0, 0, 0, NULL);
    gifts_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(only_calls_without_an_answer_lose, clear),
        cmocka_unit_test_teardown(items_that_were_read_stay, clear),
        cmocka_unit_test_teardown(earlier_tries_stay, clear),
        cmocka_unit_test_teardown(the_dead_are_given_nothing, clear),
        cmocka_unit_test_teardown(only_the_last_are_kept, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
