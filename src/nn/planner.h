/* nn/planner.h - the planner at work, as plan.c, plan_gradients.c and plan_rounding.c see it.
 *
 * Time runs in ticks: node i runs forward at tick i, the losses at tick n, node
 * i backward at tick 2n - i. A piece of memory lives over an interval of ticks;
 * two pieces may share an address when their intervals do not meet. */
#ifndef NN_PLANNER_H
#define NN_PLANNER_H

#include "nn/plan.h"

/* A piece of the block: size, interval, and in the end its offset. */
typedef struct piece {
    size_t size, offset;
    int from, to;
} piece;

/* What is known of a value while planning. */
typedef struct vinfo {
    bool wants_grad; /* a parameter lies behind it */
    int alias; /* value whose memory it is (views, fused relu), itself otherwise */
    int galias; /* value whose gradient memory it shares */
    int sources; /* how many nodes or heads write its gradient */
    int written; /* how many have, in backward order */
    int piece, grad; /* piece numbers, -1 */
} vinfo;

typedef struct planner {
    const manta_model *m;
    const layout *l;
    const objective *o;
    const kernels *k;
    int threads;
    plan *p;
    vinfo *v;
    bool *needed; /* value: some output depends on it; losses and metrics look at outputs or behind them */
    bool *renewed; /* variable: a node of the plan has proposed a new value */
    int *slot_of; /* graph node -> index in p->nodes, -1: not run */
    bool *dropped; /* graph node is a relu fused into its producer */
    piece *pieces;
    int n_pieces, cap_pieces;
    int n; /* nodes in the plan: tick of the losses */
} planner;

/* ---- plan.c ---- */

/* The shape of a value with the batch filled in. */
manta_array planner_shape(const planner *pl, int value);

/* Makes a piece that is alive at `tick` and returns its number; planner_use() has it alive at another tick too and
 * accepts -1, no piece. */
int planner_piece(planner *pl, size_t size, int tick);
void planner_use(planner *pl, int i, int tick);

/* Until all is placed, a place in the block carries its piece's number. */
place planner_piece_place(int i);

/* Where a variable lies in the state, or its gradient or proposal in the slot. */
place planner_variable_place(const planner *pl, int variable, bool in_slot);

/* The value whose memory it is: a view's output is its input's, and a chain of views ends at its root. */
int planner_value_root(const planner *pl, int value);

/* Where a value lies; makes its piece at the first question. */
place planner_value_place(planner *pl, int value, int tick);

/* ---- plan_rounding.c ---- */

/* Says of every node which results and gradients are rounded, once all is placed. Nothing unless the kernels' precision
 * is KERN_BF16. */
void planner_mark_rounding(planner *pl);

/* ---- plan_gradients.c ---- */

/* The gradient's owner: the value itself, the result of a fused relu, or the
 * input of a view that is its only reader. */
int planner_gradient_root(const planner *pl, int value);

/* Where a value's gradient lies; makes its piece at the first question. Nowhere when nobody wants it or writes it. */
place planner_gradient_place(planner *pl, int value, int tick);

/* Counts who writes which gradient, from the losses back. */
void planner_count_sources(planner *pl);

/* A view whose input gets its gradient from the view alone needs no copy: both
 * gradients are the same memory. */
void planner_alias_views(planner *pl);

/* Places the gradients of node i of the plan, and keeps alive what its backward pass reads. Nodes come from the last
 * to the first. */
void planner_place_backward(planner *pl, int i);

#endif
