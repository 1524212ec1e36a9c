/* What becomes of a dead worker's work: kept, taken up, asked for, dealt out. The
 * orders in which it can happen are group_order_test.c's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "train/group/group_membership.h"
#include "train/group/worker_step.h"

enum { WORKERS = 3, SHARDS = 3 };

static control *c;
static membership r;
static worker_step turn[WORKERS];

static void come(int rank)
{
    r.state[rank] = MEMBERSHIP_READY;
    worker_step_init(&turn[rank], c, rank);
    membership_settle(&r);
}

/* Three workers at the first of many steps; each has taken its assignment. */
static int begin(void **state)
{
    (void)state;
    c = mem_new(sizeof *c);
    control_init(c, WORKERS, SHARDS, false);
    membership_init(&r, c);
    for (int i = 0; i < WORKERS; i++) come(i);
    r.end = 10;
    c->job.train = true;
    c->allowed = 10;
    c->job.end = 10;
    return 0;
}

static int end(void **state)
{
    (void)state;
    mem_free(c);
    return 0;
}

static uint32_t generation(void)
{
    return word_generation(c->commit);
}

/* The shard that a turn is at, which is its own; -1: none. */
static int shard_of(int rank)
{
    int item;

    return worker_step_next(&turn[rank], &item) == WORKER_SHARD ? item : -1;
}

static void do_shard(int rank, int shard)
{
    assert_int_equal(shard_of(rank), shard);
    assert_true(worker_step_done(&turn[rank], WORKER_SHARD, shard));
}

/* What worker_main.c does before it waits. */
static void wait_and_ask(int rank)
{
    int item;

    assert_int_equal(worker_step_next(&turn[rank], &item), WORKER_WAIT);
    assert_true(worker_step_sees_vacancy(&turn[rank]));
    c->worker[rank].idle = generation();
}

static void what_is_kept_is_the_successor_s(void **state)
{
    (void)state;
    assert_int_equal(shard_of(0), 0); /* under way */
    assert_true(membership_remove(&r, 1, true));
    assert_false(membership_is_asked(&r));
    assert_true(worker_step_done(&turn[0], WORKER_SHARD, 0)); /* the others' deaths take nothing from it */
    r.state[1] = MEMBERSHIP_STARTING;
    come(1);
    assert_int_equal(r.state[1], MEMBERSHIP_ACTIVE); /* in the middle of the step */
    do_shard(1, 1);
    do_shard(2, 2);
    for (int i = 0; i < WORKERS; i++) {
        int item;
        assert_int_equal(worker_step_next(&turn[i], &item), WORKER_UPDATE);
        assert_int_equal(item, i);
        assert_true(worker_step_done(&turn[i], WORKER_UPDATE, i));
    }
}

static void who_has_nothing_to_do_gets_it(void **state)
{
    (void)state;
    do_shard(0, 0);
    assert_true(membership_remove(&r, 1, true));
    assert_false(membership_is_asked(&r));
    wait_and_ask(0);
    assert_true(membership_is_asked(&r));
    membership_deal(&r);
    assert_false(membership_is_asked(&r));
    do_shard(0, 1);
    r.state[1] = MEMBERSHIP_STARTING;
    come(1); /* too late for this step */
    assert_int_equal(r.state[1], MEMBERSHIP_STAGED);
    do_shard(2, 2);
    assert_int_equal(shard_of(1), -1);
}

/* Who asked in an older generation may have got work since. */
static void a_question_is_of_its_generation(void **state)
{
    (void)state;
    do_shard(0, 0);
    assert_true(membership_remove(&r, 1, true));
    wait_and_ask(0);
    assert_true(membership_remove(&r, 2, true));
    assert_false(membership_is_asked(&r));
    wait_and_ask(0);
    assert_true(membership_is_asked(&r));
}

static void nobody_waits_for_one_that_does_not_come(void **state)
{
    (void)state;
    do_shard(0, 0);
    assert_true(membership_remove(&r, 1, true));
    r.state[1] = MEMBERSHIP_STARTING;
    assert_false(membership_remove(&r, 1, false)); /* it died at its start */
    do_shard(0, 1);
    assert_true(membership_remove(&r, 2, false)); /* not kept in the first place */
    do_shard(0, 2);
}

/* All are dead: who comes first has its own, the rest waits for its own, or until it is asked for. */
static void all_come_again(void **state)
{
    (void)state;
    for (int i = 0; i < WORKERS; i++) assert_true(membership_remove(&r, i, true));
    assert_false(membership_is_asked(&r));
    come(2);
    do_shard(2, 2);
    come(0);
    do_shard(0, 0);
    wait_and_ask(0);
    assert_true(membership_is_asked(&r));
    come(1); /* just in time */
    assert_false(membership_is_asked(&r));
    do_shard(1, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(what_is_kept_is_the_successor_s, begin, end),
        cmocka_unit_test_setup_teardown(who_has_nothing_to_do_gets_it, begin, end),
        cmocka_unit_test_setup_teardown(a_question_is_of_its_generation, begin, end),
        cmocka_unit_test_setup_teardown(nobody_waits_for_one_that_does_not_come, begin, end),
        cmocka_unit_test_setup_teardown(all_come_again, begin, end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
