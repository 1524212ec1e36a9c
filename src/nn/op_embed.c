/* op_embed.c - rows of a table, by index.
 *
 * Indices come from data, so every call checks them before a kernel runs: one
 * outside the table ends the call with a sentence that names it and where it
 * stands. */
#include "nn/ops.h"

#include <math.h>
#include <string.h>

static manta_status embed_shape(manta_op_shape *s)
{
    const manta_array *x = s->in, *table = s->in + 1;
    int64_t out[MANTA_MAX_DIMS];
    char text[96];

    TRY(op_expect_inputs(s, 2, 2));
    if (x->dtype == MANTA_DTYPE_F16 || x->dtype == MANTA_DTYPE_BF16 || x->dtype == MANTA_DTYPE_BOOL) {
        return manta_fail(MANTA_EINVAL, "expected whole numbers as input, given %s",
                          manta_dtype_name(x->dtype));
    }
    if (table->ndim != 2 || x->ndim < 1 || x->ndim >= MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EINVAL, "expected an input of 1 to %d dimensions, given %s",
                          MANTA_MAX_DIMS - 1, op_shape_text(x, text, sizeof text));
    }
    memcpy(out, x->shape, sizeof out);
    out[x->ndim] = table->shape[1];
    op_set_out(s, MANTA_DTYPE_F32, x->ndim + 1, out);
    return MANTA_OK;
}

/* work: the indices as int64. */
static manta_status embed_plan(manta_op_plan *p)
{
    p->work = (size_t)manta_array_count(&p->in[0]) * sizeof(int64_t);
    return MANTA_OK;
}

/* Index i; -1 for what is no whole number, which then fails the check. */
static int64_t index_at(const manta_array *a, int64_t i)
{
    double v;

    switch (a->dtype) {
    case MANTA_DTYPE_I32: return ((const int32_t *)a->data)[i];
    case MANTA_DTYPE_I64: return ((const int64_t *)a->data)[i];
    case MANTA_DTYPE_U8: return ((const uint8_t *)a->data)[i];
    case MANTA_DTYPE_F64: v = ((const double *)a->data)[i]; break;
    default: v = (double)((const float *)a->data)[i]; break;
    }
    return v >= 0 && v < 0x1p53 && v == floor(v) ? (int64_t)v : -1;
}

manta_status op_embedding_index(const manta_array *x, int64_t i, int64_t rows, int64_t first, int64_t *out)
{
    int64_t index = index_at(x, i), per;

    *out = index;
    if (index >= 0 && index < rows) return MANTA_OK;
    per = manta_array_count(x) / x->shape[0];
    return manta_fail(MANTA_EINVAL,
                      "expected indices from 0 to %lld, given %.17g at place %lld of sample %lld",
                      (long long)rows - 1,
                      x->dtype == MANTA_DTYPE_F32   ? (double)((const float *)x->data)[i]
                      : x->dtype == MANTA_DTYPE_F64 ? ((const double *)x->data)[i]
                                                    : (double)index,
                      (long long)(i % per), (long long)(first + i / per));
}

static manta_status embed_indices(const manta_op_call *c)
{
    int64_t n = manta_array_count(&c->in[0]), *index = c->work;

    for (int64_t i = 0; i < n; i++) {
        TRY(op_embedding_index(&c->in[0], i, c->in[1].shape[0], c->first, &index[i]));
    }
    return MANTA_OK;
}

static manta_status embed_forward(const manta_op_call *c)
{
    TRY(embed_indices(c));
    op_kernels(c)->gather(op_pool(c), manta_array_count(&c->in[0]), c->in[1].shape[1], op_f32(&c->in[1]),
                          c->work, op_f32(&c->out[0]));
    return MANTA_OK;
}

static manta_status embed_backward(const manta_op_call *c)
{
    int64_t rows = c->in[1].shape[0], n = c->in[1].shape[1];

    if (!op_wants(c, 1)) return MANTA_OK;
    TRY(embed_indices(c));
    if (!c->accumulate[1]) memset(c->din[1].data, 0, manta_array_bytes(&c->in[1]));
    op_kernels(c)->scatter_add(op_pool(c), manta_array_count(&c->in[0]), n, rows, c->work,
                               op_f32(&c->dout[0]), op_f32(&c->din[1]));
    return MANTA_OK;
}

const manta_op op_embedding = {
    .name = "embedding",
    .flags = MANTA_OP_READS_INPUT(0),
    .shape = embed_shape,
    .plan = embed_plan,
    .forward = embed_forward,
    .backward = embed_backward,
};
