/* fit.c - training on a whole dataset, epoch by epoch.
 *
 *     before_fit hooks    a backup is taken up: where to begin, and with what state
 *     pass_open()         the samples (pass.h)
 *     engine_begin()      everybody is there; the engine may say that the others are further
 *       of each epoch     steps (engine), validation (engine), hooks and events,
 *                         settle: all processes agree whether another follows
 *     engine_finish()     parts from the others
 *       stopped           hooks `interrupted`: what callbacks want to keep
 *     the moving average takes the weights' place; train_end
 *
 * Who computes the steps is the session's engine (session/engine.h), whichever that is: here is
 * what all of them have in common, and no branch for one of them. What engines differ in they say
 * themselves: whether this process reads the samples (engine_reads()), and which operations they
 * have. What is read here brings threads, so it is opened after an engine that forks has begun.
 *
 * Where a fit is lies in the state (session/position.h) and is changed here at the beginning of
 * an epoch only; `at` of the loop, and first and next of the context, are copies of it. */
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "train/fit/evaluate.h"
#include "train/fit/pass.h"

static const manta_fit_options defaults;

/* A fit with all that it has open. */
typedef struct training {
    pass p, v; /* v is not open without validation data */
    engine_call c;
    fit_events t;
} training;

/* Where to begin must be a place in what is to be done. */
static manta_status check_start(const training *r)
{
    const manta_fit_context *f = &r->t.f;

    if (f->first.epoch < 0 || f->first.step < 0 || f->first.epoch > f->epochs) {
        if (f->resumed) {
            return manta_fail(MANTA_EINVAL,
                              "the checkpoint stands behind epoch %lld, and only %lld are asked for",
                              (long long)f->first.epoch, (long long)f->epochs);
        }
        return manta_fail(
            MANTA_EINVAL,
            "initial_epoch is %lld, step %lld of it; expected 0 to %lld epochs, and no step below 0",
            (long long)f->first.epoch, (long long)f->first.step, (long long)f->epochs);
    }
    if (f->first.step && r->p.data.steps >= 0 && f->first.step > r->p.data.steps) {
        return manta_fail(MANTA_EINVAL,
                          "the checkpoint stands at step %lld of an epoch, which has %lld now: data, batch "
                          "or steps per epoch are not those it was made with",
                          (long long)f->first.step, (long long)r->p.data.steps);
    }
    return MANTA_OK;
}

/* It is clear where to begin. */
static void begin_at(fit_events *t, int64_t steps)
{
    t->e = (manta_event){.epoch = t->f.first.epoch, .epochs = t->f.epochs, .steps = steps};
    t->f.next = t->f.first;
}

static manta_status open_validation(training *r)
{
    const manta_fit_options *o = r->t.o;

    if (!o->validation) return MANTA_OK;
    TRY(pass_open(&r->v, r->t.s, o->validation, o, PLAN_EVALUATE, o->validation_steps));
    r->c.evaluate = &r->v.data;
    return MANTA_OK;
}

/* What this process reads itself brings threads, so that it comes after an engine that
 * forks; what others read they must know before. */
static manta_status begin_training(training *r)
{
    fit_events *t = &r->t;
    engine_call *c = &r->c;
    bool here = engine_reads(t->s, PLAN_EVALUATE) == ENGINE_READS_HERE;

    *c = fit_events_call(t);
    c->train = &r->p.data;
    c->at = t->f.first;
    if (!here) TRY(open_validation(r));
    begin_at(t, r->p.data.steps);
    TRY(engine_begin(c));
    if (c->over) return MANTA_OK;
    if (!position_equal(c->at, t->f.first)) {
        t->f.first = c->at;
        TRY(check_start(r));
        begin_at(t, r->p.data.steps);
    }
    return here ? open_validation(r) : MANTA_OK;
}

static manta_status validate_epoch(training *r)
{
    fit_events *t = &r->t;
    manta_event before = t->e;
    manta_status st;

    if (!r->c.evaluate) return MANTA_OK;
    t->e.step = t->e.samples = 0;
    t->e.steps = r->v.data.steps;
    TRY(fit_events_happen(t, HOOK_test_begin, MANTA_EVENT_VALIDATE));
    st = evaluate_pass(&r->c, t, &t->metrics);
    t->e = before;
    return st ? st : fit_context_run(&t->f, HOOK_test_end);
}

/* A run that is taken up in the middle of an epoch has begun it already: its
 * callbacks are not told again, and the sums go on. */
static manta_status begin_epoch(training *r, train_position at)
{
    manta_session *s = r->p.s;
    fit_events *t = &r->t;
    run_state *run = layout_run(&s->l, s->state);

    position_set(run, at);
    t->e = (manta_event){.epoch = at.epoch, .epochs = t->f.epochs, .steps = r->p.data.steps};
    t->begin_ns = clock_now_ns();
    t->f.next = at;
    if (!at.step) {
        manta_session_reset_metrics(s);
        memset(&t->metrics, 0, sizeof t->metrics);
        return fit_events_happen(t, HOOK_epoch_begin, MANTA_EVENT_EPOCH_BEGIN);
    }
    s->touched = true;
    t->e.step = at.step;
    fit_events_see(t, session_sums(s));
    return fit_events_tell(t, MANTA_EVENT_EPOCH_BEGIN) ? MANTA_OK : fit_events_stopped(t);
}

static manta_status train_epoch(training *r, train_position at)
{
    fit_events *t = &r->t;
    int64_t done = 0;

    TRY(begin_epoch(r, at));
    TRY(r->c.e.ops->train(&r->c, at.epoch, at.step, &done));
    t->e.step = done;
    return done ? MANTA_OK
                : manta_fail(MANTA_EINVAL, "the training data is empty, expected a sample at least");
}

/* All processes end with the same epoch. */
static manta_status settle_epoch(training *r, int64_t epoch)
{
    manta_fit_context *f = &r->t.f;
    bool stop = f->stop != NULL;
    const char *why = NULL;

    if (!r->c.e.ops->settle) return MANTA_OK;
    TRY(r->c.e.ops->settle(&r->c, epoch, &stop, &why));
    if (stop && !f->stop) manta_fit_context_stop(f, why);
    if (stop) return MANTA_OK;
    mem_free(f->stop);
    f->stop = NULL;
    return MANTA_OK;
}

static manta_status run_epochs(training *r)
{
    fit_events *t = &r->t;

    for (train_position at = t->f.first; at.epoch < t->f.epochs && !t->f.stop;
         at = position_after_epoch(at)) {
        TRY(train_epoch(r, at));
        TRY(validate_epoch(r));
        t->f.next = position_after_epoch(at);
        TRY(fit_events_happen(t, HOOK_epoch_end, MANTA_EVENT_EPOCH_END));
        TRY(settle_epoch(r, at.epoch));
    }
    return MANTA_OK;
}

/* Stopped on request: what callbacks want to keep, they keep now. */
static manta_status keep_at_end(training *r)
{
    if (r->c.e.ops && r->c.e.ops->pull) TRY(r->c.e.ops->pull(&r->c));
    TRY(fit_context_run(&r->t.f, HOOK_interrupted));
    TRY(fit_context_settle(&r->t.f));
    return fit_context_wait(&r->t.f);
}

static manta_status run_fit(training *r)
{
    fit_events *t = &r->t;
    manta_status st = begin_training(r);

    if (!st && !(st = fit_events_happen(t, HOOK_train_begin, MANTA_EVENT_BEGIN)) && !r->c.over)
        st = run_epochs(r);
    st = engine_finish(&r->c, st);
    if (st == MANTA_ECANCELLED) {
        manta_error why;
        manta_status late;
        manta_error_get(&why);
        late = keep_at_end(r);
        st = late ? late : manta_error_raise(&why);
    }
    engine_end(&r->c);
    return st;
}

/* The moving average takes the weights' place when training ends. */
static manta_status end_average(manta_session *s)
{
    if (!s->l.arrays.average) return MANTA_OK;
    TRY(session_pull(s));
    apply_average(&s->l, &s->opt, s->state);
    session_changed(s);
    return MANTA_OK;
}

manta_status manta_fit(manta_session *s, manta_dataset *d, const manta_fit_options *o, manta_metrics *out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(d);

    training r = {0};
    fit_events *t = &r.t;
    manta_status st;

    if (!o) o = &defaults;
    TRY(fit_options_check(o));
    fit_events_init(t, s, o);
    t->prefix = "val_";
    if ((st = fit_context_run(&t->f, HOOK_before_fit))) goto out;
    if ((st = pass_open(&r.p, s, d, o, PLAN_TRAIN, o->steps_per_epoch)) || (st = check_start(&r))) goto out;
    st = run_fit(&r);
    if (!st) {
        if ((st = end_average(s))) goto out;
        st = fit_events_happen(t, HOOK_train_end, MANTA_EVENT_END);
    }
    if (out) *out = t->metrics;
out:
    pass_close(&r.p);
    pass_close(&r.v);
    fit_context_release(&t->f);
    return st;
}
