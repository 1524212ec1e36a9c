/* fit_events.c - events and hooks of a fit. */
#include "train/fit/fit_events.h"

#include <string.h>

#include "base/clock.h"

manta_status fit_options_check(const manta_fit_options *o)
{
    if (o->n_callbacks < 0 || (o->n_callbacks && !o->callbacks))
        return manta_fail(MANTA_EINVAL, "fit: %d callbacks at %s, expected 0 or more, and an array of them",
                          o->n_callbacks, o->callbacks ? "an address" : "NULL");
    for (int i = 0; i < o->n_callbacks; i++)
        if (!o->callbacks[i] || !o->callbacks[i]->ops)
            return manta_fail(MANTA_EINVAL, "fit: callback %d of %d is NULL", i, o->n_callbacks);
    if (o->n_classes < 0 || (o->n_classes && !o->class_weight))
        return manta_fail(MANTA_EINVAL,
                          "fit: weights of %d classes at %s, expected 0 or more, and an array of them",
                          o->n_classes, o->class_weight ? "an address" : "NULL");
    if (o->validation_steps < 0 || o->validation_batch < 0)
        return manta_fail(MANTA_EINVAL,
                          "fit: validation_steps is %lld and validation_batch %lld, expected 0 or more",
                          (long long)o->validation_steps, (long long)o->validation_batch);
    if (o->event_interval_ms < 0)
        return manta_fail(MANTA_EINVAL, "fit: event_interval_ms is %lld, expected 0 or more",
                          (long long)o->event_interval_ms);
    return MANTA_OK;
}

void fit_events_init(fit_events *t, manta_session *s, const manta_fit_options *o)
{
    *t = (fit_events){.o = o, .s = s, .prefix = "", .begin_ns = clock_now_ns()};
    fit_context_init(&t->f, s, o);
    t->f.logs = &t->metrics;
}

bool fit_events_tell(fit_events *t, manta_event_kind kind)
{
    t->e.kind = kind;
    t->e.metrics = &t->metrics;
    t->e.seconds = (double)(clock_now_ns() - t->begin_ns) / 1e9;
    if (kind == MANTA_EVENT_STEP)
        t->e.samples_per_s = t->e.seconds > 0 ? (double)t->e.samples / t->e.seconds : 0;
    return !t->o->event || t->o->event(t->o->user, t->s, &t->e);
}

manta_status fit_events_stopped(const fit_events *t)
{
    return manta_fail(MANTA_ECANCELLED, "stopped on request after step %lld of epoch %lld",
                      (long long)t->e.step, (long long)t->e.epoch + 1);
}

manta_status fit_events_happen(fit_events *t, fit_hook h, manta_event_kind kind)
{
    bool on;

    t->f.epoch = t->e.epoch;
    t->f.steps = t->e.steps;
    TRY(fit_context_run(&t->f, h));
    t->e.stopped = t->f.stop;
    on = fit_events_tell(t, kind);
    TRY(fit_context_settle(&t->f));
    return on ? MANTA_OK : fit_events_stopped(t);
}

manta_status fit_events_begin_batch(fit_events *t, fit_hook h, int64_t step)
{
    t->f.batch = step;
    t->f.epoch = t->e.epoch;
    t->f.steps = t->e.steps;
    return fit_context_run(&t->f, h);
}

/* ---- for engines ---- */

void fit_events_see(fit_events *t, const double *sums)
{
    t->e.samples = (int64_t)sums[SUM_SAMPLES];
    memset(&t->metrics, 0, sizeof t->metrics);
    session_metrics_of(t->s, sums, "", &t->metrics);
}

static manta_status see_begin(void *ctx, plan_mode mode, int64_t step)
{
    return fit_events_begin_batch(ctx, mode == PLAN_TRAIN ? HOOK_train_batch_begin : HOOK_test_batch_begin,
                                  step);
}

static manta_status see_trained(fit_events *t, int64_t step)
{
    fit_events_see(t, session_sums(t->s));
    t->f.next = (train_position){.epoch = t->e.epoch, .step = step + 1};
    return fit_events_happen(t, HOOK_train_batch_end, MANTA_EVENT_STEP);
}

static manta_status see_evaluated(fit_events *t)
{
    const double *sums = t->s->eval_sums;

    t->e.samples = (int64_t)sums[SUM_SAMPLES];
    if (!*t->prefix) fit_events_see(t, sums);
    return fit_events_happen(t, HOOK_test_batch_end, MANTA_EVENT_VALIDATE_STEP);
}

static manta_status see_done(void *ctx, plan_mode mode, int64_t step)
{
    fit_events *t = ctx;

    t->e.step = step + 1;
    t->f.batch = step;
    return mode == PLAN_TRAIN ? see_trained(t, step) : see_evaluated(t);
}

/* Whether anybody must see every step: the event function, unless it sees steps now and
 * then (event_interval_ms), or a callback that has hooks for batches and needs them. */
static bool see_every_step(void *ctx, plan_mode mode)
{
    const fit_events *t = ctx;
    bool train = mode == PLAN_TRAIN;

    if (t->o->event && t->o->event_interval_ms <= 0) return true;
    if (t->f.stop) return true; /* it ends after the first step that is seen */
    return fit_context_needs(&t->f, train ? HOOK_train_batch_begin : HOOK_test_batch_begin) ||
           fit_context_needs(&t->f, train ? HOOK_train_batch_end : HOOK_test_batch_end);
}

static int64_t see_next_look(void *ctx)
{
    const manta_fit_options *o = ((const fit_events *)ctx)->o;

    return o->event ? clock_deadline(o->event_interval_ms) : CLOCK_NEVER;
}

static void see_reached(void *ctx, int64_t step)
{
    ((fit_events *)ctx)->e.step = step;
}

static bool see_stops(void *ctx)
{
    return ((const fit_events *)ctx)->f.stop != NULL;
}

static void see_stop(void *ctx, const char *why)
{
    manta_fit_context_stop(&((fit_events *)ctx)->f, why);
}

/* An event of a process; false: the program wants to stop. */
static bool tell_process(fit_events *t, manta_event_kind kind, const worker_event *e, const char *cause)
{
    bool on;

    t->e.rank = e->rank;
    t->e.server = e->server;
    t->e.pid = e->pid;
    t->e.ms = e->ms;
    t->e.cause = cause;
    on = fit_events_tell(t, kind);
    t->e.rank = 0;
    t->e.server = false;
    t->e.pid = 0;
    t->e.ms = 0;
    t->e.cause = NULL;
    return on;
}

static manta_status see_worker_event(void *ctx, const worker_event *e, const char *cause)
{
    static const manta_event_kind kind[] = {[WORKER_EVENT_STARTED] = MANTA_EVENT_WORKER,
                                            [WORKER_EVENT_RECOVERED] = MANTA_EVENT_RECOVERED,
                                            [WORKER_EVENT_LEFT] = MANTA_EVENT_WORKER_LEFT};

    if (e->server && e->kind == WORKER_EVENT_STARTED) return MANTA_OK;
    return tell_process(ctx, kind[e->kind], e, e->kind == WORKER_EVENT_STARTED ? NULL : cause)
               ? MANTA_OK
               : fit_events_stopped(ctx);
}

static bool see_waiting(void *ctx, const char *missing, int rank, double ms)
{
    return tell_process(ctx, MANTA_EVENT_WAITING, &(worker_event){.rank = rank, .ms = ms}, missing);
}

engine_watch fit_events_watch(fit_events *t)
{
    return (engine_watch){.ctx = t,
                          .every_step = see_every_step,
                          .next_look = see_next_look,
                          .reached = see_reached,
                          .reads_state = t->o->n_callbacks > 0,
                          .begins = see_begin,
                          .done = see_done,
                          .stops = see_stops,
                          .stop = see_stop,
                          .worker_event = see_worker_event,
                          .waiting = see_waiting};
}

engine_call fit_events_call(fit_events *t)
{
    return (engine_call){.s = t->s,
                         .epochs = t->f.epochs,
                         .worker_deadline_ms = t->o->worker_deadline_ms,
                         .max_failures = t->o->max_failures,
                         .watch = fit_events_watch(t)};
}
