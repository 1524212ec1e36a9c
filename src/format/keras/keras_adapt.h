/* keras_adapt.h - Normalization layers that learned mean and variance: the numbers are among
 * the weights of the file, and only with them can the layer be made. */
#ifndef FORMAT_KERAS_KERAS_ADAPT_H
#define FORMAT_KERAS_KERAS_ADAPT_H

#include <manta/model.h>

#include "base/status.h"
#include "format/hdf5/h5.h"
#include "format/keras/keras_json.h"

/* Whether the object is a Normalization whose config lacks its numbers. */
bool keras_is_adapted(const json_t *object);

/* Puts the arrays at two places of the file into the config, as its mean and variance. */
manta_status keras_adapt(h5_file *f, const char *mean, const char *variance, json_t *config) MANTA_MUST_USE;

/* The model of config.json; f (NULL: no weights) is needed for what it learned without training. Numbers that f has
 * are put into the config. *out: owned by the caller, manta_model_free(). */
manta_status keras_adapt_model(const char *path, json_t *config, h5_file *f,
                               manta_model **out) MANTA_MUST_USE;

#endif
