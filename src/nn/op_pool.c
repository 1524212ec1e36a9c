/* op_pool.c - pooling of maps, NHWC.
 *
 * Padding never wins a maximum, and is not counted in an average unless asked
 * for. A global average is a window as large as the map. A global maximum
 * shares its gradient equally among elements that are equally large, as the
 * gradient of a reduction does in Keras; a window's maximum gives it to the
 * first. */
#include "nn/ops.h"

#include <string.h>

/* ---- windows ---- */

static manta_status window_shape(manta_op_shape *s)
{
    const op_pool_attrs *a = s->attrs;
    const int64_t *in = s->in[0].shape;
    int64_t h, w;
    char text[96];

    TRY(op_expect_map(s));
    h = in[1] + a->top + a->bottom - a->kh;
    w = in[2] + a->left + a->right - a->kw;
    if (a->kh < 1 || a->kw < 1 || a->sh < 1 || a->sw < 1) {
        return manta_fail(MANTA_EINVAL,
                          "expected a window and strides of at least 1, given (%lld, %lld) and "
                          "(%lld, %lld)",
                          (long long)a->kh, (long long)a->kw, (long long)a->sh, (long long)a->sw);
    }
    if (h < 0 || w < 0) {
        return manta_fail(MANTA_EINVAL,
                          "expected a padded height and width of at least %lld and %lld, given %s",
                          (long long)a->kh, (long long)a->kw, op_shape_text(&s->in[0], text, sizeof text));
    }
    if (a->top >= a->kh || a->bottom >= a->kh || a->left >= a->kw || a->right >= a->kw) {
        return manta_fail(MANTA_EINVAL,
                          "expected padding smaller than the window (%lld, %lld), given ((%lld, %lld), "
                          "(%lld, %lld))",
                          (long long)a->kh, (long long)a->kw, (long long)a->top, (long long)a->bottom,
                          (long long)a->left, (long long)a->right);
    }
    op_set_out(s, MANTA_DTYPE_F32, 4, (int64_t[]){in[0], h / a->sh + 1, w / a->sw + 1, in[3]});
    return MANTA_OK;
}

static manta_status max_shape(manta_op_shape *s)
{
    const op_pool_attrs *a = s->attrs;

    TRY(window_shape(s));
    if (a->kh * a->kw <= 256) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "expected a window of at most 256 elements, given (%lld, %lld)",
                      (long long)a->kh, (long long)a->kw);
}

pool_shape op_pool_geometry(const op_pool_attrs *a, const int64_t *in, const int64_t *out)
{
    return (pool_shape){.n = in[0],
                        .h = in[1],
                        .w = in[2],
                        .c = in[3],
                        .oh = out[1],
                        .ow = out[2],
                        .kh = a->kh,
                        .kw = a->kw,
                        .sh = a->sh,
                        .sw = a->sw,
                        .top = a->top,
                        .left = a->left,
                        .count_padding = a->count_padding};
}

static manta_status window_plan(manta_op_plan *p)
{
    const op_pool_attrs *a = p->attrs;

    p->flops = (double)manta_array_count(&p->out[0]) * (double)(a->kh * a->kw);
    p->backward_flops = p->flops;
    return MANTA_OK;
}

/* saved (training): for each output which element of its window was the largest, a byte. */
static manta_status max_plan(manta_op_plan *p)
{
    TRY(window_plan(p));
    p->saved = p->training ? (size_t)manta_array_count(&p->out[0]) : 0;
    return MANTA_OK;
}

static manta_status max_forward(const manta_op_call *c)
{
    pool_shape s = op_pool_geometry(c->attrs, c->in[0].shape, c->out[0].shape);

    op_kernels(c)->max_pool_forward(op_pool(c), &s, op_f32(&c->in[0]), op_f32(&c->out[0]),
                                    c->training ? c->saved : NULL);
    return MANTA_OK;
}

static manta_status max_backward(const manta_op_call *c)
{
    pool_shape s = op_pool_geometry(c->attrs, c->in[0].shape, c->out[0].shape);

    if (!op_wants(c, 0)) return MANTA_OK;
    op_kernels(c)->max_pool_backward(op_pool(c), &s, c->saved, op_f32(&c->dout[0]), op_f32(&c->din[0]),
                                     c->accumulate[0]);
    return MANTA_OK;
}

const manta_op op_max_pool = {
    .name = "max_pool",
    .attrs_size = sizeof(op_pool_attrs),
    .shape = max_shape,
    .plan = max_plan,
    .forward = max_forward,
    .backward = max_backward,
};

static manta_status avg_forward(const manta_op_call *c)
{
    pool_shape s = op_pool_geometry(c->attrs, c->in[0].shape, c->out[0].shape);

    op_kernels(c)->avg_pool_forward(op_pool(c), &s, op_f32(&c->in[0]), op_f32(&c->out[0]));
    return MANTA_OK;
}

static manta_status avg_backward(const manta_op_call *c)
{
    pool_shape s = op_pool_geometry(c->attrs, c->in[0].shape, c->out[0].shape);

    if (!op_wants(c, 0)) return MANTA_OK;
    op_kernels(c)->avg_pool_backward(op_pool(c), &s, op_f32(&c->dout[0]), op_f32(&c->din[0]),
                                     c->accumulate[0]);
    return MANTA_OK;
}

const manta_op op_avg_pool = {
    .name = "avg_pool",
    .attrs_size = sizeof(op_pool_attrs),
    .shape = window_shape,
    .plan = window_plan,
    .forward = avg_forward,
    .backward = avg_backward,
};

/* ---- global ---- */

static manta_status global_shape(manta_op_shape *s)
{
    const op_global_pool_attrs *a = s->attrs;
    const int64_t *in = s->in[0].shape;

    TRY(op_expect_map(s));
    if (a->keepdims) {
        op_set_out(s, MANTA_DTYPE_F32, 4, (int64_t[]){in[0], 1, 1, in[3]});
    } else {
        op_set_out(s, MANTA_DTYPE_F32, 2, (int64_t[]){in[0], in[3]});
    }
    return MANTA_OK;
}

static manta_status global_plan(manta_op_plan *p)
{
    p->flops = (double)manta_array_count(&p->in[0]);
    p->backward_flops = p->flops;
    return MANTA_OK;
}

/* work: how many elements share each maximum. */
static manta_status global_max_plan(manta_op_plan *p)
{
    p->work = manta_array_bytes(&p->out[0]);
    return global_plan(p);
}

/* The window is the whole map. */
pool_shape op_global_geometry(const int64_t *in)
{
    return (pool_shape){.n = in[0],
                        .h = in[1],
                        .w = in[2],
                        .c = in[3],
                        .oh = 1,
                        .ow = 1,
                        .kh = in[1],
                        .kw = in[2],
                        .sh = 1,
                        .sw = 1};
}

static manta_status global_avg_forward(const manta_op_call *c)
{
    pool_shape s = op_global_geometry(c->in[0].shape);

    op_kernels(c)->avg_pool_forward(op_pool(c), &s, op_f32(&c->in[0]), op_f32(&c->out[0]));
    return MANTA_OK;
}

static manta_status global_avg_backward(const manta_op_call *c)
{
    pool_shape s = op_global_geometry(c->in[0].shape);

    if (!op_wants(c, 0)) return MANTA_OK;
    op_kernels(c)->avg_pool_backward(op_pool(c), &s, op_f32(&c->dout[0]), op_f32(&c->din[0]),
                                     c->accumulate[0]);
    return MANTA_OK;
}

const manta_op op_global_avg_pool = {
    .name = "global_avg_pool",
    .attrs_size = sizeof(op_global_pool_attrs),
    .shape = global_shape,
    .plan = global_plan,
    .forward = global_avg_forward,
    .backward = global_avg_backward,
};

static void global_max_sample(void *ctx, int64_t n)
{
    const manta_op_call *c = ctx;
    const int64_t *in = c->in[0].shape;
    int64_t places = in[1] * in[2], ch = in[3];
    const float *x = op_f32(&c->in[0]) + n * places * ch;
    float *y = op_f32(&c->out[0]) + n * ch;

    memcpy(y, x, (size_t)ch * sizeof *y);
    for (int64_t i = 1; i < places; i++) {
        /* Not `<`: a NaN must come through. */
        for (int64_t k = 0; k < ch; k++) y[k] = x[i * ch + k] <= y[k] ? y[k] : x[i * ch + k];
    }
}

static void global_max_back_sample(void *ctx, int64_t n)
{
    const manta_op_call *c = ctx;
    const int64_t *in = c->in[0].shape;
    int64_t places = in[1] * in[2], ch = in[3];
    const float *x = op_f32(&c->in[0]) + n * places * ch, *y = op_f32(&c->out[0]) + n * ch;
    const float *dy = op_f32(&c->dout[0]) + n * ch;
    float *dx = op_f32(&c->din[0]) + n * places * ch, *equal = (float *)c->work + n * ch;

    memset(equal, 0, (size_t)ch * sizeof *equal);
    for (int64_t i = 0; i < places; i++) {
        for (int64_t k = 0; k < ch; k++) equal[k] += x[i * ch + k] == y[k] ? 1.0f : 0.0f;
    }
    for (int64_t i = 0; i < places; i++) {
        for (int64_t k = 0; k < ch; k++) {
            float v = x[i * ch + k] == y[k] ? dy[k] / equal[k] : 0;
            dx[i * ch + k] = c->accumulate[0] ? dx[i * ch + k] + v : v;
        }
    }
}

static manta_status global_max_forward(const manta_op_call *c)
{
    manta_op_parallel(c, c->in[0].shape[0], global_max_sample, (void *)(uintptr_t)c);
    return MANTA_OK;
}

static manta_status global_max_backward(const manta_op_call *c)
{
    if (op_wants(c, 0)) manta_op_parallel(c, c->in[0].shape[0], global_max_back_sample, (void *)(uintptr_t)c);
    return MANTA_OK;
}

const manta_op op_global_max_pool = {
    .name = "global_max_pool",
    .attrs_size = sizeof(op_global_pool_attrs),
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_OUTPUT(0),
    .shape = global_shape,
    .plan = global_max_plan,
    .forward = global_max_forward,
    .backward = global_max_backward,
};
