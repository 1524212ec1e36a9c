/* keras_legacy.c - the .h5 files of Keras 2, which Keras 3 still reads and writes.
 *
 *   /                     attributes model_config, training_config (JSON)
 *   /model_weights        attribute layer_names, in the model's order
 *   /model_weights/NAME   attribute weight_names: paths of datasets below it
 *   /optimizer_weights    attribute weight_names
 *
 * A file of weights alone has what /model_weights has at its root. Weights are
 * matched by order, over the layers that have any; of a layer the trainable
 * ones come first. Written through libhdf5: long attributes need its heaps. */
#include <hdf5.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "format/keras_compile.h"
#include "format/keras_config.h"
#include "format/keras_lower.h"
#include "format/keras_state.h"
#include "format/model_file.h"
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

static manta_status list_layers(h5_file *f, const char *root, file_layers *out)
{
    h5_names layers = {0};
    bool found = false;
    manta_status st = h5_texts(f, root, "layer_names", &layers, &found);

    for (size_t i = 0; i < layers.n && !st; i++) {
        char *group = mem_printf("%s%s%s", root, *root ? "/" : "", layers.at[i]);
        h5_names weights = {0};
        st = h5_texts(f, group, "weight_names", &weights, &found);
        if (!st && weights.n) {
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

static manta_status read_whole(const char *path, h5_file *f, const char *config, const manta_read_options *o,
                               manta_saved *s)
{
    char *where = mem_printf("%s: model_config", path), *training = NULL;
    json_t *model = NULL, *compile = NULL;
    manta_status st = keras_json_parse(where, config, strlen(config), &model);

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

/* ---- writing ---- */

/* A scalar text of any length. */
static bool put_text(hid_t at, const char *name, const char *text)
{
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), a = -1;
    bool ok = type >= 0 && space >= 0 && H5Tset_size(type, H5T_VARIABLE) >= 0 &&
              (a = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT)) >= 0 &&
              H5Awrite(a, type, &text) >= 0;

    if (a >= 0) H5Aclose(a);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return ok;
}

/* A list of texts; an empty one as numbers, as Keras does. HDF5 has room for 64 kB in an attribute,
 * of which a text of variable length takes 16 bytes. */
static bool put_texts(hid_t at, const char *name, size_t n, char *const *texts)
{
    hsize_t dims = n;
    hid_t type = n ? H5Tcopy(H5T_C_S1) : H5Tcopy(H5T_IEEE_F64LE), space = H5Screate_simple(1, &dims, NULL),
          a = -1;
    bool ok = type >= 0 && space >= 0 && (!n || H5Tset_size(type, H5T_VARIABLE) >= 0) &&
              (a = H5Acreate2(at, name, type, space, H5P_DEFAULT, H5P_DEFAULT)) >= 0 &&
              (!n || H5Awrite(a, type, texts) >= 0);

    if (a >= 0) H5Aclose(a);
    if (space >= 0) H5Sclose(space);
    if (type >= 0) H5Tclose(type);
    return ok;
}

enum { MOST_TEXTS = 4000 };

static bool put_long_list(hid_t at, const char *name, size_t n, char *const *texts)
{
    bool ok = true;

    if (n <= MOST_TEXTS) return put_texts(at, name, n, texts);
    for (size_t i = 0, part = 0; i < n && ok; i += MOST_TEXTS, part++) {
        char *numbered = mem_printf("%s%zu", name, part);
        ok = put_texts(at, numbered, n - i < MOST_TEXTS ? n - i : MOST_TEXTS, texts + i);
        mem_free(numbered);
    }
    return ok;
}

static bool put_array(hid_t at, const char *path, const manta_array *a)
{
    hsize_t dims[MANTA_MAX_DIMS];
    hid_t links = H5Pcreate(H5P_LINK_CREATE), space, d;
    hid_t type = a->dtype == MANTA_DTYPE_I64 ? H5T_STD_I64LE : H5T_IEEE_F32LE;
    bool ok;

    for (int i = 0; i < a->ndim; i++) dims[i] = (hsize_t)a->shape[i];
    space = a->ndim ? H5Screate_simple(a->ndim, dims, NULL) : H5Screate(H5S_SCALAR);
    H5Pset_create_intermediate_group(links, 1);
    d = H5Dcreate2(at, path, type, space, links, H5P_DEFAULT, H5P_DEFAULT);
    ok = d >= 0 && H5Dwrite(d, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, a->data) >= 0;
    if (d >= 0) H5Dclose(d);
    H5Sclose(space);
    H5Pclose(links);
    return ok;
}

static hid_t put_group(hid_t at, const char *name)
{
    return H5Gcreate2(at, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
}

/* One layer: its variables, those that train first. */
static bool put_layer(hid_t weights, const keras_tree *t, const keras_item *item, const keras_state *k,
                      size_t at, size_t n)
{
    hid_t g = put_group(weights, keras_item_name(t, item));
    paths names = {0};
    bool ok = g >= 0;

    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = at; i < at + n && ok; i++) {
            const keras_variable *v = &k->variables.at[i];
            char *name;
            if (v->trains != (pass == 0)) continue;
            name = mem_printf("%s/%s", t->model->name, v->name);
            ok = put_array(g, name, &k->arrays.at[i]);
            vec_push(&names, name);
        }
    }
    ok = ok && put_texts(g, "weight_names", names.n, names.at);
    if (g >= 0) H5Gclose(g);
    paths_release(&names);
    return ok;
}

static bool put_weights(hid_t file, const keras_tree *t, const keras_state *k)
{
    hid_t g = put_group(file, "model_weights");
    paths layers = {0};
    bool ok = g >= 0;
    size_t at = 0;

    for (size_t i = 0; i < t->items.n && ok; i++) {
        const keras_item *item = &t->items.at[i];
        size_t n = item->layer >= 0 && item->group ? (size_t)t->model->layers[item->layer]->n_variables : 0;
        if (!item->group) continue;
        ok = put_layer(g, t, item, k, at, n);
        at += n;
        vec_push(&layers, mem_strdup(keras_item_name(t, item)));
    }
    ok = ok && put_long_list(g, "layer_names", layers.n, layers.at) && put_text(g, "backend", "tensorflow") &&
         put_text(g, "keras_version", "3.0.5");
    if (g >= 0) H5Gclose(g);
    paths_release(&layers);
    return ok;
}

static bool put_slots(hid_t file, const keras_state *k)
{
    hid_t g;
    paths names = {0};
    bool ok = true;

    if (!k->slots.n) return true;
    g = put_group(file, "optimizer_weights");
    for (size_t i = 0; i < k->slots.n && ok; i++) {
        ok = put_array(g, k->slot_names.at[i], &k->slots.at[i]);
        vec_push(&names, mem_strdup(k->slot_names.at[i]));
    }
    ok = ok && put_long_list(g, "weight_names", names.n, names.at);
    if (g >= 0) H5Gclose(g);
    paths_release(&names);
    return ok;
}

static char *json_text(json_t *v)
{
    char *text = json_dumps(v, JSON_COMPACT), *copy = mem_strdup(text ? text : "{}");

    free(text);
    json_decref(v);
    return copy;
}

/* The file image, made in memory by libhdf5. *out: mem_try_free(). */
static manta_status make_image(const char *path, const keras_tree *t, const manta_contents *c,
                               const keras_state *k, void **out, size_t *size)
{
    json_t *config = NULL;
    hid_t access = H5Pcreate(H5P_FILE_ACCESS), file = -1;
    char *model, *training = NULL;
    ssize_t n = -1;
    bool ok;
    manta_status st = keras_config_write(t, true, &config);

    if (st) {
        H5Pclose(access);
        return st;
    }
    model = json_text(config);
    /* Keras demands an optimizer where there is a training_config. */
    if (c->optimizer && c->n_losses) training = json_text(keras_compile_write(c, true));
    ok = H5Pset_fapl_core(access, 1 << 20, 0) >= 0 &&
         (file = H5Fcreate("manta-legacy", H5F_ACC_TRUNC, H5P_DEFAULT, access)) >= 0 &&
         put_text(file, "model_config", model) && put_text(file, "backend", "tensorflow") &&
         put_text(file, "keras_version", "3.0.5") &&
         (!training || put_text(file, "training_config", training)) && put_weights(file, t, k) &&
         put_slots(file, k) && H5Fflush(file, H5F_SCOPE_LOCAL) >= 0;
    if (ok) n = H5Fget_file_image(file, NULL, 0);
    if (n > 0) *out = mem_try_raw((size_t)n);
    if (n > 0 && *out && H5Fget_file_image(file, *out, (size_t)n) != n) n = -1;
    if (n <= 0 || !*out) {
        st = manta_fail(n > 0 ? MANTA_ENOMEM : MANTA_EINTERNAL, "%s: the HDF5 file could not be made", path);
    } else {
        *size = (size_t)n;
    }
    if (file >= 0) H5Fclose(file);
    H5Pclose(access);
    mem_free(model);
    mem_free(training);
    return st;
}

static manta_status legacy_write(const char *path, const manta_contents *c)
{
    manta_model *m = NULL;
    keras_tree *t = NULL;
    keras_state k = {0};
    void *image = NULL;
    size_t size = 0;
    manta_status st;

    if (!c->model)
        return manta_fail(MANTA_EINVAL, "%s: a Keras file needs the model; there are only arrays", path);
    if ((st = keras_lower(c->model, &m))) goto out;
    t = keras_tree_new(m);
    if ((st = keras_state_collect(path, t, c, &k))) goto out;
    h5_enter();
    st = make_image(path, t, c, &k, &image, &size);
    h5_leave();
    if (!st) st = file_replace(path, image, size);
out:
    mem_try_free(image);
    keras_state_release(&k);
    keras_tree_free(t);
    manta_model_free(m);
    return st;
}

const model_format model_legacy_h5 = {.name = "h5",
                                      .about = "a Keras model in the legacy HDF5 format",
                                      .ending = ".h5",
                                      .has_model = true,
                                      .probe = legacy_probe,
                                      .read = legacy_read,
                                      .write = legacy_write};
