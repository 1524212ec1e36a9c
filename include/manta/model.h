/* manta/model.h - building a model: a graph of operations, made by layers.
 *
 * A model is built once, front to back, and then only read: weights live in a
 * state block that belongs to whoever runs it (manta/train.h). Layers are
 * created by name or by the typed functions of manta/layer.h and then called
 * on values; calling one twice shares its weights. A model can be called as a
 * layer of another one.
 *
 *     manta_model *m = manta_model_new("mnist-cnn");
 *     manta_value x = manta_input(m, "image", MANTA_DTYPE_F32, 2, (int64_t[]){28, 28});
 *     x = manta_call(m, manta_reshape(m, (manta_reshape_options){.shape = {28, 28, 1}, .ndim = 3}), x);
 *     x = manta_call(m, manta_conv2d(m, (manta_conv2d_options){.filters = 32, .kernel_size = {3, 3},
 *                                                              .activation = "relu"}), x);
 *     manta_output(m, x);
 *     MANTA_TRY(manta_model_build(m));
 *
 * Errors latch: the first one is kept with its sentence, later calls on the
 * model do nothing and return an invalid value, and manta_model_build()
 * reports it. So a chain needs one check.
 *
 * Threads: a model is built by one thread; a built model may be read by many. */
#ifndef MANTA_MODEL_H
#define MANTA_MODEL_H

#include <manta/array.h>
#include <manta/op.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct manta_model manta_model;
typedef struct manta_layer manta_layer;

/* A value of the graph; only the model that gave it knows it. */
typedef struct manta_value {
    int id; /* < 0: invalid, an error is latched in the model */
} manta_value;

typedef enum manta_init_kind {
    MANTA_INIT_DEFAULT = 0, /* what the layer uses when nothing is said */
    MANTA_INIT_ZEROS,
    MANTA_INIT_ONES,
    MANTA_INIT_CONSTANT,
    MANTA_INIT_UNIFORM,
    MANTA_INIT_NORMAL,
    MANTA_INIT_TRUNCATED_NORMAL,
    MANTA_INIT_GLOROT_UNIFORM,
    MANTA_INIT_GLOROT_NORMAL,
    MANTA_INIT_HE_UNIFORM,
    MANTA_INIT_HE_NORMAL,
    MANTA_INIT_LECUN_UNIFORM,
    MANTA_INIT_LECUN_NORMAL,
    MANTA_INIT_TORCH, /* uniform +-1/sqrt(fan_in), PyTorch's default for weight and bias */
    MANTA_INIT_FAN_OUT_UNIFORM, /* a variance of a / fan_out, uniform; Keras's VarianceScaling */
    MANTA_INIT_FAN_OUT_NORMAL /* a variance of a / fan_out, normal and cut at two deviations */
} manta_init_kind;

/* How a weight starts. a, b: low and high of uniform, mean and stddev of the
 * normals, the value of constant. */
typedef struct manta_initializer {
    manta_init_kind kind;
    float a, b;
} manta_initializer;

typedef struct manta_regularizer {
    float l1, l2; /* l1 * sum|w| + l2 * sum w*w, as Keras counts */
} manta_regularizer;

/* A new, empty model. Its name shows in messages and files. Owned by the
 * caller: manta_model_free(). Cannot fail. */
MANTA_API manta_model *manta_model_new(const char *name);
MANTA_API void manta_model_free(manta_model *m); /* accepts NULL */
MANTA_API const char *manta_model_name(const manta_model *m);

/* An input whose samples have that shape (without the batch dimension). */
MANTA_API manta_value manta_input(manta_model *m, const char *name, manta_dtype t, int ndim,
                                  const int64_t *shape);

/* Calls a layer of this model on one value, or on several. */
MANTA_API manta_value manta_call(manta_model *m, manta_layer *l, manta_value x);
MANTA_API manta_value manta_call_n(manta_model *m, manta_layer *l, int n, const manta_value *x);

/* Adds a layer behind the last value of a sequential model: the last input,
 * or the result of the last manta_model_add(). */
MANTA_API manta_value manta_model_add(manta_model *m, manta_layer *l);

/* Calls `inner` (a built model) as a layer: its layers and weights become part
 * of m under inner's name, once, however often it is called. out receives
 * as many values as inner has outputs. inner may be freed afterwards. */
MANTA_API manta_layer *manta_nested(manta_model *m, const manta_model *inner);
MANTA_API void manta_call_nested(manta_model *m, manta_layer *l, int n_in, const manta_value *in, int n_out,
                                 manta_value *out);

/* Applies an operation directly. `attrs` (op->attrs_size bytes) is copied. */
MANTA_API manta_value manta_apply(manta_model *m, const manta_op *op, const void *attrs, int n,
                                  const manta_value *x);

/* Declares x an output; outputs are numbered in order. */
MANTA_API void manta_output(manta_model *m, manta_value x);
/* Declares x an output called `name`, for losses and metrics given per output. */
MANTA_API void manta_output_named(manta_model *m, const char *name, manta_value x);

/* Ends the building. A sequential model without a declared output gives its
 * last value. Reports the first error of the whole construction. */
MANTA_API manta_status manta_model_build(manta_model *m) MANTA_MUST_USE;

/* Reading a built model. */
typedef struct manta_variable_info {
    const char *name; /* "conv2d/kernel", borrowed from the model */
    const char *layer;
    int ndim;
    int64_t shape[MANTA_MAX_DIMS];
    bool trainable; /* as the layer made it, frozen or not */
    bool frozen;
} manta_variable_info;

typedef struct manta_layer_info {
    const char *name, *class_name;
    int64_t params; /* elements of all its variables */
    int ndim; /* dimensions of its (last) output, batch as -1 first */
    int64_t shape[MANTA_MAX_DIMS];
    bool frozen;
} manta_layer_info;

MANTA_API int manta_model_inputs(const manta_model *m);
MANTA_API int manta_model_outputs(const manta_model *m);
/* Dtype, shape (batch as -1) of input or output i; *name borrowed, may be NULL. */
MANTA_API manta_array manta_model_input(const manta_model *m, int i, const char **name);
MANTA_API manta_array manta_model_output(const manta_model *m, int i, const char **name);
MANTA_API int manta_model_variables(const manta_model *m);
MANTA_API manta_variable_info manta_model_variable(const manta_model *m, int i);
MANTA_API int manta_model_layers(const manta_model *m);
MANTA_API manta_layer_info manta_model_layer(const manta_model *m, int i);
MANTA_API int64_t manta_model_params(const manta_model *m, bool trainable_only);

/* Freezes (or thaws) the layers whose name matches the shell pattern; takes
 * effect for states made afterwards. MANTA_ENOENT when none matches. */
MANTA_API manta_status manta_model_freeze(manta_model *m, const char *pattern, bool frozen) MANTA_MUST_USE;

/* A model of the zoo: mnist-cnn, resnet18, mlp, linear, autoencoder.
 * *out: owned by the caller, built. MANTA_ENOENT lists the names. */
MANTA_API manta_status manta_zoo(const char *name, manta_model **out) MANTA_MUST_USE;
/* Name of the i-th zoo model and a line about it; NULL past the end. */
MANTA_API const char *manta_zoo_name(int i, const char **about);

#ifdef __cplusplus
}
#endif
#endif
