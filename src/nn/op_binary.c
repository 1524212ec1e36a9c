/* op_binary.c - sum, difference and product of two values, with broadcasting.
 *
 * Dimension 0 is the batch's; the dimensions of a sample are aligned from the
 * last, so that (B, C) meets (B, H, W, C) as (B, 1, 1, C). An axis of length 1
 * repeats. Equal shapes, and a second operand that repeats as a whole, go to
 * the kernels; everything else is a walk over views with strides of 0.
 *
 * The gradient of an operand that repeats is a sum over its repetitions: each
 * of its elements adds them in row-major order of the output, in double. */
#include "nn/ops.h"

#include "tensor/copy.h"

/* Axis of `a` that meets axis i of an output with n dimensions; -1: none. */
static int axis_of(const manta_array *a, int n, int i)
{
    int lead = n - a->ndim; /* axes that a lacks, behind the batch */

    if (i == 0) return 0;
    return i <= lead ? -1 : i - lead;
}

static int64_t length_at(const manta_array *a, int n, int i)
{
    int axis = axis_of(a, n, i);

    return axis < 0 ? 1 : a->shape[axis];
}

static manta_status binary_shape(manta_op_shape *s)
{
    const manta_array *a = s->in, *b = s->in + 1;
    int n;
    int64_t out[MANTA_MAX_DIMS];
    char ta[96], tb[96];

    TRY(op_expect_inputs(s, 2, 2));
    TRY(op_expect_f32(s, 0, "inputs"));
    TRY(op_expect_f32(s, 1, "inputs"));
    n = a->ndim > b->ndim ? a->ndim : b->ndim;
    for (int i = 0; i < n; i++) {
        int64_t la = length_at(a, n, i), lb = length_at(b, n, i);
        if (la != lb && la != 1 && lb != 1) {
            return manta_fail(MANTA_EINVAL, "expected inputs of one shape, given %s and %s",
                              op_shape_text(a, ta, sizeof ta), op_shape_text(b, tb, sizeof tb));
        }
        out[i] = la == 1 ? lb : la;
    }
    op_set_out(s, MANTA_DTYPE_F32, n, out);
    return MANTA_OK;
}

static manta_status binary_plan(manta_op_plan *p)
{
    p->flops = (double)manta_array_count(&p->out[0]);
    return MANTA_OK;
}

op_strides op_strides_of(const manta_array *a, const manta_array *out)
{
    op_strides st = {{0}};
    int64_t stride = 1;

    for (int i = out->ndim - 1; i >= 0; i--) {
        int64_t length = length_at(a, out->ndim, i);
        st.s[i] = length == 1 ? 0 : stride;
        stride *= length;
    }
    return st;
}

int64_t op_period_of(const manta_array *b, const manta_array *out)
{
    int64_t n = 1;
    int i = out->ndim - 1;

    for (; i >= 0 && length_at(b, out->ndim, i) == out->shape[i]; i--) n *= out->shape[i];
    for (; i >= 0; i--) {
        if (length_at(b, out->ndim, i) != 1) return 0;
    }
    return n;
}

/* ---- forward ---- */

typedef struct binary_job {
    const manta_op_call *c;
    kern_binary op;
    int64_t n; /* elements of the output */
} binary_job;

/* `a` seen in the shape of the output. */
static manta_array repeated_view(const manta_array *a, const manta_array *out)
{
    manta_array view = manta_array_of(MANTA_DTYPE_F32, out->ndim, out->shape, a->data);
    op_strides st = op_strides_of(a, out);

    for (int i = 0; i < out->ndim; i++) view.strides[i] = st.s[i];
    return view;
}

#define TILE 8192 /* elements that stay in a core's first cache between the sum, its relu and its rounding */

/* A tile of two operands of one shape. Called from within a task of the pool,
 * so the kernels run on this thread. */
static void forward_tile(void *ctx, int64_t tile)
{
    const binary_job *j = ctx;
    const manta_op_call *c = j->c;
    int64_t lo = tile * TILE, n = j->n - lo < TILE ? j->n - lo : TILE;
    float *y = op_f32(&c->out[0]) + lo;

    op_kernels(c)->binary(op_pool(c), j->op, n, op_f32(&c->in[0]) + lo, n, op_f32(&c->in[1]) + lo, y);
    if (c->inner->relu) op_kernels(c)->act_forward(op_pool(c), KERN_RELU, 0, n, y, y);
    if (c->inner->round_out) op_kernels(c)->round(op_pool(c), n, y);
}

static manta_status binary_forward(const manta_op_call *c, kern_binary op)
{
    const manta_array *a = &c->in[0], *b = &c->in[1], *out = &c->out[0];
    binary_job j = {.c = c, .op = op, .n = manta_array_count(out)};
    int64_t pa = op_period_of(a, out), pb = op_period_of(b, out);

    if (j.n == 0) return MANTA_OK;
    if ((c->inner->relu || c->inner->round_out) && pa == j.n && pb == j.n) {
        manta_op_parallel(c, (j.n + TILE - 1) / TILE, forward_tile, &j);
        return MANTA_OK;
    }
    if (pa == j.n && pb) {
        op_kernels(c)->binary(op_pool(c), op, j.n, op_f32(a), pb, op_f32(b), op_f32(out));
    } else if (pb == j.n && pa && op != KERN_SUB) {
        op_kernels(c)->binary(op_pool(c), op, j.n, op_f32(b), pa, op_f32(a), op_f32(out));
    } else {
        manta_array y = op_view(out), ra = repeated_view(a, out), rb = repeated_view(b, out);
        TRY(copy_binary(op_pool(c), op, &y, &ra, &rb));
    }
    if (c->inner->relu) op_kernels(c)->act_forward(op_pool(c), KERN_RELU, 0, j.n, op_f32(out), op_f32(out));
    if (c->inner->round_out) op_kernels(c)->round(op_pool(c), j.n, op_f32(out));
    return MANTA_OK;
}

/* ---- backward ---- */

typedef struct sum_job {
    const manta_op_call *c;
    const float *dy;
    kern_binary op;
    int which; /* the operand whose gradient this is */
    op_strides own, other;
} sum_job;

/* The gradient of one element: over all places of the output that show it. */
static void sum_element(void *ctx, int64_t element)
{
    const sum_job *j = ctx;
    const manta_op_call *c = j->c;
    const manta_array *out = &c->out[0];
    const float *other = op_f32(&c->in[1 - j->which]);
    float *d = op_f32(&c->din[j->which]) + element;
    int64_t at[MANTA_MAX_DIMS] = {0}, rest = element, from = 0, stride = 1, other_from = 0;
    int64_t out_strides[MANTA_MAX_DIMS];
    double sum = 0;
    int i;

    for (i = out->ndim - 1; i >= 0; i--) {
        out_strides[i] = stride;
        if (j->own.s[i]) { /* not repeated: the element's place fixes it */
            from += rest % out->shape[i] * stride;
            other_from += rest % out->shape[i] * j->other.s[i];
            rest /= out->shape[i];
        }
        stride *= out->shape[i];
    }
    do {
        int64_t p = from, q = other_from;
        for (i = 0; i < out->ndim; i++) {
            p += at[i] * out_strides[i];
            q += at[i] * j->other.s[i];
        }
        sum += j->op == KERN_MUL ? (double)j->dy[p] * (double)other[q] : (double)j->dy[p];
        for (i = out->ndim - 1; i >= 0; i--) {
            if (j->own.s[i]) continue;
            if (++at[i] < out->shape[i]) break;
            at[i] = 0;
        }
    } while (i >= 0);
    if (j->op == KERN_SUB && j->which == 1) sum = -sum;
    *d = c->accumulate[j->which] ? *d + (float)sum : (float)sum;
}

static void backward_one(const manta_op_call *c, kern_binary op, int which, const float *dy)
{
    const manta_array *out = &c->out[0], *other = &c->in[1 - which];
    int64_t n = manta_array_count(out), own = manta_array_count(&c->in[which]),
            repeat = op_period_of(other, out);
    float *d = op_f32(&c->din[which]);
    sum_job j = {.c = c, .dy = dy, .op = op, .which = which};

    if (own == n && op != KERN_MUL) {
        op_kernels(c)->axpby(op_pool(c), n, op == KERN_SUB && which ? -1 : 1, dy,
                             c->accumulate[which] ? 1 : 0, d);
    } else if (own == n && repeat && !c->accumulate[which]) {
        op_kernels(c)->binary(op_pool(c), KERN_MUL, n, dy, repeat, op_f32(other), d);
    } else if (op != KERN_MUL && op_period_of(&c->in[which], out) && !(op == KERN_SUB && which)) {
        op_kernels(c)->col_sum(op_pool(c), n / own, own, dy, d, c->accumulate[which]);
    } else {
        j.own = op_strides_of(&c->in[which], out);
        j.other = op_strides_of(other, out);
        manta_op_parallel(c, own, sum_element, &j);
    }
}

static manta_status binary_backward(const manta_op_call *c, kern_binary op)
{
    const float *dy = op_dout(c);

    for (int i = 0; i < 2; i++) {
        if (op_wants(c, i)) backward_one(c, op, i, dy);
    }
    return MANTA_OK;
}

/* ---- the three ---- */

static manta_status add_forward(const manta_op_call *c)
{
    return binary_forward(c, KERN_ADD);
}

static manta_status add_backward(const manta_op_call *c)
{
    return binary_backward(c, KERN_ADD);
}

static manta_status subtract_forward(const manta_op_call *c)
{
    return binary_forward(c, KERN_SUB);
}

static manta_status subtract_backward(const manta_op_call *c)
{
    return binary_backward(c, KERN_SUB);
}

static manta_status multiply_forward(const manta_op_call *c)
{
    return binary_forward(c, KERN_MUL);
}

static manta_status multiply_backward(const manta_op_call *c)
{
    return binary_backward(c, KERN_MUL);
}

const manta_op op_add = {
    .name = "add",
    .flags = OP_CAN_RELU | OP_ROUNDS_OUT,
    .shape = binary_shape,
    .plan = binary_plan,
    .forward = add_forward,
    .backward = add_backward,
};

const manta_op op_subtract = {
    .name = "subtract",
    .flags = OP_CAN_RELU | OP_ROUNDS_OUT,
    .shape = binary_shape,
    .plan = binary_plan,
    .forward = subtract_forward,
    .backward = subtract_backward,
};

const manta_op op_multiply = {
    .name = "multiply",
    .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1) | OP_CAN_RELU | OP_ROUNDS_OUT,
    .shape = binary_shape,
    .plan = binary_plan,
    .forward = multiply_forward,
    .backward = multiply_backward,
};
