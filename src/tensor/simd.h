/* tensor/simd.h - how the kernels that are compiled per instruction set ask for
 * vector code. The including .c file defines ELEM_FLOATS, the floats of its
 * vectors; the reference loops do not.
 *
 * SIMD is written before a loop whose iterations are independent although its
 * pointers may be equal (in place): iteration i alone touches element i of every
 * operand. SIMD_FLOATS is the width for code that spells its vectors out. */
#ifndef TENSOR_SIMD_H
#define TENSOR_SIMD_H

#if defined(ELEM_FLOATS) && defined(__clang__)
#pragma clang diagnostic ignored "-Wpass-failed" /* a loop that stays scalar is slow, not wrong */
#define SIMD _Pragma("clang loop vectorize(assume_safety)")
#elif defined(ELEM_FLOATS)
#define SIMD _Pragma("GCC ivdep")
#else
#define SIMD
#endif

#ifdef ELEM_FLOATS
#define SIMD_FLOATS ELEM_FLOATS
#else
#define SIMD_FLOATS 4
#endif

#endif
