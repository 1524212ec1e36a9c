/* op_shape.c - operations that move elements and compute nothing. */
#include "nn/ops.h"

#include <string.h>

#include "tensor/copy.h"

/* out = [out +] a over n elements; nothing to do when they are the same memory. */
static void copy_floats(const manta_op_call *c, int64_t n, const float *a, float *out, bool add)
{
    if (a == out && !add) return;
    op_kernels(c)->axpby(op_pool(c), n, 1, a, add ? 1 : 0, out);
}

/* ---- reshape ---- */

static manta_status reshape_shape(manta_op_shape *s)
{
    const op_reshape_attrs *a = s->attrs;
    const manta_array *x = s->in;
    int64_t from = 1, to = 1;
    manta_array out;
    char text[96], target[96];

    TRY(op_expect_inputs(s, 1, 1));
    for (int i = 1; i < x->ndim; i++) from *= x->shape[i];
    for (int i = 1; i < a->ndim; i++) to *= a->shape[i];
    out = manta_array_of(x->dtype, a->ndim, a->shape, NULL);
    if (from != to || a->ndim < 1 || a->shape[0] != x->shape[0]) {
        return manta_fail(MANTA_EINVAL, "expected %lld elements per sample, as %s has, given %s with %lld",
                          (long long)to, op_shape_text(&out, target, sizeof target),
                          op_shape_text(x, text, sizeof text), (long long)from);
    }
    s->out[0] = out;
    return MANTA_OK;
}

static manta_status reshape_plan(manta_op_plan *p)
{
    p->view = true;
    return MANTA_OK;
}

/* Runs only where the planner could not make it a view. */
static manta_status reshape_forward(const manta_op_call *c)
{
    if (c->out[0].data != c->in[0].data) memcpy(c->out[0].data, c->in[0].data, manta_array_bytes(&c->in[0]));
    return MANTA_OK;
}

static manta_status reshape_backward(const manta_op_call *c)
{
    if (op_wants(c, 0)) {
        copy_floats(c, manta_array_count(&c->dout[0]), op_f32(&c->dout[0]), op_f32(&c->din[0]),
                    c->accumulate[0]);
    }
    return MANTA_OK;
}

const manta_op op_reshape = {
    .name = "reshape",
    .attrs_size = sizeof(op_reshape_attrs),
    .shape = reshape_shape,
    .plan = reshape_plan,
    .forward = reshape_forward,
    .backward = reshape_backward,
};

/* ---- permute ---- */

static manta_status permute_shape(manta_op_shape *s)
{
    const op_permute_attrs *a = s->attrs;
    const manta_array *x = s->in;
    int64_t out[MANTA_MAX_DIMS];
    unsigned seen = 0;
    char text[96];

    TRY(op_expect_inputs(s, 1, 1));
    TRY(op_expect_f32(s, 0, "an input"));
    if (x->ndim != a->ndim) {
        return manta_fail(MANTA_EINVAL, "expected an input of %d dimensions, the batch among them, given %s",
                          a->ndim, op_shape_text(x, text, sizeof text));
    }
    for (int i = 0; i < a->ndim; i++) {
        if (a->axes[i] < 0 || a->axes[i] >= a->ndim || seen & 1u << a->axes[i] ||
            (a->axes[i] == 0) != (i == 0)) {
            return manta_fail(MANTA_EINVAL, "expected each of the dimensions 1 to %d once, given %d",
                              a->ndim - 1, a->axes[i]);
        }
        seen |= 1u << a->axes[i];
        out[i] = x->shape[a->axes[i]];
    }
    op_set_out(s, MANTA_DTYPE_F32, a->ndim, out);
    return MANTA_OK;
}

static manta_status permute_forward(const manta_op_call *c)
{
    const op_permute_attrs *a = c->attrs;
    manta_array x = op_view(&c->in[0]), y = op_view(&c->out[0]), from = copy_permuted(&x, a->axes);

    return copy_strided(op_pool(c), &y, &from, false);
}

static manta_status permute_backward(const manta_op_call *c)
{
    const op_permute_attrs *a = c->attrs;
    manta_array dy = op_view(&c->dout[0]), dx = op_view(&c->din[0]), to = copy_permuted(&dx, a->axes);

    return op_wants(c, 0) ? copy_strided(op_pool(c), &to, &dy, c->accumulate[0]) : MANTA_OK;
}

const manta_op op_permute = {
    .name = "permute",
    .attrs_size = sizeof(op_permute_attrs),
    .shape = permute_shape,
    .forward = permute_forward,
    .backward = permute_backward,
};

/* ---- concatenate ---- */

static manta_status concat_shape(manta_op_shape *s)
{
    const op_concat_attrs *a = s->attrs;
    const manta_array *x = s->in;
    int64_t out[MANTA_MAX_DIMS];
    char first[96], text[96];

    TRY(op_expect_inputs(s, 1, MANTA_OP_MAX_IN));
    if (a->axis < 1 || a->axis >= x->ndim) {
        return manta_fail(MANTA_EINVAL, "expected an axis from 1 to %d for %s, given %d", x->ndim - 1,
                          op_shape_text(x, text, sizeof text), a->axis);
    }
    memcpy(out, x->shape, sizeof out);
    for (int k = 0; k < s->n_in; k++) TRY(op_expect_f32(s, k, "inputs"));
    for (int k = 1; k < s->n_in; k++) {
        bool same = s->in[k].ndim == x->ndim;
        for (int i = 0; same && i < x->ndim; i++) same = i == a->axis || s->in[k].shape[i] == x->shape[i];
        if (!same) {
            return manta_fail(MANTA_EINVAL, "expected inputs of one shape but for axis %d, given %s and %s",
                              a->axis, op_shape_text(x, first, sizeof first),
                              op_shape_text(&s->in[k], text, sizeof text));
        }
        out[a->axis] += s->in[k].shape[a->axis];
    }
    op_set_out(s, MANTA_DTYPE_F32, x->ndim, out);
    return MANTA_OK;
}

static manta_status concat_forward(const manta_op_call *c)
{
    const op_concat_attrs *a = c->attrs;
    manta_array y = op_view(&c->out[0]), x, part;
    int64_t at = 0;

    for (int i = 0; i < c->n_in; at += c->in[i++].shape[a->axis]) {
        x = op_view(&c->in[i]);
        TRY(copy_slice(&y, a->axis, at, x.shape[a->axis], &part));
        TRY(copy_strided(op_pool(c), &part, &x, false));
    }
    return MANTA_OK;
}

static manta_status concat_backward(const manta_op_call *c)
{
    const op_concat_attrs *a = c->attrs;
    manta_array dy = op_view(&c->dout[0]), dx, part;
    int64_t at = 0;

    for (int i = 0; i < c->n_in; at += c->in[i++].shape[a->axis]) {
        if (!op_wants(c, i)) continue;
        dx = op_view(&c->din[i]);
        TRY(copy_slice(&dy, a->axis, at, dx.shape[a->axis], &part));
        TRY(copy_strided(op_pool(c), &dx, &part, c->accumulate[i]));
    }
    return MANTA_OK;
}

const manta_op op_concatenate = {
    .name = "concatenate",
    .attrs_size = sizeof(op_concat_attrs),
    .shape = concat_shape,
    .forward = concat_forward,
    .backward = concat_backward,
};
