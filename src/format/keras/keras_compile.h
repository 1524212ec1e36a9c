/* keras_compile.h - optimizer, losses and metrics between Manta and Keras's compile_config. */
#ifndef FORMAT_KERAS_KERAS_COMPILE_H
#define FORMAT_KERAS_KERAS_COMPILE_H

#include "format/keras/keras_json.h"
#include "format/model/model_file.h"

/* Fills in what s was compiled with, for the outputs of m. What Manta has not
 * becomes the sentence that manta_saved_optimizer() and its kin give; nothing
 * here fails. NULL, null and {}: not compiled. */
void keras_compile_read(manta_saved *s, const char *path, const json_t *compile, const manta_model *m);

/* The optimizer that a Keras object or name describes. */
manta_status keras_optimizer_read(const char *path, const json_t *v, manta_optimizer *out) MANTA_MUST_USE;

/* The compile_config of what is written; JSON null when nothing was compiled. `legacy`: losses
 * as objects, which .h5 files need. Owned by the caller. */
json_t *keras_compile_write(const manta_contents *c, bool legacy);

#endif
