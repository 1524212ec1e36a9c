/* tensor/conv_definition.h - what the definitions of the convolutions in float32 (conv_reference.c) and
 * in bfloat16 (bf16_reference.c) have in common: which elements there are, and in which order the
 * terms of a weight's gradient are added. What a term is, each says itself. */
#ifndef TENSOR_CONV_DEFINITION_H
#define TENSOR_CONV_DEFINITION_H

#include "os/pool.h"
#include "tensor/conv.h"

/* Element (n, oh, ow, o) of the output. */
typedef float conv_output_fn(const conv_call *c, int64_t n, int64_t oh, int64_t ow, int64_t o);

/* Fills c->y with it, a row a task. */
void conv_define_output(pool *p, const conv_call *c, conv_output_fn *element);

/* An element of the weights, by its tap, the channel of the whole input that it reads, and its output
 * channel. */
typedef struct conv_weight {
    int64_t kh, kw, i, o;
} conv_weight;

/* The element's gradient, which begins from `start`. */
typedef float conv_gradient_fn(const conv_call *c, conv_weight t, float start);

/* Hands it to c->sink, or writes it to c->dw, of which it is the start with c->accumulate. */
void conv_define_weights(pool *p, const conv_call *c, conv_gradient_fn *element);

/* Adds to acc what term n of place (oh, ow) gives to the gradient of t. */
typedef float conv_term_fn(const conv_call *c, conv_weight t, float acc, int64_t n, int64_t oh, int64_t ow);

/* The sum of all terms, in the order of conv.h: chunks of conv_chunk(over) of the over->n terms of a place,
 * each a chain that conv_order(over) names, the first from `start`, the others from 0. */
float conv_sum_terms(const conv_call *c, const conv_shape *over, conv_weight t, float start,
                     conv_term_fn *term);

/* The weights of tap (kh, kw) that input channel ci of a group gives to output channel o. */
static inline const float *conv_weight_at(const conv_call *c, int64_t kh, int64_t kw, int64_t ci, int64_t o)
{
    const conv_shape *s = &c->s;

    return c->w + ((kh * s->kw + kw) * (s->c / s->groups) + ci) * s->oc + o;
}

#endif
