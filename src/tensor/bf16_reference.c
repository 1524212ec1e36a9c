/* bf16_reference.c - products in bfloat16 as they are defined, element by element. */
#include "tensor/bf16.h"

#include "tensor/conv.h"
#include "tensor/conv_definition.h"

/* ---- matrix products ---- */

enum { RUN = 256 }; /* elements handed to a sink at a time */

/* Word p of a row or column whose k elements lie `step` apart. */
static uint32_t pair_at(const float *v, int64_t step, int64_t p, int64_t k)
{
    return bf16_pair(v[2 * p * step], 2 * p + 1 < k ? v[(2 * p + 1) * step] : 0.0f);
}

static float sum_element(const gemm_call *g, int64_t i, int64_t j)
{
    const int64_t a_row = g->ta ? 1 : g->lda, a_col = g->ta ? g->lda : 1;
    const int64_t b_row = g->tb ? 1 : g->ldb, b_col = g->tb ? g->ldb : 1;
    const float *a = g->a + i * a_row, *b = g->b + j * b_col;
    float acc = g->accumulate ? g->c[i * g->ldc + j] : 0.0f;

    for (int64_t p = 0; 2 * p < g->k; p++)
        acc = bf16_step(pair_at(a, a_col, p, g->k), pair_at(b, b_row, p, g->k), acc);
    if (g->bias) acc += g->bias[j];
    if (g->relu && acc < 0.0f) acc = 0.0f;
    if (g->mask && g->mask[i * g->ldc + j] <= 0.0f) acc = 0.0f;
    return g->round ? bf16_round(acc) : acc;
}

static void row_task(void *ctx, int task, int thread)
{
    const gemm_call *g = ctx;
    const int64_t i = task;
    float run[RUN];
    (void)thread;

    for (int64_t j0 = 0; j0 < g->n; j0 += RUN) {
        const int64_t n = g->n - j0 < RUN ? g->n - j0 : RUN;
        float *out = g->sink ? run : g->c + i * g->ldc + j0;
        for (int64_t j = 0; j < n; j++) out[j] = sum_element(g, i, j0 + j);
        if (g->sink) g->sink(g->sink_ctx, i * g->n + j0, n, run);
    }
}

void gemm_bf16_reference(pool *p, const gemm_call *g)
{
    pool_run(p, (int)g->m, row_task, (void *)(uintptr_t)g);
}

void gemm_pair_bf16_reference(pool *p, const gemm_call *first, const gemm_call *second)
{
    gemm_bf16_reference(p, first);
    gemm_bf16_reference(p, second);
}

/* ---- convolution, forward ---- */

static float forward_element(const conv_call *c, int64_t n, int64_t oh, int64_t ow, int64_t o)
{
    const conv_shape *s = &c->s;
    const int64_t cg = s->c / s->groups, first = o / (s->oc / s->groups) * cg;
    float acc = 0.0f;

    for (int64_t kh = 0; kh < s->kh; kh++) {
        const int64_t ih = oh * s->sh + kh * s->dh - s->top;
        if (ih < 0 || ih >= s->h) continue;
        for (int64_t kw = 0; kw < s->kw; kw++) {
            const int64_t iw = ow * s->sw + kw * s->dw - s->left;
            if (iw < 0 || iw >= s->w) continue;
            const float *x = c->x + ((n * s->h + ih) * s->w + iw) * s->c + first;
            for (int64_t p = 0; 2 * p < cg; p++)
                acc = bf16_step(pair_at(x, 1, p, cg), pair_at(conv_weight_at(c, kh, kw, 0, o), s->oc, p, cg),
                                acc);
        }
    }
    if (c->bias) acc += c->bias[o];
    if (c->relu && acc < 0.0f) acc = 0.0f;
    return c->round ? bf16_round(acc) : acc;
}

void conv_forward_bf16_reference(pool *p, const conv_call *c)
{
    conv_define_output(p, c, forward_element);
}

/* ---- convolution, back to the input ---- */

static float data_element(const conv_call *c, float acc, int64_t n, int64_t ih, int64_t iw, int64_t i)
{
    const conv_shape *s = &c->s;
    const int64_t cg = s->c / s->groups, ocg = s->oc / s->groups, ci = i % cg, first = i / cg * ocg;

    for (int64_t kh = 0; kh < s->kh; kh++) {
        const int64_t oh = (ih + s->top - kh * s->dh) / s->sh;
        if (oh < 0 || oh >= s->oh || oh * s->sh + kh * s->dh - s->top != ih) continue;
        for (int64_t kw = 0; kw < s->kw; kw++) {
            const int64_t ow = (iw + s->left - kw * s->dw) / s->sw;
            if (ow < 0 || ow >= s->ow || ow * s->sw + kw * s->dw - s->left != iw) continue;
            const float *dy = c->dy + ((n * s->oh + oh) * s->ow + ow) * s->oc + first;
            const float *w = conv_weight_at(c, kh, kw, ci, first);
            for (int64_t p = 0; 2 * p < ocg; p++)
                acc = bf16_step(pair_at(dy, 1, p, ocg), pair_at(w, 1, p, ocg), acc);
        }
    }
    return acc;
}

static void data_task(void *ctx, int task, int thread)
{
    const conv_call *c = ctx;
    const conv_shape *s = &c->s;
    const int64_t n = task / s->h, ih = task % s->h;
    (void)thread;

    for (int64_t iw = 0; iw < s->w; iw++) {
        for (int64_t i = 0; i < s->c; i++) {
            const int64_t at = ((n * s->h + ih) * s->w + iw) * s->c + i;
            float v = data_element(c, c->accumulate ? c->dx[at] : 0.0f, n, ih, iw, i);
            if (c->mask && c->mask[at] <= 0.0f) v = 0.0f;
            c->dx[at] = c->round ? bf16_round(v) : v;
        }
    }
}

void conv_backward_data_bf16_reference(pool *p, const conv_call *c)
{
    pool_run(p, (int)(c->s.n * c->s.h), data_task, (void *)(uintptr_t)c);
}

/* ---- convolution, to the weights ---- */

/* One step of the sum, of samples 2 * two and the one behind it; on padding it adds nothing, or zeros times dy where
 * the shape says so. */
static float weight_term(const conv_call *c, conv_weight t, float acc, int64_t two, int64_t oh, int64_t ow)
{
    const conv_shape *s = &c->s, half = bf16_weights_shape(s);
    const int64_t ih = oh * s->sh + t.kh * s->dh - s->top, iw = ow * s->sw + t.kw * s->dw - s->left;
    const int64_t in = s->h * s->w * s->c, out = s->oh * s->ow * s->oc;
    const uint32_t dy = pair_at(c->dy + (oh * s->ow + ow) * s->oc + t.o, out, two, s->n);
    const bool inside = ih >= 0 && ih < s->h && iw >= 0 && iw < s->w;

    if (inside) return bf16_step(pair_at(c->x + (ih * s->w + iw) * s->c + t.i, in, two, s->n), dy, acc);
    return conv_counts_padding(&half) ? bf16_step(0, dy, acc) : acc;
}

static float weight_element(const conv_call *c, conv_weight t, float start)
{
    const conv_shape half = bf16_weights_shape(&c->s);

    return conv_sum_terms(c, &half, t, start, weight_term);
}

void conv_backward_weights_bf16_reference(pool *p, const conv_call *c)
{
    conv_define_weights(p, c, weight_element);
}

size_t conv_work_bf16_reference(const conv_shape *s, int threads)
{
    (void)s;
    (void)threads;

    return 0;
}
