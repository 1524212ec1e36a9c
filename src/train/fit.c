/* fit.c - whole datasets: fit, evaluate, predict. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/cluster.h"
#include "train/feed.h"
#include "train/fitting.h"
#include "train/group.h"
#include "train/ps.h"
#include "train/session.h"

/* One pass over a dataset, opened. */
typedef struct pass {
    manta_session *s;
    const manta_fit_options *o;
    feed_source feed;
    feed_reader reader; /* its loader NULL: the pass is not open */
    plan_mode mode;
    int64_t steps; /* of an epoch, negative: not known */
    int64_t limit; /* stop after so many, 0: at the end */
} pass;

static const manta_fit_options defaults;

/* Whether the workers of the session run this mode. */
static bool is_shared(const manta_session *s, plan_mode mode)
{
    return s->workers > 1 && !s->grouped && mode != PLAN_PREDICT;
}

/* Whether processes of a cluster run it together. */
static bool is_clustered(const manta_session *s, plan_mode mode)
{
    return s->ranks > 1 && !s->grouped && mode != PLAN_PREDICT;
}

/* Whether others read the data of this mode, so that this process is to have
 * neither threads nor plans for it. */
static bool is_elsewhere(const manta_session *s, plan_mode mode)
{
    return is_shared(s, mode) || (s->servers && mode == PLAN_TRAIN);
}

/* Samples of a step; 0 for a dataset that has batches of its own. */
static manta_status batch_of(const manta_session *s, const manta_dataset *d, const manta_fit_options *o,
                             plan_mode mode, int64_t *out)
{
    int64_t batch = mode == PLAN_EVALUATE && o->validation_batch ? o->validation_batch : o->batch;

    *out = 0;
    if (manta_dataset_is_batched(d)) {
        /* Validation data may differ in that from what is trained on. */
        if ((batch || o->global_batch) && (mode != PLAN_EVALUATE || o->validation != d)) {
            return manta_fail(MANTA_EINVAL,
                              "a batch of %lld was asked for, but the dataset has batches of its own",
                              (long long)(batch ? batch : o->global_batch));
        }
        return MANTA_OK;
    }
    *out = (batch ? batch : 32) * (mode == PLAN_PREDICT ? 1 : s->workers * s->ranks);
    if (o->global_batch && !(mode == PLAN_EVALUATE && o->validation_batch)) *out = o->global_batch;
    return MANTA_OK;
}

/* What is read in a pass over `d`: shuffled when training. */
static manta_status describe_feed(pass *p, manta_dataset *d)
{
    const manta_fit_options *o = p->o;
    feed_source *f = &p->feed;
    manta_dataset *made = manta_dataset_ref(d);
    manta_status st;

    f->d = made;
    f->train = p->mode == PLAN_TRAIN;
    f->batched = manta_dataset_is_batched(d);
    if (f->train) {
        f->class_weight = o->class_weight;
        f->n_classes = o->n_classes;
    }
    if ((st = batch_of(p->s, d, o, p->mode, &f->lo.batch_size))) return st;
    if (f->train && !f->batched && !o->no_shuffle) {
        made = manta_dataset_shuffle(made, 0, layout_run(&p->s->l, p->s->state)->seed);
    }
    if (f->train && o->steps_per_epoch) {
        if (manta_dataset_count(made) != MANTA_FOREVER_COUNT)
            made = manta_dataset_repeat(made, MANTA_FOREVER_COUNT);
        f->lo.steps_per_epoch = o->steps_per_epoch;
    }
    f->d = made;
    return MANTA_OK;
}

/* Steps of an epoch must be known when workers are to share them. */
static manta_status check_steps(const pass *p)
{
    if (p->steps == MANTA_FOREVER_COUNT) {
        return manta_fail(MANTA_EINVAL, "the dataset repeats for ever: say how many steps an epoch has");
    }
    if (p->steps < 0 && (is_elsewhere(p->s, p->mode) || is_clustered(p->s, p->mode))) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the length of the dataset is not known: with several workers, say how many steps "
                          "an epoch has");
    }
    return MANTA_OK;
}

/* Opens `d` for a pass, its batches planned. */
static manta_status pass_open(pass *p, manta_session *s, manta_dataset *d, const manta_fit_options *o,
                              plan_mode mode, int64_t limit)
{
    const manta_column_spec *columns;
    feed_source *f = &p->feed;
    int n;

    *p = (pass){.s = s, .o = o, .mode = mode, .limit = limit};
    TRY(describe_feed(p, d));
    /* No threads before the fork; of a cluster each rank fetches its own samples. */
    if (is_elsewhere(s, mode) || is_clustered(s, mode)) f->lo.readers = -1;
    TRY(feed_reader_open(&p->reader, f));
    n = manta_loader_columns(p->reader.loader, &columns);
    TRY(feed_map_init(&f->map, s->m, mode != PLAN_PREDICT, n, columns));
    p->steps = manta_loader_steps(p->reader.loader);
    if (limit && (p->steps < 0 || limit < p->steps)) p->steps = limit;
    TRY(check_steps(p));
    n = manta_loader_batch_sizes(p->reader.loader, f->sizes, FEED_SIZES);
    f->n_sizes = n < FEED_SIZES ? n : FEED_SIZES;
    if (!is_elsewhere(s, mode)) return session_prepare(s, mode, f->sizes, f->n_sizes);
    return MANTA_OK;
}

static void pass_close(pass *p)
{
    feed_reader_close(&p->reader);
    manta_dataset_unref(p->feed.d);
    p->feed.d = NULL;
}

/* The next batch as a feed; *more false at the end of the epoch. */
static manta_status pass_next(pass *p, int64_t step, manta_feed *f, int64_t *first, bool *more)
{
    *more = false;
    if (p->limit && step >= p->limit) return MANTA_OK;
    return feed_reader_next(&p->reader, f, first, more);
}

/* ---- events ---- */

typedef struct teller {
    const manta_fit_options *o;
    manta_session *s;
    manta_event e;
    manta_metrics metrics;
    int64_t begin_ns, train_ns;
    manta_fitting f; /* the same for callbacks */
    manta_cluster *c; /* whose processes are at it together; NULL: none */
} teller;

static void teller_init(teller *t, manta_session *s, const manta_fit_options *o)
{
    *t = (teller){.o = o, .s = s, .begin_ns = clock_now_ns()};
    fitting_init(&t->f, s, o);
    t->f.logs = &t->metrics;
}

static bool tell(teller *t, manta_event_kind kind)
{
    t->e.kind = kind;
    t->e.metrics = &t->metrics;
    t->e.seconds = (double)(clock_now_ns() - t->begin_ns) / 1e9;
    if (kind == MANTA_EVENT_STEP)
        t->e.samples_per_s = t->e.seconds > 0 ? (double)t->e.samples / t->e.seconds : 0;
    return !t->o->event || t->o->event(t->o->user, t->s, &t->e);
}

/* Tells what happened to workers. */
static bool tell_workers(teller *t, group *g)
{
    static const manta_event_kind kind[] = {[GROUP_STARTED] = MANTA_EVENT_WORKER,
                                            [GROUP_RECOVERED] = MANTA_EVENT_RECOVERED,
                                            [GROUP_LEFT] = MANTA_EVENT_WORKER_LEFT};
    group_event e;
    bool on = true;

    while (group_take_event(g, &e)) {
        t->e.rank = e.rank;
        t->e.pid = e.pid;
        t->e.ms = e.ms;
        t->e.cause = e.kind == GROUP_STARTED ? NULL : e.cause;
        on &= tell(t, kind[e.kind]);
        t->e.rank = 0;
        t->e.pid = 0;
        t->e.ms = 0;
        t->e.cause = NULL;
    }
    return on;
}

/* Forks the workers of a session that has some; *g stays NULL for others. */
static manta_status open_group(manta_session *s, const manta_fit_options *o, const feed_source *feeds, int n,
                               group **g)
{
    group_options go = {.deadline_ms = o->worker_deadline_ms, .max_failures = o->max_failures};

    return is_shared(s, PLAN_TRAIN) ? group_open(s, feeds, n, &go, g) : MANTA_OK;
}

/* Whether anybody wants to look between two steps. */
static bool is_watched(const teller *t)
{
    return t->o->event || t->o->n_callbacks > 0;
}

static manta_status stopped(const teller *t)
{
    return manta_fail(MANTA_ECANCELLED, "stopped on request after step %lld of epoch %lld",
                      (long long)t->e.step, (long long)t->e.epoch + 1);
}

/* Something has happened: hooks, then the event, then the checkpoints that were
 * asked for, which thus hold what all of them have made of it. */
static manta_status happen(teller *t, fitting_hook h, manta_event_kind kind)
{
    bool on;

    t->f.epoch = t->e.epoch;
    t->f.steps = t->e.steps;
    TRY(fitting_run(&t->f, h));
    t->e.stopped = t->f.stop;
    on = tell(t, kind);
    TRY(fitting_settle(&t->f));
    return on ? MANTA_OK : stopped(t);
}

/* A batch begins; only callbacks want to know. */
static manta_status begin_batch(teller *t, fitting_hook h, int64_t step)
{
    t->f.batch = step;
    t->f.epoch = t->e.epoch;
    t->f.steps = t->e.steps;
    return fitting_run(&t->f, h);
}

/* ---- a cluster ---- */

/* Tells that others are waited for, now and then; false stops it. */
static bool watch_cluster(void *ctx, const char *missing, int rank, double ms)
{
    teller *t = ctx;
    bool on;

    t->e.rank = rank;
    t->e.cause = missing;
    t->e.ms = ms;
    on = tell(t, MANTA_EVENT_WAITING);
    t->e.rank = 0;
    t->e.cause = NULL;
    t->e.ms = 0;
    return on;
}

static manta_status tell_recovery(teller *t)
{
    bool on = true;

    while (cluster_take_recovery(t->c, &t->e.rank, &t->e.ms, &t->e.cause))
        on &= tell(t, MANTA_EVENT_RECOVERED);
    t->e.rank = 0;
    t->e.ms = 0;
    t->e.cause = NULL;
    return on ? MANTA_OK : stopped(t);
}

/* Meets the others. Where to begin is what callbacks say, or where the others
 * are. *over: they are through already. */
static manta_status begin_cluster(teller *t, pass *p, pass *v, bool *over)
{
    cluster_work w = {.phase = p ? CLUSTER_TRAIN : CLUSTER_EVALUATE,
                      .epochs = t->f.epochs,
                      .epoch = p ? t->f.first_epoch : 0,
                      .step = p ? t->f.first_step : 0,
                      .watch = watch_cluster,
                      .ctx = t};

    t->c = t->s->cluster;
    t->s->grouped = true;
    if (p) {
        w.readers[CLUSTER_TRAIN] = &p->reader;
        w.steps = p->steps;
    }
    if (v && v->reader.loader) {
        w.readers[CLUSTER_EVALUATE] = &v->reader;
        w.validation_steps = v->steps;
    }
    TRY(cluster_begin(t->c, t->s, &w, over));
    if (p && !*over) {
        t->f.first_epoch = t->c->at.epoch;
        t->f.first_step =
            t->c->at.phase == CLUSTER_TRAIN ? t->c->at.step : layout_run(&t->s->l, t->s->state)->step;
    }
    return tell_recovery(t);
}

static manta_status end_cluster(teller *t, manta_status st)
{
    if (t->c) st = cluster_end(t->c, st);
    if (t->c) t->s->grouped = false;
    t->c = NULL;
    return st;
}

/* ---- evaluation ---- */

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
    return happen(t, HOOK_test_batch_end, MANTA_EVENT_VALIDATE_STEP);
}

/* The same steps, computed by workers as feed `feed` of the group. */
static manta_status evaluate_shared(pass *p, group *g, int feed, teller *t, const char *prefix)
{
    manta_session *s = p->s;

    if (!p->steps) return no_data(prefix);
    TRY(begin_batch(t, HOOK_test_batch_begin, 0));
    group_begin(g, feed, 0, 0, p->steps, is_watched(t));
    for (int64_t step = is_watched(t) ? 0 : p->steps - 1; step < p->steps; step++) {
        TRY(group_await(g, step + 1));
        memcpy(s->eval_sums, group_eval_sums(g), ((size_t)s->l.n_sums + 1) * sizeof(double));
        if (!tell_workers(t, g)) return stopped(t);
        TRY(evaluated(t, step, s->eval_sums, prefix));
        if (step + 1 < p->steps) TRY(begin_batch(t, HOOK_test_batch_begin, step + 1));
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
        if (!more) return step ? MANTA_OK : no_data(prefix);
        TRY(begin_batch(t, HOOK_test_batch_begin, step));
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
        TRY(begin_batch(t, HOOK_test_batch_begin, c->at.step));
        TRY(cluster_step(c));
        TRY(tell_recovery(t));
        if (cluster_is_in(c, epoch, CLUSTER_EVALUATE))
            TRY(evaluated(t, c->at.step - 1, p->s->eval_sums, prefix));
    }
    return MANTA_OK;
}

/* Runs an evaluation pass; its metrics, with `prefix`, are added to out. */
static manta_status evaluate_pass(pass *p, group *g, int feed, teller *t, const char *prefix,
                                  manta_metrics *out)
{
    manta_session *s = p->s;

    if (!t->c) memset(s->eval_sums, 0, ((size_t)s->l.n_sums + 1) * sizeof(double));
    if (t->c) {
        TRY(evaluate_cluster(p, t, prefix));
    } else if (g) {
        TRY(evaluate_shared(p, g, feed, t, prefix));
    } else {
        TRY(evaluate_here(p, t, prefix));
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
    if (is_clustered(s, PLAN_EVALUATE) && (st = begin_cluster(&t, NULL, &p, &over))) goto out;
    if ((st = open_group(s, o, &p.feed, 1, &g))) goto out;
    if (g && !tell_workers(&t, g)) {
        st = stopped(&t);
        goto out;
    }
    if ((st = fitting_run(&t.f, HOOK_test_begin))) goto out;
    if ((st = evaluate_pass(&p, g, 0, &t, "", &metrics))) goto out;
    t.metrics = metrics;
    if ((st = fitting_run(&t.f, HOOK_test_end))) goto out;
    if (out) *out = metrics;
out:
    st = end_cluster(&t, st);
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
        if ((st = begin_batch(&t, HOOK_predict_batch_begin, step))) goto out;
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

/* ---- training ---- */

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
    if (is_clustered(r->p.s, PLAN_TRAIN)) return begin_cluster(&r->t, &r->p, &r->v, &r->over);
    r->feeds[0] = r->p.feed;
    r->feeds[1] = r->v.feed;
    TRY(open_group(r->p.s, r->t.o, r->feeds, r->v.reader.loader ? 2 : 1, &r->g));
    return r->g && !tell_workers(&r->t, r->g) ? stopped(&r->t) : MANTA_OK;
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
    return happen(t, HOOK_train_batch_end, MANTA_EVENT_STEP);
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
        TRY(begin_batch(t, HOOK_train_batch_begin, step));
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
        TRY(begin_batch(t, HOOK_train_batch_begin, step));
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

/* The same steps, computed by workers. Without anybody to tell they are not
 * held up between steps. */
static manta_status train_shared(training *r, int64_t first)
{
    teller *t = &r->t;
    int64_t steps = r->p.steps;

    if (first >= steps) return MANTA_OK;
    TRY(begin_batch(t, HOOK_train_batch_begin, first));
    group_begin(r->g, 0, t->e.epoch, first, steps, is_watched(t));
    for (int64_t step = is_watched(t) ? first : steps - 1; step < steps; step++) {
        TRY(group_await(r->g, step + 1));
        if (!tell_workers(t, r->g)) return stopped(t);
        TRY(trained(t, step));
        if (t->f.stop && step + 1 < steps) { /* a job cannot be cut short: others take over */
            group_close(r->g);
            r->g = NULL;
            return r->v.reader.loader ? open_workers(r) : MANTA_OK;
        }
        if (step + 1 < steps) TRY(begin_batch(t, HOOK_train_batch_begin, step + 1));
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
        TRY(begin_batch(t, HOOK_train_batch_begin, before));
        TRY(cluster_step(c));
        TRY(tell_recovery(t));
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
    TRY(tell_recovery(t));
    if (stop && !t->f.stop) t->f.stop = mem_strdup("the chief has ended it");
    if (!stop && t->f.stop) {
        mem_free(t->f.stop);
        t->f.stop = NULL;
    }
    return MANTA_OK;
}

/* ---- training with parameter servers ---- */

static bool tell_losses(teller *t, ps *servers)
{
    char cause[160];
    ps_event e;
    bool on = true;

    while (ps_take_event(servers, &e)) {
        if (e.server && !e.lost) continue; /* a worker event means a worker */
        t->e.rank = e.rank;
        t->e.pid = e.pid;
        snprintf(cause, sizeof cause, "%s%s", e.server ? "as parameter server: " : "", e.cause);
        t->e.cause = e.lost ? cause : NULL;
        on &= tell(t, e.lost ? MANTA_EVENT_RECOVERED : MANTA_EVENT_WORKER);
        t->e.rank = 0;
        t->e.pid = 0;
        t->e.cause = NULL;
    }
    return on;
}

static manta_status open_validation(training *r, manta_session *s, const manta_fit_options *o)
{
    if (!o->validation) return MANTA_OK;
    return pass_open(&r->v, s, o->validation, o, PLAN_EVALUATE, o->validation_steps);
}

static manta_status open_servers(training *r)
{
    manta_session *s = r->p.s;
    ps_options o = {.staleness = s->staleness, .max_failures = r->p.o->max_failures};

    if (s->ps_cluster && !manta_cluster_is_chief(s->ps_cluster)) {
        r->over = true; /* when this returns */
        return ps_join(s, &r->p.feed);
    }
    TRY(s->ps_cluster ? ps_open_cluster(s, &r->p.feed, &o, &r->servers)
                      : ps_open(s, &r->p.feed, s->servers, s->ps_workers, &o, &r->servers));
    if (!tell_losses(&r->t, r->servers)) return stopped(&r->t);
    /* Only now, because it brings threads, and the others are forked. */
    return open_validation(r, s, r->p.o);
}

/* Steps in whatever order they come to be done. Callbacks may look at the state. */
static manta_status train_served(training *r, int64_t first)
{
    teller *t = &r->t;
    bool more;

    TRY(ps_begin(r->servers, t->e.epoch, first, r->p.steps));
    for (int64_t step = first; !t->f.stop; step++) {
        TRY(ps_next(r->servers, &more));
        if (!tell_losses(t, r->servers)) return stopped(t);
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
    TRY(happen(t, HOOK_test_begin, MANTA_EVENT_VALIDATE));
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
        return happen(t, HOOK_epoch_begin, MANTA_EVENT_EPOCH_BEGIN);
    }
    s->touched = true;
    see_metrics(t, first);
    return tell(t, MANTA_EVENT_EPOCH_BEGIN) ? MANTA_OK : stopped(t);
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
        TRY(happen(t, HOOK_epoch_end, MANTA_EVENT_EPOCH_END));
        if (t->c) TRY(decide_end(t, before));
        if (r->p.s->peers.step) TRY(agree_to_stop(t));
    }
    return MANTA_OK;
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

    t->e = (manta_event){.epoch = t->f.first_epoch, .epochs = t->f.epochs, .steps = r->p.steps};
    t->f.next_epoch = t->f.first_epoch;
    t->f.next_step = t->f.first_step;
    st = r->p.s->servers ? open_servers(r) : open_workers(r);
    if (!st && !(st = happen(t, HOOK_train_begin, MANTA_EVENT_BEGIN)) && !r->over) st = run_epochs(r);
    st = end_cluster(t, st);
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
        st = happen(t, HOOK_train_end, MANTA_EVENT_END);
    }
    if (out) *out = t->metrics;
out:
    pass_close(&r.p);
    pass_close(&r.v);
    fitting_release(&t->f);
    return st;
}
