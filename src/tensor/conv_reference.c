/* conv_reference.c - the convolutions as they are defined, element by element. */
#include "tensor/conv.h"

#include <math.h>
#include <stdlib.h>

#include "tensor/conv_definition.h"

static const float *input_at(const conv_call *c, int64_t n, int64_t ih, int64_t iw, int64_t channel)
{
    const conv_shape *s = &c->s;

    return c->x + ((n * s->h + ih) * s->w + iw) * s->c + channel;
}

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
            for (int64_t ci = 0; ci < cg; ci++) {
                acc = fmaf(*input_at(c, n, ih, iw, first + ci), *conv_weight_at(c, kh, kw, ci, o), acc);
            }
        }
    }
    if (c->bias) acc += c->bias[o];
    if (c->relu && acc < 0.0f) acc = 0.0f;
    return acc;
}

typedef struct output_job {
    const conv_call *c;
    conv_output_fn *element;
} output_job;

static void output_task(void *ctx, int task, int thread)
{
    const output_job *j = ctx;
    const conv_call *c = j->c;
    const conv_shape *s = &c->s;
    const int64_t n = task / s->oh, oh = task % s->oh;
    (void)thread;

    for (int64_t ow = 0; ow < s->ow; ow++) {
        for (int64_t o = 0; o < s->oc; o++) {
            c->y[((n * s->oh + oh) * s->ow + ow) * s->oc + o] = j->element(c, n, oh, ow, o);
        }
    }
}

void conv_define_output(pool *p, const conv_call *c, conv_output_fn *element)
{
    output_job j = {c, element};

    pool_run(p, (int)(c->s.n * c->s.oh), output_task, &j);
}

void conv_forward_reference(pool *p, const conv_call *c)
{
    conv_define_output(p, c, forward_element);
}

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
            const float *dy = c->dy + ((n * s->oh + oh) * s->ow + ow) * s->oc;
            for (int64_t o = first; o < first + ocg; o++)
                acc = fmaf(dy[o], *conv_weight_at(c, kh, kw, ci, o), acc);
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
            const float acc = data_element(c, c->accumulate ? c->dx[at] : 0.0f, n, ih, iw, i);
            c->dx[at] = c->mask && c->mask[at] <= 0.0f ? 0.0f : acc;
        }
    }
}

void conv_backward_data_reference(pool *p, const conv_call *c)
{
    pool_run(p, (int)(c->s.n * c->s.h), data_task, (void *)(uintptr_t)c);
}

/* One step of the chain; on padding it adds nothing, or 0 * dy where the shape says so. */
static float weight_term(const conv_call *c, conv_weight t, float acc, int64_t n, int64_t oh, int64_t ow)
{
    const conv_shape *s = &c->s;
    const int64_t ih = oh * s->sh + t.kh * s->dh - s->top, iw = ow * s->sw + t.kw * s->dw - s->left;
    const float dy = c->dy[((n * s->oh + oh) * s->ow + ow) * s->oc + t.o];
    const bool inside = ih >= 0 && ih < s->h && iw >= 0 && iw < s->w;

    if (inside) return fmaf(*input_at(c, n, ih, iw, t.i), dy, acc);
    return conv_counts_padding(s) ? fmaf(0.0f, dy, acc) : acc;
}

static float sum_chunk(const conv_call *c, const conv_shape *over, conv_weight t, float acc, int64_t n0,
                       int64_t n1, conv_term_fn *term)
{
    const conv_shape *s = &c->s;

    if (conv_order(over) == CONV_SAMPLES_FIRST) {
        for (int64_t n = n0; n < n1; n++) {
            for (int64_t oh = 0; oh < s->oh; oh++) {
                for (int64_t ow = 0; ow < s->ow; ow++) acc = term(c, t, acc, n, oh, ow);
            }
        }
    } else {
        for (int64_t oh = 0; oh < s->oh; oh++) {
            for (int64_t ow = 0; ow < s->ow; ow++) {
                for (int64_t n = n0; n < n1; n++) acc = term(c, t, acc, n, oh, ow);
            }
        }
    }
    return acc;
}

float conv_sum_terms(const conv_call *c, const conv_shape *over, conv_weight t, float start,
                     conv_term_fn *term)
{
    const int64_t chunk = conv_chunk(over), n = over->n;
    float sum = sum_chunk(c, over, t, start, 0, chunk < n ? chunk : n, term);

    for (int64_t n0 = chunk; n0 < n; n0 += chunk) {
        sum += sum_chunk(c, over, t, 0.0f, n0, n0 + chunk < n ? n0 + chunk : n, term);
    }
    return sum;
}

typedef struct weights_job {
    const conv_call *c;
    conv_gradient_fn *element;
} weights_job;

static void weights_task(void *ctx, int task, int thread)
{
    const weights_job *j = ctx;
    const conv_call *c = j->c;
    const conv_shape *s = &c->s;
    const int64_t cg = s->c / s->groups, ocg = s->oc / s->groups;
    const int64_t ci = task % cg, kw = task / cg % s->kw, kh = task / cg / s->kw;
    (void)thread;

    for (int64_t o = 0; o < s->oc; o++) {
        const int64_t at = (int64_t)task * s->oc + o;
        const conv_weight t = {kh, kw, o / ocg * cg + ci, o};
        const float v = j->element(c, t, c->accumulate ? c->dw[at] : 0.0f);
        if (c->sink) {
            c->sink(c->sink_ctx, at, 1, &v);
        } else {
            c->dw[at] = v;
        }
    }
}

void conv_define_weights(pool *p, const conv_call *c, conv_gradient_fn *element)
{
    const conv_shape *s = &c->s;
    weights_job j = {c, element};

    pool_run(p, (int)(s->kh * s->kw * (s->c / s->groups)), weights_task, &j);
}

static float weight_element(const conv_call *c, conv_weight t, float start)
{
    return conv_sum_terms(c, &c->s, t, start, weight_term);
}

void conv_backward_weights_reference(pool *p, const conv_call *c)
{
    conv_define_weights(p, c, weight_element);
}

size_t conv_work_reference(const conv_shape *s, int threads)
{
    (void)s;
    (void)threads;

    return 0;
}
