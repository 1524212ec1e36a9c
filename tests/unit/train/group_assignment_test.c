/* Who computes what, and whom to blame: the controller's pure decisions. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "train/group/group_assignment.h"

static assignment active(int workers, unsigned mask)
{
    assignment t = {0};

    for (int i = 0; i < workers; i++) t.active[i] = mask >> i & 1;
    return t;
}

/* Everything has a holder that is active, and nobody has more than their share. */
static void assert_dealt_out(const assignment *t, int workers, int shards, int most_shards)
{
    int held[SHARED_WORKERS] = {0};

    assert_false(assignment_is_vacant(t, workers, shards));
    for (int v = 0; v < shards; v++) held[t->shard[v]]++;
    for (int i = 0; i < workers; i++) assert_true(held[i] <= most_shards);
}

static void home_is_even(void **state)
{
    (void)state;
    for (int workers = 1; workers <= 9; workers++) {
        for (int shards = workers; shards <= 20; shards++) {
            assignment t = active(workers, ~0u);
            assignment_home(&t, workers, shards);
            assert_dealt_out(&t, workers, shards, (shards + workers - 1) / workers);
            for (int i = 0; i < workers; i++) assert_int_equal(t.range[i], i);
            for (int v = 1; v < shards; v++) assert_true(t.shard[v] >= t.shard[v - 1]);
        }
    }
}

static void the_dead_are_replaced_and_the_living_keep_theirs(void **state)
{
    (void)state;
    for (unsigned mask = 1; mask < 16; mask++) {
        assignment before = active(4, ~0u), t;
        assignment_home(&before, 4, 8);
        t = before;
        for (int i = 0; i < 4; i++) t.active[i] = mask >> i & 1;
        assignment_fill(&t, 4, 8);
        assert_dealt_out(&t, 4, 8, 8);
        for (int v = 0; v < 8; v++) {
            if (t.active[before.shard[v]]) assert_int_equal(t.shard[v], before.shard[v]);
        }
        for (int r = 0; r < 4; r++) {
            if (t.active[r]) assert_int_equal(t.range[r], r);
        }
    }
}

static void the_work_of_one_is_shared_by_all(void **state)
{
    assignment t = active(4, ~0u);

    (void)state;
    assignment_home(&t, 4, 12);
    t.active[2] = 0;
    assignment_fill(&t, 4, 12);
    assert_dealt_out(&t, 4, 12, 4);
}

/* What the dead held waits for them; each who comes finds all of its own, nobody else's. */
static void successors_find_their_own(void **state)
{
    assignment before = active(4, ~0u), t;

    (void)state;
    assignment_home(&before, 4, 9);
    for (unsigned mask = 0; mask < 16; mask++) {
        t = before;
        for (int i = 0; i < 4; i++) t.active[i] = mask >> i & 1;
        assignment_return(&t, 4, 9);
        assert_int_equal(assignment_is_vacant(&t, 4, 9), mask != 15);
        assert_memory_equal(t.shard, before.shard, 9 * sizeof *t.shard);
        assert_memory_equal(t.range, before.range, 4 * sizeof *t.range);
    }
    /* One had taken over from another, and died: each has its own again, the rest waits. */
    t = before;
    t.active[0] = t.active[2] = t.active[3] = 0;
    assignment_fill(&t, 4, 9);
    t.active[1] = 0;
    t.active[0] = t.active[3] = 1;
    assignment_return(&t, 4, 9);
    for (int v = 0; v < 9; v++) {
        bool home = before.shard[v] == 0 || before.shard[v] == 3;
        assert_int_equal(t.shard[v], home ? before.shard[v] : 1);
    }
    assert_true(assignment_is_vacant(&t, 4, 9));
    /* What the living hold is not taken from them. */
    t = before;
    t.active[2] = 0;
    assignment_fill(&t, 4, 9);
    t.active[2] = 1;
    before = t;
    assignment_return(&t, 4, 9);
    assert_true(assignment_equal(&t, &before, 4, 9));
}

static void nobody_is_nobody(void **state)
{
    assignment t = active(3, 0), before;

    (void)state;
    assignment_home(&t, 3, 3);
    before = t;
    assert_true(assignment_is_vacant(&t, 3, 3));
    assignment_fill(&t, 3, 3);
    assert_true(assignment_equal(&t, &before, 3, 3));
    t.active[1] = 1; /* the first who comes has it all */
    assignment_fill(&t, 3, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(t.shard[i], 1);
        assert_int_equal(t.range[i], 1);
    }
    t.active[0] = 1; /* the second takes nothing from the first in mid-step */
    before = t;
    assignment_fill(&t, 3, 3);
    assert_true(assignment_equal(&t, &before, 3, 3));
}

static void tables_differ_by_base(void **state)
{
    assignment a = active(2, 3), b;

    (void)state;
    assignment_home(&a, 2, 2);
    b = a;
    assert_true(assignment_equal(&a, &b, 2, 2));
    b.base++;
    assert_false(assignment_equal(&a, &b, 2, 2));
}

static void two_crashes_are_too_many(void **state)
{
    blame b = {.number = -1};

    (void)state;
    assert_false(blame_add(&b, 7, true));
    assert_true(blame_add(&b, 7, true));
    assert_false(blame_add(&b, 8, true)); /* another step */
    assert_false(blame_add(&b, 9, true));
    assert_false(blame_add(&b, 8, true)); /* and back, computed again later: a new count */
}

static void kills_have_more_patience(void **state)
{
    blame b = {.number = -1};

    (void)state;
    for (int i = 1; i < BLAME_KILLS; i++) assert_false(blame_add(&b, 3, false));
    assert_true(blame_add(&b, 3, false));
    b = (blame){.number = -1};
    assert_false(blame_add(&b, 3, false));
    assert_false(blame_add(&b, 3, true));
    assert_true(blame_add(&b, 3, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(home_is_even),
        cmocka_unit_test(the_dead_are_replaced_and_the_living_keep_theirs),
        cmocka_unit_test(the_work_of_one_is_shared_by_all),
        cmocka_unit_test(successors_find_their_own),
        cmocka_unit_test(nobody_is_nobody),
        cmocka_unit_test(tables_differ_by_base),
        cmocka_unit_test(two_crashes_are_too_many),
        cmocka_unit_test(kills_have_more_patience),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
