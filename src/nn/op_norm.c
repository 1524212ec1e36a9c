/* op_norm.c - batch and layer normalisation.
 *
 * Batch norm. saved (training): the batch's mean and variance. Without training
 * (inference, or the layer is frozen) both passes use the moving ones, which
 * are constants then. New moving statistics are proposed, never written:
 *     proposed = momentum * old + (1 - momentum) * batch
 *
 * When the shards of a step meet, mean and variance are those of all of them:
 * each leaves {rows, sum, square sum} and goes on when it has everybody's; in
 * backward the sums of dy and of dy (x - mean) likewise.
 *
 * A fused relu is part of the kernels, so backward masks by itself. */
#include "nn/ops.h"

#include <string.h>

/* ---- batch norm ---- */

op_bn_inputs op_bn_where(const op_bn_attrs *a)
{
    op_bn_inputs at = {-1, -1, 0, 0};
    int next = 1;

    if (a->has_gamma) at.gamma = next++;
    if (a->has_beta) at.beta = next++;
    at.mean = next++;
    at.var = next;
    return at;
}

static int64_t count_channels(const manta_array *x)
{
    return x->shape[x->ndim - 1];
}

static manta_status bn_shape(manta_op_shape *s)
{
    const op_bn_attrs *a = s->attrs;
    int n = op_bn_where(a).var + 1;
    char text[96];

    TRY(op_expect_inputs(s, n, n));
    TRY(op_expect_f32(s, 0, "an input"));
    if (s->in[0].ndim < 2) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., channels), given %s",
                          op_shape_text(&s->in[0], text, sizeof text));
    }
    for (int i = 1; i < n; i++) {
        if (s->in[i].ndim == 1 && s->in[i].shape[0] == count_channels(&s->in[0])) continue;
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., %lld), given %s",
                          (long long)s->in[i].shape[0], op_shape_text(&s->in[0], text, sizeof text));
    }
    return MANTA_OK;
}

static manta_status bn_plan(manta_op_plan *p)
{
    p->saved = p->training ? (size_t)(2 * count_channels(&p->in[0])) * sizeof(float) : 0;
    p->work =
        p->training ? (size_t)op_meeting_size(&op_batch_norm, count_channels(&p->in[0])) * sizeof(double) : 0;
    p->flops = (p->training ? 8 : 2) * (double)manta_array_count(&p->in[0]);
    return MANTA_OK;
}

static bn_call bn_of(const manta_op_call *c)
{
    const op_bn_attrs *a = c->attrs;
    op_bn_inputs at = op_bn_where(a);
    int64_t ch = count_channels(&c->in[0]);

    return (bn_call){.rows = manta_array_count(&c->in[0]) / ch,
                     .c = ch,
                     .x = op_f32(&c->in[0]),
                     .gamma = at.gamma > 0 ? op_f32(&c->in[at.gamma]) : NULL,
                     .beta = at.beta > 0 ? op_f32(&c->in[at.beta]) : NULL,
                     .eps = a->epsilon,
                     .relu = c->inner->relu && !c->inner->relu_done};
}

static void bn_propose(const manta_op_call *c, const bn_call *b, int64_t rows)
{
    const op_bn_attrs *a = c->attrs;
    op_bn_inputs at = op_bn_where(a);
    const float *mean = op_f32(&c->in[at.mean]), *var = op_f32(&c->in[at.var]);
    float keep = a->momentum, take = 1 - a->momentum;
    float grow = a->unbiased && rows > 1 ? (float)rows / (float)(rows - 1) : 1;

    for (int64_t i = 0; i < b->c; i++) {
        c->proposed[0][i] = keep * mean[i] + take * b->mean[i];
        c->proposed[1][i] = keep * var[i] + take * (b->var[i] * grow);
    }
}

/* ---- all shards together ---- */

int64_t op_meeting_size(const manta_op *op, int64_t n)
{
    return op == &op_batch_norm ? 1 + 2 * n : 0;
}

/* Adds up `mine`, which lies in the call's work area, over all shards; there
 * the sums go too. False: the call is to be made again. */
static bool bn_meet(const manta_op_call *c, bool backward, int64_t ch)
{
    const op_meeting *m = c->inner->meeting;
    double *sums = c->work;
    bool there = m->meet(m->ctx, c->call, backward, 1 + 2 * ch, c->inner->met ? NULL : sums, sums);

    *c->inner->waits = !there;
    return there;
}

static void bn_leave_moments(const manta_op_call *c, bn_call *b)
{
    double *mine = c->work, rows = (double)b->rows;

    b->out = NULL;
    b->sums = mine + 1;
    op_kernels(c)->bn_forward(op_pool(c), b);
    mine[0] = rows;
    for (int64_t i = 0; i < b->c; i++) {
        double mean = b->sums[i];
        b->sums[i] = rows * mean;
        b->sums[b->c + i] += rows * mean * mean;
    }
}

static manta_status bn_forward_together(const manta_op_call *c, bn_call *b)
{
    const double *sums = c->work;
    double rows;

    if (!c->inner->met) bn_leave_moments(c, b);
    if (!bn_meet(c, false, b->c)) return MANTA_OK;
    rows = sums[0] > 0 ? sums[0] : 1;
    for (int64_t i = 0; i < b->c; i++) {
        double mean = sums[1 + i] / rows, var = sums[1 + b->c + i] / rows - mean * mean;
        b->mean[i] = (float)mean;
        b->var[i] = (float)(var > 0 ? var : var * 0); /* NaN stays */
    }
    b->out = op_f32(&c->out[0]);
    op_kernels(c)->bn_infer(op_pool(c), b);
    if (c->proposed && c->proposed[0] && c->proposed[1]) bn_propose(c, b, (int64_t)rows);
    return MANTA_OK;
}

static manta_status bn_backward_together(const manta_op_call *c, bn_call *b)
{
    double *mine = c->work;
    float *dx = b->dx;

    if (!c->inner->met) {
        mine[0] = (double)b->rows;
        b->sums = mine + 1;
        b->dx = NULL;
        op_kernels(c)->bn_backward_frozen(op_pool(c), b); /* the sums, and the gradients of gamma and beta */
    }
    if (!bn_meet(c, true, b->c)) return MANTA_OK;
    b->dx = dx;
    b->dgamma = b->dbeta = NULL;
    b->sums = NULL;
    b->totals = mine + 1;
    b->total_rows = (int64_t)mine[0];
    op_kernels(c)->bn_backward(op_pool(c), b);
    return MANTA_OK;
}

static manta_status bn_forward(const manta_op_call *c)
{
    op_bn_inputs at = op_bn_where(c->attrs);
    bn_call b = bn_of(c);

    b.relu = c->inner->relu;
    b.round = c->inner->round_out;
    b.out = op_f32(&c->out[0]);
    if (!c->training) {
        b.mean = op_f32(&c->in[at.mean]);
        b.var = op_f32(&c->in[at.var]);
        op_kernels(c)->bn_infer(op_pool(c), &b);
        return MANTA_OK;
    }
    b.mean = c->saved;
    b.var = b.mean + b.c;
    if (c->inner->meeting) return bn_forward_together(c, &b);
    op_kernels(c)->bn_forward(op_pool(c), &b);
    if (c->proposed && c->proposed[0] && c->proposed[1]) bn_propose(c, &b, b.rows);
    return MANTA_OK;
}

/* gamma and beta share one accumulate flag in the kernels; where the call's
 * differ, the one that is not to be added to starts from zero. */
static void bn_parameters(const manta_op_call *c, bn_call *b)
{
    op_bn_inputs at = op_bn_where(c->attrs);
    bool add_gamma = false, add_beta = false;
    size_t size = (size_t)b->c * sizeof(float);

    if (at.gamma > 0 && (b->dgamma = op_f32(&c->din[at.gamma]))) add_gamma = c->accumulate[at.gamma];
    if (at.beta > 0 && (b->dbeta = op_f32(&c->din[at.beta]))) add_beta = c->accumulate[at.beta];
    b->accumulate_dparam = add_gamma || add_beta;
    if (b->accumulate_dparam && b->dgamma && !add_gamma) memset(b->dgamma, 0, size);
    if (b->accumulate_dparam && b->dbeta && !add_beta) memset(b->dbeta, 0, size);
}

static manta_status bn_backward(const manta_op_call *c)
{
    op_bn_inputs at = op_bn_where(c->attrs);
    bn_call b = bn_of(c);

    b.dy = op_f32(&c->dout[0]);
    b.y = op_f32(&c->out[0]);
    b.dx = op_f32(&c->din[0]);
    b.accumulate_dx = c->accumulate[0];
    b.round = c->inner->round_din;
    if (!c->inner->met) bn_parameters(c, &b);
    if (c->training) {
        b.mean = c->saved;
        b.var = b.mean + b.c;
        if (c->inner->meeting) return bn_backward_together(c, &b);
        op_kernels(c)->bn_backward(op_pool(c), &b);
    } else {
        b.mean = op_f32(&c->in[at.mean]);
        b.var = op_f32(&c->in[at.var]);
        op_kernels(c)->bn_backward_frozen(op_pool(c), &b);
    }
    return MANTA_OK;
}

const manta_op op_batch_norm = {
    .name = "batch_norm",
    .attrs_size = sizeof(op_bn_attrs),
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1) | MANTA_OP_READS_INPUT(2) |
             MANTA_OP_READS_INPUT(3) | MANTA_OP_READS_INPUT(4) | OP_CAN_RELU | OP_RELU_SELF |
             MANTA_OP_PROPOSES | OP_ROUNDS_OUT | OP_ROUNDS_DIN,
    .shape = bn_shape,
    .plan = bn_plan,
    .forward = bn_forward,
    .backward = bn_backward,
};

/* ---- layer norm ---- */

/* Elements that are normalised together. */
static int64_t group_size(const manta_array *x, int axes)
{
    int64_t n = 1;

    for (int i = x->ndim - axes; i < x->ndim; i++) n *= x->shape[i];
    return n;
}

static manta_status ln_shape(manta_op_shape *s)
{
    const op_ln_attrs *a = s->attrs;
    const manta_array *x = s->in;
    int n = 1 + a->has_gamma + a->has_beta;
    manta_array group;
    char text[96], expected[96];

    TRY(op_expect_inputs(s, n, n));
    TRY(op_expect_f32(s, 0, "an input"));
    if (a->axes < 1 || x->ndim <= a->axes) {
        return manta_fail(MANTA_EINVAL, "expected an input of more than %d dimensions, given %s", a->axes,
                          op_shape_text(x, text, sizeof text));
    }
    group = manta_array_of(MANTA_DTYPE_F32, a->axes, x->shape + x->ndim - a->axes, NULL);
    for (int i = 1; i < n; i++) {
        if (s->in[i].ndim == a->axes &&
            !memcmp(s->in[i].shape, group.shape, (size_t)a->axes * sizeof(int64_t)))
            continue;
        return manta_fail(MANTA_EINVAL, "expected an input that ends in the dimensions %s, given %s",
                          op_shape_text(&s->in[i], expected, sizeof expected),
                          op_shape_text(x, text, sizeof text));
    }
    return MANTA_OK;
}

/* saved: mean and reciprocal deviation of every group. */
static manta_status ln_plan(manta_op_plan *p)
{
    const op_ln_attrs *a = p->attrs;
    int64_t n = manta_array_count(&p->in[0]);

    p->saved = (size_t)(2 * (n / group_size(&p->in[0], a->axes))) * sizeof(float);
    p->flops = 8 * (double)n;
    return MANTA_OK;
}

static ln_call ln_of(const manta_op_call *c)
{
    const op_ln_attrs *a = c->attrs;
    int64_t n = group_size(&c->in[0], a->axes), rows = manta_array_count(&c->in[0]) / n;

    return (ln_call){.rows = rows,
                     .c = n,
                     .x = op_f32(&c->in[0]),
                     .gamma = a->has_gamma ? op_f32(&c->in[1]) : NULL,
                     .beta = a->has_beta ? op_f32(&c->in[1 + a->has_gamma]) : NULL,
                     .eps = a->epsilon,
                     .mean = c->saved,
                     .rstd = (float *)c->saved + rows};
}

static manta_status ln_forward(const manta_op_call *c)
{
    ln_call l = ln_of(c);

    l.out = op_f32(&c->out[0]);
    op_kernels(c)->ln_forward(op_pool(c), &l);
    return MANTA_OK;
}

static manta_status ln_backward(const manta_op_call *c)
{
    const op_ln_attrs *a = c->attrs;
    ln_call l = ln_of(c);
    int gamma = 1, beta = 1 + a->has_gamma;
    bool add_gamma = false, add_beta = false;
    size_t size = (size_t)l.c * sizeof(float);

    l.dy = op_f32(&c->dout[0]);
    l.dx = op_f32(&c->din[0]);
    l.accumulate_dx = c->accumulate[0];
    if (a->has_gamma && (l.dgamma = op_f32(&c->din[gamma]))) add_gamma = c->accumulate[gamma];
    if (a->has_beta && (l.dbeta = op_f32(&c->din[beta]))) add_beta = c->accumulate[beta];
    l.accumulate_dparam = add_gamma || add_beta; /* one flag for both, as in batch norm */
    if (l.accumulate_dparam && l.dgamma && !add_gamma) memset(l.dgamma, 0, size);
    if (l.accumulate_dparam && l.dbeta && !add_beta) memset(l.dbeta, 0, size);
    op_kernels(c)->ln_backward(op_pool(c), &l);
    return MANTA_OK;
}

const manta_op op_layer_norm = {
    .name = "layer_norm",
    .attrs_size = sizeof(op_ln_attrs),
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1) | MANTA_OP_READS_INPUT(2),
    .shape = ln_shape,
    .plan = ln_plan,
    .forward = ln_forward,
    .backward = ln_backward,
};
