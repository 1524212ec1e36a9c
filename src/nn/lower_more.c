/* lower_more.c - rows of operations beyond those of the zoo's models: what moves elements (op_shape.c,
 * op_image.c, op_embed.c), relu in full and normalisation (op_elem.c), op_scale.c, the global maximum
 * (op_pool.c) and layer norm (op_norm.c). */
#include "nn/lower.h"

#include <string.h>

#include "tensor/copy.h"

/* ---- views: permute, concatenate, padding, cropping ---- */

/* An array on the device, seen by strides. */
typedef struct dev_view {
    manta_array a; /* shape and strides; no data */
    dev_addr at;
} dev_view;

static dev_view view_of(const manta_array *a, dev_addr at)
{
    return (dev_view){.a = manta_array_of(MANTA_DTYPE_F32, a->ndim, a->shape, NULL), .at = at};
}

/* Indices start .. start + n - 1 along an axis. */
static dev_view slice_of(dev_view v, int axis, int64_t start, int64_t n)
{
    v.at += (dev_addr)(start * v.a.strides[axis]) * sizeof(float);
    v.a.shape[axis] = n;
    return v;
}

/* Rows [top, top + h) and columns [left, left + w) of maps. */
static dev_view window_of(dev_view v, int64_t top, int64_t h, int64_t left, int64_t w)
{
    return slice_of(slice_of(v, 1, top, h), 2, left, w);
}

/* copy_strided() */
static void copy_view(lowering *w, const dev_view *to, const dev_view *from, bool accumulate)
{
    copy_args a = {.ndim = to->a.ndim, .from = from->at, .to = to->at, .accumulate = accumulate};

    for (int i = 0; i < a.ndim; i++) {
        a.shape[i] = to->a.shape[i];
        a.from_step[i] = from->a.strides[i];
        a.to_step[i] = to->a.strides[i];
    }
    LOWER(w, copy, manta_array_count(&to->a), a);
}

static void fill_zero(lowering *w, int64_t n, dev_addr to)
{
    fill_args a = {.value = 0, .to = to};

    LOWER(w, fill, n, a);
}

static manta_status permute_forward(lowering *w, const plan_node *n)
{
    const op_permute_attrs *t = lower_attrs(w, n);
    dev_view x = view_of(&n->in[0], lower_at(w, n->in_at[0])),
             y = view_of(&n->out[0], lower_at(w, n->out_at[0]));

    x.a = copy_permuted(&x.a, t->axes);
    copy_view(w, &y, &x, false);
    return MANTA_OK;
}

static manta_status permute_backward(lowering *w, const plan_node *n)
{
    const op_permute_attrs *t = lower_attrs(w, n);
    dev_view dx = view_of(&n->in[0], lower_at(w, n->din_at[0])),
             dy = view_of(&n->out[0], lower_at(w, n->dout_at[0]));

    dx.a = copy_permuted(&dx.a, t->axes);
    if (lower_wants(n, 0)) copy_view(w, &dx, &dy, n->accumulate[0]);
    return MANTA_OK;
}

static manta_status concat_forward(lowering *w, const plan_node *n)
{
    int axis = ((const op_concat_attrs *)lower_attrs(w, n))->axis, inputs = w->m->nodes[n->index].n_in;
    dev_view y = view_of(&n->out[0], lower_at(w, n->out_at[0]));
    int64_t at = 0;

    for (int i = 0; i < inputs; at += n->in[i++].shape[axis]) {
        dev_view x = view_of(&n->in[i], lower_at(w, n->in_at[i])),
                 part = slice_of(y, axis, at, x.a.shape[axis]);
        copy_view(w, &part, &x, false);
    }
    return MANTA_OK;
}

static manta_status concat_backward(lowering *w, const plan_node *n)
{
    int axis = ((const op_concat_attrs *)lower_attrs(w, n))->axis, inputs = w->m->nodes[n->index].n_in;
    dev_view dy = view_of(&n->out[0], lower_at(w, n->dout_at[0]));
    int64_t at = 0;

    for (int i = 0; i < inputs; at += n->in[i++].shape[axis]) {
        dev_view dx = view_of(&n->in[i], lower_at(w, n->din_at[i])),
                 part = slice_of(dy, axis, at, dx.a.shape[axis]);
        if (lower_wants(n, i)) copy_view(w, &dx, &part, n->accumulate[i]);
    }
    return MANTA_OK;
}

/* What of the padded array at `whole` is not padding. */
static dev_view pad_inside(const lowering *w, const plan_node *n, dev_addr whole)
{
    const op_pad_attrs *t = lower_attrs(w, n);

    return window_of(view_of(&n->out[0], whole), t->top, n->in[0].shape[1], t->left, n->in[0].shape[2]);
}

static manta_status pad_forward(lowering *w, const plan_node *n)
{
    dev_addr y = lower_at(w, n->out_at[0]);
    dev_view x = view_of(&n->in[0], lower_at(w, n->in_at[0])), to = pad_inside(w, n, y);

    fill_zero(w, manta_array_count(&n->out[0]), y);
    copy_view(w, &to, &x, false);
    return MANTA_OK;
}

static manta_status pad_backward(lowering *w, const plan_node *n)
{
    dev_view dx = view_of(&n->in[0], lower_at(w, n->din_at[0])),
             from = pad_inside(w, n, lower_at(w, n->dout_at[0]));

    if (lower_wants(n, 0)) copy_view(w, &dx, &from, n->accumulate[0]);
    return MANTA_OK;
}

/* What of the array at `whole` cropping leaves. */
static dev_view crop_inside(const lowering *w, const plan_node *n, dev_addr whole)
{
    const op_pad_attrs *t = lower_attrs(w, n);

    return window_of(view_of(&n->in[0], whole), t->top, n->out[0].shape[1], t->left, n->out[0].shape[2]);
}

static manta_status crop_forward(lowering *w, const plan_node *n)
{
    dev_view y = view_of(&n->out[0], lower_at(w, n->out_at[0])),
             from = crop_inside(w, n, lower_at(w, n->in_at[0]));

    copy_view(w, &y, &from, false);
    return MANTA_OK;
}

static manta_status crop_backward(lowering *w, const plan_node *n)
{
    dev_addr dx = lower_at(w, n->din_at[0]);
    dev_view dy = view_of(&n->out[0], lower_at(w, n->dout_at[0])), to = crop_inside(w, n, dx);

    if (!lower_wants(n, 0)) return MANTA_OK;
    if (!n->accumulate[0]) fill_zero(w, manta_array_count(&n->in[0]), dx);
    copy_view(w, &to, &dy, n->accumulate[0]);
    return MANTA_OK;
}

/* ---- enlarging ---- */

static upsample_args upsample_of(const lowering *w, const plan_node *n)
{
    const op_upsample_attrs *t = lower_attrs(w, n);
    const int64_t *in = n->in[0].shape;

    return (upsample_args){
        .h = in[1], .w = in[2], .c = in[3], .sh = t->sh, .sw = t->sw, .bilinear = t->bilinear};
}

static manta_status upsample_forward(lowering *w, const plan_node *n)
{
    upsample_args a = upsample_of(w, n);

    a.x = lower_at(w, n->in_at[0]);
    a.y = lower_at(w, n->out_at[0]);
    LOWER(w, upsample_forward, manta_array_count(&n->out[0]), a);
    return MANTA_OK;
}

static manta_status upsample_backward(lowering *w, const plan_node *n)
{
    upsample_args a = upsample_of(w, n);

    a.dy = lower_at(w, n->dout_at[0]);
    a.dx = lower_at(w, n->din_at[0]);
    a.accumulate = n->accumulate[0];
    if (lower_wants(n, 0)) LOWER(w, upsample_back, manta_array_count(&n->in[0]), a);
    return MANTA_OK;
}

/* ---- rows of a table ---- */

static const char *embed_lacks(const manta_model *m, const graph_node *g)
{
    return m->values[g->in[0]].input >= 0 ? NULL : "by indices that the model computes";
}

static table_args table_of(const lowering *w, const plan_node *n)
{
    return (table_args){.n = manta_array_count(&n->in[0]),
                        .c = n->in[1].shape[1],
                        .rows = n->in[1].shape[0],
                        .dtype = (int)n->in[0].dtype,
                        .index = lower_at(w, n->in_at[0])};
}

static manta_status embed_forward(lowering *w, const plan_node *n)
{
    table_args a = table_of(w, n);

    a.table = lower_at(w, n->in_at[1]);
    a.y = lower_at(w, n->out_at[0]);
    LOWER(w, gather, a.n * a.c, a);
    return MANTA_OK;
}

static manta_status embed_backward(lowering *w, const plan_node *n)
{
    table_args a = table_of(w, n);

    if (!lower_wants(n, 1)) return MANTA_OK;
    a.dy = lower_at(w, n->dout_at[0]);
    a.dtable = lower_at(w, n->din_at[1]);
    a.links = lower_scratch(w, (size_t)(2 * a.n) * sizeof(int64_t));
    if (!n->accumulate[1]) fill_zero(w, a.rows * a.c, a.dtable);
    LOWER(w, scatter_links, a.n, a);
    LOWER(w, scatter_add, a.n * a.c, a);
    return MANTA_OK;
}

manta_status lower_check_input(const manta_model *m, int i, const manta_array *x, int64_t first)
{
    int64_t n = manta_array_count(x), index;

    for (int node = 0; node < m->n_nodes; node++) {
        const graph_node *g = &m->nodes[node];
        if (g->op != &op_embedding || m->values[g->in[0]].input != i) continue;
        for (int64_t k = 0; k < n; k++) {
            manta_status st = op_embedding_index(x, k, m->values[g->in[1]].a.shape[0], first, &index);
            if (!st) continue;
            return manta_fail(st, "layer '%s': %s", g->layer >= 0 ? m->layers[g->layer]->name : g->op->name,
                              manta_error_text());
        }
    }
    return MANTA_OK;
}

/* ---- relu in full ---- */

static relu_args relu_of(const lowering *w, const plan_node *n)
{
    const op_relu_attrs *t = lower_attrs(w, n);

    return (relu_args){.max_value = t->max_value,
                       .negative_slope = t->negative_slope,
                       .threshold = t->threshold,
                       .x = lower_at(w, n->in_at[0])};
}

static manta_status relu_forward(lowering *w, const plan_node *n)
{
    relu_args a = relu_of(w, n);

    a.y = lower_at(w, n->out_at[0]);
    LOWER(w, relu_forward, manta_array_count(&n->in[0]), a);
    return MANTA_OK;
}

static manta_status relu_backward(lowering *w, const plan_node *n)
{
    relu_args a = relu_of(w, n);

    a.dy = lower_at(w, n->dout_at[0]);
    a.dx = lower_at(w, n->din_at[0]);
    a.accumulate = n->accumulate[0];
    if (lower_wants(n, 0)) LOWER(w, relu_back, manta_array_count(&n->out[0]), a);
    return MANTA_OK;
}

/* ---- normalisation by given numbers ---- */

/* Some channels at a time: their numbers travel with the launch. */
static void add_normalize(lowering *w, const plan_node *n, normalize_args a, bool backward)
{
    const op_normalize_attrs *t = lower_attrs(w, n);
    int64_t rows = manta_array_count(&n->in[0]) / t->n;

    a.c = t->n;
    a.invert = t->invert;
    for (; a.first < t->n; a.first += DEV_NORMALIZE) {
        a.n = t->n - a.first < DEV_NORMALIZE ? t->n - a.first : DEV_NORMALIZE;
        memcpy(a.mean, t->mean + a.first, (size_t)a.n * sizeof *a.mean);
        memcpy(a.variance, t->variance + a.first, (size_t)a.n * sizeof *a.variance);
        lower_add(w, backward ? DEV_normalize_back : DEV_normalize_forward, rows * a.n, &a, sizeof a);
    }
}

static manta_status normalize_forward(lowering *w, const plan_node *n)
{
    add_normalize(w, n, (normalize_args){.x = lower_at(w, n->in_at[0]), .y = lower_at(w, n->out_at[0])},
                  false);
    return MANTA_OK;
}

static manta_status normalize_backward(lowering *w, const plan_node *n)
{
    normalize_args a = {
        .dy = lower_at(w, n->dout_at[0]), .dx = lower_at(w, n->din_at[0]), .accumulate = n->accumulate[0]};

    if (lower_wants(n, 0)) add_normalize(w, n, a, true);
    return MANTA_OK;
}

/* ---- scale ---- */

static void add_product(lowering *w, int64_t n, dev_addr a, int64_t nb, dev_addr b, dev_addr out)
{
    binary_args p = {.op = KERN_MUL, .nb = nb, .a = a, .b = b, .out = out};

    LOWER(w, binary, n, p);
}

static int64_t channels_of(const manta_array *x)
{
    return x->shape[x->ndim - 1];
}

static manta_status scale_forward(lowering *w, const plan_node *n)
{
    add_product(w, manta_array_count(&n->in[0]), lower_at(w, n->in_at[0]), channels_of(&n->in[0]),
                lower_at(w, n->in_at[1]), lower_at(w, n->out_at[0]));
    return MANTA_OK;
}

static manta_status scale_backward(lowering *w, const plan_node *n)
{
    int64_t count = manta_array_count(&n->out[0]), channels = channels_of(&n->out[0]);
    dev_addr dy = lower_at(w, n->dout_at[0]), dx = lower_at(w, n->din_at[0]);
    dev_addr products = lower_scratch(w, (size_t)count * sizeof(float));

    if (lower_wants(n, 1)) {
        add_product(w, count, dy, count, lower_at(w, n->in_at[0]), products);
        lower_col_sum(w, count / channels, channels, products, lower_at(w, n->din_at[1]), n->accumulate[1]);
    }
    if (lower_wants(n, 0)) {
        add_product(w, count, dy, channels, lower_at(w, n->in_at[1]), n->accumulate[0] ? products : dx);
        if (n->accumulate[0]) lower_axpby(w, count, 1, products, 1, dx);
    }
    return MANTA_OK;
}

/* ---- the global maximum ---- */

static global_max_args global_max_of(const lowering *w, const plan_node *n)
{
    const int64_t *in = n->in[0].shape;

    return (global_max_args){
        .places = in[1] * in[2], .c = in[3], .x = lower_at(w, n->in_at[0]), .y = lower_at(w, n->out_at[0])};
}

static manta_status global_max_forward(lowering *w, const plan_node *n)
{
    global_max_args a = global_max_of(w, n);

    LOWER(w, global_max_forward, manta_array_count(&n->out[0]), a);
    return MANTA_OK;
}

static manta_status global_max_backward(lowering *w, const plan_node *n)
{
    global_max_args a = global_max_of(w, n);

    a.dy = lower_at(w, n->dout_at[0]);
    a.dx = lower_at(w, n->din_at[0]);
    a.accumulate = n->accumulate[0];
    if (lower_wants(n, 0)) LOWER(w, global_max_back, manta_array_count(&n->out[0]), a);
    return MANTA_OK;
}

/* ---- layer norm ---- */

static ln_args ln_of(const lowering *w, const plan_node *n)
{
    const op_ln_attrs *t = lower_attrs(w, n);
    const manta_array *x = &n->in[0];
    ln_args a = {.c = 1, .x = lower_at(w, n->in_at[0]), .eps = t->epsilon};

    for (int i = x->ndim - t->axes; i < x->ndim; i++) a.c *= x->shape[i];
    a.rows = a.c > 0 ? manta_array_count(x) / a.c : 0;
    a.chunk = lower_chunk_rows(a.rows);
    a.chunks = lower_chunks(a.rows);
    a.gamma = t->has_gamma ? lower_at(w, n->in_at[1]) : 0;
    a.beta = t->has_beta ? lower_at(w, n->in_at[1 + t->has_gamma]) : 0;
    a.mean = lower_at(w, n->saved_at);
    a.rstd = a.mean + (dev_addr)a.rows * sizeof(float);
    return a;
}

static manta_status ln_forward(lowering *w, const plan_node *n)
{
    ln_args a = ln_of(w, n);

    a.out = lower_at(w, n->out_at[0]);
    LOWER(w, ln_forward, a.rows, a);
    return MANTA_OK;
}

/* The two gradients share one flag on the processor, as those of batch norm do (lower_ops.c). */
static void ln_parameters(const lowering *w, const plan_node *n, ln_args *a)
{
    const op_ln_attrs *t = lower_attrs(w, n);
    int gamma = 1, beta = 1 + t->has_gamma;
    bool add_gamma = false, add_beta = false;

    if (t->has_gamma && (a->dgamma = lower_at(w, n->din_at[gamma]))) add_gamma = n->accumulate[gamma];
    if (t->has_beta && (a->dbeta = lower_at(w, n->din_at[beta]))) add_beta = n->accumulate[beta];
    if (!add_gamma && !add_beta) return; /* DEV_WRITE */
    a->keep_gamma = add_gamma ? DEV_ADD : DEV_ADD_TO_ZERO;
    a->keep_beta = add_beta ? DEV_ADD : DEV_ADD_TO_ZERO;
}

static manta_status ln_backward(lowering *w, const plan_node *n)
{
    ln_args a = ln_of(w, n);

    a.dy = lower_at(w, n->dout_at[0]);
    a.dx = lower_at(w, n->din_at[0]);
    a.accumulate_dx = n->accumulate[0];
    ln_parameters(w, n, &a);
    if (lower_wants(n, 0)) LOWER(w, ln_dx, a.rows, a);
    if (!a.dgamma && !a.dbeta) return MANTA_OK;
    a.part = lower_scratch(w, (size_t)(2 * a.chunks * a.c) * sizeof(double));
    LOWER(w, ln_sums_part, a.chunks * a.c, a);
    LOWER(w, ln_sums_end, a.c, a);
    return MANTA_OK;
}

/* ---- the table ---- */

static const lower_row rows[] = {{&op_permute, permute_forward, permute_backward, NULL},
                                 {&op_concatenate, concat_forward, concat_backward, NULL},
                                 {&op_zero_pad, pad_forward, pad_backward, NULL},
                                 {&op_crop, crop_forward, crop_backward, NULL},
                                 {&op_upsample, upsample_forward, upsample_backward, NULL},
                                 {&op_embedding, embed_forward, embed_backward, embed_lacks},
                                 {&op_relu, relu_forward, relu_backward, NULL},
                                 {&op_normalize, normalize_forward, normalize_backward, NULL},
                                 {&op_scale, scale_forward, scale_backward, NULL},
                                 {&op_global_max_pool, global_max_forward, global_max_backward, NULL},
                                 {&op_layer_norm, ln_forward, ln_backward, NULL}};

const lower_row *lower_more_row(const manta_op *op)
{
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].op == op) return &rows[i];
    }
    return lower_binary_row(op);
}
