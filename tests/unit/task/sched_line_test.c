/* sched_line_test.c - the line: who is served, who passes whom, who is asked. */
#include "task/sched_fixture.h"

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

/* An actor that wants a core free to be placed waits for it, and does not take it. */
static void a_core_for_being_placed_is_not_taken(void **state)
{
    sched *s = sched_new(cpus(2), 2);
    sched_shape shape = {.place = SCHED_UNIT};
    int missing = -1;
    (void)state;

    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 10});
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 11});
    step(s, (sched_event){.kind = SCHED_DEMAND, .client = 1, .shape = cpus(2), .n = 1});
    assert_int_equal(first(SCHED_DO_GRANT)->worker, 10);
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 100, .shape = shape, .n = 1});
    assert_int_equal(count(SCHED_DO_ACTOR), 0);
    assert_int_equal(first(SCHED_DO_RECLAIM)->worker, 10); /* who holds the cores is asked */
    step(s, (sched_event){.kind = SCHED_ACTOR, .client = 101, .n = 1}); /* one that wants none */
    assert_int_equal(first(SCHED_DO_ACTOR)->client, 101);
    step(s, (sched_event){.kind = SCHED_WORKER_UP, .worker = 12});
    assert_int_equal(count(SCHED_DO_ACTOR), 0);
    step(s, (sched_event){.kind = SCHED_RETURN, .client = 1, .worker = 10});
    assert_int_equal(first(SCHED_DO_ACTOR)->client, 100);
    assert_int_equal(sched_left(s).amount[0], 2 * SCHED_UNIT);
    shape.amount[0] = 2 * SCHED_UNIT;
    assert_false(sched_feasible(&(sched_shape){.amount = {2 * SCHED_UNIT}}, &shape, &missing));
    assert_int_equal(missing, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(no_worker_is_given_to_itself, clear),
        cmocka_unit_test_teardown(one_that_has_only_itself_is_refused, clear),
        cmocka_unit_test_teardown(who_waits_for_a_waiting_call_keeps_no_cores, clear),
        cmocka_unit_test_teardown(others_get_their_turn, clear),
        cmocka_unit_test_teardown(a_client_is_not_asked_for_its_own_sake, clear),
        cmocka_unit_test_teardown(large_requests_are_not_starved, clear),
        cmocka_unit_test_teardown(a_core_for_being_placed_is_not_taken, clear),
        cmocka_unit_test_teardown(one_that_waits_in_a_group_closes_that_group_only, clear),
        cmocka_unit_test_teardown(who_takes_nothing_waits_for_nobody, clear),
        cmocka_unit_test_teardown(holders_are_asked_for_those_behind_them, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
