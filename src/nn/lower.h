/* nn/lower.h - from a plan to a program of a device.
 *
 * Each operation has a row: what its forward and its backward launch, with the
 * addresses of the plan's places. A row is the operation of op_*.c said again in
 * kernels of tensor/device_kernels.h; both give the same bytes. What has no row is
 * refused by name before anything is allocated.
 *
 * A plan is lowered twice: first to find how much scratch its nodes want
 * (`program` is NULL, addresses mean nothing but whether they are 0), then in earnest. */
#ifndef NN_LOWER_H
#define NN_LOWER_H

#include "nn/ops.h"
#include "nn/plan.h"
#include "tensor/device.h"
#include "tensor/device_mma.h"

typedef struct lowering {
    const manta_model *m;
    const layout *l;
    const objective *o;
    const plan *p;
    dev_program *program; /* NULL: scratch is measured */
    dev_addr block, state, slot, scratch, run; /* run: a dev_run */
    const dev_addr *target, *weight; /* per head; weight 0: none was given */
    size_t scratch_used, scratch_most; /* bytes, of the node at hand and of all */
    dev_precision precision;
    dev_addr tickets; /* LOWER_TICKETS zeros, of all kernels that draw them */
    unsigned rounded; /* by the node at hand: bit 0 its result, bit 1 + j the gradient of input j */
} lowering;

enum { LOWER_TICKETS = 4096 };

typedef struct lower_row {
    const manta_op *op;
    manta_status (*forward)(lowering *w, const plan_node *n);
    manta_status (*backward)(lowering *w, const plan_node *n);
    /* Why this node of it cannot be lowered ("of two shapes"), or NULL: it can. Optional. */
    const char *(*lacks)(const manta_model *m, const graph_node *g);
} lower_row;

/* ---- for rows ---- */

dev_addr lower_at(const lowering *w, place at); /* 0 of PLACE_NONE */
/* `size` bytes, aligned, of nobody else while the node runs. */
dev_addr lower_scratch(lowering *w, size_t size);
void lower_add(lowering *w, dev_kernel k, int64_t items, const void *args, size_t size);
#define LOWER(w, name, items, args) lower_add((w), DEV_##name, (items), &(args), sizeof(name##_args))

const void *lower_attrs(const lowering *w, const plan_node *n);
/* op_dout(): the gradient of output 0, behind a relu that was fused. */
dev_addr lower_dout(lowering *w, const plan_node *n);
static inline bool lower_wants(const plan_node *n, int i)
{
    return n->din_at[i].kind != PLACE_NONE;
}
/* out = alpha * a + beta * out over n floats. */
void lower_axpby(lowering *w, int64_t n, float alpha, dev_addr a, float beta, dev_addr out);
/* FN(col_sum) over a matrix; in an order of its own unless the precision is exact. */
void lower_col_sum(lowering *w, int64_t rows, int64_t cols, dev_addr x, dev_addr out, bool accumulate);
/* Rows of a chunk: chunk_rows() of reduce.inc; and how many chunks there are. */
int64_t lower_chunk_rows(int64_t rows);
int64_t lower_chunks(int64_t rows);

/* Whether sums over the rows of (rows, c) may be made by quick_ kernels. */
bool lower_is_quick(const lowering *w, int64_t c);

/* The row of an operation; NULL: there is none. */
const lower_row *lower_find(const manta_op *op);
const lower_row *lower_conv_row(const manta_op *op); /* lower_conv.c's part of it */
const lower_row *lower_more_row(const manta_op *op); /* lower_more.c's part of it */
const lower_row *lower_binary_row(const manta_op *op); /* lower_binary.c's part of it */

/* ---- losses and metrics (lower_objective.c) ---- */

/* The kernel of a built-in loss beyond the sparse ones, with loss_args and an item for each row; -1: there is
 * none. The target is floats that the host has checked. lower_losses.c's. */
int lower_more_loss(manta_loss_fn fn, bool from_logits);

/* Lowers a metric beyond sparse accuracy; false: it has no kernel, and nothing was launched. `name` is the
 * built-in's canonical one. `target`: int32 labels when `sparse`, else floats; it adds to the pair of doubles at
 * `sums`. May be called with w->program NULL, and with w NULL to ask. lower_losses.c's. */
bool lower_more_metric(lowering *w, const char *name, const objective_metric *t, bool sparse, int64_t rows,
                       dev_addr pred, dev_addr target, dev_addr sums);

/* ---- for device_exec.c ---- */

/* Refuses a node by its layer's name, when it has no row. MANTA_EUNSUPPORTED. */
manta_status lower_check_node(const manta_model *m, const graph_node *g) MANTA_MUST_USE;
/* Refuses, by name, what of the model and its objective no kernel computes. MANTA_EUNSUPPORTED. */
manta_status lower_check(const manta_model *m, const objective *o) MANTA_MUST_USE;

/* Looks at input i of the model before it is put on a device: `x` has the model's type, its first sample stands at
 * place `first` of the global batch. Indices into tables must lie in them, since no kernel can say so.
 * MANTA_EINVAL as the operation says it. lower_more.c's. */
manta_status lower_check_input(const manta_model *m, int i, const manta_array *x,
                               int64_t first) MANTA_MUST_USE;

manta_status lower_forward(lowering *w) MANTA_MUST_USE;
void lower_objective(lowering *w); /* after it: the slot's sums, and the gradients of the predictions */
manta_status lower_backward(lowering *w) MANTA_MUST_USE;

#endif
