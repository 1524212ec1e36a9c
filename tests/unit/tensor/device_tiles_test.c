/* device_tiles_test.c - the kernels of devices that work in tiles leave, in tiles of every size, the bytes of the
 * processor's kernels; and how a size is chosen. */
#include <math.h>
#include <stdlib.h>

#include "ok.h"
#include "os/pool.h"
#include "tensor/conv.h"
#include "tensor/device.h"
#include "tensor/device_tiles.h"
#include "tensor/kernel.h"

enum { MOST = 10 }; /* arrays of a case */

/* A case: its arrays on the host, and on the device. */
typedef struct setting {
    device *d;
    pool *p;
    const kernels *k;
    float *host[MOST];
    dev_addr at[MOST];
    int64_t count[MOST];
    int n;
    uint32_t drawn;
} setting;

static void open_setting(setting *t)
{
    *t = (setting){.k = kernels_of(KERN_REFERENCE)};
    assert_ok(device_fake_open((size_t)1 << 28, &t->d));
    assert_ok(pool_new(1, KERN_SCRATCH, &t->p));
}

static void clear_arrays(setting *t)
{
    for (int i = 0; i < t->n; i++) {
        device_release(t->d, t->at[i], (size_t)t->count[i] * sizeof(float));
        free(t->host[i]);
    }
    t->n = 0;
}

static void close_setting(setting *t)
{
    clear_arrays(t);
    pool_free(t->p);
    device_close(t->d);
}

/* An array of so many numbers in (-1, 1); some are so small that products of them vanish with their sign. */
static int add_array(setting *t, int64_t count)
{
    int i = t->n++;

    assert_true(i < MOST);
    t->count[i] = count;
    t->host[i] = malloc((size_t)count * sizeof(float));
    for (int64_t e = 0; e < count; e++) {
        uint32_t turn = ++t->drawn, word = (turn * 2654435761u) ^ (turn >> 7);
        t->host[i][e] = (float)(word >> 8) / (float)(1 << 23) - 1.0f;
        if (word % 13 == 0) t->host[i][e] *= 1e-30f;
        if (word % 17 == 0) t->host[i][e] = -0.0f;
    }
    assert_ok(device_alloc(t->d, (size_t)count * sizeof(float), "a test", &t->at[i]));
    return i;
}

static void put_array(setting *t, int i)
{
    assert_ok(device_put(t->d, t->at[i], t->host[i], (size_t)t->count[i] * sizeof(float)));
}

static void play_launch(setting *t, dev_tiling how, const void *args, size_t size)
{
    dev_program *p = program_new(t->d);

    program_add(p, how.kernel, how.items, args, size);
    assert_ok(program_play(p));
    program_free(p);
}

/* Whether the device's array has the host's bytes, NaN for NaN. */
static void compare_array(setting *t, int i, const char *what, int size)
{
    float *got = malloc((size_t)t->count[i] * sizeof *got);

    assert_ok(device_get(t->d, got, t->at[i], (size_t)t->count[i] * sizeof *got));
    for (int64_t e = 0; e < t->count[i]; e++) {
        float want = t->host[i][e];
        if (memcmp(&got[e], &want, sizeof want) != 0 && !(isnan(got[e]) && isnan(want)))
            fail_msg("%s, size %d, element %lld: %a on the device, %a here", what, size, (long long)e,
                     (double)got[e], (double)want);
    }
    free(got);
}

/* ---- products ---- */

typedef struct gemm_case {
    int64_t m, n, k;
    bool ta, tb, accumulate, bias, relu, mask;
} gemm_case;

static void check_gemm(setting *t, gemm_case c)
{
    int a = add_array(t, c.m * c.k), b = add_array(t, c.k * c.n), out = add_array(t, c.m * c.n),
        bias = add_array(t, c.n), mask = add_array(t, c.m * c.n), before = add_array(t, c.m * c.n);
    gemm_call g = {.m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .ta = c.ta,
                   .tb = c.tb,
                   .a = t->host[a],
                   .lda = c.ta ? c.m : c.k,
                   .b = t->host[b],
                   .ldb = c.tb ? c.k : c.n,
                   .c = t->host[out],
                   .ldc = c.n,
                   .accumulate = c.accumulate,
                   .bias = c.bias ? t->host[bias] : NULL,
                   .relu = c.relu,
                   .mask = c.mask ? t->host[mask] : NULL};
    gemm_args d = {.m = c.m,
                   .n = c.n,
                   .k = c.k,
                   .ta = c.ta,
                   .tb = c.tb,
                   .a = t->at[a],
                   .lda = g.lda,
                   .b = t->at[b],
                   .ldb = g.ldb,
                   .c = t->at[out],
                   .ldc = c.n,
                   .accumulate = c.accumulate,
                   .bias = c.bias ? t->at[bias] : 0,
                   .relu = c.relu,
                   .mask = c.mask ? t->at[mask] : 0};

    for (int i = 0; i < t->n; i++) put_array(t, i);
    memcpy(t->host[out], t->host[before], (size_t)t->count[out] * sizeof(float));
    t->k->gemm(t->p, &g);
    for (int size = 0; size < DEV_TILE_COUNT; size++) {
        assert_ok(device_copy(t->d, t->at[out], t->at[before], (size_t)t->count[out] * sizeof(float)));
        dev_tiling how = dev_gemm_by(&d, size);
        if (how.kernel == DEV_COUNT) how = dev_gemm_tiling(&d); /* both are transposed: single outputs */
        play_launch(t, how, &d, sizeof d);
        compare_array(t, out, "gemm", size);
    }
    clear_arrays(t);
}

static void products_are_those_of_the_kernels(void **state)
{
    const int64_t odd[][3] = {{1, 1, 1},     {1, 130, 64},  {17, 15, 63},  {16, 16, 65},
                              {33, 29, 301}, {64, 10, 128}, {130, 70, 40}, {67, 131, 17}};
    setting t;

    (void)state;
    open_setting(&t);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        for (int way = 0; way < 4; way++) {
            gemm_case c = {odd[i][0], odd[i][1], odd[i][2], .ta = way & 1, .tb = way & 2};
            c.accumulate = c.mask = c.ta || c.tb;
            c.bias = c.relu = !c.accumulate;
            check_gemm(&t, c);
        }
    close_setting(&t);
}

/* ---- convolutions ---- */

/* Outputs of one axis, as many as fit; `before` cells of padding, `after` behind. */
static int64_t count_outputs(int64_t n, int64_t k, int64_t stride, int64_t dilation, int64_t before,
                             int64_t after)
{
    return (n + before + after - (k - 1) * dilation - 1) / stride + 1;
}

static void check_forward(setting *t, const conv_shape *s, const int *at, void *work, bool plain)
{
    conv_call c = {.s = *s,
                   .x = t->host[at[0]],
                   .w = t->host[at[1]],
                   .bias = plain ? NULL : t->host[at[3]],
                   .relu = !plain,
                   .y = t->host[at[4]],
                   .work = work};
    conv_args d = {.s = *s,
                   .x = t->at[at[0]],
                   .w = t->at[at[1]],
                   .bias = plain ? 0 : t->at[at[3]],
                   .relu = !plain,
                   .y = t->at[at[4]]};

    t->k->conv_forward(t->p, &c);
    for (int size = 0; size < DEV_TILE_COUNT; size++) {
        assert_ok(device_zero(t->d, t->at[at[4]], (size_t)t->count[at[4]] * sizeof(float)));
        play_launch(t, dev_conv_forward_by(&d, size), &d, sizeof d);
        compare_array(t, at[4], "y", size);
    }
}

static void check_data(setting *t, const conv_shape *s, const int *at, void *work, bool plain)
{
    size_t bytes = (size_t)t->count[at[5]] * sizeof(float);
    conv_call c = {.s = *s,
                   .w = t->host[at[1]],
                   .dy = t->host[at[2]],
                   .dx = t->host[at[5]],
                   .mask = plain ? NULL : t->host[at[0]],
                   .accumulate = !plain,
                   .work = work};
    conv_args d = {.s = *s,
                   .w = t->at[at[1]],
                   .dy = t->at[at[2]],
                   .dx = t->at[at[5]],
                   .mask = plain ? 0 : t->at[at[0]],
                   .accumulate = !plain};
    float *before = malloc(bytes);

    memcpy(before, t->host[at[5]], bytes);
    t->k->conv_backward_data(t->p, &c);
    for (int size = 0; size < DEV_TILE_COUNT; size++) {
        assert_ok(device_put(t->d, t->at[at[5]], before, bytes));
        play_launch(t, dev_conv_data_by(&d, size), &d, sizeof d);
        compare_array(t, at[5], "dx", size);
    }
    free(before);
}

/* Gives the device x with `after` zeros behind and those before, for a gradient that counts them. */
static void pad_input(setting *t, conv_args *d, int at_x, int64_t after)
{
    conv_shape *s = &d->s;
    int64_t h = s->top + s->h + after, w = s->left + s->w + after;
    int at = add_array(t, s->n * h * w * s->c);

    memset(t->host[at], 0, (size_t)t->count[at] * sizeof(float));
    for (int64_t row = 0; row < s->n * s->h; row++)
        memcpy(t->host[at] + ((row / s->h * h + row % s->h + s->top) * w + s->left) * s->c,
               t->host[at_x] + row * s->w * s->c, (size_t)(s->w * s->c) * sizeof(float));
    put_array(t, at);
    d->x = t->at[at];
    s->h = h;
    s->w = w;
    s->top = s->left = 0;
}

static void check_weights(setting *t, const conv_shape *s, const int *at, void *work, bool plain,
                          int64_t after)
{
    size_t bytes = (size_t)t->count[at[6]] * sizeof(float);
    conv_call c = {.s = *s,
                   .x = t->host[at[0]],
                   .dy = t->host[at[2]],
                   .dw = t->host[at[6]],
                   .accumulate = !plain,
                   .work = work};
    conv_args d = {.s = *s,
                   .x = t->at[at[0]],
                   .dy = t->at[at[2]],
                   .dw = t->at[at[6]],
                   .part = t->at[at[7]],
                   .accumulate = !plain,
                   .chunk = conv_chunk(s),
                   .positions_first = conv_order(s) == CONV_POSITIONS_FIRST,
                   .counts_padding = conv_counts_padding(s)};
    float *before = malloc(bytes);

    d.chunks = (s->n + d.chunk - 1) / d.chunk;
    memcpy(before, t->host[at[6]], bytes);
    t->k->conv_backward_weights(t->p, &c);
    if (d.counts_padding && (s->top > 0 || s->left > 0)) {
        assert_int_equal(dev_conv_weights_by(&d, 0).kernel, DEV_COUNT); /* it is not in x */
        pad_input(t, &d, at[0], after);
    }
    for (int size = 0; size < DEV_TILE_COUNT; size++) {
        dev_tiling how = dev_conv_weights_by(&d, size);
        assert_ok(device_put(t->d, t->at[at[6]], before, bytes));
        play_launch(t, how, &d, sizeof d);
        if (d.chunks > 1) play_launch(t, (dev_tiling){DEV_conv_weights_add, t->count[at[6]]}, &d, sizeof d);
        compare_array(t, at[6], "dw", size);
    }
    free(before);
}

static void check_conv(setting *t, conv_shape s, int64_t after)
{
    int at[8];
    void *work;

    s.groups = 1;
    s.oh = count_outputs(s.h, s.kh, s.sh, s.dh, s.top, after);
    s.ow = count_outputs(s.w, s.kw, s.sw, s.dw, s.left, after);
    at[0] = add_array(t, s.n * s.h * s.w * s.c);
    at[1] = add_array(t, s.kh * s.kw * s.c * s.oc);
    at[2] = add_array(t, s.n * s.oh * s.ow * s.oc);
    at[3] = add_array(t, s.oc);
    at[4] = add_array(t, s.n * s.oh * s.ow * s.oc);
    at[5] = add_array(t, s.n * s.h * s.w * s.c);
    at[6] = add_array(t, s.kh * s.kw * s.c * s.oc);
    at[7] = add_array(t, 16 * s.kh * s.kw * s.c * s.oc);
    t->host[at[1]][0] = INFINITY; /* which only counts where it meets x and not its padding */
    t->host[at[2]][0] = NAN;
    for (int i = 0; i < t->n; i++) put_array(t, i);
    work = malloc(t->k->conv_work(&s, 1) + 64);
    for (int plain = 0; plain < 2; plain++) {
        check_forward(t, &s, at, work, plain);
        check_data(t, &s, at, work, plain);
        check_weights(t, &s, at, work, plain, after);
    }
    free(work);
    clear_arrays(t);
}

static void convolutions_are_those_of_the_kernels(void **state)
{
    setting t;

    (void)state;
    open_setting(&t);
#define CASE(...) (conv_shape){__VA_ARGS__}
    check_conv(
        &t,
        CASE(.n = 1, .h = 1, .w = 1, .c = 1, .oc = 1, .kh = 1, .kw = 1, .sh = 1, .sw = 1, .dh = 1, .dw = 1),
        0);
    check_conv(&t,
               CASE(.n = 5, .h = 9, .w = 7, .c = 8, .oc = 12, .kh = 3, .kw = 3, .sh = 1, .sw = 1, .dh = 1,
                    .dw = 1, .top = 1, .left = 1),
               1);
    check_conv(&t,
               CASE(.n = 33, .h = 5, .w = 6, .c = 3, .oc = 17, .kh = 3, .kw = 5, .sh = 1, .sw = 1, .dh = 1,
                    .dw = 1, .top = 1, .left = 2),
               2); /* few channels */
    check_conv(&t,
               CASE(.n = 19, .h = 8, .w = 9, .c = 20, .oc = 33, .kh = 3, .kw = 3, .sh = 2, .sw = 2, .dh = 1,
                    .dw = 1, .top = 0, .left = 1),
               1);
    check_conv(&t,
               CASE(.n = 4, .h = 14, .w = 13, .c = 9, .oc = 5, .kh = 3, .kw = 2, .sh = 3, .sw = 1, .dh = 2,
                    .dw = 3, .top = 2, .left = 3),
               3);
    check_conv(&t,
               CASE(.n = 7, .h = 11, .w = 12, .c = 8, .oc = 10, .kh = 5, .kw = 4, .sh = 4, .sw = 3, .dh = 2,
                    .dw = 2, .top = 4, .left = 4),
               4);
    check_conv(&t,
               CASE(.n = 70, .h = 1, .w = 1, .c = 67, .oc = 70, .kh = 3, .kw = 3, .sh = 1, .sw = 1, .dh = 1,
                    .dw = 1, .top = 1, .left = 1),
               1); /* taps that never meet x */
    check_conv(
        &t,
        CASE(.n = 3, .h = 4, .w = 4, .c = 16, .oc = 16, .kh = 1, .kw = 1, .sh = 2, .sw = 2, .dh = 1, .dw = 1),
        0);
#undef CASE
    close_setting(&t);
}

/* ---- the choice ---- */

static void the_shape_chooses_the_size(void **state)
{
    gemm_args few = {.m = 64, .n = 128, .k = 9216, .lda = 9216, .ldb = 128, .ldc = 128},
              many = {.m = 8192, .n = 8192, .k = 512, .lda = 512, .ldb = 8192, .ldc = 8192},
              huge = {.m = 1 << 20, .n = 10, .k = 4096, .lda = 4096, .ldb = 10, .ldc = 10};
    conv_args grouped = {.s = {.n = 8,
                               .h = 4,
                               .w = 4,
                               .c = 8,
                               .oh = 4,
                               .ow = 4,
                               .oc = 8,
                               .kh = 1,
                               .kw = 1,
                               .sh = 1,
                               .sw = 1,
                               .dh = 1,
                               .dw = 1,
                               .groups = 2}};

    (void)state;
    assert_int_equal(dev_gemm_tiling(&few).kernel, DEV_gemm_8);
    assert_int_equal(dev_gemm_tiling(&few).items, 8 * 8);
    assert_int_equal(dev_gemm_tiling(&many).kernel, DEV_gemm_64);
    assert_int_equal(dev_gemm_tiling(&many).items, 128 * 128);
    assert_int_equal(dev_gemm_tiling(&huge).kernel, DEV_gemm); /* more elements than an int32_t counts */
    assert_int_equal(dev_conv_forward_tiling(&grouped).kernel, DEV_conv_forward);
    assert_int_equal(dev_conv_forward_tiling(&grouped).items, 8 * 4 * 4 * 8);
    assert_int_equal(dev_kernel_threads(DEV_gemm), 0);
    assert_int_equal(dev_kernel_threads(DEV_gemm_16), TILE_THREADS_16);
    assert_int_equal(dev_kernel_threads(DEV_conv_weights_128), TILE_THREADS_128);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(products_are_those_of_the_kernels),
                                       cmocka_unit_test(convolutions_are_those_of_the_kernels),
                                       cmocka_unit_test(the_shape_chooses_the_size)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
