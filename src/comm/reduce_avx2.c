/* reduce_avx2.c - reductions, compiled for AVX2. */
#if defined(__x86_64__)
#define FN(name) name##_avx2
#include "comm/reduce.inc"
#endif
