/* elem_avx2.c - element-wise kernels and reductions, vector code for processors with AVX2, FMA and F16C. */
#define FN(name)    name##_avx2
#define ELEM_FLOATS 8

#include "tensor/elem.inc"
#include "tensor/reduce.inc"
#include "tensor/rows.inc"
#include "tensor/windows.inc"
