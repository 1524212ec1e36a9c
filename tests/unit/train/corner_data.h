/* corner_data.h - small images with labels, which a small model can learn. N (defined
 * by who includes it) says how many. */
#ifndef TEST_CORNER_DATA_H
#define TEST_CORNER_DATA_H

#include <manta/train.h>

#include "base/rng.h"

enum { CLASSES = 4, SIDE = 6 };

static float images[N * SIDE * SIDE];
static int64_t labels[N];

/* Images whose brightest corner is the label, with noise. */
static inline void make_data(void)
{
    for (int i = 0; i < N; i++) {
        labels[i] = (i * 7) % CLASSES;
        for (int p = 0; p < SIDE * SIDE; p++) {
            int corner = (p / SIDE >= SIDE / 2) * 2 + (p % SIDE >= SIDE / 2);
            float noise = rng_uniform(rng_at(rng_make(5, (uint64_t)i), (uint64_t)p).w[0]);
            images[i * SIDE * SIDE + p] = 0.7f * noise + (corner == labels[i] ? 0.5f : 0);
        }
    }
}

static inline manta_dataset *dataset(void)
{
    manta_column c[2] = {{"x", manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){N, SIDE, SIDE, 1}, images)},
                         {"y", manta_array_of(MANTA_DTYPE_I64, 1, (int64_t[]){N}, labels)}};

    return manta_dataset_arrays(2, c, MANTA_OWNERSHIP_BORROW);
}

#endif
