/* tensor/conv.h - the convolutions of the kernel families.
 *
 * conv_call in tensor/kernel.h is the contract. What is common to reference,
 * avx2 and avx512, to the bit (cg = c / groups, ocg = oc / groups; a tap is
 * valid where it meets the input and not its padding):
 *
 *   forward          y(n, oh, ow, o): from +0, over the valid taps kh, kw and
 *                    the cg inputs of o's group, ascending in (kh, kw, ci);
 *                    then + bias, relu as in tensor/gemm.h.
 *   backward data    dx(n, ih, iw, i): from +0 or dx, over the valid taps and
 *                    the ocg outputs of i's group, ascending in (kh, kw, oc);
 *                    then the mask.
 *   backward weights dw(kh, kw, i, o): the batch is cut into chunks of
 *                    conv_chunk() samples. Within a chunk one chain over the
 *                    positions that see the tap, ascending in the order that
 *                    conv_order() names; the first chunk starts from +0 or dw,
 *                    every other one from +0; the chunks are added in order.
 *
 * Taps that only see padding take no part: nothing is added for them. The one
 * exception is the weight gradient where conv_counts_padding(): there the
 * chain runs through all positions, with 0 for x on padding (fma(0, dy, acc)
 * is acc but for the sign of a zero and for a dy that is not finite).
 *
 * The avx2 and avx512 functions must only be called on a processor that has
 * these instructions. The onednn ones exist only where MANTA_ONEDNN is
 * defined; their order is oneDNN's, on a grid of chunks fixed by the shape. */
#ifndef TENSOR_CONV_H
#define TENSOR_CONV_H

#include "tensor/kernel.h"

typedef enum conv_sum {
    CONV_SAMPLES_FIRST, /* ascending in (n, oh, ow): large maps, whose rows lie together */
    CONV_POSITIONS_FIRST /* ascending in (oh, ow, n): small maps, whose samples are brought together */
} conv_sum;

/* Samples per chunk of the weight gradient: all of them when the weight is large
 * enough to occupy threads by itself, else a sixteenth of the batch. */
int64_t conv_chunk(const conv_shape *s);

/* The order in which the weight gradient's chain runs through a chunk. */
conv_sum conv_order(const conv_shape *s);

/* Whether that chain counts padding: inputs of few channels, whose taps are
 * summed side by side from a copy of x that has its padding. */
bool conv_counts_padding(const conv_shape *s);

void conv_forward_reference(pool *p, const conv_call *c);
void conv_backward_data_reference(pool *p, const conv_call *c);
void conv_backward_weights_reference(pool *p, const conv_call *c);
size_t conv_work_reference(const conv_shape *s, int threads);

void conv_forward_avx2(pool *p, const conv_call *c);
void conv_backward_data_avx2(pool *p, const conv_call *c);
void conv_backward_weights_avx2(pool *p, const conv_call *c);
size_t conv_work_avx2(const conv_shape *s, int threads);

void conv_forward_avx512(pool *p, const conv_call *c);
void conv_backward_data_avx512(pool *p, const conv_call *c);
void conv_backward_weights_avx512(pool *p, const conv_call *c);
size_t conv_work_avx512(const conv_shape *s, int threads);

#ifdef MANTA_ONEDNN
void conv_forward_onednn(pool *p, const conv_call *c);
void conv_backward_data_onednn(pool *p, const conv_call *c);
void conv_backward_weights_onednn(pool *p, const conv_call *c);
size_t conv_work_onednn(const conv_shape *s, int threads);
#endif

#endif
