/* elem_avx512.c - element-wise kernels and reductions, vector code for processors with AVX-512 F, BW, DQ and VL. */
#define FN(name)    name##_avx512
#define ELEM_FLOATS 16

#include "tensor/elem.inc"
#include "tensor/reduce.inc"
#include "tensor/rows.inc"
#include "tensor/windows.inc"
