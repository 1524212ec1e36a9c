/* sched_test.c - placing: by hand, and simulated clusters by a seed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/map.h"
#include "base/rng.h"
#include "task/sched.h"

static sched_actions out;

static sched_shape cpus(double n)
{
    sched_shape s = {0};
    s.amount[0] = (int64_t)(n * SCHED_UNIT);
    return s;
}

static void step(sched *s, sched_event e)
{
    vec_clear(&out);
    sched_step(s, &e, &out);
}

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

static int clear(void **state)
{
    (void)state;
    vec_release(&out);
    return 0;
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

/* ---- the simulation ----
 *
 * Clients ask, hold, return and die; workers start late, wait and die. Held
 * always: never more is leased than there is, but for calls that came back
 * from a wait; a worker has one holder; in the end, with everyone quiet, all
 * is free again; and in the liveness phase every request is served. */

typedef struct lease {
    uint64_t holder;
    sched_shape shape;
    bool blocked, actor;
} lease;

typedef struct world {
    sched *s;
    MAP_U64(lease) leases; /* by worker */
    MAP_U64(char) idle; /* workers alive and unleased */
    int starting;
    uint32_t next_worker;
    int64_t wanted[8][3]; /* by client and shape */
    bool dead[8];
} world;

static sched_shape shape_of(int i)
{
    sched_shape s = cpus(i == 0 ? 1 : i == 1 ? 0.5 : 3);
    if (i == 2) s.amount[1] = SCHED_UNIT;
    return s;
}

static void sim_step(world *w, sched_event e)
{
    step(w->s, e);
    sched_actions mine = out; /* what follows may step again */
    out = (sched_actions){0};
    for (size_t i = 0; i < mine.n; i++) {
        const sched_action *a = &mine.at[i];
        switch (a->kind) {
        case SCHED_DO_START: w->starting++; break;
        case SCHED_DO_STOP: assert_true(map_u64_remove(&w->idle, a->worker)); break;
        case SCHED_DO_KILL: break;
        case SCHED_DO_RECLAIM: {
            lease *l = map_u64_find(&w->leases, a->worker);
            assert_true(l && l->holder == a->client);
            break;
        }
        case SCHED_DO_GRANT:
        case SCHED_DO_ACTOR:
            assert_true(map_u64_remove(&w->idle, a->worker)); /* alive, and nobody's */
            *map_u64_put(&w->leases, a->worker) =
                (lease){.holder = a->client, .shape = a->shape, .actor = a->kind == SCHED_DO_ACTOR};
            for (int k = 0; k < 3; k++) {
                sched_shape shape = shape_of(k);
                if (a->kind != SCHED_DO_GRANT || memcmp(&shape, &a->shape, sizeof shape)) continue;
                assert_true(w->wanted[a->client][k] > 0);
                w->wanted[a->client][k]--;
            }
            break;
        }
    }
    vec_release(&mine);
}

/* What is left must be what there is less what is leased, cores that wait not counted. */
static void check(const world *w)
{
    sched_shape left = sched_total(w->s), said = sched_left(w->s);
    for (size_t i = 0; i < w->leases.n; i++)
        for (int k = 0; k < SCHED_RESOURCES; k++)
            if (!(k == 0 && w->leases.at[i].value.blocked))
                left.amount[k] -= w->leases.at[i].value.shape.amount[k];
    assert_memory_equal(left.amount, said.amount, sizeof said.amount);
    assert_true(said.amount[1] >= 0); /* what is not given back in a wait is never lent twice */
}

static void worker_dies(world *w, uint32_t id)
{
    map_u64_remove(&w->leases, id);
    map_u64_remove(&w->idle, id);
    sim_step(w, (sched_event){.kind = SCHED_WORKER_GONE, .worker = id});
}

static void run(uint64_t seed)
{
    world w = {.next_worker = 100};
    sched_shape total = cpus(4);
    rng_key k = rng_make(seed, 11);
    uint64_t at = 0;
    total.amount[1] = SCHED_UNIT;
    w.s = sched_new(total, 2);
    for (int turn = 0; turn < 300; turn++) {
        uint64_t c = 1 + rng_below(k, at++, 6);
        int sh = (int)rng_below(k, at++, 3);
        size_t pick = w.leases.n ? (size_t)rng_below(k, at++, w.leases.n) : 0;
        switch (rng_below(k, at++, 9)) {
        case 0:
        case 1:
            if (w.dead[c]) break;
            w.wanted[c][sh] = (int64_t)rng_below(k, at++, 5);
            sim_step(&w, (sched_event){
                             .kind = SCHED_DEMAND, .client = c, .shape = shape_of(sh), .n = w.wanted[c][sh]});
            break;
        case 2:
        case 3:
            if (w.starting == 0) break;
            w.starting--;
            *map_u64_put(&w.idle, ++w.next_worker) = 1;
            sim_step(&w, (sched_event){.kind = SCHED_WORKER_UP, .worker = w.next_worker});
            break;
        case 4:
        case 5: { /* a lease comes back */
            if (!w.leases.n || w.leases.at[pick].value.actor) break;
            uint32_t id = (uint32_t)w.leases.at[pick].key;
            uint64_t holder = w.leases.at[pick].value.holder;
            map_u64_remove(&w.leases, id);
            *map_u64_put(&w.idle, id) = 1;
            sim_step(&w, (sched_event){.kind = SCHED_RETURN, .client = holder, .worker = id});
            break;
        }
        case 6: {
            if (!w.leases.n) break;
            bool on = !w.leases.at[pick].value.blocked;
            w.leases.at[pick].value.blocked = on;
            sim_step(&w, (sched_event){.kind = on ? SCHED_BLOCKED : SCHED_RUNNING,
                                       .worker = (uint32_t)w.leases.at[pick].key});
            break;
        }
        case 7:
            if (w.leases.n && rng_below(k, at++, 3) == 0) worker_dies(&w, (uint32_t)w.leases.at[pick].key);
            break;
        case 8:
            if (rng_below(k, at++, 12) || w.dead[c]) break;
            w.dead[c] = true;
            memset(w.wanted[c], 0, sizeof w.wanted[c]);
            sim_step(&w, (sched_event){.kind = SCHED_CLIENT_GONE, .client = c});
            for (size_t i = 0; i < w.leases.n;)
                if (w.leases.at[i].value.holder == c)
                    worker_dies(&w, (uint32_t)w.leases.at[i].key);
                else
                    i++;
            break;
        default: break;
        }
        check(&w);
    }
    /* Liveness: no more faults; every lease is returned in the end. */
    for (int turn = 0; turn < 2000; turn++) {
        int64_t open = 0;
        for (int c = 1; c < 8; c++)
            for (int s = 0; s < 3; s++) open += w.wanted[c][s];
        if (open == 0 && w.leases.n == 0) break;
        if (w.starting > 0) {
            w.starting--;
            *map_u64_put(&w.idle, ++w.next_worker) = 1;
            sim_step(&w, (sched_event){.kind = SCHED_WORKER_UP, .worker = w.next_worker});
        } else if (w.leases.n > 0) {
            uint32_t id = (uint32_t)w.leases.at[0].key;
            uint64_t holder = w.leases.at[0].value.holder;
            if (w.leases.at[0].value.blocked)
                sim_step(&w, (sched_event){.kind = SCHED_RUNNING, .worker = id});
            map_u64_remove(&w.leases, id);
            *map_u64_put(&w.idle, id) = 1;
            sim_step(&w, (sched_event){.kind = SCHED_RETURN, .client = holder, .worker = id});
        } else {
            fail_msg("seed %llu: %lld calls wait, and nothing happens", (unsigned long long)seed,
                     (long long)open);
        }
        check(&w);
    }
    sched_shape left = sched_left(w.s);
    assert_memory_equal(left.amount, total.amount, sizeof left.amount);
    assert_int_equal(w.leases.n, 0);
    sched_free(w.s);
    map_u64_release(&w.leases);
    map_u64_release(&w.idle);
}

static void simulated(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 3000; seed++) run(seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_have_workers_of_their_own),
        cmocka_unit_test_teardown(a_demand_starts_workers_and_gets_them, clear),
        cmocka_unit_test_teardown(others_get_their_turn, clear),
        cmocka_unit_test_teardown(a_client_is_not_asked_for_its_own_sake, clear),
        cmocka_unit_test_teardown(a_call_that_waits_gives_its_core, clear),
        cmocka_unit_test_teardown(large_requests_are_not_starved, clear),
        cmocka_unit_test_teardown(the_dead_leave_nothing, clear),
        cmocka_unit_test_teardown(actors_take_a_worker_for_themselves, clear),
        cmocka_unit_test_teardown(surplus_workers_leave, clear),
        cmocka_unit_test_teardown(a_start_that_failed_is_tried_again, clear),
        cmocka_unit_test_teardown(what_can_never_be_is_known, clear),
        cmocka_unit_test_teardown(simulated, clear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
