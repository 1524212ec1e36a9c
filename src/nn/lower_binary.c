/* lower_binary.c - rows of sum, difference and product of two values, whatever their shapes: op_binary.c
 * said again. Equal shapes, and an operand that repeats as a whole, go to the kernel `binary`; all else is a walk
 * by strides. */
#include "nn/lower.h"

#include <string.h>

static kern_binary operator_of(const lowering *w, const plan_node *n)
{
    const manta_op *op = w->m->nodes[n->index].op;

    return op == &op_add ? KERN_ADD : op == &op_subtract ? KERN_SUB : KERN_MUL;
}

static void add_walk(lowering *w, const plan_node *n, kern_binary op)
{
    const manta_array *out = &n->out[0];
    op_strides a = op_strides_of(&n->in[0], out), b = op_strides_of(&n->in[1], out);
    binary_walk_args k = {.op = op,
                          .ndim = out->ndim,
                          .a = lower_at(w, n->in_at[0]),
                          .b = lower_at(w, n->in_at[1]),
                          .out = lower_at(w, n->out_at[0]),
                          .relu = n->relu};

    memcpy(k.shape, out->shape, sizeof k.shape);
    memcpy(k.a_step, a.s, sizeof k.a_step);
    memcpy(k.b_step, b.s, sizeof k.b_step);
    LOWER(w, binary_walk, manta_array_count(out), k);
}

static manta_status binary_forward(lowering *w, const plan_node *n)
{
    int64_t count = manta_array_count(&n->out[0]);
    int64_t pa = op_period_of(&n->in[0], &n->out[0]), pb = op_period_of(&n->in[1], &n->out[0]);
    kern_binary op = operator_of(w, n);
    bool swap = pb == count && pa && op != KERN_SUB && pa != count;
    binary_args k = {.op = op,
                     .nb = swap ? pa : pb,
                     .a = lower_at(w, n->in_at[swap]),
                     .b = lower_at(w, n->in_at[!swap]),
                     .out = lower_at(w, n->out_at[0]),
                     .relu = n->relu};

    if (swap || (pa == count && pb))
        LOWER(w, binary, count, k);
    else
        add_walk(w, n, op);
    return MANTA_OK;
}

static void sum_repetitions(lowering *w, const plan_node *n, kern_binary op, int which, dev_addr dy)
{
    const manta_array *out = &n->out[0];
    op_strides own = op_strides_of(&n->in[which], out), other = op_strides_of(&n->in[1 - which], out);
    binary_sum_args k = {.op = op,
                         .which = which,
                         .ndim = out->ndim,
                         .dy = dy,
                         .other = lower_at(w, n->in_at[1 - which]),
                         .d = lower_at(w, n->din_at[which]),
                         .accumulate = n->accumulate[which]};

    memcpy(k.shape, out->shape, sizeof k.shape);
    memcpy(k.own_step, own.s, sizeof k.own_step);
    memcpy(k.other_step, other.s, sizeof k.other_step);
    LOWER(w, binary_sum, manta_array_count(&n->in[which]), k);
}

static void backward_one(lowering *w, const plan_node *n, kern_binary op, int which, dev_addr dy)
{
    int64_t count = manta_array_count(&n->out[0]), own = manta_array_count(&n->in[which]);
    int64_t repeat = op_period_of(&n->in[1 - which], &n->out[0]);
    dev_addr d = lower_at(w, n->din_at[which]);
    binary_args product = {
        .op = KERN_MUL, .nb = repeat, .a = dy, .b = lower_at(w, n->in_at[1 - which]), .out = d};
    bool negative = op == KERN_SUB && which;

    if (own == count && op != KERN_MUL)
        lower_axpby(w, count, negative ? -1 : 1, dy, n->accumulate[which] ? 1 : 0, d);
    else if (own == count && repeat && !n->accumulate[which])
        LOWER(w, binary, count, product);
    else if (op != KERN_MUL && op_period_of(&n->in[which], &n->out[0]) && !negative)
        lower_col_sum(w, count / own, own, dy, d, n->accumulate[which]);
    else
        sum_repetitions(w, n, op, which, dy);
}

static manta_status binary_backward(lowering *w, const plan_node *n)
{
    dev_addr dy = lower_dout(w, n);

    for (int i = 0; i < 2; i++) {
        if (lower_wants(n, i)) backward_one(w, n, operator_of(w, n), i, dy);
    }
    return MANTA_OK;
}

static const lower_row rows[] = {{&op_add, binary_forward, binary_backward, NULL},
                                 {&op_subtract, binary_forward, binary_backward, NULL},
                                 {&op_multiply, binary_forward, binary_backward, NULL}};

const lower_row *lower_binary_row(const manta_op *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op == op) return &rows[i];
    }
    return NULL;
}
