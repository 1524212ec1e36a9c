/* directory_test.c - objects promised, made, wanted, lost: by hand, and in a
 * simulated cluster whose messages are delayed and reordered, whose calls run
 * twice and whose processes die, by a seed: sim.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "store/directory.h"
#include "sim.h"

#define OWNED(client, n) ((uint64_t)(client) << DIRECTORY_OWNER_SHIFT | (uint64_t)(n))

static directory_actions done;

static int clear(void **state)
{
    (void)state;
    vec_release(&done);
    return 0;
}

static void step(directory *d, directory_event e)
{
    vec_clear(&done);
    directory_step(d, &e, &done);
    for (size_t i = 0; i < done.n; i++)
        if (done.at[i].kind == DIRECTORY_DO_FORGET) directory_end(d, done.at[i].object);
}

static void tell(directory *d, directory_kind kind, uint64_t object, uint32_t client)
{
    step(d, (directory_event){.kind = kind, .object = object, .client = client});
}

static void add(directory *d, uint64_t object, uint32_t client, uint64_t segment, bool maker_is_dead)
{
    step(d, (directory_event){.kind = DIRECTORY_ADD,
                              .object = object,
                              .client = client,
                              .place = {segment, 64},
                              .maker_is_dead = maker_is_dead});
}

static bool did(directory_action_kind kind, uint32_t client)
{
    for (size_t i = 0; i < done.n; i++)
        if (done.at[i].kind == kind && done.at[i].client == client) return true;
    return false;
}

static bool left(uint32_t client, uint64_t segment)
{
    for (size_t i = 0; i < done.n; i++)
        if (done.at[i].kind == DIRECTORY_DO_LEAVE && done.at[i].client == client &&
            done.at[i].place.segment == segment)
            return true;
    return false;
}

static void who_wants_is_told_once(void **state)
{
    directory *d = directory_new();
    uint64_t o = OWNED(1, 1);
    (void)state;

    tell(d, DIRECTORY_WANT, o, 2); /* before anybody said that it will be */
    tell(d, DIRECTORY_WANT, o, 2);
    tell(d, DIRECTORY_PROMISE, o, 1);
    step(d, (directory_event){.kind = DIRECTORY_PASS, .n = directory_unknown(d)});
    assert_int_equal(done.n, 0); /* it is known by now */
    add(d, o, 1, 5, false);
    assert_true(did(DIRECTORY_DO_TAKE, 1) && did(DIRECTORY_DO_HOLD, 1) && did(DIRECTORY_DO_TELL, 2));
    assert_int_equal(done.n, 3);
    tell(d, DIRECTORY_WANT, o, 3);
    assert_true(done.n == 1 && did(DIRECTORY_DO_TELL, 3));
    tell(d, DIRECTORY_FREE, o, 0);
    assert_true(left(1, 5) && directory_count(d) == 0);
    /* What nobody makes, and what its maker cannot make any more. */
    tell(d, DIRECTORY_WANT, OWNED(1, 2), 2);
    step(d, (directory_event){.kind = DIRECTORY_PASS, .n = directory_unknown(d)});
    assert_true(did(DIRECTORY_DO_TELL, 2) && directory_count(d) == 0);
    tell(d, DIRECTORY_PROMISE, OWNED(1, 3), 1);
    tell(d, DIRECTORY_WANT, OWNED(1, 3), 2);
    tell(d, DIRECTORY_GONE, 0, 1);
    assert_true(did(DIRECTORY_DO_BREAK, 1) && did(DIRECTORY_DO_TELL, 2));
    assert_int_equal(directory_state_of(d, OWNED(1, 3)), DIRECTORY_BROKEN);
    directory_free(d);
}

static void added_twice(void **state)
{
    directory *d = directory_new();
    uint64_t o = OWNED(1, 1);
    (void)state;

    add(d, o, 2, 5, false);
    add(d, o, 3, 6, false); /* 2 is alive: others know its place */
    assert_true(left(3, 6) && !did(DIRECTORY_DO_TAKE, 3) && directory_maker(d, o) == 2);
    add(d, o, 3, 6, true); /* 2 is dead: the caller knows the new one */
    assert_true(left(2, 5) && did(DIRECTORY_DO_TAKE, 3) && !did(DIRECTORY_DO_HOLD, 3));
    assert_int_equal(directory_maker(d, o), 3);
    tell(d, DIRECTORY_FAIL, o, 0); /* too late */
    assert_true(done.n == 0 && directory_state_of(d, o) == DIRECTORY_READY);
    directory_free(d);
}

static void lost_and_made_again(void **state)
{
    directory *d = directory_new();
    uint64_t o = OWNED(1, 1);
    (void)state;

    add(d, o, 2, 5, false);
    directory_event missed = {
        .kind = DIRECTORY_MISSED, .object = o, .client = 3, .place = {5, 64}, .is_lost = false};
    step(d, missed); /* a mistake: it is there */
    assert_true(done.n == 1 && did(DIRECTORY_DO_TELL, 3));
    missed.is_lost = true;
    step(d, missed);
    assert_true(left(2, 5) && did(DIRECTORY_DO_REBUILD, 1) && !did(DIRECTORY_DO_TELL, 3));
    missed.client = 4;
    step(d, missed);
    assert_int_equal(done.n, 0); /* asked for once */
    add(d, o, 2, 7, false);
    assert_true(did(DIRECTORY_DO_TELL, 3) && did(DIRECTORY_DO_TELL, 4) && did(DIRECTORY_DO_HOLD, 2));
    step(d, missed); /* somebody with the old place */
    assert_true(done.n == 1 && did(DIRECTORY_DO_TELL, 4));
    /* Its owner dies while it makes it again. */
    missed.place.segment = 7;
    step(d, missed);
    assert_true(did(DIRECTORY_DO_REBUILD, 1));
    tell(d, DIRECTORY_GONE, 0, 1);
    assert_true(did(DIRECTORY_DO_BREAK, 1) && did(DIRECTORY_DO_TELL, 4));
    directory_free(d);
}

/* ---- the simulation ----
 *
 * Client 1 (0 here) owns all objects; workers make them, some twice after a
 * death; readers want and miss them. Each client's messages wait in a line of
 * its own. Every want must be answered once; the places that are left and those
 * that are taken must match. */

enum { CLIENTS = 5, OBJECTS = 30, LINE = 2048 };

typedef struct sim {
    uint64_t seed, at;
    rng_key key;
    directory *d;
    directory_event line[CLIENTS][LINE];
    int first[CLIENTS], last[CLIENTS];
    bool dead[CLIENTS], told[CLIENTS];
    bool waits[CLIENTS][OBJECTS];
    store_place known[CLIENTS][OBJECTS]; /* where each believes it to be */
    uint64_t segments; /* each object gets one */
    int taken[LINE * 2]; /* by segment: 1 taken, 0 not, or left */
    bool lost[LINE * 2];
    int runs[OBJECTS]; /* the worker that was asked to make it; -1 none */
    bool rebuild[OBJECTS];
    store_place place[OBJECTS];
} sim;

#define SIM_CHECK(x)                                                                                         \
    do {                                                                                                     \
        if (!(x)) fail_msg("MANTA_SEED=%llu: %s", (unsigned long long)s->seed, #x);                          \
    } while (0)

static uint64_t below(sim *s, uint64_t n)
{
    return rng_below(s->key, s->at++, n);
}

static void say(sim *s, int c, directory_event e)
{
    SIM_CHECK(s->last[c] < LINE);
    e.client = (uint32_t)c + 1;
    s->line[c][s->last[c]++] = e;
}

static void hear_event(sim *s, directory_event e)
{
    vec_clear(&done);
    directory_step(s->d, &e, &done);
    for (size_t i = 0; i < done.n; i++) {
        const directory_action *a = &done.at[i];
        int o = (int)(a->object & 0xffff), c = (int)a->client - 1;
        switch (a->kind) {
        case DIRECTORY_DO_TAKE:
            if (e.kind != DIRECTORY_ADD) break;
            SIM_CHECK(!s->taken[e.place.segment]);
            s->taken[e.place.segment] = 1;
            s->place[o] = e.place;
            break;
        case DIRECTORY_DO_LEAVE:
            if (e.kind == DIRECTORY_ADD && a->place.segment == e.place.segment) break; /* refused */
            SIM_CHECK(s->taken[a->place.segment] == 1);
            s->taken[a->place.segment] = 0;
            break;
        case DIRECTORY_DO_TELL:
            if (s->dead[c]) break;
            SIM_CHECK(s->waits[c][o]);
            s->waits[c][o] = false;
            if (directory_state_of(s->d, a->object) == DIRECTORY_READY) s->known[c][o] = s->place[o];
            break;
        case DIRECTORY_DO_REBUILD:
            SIM_CHECK(c == 0);
            s->rebuild[o] = true;
            break;
        case DIRECTORY_DO_HOLD:
        case DIRECTORY_DO_BREAK: break;
        case DIRECTORY_DO_FORGET: directory_end(s->d, a->object); break;
        }
    }
}

static void hear(sim *s, int c)
{
    if (s->first[c] == s->last[c]) return;
    directory_event e = s->line[c][s->first[c]++];
    if (e.kind == DIRECTORY_ADD) {
        uint32_t maker = directory_maker(s->d, e.object);
        e.maker_is_dead = maker > 0 && s->dead[maker - 1];
    }
    if (e.kind == DIRECTORY_MISSED) e.is_lost = s->lost[e.place.segment];
    hear_event(s, e);
}

/* A worker makes an object and tells the daemon. */
static void make(sim *s, int worker, int o)
{
    if (s->dead[worker]) return;
    say(s, worker,
        (directory_event){.kind = DIRECTORY_ADD, .object = OWNED(1, o), .place = {++s->segments, 64}});
    s->runs[o] = worker;
}

static int live_worker(sim *s)
{
    for (int i = 0; i < 20; i++) {
        int w = 1 + (int)below(s, CLIENTS - 1);
        if (!s->dead[w]) return w;
    }
    return 0; /* the owner itself */
}

/* The owner answers what the daemon asked of it. */
static void rebuild(sim *s, int o, bool faults)
{
    if (!s->rebuild[o]) return;
    s->rebuild[o] = false;
    if (faults && below(s, 4) == 0)
        say(s, 0, (directory_event){.kind = DIRECTORY_FAIL, .object = OWNED(1, o)});
    else
        make(s, live_worker(s), o);
}

static void turn(sim *s, bool faults)
{
    int c = (int)below(s, CLIENTS), o = (int)below(s, OBJECTS);

    switch (below(s, 8)) {
    case 0: /* a call, or the same again because its worker died */
        if (s->runs[o] < 0 || (s->runs[o] > 0 && s->dead[s->runs[o]] && s->known[0][o].segment == 0)) {
            if (s->runs[o] < 0)
                say(s, 0, (directory_event){.kind = DIRECTORY_PROMISE, .object = OWNED(1, o)});
            make(s, live_worker(s), o);
        }
        break;
    case 1:
        if (s->dead[c] || s->waits[c][o] || s->runs[o] < 0) break;
        s->waits[c][o] = true;
        if (s->known[c][o].segment && s->lost[s->known[c][o].segment])
            say(s, c,
                (directory_event){.kind = DIRECTORY_MISSED, .object = OWNED(1, o), .place = s->known[c][o]});
        else
            say(s, c, (directory_event){.kind = DIRECTORY_WANT, .object = OWNED(1, o)});
        break;
    case 2:
        if (faults && s->place[o].segment && below(s, 3) == 0) s->lost[s->place[o].segment] = true;
        break;
    case 3:
        if (faults && c > 0 && below(s, 80) == 0) s->dead[c] = true;
        if (s->dead[c] && !s->told[c] && s->first[c] == s->last[c]) {
            s->told[c] = true;
            hear_event(s, (directory_event){.kind = DIRECTORY_GONE, .client = (uint32_t)c + 1});
        }
        break;
    case 4: rebuild(s, o, faults); break;
    default: hear(s, c); break;
    }
}

static void run(uint64_t seed)
{
    static sim state;
    sim *s = &state;

    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->key = rng_make(seed, 11);
    s->d = directory_new();
    for (int o = 0; o < OBJECTS; o++) s->runs[o] = -1;
    for (int i = 0; i < 1500; i++) turn(s, true);
    /* No more faults: every want gets its answer. */
    for (int i = 0; i < 40; i++) {
        for (int o = 0; o < OBJECTS; o++) {
            rebuild(s, o, false);
            /* A call whose worker died before it said anything runs again. */
            if (directory_state_of(s->d, OWNED(1, o)) == DIRECTORY_PROMISED && s->runs[o] > 0 &&
                s->dead[s->runs[o]])
                make(s, live_worker(s), o);
        }
        for (int c = 0; c < CLIENTS; c++) {
            while (s->first[c] < s->last[c]) hear(s, c);
            if (s->dead[c] && !s->told[c]) {
                s->told[c] = true;
                hear_event(s, (directory_event){.kind = DIRECTORY_GONE, .client = (uint32_t)c + 1});
            }
        }
        hear_event(s, (directory_event){.kind = DIRECTORY_PASS, .n = directory_unknown(s->d)});
    }
    for (int c = 0; c < CLIENTS; c++)
        for (int o = 0; o < OBJECTS && !s->dead[c]; o++)
            if (s->waits[c][o])
                fail_msg("MANTA_SEED=%llu: client %d waits for object %d for ever", (unsigned long long)seed,
                         c + 1, o);
    for (int o = 0; o < OBJECTS; o++)
        hear_event(s, (directory_event){.kind = DIRECTORY_FREE, .object = OWNED(1, o)});
    SIM_CHECK(directory_count(s->d) == 0);
    for (uint64_t g = 1; g <= s->segments; g++) SIM_CHECK(s->taken[g] == 0);
    directory_free(s->d);
}

static void any_order_of_events_keeps_the_rules(void **state)
{
    (void)state;
    sim_run(2000, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(who_wants_is_told_once, clear),
        cmocka_unit_test_teardown(added_twice, clear),
        cmocka_unit_test_teardown(lost_and_made_again, clear),
        cmocka_unit_test_teardown(any_order_of_events_keeps_the_rules, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
