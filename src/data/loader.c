/* loader.c - batches, made ahead of need by reader threads.
 *
 * Batches are numbered by a ticket that only counts up; ticket k is made into
 * slot k % slots, so a slot's buffers are used again when the caller has come
 * back for the batch after.
 *
 *     released          given             made by readers          next to be taken
 *   ... ticket-1 │ ticket (the caller's) │ ticket+1 .. │ ...        │ free slots
 *
 * A reader takes the next ticket and its (epoch, step) under the lock, makes
 * the batch without it, and marks the slot ready. Which reader makes which
 * batch is a matter of luck; what is in it is not (stage.h, invariant 3).
 *
 * Threads: `lock` guards everything but a slot's contents, which belong to the
 * reader that took its ticket until it is ready, then to the caller. */
#include <string.h>

#include "base/args.h"
#include "base/clock.h"
#include "base/mem.h"
#include "data/counts.h"
#include "data/loader.h"
#include "data/order.h"
#include "data/stage.h"
#include "os/thread.h"

typedef struct slot {
    bool ready;
    bool end; /* the data ended before this step */
    manta_status code;
    manta_error error; /* when code is not 0 */
    int64_t epoch, step, rows;
    manta_column columns[MANTA_MAX_COLUMNS];
    void *data[MANTA_MAX_COLUMNS];
} slot;

typedef struct reader_thread {
    manta_loader *loader;
    reader *reader;
    thread_id id;
    bool started;
} reader_thread;

struct manta_loader {
    manta_dataset *root; /* always of batches */
    int64_t steps; /* of an epoch; forever or unknown */
    int64_t steps_per_epoch; /* as asked for, or 0 */

    reader *own; /* the caller's: fetch(), and next() without threads */
    slot spot; /* what fetch() gives */

    int slots, threads;
    slot *ring;
    reader_thread *workers;

    mutex lock;
    cond made; /* a slot became ready, or a reader idle */
    cond wanted; /* a slot became free, or the end */
    int64_t given; /* tickets the caller has been given */
    int64_t taken; /* tickets readers have taken */
    int64_t epoch, step; /* of ticket `taken` */
    int busy; /* readers at work */
    bool closing;
    bool paused; /* a seek is waiting for readers, or the data has ended */

    int64_t at_epoch, at_step; /* the caller's next batch */
    bool holds; /* the caller has a slot */
    manta_error *error; /* latched by next() */
};

/* ---- description ------------------------------------------------------------- */

int64_t manta_loader_steps(const manta_loader *l)
{
    REFUSE_NULL_OR(l, 0);
    return l->steps;
}

int64_t manta_loader_samples(const manta_loader *l)
{
    REFUSE_NULL_OR(l, 0);

    if (l->steps < 0) return l->steps;
    if (l->steps_per_epoch) return counts_before(l->root, l->steps);
    return counts_samples(l->root);
}

static void sort_down(int64_t *a, int n)
{
    for (int i = 1; i < n; i++) {
        for (int k = i; k > 0 && a[k] > a[k - 1]; k--) {
            int64_t t = a[k];
            a[k] = a[k - 1];
            a[k - 1] = t;
        }
    }
}

int manta_loader_batch_sizes(const manta_loader *l, int64_t *sizes, int cap)
{
    REFUSE_NULL_OR(l, 0);
    REFUSE_NEGATIVE_OR(cap, 0);
    if (cap > 0) REFUSE_NULL_OR(sizes, 0);

    int64_t all[64];
    int n = 0;

    counts_sizes(l->root, all, 64, &n);
    sort_down(all, n);
    for (int i = 0; i < n && i < cap; i++) sizes[i] = all[i];
    return n;
}

int manta_loader_columns(const manta_loader *l, const manta_column_spec **columns)
{
    REFUSE_NULL_OR(l, 0);
    return manta_dataset_columns(l->root, columns);
}

const manta_array *manta_batch_find(const manta_batch *b, const char *name)
{
    REFUSE_NULL_OR(b, NULL);
    REFUSE_NULL_OR(name, NULL);

    for (int c = 0; c < b->n; c++) {
        if (strcmp(b->columns[c].name, name) == 0) return &b->columns[c].array;
    }
    return NULL;
}

/* The pass and element of the root that (epoch, step) means. */
static void place_visit(const manta_loader *l, int64_t epoch, int64_t step, visit *v)
{
    v->epoch = l->steps_per_epoch ? 0 : epoch;
    v->index = l->steps_per_epoch ? epoch * l->steps_per_epoch + step : step;
}

/* The running number of the first sample of (epoch, step). Of a generator of
 * unknown length all that can be said is the number within the epoch. */
static int64_t first_sample(const manta_loader *l, int64_t epoch, int64_t step)
{
    visit v;

    place_visit(l, epoch, step, &v);
    int64_t before = v.epoch && l->root->count >= 0 ? v.epoch * counts_before(l->root, l->root->count) : 0;
    return before + counts_before(l->root, v.index);
}

/* ---- making one batch ---------------------------------------------------------- */

/* The most rows that a batch has: of data that is shorter than the size asked for, all there are. */
static int64_t most_rows(const manta_dataset *d)
{
    enum { SIZES = 64 };
    int64_t all[SIZES], most = 1;
    int n = 0;

    counts_sizes(d, all, SIZES, &n);
    if (n == SIZES) return d->batch; /* there may be others */
    for (int i = 0; i < n; i++)
        if (all[i] > most) most = all[i];
    return most;
}

static manta_status slot_init(slot *s, const manta_dataset *d)
{
    int64_t rows = most_rows(d);

    for (int c = 0; c < d->n; c++) {
        const manta_column_spec *spec = &d->columns[c];
        int64_t shape[MANTA_MAX_DIMS] = {rows};
        size_t bytes = spec_bytes(spec);

        TRY(mem_try_array(rows, bytes ? bytes : 1, "a batch", &s->data[c]));
        memcpy(shape + 1, spec->shape, (size_t)spec->ndim * sizeof shape[0]);
        s->columns[c].name = spec->name;
        s->columns[c].array = manta_array_of(spec->dtype, spec->ndim + 1, shape, s->data[c]);
    }
    return MANTA_OK;
}

static void slot_release(slot *s)
{
    for (int c = 0; c < MANTA_MAX_COLUMNS; c++) mem_try_free(s->data[c]);
}

/* Fills s with rows [lo, hi) of (epoch, step). */
static manta_status slot_fill(slot *s, const manta_loader *l, reader *r, int64_t epoch, int64_t step,
                              int64_t lo, int64_t hi)
{
    visit v = {.lo = lo, .hi = hi, .out = s->data};

    place_visit(l, epoch, step, &v);
    s->epoch = epoch;
    s->step = step;
    s->rows = 0;
    s->end = false;
    TRY(reader_fetch(r, &v));
    s->end = v.end;
    if (v.end) return MANTA_OK;
    if (hi > v.rows) hi = v.rows;
    s->rows = hi > lo ? hi - lo : 0;
    for (int c = 0; c < l->root->n; c++) s->columns[c].array.shape[0] = s->rows;
    return MANTA_OK;
}

static void slot_make(slot *s, const manta_loader *l, reader *r, int64_t epoch, int64_t step)
{
    s->code = slot_fill(s, l, r, epoch, step, 0, INT64_MAX);
    if (s->code) manta_error_get(&s->error);
}

static void describe_batch(const manta_loader *l, const slot *s, int64_t lo, manta_batch *b)
{
    *b = (manta_batch){.epoch = s->epoch,
                       .step = s->step,
                       .first = first_sample(l, s->epoch, s->step) + lo,
                       .count = s->rows,
                       .n = l->root->n,
                       .columns = s->columns};
}

/* ---- reader threads ------------------------------------------------------------ */

/* Moves (epoch, step) on by one batch. */
static void advance_position(const manta_loader *l, int64_t *epoch, int64_t *step)
{
    if (++*step >= l->steps && l->steps >= 0) {
        *step = 0;
        ++*epoch;
    }
}

static bool may_take(const manta_loader *l)
{
    /* The caller still holds the slot of ticket given - 1. */
    return !l->paused && l->taken < l->given - (l->holds ? 1 : 0) + l->slots;
}

static void reader_main(void *arg)
{
    reader_thread *w = arg;
    manta_loader *l = w->loader;

    mutex_lock(&l->lock);
    while (!l->closing) {
        if (!may_take(l)) {
            cond_wait(&l->wanted, &l->lock, CLOCK_NEVER);
            continue;
        }
        slot *s = &l->ring[l->taken++ % l->slots];
        int64_t epoch = l->epoch, step = l->step;
        advance_position(l, &l->epoch, &l->step);
        l->busy++;
        mutex_unlock(&l->lock);
        slot_make(s, l, w->reader, epoch, step);
        mutex_lock(&l->lock);
        l->busy--;
        s->ready = true;
        /* Nothing useful lies behind an error or an unforeseen end until the
         * caller has seen it and said where to go on. */
        if (s->code || s->end) l->paused = true;
        cond_broadcast(&l->made);
    }
    mutex_unlock(&l->lock);
}

/* Drops everything made ahead; the next ticket will be (epoch, step). */
static void restart_readers(manta_loader *l, int64_t epoch, int64_t step)
{
    l->at_epoch = epoch;
    l->at_step = step;
    if (!l->threads) return;
    mutex_lock(&l->lock);
    l->paused = true;
    while (l->busy) cond_wait(&l->made, &l->lock, CLOCK_NEVER);
    l->holds = false;
    l->given = l->taken;
    for (int i = 0; i < l->slots; i++) l->ring[i].ready = false;
    l->epoch = epoch;
    l->step = step;
    if (l->steps >= 0 && step >= l->steps) {
        l->epoch++;
        l->step = 0;
    }
    l->paused = false;
    cond_broadcast(&l->wanted);
    mutex_unlock(&l->lock);
}

/* The slot of the next ticket, when it is ready. */
static slot *await_slot(manta_loader *l)
{
    mutex_lock(&l->lock);
    if (l->holds) { /* the caller has done with the one before */
        l->ring[(l->given - 1) % l->slots].ready = false;
        l->holds = false;
        cond_broadcast(&l->wanted);
    }
    slot *s = &l->ring[l->given % l->slots];
    while (!s->ready) cond_wait(&l->made, &l->lock, CLOCK_NEVER);
    l->given++;
    l->holds = true;
    mutex_unlock(&l->lock);
    return s;
}

/* ---- the caller's side ---------------------------------------------------------- */

static bool fail_with(manta_loader *l, const manta_error *e)
{
    l->error = mem_new(sizeof *l->error);
    *l->error = *e;
    return false;
}

/* The data has ended before (epoch, step), which nobody knew beforehand. */
static bool loader_ended(manta_loader *l)
{
    if (!l->steps_per_epoch) {
        restart_readers(l, l->at_epoch + 1, 0);
        return false;
    }
    manta_error e;
    (void)!manta_fail(
        MANTA_EINVAL,
        "loader: the data ends after %lld batches, in step %lld of epoch %lld with %lld steps each; "
        "repeat() the "
        "dataset to go on",
        (long long)(l->at_epoch * l->steps_per_epoch + l->at_step), (long long)l->at_step,
        (long long)l->at_epoch, (long long)l->steps_per_epoch);
    manta_error_get(&e);
    return fail_with(l, &e);
}

bool manta_loader_next(manta_loader *l, manta_batch *batch)
{
    REFUSE_NULL_OR(l, false);
    REFUSE_NULL_OR(batch, false);

    slot *s;

    if (l->error) return false;
    if (l->steps >= 0 && l->at_step >= l->steps) { /* the epoch is over, and now it has been said */
        l->at_epoch++;
        l->at_step = 0;
        return false;
    }
    if (l->threads) {
        s = await_slot(l);
    } else {
        s = &l->ring[0];
        slot_make(s, l, l->own, l->at_epoch, l->at_step);
    }
    if (s->code) return fail_with(l, &s->error);
    if (s->end) return loader_ended(l);
    describe_batch(l, s, 0, batch);
    l->at_step++;
    return true;
}

manta_status manta_loader_status(manta_loader *l)
{
    REFUSE_NULL(l);
    return l->error ? manta_error_raise(l->error) : MANTA_OK;
}

static manta_status check_place(const manta_loader *l, int64_t epoch, int64_t step, bool over)
{
    if (epoch < 0 || step < 0 || (l->steps >= 0 && step >= l->steps + over)) {
        return manta_fail(MANTA_EINVAL,
                          "loader: there is no step %lld of epoch %lld, an epoch has %lld steps",
                          (long long)step, (long long)epoch, (long long)l->steps);
    }
    if (epoch > 0 && l->steps == MANTA_FOREVER_COUNT) {
        return manta_fail(MANTA_EINVAL,
                          "loader: there is no epoch %lld, the dataset repeats forever (give "
                          "steps_per_epoch)",
                          (long long)epoch);
    }
    if (epoch > INT64_MAX / 4 / (l->steps > 0 ? l->steps : 1) / l->root->batch ||
        step > INT64_MAX / 4 / l->root->batch) {
        return manta_fail(MANTA_EINVAL, "loader: step %lld of epoch %lld is beyond what can be counted",
                          (long long)step, (long long)epoch);
    }
    return MANTA_OK;
}

manta_status manta_loader_seek(manta_loader *l, int64_t epoch, int64_t step)
{
    REFUSE_NULL(l);

    TRY(check_place(l, epoch, step, true));
    mem_free(l->error);
    l->error = NULL;
    restart_readers(l, epoch, step);
    return MANTA_OK;
}

void manta_loader_position(const manta_loader *l, manta_position *out)
{
    REFUSE_NULL_AND_RETURN(l);
    REFUSE_NULL_AND_RETURN(out);

    *out = (manta_position){
        .epoch = l->at_epoch, .step = l->at_step, .sample = first_sample(l, l->at_epoch, l->at_step)};
}

manta_status manta_loader_set_position(manta_loader *l, const manta_position *p)
{
    REFUSE_NULL(l);
    REFUSE_NULL(p);
    return manta_loader_seek(l, p->epoch, p->step);
}

static manta_status fetch_rows(manta_loader *l, slot *to, int64_t epoch, int64_t step, int64_t lo, int64_t hi,
                               manta_batch *batch)
{
    TRY(check_place(l, epoch, step, false));
    if (lo < 0 || hi < lo) {
        return manta_fail(MANTA_EINVAL,
                          "loader: samples %lld to %lld of a batch asked for, expected a range from 0 on",
                          (long long)lo, (long long)hi);
    }
    TRY(slot_fill(to, l, l->own, epoch, step, lo, hi));
    if (to->end) {
        return manta_fail(MANTA_EINVAL, "loader: the data ends before step %lld of epoch %lld",
                          (long long)step, (long long)epoch);
    }
    describe_batch(l, to, lo, batch);
    return MANTA_OK;
}

manta_status manta_loader_fetch(manta_loader *l, int64_t epoch, int64_t step, int64_t lo, int64_t hi,
                                manta_batch *batch)
{
    REFUSE_NULL(l);
    REFUSE_NULL(batch);
    return fetch_rows(l, &l->spot, epoch, step, lo, hi, batch);
}

/* ---- rows in buffers of the caller's ---- */

struct loader_rows {
    slot s;
};

manta_status loader_rows_new(const manta_loader *l, loader_rows **out)
{
    loader_rows *r = mem_new(sizeof *r);
    manta_status st = slot_init(&r->s, l->root);

    if (st) {
        loader_rows_free(r);
        return st;
    }
    *out = r;
    return MANTA_OK;
}

void loader_rows_free(loader_rows *r)
{
    if (!r) return;
    slot_release(&r->s);
    mem_free(r);
}

manta_status loader_fetch_into(manta_loader *l, loader_rows *to, int64_t epoch, int64_t step, int64_t lo,
                               int64_t hi, manta_batch *batch)
{
    return fetch_rows(l, &to->s, epoch, step, lo, hi, batch);
}

/* ---- opening and closing --------------------------------------------------------- */

static manta_status check_options(const manta_dataset *d, const manta_loader_options *o)
{
    if (d->batch && (o->batch_size || o->drop_last || o->sampler != MANTA_SAMPLER_SEQUENTIAL)) {
        return manta_fail(MANTA_EINVAL,
                          "loader: the dataset has its own batch(), so batch_size, drop_last and sampler "
                          "must not be given");
    }
    if (o->batch_size < 0 || o->steps_per_epoch < 0) {
        return manta_fail(MANTA_EINVAL,
                          "loader: batch_size %lld and steps_per_epoch %lld must not be negative",
                          (long long)o->batch_size, (long long)o->steps_per_epoch);
    }
    if (o->readers < -1 || o->readers > 256 || o->read_ahead < 0 || o->read_ahead > 1024) {
        return manta_fail(MANTA_EINVAL,
                          "loader: %d readers and %d batches ahead, expected -1 to 256 and 0 to 1024",
                          o->readers, o->read_ahead);
    }
    if ((int)o->sampler < 0 || o->sampler > MANTA_SAMPLER_DISTRIBUTED)
        return manta_fail(MANTA_EINVAL, "loader: there is no sampler %d, expected 0 to %d", (int)o->sampler,
                          MANTA_SAMPLER_DISTRIBUTED);
    if (o->sampler == MANTA_SAMPLER_DISTRIBUTED &&
        (o->replicas < 1 || o->rank < 0 || o->rank >= o->replicas)) {
        return manta_fail(MANTA_EINVAL, "loader: there is no rank %lld of %lld replicas", (long long)o->rank,
                          (long long)o->replicas);
    }
    if (o->sampler != MANTA_SAMPLER_SEQUENTIAL && !count_is_known(d->count)) {
        return manta_fail(MANTA_EINVAL, "loader: a sampler needs a dataset whose number of samples is known");
    }
    return MANTA_OK;
}

/* The sampler, written as the stages that it is. Returns an own reference. */
static manta_dataset *sampled_dataset(manta_dataset *d, const manta_loader_options *o)
{
    d = manta_dataset_ref(d);
    if (d->batch) return d;
    bool distributed = o->sampler == MANTA_SAMPLER_DISTRIBUTED;
    if (o->sampler == MANTA_SAMPLER_RANDOM || (distributed && o->shuffle))
        d = manta_dataset_shuffle(d, 0, o->seed);
    if (distributed && o->pad) d = order_pad(d, o->replicas);
    if (distributed) d = manta_dataset_shard(d, o->replicas, o->rank);
    return manta_dataset_batch(d, o->batch_size ? o->batch_size : 1, o->drop_last);
}

static manta_status make_ring(manta_loader *l, const manta_loader_options *o)
{
    int ahead = o->read_ahead ? o->read_ahead : l->root->prefetch ? (int)l->root->prefetch : 2;

    l->threads = o->readers < 0 || l->steps == 0 ? 0 : o->readers ? o->readers : 1;
    if (!l->root->indexable && l->threads > 1) l->threads = 1; /* a generator runs once */
    if (ahead < l->threads) ahead = l->threads;
    l->slots = l->threads ? ahead + 1 : 1;
    l->ring = mem_new((size_t)l->slots * sizeof *l->ring);
    for (int i = 0; i < l->slots; i++) TRY(slot_init(&l->ring[i], l->root));
    TRY(slot_init(&l->spot, l->root));
    TRY(reader_new(l->root, &l->own));
    l->workers = mem_new((size_t)(l->threads ? l->threads : 1) * sizeof *l->workers);
    for (int i = 0; i < l->threads; i++) {
        l->workers[i].loader = l;
        TRY(reader_new(l->root, &l->workers[i].reader));
    }
    return MANTA_OK;
}

static manta_status start_threads(manta_loader *l)
{
    for (int i = 0; i < l->threads; i++) {
        TRY(thread_start(&l->workers[i].id, "manta-reader", reader_main, &l->workers[i]));
        l->workers[i].started = true;
    }
    return MANTA_OK;
}

static manta_status open_loader(manta_loader *l, manta_dataset *d, const manta_loader_options *o)
{
    TRY(manta_dataset_status(d));
    TRY(check_options(d, o));
    l->root = sampled_dataset(d, o);
    TRY(manta_dataset_status(l->root));
    l->steps_per_epoch = o->steps_per_epoch;
    l->steps = o->steps_per_epoch ? o->steps_per_epoch : l->root->count;
    TRY(make_ring(l, o));
    return start_threads(l);
}

manta_status manta_loader_open(manta_dataset *d, const manta_loader_options *options, manta_loader **out)
{
    REFUSE_NULL(d);
    REFUSE_NULL(out);

    static const manta_loader_options none;
    manta_loader *l = mem_new(sizeof *l);

    mutex_init(&l->lock);
    cond_init(&l->made);
    cond_init(&l->wanted);
    manta_status st = open_loader(l, d, options ? options : &none);
    if (st) {
        manta_loader_close(l);
        return st;
    }
    *out = l;
    return MANTA_OK;
}

void manta_loader_close(manta_loader *l)
{
    if (!l) return;
    mutex_lock(&l->lock);
    l->closing = true;
    cond_broadcast(&l->wanted);
    mutex_unlock(&l->lock);
    for (int i = 0; l->workers && i < l->threads; i++) {
        if (l->workers[i].started) thread_join(&l->workers[i].id);
    }
    for (int i = 0; l->workers && i < l->threads; i++) reader_free(l->workers[i].reader);
    for (int i = 0; l->ring && i < l->slots; i++) slot_release(&l->ring[i]);
    slot_release(&l->spot);
    reader_free(l->own);
    mem_free(l->workers);
    mem_free(l->ring);
    mem_free(l->error);
    manta_dataset_unref(l->root);
    cond_release(&l->wanted);
    cond_release(&l->made);
    mutex_release(&l->lock);
    mem_free(l);
}
