/* op_image.c - padding, cropping and enlarging of maps, NHWC. */
#include "nn/ops.h"

#include <math.h>
#include <string.h>

#include "tensor/copy.h"

/* ---- zero padding ---- */

static manta_status pad_shape(manta_op_shape *s)
{
    const op_pad_attrs *a = s->attrs;
    const manta_array *x = s->in;

    TRY(op_expect_map(s));
    if (a->top < 0 || a->bottom < 0 || a->left < 0 || a->right < 0) {
        return manta_fail(MANTA_EINVAL, "expected padding of at least 0, given ((%lld, %lld), (%lld, %lld))",
                          (long long)a->top, (long long)a->bottom, (long long)a->left, (long long)a->right);
    }
    op_set_out(s, MANTA_DTYPE_F32, 4,
               (int64_t[]){x->shape[0], x->shape[1] + a->top + a->bottom, x->shape[2] + a->left + a->right,
                           x->shape[3]});
    return MANTA_OK;
}

/* What of the padded array `whole` is not padding. */
static manta_status inner_view(const manta_op_call *c, const manta_array *whole, manta_array *out)
{
    const op_pad_attrs *a = c->attrs;
    manta_array rows, all = op_view(whole);

    TRY(copy_slice(&all, 1, a->top, c->in[0].shape[1], &rows));
    return copy_slice(&rows, 2, a->left, c->in[0].shape[2], out);
}

static manta_status pad_forward(const manta_op_call *c)
{
    manta_array x = op_view(&c->in[0]), y = op_view(&c->out[0]), to;

    TRY(copy_fill(op_pool(c), &y, 0));
    TRY(inner_view(c, &y, &to));
    return copy_strided(op_pool(c), &to, &x, false);
}

static manta_status pad_backward(const manta_op_call *c)
{
    manta_array dx = op_view(&c->din[0]), from;

    if (!op_wants(c, 0)) return MANTA_OK;
    TRY(inner_view(c, &c->dout[0], &from));
    return copy_strided(op_pool(c), &dx, &from, c->accumulate[0]);
}

const manta_op op_zero_pad = {
    .name = "zero_pad",
    .attrs_size = sizeof(op_pad_attrs),
    .shape = pad_shape,
    .forward = pad_forward,
    .backward = pad_backward,
};

/* ---- cropping ---- */

static manta_status crop_shape(manta_op_shape *s)
{
    const op_pad_attrs *a = s->attrs;
    const manta_array *x = s->in;
    char text[96];

    TRY(op_expect_map(s));
    if (a->top < 0 || a->bottom < 0 || a->left < 0 || a->right < 0) {
        return manta_fail(MANTA_EINVAL, "expected cropping of at least 0, given ((%lld, %lld), (%lld, %lld))",
                          (long long)a->top, (long long)a->bottom, (long long)a->left, (long long)a->right);
    }
    if (a->top >= x->shape[1] - a->bottom || a->left >= x->shape[2] - a->right) {
        return manta_fail(MANTA_EINVAL,
                          "expected a height and width above (%lld, %lld), which cropping takes, given %s",
                          (long long)(a->top + a->bottom), (long long)(a->left + a->right),
                          op_shape_text(x, text, sizeof text));
    }
    op_set_out(s, MANTA_DTYPE_F32, 4,
               (int64_t[]){x->shape[0], x->shape[1] - a->top - a->bottom, x->shape[2] - a->left - a->right,
                           x->shape[3]});
    return MANTA_OK;
}

/* What of the array `whole` cropping leaves. */
static manta_status kept_view(const manta_op_call *c, const manta_array *whole, manta_array *out)
{
    const op_pad_attrs *a = c->attrs;
    manta_array rows, all = op_view(whole);

    TRY(copy_slice(&all, 1, a->top, c->out[0].shape[1], &rows));
    return copy_slice(&rows, 2, a->left, c->out[0].shape[2], out);
}

static manta_status crop_forward(const manta_op_call *c)
{
    manta_array y = op_view(&c->out[0]), from;

    TRY(kept_view(c, &c->in[0], &from));
    return copy_strided(op_pool(c), &y, &from, false);
}

static manta_status crop_backward(const manta_op_call *c)
{
    manta_array dx = op_view(&c->din[0]), dy = op_view(&c->dout[0]), to;

    if (!op_wants(c, 0)) return MANTA_OK;
    if (!c->accumulate[0]) TRY(copy_fill(op_pool(c), &dx, 0));
    TRY(kept_view(c, &c->din[0], &to));
    return copy_strided(op_pool(c), &to, &dy, c->accumulate[0]);
}

const manta_op op_crop = {
    .name = "crop",
    .attrs_size = sizeof(op_pad_attrs),
    .shape = crop_shape,
    .forward = crop_forward,
    .backward = crop_backward,
};

/* ---- enlarging ----
 *
 * Centres of pixels stay where they are (half-pixel rule): output o looks at
 * (o + 0.5) / scale - 0.5 of the input and mixes the two pixels around it;
 * nearest takes pixel o / scale. */

typedef struct tap {
    int64_t lo, hi;
    float mix; /* weight of hi */
} tap;

static tap tap_of(int64_t o, int64_t scale, int64_t n, bool bilinear)
{
    float at, below;
    tap t;

    if (!bilinear) return (tap){.lo = o / scale, .hi = o / scale};
    at = ((float)o + 0.5f) / (float)scale - 0.5f;
    below = floorf(at);
    t = (tap){.lo = (int64_t)below, .hi = (int64_t)ceilf(at), .mix = at - below};
    if (t.lo < 0) t.lo = 0;
    if (t.hi > n - 1) t.hi = n - 1;
    return t;
}

static manta_status upsample_shape(manta_op_shape *s)
{
    const op_upsample_attrs *a = s->attrs;
    const int64_t *in = s->in[0].shape;

    TRY(op_expect_map(s));
    if (a->sh < 1 || a->sw < 1) {
        return manta_fail(MANTA_EINVAL, "expected a size of at least (1, 1), given (%lld, %lld)",
                          (long long)a->sh, (long long)a->sw);
    }
    op_set_out(s, MANTA_DTYPE_F32, 4, (int64_t[]){in[0], in[1] * a->sh, in[2] * a->sw, in[3]});
    return MANTA_OK;
}

static manta_status upsample_plan(manta_op_plan *p)
{
    const op_upsample_attrs *a = p->attrs;

    p->flops = a->bilinear ? 6 * (double)manta_array_count(&p->out[0]) : 0;
    return MANTA_OK;
}

/* One row of the output: i counts (n, oh). */
static void upsample_row(void *ctx, int64_t i)
{
    const manta_op_call *c = ctx;
    const op_upsample_attrs *a = c->attrs;
    const int64_t *in = c->in[0].shape, *out = c->out[0].shape;
    int64_t n = i / out[1], ch = in[3], row = in[2] * ch;
    tap v = tap_of(i % out[1], a->sh, in[1], a->bilinear);
    const float *x = op_f32(&c->in[0]) + n * in[1] * row;
    float *y = op_f32(&c->out[0]) + i * out[2] * ch;

    for (int64_t ow = 0; ow < out[2]; ow++, y += ch) {
        tap u = tap_of(ow, a->sw, in[2], a->bilinear);
        const float *tl = x + v.lo * row + u.lo * ch, *tr = x + v.lo * row + u.hi * ch;
        const float *bl = x + v.hi * row + u.lo * ch, *br = x + v.hi * row + u.hi * ch;
        if (!a->bilinear) {
            memcpy(y, tl, (size_t)ch * sizeof *y);
            continue;
        }
        for (int64_t k = 0; k < ch; k++) {
            float top = tl[k] + (tr[k] - tl[k]) * u.mix, bottom = bl[k] + (br[k] - bl[k]) * u.mix;
            y[k] = top + (bottom - top) * v.mix;
        }
    }
}

/* Gradient of one sample: its outputs are spread in order, so no two threads meet. */
static void upsample_back_sample(void *ctx, int64_t n)
{
    const manta_op_call *c = ctx;
    const op_upsample_attrs *a = c->attrs;
    const int64_t *in = c->in[0].shape, *out = c->out[0].shape;
    int64_t ch = in[3], row = in[2] * ch;
    const float *dy = op_f32(&c->dout[0]) + n * out[1] * out[2] * ch;
    float *dx = op_f32(&c->din[0]) + n * in[1] * row;

    if (!c->accumulate[0]) memset(dx, 0, (size_t)(in[1] * row) * sizeof *dx);
    for (int64_t oh = 0; oh < out[1]; oh++) {
        tap v = tap_of(oh, a->sh, in[1], a->bilinear);
        for (int64_t ow = 0; ow < out[2]; ow++, dy += ch) {
            tap u = tap_of(ow, a->sw, in[2], a->bilinear);
            float *tl = dx + v.lo * row + u.lo * ch, *tr = dx + v.lo * row + u.hi * ch;
            float *bl = dx + v.hi * row + u.lo * ch, *br = dx + v.hi * row + u.hi * ch;
            for (int64_t k = 0; k < ch; k++) {
                float bottom = dy[k] * v.mix, top = dy[k] - bottom;
                tl[k] += top * (1 - u.mix);
                if (!a->bilinear) continue;
                tr[k] += top * u.mix;
                bl[k] += bottom * (1 - u.mix);
                br[k] += bottom * u.mix;
            }
        }
    }
}

static manta_status upsample_forward(const manta_op_call *c)
{
    manta_op_parallel(c, c->out[0].shape[0] * c->out[0].shape[1], upsample_row, (void *)(uintptr_t)c);
    return MANTA_OK;
}

static manta_status upsample_backward(const manta_op_call *c)
{
    if (op_wants(c, 0)) manta_op_parallel(c, c->in[0].shape[0], upsample_back_sample, (void *)(uintptr_t)c);
    return MANTA_OK;
}

const manta_op op_upsample = {
    .name = "upsample",
    .attrs_size = sizeof(op_upsample_attrs),
    .shape = upsample_shape,
    .plan = upsample_plan,
    .forward = upsample_forward,
    .backward = upsample_backward,
};
