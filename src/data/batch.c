/* batch.c - groups of samples, gathered row by row into one buffer per column. */
#include "base/mem.h"
#include "data/stage.h"

/* Row bytes are computed once; per row the gather adds them to each place. */
typedef struct gather {
    size_t row[MANTA_MAX_COLUMNS];
    void *out[MANTA_MAX_COLUMNS];
} gather;

static manta_status batch_open(reader *r)
{
    gather *g = mem_new(sizeof *g);

    r->state = g;
    for (int c = 0; c < r->d->n; c++) g->row[c] = spec_bytes(&r->d->columns[c]);
    return MANTA_OK;
}

static void batch_close(reader *r)
{
    mem_free(r->state);
}

/* Rows of batch `index` when the input's length is known. */
static int64_t known_rows(const manta_dataset *d, int64_t index)
{
    int64_t n = d->in[0]->count, size = d->a;

    if (n < 0 || n - index * size >= size) return size;
    return n - index * size;
}

/* Fetches row i to where the wanted rows have come to. */
static manta_status fetch_row(reader *r, const visit *v, int64_t i, int64_t to, bool wanted, bool *end)
{
    gather *g = r->state;
    visit row = {.epoch = v->epoch, .index = v->index * r->d->a + i, .out = g->out};

    for (int c = 0; c < r->d->n; c++) {
        g->out[c] = wanted && v->out[c] ? (char *)v->out[c] + (size_t)to * g->row[c] : NULL;
    }
    TRY(reader_fetch(r->in[0], &row));
    *end = row.end;
    return MANTA_OK;
}

/* Of an input of unknown length: every row must be tried to learn how many
 * there are, wanted or not. */
static manta_status fetch_unknown(reader *r, visit *v)
{
    int64_t size = r->d->a, i = 0;

    for (bool end = false; i < size; i++) {
        TRY(fetch_row(r, v, i, i - v->lo, i >= v->lo && i < v->hi, &end));
        if (end) break;
    }
    v->rows = i;
    v->end = i == 0 || (r->d->drop && i < size);
    return MANTA_OK;
}

static manta_status batch_fetch(reader *r, visit *v)
{
    int64_t beyond;

    if (v->lo < 0) v->lo = 0;
    if (__builtin_mul_overflow(v->index + 1, r->d->a, &beyond)) { /* of an input without end */
        v->end = true;
        return MANTA_OK;
    }
    v->key_epoch = v->epoch;
    v->key_sample = v->index;
    if (r->d->in[0]->count == MANTA_UNKNOWN_COUNT) return fetch_unknown(r, v);

    v->rows = known_rows(r->d, v->index);
    int64_t hi = v->hi < v->rows ? v->hi : v->rows;
    for (int64_t i = v->lo; i < hi; i++) {
        bool end = false;
        TRY(fetch_row(r, v, i, i - v->lo, true, &end));
        if (end) {
            return manta_fail(MANTA_EINTERNAL, "batch: sample %lld of %lld is not there",
                              (long long)(v->index * r->d->a + i), (long long)r->d->in[0]->count);
        }
    }
    return MANTA_OK;
}

static const stage_class batch_class = {
    .name = "batch", .fetch = batch_fetch, .open = batch_open, .close = batch_close};

static manta_status check_batch(const manta_dataset *in, int64_t size)
{
    if (size < 1)
        return manta_fail(MANTA_EINVAL, "batch: a size of %lld, expected at least 1", (long long)size);
    if (in->batch) {
        return manta_fail(MANTA_EINVAL,
                          "batch: the dataset holds batches of %lld already; a batch of batches is not made",
                          (long long)in->batch);
    }
    for (int c = 0; c < in->n; c++) {
        int64_t bytes;
        if (__builtin_mul_overflow((int64_t)spec_bytes(&in->columns[c]), size, &bytes)) {
            return manta_fail(MANTA_EINVAL, "batch: %lld samples of column '%s' overflow", (long long)size,
                              in->columns[c].name);
        }
    }
    return MANTA_OK;
}

manta_dataset *manta_dataset_batch(manta_dataset *in, int64_t size, bool drop_remainder)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    bool ok;
    manta_dataset *d = stage_new(&batch_class, in, &ok);

    if (!ok) return d;
    manta_status st = check_batch(in, size);
    if (st) return stage_fail(d, st);
    d->a = d->batch = size;
    d->drop = drop_remainder;
    if (in->count >= 0) d->count = in->count / size + (!drop_remainder && in->count % size != 0);
    return d;
}
