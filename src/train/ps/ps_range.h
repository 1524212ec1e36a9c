/* train/ps/ps_range.h - the range of a model that one parameter server has: blocks
 * of the parameters' grid with the optimizer arrays that belong to them; the
 * first server has the statistics and the run section too. Packed and unpacked
 * as bytes; both sides are built from the same model, so sizes are known. */
#ifndef TRAIN_PS_PS_RANGE_H
#define TRAIN_PS_PS_RANGE_H

#include "nn/layout.h"

typedef struct ps_range {
    const layout *l; /* borrowed */
    int64_t lo, hi; /* blocks of the grid */
    bool first;
} ps_range;

ps_range ps_range_of(const layout *l, int server, int servers);

/* Weights (and statistics): what a worker pulls. */
size_t ps_range_weights_size(const ps_range *p);
void ps_range_get_weights(const ps_range *p, const void *state, char *out);
void ps_range_set_weights(const ps_range *p, void *state, const char *in);

/* Sums, gradients (and proposed statistics) of a slot: what it pushes. */
size_t ps_range_slot_size(const ps_range *p);
void ps_range_get_slot(const ps_range *p, const void *slot, char *out);
void ps_range_set_slot(const ps_range *p, void *slot, const char *in);

/* All of the state. */
size_t ps_range_state_size(const ps_range *p);
void ps_range_get_state(const ps_range *p, const void *state, char *out);
void ps_range_set_state(const ps_range *p, void *state, const char *in);

#endif
