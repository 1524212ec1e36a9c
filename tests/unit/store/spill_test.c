/* spill_test.c - memory and disk: by hand, and in a simulated node whose
 * messages are delayed, whose processes hold on to memory, pause and die, and
 * whose disk fills and fails, by a seed: sim.h. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "store/spill.h"
#include "sim.h"

static spill_actions done;
static int64_t clock_ns;

static int clear(void **state)
{
    (void)state;
    vec_release(&done);
    return 0;
}

static void step(spill_book *b, spill_event e)
{
    vec_clear(&done);
    e.now = clock_ns;
    spill_step(b, &e, &done);
}

static uint64_t total_answers, total_written, total_read;

static bool did(spill_action_kind kind, uint32_t client, uint64_t segment)
{
    for (size_t i = 0; i < done.n; i++)
        if (done.at[i].kind == kind && done.at[i].client == client && done.at[i].segment == segment)
            return true;
    return false;
}

static bool refused(uint32_t client, uint64_t request, spill_why why)
{
    for (size_t i = 0; i < done.n; i++)
        if (done.at[i].kind == SPILL_DO_REFUSE && done.at[i].client == client &&
            done.at[i].request == request && done.at[i].why == why)
            return true;
    return false;
}

static void want(spill_book *b, uint32_t client, uint64_t request, uint64_t size)
{
    step(b, (spill_event){.kind = SPILL_WANT, .client = client, .request = request, .size = size});
}

static void open_it(spill_book *b, uint32_t client, uint64_t request, uint64_t segment)
{
    step(b, (spill_event){.kind = SPILL_OPEN, .client = client, .request = request, .segment = segment});
}

static void closed(spill_book *b, uint32_t client, uint64_t segment, uint32_t n)
{
    step(b, (spill_event){.kind = SPILL_CLOSED, .client = client, .segment = segment, .n = n});
}

static void copied(spill_book *b, spill_kind kind, uint64_t segment, bool ok)
{
    step(b, (spill_event){.kind = kind, .segment = segment, .ok = ok});
}

static void the_oldest_leaves_and_comes_back(void **state)
{
    spill_book *b = spill_new(100, 1000);
    (void)state;

    want(b, 1, 10, 50);
    assert_true(did(SPILL_DO_MAKE, 1, 1));
    want(b, 2, 11, 50);
    assert_true(did(SPILL_DO_MAKE, 2, 2));
    want(b, 1, 12, 40); /* the first is asked for, as the oldest */
    assert_true(done.n == 1 && did(SPILL_DO_ASK, 1, 1));
    closed(b, 1, 1, 1);
    assert_true(done.n == 1 && did(SPILL_DO_WRITE, 0, 1));
    copied(b, SPILL_WROTE, 1, true);
    assert_true(did(SPILL_DO_CLOSE, 0, 1) && did(SPILL_DO_MAKE, 1, 3));
    assert_true(!spill_in_memory(b, 1) && spill_use(b).memory == 90 && spill_use(b).disk == 50);
    /* Back: now 2 is the oldest. */
    open_it(b, 3, 13, 1);
    assert_true(done.n == 1 && did(SPILL_DO_ASK, 2, 2));
    open_it(b, 1, 14, 1); /* another waits for the same */
    assert_int_equal(done.n, 0);
    closed(b, 2, 2, 1);
    copied(b, SPILL_WROTE, 2, true);
    assert_true(did(SPILL_DO_CLOSE, 0, 2) && did(SPILL_DO_READ, 0, 1));
    copied(b, SPILL_READ, 1, true);
    assert_true(did(SPILL_DO_GIVE, 3, 1) && did(SPILL_DO_GIVE, 1, 1));
    /* It leaves a second time without being written. */
    closed(b, 3, 1, 1);
    closed(b, 1, 1, 1);
    want(b, 1, 15, 50);
    assert_true(did(SPILL_DO_CLOSE, 0, 1) && did(SPILL_DO_MAKE, 1, 4));
    assert_int_equal(spill_use(b).written, 100);
    for (uint64_t i = 1; i <= 4; i++) {
        step(b, (spill_event){.kind = SPILL_DROP, .segment = i});
        assert_true(did(SPILL_DO_END, 0, i));
    }
    spill_usage u = spill_use(b);
    assert_true(u.memory == 0 && u.disk == 0 && u.segments == 0 && u.on_disk == 0);
    spill_free(b);
}

static void who_waits_for_itself_is_refused_at_once(void **state)
{
    spill_book *b = spill_new(100, 1000);
    (void)state;

    want(b, 1, 1, 101);
    assert_true(refused(1, 1, SPILL_TOO_LARGE));
    want(b, 1, 2, 60);
    want(b, 1, 3, 60);
    assert_true(did(SPILL_DO_ASK, 1, 1));
    closed(b, 1, 1, 0); /* in use */
    assert_true(refused(1, 3, SPILL_FULL));
    /* Another's: wait, at most so long. */
    want(b, 2, 4, 60);
    clock_ns += SPILL_AGAIN_NS;
    step(b, (spill_event){.kind = SPILL_TICK});
    assert_true(did(SPILL_DO_ASK, 1, 1));
    closed(b, 1, 1, 0);
    assert_int_equal(done.n, 0);
    clock_ns += SPILL_WAIT_NS;
    step(b, (spill_event){.kind = SPILL_TICK});
    assert_true(refused(2, 4, SPILL_FULL));
    /* And when the other lets go in time, it is served. */
    want(b, 2, 5, 60);
    closed(b, 1, 1, 1);
    assert_true(did(SPILL_DO_WRITE, 0, 1));
    copied(b, SPILL_WROTE, 1, true);
    assert_true(did(SPILL_DO_MAKE, 2, 2));
    spill_free(b);
}

/* Time passes; what this changes is done. */
static void pass(spill_book *b, int64_t ns)
{
    clock_ns += ns;
    step(b, (spill_event){.kind = SPILL_TICK});
}

static void who_waits_in_vain_shortens_the_wait_of_the_next(void **state)
{
    spill_book *b = spill_new(100, 1000);
    (void)state;

    clock_ns = 0;
    want(b, 1, 10, 100);
    want(b, 2, 11, 100);
    closed(b, 1, 1, 0); /* it is in use */
    pass(b, SPILL_WAIT_NS);
    assert_true(refused(2, 11, SPILL_FULL));

    want(b, 2, 12, 100);
    closed(b, 1, 1, 0);
    pass(b, SPILL_WAIT_NS / 2 - 1);
    assert_false(refused(2, 12, SPILL_FULL));
    pass(b, 1);
    assert_true(refused(2, 12, SPILL_FULL));

    for (uint64_t request = 13; request < 20; request++) { /* never shorter than the least */
        want(b, 2, request, 100);
        pass(b, SPILL_LEAST_NS - 1);
        assert_false(refused(2, request, SPILL_FULL));
        pass(b, SPILL_WAIT_NS / 4 - SPILL_LEAST_NS + 1);
        assert_true(refused(2, request, SPILL_FULL));
    }

    /* It lets go: what waits has the whole time again, while the segment is written. */
    want(b, 2, 113, 100);
    closed(b, 1, 1, 1);
    assert_true(did(SPILL_DO_WRITE, 0, 1));
    pass(b, SPILL_WAIT_NS - 1);
    assert_false(refused(2, 113, SPILL_FULL));
    copied(b, SPILL_WROTE, 1, true);
    assert_true(did(SPILL_DO_MAKE, 2, 2));
    spill_free(b);
}

static void those_that_wait_together_shorten_nobodys_wait_twice(void **state)
{
    spill_book *b = spill_new(100, 1000);
    (void)state;

    clock_ns = 0;
    want(b, 1, 10, 100);
    for (uint64_t request = 20; request < 28; request++) want(b, 2, request, 100);
    closed(b, 1, 1, 0);
    pass(b, SPILL_WAIT_NS - 1);
    want(b, 3, 30, 100); /* before any of them is refused: it has the whole time */
    pass(b, 1);
    for (uint64_t request = 20; request < 28; request++) assert_true(refused(2, request, SPILL_FULL));
    assert_false(refused(3, 30, SPILL_FULL));
    pass(b, SPILL_WAIT_NS - 2);
    assert_false(refused(3, 30, SPILL_FULL));
    want(b, 3, 31, 100); /* after them, and long after: they do not count any more, or half */
    pass(b, 1);
    assert_true(refused(3, 30, SPILL_FULL));
    pass(b, SPILL_WAIT_NS / 2 - 2);
    assert_false(refused(3, 31, SPILL_FULL));
    pass(b, 1);
    assert_true(refused(3, 31, SPILL_FULL));

    pass(b, SPILL_WAIT_NS + 1);
    want(b, 3, 32, 100); /* nobody has waited in vain for long */
    pass(b, SPILL_WAIT_NS - 1);
    assert_false(refused(3, 32, SPILL_FULL));
    pass(b, 1);
    assert_true(refused(3, 32, SPILL_FULL));
    spill_free(b);
}

static void a_disk_that_is_full_or_broken(void **state)
{
    spill_book *b = spill_new(100, 1000), *none = spill_new(100, 0), *small = spill_new(100, 50);
    (void)state;

    want(none, 1, 1, 60);
    want(none, 2, 2, 60);
    assert_true(refused(2, 2, SPILL_FULL));
    want(small, 1, 1, 60);
    want(small, 2, 2, 60);
    closed(small, 1, 1, 1);
    assert_true(refused(2, 2, SPILL_FULL)); /* it has no room on the disk */
    want(b, 1, 1, 60);
    want(b, 2, 2, 60);
    closed(b, 1, 1, 1);
    copied(b, SPILL_WROTE, 1, false);
    assert_true(refused(2, 2, SPILL_FULL));
    assert_true(spill_in_memory(b, 1) && spill_use(b).disk == 0);
    clock_ns += SPILL_ANSWER_NS; /* it is tried again later */
    want(b, 2, 3, 60);
    assert_true(did(SPILL_DO_WRITE, 0, 1));
    copied(b, SPILL_WROTE, 1, true);
    assert_true(did(SPILL_DO_MAKE, 2, 2));
    step(b, (spill_event){.kind = SPILL_DROP, .segment = 2});
    open_it(b, 1, 4, 1);
    assert_true(did(SPILL_DO_READ, 0, 1));
    copied(b, SPILL_READ, 1, false);
    assert_true(refused(1, 4, SPILL_LOST));
    open_it(b, 1, 5, 1);
    assert_true(refused(1, 5, SPILL_LOST));
    open_it(b, 1, 6, 99);
    assert_true(refused(1, 6, SPILL_NO_SEGMENT));
    assert_int_equal(spill_use(b).memory, 0);
    spill_free(b);
    spill_free(none);
    spill_free(small);
}

/* ---- the simulation ----
 *
 * Clients make segments, pass their numbers on, read them, drop what is theirs
 * and die; each has a line of messages to and one from the daemon, in order, of
 * any delay. A client lets go as store.c does. The truth is a table of what
 * every segment must contain, where it lies, and who maps it. */

enum { CLIENTS = 4, SEGMENTS = 4000, LINE = 4096, MEMORY = 100, DISK = 400 };

typedef struct mapping {
    int pins;
    uint32_t given;
    bool asked;
} mapping;

typedef struct letter {
    spill_action_kind kind;
    uint64_t request, segment;
    spill_why why;
} letter;

typedef struct sim {
    uint64_t seed, at;
    rng_key key;
    spill_book *b;
    spill_event to[CLIENTS][LINE]; /* lines to the daemon */
    int to_first[CLIENTS], to_last[CLIENTS];
    letter from[CLIENTS][LINE]; /* and from it */
    int from_first[CLIENTS], from_last[CLIENTS];
    bool dead[CLIENTS], paused[CLIENTS], told[CLIENTS];
    uint64_t asked_for[CLIENTS]; /* the request under way; 0: none */
    uint64_t wants[CLIENTS]; /* the segment that request is to open; 0: a new one */
    uint64_t requests;
    mapping maps[CLIENTS][SEGMENTS];
    bool exists[SEGMENTS], memory[SEGMENTS], file[SEGMENTS], copying[SEGMENTS], lost[SEGMENTS],
        dropped[SEGMENTS];
    uint64_t size[SEGMENTS];
    struct {
        spill_kind kind;
        uint64_t segment;
    } copies[64];
    int n_copies;
    uint64_t made;
    int answers;
} sim;

static uint64_t below(sim *s, uint64_t n)
{
    return rng_below(s->key, s->at++, n);
}

#define SIM_CHECK(x)                                                                                         \
    do {                                                                                                     \
        if (!(x)) fail_msg("MANTA_SEED=%llu: %s", (unsigned long long)s->seed, #x);                          \
    } while (0)

static bool is_mapped(const sim *s, uint64_t g)
{
    for (int c = 0; c < CLIENTS; c++)
        if (!s->dead[c] && s->maps[c][g].given > 0) return true;
    return false;
}

static void say(sim *s, int c, spill_event e)
{
    SIM_CHECK(s->to_last[c] < LINE);
    e.client = (uint32_t)c + 1;
    s->to[c][s->to_last[c]++] = e;
}

static void obey(sim *s, const spill_actions *out)
{
    uint64_t used = 0;

    for (size_t i = 0; i < out->n; i++) {
        const spill_action *a = &out->at[i];
        uint64_t g = a->segment;
        int c = (int)a->client - 1;
        SIM_CHECK(g < SEGMENTS);
        switch (a->kind) {
        case SPILL_DO_MAKE:
            SIM_CHECK(!s->exists[g]);
            s->exists[g] = s->memory[g] = true;
            s->size[g] = a->size;
            s->made = g;
            break;
        case SPILL_DO_GIVE: SIM_CHECK(s->exists[g] && s->memory[g]); break;
        case SPILL_DO_WRITE:
            SIM_CHECK(s->memory[g] && !s->copying[g] && !is_mapped(s, g)); /* nobody writes to it meanwhile */
            s->copying[g] = true;
            s->copies[s->n_copies].kind = SPILL_WROTE;
            s->copies[s->n_copies++].segment = g;
            break;
        case SPILL_DO_READ:
            SIM_CHECK(!s->memory[g] && s->file[g] && !s->copying[g]);
            s->memory[g] = s->copying[g] = true;
            s->copies[s->n_copies].kind = SPILL_READ;
            s->copies[s->n_copies++].segment = g;
            break;
        case SPILL_DO_CLOSE:
            SIM_CHECK(s->memory[g] && s->file[g] && !s->copying[g] && !is_mapped(s, g));
            s->memory[g] = false;
            break;
        case SPILL_DO_DROP_FILE:
            SIM_CHECK(s->memory[g] && s->file[g] && !s->copying[g]);
            s->file[g] = false;
            break;
        case SPILL_DO_END:
            SIM_CHECK(s->exists[g] && !s->copying[g]);
            s->exists[g] = s->memory[g] = s->file[g] = false;
            break;
        case SPILL_DO_REFUSE: SIM_CHECK(a->why != SPILL_LOST || s->lost[g]); break;
        case SPILL_DO_ASK:
        case SPILL_DO_TELL_GONE: break;
        }
        if (c >= 0 && c < CLIENTS && !s->told[c]) {
            SIM_CHECK(s->from_last[c] < LINE);
            s->from[c][s->from_last[c]++] =
                (letter){.kind = a->kind, .request = a->request, .segment = g, .why = a->why};
        }
    }
    for (uint64_t g = 1; g <= s->made; g++)
        if (s->memory[g]) used += s->size[g];
    SIM_CHECK(used <= MEMORY);
    SIM_CHECK(used == spill_use(s->b).memory);
    SIM_CHECK(spill_use(s->b).disk <= DISK);
}

static void tell_book(sim *s, spill_event e)
{
    e.now = clock_ns;
    vec_clear(&done);
    spill_step(s->b, &e, &done);
    obey(s, &done);
}

/* The daemon reads one message of a client. */
static void hear(sim *s, int c)
{
    if (s->to_first[c] < s->to_last[c]) tell_book(s, s->to[c][s->to_first[c]++]);
}

static void let_go(sim *s, int c, uint64_t g)
{
    mapping *m = &s->maps[c][g];

    say(s, c, (spill_event){.kind = SPILL_CLOSED, .segment = g, .n = m->given});
    *m = (mapping){0};
}

/* A client reads one message of the daemon. */
static void read_one(sim *s, int c)
{
    if (s->from_first[c] == s->from_last[c]) return;
    letter l = s->from[c][s->from_first[c]++];
    mapping *m = &s->maps[c][l.segment];
    switch (l.kind) {
    case SPILL_DO_MAKE:
    case SPILL_DO_GIVE:
        SIM_CHECK(l.request == s->asked_for[c]);
        s->asked_for[c] = 0;
        s->answers++;
        m->given++;
        m->pins++;
        break;
    case SPILL_DO_REFUSE:
        SIM_CHECK(l.request == s->asked_for[c]);
        s->asked_for[c] = 0;
        s->answers++;
        /* What was put and not dropped is there, unless the disk lost it or all is in use. */
        SIM_CHECK(l.why != SPILL_NO_SEGMENT || s->dropped[l.segment]);
        break;
    case SPILL_DO_ASK:
        if (m->given > 0 && m->pins == 0) {
            let_go(s, c, l.segment);
        } else {
            m->asked = m->given > 0;
            say(s, c, (spill_event){.kind = SPILL_CLOSED, .segment = l.segment, .n = 0});
        }
        break;
    case SPILL_DO_TELL_GONE: *m = (mapping){0}; break;
    case SPILL_DO_WRITE:
    case SPILL_DO_READ:
    case SPILL_DO_CLOSE:
    case SPILL_DO_DROP_FILE:
    case SPILL_DO_END:
    default: SIM_CHECK(false);
    }
}

static void unpin(sim *s, int c, uint64_t g)
{
    mapping *m = &s->maps[c][g];

    if (m->pins == 0) return;
    if (--m->pins == 0 && m->asked) let_go(s, c, g);
}

static void finish_copy(sim *s, bool faults)
{
    if (s->n_copies == 0) return;
    int i = (int)below(s, (uint64_t)s->n_copies);
    uint64_t g = s->copies[i].segment;
    spill_kind kind = s->copies[i].kind;
    s->copies[i] = s->copies[--s->n_copies];
    bool ok = !faults || below(s, 30) > 0;
    s->copying[g] = false;
    if (kind == SPILL_WROTE) s->file[g] = ok;
    if (kind == SPILL_READ && !ok) {
        s->memory[g] = s->file[g] = false;
        s->lost[g] = true;
    }
    tell_book(s, (spill_event){.kind = kind, .segment = g, .ok = ok});
}

/* One thing that a client does of its own accord. */
static void live(sim *s, int c)
{
    /* The later ones are more likely to be there still. */
    uint64_t g = s->made ? s->made - below(s, s->made < 16 ? s->made : 16) : 0;
    switch (below(s, 8)) {
    case 0:
    case 1:
        if (s->asked_for[c] || s->made + 8 > SEGMENTS) break;
        s->asked_for[c] = ++s->requests;
        s->wants[c] = 0;
        say(s, c, (spill_event){.kind = SPILL_WANT, .request = s->requests, .size = 5 + below(s, 30)});
        break;
    case 2:
        if (s->asked_for[c] || !g || s->dropped[g]) break;
        if (s->maps[c][g].given > 0) { /* mapped here already */
            s->maps[c][g].pins++;
            break;
        }
        s->asked_for[c] = ++s->requests;
        s->wants[c] = g;
        say(s, c, (spill_event){.kind = SPILL_OPEN, .request = s->requests, .segment = g});
        break;
    case 3:
    case 4:
    case 5:
    case 6:
        for (uint64_t x = g; x > 0 && x + 40 > g; x--)
            if (s->maps[c][x].pins > 0 && below(s, 2) == 0) unpin(s, c, x);
        break;
    case 7: /* the last reference is gone; the daemon, not a client, finds out */
        if (!g || s->dropped[g] || below(s, 4) > 0) break;
        s->dropped[g] = true;
        tell_book(s, (spill_event){.kind = SPILL_DROP, .segment = g});
        break;
    default: break;
    }
}

static void turn(sim *s, bool faults)
{
    int c = (int)below(s, CLIENTS);

    clock_ns += (int64_t)below(s, below(s, 100) == 0 ? 500000000 : 1000000);
    switch (below(s, 12)) {
    case 0:
    case 1:
    case 2:
        if (!s->dead[c] && !s->paused[c]) read_one(s, c);
        break;
    case 3:
    case 4:
    case 5: hear(s, c); break;
    case 6: finish_copy(s, faults); break;
    case 7:
        if (faults && below(s, 400) == 0 && c > 0) s->dead[c] = true;
        if (s->dead[c] && !s->told[c] && s->to_first[c] == s->to_last[c]) {
            s->told[c] = true;
            memset(s->maps[c], 0, sizeof s->maps[c]);
            tell_book(s, (spill_event){.kind = SPILL_GONE, .client = (uint32_t)c + 1});
        }
        if (s->paused[c] ? below(s, 3) == 0 : faults && below(s, 30) == 0) s->paused[c] = !s->paused[c];
        break;
    case 8:
        if (spill_next(s->b) <= clock_ns) tell_book(s, (spill_event){.kind = SPILL_TICK});
        break;
    default:
        if (faults && !s->dead[c] && !s->paused[c]) live(s, c);
        break;
    }
}

static void run(uint64_t seed)
{
    static sim state;
    sim *s = &state;

    memset(s, 0, sizeof *s);
    s->seed = seed;
    s->key = rng_make(seed, 5);
    s->b = spill_new(MEMORY, DISK);
    clock_ns = 1;
    for (int i = 0; i < 5000; i++) turn(s, true);
    /* The faults end, everyone lets go: every request must get its answer. */
    for (int c = 0; c < CLIENTS; c++) s->paused[c] = false;
    for (int i = 0; i < 20000; i++) {
        bool open = s->n_copies > 0;
        for (int c = 0; c < CLIENTS; c++) {
            for (uint64_t g = 1; g <= s->made && !s->dead[c]; g++)
                while (s->maps[c][g].pins > 0) unpin(s, c, g);
            open = open || (!s->dead[c] && s->asked_for[c]) || (s->dead[c] && !s->told[c]) ||
                   s->to_first[c] < s->to_last[c] || (!s->dead[c] && s->from_first[c] < s->from_last[c]);
        }
        if (!open) break;
        turn(s, false);
    }
    for (int c = 0; c < CLIENTS; c++) SIM_CHECK(s->dead[c] || !s->asked_for[c]);
    SIM_CHECK(spill_use(s->b).waiting == 0);
    /* Nothing that was not dropped is gone. */
    for (uint64_t g = 1; g <= s->made; g++) {
        SIM_CHECK(s->dropped[g] || s->lost[g] || s->memory[g] || s->file[g]);
        if (!s->dropped[g]) tell_book(s, (spill_event){.kind = SPILL_DROP, .segment = g});
    }
    while (s->n_copies > 0) finish_copy(s, false);
    spill_usage u = spill_use(s->b);
    total_answers += (uint64_t)s->answers;
    total_written += u.written;
    total_read += u.read;
    SIM_CHECK(u.segments == 0 && u.memory == 0 && u.disk == 0 && u.on_disk == 0);
    spill_free(s->b);
}

static void any_order_of_events_keeps_the_rules(void **state)
{
    (void)state;
    sim_run(1000, run);
    /* The seeds did something. */
    if (!getenv("MANTA_SEED"))
        assert_true(total_answers > 30 * 1000 && total_written > 300 * 1000 && total_read > 50 * 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(the_oldest_leaves_and_comes_back, clear),
        cmocka_unit_test_teardown(who_waits_for_itself_is_refused_at_once, clear),
        cmocka_unit_test_teardown(who_waits_in_vain_shortens_the_wait_of_the_next, clear),
        cmocka_unit_test_teardown(those_that_wait_together_shorten_nobodys_wait_twice, clear),
        cmocka_unit_test_teardown(a_disk_that_is_full_or_broken, clear),
        cmocka_unit_test_teardown(any_order_of_events_keeps_the_rules, clear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
