/* sched_sim_test.c - the scheduler in simulated clusters, by a seed.
 *
 * Clients ask, hold, return and die; workers start late, wait and die; groups
 * come, are used and are removed in the middle of everything. Held always:
 * never more is leased than there is, but for calls that came back from a wait;
 * what a group reserved is what its bundles have left and lent; a worker has
 * one holder, and serves the environment that it was started for; who takes nothing never waits while a
 * worker that it could have is idle; in the end, with everyone quiet, all is free again; and in the
 * liveness phase every request is served and every group has its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "base/map.h"
#include "base/rng.h"
#include "task/sched_fixture.h"
#include "sim.h"

enum { CLIENTS = 8, ENVIRONMENTS = 3, GROUPS = 3, NOTHING = 3, OUTSIDE = 4, SHAPES = OUTSIDE + 2 * GROUPS };

typedef struct lease {
    uint64_t holder;
    sched_shape shape;
    bool blocked, actor;
} lease;

typedef struct world {
    sched *s;
    MAP_U64(lease) leases; /* by worker */
    MAP_U64(char) idle; /* workers alive and unleased */
    MAP_U64(uint64_t) homes; /* the environment of each worker that ever was */
    int starting[ENVIRONMENTS], killed;
    uint32_t next_worker;
    uint64_t next_group, groups[GROUPS]; /* 0: none */
    bool placed[GROUPS];
    int64_t wanted[CLIENTS][SHAPES];
    bool dead[CLIENTS];
} world;

static const double bundle_sizes[2] = {1, 0.5};

/* Four outside groups, one of which takes nothing, and two in each: in any bundle, and in the
 * first. */
static sched_shape shape_of(const world *w, int i)
{
    bool any = (i - OUTSIDE) % 2 == 0;

    if (i >= OUTSIDE) {
        sched_shape s = in_group(any ? 0.5 : 1, w->groups[(i - OUTSIDE) / 2], any ? SCHED_ANY : 0);
        s.environment = any ? 1 : 0;
        return s;
    }
    sched_shape s = cpus(i == 0 ? 1 : i == 1 ? 0.5 : i == 2 ? 3 : 0);
    s.environment = i < ENVIRONMENTS ? (uint64_t)i : 0;
    s.amount[SCHED_GPU] = i == 1 ? SCHED_UNIT / 4 : i == 2 ? SCHED_UNIT : 0;
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
        case SCHED_DO_START:
            assert_true(a->environment < ENVIRONMENTS);
            w->starting[a->environment]++;
            break;
        case SCHED_DO_REFUSE:
        case SCHED_DO_REFUSE_ACTOR: fail_msg("refused, though a start may be tried again"); break;
        case SCHED_DO_CAP:
        case SCHED_DO_REFUSE_CAPPED: fail_msg("there is no cap"); break;
        case SCHED_DO_STOP: assert_true(map_u64_remove(&w->idle, a->worker)); break;
        case SCHED_DO_KILL: w->killed++; break;
        case SCHED_DO_RECLAIM: {
            lease *l = map_u64_find(&w->leases, a->worker);
            assert_true(l && l->holder == a->client);
            break;
        }
        case SCHED_DO_GROUP: {
            int found = 0;
            for (int g = 0; g < GROUPS; g++) {
                if (w->groups[g] != a->client) continue;
                assert_false(w->placed[g]); /* once */
                w->placed[g] = true;
                found++;
            }
            assert_int_equal(found, 1); /* and never after its end */
            break;
        }
        case SCHED_DO_GRANT:
        case SCHED_DO_ACTOR:
            assert_true(map_u64_remove(&w->idle, a->worker)); /* alive, and nobody's */
            assert_true(*map_u64_find(&w->homes, a->worker) == a->shape.environment);
            *map_u64_put(&w->leases, a->worker) =
                (lease){.holder = a->client, .shape = a->shape, .actor = a->kind == SCHED_DO_ACTOR};
            for (int k = 0; k < SHAPES; k++) {
                sched_shape shape = shape_of(w, k);
                if (k >= OUTSIDE && !shape.group) continue;
                if (a->kind != SCHED_DO_GRANT || memcmp(&shape, &a->shape, sizeof shape)) continue;
                assert_true(k < OUTSIDE || w->placed[(k - OUTSIDE) / 2]);
                assert_true(w->wanted[a->client][k] > 0);
                w->wanted[a->client][k]--;
            }
            break;
        }
    }
    vec_release(&mine);
}

static void subtract_lease(sched_shape *left, const lease *l)
{
    for (int k = 0; k < SCHED_RESOURCES; k++)
        if (!(k == 0 && l->blocked)) left->amount[k] -= l->shape.amount[k];
}

/* What is left must be what there is less what is leased, cores that wait not counted. */
static void check(const world *w)
{
    sched_shape left = sched_total(w->s), said = sched_left(w->s);

    for (size_t i = 0; i < w->leases.n; i++)
        if (!w->leases.at[i].value.shape.group) subtract_lease(&left, &w->leases.at[i].value);
    for (int g = 0; g < GROUPS; g++) {
        sched_shape sum = {0}, bundle;
        if (!w->groups[g] || !w->placed[g]) continue;
        for (int b = 0; b < 2; b++) {
            left.amount[0] -= cpus(bundle_sizes[b]).amount[0];
            sum.amount[0] += cpus(bundle_sizes[b]).amount[0];
        }
        for (size_t i = 0; i < w->leases.n; i++)
            if (w->leases.at[i].value.shape.group == w->groups[g])
                subtract_lease(&sum, &w->leases.at[i].value);
        for (int b = 0; b < 2; b++) {
            assert_true(sched_bundle_left(w->s, w->groups[g], b, &bundle));
            assert_true(bundle.amount[0] <= cpus(bundle_sizes[b]).amount[0]);
            sum.amount[0] -= bundle.amount[0];
        }
        assert_int_equal(sum.amount[0], 0);
    }
    assert_memory_equal(left.amount, said.amount, sizeof said.amount);
    int64_t used[SCHED_DEVICES] = {0};
    for (size_t i = 0; i < w->leases.n; i++) {
        int64_t asked = w->leases.at[i].value.shape.amount[SCHED_GPU], n = 0;
        uint32_t bits = sched_devices(w->s, (uint32_t)w->leases.at[i].key);
        for (int k = 0; k < SCHED_DEVICES; k++) {
            if (!(bits & 1u << k)) continue;
            n++;
            used[k] += asked < SCHED_UNIT ? asked : SCHED_UNIT;
            assert_true(used[k] <= SCHED_UNIT); /* never lent twice */
        }
        assert_int_equal(n, (asked + SCHED_UNIT - 1) / SCHED_UNIT);
    }
    for (int c = 1; c < CLIENTS; c++) /* who takes nothing waits for nobody */
        for (size_t i = 0; w->wanted[c][NOTHING] > 0 && i < w->idle.n; i++)
            assert_true(*map_u64_find(&w->homes, w->idle.at[i].key) != 0);
    assert_true(said.amount[1] >= 0); /* what is not given back in a wait is never lent twice */
}

static void worker_dies(world *w, uint32_t id)
{
    map_u64_remove(&w->leases, id);
    map_u64_remove(&w->idle, id);
    sim_step(w, (sched_event){.kind = SCHED_WORKER_GONE, .worker = id});
}

static void group_comes(world *w, int g)
{
    sched_shape bundles[2] = {cpus(bundle_sizes[0]), cpus(bundle_sizes[1])};

    w->groups[g] = ++w->next_group;
    w->placed[g] = false;
    sim_step(w, (sched_event){.kind = SCHED_GROUP, .client = w->groups[g], .bundles = bundles, .n = 2});
}

/* Its workers are killed, and die one after the other. */
static void group_goes(world *w, int g)
{
    uint64_t id = w->groups[g];
    int held = 0;

    for (size_t i = 0; i < w->leases.n; i++) held += w->leases.at[i].value.shape.group == id;
    for (int c = 0; c < CLIENTS; c++) w->wanted[c][OUTSIDE + 2 * g] = w->wanted[c][OUTSIDE + 1 + 2 * g] = 0;
    w->groups[g] = 0;
    w->killed = 0;
    sim_step(w, (sched_event){.kind = SCHED_GROUP_REMOVE, .client = id});
    assert_int_equal(w->killed, held);
    for (size_t i = 0; i < w->leases.n;)
        if (w->leases.at[i].value.shape.group == id) {
            worker_dies(w, (uint32_t)w->leases.at[i].key);
            i = 0;
        } else {
            i++;
        }
}

/* A worker that was on its way is there; false: none was. */
static bool worker_comes(world *w, uint64_t from)
{
    for (uint64_t i = 0; i < ENVIRONMENTS; i++) {
        uint64_t e = (from + i) % ENVIRONMENTS;
        if (w->starting[e] == 0) continue;
        w->starting[e]--;
        *map_u64_put(&w->idle, ++w->next_worker) = 1;
        *map_u64_put(&w->homes, w->next_worker) = e;
        sim_step(w, (sched_event){.kind = SCHED_WORKER_UP, .worker = w->next_worker, .environment = e});
        return true;
    }
    return false;
}

static void run(uint64_t seed)
{
    world w = {.next_worker = 100, .next_group = 900};
    sched_shape total = cpus(4);
    rng_key k = rng_make(seed, 11);
    uint64_t at = 0;

    total.amount[SCHED_GPU] = 2 * SCHED_UNIT;
    w.s = sched_new(total, 2);
    for (int turn = 0; turn < 300; turn++) {
        uint64_t c = 1 + rng_below(k, at++, 6);
        int sh = (int)rng_below(k, at++, SHAPES), g = (int)rng_below(k, at++, GROUPS);
        size_t pick = w.leases.n ? (size_t)rng_below(k, at++, w.leases.n) : 0;
        switch (rng_below(k, at++, 11)) {
        case 0:
        case 1:
            if (w.dead[c] || (sh >= OUTSIDE && !w.groups[(sh - OUTSIDE) / 2])) break;
            w.wanted[c][sh] = (int64_t)rng_below(k, at++, 5);
            sim_step(&w,
                     (sched_event){
                         .kind = SCHED_DEMAND, .client = c, .shape = shape_of(&w, sh), .n = w.wanted[c][sh]});
            break;
        case 2:
        case 3: (void)worker_comes(&w, rng_below(k, at++, ENVIRONMENTS)); break;
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
        case 9:
            if (!w.groups[g]) group_comes(&w, g);
            break;
        case 10:
            if (w.groups[g] && rng_below(k, at++, 3) == 0) group_goes(&w, g);
            break;
        default: break;
        }
        check(&w);
    }
    /* Liveness: no more faults; every lease is returned in the end, and every
     * group removed when nobody waits for it any more. */
    for (int turn = 0; turn < 4000; turn++) {
        int64_t open = 0;
        int done = -1, groups = 0;
        for (int c = 1; c < CLIENTS; c++)
            for (int s = 0; s < SHAPES; s++) open += w.wanted[c][s];
        for (int g = 0; g < GROUPS; g++) {
            int64_t mine = 0;
            groups += w.groups[g] != 0;
            for (int c = 1; c < CLIENTS; c++)
                mine += w.wanted[c][OUTSIDE + 2 * g] + w.wanted[c][OUTSIDE + 1 + 2 * g];
            if (w.groups[g] && w.placed[g] && mine == 0) done = g;
        }
        if (open == 0 && w.leases.n == 0 && groups == 0) break;
        if (worker_comes(&w, 0)) {
            /* it may be what somebody waits for */
        } else if (w.leases.n > 0) {
            uint32_t id = (uint32_t)w.leases.at[0].key;
            uint64_t holder = w.leases.at[0].value.holder;
            if (w.leases.at[0].value.blocked)
                sim_step(&w, (sched_event){.kind = SCHED_RUNNING, .worker = id});
            map_u64_remove(&w.leases, id);
            *map_u64_put(&w.idle, id) = 1;
            sim_step(&w, (sched_event){.kind = SCHED_RETURN, .client = holder, .worker = id});
        } else if (done >= 0) {
            group_goes(&w, done);
        } else {
            fail_msg("seed %llu: %lld calls and %d groups wait, and nothing happens",
                     (unsigned long long)seed, (long long)open, groups);
        }
        check(&w);
    }
    sched_shape left = sched_left(w.s);
    assert_memory_equal(left.amount, total.amount, sizeof left.amount);
    assert_int_equal(w.leases.n, 0);
    sched_free(w.s);
    map_u64_release(&w.leases);
    map_u64_release(&w.idle);
    map_u64_release(&w.homes);
}

static void simulated(void **state)
{
    (void)state;
    sim_run(3000, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_teardown(simulated, clear)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
