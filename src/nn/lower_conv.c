/* lower_conv.c - rows of the operations with products: op_dense.c and op_conv.c. */
#include "nn/lower.h"

#include "tensor/conv.h"
#include "tensor/device_tiles.h"

/* ---- on tensor cores ---- */

/* Launches the convolution on tensor cores; false: the precision is exact, or it cannot be done so. `round`: its
 * result to bfloat16. */
static bool add_mma(lowering *w, mma_op op, const conv_args *a, bool round)
{
    dev_mma m;

    if (w->precision == DEV_EXACT) return false;
    m = dev_mma_conv(op, w->precision == DEV_BFLOAT16 ? MMA_BF16 : MMA_TF32, a);
    if (m.kernel == DEV_COUNT) return false;
    m.args.round = round;
    if (m.part_bytes) m.args.part = lower_scratch(w, m.part_bytes);
    lower_add(w, (dev_kernel)m.kernel, m.blocks, &m.args, sizeof m.args);
    if (m.part_bytes) LOWER(w, mma_add, (int64_t)m.args.rows * m.args.cols, m.args);
    return true;
}

/* ---- dense ---- */

static void add_gemm(lowering *w, const gemm_args *a)
{
    dev_tiling t = dev_gemm_tiling(a);

    lower_add(w, (dev_kernel)t.kernel, t.items, a, sizeof *a);
}

/* m, n, k of the product; an operand that is not transposed is as wide as it is long. */
static gemm_args dense_gemm(const plan_node *n)
{
    int64_t k = n->in[1].shape[0], cols = n->in[1].shape[1];

    return (gemm_args){.m = manta_array_count(&n->in[0]) / k, .n = cols, .k = k};
}

static manta_status dense_forward(lowering *w, const plan_node *n)
{
    gemm_args g = dense_gemm(n);

    g.a = lower_at(w, n->in_at[0]);
    g.lda = g.k;
    g.b = lower_at(w, n->in_at[1]);
    g.ldb = g.n;
    g.c = lower_at(w, n->out_at[0]);
    g.ldc = g.n;
    g.bias = lower_at(w, n->in_at[2]);
    g.relu = n->relu;
    conv_args a = {
        .s = dev_mma_dense(g.m, g.n, g.k), .x = g.a, .w = g.b, .y = g.c, .bias = g.bias, .relu = g.relu};
    if (add_mma(w, MMA_FORWARD, &a, n->round_out[0]))
        w->rounded |= 1u;
    else
        add_gemm(w, &g);
    return MANTA_OK;
}

static void dense_input(lowering *w, const plan_node *n, dev_addr dy)
{
    gemm_args f = dense_gemm(n), g = {.m = f.m,
                                      .n = f.k,
                                      .k = f.n,
                                      .a = dy,
                                      .lda = f.n,
                                      .b = lower_at(w, n->in_at[1]),
                                      .ldb = f.n,
                                      .tb = true,
                                      .c = lower_at(w, n->din_at[0]),
                                      .ldc = f.k,
                                      .accumulate = n->accumulate[0],
                                      .mask = lower_at(w, n->mask_at)};
    conv_args a = {.s = dev_mma_dense(f.m, f.n, f.k),
                   .dy = dy,
                   .w = g.b,
                   .dx = g.c,
                   .mask = g.mask,
                   .accumulate = g.accumulate};

    if (add_mma(w, MMA_DATA, &a, n->round_din[0]))
        w->rounded |= 2u;
    else
        add_gemm(w, &g);
}

static void dense_weight(lowering *w, const plan_node *n, dev_addr dy)
{
    gemm_args f = dense_gemm(n), g = {.m = f.k,
                                      .n = f.n,
                                      .k = f.m,
                                      .a = lower_at(w, n->in_at[0]),
                                      .lda = f.k,
                                      .ta = true,
                                      .b = dy,
                                      .ldb = f.n,
                                      .c = lower_at(w, n->din_at[1]),
                                      .ldc = f.n,
                                      .accumulate = n->accumulate[1]};
    conv_args a = {
        .s = dev_mma_dense(f.m, f.n, f.k), .x = g.a, .dy = dy, .dw = g.c, .accumulate = g.accumulate};

    if (!add_mma(w, MMA_WEIGHTS, &a, false)) add_gemm(w, &g);
}

static manta_status dense_backward(lowering *w, const plan_node *n)
{
    dev_addr dy = lower_dout(w, n);
    gemm_args f = dense_gemm(n);

    if (lower_wants(n, 0)) dense_input(w, n, dy);
    if (lower_wants(n, 1)) dense_weight(w, n, dy);
    if (lower_wants(n, 2)) lower_col_sum(w, f.m, f.n, dy, lower_at(w, n->din_at[2]), n->accumulate[2]);
    return MANTA_OK;
}

/* ---- convolution ---- */

/* Whether it has rounded, when told to. */
static bool conv_forward(lowering *w, conv_args *a, bool round)
{
    dev_tiling t;

    if (add_mma(w, MMA_FORWARD, a, round)) return true;
    t = dev_conv_forward_tiling(a);
    lower_add(w, (dev_kernel)t.kernel, t.items, a, sizeof *a);
    return false;
}

static bool conv_data(lowering *w, conv_args *a, bool round)
{
    dev_tiling t;

    if (add_mma(w, MMA_DATA, a, round)) return true;
    t = dev_conv_data_tiling(a);
    lower_add(w, (dev_kernel)t.kernel, t.items, a, sizeof *a);
    return false;
}

/* Puts x with its padding into scratch, for a gradient that counts it; a's shape becomes one without padding. */
static void pad_input(lowering *w, conv_args *a)
{
    conv_shape *s = &a->s;
    int64_t need_h = (s->oh - 1) * s->sh + (s->kh - 1) * s->dh + 1,
            need_w = (s->ow - 1) * s->sw + (s->kw - 1) * s->dw + 1,
            h = s->top + s->h > need_h ? s->top + s->h : need_h,
            width = s->left + s->w > need_w ? s->left + s->w : need_w, count = s->n * h * width * s->c;
    fill_args zeros = {.value = 0};
    copy_args copy = {.ndim = 4,
                      .shape = {s->n, s->h, s->w, s->c},
                      .from_step = {s->h * s->w * s->c, s->w * s->c, s->c, 1},
                      .to_step = {h * width * s->c, width * s->c, s->c, 1},
                      .from = a->x};

    if (h == s->h && width == s->w) return;
    zeros.to = lower_scratch(w, (size_t)count * sizeof(float));
    copy.to = zeros.to + (dev_addr)((s->top * width + s->left) * s->c) * sizeof(float);
    LOWER(w, fill, count, zeros);
    LOWER(w, copy, s->n * s->h * s->w * s->c, copy);
    a->x = zeros.to;
    s->h = h;
    s->w = width;
    s->top = s->left = 0;
}

/* In the order of the processor, chunk by chunk. */
static void kernel_exactly(lowering *w, conv_args *a)
{
    const conv_shape *s = &a->s;
    int64_t size = s->kh * s->kw * (s->c / s->groups) * s->oc;

    a->chunk = conv_chunk(s);
    a->chunks = s->n > a->chunk ? (s->n + a->chunk - 1) / a->chunk : 1;
    a->positions_first = conv_order(s) == CONV_POSITIONS_FIRST;
    a->counts_padding = conv_counts_padding(s);
    if (a->chunks > 1) a->part = lower_scratch(w, (size_t)(a->chunks * size) * sizeof(float));
    if (a->counts_padding && s->groups == 1) pad_input(w, a);
    dev_tiling t = dev_conv_weights_tiling(a);
    lower_add(w, (dev_kernel)t.kernel, t.items, a, sizeof *a);
    if (a->chunks > 1) LOWER(w, conv_weights_add, size, *a);
}

/* The gradients of kernel and bias; a has what the kernel saw and its gradient, dy is the node's. */
static void conv_weights(lowering *w, const plan_node *n, conv_args *a, dev_addr dy)
{
    int64_t oc = n->out[0].shape[3];

    if (lower_wants(n, 1)) {
        a->dw = lower_at(w, n->din_at[1]);
        a->accumulate = n->accumulate[1];
        if (!add_mma(w, MMA_WEIGHTS, a, false)) kernel_exactly(w, a);
    }
    if (lower_wants(n, 2))
        lower_col_sum(w, manta_array_count(&n->out[0]) / oc, oc, dy, lower_at(w, n->din_at[2]),
                      n->accumulate[2]);
}

static conv_args conv2d_args(lowering *w, const plan_node *n)
{
    return (conv_args){.s = op_conv2d_geometry(lower_attrs(w, n), &n->in[0], &n->in[1], &n->out[0]),
                       .x = lower_at(w, n->in_at[0]),
                       .w = lower_at(w, n->in_at[1])};
}

static manta_status conv2d_forward(lowering *w, const plan_node *n)
{
    conv_args a = conv2d_args(w, n);

    a.bias = lower_at(w, n->in_at[2]);
    a.relu = n->relu;
    a.y = lower_at(w, n->out_at[0]);
    w->rounded |= conv_forward(w, &a, n->round_out[0]) ? 1u : 0u;
    return MANTA_OK;
}

static manta_status conv2d_backward(lowering *w, const plan_node *n)
{
    dev_addr dy = lower_dout(w, n);
    conv_args a = conv2d_args(w, n);

    a.dy = dy;
    if (lower_wants(n, 0)) {
        a.dx = lower_at(w, n->din_at[0]);
        a.mask = lower_at(w, n->mask_at);
        a.accumulate = n->accumulate[0];
        w->rounded |= conv_data(w, &a, n->round_din[0]) ? 2u : 0u;
    }
    a = conv2d_args(w, n);
    a.dy = dy;
    conv_weights(w, n, &a, dy);
    return MANTA_OK;
}

/* ---- transposed convolution ---- */

static conv_args transpose_args(lowering *w, const plan_node *n)
{
    return (conv_args){.s = op_transpose_geometry(lower_attrs(w, n), &n->in[0], &n->in[1], &n->out[0]),
                       .w = lower_at(w, n->in_at[1])};
}

static manta_status transpose_forward(lowering *w, const plan_node *n)
{
    conv_args a = transpose_args(w, n);
    int64_t count = manta_array_count(&n->out[0]);

    a.dy = lower_at(w, n->in_at[0]);
    a.dx = lower_at(w, n->out_at[0]);
    conv_data(w, &a, false);
    if (n->in_at[2].kind != PLACE_NONE) {
        binary_args b = {.op = KERN_ADD,
                         .nb = a.s.c,
                         .a = a.dx,
                         .b = lower_at(w, n->in_at[2]),
                         .out = a.dx,
                         .relu = n->relu};
        LOWER(w, binary, count, b);
    } else if (n->relu) {
        act_forward_args r = {.act = KERN_RELU, .x = a.dx, .y = a.dx};
        LOWER(w, act_forward, count, r);
    }
    return MANTA_OK;
}

static manta_status transpose_backward(lowering *w, const plan_node *n)
{
    dev_addr dy = lower_dout(w, n);
    int64_t count = manta_array_count(&n->in[0]);
    conv_args a = transpose_args(w, n);

    if (lower_wants(n, 0)) {
        dev_addr dx = lower_at(w, n->din_at[0]);
        a.x = dy;
        a.y = n->accumulate[0] ? lower_scratch(w, (size_t)count * sizeof(float)) : dx;
        conv_forward(w, &a, false);
        if (n->accumulate[0]) lower_axpby(w, count, 1, a.y, 1, dx);
    }
    a = transpose_args(w, n);
    a.x = dy;
    a.dy = lower_at(w, n->in_at[0]);
    conv_weights(w, n, &a, dy);
    return MANTA_OK;
}

static const lower_row rows[] = {{&op_dense, dense_forward, dense_backward, NULL},
                                 {&op_conv2d, conv2d_forward, conv2d_backward, NULL},
                                 {&op_conv2d_transpose, transpose_forward, transpose_backward, NULL}};

const lower_row *lower_conv_row(const manta_op *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op == op) return &rows[i];
    }
    return NULL;
}
