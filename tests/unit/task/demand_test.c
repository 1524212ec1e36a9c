/* demand_test.c - clients and the scheduler, with messages that take their time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/vec.h"
#include "task/demand.h"
#include "task/sched.h"
#include "sim.h"

static void a_grant_counts_off_its_own_demand_only(void **state)
{
    demand d = {0};
    (void)state;

    assert_true(demand_wants(&d, 1));
    assert_int_equal(d.number, 1);
    assert_false(demand_wants(&d, 1));
    assert_true(demand_wants(&d, 2));
    demand_granted(&d, 1); /* it was on its way when the second demand was made */
    assert_int_equal(d.owed, 2);
    demand_granted(&d, 2);
    demand_granted(&d, 2);
    assert_int_equal(d.owed, 0);
    demand_granted(&d, 2); /* what cannot be changes nothing */
    assert_int_equal(d.owed, 0);
    assert_false(demand_wants(&d, 0));
}

static void a_little_more_is_not_worth_a_message(void **state)
{
    demand d = {0};
    (void)state;

    assert_true(demand_wants(&d, 4));
    assert_false(demand_wants(&d, 7));
    assert_int_equal(d.owed, 4);
    assert_true(demand_wants(&d, 8));
    assert_false(demand_wants(&d, 3)); /* nor a little less */
    assert_true(demand_wants(&d, 0));
    assert_true(demand_wants(&d, 1));
    demand_void(&d);
    assert_false(demand_wants(&d, 0));
}

/* ---- the simulation ----
 *
 * Clients have calls that come in bursts and are sent to the workers they were granted; they
 * demand, are granted and give back what they are asked for. Every message waits in a line of
 * its connection until chance delivers it. In the end, when all calls are sent and no message is
 * on its way, the scheduler owes nobody anything. */

enum { CLIENTS = 3, CORES = 2, WORKERS = 6 };

typedef enum to { TO_SCHED_DEMAND, TO_SCHED_RETURN, TO_CLIENT_GRANT, TO_CLIENT_RECLAIM } to;

typedef struct message {
    to kind;
    uint32_t worker;
    int64_t n;
    uint64_t number;
} message;

typedef VEC(message) messages;

typedef struct sim_client {
    demand d;
    int64_t calls; /* not sent to a worker yet */
    messages up, down;
    VEC(uint32_t) leases;
} sim_client;

typedef struct world {
    sched *s;
    sim_client c[CLIENTS];
    sched_shape shape;
    uint64_t clients; /* of them that do anything */
} world;

static void sched_hears(world *w, sched_event e)
{
    sched_actions out = {0};

    sched_step(w->s, &e, &out);
    for (size_t i = 0; i < out.n; i++) {
        const sched_action *a = &out.at[i];
        assert_true(a->kind == SCHED_DO_GRANT || a->kind == SCHED_DO_RECLAIM);
        vec_push(&w->c[a->client - 1].down,
                 ((message){.kind = a->kind == SCHED_DO_GRANT ? TO_CLIENT_GRANT : TO_CLIENT_RECLAIM,
                            .worker = a->worker,
                            .number = a->demand}));
    }
    vec_release(&out);
}

static void client_demands(sim_client *c)
{
    if (demand_wants(&c->d, c->calls))
        vec_push(&c->up, ((message){.kind = TO_SCHED_DEMAND, .n = c->calls, .number = c->d.number}));
}

static void client_gives_back(sim_client *c, uint32_t worker)
{
    for (size_t i = 0; i < c->leases.n; i++) {
        if (c->leases.at[i] != worker) continue;
        vec_remove(&c->leases, i);
        vec_push(&c->up, ((message){.kind = TO_SCHED_RETURN, .worker = worker}));
        return;
    }
}

static void deliver_up(world *w, int at)
{
    message m = w->c[at].up.at[0];

    vec_remove(&w->c[at].up, 0);
    sched_hears(w, (sched_event){.kind = m.kind == TO_SCHED_DEMAND ? SCHED_DEMAND : SCHED_RETURN,
                                 .client = (uint64_t)at + 1,
                                 .worker = m.worker,
                                 .shape = w->shape,
                                 .n = m.n,
                                 .demand = m.number});
}

static void deliver_down(sim_client *c)
{
    message m = c->down.at[0];

    vec_remove(&c->down, 0);
    if (m.kind == TO_CLIENT_RECLAIM) {
        client_gives_back(c, m.worker);
    } else {
        demand_granted(&c->d, m.number);
        vec_push(&c->leases, m.worker);
        if (c->calls > 0) c->calls--; /* it is sent one at once, and more when it is done with that */
    }
    client_demands(c);
}

/* Whether anything happened: a message arrives, calls come, or a worker is sent some. */
static bool anything_happens(world *w, rng_key k, uint64_t *at, bool more_calls)
{
    for (int tries = 0; tries < 200; tries++) {
        int i = (int)rng_below(k, (*at)++, w->clients);
        sim_client *c = &w->c[i];
        switch (rng_below(k, (*at)++, 4)) {
        case 0:
            if (!c->up.n) continue;
            deliver_up(w, i);
            return true;
        case 1:
            if (!c->down.n) continue;
            deliver_down(c);
            return true;
        case 2:
            if (!more_calls) continue;
            c->calls += 1 + (int64_t)rng_below(k, (*at)++, 3);
            client_demands(c);
            return true;
        default:
            if (!c->leases.n || !c->calls) continue;
            c->calls -= 1 + (int64_t)rng_below(k, (*at)++, (uint64_t)c->calls);
            client_demands(c);
            return true;
        }
    }
    return false;
}

static void run(uint64_t seed)
{
    world w = {.shape = {.amount = {SCHED_UNIT}}};
    sched_shape total = {.amount = {CORES * SCHED_UNIT}};
    rng_key k = rng_make(seed, 17);
    uint64_t at = 0;

    w.s = sched_new(total, WORKERS);
    for (uint32_t i = 1; i <= WORKERS; i++)
        sched_hears(&w, (sched_event){.kind = SCHED_WORKER_UP, .worker = i});
    w.clients = 1 + rng_below(k, at++, CLIENTS);
    uint64_t turns = 4 + rng_below(k, at++, 60);
    for (uint64_t turn = 0; turn < turns; turn++) (void)anything_happens(&w, k, &at, true);
    while (anything_happens(&w, k, &at, false)) {}
    for (int i = 0; i < CLIENTS; i++) {
        if (w.c[i].calls > 0)
            fail_msg("seed %llu: client %d has %lld calls, and nothing happens", (unsigned long long)seed, i,
                     (long long)w.c[i].calls);
        assert_int_equal(w.c[i].d.owed, 0);
        vec_release(&w.c[i].up);
        vec_release(&w.c[i].down);
        vec_release(&w.c[i].leases);
    }
    if (sched_waiting(w.s) > 0)
        fail_msg("seed %llu: somebody is owed a worker that nobody wants", (unsigned long long)seed);
    sched_free(w.s);
}

static void simulated(void **state)
{
    (void)state;
    sim_run(2000, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_grant_counts_off_its_own_demand_only),
        cmocka_unit_test(a_little_more_is_not_worth_a_message),
        cmocka_unit_test(simulated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
