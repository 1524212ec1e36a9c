/* update_reference.c - the optimizer's pass, plain loops: scalar code wherever a compiler finds no vectors in it. */
#define FN(name) name##_reference

#include "tensor/update.inc"
