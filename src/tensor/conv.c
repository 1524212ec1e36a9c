/* conv.c - the convolutions of the families that are tiled: the same drivers,
 * each with its instruction set's tiles. */
#include "tensor/conv.h"
#include "tensor/conv_tiled.h"

void conv_forward_avx2(pool *p, const conv_call *c)
{
    conv_forward_tiled(&gemm_isa_avx2, p, c);
}

void conv_backward_data_avx2(pool *p, const conv_call *c)
{
    conv_backward_data_tiled(&gemm_isa_avx2, p, c);
}

void conv_backward_weights_avx2(pool *p, const conv_call *c)
{
    conv_backward_weights_tiled(&gemm_isa_avx2, p, c);
}

size_t conv_work_avx2(const conv_shape *s, int threads)
{
    (void)threads;
    return conv_work_tiled(&gemm_isa_avx2, s);
}

void conv_forward_avx512(pool *p, const conv_call *c)
{
    conv_forward_tiled(&gemm_isa_avx512, p, c);
}

void conv_backward_data_avx512(pool *p, const conv_call *c)
{
    conv_backward_data_tiled(&gemm_isa_avx512, p, c);
}

void conv_backward_weights_avx512(pool *p, const conv_call *c)
{
    conv_backward_weights_tiled(&gemm_isa_avx512, p, c);
}

size_t conv_work_avx512(const conv_shape *s, int threads)
{
    (void)threads;
    return conv_work_tiled(&gemm_isa_avx512, s);
}
