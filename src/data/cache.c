/* cache.c - samples kept in memory from their first visit on.
 *
 * The memory belongs to the dataset, so all its loaders share it. A sample is
 * written under the lock and then marked; a mark, once seen, is never taken
 * back, so readers of marked samples need no lock. What is kept is what epoch 0
 * makes: then it does not matter who came first. */
#include <string.h>

#include "base/mem.h"
#include "data/stage.h"
#include "os/thread.h"

typedef struct cache {
    mutex lock;
    bool made; /* guarded by lock */
    char *data[MANTA_MAX_COLUMNS]; /* count samples each */
    int64_t *samples; /* key of each */
    atomic_uchar *there; /* 1: may be read without the lock */
} cache;

static manta_status make_cache(cache *k, const manta_dataset *d)
{
    void *m = NULL;
    int64_t n = d->count ? d->count : 1;

    for (int c = 0; c < d->n; c++) {
        size_t bytes = spec_bytes(&d->columns[c]);
        if (k->data[c]) continue;
        TRY(mem_try_array(n, bytes ? bytes : 1, "the cache of a dataset", &m));
        k->data[c] = m;
    }
    if (!k->samples) {
        TRY(mem_try_array(n, sizeof *k->samples, "the cache of a dataset", &m));
        k->samples = m;
    }
    if (!k->there) {
        TRY(mem_try_array(n, sizeof *k->there, "the cache of a dataset", &m));
        k->there = m; /* zeroed */
    }
    k->made = true;
    return MANTA_OK;
}

static manta_status cache_open(reader *r)
{
    cache *k = r->d->state;
    manta_status st = MANTA_OK;

    for (int c = 0; c < r->d->n; c++) TRY(reader_scratch(r, r->d, c));
    mutex_lock(&k->lock);
    if (!k->made) st = make_cache(k, r->d);
    mutex_unlock(&k->lock);
    return st;
}

static manta_status fill_element(reader *r, int64_t i)
{
    cache *k = r->d->state;
    visit v = {.epoch = 0, .index = i, .out = r->scratch};

    TRY(reader_fetch(r->in[0], &v));
    if (v.end) {
        return manta_fail(MANTA_EINTERNAL, "cache: sample %lld of %lld is not there", (long long)i,
                          (long long)r->d->count);
    }
    mutex_lock(&k->lock);
    if (!atomic_load_explicit(&k->there[i], memory_order_relaxed)) {
        for (int c = 0; c < r->d->n; c++) {
            size_t bytes = spec_bytes(&r->d->columns[c]);
            if (bytes) memcpy(k->data[c] + (size_t)i * bytes, r->scratch[c], bytes);
        }
        k->samples[i] = v.key_sample;
        atomic_store_explicit(&k->there[i], 1, memory_order_release);
    }
    mutex_unlock(&k->lock);
    return MANTA_OK;
}

static manta_status visit_cached(reader *r, visit *v)
{
    cache *k = r->d->state;

    if (!atomic_load_explicit(&k->there[v->index], memory_order_acquire)) TRY(fill_element(r, v->index));
    v->rows = 1;
    v->key_epoch = v->epoch; /* what comes after the cache differs from epoch to epoch */
    v->key_sample = v->sample_base + k->samples[v->index];
    return MANTA_OK;
}

static const void *cache_peek(reader *r, visit *v, int c, manta_status *st)
{
    const cache *k = r->d->state;

    *st = visit_cached(r, v);
    return *st ? NULL : k->data[c] + (size_t)v->index * spec_bytes(&r->d->columns[c]);
}

static manta_status cache_fetch(reader *r, visit *v)
{
    const cache *k = r->d->state;

    TRY(visit_cached(r, v));
    for (int c = 0; c < r->d->n; c++) {
        size_t bytes = spec_bytes(&r->d->columns[c]);
        if (v->out[c] && bytes) memcpy(v->out[c], k->data[c] + (size_t)v->index * bytes, bytes);
    }
    return MANTA_OK;
}

static void cache_release(manta_dataset *d)
{
    cache *k = d->state;

    if (!k) return;
    for (int c = 0; c < MANTA_MAX_COLUMNS; c++) mem_try_free(k->data[c]);
    mem_try_free(k->samples);
    mem_try_free((void *)k->there);
    mutex_release(&k->lock);
    mem_free(k);
}

static const stage_class cache_class = {
    .name = "cache", .fetch = cache_fetch, .peek = cache_peek, .open = cache_open, .release = cache_release};

manta_dataset *manta_dataset_cache(manta_dataset *in)
{
    if (!in) return stage_refuse(NULL, __func__, "d");

    bool ok;
    manta_dataset *d = stage_new(&cache_class, in, &ok);

    if (!ok) return d;
    if (d->batch)
        return stage_fail(
            d, manta_fail(MANTA_EINVAL,
                          "cache: the dataset holds batches, expected samples; put it before batch()"));
    if (!count_is_known(d->count)) {
        return stage_fail(d, manta_fail(MANTA_EINVAL, "cache: the number of samples must be known, and %s",
                                        d->count == MANTA_FOREVER_COUNT ? "this repeats forever"
                                                                        : "the generator does not say"));
    }
    cache *k = mem_new(sizeof *k);
    mutex_init(&k->lock);
    d->state = k;
    return d;
}
