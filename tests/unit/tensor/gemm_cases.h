/* gemm_cases.h - every family's matrix product, from one list of cases.
 *
 * The reference is held against a naive sum in double precision; our own
 * families must give the reference's bytes, for any number of threads, gaps
 * between rows included; oneDNN must come close. The includer defines OPERAND(x),
 * what the families make of a number that they multiply, and fills `families`,
 * the reference first. */
#ifndef TESTS_TENSOR_GEMM_CASES_H
#define TESTS_TENSOR_GEMM_CASES_H

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
#include "tensor/gemm.h"

typedef void gemm_fn(pool *p, const gemm_call *g);

typedef void pair_fn(pool *p, const gemm_call *first, const gemm_call *second);

typedef struct family {
    const char *name;
    gemm_fn *gemm;
    pair_fn *pair;
    bool exact; /* the reference's bytes */
} family;

static family families[4];
static int n_families;
static bool rounds; /* the families round their results when they are told to */
static int random_count = 400;

typedef struct gemm_case {
    int64_t m, n, k;
    bool ta, tb;
    int64_t gap_a, gap_b, gap_c; /* floats between rows */
    bool accumulate, bias, relu, mask, sink, round;
} gemm_case;

static uint32_t random_state;

static uint32_t random_u32(void)
{
    random_state = random_state * 1664525u + 1013904223u;
    return random_state >> 8;
}

static float *random_floats(int64_t n)
{
    float *v = mem_try((size_t)(n + 1) * sizeof *v);

    assert_non_null(v);
    for (int64_t i = 0; i < n; i++) v[i] = (float)((double)random_u32() / (1 << 23) - 1.0);
    return v;
}

static void describe(const gemm_case *c, const char *who, int threads)
{
    print_error("%s, %d threads: m %d n %d k %d ta %d tb %d gaps %d %d %d acc %d bias %d relu %d mask %d "
                "sink %d round %d\n",
                who, threads, (int)c->m, (int)c->n, (int)c->k, c->ta, c->tb, (int)c->gap_a, (int)c->gap_b,
                (int)c->gap_c, c->accumulate, c->bias, c->relu, c->mask, c->sink, c->round);
}

/* What the element should be near, and how near. */
static double naive(const gemm_call *g, const float *c0, int64_t i, int64_t j, double *near)
{
    double sum = g->accumulate ? (double)c0[i * g->ldc + j] : 0.0, size = fabs(sum);

    for (int64_t p = 0; p < g->k; p++) {
        const double a = (double)OPERAND(g->ta ? g->a[p * g->lda + i] : g->a[i * g->lda + p]);
        const double b = (double)OPERAND(g->tb ? g->b[j * g->ldb + p] : g->b[p * g->ldb + j]);
        sum += a * b;
        size += fabs(a * b);
    }
    if (g->bias) {
        sum += (double)g->bias[j];
        size += fabs((double)g->bias[j]);
    }
    *near = size * (double)(g->k + 2) * (double)FLT_EPSILON + 1e-30;
    if (g->round) *near += fabs(sum) * 0x1p-8;
    if (g->relu && sum < 0) sum = 0;
    if (g->mask && g->mask[i * g->ldc + j] <= 0.0f) sum = 0;
    return sum;
}

static void assert_near(const gemm_case *c, const gemm_call *g, const float *c0, const float *out, int64_t ld,
                        const char *who, double slack)
{
    for (int64_t i = 0; i < c->m; i++) {
        for (int64_t j = 0; j < c->n; j++) {
            double near;
            const double want = naive(g, c0, i, j, &near), got = (double)out[i * ld + j];
            if (fabs(want - got) <= slack * near) continue;
            describe(c, who, 1);
            fail_msg("(%d, %d) is %.9g, should be %.9g", (int)i, (int)j, got, want);
        }
    }
}

static void run_case(const gemm_case *c)
{
    const int64_t lda = (c->ta ? c->m : c->k) + c->gap_a, ldb = (c->tb ? c->k : c->n) + c->gap_b;
    const int64_t ldc = c->n + (c->sink ? 0 : c->gap_c), n_c = c->m * ldc;
    float *a = random_floats(lda * (c->ta ? c->k : c->m)), *b = random_floats(ldb * (c->tb ? c->n : c->k));
    float *c0 = random_floats(n_c), *bias = random_floats(c->n), *mask = random_floats(n_c);
    float *want = random_floats(n_c), *got = random_floats(n_c);
    uint8_t *times = mem_try((size_t)n_c + 1);
    const size_t size = (size_t)n_c * sizeof *c0;

    assert_non_null(times);
    gemm_call g = {.m = c->m,
                   .n = c->n,
                   .k = c->k,
                   .ta = c->ta,
                   .tb = c->tb,
                   .a = a,
                   .lda = lda,
                   .b = b,
                   .ldb = ldb,
                   .ldc = ldc,
                   .accumulate = c->accumulate,
                   .relu = c->relu,
                   .round = rounds && c->round && !c->sink};
    if (c->bias) g.bias = bias;
    if (c->mask) g.mask = mask;
    if (c->sink) g.sink = gather_sink;

    for (int f = 0; f < n_families; f++) {
        for (int threads = 1; threads <= MAX_THREADS; threads++) {
            if (rounds && f == 0 && threads > 1 && c->m * c->n * c->k > 10000)
                continue; /* slow, and so plain */
            float *out = f == 0 && threads == 1 ? want : got;
            gather into = {.out = out, .n = n_c, .times = times};
            float *c_in = random_floats(n_c);
            memcpy(out, c0, size);
            memcpy(c_in, c0, size);
            memset(times, 0, (size_t)n_c);
            g.c = !c->sink ? out : c->accumulate ? c_in : NULL;
            g.sink_ctx = &into;
            families[f].gemm(pools[threads], &g);
            if (memcmp(c_in, c0, size) != 0) fail_msg("%s writes to C in spite of a sink", families[f].name);
            mem_try_free(c_in);
            for (int64_t i = 0; c->sink && i < n_c; i++) {
                if (times[i] == 1) continue;
                describe(c, families[f].name, threads);
                fail_msg("element %d came %d times", (int)i, times[i]);
            }
            if (f == 0 && threads == 1) {
                assert_near(c, &g, c0, out, ldc, families[f].name, 1.0);
            } else if (!families[f].exact) {
                assert_near(c, &g, c0, out, ldc, families[f].name, 4.0);
            } else if (memcmp(want, out, size) != 0) {
                describe(c, families[f].name, threads);
                fail_msg("bytes differ from the reference's");
            }
        }
    }
    mem_try_free(a);
    mem_try_free(b);
    mem_try_free(c0);
    mem_try_free(bias);
    mem_try_free(mask);
    mem_try_free(want);
    mem_try_free(got);
    mem_try_free(times);
}

static void tails_of_every_kind(void **state)
{
    (void)state;
    random_state = 7;
    for (int i = 0; i < random_count; i++) {
        const uint32_t flags = random_u32();
        gemm_case c = {.m = 1 + random_u32() % 70, .n = 1 + random_u32() % 70, .k = 1 + random_u32() % 70};
        c.ta = flags & 1;
        c.tb = flags & 2;
        c.accumulate = flags & 4;
        c.bias = flags & 8;
        c.relu = flags & 16;
        c.mask = flags & 32;
        c.sink = flags & 64;
        c.round = flags & 1024;
        c.gap_a = flags & 128 ? random_u32() % 9 : 0;
        c.gap_b = flags & 256 ? random_u32() % 9 : 0;
        c.gap_c = flags & 512 ? random_u32() % 9 : 0;
        run_case(&c);
    }
}

static void every_row_and_column_count(void **state)
{
    (void)state;
    random_state = 11;
    for (int64_t m = 1; m <= 30; m++) run_case(&(gemm_case){.m = m, .n = 33, .k = 5, .bias = true});
    for (int64_t n = 1; n <= 132; n++)
        run_case(&(gemm_case){.m = 15, .n = n, .k = 3, .gap_c = 3, .relu = true});
    for (int64_t k = 1; k <= 33; k++)
        run_case(&(gemm_case){.m = 9, .n = 20, .k = k, .tb = true, .mask = true});
}

static void blocks_and_tiles(void **state)
{
    static const gemm_case cases[] = {
        {.m = 3, .n = 5, .k = 0}, /* an empty sum */
        {.m = 3, .n = 5, .k = 0, .accumulate = true, .bias = true},
        {.m = 7, .n = 70, .k = 600}, /* three blocks of k */
        {.m = 7, .n = 70, .k = 600, .tb = true, .accumulate = true, .bias = true, .relu = true, .mask = true},
        {.m = 20, .n = 70, .k = 513, .ta = true, .sink = true, .bias = true, .relu = true},
        {.m = 600, .n = 40, .k = 9}, /* several tiles of rows */
        {.m = 600, .n = 40, .k = 9, .ta = true, .sink = true, .accumulate = true, .mask = true},
        {.m = 5, .n = 1100, .k = 17, .tb = true, .mask = true}, /* several tiles of columns */
        {.m = 70, .n = 260, .k = 512}, /* rows that share cache sets: A is copied */
        {.m = 70, .n = 260, .k = 300, .gap_a = 212},
        {.m = 130, .n = 140, .k = 70, .ta = true, .gap_a = 3},
        {.m = 2, .n = 20000, .k = 3, .sink = true}, /* rows longer than a tile */
        {.m = 2, .n = 20000, .k = 3, .sink = true, .accumulate = true, .mask = true},
        {.m = 64, .n = 10, .k = 128, .bias = true},
        {.m = 128, .n = 10, .k = 64, .ta = true, .sink = true},
        {.m = 64, .n = 128, .k = 1000, .bias = true, .relu = true},
        {.m = 1000, .n = 128, .k = 64, .ta = true, .sink = true},
        {.m = 64, .n = 1000, .k = 128, .tb = true, .mask = true},
        {.m = 1, .n = 1, .k = 4000},
        {.m = 60, .n = 17600, .k = 2, .tb = true, .mask = true}, /* written past the caches */
        {.m = 60, .n = 17589, .k = 2, .gap_c = 11, .relu = true},
        {.m = 60, .n = 17589, .k = 2},
        {.m = 30, .n = 70, .k = 510, .bias = true, .round = true}, /* around a block of pairs */
        {.m = 30, .n = 70, .k = 512, .tb = true, .mask = true, .round = true},
        {.m = 30, .n = 70, .k = 513, .ta = true, .accumulate = true, .round = true},
        {.m = 300, .n = 66, .k = 515, .ta = true, .tb = true, .gap_a = 1},
        {.m = 3, .n = 4, .k = 8193, .round = true},
        {.m = 60, .n = 17600, .k = 3, .relu = true, .round = true},
    };
    (void)state;

    random_state = 13;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) run_case(&cases[i]);
}

/* ---- two products that share a weight ---- */

/* Takes the gradient and changes the weight, as an optimizer does. */
typedef struct descent {
    float *w, *gradient;
    int64_t n;
} descent;

static void descend(void *ctx, int64_t first, int64_t n, const float *v)
{
    descent *d = ctx;

    if (first < 0 || n < 0 || first + n > d->n) abort();
    for (int64_t i = 0; i < n; i++) {
        d->gradient[first + i] = v[i];
        d->w[first + i] -= 0.5f * v[i];
    }
}

typedef struct pair_case {
    int64_t batch, in, out; /* of a dense layer */
    bool sink, accumulate, mask;
} pair_case;

typedef struct pair_arrays {
    float *x, *w, *dy, *dx, *dw;
} pair_arrays;

static pair_arrays pair_inputs(const pair_case *c)
{
    random_state = 17;
    return (pair_arrays){random_floats(c->batch * c->in), random_floats(c->in * c->out),
                         random_floats(c->batch * c->out), random_floats(c->batch * c->in),
                         random_floats(c->in * c->out)};
}

static void pair_free(pair_arrays *v)
{
    mem_try_free(v->x);
    mem_try_free(v->w);
    mem_try_free(v->dy);
    mem_try_free(v->dx);
    mem_try_free(v->dw);
}

/* As two products when `f` is NULL, by the reference. */
static void pair_run(const pair_case *c, const family *f, int threads, pair_arrays *v)
{
    descent d = {v->w, v->dw, c->in * c->out};
    gemm_call dx = {.m = c->batch, .n = c->in, .k = c->out, .tb = true};
    gemm_call dw = {.m = c->in, .n = c->out, .k = c->batch, .ta = true};

    dx.a = dw.b = v->dy;
    dx.lda = dw.ldb = dw.ldc = dx.ldb = c->out;
    dx.b = v->w;
    dx.c = v->dx;
    dx.ldc = dw.lda = c->in;
    dx.mask = c->mask ? v->x : NULL;
    dx.accumulate = c->accumulate;
    dw.a = v->x;
    dw.accumulate = c->accumulate && !c->sink;
    dw.c = c->sink ? NULL : v->dw;
    dw.sink = c->sink ? descend : NULL;
    dw.sink_ctx = &d;
    if (f) {
        f->pair(pools[threads], &dx, &dw);
    } else {
        families[0].gemm(pools[threads], &dx);
        families[0].gemm(pools[threads], &dw);
    }
}

static void a_pair_is_two_products(void **state)
{
    static const pair_case cases[] = {
        {.batch = 1, .in = 1, .out = 1},
        {.batch = 5, .in = 300, .out = 7, .sink = true, .mask = true},
        {.batch = 64, .in = 1000, .out = 128, .sink = true, .mask = true},
        {.batch = 64, .in = 129, .out = 128, .accumulate = true},
        {.batch = 33, .in = 257, .out = 600, .sink = true, .accumulate = true}, /* tiles of columns */
        {.batch = 300, .in = 200, .out = 20, .sink = true, .mask = true}, /* tiles of rows, blocks of k */
        {.batch = 64, .in = 16400, .out = 3, .sink = true, .mask = true}, /* past the caches */
        {.batch = 2, .in = 31, .out = 1100, .mask = true, .accumulate = true},
    };
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const pair_case *c = &cases[i];
        const size_t size_x = (size_t)(c->batch * c->in) * sizeof(float);
        const size_t size_w = (size_t)(c->in * c->out) * sizeof(float);
        pair_arrays want = pair_inputs(c);
        pair_run(c, NULL, 1, &want);
        for (int f = 0; f < n_families; f++) {
            for (int threads = 1; threads <= MAX_THREADS; threads++) {
                pair_arrays got = pair_inputs(c);
                pair_run(c, &families[f], threads, &got);
                assert_memory_equal(got.dx, want.dx, size_x);
                assert_memory_equal(got.dw, want.dw, size_w);
                assert_memory_equal(got.w, want.w, size_w);
                pair_free(&got);
            }
        }
        pair_free(&want);
    }
}

static void nothing_to_do(void **state)
{
    float one = 1;
    (void)state;

    for (int f = 0; f < n_families; f++) {
        gemm_call g = {.m = 0, .n = 4, .k = 4, .lda = 4, .ldb = 4, .ldc = 4, .a = &one, .b = &one, .c = &one};
        families[f].gemm(pools[2], &g);
        g.m = 1;
        g.n = 0;
        families[f].gemm(pools[2], &g);
        assert_true(one == 1.0f);
    }
}

/* A NaN must come through, or training would go on with numbers that are not. */
static void nan_survives_relu_and_reaches_every_family(void **state)
{
    const float a[4] = {1, NAN, 2, 3}, b[4] = {1, 2, 3, 4};
    (void)state;

    for (int f = 0; f < n_families; f++) {
        float c[4] = {0, 0, 0, 0};
        gemm_call g = {
            .m = 2, .n = 2, .k = 2, .lda = 2, .ldb = 2, .ldc = 2, .a = a, .b = b, .c = c, .relu = true};
        families[f].gemm(pools[1], &g);
        assert_true(isnan(c[0]) && isnan(c[1]));
        assert_true(c[2] == 11.0f && c[3] == 16.0f);
    }
}

#endif
