/* bundle_model.h - TensorFlow checkpoints as files of weights. */
#ifndef FORMAT_TENSORFLOW_BUNDLE_MODEL_H
#define FORMAT_TENSORFLOW_BUNDLE_MODEL_H

#include "format/model/model_file.h"
#include "format/tensorflow/bundle.h"

/* Written: PREFIX.index and its data, for a path of PREFIX.index or PREFIX. Read: what bundle_locate() finds. */
extern const model_format model_tf;

#endif
