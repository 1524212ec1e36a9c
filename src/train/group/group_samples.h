/* train/group/group_samples.h - the samples behind a step. */
#ifndef TRAIN_GROUP_GROUP_SAMPLES_H
#define TRAIN_GROUP_GROUP_SAMPLES_H

#include "train/group/worker_main.h"

/* Waits for decoders that still fill a source's memory, so that workers are
 * born with all of it and share its pages, instead of each decoding anew. */
manta_status samples_settle(const manta_dataset *d);

/* "samples 17, 4, 99 and 29 more": the places in their source of rows [lo, hi)
 * of a batch, as far as they can be known without reading one. */
const char *samples_text(const feed_source *f, int64_t epoch, int64_t step, int64_t lo, int64_t hi,
                         char *text, size_t size);

#endif
