/* fit.c - training on a whole dataset, whoever computes its steps: this process,
 * workers, peers, a cluster, or parameter servers. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/fit/evaluate.h"
#include "train/ps/ps.h"

static const manta_fit_options defaults;

/* A fit with all that it has open. */
typedef struct training {
    pass p, v; /* v is not open without validation data */
    feed_source feeds[2];
    group *g; /* NULL: this process computes */
    ps *servers; /* or they have the state */
    teller t;
    bool over; /* the others of the cluster have been through with it before */
} training;

static manta_status open_workers(training *r)
{
    if (pass_is_clustered(r->p.s, PLAN_TRAIN)) return teller_begin_cluster(&r->t, &r->p, &r->v, &r->over);
    r->feeds[0] = r->p.feed;
    r->feeds[1] = r->v.feed;
    TRY(pass_open_workers(r->p.s, r->t.o, r->feeds, r->v.reader.loader ? 2 : 1, &r->g));
    return r->g && !teller_news(&r->t, group_news(r->g)) ? teller_stopped(&r->t) : MANTA_OK;
}

static void see_metrics(teller *t, int64_t done)
{
    t->e.step = done;
    t->e.samples = (int64_t)session_sums(t->s)[SUM_SAMPLES];
    memset(&t->metrics, 0, sizeof t->metrics);
    session_metrics_of(t->s, session_sums(t->s), "", &t->metrics);
}

/* One more step is committed. */
static manta_status trained(teller *t, int64_t step)
{
    see_metrics(t, step + 1);
    t->f.batch = step;
    t->f.next_epoch = t->e.epoch;
    t->f.next_step = step + 1;
    return teller_happen(t, HOOK_train_batch_end, MANTA_EVENT_STEP);
}

/* Steps `first` and on of the epoch. */
static manta_status train_here(training *r, int64_t first)
{
    teller *t = &r->t;
    manta_feed f;
    int64_t at;
    bool more;

    TRY(manta_loader_seek(r->p.reader.loader, t->e.epoch, first));
    for (int64_t step = first; !t->f.stop; step++) {
        TRY(pass_next(&r->p, step, &f, &at, &more));
        if (!more) return MANTA_OK;
        TRY(teller_begin_batch(t, HOOK_train_batch_begin, step));
        TRY(manta_session_step(r->p.s, &f));
        TRY(trained(t, step));
    }
    return MANTA_OK;
}

/* ---- peers: processes that each call fit() with data of their own ---- */

/* Ends it here too when it has ended in one of the others. */
static manta_status agree_to_stop(teller *t)
{
    const session_peers *p = &t->s->peers;
    double stop = t->f.stop ? 1 : 0;

    TRY(p->most(p->ctx, &stop));
    if (stop > 0 && !t->f.stop) manta_fitting_stop(&t->f, "another rank has ended it");
    return MANTA_OK;
}

/* The same steps, taken by all peers together: as many as the one that has most. */
static manta_status train_peers(training *r, int64_t first)
{
    teller *t = &r->t;
    manta_session *s = r->p.s;
    const session_peers *p = &s->peers;
    double most = (double)r->p.steps, sums[SUM_FIXED + 4 * MANTA_MAX_METRICS];
    int n = s->l.n_sums + 1;
    int64_t at, seek = r->p.steps >= 0 && first > r->p.steps ? r->p.steps : first;
    bool more = true;

    TRY(p->most(p->ctx, &most));
    if (r->p.steps < 0 || n > (int)(sizeof sums / sizeof *sums))
        return manta_fail(MANTA_EINVAL,
                          "the length of the data must be known to train with other ranks: give "
                          "steps_per_epoch");
    TRY(manta_loader_seek(r->p.reader.loader, t->e.epoch, seek));
    for (int64_t step = first; step < (int64_t)most; step++) {
        manta_feed f = {0};
        if (more) TRY(pass_next(&r->p, step, &f, &at, &more));
        if (!more) f = (manta_feed){0};
        TRY(agree_to_stop(t));
        if (t->f.stop) break;
        TRY(teller_begin_batch(t, HOOK_train_batch_begin, step));
        TRY(p->step(p->ctx, s, &f));
        TRY(trained(t, step));
    }
    memcpy(sums, session_sums(s), (size_t)n * sizeof *sums);
    TRY(p->sum(p->ctx, sums, n));
    memset(&t->metrics, 0, sizeof t->metrics);
    session_metrics_of(s, sums, "", &t->metrics);
    t->e.samples = (int64_t)sums[SUM_SAMPLES];
    return MANTA_OK;
}

/* ---- */

/* A callback has ended the epoch. Validation is the same workers', unless the step that
 * they had begun has failed, which is of no interest any more. */
static manta_status end_early(training *r)
{
    bool validates = r->v.reader.loader != NULL;

    if (validates && !group_cut(r->g)) return MANTA_OK;
    group_close(r->g);
    r->g = NULL;
    return validates ? open_workers(r) : MANTA_OK;
}

/* The same steps, computed by workers. They are held up between two steps only when
 * somebody must see every one. */
static manta_status train_shared(training *r, int64_t first)
{
    teller *t = &r->t;
    int64_t steps = r->p.steps;

    if (first >= steps) return MANTA_OK;
    TRY(teller_begin_batch(t, HOOK_train_batch_begin, first));
    group_begin(r->g, 0, t->e.epoch, first, steps, teller_is_watched(t, true));
    for (int64_t done = first; done < steps;) {
        TRY(group_follow(r->g, teller_next_look(t), &done));
        t->e.step = done - 1;
        if (!teller_news(t, group_news(r->g))) return teller_stopped(t);
        TRY(trained(t, done - 1));
        if (t->f.stop && done < steps) return end_early(r);
        if (done < steps) TRY(teller_begin_batch(t, HOOK_train_batch_begin, done));
        group_next(r->g);
    }
    return MANTA_OK;
}

/* The same steps, computed by the processes of a cluster. Whether it ends early
 * is the chief's decision. */
static manta_status train_cluster(training *r)
{
    teller *t = &r->t;
    manta_cluster *c = t->c;
    int64_t epoch = t->e.epoch;

    cluster_enter(c, epoch, CLUSTER_TRAIN);
    t->e.step = cluster_is_in(c, epoch, CLUSTER_TRAIN) ? c->at.step : r->p.steps;
    while (cluster_is_in(c, epoch, CLUSTER_TRAIN) && c->at.step < r->p.steps) {
        int64_t before = c->at.step;
        TRY(teller_begin_batch(t, HOOK_train_batch_begin, before));
        TRY(cluster_step(c));
        TRY(teller_recovery(t));
        if (cluster_is_in(c, epoch, CLUSTER_TRAIN) && c->at.step > before) TRY(trained(t, c->at.step - 1));
        if (t->f.stop && !c->rank && c->at.step < r->p.steps) {
            cluster_enter(c, epoch, r->v.reader.loader ? CLUSTER_EVALUATE : CLUSTER_DECIDE);
            return cluster_regroup(c);
        }
    }
    return MANTA_OK;
}

/* The same for whether there is another epoch. */
static manta_status decide_end(teller *t, uint32_t before)
{
    bool stop = t->f.stop != NULL;

    TRY(cluster_decide(t->c, t->e.epoch, cluster_weights_digest(t->c) != before, &stop));
    TRY(teller_recovery(t));
    if (stop && !t->f.stop) t->f.stop = mem_strdup("the chief has ended it");
    if (!stop && t->f.stop) {
        mem_free(t->f.stop);
        t->f.stop = NULL;
    }
    return MANTA_OK;
}

/* ---- training with parameter servers ---- */

static manta_status open_validation(training *r, manta_session *s, const manta_fit_options *o)
{
    if (!o->validation) return MANTA_OK;
    return pass_open(&r->v, s, o->validation, o, PLAN_EVALUATE, o->validation_steps);
}

/* Where to begin must be a place in what is to be done. */
static manta_status check_start(const training *r)
{
    const manta_fitting *f = &r->t.f;

    if (f->first_epoch < 0 || f->first_step < 0 || f->first_epoch > f->epochs) {
        if (f->resumed) {
            return manta_fail(MANTA_EINVAL,
                              "the checkpoint stands behind epoch %lld, and only %lld are asked for",
                              (long long)f->first_epoch, (long long)f->epochs);
        }
        return manta_fail(MANTA_EINVAL, "initial epoch %lld of %lld", (long long)f->first_epoch,
                          (long long)f->epochs);
    }
    if (f->first_step && r->p.steps >= 0 && f->first_step > r->p.steps) {
        return manta_fail(MANTA_EINVAL,
                          "the checkpoint stands at step %lld of an epoch, which has %lld now: data, batch "
                          "or steps per epoch are not those it was made with",
                          (long long)f->first_step, (long long)r->p.steps);
    }
    return MANTA_OK;
}

/* It is clear where to begin. */
static void begin_at(teller *t, int64_t steps)
{
    t->e = (manta_event){.epoch = t->f.first_epoch, .epochs = t->f.epochs, .steps = steps};
    t->f.next_epoch = t->f.first_epoch;
    t->f.next_step = t->f.first_step;
}

static manta_status open_servers(training *r)
{
    manta_session *s = r->p.s;
    ps_options o = {.staleness = s->staleness, .max_failures = r->p.o->max_failures};
    manta_fitting *f = &r->t.f;

    if (s->ps_cluster && !manta_cluster_is_chief(s->ps_cluster)) {
        r->over = true; /* when this returns */
        return ps_join(s, &r->p.feed, r->p.steps, teller_waiting, &r->t);
    }
    TRY(s->ps_cluster ? ps_open_cluster(s, &r->p.feed, r->p.steps, &o, &r->servers)
                      : ps_open(s, &r->p.feed, r->p.steps, s->servers, s->ps_workers, &o, &r->servers));
    if (ps_took_up(r->servers, &f->first_epoch, &f->first_step)) {
        TRY(check_start(r));
        begin_at(&r->t, r->p.steps);
    }
    if (!teller_news(&r->t, ps_news(r->servers))) return teller_stopped(&r->t);
    /* Only now, because it brings threads, and the others are forked. */
    return open_validation(r, s, r->p.o);
}

/* Steps in whatever order they come to be done. Callbacks may look at the state. */
static manta_status train_served(training *r, int64_t first)
{
    teller *t = &r->t;
    bool more;

    TRY(ps_begin(r->servers, t->e.epoch, first));
    for (int64_t step = first; !t->f.stop; step++) {
        TRY(ps_next(r->servers, &more));
        if (!teller_news(t, ps_news(r->servers))) return teller_stopped(t);
        if (!more) break;
        if (t->o->n_callbacks) TRY(ps_pull(r->servers));
        TRY(trained(t, step));
    }
    return ps_pull(r->servers);
}

static manta_status validate(training *r)
{
    teller *t = &r->t;
    manta_event before = t->e;
    manta_status st;

    if (!r->v.reader.loader) return MANTA_OK;
    t->e.step = t->e.samples = 0;
    t->e.steps = r->v.steps;
    TRY(teller_happen(t, HOOK_test_begin, MANTA_EVENT_VALIDATE));
    st = evaluate_pass(&r->v, r->g, 1, t, "val_", &t->metrics);
    t->e = before;
    return st ? st : fitting_run(&t->f, HOOK_test_end);
}

/* A run that is taken up in the middle of an epoch has begun it already: its
 * callbacks are not told again, and the sums go on. */
static manta_status begin_epoch(training *r, int64_t epoch, int64_t first)
{
    manta_session *s = r->p.s;
    teller *t = &r->t;
    run_state *run = layout_run(&s->l, s->state);

    run->epoch = epoch;
    run->step = first;
    t->e = (manta_event){.epoch = epoch, .epochs = t->f.epochs, .steps = r->p.steps};
    t->begin_ns = clock_now_ns();
    t->f.next_epoch = epoch;
    t->f.next_step = first;
    if (!first) {
        manta_session_reset_metrics(s);
        memset(&t->metrics, 0, sizeof t->metrics);
        return teller_happen(t, HOOK_epoch_begin, MANTA_EVENT_EPOCH_BEGIN);
    }
    s->touched = true;
    see_metrics(t, first);
    return teller_tell(t, MANTA_EVENT_EPOCH_BEGIN) ? MANTA_OK : teller_stopped(t);
}

static manta_status run_epochs(training *r)
{
    teller *t = &r->t;

    for (int64_t epoch = t->f.first_epoch; epoch < t->f.epochs && !t->f.stop; epoch++) {
        int64_t first = epoch == t->f.first_epoch ? t->f.first_step : 0;
        uint32_t before;
        TRY(begin_epoch(r, epoch, first));
        if (t->c) {
            TRY(train_cluster(r));
        } else if (r->servers) {
            TRY(train_served(r, first));
        } else if (r->p.s->peers.step) {
            TRY(train_peers(r, first));
        } else {
            TRY(r->g ? train_shared(r, first) : train_here(r, first));
        }
        if (!t->e.step) return manta_fail(MANTA_EINVAL, "the training data is empty");
        TRY(validate(r));
        t->f.next_epoch = epoch + 1;
        t->f.next_step = 0;
        before = t->c ? cluster_weights_digest(t->c) : 0;
        TRY(teller_happen(t, HOOK_epoch_end, MANTA_EVENT_EPOCH_END));
        if (t->c) TRY(decide_end(t, before));
        if (r->p.s->peers.step) TRY(agree_to_stop(t));
    }
    return MANTA_OK;
}

/* Stopped on request: what callbacks want to keep, they keep now. */
static manta_status keep_at_end(training *r)
{
    if (r->servers) TRY(ps_pull(r->servers));
    TRY(fitting_run(&r->t.f, HOOK_interrupted));
    TRY(fitting_settle(&r->t.f));
    return fitting_wait(&r->t.f);
}

static manta_status run_fit(training *r)
{
    teller *t = &r->t;
    manta_status st;

    begin_at(t, r->p.steps);
    st = r->p.s->servers ? open_servers(r) : open_workers(r);
    if (!st && !(st = teller_happen(t, HOOK_train_begin, MANTA_EVENT_BEGIN)) && !r->over) st = run_epochs(r);
    st = teller_end_cluster(t, st);
    if (st == MANTA_ECANCELLED) {
        manta_error why;
        manta_status late;
        manta_error_get(&why);
        late = keep_at_end(r);
        st = late ? late : manta_error_raise(&why);
    }
    ps_close(r->servers);
    r->servers = NULL;
    group_close(r->g);
    r->g = NULL;
    return st;
}

static manta_status open_passes(training *r, manta_session *s, manta_dataset *d, const manta_fit_options *o)
{
    TRY(pass_open(&r->p, s, d, o, PLAN_TRAIN, o->steps_per_epoch));
    return s->servers ? MANTA_OK : open_validation(r, s, o);
}

manta_status manta_fit(manta_session *s, manta_dataset *d, const manta_fit_options *o, manta_metrics *out)
{
    training r = {0};
    teller *t = &r.t;
    manta_status st;

    if (!o) o = &defaults;
    teller_init(t, s, o);
    if ((st = fitting_run(&t->f, HOOK_before_fit))) goto out;
    if ((st = open_passes(&r, s, d, o)) || (st = check_start(&r))) goto out;
    st = run_fit(&r);
    if (!st) {
        apply_average(&s->l, &s->opt, s->state);
        st = teller_happen(t, HOOK_train_end, MANTA_EVENT_END);
    }
    if (out) *out = t->metrics;
out:
    pass_close(&r.p);
    pass_close(&r.v);
    fitting_release(&t->f);
    return st;
}
