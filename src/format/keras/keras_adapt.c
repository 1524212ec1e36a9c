/* keras_adapt.c - what a Normalization learned, from the weights into the config. */
#include "format/keras/keras_adapt.h"

#include <string.h>

#include <manta/tensor.h>

#include "base/mem.h"
#include "format/model/model_file.h"

bool keras_is_adapted(const json_t *object)
{
    const char *class = keras_json_text(object, "class_name");
    const json_t *mean = json_object_get(keras_json_config(object), "mean");

    return class && !strcmp(class, "Normalization") && !json_is_number(mean) && !json_is_array(mean);
}

static manta_status set_numbers(h5_file *f, const char *at, json_t *config, const char *key)
{
    manta_saved *scratch = mem_new(sizeof *scratch);
    manta_status st = h5_read(f, at, scratch, key);
    const manta_array *a = st ? NULL : manta_saved_find(scratch, key);
    json_t *list = json_array();

    for (int64_t i = 0; a && a->dtype == MANTA_DTYPE_F32 && i < manta_array_count(a); i++) {
        json_array_append_new(list, json_real((double)((const float *)a->data)[i]));
    }
    if (!st) json_object_set(config, key, list);
    json_decref(list);
    manta_saved_free(scratch);
    return st;
}

manta_status keras_adapt(h5_file *f, const char *mean, const char *variance, json_t *config)
{
    TRY(set_numbers(f, mean, config, "mean"));
    return set_numbers(f, variance, config, "variance");
}
