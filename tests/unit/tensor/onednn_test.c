/* onednn_test.c - oneDNN's products and convolutions against the reference:
 * close in value, and the same bytes for any number of threads. */
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
#include "tensor/kernel.h"

enum { GUARD = 16 };

static const kernels *ours, *theirs; /* the reference; oneDNN, NULL when it is not built */
static uint32_t random_state = 1;

static uint32_t random_u32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float *random_floats(int64_t n)
{
    float *v = mem_try((size_t)(n + GUARD) * sizeof *v);

    assert_non_null(v);
    for (int64_t i = 0; i < n + GUARD; i++) v[i] = (float)((double)random_u32() / (1 << 23) - 1.0);
    return v;
}

/* `near`: what rounding may make of a sum of so many products of numbers below 1. */
static void assert_close(const char *what, int64_t n, const float *want, const float *got, int64_t terms)
{
    const double near = 1e-6 * sqrt((double)terms + 1) * 4;

    for (int64_t i = 0; i < n; i++) {
        if (fabs((double)want[i] - (double)got[i]) <= near * fmax(1.0, fabs((double)want[i]))) continue;
        fail_msg("%s: element %d of %d is %.9g, the reference has %.9g", what, (int)i, (int)n, (double)got[i],
                 (double)want[i]);
    }
    assert_memory_equal(want + n, got + n, GUARD * sizeof *want);
}

static void assert_each_came_once(const gather *g)
{
    for (int64_t i = 0; i < g->n; i++) {
        if (g->times[i] != 1) fail_msg("element %d came %d times", (int)i, g->times[i]);
    }
}

static void check_product(int64_t m, int64_t n, int64_t k, uint32_t flags)
{
    const bool ta = flags & 1, tb = flags & 2, sink = flags & 64;
    float *a = random_floats(m * k), *b = random_floats(k * n), *c0 = random_floats(m * n);
    float *bias = random_floats(n), *mask = random_floats(m * n);
    float *want = random_floats(m * n), *got[MAX_THREADS + 1] = {NULL};
    gemm_call g = {.m = m, .n = n, .k = k, .ta = ta, .tb = tb, .a = a, .b = b, .ldc = n};

    g.lda = ta ? m : k;
    g.ldb = tb ? k : n;
    g.accumulate = flags & 4;
    g.bias = flags & 8 ? bias : NULL;
    g.relu = flags & 16;
    g.mask = flags & 32 ? mask : NULL;
    memcpy(want, c0, (size_t)(m * n + GUARD) * sizeof *want);
    g.c = want;
    ours->gemm(pools[1], &g);
    for (int t = 1; t <= MAX_THREADS; t++) {
        gather into = {.n = m * n, .times = mem_try((size_t)(m * n) + 1)};
        into.out = got[t] = random_floats(m * n);
        memcpy(got[t], c0, (size_t)(m * n + GUARD) * sizeof **got);
        g.c = sink ? c0 : got[t];
        g.sink = sink ? gather_sink : NULL;
        g.sink_ctx = &into;
        theirs->gemm(pools[t], &g);
        if (sink) assert_each_came_once(&into);
        assert_close("product", m * n, want, got[t], k);
        assert_memory_equal(got[1], got[t], (size_t)(m * n) * sizeof **got);
        mem_try_free(into.times);
    }
    for (int t = 1; t <= MAX_THREADS; t++) mem_try_free(got[t]);
    mem_try_free(a);
    mem_try_free(b);
    mem_try_free(c0);
    mem_try_free(bias);
    mem_try_free(mask);
    mem_try_free(want);
}

static void products_match_the_reference(void **state)
{
    (void)state;
    if (!theirs) {
        skip();
        return;
    }
    random_state = 3;
    for (uint32_t flags = 0; flags < 128; flags++) {
        check_product(1 + random_u32() % 90, 1 + random_u32() % 90, 1 + random_u32() % 90, flags);
    }
    check_product(64, 128, 1000, 24);
    check_product(1000, 128, 64, 1 | 64);
    check_product(64, 1000, 128, 2 | 32);
    check_product(3, 200000, 2, 64);
    check_product(5, 7, 0, 0);
    check_product(5, 7, 0, 4 | 8);
}

enum { FORWARD, DATA, WEIGHTS };

typedef struct conv_case {
    conv_call call;
    float *start; /* what the result holds before */
    int64_t n_out;
    int pass;
    bool sink;
} conv_case;

static void run_conv(const kernels *k, int threads, const conv_case *c, float *out)
{
    conv_call call = c->call;
    const size_t size = k->conv_work(&call.s, threads);
    gather into = {.out = out, .n = c->n_out, .times = mem_try((size_t)c->n_out + 1)};
    char *work = mem_try_raw(size + 64);

    assert_true(work && into.times);
    memset(work, 0x7f, size + 64);
    memcpy(out, c->start, (size_t)(c->n_out + GUARD) * sizeof *out);
    call.work = work;
    switch (c->pass) {
    case FORWARD:
        call.y = out;
        k->conv_forward(pools[threads], &call);
        break;
    case DATA:
        call.dx = out;
        k->conv_backward_data(pools[threads], &call);
        break;
    default:
        call.dw = c->sink ? c->start : out;
        call.sink = c->sink ? gather_sink : NULL;
        call.sink_ctx = &into;
        k->conv_backward_weights(pools[threads], &call);
        if (c->sink) assert_each_came_once(&into);
    }
    for (int i = 0; i < 64; i++) assert_int_equal(work[size + (size_t)i], 0x7f);
    mem_try_free(work);
    mem_try_free(into.times);
}

static void check_pass(const conv_case *c, int64_t terms)
{
    static const char *const names[] = {"forward", "data", "weights"};
    float *want = random_floats(c->n_out), *one = random_floats(c->n_out), *more = random_floats(c->n_out);

    run_conv(ours, 1, c, want);
    run_conv(theirs, 1, c, one);
    assert_close(names[c->pass], c->n_out, want, one, terms);
    for (int t = 2; t <= MAX_THREADS; t++) {
        run_conv(theirs, t, c, more);
        assert_memory_equal(one, more, (size_t)(c->n_out + GUARD) * sizeof *one);
    }
    mem_try_free(want);
    mem_try_free(one);
    mem_try_free(more);
}

static void check_conv(conv_shape s)
{
    const int64_t cg = s.c / s.groups, n_x = s.n * s.h * s.w * s.c, n_y = s.n * s.oh * s.ow * s.oc;
    const int64_t n_w = s.kh * s.kw * cg * s.oc, taps = s.kh * s.kw;
    float *x = random_floats(n_x), *w = random_floats(n_w), *dy = random_floats(n_y),
          *bias = random_floats(s.oc);
    float *mask = random_floats(n_x), *y0 = random_floats(n_y), *dx0 = random_floats(n_x),
          *dw0 = random_floats(n_w);
    conv_case c = {.call = {.s = s, .x = x, .w = w, .dy = dy}, .pass = FORWARD, .n_out = n_y, .start = y0};

    check_pass(&c, taps * cg);
    c.call.bias = bias;
    c.call.relu = true;
    check_pass(&c, taps * cg);
    c.call.bias = NULL;
    c.call.relu = false;

    c.pass = DATA;
    c.n_out = n_x;
    c.start = dx0;
    check_pass(&c, taps * s.oc / s.groups);
    c.call.accumulate = true;
    c.call.mask = mask;
    check_pass(&c, taps * s.oc / s.groups);
    c.call.accumulate = false;
    c.call.mask = NULL;

    c.pass = WEIGHTS;
    c.n_out = n_w;
    c.start = dw0;
    for (int i = 0; i < 4; i++) {
        c.call.accumulate = i & 1;
        c.sink = i & 2;
        check_pass(&c, s.n * s.oh * s.ow);
    }
    mem_try_free(x);
    mem_try_free(w);
    mem_try_free(dy);
    mem_try_free(bias);
    mem_try_free(mask);
    mem_try_free(y0);
    mem_try_free(dx0);
    mem_try_free(dw0);
}

static void convolutions_match_the_reference(void **state)
{
    /* n, in h w c, out h w c, kernel, stride, dilation, padding before, groups */
    static const conv_shape shapes[] = {
        {8, 12, 12, 1, 10, 10, 32, 3, 3, 1, 1, 1, 1, 0, 0, 1},
        {19, 9, 9, 1, 5, 5, 16, 7, 7, 2, 2, 1, 1, 3, 3, 1}, /* a last chunk that is shorter */
        {3, 7, 7, 64, 7, 7, 64, 3, 3, 1, 1, 1, 1, 1, 1, 1},
        {9, 7, 7, 16, 4, 4, 40, 3, 3, 2, 2, 1, 1, 1, 1, 1},
        {2, 1, 1, 96, 1, 1, 96, 3, 3, 1, 1, 1, 1, 1, 1, 1},
        {2, 11, 9, 5, 9, 7, 7, 3, 2, 1, 1, 1, 2, 0, 0, 1}, /* dilation */
        {3, 6, 6, 8, 7, 8, 12, 2, 3, 1, 1, 1, 1, 1, 2, 1}, /* padding after and before differ */
        {2, 9, 9, 12, 2, 2, 24, 2, 2, 4, 4, 1, 1, 0, 0, 1}, /* inputs that nothing sees */
        {2, 20, 20, 3, 3, 3, 4, 2, 2, 1, 1, 1, 1, 0, 0, 1}, /* many of them: oneDNN refuses */
        {2, 8, 8, 12, 8, 8, 18, 3, 3, 1, 1, 1, 1, 1, 1, 3}, /* groups */
        {3, 8, 8, 20, 8, 8, 20, 3, 3, 1, 1, 1, 1, 1, 1, 20},
        {1, 5, 5, 3, 3, 3, 4, 3, 3, 1, 1, 1, 1, 0, 0, 1},
    };
    (void)state;
    if (!theirs) {
        skip();
        return;
    }
    random_state = 5;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_conv(shapes[i]);
}

/* More shapes than are kept, twice: what was given up is made anew. */
static void more_shapes_than_are_kept(void **state)
{
    (void)state;
    if (!theirs) {
        skip();
        return;
    }
    random_state = 9;
    for (int round = 0; round < 2; round++) {
        for (int64_t i = 0; i < 50; i++) {
            conv_shape s = {2, 3 + i, 3, 2, 2 + i, 2, 3, 2, 2, 1, 1, 1, 1, 0, 0, 1};
            check_conv(s);
        }
    }
}

static void an_empty_batch(void **state)
{
    float nothing = 1, dw[8] = {1, 1, 1, 1, 1, 1, 1, 1};
    (void)state;

    if (!theirs) {
        skip();
        return;
    }
    conv_call c = {.s = {0, 3, 3, 1, 2, 2, 2, 2, 2, 1, 1, 1, 1, 0, 0, 1}};
    void *work = mem_try(theirs->conv_work(&c.s, 2) + 64);
    c.x = c.w = c.dy = c.y = c.dx = &nothing;
    c.dw = dw;
    c.work = work;
    theirs->conv_forward(pools[2], &c);
    theirs->conv_backward_data(pools[2], &c);
    theirs->conv_backward_weights(pools[2], &c);
    assert_true(nothing == 1.0f);
    for (int i = 0; i < 8; i++) assert_true(dw[i] == 0.0f);
    mem_try_free(work);
}

static int start(void **state)
{
    (void)state;
    ours = kernels_of(KERN_REFERENCE);
    theirs = kernels_of(KERN_ONEDNN);
    return pools_start();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_match_the_reference),
        cmocka_unit_test(convolutions_match_the_reference),
        cmocka_unit_test(more_shapes_than_are_kept),
        cmocka_unit_test(an_empty_batch),
    };

    return cmocka_run_group_tests(tests, start, pools_stop);
}
