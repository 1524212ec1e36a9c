/* train/ps/ps_journal.h - where a training with parameter servers stands: its epoch,
 * and which of the steps are in.
 *
 * The coordinator gives it to every server when an epoch begins; each then adds
 * the steps whose gradients it takes, so that it takes none twice. Workers push to
 * the first server last: a step that is in there is in everywhere, and its journal
 * is what a coordinator goes by that takes the place of a lost one. */
#ifndef TRAIN_PS_PS_JOURNAL_H
#define TRAIN_PS_PS_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "train/session/position.h"

/* Zeroed: of no epoch. */
typedef struct ps_journal {
    train_position from; /* the first step of the epoch that was to be done */
    int64_t first; /* its number in the run */
    int64_t steps; /* from there to the end of the epoch */
    unsigned char *is_in; /* one per step, 0 or 1; NULL: no epoch has begun */
} ps_journal;

/* *j was zeroed or holds an epoch, which is forgotten. MANTA_ENOMEM. */
manta_status ps_journal_begin(ps_journal *j, train_position from, int64_t first,
                              int64_t steps) MANTA_MUST_USE;
void ps_journal_release(ps_journal *j); /* accepts zeroed memory; leaves it so */

static inline bool ps_journal_is_begun(const ps_journal *j)
{
    return j->is_in != NULL;
}

bool ps_journal_is_same_epoch(const ps_journal *a, const ps_journal *b);
int64_t ps_journal_count(const ps_journal *j); /* of the steps that are in */

/* Adds the step with this number in the run. *is_new false: it is in already, or
 * of an epoch that is over. MANTA_ECORRUPT: it is not of this epoch yet. */
manta_status ps_journal_add(ps_journal *j, int64_t number, bool *is_new) MANTA_MUST_USE;
/* Adds what is in `other`, which is of the same epoch. */
void ps_journal_merge(ps_journal *j, const ps_journal *other);

/* As bytes: at most ps_journal_room() of them for an epoch of so many steps. */
size_t ps_journal_room(int64_t steps);
size_t ps_journal_pack(const ps_journal *j, char *out);
/* The epoch must have `steps` steps. MANTA_ECORRUPT, and then *j is as it was. */
manta_status ps_journal_unpack(ps_journal *j, int64_t steps, const char *bytes, size_t n) MANTA_MUST_USE;

#endif
