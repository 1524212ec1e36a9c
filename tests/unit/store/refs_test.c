/* refs_test.c - reference counts: by hand, and in a simulated cluster whose
 * messages are delayed and reordered and whose processes die, by a seed:
 * sim.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "store/refs.h"
#include "sim.h"

static refs_actions freed;

static void step(refs_book *r, refs_kind kind, uint64_t object, refs_client client)
{
    refs_step(r, (refs_event){.kind = kind, .object = object, .client = client}, &freed);
}

static size_t settle(refs_book *r)
{
    vec_clear(&freed);
    refs_step(r, (refs_event){.kind = REFS_SETTLE, .changes = refs_changes(r)}, &freed);
    return freed.n;
}

static int clear(void **state)
{
    (void)state;
    vec_release(&freed);
    return 0;
}

static void nothing_is_freed_before_it_settles(void **state)
{
    refs_book *r = refs_new();
    (void)state;

    step(r, REFS_ADD, 1, 5);
    step(r, REFS_HOLD, 1, 6);
    assert_int_equal(settle(r), 0);
    step(r, REFS_DROP, 1, 6);
    assert_int_equal(freed.n, 0);
    assert_int_equal(refs_candidates(r), 1);
    step(r, REFS_HOLD, 1, 7); /* was on its way when 6 dropped */
    assert_int_equal(settle(r), 0);
    step(r, REFS_DROP, 1, 7);
    assert_int_equal(settle(r), 1);
    assert_true(freed.at[0].object == 1 && freed.at[0].maker == 5 && freed.at[0].known);
    assert_int_equal(refs_count(r), 0);
    assert_int_equal(refs_candidates(r), 0);
    refs_free(r);
}

static void a_drop_may_come_before_its_hold(void **state)
{
    refs_book *r = refs_new();
    (void)state;

    step(r, REFS_DROP, 1, 6);
    assert_int_equal(refs_total(r, 1), -1);
    assert_false(refs_knows(r, 1));
    step(r, REFS_ADD, 1, 5);
    step(r, REFS_HOLD, 1, 6);
    assert_int_equal(refs_total(r, 1), 0);
    assert_int_equal(settle(r), 1);
    assert_true(freed.at[0].known);
    /* Its maker died before it could say that it made it. */
    step(r, REFS_DROP, 2, 6);
    step(r, REFS_GONE, 0, 5);
    assert_int_equal(settle(r), 1);
    assert_false(freed.at[0].known);
    assert_int_equal(refs_count(r), 0);
    refs_free(r);
}

static void the_dead_hold_nothing(void **state)
{
    refs_book *r = refs_new();
    (void)state;

    for (uint64_t i = 1; i <= 3; i++) {
        step(r, REFS_ADD, i, 5);
        step(r, REFS_HOLD, i, 6);
        if (i == 2) step(r, REFS_HOLD, i, 7);
        if (i == 3) step(r, REFS_HOLD, i, 6);
    }
    assert_int_equal(refs_beside(r, 2, 6), 1);
    assert_int_equal(refs_beside(r, 2, 8), 2);
    assert_int_equal(refs_beside(r, 3, 6), 0);
    assert_int_equal(refs_beside(r, 4, 6), 0);
    step(r, REFS_GONE, 0, 6);
    assert_int_equal(settle(r), 2);
    assert_int_equal(refs_total(r, 2), 1);
    assert_int_equal(refs_beside(r, 2, 7), 0);
    /* A hold in its name that comes late does not count. */
    step(r, REFS_ADD, 9, 5);
    step(r, REFS_HOLD, 9, 6);
    assert_int_equal(settle(r), 1);
    assert_true(freed.at[0].object == 9);
    step(r, REFS_GONE, 0, 6);
    step(r, REFS_GONE, 0, 7);
    assert_int_equal(settle(r), 1);
    refs_free(r);
}

static void a_maker_may_die_and_its_objects_live(void **state)
{
    refs_book *r = refs_new();
    (void)state;

    step(r, REFS_ADD, 1, 5);
    step(r, REFS_HOLD, 1, 6);
    step(r, REFS_GONE, 0, 5);
    assert_int_equal(settle(r), 0);
    assert_int_equal(refs_total(r, 1), 1);
    refs_free(r);
}

static void containers_hold_what_they_contain(void **state)
{
    refs_book *r = refs_new();
    (void)state;

    for (uint64_t i = 1; i <= 3; i++) {
        step(r, REFS_ADD, i, 5);
        step(r, REFS_HOLD, i, 5);
    }
    refs_step(r, (refs_event){.kind = REFS_CONTAIN, .object = 1, .inner = 2}, &freed);
    refs_step(r, (refs_event){.kind = REFS_CONTAIN, .object = 2, .inner = 3}, &freed);
    refs_step(r, (refs_event){.kind = REFS_CONTAIN, .object = 2, .inner = 3}, &freed); /* twice */
    step(r, REFS_DROP, 3, 5);
    step(r, REFS_DROP, 2, 5);
    assert_int_equal(settle(r), 0);
    assert_int_equal(refs_total(r, 3), 2);
    step(r, REFS_DROP, 1, 5);
    assert_int_equal(settle(r), 3); /* the whole chain at once */
    assert_int_equal(refs_count(r), 0);
    refs_free(r);
}

/* A pass has begun, and has read the line of 7, when 6 calls 7 with the object and then
 * drops it: the drop is read in this pass, the hold that 7 told before in the next. */
static void what_is_let_go_during_a_pass_waits_for_the_next(void **state)
{
    refs_book *r = refs_new();
    (void)state;

    for (uint64_t inside = 0; inside < 2; inside++) { /* or what contains it is freed by the pass */
        uint64_t object = 1 + inside;
        step(r, REFS_ADD, object, 5);
        step(r, REFS_HOLD, object, 6);
        if (inside) {
            step(r, REFS_ADD, 9, 5);
            refs_step(r, (refs_event){.kind = REFS_CONTAIN, .object = 9, .inner = object}, &freed);
        }
        uint64_t n = refs_changes(r);
        step(r, REFS_DROP, object, 6);
        vec_clear(&freed);
        refs_step(r, (refs_event){.kind = REFS_SETTLE, .changes = n}, &freed);
        assert_int_equal(freed.n, inside); /* only what contained it */
        step(r, REFS_HOLD, object, 7);
        assert_int_equal(settle(r), 0);
        assert_int_equal(refs_total(r, object), 1);
        step(r, REFS_DROP, object, 7);
        assert_int_equal(settle(r), 1);
        assert_true(freed.at[0].object == object && freed.at[0].known);
    }
    assert_int_equal(refs_count(r), 0);
    refs_free(r);
}

/* ---- the simulation ----
 *
 * Clients make objects, pass references to each other, drop them and die. Each
 * client's messages to the daemon wait in a line of its own; which line the
 * daemon reads next is random. As in the node, a process tells the daemon of a
 * hold before the holder can know of the reference. The truth is what the
 * processes themselves know. */

enum { CLIENTS = 5, MADE = 40, OBJECTS = 400, LINE = 4096 };

typedef struct sim {
    uint64_t seed;
    refs_book *r;
    refs_event line[CLIENTS][LINE];
    int first[CLIENTS], last[CLIENTS];
    bool dead[CLIENTS], told[CLIENTS]; /* told: the daemon knows of the death */
    int holds[CLIENTS][OBJECTS]; /* what each client truly holds */
    int maker[OBJECTS]; /* -1: not made */
    bool is_freed[OBJECTS];
    int spare; /* the next object for those who go on during a pass */
    uint64_t borrowed;
} sim;

static void say(sim *s, int c, refs_kind kind, int object, int who)
{
    assert_true(s->last[c] < LINE);
    s->line[c][s->last[c]++] =
        (refs_event){.kind = kind, .object = (uint64_t)object + 1, .client = (refs_client)who + 1};
}

static bool is_held(const sim *s, int object)
{
    for (int c = 0; c < CLIENTS; c++)
        if (!s->dead[c] && s->holds[c][object] > 0) return true;
    return false;
}

static void hear(sim *s, int c)
{
    if (s->first[c] < s->last[c]) refs_step(s->r, s->line[c][s->first[c]++], &freed);
}

/* While the daemon reads: one whose line was read already is called with a reference
 * of one whose line is read next. It says that it holds it before it answers, and the
 * caller drops it. */
static void borrow(sim *s, int c, int from)
{
    int first = (int)rng_below(rng_make(s->seed, 4), s->borrowed++, MADE);

    for (int i = 0; i < MADE; i++) {
        int o = (first + i) % MADE;
        if (s->holds[from][o] == 0) continue;
        s->holds[c][o]++;
        say(s, c, REFS_HOLD, o, c);
        s->holds[from][o]--;
        say(s, from, REFS_DROP, o, from);
        return;
    }
}

/* The daemon's pass: all that was sent, then the dead, then the freeing. */
static void pass(sim *s, bool busy)
{
    uint64_t n = refs_changes(s->r);

    for (int c = 0; c < CLIENTS; c++) {
        while (s->first[c] < s->last[c]) hear(s, c);
        /* Others go on while the daemon reads: one whose line was read already
         * makes an object for one whose line is read next, which drops it. */
        int o = s->spare;
        if (!busy || c + 1 == CLIENTS || o == OBJECTS || s->dead[c] || s->dead[c + 1]) continue;
        s->spare++;
        s->maker[o] = c;
        say(s, c, REFS_ADD, o, c);
        say(s, c, REFS_HOLD, o, c + 1);
        say(s, c + 1, REFS_DROP, o, c + 1);
        borrow(s, c, c + 1);
    }
    vec_clear(&freed);
    refs_step(s->r, (refs_event){.kind = REFS_SETTLE, .changes = n}, &freed);
    for (size_t i = 0; i < freed.n; i++) {
        int object = (int)freed.at[i].object - 1;
        if (is_held(s, object))
            fail_msg("MANTA_SEED=%llu: object %d is freed while it is held", (unsigned long long)s->seed,
                     object);
        if (s->is_freed[object] && freed.at[i].known)
            fail_msg("MANTA_SEED=%llu: object %d is freed twice", (unsigned long long)s->seed, object);
        s->is_freed[object] = true;
    }
}

static void run(uint64_t seed)
{
    static sim s;
    rng_key k = rng_make(seed, 3);
    uint64_t at = 0;

    memset(&s, 0, sizeof s);
    s.seed = seed;
    s.r = refs_new();
    s.spare = MADE;
    for (int i = 0; i < OBJECTS; i++) s.maker[i] = -1;
    for (int turn = 0; turn < 400; turn++) {
        int c = (int)rng_below(k, at++, CLIENTS), o = (int)rng_below(k, at++, MADE);
        switch (rng_below(k, at++, 8)) {
        case 0: /* make an object */
            if (s.dead[c] || s.maker[o] >= 0) break;
            s.maker[o] = c;
            say(&s, c, REFS_ADD, o, c);
            say(&s, c, REFS_HOLD, o, c);
            s.holds[c][o]++;
            break;
        case 1: { /* make one for another, as a worker does for its caller */
            int to = (int)rng_below(k, at++, CLIENTS);
            if (s.dead[c] || s.maker[o] >= 0) break;
            s.maker[o] = c;
            say(&s, c, REFS_ADD, o, c);
            say(&s, c, REFS_HOLD, o, to);
            if (!s.dead[to]) s.holds[to][o]++;
            break;
        }
        case 2:
        case 3: { /* pass one on: the daemon is told first */
            int to = (int)rng_below(k, at++, CLIENTS);
            if (s.dead[c] || s.holds[c][o] == 0) break;
            say(&s, c, REFS_HOLD, o, to);
            if (!s.dead[to]) s.holds[to][o]++;
            break;
        }
        case 4:
        case 5: /* let one go */
            if (s.dead[c] || s.holds[c][o] == 0) break;
            s.holds[c][o]--;
            say(&s, c, REFS_DROP, o, c);
            break;
        case 6: /* the daemon reads one message of somebody */ hear(&s, c); break;
        case 7:
            if (rng_below(k, at++, 25) == 0 && c > 0) s.dead[c] = true;
            if (s.dead[c] && !s.told[c] && s.first[c] == s.last[c]) {
                s.told[c] = true; /* drained, then buried */
                refs_step(s.r, (refs_event){.kind = REFS_GONE, .client = (refs_client)c + 1}, &freed);
            }
            if (rng_below(k, at++, 3) == 0) pass(&s, true);
            break;
        default: break;
        }
    }
    /* Everyone lets go or is buried: nothing may remain. */
    for (int c = 0; c < CLIENTS; c++) {
        for (int o = 0; o < OBJECTS && !s.dead[c]; o++)
            for (; s.holds[c][o] > 0; s.holds[c][o]--) say(&s, c, REFS_DROP, o, c);
        while (s.first[c] < s.last[c]) hear(&s, c);
        if (s.dead[c] && !s.told[c])
            refs_step(s.r, (refs_event){.kind = REFS_GONE, .client = (refs_client)c + 1}, &freed);
    }
    pass(&s, false);
    pass(&s, false);
    if (refs_count(s.r) != 0)
        fail_msg("MANTA_SEED=%llu: %zu objects are left", (unsigned long long)seed, refs_count(s.r));
    for (int o = 0; o < OBJECTS; o++)
        if (s.maker[o] >= 0 && !s.is_freed[o])
            fail_msg("MANTA_SEED=%llu: object %d leaks", (unsigned long long)seed, o);
    refs_free(s.r);
}

static void any_order_of_events_keeps_the_rules(void **state)
{
    (void)state;
    sim_run(3000, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(nothing_is_freed_before_it_settles, clear),
        cmocka_unit_test_teardown(a_drop_may_come_before_its_hold, clear),
        cmocka_unit_test_teardown(the_dead_hold_nothing, clear),
        cmocka_unit_test_teardown(a_maker_may_die_and_its_objects_live, clear),
        cmocka_unit_test_teardown(containers_hold_what_they_contain, clear),
        cmocka_unit_test_teardown(what_is_let_go_during_a_pass_waits_for_the_next, clear),
        cmocka_unit_test_teardown(any_order_of_events_keeps_the_rules, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
