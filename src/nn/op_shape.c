/* op_shape.c - operations that move elements and compute nothing. */
#include "nn/ops.h"

#include <string.h>

/* out = [out +] a over n elements; nothing to do when they are the same memory. */
static void copy(const manta_op_call *c, int64_t n, const float *a, float *out, bool add)
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
        copy(c, manta_array_count(&c->dout[0]), op_f32(&c->dout[0]), op_f32(&c->din[0]), c->accumulate[0]);
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

typedef struct permute_job {
    const manta_array *y; /* the permuted array */
    int64_t stride[MANTA_MAX_DIMS]; /* of each of y's axes, in the array permuted from */
    const float *from;
    float *to;
    bool back, add; /* back: from y's order into the original */
} permute_job;

/* One sample. Runs through y in order. */
static void permute_row(void *ctx, int64_t row)
{
    const permute_job *j = ctx;
    const manta_array *y = j->y;
    int64_t at[MANTA_MAX_DIMS] = {0}, n = manta_array_count(y) / y->shape[0], base = row * n;

    for (int64_t k = 0; k < n; k++) {
        int64_t other = base;
        for (int i = 1; i < y->ndim; i++) other += at[i] * j->stride[i];
        if (j->back) {
            j->to[other] = j->add ? j->to[other] + j->from[base + k] : j->from[base + k];
        } else {
            j->to[base + k] = j->from[other];
        }
        for (int i = y->ndim - 1; i > 0 && ++at[i] == y->shape[i]; i--) at[i] = 0;
    }
}

static void permute(const manta_op_call *c, permute_job *j)
{
    const op_permute_attrs *a = c->attrs;
    int64_t stride[MANTA_MAX_DIMS], n = 1;

    for (int i = a->ndim - 1; i >= 0; i--) {
        stride[i] = n;
        n *= c->in[0].shape[i];
    }
    for (int i = 0; i < a->ndim; i++) j->stride[i] = stride[a->axes[i]];
    j->y = &c->out[0];
    manta_op_parallel(c, c->out[0].shape[0], permute_row, j);
}

static manta_status permute_forward(const manta_op_call *c)
{
    permute_job j = {.from = op_f32(&c->in[0]), .to = op_f32(&c->out[0])};

    permute(c, &j);
    return MANTA_OK;
}

static manta_status permute_backward(const manta_op_call *c)
{
    permute_job j = {.from = op_f32(&c->dout[0]), .back = true, .add = c->accumulate[0]};

    if (!op_wants(c, 0)) return MANTA_OK;
    j.to = op_f32(&c->din[0]);
    permute(c, &j);
    return MANTA_OK;
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

/* The output is `outer` stripes; each holds one piece of every input in turn. */
typedef struct concat_job {
    const manta_op_call *c;
    int64_t stripe, piece[MANTA_OP_MAX_IN]; /* elements */
} concat_job;

static int64_t concat_prepare(const manta_op_call *c, concat_job *j)
{
    const op_concat_attrs *a = c->attrs;
    int64_t outer = 1, inner = 1;

    j->c = c;
    j->stripe = 0;
    for (int i = 0; i < a->axis; i++) outer *= c->out[0].shape[i];
    for (int i = a->axis + 1; i < c->out[0].ndim; i++) inner *= c->out[0].shape[i];
    for (int k = 0; k < c->n_in; k++) {
        j->piece[k] = c->in[k].shape[a->axis] * inner;
        j->stripe += j->piece[k];
    }
    return outer;
}

static void concat_stripe(void *ctx, int64_t i)
{
    const concat_job *j = ctx;
    float *y = op_f32(&j->c->out[0]) + i * j->stripe;

    for (int k = 0; k < j->c->n_in; y += j->piece[k++]) {
        memcpy(y, op_f32(&j->c->in[k]) + i * j->piece[k], (size_t)j->piece[k] * sizeof *y);
    }
}

static void concat_back_stripe(void *ctx, int64_t i)
{
    const concat_job *j = ctx;
    const float *dy = op_f32(&j->c->dout[0]) + i * j->stripe;

    for (int k = 0; k < j->c->n_in; dy += j->piece[k++]) {
        float *dx = op_f32(&j->c->din[k]);
        if (!dx) continue;
        dx += i * j->piece[k];
        for (int64_t e = 0; e < j->piece[k]; e++) dx[e] = j->c->accumulate[k] ? dx[e] + dy[e] : dy[e];
    }
}

static manta_status concat_forward(const manta_op_call *c)
{
    concat_job j;

    manta_op_parallel(c, concat_prepare(c, &j), concat_stripe, &j);
    return MANTA_OK;
}

static manta_status concat_backward(const manta_op_call *c)
{
    concat_job j;

    manta_op_parallel(c, concat_prepare(c, &j), concat_back_stripe, &j);
    return MANTA_OK;
}

const manta_op op_concatenate = {
    .name = "concatenate",
    .attrs_size = sizeof(op_concat_attrs),
    .shape = concat_shape,
    .forward = concat_forward,
    .backward = concat_backward,
};
