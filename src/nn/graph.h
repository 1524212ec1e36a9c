/* nn/graph.h - the inside of a model: values, nodes, variables, layers.
 *
 * Invariants of a built model that planner, layout and files rely on:
 *   1. Nodes are in topological order: a node's inputs come from earlier nodes,
 *      model inputs or variables.
 *   2. An activation has the batch as dimension 0, written -1; a variable has
 *      no -1.
 *   3. Variables are numbered layer by layer in order of creation, within a
 *      layer in the order the layer asked for them. */
#ifndef NN_GRAPH_H
#define NN_GRAPH_H

#include <manta/layer.h>
#include <manta/model.h>

typedef struct graph_value {
    manta_array a; /* dtype and shape; no data */
    int node, output; /* producer and which of its outputs, node -1: none */
    int variable, input; /* index, -1: it is none */
} graph_value;

typedef struct graph_variable {
    char *name; /* "conv2d/kernel" */
    int layer, value;
    int ndim;
    int64_t shape[MANTA_MAX_DIMS], count;
    manta_initializer init;
    int64_t fan_in; /* 0: by the shape */
    manta_regularizer reg;
    bool trainable; /* whether the variable is a weight by nature; freezing is the layer's */
    bool frozen; /* whether the layer inside a nested model froze it */
} graph_variable;

typedef struct graph_node {
    const manta_op *op;
    void *attrs;
    int n_in, in[MANTA_OP_MAX_IN];
    int n_out, out[MANTA_OP_MAX_OUT];
    int layer; /* -1: applied directly */
} graph_node;

/* One call of a layer, for files: what the layer was given and what it gave. A
 * layer that does nothing may give the value it was given. */
typedef struct graph_call {
    int layer;
    int n_in, n_out;
    int *values; /* n_in values, then n_out */
} graph_call;

struct manta_layer {
    manta_model *model; /* borrowed: the owner */
    int index;
    char *name;
    const manta_layer_class *cls; /* NULL for a nested model */
    void *options;
    manta_model *inner; /* a nested model (one reference held), or NULL */
    bool frozen;
    int calls;
    int n_variables, *variables; /* indices into the model's variables, in order of creation */
    int last; /* value of its last call, -1 */
};

typedef struct graph_port {
    char *name; /* NULL: unnamed output */
    int value;
} graph_port;

struct manta_model {
    char *name;
    int refs;
    bool built, sequential; /* sequential: made only by manta_model_add() */
    manta_error error; /* code 0: none */
    int last; /* value manta_model_add() goes on from, -1 */
    graph_value *values;
    int n_values, cap_values;
    graph_node *nodes;
    int n_nodes, cap_nodes;
    graph_call *calls;
    int n_calls, cap_calls; /* the calls of layers, in order */
    graph_variable *variables;
    int n_variables, cap_variables;
    manta_layer **layers;
    int n_layers, cap_layers;
    graph_port *inputs, *outputs;
    int n_inputs, cap_inputs, n_outputs, cap_outputs;
};

/* Latches an error in the model, unless one is latched already. */
void graph_fail(manta_model *m, manta_status code, const char *fmt, ...) MANTA_PRINTF(3, 4);

/* Latches that an argument is NULL, so that manta_model_build() tells of it, and returns `value` (base/args.h). */
#define GRAPH_REFUSE_NULL(m, p, ...)                                                                         \
    do {                                                                                                     \
        if (!(p)) {                                                                                          \
            graph_fail((m), MANTA_EINVAL, "%s: %s is NULL", __func__, #p);                                   \
            return __VA_ARGS__;                                                                              \
        }                                                                                                    \
    } while (0)
void graph_latch(manta_model *m, manta_status code); /* keeps the code with this thread's last sentence */

bool graph_variable_frozen(const manta_model *m, const graph_variable *v);
/* Whether training runs the node as inference does: it proposes statistics that are frozen. */
bool graph_node_frozen(const manta_model *m, const graph_node *n);

/* Sets needed[value] where some output depends on it; a node runs when one of
 * its results is needed. `needed` has n_values places, all false. */
void graph_mark_needed(const manta_model *m, bool *needed);
bool graph_node_needed(const graph_node *n, const bool *needed);

/* Class name to Keras's layer name: "Conv2D" -> "conv2d". buf at least 2 * strlen + 1. */
void graph_snake_case(const char *class_name, char *buf);

#endif
