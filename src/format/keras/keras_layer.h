/* keras_layer.h - one layer between its Keras config and its options. */
#ifndef FORMAT_KERAS_KERAS_LAYER_H
#define FORMAT_KERAS_KERAS_LAYER_H

#include <manta/layer.h>

#include "base/status.h"
#include "format/keras/keras_json.h"

/* A layer of m as its Keras object describes it; `path` is for sentences.
 * Nested models are not layers here. *out: owned by m.
 * MANTA_EUNSUPPORTED a class or a setting that Manta has not, by name. */
manta_status keras_layer_read(const char *path, manta_model *m, const json_t *object,
                              manta_layer **out) MANTA_MUST_USE;

/* That keras_layer_read() would make a layer of the object, whose shapes it cannot know. */
manta_status keras_layer_check(const char *path, const json_t *object) MANTA_MUST_USE;

/* The name a layer's object gives it; NULL when it gives none. */
const char *keras_layer_name(const json_t *object);

/* That the object's dtype policy is float32, the one we have. */
manta_status keras_layer_policy(const char *path, const json_t *object) MANTA_MUST_USE;

/* The shape in `shape` (batch first, ignored) for an input of that name.
 * MANTA_EUNSUPPORTED a dimension that is left open. */
manta_status keras_shape_read(const char *path, const char *input, const json_t *shape, int *ndim,
                              int64_t out[MANTA_MAX_DIMS]) MANTA_MUST_USE;

/* Whether the object holds code: Lambda, or a pickled function. */
bool keras_holds_code(const json_t *object);

/* The config of a layer, with the keys that every Keras 3 knows and no others.
 * `variable_fan_in` finds the fan-in of a weight for torch's start, or 0.
 * *out: owned. MANTA_EUNSUPPORTED a setting Keras has no words for. */
manta_status keras_layer_write(const manta_layer *l, json_t **out) MANTA_MUST_USE;

/* An envelope {"module","class_name","config","registered_name"}; takes config. */
json_t *keras_envelope(const char *module, const char *class_name, json_t *config, const char *registered);

/* The envelope of a layer: of the module that defines its class. Takes config. */
json_t *keras_layer_envelope(const manta_layer *l, json_t *config);

/* [null, 28, 28] of a shape whose first dimension is the batch. */
json_t *keras_shape_write(const manta_array *a);

#endif
