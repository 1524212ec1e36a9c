/* nn/graph_build.h - a model while it is built, as graph.c and graph_layers.c see
 * it. Every function that cannot do what it is asked latches the error. */
#ifndef NN_GRAPH_BUILD_H
#define NN_GRAPH_BUILD_H

#include "nn/graph.h"

#define GRAPH_MOST_ELEMENTS ((int64_t)1 << 48) /* of a value, and of all weights together */

static const manta_value graph_no_value = {-1}; /* what a builder returns once there is an error */

/* Room for one more element behind n; returns the array. */
void *graph_grow(void *array, int n, int *cap, size_t size);

/* Whether building may go on; latches misuse of a built model. */
bool graph_is_open(manta_model *m);

/* Whether x is a value of the model; latches that it is not. */
bool graph_has_value(manta_model *m, manta_value x);

/* Whether an array of this shape, without the batch, is one that memory could ever hold: sums and products of such
 * counts, times the bytes of an element and the arrays of an optimizer, do not overflow. */
bool graph_can_count(int ndim, const int64_t *shape);

/* Adds a value of a's dtype and shape that nothing produces yet. */
manta_value graph_add_value(manta_model *m, const manta_array *a);

/* Adds a node that applies op to n values, in the name of a layer (-1: none). Returns its first result. */
manta_value graph_add_node(manta_model *m, int layer, const manta_op *op, const void *attrs, int n,
                           const manta_value *x);

#endif
