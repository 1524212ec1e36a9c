/* op_dense.c - the matrix product of a dense layer.
 *
 * All but the last axis of x are rows: y (m, n) = x (m, k) w (k, n) + b. In
 * backward the input's gradient comes before the weight's, because the sink
 * that takes the weight's gradient may already overwrite the weight. */
#include "nn/ops.h"

static manta_status dense_shape(manta_op_shape *s)
{
    const manta_array *x = s->in, *w = s->in + 1;
    char text[96];

    TRY(op_expect_inputs(s, 2, 3));
    TRY(op_expect_f32(s, 0, "an input"));
    if (x->ndim < 2) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., features), given %s",
                          op_shape_text(x, text, sizeof text));
    }
    if (w->ndim != 2 || x->shape[x->ndim - 1] != w->shape[0]) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., %lld), given %s",
                          (long long)w->shape[0], op_shape_text(x, text, sizeof text));
    }
    if (s->n_in == 3 && (s->in[2].ndim != 1 || s->in[2].shape[0] != w->shape[1])) {
        return manta_fail(MANTA_EINVAL, "expected a bias of shape (%lld,), given %s", (long long)w->shape[1],
                          op_shape_text(&s->in[2], text, sizeof text));
    }
    s->out[0].shape[x->ndim - 1] = w->shape[1];
    return MANTA_OK;
}

/* m, n, k of the product. */
static gemm_call dense_gemm(const manta_array *x, const manta_array *w)
{
    int64_t k = w->shape[0], n = w->shape[1];

    return (gemm_call){.m = manta_array_count(x) / k, .n = n, .k = k};
}

static manta_status dense_plan(manta_op_plan *p)
{
    gemm_call g = dense_gemm(&p->in[0], &p->in[1]);

    p->flops = 2.0 * (double)g.m * (double)g.n * (double)g.k;
    return MANTA_OK;
}

static manta_status dense_forward(const manta_op_call *c)
{
    gemm_call g = dense_gemm(&c->in[0], &c->in[1]);

    g.a = op_f32(&c->in[0]);
    g.lda = g.k;
    g.b = op_f32(&c->in[1]);
    g.ldb = g.n;
    g.c = op_f32(&c->out[0]);
    g.ldc = g.n;
    g.bias = c->n_in > 2 ? op_f32(&c->in[2]) : NULL;
    g.relu = c->inner->relu;
    g.round = c->inner->round_out;
    op_kernels(c)->gemm(op_pool(c), &g);
    return MANTA_OK;
}

/* dx (m, k) = dy (m, n) w' */
static gemm_call input_gradient(const manta_op_call *c, const float *dy)
{
    gemm_call f = dense_gemm(&c->in[0], &c->in[1]);

    return (gemm_call){.m = f.m,
                       .n = f.k,
                       .k = f.n,
                       .a = dy,
                       .lda = f.n,
                       .b = op_f32(&c->in[1]),
                       .ldb = f.n,
                       .tb = true,
                       .c = op_f32(&c->din[0]),
                       .ldc = f.k,
                       .accumulate = c->accumulate[0],
                       .mask = c->inner->mask,
                       .round = c->inner->round_din};
}

/* dw (k, n) = x' dy */
static gemm_call weight_gradient(const manta_op_call *c, const float *dy)
{
    gemm_call f = dense_gemm(&c->in[0], &c->in[1]);

    return (gemm_call){.m = f.k,
                       .n = f.n,
                       .k = f.m,
                       .a = op_f32(&c->in[0]),
                       .lda = f.k,
                       .ta = true,
                       .b = dy,
                       .ldb = f.n,
                       .c = op_f32(&c->din[1]),
                       .ldc = f.n,
                       .accumulate = c->accumulate[1],
                       .sink = c->inner->sink,
                       .sink_ctx = c->inner->sink_ctx};
}

static manta_status dense_backward(const manta_op_call *c)
{
    const float *dy = op_dout(c);
    const gemm_call dx = input_gradient(c, dy), dw = weight_gradient(c, dy);
    const bool wants_dw = op_wants(c, 1) || c->inner->sink;

    if (op_wants(c, 0) && wants_dw) {
        op_kernels(c)->gemm_pair(op_pool(c), &dx, &dw);
    } else if (op_wants(c, 0)) {
        op_kernels(c)->gemm(op_pool(c), &dx);
    } else if (wants_dw) {
        op_kernels(c)->gemm(op_pool(c), &dw);
    }
    if (op_wants(c, 2)) {
        gemm_call f = dense_gemm(&c->in[0], &c->in[1]);
        op_kernels(c)->col_sum(op_pool(c), f.m, f.n, dy, op_f32(&c->din[2]), c->accumulate[2]);
    }
    return MANTA_OK;
}

const manta_op op_dense = {
    .name = "dense",
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1) | OP_CAN_RELU | OP_CAN_MASK | OP_CAN_SINK |
             OP_ROUNDS_OUT | OP_ROUNDS_DIN,
    .shape = dense_shape,
    .plan = dense_plan,
    .forward = dense_forward,
    .backward = dense_backward,
};
