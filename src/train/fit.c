/* fit.c - whole datasets: fit, evaluate, predict. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "train/feed.h"
#include "train/session.h"

enum { MOST_SIZES = 8 };

/* One pass over a dataset, opened. */
typedef struct pass {
    manta_session *s;
    const manta_fit_options *o;
    manta_loader *loader;
    feed_map map;
    plan_mode mode;
    int64_t steps; /* of an epoch, negative: not known */
    int64_t limit; /* stop after so many, 0: at the end */
} pass;

static const manta_fit_options defaults;

/* Opens `d` for a pass: shuffled when training, its batches planned. */
static manta_status pass_open(pass *p, manta_session *s, manta_dataset *d, const manta_fit_options *o,
                              plan_mode mode, int64_t batch, int64_t limit)
{
    bool batched = manta_dataset_is_batched(d);
    manta_loader_options lo = {.batch_size = batched ? 0 : batch ? batch : 32};
    const manta_column_spec *columns;
    int64_t sizes[MOST_SIZES];
    manta_dataset *made = manta_dataset_ref(d);
    manta_status st;
    int n;

    *p = (pass){.s = s, .o = o, .mode = mode, .limit = limit};
    if (batched && batch) {
        st = manta_fail(MANTA_EINVAL, "a batch of %lld was asked for, but the dataset has batches of its own",
                        (long long)batch);
        goto out;
    }
    if (mode == PLAN_TRAIN && !batched && !o->no_shuffle) {
        made = manta_dataset_shuffle(made, 0, layout_run(&s->l, s->state)->seed);
    }
    if (mode == PLAN_TRAIN && o->steps_per_epoch) {
        if (manta_dataset_count(made) != MANTA_FOREVER_COUNT)
            made = manta_dataset_repeat(made, MANTA_FOREVER_COUNT);
        lo.steps_per_epoch = o->steps_per_epoch;
    }
    if ((st = manta_loader_open(made, &lo, &p->loader))) goto out;
    n = manta_loader_columns(p->loader, &columns);
    if ((st = feed_map_init(&p->map, s->m, mode != PLAN_PREDICT, n, columns))) goto out;
    p->steps = manta_loader_steps(p->loader);
    if (limit && (p->steps < 0 || limit < p->steps)) p->steps = limit;
    if (p->steps < 0 && p->steps == MANTA_FOREVER_COUNT) {
        st = manta_fail(MANTA_EINVAL, "the dataset repeats for ever: say how many steps an epoch has");
        goto out;
    }
    n = manta_loader_batch_sizes(p->loader, sizes, MOST_SIZES);
    st = session_prepare(s, mode, sizes, n < MOST_SIZES ? n : MOST_SIZES);
out:
    manta_dataset_unref(made);
    return st;
}

static void pass_close(pass *p)
{
    manta_loader_close(p->loader);
    p->loader = NULL;
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
    TRY(feed_of(&p->map, &b, weighted ? p->o->class_weight : NULL, p->o->n_classes, s->class_weights, f));
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

static manta_status stopped(const teller *t)
{
    return manta_fail(MANTA_ECANCELLED, "stopped on request after step %lld of epoch %lld",
                      (long long)t->e.step, (long long)t->e.epoch + 1);
}

/* ---- evaluation ---- */

/* Runs an evaluation pass; its metrics, with `prefix`, are added to out. */
static manta_status evaluate_pass(pass *p, teller *t, const char *prefix, manta_metrics *out)
{
    manta_session *s = p->s;
    size_t bytes = ((size_t)s->l.n_sums + 1) * sizeof(double);
    manta_feed f;
    int64_t first;
    bool more;

    memset(s->eval_sums, 0, bytes);
    TRY(manta_loader_seek(p->loader, 0, 0));
    for (int64_t step = 0;; step++) {
        TRY(pass_next(p, step, &f, &first, &more));
        if (!more && !step)
            return manta_fail(MANTA_EINVAL, "the %s data is empty", *prefix ? "validation" : "evaluation");
        if (!more) break;
        TRY(manta_session_evaluate_step(s, &f));
        if (!t) continue;
        t->e.step = step + 1;
        t->e.samples += f.count;
        if (!*prefix) {
            memset(&t->metrics, 0, sizeof t->metrics);
            session_metrics_of(s, s->eval_sums, prefix, &t->metrics);
        }
        if (!tell(t, MANTA_EVENT_VALIDATE_STEP)) return stopped(t);
    }
    session_metrics_of(s, s->eval_sums, prefix, out);
    return MANTA_OK;
}

manta_status manta_evaluate(manta_session *s, manta_dataset *d, const manta_fit_options *o,
                            manta_metrics *out)
{
    teller t = {.o = o ? o : &defaults, .s = s, .begin_ns = clock_now_ns()};
    manta_metrics metrics = {0};
    pass p;
    manta_status st;

    o = t.o;
    if ((st = pass_open(&p, s, d, o, PLAN_EVALUATE, o->validation_batch ? o->validation_batch : o->batch,
                        o->validation_steps))) {
        goto out;
    }
    t.e.steps = p.steps;
    if ((st = evaluate_pass(&p, &t, "", &metrics))) goto out;
    if (out) *out = metrics;
out:
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
    if ((st = pass_open(&p, s, d, o, PLAN_PREDICT, o->batch, 0))) goto out;
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

static manta_status train_epoch(pass *p, teller *t)
{
    manta_session *s = p->s;
    manta_feed f;
    int64_t first;
    bool more;

    for (int64_t step = 0;; step++) {
        TRY(pass_next(p, step, &f, &first, &more));
        if (!more) return MANTA_OK;
        TRY(manta_session_step(s, &f));
        t->e.step = step + 1;
        t->e.samples += f.count;
        memset(&t->metrics, 0, sizeof t->metrics);
        session_metrics_of(s, session_sums(s), "", &t->metrics);
        if (!tell(t, MANTA_EVENT_STEP)) return stopped(t);
    }
}

static manta_status validate(pass *v, teller *t)
{
    manta_event before = t->e;
    manta_status st;

    if (!v->loader) return MANTA_OK;
    t->e.step = t->e.samples = 0;
    t->e.steps = v->steps;
    if (!tell(t, MANTA_EVENT_VALIDATE)) return stopped(t);
    st = evaluate_pass(v, t, "val_", &t->metrics);
    t->e = before;
    return st;
}

static manta_status run_epochs(pass *p, pass *v, teller *t, int64_t epochs)
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
        TRY(manta_loader_seek(p->loader, epoch, 0));
        if (!tell(t, MANTA_EVENT_EPOCH_BEGIN)) return stopped(t);
        TRY(train_epoch(p, t));
        if (!t->e.step) return manta_fail(MANTA_EINVAL, "the training data is empty");
        TRY(validate(v, t));
        if (!tell(t, MANTA_EVENT_EPOCH_END)) return stopped(t);
    }
    return MANTA_OK;
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
    if ((st = pass_open(&p, s, d, o, PLAN_TRAIN, o->batch, o->steps_per_epoch))) goto out;
    if (o->validation) {
        int64_t batch = o->validation_batch ? o->validation_batch : o->batch;
        if (manta_dataset_is_batched(o->validation)) batch = 0;
        if ((st = pass_open(&v, s, o->validation, o, PLAN_EVALUATE, batch, o->validation_steps))) goto out;
    }
    t.e = (manta_event){.epochs = epochs, .steps = p.steps};
    t.begin_ns = clock_now_ns();
    st = tell(&t, MANTA_EVENT_BEGIN) ? run_epochs(&p, &v, &t, epochs) : stopped(&t);
    if (!st) apply_average(&s->l, &s->opt, s->state);
    if (out) *out = t.metrics;
    if (!st && !tell(&t, MANTA_EVENT_END)) st = stopped(&t);
out:
    pass_close(&p);
    pass_close(&v);
    return st;
}
