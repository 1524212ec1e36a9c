/* keras_outline.h - the layers that a Keras config lists, those included that Manta has not. */
#ifndef FORMAT_KERAS_KERAS_OUTLINE_H
#define FORMAT_KERAS_KERAS_OUTLINE_H

#include <manta/file.h>

#include "base/status.h"
#include "format/keras/keras_json.h"

/* Every layer of the model's object, in the file's order, a nested model before its own. *out: owned,
 * manta_outline_release(). MANTA_ECORRUPT it lists none. */
manta_status keras_outline_read(const char *path, const json_t *object, manta_outline *out) MANTA_MUST_USE;

/* That Manta has every layer of the model's object. MANTA_EUNSUPPORTED names all that it has not: one by its own
 * sentence, several by class, each with its first layer. */
manta_status keras_outline_check(const char *path, const json_t *object) MANTA_MUST_USE;

#endif
