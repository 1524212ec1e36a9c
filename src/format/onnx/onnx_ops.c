/* onnx_ops.c - our operations in ONNX's words (opset 17). */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "format/onnx/onnx.h"
#include "nn/ops.h"

typedef manta_status convert(onnx_export *x, const graph_node *n);

static const manta_array *shape_of(const onnx_export *x, int v)
{
    return &x->m->values[v].a;
}

/* Sets the output in the form the input was taken in. */
static void set_like(onnx_export *x, const graph_node *n, bool first, const char *name)
{
    if (first) {
        onnx_set_first(x, n->out[0], name);
    } else {
        onnx_set_last(x, n->out[0], name);
    }
}

/* The node's input 0 in whichever form there is. */
static const char *either_operand(onnx_export *x, const graph_node *n, bool *first)
{
    *first = onnx_prefers_first(x, n->in[0]);
    return *first ? onnx_first(x, n->in[0]) : onnx_last(x, n->in[0]);
}

/* ---- with weights ---------------------------------------------------------------------- */

static manta_status add_dense(onnx_export *x, const graph_node *n)
{
    const char *in[] = {onnx_last(x, n->in[0]), onnx_last(x, n->in[1]),
                        n->n_in > 2 ? onnx_last(x, n->in[2]) : ""};
    const char *out;

    if (shape_of(x, n->in[0])->ndim == 2 && n->n_in > 2) {
        onnx_begin(x, "Gemm", 3, in);
        out = onnx_end(x);
    } else {
        out = onnx_binary(x, "MatMul", in[0], in[1]);
        if (n->n_in > 2) out = onnx_binary(x, "Add", out, in[2]);
    }
    onnx_set_last(x, n->out[0], out);
    return MANTA_OK;
}

/* A kernel (kh, kw, a, b) as (b, a, kh, kw) among the constants. */
static manta_status add_kernel(onnx_export *x, int v, int64_t a, int64_t b, const char **out)
{
    const graph_variable *g = &x->m->variables[x->m->values[v].variable];
    int64_t taps = g->shape[0] * g->shape[1];
    float *from = NULL, *to = NULL;
    void *memory = NULL;
    manta_status st;

    if ((st = onnx_weight(x, v, &from))) goto out;
    if ((st = mem_try_array(taps * a * b + 1, sizeof *to, "a kernel", &memory))) goto out;
    to = memory;
    for (int64_t t = 0; t < taps; t++) {
        for (int64_t i = 0; i < a; i++) {
            for (int64_t o = 0; o < b; o++) to[(o * a + i) * taps + t] = from[(t * a + i) * b + o];
        }
    }
    st = onnx_floats(x, g->name, 4, (int64_t[]){b, a, g->shape[0], g->shape[1]}, to, out);
out:
    mem_try_free(from);
    mem_try_free(to);
    return st;
}

static manta_status need_variable(const onnx_export *x, int v, const char *what)
{
    if (x->m->values[v].variable >= 0) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "%s: %s is computed, and ONNX export wants a weight there",
                      x->scope ? x->scope : "a node", what);
}

static manta_status add_conv(onnx_export *x, const graph_node *n)
{
    const op_conv_attrs *a = n->attrs;
    const int64_t *w = shape_of(x, n->in[1])->shape;
    int64_t in = shape_of(x, n->in[0])->shape[3] / a->groups, out = shape_of(x, n->out[0])->shape[3];
    const char *args[3] = {onnx_first(x, n->in[0])};

    TRY(need_variable(x, n->in[1], "a kernel"));
    TRY(add_kernel(x, n->in[1], in, out, &args[1]));
    if (n->n_in > 2) args[2] = onnx_last(x, n->in[2]);
    onnx_begin(x, "Conv", n->n_in, args);
    onnx_ints(x, "kernel_shape", 2, w);
    onnx_ints(x, "strides", 2, (int64_t[]){a->sh, a->sw});
    onnx_ints(x, "dilations", 2, (int64_t[]){a->dh, a->dw});
    onnx_ints(x, "pads", 4, (int64_t[]){a->top, a->left, a->bottom, a->right});
    onnx_int(x, "group", a->groups);
    onnx_set_first(x, n->out[0], onnx_end(x));
    return MANTA_OK;
}

/* Of what a transposed convolution makes of n elements, [before, before + out)
 * is wanted: the rest is cut at the end, or the output is lengthened there. */
static manta_status transposed_ends(const onnx_export *x, int64_t n, int64_t stride, int64_t reach,
                                    int64_t dilation, int64_t before, int64_t out, int64_t *cut,
                                    int64_t *more)
{
    int64_t whole = stride * (n - 1) + reach, left = whole - before - out,
            most = stride > dilation ? stride : dilation;

    *cut = left > 0 ? left : 0;
    *more = left < 0 ? -left : 0;
    if (before >= 0 && *more < most) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "%s: its output padding is one that ONNX does not allow",
                      x->scope ? x->scope : "a node");
}

static manta_status add_conv_transpose(onnx_export *x, const graph_node *n)
{
    const op_conv_transpose_attrs *a = n->attrs;
    const int64_t *in = shape_of(x, n->in[0])->shape, *w = shape_of(x, n->in[1])->shape;
    int64_t bottom, right, more_h, more_w;
    const char *args[3] = {onnx_first(x, n->in[0])};

    TRY(need_variable(x, n->in[1], "a kernel"));
    TRY(transposed_ends(x, in[1], a->sh, (w[0] - 1) * a->dh + 1, a->dh, a->top, a->oh, &bottom, &more_h));
    TRY(transposed_ends(x, in[2], a->sw, (w[1] - 1) * a->dw + 1, a->dw, a->left, a->ow, &right, &more_w));
    TRY(add_kernel(x, n->in[1], w[2], w[3], &args[1]));
    if (n->n_in > 2) args[2] = onnx_last(x, n->in[2]);
    onnx_begin(x, "ConvTranspose", n->n_in, args);
    onnx_ints(x, "kernel_shape", 2, w);
    onnx_ints(x, "strides", 2, (int64_t[]){a->sh, a->sw});
    onnx_ints(x, "dilations", 2, (int64_t[]){a->dh, a->dw});
    onnx_ints(x, "pads", 4, (int64_t[]){a->top, a->left, bottom, right});
    onnx_ints(x, "output_padding", 2, (int64_t[]){more_h, more_w});
    onnx_set_first(x, n->out[0], onnx_end(x));
    return MANTA_OK;
}

/* Indices of a type that Gather does not take are cast. */
static manta_status add_embedding(onnx_export *x, const graph_node *n)
{
    manta_dtype t = shape_of(x, n->in[0])->dtype;
    const char *index = onnx_last(x, n->in[0]);

    if (t != MANTA_DTYPE_I32 && t != MANTA_DTYPE_I64) {
        onnx_begin(x, "Cast", 1, &index);
        onnx_int(x, "to", ONNX_I64);
        index = onnx_end(x);
    }
    onnx_set_last(x, n->out[0], onnx_binary(x, "Gather", onnx_last(x, n->in[1]), index));
    return MANTA_OK;
}

/* ---- normalisation ---------------------------------------------------------------------- */

/* n times v as a constant of that shape. */
static manta_status add_filled(onnx_export *x, int ndim, const int64_t *shape, float v, const char **out)
{
    int64_t n = 1;
    void *memory = NULL;

    for (int i = 0; i < ndim; i++) n *= shape[i];
    TRY(mem_try_array(n ? n : 1, sizeof(float), "a constant", &memory));
    for (int64_t i = 0; i < n; i++) ((float *)memory)[i] = v;
    manta_status st = onnx_floats(x, v != 0 ? "constant_ones" : "constant_zeros", ndim, shape, memory, out);
    mem_try_free(memory);
    return st;
}

/* x, gamma, beta, mean and variance of a batch norm, gamma and beta made up where they are missing. */
static manta_status bn_inputs(onnx_export *x, const graph_node *n, const char *in[5], int where[5])
{
    const op_bn_attrs *a = n->attrs;
    const manta_array *s = shape_of(x, n->in[0]);
    const int64_t *channels = &s->shape[s->ndim - 1];
    int k = 1;

    where[1] = a->has_gamma ? n->in[k++] : -1;
    where[2] = a->has_beta ? n->in[k++] : -1;
    where[3] = n->in[k++];
    where[4] = n->in[k];
    for (int i = 1; i < 5; i++) {
        if (where[i] >= 0) {
            in[i] = onnx_last(x, where[i]);
        } else {
            TRY(add_filled(x, 1, channels, i == 1 ? 1 : 0, &in[i]));
        }
    }
    return MANTA_OK;
}

/* Channels are ONNX's axis 1: where they are ours too (two dimensions), or can
 * be put there (four), it is a BatchNormalization; else its arithmetic. */
static manta_status add_batch_norm(onnx_export *x, const graph_node *n)
{
    const op_bn_attrs *a = n->attrs;
    int ndim = shape_of(x, n->in[0])->ndim, where[5];
    const char *in[5] = {0};

    TRY(bn_inputs(x, n, in, where));
    if (ndim == 2 || ndim == 4) {
        in[0] = ndim == 4 ? onnx_first(x, n->in[0]) : onnx_last(x, n->in[0]);
        onnx_begin(x, "BatchNormalization", 5, in);
        onnx_float(x, "epsilon", a->epsilon);
        set_like(x, n, ndim == 4, onnx_end(x));
        return MANTA_OK;
    }
    const char *y = onnx_binary(x, "Sub", onnx_last(x, n->in[0]), in[3]);
    const char *d = onnx_unary(x, "Sqrt", onnx_binary(x, "Add", in[4], onnx_number(x, a->epsilon)));
    y = onnx_binary(x, "Mul", onnx_binary(x, "Div", y, d), in[1]);
    onnx_set_last(x, n->out[0], onnx_binary(x, "Add", y, in[2]));
    return MANTA_OK;
}

static manta_status add_layer_norm(onnx_export *x, const graph_node *n)
{
    const op_ln_attrs *a = n->attrs;
    const manta_array *s = shape_of(x, n->in[0]);
    const int64_t *group = s->shape + s->ndim - a->axes;
    const char *in[3] = {onnx_last(x, n->in[0])};
    int k = 1;

    if (a->has_gamma) {
        in[1] = onnx_last(x, n->in[k++]);
    } else {
        TRY(add_filled(x, a->axes, group, 1, &in[1]));
    }
    if (a->has_beta) in[2] = onnx_last(x, n->in[k]);
    onnx_begin(x, "LayerNormalization", a->has_beta ? 3 : 2, in);
    onnx_int(x, "axis", -a->axes);
    onnx_float(x, "epsilon", a->epsilon);
    onnx_set_last(x, n->out[0], onnx_end(x));
    return MANTA_OK;
}

static const char *as_f32(onnx_export *x, const char *name, manta_dtype t)
{
    if (t == MANTA_DTYPE_F32) return name;
    onnx_begin(x, "Cast", 1, &name);
    onnx_int(x, "to", ONNX_F32);
    return onnx_end(x);
}

static manta_status add_affine(onnx_export *x, const graph_node *n)
{
    const op_affine_attrs *a = n->attrs;
    bool first;
    const char *y = either_operand(x, n, &first);

    y = as_f32(x, y, shape_of(x, n->in[0])->dtype);
    if (a->scale != 1) y = onnx_binary(x, "Mul", y, onnx_number(x, a->scale));
    if (a->offset != 0) y = onnx_binary(x, "Add", y, onnx_number(x, a->offset));
    set_like(x, n, first, y);
    return MANTA_OK;
}

static manta_status add_scale(onnx_export *x, const graph_node *n)
{
    onnx_set_last(x, n->out[0], onnx_binary(x, "Mul", onnx_last(x, n->in[0]), onnx_last(x, n->in[1])));
    return MANTA_OK;
}

static manta_status add_normalize(onnx_export *x, const graph_node *n)
{
    const op_normalize_attrs *a = n->attrs;
    const char *mean, *deviation, *y = as_f32(x, onnx_last(x, n->in[0]), shape_of(x, n->in[0])->dtype);
    void *memory = NULL;

    TRY(mem_try_array(a->n, sizeof(float), "a constant", &memory));
    float *d = memory;
    for (int64_t i = 0; i < a->n; i++) d[i] = fmaxf(sqrtf(a->variance[i]), 1e-7f);
    manta_status st = onnx_floats(x, "constant_deviation", 1, &a->n, d, &deviation);
    mem_try_free(memory);
    if (st) return st;
    TRY(onnx_floats(x, "constant_mean", 1, &a->n, a->mean, &mean));
    if (a->invert) {
        y = onnx_binary(x, "Add", onnx_binary(x, "Mul", y, deviation), mean);
    } else {
        y = onnx_binary(x, "Div", onnx_binary(x, "Sub", y, mean), deviation);
    }
    onnx_set_last(x, n->out[0], y);
    return MANTA_OK;
}

/* ---- element by element ------------------------------------------------------------------ */

/* Opset 17 has no Gelu yet. */
static const char *add_gelu(onnx_export *x, const char *v)
{
    const char *e = onnx_unary(x, "Erf", onnx_binary(x, "Mul", v, onnx_number(x, 0.70710678118654752f)));

    e = onnx_binary(x, "Mul", onnx_binary(x, "Add", e, onnx_number(x, 1)), onnx_number(x, 0.5f));
    return onnx_binary(x, "Mul", v, e);
}

static const char *gelu_tanh(onnx_export *x, const char *v)
{
    const char *cube = onnx_binary(x, "Mul", onnx_binary(x, "Mul", v, v), v);
    const char *t = onnx_binary(x, "Add", v, onnx_binary(x, "Mul", cube, onnx_number(x, 0.044715f)));

    t = onnx_unary(x, "Tanh", onnx_binary(x, "Mul", t, onnx_number(x, 0.79788456080286536f)));
    t = onnx_binary(x, "Mul", onnx_binary(x, "Add", t, onnx_number(x, 1)), onnx_number(x, 0.5f));
    return onnx_binary(x, "Mul", v, t);
}

static const char *with_alpha(onnx_export *x, const char *op, const char *v, float alpha)
{
    onnx_begin(x, op, 1, &v);
    onnx_float(x, "alpha", alpha);
    return onnx_end(x);
}

static manta_status add_activation(onnx_export *x, const graph_node *n)
{
    const op_act_attrs *a = n->attrs;
    bool first;
    const char *v = either_operand(x, n, &first), *y = v;

    switch (a->act) {
    case KERN_LINEAR: break;
    case KERN_RELU: y = onnx_unary(x, "Relu", v); break;
    case KERN_LEAKY_RELU: y = with_alpha(x, "LeakyRelu", v, a->alpha); break;
    case KERN_ELU: y = with_alpha(x, "Elu", v, a->alpha); break;
    case KERN_GELU: y = add_gelu(x, v); break;
    case KERN_GELU_TANH: y = gelu_tanh(x, v); break;
    case KERN_SILU: y = onnx_binary(x, "Mul", v, onnx_unary(x, "Sigmoid", v)); break;
    case KERN_SIGMOID: y = onnx_unary(x, "Sigmoid", v); break;
    case KERN_TANH: y = onnx_unary(x, "Tanh", v); break;
    case KERN_HARD_SIGMOID: y = with_alpha(x, "HardSigmoid", v, 1.0f / 6); break;
    case KERN_HARD_SILU: y = onnx_unary(x, "HardSwish", v); break;
    default:
        return manta_fail(MANTA_EUNSUPPORTED, "%s: its activation is one that ONNX export does not know",
                          x->scope);
    }
    set_like(x, n, first, y);
    return MANTA_OK;
}

/* Below the threshold slope * (v - threshold), at most max_value. */
static manta_status add_relu(onnx_export *x, const graph_node *n)
{
    const op_relu_attrs *a = n->attrs;
    bool first;
    const char *v = either_operand(x, n, &first), *y;

    if (a->threshold == 0) {
        y = a->negative_slope == 0 ? onnx_unary(x, "Relu", v)
                                   : with_alpha(x, "LeakyRelu", v, a->negative_slope);
    } else {
        const char *t = onnx_number(x, a->threshold);
        const char *in[] = {
            onnx_binary(x, "Less", v, t),
            onnx_binary(x, "Mul", onnx_binary(x, "Sub", v, t), onnx_number(x, a->negative_slope)), v};
        onnx_begin(x, "Where", 3, in);
        y = onnx_end(x);
    }
    if (isfinite(a->max_value)) y = onnx_binary(x, "Min", y, onnx_number(x, a->max_value));
    set_like(x, n, first, y);
    return MANTA_OK;
}

static manta_status add_softmax(onnx_export *x, const graph_node *n)
{
    bool first;
    const char *v = either_operand(x, n, &first);

    onnx_begin(x, "Softmax", 1, &v);
    onnx_int(x, "axis", first ? 1 : -1);
    set_like(x, n, first, onnx_end(x));
    return MANTA_OK;
}

/* (B, C) meets (B, H, W, C) as (B, 1, 1, C): ones come behind the batch. */
static const char *with_more_axes(onnx_export *x, int v, int ndim)
{
    const manta_array *a = shape_of(x, v);
    int64_t shape[MANTA_MAX_DIMS] = {a->shape[0] < 0 ? 0 : a->shape[0]};
    int lead = ndim - a->ndim;

    if (lead == 0) return onnx_last(x, v);
    for (int i = 1; i <= lead; i++) shape[i] = 1;
    for (int i = 1; i < a->ndim; i++) shape[lead + i] = a->shape[i];
    return onnx_binary(x, "Reshape", onnx_last(x, v), onnx_int_list(x, ndim, shape));
}

static manta_status add_binary(onnx_export *x, const graph_node *n)
{
    const char *op = n->op == &op_add ? "Add" : n->op == &op_subtract ? "Sub" : "Mul";
    const manta_array *a = shape_of(x, n->in[0]), *b = shape_of(x, n->in[1]);
    int ndim = shape_of(x, n->out[0])->ndim;
    bool first = ndim == 4 && a->ndim == 4 && b->ndim == 4 &&
                 (onnx_prefers_first(x, n->in[0]) || onnx_prefers_first(x, n->in[1]));

    if (first) {
        onnx_set_first(x, n->out[0], onnx_binary(x, op, onnx_first(x, n->in[0]), onnx_first(x, n->in[1])));
    } else {
        onnx_set_last(
            x, n->out[0],
            onnx_binary(x, op, with_more_axes(x, n->in[0], ndim), with_more_axes(x, n->in[1], ndim)));
    }
    return MANTA_OK;
}

/* ---- moving elements --------------------------------------------------------------------- */

/* The value itself: nothing happens in inference. */
static manta_status add_nothing(onnx_export *x, const graph_node *n)
{
    x->values[n->out[0]] = x->values[n->in[0]];
    if (!x->values[n->out[0]].last && !x->values[n->out[0]].first)
        onnx_set_last(x, n->out[0], onnx_last(x, n->in[0]));
    return MANTA_OK;
}

static manta_status add_reshape(onnx_export *x, const graph_node *n)
{
    const manta_array *to = shape_of(x, n->out[0]);
    int64_t shape[MANTA_MAX_DIMS];

    memcpy(shape, to->shape, sizeof shape);
    shape[0] = 0; /* as the input's */
    onnx_set_last(x, n->out[0],
                  onnx_binary(x, "Reshape", onnx_last(x, n->in[0]), onnx_int_list(x, to->ndim, shape)));
    return MANTA_OK;
}

static manta_status add_permute(onnx_export *x, const graph_node *n)
{
    const op_permute_attrs *a = n->attrs;
    const char *v = onnx_last(x, n->in[0]);
    int64_t axes[MANTA_MAX_DIMS];

    for (int i = 0; i < a->ndim; i++) axes[i] = a->axes[i];
    onnx_begin(x, "Transpose", 1, &v);
    onnx_ints(x, "perm", a->ndim, axes);
    onnx_set_last(x, n->out[0], onnx_end(x));
    return MANTA_OK;
}

static manta_status add_concatenate(onnx_export *x, const graph_node *n)
{
    static const int moved[] = {0, 2, 3, 1};
    const op_concat_attrs *a = n->attrs;
    bool first = shape_of(x, n->in[0])->ndim == 4;
    const char *in[MANTA_OP_MAX_IN];

    for (int i = 0; i < n->n_in; i++) first = first && onnx_prefers_first(x, n->in[i]);
    for (int i = 0; i < n->n_in; i++) in[i] = first ? onnx_first(x, n->in[i]) : onnx_last(x, n->in[i]);
    onnx_begin(x, "Concat", n->n_in, in);
    onnx_int(x, "axis", first ? moved[a->axis] : a->axis);
    set_like(x, n, first, onnx_end(x));
    return MANTA_OK;
}

static manta_status add_zero_pad(onnx_export *x, const graph_node *n)
{
    const op_pad_attrs *a = n->attrs;
    bool first;
    const char *v = either_operand(x, n, &first);
    int64_t pads[2][8] = {{0, a->top, a->left, 0, 0, a->bottom, a->right, 0},
                          {0, 0, a->top, a->left, 0, 0, a->bottom, a->right}};

    set_like(x, n, first, onnx_binary(x, "Pad", v, onnx_int_list(x, 8, pads[first])));
    return MANTA_OK;
}

static manta_status add_crop(onnx_export *x, const graph_node *n)
{
    const op_pad_attrs *a = n->attrs;
    const manta_array *s = shape_of(x, n->in[0]);
    bool first;
    const char *v = either_operand(x, n, &first);
    int64_t axes[2][2] = {{1, 2}, {2, 3}}, starts[] = {a->top, a->left};
    int64_t ends[] = {s->shape[1] - a->bottom, s->shape[2] - a->right};
    const char *in[] = {v, onnx_int_list(x, 2, starts), onnx_int_list(x, 2, ends),
                        onnx_int_list(x, 2, axes[first])};

    onnx_begin(x, "Slice", 4, in);
    set_like(x, n, first, onnx_end(x));
    return MANTA_OK;
}

static manta_status add_upsample(onnx_export *x, const graph_node *n)
{
    const op_upsample_attrs *a = n->attrs;
    const char *in[3] = {onnx_first(x, n->in[0]), "", NULL};

    TRY(onnx_floats(x, "constant_scales", 1, (int64_t[]){4}, (float[]){1, 1, (float)a->sh, (float)a->sw},
                    &in[2]));
    onnx_begin(x, "Resize", 3, in);
    onnx_text(x, "mode", a->bilinear ? "linear" : "nearest");
    onnx_text(x, "coordinate_transformation_mode", a->bilinear ? "half_pixel" : "asymmetric");
    if (!a->bilinear) onnx_text(x, "nearest_mode", "floor");
    onnx_set_first(x, n->out[0], onnx_end(x));
    return MANTA_OK;
}

/* ---- pooling ----------------------------------------------------------------------------- */

static manta_status add_pool(onnx_export *x, const graph_node *n)
{
    const op_pool_attrs *a = n->attrs;
    const char *v = onnx_first(x, n->in[0]);
    bool max = n->op == &op_max_pool;

    onnx_begin(x, max ? "MaxPool" : "AveragePool", 1, &v);
    onnx_ints(x, "kernel_shape", 2, (int64_t[]){a->kh, a->kw});
    onnx_ints(x, "strides", 2, (int64_t[]){a->sh, a->sw});
    onnx_ints(x, "pads", 4, (int64_t[]){a->top, a->left, a->bottom, a->right});
    if (!max) onnx_int(x, "count_include_pad", a->count_padding);
    onnx_set_first(x, n->out[0], onnx_end(x));
    return MANTA_OK;
}

static manta_status add_global_pool(onnx_export *x, const graph_node *n)
{
    const op_global_pool_attrs *a = n->attrs;
    bool first;
    const char *v = either_operand(x, n, &first);

    onnx_begin(x, n->op == &op_global_max_pool ? "ReduceMax" : "ReduceMean", 1, &v);
    onnx_ints(x, "axes", 2, first ? (int64_t[]){2, 3} : (int64_t[]){1, 2});
    onnx_int(x, "keepdims", a->keepdims);
    set_like(x, n, first && a->keepdims, onnx_end(x));
    return MANTA_OK;
}

/* ---- the table --------------------------------------------------------------------------- */

manta_status onnx_add_op(onnx_export *x, const graph_node *n)
{
    static const struct {
        const manta_op *op;
        convert *add;
    } table[] = {
        {&op_dense, add_dense},
        {&op_conv2d, add_conv},
        {&op_conv2d_transpose, add_conv_transpose},
        {&op_embedding, add_embedding},
        {&op_batch_norm, add_batch_norm},
        {&op_layer_norm, add_layer_norm},
        {&op_affine, add_affine},
        {&op_normalize, add_normalize},
        {&op_scale, add_scale},
        {&op_activation, add_activation},
        {&op_activation_of_input, add_activation},
        {&op_relu, add_relu},
        {&op_softmax, add_softmax},
        {&op_add, add_binary},
        {&op_subtract, add_binary},
        {&op_multiply, add_binary},
        {&op_dropout, add_nothing},
        {&op_reshape, add_reshape},
        {&op_permute, add_permute},
        {&op_concatenate, add_concatenate},
        {&op_zero_pad, add_zero_pad},
        {&op_crop, add_crop},
        {&op_upsample, add_upsample},
        {&op_max_pool, add_pool},
        {&op_avg_pool, add_pool},
        {&op_global_avg_pool, add_global_pool},
        {&op_global_max_pool, add_global_pool},
    };

    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (table[i].op == n->op) return table[i].add(x, n);
    }
    return manta_fail(MANTA_EUNSUPPORTED, "%s%soperation '%s' has no counterpart in ONNX export",
                      x->scope ? x->scope : "", x->scope ? ": " : "", n->op->name);
}
