/* pools.h - pools of one to MAX_THREADS threads, for kernels that have to give the same
 * bits with each. */
#ifndef TESTS_UNIT_TENSOR_POOLS_H
#define TESTS_UNIT_TENSOR_POOLS_H

#include "base/mem.h"
#include "os/pool.h"
#include "tensor/kernel.h"

enum { MAX_THREADS = 3 };

static pool *pools[MAX_THREADS + 1]; /* by the number of threads */

static inline int pools_start(void)
{
    for (int t = 1; t <= MAX_THREADS; t++) {
        if (pool_new(t, KERN_SCRATCH, &pools[t])) return -1;
    }
    return 0;
}

/* The last of a group: fails when anything was left. */
static inline int pools_stop(void **state)
{
    (void)state;
    for (int t = 1; t <= MAX_THREADS; t++) pool_free(pools[t]);
    return mem_live() == 0 ? 0 : -1;
}

#endif
