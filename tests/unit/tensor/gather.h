/* gather.h - a sink of gradients for tests: keeps what comes, and counts how often
 * each element came. */
#ifndef TESTS_TENSOR_GATHER_H
#define TESTS_TENSOR_GATHER_H

#include <stdint.h>
#include <stdlib.h>

typedef struct gather {
    float *out; /* n elements */
    int64_t n;
    uint8_t *times; /* how often each of the n elements came */
} gather;

/* Takes elements first .. first + n - 1. Runs in any thread of a pool, where
 * cmocka's assertions do not belong: what is out of range aborts. */
static inline void gather_sink(void *ctx, int64_t first, int64_t n, const float *v)
{
    gather *g = ctx;

    if (first < 0 || n < 0 || first + n > g->n) abort();
    for (int64_t i = 0; i < n; i++) {
        g->out[first + i] = v[i];
        g->times[first + i]++;
    }
}

#endif
