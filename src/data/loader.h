/* data/loader.h - what a loader gives besides its public face: rows of a batch into
 * memory of the caller's choice, so that several can be at hand at once. */
#ifndef DATA_LOADER_H
#define DATA_LOADER_H

#include <manta/data.h>

typedef struct loader_rows loader_rows; /* buffers for the rows of one batch; opaque */

/* Buffers for whatever l gives at once. *out: owned, loader_rows_free(), before l is
 * closed. MANTA_ENOMEM. */
manta_status loader_rows_new(const manta_loader *l, loader_rows **out) MANTA_MUST_USE;
void loader_rows_free(loader_rows *r); /* accepts NULL */

/* manta_loader_fetch() into `to`: what it gives is valid until `to` is filled again or
 * freed. One thread at a time fetches from a loader, this way or the other. */
manta_status loader_fetch_into(manta_loader *l, loader_rows *to, int64_t epoch, int64_t step, int64_t lo,
                               int64_t hi, manta_batch *batch) MANTA_MUST_USE;

#endif
