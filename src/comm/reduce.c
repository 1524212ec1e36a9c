/* reduce.c - which instruction set reduces. */
#include "comm/reduce.h"

#include <stdatomic.h>

typedef void run_fn(manta_dtype t, manta_reduce r, const void *const *src, int n_src, void *dst, int64_t n);

static run_fn *choose_reducer(void)
{
#if defined(__x86_64__)
    /* Wider vectors than these gained nothing: two loads and a store an element. */
    if (cpu_detect() >= CPU_AVX2) return reduce_run_avx2;
#endif
    return reduce_run_base;
}

void reduce_run(manta_dtype t, manta_reduce r, const void *const *src, int n_src, void *dst, int64_t n)
{
    static run_fn *_Atomic chosen; /* the same whoever chooses */
    run_fn *f = atomic_load_explicit(&chosen, memory_order_relaxed);
    if (!f) {
        f = choose_reducer();
        atomic_store_explicit(&chosen, f, memory_order_relaxed);
    }
    f(t, r, src, n_src, dst, n);
}
