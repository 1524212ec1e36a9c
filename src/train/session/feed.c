/* feed.c - what a model is fed with: which column goes where, and the samples of a step.
 *
 *     dataset ──▶ feed_source ── in each process that computes ──▶ feed_reader ──▶ manta_feed
 *                 what is read      │                              rows of a step, as arrays
 *                                   ├─ feed_reader_next()          batch by batch, ahead of need
 *                                   └─ feed_reader_rows()          the rows of a shard, of any step;
 *                                                                  by a thread ahead, when slow
 *
 * A source is made before processes are forked and belongs to all of them; a reader is its
 * process's own, with a loader. So every process can read any rows of any step, which is what a
 * successor needs: (epoch, step, rows) says them, and nothing that was read before.
 *
 * Reading ahead (read_ahead.h) begins when SLOW_STEPS steps in a row took longer to read than
 * feed_slow_ns, and the thread has the loader from then on. What a feed points to stays valid until
 * the next rows are asked for.
 *
 * Threads: a reader is used by one thread; read_ahead.c has the other. */
#include "train/session/feed.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "train/session/session.h"

enum { SLOW_STEPS = 2 }; /* after so many in a row a thread reads ahead */

/* What is copied from memory takes less, and would only be handed to and fro. */
int64_t feed_slow_ns = 200 * 1000;

static int find_column(const char *name, int n, const manta_column_spec *columns)
{
    for (int i = 0; name && i < n; i++) {
        if (!strcmp(columns[i].name, name)) return i;
    }
    return -1;
}

static manta_status no_column(const char *what, const char *name, int n, const manta_column_spec *columns)
{
    buf b = {0};
    manta_status st;

    for (int i = 0; i < n; i++) buf_printf(&b, "%s%s", i ? ", " : "", columns[i].name);
    st = manta_fail(MANTA_EINVAL,
                    "no column of the data is for the model's %s '%s'; there are: %s; expected one of "
                    "that name, or %s",
                    what, name, buf_text(&b), *what == 'i' ? "x" : "y");
    buf_release(&b);
    return st;
}

/* The one column that is neither an input nor a weight; -1: there is none, or several. */
static int only_other(const feed_map *f, int n, const manta_column_spec *columns)
{
    int found = -1, others = 0;

    for (int c = 0; c < n; c++) {
        bool other = strcmp(columns[c].name, "sample_weight") != 0;
        for (int i = 0; i < f->n_inputs; i++) other = other && f->inputs[i] != c;
        if (!other) continue;
        found = c;
        others++;
    }
    return others == 1 ? found : -1;
}

manta_status feed_map_init(feed_map *f, const manta_model *m, bool targets, int n_columns,
                           const manta_column_spec *columns)
{
    const char *name = NULL;

    *f = (feed_map){
        .n_inputs = manta_model_inputs(m), .n_targets = targets ? manta_model_outputs(m) : 0, .weight = -1};
    if (f->n_inputs > 8 || f->n_targets > 8) {
        return manta_fail(
            MANTA_EUNSUPPORTED,
            "a model of %d inputs and %d outputs cannot be fed from columns, expected at most 8 of each",
            f->n_inputs, f->n_targets);
    }
    for (int i = 0; i < f->n_inputs; i++) {
        manta_model_input(m, i, &name);
        f->inputs[i] = find_column(name, n_columns, columns);
        if (f->inputs[i] < 0 && f->n_inputs == 1) {
            f->inputs[i] = find_column("x", n_columns, columns);
            if (f->inputs[i] < 0 && n_columns) f->inputs[i] = 0;
        }
        if (f->inputs[i] < 0) return no_column("input", name ? name : "", n_columns, columns);
    }
    for (int i = 0; i < f->n_targets; i++) {
        name = NULL;
        manta_model_output(m, i, &name);
        f->targets[i] = find_column(name, n_columns, columns);
        if (f->targets[i] < 0 && f->n_targets == 1) {
            f->targets[i] = find_column("y", n_columns, columns);
            if (f->targets[i] < 0) f->targets[i] = only_other(f, n_columns, columns);
        }
        if (f->targets[i] < 0) return no_column("output", name ? name : "y", n_columns, columns);
    }
    f->weight = find_column("sample_weight", n_columns, columns);
    if (f->weight >= 0 && columns[f->weight].dtype != MANTA_DTYPE_F32) {
        return manta_fail(MANTA_EINVAL, "the column sample_weight is %s, expected float32",
                          manta_dtype_name(columns[f->weight].dtype));
    }
    return MANTA_OK;
}

manta_feed feed_of(const feed_map *f, const manta_batch *b)
{
    manta_feed out = {.count = b->count, .n_inputs = f->n_inputs, .n_targets = f->n_targets};

    for (int i = 0; i < f->n_inputs; i++) out.inputs[i] = b->columns[f->inputs[i]].array;
    for (int i = 0; i < f->n_targets; i++) out.targets[i] = b->columns[f->targets[i]].array;
    for (int i = 0; f->weight >= 0 && i < f->n_targets; i++)
        out.weights[i] = b->columns[f->weight].array.data;
    return out;
}

int64_t feed_source_count(const feed_source *f, int64_t epoch, int64_t step)
{
    int64_t size = f->lo.batch_size, all = manta_dataset_count(f->d);
    int64_t index = f->lo.steps_per_epoch ? epoch * f->lo.steps_per_epoch + step : step;

    if (all < 0 || all - index * size >= size) return size;
    return all - index * size;
}

/* ---- reading ---- */

manta_status feed_reader_open(feed_reader *r, const feed_source *from)
{
    *r = (feed_reader){.from = from};
    return manta_loader_open(from->d, &from->lo, &r->loader);
}

void feed_reader_close(feed_reader *r)
{
    read_ahead_stop(r->ahead);
    manta_loader_close(r->loader);
    mem_try_free(r->weights);
    *r = (feed_reader){0};
}

static int64_t label_at(const manta_array *y, int64_t i)
{
    switch (y->dtype) {
    case MANTA_DTYPE_I64: return ((const int64_t *)y->data)[i];
    case MANTA_DTYPE_I32: return ((const int32_t *)y->data)[i];
    case MANTA_DTYPE_U8: return ((const uint8_t *)y->data)[i];
    default: return -1;
    }
}

/* The weights of the samples of a batch: those of their classes. */
static manta_status weigh_samples(feed_reader *r, const manta_batch *b, manta_feed *f)
{
    const feed_source *from = r->from;
    const float *given = f->weights[0];

    if (b->count > r->weights_cap) {
        mem_try_free(r->weights);
        r->weights = NULL;
        r->weights_cap = 0;
        TRY(mem_try_array(b->count, sizeof *r->weights, "weights of a batch", (void **)&r->weights));
        r->weights_cap = b->count;
    }
    for (int64_t i = 0; i < b->count; i++) {
        int64_t y = label_at(&f->targets[0], i);
        if (y < 0 || y >= from->n_classes) {
            return manta_fail(MANTA_EINVAL, "sample %lld: label %lld has no class weight; there are %d",
                              (long long)(b->first + i), (long long)y, from->n_classes);
        }
        r->weights[i] = from->class_weight[y] * (given ? given[i] : 1);
    }
    f->weights[0] = r->weights;
    return MANTA_OK;
}

static manta_status feed_batch(feed_reader *r, const manta_batch *b, manta_feed *f)
{
    *f = feed_of(&r->from->map, b);
    return r->from->class_weight && f->n_targets ? weigh_samples(r, b, f) : MANTA_OK;
}

manta_status feed_reader_next(feed_reader *r, manta_feed *f, int64_t *first, bool *more)
{
    manta_batch b;

    *more = false;
    if (!manta_loader_next(r->loader, &b)) return manta_loader_status(r->loader);
    TRY(feed_batch(r, &b, f));
    *first = b.first;
    *more = true;
    return MANTA_OK;
}

/* Whether the step before took long is known when another one is begun. */
static void note_time(feed_reader *r, const read_range *to, int64_t ns)
{
    r->waited_ns += ns;
    if (position_equal(r->at.at, to->at) && r->got.n) return;
    r->slow = ns >= feed_slow_ns ? r->slow + 1 : 0;
}

/* What was read last is not read again: the batches of a dataset that has its own are
 * asked for as a whole by every shard. */
static manta_status read_rows(feed_reader *r, const read_range *to)
{
    int64_t begin = clock_now_ns();
    manta_status st;

    if (r->got.n && read_range_is(&r->at, to)) return MANTA_OK;
    if (r->ahead) {
        st = read_ahead_take(r->ahead, to, &r->got);
    } else {
        st = manta_loader_fetch(r->loader, to->at.epoch, to->at.step, to->lo, to->hi, &r->got);
    }
    note_time(r, to, clock_now_ns() - begin);
    r->at = *to;
    if (st) r->got.n = 0;
    return st;
}

/* Those of rows [lo, hi) that there are. */
static manta_status fetch_rows(feed_reader *r, int64_t epoch, int64_t step, int64_t lo, int64_t hi,
                               manta_feed *f)
{
    TRY(read_rows(r, &(read_range){.at = {epoch, step}, .lo = lo, .hi = hi}));
    TRY(feed_batch(r, &r->got, f));
    f->first = lo;
    return MANTA_OK;
}

void feed_reader_expect(feed_reader *r, const read_range *next, int n)
{
    if (!r->ahead && !r->alone && r->slow >= SLOW_STEPS) {
        r->alone = read_ahead_start(r->loader, r->busy, &r->ahead) != MANTA_OK;
        /* What was read last lies in the loader, which is the thread's from now on, but it
         * has buffers of its own: it stays. */
    }
    if (r->ahead) read_ahead_expect(r->ahead, next, n);
}

manta_status feed_reader_batch(feed_reader *r, int64_t epoch, int64_t step, manta_feed *f)
{
    return fetch_rows(r, epoch, step, 0, INT64_MAX, f);
}

manta_status feed_reader_count(feed_reader *r, int64_t epoch, int64_t step, int64_t *count)
{
    manta_feed f;

    if (!r->from->batched) {
        *count = feed_source_count(r->from, epoch, step);
        return MANTA_OK;
    }
    TRY(feed_reader_batch(r, epoch, step, &f));
    *count = f.count;
    return MANTA_OK;
}

manta_status feed_reader_rows(feed_reader *r, int64_t epoch, int64_t step, int64_t lo, int64_t hi,
                              manta_feed *f)
{
    manta_feed all;

    if (r->from->batched) {
        TRY(feed_reader_batch(r, epoch, step, &all));
        *f = session_feed_rows(&all, lo, hi);
        return MANTA_OK;
    }
    TRY(fetch_rows(r, epoch, step, lo, hi, f));
    if (f->count == hi - lo) return MANTA_OK;
    return manta_fail(MANTA_EINTERNAL, "the loader gave %lld samples, expected %lld", (long long)f->count,
                      (long long)(hi - lo));
}

manta_status feed_pass_next(feed_pass *p, int64_t step, manta_feed *f, int64_t *first, bool *more)
{
    *more = false;
    if (p->limit && step >= p->limit) return MANTA_OK;
    return feed_reader_next(&p->reader, f, first, more);
}
