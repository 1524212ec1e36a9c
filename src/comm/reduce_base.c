/* reduce_base.c - reductions for any processor. */
#define FN(name) name##_base
#include "comm/reduce.inc"
