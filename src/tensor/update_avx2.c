/* update_avx2.c - the optimizer's pass, vector code for processors with AVX2, FMA and F16C. */
#define FN(name)    name##_avx2
#define ELEM_FLOATS 8

#include "tensor/update.inc"
