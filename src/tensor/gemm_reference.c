/* gemm_reference.c - the matrix product as it is defined, element by element. */
#include "tensor/gemm.h"

#include <math.h>

#include "tensor/sizes.h"

static float sum_element(const gemm_call *g, int64_t i, int64_t j)
{
    const int64_t a_row = g->ta ? 1 : g->lda, a_col = g->ta ? g->lda : 1;
    const int64_t b_row = g->tb ? 1 : g->ldb, b_col = g->tb ? g->ldb : 1;
    const float *a = g->a + i * a_row, *b = g->b + j * b_col;
    float acc = g->accumulate ? g->c[i * g->ldc + j] : 0.0f;

    for (int64_t p = 0; p < g->k; p++) acc = fmaf(a[p * a_col], b[p * b_row], acc);
    if (g->bias) acc += g->bias[j];
    if (g->relu && acc < 0.0f) acc = 0.0f;
    if (g->mask && g->mask[i * g->ldc + j] <= 0.0f) acc = 0.0f;
    return acc;
}

static void row_task(void *ctx, int task, int thread)
{
    const gemm_call *g = ctx;
    const int64_t i = task;
    float run[GEMM_RUN];
    (void)thread;

    for (int64_t j0 = 0; j0 < g->n; j0 += GEMM_RUN) {
        const int64_t n = g->n - j0 < GEMM_RUN ? g->n - j0 : GEMM_RUN;
        float *out = g->sink ? run : g->c + i * g->ldc + j0;
        for (int64_t j = 0; j < n; j++) out[j] = sum_element(g, i, j0 + j);
        if (g->sink) g->sink(g->sink_ctx, i * g->n + j0, n, run);
    }
}

void gemm_reference(pool *p, const gemm_call *g)
{
    pool_run(p, (int)g->m, row_task, (void *)(uintptr_t)g);
}

void gemm_pair_reference(pool *p, const gemm_call *first, const gemm_call *second)
{
    gemm_reference(p, first);
    gemm_reference(p, second);
}
