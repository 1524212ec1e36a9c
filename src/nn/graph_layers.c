/* graph_layers.c - the layers of a model: made, given weights, called.
 *
 * A call of a layer runs the call function of its class, which asks for weights
 * (manta_layer_weight()) and applies operations (manta_layer_apply()): both end
 * up in the graph, marked as this layer's. A model inside a model is a layer whose
 * call plays the nodes of the inner model once more. Either way the call itself is
 * kept, because files tell of layers and not of nodes. */
#include <ctype.h>
#include <fnmatch.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/suggest.h"
#include "nn/graph_build.h"
#include "nn/layer.h"
#include "nn/ops.h"

void graph_snake_case(const char *s, char *buf)
{
    char *out = buf;

    for (size_t i = 0; s[i]; i++) {
        unsigned char c = (unsigned char)s[i], before = i ? (unsigned char)s[i - 1] : 0,
                      after = (unsigned char)s[i + 1];
        if (!isalnum(c) && c != '_') continue;
        if (isupper(c) && i && (islower(after) || islower(before))) {
            if (out > buf && out[-1] != '_') *out++ = '_';
        }
        *out++ = (char)tolower(c);
    }
    *out = 0;
}

/* Names as Keras numbers them: "dense", "dense_1", ... among layers of one class. */
static char *layer_unique_name(const manta_model *m, const char *base)
{
    int n = 0;

    for (;; n++) {
        char *name = n ? mem_printf("%s_%d", base, n) : mem_strdup(base);
        int i = 0;
        while (i < m->n_layers && strcmp(m->layers[i]->name, name)) i++;
        if (i == m->n_layers) return name;
        mem_free(name);
    }
}

static manta_layer *add_layer(manta_model *m, const char *class_name, const char *name)
{
    manta_layer *l = mem_new(sizeof *l);
    char *snake = mem_new(2 * strlen(class_name) + 1);

    graph_snake_case(class_name, snake);
    for (int i = 0; name && i < m->n_layers; i++) {
        if (!strcmp(m->layers[i]->name, name))
            graph_fail(m, MANTA_EEXIST, "two layers are called '%s'", name);
    }
    l->model = m;
    l->name = name ? mem_strdup(name) : layer_unique_name(m, snake);
    l->last = -1;
    l->index = m->n_layers;
    m->layers = graph_grow(m->layers, m->n_layers, &m->cap_layers, sizeof *m->layers);
    m->layers[m->n_layers++] = l;
    mem_free(snake);
    return l;
}

manta_layer *manta_layer_new(manta_model *m, const manta_layer_class *cls, const char *name,
                             const void *options)
{
    REFUSE_NULL_OR(m, NULL);
    GRAPH_REFUSE_NULL(m, cls, NULL);

    manta_layer *l;

    if (m->built) graph_fail(m, MANTA_EINVAL, "it is built already and cannot be changed");
    l = add_layer(m, cls->name, name);
    l->cls = cls;
    l->options = layer_options_copy(cls, options);
    return l;
}

manta_layer *manta_nested(manta_model *m, const manta_model *inner)
{
    REFUSE_NULL_OR(m, NULL);
    GRAPH_REFUSE_NULL(m, inner, NULL);

    manta_layer *l = add_layer(m, inner->sequential ? "Sequential" : "Functional", inner->name);

    if (!inner->built) graph_fail(m, MANTA_EINVAL, "the nested model '%s' is not built", inner->name);
    if (inner == m) graph_fail(m, MANTA_EINVAL, "a model cannot contain itself");
    l->inner = (manta_model *)(uintptr_t)inner; /* shared: only its count changes */
    l->inner->refs++;
    return l;
}

const char *manta_layer_name(const manta_layer *l)
{
    REFUSE_NULL_OR(l, NULL);
    return l->name;
}

const manta_layer_class *manta_layer_class_of(const manta_layer *l)
{
    REFUSE_NULL_OR(l, NULL);
    return l->cls;
}

const void *manta_layer_options(const manta_layer *l)
{
    REFUSE_NULL_OR(l, NULL);
    return l->options;
}

manta_array manta_layer_shape(const manta_layer *l, manta_value x)
{
    REFUSE_NULL_OR(l, (manta_array){0});

    if (x.id < 0 || x.id >= l->model->n_values) return (manta_array){0};
    return l->model->values[x.id].a;
}

manta_value manta_layer_apply(manta_layer *l, const manta_op *op, const void *attrs, int n,
                              const manta_value *x)
{
    REFUSE_NULL_OR(l, graph_no_value);
    GRAPH_REFUSE_NULL(l->model, op, graph_no_value);
    if (n > 0) GRAPH_REFUSE_NULL(l->model, x, graph_no_value);
    return graph_add_node(l->model, l->index, op, attrs, n, x);
}

static manta_value add_variable(manta_layer *l, char *name, const graph_variable *like)
{
    manta_model *m = l->model;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, like->ndim, like->shape, NULL);
    manta_value v = graph_add_value(m, &a);
    graph_variable *g;

    m->variables = graph_grow(m->variables, m->n_variables, &m->cap_variables, sizeof *m->variables);
    g = &m->variables[m->n_variables];
    *g = *like;
    g->name = name;
    g->layer = l->index;
    g->value = v.id;
    g->count = manta_array_count(&a);
    m->values[v.id].variable = m->n_variables;
    l->variables = mem_resize(l->variables, (size_t)(l->n_variables + 1) * sizeof *l->variables);
    l->variables[l->n_variables++] = m->n_variables++;
    return v;
}

manta_value manta_layer_weight(manta_layer *l, const char *name, int ndim, const int64_t *shape,
                               manta_initializer init, int64_t fan_in, manta_regularizer reg, bool trainable)
{
    REFUSE_NULL_OR(l, graph_no_value);
    GRAPH_REFUSE_NULL(l->model, name, graph_no_value);
    if (ndim > 0) GRAPH_REFUSE_NULL(l->model, shape, graph_no_value);

    manta_model *m = l->model;
    graph_variable like = {.ndim = ndim, .init = init, .fan_in = fan_in, .reg = reg, .trainable = trainable};
    char *full, given[96], expected[96];
    manta_array all;

    if (!graph_is_open(m)) return graph_no_value;
    if (ndim < 0 || ndim > MANTA_MAX_DIMS) {
        graph_fail(m, MANTA_EINVAL, "layer '%s': weight '%s' has %d dimensions, expected 0 to %d", l->name,
                   name, ndim, MANTA_MAX_DIMS);
        return graph_no_value;
    }
    if (fan_in < 0) {
        graph_fail(m, MANTA_EINVAL, "layer '%s': weight '%s' has a fan_in of %lld, expected at least 0",
                   l->name, name, (long long)fan_in);
        return graph_no_value;
    }
    full = mem_printf("%s/%s", l->name, name);
    for (int i = 0; i < l->n_variables; i++) {
        graph_variable *g = &m->variables[l->variables[i]];
        if (strcmp(g->name, full)) continue;
        mem_free(full);
        if (g->ndim == ndim && !memcmp(g->shape, shape, (size_t)ndim * sizeof *shape)) {
            return (manta_value){g->value};
        }
        graph_fail(m, MANTA_EINVAL,
                   "layer '%s': called again on another shape; its %s is %s and would have to be %s", l->name,
                   name, manta_shape_text(g->ndim, g->shape, expected, sizeof expected),
                   manta_shape_text(ndim, shape, given, sizeof given));
        return graph_no_value;
    }
    memcpy(like.shape, shape, (size_t)ndim * sizeof *shape);
    all = manta_array_of(MANTA_DTYPE_F32, ndim, shape, NULL);
    if (!graph_can_count(ndim, shape) ||
        manta_model_params(m, false) > GRAPH_MOST_ELEMENTS - manta_array_count(&all)) {
        mem_free(full);
        graph_fail(m, MANTA_EINVAL, "layer '%s': with its %s of shape %s there are more than 2^48 weights",
                   l->name, name, manta_shape_text(ndim, shape, given, sizeof given));
        return graph_no_value;
    }
    return add_variable(l, full, &like);
}

/* Replays the inner model's nodes on `in`. Its variables become variables of
 * this layer on the first call and are found again on the next ones. */
static void replay_model(manta_model *m, manta_layer *l, const manta_value *in, manta_value *out)
{
    const manta_model *inner = l->inner;
    manta_value *map = mem_new((size_t)inner->n_values * sizeof *map);
    bool first = l->n_variables == 0;

    for (int i = 0; i < inner->n_variables; i++) {
        const graph_variable *g = &inner->variables[i];
        if (first) {
            graph_variable like = *g;
            like.frozen = graph_variable_frozen(inner, g);
            map[g->value] = add_variable(l, mem_printf("%s/%s", l->name, g->name), &like);
        } else {
            map[g->value].id = m->variables[l->variables[i]].value;
        }
    }
    for (int i = 0; i < inner->n_inputs; i++) map[inner->inputs[i].value] = in[i];
    for (int i = 0; i < inner->n_nodes && !m->error.code; i++) {
        const graph_node *n = &inner->nodes[i];
        manta_value x[MANTA_OP_MAX_IN], y;
        for (int j = 0; j < n->n_in; j++) x[j] = map[n->in[j]];
        y = graph_add_node(m, l->index, n->op, n->attrs, n->n_in, x);
        for (int j = 0; j < n->n_out && y.id >= 0; j++) map[n->out[j]].id = m->nodes[m->n_nodes - 1].out[j];
    }
    for (int i = 0; i < inner->n_outputs; i++)
        out[i] = m->error.code ? graph_no_value : map[inner->outputs[i].value];
    mem_free(map);
}

/* A layer that does nothing gives back what it was given; for files, which tell
 * calls apart by their values, it gives a view of it instead. */
static void part_from_inputs(manta_layer *l, int n_in, const manta_value *in, int n_out, manta_value *out)
{
    for (int i = 0; i < n_out; i++) {
        const manta_array *a;
        op_reshape_attrs same;
        int k = 0;
        while (k < n_in && in[k].id != out[i].id) k++;
        if (k == n_in || out[i].id < 0) continue;
        a = &l->model->values[out[i].id].a;
        same = (op_reshape_attrs){.ndim = a->ndim};
        memcpy(same.shape, a->shape, sizeof same.shape);
        out[i] = manta_layer_apply(l, &op_reshape, &same, 1, &out[i]);
    }
}

static void add_call(manta_layer *l, int n_in, const manta_value *in, int n_out, const manta_value *out)
{
    manta_model *m = l->model;
    graph_call call = {.layer = l->index, .n_in = n_in, .n_out = n_out};

    call.values = mem_new((size_t)(n_in + n_out + 1) * sizeof *call.values);
    for (int i = 0; i < n_in; i++) call.values[i] = in[i].id;
    for (int i = 0; i < n_out; i++) call.values[n_in + i] = out[i].id;
    m->calls = graph_grow(m->calls, m->n_calls, &m->cap_calls, sizeof *m->calls);
    m->calls[m->n_calls++] = call;
    l->calls++;
}

void manta_call_nested(manta_model *m, manta_layer *l, int n_in, const manta_value *in, int n_out,
                       manta_value *out)
{
    REFUSE_NULL_AND_RETURN(m);
    GRAPH_REFUSE_NULL(m, l, );
    if (n_in > 0) GRAPH_REFUSE_NULL(m, in, );
    if (n_out > 0) GRAPH_REFUSE_NULL(m, out, );

    for (int i = 0; i < n_out; i++) out[i] = graph_no_value;
    if (!graph_is_open(m)) return;
    if (l->model != m || !l->inner) {
        graph_fail(m, MANTA_EINVAL, "layer '%s' is not a nested model of it", l->name);
        return;
    }
    if (n_in != l->inner->n_inputs || n_out != l->inner->n_outputs) {
        graph_fail(m, MANTA_EINVAL, "nested model '%s': %d inputs and %d outputs given, expected %d and %d",
                   l->name, n_in, n_out, l->inner->n_inputs, l->inner->n_outputs);
        return;
    }
    for (int i = 0; i < n_in; i++) {
        char given[96], expected[96];
        const manta_array *want = &l->inner->values[l->inner->inputs[i].value].a, *have;
        if (!graph_has_value(m, in[i])) return;
        have = &m->values[in[i].id].a;
        if (have->ndim != want->ndim ||
            memcmp(have->shape, want->shape, (size_t)want->ndim * sizeof *want->shape)) {
            graph_fail(m, MANTA_EINVAL, "nested model '%s': input %d has shape %s, expected %s", l->name, i,
                       manta_shape_text(have->ndim, have->shape, given, sizeof given),
                       manta_shape_text(want->ndim, want->shape, expected, sizeof expected));
            return;
        }
    }
    replay_model(m, l, in, out);
    if (m->error.code) return;
    part_from_inputs(l, n_in, in, n_out, out);
    add_call(l, n_in, in, n_out, out);
    if (n_out) l->last = m->last = out[0].id;
}

static manta_value call_layer(manta_model *m, manta_layer *l, int n, const manta_value *x)
{
    manta_value out = graph_no_value;
    manta_status st;

    if (!graph_is_open(m)) return graph_no_value;
    if (l->model != m) {
        graph_fail(m, MANTA_EINVAL, "layer '%s' belongs to model '%s'", l->name, l->model->name);
        return graph_no_value;
    }
    if (l->inner) {
        manta_call_nested(m, l, n, x, 1, &out);
        return out;
    }
    for (int i = 0; i < n; i++) {
        if (!graph_has_value(m, x[i])) return graph_no_value;
    }
    st = l->cls->call(l, l->options, n, x, &out);
    if (st) graph_fail(m, st, "layer '%s': %s", l->name, manta_error_text());
    if (m->error.code) return graph_no_value;
    part_from_inputs(l, n, x, 1, &out);
    add_call(l, n, x, 1, &out);
    l->last = m->last = out.id;
    return out;
}

manta_value manta_call_n(manta_model *m, manta_layer *l, int n, const manta_value *x)
{
    REFUSE_NULL_OR(m, graph_no_value);
    GRAPH_REFUSE_NULL(m, l, graph_no_value);
    if (n > 0) GRAPH_REFUSE_NULL(m, x, graph_no_value);

    m->sequential = false;
    return call_layer(m, l, n, x);
}

manta_value manta_call(manta_model *m, manta_layer *l, manta_value x)
{
    REFUSE_NULL_OR(m, graph_no_value);
    GRAPH_REFUSE_NULL(m, l, graph_no_value);
    return manta_call_n(m, l, 1, &x);
}

manta_value manta_model_add(manta_model *m, manta_layer *l)
{
    REFUSE_NULL_OR(m, graph_no_value);
    GRAPH_REFUSE_NULL(m, l, graph_no_value);

    manta_value x = {m->last};

    if (m->last < 0 && !m->error.code) {
        graph_fail(m, MANTA_EINVAL, "layer '%s' is added before any input", l->name);
    }
    return m->error.code ? graph_no_value : call_layer(m, l, 1, &x);
}

static manta_status no_such_layer(const manta_model *m, const char *pattern)
{
    manta_suggestion near = manta_suggestion_for(pattern);
    char hint[SUGGEST_TEXT];

    for (int i = 0; i < m->n_layers; i++) manta_suggestion_offer(&near, m->layers[i]->name);
    return manta_fail(MANTA_ENOENT, "model '%s' has no layer that matches '%s'%s", m->name, pattern,
                      manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status manta_model_freeze(manta_model *m, const char *pattern, bool frozen)
{
    REFUSE_NULL(m);
    REFUSE_NULL(pattern);

    int n = 0;

    for (int i = 0; i < m->n_layers; i++) {
        if (fnmatch(pattern, m->layers[i]->name, 0)) continue;
        m->layers[i]->frozen = frozen;
        n++;
    }
    return n ? MANTA_OK : no_such_layer(m, pattern);
}
