/* kernels_more_test.c - the kernels of tensor/device_kernels_more.h on a GPU leave the bytes that their bodies
 * leave on the processor. */
#include <manta/array.h>
#include <math.h>

#include "both.h"

enum { N = 4096 };

/* n floats among which some are the same, NaN or infinite. */
static int odd_floats(both *b, int64_t n, float scale)
{
    const float odd[] = {NAN, INFINITY, -INFINITY, 0.25f, 0.25f, -0.0f, 1e-40f};
    int at = both_floats(b, n, scale);

    for (int64_t i = 13; i < n; i += 29)
        for (int k = 0; k < 2; k++)
            assert_ok(device_put(b->d[k], b->at[k][at] + (dev_addr)i * 4, &odd[i / 29 % 7], sizeof *odd));
    return at;
}

/* ---- moving elements ---- */

static void test_copies(void **state)
{
    both *b = *state;

    if (!b) skip();
    for (int add = 0; add < 2; add++) {
        both_floats(b, N, 1);
        both_floats(b, N, 1);
        BOTH_LAUNCH(b, fill, 100, .value = 0, .to = at[1] + 64);
        BOTH_LAUNCH(b, copy, 8 * 5 * 7 * 3, .ndim = 4, .shape = {8, 5, 7, 3}, .from_step = {105, 3, 15, 1},
                    .to_step = {220, 44, 4, 1}, .from = at[0], .to = at[1], .accumulate = add);
        both_same(b, add ? "copy, added" : "copy");
    }
}

static void test_tables(void **state)
{
    enum { ITEMS = 600, COLS = 33, ROWS = 17 };
    both *b = *state;

    if (!b) skip();
    both_labels(b, ITEMS, ROWS + 1); /* one is out of range */
    both_floats(b, ROWS * COLS, 1);
    both_floats(b, ITEMS * COLS, 1);
    both_floats(b, ITEMS * COLS, 1);
    both_floats(b, ROWS * COLS, 1);
    both_zeros(b, BOTH_BYTES, (size_t)2 * ITEMS * 8);
#define TABLE                                                                                                \
    .n = ITEMS, .c = COLS, .rows = ROWS, .dtype = MANTA_DTYPE_I32, .index = at[0], .table = at[1],           \
    .y = at[2], .dy = at[3], .dtable = at[4], .links = at[5]
    BOTH_LAUNCH(b, gather, ITEMS * COLS, TABLE);
    BOTH_LAUNCH(b, scatter_links, ITEMS, TABLE);
    BOTH_LAUNCH(b, scatter_add, ITEMS * COLS, TABLE);
#undef TABLE
    both_same(b, "rows of a table");
}

static void test_enlarging(void **state)
{
    both *b = *state;

    if (!b) skip();
    for (int bilinear = 0; bilinear < 2; bilinear++) {
        int64_t in = 3 * 9 * 7 * 5, out = in * 4 * 3;
        odd_floats(b, in, 1);
        both_floats(b, out, 1);
        both_floats(b, out, 1);
        both_floats(b, in, 1);
#define UPSAMPLE                                                                                             \
    .h = 9, .w = 7, .c = 5, .sh = 4, .sw = 3, .x = at[0], .y = at[1], .dy = at[2], .dx = at[3],              \
    .bilinear = bilinear, .accumulate = bilinear
        BOTH_LAUNCH(b, upsample_forward, out, UPSAMPLE);
        BOTH_LAUNCH(b, upsample_back, in, UPSAMPLE);
#undef UPSAMPLE
        both_same(b, bilinear ? "bilinear" : "nearest");
    }
}

/* ---- elements and two values ---- */

static void test_elements(void **state)
{
    both *b = *state;

    if (!b) skip();
    for (int way = 0; way < 2; way++) {
        odd_floats(b, N, 1);
        both_floats(b, N, 1);
        both_floats(b, N, 1);
        both_floats(b, N, 1);
#define ELEMENT .x = at[0], .y = at[1], .dy = at[2], .dx = at[3], .accumulate = way
        BOTH_LAUNCH(b, relu_forward, N, .max_value = 0.7f, .negative_slope = 0.1f, .threshold = 0.25f,
                    ELEMENT);
        BOTH_LAUNCH(b, relu_back, N, .max_value = 0.7f, .negative_slope = 0.1f, .threshold = 0.25f, ELEMENT);
        both_same(b, "relu in full");
        odd_floats(b, N, 1);
        both_floats(b, N, 1);
        both_floats(b, N, 1);
        both_floats(b, N, 1);
#define NORMALIZE                                                                                            \
    .c = 8, .first = 2, .n = 5, .mean = {0.3f, -1, 2, 0, 0.1f}, .variance = {0.7f, 3, 0, 1e-20f, 2}
        BOTH_LAUNCH(b, normalize_forward, N / 8 * 5, NORMALIZE, .invert = way, ELEMENT);
        BOTH_LAUNCH(b, normalize_back, N / 8 * 5, NORMALIZE, .invert = way, ELEMENT);
        both_same(b, "normalisation");
        odd_floats(b, 4 * 9 * 17, 1);
        both_floats(b, 4 * 17, 1);
        both_floats(b, 4 * 17, 1);
        both_floats(b, 4 * 9 * 17, 1);
        BOTH_LAUNCH(b, global_max_forward, 4 * 17, .places = 9, .c = 17, ELEMENT);
        BOTH_LAUNCH(b, global_max_back, 4 * 17, .places = 9, .c = 17, ELEMENT);
        both_same(b, "global maximum");
#undef NORMALIZE
#undef ELEMENT
    }
}

static void test_two_values(void **state)
{
    both *b = *state;

    if (!b) skip();
    for (int op = 0; op < KERN_BINARIES; op++) {
        int64_t out = 6 * 5 * 4 * 7;
        odd_floats(b, 6 * 5 * 7, 1); /* (6, 5, 1, 7) */
        odd_floats(b, 6 * 4, 1); /* (6, 1, 4, 1) */
        both_floats(b, out, 1);
        both_floats(b, out, 1);
        both_floats(b, 6 * 4, 1);
        BOTH_LAUNCH(b, binary_walk, out, .op = (kern_binary)op, .ndim = 4, .shape = {6, 5, 4, 7},
                    .a_step = {35, 7, 0, 1}, .b_step = {4, 0, 1, 0}, .a = at[0], .b = at[1], .out = at[2],
                    .relu = op == KERN_ADD);
        BOTH_LAUNCH(b, binary_sum, 6 * 4, .op = (kern_binary)op, .which = 1, .ndim = 4, .shape = {6, 5, 4, 7},
                    .own_step = {4, 0, 1, 0}, .other_step = {35, 7, 0, 1}, .dy = at[3], .other = at[0],
                    .d = at[4], .accumulate = op == KERN_MUL);
        both_same(b, "two values");
    }
}

/* ---- layer norm ---- */

static void test_layer_norm(void **state)
{
    both *b = *state;

    if (!b) skip();
    for (int way = 0; way < 4; way++) {
        int64_t rows = 700, c = way % 2 ? 37 : 64, n = rows * c;
        both_floats(b, n, 3);
        both_floats(b, n, 1);
        both_floats(b, c, 1);
        both_floats(b, c, 1);
        both_floats(b, n, 1); /* 4 out */
        both_floats(b, rows, 1);
        both_floats(b, rows, 1);
        both_floats(b, n, 1); /* 7 dx */
        both_floats(b, c, 1);
        both_floats(b, c, 1);
        both_zeros(b, BOTH_DOUBLES, (size_t)(2 * 3 * c) * 8);
#define LAYER_NORM                                                                                           \
    .rows = rows, .c = c, .chunk = 256, .chunks = 3, .x = at[0], .dy = at[1], .gamma = way & 1 ? at[2] : 0,  \
    .beta = way & 2 ? at[3] : 0, .out = at[4], .mean = at[5], .rstd = at[6], .dx = at[7], .dgamma = at[8],   \
    .dbeta = at[9], .part = at[10], .eps = 1e-3f, .keep_gamma = way % 3, .keep_beta = DEV_ADD_TO_ZERO,       \
    .accumulate_dx = way & 2
        BOTH_LAUNCH(b, ln_forward, rows, LAYER_NORM);
        BOTH_LAUNCH(b, ln_dx, rows, LAYER_NORM);
        BOTH_LAUNCH(b, ln_sums_part, 3 * c, LAYER_NORM);
        BOTH_LAUNCH(b, ln_sums_end, c, LAYER_NORM);
#undef LAYER_NORM
        both_same(b, "layer norm");
    }
}

/* ---- losses and metrics ---- */

#define LOSS                                                                                                 \
    .rows = ROWS, .classes = c, .target = at[2], .weight = at[3], .loss = at[4], .grad = at[5],              \
    .scale = 0.37f, .smoothing = smoothing, .delta = 0.6f

static void losses_of(both *b, int64_t c, float smoothing)
{
    enum { ROWS = 70 };

    for (int kernel = DEV_dense_logits; kernel <= DEV_huber_error; kernel++) {
        bool shares = kernel == DEV_dense_probs || kernel == DEV_binary_probs;
        if (shares)
            both_positive(b, ROWS * c);
        else
            odd_floats(b, ROWS * c, 5);
        both_floats(b, 1, 1);
        both_positive(b, ROWS * c);
        both_positive(b, ROWS);
        both_floats(b, ROWS, 1);
        both_floats(b, ROWS * c, 1);
        for (int k = 0; k < 2; k++) {
            const dev_addr *at = b->at[k];
            loss_args a = {.pred = at[0], LOSS};
            both_launch(b, k, kernel, ROWS, &a, sizeof a);
        }
        both_same(b, "a loss");
    }
}

#define METRIC                                                                                               \
    .rows = ROWS, .classes = c, .k = 3, .pred = at[0], .target = at[1], .value = at[2], .sums = at[3],       \
    .threshold = 0.25f, .at = 1

static void metrics_of(both *b, int64_t c)
{
    enum { ROWS = 70 };

    for (int kernel = DEV_dense_accuracy; kernel <= DEV_top_k; kernel++) {
        odd_floats(b, ROWS * c, 1);
        both_floats(b, ROWS * c, 1);
        both_zeros(b, BOTH_DOUBLES, ROWS * 8);
        both_zeros(b, BOTH_DOUBLES, 3 * 8);
        for (int k = 0; k < 2; k++) {
            const dev_addr *at = b->at[k];
            metric_more_args a = {METRIC};
            both_launch(b, k, kernel, ROWS, &a, sizeof a);
            both_launch(b, k, DEV_metric_sum_more, 1, &a, sizeof a);
        }
        both_same(b, "a metric");
    }
}

static void test_losses(void **state)
{
    static const int64_t classes[] = {1, 3, 16, 37, 300};
    both *b = *state;

    if (!b) skip();
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        losses_of(b, classes[i], i % 2 ? 0.1f : 0);
        metrics_of(b, classes[i]);
    }
}

/* The cases above print what differs; here it becomes a failure. */
static void test_all_are_same(void **state)
{
    both *b = *state;

    if (!b) skip();
    assert_int_equal(b->failed, 0);
    assert_int_equal(b->done, 2 + 1 + 2 + 6 + 3 + 4 + 5 * (7 + 3));
}

static int open_both(void **state)
{
    static both b;

    if (both_open(&b)) *state = &b;
    return 0;
}

static int close_both(void **state)
{
    both *b = *state;

    if (b) both_close(b);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copies),     cmocka_unit_test(test_tables),
        cmocka_unit_test(test_enlarging),  cmocka_unit_test(test_elements),
        cmocka_unit_test(test_two_values), cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_losses),     cmocka_unit_test(test_all_are_same),
    };

    return cmocka_run_group_tests(tests, open_both, close_both);
}
