/* fit.c - whole datasets: fit, evaluate, predict. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/feed.h"
#include "train/group.h"
#include "train/session.h"

/* One pass over a dataset, opened. */
typedef struct pass {
    manta_session *s;
    const manta_fit_options *o;
    manta_loader *loader; /* NULL: workers have their own, or the pass is not open */
    seat_feed feed; /* what they are opened from */
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
    *out = (batch ? batch : 32) * (mode == PLAN_PREDICT ? 1 : s->workers);
    if (o->global_batch && !(mode == PLAN_EVALUATE && o->validation_batch)) *out = o->global_batch;
    return MANTA_OK;
}

/* What is read in a pass over `d`: shuffled when training. */
static manta_status describe_feed(pass *p, manta_dataset *d)
{
    const manta_fit_options *o = p->o;
    seat_feed *f = &p->feed;
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
    if (p->steps < 0 && is_shared(p->s, p->mode)) {
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
    seat_feed *f = &p->feed;
    int n;

    *p = (pass){.s = s, .o = o, .mode = mode, .limit = limit};
    TRY(describe_feed(p, d));
    if (is_shared(s, mode)) f->lo.readers = -1; /* no threads before the fork */
    TRY(manta_loader_open(f->d, &f->lo, &p->loader));
    n = manta_loader_columns(p->loader, &columns);
    TRY(feed_map_init(&f->map, s->m, mode != PLAN_PREDICT, n, columns));
    p->steps = manta_loader_steps(p->loader);
    if (limit && (p->steps < 0 || limit < p->steps)) p->steps = limit;
    TRY(check_steps(p));
    n = manta_loader_batch_sizes(p->loader, f->sizes, SEAT_SIZES);
    f->n_sizes = n < SEAT_SIZES ? n : SEAT_SIZES;
    if (!is_shared(s, mode)) return session_prepare(s, mode, f->sizes, f->n_sizes);
    return MANTA_OK;
}

static void pass_close(pass *p)
{
    manta_loader_close(p->loader);
    p->loader = NULL;
    manta_dataset_unref(p->feed.d);
    p->feed.d = NULL;
}

/* The next batch as a feed; *more false at the end of the epoch. */
static manta_status pass_next(pass *p, int64_t step, manta_feed *f, int64_t *first, bool *more)
{
    manta_session *s = p->s;
    bool weighted = p->mode == PLAN_TRAIN && p->o->class_weight;
    manta_batch b;

    *more = false;
    if (p->limit && step >= p->limit) return MANTA_OK;
    if (!manta_loader_next(p->loader, &b)) return manta_loader_status(p->loader);
    if (weighted && b.count > s->class_weights_cap) {
        mem_try_free(s->class_weights);
        s->class_weights_cap = 0;
        TRY(mem_try_array(b.count, sizeof *s->class_weights, "weights of a batch",
                          (void **)&s->class_weights));
        s->class_weights_cap = b.count;
    }
    TRY(feed_of(&p->feed.map, &b, weighted ? p->o->class_weight : NULL, p->o->n_classes, s->class_weights,
                f));
    *first = b.first;
    *more = true;
    return MANTA_OK;
}

/* ---- events ---- */

typedef struct teller {
    const manta_fit_options *o;
    manta_session *s;
    manta_event e;
    manta_metrics metrics;
    int64_t begin_ns, train_ns;
} teller;

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
static manta_status open_group(manta_session *s, const manta_fit_options *o, const seat_feed *feeds, int n,
                               group **g)
{
    group_options go = {.deadline_ms = o->worker_deadline_ms, .max_failures = o->max_failures};

    return is_shared(s, PLAN_TRAIN) ? group_open(s, feeds, n, &go, g) : MANTA_OK;
}

static manta_status stopped(const teller *t)
{
    return manta_fail(MANTA_ECANCELLED, "stopped on request after step %lld of epoch %lld",
                      (long long)t->e.step, (long long)t->e.epoch + 1);
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
    return tell(t, MANTA_EVENT_VALIDATE_STEP) ? MANTA_OK : stopped(t);
}

/* The same steps, computed by workers as feed `feed` of the group. */
static manta_status evaluate_shared(pass *p, group *g, int feed, teller *t, const char *prefix)
{
    manta_session *s = p->s;

    if (!p->steps) return no_data(prefix);
    group_begin(g, feed, 0, p->steps, p->o->event != NULL);
    for (int64_t step = p->o->event ? 0 : p->steps - 1; step < p->steps; step++) {
        TRY(group_await(g, step + 1));
        memcpy(s->eval_sums, group_eval_sums(g), ((size_t)s->l.n_sums + 1) * sizeof(double));
        if (!tell_workers(t, g)) return stopped(t);
        TRY(evaluated(t, step, s->eval_sums, prefix));
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

    TRY(manta_loader_seek(p->loader, 0, 0));
    for (int64_t step = 0;; step++) {
        TRY(pass_next(p, step, &f, &first, &more));
        if (!more) return step ? MANTA_OK : no_data(prefix);
        TRY(manta_session_evaluate_step(s, &f));
        TRY(evaluated(t, step, s->eval_sums, prefix));
    }
}

/* Runs an evaluation pass; its metrics, with `prefix`, are added to out. */
static manta_status evaluate_pass(pass *p, group *g, int feed, teller *t, const char *prefix,
                                  manta_metrics *out)
{
    manta_session *s = p->s;

    memset(s->eval_sums, 0, ((size_t)s->l.n_sums + 1) * sizeof(double));
    if (g) {
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
    teller t = {.o = o ? o : &defaults, .s = s, .begin_ns = clock_now_ns()};
    manta_metrics metrics = {0};
    group *g = NULL;
    pass p;
    manta_status st;

    o = t.o;
    if ((st = pass_open(&p, s, d, o, PLAN_EVALUATE, o->validation_steps))) goto out;
    t.e.steps = p.steps;
    if ((st = open_group(s, o, &p.feed, 1, &g))) goto out;
    if (g && !tell_workers(&t, g)) {
        st = stopped(&t);
        goto out;
    }
    if ((st = evaluate_pass(&p, g, 0, &t, "", &metrics))) goto out;
    if (out) *out = metrics;
out:
    group_close(g);
    pass_close(&p);
    return st;
}

/* ---- prediction ---- */

manta_status manta_predict(manta_session *s, manta_dataset *d, const manta_fit_options *o, manta_take_fn take,
                           void *user)
{
    manta_array outputs[8];
    manta_feed f;
    int64_t first;
    bool more;
    pass p;
    manta_status st;

    if (!o) o = &defaults;
    if (s->m->n_outputs > 8) return manta_fail(MANTA_EUNSUPPORTED, "a model of more than 8 outputs");
    if ((st = pass_open(&p, s, d, o, PLAN_PREDICT, 0))) goto out;
    for (int64_t step = 0;; step++) {
        if ((st = pass_next(&p, step, &f, &first, &more)) || !more) goto out;
        if ((st = manta_session_forward(s, &f, false, s->m->n_outputs, outputs))) goto out;
        if ((st = take(user, first, f.count, s->m->n_outputs, outputs))) goto out;
    }
out:
    pass_close(&p);
    return st;
}

/* ---- training ---- */

/* One more step is committed. */
static manta_status trained(teller *t, int64_t step)
{
    t->e.step = step + 1;
    t->e.samples = (int64_t)session_sums(t->s)[SUM_SAMPLES];
    memset(&t->metrics, 0, sizeof t->metrics);
    session_metrics_of(t->s, session_sums(t->s), "", &t->metrics);
    return tell(t, MANTA_EVENT_STEP) ? MANTA_OK : stopped(t);
}

static manta_status train_here(pass *p, teller *t, int64_t epoch)
{
    manta_feed f;
    int64_t first;
    bool more;

    TRY(manta_loader_seek(p->loader, epoch, 0));
    if (!tell(t, MANTA_EVENT_EPOCH_BEGIN)) return stopped(t);
    for (int64_t step = 0;; step++) {
        TRY(pass_next(p, step, &f, &first, &more));
        if (!more) return MANTA_OK;
        TRY(manta_session_step(p->s, &f));
        TRY(trained(t, step));
    }
}

/* The same steps, computed by workers. Without anybody to tell they are not
 * held up between steps. */
static manta_status train_shared(pass *p, group *g, teller *t, int64_t epoch)
{
    if (!tell(t, MANTA_EVENT_EPOCH_BEGIN)) return stopped(t);
    if (!p->steps) return MANTA_OK;
    group_begin(g, 0, epoch, p->steps, p->o->event != NULL);
    for (int64_t step = p->o->event ? 0 : p->steps - 1; step < p->steps; step++) {
        TRY(group_await(g, step + 1));
        if (!tell_workers(t, g)) return stopped(t);
        TRY(trained(t, step));
        group_next(g);
    }
    return MANTA_OK;
}

static manta_status validate(pass *v, group *g, teller *t)
{
    manta_event before = t->e;
    manta_status st;

    if (!v->loader) return MANTA_OK;
    t->e.step = t->e.samples = 0;
    t->e.steps = v->steps;
    if (!tell(t, MANTA_EVENT_VALIDATE)) return stopped(t);
    st = evaluate_pass(v, g, 1, t, "val_", &t->metrics);
    t->e = before;
    return st;
}

static manta_status run_epochs(pass *p, pass *v, group *g, teller *t, int64_t epochs)
{
    manta_session *s = p->s;

    for (int64_t epoch = p->o->initial_epoch; epoch < epochs; epoch++) {
        run_state *run = layout_run(&s->l, s->state);
        run->epoch = epoch;
        run->step = 0;
        manta_session_reset_metrics(s);
        memset(&t->metrics, 0, sizeof t->metrics);
        t->e = (manta_event){.epoch = epoch, .epochs = epochs, .steps = p->steps};
        t->begin_ns = clock_now_ns();
        TRY(g ? train_shared(p, g, t, epoch) : train_here(p, t, epoch));
        if (!t->e.step) return manta_fail(MANTA_EINVAL, "the training data is empty");
        TRY(validate(v, g, t));
        if (!tell(t, MANTA_EVENT_EPOCH_END)) return stopped(t);
    }
    return MANTA_OK;
}

static manta_status run_fit(pass *p, pass *v, teller *t, int64_t epochs)
{
    seat_feed feeds[2] = {p->feed, v->feed};
    group *g = NULL;
    manta_status st;

    TRY(open_group(p->s, t->o, feeds, v->loader ? 2 : 1, &g));
    t->e = (manta_event){.epochs = epochs, .steps = p->steps};
    t->begin_ns = clock_now_ns();
    if ((g && !tell_workers(t, g)) || !tell(t, MANTA_EVENT_BEGIN)) {
        st = stopped(t);
    } else {
        st = run_epochs(p, v, g, t, epochs);
    }
    group_close(g);
    return st;
}

manta_status manta_fit(manta_session *s, manta_dataset *d, const manta_fit_options *o, manta_metrics *out)
{
    teller t = {.o = o ? o : &defaults, .s = s};
    pass p = {0}, v = {0};
    int64_t epochs;
    manta_status st;

    o = t.o;
    epochs = o->epochs ? o->epochs : 1;
    if (o->initial_epoch < 0 || o->initial_epoch > epochs) {
        return manta_fail(MANTA_EINVAL, "initial epoch %lld of %lld", (long long)o->initial_epoch,
                          (long long)epochs);
    }
    if ((st = pass_open(&p, s, d, o, PLAN_TRAIN, o->steps_per_epoch))) goto out;
    if (o->validation && (st = pass_open(&v, s, o->validation, o, PLAN_EVALUATE, o->validation_steps)))
        goto out;
    st = run_fit(&p, &v, &t, epochs);
    if (!st) apply_average(&s->l, &s->opt, s->state);
    if (out) *out = t.metrics;
    if (!st && !tell(&t, MANTA_EVENT_END)) st = stopped(&t);
out:
    pass_close(&p);
    pass_close(&v);
    return st;
}
