/* train/ps/ps_part.h - the part of a model that one parameter server has: a range
 * of the parameters' grid with the optimizer arrays that belong to it; the
 * first server has the statistics and the run section too. Packed and unpacked
 * as bytes; both sides are built from the same model, so sizes are known. */
#ifndef TRAIN_PS_PS_PART_H
#define TRAIN_PS_PS_PART_H

#include "nn/layout.h"

typedef struct ps_part {
    const layout *l; /* borrowed */
    int64_t lo, hi; /* blocks of the grid */
    bool first;
} ps_part;

ps_part ps_part_of(const layout *l, int server, int servers);

/* Weights (and statistics): what a worker pulls. */
size_t ps_part_weights_size(const ps_part *p);
void ps_part_get_weights(const ps_part *p, const void *state, char *out);
void ps_part_set_weights(const ps_part *p, void *state, const char *in);

/* Sums, gradients (and proposed statistics) of a slot: what it pushes. */
size_t ps_part_slot_size(const ps_part *p);
void ps_part_get_slot(const ps_part *p, const void *slot, char *out);
void ps_part_set_slot(const ps_part *p, void *slot, const char *in);

/* All of the state. */
size_t ps_part_state_size(const ps_part *p);
void ps_part_get_state(const ps_part *p, const void *state, char *out);
void ps_part_set_state(const ps_part *p, void *state, const char *in);

#endif
