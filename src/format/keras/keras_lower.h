/* keras_lower.h - a model in words that Keras has.
 *
 * Keras pads by "valid" and "same" only. A layer that pads by given numbers, as
 * PyTorch's do, becomes a ZeroPadding2D before the layer itself, without
 * padding. An output that is one of several calls of a nested Functional, which
 * the versions of Keras count differently, passes through a linear Activation.
 * Names of variables stay. */
#ifndef FORMAT_KERAS_KERAS_LOWER_H
#define FORMAT_KERAS_KERAS_LOWER_H

#include <manta/model.h>

#include "base/status.h"

/* A model that computes the same in words that Keras has; *out is owned
 * (manta_model_free()), and is m itself, one reference more, where nothing had
 * to be done. MANTA_EUNSUPPORTED padding that zeros cannot stand for, by the
 * layer's name. */
manta_status keras_lower(const manta_model *m, manta_model **out) MANTA_MUST_USE;

#endif
