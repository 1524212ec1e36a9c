/* keras_json.c - JSON as Keras writes it. */
#include "format/keras/keras_json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

manta_status keras_json_parse(const char *where, const char *text, size_t size, json_t **out)
{
    json_error_t error;
    json_t *v;

    if (size > KERAS_JSON_MAX) {
        return manta_fail(MANTA_ECORRUPT, "%s: %zu bytes of JSON, expected at most %zu", where, size,
                          KERAS_JSON_MAX);
    }
    /* jansson itself bounds the depth (JSON_PARSER_MAX_DEPTH). */
    v = json_loadb(text, size, JSON_REJECT_DUPLICATES, &error);
    if (!v) {
        return manta_fail(MANTA_ECORRUPT, "%s: line %d, column %d: %s", where, error.line, error.column,
                          error.text);
    }
    if (!json_is_object(v)) {
        json_decref(v);
        return manta_fail(MANTA_ECORRUPT, "%s: expected a JSON object", where);
    }
    *out = v;
    return MANTA_OK;
}

const char *keras_json_text(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

const json_t *keras_json_config(const json_t *object)
{
    const json_t *c = json_object_get(object, "config");

    return json_is_object(c) ? c : NULL;
}

const char *keras_json_show(const json_t *v, char *buf, size_t size)
{
    size_t n = json_dumpb(v, buf, size - 1, JSON_ENCODE_ANY | JSON_COMPACT);

    if (n == 0 || n >= size) {
        /* Too long to show whole: say what it is. */
        const char *class = keras_json_text(v, "class_name");
        snprintf(buf, size, "%s",
                 class               ? class
                 : json_is_object(v) ? "an object"
                 : json_is_array(v)  ? "a list"
                                     : "a text");
        return buf;
    }
    buf[n] = 0;
    return buf;
}

json_t *keras_json_float(double v)
{
    return json_real(v);
}
