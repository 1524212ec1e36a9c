/* manta/layer.h - layers: named groups of operations with weights.
 *
 * Each class is a table: its options as a struct, the fields of that struct
 * under the names Keras's config gives them, and a function that expands a
 * call into operations. A program adds classes of its own with the same table.
 *
 * In every options struct zero means Keras's default; where that default is itself
 * not zero, MANTA_ZERO asks for zero (manta/option.h), and the layer holds it as such.
 * `name` is read by the typed functions below; NULL numbers the layer as Keras does ("conv2d",
 * "conv2d_1"). Strings and arrays are copied.
 *
 * An input that is not float32 is converted where a layer computes with it.
 * Errors latch in the model (manta/model.h); a sentence about a shape says what
 * was expected and what was given. */
#ifndef MANTA_LAYER_H
#define MANTA_LAYER_H

#include <manta/model.h>
#include <manta/option.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum manta_field_kind {
    MANTA_FIELD_INT, /* int64_t */
    MANTA_FIELD_INTS, /* int64_t[MANTA_MAX_DIMS], count in the int at `extra`; Keras may give one number */
    MANTA_FIELD_PAIR, /* int64_t[2]; Keras may give one number for both. With `extra` (its own offset) a zero
                         that is given is MANTA_ZERO */
    MANTA_FIELD_PAIRS, /* int64_t[2][2]: ((top, bottom), (left, right)) */
    MANTA_FIELD_FLOAT, /* double whose default is 0: MANTA_ZERO becomes 0 when the options are copied */
    MANTA_FIELD_BOOL, /* bool */
    MANTA_FIELD_NOT, /* bool that holds the opposite, so that zero is Keras's default */
    MANTA_FIELD_TEXT, /* const char *; owned by the layer */
    MANTA_FIELD_INIT, /* manta_initializer */
    MANTA_FIELD_REG, /* manta_regularizer */
    MANTA_FIELD_FLOATS, /* const float *; owned by the layer, count in the int64_t field at `extra` */
    MANTA_FIELD_FLOAT_DEFAULT /* double whose default is not 0: a zero that is given is MANTA_ZERO */
} manta_field_kind;

typedef struct manta_field {
    const char *key; /* Keras's */
    manta_field_kind kind;
    size_t offset, extra; /* into the options struct; extra 0: none */
} manta_field;

typedef struct manta_layer_class {
    const char *name; /* "Conv2D" */
    size_t options_size;
    const manta_field *fields;
    int n_fields;
    /* Expands a call: one value out. Runs for every call; weights it asks for are made on the first. */
    manta_status (*call)(manta_layer *l, const void *options, int n_in, const manta_value *in,
                         manta_value *out);
} manta_layer_class;

/* A layer of that class. `options` (cls->options_size bytes; NULL: all zero) is copied with what its fields point
 * to. Owned by the model. Errors latch in the model; NULL only for a model or a class that is NULL. */
MANTA_API manta_layer *manta_layer_new(manta_model *m, const manta_layer_class *cls, const char *name,
                                       const void *options);
/* A built-in class by Keras's name; NULL when there is none. */
MANTA_API const manta_layer_class *manta_layer_class_find(const char *name);
MANTA_API const manta_layer_class *manta_layer_class_at(int i); /* NULL past the end */

MANTA_API const char *manta_layer_name(const manta_layer *l);
MANTA_API const manta_layer_class *manta_layer_class_of(const manta_layer *l);
MANTA_API const void *manta_layer_options(const manta_layer *l);

/* For a class's call function. The weight `name` of this layer, made on the first call. fan_in 0: by the shape. */
MANTA_API manta_value manta_layer_weight(manta_layer *l, const char *name, int ndim, const int64_t *shape,
                                         manta_initializer init, int64_t fan_in, manta_regularizer reg,
                                         bool trainable);
MANTA_API manta_value manta_layer_apply(manta_layer *l, const manta_op *op, const void *attrs, int n,
                                        const manta_value *x);
MANTA_API manta_array manta_layer_shape(const manta_layer *l, manta_value x); /* dtype, shape (batch -1) */
/* Applies an activation by Keras's name: relu, relu6, leaky_relu, elu, gelu, gelu_tanh (Keras's gelu with
 * approximate=True), silu (swish), sigmoid, tanh, hard_sigmoid, hard_silu (hard_swish), softmax. NULL or "linear" gives x back. MANTA_ENOENT lists the
 * names. */
MANTA_API manta_status manta_layer_activate(manta_layer *l, const char *activation, manta_value x,
                                            manta_value *out) MANTA_MUST_USE;

typedef struct manta_dense_options {
    int64_t units;
    const char *activation;
    bool no_bias;
    manta_initializer kernel_initializer, bias_initializer;
    manta_regularizer kernel_regularizer, bias_regularizer;
    const char *name;
} manta_dense_options;

typedef struct manta_conv2d_options {
    int64_t filters, kernel_size[2], strides[2], dilation_rate[2], groups; /* 0: 1 */
    const char *padding; /* "valid" (default), "same", or "explicit" with pad */
    int64_t pad[2][2]; /* explicit: ((top, bottom), (left, right)) */
    const char *activation;
    bool no_bias;
    manta_initializer kernel_initializer, bias_initializer;
    manta_regularizer kernel_regularizer, bias_regularizer;
    const char *name;
} manta_conv2d_options;

typedef struct manta_depthwise_conv2d_options {
    int64_t kernel_size[2], strides[2], dilation_rate[2], depth_multiplier;
    const char *padding; /* "valid", "same" or "explicit", as for Conv2D */
    int64_t pad[2][2];
    const char *activation;
    bool no_bias;
    manta_initializer depthwise_initializer, bias_initializer;
    manta_regularizer depthwise_regularizer, bias_regularizer;
    const char *name;
} manta_depthwise_conv2d_options;

/* A depthwise convolution, then one of (1, 1): what both compute is linear, bias and activation come last. */
typedef struct manta_separable_conv2d_options {
    int64_t filters, kernel_size[2], strides[2], dilation_rate[2], depth_multiplier; /* 0: 1 */
    const char *padding; /* "valid", "same" or "explicit", as for Conv2D */
    int64_t pad[2][2];
    const char *activation;
    bool no_bias;
    manta_initializer depthwise_initializer, pointwise_initializer, bias_initializer;
    manta_regularizer depthwise_regularizer, pointwise_regularizer, bias_regularizer;
    const char *name;
} manta_separable_conv2d_options;

typedef struct manta_conv2d_transpose_options {
    int64_t filters, kernel_size[2], strides[2], dilation_rate[2], output_padding[2];
    /* output_padding: 0 in both: what Keras computes when none is given; MANTA_ZERO: 0 */
    const char *padding; /* "valid" (default), "same", or "explicit": pad is cut off, as torch */
    int64_t pad[2][2];
    const char *activation;
    bool no_bias;
    manta_initializer kernel_initializer, bias_initializer;
    manta_regularizer kernel_regularizer, bias_regularizer;
    const char *name;
} manta_conv2d_transpose_options;

typedef struct manta_pooling2d_options {
    int64_t pool_size[2], strides[2]; /* 0: (2, 2); strides 0: pool_size */
    const char *padding;
    int64_t pad[2][2]; /* "explicit", as torch pads */
    bool count_padding; /* average: torch's default */
    const char *name;
} manta_pooling2d_options;

typedef struct manta_global_pooling2d_options {
    bool keepdims;
    const char *name;
} manta_global_pooling2d_options;

typedef struct manta_batch_normalization_options {
    double momentum, epsilon; /* 0: 0.99, 0.001 */
    bool no_center, no_scale;
    bool unbiased; /* moving variance from the unbiased one, as torch */
    int64_t axis; /* the last one: 0, -1, or its number */
    manta_initializer gamma_initializer, beta_initializer;
    const char *name;
} manta_batch_normalization_options;

typedef struct manta_layer_normalization_options {
    double epsilon; /* 0: 0.001 */
    bool no_center, no_scale;
    int64_t axis[MANTA_MAX_DIMS]; /* the last n_axis ones, or none given: the last */
    int n_axis;
    manta_initializer gamma_initializer, beta_initializer;
    const char *name;
} manta_layer_normalization_options;

typedef struct manta_dropout_options {
    double rate;
    int64_t noise_shape[MANTA_MAX_DIMS]; /* the shape of what is drawn, batch included: 1 shares a draw along
                                            an axis, -1 or its length does not; axis 0 is always -1 */
    int n_noise; /* 0: every element is drawn for itself */
    const char *name;
} manta_dropout_options;

typedef struct manta_reshape_options {
    int64_t shape[MANTA_MAX_DIMS]; /* without the batch; one may be -1 */
    int ndim;
    const char *name;
} manta_reshape_options;

typedef struct manta_permute_options {
    int64_t dims[MANTA_MAX_DIMS]; /* 1-based, as Keras */
    int ndim;
    const char *name;
} manta_permute_options;

typedef struct manta_activation_options {
    const char *activation;
    const char *name;
} manta_activation_options;

typedef struct manta_relu_options {
    double max_value; /* 0: none */
    double negative_slope, threshold;
    const char *name;
} manta_relu_options;

typedef struct manta_leaky_relu_options {
    double negative_slope; /* 0: 0.3 */
    const char *name;
} manta_leaky_relu_options;

typedef struct manta_elu_options {
    double alpha; /* 0: 1 */
    const char *name;
} manta_elu_options;

typedef struct manta_softmax_options {
    int64_t axis; /* the last one: 0, -1, or its number */
    const char *name;
} manta_softmax_options;

typedef struct manta_merge_concatenate_options {
    int64_t axis; /* 0: -1, the last */
    const char *name;
} manta_merge_concatenate_options;

typedef struct manta_zero_padding2d_options {
    int64_t padding[2][2]; /* ((top, bottom), (left, right)); as said, also where it is zero */
    const char *name;
} manta_zero_padding2d_options;

typedef struct manta_cropping2d_options {
    int64_t cropping[2][2]; /* ((top, bottom), (left, right)); as said, also where it is zero */
    const char *name;
} manta_cropping2d_options;

typedef struct manta_upsampling2d_options {
    int64_t size[2]; /* 0: (2, 2) */
    const char *interpolation; /* "nearest" (default), "bilinear" */
    const char *name;
} manta_upsampling2d_options;

typedef struct manta_rescaling_options {
    double scale, offset; /* scale 0: 1 */
    const char *name;
} manta_rescaling_options;

typedef struct manta_normalization_options {
    const float *mean, *variance; /* n each, over the last axis; n 1: one pair for all elements */
    int64_t n;
    bool invert;
    int64_t axis; /* the last one: 0, -1, or its number */
    const char *name;
} manta_normalization_options;

typedef struct manta_embedding_options {
    int64_t input_dim, output_dim;
    manta_initializer embeddings_initializer;
    manta_regularizer embeddings_regularizer;
    const char *name;
} manta_embedding_options;

/* The layers that only keras.applications has. LayerScale (ConvNeXt): one weight per channel, by which the input is
 * multiplied. StochasticDepth (ConvNeXt): a sample is dropped as a whole in training. CustomScaleLayer
 * (InceptionResNetV2), of two inputs: the first plus `scale` times the second. */
typedef struct manta_layer_scale_options {
    double init_values; /* what the weights start as */
    int64_t projection_dim; /* channels */
    const char *name;
} manta_layer_scale_options;

typedef struct manta_stochastic_depth_options {
    double drop_path_rate;
    const char *name;
} manta_stochastic_depth_options;

typedef struct manta_merge_custom_scale_options {
    double scale;
    const char *name;
} manta_merge_custom_scale_options;

MANTA_API manta_layer *manta_dense(manta_model *m, manta_dense_options o);
MANTA_API manta_layer *manta_conv2d(manta_model *m, manta_conv2d_options o);
MANTA_API manta_layer *manta_depthwise_conv2d(manta_model *m, manta_depthwise_conv2d_options o);
MANTA_API manta_layer *manta_separable_conv2d(manta_model *m, manta_separable_conv2d_options o);
MANTA_API manta_layer *manta_conv2d_transpose(manta_model *m, manta_conv2d_transpose_options o);
MANTA_API manta_layer *manta_max_pooling2d(manta_model *m, manta_pooling2d_options o);
MANTA_API manta_layer *manta_average_pooling2d(manta_model *m, manta_pooling2d_options o);
MANTA_API manta_layer *manta_global_average_pooling2d(manta_model *m, manta_global_pooling2d_options o);
MANTA_API manta_layer *manta_global_max_pooling2d(manta_model *m, manta_global_pooling2d_options o);
MANTA_API manta_layer *manta_batch_normalization(manta_model *m, manta_batch_normalization_options o);
MANTA_API manta_layer *manta_layer_normalization(manta_model *m, manta_layer_normalization_options o);
MANTA_API manta_layer *manta_dropout(manta_model *m, manta_dropout_options o);
MANTA_API manta_layer *manta_flatten(manta_model *m);
MANTA_API manta_layer *manta_reshape(manta_model *m, manta_reshape_options o);
MANTA_API manta_layer *manta_permute(manta_model *m, manta_permute_options o);
MANTA_API manta_layer *manta_activation(manta_model *m, manta_activation_options o);
MANTA_API manta_layer *manta_relu(manta_model *m, manta_relu_options o);
MANTA_API manta_layer *manta_leaky_relu(manta_model *m, manta_leaky_relu_options o);
MANTA_API manta_layer *manta_elu(manta_model *m, manta_elu_options o);
MANTA_API manta_layer *manta_softmax(manta_model *m, manta_softmax_options o);
/* Layers that merge several values into one (manta_call_n()). */
MANTA_API manta_layer *manta_merge_add(manta_model *m);
MANTA_API manta_layer *manta_merge_subtract(manta_model *m);
MANTA_API manta_layer *manta_merge_multiply(manta_model *m);
MANTA_API manta_layer *manta_merge_concatenate(manta_model *m, manta_merge_concatenate_options o);
MANTA_API manta_layer *manta_merge_custom_scale(manta_model *m, manta_merge_custom_scale_options o);

MANTA_API manta_layer *manta_zero_padding2d(manta_model *m, manta_zero_padding2d_options o);
MANTA_API manta_layer *manta_cropping2d(manta_model *m, manta_cropping2d_options o);
MANTA_API manta_layer *manta_upsampling2d(manta_model *m, manta_upsampling2d_options o);
MANTA_API manta_layer *manta_rescaling(manta_model *m, manta_rescaling_options o);
MANTA_API manta_layer *manta_normalization(manta_model *m, manta_normalization_options o);
MANTA_API manta_layer *manta_embedding(manta_model *m, manta_embedding_options o);
MANTA_API manta_layer *manta_layer_scale(manta_model *m, manta_layer_scale_options o);
MANTA_API manta_layer *manta_stochastic_depth(manta_model *m, manta_stochastic_depth_options o);

#ifdef __cplusplus
}
#endif
#endif
