/* sizes_test.c - one below, at, one above and ten times every size of tensor/sizes.h, on every family and on
 * one and two threads: the same bits, and where a sum is short to write down, the right ones. */
#include <stdio.h>

#include "families.h"
#include "ok.h"
#include "tensor/conv.h"
#include "tensor/convert.h"
#include "tensor/copy.h"
#include "tensor/sizes.h"

enum { AROUND = 4 };

static int64_t beside(int64_t size, int k)
{
    return k < 3 ? size - 1 + k : 10 * size;
}

/* ---- products ---- */

typedef struct product {
    int64_t m, n, k;
} product;

/* The element (i, j) as tensor/gemm.h defines it. */
static float element_of(const product *c, const float *a, const float *b, int64_t i, int64_t j)
{
    float sum = 0;

    for (int64_t p = 0; p < c->k; p++) sum = fmaf(a[i * c->k + p], b[p * c->n + j], sum);
    return sum;
}

static void take(void *to, int64_t first, int64_t n, const float *v)
{
    memcpy((float *)to + first, v, (size_t)n * sizeof *v);
}

static void run_product(run *r, const void *arg)
{
    const product *c = arg;
    float *a = case_fill(r, c->m * c->k, 1.0f, 0.0f), *b = case_fill(r, c->k * c->n, 1.0f, 0.0f);
    float *y = case_new(c->m * c->n), *sunk = case_new(c->m * c->n);
    gemm_call g = {
        .m = c->m, .n = c->n, .k = c->k, .a = a, .lda = c->k, .b = b, .ldb = c->n, .c = y, .ldc = c->n};

    r->k->gemm(r->p, &g);
    case_out(r, c->m * c->n, y);
    for (int64_t i = 0; r->first && i<c->m; i += c->m> 9 ? c->m / 7 : 1) {
        for (int64_t j = 0; j<c->n; j += c->n> 9 ? c->n / 7 : 1)
            assert_true(y[i * c->n + j] == element_of(c, a, b, i, j));
    }
    g.c = NULL;
    g.sink = take;
    g.sink_ctx = sunk;
    if (c->m * c->n < STREAM_FROM / 2) {
        r->k->gemm(r->p, &g);
        assert_memory_equal(y, sunk, (size_t)(c->m * c->n) * sizeof *y);
    }
    free(a);
    free(b);
    free(y);
    free(sunk);
}

static void check_product(int64_t m, int64_t n, int64_t k)
{
    char what[80];

    snprintf(what, sizeof what, "product of %lld x %lld over %lld", (long long)m, (long long)n, (long long)k);
    case_everywhere(what, run_product, &(product){m, n, k});
}

static void products_beside_each_size(void **state)
{
    static const int64_t rows[] = {GEMM_MC, GEMM_ROWS_FIRST, GEMM_ROWS_TO_PACK, GEMM_PAIR, GEMM_PAIR_ROWS};
    static const int64_t columns[] = {GEMM_NC, GEMM_NEAR, GEMM_RUN};

    (void)state;
    for (int i = 0; i < AROUND; i++) {
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) check_product(beside(rows[k], i), 33, 17);
        for (size_t k = 0; k < sizeof columns / sizeof *columns; k++)
            check_product(13, beside(columns[k], i), 17);
        check_product(15, 33, beside(GEMM_KC, i));
        check_product(65, beside(GEMM_SMALL, i) / (65 * 64), 64); /* steps, as near as whole columns come */
    }
    check_product(64, 64, GEMM_SMALL / (64 * 64));
    check_product(1, 1, GEMM_SMALL - 1);
    check_product(1, 1, GEMM_SMALL + 1);
}

/* The two gradients of a dense layer, whose tasks are cut by GEMM_PAIR places. */
static void run_pair(run *r, const void *arg)
{
    int64_t rows = 5, out = 7, in = *(const int64_t *)arg;
    float *x = case_fill(r, rows * in, 1.0f, 0.0f), *w = case_fill(r, in * out, 1.0f, 0.0f);
    float *dy = case_fill(r, rows * out, 1.0f, 0.0f), *dx = case_new(rows * in), *dw = case_new(in * out);
    float *dx2 = case_new(rows * in), *dw2 = case_new(in * out);
    gemm_call first = {.m = rows,
                       .n = in,
                       .k = out,
                       .tb = true,
                       .a = dy,
                       .lda = out,
                       .b = w,
                       .ldb = out,
                       .c = dx,
                       .ldc = in};
    gemm_call second = {.m = in,
                        .n = out,
                        .k = rows,
                        .ta = true,
                        .a = x,
                        .lda = in,
                        .b = dy,
                        .ldb = out,
                        .c = dw,
                        .ldc = out};

    r->k->gemm_pair(r->p, &first, &second);
    case_out(r, rows * in, dx);
    case_out(r, in * out, dw);
    first.c = dx2;
    second.c = dw2;
    r->k->gemm(r->p, &first);
    r->k->gemm(r->p, &second);
    assert_memory_equal(dx, dx2, (size_t)(rows * in) * sizeof *dx);
    assert_memory_equal(dw, dw2, (size_t)(in * out) * sizeof *dw);
    float *all[] = {x, w, dy, dx, dw, dx2, dw2};
    for (int i = 0; i < 7; i++) free(all[i]);
}

static void pairs_beside_each_size(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        int64_t a = beside(GEMM_PAIR, i), b = beside(GEMM_PAIR_ROWS, i);
        case_everywhere("pair", run_pair, &a);
        case_everywhere("pair", run_pair, &b);
    }
}

/* ---- convolutions ---- */

/* 3 x 3 over n images of h x w x c to oc channels in groups, with padding. */
static void run_conv(run *r, const void *arg)
{
    const conv_shape *s = arg;
    int64_t n_x = s->n * s->h * s->w * s->c, n_y = s->n * s->oh * s->ow * s->oc;
    int64_t n_w = s->kh * s->kw * (s->c / s->groups) * s->oc;
    float *x = case_fill(r, n_x, 1.0f, 0.0f), *w = case_fill(r, n_w, 1.0f, 0.0f),
          *dy = case_fill(r, n_y, 1.0f, 0.0f);
    float *y = case_new(n_y), *dx = case_new(n_x), *dw = case_new(n_w);
    conv_call c = {.s = *s, .x = x, .w = w, .dy = dy, .y = y, .dx = dx, .dw = dw};

    c.work = malloc(r->k->conv_work(s, pool_threads(r->p)) + 1);
    assert_non_null(c.work);
    r->k->conv_forward(r->p, &c);
    case_out(r, n_y, y);
    r->k->conv_backward_data(r->p, &c);
    case_out(r, n_x, dx);
    r->k->conv_backward_weights(r->p, &c);
    case_out(r, n_w, dw);
    double a = 0, b = 0, e = 0; /* <dy, y> = <dx, x> = <dw, w> */
    for (int64_t i = 0; i < n_y; i++) a += (double)dy[i] * (double)y[i];
    for (int64_t i = 0; i < n_x; i++) b += (double)dx[i] * (double)x[i];
    for (int64_t i = 0; i < n_w; i++) e += (double)dw[i] * (double)w[i];
    case_near(r, "<dx, x>", 0, (float)b, a, 1e-3, 10);
    case_near(r, "<dw, w>", 0, (float)e, a, 1e-3, 10);
    float *all[] = {x, w, dy, y, dx, dw};
    for (int i = 0; i < 6; i++) free(all[i]);
    free(c.work);
}

static void check_conv(int64_t n, int64_t h, int64_t w, int64_t c, int64_t oc, int64_t k, int64_t groups)
{
    conv_shape s = {.n = n,
                    .h = h,
                    .w = w,
                    .c = c,
                    .oh = h,
                    .ow = w,
                    .oc = oc,
                    .kh = k,
                    .kw = k,
                    .sh = 1,
                    .sw = 1,
                    .dh = 1,
                    .dw = 1,
                    .top = k / 2,
                    .left = k / 2,
                    .groups = groups};
    char what[120];

    snprintf(what, sizeof what,
             "convolution of %lld images %lld x %lld x %lld to %lld, kernel %lld, groups %lld", (long long)n,
             (long long)h, (long long)w, (long long)c, (long long)oc, (long long)k, (long long)groups);
    case_everywhere(what, run_conv, &s);
}

static void convolutions_beside_each_size(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        check_conv(2, 1, beside(CONV_TASK_ROWS, i), 3, 9, 1, 1);
        check_conv(2, 1, beside(CONV_MIN_TASK_ROWS, i), 3, 9, 1, 1);
        check_conv(2, 3, 3, 4, beside(CONV_WIDE, i), 3, 1);
        check_conv(2, 1, beside(CONV_SMALL_MAP, i), CONV_FEW_CHANNELS, 5, 3, 1);
        check_conv(2, 5, 4, beside(CONV_FEW_CHANNELS, i), 5, 3, 1);
        check_conv(3, 2, beside(CONV_LONG_RUN, i), 9, 5, 3, 1);
        check_conv(beside(CONV_CHUNKS, i), 3, 3, 2, 5, 3, 1);
        check_conv(2, 1, beside(CONV_SUM_BLOCK, i), 9, 3, 1, 1);
        check_conv(2, 2, 2, beside(CONV_SUM_ROWS, i), 5, 1, 1);
        check_conv(2, 2, 2, beside(CONV_SUM_ROWS_FEW, i) / 9, 5, 3, 1);
        check_conv(2, 2, 2, beside(CONV_SUM_PACK_ROWS, i), 33, 1, 1);
        int64_t lanes = beside(CONV_DEPTHWISE_RUN, i);
        check_conv(1, 2, 3, lanes, lanes, 3, lanes);
    }
}

/* Elements of a weight: cin x cout of a 1 x 1 kernel. */
static void weights_beside_each_size(void **state)
{
    static const int64_t sizes[] = {CONV_TINY_WEIGHT, CONV_LARGE_WEIGHT, CONV_ADD_RUN};

    (void)state;
    for (size_t k = 0; k < sizeof sizes / sizeof *sizes; k++) {
        for (int i = 0; i < AROUND; i++) check_conv(i < 3 ? 17 : 2, 1, 2, 1, beside(sizes[k], i), 1, 1);
        check_conv(17, 2, 2, 16, sizes[k] / 16, 1, 1); /* whole vectors */
        check_conv(17, 2, 2, 16, sizes[k] / 16 + 16, 1, 1);
    }
}

/* ---- elements and rows ---- */

static void run_elements(run *r, const void *arg)
{
    int64_t n = *(const int64_t *)arg;
    float *x = case_fill(r, n, 4.0f, 0.0f), *b = case_fill(r, n, 1.0f, 0.0f), *y = case_new(n);

    r->k->act_forward(r->p, KERN_TANH, 0, n, x, y);
    case_out(r, n, y);
    r->k->binary(r->p, KERN_MUL, n, x, n, b, y);
    case_out(r, n, y);
    for (int64_t i = 0; i < n; i++) assert_true(y[i] == x[i] * b[i]);
    r->k->axpby(r->p, n, 2.0f, x, 3.0f, y);
    case_out(r, n, y);
    r->k->softmax_forward(r->p, 1, n, x, y);
    case_out(r, n, y);
    free(x);
    free(b);
    free(y);
}

/* b repeats every nb elements. */
static void run_repeated(run *r, const void *arg)
{
    int64_t nb = *(const int64_t *)arg, n = 5 * nb;
    float *x = case_fill(r, n, 4.0f, 0.0f), *b = case_fill(r, nb, 1.0f, 0.0f), *y = case_new(n);

    r->k->binary(r->p, KERN_ADD, n, x, nb, b, y);
    case_out(r, n, y);
    for (int64_t i = 0; i < n; i++) assert_true(y[i] == x[i] + b[i % nb]);
    free(x);
    free(b);
    free(y);
}

static void elements_beside_each_size(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        int64_t n = beside(ELEM_GRAIN, i), half = beside(ELEM_WIDENED / 2, i),
                whole = beside(ELEM_WIDENED, i);
        case_everywhere("elements of a task", run_elements, &n);
        case_everywhere("a repeated operand", run_repeated, &half);
        case_everywhere("a repeated operand", run_repeated, &whole);
    }
}

static void run_rows(run *r, const void *arg)
{
    const int64_t *size = arg, rows = size[0], c = size[1], n = rows * c;
    float *x = case_fill(r, n, 1.0f, 0.5f), *dy = case_fill(r, n, 1.0f, 0.0f), *sum = case_new(c);
    float *y = case_new(n), *dx = case_new(n), *mean = case_new(c), *var = case_new(c);
    double *want = case_sums(c);
    bn_call b = {
        .rows = rows, .c = c, .x = x, .dy = dy, .eps = 1e-3f, .out = y, .mean = mean, .var = var, .dx = dx};

    r->k->col_sum(r->p, rows, c, x, sum, false);
    case_out(r, c, sum);
    for (int64_t i = 0; i < n; i++) want[i % c] += (double)x[i];
    for (int64_t i = 0; i < c; i++) case_near(r, "sum", i, sum[i], want[i], 1e-5, 1);
    r->k->bn_forward(r->p, &b);
    case_out(r, n, y);
    r->k->bn_backward(r->p, &b);
    case_out(r, n, dx);
    float *all[] = {x, dy, sum, y, dx, mean, var};
    for (int i = 0; i < 7; i++) free(all[i]);
    free(want);
}

static void check_rows(int64_t rows, int64_t c)
{
    char what[60];

    snprintf(what, sizeof what, "%lld rows of %lld", (long long)rows, (long long)c);
    case_everywhere(what, run_rows, (const int64_t[]){rows, c});
}

static void rows_and_columns_beside_each_size(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        check_rows(beside(REDUCE_SPAN, i), 5);
        check_rows(beside(REDUCE_CHUNK_LEAST, i), 5);
        check_rows(beside((int64_t)REDUCE_CHUNK_LEAST * REDUCE_CHUNKS_MOST, i), 2);
        check_rows(3, beside(REDUCE_WIDE, i));
        check_rows(3, beside(REDUCE_COLUMNS, i));
        check_rows(2, beside(REDUCE_STRIP, i));
    }
}

/* ---- windows ---- */

static void run_window(run *r, const void *arg)
{
    int64_t c = *(const int64_t *)arg;
    pool_shape s = {.n = 1, .h = 3, .w = 3, .c = c, .oh = 2, .ow = 2, .kh = 2, .kw = 2, .sh = 1, .sw = 1};
    float *x = case_fill(r, 9 * c, 1.0f, 0.0f), *dy = case_fill(r, 4 * c, 1.0f, 0.0f);
    float *y = case_new(4 * c), *dx = case_new(9 * c);
    uint8_t *which = malloc((size_t)(4 * c));

    assert_non_null(which);
    r->k->max_pool_forward(r->p, &s, x, y, which);
    case_out(r, 4 * c, y);
    for (int64_t i = 0; i < c; i++)
        assert_true(y[i] == fmaxf(fmaxf(x[i], x[c + i]), fmaxf(x[3 * c + i], x[4 * c + i])));
    r->k->max_pool_backward(r->p, &s, which, dy, dx, false);
    case_out(r, 9 * c, dx);
    r->k->avg_pool_forward(r->p, &s, x, y);
    case_out(r, 4 * c, y);
    r->k->avg_pool_backward(r->p, &s, dy, dx, false);
    case_out(r, 9 * c, dx);
    free(which);
    float *all[] = {x, dy, y, dx};
    for (int i = 0; i < 4; i++) free(all[i]);
}

static void windows_beside_each_size(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        int64_t a = beside(WINDOW_CHANNELS, i), b = beside(WINDOW_PART, i);
        case_everywhere("windows", run_window, &a);
        case_everywhere("windows", run_window, &b);
    }
}

/* ---- the optimizer ---- */

static void run_update(run *r, const void *arg)
{
    int64_t n = *(const int64_t *)arg;
    float *g = case_fill(r, n, 1.0f, 0.0f), *w = case_fill(r, n, 1.0f, 0.0f), *to = case_new(n);
    update_scalars s = {.rule = UPDATE_SGD, .lr = 0.1f, .divisor = 4, .clip_factor = 1};
    update_run u = {.s = &s, .n = n, .grads = (const float *const[]){g}, .n_grads = 1, .w = w, .w_new = to};

    r->k->update(&u);
    case_out(r, n, to);
    for (int64_t i = 0; i < n; i++)
        case_near(r, "w", i, to[i], (double)w[i] - 0.1 * (double)g[i] / 4, 1e-6, 1);
    float square = (float)r->k->square_sum(&u), kept[2] = {square, 12345.0f};
    case_out(r, 1, kept);
    free(g);
    free(w);
    free(to);
}

static void updates_beside_a_tile(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        int64_t n = beside(UPDATE_TILE, i);
        case_everywhere("update", run_update, &n);
    }
}

/* ---- copies ---- */

/* A transposed copy of (rows, columns), and one that converts, against plain loops. */
static void check_copy(int64_t rows, int64_t columns)
{
    int64_t n = rows * columns, shape[] = {rows, columns}, turned[] = {columns, rows};
    float *from = case_new(n), *to = case_new(n);
    double *wide = case_sums(n);
    pool *p;

    for (int64_t i = 0; i < n; i++) from[i] = (float)i;
    assert_ok(pool_new(2, KERN_SCRATCH, &p));
    manta_array a = manta_array_of(MANTA_DTYPE_F32, 2, shape, from);
    manta_array view = copy_permuted(&a, (const int[]){1, 0});
    manta_array flat = manta_array_of(MANTA_DTYPE_F32, 2, turned, to);
    manta_array doubles = manta_array_of(MANTA_DTYPE_F64, 2, turned, wide);
    assert_ok(copy_strided(p, &flat, &view, false));
    assert_ok(copy_strided(p, &doubles, &view, false));
    for (int64_t i = 0; i < n; i++) {
        float want = from[i % rows * columns + i / rows];
        assert_true(to[i] == want && wide[i] == (double)want);
    }
    assert_true(to[n] == 12345.0f);
    pool_free(p);
    free(from);
    free(to);
    free(wide);
}

static void copies_beside_each_size(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        check_copy(beside(COPY_SQUARE, i), 5);
        check_copy(7, beside(COPY_SQUARE, i));
        check_copy(3, beside(COPY_RUN, i));
        check_copy(1, beside(COPY_GRAIN, i));
        check_copy(2, beside(COPY_GRAIN, i));
    }
}

static void conversions_beside_a_block(void **state)
{
    (void)state;
    for (int i = 0; i < AROUND; i++) {
        int64_t n = beside(CONVERT_BLOCK, i);
        int32_t *from = malloc((size_t)n * sizeof *from);
        double *to = case_sums(n);
        assert_non_null(from);
        for (int64_t k = 0; k < n; k++) from[k] = (int32_t)(k * 7919 - 5000);
        convert_run(MANTA_DTYPE_I32, from, MANTA_DTYPE_F64, to, n);
        for (int64_t k = 0; k < n; k++) assert_true(to[k] == (double)from[k]);
        assert_true(to[n] == 0);
        free(from);
        free(to);
    }
}

/* ---- past the caches ---- */

static void results_beside_what_goes_past_the_caches(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) check_product(1, STREAM_FROM - 1 + i, 1);
    check_product(16, STREAM_FROM / 16, 1);
    check_product(160, STREAM_FROM / 16, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_beside_each_size),
        cmocka_unit_test(pairs_beside_each_size),
        cmocka_unit_test(convolutions_beside_each_size),
        cmocka_unit_test(weights_beside_each_size),
        cmocka_unit_test(elements_beside_each_size),
        cmocka_unit_test(rows_and_columns_beside_each_size),
        cmocka_unit_test(windows_beside_each_size),
        cmocka_unit_test(updates_beside_a_tile),
        cmocka_unit_test(copies_beside_each_size),
        cmocka_unit_test(conversions_beside_a_block),
        cmocka_unit_test(results_beside_what_goes_past_the_caches),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
