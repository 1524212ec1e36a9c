/* Workers that are not held up between steps: who sees which step, that what is seen
 * is that step and nothing else, and a job that is cut short without new workers. */
#include <signal.h>

#include "base/clock.h"
#include "train/group/worker_step.h"
#include "train/group_fixture.h"

enum { BATCH = 6, STEPS = N / BATCH, HOUR_MS = 3600 * 1000 };

typedef struct viewer {
    int steps, validated; /* events of either kind */
    int64_t last; /* step of the epoch that was seen last */
    int births, departures, recovered;
    int64_t recovered_at; /* step */
    bool wrong; /* what was seen is not what was said */
    bool touches;
    int kill_at; /* step; 0: none */
    bool kills_second; /* when the second epoch begins */
    int64_t pid;
} viewer;

static bool view(void *user, manta_session *s, const manta_event *e)
{
    viewer *v = user;

    v->births += e->kind == MANTA_EVENT_WORKER;
    v->departures += e->kind == MANTA_EVENT_WORKER_LEFT;
    v->recovered += e->kind == MANTA_EVENT_RECOVERED;
    if (e->kind == MANTA_EVENT_RECOVERED) v->recovered_at = e->step;
    v->validated += e->kind == MANTA_EVENT_VALIDATE_STEP;
    if (e->kind == MANTA_EVENT_WORKER) v->pid = e->pid;
    if (e->kind == MANTA_EVENT_EPOCH_BEGIN) v->last = 0;
    if (e->kind == MANTA_EVENT_EPOCH_BEGIN && v->kills_second && e->epoch) kill((pid_t)v->pid, SIGKILL);
    if (e->kind != MANTA_EVENT_STEP) return true;
    v->wrong |= e->step <= v->last || e->samples != e->step * BATCH;
    v->wrong |= manta_session_iterations(s) != e->epoch * STEPS + e->step;
    v->last = e->step;
    v->steps++;
    if (v->touches)
        v->wrong |= manta_session_set_learning_rate(s, manta_session_learning_rate(s)) != MANTA_OK;
    if (v->kill_at && v->kill_at <= e->step) {
        kill((pid_t)v->pid, SIGKILL);
        v->kill_at = 0;
    }
    return true;
}

static const training small = {
    .shards = 2, .global_batch = BATCH, .epochs = 2, .validate = true, .hard = true};

/* Trains with two workers and compares with one process. */
static void train_viewed(training t, viewer *v)
{
    training alone = small;
    outcome golden = train(&alone), o;

    t.workers = 2;
    t.event = view;
    t.user = v;
    o = train(&t);
    assert_same_outcome(&golden, &o);
    assert_false(v->wrong);
    assert_int_equal(v->last, STEPS);
    assert_childless();
    mem_try_free(golden.state);
    mem_try_free(o.state);
}

static void every_step_is_seen_when_nothing_is_said(void **state)
{
    viewer v = {0};

    (void)state;
    train_viewed(small, &v);
    assert_int_equal(v.steps, 2 * STEPS);
    assert_int_equal(v.validated, 2 * STEPS);
}

/* Once an hour, and the last of each epoch. */
static void steps_are_not_held_up_for_who_looks_now_and_then(void **state)
{
    training t = small;
    viewer v = {0};

    (void)state;
    t.event_interval_ms = HOUR_MS;
    train_viewed(t, &v);
    assert_int_equal(v.steps, 2);
    assert_int_equal(v.validated, 2);
    assert_int_equal(v.births, 2);
}

/* Often: each is a step as it was committed, and may be changed. */
static void what_is_seen_is_one_step(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        training t = small;
        viewer v = {.touches = i % 2};
        t.event_interval_ms = 1;
        train_viewed(t, &v);
        assert_true(v.steps >= 2);
    }
}

/* A death is news: it is told although nobody is due to look for an hour. */
static void a_death_is_told_at_once(void **state)
{
    training t = small;
    viewer v = {.kills_second = true};

    (void)state;
    t.event_interval_ms = HOUR_MS;
    train_viewed(t, &v);
    assert_int_equal(v.recovered, 1);
}

/* And what makes up for it is told with the commit of the step that it held up, not a step
 * later: on a large model that would be as long as all the rest. */
static void what_makes_up_for_a_death_is_told_with_its_commit(void **state)
{
    enum { HELD_UP = 3 };
    const crash_plan death = {
        .point = &group_crash_points[GROUP_CRASH_SHARD_BEGIN], .rank = 1, .nth = HELD_UP + 1, .times = 1};

    (void)state;
    for (int i = 0; i < 5; i++) {
        training t = small;
        viewer v = {0};
        t.event_interval_ms = HOUR_MS;
        crash_plan_set(&death);
        train_viewed(t, &v);
        crash_plan_set(NULL);
        assert_int_equal(v.recovered, 1);
        assert_int_equal(v.recovered_at, HELD_UP);
    }
}

/* ---- callbacks ---- */

static manta_status count_batch(void *self, manta_fit_context *f)
{
    (void)f;
    ++*(int *)self;
    return MANTA_OK;
}

static bool no(void *self)
{
    (void)self;
    return false;
}

static void hooks_of_batches_see_every_step(void **state)
{
    static const manta_callback_ops needs = {.name = "needs", .train_batch_end = count_batch},
                                    idle = {.name = "idle",
                                            .train_batch_end = count_batch,
                                            .needs_batches = no},
                                    epochs = {.name = "epochs", .epoch_end = count_batch};
    static const struct {
        const manta_callback_ops *ops;
        int calls, seen;
    } cases[] = {{&needs, 2 * STEPS, 2 * STEPS}, {&idle, 2, 2}, {&epochs, 2, 2}};

    (void)state;
    for (int i = 0; i < 3; i++) {
        int calls = 0;
        manta_callback *c = manta_callback_new(cases[i].ops, &calls);
        training t = small;
        viewer v = {0};
        t.event_interval_ms = HOUR_MS;
        t.callback = c;
        train_viewed(t, &v);
        assert_int_equal(calls, cases[i].calls);
        assert_int_equal(v.steps, cases[i].seen);
        manta_callback_free(c);
    }
}

/* ---- a job that is cut short ---- */

static manta_status stop_fifth(void *self, manta_fit_context *f)
{
    (void)self;
    if (manta_fit_context_batch(f) == 4) manta_fit_context_stop(f, "it is enough");
    return MANTA_OK;
}

/* The epoch ends after five steps; validation is the same workers', also when one of
 * them dies meanwhile. */
static void who_is_stopped_early_validates_with_the_same_workers(void **state)
{
    static const manta_callback_ops ops = {.name = "stopper", .train_batch_end = stop_fifth};
    manta_callback *c = manta_callback_new(&ops, NULL);

    (void)state;
    for (int dies = 0; dies < 2; dies++) {
        viewer v = {.kill_at = dies ? 5 : 0};
        training t = small;
        outcome golden, o;
        t.callback = c;
        golden = train(&t);
        assert_ok(golden.st);
        t.workers = 2;
        t.event = view;
        t.user = &v;
        o = train(&t);
        assert_same_outcome(&golden, &o);
        assert_int_equal(v.last, 5);
        assert_int_equal(v.steps, 5);
        assert_int_equal(v.births, 2 + dies);
        assert_int_equal(v.validated, STEPS);
        assert_false(v.wrong);
        assert_childless();
        mem_try_free(golden.state);
        mem_try_free(o.state);
    }
    manta_callback_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_step_is_seen_when_nothing_is_said),
        cmocka_unit_test(steps_are_not_held_up_for_who_looks_now_and_then),
        cmocka_unit_test(what_is_seen_is_one_step),
        cmocka_unit_test(a_death_is_told_at_once),
        cmocka_unit_test(what_makes_up_for_a_death_is_told_with_its_commit),
        cmocka_unit_test(hooks_of_batches_see_every_step),
        cmocka_unit_test(who_is_stopped_early_validates_with_the_same_workers),
    };

    return cmocka_run_group_tests(tests, data_and_key, remove_key);
}
