/* pass.c - one pass over a dataset. */
#include "train/fit/pass.h"

#include "base/option.h"

bool pass_is_shared(const manta_session *s, plan_mode mode)
{
    return s->workers > 1 && !s->grouped && mode != PLAN_PREDICT;
}

bool pass_is_clustered(const manta_session *s, plan_mode mode)
{
    return s->ranks > 1 && !s->grouped && mode != PLAN_PREDICT;
}

bool pass_is_elsewhere(const manta_session *s, plan_mode mode)
{
    return pass_is_shared(s, mode) || (s->servers && mode == PLAN_TRAIN);
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
    if (p->steps < 0 && (pass_is_elsewhere(p->s, p->mode) || pass_is_clustered(p->s, p->mode))) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the length of the dataset is not known: with several workers, say how many steps "
                          "an epoch has");
    }
    return MANTA_OK;
}

manta_status pass_open(pass *p, manta_session *s, manta_dataset *d, const manta_fit_options *o,
                       plan_mode mode, int64_t limit)
{
    const manta_column_spec *columns;
    feed_source *f = &p->feed;
    int n;

    *p = (pass){.s = s, .o = o, .mode = mode, .limit = limit};
    TRY(describe_feed(p, d));
    /* No threads before the fork; of a cluster each rank fetches its own samples. */
    if (pass_is_elsewhere(s, mode) || pass_is_clustered(s, mode)) f->lo.readers = MANTA_NONE;
    TRY(feed_reader_open(&p->reader, f));
    n = manta_loader_columns(p->reader.loader, &columns);
    TRY(feed_map_init(&f->map, s->m, mode != PLAN_PREDICT, n, columns));
    p->steps = manta_loader_steps(p->reader.loader);
    if (limit && (p->steps < 0 || limit < p->steps)) p->steps = limit;
    TRY(check_steps(p));
    n = manta_loader_batch_sizes(p->reader.loader, f->sizes, FEED_SIZES);
    f->n_sizes = n < FEED_SIZES ? n : FEED_SIZES;
    if (!pass_is_elsewhere(s, mode)) return session_prepare(s, mode, f->sizes, f->n_sizes);
    return MANTA_OK;
}

void pass_close(pass *p)
{
    feed_reader_close(&p->reader);
    manta_dataset_unref(p->feed.d);
    p->feed.d = NULL;
}

manta_status pass_next(pass *p, int64_t step, manta_feed *f, int64_t *first, bool *more)
{
    *more = false;
    if (p->limit && step >= p->limit) return MANTA_OK;
    return feed_reader_next(&p->reader, f, first, more);
}

manta_status pass_open_workers(manta_session *s, const manta_fit_options *o, const feed_source *feeds, int n,
                               group **g)
{
    group_options go = {.deadline_ms = o->worker_deadline_ms, .max_failures = o->max_failures};

    TRY(option_or_none("worker_deadline_ms", o->worker_deadline_ms));
    return pass_is_shared(s, PLAN_TRAIN) ? group_open(s, feeds, n, &go, g) : MANTA_OK;
}
