/* keras_outline.c - the layers that a Keras config lists.
 *
 * A model with one layer that Manta has not cannot be built, so nothing here
 * builds: each object is looked at alone. Shapes are those that the file gives
 * beside the tensors of a call; a layer that no other is called on has none. */
#include "format/keras/keras_outline.h"

#include <string.h>

#include "base/args.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"
#include "format/keras/keras_layer.h"
#include "format/keras/keras_ops.h"

enum { MAX_NESTING = 32 };

typedef VEC(manta_outline_layer) outline_layers;
typedef MAP(const json_t *) shape_map;

static bool has_class(const json_t *object, const char *name)
{
    const char *class = keras_json_text(object, "class_name");

    return class && !strcmp(class, name);
}

static const json_t *inner_layers(const json_t *object)
{
    return json_object_get(keras_json_config(object), "layers");
}

/* ---- shapes ---- */

/* Collects the shapes of the tensors in the arguments of a call, by the layer that gave them. */
static void collect_shapes(const json_t *v, int depth, shape_map *out)
{
    const json_t *config = keras_json_config(v);
    const char *key, *from;
    json_t *sub;

    if (depth > 8) return;
    if (has_class(v, "__keras_tensor__")) {
        from = json_string_value(json_array_get(json_object_get(config, "keras_history"), 0));
        if (from && !map_find(out, from)) *map_put(out, from) = json_object_get(config, "shape");
        return;
    }
    for (size_t i = 0; i < json_array_size(v); i++) collect_shapes(json_array_get(v, i), depth + 1, out);
    if (json_is_object(v)) {
        json_object_foreach((json_t *)(uintptr_t)v, key, sub)
        {
            collect_shapes(sub, depth + 1, out);
        }
    }
}

static void set_shape(const json_t *shape, manta_outline_layer *l)
{
    size_t n = json_array_size(shape);

    if (n > MANTA_MAX_DIMS) return;
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(shape, i);
        l->shape[i] = json_is_integer(d) ? json_integer_value(d) : -1;
    }
    l->ndim = (int)n;
}

/* ---- layers ---- */

/* What is wrong with a layer, as "is a LSTM, which Manta does not have"; NULL: nothing. */
static char *problem_of(const json_t *object, const char *name, const char *class)
{
    const char *text;
    char *layer, *with_class;

    if (!strcmp(class, "InputLayer")) return NULL;
    if (keras_op_listed(object)) {
        return keras_op_find(class) ? NULL
                                    : mem_printf("is the operation %s, which Manta does not have", class);
    }
    if (!keras_layer_check("", object)) return NULL;
    text = manta_error_text() + strlen(": ");
    layer = mem_printf("layer '%s' ", name);
    with_class = mem_printf("(%s) ", class);
    if (!strncmp(text, layer, strlen(layer))) text += strlen(layer);
    if (!strncmp(text, with_class, strlen(with_class))) text += strlen(with_class);
    mem_free(layer);
    mem_free(with_class);
    return mem_strdup(text);
}

static void add_layers(const json_t *layers, int nesting, outline_layers *out)
{
    shape_map shapes = {0};

    for (size_t i = 0; i < json_array_size(layers); i++) {
        collect_shapes(json_object_get(json_array_get(layers, i), "inbound_nodes"), 0, &shapes);
    }
    for (size_t i = 0; i < json_array_size(layers); i++) {
        const json_t *object = json_array_get(layers, i), *inner = inner_layers(object);
        const char *name = keras_layer_name(object), *class = keras_json_text(object, "class_name");
        manta_outline_layer l = {.nesting = nesting};
        const json_t **shape;
        if (!name) name = "?";
        if (!class) class = "?";
        shape = map_find(&shapes, name);
        if (shape) set_shape(*shape, &l);
        if (!shape && !strcmp(class, "InputLayer")) {
            set_shape(json_object_get(keras_json_config(object), "batch_shape"), &l);
        }
        l.name = mem_strdup(name);
        l.class_name = mem_strdup(class);
        l.problem = json_is_array(inner) ? NULL : problem_of(object, name, class);
        vec_push(out, l);
        if (json_is_array(inner) && nesting < MAX_NESTING) add_layers(inner, nesting + 1, out);
    }
    map_release(&shapes);
}

manta_status keras_outline_read(const char *path, const json_t *object, manta_outline *out)
{
    const json_t *layers = inner_layers(object);
    outline_layers list = {0};

    if (!json_is_array(layers)) {
        return manta_fail(MANTA_ECORRUPT, "%s: the model has no list of layers", path);
    }
    add_layers(layers, 0, &list);
    *out = (manta_outline){.n = (int)list.n};
    out->layers = mem_new((list.n + 1) * sizeof *out->layers);
    if (list.n) memcpy(out->layers, list.at, list.n * sizeof *list.at);
    vec_release(&list);
    return MANTA_OK;
}

void manta_outline_release(manta_outline *o)
{
    if (!o) return;
    for (int i = 0; i < o->n; i++) {
        mem_free(o->layers[i].name);
        mem_free(o->layers[i].class_name);
        mem_free(o->layers[i].problem);
    }
    mem_free(o->layers);
    *o = (manta_outline){0};
}

/* ---- all that Manta has not ---- */

/* Layers that are refused for the same thing. */
typedef struct refused_kind {
    int first, n; /* the first of them, how many */
} refused_kind;

typedef MAP(refused_kind) refused_kinds; /* by class and problem */

static int count_refused(const manta_outline *o, refused_kinds *kinds)
{
    int n = 0;

    for (int i = 0; i < o->n; i++) {
        const manta_outline_layer *l = &o->layers[i];
        char *key;
        refused_kind *k;
        if (!l->problem) continue;
        key = mem_printf("%s %s", l->class_name, l->problem);
        k = map_put(kinds, key);
        if (!k->n) k->first = i;
        k->n++;
        n++;
        mem_free(key);
    }
    return n;
}

/* "'memory' is a LSTM; 'a' is a LayerScale (and 17 more)": each kind once. The tail that they share is cut. */
static void say_refused(const manta_outline *o, const refused_kind *k, buf *text)
{
    static const char tail[] = ", which Manta does not have";
    const manta_outline_layer *l = &o->layers[k->first];
    size_t n = strlen(l->problem);

    if (n > strlen(tail) && !strcmp(l->problem + n - strlen(tail), tail)) n -= strlen(tail);
    buf_printf(text, "%s'%s'", text->n ? "; " : "", l->name);
    if (strncmp(l->problem, "is ", 3) != 0) buf_printf(text, " (%s)", l->class_name);
    buf_printf(text, " %.*s", (int)n, l->problem);
    if (k->n > 1) buf_printf(text, " (and %d more)", k->n - 1);
}

manta_status keras_outline_check(const char *path, const json_t *object)
{
    manta_outline o = {0};
    refused_kinds kinds = {0};
    buf text = {0};
    manta_status st = MANTA_OK;
    int n;

    if (!json_is_array(inner_layers(object))) return MANTA_OK; /* whoever reads the model says so */
    TRY(keras_outline_read(path, object, &o));
    n = count_refused(&o, &kinds);
    if (n > 1) { /* one alone is said better by who reads it */
        for (size_t i = 0; i < kinds.n; i++) say_refused(&o, &kinds.at[i].value, &text);
        st = manta_fail(MANTA_EUNSUPPORTED, "%s: Manta does not have %d of its %d layers: %s", path, n, o.n,
                        buf_text(&text));
    }
    buf_release(&text);
    map_release(&kinds);
    manta_outline_release(&o);
    return st;
}
