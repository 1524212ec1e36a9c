/* keras_tree.c - a model as Keras sees it.
 *
 * A node here is one call of a layer, one input, or one operation applied
 * directly. The order follows Keras's map_graph: nodes are listed when a walk
 * from the outputs leaves them, depths are handed from the list's end to the
 * parents, and a layer called several times takes its largest depth. */
#include "format/keras/keras_tree.h"

#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/mem.h"
#include "format/keras/keras_ops.h"
#include "nn/layer.h"

typedef struct tree_node {
    int owner; /* index of the layer, n_layers + input, n_layers + n_inputs + operation */
    int n_in;
    const int *in; /* values */
    int depth;
    bool seen, done;
} tree_node;

typedef struct walk {
    const manta_model *m;
    tree_node *nodes; /* calls, then inputs, then operations */
    int n;
    int *producer; /* value -> node, -1 */
    int *index; /* owner -> place in the walk, -1 unseen */
    int *depth; /* owner -> depth, -1 unseen */
    int n_owners, next;
    VEC(int) finished;
} walk;

static void walk_init(walk *w, const manta_model *m)
{
    *w = (walk){.m = m, .n = m->n_calls + m->n_inputs + m->n_nodes};
    w->nodes = mem_new((size_t)(w->n + 1) * sizeof *w->nodes);
    w->producer = mem_new((size_t)(m->n_values + 1) * sizeof *w->producer);
    w->n_owners = m->n_layers + m->n_inputs + m->n_nodes;
    w->index = mem_new((size_t)(w->n_owners + 1) * sizeof *w->index);
    w->depth = mem_new((size_t)(w->n_owners + 1) * sizeof *w->depth);
    for (int i = 0; i < m->n_values; i++) w->producer[i] = -1;
    for (int i = 0; i < w->n_owners; i++) w->index[i] = w->depth[i] = -1;
    for (int i = 0; i < m->n_nodes; i++) {
        int k = m->n_calls + m->n_inputs + i;
        w->nodes[k] = (tree_node){
            .owner = m->n_layers + m->n_inputs + i, .n_in = m->nodes[i].n_in, .in = m->nodes[i].in};
        if (m->nodes[i].layer >= 0) continue; /* inside a call */
        for (int j = 0; j < m->nodes[i].n_out; j++) w->producer[m->nodes[i].out[j]] = k;
    }
    for (int i = 0; i < m->n_calls; i++) {
        const graph_call *c = &m->calls[i];
        w->nodes[i] = (tree_node){.owner = c->layer, .n_in = c->n_in, .in = c->values};
        for (int j = 0; j < c->n_out; j++) w->producer[c->values[c->n_in + j]] = i;
    }
    for (int i = 0; i < m->n_inputs; i++) {
        w->nodes[m->n_calls + i] = (tree_node){.owner = m->n_layers + i};
        w->producer[m->inputs[i].value] = m->n_calls + i;
    }
}

static void walk_release(walk *w)
{
    mem_free(w->nodes);
    mem_free(w->producer);
    mem_free(w->index);
    mem_free(w->depth);
    vec_release(&w->finished);
}

/* Goes down from a node to what it is made of; a stack of our own, since a
 * model may be deeper than the thread's. */
static void descend_layers(walk *w, int root)
{
    struct step {
        int node, next;
    };
    VEC(struct step) stack = {0};

    if (root < 0 || w->nodes[root].seen) return;
    vec_push(&stack, (struct step){root, 0});
    while (stack.n) {
        struct step *s = &vec_last(&stack);
        tree_node *n = &w->nodes[s->node];
        int below = -1;

        if (!n->seen) {
            n->seen = true;
            if (w->index[n->owner] < 0) w->index[n->owner] = w->next++;
        }
        while (s->next < n->n_in && below < 0) {
            below = w->producer[n->in[s->next++]]; /* a variable has no producer */
            if (below >= 0 && w->nodes[below].seen) below = -1;
        }
        if (below >= 0) {
            vec_push(&stack, (struct step){below, 0});
            continue;
        }
        n->done = true;
        vec_push(&w->finished, s->node);
        (void)vec_pop(&stack);
    }
    vec_release(&stack);
}

static void spread_depths(walk *w)
{
    for (size_t i = w->finished.n; i-- > 0;) {
        tree_node *n = &w->nodes[w->finished.at[i]];
        if (w->depth[n->owner] > n->depth) n->depth = w->depth[n->owner];
        w->depth[n->owner] = n->depth;
        for (int k = 0; k < n->n_in; k++) {
            int p = w->producer[n->in[k]];
            if (p >= 0 && w->nodes[p].depth < n->depth + 1) w->nodes[p].depth = n->depth + 1;
        }
    }
}

static int by_depth(const void *x, const void *y, void *ctx)
{
    const walk *w = ctx;
    int a = *(const int *)x, b = *(const int *)y;

    if (w->depth[a] != w->depth[b]) return w->depth[a] > w->depth[b] ? -1 : 1;
    return w->index[a] < w->index[b] ? -1 : w->index[a] > w->index[b];
}

static void add_item(keras_tree *t, int layer, int input, int node)
{
    keras_item i = {.layer = layer, .input = input, .node = node};

    if (layer >= 0 && t->model->layers[layer]->inner) {
        i.inner = keras_tree_new(t->model->layers[layer]->inner);
    }
    vec_push(&t->items, i);
}

static void functional_items(keras_tree *t)
{
    const manta_model *m = t->model;
    VEC(int) order = {0};
    int *item_of = mem_new((size_t)(m->n_layers + 1) * sizeof *item_of);
    walk w;

    walk_init(&w, m);
    for (int i = 0; i < m->n_outputs; i++) descend_layers(&w, w.producer[m->outputs[i].value]);
    spread_depths(&w);
    for (int i = 0; i < m->n_inputs; i++) {
        int owner = m->n_layers + i;
        if (w.index[owner] < 0) w.depth[owner] = 0; /* unused: before all others of depth 0 */
        if (w.depth[owner] < 0) w.depth[owner] = 0;
    }
    for (int i = 0; i < w.n_owners; i++) {
        if (w.depth[i] >= 0) vec_push(&order, i);
    }
    if (order.n) qsort_r(order.at, order.n, sizeof *order.at, by_depth, &w);
    for (size_t i = 0; i < order.n; i++) {
        int o = order.at[i];
        if (o < m->n_layers) {
            item_of[o] = (int)t->items.n;
            add_item(t, o, -1, -1);
        } else if (o < m->n_layers + m->n_inputs) {
            add_item(t, -1, o - m->n_layers, -1);
        } else {
            add_item(t, -1, -1, o - m->n_layers - m->n_inputs);
        }
    }
    for (int c = 0; c < m->n_calls; c++) {
        if (w.nodes[c].seen) vec_push(&t->items.at[item_of[m->calls[c].layer]].calls, c);
    }
    mem_free(item_of);
    vec_release(&order);
    walk_release(&w);
}

/* Whether the model is one chain of layers, each used once. */
static bool is_sequential(const manta_model *m)
{
    if (!m->sequential || m->n_inputs != 1 || m->n_outputs != 1 || m->n_calls != m->n_layers) return false;
    for (int i = 0; i < m->n_calls; i++) {
        const graph_call *c = &m->calls[i];
        int before = i ? m->calls[i - 1].values[m->calls[i - 1].n_in] : m->inputs[0].value;
        if (c->layer != i || c->n_in != 1 || c->n_out != 1 || c->values[0] != before) return false;
    }
    return m->n_calls > 0 && m->outputs[0].value == m->calls[m->n_calls - 1].values[1];
}

/* "conv2d", "conv2d_1", ... within one container. */
static void name_groups(keras_tree *t)
{
    MAP(int) used = {0};

    for (size_t i = 0; i < t->items.n; i++) {
        keras_item *item = &t->items.at[i];
        const char *class = keras_item_class(t, item);
        char *base;
        int *n;
        if (item->node >= 0 || (item->input >= 0 && t->sequential)) continue;
        if (item->layer >= 0 && keras_op_is(t->model->layers[item->layer]->cls)) continue;
        base = mem_new(2 * strlen(class) + 1);
        graph_snake_case(class, base);
        n = map_put(&used, base);
        item->group = *n ? mem_printf("%s_%d", base, *n) : mem_strdup(base);
        ++*n;
        mem_free(base);
    }
    map_release(&used);
}

static void find_sources(keras_tree *t)
{
    const manta_model *m = t->model;

    t->sources = mem_new((size_t)(m->n_values + 1) * sizeof *t->sources);
    for (int i = 0; i < m->n_values; i++) t->sources[i] = (keras_source){-1, 0, 0};
    for (size_t i = 0; i < t->items.n; i++) {
        const keras_item *item = &t->items.at[i];
        if (item->input >= 0) t->sources[m->inputs[item->input].value] = (keras_source){(int)i, 0, 0};
        for (size_t k = 0; k < item->calls.n; k++) {
            const graph_call *c = &m->calls[item->calls.at[k]];
            for (int j = c->n_out - 1; j >= 0; j--) {
                t->sources[c->values[c->n_in + j]] = (keras_source){(int)i, (int)k, j};
            }
        }
        for (int j = 0; item->node >= 0 && j < m->nodes[item->node].n_out; j++) {
            t->sources[m->nodes[item->node].out[j]] = (keras_source){(int)i, 0, j};
        }
    }
}

keras_tree *keras_tree_new(const manta_model *m)
{
    keras_tree *t = mem_new(sizeof *t);

    t->model = m;
    t->sequential = is_sequential(m);
    if (t->sequential) {
        add_item(t, -1, 0, -1);
        for (int i = 0; i < m->n_layers; i++) {
            add_item(t, i, -1, -1);
            vec_push(&vec_last(&t->items).calls, i);
        }
    } else {
        functional_items(t);
    }
    name_groups(t);
    find_sources(t);
    return t;
}

void keras_tree_free(keras_tree *t)
{
    if (!t) return;
    for (size_t i = 0; i < t->items.n; i++) {
        mem_free(t->items.at[i].group);
        keras_tree_free(t->items.at[i].inner);
        vec_release(&t->items.at[i].calls);
    }
    vec_release(&t->items);
    mem_free(t->sources);
    mem_free(t);
}

const char *keras_item_class(const keras_tree *t, const keras_item *i)
{
    const manta_layer *l;

    if (i->input >= 0) return "InputLayer";
    if (i->node >= 0) return t->model->nodes[i->node].op->name;
    l = t->model->layers[i->layer];
    if (l->cls) return l->cls->name;
    return i->inner->sequential ? "Sequential" : "Functional";
}

const char *keras_item_name(const keras_tree *t, const keras_item *i)
{
    if (i->input >= 0) return t->model->inputs[i->input].name;
    if (i->node >= 0) return t->model->nodes[i->node].op->name;
    return t->model->layers[i->layer]->name;
}

/* ---- variables ---- */

/* Variables of a tree inside others: `path` and `outer` (indices of its variables in the whole
 * model, NULL when it is the whole). */
static void add_variables(const keras_tree *t, const manta_model *whole, const char *path, const int *outer,
                          keras_variables *out, keras_groups *groups)
{
    for (size_t i = 0; i < t->items.n; i++) {
        const keras_item *item = &t->items.at[i];
        const manta_layer *l = item->layer >= 0 ? t->model->layers[item->layer] : NULL;
        int *mine = NULL, k = 0;
        char *here;

        if (!item->group) continue;
        here = mem_printf("%slayers/%s/", path, item->group);
        if (groups) vec_push(groups, mem_printf("%svars", here));
        if (l && l->n_variables) {
            mine = mem_new((size_t)l->n_variables * sizeof *mine);
            for (int v = 0; v < l->n_variables; v++)
                mine[v] = outer ? outer[l->variables[v]] : l->variables[v];
        }
        if (item->inner) {
            add_variables(item->inner, whole, here, mine, out, groups);
        } else {
            for (int pass = 0; pass < 2; pass++) {
                for (int v = 0; l && v < l->n_variables; v++) {
                    const graph_variable *g = &whole->variables[mine[v]];
                    if (g->trainable != (pass == 0)) continue;
                    vec_push(out,
                             (keras_variable){.path = mem_printf("%svars/%d", here, k++),
                                              .name = mem_strdup(g->name),
                                              .variable = mine[v],
                                              .trains = g->trainable && !graph_variable_frozen(whole, g)});
                }
            }
        }
        mem_free(mine);
        mem_free(here);
    }
    if (groups) vec_push(groups, mem_printf("%svars", path));
}

void keras_tree_variables(const keras_tree *t, keras_variables *out, keras_groups *groups)
{
    add_variables(t, t->model, "", NULL, out, groups);
}

void keras_variables_release(keras_variables *v)
{
    for (size_t i = 0; i < v->n; i++) {
        mem_free(v->at[i].path);
        mem_free(v->at[i].name);
    }
    vec_release(v);
}

void keras_groups_release(keras_groups *g)
{
    for (size_t i = 0; i < g->n; i++) mem_free(g->at[i]);
    vec_release(g);
}
