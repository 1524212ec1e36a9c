/* op_fixture.h - what tests of operations have in common: shapes, memory, and two pools,
 * of one thread and of two, as the state of a group of tests. */
#ifndef NN_OP_FIXTURE_H
#define NN_OP_FIXTURE_H

#include <stdint.h>
#include <stdlib.h>

#include "nn/ops.h"

#define MAX_IN 5

typedef struct dims {
    int n;
    int64_t d[6];
} dims;

#define S1(a)                                                                                                \
    {                                                                                                        \
        1,                                                                                                   \
        {                                                                                                    \
            a                                                                                                \
        }                                                                                                    \
    }
#define S2(a, b)                                                                                             \
    {                                                                                                        \
        2,                                                                                                   \
        {                                                                                                    \
            a, b                                                                                             \
        }                                                                                                    \
    }
#define S3(a, b, c)                                                                                          \
    {                                                                                                        \
        3,                                                                                                   \
        {                                                                                                    \
            a, b, c                                                                                          \
        }                                                                                                    \
    }
#define S4(a, b, c, d)                                                                                       \
    {                                                                                                        \
        4,                                                                                                   \
        {                                                                                                    \
            a, b, c, d                                                                                       \
        }                                                                                                    \
    }

static inline void *room(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size);

    assert_non_null(p);
    return p;
}

static inline int start_pools(void **state)
{
    static pool *pools[2];

    for (int t = 0; t < 2; t++) {
        if (pool_new(t + 1, KERN_SCRATCH, &pools[t])) return -1;
    }
    *state = pools;
    return 0;
}

static inline int stop_pools(void **state)
{
    pool **pools = *state;

    pool_free(pools[0]);
    pool_free(pools[1]);
    return 0;
}

#endif
