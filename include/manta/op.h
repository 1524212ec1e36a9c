/* manta/op.h - operations: the nodes a model's graph is made of.
 *
 * An operation is a constant table: what shapes it makes, what memory it
 * needs, how it runs forward and backward. The built-in ones (matrix product,
 * convolution, pooling, ...) and a program's own use the same table; layers
 * expand into operations (manta/layer.h).
 *
 * Forward and backward read state and never write it. A weight is an input
 * like any other; its gradient is *added up over the samples of the call*,
 * never averaged. An operation that renews a non-trainable variable (batch
 * norm's moving statistics) proposes the new value in `proposed`; the step
 * averages the proposals of all shards and commits the result. Outside of
 * training an output row depends on its own input row alone: predictions of a
 * large batch are computed in parts.
 *
 * An operation must be a function of its call alone: no clock, no global
 * state, random numbers only through manta_op_random(), which is keyed by
 * (seed, step, call, position in the global batch). Then a step can be done
 * again by another process and gives the same bits. */
#ifndef MANTA_OP_H
#define MANTA_OP_H

#include <manta/array.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MANTA_OP_MAX_IN  8
#define MANTA_OP_MAX_OUT 4

typedef struct manta_op manta_op;
typedef struct manta_op_inner manta_op_inner;

/* Build time: shapes are known except the batch, which stands as -1 in
 * dimension 0 of activations. */
typedef struct manta_op_shape {
    const void *attrs;
    int n_in;
    const manta_array *in; /* dtype and shape; no data */
    int n_out; /* 1 unless the operation sets it */
    manta_array out[MANTA_OP_MAX_OUT]; /* dtype f32 and in[0]'s shape unless set */
} manta_op_shape;

/* Plan time: the batch is known too. */
typedef struct manta_op_plan {
    const void *attrs;
    bool training;
    int threads;
    const manta_op_inner *inner; /* what Manta's own operations need besides; NULL in a plan or call that a
                                    program makes itself, to test an operation of its own */
    int n_in, n_out;
    const manta_array *in, *out;
    bool view; /* set: out[0] is in[0]'s memory, nothing to run */
    size_t saved; /* set: bytes kept from forward to backward */
    size_t work; /* set: bytes of scratch during forward or backward */
    double flops; /* set: floating-point operations of forward, for --profile */
    double backward_flops; /* set: of backward; 0 means twice forward */
} manta_op_plan;

/* One call. All arrays are row-major. */
typedef struct manta_op_call {
    const void *attrs;
    bool training;
    int n_in, n_out;
    const manta_array *in;
    const manta_array *out; /* forward writes; backward may read those it declared */
    const manta_array *dout; /* backward; data NULL when nothing depends on that output */
    const manta_array *din; /* backward; data NULL when that gradient is not wanted */
    const bool *accumulate; /* backward: din[i] is added to instead of written */
    float *const *proposed; /* training forward of an operation with MANTA_OP_PROPOSES: proposed[j] for the
                                     j-th non-trainable variable among in, NULL when it is frozen; must be
                                     written whole, element by element (it may be the variable's own memory) */
    void *saved, *work;
    uint64_t seed; /* of the run */
    int64_t step; /* of the run */
    int64_t first; /* position of the call's first sample in the global batch */
    uint32_t call; /* which node of the graph: the random stream */
    const manta_op_inner *inner; /* as in the plan */
} manta_op_call;

/* What an operation says of itself, besides what its backward reads. Bits 16 to
 * 19, 21 and 22 are Manta's own. */
enum {
    MANTA_OP_PROPOSES = 1 << 20 /* training forward writes `proposed`; without it non-trainable variables are
                                     constants. Runs as in inference when its layer is frozen, as Keras's */
};
/* Backward reads in[i], out[i]. */
#define MANTA_OP_READS_INPUT(i)  (1u << (i))
#define MANTA_OP_READS_OUTPUT(i) (256u << (i))

struct manta_op {
    const char *name;
    size_t attrs_size; /* bytes of the attributes a node of this kind keeps */
    unsigned flags; /* MANTA_OP_* */
    manta_status (*shape)(manta_op_shape *s);
    manta_status (*plan)(manta_op_plan *p); /* optional */
    manta_status (*forward)(const manta_op_call *c);
    manta_status (*backward)(const manta_op_call *c); /* optional: no gradient passes */
};

/* A built-in operation without attributes, for layers of a program's own:
 * "dense" (x, kernel [, bias]), "add", "subtract", "multiply", "softmax",
 * "embedding". In the two-value ones a weight has 1 in place of the batch;
 * activations go by manta_layer_activate(). NULL when there is none of that name. */
MANTA_API const manta_op *manta_op_find(const char *name);

/* Runs fn(ctx, i) for i in [0, n) on the threads of the run; of a call that a
 * program makes itself, one after the other. */
MANTA_API void manta_op_parallel(const manta_op_call *c, int64_t n, void (*fn)(void *ctx, int64_t i),
                                 void *ctx);

/* Fills v with uniform numbers in [0, 1): element j belongs to `position` (of
 * the sample in the global batch: c->first + row) and index j within it. */
MANTA_API void manta_op_random(const manta_op_call *c, int64_t position, int64_t n, float *v);

#ifdef __cplusplus
}
#endif
#endif
