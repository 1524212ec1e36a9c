/* kernels.c - times the matrix products and convolutions of every family on
 * the shapes that decide (mnist-cnn and resnet18 on 28x28, batch 64).
 *
 *     bench_kernels [--threads N] [--match TEXT] [--ms MILLISECONDS] [--clock cpu|wall]
 *
 * With --clock cpu it is the calling thread's processor time that counts: for
 * --threads 1 on a machine that others use too.
 *
 * Each line: shape, then for each family the best time and its rate, then what
 * share of the machine's best matrix product the rate is. Rates count the
 * multiplications a tap on padding would take as not done. Every result is
 * compared with the first family's before it is timed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "os/cpu.h"
#include "os/pool.h"
#include "tensor/kernel.h"

static const kernels *families[KERN_FAMILIES];
static int n_families;
static double budget_ms = 60;
static const char *match = "";
static double peak; /* GFLOP/s of the best product so far */

static clockid_t stopwatch = CLOCK_MONOTONIC;

static double now_ms(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static float *floats(int64_t n, uint32_t seed)
{
    float *v = mem_try((size_t)n * sizeof *v + 64);

    if (!v) abort();
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        v[i] = (float)(int32_t)seed * (1.0f / 2147483648.0f);
    }
    return v;
}

/* The reference is left out: it defines results, not rates. */
static void add_families(void)
{
    static const kern_family order[] = {KERN_AVX512, KERN_AVX2, KERN_ONEDNN};

    for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
        const kernels *k = kernels_of(order[i]);
        if (k) families[n_families++] = k;
    }
}

/* Largest difference, relative to the largest value. */
static double difference(int64_t n, const float *a, const float *b)
{
    double most = 0, scale = 1e-30;

    for (int64_t i = 0; i < n; i++) {
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
        scale = fmax(scale, fabs((double)a[i]));
    }
    return most / scale;
}

typedef void run_fn(const kernels *k, pool *p, void *ctx);

static double best_ms(const kernels *k, pool *p, run_fn *run, void *ctx)
{
    double best = 1e30, end = now_ms(CLOCK_MONOTONIC) + budget_ms;

    run(k, p, ctx);
    do {
        const double t0 = now_ms(stopwatch);
        run(k, p, ctx);
        best = fmin(best, now_ms(stopwatch) - t0);
    } while (now_ms(CLOCK_MONOTONIC) < end);
    return best;
}

static void line(const char *what, pool *p, run_fn *run, void *ctx, double flop, int64_t n_out, float *out)
{
    if (!strstr(what, match)) return;
    float *first = NULL;
    printf("%-44s", what);
    for (int i = 0; i < n_families; i++) {
        memset(out, 0, (size_t)n_out * sizeof *out);
        run(families[i], p, ctx);
        if (!first) {
            first = mem_try((size_t)n_out * sizeof *out);
            if (!first) abort();
            memcpy(first, out, (size_t)n_out * sizeof *out);
        }
        const double off = difference(n_out, first, out);
        const double ms = best_ms(families[i], p, run, ctx), rate = flop / ms * 1e-6;
        if (rate > peak) peak = rate;
        printf("  %s %8.3f ms %6.1f %3.0f%%%s", families[i]->name, ms, rate, 100 * rate / peak,
               off < 1e-4 ? "" : " WRONG");
    }
    printf("\n");
    fflush(stdout);
    mem_try_free(first);
}

static void run_gemm(const kernels *k, pool *p, void *ctx)
{
    k->gemm(p, ctx);
}

static void swallow(void *ctx, int64_t first, int64_t n, const float *v)
{
    memcpy((float *)ctx + first, v, (size_t)n * sizeof *v);
}

static void bench_gemm(const char *what, pool *p, bool ta, bool tb, int64_t m, int64_t k, int64_t n,
                       bool fused)
{
    float *a = floats(m * k, 1), *b = floats(k * n, 2), *c = floats(m * n, 3), *mask = floats(m * n, 4);
    float *bias = floats(n, 5);
    gemm_call g = {.m = m, .n = n, .k = k, .ta = ta, .tb = tb, .a = a, .b = b, .c = c, .ldc = n};

    g.lda = ta ? m : k;
    g.ldb = tb ? k : n;
    if (fused && ta) {
        g.sink = swallow;
        g.sink_ctx = c;
    } else if (fused && tb) {
        g.mask = mask;
    } else if (fused) {
        g.bias = bias;
        g.relu = true;
    }
    line(what, p, run_gemm, &g, 2.0 * (double)m * (double)n * (double)k, m * n, c);
    mem_try_free(a);
    mem_try_free(b);
    mem_try_free(c);
    mem_try_free(mask);
    mem_try_free(bias);
}

static void run_forward(const kernels *k, pool *p, void *ctx)
{
    k->conv_forward(p, ctx);
}

static void run_data(const kernels *k, pool *p, void *ctx)
{
    k->conv_backward_data(p, ctx);
}

static void run_weights(const kernels *k, pool *p, void *ctx)
{
    k->conv_backward_weights(p, ctx);
}

/* Pairs (output, tap) along one dimension that do not fall on padding. */
static int64_t seen(int64_t in, int64_t out, int64_t taps, int64_t stride, int64_t dilation, int64_t before)
{
    int64_t n = 0;

    for (int64_t o = 0; o < out; o++) {
        for (int64_t t = 0; t < taps; t++) {
            const int64_t i = o * stride + t * dilation - before;
            n += i >= 0 && i < in;
        }
    }
    return n;
}

static void bench_conv(const char *what, pool *p, int64_t n, int64_t hw, int64_t c, int64_t ohw, int64_t oc,
                       int64_t k, int64_t stride, int64_t pad, int64_t groups, bool backward)
{
    const conv_shape s = {n, hw, hw, c, ohw, ohw, oc, k, k, stride, stride, 1, 1, pad, pad, groups};
    const int64_t n_x = n * hw * hw * c, n_y = n * ohw * ohw * oc, n_w = k * k * (c / groups) * oc;
    const double pairs = (double)seen(hw, ohw, k, stride, 1, pad);
    const double flop = 2.0 * (double)n * pairs * pairs * (double)(c / groups) * (double)oc;
    float *x = floats(n_x, 1), *w = floats(n_w, 2), *dy = floats(n_y, 3), *bias = floats(oc, 4);
    float *y = floats(n_y, 5), *dx = floats(n_x, 6), *dw = floats(n_w, 7);
    size_t size = 64;

    for (int i = 0; i < n_families; i++) {
        const size_t w_i = families[i]->conv_work(&s, pool_threads(p));
        if (w_i > size) size = w_i;
    }
    void *work = mem_try(size);
    if (!work) abort();
    conv_call call = {.s = s,
                      .x = x,
                      .w = w,
                      .dy = dy,
                      .bias = bias,
                      .relu = true,
                      .y = y,
                      .dx = dx,
                      .dw = dw,
                      .work = work};
    char text[96];
    snprintf(text, sizeof text, "%s forward", what);
    line(text, p, run_forward, &call, flop, n_y, y);
    if (backward) {
        if (c > 1) {
            snprintf(text, sizeof text, "%s data", what);
            line(text, p, run_data, &call, flop, n_x, dx);
        }
        snprintf(text, sizeof text, "%s weights", what);
        line(text, p, run_weights, &call, flop, n_w, dw);
    }
    mem_try_free(x);
    mem_try_free(w);
    mem_try_free(dy);
    mem_try_free(bias);
    mem_try_free(y);
    mem_try_free(dx);
    mem_try_free(dw);
    mem_try_free(work);
}

static void bench_all(pool *p)
{
    bench_gemm("gemm 1024x1024x1024", p, false, false, 1024, 1024, 1024, false);
    bench_gemm("gemm 1024x1024x1024 nt", p, false, true, 1024, 1024, 1024, false);
    bench_gemm("gemm 1024x1024x1024 tn", p, true, false, 1024, 1024, 1024, false);
    bench_gemm("dense 64x21632x128 forward, bias, relu", p, false, false, 64, 21632, 128, true);
    bench_gemm("dense 64x21632x128 weights, sink", p, true, false, 21632, 64, 128, true);
    bench_gemm("dense 64x21632x128 data, mask", p, false, true, 64, 128, 21632, true);
    bench_gemm("dense 64x128x10 forward, bias, relu", p, false, false, 64, 128, 10, true);
    bench_gemm("dense 64x128x10 weights, sink", p, true, false, 128, 64, 10, true);
    bench_gemm("dense 64x128x10 data, mask", p, false, true, 64, 10, 128, true);

    for (int64_t n = 64; n <= 256; n += 192) {
        const bool back = n == 64;
        char text[64];
#define CONV(name, ...)                                                                                      \
    do {                                                                                                     \
        snprintf(text, sizeof text, "conv n=%d " name, (int)n);                                              \
        bench_conv(text, p, n, __VA_ARGS__, 1, back);                                                        \
    } while (0)
        CONV("28x28x1 3x3 -> 26x26x32", 28, 1, 26, 32, 3, 1, 0);
        CONV("28x28x1 7x7/2 -> 14x14x64", 28, 1, 14, 64, 7, 2, 3);
        CONV("7x7x64 3x3 -> 64", 7, 64, 7, 64, 3, 1, 1);
        CONV("7x7x64 3x3/2 -> 4x4x128", 7, 64, 4, 128, 3, 2, 1);
        CONV("7x7x64 1x1/2 -> 4x4x128", 7, 64, 4, 128, 1, 2, 0);
        CONV("4x4x128 3x3 -> 128", 4, 128, 4, 128, 3, 1, 1);
        CONV("4x4x128 3x3/2 -> 2x2x256", 4, 128, 2, 256, 3, 2, 1);
        CONV("4x4x128 1x1/2 -> 2x2x256", 4, 128, 2, 256, 1, 2, 0);
        CONV("2x2x256 3x3 -> 256", 2, 256, 2, 256, 3, 1, 1);
        CONV("2x2x256 3x3/2 -> 1x1x512", 2, 256, 1, 512, 3, 2, 1);
        CONV("2x2x256 1x1/2 -> 1x1x512", 2, 256, 1, 512, 1, 2, 0);
        CONV("1x1x512 3x3 -> 512", 1, 512, 1, 512, 3, 1, 1);
#undef CONV
    }
    /* MobileNetV2's and ConvNeXt's convolutions that do not mix channels. */
    bench_conv("depthwise n=16 56x56x32 3x3", p, 16, 56, 32, 56, 32, 3, 1, 1, 32, true);
    bench_conv("depthwise n=16 56x56x96 3x3/2", p, 16, 56, 96, 28, 96, 3, 2, 0, 96, true);
    bench_conv("depthwise n=16 28x28x144 3x3", p, 16, 28, 144, 28, 144, 3, 1, 1, 144, true);
    bench_conv("depthwise n=16 14x14x384 3x3", p, 16, 14, 384, 14, 384, 3, 1, 1, 384, true);
    bench_conv("depthwise n=16 7x7x960 3x3", p, 16, 7, 960, 7, 960, 3, 1, 1, 960, true);
    bench_conv("depthwise n=16 14x14x384 7x7", p, 16, 14, 384, 14, 384, 7, 1, 3, 384, true);
}

static int bench_threads(int threads)
{
    pool *p;

    if (pool_new(threads, KERN_SCRATCH, &p)) {
        fprintf(stderr, "%s\n", manta_error_text());
        return 1;
    }
    peak = 0;
    printf("%d thread%s: milliseconds, GFLOP/s, share of the best product\n", threads,
           threads == 1 ? "" : "s");
    bench_all(p);
    pool_free(p);
    return 0;
}

static int usage(void)
{
    fprintf(stderr,
            "usage: bench_kernels [--threads N] [--match TEXT] [--ms MILLISECONDS] [--clock cpu|wall]\n");
    return 2;
}

int main(int argc, char **argv)
{
    long only = 0;

    for (int i = 1; i < argc; i += 2) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        char *end = NULL;
        if (!strcmp(option, "--threads")) {
            only = strtol(value, &end, 10);
            if (*end || only < 1 || only > 1024) return usage();
        } else if (!strcmp(option, "--ms")) {
            budget_ms = strtod(value, &end);
            if (end == value || *end) return usage();
        } else if (!strcmp(option, "--match")) {
            match = value;
        } else if (!strcmp(option, "--clock") && !strcmp(value, "cpu")) {
            stopwatch = CLOCK_THREAD_CPUTIME_ID;
        } else if (strcmp(option, "--clock") != 0 || strcmp(value, "wall") != 0) {
            return usage();
        }
    }
    add_families();
    if (only) return bench_threads((int)only);
    const int failed = bench_threads(1);
    return failed || cpu_cores() == 1 ? failed : bench_threads(cpu_cores());
}
