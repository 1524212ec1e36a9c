/* tensor/conv_tiled.h - the convolutions by register tiles, for any instruction
 * set: conv_tiled.c goes forward and back to the input, conv_weights.c to the
 * weights. Contracts: tensor/conv.h.
 *
 * Where an instruction set's words are pairs of bfloat16 (gemm_isa.pair is 2) the
 * caller has made words of the maps, conv_call's x and dy: forward and back to the
 * input of the channels of each group, to the weights of the samples, whose number in
 * the shape is then that of pairs. The weight w is floats, but words where channels do
 * not mix. */
#ifndef TENSOR_CONV_TILED_H
#define TENSOR_CONV_TILED_H

#include "tensor/conv.h"
#include "tensor/gemm_micro.h"

void conv_forward_tiled(const gemm_isa *isa, pool *p, const conv_call *c);
void conv_backward_data_tiled(const gemm_isa *isa, pool *p, const conv_call *c);
void conv_backward_weights_tiled(const gemm_isa *isa, pool *p, const conv_call *c);

size_t conv_work_tiled(const gemm_isa *isa, const conv_shape *s);
size_t conv_weights_work(const gemm_isa *isa, const conv_shape *s); /* the weights' part */

#endif
