/* tiles_test.c - kernels in tiles of every size leave, on a GPU, the bytes that single outputs leave on the
 * processor. */
#include <math.h>

#include "both.h"
#include "tensor/device_tiles.h"

/* What does the same without tiles. */
static dev_tiling single_outputs(int kernel, int64_t outputs)
{
    return (dev_tiling){kernel, outputs};
}

static void launch_on(both *b, int k, dev_tiling how, const void *args, size_t size)
{
    assert_int_not_equal(how.kernel, DEV_COUNT);
    both_launch(b, k, how.kernel, how.items, args, size);
}

/* ---- products ---- */

static void gemm_in_tiles(both *b, int64_t m, int64_t n, int64_t k, bool ta, bool tb, int size)
{
    bool accumulate = ta || tb;
    char name[64];

    both_floats(b, m * k, 1);
    both_floats(b, k * n, 1);
    both_floats(b, m * n, 1);
    both_floats(b, n, 1);
    both_floats(b, m * n, 1);
    for (int d = 0; d < 2; d++) {
        const dev_addr *at = b->at[d];
        gemm_args a = {.m = m,
                       .n = n,
                       .k = k,
                       .lda = ta ? m : k,
                       .ldb = tb ? k : n,
                       .ldc = n,
                       .a = at[0],
                       .b = at[1],
                       .c = at[2],
                       .bias = accumulate ? 0 : at[3],
                       .mask = accumulate ? at[4] : 0,
                       .ta = ta,
                       .tb = tb,
                       .accumulate = accumulate,
                       .relu = !accumulate};
        launch_on(b, d, d ? dev_gemm_by(&a, size) : single_outputs(DEV_gemm, m * n), &a, sizeof a);
    }
    snprintf(name, sizeof name, "gemm %lldx%lldx%lld %d%d, size %d", (long long)m, (long long)n, (long long)k,
             ta, tb, size);
    both_same(b, name);
}

static void test_products(void **state)
{
    both *b = *state;

    if (!b) skip();
    for (int size = 0; size < DEV_TILE_COUNT; size++)
        for (int way = 0; way < 3; way++) { /* not both transposed */
            gemm_in_tiles(b, 64, 10, 128, way & 1, way & 2, size);
            gemm_in_tiles(b, 133, 70, 301, way & 1, way & 2, size);
            gemm_in_tiles(b, 256, 192, 512, way & 1, way & 2, size);
        }
}

/* ---- convolutions ---- */

enum { X, W, DY, BIAS, Y, DX, DW, PART, MASK };

static conv_args conv_on(const dev_addr *at, const conv_shape *s, int64_t chunk, bool positions)
{
    return (conv_args){.s = *s,
                       .x = at[X],
                       .w = at[W],
                       .dy = at[DY],
                       .bias = at[BIAS],
                       .mask = at[MASK],
                       .y = at[Y],
                       .dx = at[DX],
                       .dw = at[DW],
                       .part = at[PART],
                       .chunk = chunk,
                       .chunks = (s->n + chunk - 1) / chunk,
                       .relu = true,
                       .accumulate = true,
                       .positions_first = positions};
}

static void conv_in_tiles(both *b, const char *about, const conv_shape *s, int64_t chunk, int size)
{
    int64_t in = s->n * s->h * s->w * s->c, out = s->n * s->oh * s->ow * s->oc,
            weight = s->kh * s->kw * s->c * s->oc, chunks = (s->n + chunk - 1) / chunk;
    char name[64];

    both_floats(b, in, 1);
    both_floats(b, weight, 1);
    both_floats(b, out, 1);
    both_floats(b, s->oc, 1);
    both_floats(b, out, 1);
    both_floats(b, in, 1);
    both_floats(b, weight, 1);
    both_zeros(b, BOTH_FLOATS, (size_t)(chunks * weight) * 4);
    both_floats(b, in, 1);
    for (int d = 0; d < 2; d++) {
        conv_args a = conv_on(b->at[d], s, chunk, size % 2);
        launch_on(b, d, d ? dev_conv_forward_by(&a, size) : single_outputs(DEV_conv_forward, out), &a,
                  sizeof a);
        launch_on(b, d, d ? dev_conv_data_by(&a, size) : single_outputs(DEV_conv_data, in), &a, sizeof a);
        launch_on(b, d, d ? dev_conv_weights_by(&a, size) : single_outputs(DEV_conv_weights, chunks * weight),
                  &a, sizeof a);
        if (chunks > 1) launch_on(b, d, single_outputs(DEV_conv_weights_add, weight), &a, sizeof a);
    }
    snprintf(name, sizeof name, "conv %s, size %d", about, size);
    both_same(b, name);
}

static void test_convolutions(void **state)
{
    conv_shape plain = {.n = 37,
                        .h = 7,
                        .w = 7,
                        .c = 40,
                        .oh = 7,
                        .ow = 7,
                        .oc = 70,
                        .kh = 3,
                        .kw = 3,
                        .sh = 1,
                        .sw = 1,
                        .dh = 1,
                        .dw = 1,
                        .top = 1,
                        .left = 1,
                        .groups = 1};
    conv_shape strided = plain, dead = plain, few = plain, dilated = plain;
    both *b = *state;

    if (!b) skip();
    strided.oh = strided.ow = 4;
    strided.sh = strided.sw = 2;
    dead.n = 130;
    dead.h = dead.w = dead.oh = dead.ow = 1;
    few.c = 1;
    few.oc = 12;
    dilated.dh = 2;
    dilated.sh = dilated.sw = 3;
    dilated.top = 2;
    dilated.oh = dilated.ow = 3;
    for (int size = 0; size < DEV_TILE_COUNT; size++) {
        conv_in_tiles(b, "same padding", &plain, 37, size);
        conv_in_tiles(b, "chunks", &plain, 5, size);
        conv_in_tiles(b, "strides", &strided, 20, size);
        conv_in_tiles(b, "dead taps", &dead, 130, size);
        conv_in_tiles(b, "one channel", &few, 3, size);
        conv_in_tiles(b, "dilation", &dilated, 37, size);
    }
}

static void test_all_are_same(void **state)
{
    both *b = *state;

    if (!b) skip();
    print_message("%d cases, %d differ\n", b->done, b->failed);
    assert_int_equal(b->failed, 0);
}

static int open_both(void **state)
{
    static both b;

    *state = both_open(&b) ? &b : NULL;
    return 0;
}

static int close_both(void **state)
{
    if (*state) both_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products), cmocka_unit_test(test_convolutions),
                                       cmocka_unit_test(test_all_are_same)};

    return cmocka_run_group_tests(tests, open_both, close_both);
}
