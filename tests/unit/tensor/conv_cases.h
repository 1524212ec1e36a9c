/* conv_cases.h - every family's convolutions, from one list of cases.
 *
 * The reference is held against naive sums in double precision and against the
 * identity that defines a gradient of something linear,
 *     <dy, conv(x, w)> = <dx, x> = <dw, w>,
 * and our own families must give the reference's bytes for any number of
 * threads. The includer defines OPERAND(x), what the families make of a number
 * that they multiply, and fills `families`, the reference first. */
#ifndef TESTS_TENSOR_CONV_CASES_H
#define TESTS_TENSOR_CONV_CASES_H

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gather.h"
#include "pools.h"
#include "tensor/conv.h"

typedef struct family {
    const char *name;
    void (*forward)(pool *p, const conv_call *c);
    void (*data)(pool *p, const conv_call *c);
    void (*weights)(pool *p, const conv_call *c);
    size_t (*work)(const conv_shape *s, int threads);
} family;

enum { GUARD = 16 };

static family families[3];
static int n_families;
static bool rounds; /* the families round their results when they are told to */
static int64_t most_steps =
    INT64_MAX; /* shapes of longer sums are left out: the reference takes them one by one */
static int random_count = 150;
static uint32_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static int64_t random_in(int64_t lo, int64_t hi)
{
    return lo + (int64_t)(random_u32() % (uint32_t)(hi - lo + 1));
}

static float *random_floats(int64_t n)
{
    float *v = mem_try((size_t)(n + GUARD) * sizeof *v);

    assert_non_null(v);
    for (int64_t i = 0; i < n + GUARD; i++) v[i] = (float)((double)random_u32() / (1 << 23) - 1.0);
    return v;
}

/* The tensors of one case, and what the reference makes of them. */
typedef struct conv_case {
    conv_shape s;
    int64_t n_x, n_y, n_w;
    float *x, *w, *dy, *bias, *mask, *dx0, *dw0;
    uint8_t *times;
} conv_case;

typedef struct flags {
    bool bias, relu, mask, accumulate, sink, round;
} flags;

static void describe(const conv_case *c, const char *who, int threads, flags f)
{
    const conv_shape *s = &c->s;

    print_error(
        "%s, %d threads: n %d in %dx%dx%d out %dx%dx%d kernel %dx%d stride %d %d dilation %d %d pad %d %d "
        "groups %d; bias %d relu %d mask %d acc %d sink %d round %d\n",
        who, threads, (int)s->n, (int)s->h, (int)s->w, (int)s->c, (int)s->oh, (int)s->ow, (int)s->oc,
        (int)s->kh, (int)s->kw, (int)s->sh, (int)s->sw, (int)s->dh, (int)s->dw, (int)s->top, (int)s->left,
        (int)s->groups, f.bias, f.relu, f.mask, f.accumulate, f.sink, f.round);
}

enum { FORWARD, DATA, WEIGHTS };

/* Runs one pass into out, which has `n` elements and a guard behind them. */
static void run(const family *f, int threads, const conv_case *c, int pass, flags fl, float *out)
{
    conv_call call = {.s = c->s,
                      .x = c->x,
                      .w = c->w,
                      .dy = c->dy,
                      .accumulate = fl.accumulate,
                      .relu = fl.relu,
                      .round = fl.round};
    const size_t size = f->work(&c->s, threads);
    gather into = {.out = out, .n = c->n_w, .times = c->times};
    char *work = mem_try_raw(size + 64);

    assert_non_null(work);
    memset(work, 0x7f, size + 64); /* what was there before must not matter */
    call.work = work;
    if (fl.bias) call.bias = c->bias;
    if (fl.mask) call.mask = c->mask;
    switch (pass) {
    case FORWARD:
        call.y = out;
        f->forward(pools[threads], &call);
        break;
    case DATA:
        memcpy(out, c->dx0, (size_t)(c->n_x + GUARD) * sizeof *out);
        call.dx = out;
        f->data(pools[threads], &call);
        break;
    default:
        memcpy(out, c->dw0, (size_t)(c->n_w + GUARD) * sizeof *out);
        call.dw = !fl.sink ? out : fl.accumulate ? c->dw0 : NULL;
        if (fl.sink) call.sink = gather_sink;
        call.sink_ctx = &into;
        memset(c->times, 0, (size_t)c->n_w);
        f->weights(pools[threads], &call);
        for (int64_t i = 0; fl.sink && i < c->n_w; i++) {
            if (c->times[i] != 1) {
                describe(c, f->name, threads, fl);
                fail_msg("weight %d came %d times", (int)i, c->times[i]);
            }
        }
    }
    for (int i = 0; i < 64; i++) assert_int_equal(work[size + (size_t)i], 0x7f);
    mem_try_free(work);
}

static bool same_bits(float a, float b)
{
    uint32_t x, y;

    memcpy(&x, &a, sizeof x);
    memcpy(&y, &b, sizeof y);
    return x == y;
}

static int64_t steps_of(const conv_shape *s)
{
    return s->n * s->oh * s->ow * s->oc * s->kh * s->kw * (s->c / s->groups);
}

static void same_bytes(const conv_case *c, int pass, flags fl)
{
    static const char *const names[] = {"forward", "data", "weights"};
    const int64_t n = pass == FORWARD ? c->n_y : pass == DATA ? c->n_x : c->n_w;
    float *want = random_floats(n), *got = random_floats(n);

    memcpy(got, want, (size_t)(n + GUARD) * sizeof *got);
    run(&families[0], 1, c, pass, fl, want);
    for (int f = 0; f < n_families; f++) {
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            /* The reference takes its steps one by one, most of the test's time: once more, divided, is enough. */
            if (f == 0 && (threads < MAX_THREADS || steps_of(&c->s) > most_steps / 20)) continue;
            run(&families[f], threads, c, pass, fl, got);
            for (int64_t i = 0; i < n + GUARD; i++) {
                if (same_bits(got[i], want[i])) continue;
                describe(c, families[f].name, threads, fl);
                fail_msg("%s: element %d of %d is %.9g, the reference has %.9g", names[pass], (int)i, (int)n,
                         (double)got[i], (double)want[i]);
            }
        }
    }
    mem_try_free(want);
    mem_try_free(got);
}

/* y in double precision, and the sizes that rounding errors scale with. */
static void naive_forward(const conv_case *c, double *y, double *size)
{
    const conv_shape *s = &c->s;
    const int64_t cg = s->c / s->groups, ocg = s->oc / s->groups;

    for (int64_t i = 0; i < c->n_y; i++) {
        const int64_t o = i % s->oc, ow = i / s->oc % s->ow, oh = i / s->oc / s->ow % s->oh;
        const int64_t n = i / s->oc / s->ow / s->oh;
        y[i] = size[i] = 0;
        for (int64_t k = 0; k < s->kh * s->kw * cg; k++) {
            const int64_t ih = oh * s->sh + k / cg / s->kw * s->dh - s->top;
            const int64_t iw = ow * s->sw + k / cg % s->kw * s->dw - s->left;
            if (ih < 0 || ih >= s->h || iw < 0 || iw >= s->w) continue;
            const int64_t at = ((n * s->h + ih) * s->w + iw) * s->c + o / ocg * cg + k % cg;
            const double product = (double)OPERAND(c->x[at]) * (double)OPERAND(c->w[k * s->oc + o]);
            y[i] += product;
            size[i] += fabs(product);
        }
    }
}

static double dot(int64_t n, const float *a, const float *b, double *size)
{
    double sum = 0;

    *size = 0;
    for (int64_t i = 0; i < n; i++) {
        const double product = (double)OPERAND(a[i]) * (double)b[i];
        sum += product;
        *size += fabs(product);
    }
    return sum;
}

static void reference_is_right(const conv_case *c)
{
    const flags none = {0};
    const double terms = (double)(c->s.kh * c->s.kw * c->s.c + 4);
    double *want = mem_try((size_t)(c->n_y + 1) * sizeof *want),
           *size = mem_try((size_t)(c->n_y + 1) * sizeof *size);
    float *y = random_floats(c->n_y), *dx = random_floats(c->n_x), *dw = random_floats(c->n_w);

    assert_true(want && size);
    naive_forward(c, want, size);
    run(&families[0], 1, c, FORWARD, none, y);
    for (int64_t i = 0; i < c->n_y; i++) {
        if (fabs((double)y[i] - want[i]) <= terms * (double)FLT_EPSILON * size[i]) continue;
        describe(c, "reference", 1, none);
        fail_msg("y[%d] is %.9g, should be %.9g", (int)i, (double)y[i], want[i]);
    }
    run(&families[0], 1, c, DATA, none, dx);
    run(&families[0], 1, c, WEIGHTS, none, dw);
    double a, b, d;
    const double through_y = dot(c->n_y, c->dy, y, &a), through_x = dot(c->n_x, c->x, dx, &b);
    const double through_w = dot(c->n_w, c->w, dw, &d), near = 1e-5 * (a + b + d) + 1e-30;
    if (fabs(through_y - through_x) > near || fabs(through_y - through_w) > near) {
        describe(c, "reference", 1, none);
        fail_msg("<dy, y> = %.9g, <dx, x> = %.9g, <dw, w> = %.9g", through_y, through_x, through_w);
    }
    mem_try_free(want);
    mem_try_free(size);
    mem_try_free(y);
    mem_try_free(dx);
    mem_try_free(dw);
}

static void check(conv_shape s)
{
    conv_case c = {.s = s};

    c.n_x = s.n * s.h * s.w * s.c;
    c.n_y = s.n * s.oh * s.ow * s.oc;
    c.n_w = s.kh * s.kw * (s.c / s.groups) * s.oc;
    c.x = random_floats(c.n_x);
    c.w = random_floats(c.n_w);
    c.dy = random_floats(c.n_y);
    c.bias = random_floats(s.oc);
    c.mask = random_floats(c.n_x);
    c.dx0 = random_floats(c.n_x);
    c.dw0 = random_floats(c.n_w);
    c.times = mem_try((size_t)c.n_w + 1);
    assert_non_null(c.times);
    reference_is_right(&c);
    same_bytes(&c, FORWARD, (flags){0});
    same_bytes(&c, FORWARD, (flags){.bias = true, .relu = true});
    same_bytes(&c, DATA, (flags){0});
    same_bytes(&c, DATA, (flags){.mask = true, .accumulate = true});
    same_bytes(&c, WEIGHTS, (flags){0});
    same_bytes(&c, WEIGHTS, (flags){.accumulate = true});
    same_bytes(&c, WEIGHTS, (flags){.sink = true});
    same_bytes(&c, WEIGHTS, (flags){.sink = true, .accumulate = true});
    if (rounds) {
        same_bytes(&c, FORWARD, (flags){.round = true});
        same_bytes(&c, FORWARD, (flags){.bias = true, .relu = true, .round = true});
        same_bytes(&c, DATA, (flags){.round = true});
        same_bytes(&c, DATA, (flags){.mask = true, .accumulate = true, .round = true});
    }
    mem_try_free(c.x);
    mem_try_free(c.w);
    mem_try_free(c.dy);
    mem_try_free(c.bias);
    mem_try_free(c.mask);
    mem_try_free(c.dx0);
    mem_try_free(c.dw0);
    mem_try_free(c.times);
}

/* n, in h w c, out h w c, kernel, stride, dilation, padding before, groups */
static const conv_shape shapes[] = {
    {2, 28, 28, 1, 26, 26, 32, 3, 3, 1, 1, 1, 1, 0, 0, 1}, /* mnist-cnn */
    {3, 28, 28, 1, 14, 14, 64, 7, 7, 2, 2, 1, 1, 3, 3, 1}, /* resnet18, the stem and on */
    {9, 7, 7, 16, 7, 7, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1},
    {5, 7, 7, 16, 4, 4, 40, 3, 3, 2, 2, 1, 1, 1, 1, 1},
    {5, 7, 7, 16, 4, 4, 40, 1, 1, 2, 2, 1, 1, 0, 0, 1},
    {7, 4, 4, 128, 4, 4, 70, 3, 3, 1, 1, 1, 1, 1, 1, 1}, /* several blocks of taps */
    {6, 2, 2, 33, 1, 1, 130, 3, 3, 2, 2, 1, 1, 1, 1, 1},
    {5, 1, 1, 100, 1, 1, 90, 3, 3, 1, 1, 1, 1, 1, 1, 1}, /* only the centre sees data */
    {2, 1, 1, 700, 1, 1, 64, 1, 1, 1, 1, 1, 1, 0, 0, 1}, /* one tap in several blocks */
    {2, 3, 3, 650, 3, 3, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1},
    {1, 20, 20, 3, 20, 20, 17, 3, 3, 1, 1, 1, 1, 1, 1, 1}, /* one sample, colour */
    {33, 9, 9, 3, 5, 5, 8, 3, 3, 2, 2, 1, 1, 1, 1, 1},
    {2, 12, 12, 9, 12, 12, 20, 3, 3, 1, 1, 1, 1, 1, 1, 1}, /* a large map of many channels */
    {2, 12, 30, 9, 10, 13, 20, 3, 4, 1, 2, 1, 2, 0, 1, 1},
    {2, 15, 11, 4, 9, 7, 6, 3, 3, 1, 1, 3, 2, 0, 0, 1}, /* dilation */
    {2, 15, 11, 1, 15, 11, 6, 3, 3, 1, 1, 3, 2, 3, 2, 1},
    {3, 6, 6, 8, 7, 8, 12, 2, 3, 1, 1, 1, 1, 1, 2, 1}, /* padding after and before differ */
    {2, 5, 5, 3, 9, 9, 4, 2, 2, 1, 1, 1, 1, 3, 3, 1}, /* outputs that see nothing */
    {2, 5, 5, 9, 9, 9, 20, 2, 2, 1, 1, 1, 1, 3, 3, 1},
    {2, 9, 9, 3, 2, 2, 4, 2, 2, 4, 4, 1, 1, 0, 0, 1}, /* inputs that nothing sees */
    {2, 9, 9, 12, 2, 2, 24, 2, 2, 4, 4, 1, 1, 0, 0, 1},
    {2, 8, 8, 12, 8, 8, 18, 3, 3, 1, 1, 1, 1, 1, 1, 3}, /* groups */
    {2, 4, 4, 48, 4, 4, 48, 3, 3, 1, 1, 1, 1, 1, 1, 3},
    {2, 11, 11, 20, 11, 11, 40, 3, 3, 1, 1, 1, 1, 1, 1, 2},
    {2, 8, 8, 6, 8, 8, 12, 3, 3, 1, 1, 1, 1, 1, 1, 6}, /* depthwise, two outputs a channel */
    {3, 8, 8, 70, 8, 8, 70, 3, 3, 1, 1, 1, 1, 1, 1, 70}, /* depthwise */
    {2, 9, 9, 21, 5, 4, 21, 3, 3, 2, 2, 1, 1, 1, 0, 21},
    {3, 20, 21, 130, 20, 21, 130, 5, 5, 1, 1, 1, 1, 2, 2, 130},
    {2, 24, 25, 35, 12, 13, 35, 3, 3, 2, 2, 1, 1, 0, 1, 35},
    {2, 20, 20, 33, 20, 20, 33, 3, 3, 1, 1, 2, 2, 2, 2, 33},
    {1, 5, 5, 1030, 5, 5, 1030, 3, 3, 1, 1, 1, 1, 1, 1, 1030},
    {2, 16, 16, 5, 16, 16, 5, 12, 12, 1, 1, 1, 1, 6, 6, 5}, /* more taps than a list of segments */
    {1, 16, 16, 9, 16, 16, 3, 12, 12, 1, 1, 1, 1, 6, 6, 1},
    {1, 2, 800, 9, 2, 800, 10, 1, 3, 1, 1, 1, 1, 0, 1, 1}, /* lines longer than a block */
    {1, 2, 800, 2, 2, 800, 10, 1, 3, 1, 1, 1, 1, 0, 1, 1},
    {600, 2, 2, 8, 2, 2, 16, 1, 1, 1, 1, 1, 1, 0, 0, 1}, /* more samples than a block */
    {1, 3, 3, 2, 2, 2, 131100, 2, 2, 1, 1, 1, 1, 0, 0, 1}, /* rows of the weight that fill no scratch */
    {1, 128, 128, 1, 128, 128, 64, 1, 1, 1, 1, 1, 1, 0, 0, 1}, /* results written past the caches */
};

static void listed_shapes(void **state)
{
    (void)state;
    random_state = 5;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        if (steps_of(&shapes[i]) <= most_steps) check(shapes[i]);
    }
}

static void random_shapes(void **state)
{
    (void)state;
    random_state = 17;
    for (int i = 0; i < random_count; i++) {
        conv_shape s = {.n = random_in(1, 5), .h = random_in(1, 12), .w = random_in(1, 12)};
        const int64_t cg = random_in(1, 12), ocg = random_in(1, 40);
        s.groups = i % 4 == 0 ? random_in(1, 4) : 1;
        s.c = cg * s.groups;
        s.oc = i % 16 == 0 ? s.c : ocg * s.groups;
        s.kh = random_in(1, 4);
        s.kw = random_in(1, 4);
        s.sh = random_in(1, 3);
        s.sw = random_in(1, 3);
        s.dh = random_in(1, 2);
        s.dw = random_in(1, 2);
        s.top = random_in(0, 3);
        s.left = random_in(0, 3);
        s.oh = random_in(1, 12);
        s.ow = random_in(1, 12);
        check(s);
    }
}

static void an_empty_batch_clears_the_gradient(void **state)
{
    (void)state;
    for (int f = 0; f < n_families; f++) {
        conv_call c = {.s = {0, 5, 5, 2, 3, 3, 4, 3, 3, 1, 1, 1, 1, 0, 0, 1}};
        float dw[72], nothing = 1;
        void *work = mem_try(families[f].work(&c.s, 2) + 64);
        for (int i = 0; i < 72; i++) dw[i] = 1;
        c.x = c.w = c.dy = &nothing;
        c.y = c.dx = &nothing;
        c.dw = dw;
        c.work = work;
        families[f].forward(pools[2], &c);
        families[f].data(pools[2], &c);
        families[f].weights(pools[2], &c);
        assert_true(nothing == 1.0f);
        for (int i = 0; i < 72; i++) assert_true(dw[i] == 0.0f);
        mem_try_free(work);
    }
}

#endif
