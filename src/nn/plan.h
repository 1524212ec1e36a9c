/* nn/plan.h - the planner: from a graph to a list of calls with every address
 * known.
 *
 * A plan belongs to (mode, batch size). It
 *   - leaves out what no output needs, and gradients nobody wants,
 *   - fuses a relu into the operation before it, and the relu's backward into
 *     the operation behind it where that operation can,
 *   - turns reshapes (and dropout in inference) into views of their input,
 *   - lays activations, gradients and workspace into one block, memory of what
 *     is dead being used again,
 *   - says what is rounded to bfloat16, when the kernels' precision is that.
 * Running it allocates nothing. Addresses are places: a kind of memory and an
 * offset, because state, slot and inputs change from step to step. */
#ifndef NN_PLAN_H
#define NN_PLAN_H

#include "nn/graph.h"
#include "nn/layout.h"
#include "nn/objective.h"
#include "tensor/kernel.h"

typedef enum plan_mode { PLAN_PREDICT, PLAN_EVALUATE, PLAN_TRAIN } plan_mode;

typedef enum place_kind { PLACE_NONE, PLACE_BLOCK, PLACE_STATE, PLACE_SLOT, PLACE_INPUT } place_kind;

typedef struct place {
    place_kind kind;
    size_t offset; /* bytes; for an input its number */
} place;

typedef struct plan_node {
    int index; /* index of the graph's node */
    bool training; /* whether the operation is told that this is training */
    bool view; /* nothing to run forward */
    bool backward; /* runs backward */
    bool add_view; /* backward of a view whose gradient is not one: add or copy dout to din */
    bool relu, relu_done; /* fused relu; its mask was applied by who wrote dout */
    bool sinkable; /* din[1] has this node as its only source */
    manta_array in[MANTA_OP_MAX_IN], out[MANTA_OP_MAX_OUT]; /* shapes with the batch filled in */
    place in_at[MANTA_OP_MAX_IN], out_at[MANTA_OP_MAX_OUT];
    place din_at[MANTA_OP_MAX_IN], dout_at[MANTA_OP_MAX_OUT];
    bool accumulate[MANTA_OP_MAX_IN];
    bool round_out[MANTA_OP_MAX_OUT], round_din[MANTA_OP_MAX_IN]; /* to bfloat16, see plan_rounding.c */
    place proposed_at[MANTA_OP_MAX_IN];
    place mask_at;
    place saved_at, work_at, back_work_at;
    int64_t sink_offset; /* elements: where in the parameters din[1] lies */
    int64_t open_end; /* elements: nodes that run backward after it write no gradient from there on */
    double flops, back_flops;
} plan_node;

typedef struct plan_head {
    place pred_at, dpred_at; /* dpred: NONE when no gradient is wanted */
    place rows_at; /* the loss of each row */
} plan_head;

typedef struct plan {
    plan_mode mode;
    int64_t batch;
    int n_nodes;
    plan_node *nodes; /* in forward order */
    plan_head *heads;
    place *metric_at; /* per metric: the predictions it looks at */
    place *output_at; /* per output of the model */
    place *input_at; /* per input: room for its conversion to the input's dtype */
    size_t block_size;
} plan;

/* Plans `mode` for `batch` samples. o may be NULL in PLAN_PREDICT. *out: owned by
 * the caller, plan_free(). MANTA_EINVAL from an operation's plan, or sizes that
 * overflow. */
manta_status plan_new(const manta_model *m, const layout *l, const objective *o, const kernels *k,
                      int threads, plan_mode mode, int64_t batch, plan **out);
void plan_free(plan *p); /* accepts NULL */

#endif
