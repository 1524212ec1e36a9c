/* train/cluster/agreement.h - what all processes of a training must have in common, as
 * words that two of them can compare when they meet.
 *
 *   one setting a line:   seed \t 7 \n
 *
 * A line says what a person can change (an optimizer's beta_1, the number of shards), so
 * that the sentence about a difference names it; what has no short text is said as a
 * digest (layers, losses, data). Of the data the digest knows a part (data/digest.h).
 * Lines are found by their names, and one that is missing differs too.
 *
 * Clusters compare with each other after all have met (cluster_sync.c), parameter servers
 * and workers in the hello of every channel (ps/ps_config_check.h).
 *
 * Threads: an agreement is used by one at a time. */
#ifndef TRAIN_CLUSTER_AGREEMENT_H
#define TRAIN_CLUSTER_AGREEMENT_H

#include "net/frame.h"
#include "train/session/feed.h"
#include "train/session/session.h"

/* Zeroed: of nothing. */
typedef struct agreement {
    char text[FRAME_WORD];
    size_t n; /* bytes of text */
} agreement;

/* Adds a line; one for which there is no room is left out. */
void agreement_add(agreement *a, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Model, losses, metrics, and the optimizer with its options and schedule. */
void agreement_add_session(agreement *a, const manta_session *s);

/* Number and order of the samples, and the digest of a part of them; `what` is what the
 * data is called: "data". Reads the digest's few samples. */
manta_status agreement_add_data(agreement *a, const char *what, const feed_source *f) MANTA_MUST_USE;

/* Whether another process, called `who`, has the same settings as `us`; anything may be in `theirs`.
 * MANTA_EPERM: the first setting of ours that it has otherwise. */
manta_status agreement_compare(const char *who, const void *theirs, size_t n_theirs, const char *us,
                               const void *ours, size_t n_ours) MANTA_MUST_USE;

#endif
