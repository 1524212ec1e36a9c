/* keras_config_write.c - Keras's config.json of a model.
 *
 * Written so that every Keras 3 reads it: layers in Keras's order, dtype as
 * text, inputs and outputs as nested lists (docs/from-keras.md). */
#include <string.h>

#include "base/mem.h"
#include "format/keras/keras_config.h"
#include "format/keras/keras_layer.h"
#include "format/keras/keras_ops.h"

static manta_status write_model(const keras_tree *t, bool legacy, json_t **out);

static void set_member(json_t *o, const char *key, json_t *v)
{
    json_object_set_new(o, key, v);
}

static const manta_array *value_of(const keras_tree *t, int value)
{
    return &t->model->values[value].a;
}

/* An input may be called as a layer is; Keras names both in one list. */
static char *item_name(const keras_tree *t, const keras_item *i)
{
    const char *name = keras_item_name(t, i);

    for (int k = 0; i->input >= 0 && k < t->model->n_layers; k++) {
        if (!strcmp(t->model->layers[k]->name, name)) return mem_printf("%s_input", name);
    }
    return mem_strdup(name);
}

static json_t *name_json(const keras_tree *t, const keras_item *i)
{
    char *name = item_name(t, i);
    json_t *v = json_string(name);

    mem_free(name);
    return v ? v : json_string("?");
}

static json_t *write_input(const keras_tree *t, const keras_item *i)
{
    const manta_array *a = value_of(t, t->model->inputs[i->input].value);
    json_t *c = json_object();

    set_member(c, "batch_shape", keras_shape_write(a));
    set_member(c, "dtype", json_string(manta_dtype_name(a->dtype)));
    set_member(c, "sparse", json_false());
    set_member(c, "name", name_json(t, i));
    return keras_envelope("keras.layers", "InputLayer", c, NULL);
}

/* The shape, or shapes, a layer was built on. */
static json_t *write_built(const keras_tree *t, const keras_item *i)
{
    const graph_call *c = &t->model->calls[i->calls.at[0]];
    json_t *o = json_object(), *list;

    if (c->n_in == 1) {
        set_member(o, "input_shape", keras_shape_write(value_of(t, c->values[0])));
        return o;
    }
    list = json_array();
    for (int k = 0; k < c->n_in; k++)
        json_array_append_new(list, keras_shape_write(value_of(t, c->values[k])));
    set_member(o, "input_shape", list);
    return o;
}

/* Whether Keras records the shape for layers of the class. */
static bool records_shape(const char *class_name)
{
    static const char *const classes[] = {"Conv2D",
                                          "DepthwiseConv2D",
                                          "Conv2DTranspose",
                                          "Dense",
                                          "Flatten",
                                          "BatchNormalization",
                                          "Add",
                                          "Subtract",
                                          "LayerNormalization",
                                          "Multiply",
                                          "Concatenate",
                                          "ZeroPadding2D",
                                          "Rescaling",
                                          "Embedding",
                                          "Normalization",
                                          "Cropping2D",
                                          "SeparableConv2D",
                                          "LayerScale",
                                          "CustomScaleLayer"};

    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (!strcmp(classes[i], class_name)) return true;
    }
    return false;
}

static json_t *write_op(const manta_layer *l)
{
    json_t *c = json_object();

    set_member(c, "name", json_string(l->name));
    return keras_envelope("keras.src.ops.numpy", l->cls->name, c, l->cls->name);
}

static manta_status write_item(const keras_tree *t, const keras_item *i, bool legacy, json_t **out)
{
    const manta_layer *l = i->layer >= 0 ? t->model->layers[i->layer] : NULL;
    json_t *config = NULL;

    if (i->input >= 0) {
        *out = write_input(t, i);
    } else if (!l) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "the operation '%s' was applied without a layer, for which Keras has no words",
                          keras_item_class(t, i));
    } else if (i->inner) {
        TRY(write_model(i->inner, legacy, out));
        /* The model was named by the layer that holds it. */
        set_member(json_object_get(*out, "config"), "name", json_string(l->name));
        if (l->frozen) set_member(json_object_get(*out, "config"), "trainable", json_false());
    } else if (keras_op_is(l->cls)) {
        *out = write_op(l);
    } else {
        TRY(keras_layer_write(l, &config));
        *out = keras_layer_envelope(l, config);
        if (!legacy && records_shape(l->cls->name)) set_member(*out, "build_config", write_built(t, i));
    }
    if (legacy && !(l && keras_op_is(l->cls))) {
        json_object_del(*out, "module");
        json_object_del(*out, "registered_name");
    }
    return MANTA_OK;
}

/* ---- Functional ---- */

static json_t *write_tensor(const keras_tree *t, int value)
{
    keras_source from = t->sources[value];
    const manta_array *a = value_of(t, value);
    json_t *c = json_object(), *o = json_object(), *history = json_array();

    json_array_append_new(history, name_json(t, &t->items.at[from.item]));
    json_array_append_new(history, json_integer(from.call));
    json_array_append_new(history, json_integer(from.tensor));
    set_member(c, "shape", keras_shape_write(a));
    set_member(c, "dtype", json_string(manta_dtype_name(a->dtype)));
    set_member(c, "keras_history", history);
    set_member(o, "class_name", json_string("__keras_tensor__"));
    set_member(o, "config", c);
    return o;
}

/* One tensor stands alone, several stand in a list; an operation takes them, and its number, one by one. */
static json_t *write_call(const keras_tree *t, const manta_layer *l, const graph_call *c)
{
    json_t *o = json_object(), *args = json_array(), *tensors = json_array();
    const char *class = l->cls ? l->cls->name : "";

    for (int i = 0; i < c->n_in; i++) json_array_append_new(tensors, write_tensor(t, c->values[i]));
    if (keras_op_is(l->cls)) {
        const keras_op_options *op = l->options;
        if (op->has_scalar && op->scalar_first) json_array_append_new(args, json_real(op->scalar));
        json_array_extend(args, tensors);
        if (op->has_scalar && !op->scalar_first) json_array_append_new(args, json_real(op->scalar));
    } else if (c->n_in == 1 &&
               (!strcmp(class, "Add") || !strcmp(class, "Multiply") || !strcmp(class, "Concatenate"))) {
        json_array_append(args, tensors); /* a list of one: what merges takes nothing else */
    } else if (c->n_in == 1) {
        json_array_extend(args, tensors);
    } else {
        json_array_append(args, tensors);
    }
    json_decref(tensors);
    set_member(o, "args", args);
    set_member(o, "kwargs", json_object());
    return o;
}

static manta_status write_layers(const keras_tree *t, bool legacy, json_t *layers)
{
    for (size_t k = 0; k < t->items.n; k++) {
        const keras_item *i = &t->items.at[k];
        json_t *o = NULL, *nodes;
        TRY(write_item(t, i, legacy, &o));
        json_array_append_new(layers, o);
        if (t->sequential) continue;
        nodes = json_array();
        for (size_t c = 0; c < i->calls.n; c++) {
            const graph_call *call = &t->model->calls[i->calls.at[c]];
            json_array_append_new(nodes, write_call(t, t->model->layers[i->layer], call));
        }
        set_member(o, "name", name_json(t, i));
        set_member(o, "inbound_nodes", nodes);
    }
    return MANTA_OK;
}

/* Keras counts the calls of a nested Functional from 1 here, and only here; 3.0.5
 * writes it so too, but reads it as counted from 0, and so cannot open its own
 * file. One call is read rightly as 0 by 3.0.5 and by 3.15.1; of several,
 * keras_lower() leaves none that is an output. */
static json_t *write_port(const keras_tree *t, int value)
{
    keras_source from = t->sources[value];
    json_t *port = json_array();

    json_array_append_new(port, name_json(t, &t->items.at[from.item]));
    json_array_append_new(port, json_integer(from.call));
    json_array_append_new(port, json_integer(from.tensor));
    return port;
}

static void write_ports(const keras_tree *t, json_t *config)
{
    const manta_model *m = t->model;
    json_t *in = json_array(), *out = json_array();

    for (int i = 0; i < m->n_inputs; i++) json_array_append_new(in, write_port(t, m->inputs[i].value));
    for (int i = 0; i < m->n_outputs; i++) json_array_append_new(out, write_port(t, m->outputs[i].value));
    set_member(config, "input_layers", in);
    set_member(config, "output_layers", out);
}

/* ---- both ---- */

static manta_status write_model(const keras_tree *t, bool legacy, json_t **out)
{
    json_t *config = json_object(), *layers = json_array(), *o, *built = json_object();
    manta_status st = write_layers(t, legacy, layers);

    set_member(config, "name", json_string(t->model->name));
    set_member(config, "trainable", json_true());
    set_member(config, "layers", layers);
    if (st) {
        json_decref(config);
        json_decref(built);
        return st;
    }
    if (t->sequential) {
        const manta_array *a = value_of(t, t->model->inputs[0].value);
        set_member(config, "build_input_shape", keras_shape_write(a));
        set_member(built, "input_shape", keras_shape_write(a));
        o = keras_envelope("keras", "Sequential", config, NULL);
    } else {
        write_ports(t, config);
        set_member(built, "input_shape", json_null());
        o = keras_envelope("keras.src.models.functional", "Functional", config, "Functional");
    }
    if (legacy) {
        json_object_del(o, "module");
        json_object_del(o, "registered_name");
        json_decref(built);
    } else {
        set_member(o, "build_config", built);
    }
    *out = o;
    return MANTA_OK;
}

manta_status keras_config_write(const keras_tree *t, bool legacy, json_t **out)
{
    return write_model(t, legacy, out);
}
