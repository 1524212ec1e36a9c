/* mma_test.c - products on tensor cores beside the exact kernels of the same device, within what their roundings
 * allow; sums over rows in parallel beside those in order. On the fake device, and on a GPU where there is one. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "gpu/gpu.h"
#include "ok.h"
#include "tensor/device_mma.h"

enum { MOST = 16 };

typedef struct setting {
    device *d;
    dev_addr at[MOST];
    int64_t count[MOST];
    int n;
    uint64_t drawn;
} setting;

static int add_floats(setting *t, int64_t count, const float *from)
{
    int i = t->n++;

    assert_true(i < MOST);
    t->count[i] = count;
    assert_ok(device_alloc(t->d, (size_t)count * sizeof(float), "a test", &t->at[i]));
    if (from) assert_ok(device_put(t->d, t->at[i], from, (size_t)count * sizeof(float)));
    return i;
}

/* Numbers in (-1, 1), and the same without their signs. */
static int add_numbers(setting *t, int64_t count, bool positive)
{
    float *x = malloc((size_t)count * sizeof *x);
    uint64_t first = t->drawn;
    int i;

    for (int64_t e = 0; e < count; e++) {
        x[e] = 2 * rng_uniform(rng_at(rng_make(3, 5), first + (uint64_t)e).w[0]) - 1;
        if (positive) x[e] = fabsf(x[e]);
    }
    if (positive) t->drawn += (uint64_t)count;
    i = add_floats(t, count, x);
    free(x);
    return i;
}

static float *fetch(setting *t, int i)
{
    float *x = malloc((size_t)t->count[i] * sizeof *x);

    assert_ok(device_get(t->d, x, t->at[i], (size_t)t->count[i] * sizeof *x));
    return x;
}

static void clear(setting *t)
{
    for (int i = 0; i < t->n; i++) device_release(t->d, t->at[i], (size_t)t->count[i] * sizeof(float));
    t->n = 0;
}

static void play(setting *t, int kernel, int64_t items, const void *args, size_t size)
{
    dev_program *p = program_new(t->d);

    program_add(p, kernel, items, args, size);
    assert_ok(program_play(p));
    assert_ok(device_wait(t->d));
    program_free(p);
}

/* ---- convolutions ---- */

/* The arrays of a case, with their signs or without. */
typedef struct arrays {
    int x, w, dy, bias, mask, out;
} arrays;

static int64_t count_x(const conv_shape *s)
{
    return s->n * s->h * s->w * s->c;
}

static int64_t count_y(const conv_shape *s)
{
    return s->n * s->oh * s->ow * s->oc;
}

static int64_t count_w(const conv_shape *s)
{
    return s->kh * s->kw * s->c * s->oc;
}

static int64_t count_out(const conv_shape *s, mma_op op)
{
    return op == MMA_FORWARD ? count_y(s) : op == MMA_DATA ? count_x(s) : count_w(s);
}

static conv_args args_of(setting *t, const conv_shape *s, mma_op op, const arrays *a, bool plain)
{
    conv_args c = {.s = *s,
                   .x = t->at[a->x],
                   .w = t->at[a->w],
                   .dy = t->at[a->dy],
                   .y = t->at[a->out],
                   .dx = t->at[a->out],
                   .dw = t->at[a->out],
                   .chunk = s->n,
                   .chunks = 1};

    if (plain) return c;
    c.bias = op == MMA_FORWARD ? t->at[a->bias] : 0;
    c.relu = op == MMA_FORWARD;
    c.mask = op == MMA_DATA ? t->at[a->mask] : 0;
    c.accumulate = op != MMA_FORWARD;
    return c;
}

/* One output each, in order. */
static void play_exactly(setting *t, mma_op op, const conv_args *c)
{
    static const int exact[] = {DEV_conv_forward, DEV_conv_data, DEV_conv_weights};

    play(t, exact[op], count_out(&c->s, op), c, sizeof *c);
}

static void play_product(setting *t, dev_mma m, bool round)
{
    int part = -1;

    assert_int_not_equal(m.kernel, DEV_COUNT);
    m.args.round = round;
    if (m.part_bytes) {
        part = add_floats(t, (int64_t)(m.part_bytes / sizeof(float)), NULL);
        m.args.part = t->at[part];
    }
    play(t, m.kernel, m.blocks, &m.args, sizeof m.args);
    if (part < 0) return;
    play(t, DEV_mma_add, (int64_t)m.args.rows * m.args.cols, &m.args, sizeof m.args);
    t->n--;
    device_release(t->d, t->at[part], (size_t)t->count[part] * sizeof(float));
}

/* What a product of a kind may be off, in parts of the sum of absolute products. */
static float error_of(mma_kind kind, int64_t depth)
{
    return (kind == MMA_TF32 ? 0x1.1p-9f : 0x1.1p-7f) + (float)depth * 0x1p-22f;
}

static void compare(setting *t, const arrays *a, const float *want, const float *most, float error,
                    bool round, const char *what)
{
    float *got = fetch(t, a->out);

    for (int64_t e = 0; e < t->count[a->out]; e++) {
        float allowed = error * most[e] + 1e-30f + (round ? fabsf(want[e]) * 0x1p-8f : 0);
        if (!(fabsf(got[e] - want[e]) <= allowed))
            fail_msg("%s, element %lld: %g, expected %g within %g", what, (long long)e, (double)got[e],
                     (double)want[e], (double)allowed);
        if (round) {
            uint32_t bits;
            memcpy(&bits, &got[e], sizeof bits);
            assert_int_equal(bits & 0xFFFF, 0);
        }
    }
    free(got);
}

static void check_op(setting *t, const conv_shape *s, mma_op op, bool plain)
{
    int64_t depth = op == MMA_FORWARD ? s->kh * s->kw * s->c
                    : op == MMA_DATA  ? s->kh * s->kw * s->oc
                                      : s->n * s->oh * s->ow;
    int64_t counts[] = {count_x(s), count_w(s), count_y(s), s->oc, count_x(s), count_out(s, op)};
    int at[2][6];
    float *want, *most;

    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 2; k++) at[k][i] = add_numbers(t, counts[i], k);
    arrays a = {at[0][0], at[0][1], at[0][2], at[0][3], at[0][4], at[0][5]};
    arrays positive = {at[1][0], at[1][1], at[1][2], at[1][3], at[1][4], at[1][5]};
    conv_args c = args_of(t, s, op, &a, plain), abs = args_of(t, s, op, &positive, plain);
    size_t bytes = (size_t)t->count[a.out] * sizeof(float);
    float *before = fetch(t, a.out);
    play_exactly(t, op, &c);
    play_exactly(t, op, &abs);
    want = fetch(t, a.out);
    most = fetch(t, positive.out);
    for (int kind = 0; kind < 2; kind++) {
        for (int size = 0; size < 2; size++) {
            for (int splits = 1; splits <= 3; splits++) {
                char what[96];
                bool round = kind == MMA_BF16 && splits == 2;
                snprintf(what, sizeof what, "op %d, kind %d, size %d, %d parts", (int)op, kind, size, splits);
                assert_ok(device_put(t->d, t->at[a.out], before, bytes));
                play_product(t, dev_mma_conv_by(op, (mma_kind)kind, &c, size, splits), round);
                compare(t, &a, want, most, error_of((mma_kind)kind, depth), round, what);
            }
        }
    }
    free(before);
    free(want);
    free(most);
    clear(t);
}

static conv_shape shape(int64_t n, int64_t side, int64_t c, int64_t oc, int64_t k, int64_t stride,
                        int64_t dilation, int64_t pad)
{
    int64_t out = (side + 2 * pad - (k - 1) * dilation - 1) / stride + 1;

    return (conv_shape){n, side,   side,   c,        out,      out, oc,  k,
                        k, stride, stride, dilation, dilation, pad, pad, 1};
}

static void check_convolutions(device *d)
{
    /* samples, side, channels in and out, taps, stride, dilation, padding */
    static const int64_t cases[][8] = {
        {2, 6, 4, 8, 3, 1, 1, 1},   {3, 5, 1, 10, 3, 1, 1, 0},  {5, 4, 3, 5, 3, 2, 1, 1},
        {2, 7, 8, 4, 3, 1, 2, 2},   {9, 1, 12, 16, 3, 1, 1, 1}, {7, 2, 4, 68, 3, 2, 1, 1},
        {4, 2, 20, 12, 3, 1, 1, 1}, {3, 8, 2, 66, 1, 2, 1, 0},  {1, 9, 5, 3, 4, 3, 1, 2}};
    setting t = {.d = d};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const int64_t *k = cases[i];
        conv_shape s = shape(k[0], k[1], k[2], k[3], k[4], k[5], k[6], k[7]);
        for (int op = 0; op < 3; op++) check_op(&t, &s, (mma_op)op, i % 2);
    }
}

/* Dense products on both sides of the sizes of tiles and slabs. */
static void check_dense(device *d)
{
    static const int64_t cases[][3] = {{1, 1, 1},    {63, 64, 31},  {64, 63, 32},   {65, 65, 33},
                                       {127, 4, 64}, {128, 10, 96}, {129, 66, 100}, {2, 130, 260}};
    setting t = {.d = d};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        conv_shape s = dev_mma_dense(cases[i][0], cases[i][1], cases[i][2]);
        for (int op = 0; op < 3; op++) check_op(&t, &s, (mma_op)op, !(i % 2));
    }
}

/* ---- sums ---- */

static void check_columns_of(setting *t, int64_t rows, int64_t c)
{
    int64_t chunk = dev_sum_chunk(rows, c), chunks = (rows + chunk - 1) / chunk;
    int x = add_numbers(t, rows * c, true), out = add_floats(t, c, NULL),
        part = add_floats(t, 2 * chunks * c, NULL), tickets = add_floats(t, c / SUM_ACROSS + 1, NULL);
    quick_columns_args a = {.rows = rows,
                            .c = c,
                            .chunk = chunk,
                            .chunks = chunks,
                            .x = t->at[x],
                            .out = t->at[out],
                            .part = t->at[part],
                            .tickets = t->at[tickets]};
    float *numbers = fetch(t, x), *got;

    for (int again = 0; again < 2; again++) { /* tickets are as they were */
        a.accumulate_dx = again;
        play(t, DEV_quick_columns, dev_sum_blocks(rows, c), &a, sizeof a);
        got = fetch(t, out);
        for (int64_t k = 0; k < c; k++) {
            double want = 0;
            for (int64_t r = 0; r < rows; r++) want += (double)numbers[r * c + k];
            if (again) want *= 2;
            if (!(fabs((double)got[k] - want) <= 1e-5 * want))
                fail_msg("%lld x %lld, column %lld: %g, expected %g", (long long)rows, (long long)c,
                         (long long)k, (double)got[k], want);
        }
        free(got);
    }
    free(numbers);
    clear(t);
}

static void check_columns(device *d)
{
    static const int64_t rows[] = {1, 7, 8, 31, 32, 33, 1000, 9000}, cols[] = {1, 31, 32, 33, 70};
    setting t = {.d = d};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof cols / sizeof *cols; k++) check_columns_of(&t, rows[i], cols[k]);
}

/* Mean and variance of columns whose numbers lie in [level, level + 1). */
static void check_moments_of(setting *t, int64_t rows, int64_t c, float level)
{
    int64_t chunk = dev_sum_chunk(rows, c), chunks = (rows + chunk - 1) / chunk;
    float *x = malloc((size_t)(rows * c) * sizeof *x);
    uint32_t seed = 7;

    assert_non_null(x);
    for (int64_t i = 0; i < rows * c; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = level + (float)(seed >> 8) * 0x1p-24f;
    }
    int in = add_floats(t, rows * c, x), mean = add_floats(t, c, NULL), var = add_floats(t, c, NULL),
        coef = add_floats(t, 4 * c, NULL), part = add_floats(t, 2 * chunks * c, NULL),
        tickets = add_floats(t, c / SUM_ACROSS + 1, NULL);
    quick_moments_args a = {.rows = rows,
                            .c = c,
                            .chunk = chunk,
                            .chunks = chunks,
                            .x = t->at[in],
                            .mean = t->at[mean],
                            .var = t->at[var],
                            .coef = t->at[coef],
                            .part = t->at[part],
                            .tickets = t->at[tickets],
                            .eps = 1e-5f};

    play(t, DEV_quick_moments, dev_sum_blocks(rows, c), &a, sizeof a);
    float *means = fetch(t, mean), *vars = fetch(t, var);
    for (int64_t k = 0; k < c; k++) {
        double sum = 0, square = 0;
        for (int64_t r = 0; r < rows; r++) sum += (double)x[r * c + k];
        sum /= (double)rows;
        for (int64_t r = 0; r < rows; r++) square += pow((double)x[r * c + k] - sum, 2);
        square /= (double)rows;
        if (!(fabs((double)means[k] - sum) <= 1e-6 * (fabs(sum) + 1)) ||
            !(fabs((double)vars[k] - square) <= 1e-5 * square + 1e-12))
            fail_msg("%lld x %lld near %g, column %lld: %g and %g, expected %g and %g", (long long)rows,
                     (long long)c, (double)level, (long long)k, (double)means[k], (double)vars[k], sum,
                     square);
    }
    free(means);
    free(vars);
    free(x);
    clear(t);
}

static void check_moments(device *d)
{
    static const int64_t rows[] = {1, 8, 33, 1000, 20000}, cols[] = {1, 32, 70};
    setting t = {.d = d};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        for (size_t k = 0; k < sizeof cols / sizeof *cols; k++) {
            check_moments_of(&t, rows[i], cols[k], 0.0f);
            check_moments_of(&t, rows[i], cols[k], 100.0f);
        }
}

/* ---- both devices ---- */

static void on_both(void (*check)(device *d))
{
    device *d;

    assert_ok(device_fake_open((size_t)1 << 28, &d));
    check(d);
    device_close(d);
    if (gpu_open(0, &d)) {
        print_message("no GPU here: %s\n", manta_error_text());
        return;
    }
    print_message("on %s\n", d->name);
    check(d);
    device_close(d);
}

static void convolutions_are_close(void **state)
{
    (void)state;
    on_both(check_convolutions);
}

static void dense_products_are_close(void **state)
{
    (void)state;
    on_both(check_dense);
}

static void columns_are_added(void **state)
{
    (void)state;
    on_both(check_columns);
}

static void moments_are_those_of_all_rows(void **state)
{
    (void)state;
    on_both(check_moments);
}

/* Kernels count in 32 bits and pack sides into 16: what does not fit is not theirs. */
static void what_does_not_fit_is_refused(void **state)
{
    conv_args c = {.s = dev_mma_dense(2147483646, 1, 1)};

    (void)state;
    assert_int_equal(dev_mma_conv(MMA_FORWARD, MMA_TF32, &c).kernel, DEV_COUNT);
    c.s = dev_mma_dense(1, 1, 1);
    c.s.w = 8;
    c.s.kw = 9;
    c.s.sw = 8;
    c.s.ow = 8191; /* with 65,500 of padding behind */
    assert_int_equal(dev_mma_conv(MMA_FORWARD, MMA_TF32, &c).kernel, DEV_COUNT);
}

/* The parts of a product are those of its shape, and fill a device without being short. */
static void parts_are_of_the_shape(void **state)
{
    conv_shape s = dev_mma_dense(64, 128, 21632), small = dev_mma_dense(64, 128, 64);
    conv_args c = {.s = s};
    dev_mma m = dev_mma_conv(MMA_FORWARD, MMA_TF32, &c);

    (void)state;
    assert_int_equal(m.args.splits, 62);
    assert_int_equal(m.blocks, 2 * 62);
    assert_int_equal(m.part_bytes, (size_t)62 * 64 * 128 * sizeof(float));
    c.s = small;
    m = dev_mma_conv(MMA_FORWARD, MMA_TF32, &c);
    assert_int_equal(m.args.splits, 1);
    assert_int_equal(m.part_bytes, 0);
    c.s.groups = 2;
    assert_int_equal(dev_mma_conv(MMA_FORWARD, MMA_TF32, &c).kernel, DEV_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(convolutions_are_close),
                                       cmocka_unit_test(dense_products_are_close),
                                       cmocka_unit_test(columns_are_added),
                                       cmocka_unit_test(parts_are_of_the_shape),
                                       cmocka_unit_test(moments_are_those_of_all_rows),
                                       cmocka_unit_test(what_does_not_fit_is_refused)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
