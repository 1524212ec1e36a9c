/* train/session/feed.h - what a model is fed with: which column of a dataset goes where,
 * and the samples of a step, wherever it is computed. */
#ifndef TRAIN_SESSION_FEED_H
#define TRAIN_SESSION_FEED_H

#include <manta/train.h>

#include "train/session/read_ahead.h"

typedef struct feed_map {
    int n_inputs, n_targets;
    int inputs[8], targets[8]; /* columns of the batch */
    int weight; /* column of the sample weights, -1: none */
} feed_map;

/* Matches the model's inputs (and with `targets` its outputs) with columns by
 * name; with one input "x" or the first column will do, with one output "y" or
 * the second. MANTA_EINVAL names what was looked for and what there is. */
manta_status feed_map_init(feed_map *f, const manta_model *m, bool targets, int n_columns,
                           const manta_column_spec *columns);

/* The feed of a batch, borrowed from it; its weights are those of the column. */
manta_feed feed_of(const feed_map *f, const manta_batch *b);

enum { FEED_SIZES = 8 };

/* What is read in a pass over a dataset; each process opens a reader from it. */
typedef struct feed_source {
    manta_dataset *d; /* borrowed */
    manta_loader_options lo;
    bool batched; /* the dataset has batches of its own */
    feed_map map;
    bool train;
    const float *class_weight; /* or NULL; borrowed */
    int n_classes;
    int n_sizes; /* batch sizes to plan for */
    int64_t sizes[FEED_SIZES];
} feed_source;

/* Samples of a step of a dataset that has no batches of its own. */
int64_t feed_source_count(const feed_source *f, int64_t epoch, int64_t step);

/* A source, opened. A feed that it gives is valid until the next one. */
typedef struct feed_reader {
    const feed_source *from; /* borrowed */
    manta_loader *loader; /* NULL: not open */
    float *weights; /* of the samples of a batch, when classes have weights */
    int64_t weights_cap;
    /* Of feed_reader_batch() and _rows(): */
    read_ahead *ahead; /* has the loader; NULL: it is read as it is asked for */
    bool alone; /* there is no room for that */
    read_range at; /* what was read last */
    manta_batch got; /* it, unless its n is 0 */
    int slow; /* steps in a row that took long to read */
    int64_t waited_ns; /* that callers have waited for samples */
    _Atomic uint32_t *busy; /* read_ahead_start()'s; set by who wants to know */
} feed_reader;

manta_status feed_reader_open(feed_reader *r, const feed_source *from) MANTA_MUST_USE;
void feed_reader_close(feed_reader *r); /* accepts zeroed memory */

/* The next batch, whose first sample is *first of the epoch; *more false at its end. */
manta_status feed_reader_next(feed_reader *r, manta_feed *f, int64_t *first, bool *more) MANTA_MUST_USE;

/* How many samples a step has. */
manta_status feed_reader_count(feed_reader *r, int64_t epoch, int64_t step, int64_t *count) MANTA_MUST_USE;

/* The whole batch of a step. */
manta_status feed_reader_batch(feed_reader *r, int64_t epoch, int64_t step, manta_feed *f) MANTA_MUST_USE;

/* Rows [lo, hi) of it. */
manta_status feed_reader_rows(feed_reader *r, int64_t epoch, int64_t step, int64_t lo, int64_t hi,
                              manta_feed *f) MANTA_MUST_USE;

/* Says which rows will be asked for next, the first one first. When reading takes long
 * enough to be worth a thread, it reads them meanwhile: from the third step that is
 * read on, so that rows which end their reader are met at last by one that was asked
 * for them, and are blamed for it. Not before a fork whose child is to read. */
void feed_reader_expect(feed_reader *r, const read_range *next, int n);

/* For tests: a step whose first rows take longer to read is slow; 0: every step is. */
extern int64_t feed_slow_ns;

/* One pass over a source, in steps. It is read from where it was opened: not to be moved. */
typedef struct feed_pass {
    feed_source source;
    feed_reader reader; /* its loader NULL: the pass is not open */
    int64_t steps; /* of an epoch, negative: not known */
    int64_t limit; /* stop after so many, 0: at the end */
} feed_pass;

/* The next batch, which is step `step`; *more false at the end of the epoch. */
manta_status feed_pass_next(feed_pass *p, int64_t step, manta_feed *f, int64_t *first,
                            bool *more) MANTA_MUST_USE;

#endif
