/* inner_test.c - what values refer to, and how often it is counted: without other
 * processes, where the entries of all objects can be seen. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "task/object.h"
#include "task/runtime.h"
#include "task/value.h"

enum { MANY = 2000 }; /* references that do not fit into a message */

static manta_status make_numbers(manta_task *t);

static int begin(void **state)
{
    static int64_t live;

    manta_register("make_numbers", make_numbers); /* for ever */
    live = mem_live();
    *state = &live;
    return manta_init(NULL, NULL, &(manta_node_options){.in_process = true}) != MANTA_OK;
}

static int end(void **state)
{
    manta_shutdown();
    assert_int_equal(mem_live(), *(const int64_t *)*state);
    return 0;
}

static void values_say_what_they_refer_to(void **state)
{
    const uint64_t two[2] = {7, 8}, *ids;
    const value refs = {.kind = MANTA_KIND_REFS, .size = sizeof two, .at = two};
    const value away = {.kind = MANTA_KIND_REFS, .size = sizeof two, .place = {1, 64}};
    const value actor = {.kind = MANTA_KIND_ACTOR, .size = 8, .word = 9};
    const value bytes = {.kind = MANTA_KIND_BYTES, .size = sizeof two, .at = two};
    (void)state;

    assert_int_equal(value_inner(&refs, &ids), 2);
    assert_int_equal(ids[1], 8);
    assert_int_equal(value_inner(&away, &ids), 0);
    assert_int_equal(value_inner(&actor, &ids), 1);
    assert_int_equal(ids[0], 9);
    assert_int_equal(value_inner(&bytes, &ids), 0);
}

static manta_status make_numbers(manta_task *t)
{
    manta_ref r[MANY];
    int64_t n;

    MANTA_TRY(manta_arg_i64(t, 0, &n));
    for (int64_t i = 0; i < n; i++) r[i] = manta_put(manta_i64(i));
    manta_status st = manta_return(t, 0, manta_refs(r, (size_t)n));
    manta_release_all(r, (size_t)n);
    return st;
}

static void take_numbers(int64_t n)
{
    const manta_ref all = manta_remote(make_numbers, manta_i64(n));
    const manta_ref *r;
    size_t seen;
    int64_t last;

    assert_int_equal(manta_get_refs(all, &r, &seen, 0), MANTA_OK);
    assert_int_equal(seen, n);
    assert_int_equal(manta_get_i64(r[n - 1], &last, 0), MANTA_OK);
    assert_int_equal(last, n - 1);
    assert_int_equal(rt->objects.n, n + 1);
    manta_release(all);
    assert_int_equal(rt->objects.n, 0); /* and they with it */
}

static void a_result_counts_them_once(void **state)
{
    (void)state;
    take_numbers(3);
    take_numbers(MANY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_say_what_they_refer_to),
        cmocka_unit_test_setup_teardown(a_result_counts_them_once, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
