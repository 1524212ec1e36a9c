/* train/feed.h - which column of a dataset goes where in a model. */
#ifndef TRAIN_FEED_H
#define TRAIN_FEED_H

#include <manta/train.h>

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

/* The feed of a batch. `class_weight` may be NULL; weights are made in
 * `weights`, which holds at least b->count floats. */
manta_status feed_of(const feed_map *f, const manta_batch *b, const float *class_weight, int n_classes,
                     float *weights, manta_feed *out);

#endif
