/* bf16_conv.c - convolutions in bfloat16: the maps that are read often are made
 * into pairs first (tensor/bf16.h), then convolved by the tiles of an instruction set.
 *
 *     forward        pairs of the channels of x
 *     backward data  pairs of the channels of dy
 *     weights        pairs of two samples of x, and of dy
 *
 * The weight is made into pairs while it is packed; where channels do not mix it is
 * not packed, and is made into pairs here.
 *
 * Work:  | pairs of a map | pairs of the other map, or of the weight | the tiles' own | */
#include "tensor/bf16.h"
#include "tensor/conv_tiled.h"
#include "tensor/conv_walk.h"
#include "tensor/gemm_sizes.h"

enum { GRAIN = 1 << 15 }; /* floats of one task */

static int64_t half_of(int64_t n)
{
    return ceil_div(n, 2);
}

static int64_t round_up(int64_t words)
{
    return ceil_div(words, 16) * 16;
}

conv_shape bf16_weights_shape(const conv_shape *s)
{
    conv_shape t = *s;

    t.n = half_of(s->n);
    return t;
}

/* ---- pairs of neighbours ---- */

typedef struct rows_job {
    const gemm_isa *isa;
    int64_t rows, k, rows_per_task;
    const float *src;
    float *dst;
} rows_job;

static void rows_task(void *ctx, int task, int thread)
{
    const rows_job *j = ctx;
    const int64_t first = task * j->rows_per_task, rows = min_of(j->rows_per_task, j->rows - first);
    (void)thread;

    j->isa->take_rows(j->src + first * j->k, j->k, rows, j->k, half_of(j->k), j->dst + first * half_of(j->k));
}

/* dst (rows, ceil(k / 2)) of src (rows, k). Rows that end with a whole pair are one long row to the task. */
static void take_rows(const gemm_isa *isa, pool *p, int64_t rows, int64_t k, const float *src, float *dst)
{
    const int64_t joined = k % 2 == 0 ? max_of(1, GRAIN / k) : 1, whole = rows / joined, left = rows % joined;
    rows_job j = {.isa = isa, .rows = whole, .k = k * joined, .src = src, .dst = dst};

    if (rows == 0) return;
    j.rows_per_task = max_of(1, GRAIN / j.k);
    if (whole > 0) pool_run(p, (int)ceil_div(whole, j.rows_per_task), rows_task, &j);
    if (left > 0)
        isa->take_rows(src + (rows - left) * k, left * k, 1, left * k, half_of(left * k),
                       dst + (rows - left) * half_of(k));
}

/* ---- pairs of samples ---- */

typedef struct samples_job {
    const gemm_isa *isa;
    int64_t n, size; /* samples, and floats of each */
    int64_t parts, part; /* tasks of two samples, floats of each */
    const float *src;
    float *dst;
} samples_job;

static void samples_task(void *ctx, int task, int thread)
{
    const samples_job *j = ctx;
    const int64_t two = task / j->parts, at = task % j->parts * j->part, n = min_of(j->part, j->size - at);
    (void)thread;

    j->isa->take(j->src + 2 * two * j->size + at, j->size, min_of(2, j->n - 2 * two), n, n,
                 j->dst + two * j->size + at);
}

/* dst (ceil(n / 2), size) of src (n, size). */
static void take_samples(const gemm_isa *isa, pool *p, int64_t n, int64_t size, const float *src, float *dst)
{
    samples_job j = {.isa = isa, .n = n, .size = size, .src = src, .dst = dst};

    if (n == 0 || size == 0) return;
    j.part = round_up(ceil_div(size, ceil_div(size, GRAIN)));
    j.parts = ceil_div(size, j.part);
    pool_run(p, (int)(half_of(n) * j.parts), samples_task, &j);
}

/* ---- work ---- */

static int64_t input_words(const conv_shape *s)
{
    return round_up(s->n * s->h * s->w * s->groups * half_of(s->c / s->groups));
}

static int64_t output_words(const conv_shape *s)
{
    return round_up(s->n * s->oh * s->ow * s->groups * half_of(s->oc / s->groups));
}

/* Of a weight that is made into pairs here. */
static int64_t weight_words(const conv_shape *s)
{
    return conv_is_depthwise(s) ? round_up(s->kh * s->kw * s->oc) : 0;
}

static size_t most_work(const gemm_isa *isa, const conv_shape *s)
{
    const conv_shape w = bf16_weights_shape(s);
    const int64_t map = max_of(input_words(s), output_words(s)) + weight_words(s);
    const size_t passes = (size_t)map * sizeof(float) + conv_walk_size(s);
    const int64_t in = round_up(w.n * w.h * w.w * w.c), out = round_up(w.n * w.oh * w.ow * w.oc);
    const size_t weights = (size_t)(in + out) * sizeof(float) + conv_weights_work(isa, &w);

    return passes > weights ? passes : weights;
}

/* ---- the passes ---- */

/* The weight as the tiles want it; `room` is for that. */
static const float *weight_of(const gemm_isa *isa, pool *p, const conv_call *c, float *room)
{
    const conv_shape *s = &c->s;

    if (!conv_is_depthwise(s)) return c->w;
    take_rows(isa, p, s->kh * s->kw * s->oc, 1, c->w, room);
    return room;
}

static void convolve_forward(const gemm_isa *isa, pool *p, const conv_call *c)
{
    const conv_shape *s = &c->s;
    conv_call pairs = *c;
    float *x = c->work, *w = x + input_words(s);

    take_rows(isa, p, s->n * s->h * s->w * s->groups, s->c / s->groups, c->x, x);
    pairs.x = x;
    pairs.w = weight_of(isa, p, c, w);
    pairs.work = w + weight_words(s);
    conv_forward_tiled(isa, p, &pairs);
}

static void convolve_back(const gemm_isa *isa, pool *p, const conv_call *c)
{
    const conv_shape *s = &c->s;
    conv_call pairs = *c;
    float *dy = c->work, *w = dy + output_words(s);

    take_rows(isa, p, s->n * s->oh * s->ow * s->groups, s->oc / s->groups, c->dy, dy);
    pairs.dy = dy;
    pairs.w = weight_of(isa, p, c, w);
    pairs.work = w + weight_words(s);
    conv_backward_data_tiled(isa, p, &pairs);
}

static void sum_weights(const gemm_isa *isa, pool *p, const conv_call *c)
{
    const conv_shape *s = &c->s;
    const int64_t in = s->h * s->w * s->c, out = s->oh * s->ow * s->oc;
    conv_call pairs = *c;
    float *x = c->work, *dy;

    pairs.s = bf16_weights_shape(s);
    dy = x + round_up(pairs.s.n * in);
    take_samples(isa, p, s->n, in, c->x, x);
    take_samples(isa, p, s->n, out, c->dy, dy);
    pairs.x = x;
    pairs.dy = dy;
    pairs.work = dy + round_up(pairs.s.n * out);
    conv_backward_weights_tiled(isa, p, &pairs);
}

/* ---- the entries of the tables ---- */

#define ENTRIES(x)                                                                                           \
    void gemm_bf16_##x(pool *p, const gemm_call *g)                                                          \
    {                                                                                                        \
        gemm_tiled(&gemm_isa_pairs_##x, p, g);                                                               \
    }                                                                                                        \
    void gemm_pair_bf16_##x(pool *p, const gemm_call *first, const gemm_call *second)                        \
    {                                                                                                        \
        gemm_pair_tiled(&gemm_isa_pairs_##x, p, first, second);                                              \
    }                                                                                                        \
    void conv_forward_bf16_##x(pool *p, const conv_call *c)                                                  \
    {                                                                                                        \
        convolve_forward(&gemm_isa_pairs_##x, p, c);                                                         \
    }                                                                                                        \
    void conv_backward_data_bf16_##x(pool *p, const conv_call *c)                                            \
    {                                                                                                        \
        convolve_back(&gemm_isa_pairs_##x, p, c);                                                            \
    }                                                                                                        \
    void conv_backward_weights_bf16_##x(pool *p, const conv_call *c)                                         \
    {                                                                                                        \
        sum_weights(&gemm_isa_pairs_##x, p, c);                                                              \
    }                                                                                                        \
    size_t conv_work_bf16_##x(const conv_shape *s, int threads)                                              \
    {                                                                                                        \
        (void)threads;                                                                                       \
        return most_work(&gemm_isa_pairs_##x, s);                                                            \
    }

ENTRIES(avx2)
ENTRIES(avx512bf16)
