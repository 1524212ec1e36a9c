/* tensor/gemm.h - the matrix products of the kernel families.
 *
 * gemm_call in tensor/kernel.h is the contract. What is common to reference,
 * avx2 and avx512, to the bit: each element of C is one chain
 *
 *     acc = accumulate ? C : +0
 *     for p = 0 .. k-1:  acc = fma(A(i, p), B(p, j), acc)
 *     acc = acc + bias[j]                 when there is a bias
 *     acc = acc < 0 ? +0 : acc            when relu   (NaN stays NaN)
 *     acc = mask(i, j) <= 0 ? +0 : acc    when there is a mask
 *
 * Tiles, threads and packing decide when a chain is continued, never its
 * order: between two blocks of k the accumulator rests in C (or in the tile
 * that goes to the sink), which rounds nothing.
 *
 * The avx2 and avx512 functions must only be called on a processor that has
 * these instructions (AVX2 and FMA; AVX-512 F, BW, DQ, VL). gemm_onednn exists
 * only where MANTA_ONEDNN is defined. */
#ifndef TENSOR_GEMM_H
#define TENSOR_GEMM_H

#include "tensor/kernel.h"

void gemm_reference(pool *p, const gemm_call *g);
void gemm_avx2(pool *p, const gemm_call *g);
void gemm_avx512(pool *p, const gemm_call *g);
void gemm_pair_reference(pool *p, const gemm_call *first, const gemm_call *second);
void gemm_pair_avx2(pool *p, const gemm_call *first, const gemm_call *second);
void gemm_pair_avx512(pool *p, const gemm_call *first, const gemm_call *second);
#ifdef MANTA_ONEDNN
void gemm_onednn(pool *p, const gemm_call *g);
void gemm_pair_onednn(pool *p, const gemm_call *first, const gemm_call *second);
#endif

#endif
