/* keras_legacy.c - the .h5 files of Keras 2, which Keras 3 still reads and writes.
 *
 *   /                     attributes model_config, training_config (JSON)
 *   /model_weights        attribute layer_names, in the model's order
 *   /model_weights/NAME   attribute weight_names: paths of datasets below it
 *   /optimizer_weights    attribute weight_names
 *
 * A file of weights alone has what /model_weights has at its root. Weights are
 * matched by order, over the layers that have any; of a layer the trainable
 * ones come first. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "format/hdf5/h5_out.h"
#include "format/keras/keras_adapt.h"
#include "format/keras/keras_compile.h"
#include "format/keras/keras_config.h"
#include "format/keras/keras_draft.h"
#include "format/keras/keras_layer.h"
#include "format/keras/keras_outline.h"
#include "format/model/model_file.h"
#include "os/file.h"

/* ---- reading ---- */

typedef VEC(char *) paths;

static void paths_release(paths *p)
{
    for (size_t i = 0; i < p->n; i++) mem_free(p->at[i]);
    vec_release(p);
}

/* The layers of the file that have weights: places of their datasets, layer by layer. */
typedef struct file_layer {
    char *name;
    paths places;
} file_layer;

typedef VEC(file_layer) file_layers;

static void file_layers_release(file_layers *l)
{
    for (size_t i = 0; i < l->n; i++) {
        mem_free(l->at[i].name);
        paths_release(&l->at[i].places);
    }
    vec_release(l);
}

/* Whether a layer's weights are what a Normalization learned: of a model it is part of the config. */
static bool are_learned(const h5_names *weights)
{
    static const char *const names[] = {"mean", "variance", "count"};

    if (weights->n != 3) return false;
    for (size_t i = 0; i < 3; i++) {
        const char *slash = strrchr(weights->at[i], '/'), *name = slash ? slash + 1 : weights->at[i];
        size_t n = strlen(names[i]);
        if (strncmp(name, names[i], n) != 0 || (name[n] && name[n] != ':')) return false;
    }
    return true;
}

static manta_status list_layers(h5_file *f, const char *root, file_layers *out)
{
    h5_names layers = {0};
    bool found = false;
    manta_status st = h5_texts(f, root, "layer_names", &layers, &found);

    for (size_t i = 0; i < layers.n && !st; i++) {
        char *group = mem_printf("%s%s%s", root, *root ? "/" : "", layers.at[i]);
        h5_names weights = {0};
        st = h5_texts(f, group, "weight_names", &weights, &found);
        if (!st && weights.n && !are_learned(&weights)) {
            file_layer l = {.name = mem_strdup(layers.at[i])};
            for (size_t k = 0; k < weights.n; k++)
                vec_push(&l.places, mem_printf("%s/%s", group, weights.at[k]));
            vec_push(out, l);
        }
        h5_names_release(&weights);
        mem_free(group);
    }
    h5_names_release(&layers);
    return st;
}

/* The variables of each layer of the model that has any, in this format's order: those that train
 * first, of a nested model over all of it. */
typedef VEC(keras_variables) model_layers;

static void list_variables(const keras_tree *t, const keras_variables *all, model_layers *out)
{
    size_t at = 0;

    for (size_t i = 0; i < t->items.n; i++) {
        const keras_item *item = &t->items.at[i];
        const manta_layer *l = item->layer >= 0 ? t->model->layers[item->layer] : NULL;
        keras_variables mine = {0};
        size_t n = l && item->group ? (size_t)l->n_variables : 0;
        for (int pass = 0; pass < 2; pass++) {
            for (size_t k = at; k < at + n && k < all->n; k++) {
                if (all->at[k].trains == (pass == 0)) vec_push(&mine, all->at[k]);
            }
        }
        at += n;
        if (mine.n) vec_push(out, mine);
    }
}

static manta_status read_layers(const char *path, h5_file *f, const char *root, const manta_model *m,
                                manta_saved *s)
{
    keras_tree *t = keras_tree_new(m);
    keras_variables all = {0};
    model_layers want = {0};
    file_layers have = {0};
    manta_status st;

    keras_tree_variables(t, &all, NULL);
    list_variables(t, &all, &want);
    st = list_layers(f, root, &have);
    if (!st && have.n != want.n) {
        st = manta_fail(MANTA_EINVAL, "%s: %zu layers with weights, model '%s' has %zu", path, have.n,
                        m->name, want.n);
    }
    for (size_t i = 0; i < want.n && !st; i++) {
        if (have.at[i].places.n != want.at[i].n) {
            st = manta_fail(MANTA_EINVAL, "%s: layer '%s' has %zu weights, model '%s' expects %zu", path,
                            have.at[i].name, have.at[i].places.n, m->name, want.at[i].n);
        }
        for (size_t k = 0; k < want.at[i].n && !st; k++) {
            st = h5_read(f, have.at[i].places.at[k], s, want.at[i].at[k].name);
        }
    }
    if (!st) st = saved_check(s, path, m);
    file_layers_release(&have);
    for (size_t i = 0; i < want.n; i++) vec_release(&want.at[i]);
    vec_release(&want);
    keras_variables_release(&all);
    keras_tree_free(t);
    return st;
}

static manta_status read_optimizer(const char *path, h5_file *f, const manta_model *m, manta_saved *s)
{
    h5_names names = {0};
    paths places = {0};
    bool found = false;
    h5_kind kind;
    manta_status st = h5_find(f, "optimizer_weights", &kind);

    if (st || kind != H5_GROUP || s->optimizer_error.code) return st;
    st = h5_texts(f, "optimizer_weights", "weight_names", &names, &found);
    for (size_t i = 0; i < names.n; i++) vec_push(&places, mem_printf("optimizer_weights/%s", names.at[i]));
    if (!st && places.n) st = keras_slots_read(path, f, m, &s->optimizer, places.n, places.at, s);
    paths_release(&places);
    h5_names_release(&names);
    return st;
}

/* Gives the Normalization layers of the model itself the numbers that they learned. */
static manta_status adapt_layers(h5_file *f, json_t *model)
{
    json_t *layers = json_object_get(json_object_get(model, "config"), "layers");
    manta_status st = MANTA_OK;

    for (size_t i = 0; i < json_array_size(layers) && !st; i++) {
        json_t *l = json_array_get(layers, i), *config = json_object_get(l, "config");
        char *group, *mean, *variance;
        h5_names weights = {0};
        bool found = false;
        if (!json_is_object(config) || !keras_is_adapted(l) || !keras_layer_name(l)) continue;
        group = mem_printf("model_weights/%s", keras_layer_name(l));
        st = h5_texts(f, group, "weight_names", &weights, &found);
        if (!st && found && are_learned(&weights)) {
            mean = mem_printf("%s/%s", group, weights.at[0]);
            variance = mem_printf("%s/%s", group, weights.at[1]);
            st = keras_adapt(f, mean, variance, config);
            mem_free(mean);
            mem_free(variance);
        }
        h5_names_release(&weights);
        mem_free(group);
    }
    return st;
}

static manta_status read_whole(const char *path, h5_file *f, const char *config, const manta_read_options *o,
                               manta_saved *s)
{
    char *where = mem_printf("%s: model_config", path), *training = NULL;
    json_t *model = NULL, *compile = NULL;
    manta_status st = keras_json_parse(where, config, strlen(config), &model);

    if (!st) st = adapt_layers(f, model);
    if (!st) st = keras_config_read(path, model, &s->model);
    if (!st) st = h5_text(f, "", "training_config", KERAS_JSON_MAX, &training);
    if (!st && training && !keras_json_parse(path, training, strlen(training), &compile)) {
        keras_compile_read(s, path, compile, s->model);
    }
    if (!st && !o->model_only) st = read_layers(path, f, "model_weights", s->model, s);
    if (!st && !o->model_only) st = read_optimizer(path, f, s->model, s);
    json_decref(compile);
    json_decref(model);
    mem_free(training);
    mem_free(where);
    return st;
}

static manta_status read_opened(const char *path, h5_file *f, const manta_read_options *o, manta_saved *s)
{
    char *config = NULL;
    h5_names layers = {0};
    bool alone = false;
    manta_status st;

    TRY(h5_text(f, "", "model_config", KERAS_JSON_MAX, &config));
    if (config) {
        st = read_whole(path, f, config, o, s);
        mem_free(config);
        return st;
    }
    TRY(h5_texts(f, "", "layer_names", &layers, &alone));
    h5_names_release(&layers);
    if (alone && o->like && !o->model_only) return read_layers(path, f, "", o->like, s);
    return keras_weights_read(path, f, o, s); /* .weights.h5 by another name */
}

static manta_status legacy_read(const char *path, const manta_read_options *o, manta_saved *s)
{
    h5_file *f = NULL;
    void *data = NULL;
    size_t size = 0;
    manta_status st;

    TRY(file_read(path, SIZE_MAX / 2, &data, &size));
    saved_keep(s, data);
    TRY(h5_open(path, data, size, &f));
    st = read_opened(path, f, o, s);
    h5_close(f);
    return st;
}

static model_match legacy_probe(const char *path, const uint8_t *head, size_t n)
{
    if (h5_is(head, n)) return model_path_ends(path, ".weights.h5") ? MODEL_NAME : MODEL_CONTENTS;
    return model_path_ends(path, ".h5") || model_path_ends(path, ".hdf5") ? MODEL_NAME : MODEL_NO;
}

static manta_status outline_opened(const char *path, h5_file *f, manta_outline *out)
{
    char *config = NULL;
    json_t *model = NULL;
    manta_status st;

    TRY(h5_text(f, "", "model_config", KERAS_JSON_MAX, &config));
    if (!config) return manta_fail(MANTA_EUNSUPPORTED, "%s: it holds weights alone, no model", path);
    st = keras_json_parse(path, config, strlen(config), &model);
    if (!st) st = keras_outline_read(path, model, out);
    json_decref(model);
    mem_free(config);
    return st;
}

static manta_status legacy_outline(const char *path, manta_outline *out)
{
    h5_file *f = NULL;
    void *data = NULL;
    size_t size = 0;
    manta_status st;

    TRY(file_read(path, SIZE_MAX / 2, &data, &size));
    st = h5_open(path, data, size, &f);
    if (!st) st = outline_opened(path, f, out);
    h5_close(f);
    mem_try_free(data);
    return st;
}

/* ---- writing ---- */

/* HDF5 limits the size of an attribute; longer lists go to several that are numbered. */
static void put_list(h5_out *o, const char *at, const char *name, size_t n, char *const *texts)
{
    if (n <= H5_OUT_TEXTS) {
        h5_out_texts(o, at, name, n, texts);
        return;
    }
    for (size_t i = 0, part = 0; i < n; i += H5_OUT_TEXTS, part++) {
        char *numbered = mem_printf("%s%zu", name, part);
        h5_out_texts(o, at, numbered, n - i < H5_OUT_TEXTS ? n - i : H5_OUT_TEXTS, texts + i);
        mem_free(numbered);
    }
}

/* Names are the user's: with slashes in them, two may meet. */
static manta_status put_array(h5_out *o, const char *file, const char *at, const manta_array *a)
{
    if (!h5_out_takes(o, at)) return manta_fail(MANTA_EINVAL, "%s: two weights would be at /%s", file, at);
    h5_out_dataset(o, at, a);
    return MANTA_OK;
}

/* One layer: its variables, those that train first. */
static manta_status put_layer(h5_out *o, const char *file, const keras_tree *t, const keras_item *item,
                              const keras_state *k, size_t at, size_t n)
{
    char *group = mem_printf("model_weights/%s", keras_item_name(t, item));
    paths names = {0};
    manta_status st = MANTA_OK;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = at; i < at + n && !st; i++) {
            const keras_variable *v = &k->variables.at[i];
            char *place;
            if (v->trains != (pass == 0)) continue;
            vec_push(&names, mem_printf("%s/%s", t->model->name, v->name));
            place = mem_printf("%s/%s", group, vec_last(&names));
            st = put_array(o, file, place, &k->arrays.at[i]);
            mem_free(place);
        }
    }
    if (!st) put_list(o, group, "weight_names", names.n, names.at);
    paths_release(&names);
    mem_free(group);
    return st;
}

static manta_status put_weights(h5_out *o, const char *file, const keras_tree *t, const keras_state *k)
{
    paths layers = {0};
    manta_status st = MANTA_OK;
    size_t at = 0;

    for (size_t i = 0; i < t->items.n && !st; i++) {
        const keras_item *item = &t->items.at[i];
        size_t n = item->layer >= 0 && item->group ? (size_t)t->model->layers[item->layer]->n_variables : 0;
        if (!item->group) continue;
        st = put_layer(o, file, t, item, k, at, n);
        at += n;
        vec_push(&layers, mem_strdup(keras_item_name(t, item)));
    }
    put_list(o, "model_weights", "layer_names", layers.n, layers.at);
    h5_out_text(o, "model_weights", "backend", "tensorflow");
    h5_out_text(o, "model_weights", "keras_version", "3.0.5");
    paths_release(&layers);
    return st;
}

static manta_status put_slots(h5_out *o, const char *file, const keras_state *k)
{
    for (size_t i = 0; i < k->slots.n; i++) {
        char *place = mem_printf("optimizer_weights/%s", k->slot_names.at[i]);
        manta_status st = put_array(o, file, place, &k->slots.at[i]);
        mem_free(place);
        TRY(st);
    }
    if (k->slots.n) put_list(o, "optimizer_weights", "weight_names", k->slots.n, k->slot_names.at);
    return MANTA_OK;
}

static void put_json(h5_out *o, const char *name, json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT);

    h5_out_text(o, "", name, text ? text : "{}");
    free(text);
    json_decref(v);
}

static manta_status describe_model(keras_draft *d, const char *file, const manta_contents *c)
{
    h5_out *o = &d->file;
    json_t *config = NULL;

    TRY(keras_config_write(d->tree, true, &config));
    put_json(o, "model_config", config);
    h5_out_text(o, "", "backend", "tensorflow");
    h5_out_text(o, "", "keras_version", "3.0.5");
    /* Keras demands an optimizer where there is a training_config. */
    if (c->optimizer && c->n_losses) put_json(o, "training_config", keras_compile_write(c, true));
    TRY(put_weights(o, file, d->tree, &d->state));
    TRY(put_slots(o, file, &d->state));
    h5_out_layout(o);
    return MANTA_OK;
}

static manta_status legacy_write(const char *path, const manta_contents *c)
{
    keras_draft d = {0};
    manta_status st = keras_draft_model(&d, path, c);

    if (!st) st = keras_draft_arrays(&d, path, c);
    if (!st) st = describe_model(&d, path, c);
    if (!st) st = h5_out_save(&d.file, path);
    keras_draft_release(&d);
    return st;
}

const model_format model_legacy_h5 = {.name = "h5",
                                      .about = "a Keras model in the legacy HDF5 format",
                                      .ending = ".h5",
                                      .has_model = true,
                                      .probe = legacy_probe,
                                      .read = legacy_read,
                                      .write = legacy_write,
                                      .outline = legacy_outline};
