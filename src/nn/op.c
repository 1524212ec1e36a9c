/* op.c - what every operation may use: threads, random numbers, sentences.
 *
 * Random numbers are a function of (seed, step, call, position, index). The
 * first three make a key below the run's; the position of the sample in the
 * global batch opens a key space below that, so a sample draws the same numbers
 * whichever shard, worker or thread computes it. */
#include "nn/ops.h"

#include <assert.h>
#include <stdio.h>

#include "base/args.h"
#include "base/rng.h"

/* Streams of the run's seed that other parts draw from: initial weights use the
 * variables' numbers, so dropout and its like stay far away from those. */
#define OP_STREAM 0x6f700000u

/* ---- threads ---- */

typedef struct parallel {
    int64_t n, grain;
    void (*fn)(void *ctx, int64_t i);
    void *ctx;
} parallel;

static void parallel_task(void *ctx, int task, int thread)
{
    const parallel *j = ctx;
    int64_t lo = task * j->grain, hi = lo + j->grain;

    (void)thread;
    for (int64_t i = lo; i < hi && i < j->n; i++) j->fn(j->ctx, i);
}

void manta_op_parallel(const manta_op_call *c, int64_t n, void (*fn)(void *ctx, int64_t i), void *ctx)
{
    REFUSE_NULL_AND_RETURN(c);
    REFUSE_NEGATIVE_AND_RETURN(n);
    REFUSE_NULL_AND_RETURN(fn);

    parallel j = {.n = n, .grain = 1, .fn = fn, .ctx = ctx};

    if (n == 0) return;
    if (!op_pool(c)) {
        for (int64_t i = 0; i < n; i++) fn(ctx, i);
        return;
    }
    /* Which thread runs what changes no result, so the grain may depend on n alone: at most 1024 tasks. */
    while ((n + j.grain - 1) / j.grain > 1024) j.grain *= 2;
    pool_run(op_pool(c), (int)((n + j.grain - 1) / j.grain), parallel_task, &j);
}

/* ---- random numbers ---- */

void op_random_range(const manta_op_call *c, int64_t position, int64_t start, int64_t n, float *v)
{
    rng_key k = rng_make(c->seed, OP_STREAM);
    int64_t i = 0;

    assert(start % 4 == 0);
    k = rng_sub(rng_sub(rng_sub(k, (uint64_t)c->step), c->call), (uint64_t)position);
    for (uint64_t block = (uint64_t)start / 4; i < n; block++) {
        rng_words w = rng_at(k, block);
        for (int j = 0; j < 4 && i < n; j++) v[i++] = rng_uniform(w.w[j]);
    }
}

void manta_op_random(const manta_op_call *c, int64_t position, int64_t n, float *v)
{
    REFUSE_NULL_AND_RETURN(c);
    REFUSE_NEGATIVE_AND_RETURN(position);
    REFUSE_NEGATIVE_AND_RETURN(n);
    REFUSE_NULL_AND_RETURN(v);
    op_random_range(c, position, 0, n, v);
}

/* ---- gradients ---- */

const float *op_dout(const manta_op_call *c)
{
    float *dy = c->dout[0].data;

    if (c->inner->relu && !c->inner->relu_done) {
        const float *y = op_f32(&c->out[0]);
        op_kernels(c)->act_backward(op_pool(c), KERN_RELU, 0, manta_array_count(&c->dout[0]), y, y, dy, dy,
                                    false);
    }
    return dy;
}

/* ---- shapes ---- */

char *op_shape_text(const manta_array *a, char *buf, size_t size)
{
    char rest[96];

    if (a->ndim < 1 || a->shape[0] != -1) return manta_shape_text(a->ndim, a->shape, buf, size);
    if (a->ndim == 1) {
        snprintf(buf, size, "(batch,)");
    } else {
        manta_shape_text(a->ndim - 1, a->shape + 1, rest, sizeof rest);
        if (a->ndim == 2) rest[__builtin_strlen(rest) - 2] = 0; /* "(28,)": no comma behind the last of two */
        snprintf(buf, size, a->ndim == 2 ? "(batch, %s)" : "(batch, %s", rest + 1);
    }
    return buf;
}

manta_status op_expect_inputs(const manta_op_shape *s, int least, int most)
{
    if (s->n_in >= least && s->n_in <= most) return MANTA_OK;
    if (least == most)
        return manta_fail(MANTA_EINVAL, "expected %d input%s, given %d", least, least == 1 ? "" : "s",
                          s->n_in);
    return manta_fail(MANTA_EINVAL, "expected %d to %d inputs, given %d", least, most, s->n_in);
}

manta_status op_expect_f32(const manta_op_shape *s, int i, const char *what)
{
    if (s->in[i].dtype == MANTA_DTYPE_F32) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected %s of type float32, given %s", what,
                      manta_dtype_name(s->in[i].dtype));
}

manta_status op_expect_map(const manta_op_shape *s)
{
    char text[96];

    TRY(op_expect_inputs(s, 1, 1));
    TRY(op_expect_f32(s, 0, "an input"));
    if (s->in[0].ndim == 4) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected an input of shape (batch, height, width, channels), given %s",
                      op_shape_text(&s->in[0], text, sizeof text));
}

void op_set_out(manta_op_shape *s, manta_dtype t, int ndim, const int64_t *shape)
{
    s->out[0] = manta_array_of(t, ndim, shape, NULL);
}
