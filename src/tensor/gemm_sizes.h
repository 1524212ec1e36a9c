/* tensor/gemm_sizes.h - arithmetic of sizes, for cutting work into pieces. */
#ifndef TENSOR_GEMM_SIZES_H
#define TENSOR_GEMM_SIZES_H

#include <stdint.h>

static inline int64_t ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

static inline int64_t min_of(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t max_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
