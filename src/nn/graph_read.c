/* graph_read.c - what a model tells of itself: to its users inputs and outputs,
 * variables, layers and counts; to the planner what is frozen and what is needed.
 * Nothing here changes the model. */
#include <string.h>

#include "base/args.h"
#include "nn/graph.h"

/* ---- to users ---- */

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

/* ---- to the planner ---- */

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
