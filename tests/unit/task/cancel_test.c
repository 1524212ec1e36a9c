/* cancel_test.c - cancelling calls that call others, by hand and simulated. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "base/vec.h"
#include "task/cancel.h"
#include "sim.h"

static void by_hand(void **state)
{
    (void)state;
    assert_int_equal(cancel_made(true, true, false, 0), CANCEL_NOTHING);
    assert_int_equal(cancel_made(false, false, true, MANTA_CANCEL_FORCE), CANCEL_ABANDON);
    assert_int_equal(cancel_made(false, true, true, MANTA_CANCEL_FORCE), CANCEL_REFUSE);
    assert_int_equal(cancel_made(false, true, false, MANTA_CANCEL_FORCE), CANCEL_TELL);
    cancel_heard h = cancel_told(true, false, 0);
    assert_true(h.answer && !h.mark && !h.close && !h.spread);
    h = cancel_told(false, true, 0);
    assert_true(!h.answer && h.mark && h.close && h.spread);
    h = cancel_told(false, true, MANTA_CANCEL_ALONE);
    assert_true(!h.answer && h.mark && !h.close && !h.spread);
    h = cancel_told(false, false, 0); /* it has ended meanwhile */
    assert_true(!h.answer && !h.mark && !h.close && !h.spread);
}

/* ---- the simulation ----
 *
 * Processes make calls, send them, run them, and answer; some calls end only
 * when they are told to. Calls and answers travel through rings, cancels by way
 * of the daemon, each as slowly as it likes. Held always: a call has one
 * outcome. In the end, when the roots have been cancelled, every call has ended;
 * none was made by a call that had been told to make no more; and those that
 * would have run for ever were cancelled. */

enum { PROCESSES = 5 };

typedef enum where { MADE, IN_RING, QUEUED, RUNNING, ANSWERED, ENDED } where;

typedef struct task {
    int parent; /* -1: the driver's */
    int maker, worker; /* processes */
    where at;
    bool unyielding; /* ends only when it is told */
    bool cancelled, closed; /* as its worker knows */
    bool answer_cancelled;
    int outcomes; /* that its maker was given */
    bool was_cancelled; /* the outcome */
} task;

typedef struct told {
    int task, worker;
} told;

typedef struct world {
    VEC(task) tasks;
    VEC(told) cancels; /* on their way, in order for each worker */
    rng_key key;
    uint64_t at;
} world;

static uint64_t below(world *w, uint64_t n)
{
    return rng_below(w->key, w->at++, n);
}

static void outcome(task *t, bool cancelled)
{
    t->at = ENDED;
    t->outcomes++;
    t->was_cancelled = cancelled;
}

/* The maker's side of a cancel. */
static void cancel(world *w, int id)
{
    task *t = &w->tasks.at[id];
    bool ended = t->at == ENDED;

    switch (cancel_made(ended, t->at != MADE, false, 0)) {
    case CANCEL_ABANDON: outcome(t, true); break;
    case CANCEL_TELL: vec_push(&w->cancels, ((told){.task = id, .worker = t->worker})); break;
    case CANCEL_REFUSE: fail_msg("refused"); break;
    case CANCEL_NOTHING: break;
    }
}

/* The worker's side. */
static void hear(world *w, told c)
{
    for (size_t i = 0; i < w->tasks.n; i++) /* rule 1 */
        if (w->tasks.at[i].worker == c.worker && w->tasks.at[i].at == IN_RING) w->tasks.at[i].at = QUEUED;
    task *t = &w->tasks.at[c.task];
    cancel_heard h = cancel_told(t->at == QUEUED, t->at == RUNNING, 0);
    assert_true(h.answer || h.mark || t->at == ANSWERED || t->at == ENDED); /* it did not overtake */
    if (h.answer) {
        t->at = ANSWERED;
        t->answer_cancelled = true;
    }
    if (h.mark) t->cancelled = true;
    if (h.close) t->closed = true;
    size_t n = w->tasks.n;
    for (size_t i = 0; i < n && h.spread; i++)
        if (w->tasks.at[i].parent == c.task) cancel(w, (int)i);
}

/* The first cancel for some worker: they keep their order. */
static void hear_one(world *w)
{
    if (w->cancels.n == 0) return;
    size_t pick = (size_t)below(w, w->cancels.n);
    for (size_t i = 0; i < pick; i++)
        if (w->cancels.at[i].worker == w->cancels.at[pick].worker) pick = i;
    told c = w->cancels.at[pick];
    vec_remove(&w->cancels, pick);
    hear(w, c);
}

static void make(world *w, int parent)
{
    int maker = parent < 0 ? 0 : w->tasks.at[parent].worker;

    if (parent >= 0) {
        const task *p = &w->tasks.at[parent];
        if (p->at != RUNNING || p->closed) return; /* rule 2 */
    }
    vec_push(&w->tasks, ((task){.parent = parent, .maker = maker, .unyielding = below(w, 3) == 0}));
}

static void move_on(world *w, int id)
{
    task *t = &w->tasks.at[id];

    switch (t->at) {
    case MADE:
        t->worker = 1 + (int)below(w, PROCESSES - 1);
        t->at = IN_RING;
        break;
    case IN_RING: t->at = QUEUED; break;
    case QUEUED: t->at = RUNNING; break;
    case RUNNING: /* it waits for its own calls, unless it is told not to */
        for (size_t i = 0; i < w->tasks.n && !t->cancelled; i++)
            if (w->tasks.at[i].parent == id && w->tasks.at[i].at != ENDED) return;
        if (t->unyielding && !t->cancelled) return;
        t->at = ANSWERED;
        t->answer_cancelled = t->cancelled;
        break;
    case ANSWERED: outcome(t, t->answer_cancelled); break;
    case ENDED: break;
    }
}

static void run(uint64_t seed)
{
    world w = {.key = rng_make(seed, 21)};

    for (int turn = 0; turn < 400; turn++) {
        int id = w.tasks.n ? (int)below(&w, w.tasks.n) : -1;
        switch (below(&w, 10)) {
        case 0: make(&w, -1); break;
        case 1:
        case 2:
            if (id >= 0 && w.tasks.n < 60) make(&w, id);
            break;
        case 3:
            if (id >= 0 && below(&w, 8) == 0) cancel(&w, id);
            break;
        case 4: hear_one(&w); break;
        default:
            if (id >= 0) move_on(&w, id);
            break;
        }
    }
    /* Liveness: the driver cancels all it has made; calls that were not told may
     * still make others for a while. */
    size_t n = w.tasks.n;
    for (size_t i = 0; i < n; i++)
        if (w.tasks.at[i].parent < 0) cancel(&w, (int)i);
    for (int turn = 0; turn < 20000; turn++) {
        bool all = w.cancels.n == 0;
        for (size_t i = 0; i < w.tasks.n; i++) all = all && w.tasks.at[i].at == ENDED;
        if (all) break;
        int id = (int)below(&w, w.tasks.n);
        if (below(&w, 4) == 0)
            hear_one(&w);
        else if (turn < 2000 && below(&w, 10) == 0 && w.tasks.n < 120)
            make(&w, id);
        else
            move_on(&w, id);
    }
    for (size_t i = 0; i < w.tasks.n; i++) {
        const task *t = &w.tasks.at[i];
        if (t->at != ENDED)
            fail_msg("seed %llu: call %zu of %zu never ended (%d)", (unsigned long long)seed, i, w.tasks.n,
                     (int)t->at);
        assert_int_equal(t->outcomes, 1);
        if (t->unyielding) assert_true(t->was_cancelled);
    }
    vec_release(&w.tasks);
    vec_release(&w.cancels);
}

static void simulated(void **state)
{
    (void)state;
    sim_run(1000, run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_hand),
        cmocka_unit_test(simulated),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
