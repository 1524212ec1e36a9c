/* counts.h - how many samples lie where in a dataset of batches. Pure. */
#ifndef DATA_COUNTS_H
#define DATA_COUNTS_H

#include "data/stage.h"

/* Samples in the batches [0, j) of a pass. Stages that reorder or leave out
 * batches (shuffle, shard) count every batch as full. j may be the count. */
int64_t counts_before(const manta_dataset *d, int64_t j);

/* Samples of a pass; d->count must be known. */
int64_t counts_samples(const manta_dataset *d);

/* Adds the sizes that batches of d may have to sizes[0..*n), at most cap,
 * without doubles. */
void counts_sizes(const manta_dataset *d, int64_t *sizes, int cap, int *n);

#endif
