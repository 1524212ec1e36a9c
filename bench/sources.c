/* sources.c - how fast data files become datasets, on one core.
 *
 *     bench_sources [--all] f.csv:label=y [f.parquet:label=y ...]
 *
 * Opens each specification and reads its last sample (so that what is decoded
 * late is decoded too), RUNS times, and prints the median. At the end of each
 * line is the sum of the first and last row, to be compared with the peer's.
 * --all: every sample is read, in batches of 256, by the calling thread, and the
 * sum is that of the first element of each (peers/tf_sources.py does the same);
 * the second time is that of a further pass over the open dataset. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <manta/data_file.h>

#include "base/clock.h"

#define RUNS 9

static int by_value(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

static manta_status read_all(const char *spec, double *sum)
{
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_batch b;
    manta_status st;

    if ((st = manta_dataset_open(spec, NULL, &d))) return st;
    int64_t rows = manta_dataset_count(d), steps[] = {0, rows - 1};
    if ((st = manta_loader_open(d, &(manta_loader_options){.batch_size = 1, .readers = MANTA_NONE}, &l)))
        goto out;
    *sum = 0;
    for (int i = 0; i < 2 && rows > 0; i++) {
        if ((st = manta_loader_seek(l, 0, steps[i]))) goto out;
        if (!manta_loader_next(l, &b)) {
            st = manta_loader_status(l);
            goto out;
        }
        const manta_array *x = manta_batch_find(&b, "x");
        for (int64_t k = 0; k < manta_array_count(x); k++) *sum += (double)((const float *)x->data)[k];
    }
out:
    manta_loader_close(l);
    manta_dataset_unref(d);
    return st;
}

/* One pass over all samples. */
static manta_status pass(manta_loader *l, int64_t samples, double *sum)
{
    manta_batch b;

    *sum = 0;
    for (int64_t left = samples; left > 0; left -= b.count) {
        if (!manta_loader_next(l, &b)) break;
        const manta_array *x = manta_batch_find(&b, "x");
        int64_t width = manta_array_count(x) / x->shape[0];
        for (int64_t k = 0; k < x->shape[0]; k++) *sum += (double)((const float *)x->data)[k * width];
    }
    return manta_loader_status(l);
}

/* Opens and reads all; *again_ns: how long reading all once more took. */
static manta_status read_every(const char *spec, double *sum, int64_t *again_ns)
{
    manta_dataset *d = NULL;
    manta_loader *l = NULL;
    manta_status st;
    double again;

    if ((st = manta_dataset_open(spec, NULL, &d))) return st;
    int64_t n = manta_dataset_count(d);
    if ((st = manta_loader_open(d, &(manta_loader_options){.batch_size = 256, .readers = MANTA_NONE}, &l)))
        goto out;
    if ((st = pass(l, n, sum))) goto out;
    *again_ns = clock_now_ns();
    if ((st = manta_loader_seek(l, 1, 0))) goto out;
    if ((st = pass(l, n, &again))) goto out;
    *again_ns = clock_now_ns() - *again_ns;
out:
    manta_loader_close(l);
    manta_dataset_unref(d);
    return st;
}

int main(int argc, char **argv)
{
    bool all = argc > 1 && !strcmp(argv[1], "--all");

    for (int i = 1 + all; i < argc; i++) {
        int64_t took[RUNS], again[RUNS] = {0};
        double sum = 0;
        char path[1024];
        struct stat info;

        snprintf(path, sizeof path, "%.*s", (int)strcspn(argv[i], ":"), argv[i]);
        for (int k = 0; k < RUNS; k++) {
            int64_t from = clock_now_ns();
            if (all ? read_every(argv[i], &sum, &again[k]) : read_all(argv[i], &sum)) {
                fprintf(stderr, "%s\n", manta_error_text());
                return 1;
            }
            took[k] = clock_now_ns() - from - again[k];
        }
        qsort(took, RUNS, sizeof took[0], by_value);
        qsort(again, RUNS, sizeof again[0], by_value);
        if (stat(path, &info)) return 1;
        double s = (double)took[RUNS / 2] * 1e-9;
        printf("%-28s %8.1f ms %8.0f MB/s   sum %.6g", argv[i], s * 1e3, (double)info.st_size / s / 1e6, sum);
        if (all) printf("   again %.1f ms", (double)again[RUNS / 2] * 1e-6);
        puts("");
    }
    return 0;
}
