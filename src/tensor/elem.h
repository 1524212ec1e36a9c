/* tensor/elem.h - the kernels that are written once and compiled per
 * instruction set: everything in the table but matrix product and convolution.
 *
 * The code is in *.inc files; elem_reference.c, elem_avx2.c and elem_avx512.c
 * include them with FN(name) giving the family's suffix. All three compute the
 * same bits (src/tensor/README.md says by which rules). */
#ifndef TENSOR_ELEM_H
#define TENSOR_ELEM_H

#include "tensor/kernel.h"
#include "tensor/update.h"

/* Declares the functions of one family; they are what kernel.h says of the
 * table's entries of the same name. */
#define ELEM_DECLARE(family)                                                                                 \
    void act_forward_##family(pool *p, kern_act a, float alpha, int64_t n, const float *x, float *y);        \
    void act_backward_##family(pool *p, kern_act a, float alpha, int64_t n, const float *x, const float *y,  \
                               const float *dy, float *dx, bool accumulate);                                 \
    void binary_##family(pool *p, kern_binary op, int64_t n, const float *a, int64_t nb, const float *b,     \
                         float *out);                                                                        \
    void axpby_##family(pool *p, int64_t n, float alpha, const float *a, float beta, float *out);            \
    void round_##family(pool *p, int64_t n, float *x);                                                       \
    void col_sum_##family(pool *p, int64_t rows, int64_t cols, const float *x, float *out, bool accumulate); \
    void bn_forward_##family(pool *p, const bn_call *b);                                                     \
    void bn_infer_##family(pool *p, const bn_call *b);                                                       \
    void bn_backward_##family(pool *p, const bn_call *b);                                                    \
    void bn_backward_frozen_##family(pool *p, const bn_call *b);                                             \
    void ln_forward_##family(pool *p, const ln_call *l);                                                     \
    void ln_backward_##family(pool *p, const ln_call *l);                                                    \
    void softmax_forward_##family(pool *p, int64_t rows, int64_t c, const float *x, float *y);               \
    void softmax_backward_##family(pool *p, int64_t rows, int64_t c, const float *y, const float *dy,        \
                                   float *dx, bool accumulate);                                              \
    void max_pool_forward_##family(pool *p, const pool_shape *s, const float *x, float *y, uint8_t *arg);    \
    void max_pool_backward_##family(pool *p, const pool_shape *s, const uint8_t *arg, const float *dy,       \
                                    float *dx, bool accumulate);                                             \
    void avg_pool_forward_##family(pool *p, const pool_shape *s, const float *x, float *y);                  \
    void avg_pool_backward_##family(pool *p, const pool_shape *s, const float *dy, float *dx,                \
                                    bool accumulate);                                                        \
    void gather_##family(pool *p, int64_t n, int64_t c, const float *table, const int64_t *index, float *y); \
    void scatter_add_##family(pool *p, int64_t n, int64_t c, int64_t rows, const int64_t *index,             \
                              const float *dy, float *dtable);                                               \
    void update_##family(const update_run *r);                                                               \
    double square_sum_##family(const update_run *r)

ELEM_DECLARE(reference);
ELEM_DECLARE(avx2);
ELEM_DECLARE(avx512);

#endif
