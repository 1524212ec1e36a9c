/* registry_test.c - programs, actors, names and groups: every event by hand. Simulated nodes
 * are in registry_sim_test.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "task/registry.h"

static registry_actions out;

static void step(registry *r, registry_event e)
{
    if (!e.name) e.name = "";
    if (!e.function) e.function = "make";
    vec_clear(&out);
    registry_step(r, &e, &out);
    failure_unref(e.failure);
}

static int count(registry_action_kind kind)
{
    int n = 0;

    for (size_t i = 0; i < out.n; i++) n += out.at[i].kind == kind;
    return n;
}

static const registry_action *first(registry_action_kind kind)
{
    for (size_t i = 0; i < out.n; i++)
        if (out.at[i].kind == kind) return &out.at[i];
    fail_msg("no action %d", (int)kind);
    return NULL;
}

static size_t place_of(registry_action_kind kind)
{
    return (size_t)(first(kind) - out.at);
}

static int count_refs(refs_kind kind, uint64_t id, uint32_t client)
{
    int n = 0;

    for (size_t i = 0; i < out.n; i++)
        n += out.at[i].kind == REGISTRY_DO_REFS && out.at[i].refs == kind && out.at[i].id == id &&
             out.at[i].client == client;
    return n;
}

static int clear(void **state)
{
    (void)state;
    vec_release(&out);
    return 0;
}

/* A program in a node that others use, with driver 1. */
static registry *with_job(void)
{
    registry *r = registry_new();

    step(r, (registry_event){.kind = REGISTRY_JOB_NEW, .job = 1, .is_joined = true});
    step(r, (registry_event){.kind = REGISTRY_JOB_DRIVER, .job = 1, .client = 1});
    return r;
}

static void actor_comes(registry *r, uint64_t id, const char *name, uint32_t flags, int restarts)
{
    step(r, (registry_event){.kind = REGISTRY_ACTOR_NEW,
                             .client = 1,
                             .job = 1,
                             .request = 7,
                             .id = id,
                             .name = name,
                             .flags = flags,
                             .restarts = restarts});
}

static void actor_lives(registry *r, uint64_t id, uint32_t worker)
{
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = id, .worker = worker});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_UP, .id = id, .worker = worker});
}

static failure *failure_of_code(manta_status code)
{
    return failure_make(MANTA_FAILURE_ACTOR, code, NULL, 0, "because");
}

/* ---- actors ---- */

static void an_actor_is_placed_constructed_and_told(void **state)
{
    const uint64_t inner[2] = {500, 501};
    registry *r = with_job();
    (void)state;

    step(r, (registry_event){.kind = REGISTRY_ACTOR_NEW,
                             .client = 1,
                             .job = 1,
                             .request = 7,
                             .id = 100,
                             .name = "s/a",
                             .function = "make",
                             .call = "bytes",
                             .n_call = 5,
                             .inner = inner,
                             .n_inner = 2});
    assert_int_equal(first(REGISTRY_DO_ANSWER)->request, 7);
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_OK);
    assert_int_equal(first(REGISTRY_DO_ANSWER)->id, 100);
    assert_int_equal(first(REGISTRY_DO_PLACE)->id, 100);
    assert_int_equal(count_refs(REFS_ADD, 100, 1), 1);
    assert_int_equal(count_refs(REFS_HOLD, 100, 1), 1);
    assert_int_equal(count_refs(REFS_HOLD, 100, 0), 0);
    assert_int_equal(count_refs(REFS_CONTAIN, 100, 0), 2);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    assert_int_equal(out.n, 0); /* there is nothing to tell yet */
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 100, .worker = 9});
    assert_int_equal(first(REGISTRY_DO_CONSTRUCT)->worker, 9);
    assert_int_equal(first(REGISTRY_DO_TELL_AT)->client, 1);
    assert_true(place_of(REGISTRY_DO_CONSTRUCT) < place_of(REGISTRY_DO_TELL_AT));
    assert_int_equal(registry_find_actor(r, 100)->state, ACTOR_IS_STARTING);
    assert_memory_equal(registry_find_actor(r, 100)->call.at, "bytes", 5);
    assert_string_equal(registry_find_actor(r, 100)->function, "make");
    assert_ptr_equal(registry_actor_in(r, 9), registry_find_actor(r, 100));
    step(r, (registry_event){.kind = REGISTRY_ACTOR_UP, .id = 100, .worker = 8}); /* another's word */
    assert_int_equal(registry_find_actor(r, 100)->state, ACTOR_IS_STARTING);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_UP, .id = 100, .worker = 9});
    assert_int_equal(registry_find_actor(r, 100)->state, ACTOR_IS_ALIVE);
    assert_int_equal(out.n, 0);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 2, .id = 100});
    assert_int_equal(first(REGISTRY_DO_TELL_AT)->client, 2);
    registry_free(r);
}

static void without_a_request_nobody_is_answered(void **state)
{
    registry *r = with_job();
    (void)state;

    step(r, (registry_event){.kind = REGISTRY_ACTOR_NEW, .client = 1, .job = 1, .id = 100});
    assert_int_equal(count(REGISTRY_DO_ANSWER), 0);
    assert_int_equal(count(REGISTRY_DO_PLACE), 1);
    registry_free(r);
}

static void a_name_belongs_to_one(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "s/a", 0, 0);
    actor_comes(r, 101, "s/a", 0, 0);
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_EEXIST);
    assert_int_equal(out.n, 1);
    assert_null(registry_find_actor(r, 101));
    actor_comes(r, 101, "s/a", PROTO_ACTOR_GET, 0); /* or it is got, if it is there */
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_OK);
    assert_int_equal(first(REGISTRY_DO_ANSWER)->id, 100);
    assert_int_equal(count_refs(REFS_HOLD, 100, 1), 1);
    actor_comes(r, 100, "s/b", 0, 0); /* a number that another has */
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_EEXIST);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_FIND, .client = 5, .request = 8, .name = "s/a"});
    assert_int_equal(first(REGISTRY_DO_ANSWER)->id, 100);
    assert_int_equal(count_refs(REFS_HOLD, 100, 5), 1);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_FIND, .client = 5, .request = 8, .name = "s/b"});
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_ENOENT);
    assert_int_equal(out.n, 1);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_KILL, .id = 100, .how = PROTO_KILL});
    actor_comes(r, 101, "s/a", 0, 0); /* the dead have no name */
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_OK);
    assert_int_equal(registry_names(r), 1);
    registry_free(r);
}

static void a_constructor_that_fails_ends_the_actor(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "s/a", 0, 5);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 100, .worker = 9});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_FAILED,
                             .id = 100,
                             .worker = 9,
                             .failure = failure_of_code(MANTA_EINVAL)});
    assert_int_equal(first(REGISTRY_DO_TELL_DEAD)->client, 1);
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 9);
    assert_true(place_of(REGISTRY_DO_TELL_DEAD) < place_of(REGISTRY_DO_KILL));
    assert_int_equal(registry_find_actor(r, 100)->failure->is.code, MANTA_EINVAL);
    assert_int_equal(registry_names(r), 0);
    step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 9});
    assert_int_equal(out.n, 0); /* its restarts do not count */
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 2, .id = 100});
    assert_int_equal(first(REGISTRY_DO_TELL_DEAD)->client, 2);
    registry_free(r);
}

static void restarts_are_counted(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "s/a", 0, 2);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    for (uint32_t i = 0; i < 2; i++) {
        actor_lives(r, 100, 10 + i);
        step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 10 + i});
        assert_int_equal(first(REGISTRY_DO_PLACE)->id, 100);
        assert_int_equal(count(REGISTRY_DO_TELL_DEAD), 0);
        assert_int_equal(registry_find_actor(r, 100)->restarted, (int)i + 1);
        assert_int_equal(registry_find_actor(r, 100)->restarts, 1 - (int)i);
    }
    actor_lives(r, 100, 12);
    step(r, (registry_event){
                .kind = REGISTRY_WORKER_GONE, .worker = 12, .failure = failure_of_code(MANTA_EDIED)});
    assert_int_equal(count(REGISTRY_DO_PLACE), 0);
    assert_int_equal(count(REGISTRY_DO_TELL_DEAD), 1);
    assert_int_equal(registry_find_actor(r, 100)->failure->is.code, MANTA_EDIED);
    actor_comes(r, 101, "", 0, -1); /* always */
    for (uint32_t i = 0; i < 20; i++) {
        actor_lives(r, 101, 20 + i);
        step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 20 + i});
        assert_int_equal(count(REGISTRY_DO_PLACE), 1);
    }
    assert_int_equal(registry_find_actor(r, 101)->restarts, -1);
    registry_free(r);
}

static void callers_that_do_not_wait_are_told_after_the_restart(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "", PROTO_ACTOR_AWAY, 1);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 100, .worker = 9});
    assert_int_equal(count(REGISTRY_DO_TELL_AT), 1); /* the first start is waited for */
    step(r, (registry_event){.kind = REGISTRY_ACTOR_UP, .id = 100, .worker = 9});
    assert_int_equal(count(REGISTRY_DO_TELL_AT), 1);
    step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 9});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 100, .worker = 10});
    assert_int_equal(count(REGISTRY_DO_TELL_AT), 0);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_UP, .id = 100, .worker = 10});
    assert_int_equal(first(REGISTRY_DO_TELL_AT)->worker, 10);
    registry_free(r);
}

static void an_actor_is_killed_in_three_ways(void **state)
{
    registry *r = with_job();
    (void)state;

    for (uint64_t id = 100; id < 103; id++) {
        actor_comes(r, id, "", 0, 1);
        step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = id});
        actor_lives(r, id, (uint32_t)id - 50);
    }
    step(r, (registry_event){.kind = REGISTRY_ACTOR_KILL, .id = 100, .how = PROTO_KILL_RESTART});
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 50);
    assert_int_equal(out.n, 1); /* its end is the next event */
    step(r, (registry_event){.kind = REGISTRY_ACTOR_KILL, .id = 101, .how = PROTO_KILL});
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 51);
    assert_int_equal(count(REGISTRY_DO_TELL_DEAD), 1);
    assert_int_equal(count_refs(REFS_HOLD, 101, 51), 1);
    assert_int_equal(count_refs(REFS_DROP, 101, 51), 1);
    assert_int_equal(registry_number_in(r, 51), 101); /* until it is dead */
    step(r, (registry_event){.kind = REGISTRY_ACTOR_KILL, .id = 102, .how = PROTO_KILL_END});
    assert_int_equal(first(REGISTRY_DO_EXIT)->worker, 52);
    assert_int_equal(count(REGISTRY_DO_KILL), 0);
    assert_int_equal(count(REGISTRY_DO_TELL_DEAD), 1);
    assert_int_equal(registry_number_in(r, 52), 0);
    step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 52});
    assert_int_equal(out.n, 0);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_KILL, .id = 999, .how = PROTO_KILL});
    assert_int_equal(out.n, 0);
    registry_free(r);
}

static void an_actor_that_is_refused_is_dead(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "s/a", PROTO_ACTOR_DETACHED, -1);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    step(r, (registry_event){
                .kind = REGISTRY_ACTOR_REFUSED, .id = 100, .failure = failure_of_code(MANTA_ENOSPC)});
    assert_int_equal(first(REGISTRY_DO_UNPLACE)->id, 100);
    assert_int_equal(count(REGISTRY_DO_TELL_DEAD), 1);
    assert_int_equal(count_refs(REFS_DROP, 100, 0), 1); /* the hold of a detached one */
    step(r, (registry_event){.kind = REGISTRY_ACTOR_REFUSED, .id = 100});
    assert_int_equal(out.n, 0);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 100, .worker = 9}); /* too late */
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 9);
    assert_int_equal(out.n, 1);
    registry_free(r);
}

static void a_worker_too_many_is_killed(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "", 0, 0);
    actor_comes(r, 101, "", 0, 0);
    actor_lives(r, 100, 9);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 100, .worker = 10});
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 10);
    assert_int_equal(registry_find_actor(r, 100)->worker, 9);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 101, .worker = 9}); /* two in one */
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 9);
    assert_int_equal(registry_find_actor(r, 101)->state, ACTOR_IS_WAITING);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 999, .worker = 11}); /* for nobody */
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 11);
    registry_free(r);
}

static void the_last_handle_is_the_end(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "s/a", 0, 1);
    actor_comes(r, 101, "s/b", 0, 1);
    actor_lives(r, 100, 9);
    actor_lives(r, 101, 10);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_RELEASED, .id = 100});
    assert_int_equal(first(REGISTRY_DO_EXIT)->worker, 9); /* it finishes what it was asked to do */
    assert_null(registry_find_actor(r, 100));
    step(r, (registry_event){.kind = REGISTRY_DRIVER_GONE, .job = 1});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_RELEASED, .id = 101});
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 10); /* which nobody awaits */
    assert_int_equal(registry_names(r), 0);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    assert_int_equal(first(REGISTRY_DO_TELL_DEAD)->id, 100);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_RELEASED, .id = 999});
    assert_int_equal(out.n, 0);
    registry_free(r);
}

static void the_dead_are_told_nothing(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "", 0, 0);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 2, .id = 100});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 2, .id = 100}); /* asks twice */
    step(r, (registry_event){.kind = REGISTRY_CLIENT_GONE, .client = 1});
    step(r, (registry_event){.kind = REGISTRY_ACTOR_PLACED, .id = 100, .worker = 9});
    assert_int_equal(count(REGISTRY_DO_TELL_AT), 1);
    assert_int_equal(first(REGISTRY_DO_TELL_AT)->client, 2);
    registry_free(r);
}

static void some_end_with_their_maker(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "", 0, 0);
    actor_lives(r, 100, 9);
    for (uint64_t id = 101; id < 105; id++)
        step(r, (registry_event){.kind = REGISTRY_ACTOR_NEW,
                                 .client = id == 104 ? 1 : 9, /* 104: no actor makes it */
                                 .job = 1,
                                 .id = id,
                                 .name = "",
                                 .function = "f",
                                 .flags = id == 103 ? 0 : PROTO_ACTOR_WITH_MAKER | (id == 102)});
    assert_int_equal(PROTO_ACTOR_DETACHED, 1);
    step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 9});
    step(r, (registry_event){.kind = REGISTRY_CLIENT_GONE, .client = 9});
    assert_int_equal(registry_find_actor(r, 101)->state, ACTOR_IS_DEAD);
    assert_int_equal(registry_find_actor(r, 101)->death, DEATH_OF_MAKER);
    for (uint64_t id = 102; id < 105; id++)
        assert_int_not_equal(registry_find_actor(r, id)->state, ACTOR_IS_DEAD);
    step(r, (registry_event){.kind = REGISTRY_CLIENT_GONE, .client = 1});
    assert_int_not_equal(registry_find_actor(r, 104)->state, ACTOR_IS_DEAD);
    registry_free(r);
}

/* ---- groups ---- */

static void group_comes(registry *r, uint64_t id, const char *name, manta_status status)
{
    static const sched_shape bundles[2];

    step(r, (registry_event){.kind = REGISTRY_GROUP_NEW,
                             .client = 1,
                             .request = 3,
                             .id = id,
                             .name = name,
                             .how = 2,
                             .bundles = bundles,
                             .n = 2,
                             .status = status});
}

static void a_group_is_made_placed_and_found(void **state)
{
    registry *r = with_job();
    (void)state;

    group_comes(r, 900, "g", MANTA_EUNSUPPORTED);
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_EUNSUPPORTED);
    assert_int_equal(out.n, 1);
    group_comes(r, 900, "g", MANTA_OK);
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_OK);
    assert_int_equal(first(REGISTRY_DO_GROUP_PLACE)->client, 1);
    assert_true(place_of(REGISTRY_DO_ANSWER) < place_of(REGISTRY_DO_GROUP_PLACE));
    group_comes(r, 901, "g", MANTA_EUNSUPPORTED); /* that the name is taken is said first */
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_EEXIST);
    group_comes(r, 900, "", MANTA_OK);
    assert_int_equal(first(REGISTRY_DO_ANSWER)->status, MANTA_EEXIST);
    assert_false(registry_find_group(r, 900)->placed);
    step(r, (registry_event){.kind = REGISTRY_GROUP_PLACED, .id = 900});
    assert_int_equal(first(REGISTRY_DO_GROUP_READY)->id, 900);
    assert_true(registry_group_named(r, "g")->placed);
    assert_null(registry_group_named(r, ""));
    step(r, (registry_event){.kind = REGISTRY_GROUP_PLACED, .id = 999});
    step(r, (registry_event){.kind = REGISTRY_GROUP_REMOVE, .id = 999});
    assert_int_equal(out.n, 0);
    registry_free(r);
}

static void a_groups_end_is_the_end_of_what_is_in_it(void **state)
{
    registry *r = with_job();
    (void)state;

    for (int owner_dies = 0; owner_dies < 2; owner_dies++) {
        uint64_t id = 100 + (uint64_t)owner_dies * 10, g = 900 + (uint64_t)owner_dies;
        uint32_t worker = 50 + (uint32_t)owner_dies;
        group_comes(r, g, "g", MANTA_OK);
        step(r, (registry_event){.kind = REGISTRY_ACTOR_NEW,
                                 .client = 1,
                                 .job = 1,
                                 .id = id,
                                 .restarts = -1,
                                 .shape = {.group = g}});
        actor_comes(r, id + 1, "", 0, 0);
        step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 4, .id = id});
        actor_lives(r, id, worker);
        if (owner_dies)
            step(r, (registry_event){.kind = REGISTRY_CLIENT_GONE, .client = 1});
        else
            step(r, (registry_event){.kind = REGISTRY_GROUP_REMOVE, .id = g});
        assert_int_equal(first(REGISTRY_DO_GROUP_BREAK)->id, g);
        assert_int_equal(first(REGISTRY_DO_GROUP_UNPLACE)->id, g);
        assert_int_equal(first(REGISTRY_DO_KILL)->worker, worker);
        assert_int_equal(first(REGISTRY_DO_TELL_DEAD)->client, 4);
        assert_true(place_of(REGISTRY_DO_GROUP_TELL_GONE) < place_of(REGISTRY_DO_KILL));
        assert_int_equal(registry_find_actor(r, id)->death, DEATH_OF_GROUP);
        assert_int_equal(registry_find_actor(r, id + 1)->state, ACTOR_IS_WAITING);
        assert_int_equal(registry_groups(r), 0);
    }
    registry_free(r);
}

static void an_actor_of_a_group_that_is_gone_is_dead(void **state)
{
    registry *r = with_job();
    (void)state;

    step(r, (registry_event){
                .kind = REGISTRY_ACTOR_NEW, .client = 1, .job = 1, .id = 100, .shape = {.group = 900}});
    assert_int_equal(count(REGISTRY_DO_PLACE), 0);
    assert_int_equal(registry_find_actor(r, 100)->death, DEATH_OF_GROUP);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 1, .id = 100});
    assert_int_equal(count(REGISTRY_DO_TELL_DEAD), 1);
    registry_free(r);
}

/* ---- jobs ---- */

static void a_job_ends_with_its_driver(void **state)
{
    registry *r = with_job();
    (void)state;

    step(r, (registry_event){.kind = REGISTRY_PASS});
    assert_int_equal(out.n, 0);
    step(r, (registry_event){.kind = REGISTRY_DRIVER_GONE, .job = 1});
    step(r, (registry_event){.kind = REGISTRY_PASS});
    assert_int_equal(first(REGISTRY_DO_JOB_END)->job, 1);
    assert_true(place_of(REGISTRY_DO_JOB_GONE) < place_of(REGISTRY_DO_JOB_END));
    assert_int_equal(registry_jobs(r), 0);
    step(r, (registry_event){.kind = REGISTRY_JOB_NEW, .job = 2, .name = "space"}); /* a node of its own */
    assert_string_equal(registry_find_job(r, 2)->space, "space");
    step(r, (registry_event){.kind = REGISTRY_PASS});
    assert_int_equal(out.n, 0);
    registry_free(r);
}

static void detached_actors_keep_their_job(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "s/a", PROTO_ACTOR_DETACHED, 1);
    assert_int_equal(count_refs(REFS_HOLD, 100, 0), 1);
    assert_true(registry_job_stays(r, 1));
    step(r, (registry_event){.kind = REGISTRY_DRIVER_GONE, .job = 1});
    step(r, (registry_event){.kind = REGISTRY_PASS});
    assert_int_equal(out.n, 0);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_KILL, .id = 100, .how = PROTO_KILL});
    assert_false(registry_job_stays(r, 1));
    step(r, (registry_event){.kind = REGISTRY_PASS});
    assert_int_equal(count(REGISTRY_DO_JOB_END), 1);
    registry_free(r);
}

static void a_broken_job_ends_with_its_actors(void **state)
{
    registry *r = with_job();
    (void)state;

    actor_comes(r, 100, "s/a", PROTO_ACTOR_DETACHED, -1);
    step(r, (registry_event){.kind = REGISTRY_ACTOR_WANT, .client = 4, .id = 100});
    actor_lives(r, 100, 9);
    step(r, (registry_event){.kind = REGISTRY_JOB_BROKEN, .job = 1});
    assert_false(registry_job_stays(r, 1));
    step(r, (registry_event){.kind = REGISTRY_PASS});
    assert_int_equal(first(REGISTRY_DO_TELL_DEAD)->client, 4);
    assert_int_equal(first(REGISTRY_DO_KILL)->worker, 9);
    assert_int_equal(registry_find_actor(r, 100)->death, DEATH_OF_JOB);
    step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 9});
    assert_int_equal(out.n, 0);
    registry_free(r);
}

static void an_actor_without_its_job_is_not_restarted(void **state)
{
    registry *r = registry_new();
    (void)state;

    actor_comes(r, 100, "", 0, -1); /* of a job that is gone */
    actor_lives(r, 100, 9);
    step(r, (registry_event){.kind = REGISTRY_WORKER_GONE, .worker = 9});
    assert_int_equal(count(REGISTRY_DO_PLACE), 0);
    assert_int_equal(registry_find_actor(r, 100)->state, ACTOR_IS_DEAD);
    registry_free(r);
}

static void stillborn_workers_in_a_row_end_the_job(void **state)
{
    (void)state;
    for (int joined = 0; joined < 2; joined++) {
        registry *r = registry_new();
        step(r, (registry_event){.kind = REGISTRY_JOB_NEW, .job = 1, .is_joined = joined});
        step(r, (registry_event){.kind = REGISTRY_JOB_DRIVER, .job = 1, .client = 1});
        for (int i = 0; i < REGISTRY_MOST_STILLBORN - 1; i++) {
            step(r, (registry_event){.kind = REGISTRY_WORKER_STILLBORN, .job = 1});
            assert_int_equal(out.n, 0);
        }
        step(r, (registry_event){.kind = REGISTRY_WORKER_READY, .job = 1});
        for (int i = 0; i < REGISTRY_MOST_STILLBORN; i++)
            step(r, (registry_event){.kind = REGISTRY_WORKER_STILLBORN, .job = 1});
        assert_int_equal(first(REGISTRY_DO_JOB_GIVE_UP)->job, 1);
        step(r, (registry_event){.kind = REGISTRY_WORKER_STILLBORN, .job = 7}); /* of no job */
        assert_int_equal(out.n, 0);
        step(r, (registry_event){.kind = REGISTRY_PASS});
        assert_int_equal(count(REGISTRY_DO_JOB_END), joined);
        registry_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(an_actor_is_placed_constructed_and_told, clear),
        cmocka_unit_test_teardown(without_a_request_nobody_is_answered, clear),
        cmocka_unit_test_teardown(a_name_belongs_to_one, clear),
        cmocka_unit_test_teardown(a_constructor_that_fails_ends_the_actor, clear),
        cmocka_unit_test_teardown(restarts_are_counted, clear),
        cmocka_unit_test_teardown(callers_that_do_not_wait_are_told_after_the_restart, clear),
        cmocka_unit_test_teardown(an_actor_is_killed_in_three_ways, clear),
        cmocka_unit_test_teardown(an_actor_that_is_refused_is_dead, clear),
        cmocka_unit_test_teardown(a_worker_too_many_is_killed, clear),
        cmocka_unit_test_teardown(the_last_handle_is_the_end, clear),
        cmocka_unit_test_teardown(the_dead_are_told_nothing, clear),
        cmocka_unit_test_teardown(some_end_with_their_maker, clear),
        cmocka_unit_test_teardown(a_group_is_made_placed_and_found, clear),
        cmocka_unit_test_teardown(a_groups_end_is_the_end_of_what_is_in_it, clear),
        cmocka_unit_test_teardown(an_actor_of_a_group_that_is_gone_is_dead, clear),
        cmocka_unit_test_teardown(a_job_ends_with_its_driver, clear),
        cmocka_unit_test_teardown(detached_actors_keep_their_job, clear),
        cmocka_unit_test_teardown(a_broken_job_ends_with_its_actors, clear),
        cmocka_unit_test_teardown(an_actor_without_its_job_is_not_restarted, clear),
        cmocka_unit_test_teardown(stillborn_workers_in_a_row_end_the_job, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
