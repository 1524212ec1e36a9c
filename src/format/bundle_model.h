/* bundle_model.h - TensorFlow checkpoints as files of weights. */
#ifndef FORMAT_BUNDLE_MODEL_H
#define FORMAT_BUNDLE_MODEL_H

#include "format/bundle.h"
#include "format/model_file.h"

/* Written: PREFIX.index and its data, for a path of PREFIX.index or PREFIX. Read: what bundle_locate() finds. */
extern const model_format model_tf;

#endif
