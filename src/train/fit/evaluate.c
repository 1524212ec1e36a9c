/* evaluate.c - whole datasets: evaluate, predict. */
#include "train/fit/evaluate.h"

#include "base/args.h"
#include "train/fit/pass.h"

static const manta_fit_options defaults;

manta_status evaluate_pass(engine_call *c, fit_events *t, manta_metrics *out)
{
    manta_session *s = c->s;
    int64_t steps = 0;

    TRY(c->e.ops->evaluate(c, t->e.epoch, &steps));
    if (!steps)
        return manta_fail(MANTA_EINVAL, "the %s data is empty, expected a sample at least",
                          *t->prefix ? "validation" : "evaluation");
    s->evaluated = true;
    session_metrics_of(s, s->eval_sums, t->prefix, out);
    return MANTA_OK;
}

manta_status manta_evaluate(manta_session *s, manta_dataset *d, const manta_fit_options *o,
                            manta_metrics *out)
{
    REFUSE_NULL(s);
    REFUSE_NULL(d);

    manta_metrics metrics = {0};
    engine_call c = {0};
    fit_events t;
    pass p;
    manta_status st;

    if (!o) o = &defaults;
    TRY(fit_options_check(o));
    fit_events_init(&t, s, o);
    if ((st = pass_open(&p, s, d, o, PLAN_EVALUATE, o->validation_steps))) goto out;
    t.e.steps = p.data.steps;
    c = fit_events_call(&t);
    c.evaluate = &p.data;
    if ((st = engine_begin(&c))) goto out;
    if ((st = fit_context_run(&t.f, HOOK_test_begin))) goto out;
    if ((st = evaluate_pass(&c, &t, &metrics))) goto out;
    t.metrics = metrics;
    if ((st = fit_context_run(&t.f, HOOK_test_end))) goto out;
    if (out) *out = metrics;
out:
    st = engine_finish(&c, st);
    engine_end(&c);
    pass_close(&p);
    fit_context_release(&t.f);
    return st;
}

/* ---- prediction ---- */

manta_status manta_predict(manta_session *s, manta_dataset *d, const manta_fit_options *o, manta_take_fn take,
                           void *user)
{
    REFUSE_NULL(s);
    REFUSE_NULL(d);
    REFUSE_NULL(take);

    manta_array outputs[8];
    manta_feed f;
    int64_t first;
    bool more = true;
    fit_events t;
    pass p;
    manta_status st;

    if (!o) o = &defaults;
    TRY(fit_options_check(o));
    if (s->m->n_outputs > 8)
        return manta_fail(MANTA_EUNSUPPORTED, "predicting with model '%s' of %d outputs, expected up to 8",
                          s->m->name, s->m->n_outputs);
    fit_events_init(&t, s, o);
    if ((st = pass_open(&p, s, d, o, PLAN_PREDICT, 0))) goto out;
    t.e.steps = p.data.steps;
    if ((st = fit_context_run(&t.f, HOOK_predict_begin))) goto out;
    for (int64_t step = 0; more; step++) {
        if ((st = feed_pass_next(&p.data, step, &f, &first, &more))) goto out;
        if (!more) break;
        if ((st = fit_events_begin_batch(&t, HOOK_predict_batch_begin, step))) goto out;
        if ((st = manta_session_forward(s, &f, false, s->m->n_outputs, outputs))) goto out;
        if ((st = take(user, first, f.count, s->m->n_outputs, outputs))) goto out;
        if ((st = fit_context_run(&t.f, HOOK_predict_batch_end))) goto out;
    }
    st = fit_context_run(&t.f, HOOK_predict_end);
out:
    pass_close(&p);
    fit_context_release(&t.f);
    return st;
}
