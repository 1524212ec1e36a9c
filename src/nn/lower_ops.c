/* lower_ops.c - rows of the operations that go by elements, windows and channels: op_elem.c,
 * op_shape.c, op_pool.c and op_norm.c. */
#include <string.h>

#include "nn/lower.h"

/* ---- activations ---- */

static manta_status act_forward(lowering *w, const plan_node *n)
{
    const op_act_attrs *t = lower_attrs(w, n);
    act_forward_args a = {
        .act = t->act, .alpha = t->alpha, .x = lower_at(w, n->in_at[0]), .y = lower_at(w, n->out_at[0])};

    LOWER(w, act_forward, manta_array_count(&n->in[0]), a);
    return MANTA_OK;
}

static manta_status act_backward(lowering *w, const plan_node *n)
{
    const op_act_attrs *t = lower_attrs(w, n);
    bool of_input = w->m->nodes[n->index].op == &op_activation_of_input;
    act_backward_args a = {.act = t->act,
                           .alpha = t->alpha,
                           .x = of_input ? lower_at(w, n->in_at[0]) : 0,
                           .y = of_input ? 0 : lower_at(w, n->out_at[0]),
                           .dy = lower_at(w, n->dout_at[0]),
                           .dx = lower_at(w, n->din_at[0]),
                           .accumulate = n->accumulate[0]};

    if (lower_wants(n, 0)) LOWER(w, act_backward, manta_array_count(&n->out[0]), a);
    return MANTA_OK;
}

static manta_status softmax_forward(lowering *w, const plan_node *n)
{
    int64_t c = n->in[0].shape[n->in[0].ndim - 1];
    softmax_forward_args a = {.c = c, .x = lower_at(w, n->in_at[0]), .y = lower_at(w, n->out_at[0])};

    LOWER(w, softmax_forward, c > 0 ? manta_array_count(&n->in[0]) / c : 0, a);
    return MANTA_OK;
}

static manta_status softmax_backward(lowering *w, const plan_node *n)
{
    int64_t c = n->in[0].shape[n->in[0].ndim - 1];
    softmax_backward_args a = {.c = c,
                               .y = lower_at(w, n->out_at[0]),
                               .dy = lower_at(w, n->dout_at[0]),
                               .dx = lower_at(w, n->din_at[0]),
                               .accumulate = n->accumulate[0]};

    if (lower_wants(n, 0)) LOWER(w, softmax_backward, c > 0 ? manta_array_count(&n->in[0]) / c : 0, a);
    return MANTA_OK;
}

/* ---- affine ---- */

static const char *affine_lacks(const manta_model *m, const graph_node *g)
{
    switch (m->values[g->in[0]].a.dtype) {
    case MANTA_DTYPE_F32:
    case MANTA_DTYPE_F64:
    case MANTA_DTYPE_I32:
    case MANTA_DTYPE_I64:
    case MANTA_DTYPE_U8:
    case MANTA_DTYPE_BOOL: return NULL;
    default: return "from half precision";
    }
}

static manta_status affine_forward(lowering *w, const plan_node *n)
{
    const op_affine_attrs *t = lower_attrs(w, n);
    affine_args a = {.dtype = (int)n->in[0].dtype,
                     .scale = t->scale,
                     .offset = t->offset,
                     .x = lower_at(w, n->in_at[0]),
                     .y = lower_at(w, n->out_at[0])};

    LOWER(w, affine, manta_array_count(&n->in[0]), a);
    return MANTA_OK;
}

static manta_status affine_backward(lowering *w, const plan_node *n)
{
    const op_affine_attrs *t = lower_attrs(w, n);

    if (lower_wants(n, 0))
        lower_axpby(w, manta_array_count(&n->out[0]), t->scale, lower_at(w, n->dout_at[0]),
                    n->accumulate[0] ? 1 : 0, lower_at(w, n->din_at[0]));
    return MANTA_OK;
}

/* ---- dropout ---- */

static void add_dropout(lowering *w, const plan_node *n, dev_addr from, dev_addr to, bool add)
{
    const op_dropout_attrs *t = lower_attrs(w, n);
    int64_t rows = n->in[0].shape[0], all = manta_array_count(&n->in[0]);
    dropout_args a = {.run = w->run,
                      .from = from,
                      .to = to,
                      .rate = t->rate,
                      .call = (uint32_t)n->index,
                      .add = add,
                      .ndim = t->ndim};

    if (!n->training || t->rate == 0) {
        if (add || from != to) lower_axpby(w, all, 1, from, add ? 1 : 0, to);
        return;
    }
    if (rows < 1) return;
    a.n = all / rows;
    memcpy(a.shape, n->in[0].shape, sizeof a.shape);
    memcpy(a.shared, t->shared, sizeof a.shared);
    LOWER(w, dropout, t->ndim ? all : rows * ((a.n + 3) / 4), a);
}

static manta_status dropout_forward(lowering *w, const plan_node *n)
{
    add_dropout(w, n, lower_at(w, n->in_at[0]), lower_at(w, n->out_at[0]), false);
    return MANTA_OK;
}

static manta_status dropout_backward(lowering *w, const plan_node *n)
{
    if (lower_wants(n, 0))
        add_dropout(w, n, lower_at(w, n->dout_at[0]), lower_at(w, n->din_at[0]), n->accumulate[0]);
    return MANTA_OK;
}

/* ---- reshape: where it is no view ---- */

static manta_status reshape_forward(lowering *w, const plan_node *n)
{
    lower_axpby(w, manta_array_count(&n->in[0]), 1, lower_at(w, n->in_at[0]), 0, lower_at(w, n->out_at[0]));
    return MANTA_OK;
}

static const char *reshape_lacks(const manta_model *m, const graph_node *g)
{
    return m->values[g->in[0]].a.dtype == MANTA_DTYPE_F32 ? NULL : "of integers";
}

static manta_status reshape_backward(lowering *w, const plan_node *n)
{
    dev_addr dy = lower_at(w, n->dout_at[0]), dx = lower_at(w, n->din_at[0]);

    if (lower_wants(n, 0) && (dy != dx || n->accumulate[0]))
        lower_axpby(w, manta_array_count(&n->out[0]), 1, dy, n->accumulate[0] ? 1 : 0, dx);
    return MANTA_OK;
}

/* ---- pooling ---- */

static window_args window_of(lowering *w, const plan_node *n)
{
    bool global = w->m->nodes[n->index].op == &op_global_avg_pool;
    const int64_t *in = n->in[0].shape;

    return (window_args){.s = global ? op_global_geometry(in)
                                     : op_pool_geometry(lower_attrs(w, n), in, n->out[0].shape),
                         .x = lower_at(w, n->in_at[0]),
                         .y = lower_at(w, n->out_at[0]),
                         .arg = lower_at(w, n->saved_at),
                         .dy = lower_at(w, n->dout_at[0]),
                         .dx = lower_at(w, n->din_at[0]),
                         .accumulate = n->accumulate[0]};
}

static manta_status max_forward(lowering *w, const plan_node *n)
{
    window_args a = window_of(w, n);

    LOWER(w, max_pool_forward, manta_array_count(&n->out[0]), a);
    return MANTA_OK;
}

static manta_status max_backward(lowering *w, const plan_node *n)
{
    window_args a = window_of(w, n);

    if (lower_wants(n, 0)) LOWER(w, max_pool_back, manta_array_count(&n->in[0]), a);
    return MANTA_OK;
}

static manta_status avg_forward(lowering *w, const plan_node *n)
{
    window_args a = window_of(w, n);

    LOWER(w, avg_pool_forward, manta_array_count(&n->out[0]), a);
    return MANTA_OK;
}

static manta_status avg_backward(lowering *w, const plan_node *n)
{
    window_args a = window_of(w, n);

    if (lower_wants(n, 0)) LOWER(w, avg_pool_back, manta_array_count(&n->in[0]), a);
    return MANTA_OK;
}

/* ---- batch norm ---- */

static bn_args bn_of(lowering *w, const plan_node *n)
{
    const op_bn_attrs *t = lower_attrs(w, n);
    op_bn_inputs at = op_bn_where(t);
    int64_t c = n->in[0].shape[n->in[0].ndim - 1], rows = manta_array_count(&n->in[0]) / c;
    bool quick = lower_is_quick(w, c);
    bn_args a = {.rows = rows,
                 .c = c,
                 .chunk = quick ? dev_sum_chunk(rows, c) : lower_chunk_rows(rows),
                 .tickets = w->tickets,
                 .x = lower_at(w, n->in_at[0]),
                 .gamma = at.gamma > 0 ? lower_at(w, n->in_at[at.gamma]) : 0,
                 .beta = at.beta > 0 ? lower_at(w, n->in_at[at.beta]) : 0,
                 .mean = n->training ? lower_at(w, n->saved_at) : lower_at(w, n->in_at[at.mean]),
                 .old_mean = lower_at(w, n->in_at[at.mean]),
                 .old_var = lower_at(w, n->in_at[at.var]),
                 .eps = t->epsilon,
                 .keep = t->momentum,
                 .take = 1 - t->momentum,
                 .grow = t->unbiased && rows > 1 ? (float)rows / (float)(rows - 1) : 1};

    a.chunks = rows > a.chunk ? (rows + a.chunk - 1) / a.chunk : 1;
    a.var = n->training ? a.mean + (size_t)c * sizeof(float) : a.old_var;
    a.coef = lower_scratch(w, (size_t)(4 * c) * sizeof(float));
    a.part = lower_scratch(w, (size_t)(2 * a.chunks * c) * sizeof(double));
    return a;
}

/* Whether rows go by fours: places of the plan and scratch lie on multiples of sixteen bytes. */
static bool by_fours(const lowering *w, const bn_args *a)
{
    return w->precision != DEV_EXACT && a->c % 4 == 0;
}

static manta_status bn_forward(lowering *w, const plan_node *n)
{
    bn_args a = bn_of(w, n);

    a.relu = n->relu;
    a.out = lower_at(w, n->out_at[0]);
    if (n->training) {
        if (n->proposed_at[0].kind != PLACE_NONE && n->proposed_at[1].kind != PLACE_NONE) {
            a.new_mean = lower_at(w, n->proposed_at[0]);
            a.new_var = lower_at(w, n->proposed_at[1]);
        }
        if (lower_is_quick(w, a.c)) {
            LOWER(w, quick_moments, dev_sum_blocks(a.rows, a.c), a);
        } else {
            LOWER(w, bn_moments, a.chunks * a.c, a);
            LOWER(w, bn_moments_end, a.c, a);
        }
    }
    if (!n->training || !lower_is_quick(w, a.c)) LOWER(w, bn_coef, a.c, a);
    if (by_fours(w, &a)) {
        a.round = n->round_out[0];
        w->rounded |= 1u;
        LOWER(w, quick_out, a.rows * a.c / 4, a);
    } else {
        LOWER(w, bn_out, a.rows * a.c, a);
    }
    return MANTA_OK;
}

/* The kernels of the processor share one flag for both gradients; what is not to be added to starts from zero
 * then, which shows in the sign of a zero. */
static void bn_parameters(lowering *w, const plan_node *n, bn_args *a)
{
    op_bn_inputs at = op_bn_where(lower_attrs(w, n));
    bool add_gamma = false, add_beta = false;

    if (at.gamma > 0 && (a->dgamma = lower_at(w, n->din_at[at.gamma]))) add_gamma = n->accumulate[at.gamma];
    if (at.beta > 0 && (a->dbeta = lower_at(w, n->din_at[at.beta]))) add_beta = n->accumulate[at.beta];
    if (!add_gamma && !add_beta) return; /* DEV_WRITE */
    a->keep_gamma = add_gamma ? DEV_ADD : DEV_ADD_TO_ZERO;
    a->keep_beta = add_beta ? DEV_ADD : DEV_ADD_TO_ZERO;
}

static manta_status bn_backward(lowering *w, const plan_node *n)
{
    bn_args a = bn_of(w, n);

    a.relu = n->relu && !n->relu_done;
    a.dy = lower_at(w, n->dout_at[0]);
    a.y = lower_at(w, n->out_at[0]);
    a.dx = lower_at(w, n->din_at[0]);
    a.accumulate_dx = n->accumulate[0];
    a.frozen = !n->training;
    bn_parameters(w, n, &a);
    if (lower_is_quick(w, a.c) && !a.frozen) {
        LOWER(w, quick_sums, dev_sum_blocks(a.rows, a.c), a);
    } else {
        a.chunk = lower_chunk_rows(a.rows);
        a.chunks = !a.frozen || a.dgamma || a.dbeta ? lower_chunks(a.rows) : 0;
        a.part = lower_scratch(w, (size_t)(2 * a.chunks * a.c) * sizeof(double));
        if (a.chunks) LOWER(w, bn_sums, a.chunks * a.c, a);
        LOWER(w, bn_sums_end, a.c, a);
    }
    if (!a.dx) return MANTA_OK;
    if (by_fours(w, &a) && !a.frozen) {
        a.round = n->round_din[0];
        w->rounded |= 2u;
        LOWER(w, quick_dx, a.rows * a.c / 4, a);
    } else {
        LOWER(w, bn_dx, a.rows * a.c, a);
    }
    return MANTA_OK;
}

/* ---- the table ---- */

static const lower_row rows[] = {{&op_activation, act_forward, act_backward, NULL},
                                 {&op_activation_of_input, act_forward, act_backward, NULL},
                                 {&op_softmax, softmax_forward, softmax_backward, NULL},
                                 {&op_affine, affine_forward, affine_backward, affine_lacks},
                                 {&op_dropout, dropout_forward, dropout_backward, NULL},
                                 {&op_reshape, reshape_forward, reshape_backward, reshape_lacks},
                                 {&op_max_pool, max_forward, max_backward, NULL},
                                 {&op_avg_pool, avg_forward, avg_backward, NULL},
                                 {&op_global_avg_pool, avg_forward, avg_backward, NULL},
                                 {&op_batch_norm, bn_forward, bn_backward, NULL}};

const lower_row *lower_find(const manta_op *op)
{
    const lower_row *row = lower_more_row(op);

    if (!row) row = lower_conv_row(op);
    for (size_t i = 0; !row && i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op == op) row = &rows[i];
    }
    return row;
}
