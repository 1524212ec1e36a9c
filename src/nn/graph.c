/* graph.c - building a model.
 *
 * The model is filled front to back, so nodes are in topological order by
 * construction. Every builder checks the latched error first and does nothing
 * once there is one: a chain of twenty calls needs one check at its end. */
#include "nn/graph.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "nn/layer.h"
#include "nn/ops.h"

#define MOST_ELEMENTS ((int64_t)1 << 48) /* of a value, and of all weights together */

static const manta_value invalid = {-1};

/* Room for one more element behind n; returns the array. */
static void *grow_array(void *array, int n, int *cap, size_t size)
{
    if (n < *cap) return array;
    *cap = *cap ? 2 * *cap : 8;
    return mem_resize(array, (size_t)*cap * size);
}

void graph_latch(manta_model *m, manta_status code)
{
    if (m->error.code) return;
    manta_error_get(&m->error);
    m->error.code = code;
}

void graph_fail(manta_model *m, manta_status code, const char *fmt, ...)
{
    char text[400];
    va_list args;

    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (!m->error.code) graph_latch(m, manta_fail(code, "model '%s': %s", m->name, text));
}

bool graph_variable_frozen(const manta_model *m, const graph_variable *v)
{
    return v->frozen || (v->layer >= 0 && m->layers[v->layer]->frozen);
}

bool graph_node_frozen(const manta_model *m, const graph_node *n)
{
    if (!(n->op->flags & MANTA_OP_PROPOSES)) return false;
    for (int i = 0; i < n->n_in; i++) {
        int v = m->values[n->in[i]].variable;
        if (v >= 0 && !m->variables[v].trainable && graph_variable_frozen(m, &m->variables[v])) return true;
    }
    return false;
}

bool graph_node_needed(const graph_node *n, const bool *needed)
{
    for (int i = 0; i < n->n_out; i++) {
        if (needed[n->out[i]]) return true;
    }
    return false;
}

void graph_mark_needed(const manta_model *m, bool *needed)
{
    for (int i = 0; i < m->n_outputs; i++) needed[m->outputs[i].value] = true;
    for (int i = m->n_nodes - 1; i >= 0; i--) {
        const graph_node *n = &m->nodes[i];
        if (!graph_node_needed(n, needed)) continue;
        for (int j = 0; j < n->n_in; j++) needed[n->in[j]] = true;
    }
}

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

/* ---- life ---- */

manta_model *manta_model_new(const char *name)
{
    REFUSE_NULL_OR(name, NULL);

    manta_model *m = mem_new(sizeof *m);

    m->name = mem_strdup(name && *name ? name : "model");
    m->refs = 1;
    m->sequential = true;
    m->last = -1;
    return m;
}

static void layer_free(manta_layer *l)
{
    if (!l) return;
    layer_options_free(l->cls, l->options);
    manta_model_free(l->inner);
    mem_free(l->variables);
    mem_free(l->name);
    mem_free(l);
}

void manta_model_free(manta_model *m)
{
    if (!m || --m->refs) return;
    for (int i = 0; i < m->n_nodes; i++) mem_free(m->nodes[i].attrs);
    for (int i = 0; i < m->n_calls; i++) mem_free(m->calls[i].values);
    for (int i = 0; i < m->n_variables; i++) mem_free(m->variables[i].name);
    for (int i = 0; i < m->n_layers; i++) layer_free(m->layers[i]);
    for (int i = 0; i < m->n_inputs; i++) mem_free(m->inputs[i].name);
    for (int i = 0; i < m->n_outputs; i++) mem_free(m->outputs[i].name);
    mem_free(m->values);
    mem_free(m->nodes);
    mem_free(m->calls);
    mem_free(m->variables);
    mem_free(m->layers);
    mem_free(m->inputs);
    mem_free(m->outputs);
    mem_free(m->name);
    mem_free(m);
}

const char *manta_model_name(const manta_model *m)
{
    REFUSE_NULL_OR(m, NULL);
    return m->name;
}

/* Whether building may go on; latches misuse of a built model. */
static bool open_for_building(manta_model *m)
{
    if (m->error.code) return false;
    if (m->built) graph_fail(m, MANTA_EINVAL, "it is built already and cannot be changed");
    return !m->built;
}

static bool is_value_of(manta_model *m, manta_value x)
{
    if (x.id >= 0 && x.id < m->n_values) return true;
    graph_fail(m, MANTA_EINVAL, "a value that is not of this model was used");
    return false;
}

/* Whether an array of this shape, without the batch, is one that memory could ever hold: sums and products of such
 * counts, times the bytes of an element and the arrays of an optimizer, do not overflow. */
static bool can_be_counted(int ndim, const int64_t *shape)
{
    int64_t n = 1;

    for (int i = 0; i < ndim; i++) {
        if (shape[i] == -1) continue;
        if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n) || n > MOST_ELEMENTS) return false;
    }
    return true;
}

static manta_value add_value(manta_model *m, const manta_array *a)
{
    graph_value *v;

    m->values = grow_array(m->values, m->n_values, &m->cap_values, sizeof *m->values);
    v = &m->values[m->n_values];
    *v = (graph_value){.a = *a, .node = -1, .variable = -1, .input = -1};
    v->a.data = NULL;
    return (manta_value){m->n_values++};
}

static graph_port *add_port(graph_port **ports, int *n, int *cap, const char *name, int value)
{
    *ports = grow_array(*ports, *n, cap, sizeof **ports);
    (*ports)[*n] = (graph_port){.name = name ? mem_strdup(name) : NULL, .value = value};
    return &(*ports)[(*n)++];
}

/* ---- inputs and outputs ---- */

manta_value manta_input(manta_model *m, const char *name, manta_dtype t, int ndim, const int64_t *shape)
{
    REFUSE_NULL_OR(m, invalid);
    if (ndim > 0) GRAPH_REFUSE_NULL(m, shape, invalid);

    int64_t full[MANTA_MAX_DIMS] = {-1};
    char text[24];
    manta_array a;
    manta_value v;

    if (!open_for_building(m)) return invalid;
    if (ndim < 0 || ndim >= MANTA_MAX_DIMS) {
        graph_fail(m, MANTA_EINVAL, "an input has %d dimensions, expected 0 to %d", ndim, MANTA_MAX_DIMS - 1);
        return invalid;
    }
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 1) {
            graph_fail(m, MANTA_EINVAL, "dimension %d of input '%s' is %lld, expected at least 1", i,
                       name ? name : "", (long long)shape[i]);
            return invalid;
        }
        full[i + 1] = shape[i];
    }
    if ((int)t < 0 || t >= MANTA_DTYPE_COUNT) {
        graph_fail(m, MANTA_EINVAL, "input '%s' has the dtype %d, expected 0 to %d", name ? name : "", (int)t,
                   MANTA_DTYPE_COUNT - 1);
        return invalid;
    }
    if (!can_be_counted(ndim, shape)) {
        graph_fail(m, MANTA_EINVAL, "a sample of input '%s' has more than 2^48 elements", name ? name : "");
        return invalid;
    }
    snprintf(text, sizeof text, m->n_inputs ? "input_%d" : "input", m->n_inputs);
    a = manta_array_of(t, ndim + 1, full, NULL);
    v = add_value(m, &a);
    m->values[v.id].input = m->n_inputs;
    add_port(&m->inputs, &m->n_inputs, &m->cap_inputs, name ? name : text, v.id);
    m->last = v.id;
    return v;
}

void manta_output_named(manta_model *m, const char *name, manta_value x)
{
    REFUSE_NULL_AND_RETURN(m);

    if (!open_for_building(m) || !is_value_of(m, x)) return;
    if (m->values[x.id].a.shape[0] != -1 || m->values[x.id].a.ndim < 1) {
        graph_fail(m, MANTA_EINVAL, "an output does not depend on any input");
        return;
    }
    for (int i = 0; name && i < m->n_outputs; i++) {
        if (m->outputs[i].name && !strcmp(m->outputs[i].name, name)) {
            graph_fail(m, MANTA_EEXIST, "two outputs are called '%s'", name);
            return;
        }
    }
    add_port(&m->outputs, &m->n_outputs, &m->cap_outputs, name, x.id);
}

void manta_output(manta_model *m, manta_value x)
{
    REFUSE_NULL_AND_RETURN(m);
    manta_output_named(m, NULL, x);
}

/* ---- nodes ---- */

static manta_value add_node(manta_model *m, int layer, const manta_op *op, const void *attrs, int n,
                            const manta_value *x)
{
    const char *who = layer >= 0 ? m->layers[layer]->name : op->name;
    manta_array in[MANTA_OP_MAX_IN];
    manta_op_shape s = {.attrs = attrs, .n_in = n, .in = in, .n_out = 1};
    graph_node *node;
    manta_status st;

    if (!open_for_building(m)) return invalid;
    if (n < 1 || n > MANTA_OP_MAX_IN) {
        graph_fail(m, MANTA_EINVAL, "%s: %d inputs, expected 1 to %d", who, n, MANTA_OP_MAX_IN);
        return invalid;
    }
    for (int i = 0; i < n; i++) {
        if (!is_value_of(m, x[i])) return invalid;
        in[i] = m->values[x[i].id].a;
    }
    for (int i = 0; i < MANTA_OP_MAX_OUT; i++) {
        s.out[i] = in[0];
        s.out[i].dtype = MANTA_DTYPE_F32;
    }
    if ((st = op->shape(&s))) {
        graph_fail(m, st, "layer '%s': %s", who, manta_error_text());
        return invalid;
    }
    for (int i = 0; i < s.n_out; i++) {
        char given[96];
        if (can_be_counted(s.out[i].ndim, s.out[i].shape)) continue;
        graph_fail(m, MANTA_EINVAL, "layer '%s': its output has the shape %s, expected at most 2^48 elements",
                   who, manta_shape_text(s.out[i].ndim, s.out[i].shape, given, sizeof given));
        return invalid;
    }
    m->nodes = grow_array(m->nodes, m->n_nodes, &m->cap_nodes, sizeof *m->nodes);
    node = &m->nodes[m->n_nodes];
    *node = (graph_node){.op = op, .n_in = n, .n_out = s.n_out, .layer = layer};
    if (op->attrs_size) {
        node->attrs = mem_new(op->attrs_size);
        memcpy(node->attrs, attrs, op->attrs_size);
    }
    for (int i = 0; i < n; i++) node->in[i] = x[i].id;
    for (int i = 0; i < s.n_out; i++) {
        manta_array out = manta_array_of(s.out[i].dtype, s.out[i].ndim, s.out[i].shape, NULL);
        manta_value v = add_value(m, &out);
        m->values[v.id].node = m->n_nodes;
        m->values[v.id].output = i;
        node->out[i] = v.id;
    }
    m->n_nodes++;
    return (manta_value){node->out[0]};
}

manta_value manta_apply(manta_model *m, const manta_op *op, const void *attrs, int n, const manta_value *x)
{
    REFUSE_NULL_OR(m, invalid);
    GRAPH_REFUSE_NULL(m, op, invalid);
    if (n > 0) GRAPH_REFUSE_NULL(m, x, invalid);

    manta_value v = add_node(m, -1, op, attrs, n, x);

    m->sequential = false;
    if (v.id >= 0) m->last = v.id;
    return v;
}

/* ---- layers ---- */

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
    m->layers = grow_array(m->layers, m->n_layers, &m->cap_layers, sizeof *m->layers);
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
    REFUSE_NULL_OR(l, invalid);
    GRAPH_REFUSE_NULL(l->model, op, invalid);
    if (n > 0) GRAPH_REFUSE_NULL(l->model, x, invalid);
    return add_node(l->model, l->index, op, attrs, n, x);
}

static manta_value add_variable(manta_layer *l, char *name, const graph_variable *like)
{
    manta_model *m = l->model;
    manta_array a = manta_array_of(MANTA_DTYPE_F32, like->ndim, like->shape, NULL);
    manta_value v = add_value(m, &a);
    graph_variable *g;

    m->variables = grow_array(m->variables, m->n_variables, &m->cap_variables, sizeof *m->variables);
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
    REFUSE_NULL_OR(l, invalid);
    GRAPH_REFUSE_NULL(l->model, name, invalid);
    if (ndim > 0) GRAPH_REFUSE_NULL(l->model, shape, invalid);

    manta_model *m = l->model;
    graph_variable like = {.ndim = ndim, .init = init, .fan_in = fan_in, .reg = reg, .trainable = trainable};
    char *full, given[96], expected[96];
    manta_array all;

    if (!open_for_building(m)) return invalid;
    if (ndim < 0 || ndim > MANTA_MAX_DIMS) {
        graph_fail(m, MANTA_EINVAL, "layer '%s': weight '%s' has %d dimensions, expected 0 to %d", l->name,
                   name, ndim, MANTA_MAX_DIMS);
        return invalid;
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
        return invalid;
    }
    memcpy(like.shape, shape, (size_t)ndim * sizeof *shape);
    all = manta_array_of(MANTA_DTYPE_F32, ndim, shape, NULL);
    if (!can_be_counted(ndim, shape) ||
        manta_model_params(m, false) > MOST_ELEMENTS - manta_array_count(&all)) {
        mem_free(full);
        graph_fail(m, MANTA_EINVAL, "layer '%s': with its %s of shape %s there are more than 2^48 weights",
                   l->name, name, manta_shape_text(ndim, shape, given, sizeof given));
        return invalid;
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
        y = add_node(m, l->index, n->op, n->attrs, n->n_in, x);
        for (int j = 0; j < n->n_out && y.id >= 0; j++) map[n->out[j]].id = m->nodes[m->n_nodes - 1].out[j];
    }
    for (int i = 0; i < inner->n_outputs; i++)
        out[i] = m->error.code ? invalid : map[inner->outputs[i].value];
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
    m->calls = grow_array(m->calls, m->n_calls, &m->cap_calls, sizeof *m->calls);
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

    for (int i = 0; i < n_out; i++) out[i] = invalid;
    if (!open_for_building(m)) return;
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
        if (!is_value_of(m, in[i])) return;
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
    manta_value out = invalid;
    manta_status st;

    if (!open_for_building(m)) return invalid;
    if (l->model != m) {
        graph_fail(m, MANTA_EINVAL, "layer '%s' belongs to model '%s'", l->name, l->model->name);
        return invalid;
    }
    if (l->inner) {
        manta_call_nested(m, l, n, x, 1, &out);
        return out;
    }
    for (int i = 0; i < n; i++) {
        if (!is_value_of(m, x[i])) return invalid;
    }
    st = l->cls->call(l, l->options, n, x, &out);
    if (st) graph_fail(m, st, "layer '%s': %s", l->name, manta_error_text());
    if (m->error.code) return invalid;
    part_from_inputs(l, n, x, 1, &out);
    add_call(l, n, x, 1, &out);
    l->last = m->last = out.id;
    return out;
}

manta_value manta_call_n(manta_model *m, manta_layer *l, int n, const manta_value *x)
{
    REFUSE_NULL_OR(m, invalid);
    GRAPH_REFUSE_NULL(m, l, invalid);
    if (n > 0) GRAPH_REFUSE_NULL(m, x, invalid);

    m->sequential = false;
    return call_layer(m, l, n, x);
}

manta_value manta_call(manta_model *m, manta_layer *l, manta_value x)
{
    REFUSE_NULL_OR(m, invalid);
    GRAPH_REFUSE_NULL(m, l, invalid);
    return manta_call_n(m, l, 1, &x);
}

manta_value manta_model_add(manta_model *m, manta_layer *l)
{
    REFUSE_NULL_OR(m, invalid);
    GRAPH_REFUSE_NULL(m, l, invalid);

    manta_value x = {m->last};

    if (m->last < 0 && !m->error.code) {
        graph_fail(m, MANTA_EINVAL, "layer '%s' is added before any input", l->name);
    }
    return m->error.code ? invalid : call_layer(m, l, 1, &x);
}

manta_status manta_model_build(manta_model *m)
{
    REFUSE_NULL(m);

    if (!m->error.code && !m->built) {
        if (!m->n_inputs) graph_fail(m, MANTA_EINVAL, "it has no input, expected at least one");
        if (!m->error.code && !m->n_outputs && m->last >= 0) manta_output(m, (manta_value){m->last});
        if (!m->error.code && !m->n_outputs)
            graph_fail(m, MANTA_EINVAL, "it has no output, expected at least one");
    }
    if (m->error.code) return manta_error_raise(&m->error);
    m->built = true;
    return MANTA_OK;
}

/* ---- reading ---- */

int manta_model_inputs(const manta_model *m)
{
    REFUSE_NULL_OR(m, 0);
    return m->n_inputs;
}

int manta_model_outputs(const manta_model *m)
{
    REFUSE_NULL_OR(m, 0);
    return m->n_outputs;
}

static manta_array port_array(const manta_model *m, const graph_port *ports, int n, int i, const char **name)
{
    if (i < 0 || i >= n) return (manta_array){0};
    if (name) *name = ports[i].name;
    return m->values[ports[i].value].a;
}

manta_array manta_model_input(const manta_model *m, int i, const char **name)
{
    REFUSE_NULL_OR(m, (manta_array){0});
    return port_array(m, m->inputs, m->n_inputs, i, name);
}

manta_array manta_model_output(const manta_model *m, int i, const char **name)
{
    REFUSE_NULL_OR(m, (manta_array){0});
    return port_array(m, m->outputs, m->n_outputs, i, name);
}

int manta_model_variables(const manta_model *m)
{
    REFUSE_NULL_OR(m, 0);
    return m->n_variables;
}

manta_variable_info manta_model_variable(const manta_model *m, int i)
{
    REFUSE_NULL_OR(m, (manta_variable_info){0});

    if (i < 0 || i >= m->n_variables) return (manta_variable_info){0};
    const graph_variable *g = &m->variables[i];
    manta_variable_info info = {.name = g->name,
                                .layer = m->layers[g->layer]->name,
                                .ndim = g->ndim,
                                .trainable = g->trainable,
                                .frozen = graph_variable_frozen(m, g)};

    memcpy(info.shape, g->shape, sizeof info.shape);
    return info;
}

int manta_model_layers(const manta_model *m)
{
    REFUSE_NULL_OR(m, 0);
    return m->n_layers;
}

manta_layer_info manta_model_layer(const manta_model *m, int i)
{
    REFUSE_NULL_OR(m, (manta_layer_info){0});

    if (i < 0 || i >= m->n_layers) return (manta_layer_info){0};
    const manta_layer *l = m->layers[i];
    manta_layer_info info = {.name = l->name, .frozen = l->frozen};

    info.class_name = l->cls ? l->cls->name : l->inner->sequential ? "Sequential" : "Functional";
    for (int j = 0; j < l->n_variables; j++) info.params += m->variables[l->variables[j]].count;
    if (l->last >= 0) {
        info.ndim = m->values[l->last].a.ndim;
        memcpy(info.shape, m->values[l->last].a.shape, sizeof info.shape);
    }
    return info;
}

int64_t manta_model_params(const manta_model *m, bool trainable_only)
{
    REFUSE_NULL_OR(m, 0);

    int64_t n = 0;

    for (int i = 0; i < m->n_variables; i++) {
        const graph_variable *g = &m->variables[i];
        if (!trainable_only || (g->trainable && !graph_variable_frozen(m, g))) n += g->count;
    }
    return n;
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
    if (!n) return manta_fail(MANTA_ENOENT, "model '%s' has no layer that matches '%s'", m->name, pattern);
    return MANTA_OK;
}
