/* trainer_worker_data.c - the datasets of a worker: whole, or its shard of them. */
#include <string.h>

#include <manta/data_file.h>

#include "base/args.h"
#include "base/status.h"
#include "train/trainer/trainer_worker.h"

static manta_status find_dataset(const manta_worker *w, const char *name, int *out)
{
    for (int i = 0; i < w->n_datasets; i++) {
        if (strcmp(w->datasets[i].name, name) != 0) continue;
        *out = i;
        return MANTA_OK;
    }
    return manta_fail(MANTA_ENOENT, "the trainer was given no dataset called '%s'", name);
}

/* Delivers d unless a stage of it has failed; takes d. */
static manta_status deliver_dataset(manta_dataset *d, manta_dataset **out)
{
    manta_status st = manta_dataset_status(d);

    if (st) {
        manta_dataset_unref(d);
    } else {
        *out = d;
    }
    return st;
}

static manta_status make_dataset(manta_worker *w, int i, manta_dataset **out)
{
    const worker_maker *m = &w->makers[i];
    manta_dataset *made;
    manta_error why;

    /* What the maker says itself is said after this. */
    (void)!manta_fail(MANTA_EINVAL, "the maker of dataset '%s' gave none, and did not say why",
                      w->datasets[i].name);
    if ((made = m->fn(w, m->user, m->size))) return deliver_dataset(made, out);
    manta_error_get(&why);
    return why.code;
}

/* All of it, as this rank gets it, not divided yet. */
static manta_status open_dataset(manta_worker *w, int i, manta_dataset **out)
{
    const trainer_dataset *d = &w->datasets[i];
    manta_column columns[TRAINER_COLUMNS];

    if (w->makers[i].fn) return make_dataset(w, i, out);
    if (*d->spec) return manta_dataset_open(d->spec, NULL, out);
    for (int k = 0; k < d->n_columns; k++) columns[k] = (manta_column){d->columns[k], w->columns[i][k]};
    return deliver_dataset(manta_dataset_arrays(d->n_columns, columns, MANTA_OWNERSHIP_BORROW), out);
}

static bool is_divided(const trainer_dataset *d)
{
    return !d->whole && !*d->maker;
}

manta_status manta_worker_dataset(manta_worker *w, const char *name, manta_dataset **out)
{
    REFUSE_NULL(w);
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    manta_dataset *d;
    int i = 0;

    TRY(find_dataset(w, name, &i));
    TRY(open_dataset(w, i, &d));
    if (w->datasets[i].shuffle) d = manta_dataset_shuffle(d, 0, w->t.seed);
    if (is_divided(&w->datasets[i])) d = manta_dataset_shard(d, w->t.world, w->t.rank);
    return deliver_dataset(d, out);
}

manta_status manta_prepare_loader(manta_worker *w, const char *name, const manta_loader_options *o,
                                  manta_loader **out, int64_t *steps)
{
    REFUSE_NULL(w);
    REFUSE_NULL(name);
    REFUSE_NULL(out);

    manta_loader_options lo = o ? *o : (manta_loader_options){0};
    manta_dataset *d = NULL;
    double most;
    int i = 0;
    manta_status st;

    TRY(find_dataset(w, name, &i));
    TRY(open_dataset(w, i, &d));
    if (is_divided(&w->datasets[i]) && !manta_dataset_is_batched(d)) {
        lo.sampler = MANTA_SAMPLER_DISTRIBUTED;
        lo.replicas = w->t.world;
        lo.rank = w->t.rank;
        lo.shuffle = w->datasets[i].shuffle;
        lo.seed = w->t.seed;
    } else {
        if (w->datasets[i].shuffle) d = manta_dataset_shuffle(d, 0, w->t.seed);
        if (is_divided(&w->datasets[i])) d = manta_dataset_shard(d, w->t.world, w->t.rank);
    }
    st = manta_loader_open(d, &lo, out);
    manta_dataset_unref(d);
    if (st) return st;
    most = (double)manta_loader_steps(*out);
    if ((st = worker_combine(w, &most, 1, true))) {
        manta_loader_close(*out);
        *out = NULL;
        return st;
    }
    if (steps) *steps = (int64_t)most;
    return MANTA_OK;
}
