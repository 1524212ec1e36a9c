/* keras_config_read.c - a model from Keras's config.json.
 *
 * A Functional config is a list of layers with the calls made of each
 * ("inbound_nodes"); a call names its arguments as [layer, call, tensor]. Calls
 * are made in an order in which arguments come first, whatever the order of the
 * list. Bounds: nesting and, through the size of the file, everything else. */
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"
#include "format/keras/keras_config.h"
#include "format/keras/keras_layer.h"
#include "format/keras/keras_ops.h"
#include "format/keras/keras_outline.h"
#include "nn/graph.h"

enum { MAX_NESTING = 32 };

typedef struct shape_hint {
    int ndim; /* -1: unknown; the batch is left out */
    int64_t shape[MANTA_MAX_DIMS];
} shape_hint;

static manta_status read_model(const char *path, const json_t *object, const shape_hint *hint, int nesting,
                               manta_model **out);

static bool is_model(const json_t *object)
{
    const char *class = keras_json_text(object, "class_name");

    return class && (!strcmp(class, "Sequential") || !strcmp(class, "Functional") || !strcmp(class, "Model"));
}

static const char *text_or(const char *text, const char *otherwise)
{
    return text ? text : otherwise;
}

/* ---- inputs ---- */

static manta_status read_input(const char *path, manta_model *m, const json_t *object, manta_value *out)
{
    const json_t *config = keras_json_config(object), *shape = json_object_get(config, "batch_shape"), *dtype;
    const char *name = keras_layer_name(object), *key;
    manta_dtype t = MANTA_DTYPE_F32;
    int64_t dims[MANTA_MAX_DIMS];
    json_t *v;
    int ndim;

    if (!shape) shape = json_object_get(config, "batch_input_shape"); /* Keras 2 */
    dtype = json_object_get(config, "dtype");
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
    {
        if (json_is_true(v) && strcmp(key, "trainable") != 0) {
            return manta_fail(MANTA_EUNSUPPORTED, "%s: input '%s' is %s, which Manta does not have", path,
                              text_or(name, "?"), key);
        }
    }
    if (json_is_string(dtype) && manta_dtype_parse(json_string_value(dtype), &t)) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: input '%s' has the dtype %s, which Manta does not have",
                          path, text_or(name, "?"), json_string_value(dtype));
    }
    TRY(keras_shape_read(path, text_or(name, "?"), shape, &ndim, dims));
    *out = manta_input(m, name, t, ndim, dims);
    return MANTA_OK;
}

/* ---- layers ---- */

/* A nested model as a layer of m. */
static manta_status read_nested(const char *path, manta_model *m, const json_t *object,
                                const shape_hint *hint, int nesting, manta_layer **out)
{
    manta_model *inner = NULL;

    TRY(read_model(path, object, hint, nesting + 1, &inner));
    *out = manta_nested(m, inner);
    if (json_is_false(json_object_get(keras_json_config(object), "trainable"))) (*out)->frozen = true;
    manta_model_free(inner); /* m holds it now */
    return MANTA_OK;
}

static shape_hint hint_of(const manta_model *m, manta_value x)
{
    shape_hint h = {.ndim = -1};

    if (x.id >= 0 && x.id < m->n_values) {
        const manta_array *a = &m->values[x.id].a;
        h.ndim = a->ndim - 1;
        memcpy(h.shape, a->shape + 1, (size_t)(a->ndim - 1) * sizeof *h.shape);
    }
    return h;
}

/* A model that says it does not train freezes all that is in it. */
static void freeze_if_said(manta_model *m, const json_t *config)
{
    if (!json_is_false(json_object_get(config, "trainable"))) return;
    for (int i = 0; i < m->n_layers; i++) m->layers[i]->frozen = true;
}

/* ---- Sequential ---- */

/* The input of a Sequential without an InputLayer: from what it was built on,
 * from its first layer (Keras 2), or from what it is called on. */
static manta_status implied_input(const char *path, manta_model *m, const json_t *object,
                                  const shape_hint *hint)
{
    const json_t *config = keras_json_config(object), *layers = json_object_get(config, "layers");
    const json_t *first = keras_json_config(json_array_get(layers, 0)), *shape;
    int64_t dims[MANTA_MAX_DIMS];
    int ndim;

    shape = json_object_get(config, "build_input_shape");
    if (!json_is_array(shape))
        shape = json_object_get(json_object_get(object, "build_config"), "input_shape");
    if (!json_is_array(shape)) shape = json_object_get(first, "batch_input_shape");
    if (!json_is_array(shape)) shape = json_object_get(first, "batch_shape");
    if (json_is_array(shape)) {
        TRY(keras_shape_read(path, "input", shape, &ndim, dims));
        (void)manta_input(m, "input", MANTA_DTYPE_F32, ndim, dims);
    } else if (hint && hint->ndim >= 0) {
        (void)manta_input(m, "input", MANTA_DTYPE_F32, hint->ndim, hint->shape);
    } else {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: model '%s' was never built: its input shape is not known",
                          path, m->name);
    }
    return MANTA_OK;
}

static manta_status read_sequential(const char *path, const json_t *object, const shape_hint *hint,
                                    int nesting, manta_model *m)
{
    const json_t *config = keras_json_config(object), *layers = json_object_get(config, "layers");
    const char *first = keras_json_text(json_array_get(layers, 0), "class_name");

    if (!json_is_array(layers)) {
        return manta_fail(MANTA_ECORRUPT, "%s: model '%s' has no list of layers", path, m->name);
    }
    if (!first || strcmp(first, "InputLayer") != 0) TRY(implied_input(path, m, object, hint));
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *layer = json_array_get(layers, i);
        const char *class = keras_json_text(layer, "class_name");
        manta_layer *l = NULL;
        manta_value x;
        if (class && !strcmp(class, "InputLayer")) {
            if (i) return manta_fail(MANTA_ECORRUPT, "%s: model '%s' has a second input", path, m->name);
            TRY(read_input(path, m, layer, &x));
            continue;
        }
        if (is_model(layer)) {
            shape_hint here = hint_of(m, (manta_value){m->last});
            TRY(read_nested(path, m, layer, &here, nesting, &l));
        } else {
            TRY(keras_layer_read(path, m, layer, &l));
        }
        x = manta_model_add(m, l);
        if (x.id < 0) break; /* latched: the build reports it */
        if (i + 1 == json_array_size(layers)) manta_output_named(m, manta_layer_name(l), x);
    }
    return MANTA_OK;
}

/* ---- Functional ---- */

/* One call of a layer. */
typedef struct call {
    int item;
    const json_t *json;
    VEC(int) needs; /* calls whose results are its arguments */
    VEC(int) tensor; /* which of their results */
    bool has_scalar, scalar_first;
    double scalar;
    enum { WAITING, OPEN, DONE } state;
    manta_value *out; /* owned */
    int n_out;
} call;

typedef struct item {
    const json_t *json;
    const char *name, *class_name;
    bool is_op;
    int first, n; /* its calls */
    manta_layer *layer; /* NULL until its first call, and for inputs */
} item;

typedef struct functional {
    const char *path;
    manta_model *m;
    int nesting;
    VEC(item) items;
    VEC(call) calls;
    MAP(int) by_name;
} functional;

static manta_status call_fail(const functional *f, const item *i, const char *what)
{
    return manta_fail(MANTA_ECORRUPT, "%s: layer '%s' (%s): %s", f->path, i->name, i->class_name, what);
}

/* The call that [layer, call, tensor] means. */
static manta_status find_call(functional *f, const json_t *history, int first_call, int *out, int *tensor)
{
    const char *name = json_string_value(json_array_get(history, 0));
    const json_t *call_at = json_array_get(history, 1), *tensor_at = json_array_get(history, 2);
    const int *i = name ? map_find(&f->by_name, name) : NULL;
    json_int_t k = json_integer_value(call_at) - first_call, t = json_integer_value(tensor_at);
    char text[96];

    if (!i || !json_is_integer(call_at) || !json_is_integer(tensor_at) || k < 0 || k >= f->items.at[*i].n ||
        t < 0 || t > 1024) {
        return manta_fail(MANTA_ECORRUPT, "%s: model '%s': nothing is at %s", f->path, f->m->name,
                          keras_json_show(history, text, sizeof text));
    }
    *out = f->items.at[*i].first + (int)k;
    *tensor = (int)t;
    return MANTA_OK;
}

/* Arguments of a call, in order: tensors, in lists or not, and for an operation one number. */
static manta_status read_argument(functional *f, call *c, const json_t *v, int depth)
{
    const item *i = &f->items.at[c->item];
    const char *class = keras_json_text(v, "class_name");
    int need = 0, tensor = 0;

    if (class && !strcmp(class, "__keras_tensor__")) {
        TRY(find_call(f, json_object_get(keras_json_config(v), "keras_history"), 0, &need, &tensor));
        vec_push(&c->needs, need);
        vec_push(&c->tensor, tensor);
        return MANTA_OK;
    }
    if (json_is_array(v) && depth < 4) {
        for (size_t k = 0; k < json_array_size(v); k++) {
            TRY(read_argument(f, c, json_array_get(v, k), depth + 1));
        }
        return MANTA_OK;
    }
    if (json_is_object(v) && !class && depth < 4) { /* a dict of tensors, in its order */
        const char *key;
        json_t *sub;
        json_object_foreach((json_t *)(uintptr_t)v, key, sub)
        {
            TRY(read_argument(f, c, sub, depth + 1));
        }
        return MANTA_OK;
    }
    if (json_is_number(v) && i->is_op && !c->has_scalar) {
        c->has_scalar = true;
        c->scalar_first = c->needs.n == 0;
        c->scalar = json_number_value(v);
        return MANTA_OK;
    }
    if (json_is_null(v)) return MANTA_OK;
    {
        char text[96];
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: layer '%s' (%s) is called with %s, which Manta does not have", f->path,
                          i->name, i->class_name, keras_json_show(v, text, sizeof text));
    }
}

static manta_status read_keywords(functional *f, call *c, const json_t *keywords)
{
    const item *i = &f->items.at[c->item];
    const char *key;
    json_t *v;

    json_object_foreach((json_t *)(uintptr_t)keywords, key, v)
    {
        if (json_is_null(v) || json_is_false(v)) continue;
        if (!strcmp(key, "inputs") ||
            (i->is_op && (!strcmp(key, "x1") || !strcmp(key, "x2") || !strcmp(key, "x")))) {
            TRY(read_argument(f, c, v, 0));
            continue;
        }
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: layer '%s' (%s) is called with %s, which Manta does not have", f->path,
                          i->name, i->class_name, key);
    }
    return MANTA_OK;
}

/* A call in either form: {"args","kwargs"}, or Keras 2's [[layer, call, tensor, kwargs], ...]. */
static manta_status read_call(functional *f, call *c)
{
    if (json_is_object(c->json)) {
        TRY(read_argument(f, c, json_object_get(c->json, "args"), 0));
        return read_keywords(f, c, json_object_get(c->json, "kwargs"));
    }
    for (size_t k = 0; k < json_array_size(c->json); k++) {
        const json_t *history = json_array_get(c->json, k);
        int need = 0, tensor = 0;
        TRY(find_call(f, history, 0, &need, &tensor));
        TRY(read_keywords(f, c, json_array_get(history, 3)));
        vec_push(&c->needs, need);
        vec_push(&c->tensor, tensor);
    }
    return MANTA_OK;
}

/* Lists the layers and their calls, arguments still unread. */
static manta_status list_items(functional *f, const json_t *layers)
{
    for (size_t k = 0; k < json_array_size(layers); k++) {
        const json_t *layer = json_array_get(layers, k), *nodes = json_object_get(layer, "inbound_nodes");
        const char *name = keras_json_text(layer, "name");
        item i = {
            .json = layer, .first = (int)f->calls.n, .class_name = keras_json_text(layer, "class_name")};

        i.name = name ? name : keras_layer_name(layer);
        if (!i.name || !i.class_name || !json_is_array(nodes)) {
            return manta_fail(MANTA_ECORRUPT,
                              "%s: model '%s': layer %zu lacks its name, class_name or inbound_nodes",
                              f->path, f->m->name, k);
        }
        if (map_find(&f->by_name, i.name)) {
            return manta_fail(MANTA_ECORRUPT, "%s: model '%s': two layers are called '%s'", f->path,
                              f->m->name, i.name);
        }
        i.is_op = keras_op_listed(layer);
        i.n = !strcmp(i.class_name, "InputLayer") ? 1 : (int)json_array_size(nodes);
        *map_put(&f->by_name, i.name) = (int)f->items.n;
        vec_push(&f->items, i);
        for (int c = 0; c < i.n; c++) {
            vec_push(&f->calls,
                     (call){.item = (int)f->items.n - 1, .json = json_array_get(nodes, (size_t)c)});
        }
    }
    for (size_t k = 0; k < f->calls.n; k++) TRY(read_call(f, &f->calls.at[k]));
    return MANTA_OK;
}

/* Makes the layer of an item, on its first call. */
static manta_status make_layer(functional *f, item *i, const call *c, const manta_value *x)
{
    if (i->layer) {
        if (i->is_op) return call_fail(f, i, "it is an operation and is called twice, expected once");
        return MANTA_OK;
    }
    if (is_model(i->json)) {
        shape_hint hint = hint_of(f->m, c->needs.n ? x[0] : (manta_value){-1});
        return read_nested(f->path, f->m, i->json, &hint, f->nesting, &i->layer);
    }
    if (i->is_op) {
        const manta_layer_class *cls = keras_op_find(i->class_name);
        keras_op_options o = {c->has_scalar, c->scalar_first, c->scalar};
        if (!cls) {
            return manta_fail(MANTA_EUNSUPPORTED, "%s: '%s' is the operation %s, which Manta does not have",
                              f->path, i->name, i->class_name);
        }
        i->layer = manta_layer_new(f->m, cls, i->name, &o);
        return MANTA_OK;
    }
    return keras_layer_read(f->path, f->m, i->json, &i->layer);
}

static manta_status make_call(functional *f, call *c)
{
    item *i = &f->items.at[c->item];
    manta_value *x = mem_new((c->needs.n + 1) * sizeof *x);
    manta_status st = MANTA_OK;

    for (size_t k = 0; k < c->needs.n && !st; k++) {
        const call *from = &f->calls.at[c->needs.at[k]];
        if (c->tensor.at[k] >= from->n_out) {
            st = call_fail(f, i, "it is called on a result that its layer does not give");
        } else {
            x[k] = from->out[c->tensor.at[k]];
        }
    }
    if (!st && !c->needs.n) st = call_fail(f, i, "it is called on nothing");
    if (!st) st = make_layer(f, i, c, x);
    if (!st) {
        c->n_out = i->layer->inner ? i->layer->inner->n_outputs : 1;
        c->out = mem_new((size_t)(c->n_out + 1) * sizeof *c->out);
        if (i->layer->inner) {
            manta_call_nested(f->m, i->layer, (int)c->needs.n, x, c->n_out, c->out);
        } else {
            c->out[0] = manta_call_n(f->m, i->layer, (int)c->needs.n, x);
        }
        c->state = DONE;
    }
    mem_free(x);
    return st;
}

/* Makes every call after those it needs. A stack of our own: a file decides how deep it goes. */
static manta_status make_calls(functional *f)
{
    struct step {
        int call;
        size_t next;
    };
    VEC(struct step) stack = {0};
    manta_status st = MANTA_OK;

    for (size_t k = 0; k < f->calls.n && !st; k++) {
        if (f->calls.at[k].state != WAITING) continue;
        vec_push(&stack, (struct step){(int)k, 0});
        while (stack.n && !st) {
            struct step *s = &vec_last(&stack);
            call *c = &f->calls.at[s->call];
            c->state = OPEN;
            while (s->next < c->needs.n && f->calls.at[c->needs.at[s->next]].state == DONE) s->next++;
            if (s->next < c->needs.n) {
                int need = c->needs.at[s->next];
                if (f->calls.at[need].state == OPEN) {
                    st = call_fail(f, &f->items.at[c->item], "it depends on itself");
                } else {
                    vec_push(&stack, (struct step){need, 0});
                }
                continue;
            }
            st = make_call(f, c);
            (void)vec_pop(&stack);
        }
    }
    vec_release(&stack);
    return st;
}

/* Calls fn for each [layer, call, tensor] of input_layers or output_layers, which may be one, a list,
 * or a dict of them, nested or not. */
typedef manta_status (*port_fn)(functional *f, const json_t *history);

static manta_status each_port(functional *f, const json_t *v, port_fn fn, int depth)
{
    const char *key;
    json_t *sub;

    if (json_is_array(v) && json_array_size(v) >= 3 && json_is_string(json_array_get(v, 0))) return fn(f, v);
    if (depth > 3 || (!json_is_array(v) && !json_is_object(v))) {
        return manta_fail(MANTA_ECORRUPT, "%s: model '%s': its inputs or outputs are not listed", f->path,
                          f->m->name);
    }
    for (size_t i = 0; i < json_array_size(v); i++) TRY(each_port(f, json_array_get(v, i), fn, depth + 1));
    if (json_is_object(v)) {
        json_object_foreach((json_t *)(uintptr_t)v, key, sub)
        {
            TRY(each_port(f, sub, fn, depth + 1));
        }
    }
    return MANTA_OK;
}

static manta_status add_input(functional *f, const json_t *history)
{
    int k = 0, tensor = 0;
    call *c;
    item *i;

    TRY(find_call(f, history, 0, &k, &tensor));
    c = &f->calls.at[k];
    i = &f->items.at[c->item];
    if (strcmp(i->class_name, "InputLayer") != 0 || c->state != WAITING) {
        return call_fail(f, i, "it is listed as an input");
    }
    c->out = mem_new(sizeof *c->out);
    c->n_out = 1;
    c->state = DONE;
    return read_input(f->path, f->m, i->json, &c->out[0]);
}

static manta_status add_output(functional *f, const json_t *history)
{
    const char *layer = json_string_value(json_array_get(history, 0));
    const int *i = layer ? map_find(&f->by_name, layer) : NULL;
    const char *class = i ? f->items.at[*i].class_name : "";
    int k = 0, tensor = 0, taken = 0;
    /* Here, and only here, Keras counts a nested Functional's calls from 1. */
    bool from_one = (!strcmp(class, "Functional") || !strcmp(class, "Model")) &&
                    json_integer_value(json_array_get(history, 1)) > 0;
    call *c;

    TRY(find_call(f, history, from_one ? 1 : 0, &k, &tensor));
    c = &f->calls.at[k];
    if (tensor >= c->n_out)
        return call_fail(f, &f->items.at[c->item], "the model has an output that it does not give");
    for (int o = 0; o < f->m->n_outputs; o++) {
        if (f->m->outputs[o].name && !strcmp(f->m->outputs[o].name, layer)) taken = 1;
    }
    manta_output_named(f->m, taken ? NULL : layer, c->out[tensor]);
    return MANTA_OK;
}

static manta_status fill_functional(functional *f, const json_t *config)
{
    const json_t *layers = json_object_get(config, "layers");

    if (!json_is_array(layers)) {
        return manta_fail(MANTA_ECORRUPT, "%s: model '%s' has no list of layers", f->path, f->m->name);
    }
    TRY(list_items(f, layers));
    TRY(each_port(f, json_object_get(config, "input_layers"), add_input, 0));
    for (size_t k = 0; k < f->calls.n; k++) {
        const item *i = &f->items.at[f->calls.at[k].item];
        if (!strcmp(i->class_name, "InputLayer") && f->calls.at[k].state != DONE) {
            return call_fail(f, i, "it is not among the model's inputs");
        }
    }
    TRY(make_calls(f));
    return each_port(f, json_object_get(config, "output_layers"), add_output, 0);
}

static manta_status read_functional(const char *path, const json_t *object, int nesting, manta_model *m)
{
    functional f = {.path = path, .m = m, .nesting = nesting};
    manta_status st;

    m->sequential = false; /* also where no layer is called */
    st = fill_functional(&f, keras_json_config(object));
    for (size_t i = 0; i < f.calls.n; i++) {
        vec_release(&f.calls.at[i].needs);
        vec_release(&f.calls.at[i].tensor);
        mem_free(f.calls.at[i].out);
    }
    vec_release(&f.calls);
    vec_release(&f.items);
    map_release(&f.by_name);
    return st;
}

/* ---- both ---- */

static manta_status read_model(const char *path, const json_t *object, const shape_hint *hint, int nesting,
                               manta_model **out)
{
    const char *class = keras_json_text(object, "class_name");
    const json_t *config = keras_json_config(object);
    const char *name = keras_json_text(config, "name");
    manta_model *m;
    manta_status st;

    if (!is_model(object)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: the model is of the class %s; Manta reads Sequential and Functional ones",
                          path, text_or(class, "?"));
    }
    if (!config) return manta_fail(MANTA_ECORRUPT, "%s: the %s has no config", path, class);
    if (nesting > MAX_NESTING) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: the models are nested more than %d deep", path,
                          MAX_NESTING);
    }
    TRY(keras_layer_policy(path, object));
    m = manta_model_new(text_or(name, !strcmp(class, "Sequential") ? "sequential" : "functional"));
    st = !strcmp(class, "Sequential") ? read_sequential(path, object, hint, nesting, m)
                                      : read_functional(path, object, nesting, m);
    if (!st && (st = manta_model_build(m))) st = manta_fail(st, "%s: %s", path, manta_error_text());
    if (st) {
        manta_model_free(m);
        return st;
    }
    freeze_if_said(m, config);
    *out = m;
    return MANTA_OK;
}

manta_status keras_config_read(const char *path, const json_t *object, manta_model **out)
{
    TRY(keras_outline_check(path, object));
    return read_model(path, object, NULL, 0, out);
}
