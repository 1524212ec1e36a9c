/* keras_ops.c - Keras's operations as nodes of a model. */
#include "format/keras/keras_ops.h"

#include <math.h>
#include <string.h>

#include "base/status.h"
#include "nn/layer.h"
#include "nn/ops.h"

/* y = x * scale + offset of the only tensor. */
static manta_status apply_affine(manta_layer *l, int n_in, const manta_value *in, double scale, double offset,
                                 manta_value *out)
{
    op_affine_attrs attrs = {.scale = (float)scale, .offset = (float)offset};

    TRY(layer_expect_inputs(n_in, 1));
    *out = manta_layer_apply(l, &op_affine, &attrs, 1, in);
    return MANTA_OK;
}

static manta_status apply_both(manta_layer *l, const manta_op *op, int n_in, const manta_value *in,
                               manta_value *out)
{
    manta_value x[2];

    TRY(layer_expect_inputs(n_in, 2));
    x[0] = layer_f32(l, in[0]);
    x[1] = layer_f32(l, in[1]);
    *out = manta_layer_apply(l, op, NULL, 2, x);
    return MANTA_OK;
}

static manta_status add_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                             manta_value *out)
{
    const keras_op_options *o = options;

    return o->has_scalar ? apply_affine(l, n_in, in, 1, o->scalar, out)
                         : apply_both(l, &op_add, n_in, in, out);
}

static manta_status subtract_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                  manta_value *out)
{
    const keras_op_options *o = options;

    if (!o->has_scalar) return apply_both(l, &op_subtract, n_in, in, out);
    if (o->scalar_first) return apply_affine(l, n_in, in, -1, o->scalar, out);
    return apply_affine(l, n_in, in, 1, -o->scalar, out);
}

static manta_status multiply_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                  manta_value *out)
{
    const keras_op_options *o = options;

    return o->has_scalar ? apply_affine(l, n_in, in, o->scalar, 0, out)
                         : apply_both(l, &op_multiply, n_in, in, out);
}

static manta_status divide_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                manta_value *out)
{
    const keras_op_options *o = options;

    if (!o->has_scalar || o->scalar_first) {
        return manta_fail(MANTA_EUNSUPPORTED, "division by a tensor is not available; by a number it is");
    }
    return apply_affine(l, n_in, in, 1 / o->scalar, 0, out);
}

static manta_status negative_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                  manta_value *out)
{
    (void)options;
    return apply_affine(l, n_in, in, -1, 0, out);
}

static const manta_layer_class classes[] = {
    {"Add", sizeof(keras_op_options), NULL, 0, add_call},
    {"Subtract", sizeof(keras_op_options), NULL, 0, subtract_call},
    {"Multiply", sizeof(keras_op_options), NULL, 0, multiply_call},
    {"TrueDivide", sizeof(keras_op_options), NULL, 0, divide_call},
    {"Divide", sizeof(keras_op_options), NULL, 0, divide_call},
    {"Negative", sizeof(keras_op_options), NULL, 0, negative_call},
};

#define N_CLASSES (sizeof classes / sizeof *classes)

const manta_layer_class *keras_op_find(const char *name)
{
    for (size_t i = 0; i < N_CLASSES; i++) {
        if (!strcmp(classes[i].name, name)) return &classes[i];
    }
    return NULL;
}

bool keras_op_listed(const json_t *object)
{
    const char *module = keras_json_text(object, "module"), *class = keras_json_text(object, "class_name");
    const json_t *config = keras_json_config(object);

    if (module) return !strncmp(module, "keras.src.ops.", 14);
    return class && config && keras_op_find(class) && !json_object_get(config, "trainable") &&
           !json_object_get(config, "dtype") && json_object_get(object, "inbound_nodes");
}

bool keras_op_is(const manta_layer_class *cls)
{
    for (size_t i = 0; i < N_CLASSES; i++) {
        if (cls == &classes[i]) return true;
    }
    return false;
}
