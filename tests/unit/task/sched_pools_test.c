/* sched_pools_test.c - what there is: resources, gpus, bundles of groups. */
#include "task/sched_fixture.h"

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(what_can_never_be_is_known, clear),
        cmocka_unit_test_teardown(gpus_are_told_apart, clear),
        cmocka_unit_test_teardown(a_group_is_placed_whole_or_not_at_all, clear),
        cmocka_unit_test_teardown(a_group_and_the_rest_keep_apart, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
