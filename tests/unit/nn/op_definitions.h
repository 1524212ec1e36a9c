/* op_definitions.h - what every operation computes, as plain loops in double.
 *
 * Written from the definitions, index by index, and sharing nothing with the
 * operations: slow, and what ops_test.c believes. */
#ifndef TESTS_NN_OP_DEFINITIONS_H
#define TESTS_NN_OP_DEFINITIONS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "nn/op_fixture.h"

typedef struct op_case op_case;
struct op_case {
    const char *name;
    const manta_op *op;
    const void *attrs;
    int n_in;
    dims in[MAX_IN];
    dims out;
    void (*ref)(const op_case *c, double *const *x, double *y);
    unsigned variables; /* bit i: input i has no batch dimension */
    unsigned constants; /* bit i: input i has no gradient */
    unsigned positive; /* bit i: input i holds numbers above 0 */
    unsigned indices; /* bit i: input i holds int32 below `limit` */
    int limit;
    bool inference;
};

static int64_t count(const dims *s)
{
    int64_t n = 1;

    for (int i = 0; i < s->n; i++) n *= s->d[i];
    return n;
}

static int64_t last(const dims *s)
{
    return s->d[s->n - 1];
}

/* ---- the definitions, in double ---- */

static void ref_dense(const op_case *c, double *const *x, double *y)
{
    int64_t k = c->in[1].d[0], n = c->in[1].d[1], rows = count(&c->in[0]) / k;

    for (int64_t r = 0; r < rows; r++) {
        for (int64_t j = 0; j < n; j++) {
            double sum = c->n_in > 2 ? x[2][j] : 0;
            for (int64_t i = 0; i < k; i++) sum += x[0][r * k + i] * x[1][i * n + j];
            y[r * n + j] = sum;
        }
    }
}

static void ref_conv(const op_case *c, double *const *x, double *y)
{
    const op_conv_attrs *a = c->attrs;
    const int64_t *in = c->in[0].d, *k = c->in[1].d, *out = c->out.d;
    int64_t cg = in[3] / a->groups, og = out[3] / a->groups, i = 0;

    for (int64_t n = 0; n < out[0]; n++)
        for (int64_t oh = 0; oh < out[1]; oh++)
            for (int64_t ow = 0; ow < out[2]; ow++)
                for (int64_t o = 0; o < out[3]; o++, i++) {
                    double sum = c->n_in > 2 ? x[2][o] : 0;
                    for (int64_t p = 0; p < k[0]; p++)
                        for (int64_t q = 0; q < k[1]; q++)
                            for (int64_t g = 0; g < cg; g++) {
                                int64_t h = oh * a->sh + p * a->dh - a->top,
                                        w = ow * a->sw + q * a->dw - a->left;
                                if (h < 0 || h >= in[1] || w < 0 || w >= in[2]) continue;
                                sum += x[0][((n * in[1] + h) * in[2] + w) * in[3] + o / og * cg + g] *
                                       x[1][((p * k[1] + q) * cg + g) * out[3] + o];
                            }
                    y[i] = sum;
                }
}

/* Every input element spreads the kernel over the output. */
static void ref_transpose(const op_case *c, double *const *x, double *y)
{
    const op_conv_transpose_attrs *a = c->attrs;
    const int64_t *in = c->in[0].d, *k = c->in[1].d, *out = c->out.d;

    for (int64_t i = 0; i < count(&c->out); i++) y[i] = c->n_in > 2 ? x[2][i % out[3]] : 0;
    for (int64_t n = 0; n < in[0]; n++)
        for (int64_t h = 0; h < in[1]; h++)
            for (int64_t w = 0; w < in[2]; w++)
                for (int64_t p = 0; p < k[0]; p++)
                    for (int64_t q = 0; q < k[1]; q++) {
                        int64_t oh = h * a->sh + p * a->dh - a->top, ow = w * a->sw + q * a->dw - a->left;
                        if (oh < 0 || oh >= out[1] || ow < 0 || ow >= out[2]) continue;
                        for (int64_t o = 0; o < out[3]; o++)
                            for (int64_t i = 0; i < in[3]; i++)
                                y[((n * out[1] + oh) * out[2] + ow) * out[3] + o] +=
                                    x[0][((n * in[1] + h) * in[2] + w) * in[3] + i] *
                                    x[1][((p * k[1] + q) * out[3] + o) * in[3] + i];
                    }
}

static double act(kern_act f, double alpha, double v)
{
    switch (f) {
    case KERN_RELU: return v > 0 ? v : 0;
    case KERN_LEAKY_RELU: return v > 0 ? v : alpha * v;
    case KERN_ELU: return v > 0 ? v : alpha * expm1(v);
    case KERN_GELU: return 0.5 * v * (1 + erf(v / sqrt(2)));
    case KERN_GELU_TANH:
        return 0.5 * v * (1 + tanh(sqrt(2 / 3.14159265358979323846) * (v + 0.044715 * v * v * v)));
    case KERN_SILU: return v / (1 + exp(-v));
    case KERN_SIGMOID: return 1 / (1 + exp(-v));
    case KERN_TANH: return tanh(v);
    case KERN_HARD_SIGMOID: return fmin(fmax(v / 6 + 0.5, 0), 1);
    case KERN_HARD_SILU: return v * fmin(fmax(v / 6 + 0.5, 0), 1);
    default: return v;
    }
}

static void ref_act(const op_case *c, double *const *x, double *y)
{
    const op_act_attrs *a = c->attrs;

    for (int64_t i = 0; i < count(&c->out); i++) y[i] = act(a->act, (double)a->alpha, x[0][i]);
}

static void ref_relu(const op_case *c, double *const *x, double *y)
{
    const op_relu_attrs *a = c->attrs;

    for (int64_t i = 0; i < count(&c->out); i++) {
        double v = x[0][i], t = (double)a->threshold;
        y[i] = v >= (double)a->max_value ? (double)a->max_value
               : v >= t                  ? v
                                         : (double)a->negative_slope * (v - t);
    }
}

static void ref_softmax(const op_case *c, double *const *x, double *y)
{
    int64_t k = last(&c->out);

    for (int64_t r = 0; r < count(&c->out) / k; r++) {
        double sum = 0;
        for (int64_t i = 0; i < k; i++) sum += exp(x[0][r * k + i]);
        for (int64_t i = 0; i < k; i++) y[r * k + i] = exp(x[0][r * k + i]) / sum;
    }
}

static void ref_affine(const op_case *c, double *const *x, double *y)
{
    const op_affine_attrs *a = c->attrs;

    for (int64_t i = 0; i < count(&c->out); i++) y[i] = x[0][i] * (double)a->scale + (double)a->offset;
}

static void ref_normalize(const op_case *c, double *const *x, double *y)
{
    const op_normalize_attrs *a = c->attrs;

    for (int64_t i = 0; i < count(&c->out); i++) {
        double mean = (double)a->mean[i % a->n], d = fmax(sqrt((double)a->variance[i % a->n]), 1e-7);
        y[i] = a->invert ? mean + x[0][i] * d : (x[0][i] - mean) / d;
    }
}

/* Index of the element of `s` that output element i shows. */
static int64_t broadcast_index(const dims *s, const dims *out, int64_t i)
{
    int64_t at = 0, stride = 1, index[6] = {0};

    for (int k = out->n - 1; k >= 0; k--) {
        index[k] = i % out->d[k];
        i /= out->d[k];
    }
    for (int k = s->n - 1; k >= 0; k--) {
        int there = k == 0 ? 0 : k + out->n - s->n;
        if (s->d[k] != 1) at += index[there] * stride;
        stride *= s->d[k];
    }
    return at;
}

static void ref_binary(const op_case *c, double *const *x, double *y)
{
    for (int64_t i = 0; i < count(&c->out); i++) {
        double a = x[0][broadcast_index(&c->in[0], &c->out, i)],
               b = x[1][broadcast_index(&c->in[1], &c->out, i)];
        y[i] = c->op == &op_add ? a + b : c->op == &op_subtract ? a - b : a * b;
    }
}

static void ref_copy(const op_case *c, double *const *x, double *y)
{
    memcpy(y, x[0], (size_t)count(&c->out) * sizeof *y);
}

static void ref_permute(const op_case *c, double *const *x, double *y)
{
    const op_permute_attrs *a = c->attrs;

    for (int64_t i = 0; i < count(&c->out); i++) {
        int64_t rest = i, index[6] = {0}, at = 0;
        for (int k = c->out.n - 1; k >= 0; k--) {
            index[a->axes[k]] = rest % c->out.d[k];
            rest /= c->out.d[k];
        }
        for (int k = 0; k < c->in[0].n; k++) at = at * c->in[0].d[k] + index[k];
        y[i] = x[0][at];
    }
}

static void ref_concat(const op_case *c, double *const *x, double *y)
{
    const op_concat_attrs *a = c->attrs;

    for (int64_t i = 0; i < count(&c->out); i++) {
        int64_t rest = i, index[6] = {0}, at = 0;
        int which = 0;
        for (int k = c->out.n - 1; k >= 0; k--) {
            index[k] = rest % c->out.d[k];
            rest /= c->out.d[k];
        }
        while (index[a->axis] >= c->in[which].d[a->axis]) index[a->axis] -= c->in[which++].d[a->axis];
        for (int k = 0; k < c->out.n; k++) at = at * c->in[which].d[k] + index[k];
        y[i] = x[which][at];
    }
}

static double at4(const dims *s, const double *x, int64_t n, int64_t h, int64_t w, int64_t ch)
{
    return x[((n * s->d[1] + h) * s->d[2] + w) * s->d[3] + ch];
}

static void ref_pad(const op_case *c, double *const *x, double *y)
{
    const op_pad_attrs *a = c->attrs;
    const int64_t *o = c->out.d, *in = c->in[0].d;

    for (int64_t i = 0; i < count(&c->out); i++) {
        int64_t ch = i % o[3], w = i / o[3] % o[2] - a->left, h = i / o[3] / o[2] % o[1] - a->top;
        bool inside = h >= 0 && h < in[1] && w >= 0 && w < in[2];
        y[i] = inside ? at4(&c->in[0], x[0], i / o[3] / o[2] / o[1], h, w, ch) : 0;
    }
}

static void ref_crop(const op_case *c, double *const *x, double *y)
{
    const op_pad_attrs *a = c->attrs;
    const int64_t *o = c->out.d;

    for (int64_t i = 0; i < count(&c->out); i++) {
        int64_t ch = i % o[3], w = i / o[3] % o[2] + a->left, h = i / o[3] / o[2] % o[1] + a->top;
        y[i] = at4(&c->in[0], x[0], i / o[3] / o[2] / o[1], h, w, ch);
    }
}

static void ref_scale(const op_case *c, double *const *x, double *y)
{
    for (int64_t i = 0; i < count(&c->out); i++) y[i] = x[0][i] * x[1][i % c->in[1].d[0]];
}

/* Weight with which output o of an enlarged axis sees input i. */
static double share(int64_t o, int64_t i, int64_t scale, int64_t n, bool bilinear)
{
    if (!bilinear) return o / scale == i;
    double centre = ((double)o + 0.5) / (double)scale - 0.5;
    centre = centre < 0 ? 0 : centre > (double)(n - 1) ? (double)(n - 1) : centre;
    return fmax(0, 1 - fabs(centre - (double)i));
}

static void ref_upsample(const op_case *c, double *const *x, double *y)
{
    const op_upsample_attrs *a = c->attrs;
    const int64_t *o = c->out.d, *in = c->in[0].d;

    for (int64_t i = 0; i < count(&c->out); i++) {
        int64_t ch = i % o[3], w = i / o[3] % o[2], h = i / o[3] / o[2] % o[1], n = i / o[3] / o[2] / o[1];
        y[i] = 0;
        for (int64_t p = 0; p < in[1]; p++)
            for (int64_t q = 0; q < in[2]; q++)
                y[i] += share(h, p, a->sh, in[1], a->bilinear) * share(w, q, a->sw, in[2], a->bilinear) *
                        at4(&c->in[0], x[0], n, p, q, ch);
    }
}

static void ref_window(const op_case *c, double *const *x, double *y)
{
    const op_pool_attrs *a = c->attrs;
    const int64_t *o = c->out.d, *in = c->in[0].d;

    for (int64_t i = 0; i < count(&c->out); i++) {
        int64_t ch = i % o[3], w = i / o[3] % o[2], h = i / o[3] / o[2] % o[1], n = i / o[3] / o[2] / o[1];
        double most = -INFINITY, sum = 0, cells = 0;
        for (int64_t p = h * a->sh - a->top; p < h * a->sh - a->top + a->kh; p++)
            for (int64_t q = w * a->sw - a->left; q < w * a->sw - a->left + a->kw; q++) {
                bool inside = p >= 0 && p < in[1] && q >= 0 && q < in[2];
                double v = inside ? at4(&c->in[0], x[0], n, p, q, ch) : 0;
                if (inside) most = fmax(most, v);
                sum += v;
                cells += inside || a->count_padding;
            }
        y[i] = c->op == &op_max_pool ? most : sum / cells;
    }
}

static void ref_global(const op_case *c, double *const *x, double *y)
{
    int64_t places = c->in[0].d[1] * c->in[0].d[2], ch = c->in[0].d[3];

    for (int64_t i = 0; i < count(&c->out); i++) {
        double most = -INFINITY, sum = 0;
        for (int64_t p = 0; p < places; p++) {
            double v = x[0][(i / ch * places + p) * ch + i % ch];
            most = fmax(most, v);
            sum += v;
        }
        y[i] = c->op == &op_global_max_pool ? most : sum / (double)places;
    }
}

static void ref_bn(const op_case *c, double *const *x, double *y)
{
    const op_bn_attrs *a = c->attrs;
    int64_t ch = last(&c->out), rows = count(&c->out) / ch;
    int next = 1, gamma = a->has_gamma ? next++ : 0, beta = a->has_beta ? next++ : 0;

    for (int64_t k = 0; k < ch; k++) {
        double mean = 0, var = 0;
        for (int64_t r = 0; r < rows; r++) mean += x[0][r * ch + k] / (double)rows;
        for (int64_t r = 0; r < rows; r++) var += pow(x[0][r * ch + k] - mean, 2) / (double)rows;
        if (c->inference) mean = x[next][k];
        if (c->inference) var = x[next + 1][k];
        for (int64_t r = 0; r < rows; r++)
            y[r * ch + k] =
                (x[0][r * ch + k] - mean) / sqrt(var + (double)a->epsilon) * (gamma ? x[gamma][k] : 1) +
                (beta ? x[beta][k] : 0);
    }
}

static void ref_ln(const op_case *c, double *const *x, double *y)
{
    const op_ln_attrs *a = c->attrs;
    int64_t n = 1;

    for (int i = c->out.n - a->axes; i < c->out.n; i++) n *= c->out.d[i];
    for (int64_t r = 0; r < count(&c->out) / n; r++) {
        const double *v = x[0] + r * n;
        double mean = 0, var = 0;
        for (int64_t i = 0; i < n; i++) mean += v[i] / (double)n;
        for (int64_t i = 0; i < n; i++) var += pow(v[i] - mean, 2) / (double)n;
        for (int64_t i = 0; i < n; i++)
            y[r * n + i] = (v[i] - mean) / sqrt(var + (double)a->epsilon) * (a->has_gamma ? x[1][i] : 1) +
                           (a->has_beta ? x[1 + a->has_gamma][i] : 0);
    }
}

static void ref_embedding(const op_case *c, double *const *x, double *y)
{
    int64_t k = c->in[1].d[1];

    for (int64_t i = 0; i < count(&c->out); i++) y[i] = x[1][(int64_t)x[0][i / k] * k + i % k];
}

#endif
