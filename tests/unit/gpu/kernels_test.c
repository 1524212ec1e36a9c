/* kernels_test.c - every kernel of device_kernels_main.h on a GPU leaves the bytes that its body leaves on the processor. */
#include <manta/array.h>
#include <math.h>

#include "both.h"

/* ---- products ---- */

static void gemm_case(both *b, int64_t m, int64_t n, int64_t k, bool ta, bool tb, bool accumulate, bool relu)
{
    char name[64];

    both_floats(b, m * k, 1);
    both_floats(b, k * n, 1);
    both_floats(b, m * n, 1);
    both_floats(b, n, 1);
    both_floats(b, m * n, 1);
    BOTH_LAUNCH(b, gemm, m * n, .m = m, .n = n, .k = k, .lda = ta ? m : k, .ldb = tb ? k : n, .ldc = n,
                .a = at[0], .b = at[1], .c = at[2], .bias = relu ? at[3] : 0, .mask = accumulate ? at[4] : 0,
                .ta = ta, .tb = tb, .accumulate = accumulate, .relu = relu);
    snprintf(name, sizeof name, "gemm %d%d%d%d", ta, tb, accumulate, relu);
    both_same(b, name);
}

static void conv_case(both *b, const char *about, conv_shape s, bool positions, bool padding, int64_t chunk)
{
    int64_t in = s.n * s.h * s.w * s.c, out = s.n * s.oh * s.ow * s.oc,
            weight = s.kh * s.kw * s.c / s.groups * s.oc, chunks = (s.n + chunk - 1) / chunk;
    char name[64];

    both_floats(b, in, 1);
    both_floats(b, weight, 1);
    both_floats(b, out, 1);
    both_floats(b, s.oc, 1);
    both_floats(b, in, 1);
    both_floats(b, weight, 1);
    both_zeros(b, BOTH_FLOATS, (size_t)(chunks * weight) * 4);
    both_floats(b, out, 1);
    both_floats(b, in, 1);
    BOTH_LAUNCH(b, conv_forward, out, .s = s, .x = at[0], .w = at[1], .bias = at[3], .y = at[7],
                .relu = true);
    BOTH_LAUNCH(b, conv_data, in, .s = s, .w = at[1], .dy = at[2], .dx = at[4], .mask = at[8],
                .accumulate = true);
    BOTH_LAUNCH(b, conv_weights, chunks * weight, .s = s, .x = at[0], .dy = at[2], .dw = at[5], .part = at[6],
                .chunk = chunk, .chunks = chunks, .accumulate = true, .positions_first = positions,
                .counts_padding = padding);
    if (chunks > 1)
        BOTH_LAUNCH(b, conv_weights_add, weight, .s = s, .dw = at[5], .part = at[6], .chunks = chunks);
    snprintf(name, sizeof name, "conv %s", about);
    both_same(b, name);
}

static void test_products(void **state)
{
    both *b = *state;
    conv_shape plain = {.n = 5,
                        .h = 9,
                        .w = 9,
                        .c = 8,
                        .oh = 9,
                        .ow = 9,
                        .oc = 12,
                        .kh = 3,
                        .kw = 3,
                        .sh = 1,
                        .sw = 1,
                        .dh = 1,
                        .dw = 1,
                        .top = 1,
                        .left = 1,
                        .groups = 1};
    conv_shape strided = plain, depthwise = plain;

    if (!b) skip();
    gemm_case(b, 33, 29, 301, false, false, false, true);
    gemm_case(b, 33, 29, 301, true, false, true, false);
    gemm_case(b, 33, 29, 301, false, true, true, false);
    gemm_case(b, 64, 128, 4000, false, false, false, true);
    conv_case(b, "same padding", plain, false, false, 5);
    conv_case(b, "chunks", plain, true, true, 2);
    strided.oh = strided.ow = 5;
    strided.sh = strided.sw = 2;
    conv_case(b, "strides", strided, true, false, 3);
    depthwise.oc = depthwise.groups = 8;
    conv_case(b, "groups", depthwise, false, false, 1);
}

/* ---- sums over rows ---- */

static void test_reductions(void **state)
{
    enum { ROWS = 1000, C = 37, CHUNK = 256, CHUNKS = 4 };
    both *b = *state;

    if (!b) skip();
    both_floats(b, ROWS * C, 1);
    both_zeros(b, BOTH_DOUBLES, CHUNKS * 2 * C * 8);
    both_floats(b, C, 1);
    BOTH_LAUNCH(b, col_sum_part, CHUNKS * C, .rows = ROWS, .cols = C, .chunk = CHUNK, .chunks = CHUNKS,
                .x = at[0], .part = at[1]);
    BOTH_LAUNCH(b, col_sum_end, C, .rows = ROWS, .cols = C, .chunk = CHUNK, .chunks = CHUNKS, .part = at[1],
                .out = at[2], .accumulate = true);
    both_same(b, "col_sum");
    for (int relu = 0; relu < 2; relu++) {
        both_floats(b, ROWS * C, 3); /* 0 x */
        both_floats(b, C, 1); /* 1 gamma */
        both_floats(b, C, 1); /* 2 beta */
        both_zeros(b, BOTH_FLOATS, C * 4); /* 3 mean */
        both_zeros(b, BOTH_FLOATS, C * 4); /* 4 var */
        both_zeros(b, BOTH_DOUBLES, CHUNKS * 2 * C * 8); /* 5 part */
        both_zeros(b, BOTH_FLOATS, 4 * C * 4); /* 6 coef */
        both_zeros(b, BOTH_FLOATS, ROWS * C * 4); /* 7 out */
        both_floats(b, ROWS * C, 1); /* 8 dy */
        both_floats(b, ROWS * C, 1); /* 9 dx */
        both_floats(b, C, 1); /* 10 dgamma, moving mean */
        both_floats(b, C, 1); /* 11 dbeta, moving variance */
        for (int step = 0; step < 7; step++) {
#define BN                                                                                                   \
    .rows = ROWS, .c = C, .chunk = CHUNK, .chunks = CHUNKS, .x = at[0], .dy = at[8], .y = at[7],             \
    .gamma = at[1], .beta = at[2], .mean = at[3], .var = at[4], .part = at[5], .coef = at[6], .out = at[7],  \
    .dx = at[9], .dgamma = at[10], .dbeta = at[11], .eps = 1e-3f, .relu = relu, .accumulate_dx = true,       \
    .old_mean = at[10], .old_var = at[11], .new_mean = at[10], .new_var = at[11], .keep = 0.99f,             \
    .take = 0.01f, .grow = 1.001f, .keep_gamma = DEV_ADD, .keep_beta = DEV_ADD_TO_ZERO
            if (step == 0) BOTH_LAUNCH(b, bn_moments, CHUNKS * C, BN);
            if (step == 1) BOTH_LAUNCH(b, bn_moments_end, C, BN);
            if (step == 2) BOTH_LAUNCH(b, bn_coef, C, BN);
            if (step == 3) BOTH_LAUNCH(b, bn_out, ROWS * C, BN);
            if (step == 4) BOTH_LAUNCH(b, bn_sums, CHUNKS * C, BN);
            if (step == 5) BOTH_LAUNCH(b, bn_sums_end, C, BN);
            if (step == 6) BOTH_LAUNCH(b, bn_dx, ROWS * C, BN);
#undef BN
        }
        both_same(b, relu ? "batch norm, relu" : "batch norm");
    }
}

/* ---- elements ---- */

static void test_elements(void **state)
{
    enum { N = 20000 };
    both *b = *state;
    char name[64];

    if (!b) skip();
    for (int act = 0; act < KERN_ACTS; act++) {
        both_floats(b, N, act % 2 ? 8 : 100);
        both_zeros(b, BOTH_FLOATS, N * 4);
        both_floats(b, N, 1);
        both_floats(b, N, 1);
        BOTH_LAUNCH(b, act_forward, N, .act = (kern_act)act, .alpha = 0.3f, .x = at[0], .y = at[1]);
        BOTH_LAUNCH(b, act_backward, N, .act = (kern_act)act, .alpha = 0.3f, .x = at[0], .y = at[1],
                    .dy = at[2], .dx = at[3], .accumulate = act % 2);
        snprintf(name, sizeof name, "activation %d", act);
        both_same(b, name);
    }
    for (int op = 0; op < KERN_BINARIES; op++) {
        both_floats(b, N, 1);
        both_floats(b, N / 4, 1);
        both_floats(b, N, 1);
        BOTH_LAUNCH(b, binary, N, .op = (kern_binary)op, .nb = N / 4, .a = at[0], .b = at[1], .out = at[2],
                    .relu = op == 0, .accumulate = op == 2);
        snprintf(name, sizeof name, "binary %d", op);
        both_same(b, name);
    }
    both_floats(b, N, 1);
    both_floats(b, N, 1);
    BOTH_LAUNCH(b, axpby, N, .alpha = 1.7f, .beta = 0.3f, .a = at[0], .out = at[1]);
    BOTH_LAUNCH(b, affine, N, .dtype = MANTA_DTYPE_U8, .scale = 1.0f / 255, .offset = -0.5f, .x = at[0],
                .y = at[1]);
    both_same(b, "axpby, affine");
    for (int shared = 0; shared < 2; shared++) {
        dev_run run = {.seed = 12345678901234, .step = 17, .first = 640};
        both_floats(b, N, 1);
        both_floats(b, N, 1);
        both_put(b, BOTH_BYTES, sizeof run, &run);
        BOTH_LAUNCH(b, dropout, shared ? N : 20 * 250, .n = N / 20, .run = at[2], .from = at[0], .to = at[1],
                    .rate = 0.3f, .call = 5, .add = true, .ndim = shared ? 3 : 0, .shape = {20, 10, 100},
                    .shared = {false, true, false});
        both_same(b, shared ? "dropout, shared" : "dropout");
    }
}

/* ---- windows and rows ---- */

static void test_windows(void **state)
{
    both *b = *state;
    pool_shape s = {.n = 4,
                    .h = 11,
                    .w = 9,
                    .c = 5,
                    .oh = 6,
                    .ow = 5,
                    .kh = 3,
                    .kw = 3,
                    .sh = 2,
                    .sw = 2,
                    .top = 1,
                    .left = 1};
    int64_t in = s.n * s.h * s.w * s.c, out = s.n * s.oh * s.ow * s.c;

    if (!b) skip();
    for (int average = 0; average < 2; average++) {
        both_floats(b, in, 1);
        both_floats(b, out, 1);
        both_zeros(b, BOTH_BYTES, (size_t)out);
        both_floats(b, out, 1);
        both_floats(b, in, 1);
#define WINDOW .s = s, .x = at[0], .y = at[1], .arg = at[2], .dy = at[3], .dx = at[4], .accumulate = true
        if (average) {
            BOTH_LAUNCH(b, avg_pool_forward, out, WINDOW);
            BOTH_LAUNCH(b, avg_pool_back, in, WINDOW);
        } else {
            BOTH_LAUNCH(b, max_pool_forward, out, WINDOW);
            BOTH_LAUNCH(b, max_pool_back, in, WINDOW);
        }
#undef WINDOW
        both_same(b, average ? "average pooling" : "max pooling");
    }
}

static void test_rows(void **state)
{
    enum { ROWS = 70, SUMS = 9 };
    static const int classes[] = {3, 10, 16, 33, 1000};
    both *b = *state;
    char name[64];

    if (!b) skip();
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        int64_t c = classes[i], n = ROWS * c;
        both_floats(b, n, 5); /* 0 logits */
        both_zeros(b, BOTH_FLOATS, (size_t)n * 4); /* 1 shares */
        both_floats(b, n, 1); /* 2 dy */
        both_floats(b, n, 1); /* 3 dx */
        both_labels(b, ROWS, classes[i]); /* 4 */
        both_positive(b, ROWS); /* 5 weights */
        both_zeros(b, BOTH_FLOATS, ROWS * 4); /* 6 losses */
        both_zeros(b, BOTH_FLOATS, (size_t)n * 4); /* 7 gradient */
        both_zeros(b, BOTH_DOUBLES, SUMS * 8); /* 8 sums */
        both_zeros(b, BOTH_FLOATS, ROWS * 4); /* 9 right */
        both_zeros(b, BOTH_FLOATS, (size_t)n * 4); /* 10 gradient by shares */
        both_zeros(b, BOTH_FLOATS, ROWS * 4); /* 11 losses of shares */
        BOTH_LAUNCH(b, softmax_forward, ROWS, .c = c, .x = at[0], .y = at[1]);
        BOTH_LAUNCH(b, softmax_backward, ROWS, .c = c, .y = at[1], .dy = at[2], .dx = at[3],
                    .accumulate = i % 2);
        BOTH_LAUNCH(b, sparse_logits, ROWS, .rows = ROWS, .classes = c, .pred = at[0], .target = at[4],
                    .weight = at[5], .loss = at[6], .grad = at[7], .scale = 0.5f,
                    .smoothing = i % 2 ? 0.1f : 0);
        BOTH_LAUNCH(b, sparse_probs, ROWS, .rows = ROWS, .classes = c, .pred = at[1], .target = at[4],
                    .loss = at[11], .grad = at[10], .scale = 0.5f, .smoothing = i % 2 ? 0.1f : 0);
        BOTH_LAUNCH(b, sums_begin, SUMS, .n = SUMS, .sums = at[8], .samples = ROWS, .divisor = ROWS);
        BOTH_LAUNCH(b, head_sum, 1, .rows = ROWS, .sums = at[8], .loss = at[6], .weight = at[5], .inner = 1,
                    .head_weight = 0.7, .divisor = (double)NAN, .head = 3);
        BOTH_LAUNCH(b, accuracy_rows, ROWS, .rows = ROWS, .classes = c, .pred = at[0], .target = at[4],
                    .value = at[9]);
        BOTH_LAUNCH(b, metric_sum, 1, .rows = ROWS, .value = at[9], .sums = at[8], .at = 5);
        snprintf(name, sizeof name, "softmax, losses, %d", classes[i]);
        both_same(b, name);
    }
}

/* ---- the update ---- */

static void update_case(both *b, const char *name, update_scalars s, int slots, bool each)
{
    enum { N = 4096, SLOT = 2 * N };
    struct {
        int64_t n;
        dev_addr at[8];
    } table[2];
    dev_param p[2] = {{.offset = 0, .count = 1000, .s = s}, {.offset = 1008, .count = N - 1008, .s = s}};
    dev_segment g[2] = {{.param = 0, .offset = 0, .n = 1000}, {.param = 1, .offset = 1008, .n = N - 1008}};
    int32_t lines[N / 16];
    uint8_t stat_lines[N / 16];

    p[1].s.l1 *= 2;
    p[1].s.clip_factor *= each ? 0.5f : 1;
    for (int i = 0; i < N / 16; i++) {
        lines[i] = i < 63 ? 0 : 1;
        stat_lines[i] = i % 3 != 0;
    }
    for (int i = 0; i < 7; i++)
        (i == 2 || i == 3 ? both_positive(b, N) : both_floats(b, N, 1)); /* w s0 s1 s2 avg acc stats */
    both_floats(b, 8 * SLOT, 64); /* 7 */
    both_put(b, BOTH_BYTES, sizeof p, p); /* 8 */
    both_put(b, BOTH_BYTES, sizeof g, g); /* 9 */
    both_put(b, BOTH_BYTES, sizeof lines, lines); /* 10 */
    both_put(b, BOTH_BYTES, sizeof stat_lines, stat_lines); /* 11 */
    both_zeros(b, BOTH_DOUBLES, 4 * 8); /* 12 */
    b->n++; /* 13: the slots, whose table is not the same on both */
    b->size[13] = 0;
    for (int k = 0; k < 2; k++) {
        table[k].n = slots;
        for (int i = 0; i < 8; i++) table[k].at[i] = b->at[k][7] + (dev_addr)i * SLOT * 4;
        assert_ok(device_alloc(b->d[k], sizeof table[k], "a test", &b->at[k][13]));
        assert_ok(device_put(b->d[k], b->at[k][13], &table[k], sizeof table[k]));
    }
    BOTH_LAUNCH(b, norms, 2, .slots = at[13], .params = at[8], .segments = at[9], .w = at[0],
                .accumulator = at[5], .out = at[12]);
    BOTH_LAUNCH(b, update, N, .slots = at[13], .params = at[8], .lines = at[10], .w = at[0], .s0 = at[1],
                .s1 = at[2], .s2 = at[3], .average = at[4], .accumulator = at[5], .each = each);
    BOTH_LAUNCH(b, stats, N, .slots = at[13], .lines = at[11], .stats = at[6], .proposals = (uint64_t)N * 4);
    both_same(b, name);
}

static void test_updates(void **state)
{
    static const char *const rules[] = {"sgd", "torch.sgd", "adam", "torch.adam", "rmsprop", "torch.rmsprop"};
    both *b = *state;
    char name[64];

    if (!b) skip();
    for (int rule = 0; rule < UPDATE_RULES; rule++) {
        for (int form = 0; form < 4; form++) {
            update_scalars s = {.rule = (update_rule)rule,
                                .lr = 0.01f,
                                .mu = form % 2 ? 0.9 : 0,
                                .dampening = 0.1,
                                .nesterov = form == 3,
                                .beta1 = 0.9,
                                .beta2 = 0.999,
                                .eps = 1e-7f,
                                .alpha = 0.003f,
                                .root_c2 = 0.3f,
                                .amsgrad = form == 2,
                                .centered = form == 1,
                                .divisor = form ? 100 : 64,
                                .l1 = form == 2 ? 0.01f : 0,
                                .l2 = form == 2 ? 0.02f : 0,
                                .l2_torch = form == 3 ? 0.1f : 0,
                                .clip_value = form == 1 ? 0.5f : 0,
                                .clip_factor = 1,
                                .decay_lr = form == 3 ? 1e-3f : 0,
                                .ema = form == 1 ? 0.99 : 0,
                                .ema_overwrite = rule % 2,
                                .accumulate_n = form == 2 ? 3 : 0};
            snprintf(name, sizeof name, "update %s, form %d", rules[rule], form);
            update_case(b, name, s, 1 + 2 * form + (form > 1), form == 2);
        }
    }
    update_case(b, "update, accumulates",
                (update_scalars){.divisor = 3, .clip_factor = 1, .accumulate_only = true}, 2, false);
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
    int failed = 0;

    if (b) {
        failed = b->failed;
        printf("%d cases, %d differ\n", b->done, b->failed);
        both_close(b);
    }
    return failed ? -1 : 0;
}

/* The cases above print what differs; here it becomes a failure. */
static void test_all_are_same(void **state)
{
    both *b = *state;

    if (!b) skip();
    assert_int_equal(b->failed, 0);
    assert_true(b->done > 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_products),    cmocka_unit_test(test_reductions),
                                       cmocka_unit_test(test_elements),    cmocka_unit_test(test_windows),
                                       cmocka_unit_test(test_rows),        cmocka_unit_test(test_updates),
                                       cmocka_unit_test(test_all_are_same)};

    return cmocka_run_group_tests(tests, open_both, close_both);
}
