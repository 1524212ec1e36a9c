/* keras_ops.h - Keras's operations as nodes of a model.
 *
 * `x + y`, `x * 2.0` in a functional model are saved as operations, not layers:
 * {"module":"keras.src.ops.numpy","class_name":"Multiply"}, with the scalar
 * among the call's arguments. They have no weights and take no part in the
 * numbering of groups. Here each is a layer class of its own, whose options
 * hold the scalar. */
#ifndef FORMAT_KERAS_KERAS_OPS_H
#define FORMAT_KERAS_KERAS_OPS_H

#include <manta/layer.h>

#include "format/keras/keras_json.h"

typedef struct keras_op_options {
    bool has_scalar, scalar_first; /* the argument that is no tensor, and whether it stands left */
    double scalar;
} keras_op_options;

/* The class of Keras's operation `name` ("Multiply"); NULL when we have none. */
const manta_layer_class *keras_op_find(const char *name);

/* Whether the object in a list of layers is an operation. The .h5 files of Keras 3 leave the module out: there it is
 * one by its class, and by a config that has nothing of a layer's. */
bool keras_op_listed(const json_t *object);

/* Whether a class is one of these; NULL is none. */
bool keras_op_is(const manta_layer_class *cls);

#endif
