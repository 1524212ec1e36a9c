/* group_samples.c - the samples behind a step.
 *
 * Nothing here reads a sample: the one asked for may be the one that kills its
 * reader. */
#include "train/group/group_samples.h"

#include <stdio.h>
#include <string.h>

#include "data/stage.h"

manta_status samples_settle(const manta_dataset *d)
{
    void *nowhere[MANTA_MAX_COLUMNS] = {0};
    visit v = {.out = nowhere};
    reader *r = NULL;
    manta_status st;

    for (int i = 0; i < 2; i++) {
        if (d->in[i]) TRY(samples_settle(d->in[i]));
    }
    if (d->in[0] || !d->class || !d->class->peek || d->count <= 0) return MANTA_OK;
    TRY(reader_new(d, &r));
    st = d->class->fetch(r, &v);
    reader_free(r);
    return st;
}

/* Follows element `index` of a pass down to its source, through stages that
 * keep the order. False: there is one that cannot be followed. */
static bool find_source(reader *r, visit *v)
{
    for (;;) {
        if (reader_resolve(&r, v) || v->end) return false;
        if (!r->d->in[0]) return true;
        if (r->d->batch || r->d->in[0]->count != r->d->count) return false;
        r = r->in[0];
    }
}

const char *samples_text(const feed_source *f, int64_t epoch, int64_t step, int64_t lo, int64_t hi,
                         char *text, size_t size)
{
    enum { NAMED = 8 };
    int64_t index = f->lo.steps_per_epoch ? epoch * f->lo.steps_per_epoch + step : step;
    reader *r = NULL;
    size_t at = 0;

    snprintf(text, size, "%lld samples", (long long)(hi - lo));
    if (f->batched || !f->d->indexable || reader_new(f->d, &r)) return text;
    for (int64_t i = lo; i < hi && i < lo + NAMED; i++) {
        visit v = {.epoch = f->lo.steps_per_epoch ? 0 : epoch, .index = index * f->lo.batch_size + i};
        if (!find_source(r, &v)) break;
        at += (size_t)snprintf(text + at, size - at, "%s%lld", i == lo ? "samples " : ", ",
                               (long long)(v.sample_base + v.index));
        if (at >= size) break;
    }
    if (at && hi - lo > NAMED && at < size)
        snprintf(text + at, size - at, " and %lld more", (long long)(hi - lo - NAMED));
    reader_free(r);
    return text;
}
