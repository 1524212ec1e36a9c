/* nn/layer.h - the built-in layer classes, and what they share.
 *
 * A class is one constant table beside its call function, in the file of its
 * family: layers_core.c (dense, activations, dropout, embedding), layers_conv.c,
 * layers_pool.c, layers_norm.c, layers_shape.c, layers_merge.c,
 * layers_applications.c (what only keras.applications has). layer.c lists them
 * and copies options. */
#ifndef NN_LAYER_H
#define NN_LAYER_H

#include <stddef.h>

#include <manta/layer.h>

#include "base/status.h"

/* A copy of a layer's options with everything its fields point to; `options` NULL is all zero. Owned by the caller.
 * layer_options_free() accepts NULL for either. */
void *layer_options_copy(const manta_layer_class *cls, const void *options);
void layer_options_free(const manta_layer_class *cls, void *options);

/* ---- for the classes ---- */

/* An entry of a class's fields. */
#define LAYER_FIELD(type, key, kind, member)                                                                 \
    {                                                                                                        \
        key, MANTA_FIELD_##kind, offsetof(type, member), 0                                                   \
    }
#define LAYER_FIELD_EXTRA(type, key, kind, member, more)                                                     \
    {                                                                                                        \
        key, MANTA_FIELD_##kind, offsetof(type, member), offsetof(type, more)                                \
    }

/* A layer from the options of a typed function: takes *name out of them, which lives only as long as the call. */
manta_layer *layer_named(manta_model *m, const manta_layer_class *cls, const void *options,
                         const char **name);

/* The number that a field of kind FLOAT_DEFAULT means: `otherwise` where nothing was said, and 0
 * for MANTA_ZERO. */
double layer_or(double v, double otherwise);
int64_t layer_or_int(int64_t v, int64_t otherwise);
manta_initializer layer_init(manta_initializer init, manta_init_kind otherwise);

/* Fails unless the call has exactly n inputs. */
manta_status layer_expect_inputs(int n_in, int n);
/* Fails unless x has ndim dimensions; `shape` says them in words: "(batch, height, width, channels)". */
manta_status layer_expect_ndim(const manta_layer *l, manta_value x, int ndim, const char *shape);
/* Fails unless `axis` (0 and -1: the last) is x's last one. */
manta_status layer_expect_last_axis(const manta_layer *l, manta_value x, int64_t axis);
/* x as float32. */
manta_value layer_f32(manta_layer *l, manta_value x);

/* The bias of a layer with weights: of `n` elements, torch's kind by the kernel's fan-in. */
manta_value layer_bias(manta_layer *l, int64_t n, manta_initializer init, int64_t kernel_fan_in,
                       manta_regularizer reg);

/* Whether manta_layer_activate() knows the name. */
bool layer_has_activation(const char *name);

/* Padding of one axis as Keras counts it: `window` elements (dilation counted in) over n, every `stride`.
 * MANTA_EINVAL for a word that is none. */
manta_status layer_padding(const char *padding, int64_t n, int64_t window, int64_t stride,
                           const int64_t pad[2], int64_t *before, int64_t *after);

extern const manta_layer_class layer_dense, layer_activation, layer_relu, layer_leaky_relu, layer_elu,
    layer_softmax, layer_dropout, layer_embedding;
extern const manta_layer_class layer_conv2d, layer_depthwise_conv2d, layer_separable_conv2d,
    layer_conv2d_transpose;
extern const manta_layer_class layer_max_pooling2d, layer_average_pooling2d, layer_global_average_pooling2d,
    layer_global_max_pooling2d;
extern const manta_layer_class layer_batch_normalization, layer_layer_normalization, layer_rescaling,
    layer_normalization;
extern const manta_layer_class layer_flatten, layer_reshape, layer_permute, layer_zero_padding2d,
    layer_cropping2d, layer_upsampling2d;
extern const manta_layer_class layer_add, layer_subtract, layer_multiply, layer_concatenate;
extern const manta_layer_class layer_layer_scale, layer_stochastic_depth, layer_custom_scale;

#endif
