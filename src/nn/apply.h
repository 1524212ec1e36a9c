/* nn/apply.h - from slots and the old state to the new state.
 *
 * The parameters are updated by runs of grid blocks, in any order, by anyone,
 * each block once: the bits do not depend on how the grid was divided. The old
 * state is only read; the new one may be the same memory (in place) or another
 * buffer. The phases:
 *
 *   apply_begin     the numbers of this step: rate, divisor, counts
 *   apply_norms     per block, only when apply_needs_norms(): square sums and
 *                   regulariser penalties
 *   apply_factors   after all blocks' norms: clip factors
 *   apply_params    per block: gradients summed over slots, then the optimizer
 *   apply_stats     per block of the statistics: proposals averaged
 *   apply_finish    the run section: counters and sums
 *
 * Threads: apply_norms, apply_params, apply_stats and apply_range may run at
 * the same time on different blocks; the other phases stand between. */
#ifndef NN_APPLY_H
#define NN_APPLY_H

#include "nn/layout.h"
#include "tensor/kernel.h"
#include "tensor/update.h"

/* A stretch of one parameter within one grid block. */
typedef struct apply_segment {
    int param; /* index into layout's params */
    int64_t offset, n; /* elements */
} apply_segment;

typedef struct apply {
    const layout *l;
    const manta_optimizer *opt;
    const kernels *k;
    /* Fixed per layout. */
    apply_segment *segments; /* in ascending order of offset */
    int n_segments;
    int *block_first; /* block -> its first segment; one more at the end */
    bool regularised; /* some parameter has l1 or l2 */
    bool first_stats; /* set by the user: proposals of the first slot alone, not the mean of all */
    double *norms; /* per segment: {square sum, penalty}; apply_norm_count() doubles */
    update_scalars *scalars; /* per parameter */
    /* Of the step at hand. */
    const void *old;
    void *new_;
    int n_slots;
    const void *const *slots;
    const float *slot_grads[LAYOUT_MAX_SHARDS];
    int n_grads; /* number of gradients: n_slots, or 1 when they were summed before */
    double penalty; /* the regularisers' sum, once per step */
} apply;

/* Prepares for a layout. All three are borrowed and must outlive it. MANTA_ENOMEM: there is not so much memory as
 * the weights need here; apply_release() gives back what there was. */
manta_status apply_init(apply *a, const layout *l, const manta_optimizer *opt,
                        const kernels *k) MANTA_MUST_USE;
void apply_release(apply *a); /* accepts zeroed memory */

/* Begins a step. `slots`: those of the shards that had samples, in shard order,
 * n_slots >= 1; borrowed until apply_finish(). */
void apply_begin(apply *a, const void *old, void *new_, int n_slots, const void *const *slots);

bool apply_needs_norms(const apply *a);
void apply_norms(apply *a, int64_t block, int64_t end);
void apply_factors(apply *a);
void apply_params(const apply *a, int64_t block, int64_t end);
void apply_stats(const apply *a, int64_t block, int64_t end);

/* Updates elements [first, first + n), n > 0, of one parameter as apply_params() would:
 * for parameters that the sink did not take. */
void apply_elements(const apply *a, int param, int64_t first, int64_t n);

/* Updates elements [first, first + n) as apply_params() would, with the gradient `g`
 * instead of the slots' sum: for the kernels' sink, with one shard. Needs
 * apply_can_sink(). */
void apply_range(const apply *a, int64_t first, int64_t n, const float *g);
/* Whether the update may run where the gradient is made: no norms needed. */
bool apply_can_sink(const apply *a);

/* The slots' gradients added by the shard tree, blocks [block, end), into `out`
 * (the parameters' layout). After apply_begin(). */
void apply_reduce(const apply *a, int64_t block, int64_t end, float *out);
/* From here on `sum` stands for the slots' gradients: what apply_reduce() made
 * of them, here or elsewhere. */
void apply_summed(apply *a, const float *sum);

/* Makes the slots' gradients be taken as they are: not divided, no regulariser
 * added. For gradients that a program averaged itself; after apply_begin(). */
void apply_as_given(apply *a);

/* The mean gradient of the whole loss, regularisers included, in the
 * parameters' layout. After apply_begin(). */
void apply_gradient(const apply *a, float *out);

/* The regularisers' sum for the weights of `state`. */
double apply_penalty(const apply *a, const void *state);

/* Ends the step: copies the run section with calls + 1 and the slots' sums
 * added. Position, epoch and step are the caller's to move. */
void apply_finish(apply *a);

/* Sums of the slots by the shard tree into out (layout's n_sums). */
void apply_sums(const layout *l, int n_slots, const void *const *slots, double *out);

/* At the end of training with a moving average and no overwrite frequency, Keras replaces the weights by it. */
void apply_average(const layout *l, const manta_optimizer *opt, void *state);

#endif
