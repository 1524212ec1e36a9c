/* sched_starts_test.c - workers on their way: environments, what a job may have, starts that fail. */
#include "task/sched_fixture.h"

/* Workers whose calls wait give their cores back, and others are started, up to a number; then
 * who waits is told, when nobody is left who could go on. */
static void workers_are_capped(void **state)
{
    sched *s = sched_new(cpus(1), 1);
    const sched_shape none = {.bundle = 0};
    (void)state;

    sched_cap(s, 3);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_START), 1);
    for (uint32_t w = 10; w < 13; w++) { /* each waits for a call of its own */
        step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
        assert_int_equal(first(SCHED_DO_GRANT)->worker, w);
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = w, .shape = cpus(1), .n = 1});
        assert_int_equal(count(SCHED_DO_START), 0);
        step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = w});
        assert_int_equal(count(SCHED_DO_START), w < 12);
        assert_int_equal(count(SCHED_DO_CAP), w == 12);
    }
    assert_int_equal(first(SCHED_DO_REFUSE_CAPPED)->client, 12); /* the only one that is still in the line */
    assert_int_equal(sched_waiting(s), 0);
    /* An actor has a process in any case. */
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 99, .shape = none, .n = 1});
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 13});
    assert_int_equal(first(SCHED_DO_ACTOR)->worker, 13);
    /* One that goes on may be free soon: its caller waits, and is not told again. */
    step(s, (sched_event){.kind = SCHED_RUNNING, .worker = 12});
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 12});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_REFUSE_CAPPED) + count(SCHED_DO_START), 0);
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = 12});
    assert_int_equal(count(SCHED_DO_START), 1);
    sched_free(s);
}

/* One that takes no more calls waits only until its lease is returned, and makes room then: nobody is
 * refused for it. */
static void a_retired_worker_refuses_nobody(void **state)
{
    sched *s = sched_new(cpus(2), 1);
    (void)state;

    sched_cap(s, 2);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 10, .shape = cpus(1), .n = 2});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 11);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    step(s, (sched_event){.kind = SCHED_RETIRE, .worker = 11});
    assert_int_equal(first(SCHED_DO_RECLAIM)->client, 10);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 11});
    assert_int_equal(count(SCHED_DO_REFUSE_CAPPED), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 10, .worker = 11});
    assert_int_equal(first(SCHED_DO_STOP)->worker, 11);
    assert_int_equal(count(SCHED_DO_REFUSE_CAPPED), 0);
    assert_int_equal(count(SCHED_DO_START), 1);
    sched_free(s);
}

static void a_start_that_failed_is_tried_again(void **state)
{
    sched *s = sched_new(cpus(1), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_START), 0); /* one is on its way */
    step(s, (sched_event){.kind = SCHED_START_FAILED});
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 0});
    step(s, (sched_event){.kind = SCHED_START_FAILED});
    assert_int_equal(count(SCHED_DO_START), 0); /* nobody wants it any more */
    sched_free(s);
}

/* A job that can have no more workers: an actor, which needs one of its own, is
 * refused; calls are only when no worker of the job could come to them. */
static void a_job_that_is_full_refuses(void **state)
{
    sched *s = sched_new(cpus(9), 1);
    sched_shape nothing = cpus(0);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 3});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    assert_int_equal(count(SCHED_DO_START), 2);
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 77, .shape = nothing, .n = 1});
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = 1});
    assert_int_equal(count(SCHED_DO_START), 0);
    assert_int_equal(count(SCHED_DO_REFUSE_ACTOR), 0); /* two are still on their way */
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 11);
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = 2});
    assert_int_equal(first(SCHED_DO_REFUSE_ACTOR)->client, 77);
    assert_int_equal(count(SCHED_DO_REFUSE), 0); /* the calls have two workers */
    assert_int_equal(count(SCHED_DO_START), 0);
    assert_int_equal(sched_waiting(s), 1);
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 78, .shape = nothing, .n = 1});
    assert_int_equal(first(SCHED_DO_REFUSE_ACTOR)->client, 78); /* and without another try */
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = 11});
    assert_int_equal(count(SCHED_DO_START), 1); /* where one was there is room for one */
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = 1});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 0});
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 79, .shape = nothing, .n = 1});
    assert_int_equal(first(SCHED_DO_ACTOR)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_REFUSE)->client, 2); /* an actor has the only worker */
    assert_int_equal(sched_waiting(s), 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(10), .n = 1});
    assert_int_equal(count(SCHED_DO_REFUSE), 0); /* it lacks more than a worker */
    sched_free(s);

    /* Without any worker: who asks is refused, and who asks again makes it try again. */
    s = sched_new(cpus(9), 1);
    for (int i = 0; i < 3; i++) {
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
        assert_int_equal(count(SCHED_DO_START), 1);
        step(s, (sched_event){.kind = SCHED_START_FAILED, .n = 1});
        assert_int_equal(first(SCHED_DO_REFUSE)->client, 1);
        assert_int_equal(count(SCHED_DO_START), 0);
    }
    sched_free(s);
}

/* A call that lacks only a worker, where no more can be started, gets one that a call of another
 * sort has: its holder is asked, though there is room for both. */
static void holders_are_asked_where_no_more_workers_can_start(void **state)
{
    sched *s = sched_new(cpus(2), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(0), .n = 2});
    assert_int_equal(count(SCHED_DO_START), 2);
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = 1});
    assert_int_equal(count(SCHED_DO_RECLAIM), 0); /* one is still on its way */
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = 1});
    assert_int_equal(first(SCHED_DO_RECLAIM)->worker, 10);
    assert_int_equal(count(SCHED_DO_REFUSE), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    sched_free(s);
}

/* A worker is of use in a group, too, whatever it was leased for. */
static void holders_outside_a_group_are_asked_for_it(void **state)
{
    const sched_shape all = cpus(2);
    sched_shape inside = cpus(1);
    sched *s = sched_new(cpus(2), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(0), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_GROUP, .client = 900, .bundles = &all, .n = 1});
    assert_int_equal(count(SCHED_DO_GROUP), 1);
    inside.group = 900;
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = inside, .n = 1});
    assert_int_equal(count(SCHED_DO_START), 1);
    assert_int_equal(count(SCHED_DO_RECLAIM), 0);
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = SCHED_SCARCE});
    assert_int_equal(first(SCHED_DO_RECLAIM)->worker, 10);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    sched_free(s);
}

/* ---- environments ---- */

static sched_shape in_environment(double n, uint64_t environment)
{
    sched_shape s = cpus(n);

    s.environment = environment;
    return s;
}

static void worker_comes(sched *s, uint32_t worker, uint64_t environment)
{
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = worker, .environment = environment});
}

static void environments_share_no_worker(void **state)
{
    sched *s = sched_new(cpus(4), 2);
    (void)state;

    worker_comes(s, 10, 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = in_environment(1, 7), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 0); /* the idle one is of another */
    assert_int_equal(first(SCHED_DO_START)->environment, 7);
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 2, .shape = in_environment(0, 8), .n = 1});
    assert_int_equal(first(SCHED_DO_START)->environment, 8);
    worker_comes(s, 11, 8);
    assert_int_equal(first(SCHED_DO_ACTOR)->worker, 11);
    worker_comes(s, 12, 7);
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 12);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 3, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 12});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 3, .shape = in_environment(1, 7), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 12); /* it is ready for the next of its own */
    sched_free(s);
}

/* Of the idle workers that have an environment as many stay as of the plain ones, those that were
 * used last. */
static void few_environments_stay_ready(void **state)
{
    sched *s = sched_new(cpus(8), 2);
    (void)state;

    for (uint32_t e = 1; e <= 4; e++) {
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = in_environment(1, e), .n = 1});
        worker_comes(s, 10 + e, e);
        assert_int_equal(first(SCHED_DO_GRANT)->worker, 10 + e);
    }
    worker_comes(s, 20, 0);
    for (uint32_t e = 1; e <= 4; e++) {
        step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10 + e});
        assert_int_equal(count(SCHED_DO_STOP), e > 2);
        if (e > 2) assert_int_equal(first(SCHED_DO_STOP)->worker, 10 + e - 2);
    }
    assert_int_equal(sched_workers(s), 3);
    sched_free(s);
}

/* Where no more can be started one that is idle elsewhere leaves; one that says itself that it cannot
 * work drives nobody out. */
static void idle_workers_make_room(void **state)
{
    sched *s = sched_new(cpus(4), 2);
    sched_event wish = {.kind = SCHED_DEMAND, .client = 1, .shape = in_environment(1, 7), .n = 1};
    sched_event failed = {.kind = SCHED_START_FAILED, .environment = 7, .n = SCHED_REFUSED};
    (void)state;

    worker_comes(s, 10, 0);
    worker_comes(s, 11, 0);
    step(s, wish);
    step(s, failed);
    assert_int_equal(count(SCHED_DO_STOP), 0);
    assert_int_equal(first(SCHED_DO_REFUSE)->client, 1);
    step(s, wish);
    assert_int_equal(count(SCHED_DO_START), 1); /* it may be asked for again */
    failed.n = SCHED_SCARCE;
    step(s, failed);
    assert_int_equal(first(SCHED_DO_STOP)->worker, 10);
    assert_int_equal(count(SCHED_DO_REFUSE), 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(1), .n = 2});
    assert_int_equal(count(SCHED_DO_GRANT), 1); /* 11: nobody gets one that leaves */
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = 10});
    assert_true(count(SCHED_DO_START) > 0);
    worker_comes(s, 12, 7);
    assert_int_equal(first(SCHED_DO_GRANT)->client, 1);
    sched_free(s);
}

/* Of a job that has as many workers as it may, too; and leases of other environments are asked for. */
static void environments_share_what_a_job_may_have(void **state)
{
    sched *s = sched_new(cpus(4), 2);
    const sched_shape none = in_environment(0, 7);
    (void)state;

    sched_cap(s, 2);
    worker_comes(s, 10, 0);
    worker_comes(s, 11, 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(0), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 1);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = none, .n = 1});
    assert_int_equal(count(SCHED_DO_CAP), 0);
    assert_int_equal(first(SCHED_DO_STOP)->worker, 11);
    assert_int_equal(first(SCHED_DO_RECLAIM)->worker, 10);
    step(s, (sched_event){.kind = SCHED_STAYS, .worker = 11}); /* others wait for what it is to make */
    assert_int_equal(count(SCHED_DO_STOP), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_STOP)->worker, 11); /* it may have been made by now */
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = 11});
    assert_int_equal(first(SCHED_DO_START)->environment, 7);
    sched_free(s);
}

/* Workers that are to be renewed are stopped when they are idle, and nobody gets one; others of the
 * job, and actors, stay. */
static void idle_workers_are_renewed(void **state)
{
    sched *s = sched_new(cpus(4), 4);
    (void)state;

    for (uint32_t w = 10; w < 13; w++) worker_comes(s, w, 0);
    worker_comes(s, 20, 7);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 2, .shape = cpus(0), .n = 1});
    assert_int_equal(first(SCHED_DO_ACTOR)->worker, 11);
    step(s, (sched_event){.kind = SCHED_RENEW});
    assert_int_equal(count(SCHED_DO_STOP), 1);
    assert_int_equal(first(SCHED_DO_STOP)->worker, 12);
    assert_int_equal(count(SCHED_DO_START), 1);
    assert_int_equal(first(SCHED_DO_RECLAIM)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 3, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_START), 0); /* one is on its way */
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_STOP)->worker, 10);
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    worker_comes(s, 13, 0);
    assert_int_equal(first(SCHED_DO_GRANT)->client, 3);
    assert_int_equal(sched_workers(s), 3);
    sched_free(s);
}

/* What is on its way before anybody asks is not started twice. */
static void what_is_on_its_way_counts(void **state)
{
    sched *s = sched_new(cpus(4), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_STARTING, .n = 2});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 3});
    assert_int_equal(count(SCHED_DO_START), 1);
    for (uint32_t w = 10; w < 13; w++) {
        worker_comes(s, w, 0);
        assert_int_equal(count(SCHED_DO_GRANT), 1);
        assert_int_equal(count(SCHED_DO_START), 0);
    }
    sched_free(s);
}

/* Who waits for itself is refused also behind others who wait for a worker that cannot come: what they
 * need is not set aside for them. */
static void one_that_waits_behind_others_is_refused(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 100, .n = 1});
    assert_int_equal(first(SCHED_DO_ACTOR)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 11);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(1), .n = 2}); /* all cores */
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = SCHED_SCARCE});
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 11});
    assert_int_equal(count(SCHED_DO_REFUSE), 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 11, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_REFUSE)->client, 11); /* its call is what worker 11 waits for */
    assert_int_equal(count(SCHED_DO_REFUSE), 1);
    step(s, (sched_event){.kind = SCHED_RUNNING, .worker = 11});
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 11});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 2); /* those before it were not forgotten */
    sched_free(s);
}

/* And so is one of several that all wait. */
static void none_waits_for_ever_where_all_wait(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 2});
    assert_int_equal(count(SCHED_DO_GRANT), 2);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 10, .shape = cpus(1), .n = 1});
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = SCHED_SCARCE});
    assert_int_equal(count(SCHED_DO_REFUSE), 0); /* worker 11 may come to it */
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 11, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_REFUSE), 0);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 11});
    assert_int_equal(count(SCHED_DO_REFUSE), 2);
    assert_int_equal(sched_waiting(s), 0);
    sched_free(s);
}

/* A driver's calls wait for workers that all wait, of which there can be no more. Whether one of them goes on
 * only others know: the calls are refused when those have said that none does. */
static void calls_of_a_driver_are_refused_when_nothing_goes_on(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 2});
    assert_int_equal(count(SCHED_DO_GRANT), 1);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(2), .n = 1});
    assert_false(sched_is_starved(s, 0)); /* a worker is on its way */
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = SCHED_SCARCE});
    assert_false(sched_is_starved(s, 0)); /* worker 10 goes on */
    step(s, (sched_event){.kind = SCHED_STARVED});
    assert_int_equal(count(SCHED_DO_REFUSE), 0);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    assert_int_equal(count(SCHED_DO_REFUSE), 0);
    assert_true(sched_is_starved(s, 0));
    assert_false(sched_is_starved(s, 1)); /* another program */
    step(s, (sched_event){.kind = SCHED_STARVED, .job = 1});
    assert_int_equal(count(SCHED_DO_REFUSE), 0);
    step(s, (sched_event){.kind = SCHED_STARVED});
    assert_int_equal(count(SCHED_DO_REFUSE), 2); /* of both shapes */
    assert_int_equal(first(SCHED_DO_REFUSE)->client, 1);
    assert_int_equal(sched_waiting(s), 0);
    assert_false(sched_is_starved(s, 0));
    sched_free(s);
}

/* A worker is idle, and the calls that it has made have not begun: it cannot be its own, and all others wait. */
static void calls_of_an_idle_worker_are_refused_when_all_others_wait(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    (void)state;

    sched_cap(s, 2);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 11, .shape = cpus(1), .n = 1});
    assert_false(sched_is_starved(s, 0)); /* worker 10 goes on */
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    assert_true(sched_is_starved(s, 0));
    assert_int_equal(count(SCHED_DO_REFUSE_CAPPED), 0); /* not at once: it is not the one that waits */
    step(s, (sched_event){.kind = SCHED_STARVED});
    assert_int_equal(first(SCHED_DO_REFUSE_CAPPED)->client, 11);
    sched_free(s);
}

/* So they are where a program has as many workers as it may. */
static void calls_of_a_driver_are_refused_at_the_cap(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    (void)state;

    sched_cap(s, 1);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 2});
    assert_false(sched_is_starved(s, 0));
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    assert_true(sched_is_starved(s, 0));
    step(s, (sched_event){.kind = SCHED_STARVED});
    assert_int_equal(count(SCHED_DO_REFUSE_CAPPED), 1);
    assert_int_equal(sched_waiting(s), 0);
    sched_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(workers_are_capped, clear),
        cmocka_unit_test_teardown(a_retired_worker_refuses_nobody, clear),
        cmocka_unit_test_teardown(a_start_that_failed_is_tried_again, clear),
        cmocka_unit_test_teardown(a_job_that_is_full_refuses, clear),
        cmocka_unit_test_teardown(one_that_waits_behind_others_is_refused, clear),
        cmocka_unit_test_teardown(none_waits_for_ever_where_all_wait, clear),
        cmocka_unit_test_teardown(calls_of_a_driver_are_refused_when_nothing_goes_on, clear),
        cmocka_unit_test_teardown(calls_of_a_driver_are_refused_at_the_cap, clear),
        cmocka_unit_test_teardown(calls_of_an_idle_worker_are_refused_when_all_others_wait, clear),
        cmocka_unit_test_teardown(holders_are_asked_where_no_more_workers_can_start, clear),
        cmocka_unit_test_teardown(holders_outside_a_group_are_asked_for_it, clear),
        cmocka_unit_test_teardown(environments_share_no_worker, clear),
        cmocka_unit_test_teardown(few_environments_stay_ready, clear),
        cmocka_unit_test_teardown(idle_workers_make_room, clear),
        cmocka_unit_test_teardown(environments_share_what_a_job_may_have, clear),
        cmocka_unit_test_teardown(idle_workers_are_renewed, clear),
        cmocka_unit_test_teardown(what_is_on_its_way_counts, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
