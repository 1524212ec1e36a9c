/* counts.c - how many samples lie where in a dataset of batches. */
#include <string.h>

#include "data/counts.h"

static bool is_stage(const manta_dataset *d, const char *class)
{
    return strcmp(d->class->name, class) == 0;
}

/* Products and sums that stop at the largest number: places beyond what can be
 * counted are asked for by nobody but must not be undefined. */
static int64_t times_saturated(int64_t a, int64_t b)
{
    int64_t v;

    return __builtin_mul_overflow(a, b, &v) ? INT64_MAX : v;
}

static int64_t plus_saturated(int64_t a, int64_t b)
{
    int64_t v;

    return __builtin_add_overflow(a, b, &v) ? INT64_MAX : v;
}

static bool makes_batches(const manta_dataset *d)
{
    return d->batch && !d->in[0]->batch;
}

int64_t counts_before(const manta_dataset *d, int64_t j)
{
    const manta_dataset *in = d->in[0];

    if (makes_batches(d)) {
        int64_t n = times_saturated(j, d->batch);
        if (in->count < 0 || n <= in->count) return n;
        return d->drop ? in->count / d->batch * d->batch : in->count;
    }
    if (is_stage(d, "repeat")) {
        if (in->count <= 0) return times_saturated(j, d->batch);
        return plus_saturated(times_saturated(j / in->count, counts_samples(in)),
                              counts_before(in, j % in->count));
    }
    if (is_stage(d, "skip")) return counts_before(in, plus_saturated(j, d->a)) - counts_before(in, d->a);
    if (is_stage(d, "concatenate")) {
        if (j <= in->count) return counts_before(in, j);
        return plus_saturated(counts_samples(in), counts_before(d->in[1], j - in->count));
    }
    if (is_stage(d, "shuffle") || is_stage(d, "shard")) return times_saturated(j, d->batch);
    return counts_before(in, j);
}

int64_t counts_samples(const manta_dataset *d)
{
    if (is_stage(d, "shuffle")) return counts_samples(d->in[0]);
    return counts_before(d, d->count);
}

static void add_size(int64_t size, int64_t *sizes, int cap, int *n)
{
    for (int i = 0; i < *n; i++) {
        if (sizes[i] == size) return;
    }
    if (*n < cap) sizes[(*n)++] = size;
}

void counts_sizes(const manta_dataset *d, int64_t *sizes, int cap, int *n)
{
    const manta_dataset *in = d->in[0];

    if (makes_batches(d)) {
        if (in->count < 0 || in->count >= d->batch) add_size(d->batch, sizes, cap, n);
        if (in->count >= 0 && in->count % d->batch && !d->drop) add_size(in->count % d->batch, sizes, cap, n);
        return;
    }
    counts_sizes(in, sizes, cap, n);
    /* zip gives rows of both alike, so the first one's sizes serve */
    if (is_stage(d, "concatenate")) counts_sizes(d->in[1], sizes, cap, n);
}
