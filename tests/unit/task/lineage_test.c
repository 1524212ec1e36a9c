/* lineage_test.c - what is remembered and run again: by hand, and in random
 * histories of calls whose results are dropped and lost. Seeds: sim.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "task/lineage.h"
#include "sim.h"

static lineage_actions done;

static int clear(void **state)
{
    (void)state;
    vec_release(&done);
    return 0;
}

static void keep(lineage *l, uint64_t call, int n, int retries, int n_args, const uint64_t *args)
{
    lineage_step(l,
                 &(lineage_event){.kind = LINEAGE_KEEP,
                                  .call = call,
                                  .n = n,
                                  .bytes = 100,
                                  .retries = retries,
                                  .args = args,
                                  .n_args = n_args},
                 &done);
}

static void tell(lineage *l, lineage_kind kind, uint64_t x)
{
    vec_clear(&done);
    lineage_step(l, &(lineage_event){.kind = kind, .call = x, .object = x}, &done);
}

static bool did(lineage_action_kind kind, uint64_t x)
{
    for (size_t i = 0; i < done.n; i++)
        if (done.at[i].kind == kind && (kind == LINEAGE_DO_FAIL ? done.at[i].object : done.at[i].call) == x)
            return true;
    return false;
}

static void a_lost_result_runs_its_call_and_those_before_it(void **state)
{
    lineage *l = lineage_new(10000);
    (void)state;

    keep(l, 10, 1, 3, 0, NULL);
    keep(l, 20, 2, 3, 1, (uint64_t[]){10});
    keep(l, 30, 1, 3, 2, (uint64_t[]){21, 99}); /* 99 was put */
    tell(l, LINEAGE_NEED, 30);
    assert_true(done.n == 1 && did(LINEAGE_DO_RUN, 30)); /* its arguments are there */
    tell(l, LINEAGE_NEED, 30);
    assert_int_equal(done.n, 0); /* it comes */
    tell(l, LINEAGE_ENDED, 30);
    tell(l, LINEAGE_DROP, 10);
    tell(l, LINEAGE_DROP, 20);
    tell(l, LINEAGE_DROP, 21);
    assert_int_equal(done.n, 0); /* still needed for 30 */
    tell(l, LINEAGE_NEED, 30);
    assert_true(done.n == 3 && did(LINEAGE_DO_RUN, 30) && did(LINEAGE_DO_RUN, 20) && did(LINEAGE_DO_RUN, 10));
    tell(l, LINEAGE_ENDED, 10);
    tell(l, LINEAGE_ENDED, 20);
    tell(l, LINEAGE_ENDED, 30);
    /* What was put and let go cannot come again. */
    tell(l, LINEAGE_DROP, 99);
    tell(l, LINEAGE_NEED, 30);
    assert_true(did(LINEAGE_DO_RUN, 30) && did(LINEAGE_DO_FAIL, 99));
    tell(l, LINEAGE_FORGET, 30);
    assert_true(did(LINEAGE_DO_FORGET, 30));
    tell(l, LINEAGE_DROP, 30);
    tell(l, LINEAGE_DROP, 20);
    tell(l, LINEAGE_DROP, 21);
    assert_true(did(LINEAGE_DO_FORGET, 20) && !did(LINEAGE_DO_FORGET, 10)); /* 10 came again and is held */
    tell(l, LINEAGE_DROP, 10);
    assert_true(did(LINEAGE_DO_FORGET, 10));
    assert_int_equal(lineage_calls(l), 0);
    assert_int_equal(lineage_bytes(l), 0);
    for (uint64_t i = 0; i < 100; i++) assert_false(lineage_knows(l, i));
    lineage_free(l);
}

static void only_so_often_and_so_much(void **state)
{
    lineage *l = lineage_new(250);
    (void)state;

    keep(l, 1, 1, 1, 0, NULL);
    tell(l, LINEAGE_NEED, 1);
    tell(l, LINEAGE_ENDED, 1);
    tell(l, LINEAGE_NEED, 1);
    assert_true(done.n == 1 && did(LINEAGE_DO_FAIL, 1) && done.at[0].why == LINEAGE_TOO_OFTEN);
    keep(l, 2, 1, -1, 0, NULL);
    for (int i = 0; i < 100; i++) {
        tell(l, LINEAGE_NEED, 2);
        assert_true(did(LINEAGE_DO_RUN, 2));
        tell(l, LINEAGE_ENDED, 2);
    }
    vec_clear(&done);
    keep(l, 3, 1, 3, 0, NULL); /* 300 bytes are too many */
    assert_true(did(LINEAGE_DO_FORGET, 1) && lineage_bytes(l) == 200);
    tell(l, LINEAGE_NEED, 1);
    assert_true(did(LINEAGE_DO_FAIL, 1) && done.at[0].why == LINEAGE_NOT_KEPT);
    tell(l, LINEAGE_NEED, 77);
    assert_true(did(LINEAGE_DO_FAIL, 77));
    lineage_free(l);
}

/* ---- random histories ----
 *
 * The truth: which objects this process holds, which calls could be run, what
 * each was made from. After NEED everything that can come again must, exactly
 * once, and what cannot must have failed. */

enum { OBJECTS = 200 };

typedef struct truth {
    bool held[OBJECTS], kept[OBJECTS], running[OBJECTS];
    int args[OBJECTS][3], n_args[OBJECTS], runs_left[OBJECTS];
} truth;

#define SEED_CHECK(x)                                                                                        \
    do {                                                                                                     \
        if (!(x)) fail_msg("MANTA_SEED=%llu: %s", (unsigned long long)seed, #x);                             \
    } while (0)

static void apply(truth *t, uint64_t seed)
{
    for (size_t i = 0; i < done.n; i++) {
        const lineage_action *a = &done.at[i];
        switch (a->kind) {
        case LINEAGE_DO_RUN:
            SEED_CHECK(t->kept[a->call] && !t->running[a->call] && t->runs_left[a->call] > 0);
            t->running[a->call] = true;
            t->runs_left[a->call]--;
            t->held[a->call] = true;
            break;
        case LINEAGE_DO_FAIL: SEED_CHECK(!t->kept[a->object] || t->runs_left[a->object] == 0); break;
        case LINEAGE_DO_FORGET:
            SEED_CHECK(t->kept[a->call]);
            t->kept[a->call] = false;
            break;
        }
    }
    /* Whatever runs has its arguments, or they come, or they have failed. */
    for (int i = 1; i < OBJECTS; i++)
        for (int k = 0; t->running[i] && k < t->n_args[i]; k++) {
            int x = t->args[i][k];
            bool failed = false;
            for (size_t j = 0; j < done.n; j++)
                failed = failed || (done.at[j].kind == LINEAGE_DO_FAIL && done.at[j].object == (uint64_t)x);
            if (failed) t->held[x] = true; /* an entry that says so */
            SEED_CHECK(t->held[x] || t->running[x] || failed);
        }
    vec_clear(&done);
}

/* A call that runs holds its arguments. */
static bool is_in_use(const truth *t, int x)
{
    for (int i = 1; i < OBJECTS; i++)
        for (int k = 0; t->running[i] && k < t->n_args[i]; k++)
            if (t->args[i][k] == x) return true;
    return false;
}

static void run(uint64_t seed)
{
    static truth t;
    rng_key k = rng_make(seed, 9);
    uint64_t at = 0;
    int made = 0;

    memset(&t, 0, sizeof t);
    vec_clear(&done);
    lineage *l = lineage_new(seed % 3 == 0 ? 2000 : 1000000);
    for (int turn = 0; turn < 600; turn++) {
        int x = made ? 1 + (int)rng_below(k, at++, (uint64_t)made) : 0;
        switch (rng_below(k, at++, 6)) {
        case 0:
        case 1: { /* a call ends well, or something is put */
            uint64_t args[3];
            if (made + 1 == OBJECTS) break;
            int id = ++made, n = 0;
            t.held[id] = true;
            if (rng_below(k, at++, 4) == 0) break;
            for (int i = 0; i < 3 && id > 1; i++) {
                int a = 1 + (int)rng_below(k, at++, (uint64_t)id - 1);
                if (!t.held[a] || t.running[a]) continue;
                t.args[id][n] = a;
                args[n++] = (uint64_t)a;
            }
            t.n_args[id] = n;
            t.kept[id] = true;
            t.runs_left[id] = (int)rng_below(k, at++, 4);
            keep(l, (uint64_t)id, 1, t.runs_left[id], n, args);
            break;
        }
        case 2:
        case 3:
            if (!x || !t.held[x] || t.running[x] || is_in_use(&t, x)) break;
            t.held[x] = false;
            tell(l, LINEAGE_DROP, (uint64_t)x);
            break;
        case 4:
            if (!x || !t.held[x] || t.running[x]) break;
            tell(l, LINEAGE_NEED, (uint64_t)x);
            break;
        default:
            if (!x || !t.running[x]) break;
            t.running[x] = false;
            tell(l, LINEAGE_ENDED, (uint64_t)x);
            break;
        }
        apply(&t, seed);
    }
    /* All end, all let go: nothing is remembered. */
    for (int x = 1; x <= made; x++) {
        if (t.running[x]) tell(l, LINEAGE_ENDED, (uint64_t)x);
        t.running[x] = false;
        apply(&t, seed);
    }
    for (int x = 1; x <= made; x++) {
        tell(l, LINEAGE_DROP, (uint64_t)x);
        apply(&t, seed);
    }
    SEED_CHECK(lineage_calls(l) == 0 && lineage_bytes(l) == 0);
    for (int x = 1; x <= made; x++) SEED_CHECK(!lineage_knows(l, (uint64_t)x) && !t.kept[x]);
    lineage_free(l);
}

static void histories(void **state)
{
    (void)state;
    sim_run(1000, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_lost_result_runs_its_call_and_those_before_it, clear),
        cmocka_unit_test_teardown(only_so_often_and_so_much, clear),
        cmocka_unit_test_teardown(histories, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
