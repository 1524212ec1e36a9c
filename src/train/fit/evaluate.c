/* evaluate.c - whole datasets: evaluate, predict. */
#include "train/fit/evaluate.h"

#include <string.h>

static const manta_fit_options defaults;

static manta_status no_data(const char *prefix)
{
    return manta_fail(MANTA_EINVAL, "the %s data is empty", *prefix ? "validation" : "evaluation");
}

/* One more step of an evaluation is done; `sums` are all so far. */
static manta_status evaluated(teller *t, int64_t step, const double *sums, const char *prefix)
{
    t->e.step = step + 1;
    t->e.samples = (int64_t)sums[SUM_SAMPLES];
    if (!*prefix) {
        memset(&t->metrics, 0, sizeof t->metrics);
        session_metrics_of(t->s, sums, prefix, &t->metrics);
    }
    t->f.batch = step;
    return teller_happen(t, HOOK_test_batch_end, MANTA_EVENT_VALIDATE_STEP);
}

/* The same steps, computed by workers as feed `feed` of the group. */
static manta_status evaluate_shared(pass *p, group *g, int feed, teller *t, const char *prefix)
{
    manta_session *s = p->s;

    if (!p->steps) return no_data(prefix);
    TRY(teller_begin_batch(t, HOOK_test_batch_begin, 0));
    group_begin(g, feed, 0, 0, p->steps, teller_is_watched(t, false));
    for (int64_t done = 0; done < p->steps;) {
        TRY(group_follow(g, teller_next_look(t), &done));
        memcpy(s->eval_sums, group_eval_sums(g), ((size_t)s->l.n_sums + 1) * sizeof(double));
        t->e.step = done - 1;
        if (!teller_news(t, group_news(g))) return teller_stopped(t);
        TRY(evaluated(t, done - 1, s->eval_sums, prefix));
        if (done < p->steps) TRY(teller_begin_batch(t, HOOK_test_batch_begin, done));
        group_next(g);
    }
    return MANTA_OK;
}

static manta_status evaluate_here(pass *p, teller *t, const char *prefix)
{
    manta_session *s = p->s;
    manta_feed f;
    int64_t first;
    bool more;

    TRY(manta_loader_seek(p->reader.loader, 0, 0));
    for (int64_t step = 0;; step++) {
        TRY(pass_next(p, step, &f, &first, &more));
        if (!more) return step || (*prefix && s->peers.step) ? MANTA_OK : no_data(prefix);
        TRY(teller_begin_batch(t, HOOK_test_batch_begin, step));
        TRY(manta_session_evaluate_step(s, &f));
        TRY(evaluated(t, step, s->eval_sums, prefix));
    }
}

/* The same steps, computed by the processes of a cluster. */
static manta_status evaluate_cluster(pass *p, teller *t, const char *prefix)
{
    manta_cluster *c = t->c;
    int64_t epoch = t->e.epoch;

    if (!p->steps) return no_data(prefix);
    cluster_enter(c, epoch, CLUSTER_EVALUATE);
    while (cluster_is_in(c, epoch, CLUSTER_EVALUATE) && c->at.step < p->steps) {
        TRY(teller_begin_batch(t, HOOK_test_batch_begin, c->at.step));
        TRY(cluster_step(c));
        TRY(teller_recovery(t));
        if (cluster_is_in(c, epoch, CLUSTER_EVALUATE))
            TRY(evaluated(t, c->at.step - 1, p->s->eval_sums, prefix));
    }
    return MANTA_OK;
}

manta_status evaluate_pass(pass *p, group *g, int feed, teller *t, const char *prefix, manta_metrics *out)
{
    manta_session *s = p->s;

    if (!t->c) memset(s->eval_sums, 0, ((size_t)s->l.n_sums + 1) * sizeof(double));
    if (t->c) {
        TRY(evaluate_cluster(p, t, prefix));
    } else if (g) {
        TRY(evaluate_shared(p, g, feed, t, prefix));
    } else {
        TRY(evaluate_here(p, t, prefix));
        /* Of a fit with other ranks, validation is everybody's. */
        if (*prefix && s->peers.step) TRY(s->peers.sum(s->peers.ctx, s->eval_sums, s->l.n_sums + 1));
    }
    s->evaluated = true;
    session_metrics_of(s, s->eval_sums, prefix, out);
    return MANTA_OK;
}

manta_status manta_evaluate(manta_session *s, manta_dataset *d, const manta_fit_options *o,
                            manta_metrics *out)
{
    manta_metrics metrics = {0};
    group *g = NULL;
    bool over = false;
    teller t;
    pass p;
    manta_status st;

    if (!o) o = &defaults;
    teller_init(&t, s, o);
    if ((st = pass_open(&p, s, d, o, PLAN_EVALUATE, o->validation_steps))) goto out;
    t.e.steps = p.steps;
    if (pass_is_clustered(s, PLAN_EVALUATE) && (st = teller_begin_cluster(&t, NULL, &p, &over))) goto out;
    if ((st = pass_open_workers(s, o, &p.feed, 1, &g))) goto out;
    if (g && !teller_news(&t, group_news(g))) {
        st = teller_stopped(&t);
        goto out;
    }
    if ((st = fitting_run(&t.f, HOOK_test_begin))) goto out;
    if ((st = evaluate_pass(&p, g, 0, &t, "", &metrics))) goto out;
    t.metrics = metrics;
    if ((st = fitting_run(&t.f, HOOK_test_end))) goto out;
    if (out) *out = metrics;
out:
    st = teller_end_cluster(&t, st);
    group_close(g);
    pass_close(&p);
    fitting_release(&t.f);
    return st;
}

/* ---- prediction ---- */

manta_status manta_predict(manta_session *s, manta_dataset *d, const manta_fit_options *o, manta_take_fn take,
                           void *user)
{
    manta_array outputs[8];
    manta_feed f;
    int64_t first;
    bool more = true;
    teller t;
    pass p;
    manta_status st;

    if (!o) o = &defaults;
    if (s->m->n_outputs > 8) return manta_fail(MANTA_EUNSUPPORTED, "a model of more than 8 outputs");
    teller_init(&t, s, o);
    if ((st = pass_open(&p, s, d, o, PLAN_PREDICT, 0))) goto out;
    t.e.steps = p.steps;
    if ((st = fitting_run(&t.f, HOOK_predict_begin))) goto out;
    for (int64_t step = 0; more; step++) {
        if ((st = pass_next(&p, step, &f, &first, &more))) goto out;
        if (!more) break;
        if ((st = teller_begin_batch(&t, HOOK_predict_batch_begin, step))) goto out;
        if ((st = manta_session_forward(s, &f, false, s->m->n_outputs, outputs))) goto out;
        if ((st = take(user, first, f.count, s->m->n_outputs, outputs))) goto out;
        if ((st = fitting_run(&t.f, HOOK_predict_batch_end))) goto out;
    }
    st = fitting_run(&t.f, HOOK_predict_end);
out:
    pass_close(&p);
    fitting_release(&t.f);
    return st;
}
