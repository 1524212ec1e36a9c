/* update_avx512.c - the optimizer's pass, vector code for processors with AVX-512 F, BW, DQ and VL. */
#define FN(name)    name##_avx512
#define ELEM_FLOATS 16

#include "tensor/update.inc"
