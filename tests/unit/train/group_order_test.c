/* The step under every order of events: the turns of worker_step.c and the membership of
 * the controller, the very code, run in one process, one move at a time. From
 * every state every worker may move or die, and the controller may notice a
 * death and keep what the dead one had or deal it out, hear of a successor or of
 * somebody who has nothing to do, let the next step pass, or ask for one worker
 * less or more; all orders are tried.
 *
 * Work is done in two moves, the first of which leaves garbage, so that a death
 * in between leaves something torn. A shard is a function of the committed buffer
 * and the step, a range of all slots; what they must be is computed beforehand.
 *
 * Checked: whatever is committed is right, to the last word; and from every
 * state the job comes to its end (a state in which nobody can move before that
 * is a hang; a worker that waits can move only when the wake word has changed). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/mem.h"
#include "train/group/group_membership.h"
#include "train/group/worker_step.h"

enum { MOST = 3, GARBAGE = 0xdead };

/* ---- the world: everything that can differ between two states ---- */

typedef enum place { NEXT, WORK_HALF, WORK, DONE, TELL, ASLEEP, DEAD, BURIED, GONE } place;

typedef struct worker {
    place at;
    worker_action what;
    int item;
    uint32_t seen;
    uint64_t read[MOST]; /* slots as they were read, half-way */
} worker;

/* What is done with the work of the dead: both are tried, unless one is named. */
typedef enum legacy { EITHER, DEALT, KEPT } legacy;

typedef struct setting {
    int workers, shards, deaths, resizes;
    int64_t steps;
    bool norms, gated, touch;
    legacy legacy;
} setting;

typedef struct world {
    uint64_t buffer[2][MOST]; /* a value per range */
    uint64_t slot[MOST];
    uint64_t norm[MOST];
    worker w[MOST];
    int deaths, resizes; /* still allowed */
    bool touched;
    int64_t told; /* steps the controller has let pass */
} world;

static setting set;
static world now;
static control *c;
static membership r;
static worker_step turn[MOST];

/* ---- what is computed ---- */

static uint64_t mix(uint64_t a, uint64_t b)
{
    return hash_u64(a * 31 + b) | 1; /* never garbage's even number */
}

static uint64_t shard_value(const uint64_t *buffer, int shard, int64_t number)
{
    uint64_t v = mix((uint64_t)number, (uint64_t)shard);

    for (int i = 0; i < set.workers; i++) v = mix(v, buffer[i]);
    return v;
}

static uint64_t range_value(const uint64_t *slots, const uint64_t *norms, int range)
{
    uint64_t v = (uint64_t)range;

    for (int i = 0; i < set.shards; i++) v = mix(v, slots[i]);
    for (int i = 0; set.norms && i < set.workers; i++) v = mix(v, norms[i]);
    return v;
}

static uint64_t norm_value(const uint64_t *slots, int range)
{
    uint64_t v = (uint64_t)range + 100;

    for (int i = 0; i < set.shards; i++) v = mix(v, slots[i]);
    return v;
}

/* The buffer after a step, from the one before. */
static void right_step(const uint64_t *buffer, int64_t number, uint64_t *next)
{
    uint64_t slots[MOST] = {0}, norms[MOST] = {0};

    for (int v = 0; v < set.shards; v++) slots[v] = shard_value(buffer, v, number);
    for (int i = 0; i < set.workers; i++) norms[i] = norm_value(slots, i);
    for (int i = 0; i < set.workers; i++) next[i] = range_value(slots, norms, i);
}

/* ---- moves of a worker ---- */

static int buffer_now(const worker_step *t)
{
    return word_buffer(t->word);
}

static void work_half(int k)
{
    worker *w = &now.w[k];

    memcpy(w->read, now.slot, sizeof now.slot);
    if (w->what == WORKER_SHARD) now.slot[w->item] = GARBAGE;
    if (w->what == WORKER_NORMS) now.norm[w->item] = GARBAGE;
    if (w->what == WORKER_UPDATE) now.buffer[1 - buffer_now(&turn[k])][w->item] = GARBAGE;
    w->at = WORK;
}

/* Half of what is read was read before, half now: torn if it changed. */
static void work(int k)
{
    worker *w = &now.w[k];
    const worker_step *t = &turn[k];

    for (int v = set.shards / 2; v < set.shards; v++) w->read[v] = now.slot[v];
    if (w->what == WORKER_SHARD)
        now.slot[w->item] = shard_value(now.buffer[buffer_now(t)], w->item, worker_step_number(t));
    if (w->what == WORKER_NORMS) now.norm[w->item] = norm_value(w->read, w->item);
    if (w->what == WORKER_UPDATE)
        now.buffer[1 - buffer_now(t)][w->item] = range_value(w->read, now.norm, w->item);
    memset(w->read, 0, sizeof w->read);
    w->at = DONE;
}

static void check_commit(const worker_step *t)
{
    uint64_t next[MOST] = {0};
    int old = buffer_now(t);

    if (set.gated && worker_step_number(t) >= now.told) fail_msg("a step was committed that nobody let pass");
    right_step(now.buffer[old], worker_step_number(t), next);
    for (int i = 0; i < set.workers; i++) {
        if (now.buffer[1 - old][i] != next[i])
            fail_msg("step %d: range %d was committed wrong", (int)worker_step_number(t), i);
    }
}

static void next(int k)
{
    worker *w = &now.w[k];

    w->seen = atomic_load(&c->wake);
    w->item = 0;
    w->what = worker_step_next(&turn[k], &w->item);
    switch (w->what) {
    case WORKER_WAIT: /* as worker_main.c does */
        if (worker_step_sees_vacancy(&turn[k])) c->worker[k].idle = word_generation(turn[k].word);
        w->at = ASLEEP;
        break;
    case WORKER_COMMITTED:
        check_commit(&turn[k]);
        w->at = TELL;
        break;
    case WORKER_SHARD:
    case WORKER_NORMS:
    case WORKER_UPDATE: w->at = WORK_HALF; break;
    case WORKER_LEAVE:
        if (r.state[k] != MEMBERSHIP_LEAVING) fail_msg("a worker left that has a place");
        w->at = DEAD;
        break;
    }
}

static bool can_move(int k)
{
    const worker *w = &now.w[k];

    if (w->at >= DEAD) return false;
    return w->at != ASLEEP || atomic_load(&c->wake) != w->seen;
}

static void move(int k)
{
    worker *w = &now.w[k];

    switch (w->at) {
    case NEXT:
    case ASLEEP: next(k); break;
    case WORK_HALF: work_half(k); break;
    case WORK: work(k); break;
    case DONE:
        (void)worker_step_done(&turn[k], w->what, w->item);
        w->at = NEXT;
        break;
    case TELL:
        control_wake(c);
        w->at = NEXT;
        break;
    case DEAD:
    case BURIED:
    case GONE: break;
    }
}

/* ---- moves of the controller ---- */

/* As group.c does: whoever has no place any more may end. */
static void settle(void)
{
    bool any = false;

    membership_settle(&r);
    for (int k = 0; k < set.workers; k++) {
        bool idle = r.state[k] == MEMBERSHIP_LEAVING || (r.state[k] == MEMBERSHIP_READY && r.unwanted[k]);
        if (!idle || c->worker[k].dismissed) continue;
        r.state[k] = MEMBERSHIP_LEAVING;
        c->worker[k].dismissed = 1;
        any = true;
    }
    if (any) control_wake(c);
}

/* Fills the place when it is wanted. */
static void start(int k)
{
    if (r.unwanted[k] || now.w[k].at != GONE) return;
    c->worker[k].dismissed = 0;
    r.state[k] = MEMBERSHIP_STARTING;
    now.w[k] = (worker){.at = BURIED};
}

/* The last place is to be emptied, or to be filled again. */
static void wish(int k)
{
    now.resizes--;
    r.unwanted[k] = !r.unwanted[k];
    settle();
    start(k);
}

static void bury(int k, bool keeps)
{
    membership_remove(&r, k, keeps && !r.unwanted[k]);
    now.w[k] = (worker){.at = GONE};
    start(k);
}

static void succeed(int k)
{
    r.state[k] = MEMBERSHIP_READY;
    worker_step_init(&turn[k], c, k);
    now.w[k] = (worker){.at = NEXT};
    settle();
}

static bool can_settle(void)
{
    for (int k = 0; k < set.workers; k++) {
        if (r.state[k] == MEMBERSHIP_READY && !r.unwanted[k] && !r.staged) return true;
        if (r.state[k] == MEMBERSHIP_LEAVING && !c->worker[k].dismissed) return true;
    }
    return r.staged && word_generation(atomic_load(&c->commit)) == r.staged;
}

static bool can_pass(void)
{
    return set.gated && word_step_number(atomic_load(&c->commit)) == now.told && now.told < set.steps;
}

/* The caller has looked at the step, and may have changed the state. */
static void pass(bool touch)
{
    if (touch) {
        uint64_t word = atomic_load(&c->commit);
        now.buffer[word_buffer(word)][0] = mix(now.buffer[word_buffer(word)][0], 77);
        now.touched = true;
        membership_touch(&r);
    }
    now.told++;
    atomic_store(&c->allowed, now.told);
    control_wake(c);
}

static bool is_over(void)
{
    return word_step_number(atomic_load(&c->commit)) == set.steps;
}

/* ---- keeping and comparing states ---- */

typedef struct kept_turn {
    uint64_t word;
    uint32_t base;
    uint16_t active[MOST], shard[MOST], range[MOST];
    bool open, train;
    train_position at;
    worker_mark marks[3][MOST];
} kept_turn;

typedef struct kept {
    world w;
    uint64_t commit, flags[3][MOST];
    uint32_t wake, staged;
    int64_t allowed;
    kept_turn turn[MOST];
    membership_state state[MOST];
    bool unwanted[MOST], dismissed[MOST], keeps;
    uint32_t idle[MOST];
    uint32_t generations, membership_staged, base;
    struct {
        uint32_t base;
        uint16_t active[MOST], shard[MOST], range[MOST];
    } assignment[SHARED_ASSIGNMENTS];
} kept;

#define EACH(i) for (int i = 0; i < MOST; i++)

static void keep(kept *k)
{
    memset(k, 0, sizeof *k);
    k->w = now;
    k->commit = c->commit;
    k->wake = c->wake;
    k->staged = c->staged;
    k->allowed = c->allowed;
    k->generations = r.generations;
    k->membership_staged = r.staged;
    k->base = r.base;
    k->keeps = r.keeps;
    EACH(i)
    {
        const worker_step *t = &turn[i];
        kept_turn *to = &k->turn[i];
        k->flags[0][i] = c->shard_flag[i];
        k->flags[1][i] = c->norm_flag[i];
        k->flags[2][i] = c->range_flag[i];
        k->state[i] = r.state[i];
        k->unwanted[i] = r.unwanted[i];
        k->dismissed[i] = c->worker[i].dismissed;
        k->idle[i] = c->worker[i].idle;
        to->word = t->word;
        to->base = t->t.base;
        to->open = t->open;
        to->train = t->train;
        to->at = t->at;
        EACH(j)
        {
            to->active[j] = t->t.active[j];
            to->shard[j] = t->t.shard[j];
            to->range[j] = t->t.range[j];
            to->marks[0][j].number = t->shard[j].number;
            to->marks[0][j].base = t->shard[j].base;
            to->marks[1][j].number = t->norm[j].number;
            to->marks[1][j].base = t->norm[j].base;
            to->marks[2][j].number = t->range[j].number;
            to->marks[2][j].base = t->range[j].base;
        }
    }
    for (int g = 0; g < SHARED_ASSIGNMENTS; g++) {
        k->assignment[g].base = r.assignments[g].base;
        EACH(j)
        {
            k->assignment[g].active[j] = r.assignments[g].active[j];
            k->assignment[g].shard[j] = r.assignments[g].shard[j];
            k->assignment[g].range[j] = r.assignments[g].range[j];
        }
    }
}

static void put_back(const kept *k)
{
    now = k->w;
    c->commit = k->commit;
    c->wake = k->wake;
    c->staged = k->staged;
    c->allowed = k->allowed;
    r.generations = k->generations;
    r.staged = k->membership_staged;
    r.base = k->base;
    r.keeps = k->keeps;
    EACH(i)
    {
        worker_step *t = &turn[i];
        const kept_turn *from = &k->turn[i];
        c->shard_flag[i] = k->flags[0][i];
        c->norm_flag[i] = k->flags[1][i];
        c->range_flag[i] = k->flags[2][i];
        r.state[i] = k->state[i];
        r.unwanted[i] = k->unwanted[i];
        c->worker[i].dismissed = k->dismissed[i];
        c->worker[i].idle = k->idle[i];
        t->word = from->word;
        t->t.base = from->base;
        t->open = from->open;
        t->train = from->train;
        t->at = from->at;
        EACH(j)
        {
            t->t.active[j] = from->active[j];
            t->t.shard[j] = from->shard[j];
            t->t.range[j] = from->range[j];
            t->shard[j] = from->marks[0][j];
            t->norm[j] = from->marks[1][j];
            t->range[j] = from->marks[2][j];
        }
    }
    for (int g = 0; g < SHARED_ASSIGNMENTS; g++) {
        assignment t = {.base = k->assignment[g].base};
        EACH(j)
        {
            t.active[j] = k->assignment[g].active[j];
            t.shard[j] = k->assignment[g].shard[j];
            t.range[j] = k->assignment[g].range[j];
        }
        r.assignments[g] = t;
        control_put_assignment(c, (uint32_t)g, &t);
    }
}

/* Numbers that only ever grow (generations, the wake word) would make every state
 * a new one; what matters of them is which are equal to the present one. Whether
 * work is kept, and who asks for it, matters while there is some. */
static uint64_t fingerprint(const kept *k)
{
    kept f = *k;
    uint32_t g = word_generation(f.commit);

    f.keeps &= assignment_is_vacant(&r.assignments[g % SHARED_ASSIGNMENTS], set.workers, set.shards);
    EACH(i) f.idle[i] = f.keeps && f.idle[i] == g;

    f.wake = 0;
    EACH(i) f.w.w[i].seen = f.w.w[i].at == ASLEEP && f.w.w[i].seen != k->wake;
    f.generations -= g;
    if (f.staged) f.staged -= g;
    if (f.membership_staged) f.membership_staged -= g;
    for (int i = 0; i < SHARED_ASSIGNMENTS; i++) {
        f.assignment[i] = k->assignment[(g + (uint32_t)i) % SHARED_ASSIGNMENTS];
    }
    EACH(i)
    {
        uint64_t *words[] = {&f.flags[0][i], &f.flags[1][i], &f.flags[2][i], &f.turn[i].word};
        for (int j = 0; j < 4; j++) {
            uint32_t back = g - word_generation(*words[j]);
            if (*words[j])
                *words[j] =
                    word_of(back > 3 ? 3 : back, word_step_number(*words[j]), word_buffer(*words[j])) + 1;
        }
    }
    f.commit = word_of(0, word_step_number(f.commit), word_buffer(f.commit));
    return hash_bytes(&f, sizeof f, 7);
}

/* A set of fingerprints, open addressing. */
static uint64_t *visited;
static size_t n_visited, visited_size;

static bool is_new(uint64_t h)
{
    size_t i = (h | 1) % visited_size;

    for (h |= 1; visited[i]; i = (i + 1) % visited_size) {
        if (visited[i] == h) return false;
    }
    visited[i] = h;
    assert_true(++n_visited < visited_size / 2);
    return true;
}

/* ---- every order ---- */

static void explore(int depth);

/* Tries one move and what follows from it, then comes back. */
#define TRY_MOVE(call)                                                                                       \
    do {                                                                                                     \
        call;                                                                                                \
        moves++;                                                                                             \
        explore(depth + 1);                                                                                  \
        put_back(&here);                                                                                     \
    } while (0)

static void explore(int depth)
{
    kept here;
    int moves = 0;

    keep(&here);
    if (!is_new(fingerprint(&here))) return;
    if (is_over()) return;
    assert_true(depth < 2000);
    for (int k = 0; k < set.workers; k++) {
        if (can_move(k)) TRY_MOVE(move(k));
        if (now.w[k].at == DEAD && set.legacy != KEPT) TRY_MOVE(bury(k, false));
        if (now.w[k].at == DEAD && set.legacy != DEALT) TRY_MOVE(bury(k, true));
        if (now.w[k].at == BURIED) TRY_MOVE(succeed(k));
    }
    if (can_settle()) TRY_MOVE(settle());
    if (membership_is_asked(&r)) TRY_MOVE(membership_deal(&r));
    if (can_pass()) TRY_MOVE(pass(false));
    if (can_pass() && set.touch && !now.touched) TRY_MOVE(pass(true));
    if (!moves) fail_msg("everybody waits, after %d moves", depth);
    for (int k = 0; now.deaths && k < set.workers; k++) {
        if (now.w[k].at >= DEAD) continue;
        TRY_MOVE((now.deaths--, now.w[k].at = DEAD));
    }
    if (now.resizes) TRY_MOVE(wish(set.workers - 1));
}

static void every_order(setting s)
{
    set = s;
    memset(&now, 0, sizeof now);
    now.deaths = s.deaths;
    now.resizes = s.resizes;
    c = mem_new(sizeof *c);
    control_init(c, s.workers, s.shards, s.norms);
    membership_init(&r, c);
    for (int k = 0; k < s.workers; k++) {
        r.state[k] = MEMBERSHIP_READY;
        worker_step_init(&turn[k], c, k);
        now.buffer[0][k] = (uint64_t)(2 * k + 1);
    }
    membership_settle(&r);
    r.end = s.steps;
    c->job.train = true;
    c->allowed = s.gated ? 0 : s.steps;
    c->job.end = s.steps;
    visited_size = getenv("ORDER_ALL") ? 1 << 25 : 1 << 22;
    visited = mem_try(visited_size * sizeof *visited);
    n_visited = 0;
    explore(0);
    print_message("%d workers, %d shards, %d steps, %d deaths, %d wishes%s%s%s: %zu states\n", s.workers,
                  s.shards, (int)s.steps, s.deaths, s.resizes, s.norms ? ", norms" : "",
                  s.gated ? ", gated" : "", s.touch ? ", touched" : "", n_visited);
    mem_try_free(visited);
    mem_free(c);
}

/* ORDER_ALL=1 tries both throughout: ten million states, half a minute. */
static legacy only(legacy l)
{
    return getenv("ORDER_ALL") ? EITHER : l;
}

static void two_workers(void **state)
{
    (void)state;
    every_order((setting){.workers = 2, .shards = 2, .steps = 2, .deaths = 2});
    every_order((setting){.workers = 2, .shards = 3, .steps = 2, .deaths = 2, .legacy = only(DEALT)});
    every_order((setting){.workers = 2, .shards = 3, .steps = 2, .deaths = 1});
    every_order(
        (setting){.workers = 2, .shards = 2, .steps = 2, .deaths = 2, .norms = true, .legacy = only(DEALT)});
    every_order((setting){.workers = 2, .shards = 2, .steps = 2, .deaths = 1, .norms = true});
    every_order((setting){.workers = 2, .shards = 2, .steps = 3, .deaths = 1, .gated = true});
    every_order((setting){.workers = 2,
                          .shards = 2,
                          .steps = 2,
                          .deaths = 1,
                          .gated = true,
                          .touch = true,
                          .legacy = only(KEPT)});
}

/* A worker is asked to leave, and to come again. */
static void they_come_and_go(void **state)
{
    (void)state;
    every_order((setting){.workers = 2, .shards = 2, .steps = 3, .resizes = 2});
    every_order((setting){.workers = 2, .shards = 2, .steps = 2, .resizes = 2, .deaths = 1});
    every_order((setting){.workers = 2, .shards = 2, .steps = 2, .resizes = 3, .gated = true});
}

static void three_workers(void **state)
{
    (void)state;
    every_order((setting){.workers = 3, .shards = 3, .steps = 2, .deaths = 1});
    every_order((setting){.workers = 3, .shards = 3, .steps = 1, .deaths = 2, .legacy = only(DEALT)});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_workers),
        cmocka_unit_test(they_come_and_go),
        cmocka_unit_test(three_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
