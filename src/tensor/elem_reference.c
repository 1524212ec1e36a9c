/* elem_reference.c - element-wise kernels and reductions, plain loops: scalar code wherever a compiler finds no vectors in it. */
#define FN(name) name##_reference

#include "tensor/elem.inc"
#include "tensor/reduce.inc"
#include "tensor/rows.inc"
#include "tensor/windows.inc"
