/* source.h - how format/ makes datasets of what it has read. */
#ifndef DATA_SOURCE_H
#define DATA_SOURCE_H

#include <manta/data.h>

/* Columns that lie in memory, row-major, `count` samples each. */
typedef struct source_memory {
    int64_t count;
    int n;
    manta_column_spec columns[MANTA_MAX_COLUMNS];
    const void *data[MANTA_MAX_COLUMNS];
    void *ctx;
    /* Optional: blocks until the memory is filled (a decoder may still be at
     * work) and says how that went. Called from reader threads before every
     * sample, so it must be quick once it is done. */
    manta_status (*wait)(void *ctx);
    void (*release)(void *ctx); /* optional: the last reference is gone */
} source_memory;

/* A dataset over it. Takes ctx in every case, also when the result has failed. */
manta_dataset *source_from_memory(const source_memory *m);

/* Samples that a function reads by number, from any thread. */
typedef struct source_indexed {
    int64_t count;
    int n;
    manta_column_spec columns[MANTA_MAX_COLUMNS];
    void *ctx;
    /* Per-reader state, optional pair. */
    manta_status (*open)(void *ctx, void **state);
    void (*close)(void *ctx, void *state);
    /* Writes sample i into out[c] where not NULL. */
    manta_status (*read)(void *ctx, void *state, int64_t i, void *const *out);
    void (*release)(void *ctx); /* optional */
} source_indexed;

manta_dataset *source_from_reader(const source_indexed *s);

#endif
