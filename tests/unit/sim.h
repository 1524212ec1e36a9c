/* sim.h - how many seeds a simulation runs: its own number, times MANTA_SIM (1);
 * or the one that MANTA_SEED names, to replay a failure. */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <stdint.h>
#include <stdlib.h>

static inline void sim_run(uint64_t seeds, void (*run)(uint64_t seed))
{
    const char *one = getenv("MANTA_SEED"), *factor = getenv("MANTA_SIM");

    if (factor) seeds *= strtoull(factor, NULL, 10);
    if (one) run(strtoull(one, NULL, 10));
    for (uint64_t seed = 0; seed < seeds && !one; seed++) run(seed);
}

#endif
