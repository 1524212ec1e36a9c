/* nn/exec.h - runs a model: forward, losses and metrics, backward.
 *
 * An exec holds the plans of one model and the block they share. It reads the
 * state it is handed and writes only to the slot it is handed; both may change
 * from call to call. A running step allocates nothing: plans are made by
 * exec_prepare() (or by the first call for a new batch size).
 *
 * Threads: one call at a time; a call uses the pool it was given. */
#ifndef NN_EXEC_H
#define NN_EXEC_H

#include "nn/layout.h"
#include "nn/ops.h"
#include "nn/plan.h"
#include "tensor/kernel.h"

typedef struct exec exec; /* opaque, see exec.c */

typedef struct exec_options {
    pool *pool; /* borrowed, must outlive the exec */
    const kernels *kernels;
    bool debug; /* look at every result and name the first that is not a number */
    bool profile; /* keep the time of every node */
    /* Gives the block of activations and workspaces, when it is not to be memory of
     * the exec's own: `size` bytes, their contents nothing to anybody, which stay
     * until it has given more. NULL: there are none. Optional. */
    void *(*block)(void *ctx, size_t size);
    void *block_ctx;
} exec_options;

/* Model, layout and objective are borrowed. o may be NULL: predictions only. */
manta_status exec_new(const manta_model *m, const layout *l, const objective *o, const exec_options *opt,
                      exec **out);
void exec_free(exec *e); /* accepts NULL */

/* Makes the plan of (mode, batch) and grows the block to hold it. */
manta_status exec_prepare(exec *e, plan_mode mode, int64_t batch);

/* One call. Arrays are row-major views with `batch` samples each. */
typedef struct exec_run {
    plan_mode mode;
    int64_t batch;
    const void *state; /* layout's state */
    void *slot; /* layout's slot: zeroed once when it was made; NULL in PLAN_PREDICT */
    const manta_array *inputs; /* one per input of the model */
    const manta_array *targets; /* one per head; NULL: no losses and metrics, and no backward after it */
    const float *const *weights; /* per head: one weight per sample, or NULL; or NULL altogether */
    uint64_t seed;
    int64_t step;
    int64_t first; /* position of sample 0 in the global batch */
    const op_meeting *meeting; /* training in lockstep with other shards (nn/ops.h), or NULL */
    kern_sink sink; /* takes the gradients of parameters that have one source, or NULL */
    void *sink_ctx; /* `first` of the sink is the place in the parameters */
    /* Called after each node of backward, or NULL: the slot's gradients of the
     * parameters from element `from` on are what they will be. */
    void (*settled)(void *ctx, int64_t from);
    void *settled_ctx;
} exec_run;

/* Whether the array is `batch` samples of input i of the model; *want: what it was expected to be, without data. */
manta_status exec_fit_input(const manta_model *m, int i, int64_t batch, const manta_array *given,
                            manta_array *want);
/* Whether the target and the sample weights, or NULL, are those of so many rows of a head. Reads no element. */
manta_status exec_fit_target(const manta_model *m, const objective_head *head, int64_t rows,
                             const manta_array *target, const float *weight);

/* Forward, then losses and metrics: the slot's sums are written whole.
 * MANTA_EINVAL an input or target that does not fit, or a label out of range;
 * MANTA_ENAN in debug mode. */
manta_status exec_forward(exec *e, const exec_run *r);

/* Backward of the exec_forward() just done, with the same r in PLAN_TRAIN:
 * writes the slot's gradients, or gives them to the sink. */
manta_status exec_backward(exec *e, const exec_run *r);

/* Forward and backward in parts, for shards in lockstep. A call returns at the end, or
 * with `waits` set where results of other shards are missing; it is then called again
 * with the same pause. Each of the two begins with a zeroed pause of its own. */
typedef struct exec_pause {
    int done; /* how many nodes are done */
    bool waits; /* the next node needs other shards' results */
} exec_pause;
manta_status exec_forward_on(exec *e, const exec_run *r, exec_pause *p);
manta_status exec_backward_on(exec *e, const exec_run *r, exec_pause *p);

/* Output i of the last exec_forward(). Borrowed: until the next call. */
manta_array exec_output(const exec *e, int i);

/* Whether the sink takes parameter i (of layout's params) in training. */
bool exec_sinks(const exec *e, int64_t batch, int param);

/* Bytes of the block, and how often it was allocated. */
size_t exec_block_size(const exec *e);

/* Time of each node since the profile was turned on. */
typedef struct exec_time {
    const char *layer, *op;
    char shape[64];
    bool relu;
    int64_t calls, forward_ns, backward_ns;
    double flops, backward_flops; /* floating-point operations of one call */
} exec_time;
/* The i-th node of the training plan of that batch; false past the end. */
bool exec_time_at(const exec *e, plan_mode mode, int64_t batch, int i, exec_time *out);
/* Called around every node when set: name, begin and end in ns (for traces). */
typedef void (*exec_trace)(void *ctx, const char *layer, const char *op, bool backward, int64_t begin_ns,
                           int64_t end_ns);
void exec_set_profile(exec *e, bool on, exec_trace trace, void *ctx);

#endif
