/* windows_test.c - pooling, gather and scatter: every family bit for bit, and
 * against the plainest loops over single elements. */
#include "families.h"

typedef struct window_case {
    pool_shape s;
    bool ties; /* few distinct values, so that the first largest is a choice */
} window_case;

static int64_t in_at(const pool_shape *s, int64_t n, int64_t h, int64_t w, int64_t c)
{
    return ((n * s->h + h) * s->w + w) * s->c + c;
}

/* Checks one output element of both poolings, and adds its gradients to dmax and davg. */
static void check_cell(run *r, const pool_shape *s, int64_t out, int64_t n, int64_t oh, int64_t ow, int64_t c,
                       const float *x, const float *ymax, const uint8_t *arg, const float *yavg,
                       const float *dy, double *dmax, double *davg)
{
    double top = -INFINITY, sum = 0;
    int64_t where = 0, at = -1, cells = 0;

    for (int64_t i = 0; i < s->kh; i++)
        for (int64_t k = 0; k < s->kw; k++) {
            int64_t h = oh * s->sh - s->top + i, w = ow * s->sw - s->left + k;
            if (h < 0 || w < 0 || h >= s->h || w >= s->w) continue;
            double v = (double)x[in_at(s, n, h, w, c)];
            cells++;
            sum += v;
            if (v > top) top = v, where = i * s->kw + k, at = in_at(s, n, h, w, c);
        }
    double count = s->count_padding ? (double)(s->kh * s->kw) : (double)cells;
    assert_true((double)ymax[out] == top);
    if (arg) assert_int_equal(arg[out], where);
    case_near(r, "average", out, yavg[out], sum / count, 1e-6, 1);
    dmax[at] += (double)dy[out];
    for (int64_t i = 0; i < s->kh; i++)
        for (int64_t k = 0; k < s->kw; k++) {
            int64_t h = oh * s->sh - s->top + i, w = ow * s->sw - s->left + k;
            if (h >= 0 && w >= 0 && h < s->h && w < s->w)
                davg[in_at(s, n, h, w, c)] += (double)dy[out] / count;
        }
}

static void run_windows(run *r, const void *arg)
{
    const window_case *t = arg;
    const pool_shape *s = &t->s;
    int64_t n_in = s->n * s->h * s->w * s->c, n_out = s->n * s->oh * s->ow * s->c;
    bool with_arg = s->kh * s->kw <= 256;
    float *x = case_fill(r, n_in, 1.0f, 0.0f), *dy = case_fill(r, n_out, 1.0f, 0.0f);
    float *ymax = case_new(n_out), *yavg = case_new(n_out), *dmax = case_new(n_in), *davg = case_new(n_in);
    uint8_t *where = malloc((size_t)n_out + 1);
    double *want_max = case_sums(n_in), *want_avg = case_sums(n_in);

    if (t->ties)
        for (int64_t i = 0; i < n_in; i++) x[i] = floorf(x[i] * 2.0f);

    r->k->max_pool_forward(r->p, s, x, ymax, with_arg ? where : NULL);
    case_out(r, n_out, ymax);
    r->k->avg_pool_forward(r->p, s, x, yavg);
    case_out(r, n_out, yavg);
    if (with_arg) {
        r->k->max_pool_backward(r->p, s, where, dy, dmax, false);
        case_out(r, n_in, dmax);
    }
    r->k->avg_pool_backward(r->p, s, dy, davg, false);
    case_out(r, n_in, davg);
    for (int64_t o = 0; o < n_out; o++)
        check_cell(r, s, o, o / s->c / s->ow / s->oh, o / s->c / s->ow % s->oh, o / s->c % s->ow, o % s->c, x,
                   ymax, with_arg ? where : NULL, yavg, dy, want_max, want_avg);
    for (int64_t i = 0; i < n_in; i++) {
        if (with_arg) case_near(r, "dx of largest", i, dmax[i], want_max[i], 1e-6, 1);
        case_near(r, "dx of average", i, davg[i], want_avg[i], 1e-6, 1);
    }
    if (with_arg) {
        r->k->max_pool_backward(r->p, s, where, dy, dmax, true);
        case_out(r, n_in, dmax);
    }
    r->k->avg_pool_backward(r->p, s, dy, davg, true);
    case_out(r, n_in, davg);
    for (int64_t i = 0; i < n_in; i++) {
        if (with_arg) case_near(r, "dx added", i, dmax[i], 2 * want_max[i], 1e-6, 1);
        case_near(r, "dx added", i, davg[i], 2 * want_avg[i], 1e-6, 1);
    }
    free(x), free(dy), free(ymax), free(yavg), free(dmax), free(davg), free(where), free(want_max),
        free(want_avg);
}

static const window_case windows[] = {
    {.s = {.n = 3, .h = 4, .w = 6, .c = 5, .oh = 2, .ow = 3, .kh = 2, .kw = 2, .sh = 2, .sw = 2}},
    {.s = {.n = 2,
           .h = 7,
           .w = 7,
           .c = 64,
           .oh = 4,
           .ow = 4,
           .kh = 3,
           .kw = 3,
           .sh = 2,
           .sw = 2,
           .top = 1,
           .left = 1},
     .ties = true},
    {.s = {.n = 2,
           .h = 7,
           .w = 7,
           .c = 64,
           .oh = 4,
           .ow = 4,
           .kh = 3,
           .kw = 3,
           .sh = 2,
           .sw = 2,
           .top = 1,
           .left = 1,
           .count_padding = true}},
    {.s = {.n = 1,
           .h = 5,
           .w = 9,
           .c = 300,
           .oh = 5,
           .ow = 9,
           .kh = 3,
           .kw = 3,
           .sh = 1,
           .sw = 1,
           .top = 1,
           .left = 1},
     .ties = true},
    {.s = {.n = 5, .h = 7, .w = 7, .c = 65, .oh = 1, .ow = 1, .kh = 7, .kw = 7, .sh = 1, .sw = 1},
     .ties = true},
    {.s = {.n = 2, .h = 14, .w = 14, .c = 16, .oh = 1, .ow = 1, .kh = 14, .kw = 14, .sh = 1, .sw = 1}},
    {.s = {.n = 2, .h = 28, .w = 28, .c = 3, .oh = 1, .ow = 1, .kh = 28, .kw = 28, .sh = 1, .sw = 1}},
    {.s = {.n = 1, .h = 3, .w = 1, .c = 1, .oh = 2, .ow = 1, .kh = 2, .kw = 1, .sh = 1, .sw = 1}},
    {.s = {.n = 2, .h = 5, .w = 5, .c = 17, .oh = 2, .ow = 2, .kh = 2, .kw = 2, .sh = 3, .sw = 3}}, /* gaps */
    {.s = {.n = 0, .h = 5, .w = 5, .c = 17, .oh = 2, .ow = 2, .kh = 2, .kw = 2, .sh = 3, .sw = 3}},
    {.s = {.n = 64, .h = 14, .w = 14, .c = 20, .oh = 7, .ow = 7, .kh = 2, .kw = 2, .sh = 2, .sw = 2}},
};

static void pooling_agrees_in_all_families(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof windows / sizeof *windows; i++)
        case_everywhere("pooling", run_windows, &windows[i]);
}

/* NaN is the largest; the first one's place is kept. */
static void run_max_odd(run *r, const void *arg)
{
    pool_shape s = {.n = 1, .h = 2, .w = 2, .c = 1, .oh = 1, .ow = 1, .kh = 2, .kw = 2, .sh = 1, .sw = 1};
    float x[4] = {1.0f, NAN, 5.0f, NAN}, y[2] = {0, 12345.0f};
    uint8_t where[1];
    (void)arg;

    r->k->max_pool_forward(r->p, &s, x, y, where);
    assert_true(isnan(y[0]) && where[0] == 1);
    x[1] = x[3] = x[0] = x[2] = -INFINITY;
    r->k->max_pool_forward(r->p, &s, x, y, where);
    case_out(r, 1, y);
    assert_true(y[0] == -INFINITY);
}

static void the_largest_of_odd_values_agrees(void **state)
{
    (void)state;
    case_everywhere("largest of odd values", run_max_odd, NULL);
}

/* ---- tables ---- */

typedef struct table_case {
    int64_t n, c, rows;
} table_case;

static void run_table(run *r, const void *arg)
{
    const table_case *t = arg;
    float *table = case_fill(r, t->rows * t->c, 1.0f, 0.0f), *y = case_new(t->n * t->c);
    float *dy = case_fill(r, t->n * t->c, 1.0f, 0.0f), *want = case_new(t->rows * t->c);
    int64_t *index = malloc((size_t)(t->n + 1) * sizeof *index);

    for (int64_t i = 0; i < t->n; i++) index[i] = (int64_t)(fabsf(case_number(r)) * (float)t->rows) % t->rows;
    r->k->gather(r->p, t->n, t->c, table, index, y);
    case_out(r, t->n * t->c, y);
    for (int64_t i = 0; i < t->n; i++)
        assert_memory_equal(y + i * t->c, table + index[i] * t->c, (size_t)t->c * sizeof *y);
    memcpy(want, table, (size_t)(t->rows * t->c) * sizeof *want);
    for (int64_t i = 0; i < t->n; i++)
        for (int64_t k = 0; k < t->c; k++) want[index[i] * t->c + k] += dy[i * t->c + k];
    r->k->scatter_add(r->p, t->n, t->c, t->rows, index, dy, table);
    case_out(r, t->rows * t->c, table);
    assert_memory_equal(table, want, (size_t)(t->rows * t->c) * sizeof *want); /* in order of i, to the bit */
    free(table), free(y), free(dy), free(want), free(index);
}

static void gather_and_scatter_agree_in_all_families(void **state)
{
    static const table_case cases[] = {{0, 4, 3},      {1, 1, 1},      {100, 16, 7},
                                       {1000, 64, 50}, {500, 300, 11}, {3000, 17, 2}};
    (void)state;

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        case_everywhere("gather, scatter", run_table, &cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pooling_agrees_in_all_families),
        cmocka_unit_test(the_largest_of_odd_values_agrees),
        cmocka_unit_test(gather_and_scatter_agree_in_all_families),
    };

    return cmocka_run_group_tests_name("tensor/windows", tests, NULL, NULL);
}
