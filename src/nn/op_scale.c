/* op_scale.c - the product with one number per channel.
 *
 * The gradient of the numbers is the sum of dy * x over all rows: the products
 * are written to the work memory and summed as a bias gradient is. */
#include "nn/ops.h"

static int64_t channels_of(const manta_array *x)
{
    return x->shape[x->ndim - 1];
}

static manta_status scale_shape(manta_op_shape *s)
{
    const manta_array *x = s->in, *w = s->in + 1;
    char text[96], given[96];

    TRY(op_expect_inputs(s, 2, 2));
    TRY(op_expect_f32(s, 0, "an input"));
    if (x->ndim > 1 && w->ndim == 1 && w->shape[0] == channels_of(x)) return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "expected an input of shape (batch, ..., channels) and one number per "
                      "channel, given %s and %s",
                      op_shape_text(x, text, sizeof text), op_shape_text(w, given, sizeof given));
}

static manta_status scale_plan(manta_op_plan *p)
{
    p->work = manta_array_bytes(&p->in[0]);
    p->flops = (double)manta_array_count(&p->in[0]);
    return MANTA_OK;
}

static manta_status scale_forward(const manta_op_call *c)
{
    op_kernels(c)->binary(op_pool(c), KERN_MUL, manta_array_count(&c->in[0]), op_f32(&c->in[0]),
                          channels_of(&c->in[0]), op_f32(&c->in[1]), op_f32(&c->out[0]));
    return MANTA_OK;
}

static manta_status scale_backward(const manta_op_call *c)
{
    int64_t n = manta_array_count(&c->dout[0]), channels = channels_of(&c->dout[0]);
    const float *dy = op_f32(&c->dout[0]);
    float *products = c->work;

    if (op_wants(c, 1)) {
        op_kernels(c)->binary(op_pool(c), KERN_MUL, n, dy, n, op_f32(&c->in[0]), products);
        op_kernels(c)->col_sum(op_pool(c), n / channels, channels, products, op_f32(&c->din[1]),
                               c->accumulate[1]);
    }
    if (op_wants(c, 0)) {
        float *to = c->accumulate[0] ? products : op_f32(&c->din[0]);
        op_kernels(c)->binary(op_pool(c), KERN_MUL, n, dy, channels, op_f32(&c->in[1]), to);
        if (c->accumulate[0]) op_kernels(c)->axpby(op_pool(c), n, 1, to, 1, op_f32(&c->din[0]));
    }
    return MANTA_OK;
}

const manta_op op_scale = {
    .name = "scale",
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1),
    .shape = scale_shape,
    .plan = scale_plan,
    .forward = scale_forward,
    .backward = scale_backward,
};
