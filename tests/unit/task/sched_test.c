/* sched_test.c - workers that come, are leased, and leave; sched_sim_test.c has simulated clusters. */
#include "task/sched_fixture.h"

static void a_demand_starts_workers_and_gets_them(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 5});
    assert_int_equal(count(SCHED_DO_START), 2); /* as many as could run */
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    assert_int_equal(first(SCHED_DO_GRANT)->client, 1);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    assert_int_equal(count(SCHED_DO_GRANT), 1);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 12});
    assert_int_equal(count(SCHED_DO_GRANT), 0); /* no core is left */
    assert_int_equal(sched_left(s).amount[0], 0);
    assert_int_equal(sched_leases(s), 2);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(count(SCHED_DO_GRANT), 1); /* it still wants three */
    sched_free(s);
}

/* Workers have the functions of one program: another's calls get others. */
static void jobs_have_workers_of_their_own(void **state)
{
    (void)state;
    sched *s = sched_new(cpus(2), 1);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10, .job = 1});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 7, .job = 2, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    assert_int_equal(first(SCHED_DO_START)->job, 2);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 8, .job = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11, .job = 2});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 7);
    /* Cores are shared: the third program waits for one, and both are asked. */
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 9, .job = 3, .shape = cpus(1), .n = 4});
    assert_int_equal(count(SCHED_DO_START), 0);
    assert_int_equal(count(SCHED_DO_RECLAIM), 2);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 8, .worker = 10});
    assert_int_equal(count(SCHED_DO_START), 1);
    /* A job that ends takes its requests along. */
    step(s, (sched_event){.kind = SCHED_JOB_GONE, .job = 3});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 12, .job = 3});
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    sched_free(s);
}

/* One worker too many is to be stopped, and the owner of the scheduler says that it is not. */
static void one_that_stays_is_used_again(void **state)
{
    sched *s = sched_new(cpus(2), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 2});
    assert_int_equal(count(SCHED_DO_GRANT), 2);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 11});
    assert_int_equal(first(SCHED_DO_STOP)->worker, 11);
    step(s, (sched_event){.kind = SCHED_STAYS, .worker = 11});
    assert_int_equal(out.n, 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(1), .n = 2});
    assert_int_equal(count(SCHED_DO_GRANT), 2);
    assert_int_equal(count(SCHED_DO_START), 0);
    sched_free(s);
}

static void a_call_that_waits_gives_its_core(void **state)
{
    sched *s = sched_new(cpus(1), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 10, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 10);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10}); /* said twice */
    step(s, (sched_event){.kind = SCHED_RUNNING, .worker = 10});
    assert_int_equal(sched_left(s).amount[0], -SCHED_UNIT);
    step(s, (sched_event){.kind = SCHED_RUNNING, .worker = 10});
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 10, .worker = 11});
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(sched_left(s).amount[0], SCHED_UNIT);
    /* A worker that dies while it waits gives back what it really held. */
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    uint32_t w = first(SCHED_DO_GRANT)->worker;
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = w});
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = w});
    assert_int_equal(sched_left(s).amount[0], SCHED_UNIT);
    sched_free(s);
}

static void the_dead_leave_nothing(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 9});
    step(s, (sched_event){.kind = SCHED_CLIENT_GONE, .client = 1});
    assert_int_equal(count(SCHED_DO_KILL), 2); /* they may be in the middle of something */
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = 11});
    assert_int_equal(count(SCHED_DO_START), 0); /* nobody wants anything any more */
    assert_int_equal(sched_left(s).amount[0], 2 * SCHED_UNIT);
    assert_int_equal(sched_workers(s), 0);
    sched_free(s);
}

/* A worker that takes no more calls is asked for, stopped when it is returned, and replaced. */
static void a_retired_worker_goes_with_its_lease(void **state)
{
    sched *s = sched_new(cpus(1), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    step(s, (sched_event){.kind = SCHED_RETIRE, .worker = 10});
    assert_int_equal(first(SCHED_DO_RECLAIM)->worker, 10);
    assert_int_equal(first(SCHED_DO_RECLAIM)->client, 1);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 11); /* its core is free */
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_STOP)->worker, 10);
    assert_int_equal(sched_workers(s), 1);
    assert_int_equal(sched_left(s).amount[0], 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 11});
    assert_int_equal(count(SCHED_DO_STOP), 0);
    step(s, (sched_event){.kind = SCHED_RETIRE, .worker = 11}); /* of an idle one: at once */
    assert_int_equal(first(SCHED_DO_STOP)->worker, 11);
    assert_int_equal(sched_left(s).amount[0], SCHED_UNIT);
    step(s, (sched_event){.kind = SCHED_RETIRE, .worker = 11});
    assert_int_equal(count(SCHED_DO_STOP), 0);
    sched_free(s);
}

static void actors_take_a_worker_for_themselves(void **state)
{
    sched *s = sched_new(cpus(1), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 77, .shape = cpus(0), .n = 1});
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    assert_int_equal(first(SCHED_DO_ACTOR)->client, 77);
    assert_int_equal(sched_left(s).amount[0], SCHED_UNIT);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 77, .worker = 10}); /* not a lease */
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 78, .shape = cpus(0), .n = 1});
    step(s, (sched_event){.kind = SCHED_ACTOR_CANCEL, .client = 78});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 1);
    sched_free(s);
}

static void surplus_workers_leave(void **state)
{
    sched *s = sched_new(cpus(4), 1);
    (void)state;

    for (uint32_t w = 10; w < 13; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 3});
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(count(SCHED_DO_STOP), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 11});
    assert_int_equal(first(SCHED_DO_STOP)->worker, 11);
    assert_int_equal(sched_workers(s), 2);
    sched_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_demand_starts_workers_and_gets_them, clear),
        cmocka_unit_test_teardown(jobs_have_workers_of_their_own, clear),
        cmocka_unit_test_teardown(one_that_stays_is_used_again, clear),
        cmocka_unit_test_teardown(a_call_that_waits_gives_its_core, clear),
        cmocka_unit_test_teardown(the_dead_leave_nothing, clear),
        cmocka_unit_test_teardown(a_retired_worker_goes_with_its_lease, clear),
        cmocka_unit_test_teardown(actors_take_a_worker_for_themselves, clear),
        cmocka_unit_test_teardown(surplus_workers_leave, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
