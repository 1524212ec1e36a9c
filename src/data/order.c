/* order.c - the stages that only choose which elements come: repeat, shard,
 * take, skip, concatenate, prefetch, and the padding of a distributed sampler. */
#include <string.h>

#include "base/mem.h"
#include "data/order.h"
#include "data/stage.h"

/* ---- repeat: a = times ---------------------------------------------------- */

static manta_status repeat_locate(reader *r, visit *v, reader **from)
{
    const manta_dataset *d = r->d;
    int64_t n = d->in[0]->count;

    /* Each pass is an epoch of what lies below, so that shuffles differ. */
    v->epoch = (d->a < 0 ? 0 : v->epoch * d->a) + v->index / n;
    v->index = v->index % n;
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class repeat_class = {.name = "repeat", .locate = repeat_locate};

/* Repeating what has an unknown length: where each pass ends is found out on
 * the way, so the reader remembers in which pass it is. */
typedef struct passes {
    int64_t epoch, pass;
    int64_t base; /* the index, in this stage's output, that the pass began at */
    int64_t known; /* elements of the pass that are known to exist */
} passes;

static manta_status passes_open(reader *r)
{
    passes *p = mem_new(sizeof *p);

    p->epoch = -1;
    r->state = p;
    return MANTA_OK;
}

static void passes_close(reader *r)
{
    mem_free(r->state);
}

/* Whether the pass has element i; nothing of it is wanted. */
static manta_status passes_probe(reader *r, int64_t epoch, int64_t i, bool *there)
{
    void *nothing[MANTA_MAX_COLUMNS] = {0};
    visit v = {.epoch = epoch, .index = i, .hi = INT64_MAX, .out = nothing};

    TRY(reader_fetch(r->in[0], &v));
    *there = !v.end;
    return MANTA_OK;
}

static manta_status passes_fetch(reader *r, visit *v)
{
    passes *p = r->state;
    int64_t times = r->d->a, epoch = v->epoch, index = v->index;

    if (p->epoch != epoch || index < p->base) *p = (passes){.epoch = epoch};
    while (times < 0 || p->pass < times) {
        int64_t below = (times < 0 ? 0 : epoch * times) + p->pass, want = index - p->base;
        v->epoch = below;
        v->index = want;
        TRY(reader_fetch(r->in[0], v));
        if (!v->end) {
            if (want >= p->known) p->known = want + 1;
            return MANTA_OK;
        }
        /* The pass is over. Read in order, its length is `want`; after a jump
         * it may be less, and is found by walking there. */
        for (bool there = true; there && p->known < want; p->known += there) {
            TRY(passes_probe(r, below, p->known, &there));
        }
        if (p->known == 0) break; /* an empty pass: the next would be empty too */
        p->base += p->known;
        p->pass++;
        p->known = 0;
    }
    v->end = true;
    return MANTA_OK;
}

static const stage_class passes_class = {
    .name = "repeat", .fetch = passes_fetch, .open = passes_open, .close = passes_close};

manta_dataset *manta_dataset_repeat(manta_dataset *in, int64_t times)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    bool ok;
    bool stream = !in->error && in->count == MANTA_UNKNOWN_COUNT;
    manta_dataset *d = stage_new(stream ? &passes_class : &repeat_class, in, &ok);

    if (!ok) return d;
    d->a = times;
    if (times < 0 && times != MANTA_FOREVER_COUNT) {
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "repeat: %lld times, expected at least 0 or MANTA_FOREVER_COUNT",
                                        (long long)times));
    }
    if (times == MANTA_FOREVER_COUNT) {
        if (in->count != 0) d->count = MANTA_FOREVER_COUNT;
    } else if (times == 0) {
        d->count = 0;
    } else if (count_is_known(in->count) && __builtin_mul_overflow(in->count, times, &d->count)) {
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "repeat: %lld times %lld elements are more than can be counted",
                                        (long long)times, (long long)in->count));
    }
    return d;
}

/* ---- shard: every a-th from b on ------------------------------------------ */

static manta_status shard_locate(reader *r, visit *v, reader **from)
{
    if (__builtin_mul_overflow(v->index, r->d->a, &v->index) ||
        __builtin_add_overflow(v->index, r->d->b, &v->index)) {
        v->end = true;
        return MANTA_OK;
    }
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class shard_class = {.name = "shard", .locate = shard_locate};

manta_dataset *manta_dataset_shard(manta_dataset *in, int64_t n, int64_t i)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    bool ok;
    manta_dataset *d = stage_new(&shard_class, in, &ok);

    if (!ok) return d;
    d->a = n;
    d->b = i;
    if (n < 1 || i < 0 || i >= n) {
        return stage_fail(
            d, manta_fail(MANTA_EINVAL, "shard: there is no shard %lld of %lld", (long long)i, (long long)n));
    }
    if (count_is_known(in->count)) d->count = in->count > i ? (in->count - i - 1) / n + 1 : 0;
    return d;
}

/* ---- take a, skip a -------------------------------------------------------- */

static manta_status take_locate(reader *r, visit *v, reader **from)
{
    v->end = v->index >= r->d->a;
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class take_class = {.name = "take", .locate = take_locate};

manta_dataset *manta_dataset_take(manta_dataset *in, int64_t n)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    bool ok;
    manta_dataset *d = stage_new(&take_class, in, &ok);

    if (!ok) return d;
    d->a = n;
    if (n < 0)
        return stage_fail(d,
                          manta_fail(MANTA_EINVAL, "take: %lld elements, expected at least 0", (long long)n));
    if (in->count == MANTA_FOREVER_COUNT || in->count > n) d->count = n;
    return d;
}

static manta_status skip_locate(reader *r, visit *v, reader **from)
{
    if (__builtin_add_overflow(v->index, r->d->a, &v->index)) v->end = true;
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class skip_class = {.name = "skip", .locate = skip_locate};

manta_dataset *manta_dataset_skip(manta_dataset *in, int64_t n)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    bool ok;
    manta_dataset *d = stage_new(&skip_class, in, &ok);

    if (!ok) return d;
    d->a = n;
    if (n < 0)
        return stage_fail(d,
                          manta_fail(MANTA_EINVAL, "skip: %lld elements, expected at least 0", (long long)n));
    if (count_is_known(in->count)) d->count = in->count > n ? in->count - n : 0;
    return d;
}

/* ---- concatenate ------------------------------------------------------------ */

static manta_status concatenate_locate(reader *r, visit *v, reader **from)
{
    int64_t n = r->d->in[0]->count;

    *from = r->in[0];
    if (v->index >= n) {
        v->index -= n;
        v->sample_base += n; /* so that no two samples share their random numbers */
        *from = r->in[1];
    }
    return MANTA_OK;
}

static const stage_class concatenate_class = {.name = "concatenate", .locate = concatenate_locate};

static manta_status same_columns(const manta_dataset *a, const manta_dataset *b)
{
    if (a->n != b->n) {
        return manta_fail(MANTA_EINVAL, "concatenate: the first has %d columns, the second %d", a->n, b->n);
    }
    for (int c = 0; c < a->n; c++) {
        const manta_column_spec *p = &a->columns[c], *q = &b->columns[c];
        char ps[96], qs[96];
        if (strcmp(p->name, q->name) == 0 && p->dtype == q->dtype && p->ndim == q->ndim &&
            memcmp(p->shape, q->shape, (size_t)p->ndim * sizeof p->shape[0]) == 0) {
            continue;
        }
        return manta_fail(
            MANTA_EINVAL, "concatenate: column %d is '%s' %s %s in the first and '%s' %s %s in the second", c,
            p->name, manta_dtype_name(p->dtype), manta_shape_text(p->ndim, p->shape, ps, sizeof ps), q->name,
            manta_dtype_name(q->dtype), manta_shape_text(q->ndim, q->shape, qs, sizeof qs));
    }
    return MANTA_OK;
}

static manta_status check_concatenate(const manta_dataset *a, const manta_dataset *b)
{
    if (!count_is_known(a->count)) {
        return manta_fail(MANTA_EINVAL,
                          "concatenate: the first dataset has no known end (%s), so the second would never "
                          "begin; give the generator its count, or take() of it",
                          a->count == MANTA_FOREVER_COUNT ? "it repeats forever"
                                                          : "a generator that does not say");
    }
    if ((a->batch > 0) != (b->batch > 0)) {
        return manta_fail(MANTA_EINVAL, "concatenate: one dataset holds batches, the other samples");
    }
    return same_columns(a, b);
}

manta_dataset *manta_dataset_concatenate(manta_dataset *a, manta_dataset *b)
{
    if (!a) return stage_refuse(b, __func__, "a");
    if (!b) return stage_refuse(a, __func__, "b");

    bool ok;

    if (b->error) { /* the first error in writing order is the one to keep */
        if (!a->error) {
            manta_dataset_unref(a);
            return b;
        }
        manta_dataset_unref(b);
        return a;
    }
    manta_dataset *d = stage_new(&concatenate_class, a, &ok);
    if (!ok) {
        manta_dataset_unref(b);
        return d;
    }
    d->in[1] = b;
    manta_status st = check_concatenate(a, b);
    if (st) return stage_fail(d, st);
    d->indexable = a->indexable && b->indexable;
    if (b->batch > d->batch) d->batch = b->batch;
    if (b->prefetch > d->prefetch) d->prefetch = b->prefetch;
    if (!count_is_known(b->count)) {
        d->count = b->count;
    } else if (__builtin_add_overflow(a->count, b->count, &d->count)) {
        return stage_fail(d, manta_fail(MANTA_EINVAL,
                                        "concatenate: %lld and %lld elements are more than can be counted",
                                        (long long)a->count, (long long)b->count));
    }
    return d;
}

/* ---- prefetch, and a distributed sampler's padding -------------------------- */

static manta_status pass_locate(reader *r, visit *v, reader **from)
{
    (void)v;
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class prefetch_class = {.name = "prefetch", .locate = pass_locate};

manta_dataset *manta_dataset_prefetch(manta_dataset *in, int64_t n)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    bool ok;
    manta_dataset *d = stage_new(&prefetch_class, in, &ok);

    if (!ok) return d;
    d->prefetch = n;
    if (n < 1 || n > 1024) {
        return stage_fail(
            d, manta_fail(MANTA_EINVAL, "prefetch: %lld batches ahead, expected 1 to 1024", (long long)n));
    }
    return d;
}

static manta_status pad_locate(reader *r, visit *v, reader **from)
{
    v->index %= r->d->in[0]->count;
    *from = r->in[0];
    return MANTA_OK;
}

static const stage_class pad_class = {.name = "pad", .locate = pad_locate};

manta_dataset *order_pad(manta_dataset *in, int64_t multiple)
{
    bool ok;
    manta_dataset *d = stage_new(&pad_class, in, &ok);

    if (!ok) return d;
    if (in->count > INT64_MAX - multiple) {
        return stage_fail(
            d,
            manta_fail(MANTA_EINVAL,
                       "sampler: %lld samples filled up to a multiple of %lld are more than can be counted",
                       (long long)in->count, (long long)multiple));
    }
    if (in->count > 0) d->count = (in->count + multiple - 1) / multiple * multiple;
    return d;
}
