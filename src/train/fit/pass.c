/* pass.c - one pass over a dataset. */
#include "train/fit/pass.h"

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
    *out = (batch ? batch : 32) * (mode == PLAN_PREDICT ? 1 : s->replicas);
    if (o->global_batch && !(mode == PLAN_EVALUATE && o->validation_batch)) *out = o->global_batch;
    return MANTA_OK;
}

/* What is read in a pass over `d`: shuffled when training. */
static manta_status describe_feed(pass *p, manta_dataset *d)
{
    const manta_fit_options *o = p->o;
    feed_source *f = &p->data.source;
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

/* Steps of an epoch must be known when they are not read one after the other here. */
static manta_status check_steps(const pass *p, engine_reading reads)
{
    if (p->data.steps == MANTA_FOREVER_COUNT) {
        return manta_fail(MANTA_EINVAL, "the dataset repeats for ever: say how many steps an epoch has");
    }
    if (p->data.steps < 0 && reads != ENGINE_READS_HERE) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the length of the dataset is not known: with several workers, say how many steps "
                          "an epoch has");
    }
    return MANTA_OK;
}

manta_status pass_open(pass *p, manta_session *s, manta_dataset *d, const manta_fit_options *o,
                       plan_mode mode, int64_t limit)
{
    engine_reading reads = engine_reads(s, mode);
    const manta_column_spec *columns;
    feed_pass *data = &p->data;
    feed_source *f = &data->source;
    int n;

    *p = (pass){.s = s, .o = o, .mode = mode, .data.limit = limit};
    TRY(describe_feed(p, d));
    if (reads != ENGINE_READS_HERE) f->lo.readers = MANTA_NONE; /* no threads: nothing is read ahead here */
    TRY(feed_reader_open(&data->reader, f));
    n = manta_loader_columns(data->reader.loader, &columns);
    TRY(feed_map_init(&f->map, s->m, mode != PLAN_PREDICT, n, columns));
    data->steps = manta_loader_steps(data->reader.loader);
    if (limit && (data->steps < 0 || limit < data->steps)) data->steps = limit;
    TRY(check_steps(p, reads));
    n = manta_loader_batch_sizes(data->reader.loader, f->sizes, FEED_SIZES);
    f->n_sizes = n < FEED_SIZES ? n : FEED_SIZES;
    return reads == ENGINE_READS_ELSEWHERE ? MANTA_OK : session_prepare(s, mode, f->sizes, f->n_sizes);
}

void pass_close(pass *p)
{
    feed_reader_close(&p->data.reader);
    manta_dataset_unref(p->data.source.d);
    p->data.source.d = NULL;
}
