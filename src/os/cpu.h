/* cpu.h - how many cores we may use, and what they can do. */
#ifndef OS_CPU_H
#define OS_CPU_H

#include "base/status.h"

/* The number of threads that can truly run at once: the cores this process may
 * run on, or fewer when its control group (v1 or v2, its own or one above it)
 * grants less processor time; a quota of 1.5 cores counts as 2. At least 1. */
int cpu_cores(void);

/* What cpu_cores() would give if /proc and /sys lay under `root`; for tests. */
int cpu_cores_at(const char *root);

/* Instruction sets the fast kernels come in. Each includes those before. */
typedef enum cpu_level {
    CPU_BASE = 0, /* what every processor of the build's architecture has */
    CPU_AVX2, /* avx2, fma, f16c */
    CPU_AVX512, /* what CPU_AVX2 has, and avx512 f, bw, dq, vl */
} cpu_level;

/* The best level that both the processor and the operating system support. */
cpu_level cpu_detect(void);

/* The level called `name` ("base", "avx2", "avx512"), or the detected one for
 * NULL, "" and "auto". MANTA_EINVAL there is no such name; MANTA_EUNSUPPORTED
 * this machine does not have it. */
manta_status cpu_choose(const char *name, cpu_level *out) MANTA_MUST_USE;

const char *cpu_level_name(cpu_level level);

#endif
