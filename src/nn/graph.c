/* graph.c - building a model: its life, inputs and outputs, nodes.
 *
 * The model is filled front to back, so nodes are in topological order by
 * construction. Every builder checks the latched error first and does nothing
 * once there is one: a chain of twenty calls needs one check at its end. */
#include "nn/graph_build.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "nn/layer.h"

void *graph_grow(void *array, int n, int *cap, size_t size)
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

bool graph_is_open(manta_model *m)
{
    if (m->error.code) return false;
    if (m->built) graph_fail(m, MANTA_EINVAL, "it is built already and cannot be changed");
    return !m->built;
}

bool graph_has_value(manta_model *m, manta_value x)
{
    if (x.id >= 0 && x.id < m->n_values) return true;
    graph_fail(m, MANTA_EINVAL, "a value that is not of this model was used");
    return false;
}

bool graph_can_count(int ndim, const int64_t *shape)
{
    int64_t n = 1;

    for (int i = 0; i < ndim; i++) {
        if (shape[i] == -1) continue;
        if (shape[i] < 0 || __builtin_mul_overflow(n, shape[i], &n) || n > GRAPH_MOST_ELEMENTS) return false;
    }
    return true;
}

manta_value graph_add_value(manta_model *m, const manta_array *a)
{
    graph_value *v;

    m->values = graph_grow(m->values, m->n_values, &m->cap_values, sizeof *m->values);
    v = &m->values[m->n_values];
    *v = (graph_value){.a = *a, .node = -1, .variable = -1, .input = -1};
    v->a.data = NULL;
    return (manta_value){m->n_values++};
}

static graph_port *add_port(graph_port **ports, int *n, int *cap, const char *name, int value)
{
    *ports = graph_grow(*ports, *n, cap, sizeof **ports);
    (*ports)[*n] = (graph_port){.name = name ? mem_strdup(name) : NULL, .value = value};
    return &(*ports)[(*n)++];
}

/* ---- inputs and outputs ---- */

manta_value manta_input(manta_model *m, const char *name, manta_dtype t, int ndim, const int64_t *shape)
{
    REFUSE_NULL_OR(m, graph_no_value);
    if (ndim > 0) GRAPH_REFUSE_NULL(m, shape, graph_no_value);

    int64_t full[MANTA_MAX_DIMS] = {-1};
    char text[24];
    manta_array a;
    manta_value v;

    if (!graph_is_open(m)) return graph_no_value;
    if (ndim < 0 || ndim >= MANTA_MAX_DIMS) {
        graph_fail(m, MANTA_EINVAL, "an input has %d dimensions, expected 0 to %d", ndim, MANTA_MAX_DIMS - 1);
        return graph_no_value;
    }
    for (int i = 0; i < ndim; i++) {
        if (shape[i] < 1) {
            graph_fail(m, MANTA_EINVAL, "dimension %d of input '%s' is %lld, expected at least 1", i,
                       name ? name : "", (long long)shape[i]);
            return graph_no_value;
        }
        full[i + 1] = shape[i];
    }
    if ((int)t < 0 || t >= MANTA_DTYPE_COUNT) {
        graph_fail(m, MANTA_EINVAL, "input '%s' has the dtype %d, expected 0 to %d", name ? name : "", (int)t,
                   MANTA_DTYPE_COUNT - 1);
        return graph_no_value;
    }
    if (!graph_can_count(ndim, shape)) {
        graph_fail(m, MANTA_EINVAL, "a sample of input '%s' has more than 2^48 elements", name ? name : "");
        return graph_no_value;
    }
    snprintf(text, sizeof text, m->n_inputs ? "input_%d" : "input", m->n_inputs);
    a = manta_array_of(t, ndim + 1, full, NULL);
    v = graph_add_value(m, &a);
    m->values[v.id].input = m->n_inputs;
    add_port(&m->inputs, &m->n_inputs, &m->cap_inputs, name ? name : text, v.id);
    m->last = v.id;
    return v;
}

void manta_output_named(manta_model *m, const char *name, manta_value x)
{
    REFUSE_NULL_AND_RETURN(m);

    if (!graph_is_open(m) || !graph_has_value(m, x)) return;
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

manta_value graph_add_node(manta_model *m, int layer, const manta_op *op, const void *attrs, int n,
                           const manta_value *x)
{
    const char *who = layer >= 0 ? m->layers[layer]->name : op->name;
    manta_array in[MANTA_OP_MAX_IN];
    manta_op_shape s = {.attrs = attrs, .n_in = n, .in = in, .n_out = 1};
    graph_node *node;
    manta_status st;

    if (!graph_is_open(m)) return graph_no_value;
    if (n < 1 || n > MANTA_OP_MAX_IN) {
        graph_fail(m, MANTA_EINVAL, "%s: %d inputs, expected 1 to %d", who, n, MANTA_OP_MAX_IN);
        return graph_no_value;
    }
    for (int i = 0; i < n; i++) {
        if (!graph_has_value(m, x[i])) return graph_no_value;
        in[i] = m->values[x[i].id].a;
    }
    for (int i = 0; i < MANTA_OP_MAX_OUT; i++) {
        s.out[i] = in[0];
        s.out[i].dtype = MANTA_DTYPE_F32;
    }
    if ((st = op->shape(&s))) {
        graph_fail(m, st, "layer '%s': %s", who, manta_error_text());
        return graph_no_value;
    }
    for (int i = 0; i < s.n_out; i++) {
        char given[96];
        if (graph_can_count(s.out[i].ndim, s.out[i].shape)) continue;
        graph_fail(m, MANTA_EINVAL, "layer '%s': its output has the shape %s, expected at most 2^48 elements",
                   who, manta_shape_text(s.out[i].ndim, s.out[i].shape, given, sizeof given));
        return graph_no_value;
    }
    m->nodes = graph_grow(m->nodes, m->n_nodes, &m->cap_nodes, sizeof *m->nodes);
    node = &m->nodes[m->n_nodes];
    *node = (graph_node){.op = op, .n_in = n, .n_out = s.n_out, .layer = layer};
    if (op->attrs_size) {
        node->attrs = mem_new(op->attrs_size);
        memcpy(node->attrs, attrs, op->attrs_size);
    }
    for (int i = 0; i < n; i++) node->in[i] = x[i].id;
    for (int i = 0; i < s.n_out; i++) {
        manta_array out = manta_array_of(s.out[i].dtype, s.out[i].ndim, s.out[i].shape, NULL);
        manta_value v = graph_add_value(m, &out);
        m->values[v.id].node = m->n_nodes;
        m->values[v.id].output = i;
        node->out[i] = v.id;
    }
    m->n_nodes++;
    return (manta_value){node->out[0]};
}

manta_value manta_apply(manta_model *m, const manta_op *op, const void *attrs, int n, const manta_value *x)
{
    REFUSE_NULL_OR(m, graph_no_value);
    GRAPH_REFUSE_NULL(m, op, graph_no_value);
    if (n > 0) GRAPH_REFUSE_NULL(m, x, graph_no_value);

    manta_value v = graph_add_node(m, -1, op, attrs, n, x);

    m->sequential = false;
    if (v.id >= 0) m->last = v.id;
    return v;
}

/* ---- the end of building ---- */

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
