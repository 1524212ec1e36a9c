/* comm/reduce.h - combines the contributions of the ranks, element by element,
 * by the one tree: sum(lo, hi) is the contribution itself when there is one,
 * else sum(lo, lo + p) + sum(lo + p, hi) with p the largest power of two below
 * hi - lo (tensor/update.h has the same one). What each reduction gives is said
 * in manta/comm.h; it is the same bits for every instruction set and for any
 * cut of the elements into runs. */
#ifndef COMM_REDUCE_H
#define COMM_REDUCE_H

#include <manta/comm.h>

#include "os/cpu.h"

/* dst[i] = the reduction of src[0 .. n_src-1][i], for n elements. dst may be one
 * of the sources. n_src is 1 .. MANTA_GROUP_MAX. */
void reduce_run(manta_dtype t, manta_reduce r, const void *const *src, int n_src, void *dst, int64_t n);

/* Reduce as reduce_run() does, with the instruction set in the name; for tests. */
void reduce_run_base(manta_dtype t, manta_reduce r, const void *const *src, int n_src, void *dst, int64_t n);
void reduce_run_avx2(manta_dtype t, manta_reduce r, const void *const *src, int n_src, void *dst, int64_t n);

#endif
