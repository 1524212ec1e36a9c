/* tensor/onednn.h - oneDNN's convolutions of one shape, as onednn_conv.c sees them:
 * without a header of oneDNN. All this exists only where MANTA_ONEDNN is defined.
 *
 * Threads: all functions may be called from several threads. */
#ifndef TENSOR_ONEDNN_H
#define TENSOR_ONEDNN_H

#include "tensor/kernel.h"

/* Opens oneDNN with the first call, and keeps it; false when this machine has none that fits, and the text at *why, which
 * may be NULL, then says why. All else here, and the kernels of the family, may be called only after it was true. */
bool onednn_open(const char **why);

enum { ONEDNN_PARTS = 8 }; /* pieces a product, or the samples of a convolution, are cut into */

typedef enum onednn_pass { ONEDNN_FORWARD, ONEDNN_DATA, ONEDNN_WEIGHTS } onednn_pass;

typedef struct onednn_primitive onednn_primitive; /* see onednn.c */

/* The primitive of that pass and shape, for `samples` of them, kept from now on until onednn_give(), which accepts NULL.
 * NULL: oneDNN has none for it, use the reference. */
onednn_primitive *onednn_take(onednn_pass what, const conv_shape *s, int64_t samples);
void onednn_give(onednn_primitive *p);

/* Whether the weight has another layout than ours, so that it must go through onednn_run_reorder(): before the passes
 * that read it, after the one that makes its gradient. */
bool onednn_is_reordered(const onednn_primitive *p);

/* Bytes of the weight in that layout, or of the scratchpad; a multiple of a cache line. */
size_t onednn_size(const onednn_primitive *p, bool weight);

/* Runs it on the calling thread; false when oneDNN has failed. One of x, w and y is the result, by the pass; it is
 * written. */
bool onednn_run_conv(const onednn_primitive *p, const float *x, const float *w, const float *y,
                     void *scratch);

/* Brings the weight into the primitive's layout, or its gradient back into ours; false when oneDNN has failed. */
bool onednn_run_reorder(const onednn_primitive *p, const float *from, float *to);

static inline size_t onednn_round_up(size_t size)
{
    return (size + 63) & ~(size_t)63;
}

#endif
