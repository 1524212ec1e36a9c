/* sched_test.c - placing, by hand; sched_sim_test.c has simulated clusters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "task/sched_fixture.h"

static int count(sched_action_kind kind)
{
    int n = 0;

    for (size_t i = 0; i < out.n; i++) n += out.at[i].kind == kind;
    return n;
}

static const sched_action *first(sched_action_kind kind)
{
    for (size_t i = 0; i < out.n; i++)
        if (out.at[i].kind == kind) return &out.at[i];
    fail_msg("no action %d", (int)kind);
    return NULL;
}

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

/* A call has ended and the calls that it has made have not begun: its worker is free, and asks. */
static void no_worker_is_given_to_itself(void **state)
{
    sched *s = sched_new(cpus(1), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 10, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 11);
    assert_int_equal(first(SCHED_DO_GRANT)->client, 10);
    sched_free(s);
}

/* Where no other can be started, it is told so. */
static void one_that_has_only_itself_is_refused(void **state)
{
    sched *s = sched_new(cpus(1), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 10, .shape = cpus(1), .n = 1});
    assert_int_equal(count(SCHED_DO_START), 1);
    step(s, (sched_event){.kind = SCHED_START_FAILED, .n = 1});
    assert_int_equal(first(SCHED_DO_REFUSE)->client, 10);
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

/* So many calls of worker 10, one after the other, each get worker 11. */
static void run_inner_calls(sched *s, int n)
{
    for (int i = 0; i < n; i++) {
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 10, .shape = cpus(1), .n = 1});
        assert_int_equal(first(SCHED_DO_GRANT)->client, 10);
        step(s, (sched_event){.kind = SCHED_RETURN, .client = 10, .worker = 11});
    }
}

/* A call that holds a token waits for calls that it makes, each of which needs a core. One that
 * waits for all tokens has waited long, and one behind it that wants a token, too: neither may
 * keep the core from them. */
static void keep_no_cores(int64_t tokens)
{
    sched_shape one = cpus(1), all = cpus(1);

    one.amount[SCHED_NAMED] = SCHED_UNIT;
    all.amount[SCHED_NAMED] = tokens * SCHED_UNIT;
    sched *s = sched_new(all, 4);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = one, .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = all, .n = 1});
    run_inner_calls(s, 100);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 3, .shape = one, .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    run_inner_calls(s, 100);
    step(s, (sched_event){.kind = SCHED_RUNNING, .worker = 10});
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 2);
    sched_free(s);
}

static void who_waits_for_a_waiting_call_keeps_no_cores(void **state)
{
    (void)state;
    keep_no_cores(1);
    keep_no_cores(3);
}

static void others_get_their_turn(void **state)
{
    sched *s = sched_new(cpus(1), 4);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 100});
    assert_int_equal(count(SCHED_DO_GRANT), 1);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(1), .n = 100});
    assert_int_equal(first(SCHED_DO_RECLAIM)->client, 1);
    assert_int_equal(first(SCHED_DO_RECLAIM)->worker, 10);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(1), .n = 200});
    assert_int_equal(count(SCHED_DO_RECLAIM), 0); /* once is enough */
    uint64_t holder = 1;
    int turns[3] = {0};
    for (int i = 0; i < 10; i++) {
        step(s, (sched_event){.kind = SCHED_RETURN, .client = holder, .worker = 10});
        const sched_action *g = first(SCHED_DO_GRANT);
        assert_true(i == 0 || g->client != holder); /* the first has waited longer */
        holder = g->client;
        turns[holder]++;
        assert_int_equal(first(SCHED_DO_RECLAIM)->client, holder); /* asked anew for the new lease */
    }
    assert_int_equal(turns[1], turns[2]);
    sched_free(s);
}

static void a_client_is_not_asked_for_its_own_sake(void **state)
{
    sched *s = sched_new(cpus(1), 1);
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 3});
    assert_int_equal(count(SCHED_DO_RECLAIM), 0);
    /* But for a call of another shape its idle lease must go. */
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(0.5), .n = 1});
    assert_int_equal(count(SCHED_DO_RECLAIM), 1);
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

static void large_requests_are_not_starved(void **state)
{
    sched *s = sched_new(cpus(4), 8);
    int before = 0;
    uint32_t held[256];
    int n_held = 0, oldest = 0;
    (void)state;

    for (uint32_t w = 10; w < 16; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    for (int i = 0; i < 4; i++) {
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
        held[n_held++] = first(SCHED_DO_GRANT)->worker;
    }
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = cpus(4), .n = 1});
    /* Small ones come without end; one ends at a time. */
    for (; before < 200; before++) {
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 100});
        if (oldest == n_held) break;
        step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = held[oldest++]});
        for (size_t i = 0; i < out.n; i++) {
            if (out.at[i].kind != SCHED_DO_GRANT) continue;
            if (out.at[i].client == 2) goto served;
            held[n_held++] = out.at[i].worker;
        }
    }
    fail_msg("the large request was never served");
served:
    assert_true(before < 100);
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

static void what_can_never_be_is_known(void **state)
{
    sched_shape total = cpus(2), want = cpus(2);
    int missing = -1;
    (void)state;

    total.amount[3] = SCHED_UNIT;
    want.amount[3] = SCHED_UNIT;
    assert_true(sched_feasible(&total, &want, &missing));
    want.amount[3]++;
    assert_false(sched_feasible(&total, &want, &missing));
    assert_int_equal(missing, 3);
}

/* ---- gpus ---- */

static sched_shape gpus(double n)
{
    sched_shape s = {0};

    s.amount[SCHED_GPU] = (int64_t)(n * SCHED_UNIT);
    return s;
}

static uint32_t devices_for(sched *s, double n)
{
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = gpus(n), .n = 1});
    return count(SCHED_DO_GRANT) ? sched_devices(s, first(SCHED_DO_GRANT)->worker) : 0;
}

static void gpus_are_told_apart(void **state)
{
    sched *s = sched_new(gpus(3), 16);
    sched_shape bundles[2] = {gpus(1), gpus(0.5)}, in = gpus(1);
    (void)state;

    for (uint32_t w = 10; w < 26; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    assert_int_equal(devices_for(s, 0.5), 1);
    uint32_t half = first(SCHED_DO_GRANT)->worker;
    assert_int_equal(devices_for(s, 0.25), 1); /* parts share a device */
    uint32_t quarter = first(SCHED_DO_GRANT)->worker;
    assert_int_equal(devices_for(s, 0.5), 2); /* which has too little left */
    uint32_t other = first(SCHED_DO_GRANT)->worker;
    assert_int_equal(devices_for(s, 1), 4); /* alone on it */
    uint32_t whole = first(SCHED_DO_GRANT)->worker;
    /* Enough is left in all, and nowhere a whole one. */
    assert_int_equal(sched_left(s).amount[SCHED_GPU], SCHED_UNIT * 3 / 4);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = half});
    assert_true(sched_left(s).amount[SCHED_GPU] > SCHED_UNIT);
    assert_int_equal(devices_for(s, 1), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = other});
    assert_int_equal(sched_devices(s, first(SCHED_DO_GRANT)->worker), 2);
    uint32_t second = first(SCHED_DO_GRANT)->worker;
    /* A group reserves devices: one and a half, which are there when both are back. */
    step(s, (sched_event){.kind = SCHED_GROUP, .client = 900, .bundles = bundles, .n = 2});
    assert_int_equal(count(SCHED_DO_GROUP), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = whole});
    assert_int_equal(count(SCHED_DO_GROUP), 1); /* device 2, and half of what the quarter is on */
    in.group = 900;
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 77, .shape = in, .n = 1});
    assert_int_equal(sched_devices(s, first(SCHED_DO_ACTOR)->worker), 4);
    uint32_t actor = first(SCHED_DO_ACTOR)->worker;
    step(s, (sched_event){.kind = SCHED_GROUP_REMOVE, .client = 900});
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = actor});
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = quarter});
    step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = second});
    assert_int_equal(sched_left(s).amount[SCHED_GPU], 3 * SCHED_UNIT);
    assert_int_equal(devices_for(s, 3), 7);
    sched_free(s);
    sched_shape two = gpus(2), parts[3] = {gpus(0.7), gpus(0.7), gpus(0.6)};
    assert_false(sched_gpus_fit(&two, parts, 3)); /* though two would be enough in all */
    assert_true(sched_gpus_fit(&two, parts, 2));
}

/* ---- groups, by hand ---- */

static void a_group_is_placed_whole_or_not_at_all(void **state)
{
    sched *s = sched_new(cpus(3), 4);
    sched_shape two[2] = {cpus(1), cpus(1)}, left;
    (void)state;

    for (uint32_t w = 10; w < 14; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 2});
    step(s, (sched_event){.kind = SCHED_GROUP, .client = 900, .bundles = two, .n = 2});
    assert_int_equal(count(SCHED_DO_GROUP), 0); /* one core is free, two are wanted */
    assert_int_equal(count(SCHED_DO_RECLAIM), 2);
    assert_int_equal(sched_left(s).amount[0], SCHED_UNIT);
    assert_false(sched_bundle_left(s, 900, 0, &left));
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = in_group(1, 900, 0), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT), 0); /* its group has no place yet */
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_GROUP)->client, 900);
    assert_int_equal(first(SCHED_DO_GRANT)->client, 2); /* and who waited for it is served */
    assert_int_equal(sched_left(s).amount[0], 0);
    assert_true(sched_bundle_left(s, 900, 0, &left) && left.amount[0] == 0);
    assert_true(sched_bundle_left(s, 900, 1, &left) && left.amount[0] == SCHED_UNIT);
    sched_free(s);
}

static void a_group_and_the_rest_keep_apart(void **state)
{
    sched *s = sched_new(cpus(3), 8);
    sched_shape two[2] = {cpus(1), cpus(1)}, held;
    (void)state;

    for (uint32_t w = 10; w < 18; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    step(s, (sched_event){.kind = SCHED_GROUP, .client = 900, .bundles = two, .n = 2});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 5});
    assert_int_equal(count(SCHED_DO_GRANT), 1); /* the bundles are not theirs, though nobody uses them */
    /* Whichever bundle has room: one each, and then none. */
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 77, .shape = in_group(1, 900, SCHED_ANY), .n = 1});
    assert_true(sched_held(s, first(SCHED_DO_ACTOR)->worker, &held) && held.bundle == 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = in_group(1, 900, SCHED_ANY), .n = 2});
    assert_int_equal(count(SCHED_DO_GRANT), 1);
    uint32_t leased = first(SCHED_DO_GRANT)->worker;
    assert_true(sched_held(s, leased, &held) && held.bundle == 1);
    assert_int_equal(first(SCHED_DO_GRANT)->shape.bundle, SCHED_ANY); /* as it was asked for */
    assert_int_equal(count(SCHED_DO_RECLAIM), 0);
    /* A core given back in a wait is the group's own. */
    step(s, (sched_event){.kind = SCHED_BLOCKED, .worker = leased});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 2);
    step(s, (sched_event){.kind = SCHED_RUNNING, .worker = leased});
    /* Removed: its workers are to be killed, and what they hold is the node's. */
    step(s, (sched_event){.kind = SCHED_GROUP_REMOVE, .client = 900});
    assert_int_equal(count(SCHED_DO_KILL), 3);
    assert_int_equal(sched_left(s).amount[0], -SCHED_UNIT); /* one came back from a wait */
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 2, .worker = leased}); /* too late to be of use */
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = in_group(1, 900, 0), .n = 1});
    assert_int_equal(count(SCHED_DO_GRANT) + count(SCHED_DO_START), 0); /* of a group that is no more */
    int granted = 0;
    for (uint32_t w = 10; w < 18; w++)
        if (sched_held(s, w, &held) && held.group) {
            step(s, (sched_event){.kind = SCHED_WORKER_GONE, .worker = w});
            granted += count(SCHED_DO_GRANT);
        }
    assert_int_equal(granted, 2); /* client 1 has all three cores */
    assert_int_equal(sched_left(s).amount[0], 0);
    sched_free(s);
}

static void one_that_waits_in_a_group_closes_that_group_only(void **state)
{
    sched *s = sched_new(cpus(4), 8);
    sched_shape one[1] = {cpus(2)};
    (void)state;

    for (uint32_t w = 10; w < 18; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    step(s, (sched_event){.kind = SCHED_GROUP, .client = 900, .bundles = one, .n = 1});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = in_group(1, 900, 0), .n = 1});
    uint32_t held = first(SCHED_DO_GRANT)->worker;
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 2, .shape = in_group(2, 900, 0), .n = 1});
    for (int i = 0; i < 100; i++) { /* small ones pass the large one, until its patience ends */
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 3, .shape = in_group(1, 900, 0), .n = 1});
        if (!count(SCHED_DO_GRANT)) break;
        step(s, (sched_event){.kind = SCHED_RETURN, .client = 3, .worker = first(SCHED_DO_GRANT)->worker});
    }
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 4, .shape = cpus(1), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 4); /* outside nobody waits for it */
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = held});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 2);
    sched_free(s);
}

/* Actors that take no core pass a call that waits for one, however many they are: it may be
 * waiting for them. */
static void who_takes_nothing_waits_for_nobody(void **state)
{
    sched *s = sched_new(cpus(2), 200);
    (void)state;

    for (uint32_t w = 10; w < 130; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 3});
    assert_int_equal(count(SCHED_DO_GRANT), 2); /* it holds all there is, and wants more of the same */
    for (uint64_t actor = 1000; actor < 1100; actor++) {
        step(s, (sched_event){.kind = SCHED_ACTOR, .client = actor, .shape = cpus(0), .n = 1});
        assert_int_equal(first(SCHED_DO_ACTOR)->client, actor);
    }
    assert_int_equal(sched_waiting(s), 1);
    sched_free(s);
}

/* A client that holds everything and wants more of it, and has let many pass, is asked for the
 * sake of those behind it: else nobody would ever give anything back. */
static void holders_are_asked_for_those_behind_them(void **state)
{
    sched *s = sched_new(cpus(2), 8);
    sched_shape small = cpus(0.25);
    uint32_t first_held = 0;
    (void)state;

    for (uint32_t w = 10; w < 18; w++) step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = w});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 1});
    first_held = first(SCHED_DO_GRANT)->worker;
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 3, .shape = small, .n = 1});
    uint32_t in_the_way = first(SCHED_DO_GRANT)->worker;
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(1), .n = 2});
    for (int i = 0; i < 100; i++) { /* small ones pass, until all cores are kept for client 1 */
        step(s, (sched_event){.kind = SCHED_DEMAND, .client = 4, .shape = small, .n = 1});
        if (!count(SCHED_DO_GRANT)) break;
        step(s, (sched_event){.kind = SCHED_RETURN, .client = 4, .worker = first(SCHED_DO_GRANT)->worker});
    }
    assert_int_equal(count(SCHED_DO_GRANT), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 3, .worker = in_the_way});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 1); /* it has both cores now, and wants a third */
    uint32_t second_held = first(SCHED_DO_GRANT)->worker;
    assert_int_equal(count(SCHED_DO_RECLAIM), 1); /* of the second: the first was asked before */
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = first_held});
    assert_int_equal(first(SCHED_DO_GRANT)->client, 4); /* it had waited longer by then */
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = second_held});
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_have_workers_of_their_own),
        cmocka_unit_test_teardown(a_demand_starts_workers_and_gets_them, clear),
        cmocka_unit_test_teardown(no_worker_is_given_to_itself, clear),
        cmocka_unit_test_teardown(one_that_has_only_itself_is_refused, clear),
        cmocka_unit_test_teardown(one_that_stays_is_used_again, clear),
        cmocka_unit_test_teardown(who_waits_for_a_waiting_call_keeps_no_cores, clear),
        cmocka_unit_test_teardown(workers_are_capped, clear),
        cmocka_unit_test_teardown(others_get_their_turn, clear),
        cmocka_unit_test_teardown(a_client_is_not_asked_for_its_own_sake, clear),
        cmocka_unit_test_teardown(a_call_that_waits_gives_its_core, clear),
        cmocka_unit_test_teardown(large_requests_are_not_starved, clear),
        cmocka_unit_test_teardown(the_dead_leave_nothing, clear),
        cmocka_unit_test_teardown(actors_take_a_worker_for_themselves, clear),
        cmocka_unit_test_teardown(surplus_workers_leave, clear),
        cmocka_unit_test_teardown(a_start_that_failed_is_tried_again, clear),
        cmocka_unit_test_teardown(a_job_that_is_full_refuses, clear),
        cmocka_unit_test_teardown(holders_are_asked_where_no_more_workers_can_start, clear),
        cmocka_unit_test_teardown(what_can_never_be_is_known, clear),
        cmocka_unit_test_teardown(gpus_are_told_apart, clear),
        cmocka_unit_test_teardown(a_group_is_placed_whole_or_not_at_all, clear),
        cmocka_unit_test_teardown(a_group_and_the_rest_keep_apart, clear),
        cmocka_unit_test_teardown(one_that_waits_in_a_group_closes_that_group_only, clear),
        cmocka_unit_test_teardown(who_takes_nothing_waits_for_nobody, clear),
        cmocka_unit_test_teardown(holders_are_asked_for_those_behind_them, clear),
        cmocka_unit_test_teardown(environments_share_no_worker, clear),
        cmocka_unit_test_teardown(few_environments_stay_ready, clear),
        cmocka_unit_test_teardown(idle_workers_make_room, clear),
        cmocka_unit_test_teardown(environments_share_what_a_job_may_have, clear),
        cmocka_unit_test_teardown(idle_workers_are_renewed, clear),
        cmocka_unit_test_teardown(what_is_on_its_way_counts, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
