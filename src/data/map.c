/* map.c - a user's function over samples (or batches). */
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "data/random.h"
#include "data/stage.h"

typedef struct mapping {
    manta_map_fn fn;
    void *user;
} mapping;

/* Per reader: views of the input in scratch memory and of the output. */
typedef struct map_reader {
    manta_column in[MANTA_MAX_COLUMNS];
    manta_column out[MANTA_MAX_COLUMNS];
    void *spare[MANTA_MAX_COLUMNS]; /* outputs nobody wants, and whole batches of which rows are wanted */
} map_reader;

static void view_column(manta_column *col, const manta_column_spec *s, bool batched)
{
    int64_t shape[MANTA_MAX_DIMS] = {1};

    memcpy(shape + batched, s->shape, (size_t)s->ndim * sizeof shape[0]);
    col->name = s->name;
    col->array = manta_array_of(s->dtype, s->ndim + batched, shape, NULL);
}

static manta_status map_open(reader *r)
{
    const manta_dataset *d = r->d, *in = d->in[0];
    map_reader *m = mem_new(sizeof *m);
    int64_t rows = d->batch ? d->batch : 1;

    r->state = m;
    for (int c = 0; c < in->n; c++) {
        TRY(reader_scratch(r, in, c));
        view_column(&m->in[c], &in->columns[c], d->batch > 0);
        m->in[c].array.data = r->scratch[c];
    }
    for (int c = 0; c < d->n; c++) {
        size_t bytes = spec_bytes(&d->columns[c]);
        view_column(&m->out[c], &d->columns[c], d->batch > 0);
        TRY(mem_try_array(rows, bytes ? bytes : 1, "a mapped sample", &m->spare[c]));
    }
    return MANTA_OK;
}

static void map_close(reader *r)
{
    map_reader *m = r->state;

    if (!m) return;
    for (int c = 0; c < MANTA_MAX_COLUMNS; c++) mem_try_free(m->spare[c]);
    mem_free(m);
}

static manta_status map_fetch(reader *r, visit *v)
{
    const manta_dataset *d = r->d;
    const mapping *s = d->state;
    map_reader *m = r->state;
    visit below = *v;

    below.lo = 0;
    below.hi = INT64_MAX; /* the function sees whole batches */
    below.out = r->scratch;
    TRY(reader_fetch(r->in[0], &below));
    v->end = below.end;
    if (v->end) return MANTA_OK;
    v->rows = below.rows;
    v->key_epoch = below.key_epoch;
    v->key_sample = below.key_sample;

    int64_t lo = 0, hi = v->rows;
    if (d->batch) {
        hi = v->hi < v->rows ? v->hi : v->rows;
        lo = v->lo < hi ? v->lo : hi;
        for (int c = 0; c < d->in[0]->n; c++) m->in[c].array.shape[0] = v->rows;
        for (int c = 0; c < d->n; c++) m->out[c].array.shape[0] = v->rows;
    }
    bool whole = lo == 0 && hi == v->rows;
    for (int c = 0; c < d->n; c++) m->out[c].array.data = whole && v->out[c] ? v->out[c] : m->spare[c];

    random_stream random = random_begin(d->seed, v->key_epoch, v->key_sample);
    manta_sample sample = {.epoch = v->key_epoch,
                           .index = v->key_sample,
                           .n_in = d->in[0]->n,
                           .n_out = d->n,
                           .in = m->in,
                           .out = m->out,
                           .random = &random};
    TRY(s->fn(&sample, s->user));
    for (int c = 0; c < d->n && !whole; c++) {
        size_t row = spec_bytes(&d->columns[c]);
        if (v->out[c]) memcpy(v->out[c], (char *)m->spare[c] + (size_t)lo * row, (size_t)(hi - lo) * row);
    }
    return MANTA_OK;
}

static void map_release(manta_dataset *d)
{
    mem_free(d->state);
}

static const stage_class map_class = {
    .name = "map", .fetch = map_fetch, .open = map_open, .close = map_close, .release = map_release};

manta_dataset *manta_dataset_map(manta_dataset *in, manta_map_fn fn, void *user, uint64_t seed, int n,
                                 const manta_column_spec *columns)
{
    if (!in) return stage_refuse(NULL, __func__, "d");
    if (!fn) return stage_refuse(in, __func__, "fn");
    if (n > 0 && !columns) return stage_refuse(in, __func__, "columns");

    bool ok;
    manta_dataset *d = stage_new(&map_class, in, &ok);

    if (!ok) return d;
    mapping *s = mem_new(sizeof *s);
    *s = (mapping){fn, user};
    d->state = s;
    d->seed = seed;
    if (n == 0) return d;
    manta_status st = stage_check_columns("map", n, columns);
    if (st) return stage_fail(d, st);
    d->n = n;
    memcpy(d->columns, columns, (size_t)n * sizeof *columns);
    return d;
}

double manta_sample_uniform(manta_sample *s)
{
    REFUSE_NULL_OR(s, 0);
    return random_uniform(s->random);
}

double manta_sample_normal(manta_sample *s)
{
    REFUSE_NULL_OR(s, 0);
    return random_normal(s->random);
}

uint64_t manta_sample_below(manta_sample *s, uint64_t n)
{
    REFUSE_NULL_OR(s, 0);
    return random_below(s->random, n);
}
