/* initializer.c - initial weights as a function of seed, variable and element.
 *
 * Four elements share one draw of the generator: element i takes word i % 4 of
 * place i / 4. A truncated normal draws again where a number lies two
 * deviations out, from a key below that belongs to the element; so one
 * rejection moves no other element. */
#include "nn/initializer.h"

#include <math.h>

#include "base/rng.h"
#include "base/status.h"
#include "base/suggest.h"
#include "nn/name.h"

/* Keeps initial weights apart from every other use of the run's seed. */
static const uint64_t STREAM = 0x696e697469616c00u; /* "initial" */

/* What is left of a standard deviation when a normal is cut at two of them. */
static const double CUT_DEVIATION = 0.87962566103423978;

static const struct {
    const char *name, *alias;
    manta_initializer init;
} known[] = {
    {"default", NULL, {MANTA_INIT_DEFAULT, 0, 0}},
    {"zeros", "zero", {MANTA_INIT_ZEROS, 0, 0}},
    {"ones", "one", {MANTA_INIT_ONES, 0, 0}},
    {"constant", NULL, {MANTA_INIT_CONSTANT, 0, 0}},
    {"random_uniform", "uniform", {MANTA_INIT_UNIFORM, -0.05f, 0.05f}},
    {"random_normal", "normal", {MANTA_INIT_NORMAL, 0, 0.05f}},
    {"truncated_normal", NULL, {MANTA_INIT_TRUNCATED_NORMAL, 0, 0.05f}},
    {"glorot_uniform", "xavier_uniform", {MANTA_INIT_GLOROT_UNIFORM, 0, 0}},
    {"glorot_normal", NULL, {MANTA_INIT_GLOROT_NORMAL, 0, 0}},
    {"he_uniform", "kaiming_uniform", {MANTA_INIT_HE_UNIFORM, 0, 0}},
    {"he_normal", NULL, {MANTA_INIT_HE_NORMAL, 0, 0}},
    {"lecun_uniform", NULL, {MANTA_INIT_LECUN_UNIFORM, 0, 0}},
    {"lecun_normal", NULL, {MANTA_INIT_LECUN_NORMAL, 0, 0}},
    {"torch_default", "torch", {MANTA_INIT_TORCH, 0, 0}},
    {"fan_out_uniform", NULL, {MANTA_INIT_FAN_OUT_UNIFORM, 1, 0}},
    {"fan_out_normal", NULL, {MANTA_INIT_FAN_OUT_NORMAL, 1, 0}},
};
enum { N_KNOWN = sizeof known / sizeof known[0] };

const char *initializer_name(manta_init_kind k)
{
    for (int i = 0; i < N_KNOWN; i++)
        if (known[i].init.kind == k) return known[i].name;
    return "?";
}

static manta_status fail_unknown_initializer(const char *name)
{
    manta_suggestion near = manta_suggestion_for(name);
    char hint[SUGGEST_TEXT];

    for (int i = 0; i < N_KNOWN; i++) manta_suggestion_offer(&near, known[i].name);
    return manta_fail(
        MANTA_ENOENT,
        "there is no initializer \"%.80s\" (there are zeros, ones, constant, random_uniform, "
        "random_normal, truncated_normal, glorot_uniform, glorot_normal, he_uniform, he_normal, "
        "lecun_uniform, lecun_normal, torch_default, fan_out_uniform, fan_out_normal)%s",
        name, manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status initializer_parse(const char *name, manta_initializer *out)
{
    for (int i = 0; i < N_KNOWN; i++) {
        const char *alias = known[i].alias;
        if (!name_same(name, known[i].name) && !(alias && name_same(name, alias))) continue;
        *out = known[i].init;
        return MANTA_OK;
    }
    return fail_unknown_initializer(name);
}

typedef struct fans {
    double in, out;
} fans;

static fans fans_of(int ndim, const int64_t *shape, int64_t fan_in)
{
    fans f = {1, 1};
    double field = 1;

    for (int i = 0; i < ndim - 2; i++) field *= (double)shape[i];
    if (ndim == 1) f = (fans){(double)shape[0], (double)shape[0]};
    if (ndim >= 2) f = (fans){(double)shape[ndim - 2] * field, (double)shape[ndim - 1] * field};
    if (fan_in > 0) f.in = (double)fan_in;
    return f;
}

static void fill_constant(int64_t n, float v, float *w)
{
    for (int64_t i = 0; i < n; i++) w[i] = v;
}

static void fill_uniform(rng_key k, int64_t n, double low, double high, float *w)
{
    float from = (float)low, width = (float)(high - low);

    for (int64_t i = 0; i < n; i += 4) {
        rng_words u = rng_at(k, (uint64_t)i / 4);
        for (int j = 0; j < 4 && i + j < n; j++) w[i + j] = from + width * rng_uniform(u.w[j]);
    }
}

/* A normal within two deviations for element i, whose first draw lay outside. */
static float draw_again(rng_key k, int64_t i)
{
    rng_key own = rng_sub(k, (uint64_t)i);

    for (uint64_t at = 0;; at++) {
        float v[4];
        rng_normal(rng_at(own, at), v);
        for (int j = 0; j < 4; j++)
            if (fabsf(v[j]) < 2.0f) return v[j];
    }
}

static void fill_normal(rng_key k, int64_t n, double mean, double deviation, bool cut, float *w)
{
    float m = (float)mean, d = (float)deviation;

    for (int64_t i = 0; i < n; i += 4) {
        float v[4];
        rng_normal(rng_at(k, (uint64_t)i / 4), v);
        for (int j = 0; j < 4 && i + j < n; j++) {
            if (cut && !(fabsf(v[j]) < 2.0f)) v[j] = draw_again(k, i + j);
            w[i + j] = m + d * v[j];
        }
    }
}

/* Keras's VarianceScaling: a variance of scale / n, uniform or cut normal. */
static void fill_scaled(rng_key k, int64_t count, double scale, double n, bool normal, float *w)
{
    double variance = scale / fmax(1, n), limit = sqrt(3 * variance);

    if (normal)
        fill_normal(k, count, 0, sqrt(variance) / CUT_DEVIATION, true, w);
    else
        fill_uniform(k, count, -limit, limit, w);
}

void initializer_fill(const manta_initializer *init, int ndim, const int64_t *shape, int64_t fan_in,
                      uint64_t seed, uint64_t stream, float *w)
{
    rng_key k = rng_sub(rng_make(seed, STREAM), stream);
    fans f = fans_of(ndim, shape, fan_in);
    int64_t n = 1;

    for (int i = 0; i < ndim; i++) n *= shape[i];
    double a = (double)init->a, b = (double)init->b, both = (f.in + f.out) / 2,
           limit = 1 / sqrt(fmax(1, f.in));

    switch (init->kind) {
    case MANTA_INIT_ZEROS: fill_constant(n, 0, w); break;
    case MANTA_INIT_ONES: fill_constant(n, 1, w); break;
    case MANTA_INIT_CONSTANT: fill_constant(n, init->a, w); break;
    case MANTA_INIT_UNIFORM: fill_uniform(k, n, a, b, w); break;
    case MANTA_INIT_NORMAL: fill_normal(k, n, a, b, false, w); break;
    case MANTA_INIT_TRUNCATED_NORMAL: fill_normal(k, n, a, b, true, w); break;
    case MANTA_INIT_DEFAULT:
    case MANTA_INIT_GLOROT_UNIFORM: fill_scaled(k, n, 1, both, false, w); break;
    case MANTA_INIT_GLOROT_NORMAL: fill_scaled(k, n, 1, both, true, w); break;
    case MANTA_INIT_HE_UNIFORM: fill_scaled(k, n, 2, f.in, false, w); break;
    case MANTA_INIT_HE_NORMAL: fill_scaled(k, n, 2, f.in, true, w); break;
    case MANTA_INIT_LECUN_UNIFORM: fill_scaled(k, n, 1, f.in, false, w); break;
    case MANTA_INIT_LECUN_NORMAL: fill_scaled(k, n, 1, f.in, true, w); break;
    case MANTA_INIT_TORCH: fill_uniform(k, n, -limit, limit, w); break;
    case MANTA_INIT_FAN_OUT_UNIFORM: fill_scaled(k, n, a, f.out, false, w); break;
    case MANTA_INIT_FAN_OUT_NORMAL: fill_scaled(k, n, a, f.out, true, w); break;
    }
}
