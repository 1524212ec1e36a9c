/* nn/ops.h - the built-in operations and their attributes.
 *
 * Each is a table of manta/op.h; layers expand into them. Input 1 of an
 * operation with weights is the weight, input 2 the bias where there is one. */
#ifndef NN_OPS_H
#define NN_OPS_H

#include <manta/op.h>

#include "base/status.h"
#include "tensor/kernel.h"

/* ---- what the operations share (op.c) ---- */

/* What the planner has fused into a node, and what built-in operations compute
 * with. Of a plan `kernels` alone is set. */
struct manta_op_inner {
    bool relu; /* out[0] passes a relu; backward finds dout[0] masked already when relu_done */
    bool relu_done;
    bool round_out, round_din; /* out[0], din[0] are to be rounded to bfloat16 by operations that can */
    const float *mask; /* backward: din[0] is to be 0 where mask <= 0, or NULL */
    kern_sink sink; /* takes din[1] instead of memory, or NULL */
    void *sink_ctx;
    const struct op_meeting *meeting; /* where the shards of a step meet, or NULL */
    bool met; /* the call is made again because it had to wait */
    bool *waits; /* set: others are missing, call again */
    const kernels *kernels;
    struct pool *pool; /* NULL: the calling thread alone */
};

/* Flags of a manta_op that only built-in ones have. */
enum {
    OP_CAN_RELU = 1 << 16, /* a following relu may be fused */
    OP_CAN_MASK = 1 << 17, /* backward honours `mask` for din[0] */
    OP_CAN_SINK = 1 << 18, /* backward honours `sink` for din[1], after din[0] is done */
    OP_RELU_SELF = 1 << 19, /* with a fused relu, backward masks dout itself */
    OP_ROUNDS_OUT = 1 << 21, /* honours `round_out`; what others make is rounded afterwards */
    OP_ROUNDS_DIN = 1 << 22 /* honours `round_din` */
};

static inline const kernels *op_kernels(const manta_op_call *c)
{
    return c->inner->kernels;
}

/* NULL also of a call that a program has made itself. */
static inline pool *op_pool(const manta_op_call *c)
{
    return c->inner ? c->inner->pool : NULL;
}

static inline float *op_f32(const manta_array *a)
{
    return a->data;
}

/* `a` with row-major strides, which calls need not have filled in. */
static inline manta_array op_view(const manta_array *a)
{
    return manta_array_of(a->dtype, a->ndim, a->shape, a->data);
}

/* Whether gradient i is wanted: there is such an input and memory for it. */
static inline bool op_wants(const manta_op_call *c, int i)
{
    return i < c->n_in && c->din[i].data;
}

/* The gradient of output 0. Where a relu was fused and nobody masked it yet, it
 * is masked in place first: from here on that memory is the node's own. Reads
 * out[0] in that case. */
const float *op_dout(const manta_op_call *c);

/* What dimension 0 of an activation reads in messages: "(batch, 28, 28)". */
char *op_shape_text(const manta_array *a, char *buf, size_t size);

/* Each fails with a sentence: unless there are `least` to `most` inputs; unless
 * input i has elements of type float32; unless there is one input, float32 of
 * shape (batch, height, width, channels). */
manta_status op_expect_inputs(const manta_op_shape *s, int least, int most);
manta_status op_expect_f32(const manta_op_shape *s, int i, const char *what);
manta_status op_expect_map(const manta_op_shape *s);

/* Row-major strides for s->out[0]: shapes are set by dimension, then this. */
void op_set_out(manta_op_shape *s, manta_dtype t, int ndim, const int64_t *shape);

/* manta_op_random() from index `start` (a multiple of 4) of the position on. */
void op_random_range(const manta_op_call *c, int64_t position, int64_t start, int64_t n, float *v);

/* ---- the tables ---- */

/* (B, ..., in) x (in, out) [+ (out)] -> (B, ..., out) */
extern const manta_op op_dense;

typedef struct op_conv_attrs {
    int64_t sh, sw, dh, dw; /* stride, dilation */
    int64_t top, bottom, left, right; /* padding, already counted out */
    int64_t groups;
} op_conv_attrs;
/* (B, h, w, c), (kh, kw, c/groups, oc) [, (oc)] -> (B, oh, ow, oc). With groups == c the weight may also be
 * (kh, kw, c, mult), as Keras holds a depthwise kernel: the same memory, oc = c * mult. */
extern const manta_op op_conv2d;
/* The convolution whose backward-data this is, forward: kernel (kh, kw, oc, c), output size in attrs. */
typedef struct op_conv_transpose_attrs {
    int64_t sh, sw, dh, dw, top, left, oh, ow;
} op_conv_transpose_attrs;
extern const manta_op op_conv2d_transpose;
/* What the kernels are told: of a convolution, and of the one that leads from a transposed one's output back to its
 * input. */
conv_shape op_conv2d_geometry(const op_conv_attrs *a, const manta_array *x, const manta_array *w,
                              const manta_array *y);
conv_shape op_transpose_geometry(const op_conv_transpose_attrs *a, const manta_array *x, const manta_array *w,
                                 const manta_array *y);

typedef struct op_act_attrs {
    kern_act act;
    float alpha;
} op_act_attrs;
/* Backward reads what the operation made (linear, relu, leaky relu, elu, sigmoid, tanh); relu is recognised by
 * the planner: act == KERN_RELU. */
extern const manta_op op_activation;
/* Backward reads what the operation was given (gelu, silu, hard sigmoid and silu). */
extern const manta_op op_activation_of_input;
typedef struct op_relu_attrs { /* Keras's ReLU layer in full */
    float max_value, negative_slope, threshold; /* max_value INFINITY: none */
} op_relu_attrs;
extern const manta_op op_relu;
extern const manta_op op_softmax; /* over the last axis */
/* Two values; shapes equal, or of length 1 where they differ; the sample's dimensions are aligned from the last,
 * as Keras's merging layers do. */
extern const manta_op op_add, op_subtract, op_multiply;
/* How the axes of the output lead to the elements of an operand: 0 repeats. */
typedef struct op_strides {
    int64_t s[MANTA_MAX_DIMS];
} op_strides;
op_strides op_strides_of(const manta_array *operand, const manta_array *out);
/* Elements after which the operand repeats within the output as a whole, or 0 when it does not. */
int64_t op_period_of(const manta_array *operand, const manta_array *out);

typedef struct op_affine_attrs {
    float scale, offset;
} op_affine_attrs;
extern const manta_op op_affine; /* y = x * scale + offset; also converts other types to f32 */
typedef struct op_normalize_attrs { /* y = (x - mean) / max(sqrt(variance), 1e-7) over the last axis */
    int64_t n; /* channels, or 1: one pair for all */
    const float *mean, *variance; /* owned by the layer's options */
    bool invert; /* y = mean + x * max(sqrt(variance), 1e-7) */
} op_normalize_attrs;
extern const manta_op op_normalize;

/* (B, ..., C), (C) -> (B, ..., C): the product over the last axis. */
extern const manta_op op_scale;

typedef struct op_dropout_attrs {
    float rate;
    int ndim; /* of the input; 0: every element is drawn for itself */
    bool shared[MANTA_MAX_DIMS]; /* one draw for a whole axis; never for axis 0, the batch's */
} op_dropout_attrs;
extern const manta_op op_dropout; /* a view in inference */

typedef struct op_reshape_attrs {
    int ndim;
    int64_t shape[MANTA_MAX_DIMS]; /* with the batch as -1 first */
} op_reshape_attrs;
extern const manta_op op_reshape; /* a view */
typedef struct op_permute_attrs {
    int ndim;
    int axes[MANTA_MAX_DIMS]; /* of the whole array, axes[0] == 0 */
} op_permute_attrs;
extern const manta_op op_permute;
typedef struct op_concat_attrs {
    int axis;
} op_concat_attrs;
extern const manta_op op_concatenate; /* 2 to MANTA_OP_MAX_IN inputs */
typedef struct op_pad_attrs {
    int64_t top, bottom, left, right;
} op_pad_attrs;
extern const manta_op op_zero_pad;
extern const manta_op op_crop; /* takes away what op_zero_pad would add */
typedef struct op_upsample_attrs {
    int64_t sh, sw;
    bool bilinear;
} op_upsample_attrs;
extern const manta_op op_upsample;

typedef struct op_pool_attrs {
    int64_t kh, kw, sh, sw, top, bottom, left, right;
    bool count_padding;
} op_pool_attrs;
extern const manta_op op_max_pool, op_avg_pool;
typedef struct op_global_pool_attrs {
    bool keepdims;
} op_global_pool_attrs;
extern const manta_op op_global_avg_pool, op_global_max_pool;
/* What the kernels are told, from the shapes of the input and of the output; the window of a global one is the map. */
pool_shape op_pool_geometry(const op_pool_attrs *a, const int64_t *in, const int64_t *out);
pool_shape op_global_geometry(const int64_t *in);

typedef struct op_bn_attrs {
    float momentum, epsilon;
    bool unbiased, has_gamma, has_beta;
} op_bn_attrs;
/* x, [gamma], [beta], moving_mean, moving_variance. A frozen one is called with
 * training off, backward too: it then takes the moving statistics, as Keras. */
extern const manta_op op_batch_norm;
/* Where its inputs stand; gamma and beta -1 when there is none. */
typedef struct op_bn_inputs {
    int gamma, beta, mean, var;
} op_bn_inputs;
op_bn_inputs op_bn_where(const op_bn_attrs *a);
typedef struct op_ln_attrs {
    float epsilon;
    int axes; /* how many of the last axes are one group */
    bool has_gamma, has_beta;
} op_ln_attrs;
extern const manta_op op_layer_norm; /* x, [gamma], [beta] */

extern const manta_op op_embedding; /* integer (B, ...), table (rows, c) -> (B, ..., c) */
/* Index i of `x` into a table of so many rows. MANTA_EINVAL for what is none; the sentence counts samples from
 * `first`, the place of x's first one in the global batch. */
manta_status op_embedding_index(const manta_array *x, int64_t i, int64_t rows, int64_t first, int64_t *out);

/* ---- shards in lockstep ---- */

/* Where the shards of a step add numbers up in the middle of it. `call` and
 * `backward` say at which place, n how many numbers; `mine` are this shard's,
 * NULL when it has left them there before. True: `sums` has those of all shards,
 * added in shard order; false: some are missing. */
typedef struct op_meeting {
    bool (*meet)(void *ctx, uint32_t call, bool backward, int64_t n, const double *mine, double *sums);
    void *ctx;
} op_meeting;

/* The numbers that a node adds up, each way; 0 when its shards need not meet. */
int64_t op_meeting_size(const manta_op *op, int64_t channels);

#endif
