/* keras_tree.h - a model as Keras sees it: its layers in Keras's order, with
 * the names its weights go by in a file.
 *
 * Keras addresses weights by class and order ("conv2d_1/vars/0"), not by layer
 * name. The order is that of the list for a Sequential; for a Functional it is
 * the depth of a layer below the outputs, largest first, and among equals the
 * order in which a walk from the outputs meets them. */
#ifndef FORMAT_KERAS_KERAS_TREE_H
#define FORMAT_KERAS_KERAS_TREE_H

#include "base/vec.h"
#include "nn/graph.h"

typedef struct keras_tree keras_tree;

/* One layer, or one input, or one operation that was applied without a layer. */
typedef struct keras_item {
    int layer; /* index of the model's layer, -1: none */
    int input; /* -1: none */
    int node; /* operation applied directly, -1: none */
    char *group; /* "conv2d_1", NULL for what has no group: operations, a Sequential's input */
    keras_tree *inner; /* the tree of a nested model */
    VEC(int) calls; /* indices of the model's calls that lead to an output, in order */
} keras_item;

/* Where a value of the model comes from: which item, which of its calls, which result. */
typedef struct keras_source {
    int item, call, tensor; /* item -1: from nowhere outside a call */
} keras_source;

struct keras_tree {
    const manta_model *model; /* borrowed */
    bool sequential;
    VEC(keras_item) items; /* in Keras's order */
    keras_source *sources; /* where each value comes from */
};

/* The model must be built. Never NULL; give back with keras_tree_free(). */
keras_tree *keras_tree_new(const manta_model *m);
void keras_tree_free(keras_tree *t); /* accepts NULL */

/* The class name of an item: "InputLayer", "Conv2D", "Functional". */
const char *keras_item_class(const keras_tree *t, const keras_item *i);
/* Its name. */
const char *keras_item_name(const keras_tree *t, const keras_item *i);

/* A variable with its place in a file. */
typedef struct keras_variable {
    char *path; /* "layers/conv2d_1/vars/0" */
    char *name; /* "conv2d_5/kernel", as the model calls it */
    int variable; /* index of the model's variable */
    bool trains; /* trainable and not frozen: the optimizer keeps something for it */
} keras_variable;

typedef VEC(keras_variable) keras_variables;
typedef VEC(char *) keras_groups;

/* All variables in Keras's order (within a layer the trainable ones first), and
 * the groups that Keras makes ("layers/conv2d_1/vars"; groups may be NULL). */
void keras_tree_variables(const keras_tree *t, keras_variables *out, keras_groups *groups);
void keras_variables_release(keras_variables *v);
void keras_groups_release(keras_groups *g);

#endif
