/* reduce_test.c - column sums, batch norm, layer norm and softmax: every family
 * bit for bit, results against double precision, gradients against finite
 * differences. */
#include "families.h"

typedef struct shape {
    int64_t rows, c;
} shape;

/* Edges of spans (64), chunks (256, 64 of them), blocks of columns (256), strips, and of vectors. */
static const shape shapes[] = {{0, 5},     {1, 1},      {1, 17},     {2, 3},     {15, 16},
                               {63, 10},   {64, 64},    {65, 65},    {255, 31},  {256, 512},
                               {257, 33},  {1000, 7},   {3136, 128}, {64, 1000}, {4, 5000},
                               {16385, 3}, {20000, 24}, {3, 40000},  {12544, 64}};
enum { SHAPES = sizeof shapes / sizeof *shapes };

/* ---- column sums ---- */

static void run_col_sum(run *r, const void *arg)
{
    const shape *s = arg;
    float *x = case_fill(r, s->rows * s->c, 1.0f, 0.3f), *out = case_new(s->c),
          *acc = case_fill(r, s->c, 1.0f, 0.0f);

    r->k->col_sum(r->p, s->rows, s->c, x, out, false);
    case_out(r, s->c, out);
    for (int64_t c = 0; c < s->c; c++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < s->rows; i++) {
            sum += (double)x[i * s->c + c];
            size += fabs((double)x[i * s->c + c]);
        }
        case_near(r, "sum", c, out[c], sum, 2e-7, size * 2);
        float was = acc[c];
        if (c == 0) {
            r->k->col_sum(r->p, s->rows, s->c, x, acc, true);
            case_near(r, "sum added", c, acc[c], (double)was + (double)out[c], 2e-7, 1);
        }
    }
    case_out(r, s->c, acc);
    free(x), free(out), free(acc);
}

static void column_sums_agree_in_all_families(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) case_everywhere("col_sum", run_col_sum, &shapes[s]);
}

/* ---- batch norm ---- */

typedef struct bn_case {
    shape s;
    bool relu, residual, gamma;
    float offset; /* of x: a large one would cancel in a careless variance */
} bn_case;

static void run_bn(run *r, const void *arg)
{
    const bn_case *t = arg;
    int64_t rows = t->s.rows, c = t->s.c, n = rows * c;
    float *x = case_fill(r, n, 1.0f, t->offset), *dy = case_fill(r, n, 1.0f, 0.1f),
          *res = case_fill(r, n, 1.0f, 0.0f);
    float *gamma = case_fill(r, c, 0.5f, 1.0f), *beta = case_fill(r, c, 0.5f, 0.0f);
    float *y = case_new(n), *mean = case_new(c), *var = case_new(c), *dx = case_new(n), *dres = case_new(n);
    float *dgamma = case_new(c), *dbeta = case_new(c);
    bn_call b = {.rows = rows,
                 .c = c,
                 .x = x,
                 .dy = dy,
                 .y = y,
                 .gamma = t->gamma ? gamma : NULL,
                 .beta = t->gamma ? beta : NULL,
                 .eps = 1e-3f,
                 .relu = t->relu,
                 .residual = t->residual ? res : NULL,
                 .out = y,
                 .mean = mean,
                 .var = var,
                 .dx = dx,
                 .dgamma = dgamma,
                 .dbeta = dbeta,
                 .dresidual = t->residual ? dres : NULL};

    r->k->bn_forward(r->p, &b);
    case_out(r, c, mean);
    case_out(r, c, var);
    case_out(r, n, y);
    r->k->bn_backward(r->p, &b);
    case_out(r, n, dx);
    case_out(r, c, dgamma);
    case_out(r, c, dbeta);
    if (t->residual) case_out(r, n, dres);
    bool check = r->first || r->k->family == KERN_AVX512; /* the others have the same bits */
    for (int64_t k = 0; check && k < c; k++) {
        double m = 0, v = 0, sg = 0, sgx = 0;
        for (int64_t i = 0; i < rows; i++) m += (double)x[i * c + k];
        m /= rows > 0 ? (double)rows : 1;
        for (int64_t i = 0; i < rows; i++) v += ((double)x[i * c + k] - m) * ((double)x[i * c + k] - m);
        v /= rows > 0 ? (double)rows : 1;
        double rstd = 1 / sqrt(v + 1e-3), ga = t->gamma ? (double)gamma[k] : 1,
               be = t->gamma ? (double)beta[k] : 0;
        /* A float mean is off by half a unit of its last place, and so is x - mean. */
        double slack = fabs((double)t->offset) * 2e-7;
        case_near(r, "mean", k, mean[k], m, 1e-7, 0.5);
        case_near(r, "var", k, var[k], v, 2e-6, 0.01);
        for (int64_t i = 0; i < rows; i++) {
            double h = ((double)x[i * c + k] - m) * rstd;
            double want = h * ga + be + (t->residual ? (double)res[i * c + k] : 0);
            if (t->relu && want < 0) want = 0;
            case_near(r, "y", i * c + k, y[i * c + k], want, 2e-6 + slack * rstd * 2, 1);
            double g = t->relu && y[i * c + k] <= 0 ? 0 : (double)dy[i * c + k];
            sg += g;
            sgx += g * h;
            if (t->residual) assert_true((double)dres[i * c + k] == g);
        }
        double spread = sqrt((double)rows + 1);
        case_near(r, "dbeta", k, dbeta[k], sg, 1e-6, spread);
        case_near(r, "dgamma", k, dgamma[k], sgx, 2e-6 + slack * rstd * 2, spread);
        for (int64_t i = 0; i < rows; i++) {
            double h = ((double)x[i * c + k] - m) * rstd,
                   g = t->relu && y[i * c + k] <= 0 ? 0 : (double)dy[i * c + k];
            case_near(r, "dx", i * c + k, dx[i * c + k],
                      ga * rstd * (g - sg / (double)rows - h * sgx / (double)rows), 3e-6 + slack * rstd * 4,
                      ga * rstd);
        }
    }
    /* Added to what is there, dresidual in dy's place. */
    float *dx2 = case_fill(r, n, 1.0f, 0.0f), *dgamma2 = case_fill(r, c, 1.0f, 0.0f),
          *dbeta2 = case_fill(r, c, 1.0f, 0.0f);
    float *was = case_new(n), *dgwas = case_new(c);
    memcpy(was, dx2, (size_t)n * sizeof *was);
    memcpy(dgwas, dgamma2, (size_t)c * sizeof *was);
    bn_call b2 = b;
    b2.dx = dx2, b2.dgamma = dgamma2, b2.dbeta = dbeta2, b2.accumulate_dx = b2.accumulate_dparam = true;
    b2.dresidual = t->residual ? dy : NULL;
    r->k->bn_backward(r->p, &b2);
    for (int64_t i = 0; i < n; i++) assert_true(dx2[i] == was[i] + dx[i]);
    for (int64_t i = 0; i < c; i++) assert_true(dgamma2[i] == dgwas[i] + dgamma[i]);
    if (t->residual) assert_memory_equal(dy, dres, (size_t)n * sizeof *dy);

    /* Inference from these statistics is the same arithmetic, and its gradient the same without the sums. */
    float *y2 = case_new(n), *dx3 = case_new(n), *dgamma3 = case_new(c), *dbeta3 = case_new(c);
    bn_call b3 = b;
    b3.out = y2, b3.dx = dx3, b3.dgamma = dgamma3, b3.dbeta = dbeta3, b3.dresidual = NULL;
    r->k->bn_infer(r->p, &b3);
    assert_memory_equal(y2, y, (size_t)n * sizeof *y);
    r->k->bn_backward_frozen(r->p, &b3);
    case_out(r, n, dx3);
    if (!t->residual) assert_memory_equal(dgamma3, dgamma, (size_t)c * sizeof *dgamma);
    if (!t->residual) assert_memory_equal(dbeta3, dbeta, (size_t)c * sizeof *dbeta);
    for (int64_t i = 0; i < n; i++) {
        double g = t->relu && y[i] <= 0 ? 0 : (double)dy[i], ga = t->gamma ? (double)gamma[i % c] : 1;
        case_near(r, "dx frozen", i, dx3[i], g * ga / sqrt((double)var[i % c] + 1e-3), 1e-6, 1e-3);
    }
    free(x), free(dy), free(res), free(gamma), free(beta), free(y), free(mean), free(var), free(dx),
        free(dres);
    free(dgamma), free(dbeta), free(dx2), free(dgamma2), free(dbeta2), free(was), free(dgwas), free(y2),
        free(dx3);
    free(dgamma3), free(dbeta3);
}

static void batch_norm_agrees_in_all_families(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++)
        for (int f = 0; f < 8; f++) {
            if (shapes[s].rows * shapes[s].c > 60000 && f != 3) continue; /* large ones once */
            case_everywhere("batch norm", run_bn,
                            &(bn_case){.s = shapes[s], .relu = f & 1, .residual = f & 2, .gamma = !(f & 4)});
        }
    case_everywhere("batch norm, large mean", run_bn,
                    &(bn_case){.s = {1000, 20}, .gamma = true, .offset = 1000.0f});
    case_everywhere("batch norm, large mean", run_bn, &(bn_case){.s = {5000, 3}, .offset = -30000.0f});
}

/* A column that is one outlier among zeros, and one that does not vary at all. */
static void run_bn_hard(run *r, const void *arg)
{
    enum { ROWS = 5000 };
    float *x = case_new(ROWS * 2), *y = case_new(ROWS * 2), mean[3] = {0, 0, 12345.0f},
          var[3] = {0, 0, 12345.0f};
    (void)arg;

    for (int i = 0; i < ROWS; i++) {
        x[2 * i] = i == 0 ? 1000.0f : 0.0f;
        x[2 * i + 1] = 7.7f;
    }
    bn_call b = {.rows = ROWS, .c = 2, .x = x, .eps = 1e-5f, .out = y, .mean = mean, .var = var};
    r->k->bn_forward(r->p, &b);
    case_out(r, 2, mean);
    case_out(r, 2, var);
    case_near(r, "mean", 0, mean[0], 1000.0 / ROWS, 1e-7, 0);
    case_near(r, "var", 0, var[0], 1e6 / ROWS - 1e6 / ROWS / ROWS, 3e-6, 0);
    assert_true(mean[1] == 7.7f && var[1] >= 0 && var[1] < 1e-12f);
    x[3] = NAN;
    r->k->bn_forward(r->p, &b);
    assert_true(isnan(mean[1]) && isnan(var[1]) && !isnan(mean[0]));
    free(x), free(y);
}

static void batch_norm_agrees_on_hard_columns(void **state)
{
    (void)state;
    case_everywhere("batch norm, hard columns", run_bn_hard, NULL);
}

/* ---- layer norm ---- */

typedef struct ln_case {
    shape s;
    bool gamma, beta;
} ln_case;

static void run_ln(run *r, const void *arg)
{
    const ln_case *t = arg;
    int64_t rows = t->s.rows, c = t->s.c, n = rows * c;
    float *x = case_fill(r, n, 1.0f, 0.5f), *dy = case_fill(r, n, 1.0f, 0.1f);
    float *gamma = case_fill(r, c, 0.5f, 1.0f), *beta = case_fill(r, c, 0.5f, 0.0f);
    float *y = case_new(n), *mean = case_new(rows), *rstd = case_new(rows), *dx = case_new(n);
    float *dgamma = case_new(c), *dbeta = case_new(c);
    ln_call l = {.rows = rows,
                 .c = c,
                 .x = x,
                 .dy = dy,
                 .gamma = t->gamma ? gamma : NULL,
                 .beta = t->beta ? beta : NULL,
                 .eps = 1e-3f,
                 .out = y,
                 .mean = mean,
                 .rstd = rstd,
                 .dx = dx,
                 .dgamma = dgamma,
                 .dbeta = dbeta};

    r->k->ln_forward(r->p, &l);
    case_out(r, n, y);
    case_out(r, rows, mean);
    case_out(r, rows, rstd);
    r->k->ln_backward(r->p, &l);
    case_out(r, n, dx);
    case_out(r, c, dgamma);
    case_out(r, c, dbeta);
    double *sg = case_sums(c), *sh = case_sums(c);
    for (int64_t i = 0; i < rows; i++) {
        double m = 0, v = 0, s1 = 0, s2 = 0;
        for (int64_t k = 0; k < c; k++) m += (double)x[i * c + k];
        m /= (double)c;
        for (int64_t k = 0; k < c; k++) v += ((double)x[i * c + k] - m) * ((double)x[i * c + k] - m);
        double rs = 1 / sqrt(v / (double)c + 1e-3);
        for (int64_t k = 0; k < c; k++) {
            double h = ((double)x[i * c + k] - m) * rs,
                   g = (double)dy[i * c + k] * (t->gamma ? (double)gamma[k] : 1);
            s1 += g;
            s2 += g * h;
            sg[k] += (double)dy[i * c + k];
            sh[k] += (double)dy[i * c + k] * h;
            case_near(r, "y", i * c + k, y[i * c + k],
                      h * (t->gamma ? (double)gamma[k] : 1) + (t->beta ? (double)beta[k] : 0), 3e-6, 1);
        }
        for (int64_t k = 0; k < c; k++) {
            double h = ((double)x[i * c + k] - m) * rs,
                   g = (double)dy[i * c + k] * (t->gamma ? (double)gamma[k] : 1);
            case_near(r, "dx", i * c + k, dx[i * c + k], rs * (g - s1 / (double)c - h * s2 / (double)c), 4e-6,
                      rs);
        }
    }
    for (int64_t k = 0; k < c; k++) {
        case_near(r, "dbeta", k, dbeta[k], sg[k], 1e-6, sqrt((double)rows + 1));
        case_near(r, "dgamma", k, dgamma[k], sh[k], 3e-6, sqrt((double)rows + 1));
    }
    l.accumulate_dx = l.accumulate_dparam = true;
    r->k->ln_backward(r->p, &l);
    case_out(r, n, dx);
    case_out(r, c, dgamma);
    for (int64_t k = 0; k < c; k++)
        case_near(r, "dgamma twice", k, dgamma[k], 2 * sh[k], 3e-6, sqrt((double)rows + 1));
    free(sg), free(sh), free(x), free(dy), free(gamma), free(beta), free(y), free(mean), free(rstd), free(dx);
    free(dgamma), free(dbeta);
}

static void layer_norm_agrees_in_all_families(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++)
        for (int f = 0; f < 4; f++)
            if (shapes[s].rows * shapes[s].c < 60000 || f == 3)
                case_everywhere("layer norm", run_ln,
                                &(ln_case){.s = shapes[s], .gamma = f & 1, .beta = f & 2});
}

/* ---- softmax ---- */

static void run_softmax(run *r, const void *arg)
{
    const shape *s = arg;
    int64_t rows = s->rows, c = s->c, n = rows * c;
    float *x = case_fill(r, n, 10.0f, 0.0f), *y = case_new(n), *dy = case_fill(r, n, 1.0f, 0.0f),
          *dx = case_new(n);

    r->k->softmax_forward(r->p, rows, c, x, y);
    case_out(r, n, y);
    r->k->softmax_backward(r->p, rows, c, y, dy, dx, false);
    case_out(r, n, dx);
    for (int64_t i = 0; i < rows; i++) {
        double top = -INFINITY, sum = 0, dot = 0;
        for (int64_t k = 0; k < c; k++) top = fmax(top, (double)x[i * c + k]);
        for (int64_t k = 0; k < c; k++) sum += exp((double)x[i * c + k] - top);
        for (int64_t k = 0; k < c; k++) {
            double p = exp((double)x[i * c + k] - top) / sum;
            case_near(r, "y", i * c + k, y[i * c + k], p, 3e-6, 1e-30);
            dot += p * (double)dy[i * c + k];
        }
        for (int64_t k = 0; k < c; k++) {
            double p = exp((double)x[i * c + k] - top) / sum;
            case_near(r, "dx", i * c + k, dx[i * c + k], p * ((double)dy[i * c + k] - dot), 4e-6, p);
        }
    }
    r->k->softmax_backward(r->p, rows, c, y, dy, dx, true);
    case_out(r, n, dx);
    r->k->softmax_forward(r->p, rows, c, x, x);
    assert_memory_equal(x, y, (size_t)n * sizeof *x);
    free(x), free(y), free(dy), free(dx);
}

static void run_softmax_odd(run *r, const void *arg)
{
    float x[4 * 20], y[4 * 20 + 1];
    (void)arg;

    for (int i = 0; i < 80; i++) x[i] = (float)(i % 7);
    x[3] = 1e30f; /* takes all */
    x[25] = NAN;
    x[47] = -INFINITY;
    for (int i = 60; i < 80; i++) x[i] = -3e38f;
    y[80] = 12345.0f;
    r->k->softmax_forward(r->p, 4, 20, x, y);
    case_out(r, 80, y);
    assert_true(y[3] == 1.0f && y[2] == 0.0f && isnan(y[20]) && isnan(y[39]) && y[47] == 0.0f);
    for (int i = 60; i < 80; i++) case_near(r, "y", i, y[i], 0.05, 1e-7, 0);
}

static void softmax_agrees_in_all_families(void **state)
{
    (void)state;
    for (int s = 0; s < SHAPES; s++) case_everywhere("softmax", run_softmax, &shapes[s]);
    case_everywhere("softmax, odd rows", run_softmax_odd, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(column_sums_agree_in_all_families),
        cmocka_unit_test(batch_norm_agrees_in_all_families),
        cmocka_unit_test(batch_norm_agrees_on_hard_columns),
        cmocka_unit_test(layer_norm_agrees_in_all_families),
        cmocka_unit_test(softmax_agrees_in_all_families),
    };

    return cmocka_run_group_tests_name("tensor/reduce", tests, NULL, NULL);
}
