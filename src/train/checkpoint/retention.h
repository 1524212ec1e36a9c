/* train/checkpoint/retention.h - which checkpoints stay; pure. */
#ifndef TRAIN_CHECKPOINT_RETENTION_H
#define TRAIN_CHECKPOINT_RETENTION_H

#include <stdbool.h>

typedef struct retention_item {
    double score; /* NaN: none, which is worse than any */
    bool stays; /* the answer */
} retention_item;

/* Of n items in the order of their sequence, `keep` stay (0: all): the best by
 * score, or the latest when scored is false; the very latest always stays, as
 * one of them or as one more. Of equal scores the later one is better. */
void retention_choose(retention_item *items, int n, int keep, bool scored, bool greater);

/* Whether score a (of the later one) is at least as good as b. */
bool retention_is_better(double a, double b, bool greater);

#endif
