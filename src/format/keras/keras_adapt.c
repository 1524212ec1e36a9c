/* keras_adapt.c - what a Normalization learned, from the weights into the config.
 *
 * A Normalization layer that learned mean and variance has them among the
 * weights; only with them can the layer be made. So such a model is made twice:
 * a sketch, which tells where in the file they are, then the model itself. */
#include "format/keras/keras_adapt.h"

#include <string.h>

#include <manta/tensor.h>

#include "base/mem.h"
#include "format/keras/keras_config.h"
#include "format/keras/keras_layer.h"
#include "format/keras/keras_tree.h"
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

/* ---- a whole model ---- */

static json_t *layer_object(json_t *model, const char *name)
{
    json_t *layers = json_object_get(json_object_get(model, "config"), "layers");

    for (size_t i = 0; i < json_array_size(layers); i++) {
        json_t *l = json_array_get(layers, i);
        const char *mine = keras_layer_name(l);
        if (mine && !strcmp(mine, name)) return l;
    }
    return NULL;
}

/* Gives every such layer below `model` numbers: 0 and 1, so that a model can be made to see their
 * places in the file. */
static bool give_placeholders(json_t *model)
{
    json_t *layers = json_object_get(json_object_get(model, "config"), "layers");
    bool any = false;

    for (size_t i = 0; i < json_array_size(layers); i++) {
        json_t *l = json_array_get(layers, i), *config = json_object_get(l, "config");
        if (json_is_object(config) && keras_is_adapted(l)) {
            json_object_set_new(config, "mean", json_real(0));
            json_object_set_new(config, "variance", json_real(1));
            json_object_set_new(config, "manta_adapted", json_false());
            any = true;
        } else if (json_is_array(json_object_get(config, "layers"))) {
            any |= give_placeholders(l);
        }
    }
    return any;
}

/* mean and variance are the first two variables of the group. */
static manta_status set_learned(h5_file *f, const char *group, json_t *config)
{
    char *mean = mem_printf("%svars/0", group), *variance = mem_printf("%svars/1", group);
    manta_status st = keras_adapt(f, mean, variance, config);

    mem_free(mean);
    mem_free(variance);
    return st;
}

static manta_status fill_adapted(h5_file *f, const keras_tree *t, const char *path, json_t *model)
{
    for (size_t i = 0; i < t->items.n; i++) {
        const keras_item *item = &t->items.at[i];
        json_t *l = item->layer >= 0 && item->group ? layer_object(model, keras_item_name(t, item)) : NULL;
        char *group;
        manta_status st = MANTA_OK;
        if (!l) continue;
        group = mem_printf("%slayers/%s/", path, item->group);
        if (item->inner) {
            st = fill_adapted(f, item->inner, group, l);
        } else if (json_object_get(json_object_get(l, "config"), "manta_adapted")) {
            st = set_learned(f, group, json_object_get(l, "config"));
        }
        mem_free(group);
        TRY(st);
    }
    return MANTA_OK;
}

manta_status keras_adapt_model(const char *path, json_t *config, h5_file *f, manta_model **out)
{
    manta_model *sketch = NULL;
    keras_tree *t;
    manta_status st;

    if (!f || !give_placeholders(config)) return keras_config_read(path, config, out);
    TRY(keras_config_read(path, config, &sketch));
    t = keras_tree_new(sketch);
    st = fill_adapted(f, t, "", config);
    keras_tree_free(t);
    manta_model_free(sketch);
    if (!st) st = keras_config_read(path, config, out);
    return st;
}
