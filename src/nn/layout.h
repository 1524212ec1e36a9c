/* nn/layout.h - where everything lies in a state block and in a slot.
 *
 *   state:  | parameters | statistics | optimizer arrays ... | average | accumulator | run |
 *   slot:   | gradients  | proposals  | sums (f64) |
 *
 * Parameters (trainable, not frozen) and statistics (all other variables) are
 * flat f32 blocks in which every variable starts on a 64-byte boundary; each
 * block is cut by a fixed grid of LAYOUT_BLOCK elements. Optimizer arrays,
 * average, accumulator and the slot's gradients have the parameters' shape,
 * the slot's proposals the statistics'. Padding is zero and stays zero.
 *
 * A state is plain memory without pointers: the caller chooses its address,
 * copies it, keeps several and switches between them. */
#ifndef NN_LAYOUT_H
#define NN_LAYOUT_H

#include "nn/graph.h"
#include "nn/objective.h"
#include "nn/optimizer.h"

#define LAYOUT_BLOCK      4096 /* elements of one grid block */
#define LAYOUT_MAX_SHARDS 1024 /* shards of a step */

/* The run section: what else is committed with a step. */
typedef struct run_state {
    int64_t calls; /* calls of the optimizer; Keras says "iterations" */
    int64_t epoch, step; /* step within the epoch */
    int64_t position; /* samples seen, running on across epochs */
    uint64_t seed;
    double learning_rate; /* the rate in use unless there is a schedule; callbacks change it */
    double sums[]; /* objective's sums over the epoch so far, then one: the regulariser's share */
} run_state;

typedef struct layout_variable {
    int variable; /* index into the model's variables */
    int64_t offset, count; /* elements, in parameters or statistics */
    bool proposed; /* statistics: some operation renews it */
} layout_variable;

typedef struct layout {
    const manta_model *model;
    int n_params, n_stats; /* variables in each section, in model order */
    layout_variable *params, *stats;
    int *where; /* variable -> index in params, or -1 - index in stats */
    int64_t params_size, stats_size; /* elements, whole grid blocks */
    int64_t param_blocks, stat_blocks;
    optimizer_arrays arrays;
    int n_sums;
    size_t off_params, off_stats, off_array[3], off_average, off_accumulator, off_run; /* bytes */
    size_t run_size, state_size;
    size_t slot_stats, slot_sums, slot_size;
} layout;

/* `opt` NULL: a state for inference only. Reads frozen flags now. */
void layout_init(layout *l, const manta_model *m, const objective *o, const manta_optimizer *opt);
void layout_release(layout *l); /* accepts zeroed memory */

static inline float *layout_params(const layout *l, const void *state)
{
    return (float *)((uintptr_t)state + l->off_params);
}

static inline float *layout_stats(const layout *l, const void *state)
{
    return (float *)((uintptr_t)state + l->off_stats);
}

static inline float *layout_array(const layout *l, const void *state, int i)
{
    return (float *)((uintptr_t)state + l->off_array[i]);
}

static inline run_state *layout_run(const layout *l, const void *state)
{
    return (run_state *)((uintptr_t)state + l->off_run);
}

static inline float *layout_slot_grads(const layout *l, const void *slot)
{
    (void)l;
    return (float *)(uintptr_t)slot;
}

static inline float *layout_slot_stats(const layout *l, const void *slot)
{
    return (float *)((uintptr_t)slot + l->slot_stats);
}

static inline double *layout_slot_sums(const layout *l, const void *slot)
{
    return (double *)((uintptr_t)slot + l->slot_sums);
}

/* Where variable v of the model lies in `state`. */
float *layout_variable_at(const layout *l, const void *state, int v);

/* Starts a state: weights by their initializers from `seed`, all else zero,
 * rate from the optimizer. `state` must be state_size zeroed bytes. */
void layout_start(const layout *l, void *state, uint64_t seed, const manta_optimizer *opt);
/* Starts a state as layout_start() does, but with all weights zero: for a caller that
 * restores them from a file. */
void layout_start_blank(const layout *l, void *state, uint64_t seed, const manta_optimizer *opt);

#endif
