/* data/digest.c - see digest.h. */
#include "data/digest.h"

#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/rng.h"
#include "data/stage.h"

enum { WHEN_UNKNOWN = 4096 }; /* elements that are tried for, where nobody knows how many there are */

static uint64_t digest_columns(const manta_dataset *d)
{
    int64_t counts[] = {d->n, d->count, d->batch};
    uint64_t h = hash_bytes(counts, sizeof counts, 0);

    for (int c = 0; c < d->n; c++) {
        const manta_column_spec *s = &d->columns[c];
        int64_t shape[] = {s->dtype, s->ndim};
        h = hash_bytes(s->name, strlen(s->name) + 1, h);
        h = hash_bytes(shape, sizeof shape, h);
        h = hash_bytes(s->shape, (size_t)s->ndim * sizeof *s->shape, h);
    }
    return h;
}

/* Which elements: the two ends, which a file that was cut or has grown shows, and others. */
static int64_t choose_element(rng_key k, int64_t n, int i)
{
    if (n <= DATA_DIGEST_ELEMENTS) return i;
    if (i < 2) return i ? n - 1 : 0;
    return (int64_t)rng_below(k, (uint64_t)i, (uint64_t)n);
}

static manta_status digest_elements(reader *r, void *const *out, uint64_t key, uint64_t *h)
{
    const manta_dataset *d = r->d;
    int64_t n = count_is_known(d->count) ? d->count : WHEN_UNKNOWN;
    rng_key k = rng_make(key, (uint64_t)n);

    for (int i = 0; i < DATA_DIGEST_ELEMENTS && i < n; i++) {
        visit v = {.index = choose_element(k, n, i), .hi = 1, .out = out};
        TRY(reader_fetch(r, &v));
        *h = hash_bytes(&v.end, sizeof v.end, *h);
        for (int c = 0; c < d->n && !v.end; c++) *h = hash_bytes(out[c], spec_bytes(&d->columns[c]), *h);
    }
    return MANTA_OK;
}

static manta_status digest_some(const manta_dataset *d, uint64_t key, uint64_t *h)
{
    void *out[MANTA_MAX_COLUMNS] = {NULL};
    manta_status st = MANTA_OK;
    reader *r;

    TRY(reader_new(d, &r));
    for (int c = 0; c < d->n && !st; c++)
        st = mem_try_array((int64_t)spec_bytes(&d->columns[c]) + 1, 1, "a sample", &out[c]);
    if (!st) st = digest_elements(r, out, key, h);
    for (int c = 0; c < d->n; c++) mem_try_free(out[c]);
    reader_free(r);
    return st;
}

manta_status data_digest(manta_dataset *d, uint64_t key, uint64_t *out)
{
    TRY(manta_dataset_status(d));
    *out = digest_columns(d);
    return d->indexable ? digest_some(d, key, out) : MANTA_OK;
}
