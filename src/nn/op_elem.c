/* op_elem.c - operations that work element by element. */
#include "nn/ops.h"

#include <math.h>

#include "tensor/convert.h"

#define TILE 8192 /* elements a thread takes at a time: 32 KiB, what stays in its first cache */

/* One pass of an operation over its elements, tile by tile. */
typedef struct elem_job {
    const manta_op_call *c;
    int64_t n;
} elem_job;

static int64_t count_tiles(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

static int64_t tile_end(int64_t tile, int64_t n)
{
    return (tile + 1) * TILE < n ? (tile + 1) * TILE : n;
}

static void run_tiles(const manta_op_call *c, int64_t n, void (*fn)(void *ctx, int64_t tile))
{
    elem_job j = {.c = c, .n = n};

    manta_op_parallel(c, count_tiles(n), fn, &j);
}

static manta_status elem_shape(manta_op_shape *s)
{
    TRY(op_expect_inputs(s, 1, 1));
    return op_expect_f32(s, 0, "an input");
}

/* ---- activations ---- */

static manta_status act_plan(manta_op_plan *p)
{
    p->flops = (double)manta_array_count(&p->in[0]);
    p->backward_flops = p->flops;
    return MANTA_OK;
}

static manta_status act_forward(const manta_op_call *c)
{
    const op_act_attrs *a = c->attrs;

    op_kernels(c)->act_forward(op_pool(c), a->act, a->alpha, manta_array_count(&c->in[0]), op_f32(&c->in[0]),
                               op_f32(&c->out[0]));
    return MANTA_OK;
}

static manta_status act_backward(const manta_op_call *c)
{
    const op_act_attrs *a = c->attrs;

    if (!op_wants(c, 0)) return MANTA_OK;
    op_kernels(c)->act_backward(op_pool(c), a->act, a->alpha, manta_array_count(&c->dout[0]),
                                op_f32(&c->in[0]), op_f32(&c->out[0]), op_f32(&c->dout[0]),
                                op_f32(&c->din[0]), c->accumulate[0]);
    return MANTA_OK;
}

const manta_op op_activation = {
    .name = "activation",
    .attrs_size = sizeof(op_act_attrs),
    .flags = MANTA_OP_READS_OUTPUT(0),
    .shape = elem_shape,
    .plan = act_plan,
    .forward = act_forward,
    .backward = act_backward,
};

const manta_op op_activation_of_input = {
    .name = "activation",
    .attrs_size = sizeof(op_act_attrs),
    .flags = MANTA_OP_READS_INPUT(0),
    .shape = elem_shape,
    .plan = act_plan,
    .forward = act_forward,
    .backward = act_backward,
};

static void relu_tile(void *ctx, int64_t tile)
{
    const elem_job *j = ctx;
    const op_relu_attrs *a = j->c->attrs;
    const float *x = op_f32(&j->c->in[0]);
    float *y = op_f32(&j->c->out[0]);

    for (int64_t i = tile * TILE, end = tile_end(tile, j->n); i < end; i++) {
        float v = x[i] < a->threshold ? a->negative_slope * (x[i] - a->threshold) : x[i];
        y[i] = v > a->max_value ? a->max_value : v;
    }
}

static void relu_back_tile(void *ctx, int64_t tile)
{
    const elem_job *j = ctx;
    const op_relu_attrs *a = j->c->attrs;
    const float *x = op_f32(&j->c->in[0]), *dy = op_f32(&j->c->dout[0]);
    float *dx = op_f32(&j->c->din[0]);
    bool add = j->c->accumulate[0];

    for (int64_t i = tile * TILE, end = tile_end(tile, j->n); i < end; i++) {
        float v = x[i] > a->threshold ? (x[i] < a->max_value ? dy[i] : 0) : a->negative_slope * dy[i];
        dx[i] = add ? dx[i] + v : v;
    }
}

static manta_status relu_forward(const manta_op_call *c)
{
    run_tiles(c, manta_array_count(&c->in[0]), relu_tile);
    return MANTA_OK;
}

static manta_status relu_backward(const manta_op_call *c)
{
    if (op_wants(c, 0)) run_tiles(c, manta_array_count(&c->dout[0]), relu_back_tile);
    return MANTA_OK;
}

const manta_op op_relu = {
    .name = "relu",
    .attrs_size = sizeof(op_relu_attrs),
    .flags = MANTA_OP_READS_INPUT(0),
    .shape = elem_shape,
    .plan = act_plan,
    .forward = relu_forward,
    .backward = relu_backward,
};

static int64_t last_axis(const manta_array *a)
{
    return a->shape[a->ndim - 1];
}

static manta_status softmax_shape(manta_op_shape *s)
{
    char text[96];

    TRY(elem_shape(s));
    if (s->in[0].ndim > 1) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., classes), given %s",
                      op_shape_text(&s->in[0], text, sizeof text));
}

static manta_status softmax_forward(const manta_op_call *c)
{
    int64_t k = last_axis(&c->in[0]);

    op_kernels(c)->softmax_forward(op_pool(c), manta_array_count(&c->in[0]) / k, k, op_f32(&c->in[0]),
                                   op_f32(&c->out[0]));
    return MANTA_OK;
}

static manta_status softmax_backward(const manta_op_call *c)
{
    int64_t k = last_axis(&c->dout[0]);

    if (!op_wants(c, 0)) return MANTA_OK;
    op_kernels(c)->softmax_backward(op_pool(c), manta_array_count(&c->dout[0]) / k, k, op_f32(&c->out[0]),
                                    op_f32(&c->dout[0]), op_f32(&c->din[0]), c->accumulate[0]);
    return MANTA_OK;
}

const manta_op op_softmax = {
    .name = "softmax",
    .flags = MANTA_OP_READS_OUTPUT(0),
    .shape = softmax_shape,
    .plan = act_plan,
    .forward = softmax_forward,
    .backward = softmax_backward,
};

/* ---- affine: y = x * scale + offset, from any type ---- */

static manta_status affine_shape(manta_op_shape *s)
{
    return op_expect_inputs(s, 1, 1);
}

static void affine_tile(void *ctx, int64_t tile)
{
    const elem_job *j = ctx;
    const op_affine_attrs *a = j->c->attrs;
    const manta_array *x = &j->c->in[0];
    int64_t lo = tile * TILE, hi = tile_end(tile, j->n);
    float *y = op_f32(&j->c->out[0]) + lo;

    convert_run(x->dtype, (const char *)x->data + (size_t)lo * manta_dtype_size(x->dtype), MANTA_DTYPE_F32, y,
                hi - lo);
    if (a->scale == 1 && a->offset == 0) return;
    for (int64_t i = 0; i < hi - lo; i++) y[i] = y[i] * a->scale + a->offset;
}

static manta_status affine_forward(const manta_op_call *c)
{
    run_tiles(c, manta_array_count(&c->in[0]), affine_tile);
    return MANTA_OK;
}

static manta_status affine_backward(const manta_op_call *c)
{
    const op_affine_attrs *a = c->attrs;

    if (!op_wants(c, 0)) return MANTA_OK;
    op_kernels(c)->axpby(op_pool(c), manta_array_count(&c->dout[0]), a->scale, op_f32(&c->dout[0]),
                         c->accumulate[0] ? 1 : 0, op_f32(&c->din[0]));
    return MANTA_OK;
}

const manta_op op_affine = {
    .name = "affine",
    .attrs_size = sizeof(op_affine_attrs),
    .shape = affine_shape,
    .plan = act_plan,
    .forward = affine_forward,
    .backward = affine_backward,
};

/* ---- normalize: by given mean and variance ---- */

static manta_status normalize_shape(manta_op_shape *s)
{
    const op_normalize_attrs *a = s->attrs;
    char text[96];

    TRY(elem_shape(s));
    if (a->n == 1 || (s->in[0].ndim > 1 && last_axis(&s->in[0]) == a->n)) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, ..., %lld), given %s",
                      (long long)a->n, op_shape_text(&s->in[0], text, sizeof text));
}

static float deviation_of(const op_normalize_attrs *a, int64_t ch)
{
    float d = sqrtf(a->variance[ch]);

    return d > 1e-7f ? d : 1e-7f;
}

/* Every step-th of n elements to units of deviation d around mean, or back. */
static void normalize_span(const float *x, float *y, int64_t n, float mean, float d, bool invert,
                           int64_t step)
{
    if (invert) {
        for (int64_t i = 0; i < n; i += step) y[i] = mean + x[i] * d;
    } else {
        for (int64_t i = 0; i < n; i += step) y[i] = (x[i] - mean) / d;
    }
}

/* A tile is cut by channel, so that a root is taken once for each. */
static void normalize_tile(void *ctx, int64_t tile)
{
    const elem_job *j = ctx;
    const op_normalize_attrs *a = j->c->attrs;
    int64_t lo = tile * TILE, hi = tile_end(tile, j->n);
    const float *x = op_f32(&j->c->in[0]);
    float *y = op_f32(&j->c->out[0]);

    for (int64_t i = lo; i < hi && i < lo + a->n; i++) {
        normalize_span(x + i, y + i, hi - i, a->mean[i % a->n], deviation_of(a, i % a->n), a->invert, a->n);
    }
}

static void normalize_back_tile(void *ctx, int64_t tile)
{
    const elem_job *j = ctx;
    const op_normalize_attrs *a = j->c->attrs;
    int64_t lo = tile * TILE, hi = tile_end(tile, j->n);
    const float *dy = op_f32(&j->c->dout[0]);
    float *dx = op_f32(&j->c->din[0]);
    bool add = j->c->accumulate[0];

    for (int64_t i = lo; i < hi && i < lo + a->n; i++) {
        float d = deviation_of(a, i % a->n);
        for (int64_t k = i; k < hi; k += a->n) {
            float v = a->invert ? dy[k] * d : dy[k] / d;
            dx[k] = add ? dx[k] + v : v;
        }
    }
}

static manta_status normalize_forward(const manta_op_call *c)
{
    run_tiles(c, manta_array_count(&c->in[0]), normalize_tile);
    return MANTA_OK;
}

static manta_status normalize_backward(const manta_op_call *c)
{
    if (op_wants(c, 0)) run_tiles(c, manta_array_count(&c->dout[0]), normalize_back_tile);
    return MANTA_OK;
}

const manta_op op_normalize = {
    .name = "normalize",
    .attrs_size = sizeof(op_normalize_attrs),
    .shape = normalize_shape,
    .plan = act_plan,
    .forward = normalize_forward,
    .backward = normalize_backward,
};

/* ---- dropout ----
 *
 * The mask is never kept: backward draws the same numbers again. */

#define DRAW 256 /* numbers drawn at a time */

static manta_status dropout_shape(manta_op_shape *s)
{
    const op_dropout_attrs *a = s->attrs;
    char text[96];

    TRY(elem_shape(s));
    if (a->ndim && (a->ndim != s->in[0].ndim || a->shared[0])) {
        return manta_fail(MANTA_EINVAL,
                          "expected to share draws within samples of %d dimensions, batch included, given %s",
                          a->ndim, op_shape_text(&s->in[0], text, sizeof text));
    }
    if (a->rate >= 0 && a->rate < 1) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected a rate of at least 0 and below 1, given %g", (double)a->rate);
}

static manta_status dropout_plan(manta_op_plan *p)
{
    const op_dropout_attrs *a = p->attrs;

    p->view = !p->training || a->rate == 0;
    p->flops = (double)manta_array_count(&p->in[0]);
    p->backward_flops = p->flops;
    return MANTA_OK;
}

typedef struct drop_job {
    const manta_op_call *c;
    int64_t n, blocks; /* elements and blocks of DRAW per sample */
    const float *from;
    float *to;
    bool add;
} drop_job;

static void drop_block(void *ctx, int64_t i)
{
    const drop_job *j = ctx;
    const op_dropout_attrs *a = j->c->attrs;
    int64_t row = i / j->blocks, lo = i % j->blocks * DRAW, hi = lo + DRAW < j->n ? lo + DRAW : j->n;
    const float *from = j->from + row * j->n;
    float u[DRAW], scale = 1 / (1 - a->rate), *to = j->to + row * j->n;

    op_random_range(j->c, j->c->first + row, lo, hi - lo, u);
    for (int64_t k = lo; k < hi; k++) {
        float v = u[k - lo] >= a->rate ? from[k] * scale : 0;
        to[k] = j->add ? to[k] + v : v;
    }
}

/* The draw that belongs to element k of a sample of shape x: axes that share do not count. */
static int64_t shared_index(const op_dropout_attrs *a, const manta_array *x, int64_t k)
{
    int64_t index = 0, stride = 1;

    for (int i = x->ndim - 1; i > 0; i--) {
        if (!a->shared[i]) {
            index += k % x->shape[i] * stride;
            stride *= x->shape[i];
        }
        k /= x->shape[i];
    }
    return index;
}

/* A sample whose elements share draws. Four are drawn at a time, and neighbours mostly want the same four. */
static void drop_shared(void *ctx, int64_t row)
{
    const drop_job *j = ctx;
    const op_dropout_attrs *a = j->c->attrs;
    const float *from = j->from + row * j->n;
    float u[4], scale = 1 / (1 - a->rate), *to = j->to + row * j->n;
    int64_t four = -1;

    for (int64_t k = 0; k < j->n; k++) {
        int64_t at = shared_index(a, &j->c->in[0], k);
        float v;
        if (at / 4 != four) {
            four = at / 4;
            op_random_range(j->c, j->c->first + row, 4 * four, 4, u);
        }
        v = u[at % 4] >= a->rate ? from[k] * scale : 0;
        to[k] = j->add ? to[k] + v : v;
    }
}

/* A sample that is dropped or kept as a whole. */
static void drop_sample(void *ctx, int64_t row)
{
    const drop_job *j = ctx;
    const op_dropout_attrs *a = j->c->attrs;
    const float *from = j->from + row * j->n;
    float u, scale = 1 / (1 - a->rate), *to = j->to + row * j->n;

    op_random_range(j->c, j->c->first + row, 0, 1, &u);
    scale = u >= a->rate ? scale : 0;
    for (int64_t k = 0; k < j->n; k++) {
        float v = scale == 0 ? 0 : from[k] * scale; /* also where from is not finite */
        to[k] = j->add ? to[k] + v : v;
    }
}

static bool drops_samples(const op_dropout_attrs *a)
{
    for (int i = 1; i < a->ndim; i++) {
        if (!a->shared[i]) return false;
    }
    return a->ndim > 0;
}

static void drop_elements(const manta_op_call *c, const manta_array *from, const manta_array *to, bool add)
{
    const op_dropout_attrs *a = c->attrs;
    int64_t rows = from->shape[0];
    drop_job j = {.c = c, .from = from->data, .to = to->data, .add = add};

    if (!c->training || a->rate == 0) {
        if (add || j.from != j.to) {
            op_kernels(c)->axpby(op_pool(c), manta_array_count(from), 1, j.from, add ? 1 : 0, j.to);
        }
        return;
    }
    if (rows < 1) return;
    j.n = manta_array_count(from) / rows;
    j.blocks = (j.n + DRAW - 1) / DRAW;
    if (a->ndim) {
        manta_op_parallel(c, rows, drops_samples(a) ? drop_sample : drop_shared, &j);
    } else {
        manta_op_parallel(c, rows * j.blocks, drop_block, &j);
    }
}

static manta_status dropout_forward(const manta_op_call *c)
{
    drop_elements(c, &c->in[0], &c->out[0], false);
    return MANTA_OK;
}

static manta_status dropout_backward(const manta_op_call *c)
{
    if (op_wants(c, 0)) drop_elements(c, &c->dout[0], &c->din[0], c->accumulate[0]);
    return MANTA_OK;
}

const manta_op op_dropout = {
    .name = "dropout",
    .attrs_size = sizeof(op_dropout_attrs),
    .shape = dropout_shape,
    .plan = dropout_plan,
    .forward = dropout_forward,
    .backward = dropout_backward,
};
