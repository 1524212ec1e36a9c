/* both.h - a kernel on the fake device and on a GPU, with the same memory: what it leaves must be equal bytes,
 * NaN for NaN. Where there is no GPU the tests are skipped, and say why. */
#ifndef TESTS_UNIT_GPU_BOTH_H
#define TESTS_UNIT_GPU_BOTH_H

#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "gpu/gpu.h"
#include "ok.h"

enum { BOTH_BUFFERS = 16 };

typedef enum both_kind { BOTH_FLOATS, BOTH_DOUBLES, BOTH_BYTES } both_kind;

typedef struct both {
    device *d[2]; /* the fake one, the GPU */
    dev_addr at[2][BOTH_BUFFERS];
    size_t size[BOTH_BUFFERS]; /* bytes */
    both_kind kind[BOTH_BUFFERS];
    int n, failed, done;
    uint64_t drawn;
} both;

/* Opens both; false: there is no GPU, and the reason was printed. */
static inline bool both_open(both *b)
{
    *b = (both){0};
    if (gpu_open(0, &b->d[1])) {
        print_message("no GPU here: %s\n", manta_error_text());
        return false;
    }
    assert_ok(device_fake_open((size_t)1 << 30, &b->d[0]));
    return true;
}

static inline void both_clear(both *b)
{
    for (int i = 0; i < b->n; i++) {
        device_release(b->d[0], b->at[0][i], b->size[i]);
        device_release(b->d[1], b->at[1][i], b->size[i]);
    }
    b->n = 0;
}

static inline void both_close(both *b)
{
    both_clear(b);
    device_close(b->d[0]);
    device_close(b->d[1]);
}

/* A buffer with these bytes on both; its number. */
static inline int both_put(both *b, both_kind kind, size_t size, const void *bytes)
{
    int i = b->n++;

    assert_true(i < BOTH_BUFFERS);
    b->size[i] = size;
    b->kind[i] = kind;
    for (int k = 0; k < 2; k++) {
        assert_ok(device_alloc(b->d[k], size, "a test", &b->at[k][i]));
        assert_ok(device_put(b->d[k], b->at[k][i], bytes, size));
    }
    return i;
}

/* n floats within (-scale, scale), some of them 0, -0 or tiny. */
static inline int both_floats(both *b, int64_t n, float scale)
{
    float *x = malloc((size_t)n * sizeof *x + 1);
    int at;

    for (int64_t i = 0; i < n; i++) {
        rng_words w = rng_at(rng_make(7, 7), b->drawn++);
        x[i] = (2 * rng_uniform(w.w[0]) - 1) * scale;
        if (w.w[1] % 97 == 0) x[i] = w.w[1] % 2 ? 0.0f : -0.0f;
        if (w.w[1] % 101 == 0) x[i] *= 1e-38f;
    }
    at = both_put(b, BOTH_FLOATS, (size_t)n * sizeof *x, x);
    free(x);
    return at;
}

static inline int both_positive(both *b, int64_t n)
{
    float *x = malloc((size_t)n * sizeof *x + 1);
    int at;

    for (int64_t i = 0; i < n; i++) x[i] = rng_uniform(rng_at(rng_make(9, 9), b->drawn++).w[0]) + 1e-3f;
    at = both_put(b, BOTH_FLOATS, (size_t)n * sizeof *x, x);
    free(x);
    return at;
}

static inline int both_zeros(both *b, both_kind kind, size_t size)
{
    char *x = calloc(1, size + 1);
    int at = both_put(b, kind, size, x);

    free(x);
    return at;
}

static inline int both_labels(both *b, int64_t n, int32_t classes)
{
    int32_t *x = malloc((size_t)n * sizeof *x + 1);
    int at;

    for (int64_t i = 0; i < n; i++)
        x[i] = (int32_t)(rng_at(rng_make(8, 8), b->drawn++).w[0] % (uint32_t)classes);
    at = both_put(b, BOTH_BYTES, (size_t)n * sizeof *x, x);
    free(x);
    return at;
}

static inline void both_launch(both *b, int k, int kernel, int64_t items, const void *args, size_t size)
{
    dev_program *p = program_new(b->d[k]);

    program_add(p, kernel, items, args, size);
    assert_ok(program_play(p));
    assert_ok(device_wait(b->d[k]));
    program_free(p);
}

/* Whether element i is the same, or NaN in both. */
static inline bool both_equal(both_kind kind, const char *x, const char *y, size_t i)
{
    size_t width = kind == BOTH_DOUBLES ? 8 : kind == BOTH_FLOATS ? 4 : 1;
    double a = 0, c = 0;
    float f, g;

    if (!memcmp(x + i * width, y + i * width, width)) return true;
    if (kind == BOTH_BYTES) return false;
    if (kind == BOTH_DOUBLES) {
        memcpy(&a, x + i * width, width);
        memcpy(&c, y + i * width, width);
    } else {
        memcpy(&f, x + i * width, width);
        memcpy(&g, y + i * width, width);
        a = (double)f;
        c = (double)g;
    }
    return a != a && c != c;
}

static inline void both_report(const both *b, const char *name, int buffer, size_t i, const char *x,
                               const char *y)
{
    float f = 0, g = 0;

    if (b->kind[buffer] == BOTH_FLOATS) {
        memcpy(&f, x + i * 4, 4);
        memcpy(&g, y + i * 4, 4);
    }
    printf("DIFFERS %-20s buffer %d element %zu of %zu: processor %.9g, GPU %.9g\n", name, buffer, i,
           b->size[buffer] / (b->kind[buffer] == BOTH_DOUBLES  ? 8
                              : b->kind[buffer] == BOTH_FLOATS ? 4
                                                               : 1),
           (double)f, (double)g);
}

/* Compares all buffers, names the first element that differs in each, and gives them back. */
static inline void both_same(both *b, const char *name)
{
    bool same = true;

    for (int i = 0; i < b->n; i++) {
        size_t width = b->kind[i] == BOTH_DOUBLES ? 8 : b->kind[i] == BOTH_FLOATS ? 4 : 1, e = 0;
        char *x = malloc(b->size[i] + 1), *y = malloc(b->size[i] + 1);
        assert_ok(device_get(b->d[0], x, b->at[0][i], b->size[i]));
        assert_ok(device_get(b->d[1], y, b->at[1][i], b->size[i]));
        while (e < b->size[i] / width && both_equal(b->kind[i], x, y, e)) e++;
        if (e < b->size[i] / width) {
            both_report(b, name, i, e, x, y);
            same = false;
        }
        free(x);
        free(y);
    }
    b->done++;
    if (same) {
        printf("same    %s\n", name);
    } else {
        b->failed++;
    }
    both_clear(b);
}

/* Launches kernel NAME on both; the arguments are members of NAME_args in which `at` are the buffers' addresses. */
#define BOTH_LAUNCH(b, name, items, ...)                                                                     \
    for (int k_ = 0; k_ < 2; k_++) {                                                                         \
        const dev_addr *at = (b)->at[k_];                                                                    \
        const name##_args a_ = {__VA_ARGS__};                                                                \
        (void)at;                                                                                            \
        both_launch((b), k_, DEV_##name, (items), &a_, sizeof a_);                                           \
    }

#endif
