/* op_conv.c - 2-D convolutions, NHWC, and their transposes.
 *
 * A transposed convolution is the backward-data pass of a convolution whose
 * input is our output; its gradients are that convolution's forward and
 * weight-gradient passes. So both operations share one conv_shape and the
 * kernels need no third kind.
 *
 * As in op_dense.c the input's gradient comes before the weight's. */
#include "nn/ops.h"

/* ---- convolution ---- */

/* Output length of one axis; below 1 when the window does not fit. */
static int64_t conv_length(int64_t n, int64_t before, int64_t after, int64_t k, int64_t stride,
                           int64_t dilation)
{
    int64_t room = n + before + after - ((k - 1) * dilation + 1);

    return room < 0 ? 0 : room / stride + 1;
}

/* Channels made, or 0 when the weight does not suit the input. */
static int64_t conv_channels(const manta_array *x, const manta_array *w, int64_t groups)
{
    int64_t c = x->shape[3];

    if (w->shape[2] * groups == c && w->shape[3] % groups == 0) return w->shape[3];
    if (groups == c && w->shape[2] == c) return c * w->shape[3]; /* Keras's depthwise kernel */
    return 0;
}

static manta_status conv2d_shape(manta_op_shape *s)
{
    const op_conv_attrs *a = s->attrs;
    const manta_array *x = s->in, *w = s->in + 1;
    int64_t oc, out[4] = {-1};
    char text[96], kernel[96];

    TRY(op_expect_inputs(s, 2, 3));
    TRY(op_expect_f32(s, 0, "an input"));
    if (x->ndim != 4) {
        return manta_fail(MANTA_EINVAL,
                          "expected an input of shape (batch, height, width, channels), given %s",
                          op_shape_text(x, text, sizeof text));
    }
    if (a->groups < 1 || a->sh < 1 || a->sw < 1 || a->dh < 1 || a->dw < 1) {
        return manta_fail(MANTA_EINVAL,
                          "expected strides, dilation and groups of at least 1, given (%lld, %lld), "
                          "(%lld, %lld) and %lld",
                          (long long)a->sh, (long long)a->sw, (long long)a->dh, (long long)a->dw,
                          (long long)a->groups);
    }
    oc = w->ndim == 4 ? conv_channels(x, w, a->groups) : 0;
    if (oc < 1) {
        return manta_fail(
            MANTA_EINVAL,
            "expected an input whose channels suit a kernel of shape %s in %lld group%s, given %s",
            manta_shape_text(w->ndim, w->shape, kernel, sizeof kernel), (long long)a->groups,
            a->groups == 1 ? "" : "s", op_shape_text(x, text, sizeof text));
    }
    out[1] = conv_length(x->shape[1], a->top, a->bottom, w->shape[0], a->sh, a->dh);
    out[2] = conv_length(x->shape[2], a->left, a->right, w->shape[1], a->sw, a->dw);
    out[3] = oc;
    if (out[1] < 1 || out[2] < 1) {
        return manta_fail(MANTA_EINVAL,
                          "expected a padded height and width of at least %lld and %lld, given %s",
                          (long long)((w->shape[0] - 1) * a->dh + 1),
                          (long long)((w->shape[1] - 1) * a->dw + 1), op_shape_text(x, text, sizeof text));
    }
    if (s->n_in == 3 && (s->in[2].ndim != 1 || s->in[2].shape[0] != oc)) {
        return manta_fail(MANTA_EINVAL, "expected a bias of shape (%lld,), given %s", (long long)oc,
                          op_shape_text(&s->in[2], text, sizeof text));
    }
    op_set_out(s, MANTA_DTYPE_F32, 4, out);
    return MANTA_OK;
}

conv_shape op_conv2d_geometry(const op_conv_attrs *a, const manta_array *x, const manta_array *w,
                              const manta_array *y)
{
    return (conv_shape){.n = x->shape[0],
                        .h = x->shape[1],
                        .w = x->shape[2],
                        .c = x->shape[3],
                        .oh = y->shape[1],
                        .ow = y->shape[2],
                        .oc = y->shape[3],
                        .kh = w->shape[0],
                        .kw = w->shape[1],
                        .sh = a->sh,
                        .sw = a->sw,
                        .dh = a->dh,
                        .dw = a->dw,
                        .top = a->top,
                        .left = a->left,
                        .groups = a->groups};
}

/* Taps along one axis that meet the input, over all outputs: padding costs nothing. */
static double valid_taps(int64_t n, int64_t out, int64_t k, int64_t stride, int64_t dilation, int64_t before)
{
    double taps = 0;

    for (int64_t o = 0; o < out; o++) {
        for (int64_t t = 0; t < k; t++) {
            int64_t at = o * stride + t * dilation - before;
            taps += at >= 0 && at < n;
        }
    }
    return taps;
}

static double conv_flops(const conv_shape *s)
{
    int64_t per_group = s->c / s->groups;

    return 2.0 * (double)s->n * valid_taps(s->h, s->oh, s->kh, s->sh, s->dh, s->top) *
           valid_taps(s->w, s->ow, s->kw, s->sw, s->dw, s->left) * (double)per_group * (double)s->oc;
}

static manta_status conv2d_plan(manta_op_plan *p)
{
    conv_shape s = op_conv2d_geometry(p->attrs, &p->in[0], &p->in[1], &p->out[0]);

    p->work = p->inner->kernels->conv_work(&s, p->threads);
    p->flops = conv_flops(&s);
    return MANTA_OK;
}

static conv_call conv2d_call(const manta_op_call *c)
{
    return (conv_call){.s = op_conv2d_geometry(c->attrs, &c->in[0], &c->in[1], &c->out[0]),
                       .x = op_f32(&c->in[0]),
                       .w = op_f32(&c->in[1]),
                       .work = c->work};
}

static manta_status conv2d_forward(const manta_op_call *c)
{
    conv_call v = conv2d_call(c);

    v.bias = c->n_in > 2 ? op_f32(&c->in[2]) : NULL;
    v.relu = c->inner->relu;
    v.round = c->inner->round_out;
    v.y = op_f32(&c->out[0]);
    op_kernels(c)->conv_forward(op_pool(c), &v);
    return MANTA_OK;
}

/* The gradients of kernel and bias; v has what the kernel saw and its gradient. */
static void weights_backward(const manta_op_call *c, conv_call *v, const float *dy)
{
    if (op_wants(c, 1) || c->inner->sink) {
        v->dw = op_f32(&c->din[1]);
        v->accumulate = c->accumulate[1];
        v->sink = c->inner->sink;
        v->sink_ctx = c->inner->sink_ctx;
        op_kernels(c)->conv_backward_weights(op_pool(c), v);
    }
    if (op_wants(c, 2)) {
        int64_t oc = c->out[0].shape[3];
        op_kernels(c)->col_sum(op_pool(c), manta_array_count(&c->dout[0]) / oc, oc, dy, op_f32(&c->din[2]),
                               c->accumulate[2]);
    }
}

static manta_status conv2d_backward(const manta_op_call *c)
{
    const float *dy = op_dout(c);
    conv_call v;

    if (op_wants(c, 0)) {
        v = conv2d_call(c);
        v.dy = dy;
        v.dx = op_f32(&c->din[0]);
        v.mask = c->inner->mask;
        v.round = c->inner->round_din;
        v.accumulate = c->accumulate[0];
        op_kernels(c)->conv_backward_data(op_pool(c), &v);
    }
    v = conv2d_call(c);
    v.dy = dy;
    weights_backward(c, &v, dy);
    return MANTA_OK;
}

const manta_op op_conv2d = {
    .name = "conv2d",
    .attrs_size = sizeof(op_conv_attrs),
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1) | OP_CAN_RELU | OP_CAN_MASK | OP_CAN_SINK |
             OP_ROUNDS_OUT | OP_ROUNDS_DIN,
    .shape = conv2d_shape,
    .plan = conv2d_plan,
    .forward = conv2d_forward,
    .backward = conv2d_backward,
};

/* ---- transposed convolution ---- */

static manta_status transpose_shape(manta_op_shape *s)
{
    const op_conv_transpose_attrs *a = s->attrs;
    const manta_array *x = s->in, *w = s->in + 1;
    char text[96];

    TRY(op_expect_inputs(s, 2, 3));
    TRY(op_expect_f32(s, 0, "an input"));
    if (x->ndim != 4) {
        return manta_fail(MANTA_EINVAL,
                          "expected an input of shape (batch, height, width, channels), given %s",
                          op_shape_text(x, text, sizeof text));
    }
    if (w->ndim != 4 || w->shape[3] != x->shape[3]) {
        return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, height, width, %lld), given %s",
                          w->ndim == 4 ? (long long)w->shape[3] : 0LL, op_shape_text(x, text, sizeof text));
    }
    if (a->sh < 1 || a->sw < 1 || a->dh < 1 || a->dw < 1 || a->oh < 1 || a->ow < 1) {
        return manta_fail(
            MANTA_EINVAL,
            "strides (%lld, %lld) and dilation (%lld, %lld) give no output of %s: expected a height "
            "and width of at least 1, given (%lld, %lld)",
            (long long)a->sh, (long long)a->sw, (long long)a->dh, (long long)a->dw,
            op_shape_text(x, text, sizeof text), (long long)a->oh, (long long)a->ow);
    }
    if (s->n_in == 3 && (s->in[2].ndim != 1 || s->in[2].shape[0] != w->shape[2])) {
        return manta_fail(MANTA_EINVAL, "expected a bias of shape (%lld,), given %s", (long long)w->shape[2],
                          op_shape_text(&s->in[2], text, sizeof text));
    }
    op_set_out(s, MANTA_DTYPE_F32, 4, (int64_t[]){-1, a->oh, a->ow, w->shape[2]});
    return MANTA_OK;
}

/* The convolution that leads from our output back to our input. */
conv_shape op_transpose_geometry(const op_conv_transpose_attrs *a, const manta_array *x, const manta_array *w,
                                 const manta_array *y)
{
    return (conv_shape){.n = x->shape[0],
                        .h = y->shape[1],
                        .w = y->shape[2],
                        .c = y->shape[3],
                        .oh = x->shape[1],
                        .ow = x->shape[2],
                        .oc = x->shape[3],
                        .kh = w->shape[0],
                        .kw = w->shape[1],
                        .sh = a->sh,
                        .sw = a->sw,
                        .dh = a->dh,
                        .dw = a->dw,
                        .top = a->top,
                        .left = a->left,
                        .groups = 1};
}

/* Kernels want their scratch aligned; what we put in front of it keeps that. */
static size_t align_up(size_t size)
{
    return (size + 63) & ~(size_t)63;
}

/* work: room for an input gradient that is to be added to another (a forward
 * pass cannot accumulate), then the kernels' own. */
static manta_status transpose_plan(manta_op_plan *p)
{
    conv_shape s = op_transpose_geometry(p->attrs, &p->in[0], &p->in[1], &p->out[0]);

    p->work = align_up(manta_array_bytes(&p->in[0])) + p->inner->kernels->conv_work(&s, p->threads);
    p->flops = conv_flops(&s);
    return MANTA_OK;
}

static conv_call transpose_call(const manta_op_call *c)
{
    return (conv_call){.s = op_transpose_geometry(c->attrs, &c->in[0], &c->in[1], &c->out[0]),
                       .w = op_f32(&c->in[1]),
                       .work = (char *)c->work + align_up(manta_array_bytes(&c->in[0]))};
}

static manta_status transpose_forward(const manta_op_call *c)
{
    conv_call v = transpose_call(c);
    int64_t n = manta_array_count(&c->out[0]);
    float *y = op_f32(&c->out[0]);

    v.dy = op_f32(&c->in[0]);
    v.dx = y;
    op_kernels(c)->conv_backward_data(op_pool(c), &v);
    if (c->n_in > 2) op_kernels(c)->binary(op_pool(c), KERN_ADD, n, y, v.s.c, op_f32(&c->in[2]), y);
    if (c->inner->relu) op_kernels(c)->act_forward(op_pool(c), KERN_RELU, 0, n, y, y);
    return MANTA_OK;
}

static manta_status transpose_backward(const manta_op_call *c)
{
    const float *dy = op_dout(c);
    conv_call v;

    if (op_wants(c, 0)) {
        v = transpose_call(c);
        float *dx = op_f32(&c->din[0]);
        v.x = dy;
        v.y = c->accumulate[0] ? c->work : dx;
        op_kernels(c)->conv_forward(op_pool(c), &v);
        if (c->accumulate[0]) {
            op_kernels(c)->axpby(op_pool(c), manta_array_count(&c->din[0]), 1, c->work, 1, dx);
        }
    }
    v = transpose_call(c);
    v.x = dy;
    v.dy = op_f32(&c->in[0]);
    weights_backward(c, &v, dy);
    return MANTA_OK;
}

const manta_op op_conv2d_transpose = {
    .name = "conv2d_transpose",
    .attrs_size = sizeof(op_conv_transpose_attrs),
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1) | OP_CAN_RELU | OP_CAN_SINK,
    .shape = transpose_shape,
    .plan = transpose_plan,
    .forward = transpose_forward,
    .backward = transpose_backward,
};
