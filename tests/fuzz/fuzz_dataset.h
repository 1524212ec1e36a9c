/* fuzz_dataset.h - reads the first batches of a dataset that an input made. */
#ifndef FUZZ_DATASET_H
#define FUZZ_DATASET_H

#include <manta/data.h>

#include "fuzz.h"

/* Reads up to eight batches of d, in this thread, and gives d back; `st` is how
 * opening it ended, and d NULL where that failed. A failure must have a sentence. */
static inline void fuzz_dataset(manta_status st, manta_dataset *d, int64_t batch_size)
{
    manta_loader *l = NULL;
    manta_batch b;
    const manta_loader_options every = {.batch_size = batch_size, .readers = -1};

    fuzz_expect(st);
    if (!st && !manta_loader_open(d, &every, &l)) {
        for (int i = 0; i < 8 && manta_loader_next(l, &b); i++) {}
        fuzz_expect(manta_loader_status(l));
    }
    manta_loader_close(l);
    manta_dataset_unref(d);
}

#endif
