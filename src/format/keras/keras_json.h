/* keras_json.h - JSON as Keras writes it: bounded parsing, and looking up. */
#ifndef FORMAT_KERAS_KERAS_JSON_H
#define FORMAT_KERAS_KERAS_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define KERAS_JSON_MAX                                                                                       \
    ((size_t)64 << 20) /* bytes of a configuration; the largest real ones have a few million */

/* Parses text[0..size), one object. `where` is for the sentence ("m.keras: config.json").
 * *out: json_decref(). MANTA_ECORRUPT with line and column. */
manta_status keras_json_parse(const char *where, const char *text, size_t size, json_t **out) MANTA_MUST_USE;

/* The text under a key; NULL when it is not there or no text. */
const char *keras_json_text(const json_t *object, const char *key);

/* The "config" of an object envelope; NULL when it has none. */
const json_t *keras_json_config(const json_t *object);

/* A value as it stands in the file, cut to fit, for sentences. */
const char *keras_json_show(const json_t *v, char *buf, size_t size);

/* Two doubles that read back exactly; jansson prints 17 digits, and integers as such. */
json_t *keras_json_float(double v);

#endif
