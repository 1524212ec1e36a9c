/* keras_config.h - a whole model between Manta and Keras's config.json. */
#ifndef FORMAT_KERAS_KERAS_CONFIG_H
#define FORMAT_KERAS_KERAS_CONFIG_H

#include <manta/model.h>

#include "base/status.h"
#include "format/keras/keras_json.h"
#include "format/keras/keras_tree.h"

/* The model that a Sequential or Functional object describes, built; `path` is
 * for sentences. *out: owned, manta_model_free(). */
manta_status keras_config_read(const char *path, const json_t *object, manta_model **out) MANTA_MUST_USE;

/* The object of a model: envelope, config, build_config. *out: owned.
 * `legacy`: without modules, as .h5 files have it.
 * MANTA_EUNSUPPORTED what Keras has no words for, by the layer's name. */
manta_status keras_config_write(const keras_tree *t, bool legacy, json_t **out) MANTA_MUST_USE;

#endif
