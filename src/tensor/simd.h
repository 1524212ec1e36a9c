/* tensor/simd.h - SIMD, to be written before a loop whose iterations are
 * independent although its pointers may be equal (in place): iteration i alone
 * touches element i of every operand. Nothing for the reference loops, which do
 * not define ELEM_SIMD. */
#ifndef TENSOR_SIMD_H
#define TENSOR_SIMD_H

#if defined(ELEM_SIMD) && defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that stays scalar is slow, not wrong */
#define SIMD _Pragma("clang loop vectorize(assume_safety)")
#elif defined(ELEM_SIMD)
#define SIMD _Pragma("GCC ivdep")
#else
#define SIMD
#endif

#endif
