/* stage.h - what a dataset is made of: one node per source or stage.
 *
 * A dataset is a tree of immutable nodes, the last stage at its root. A node
 * answers one question: what is element `index` of pass `epoch`? Nothing else
 * is state, so any place of any epoch can be asked for, by any thread.
 *
 * What has to be remembered on the way (scratch memory, a replayed order, a
 * running generator) lies in a *reader*: a tree of the same shape, made once
 * per thread, with all its memory.
 *
 *     manta_dataset   batch ──▶ scale ──▶ shuffle ──▶ arrays    shared, immutable
 *     reader          batch ──▶ scale ──▶ shuffle ──▶ arrays    one per thread
 *
 * Invariants:
 * 1. A node without error has a class, 1..MANTA_MAX_COLUMNS columns with
 *    different names, and a count that is >= 0, forever or unknown.
 * 2. Elements are samples while batch is 0, else batches of at most so many rows.
 * 3. The answer to (epoch, index) never depends on what was asked before.
 * 4. A reader allocates nothing after reader_new(). */
#ifndef DATA_STAGE_H
#define DATA_STAGE_H

#include <manta/data.h>
#include <stdatomic.h>

#include "base/status.h"

typedef struct reader reader;
typedef struct stage_class stage_class;

/* One element asked for, and what is known of it when it was given. */
typedef struct visit {
    int64_t epoch, index;
    int64_t lo, hi; /* rows wanted of a batch; samples ignore them */
    void *const *out; /* one place per column, NULL when it is not wanted */
    int64_t sample_base; /* added to the sample's number by its source */
    /* the answer */
    bool end; /* there is no such element */
    int64_t rows; /* rows of the whole batch; 1 for a sample */
    int64_t key_epoch; /* the epoch that keys the sample's random numbers */
    int64_t key_sample;
} visit;

/* Either locate or fetch. Optional entries are marked. */
struct stage_class {
    const char *name;
    /* An element of this stage is an element of another: rewrites v->epoch and
     * v->index and says whose. May set v->end instead. */
    manta_status (*locate)(reader *r, visit *v, reader **from);
    /* Writes the wanted columns (rows lo..hi of a batch) and the answer. */
    manta_status (*fetch)(reader *r, visit *v);
    /* Optional, of sources: where column c of the sample lies; NULL on failure
     * with *st set. Completes the answer as fetch does. */
    const void *(*peek)(reader *r, visit *v, int c, manta_status *st);
    manta_status (*open)(reader *r); /* optional: makes r->state */
    void (*close)(reader *r); /* optional: accepts a reader that open() left half made */
    void (*release)(manta_dataset *d); /* optional: gives back d->state */
};

struct manta_dataset {
    atomic_int refs;
    manta_error *error; /* latched, or NULL */
    const stage_class *class;
    manta_dataset *in[2]; /* owned references */
    int64_t count; /* elements of a pass */
    int64_t batch; /* 0, or the most rows an element has */
    bool indexable; /* false when a generator is below */
    bool drop; /* batch: leaves the smaller last one out */
    int64_t a, b; /* a stage's small numbers, see its file */
    uint64_t seed;
    int64_t prefetch; /* what prefetch() asked for, 0 when nobody did */
    int n;
    manta_column_spec columns[MANTA_MAX_COLUMNS];
    void *state; /* owned, see the class */
};

struct reader {
    const manta_dataset *d;
    reader *in[2];
    void *state; /* owned, see the class */
    void *scratch[MANTA_MAX_COLUMNS]; /* owned; filled by reader_scratch() */
};

/* A node of that class on top of `in` (taken; may be NULL), with the same
 * columns, count and batch. When `in` has failed it is given back as it is and
 * *ok is false: the stage returns it. */
manta_dataset *stage_new(const stage_class *c, manta_dataset *in, bool *ok);

/* Latches the thread's last error in d (which becomes a failed dataset) and
 * returns it: `return stage_fail(d, manta_fail(...))`. */
manta_dataset *stage_fail(manta_dataset *d, manta_status st);

/* What a stage function returns for an argument that is NULL: a dataset that carries the sentence about it, as no stage
 * returns NULL. Takes `in` (may be NULL); one that has failed before is given back with its own error. */
manta_dataset *stage_refuse(manta_dataset *in, const char *function, const char *argument);

int stage_column(const manta_dataset *d, const char *name); /* -1 when there is none */

/* Finds the column or fails with a sentence that lists those there are. */
manta_status stage_need_column(const manta_dataset *d, const char *name, int *out);

/* Checks a user's description of columns: number, names, dtypes, shapes. */
manta_status stage_check_columns(const char *who, int n, const manta_column_spec *columns);

int64_t spec_elements(const manta_column_spec *s); /* elements of one sample */
size_t spec_bytes(const manta_column_spec *s);

/* Whether a count is a number of elements rather than forever or unknown. */
static inline bool count_is_known(int64_t n)
{
    return n >= 0;
}

/* ---- readers ------------------------------------------------------------ */

/* Makes the reader tree of d. d must outlive it. MANTA_ENOMEM. */
manta_status reader_new(const manta_dataset *d, reader **out);
void reader_free(reader *r); /* accepts NULL */

/* Memory for one element of column c of d in r->scratch[c]. */
manta_status reader_scratch(reader *r, const manta_dataset *d, int c);

/* Asks for an element. A batch's rows [lo, hi) are cut to what it has. */
manta_status reader_fetch(reader *r, visit *v);

/* Follows stages that only choose which element, to the one that makes it. */
manta_status reader_resolve(reader **r, visit *v);

#endif
