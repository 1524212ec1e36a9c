/* plan_gradients.c - gradients in a plan: who writes them, where they lie, and what
 * backward passes keep alive.
 *
 *   1. planner_count_sources(): how many nodes and heads write each gradient
 *   2. planner_alias_views(): gradients that are the same memory as another
 *   3. the losses write theirs (plan.c), then planner_place_backward() goes from
 *      the last node to the first
 *
 * The first to write a gradient overwrites it, all others add: `written` counts
 * them in the order in which they will run. */
#include "nn/ops.h"
#include "nn/planner.h"

static int backward_tick(const planner *pl, int i)
{
    return 2 * pl->n - i;
}

int planner_gradient_root(const planner *pl, int value)
{
    while (pl->v[value].galias != value) value = pl->v[value].galias;
    return value;
}

static bool reaches_backward(const planner *pl, const graph_node *g)
{
    for (int j = 0; j < g->n_out; j++) {
        if (pl->v[planner_gradient_root(pl, g->out[j])].sources) return true;
    }
    return false;
}

void planner_count_sources(planner *pl)
{
    const manta_model *m = pl->m;

    for (int i = 0; i < m->n_values; i++) pl->v[i].galias = i;
    for (int i = 0; i < m->n_nodes; i++) { /* a fused relu's input has no gradient of its own */
        if (pl->dropped[i]) pl->v[m->nodes[i].in[0]].galias = m->nodes[i].out[0];
    }
    for (int h = 0; h < pl->o->n_heads; h++) {
        int value = pl->o->heads[h].value;
        if (pl->v[value].wants_grad) pl->v[planner_gradient_root(pl, value)].sources++;
    }
    for (int i = pl->n - 1; i >= 0; i--) {
        plan_node *n = &pl->p->nodes[i];
        const graph_node *g = &m->nodes[n->index];
        if (!g->op->backward || !reaches_backward(pl, g)) continue;
        for (int j = 0; j < g->n_in; j++) {
            if (!pl->v[g->in[j]].wants_grad) continue;
            n->backward = true;
            pl->v[planner_gradient_root(pl, g->in[j])].sources++;
        }
    }
}

void planner_alias_views(planner *pl)
{
    for (int i = pl->n - 1; i >= 0; i--) {
        plan_node *n = &pl->p->nodes[i];
        const graph_node *g = &pl->m->nodes[n->index];
        int in = planner_gradient_root(pl, g->in[0]), out = planner_gradient_root(pl, g->out[0]);
        if (!n->view || !n->backward) continue;
        if (pl->v[in].sources == 1 && pl->m->values[in].variable < 0) {
            pl->v[out].galias = in;
            pl->v[in].sources = pl->v[out].sources;
            n->backward = false;
        } else {
            n->add_view = true;
        }
    }
}

place planner_gradient_place(planner *pl, int value, int tick)
{
    int r = planner_gradient_root(pl, value);
    const graph_value *g = &pl->m->values[r];

    if (!pl->v[r].wants_grad || !pl->v[r].sources) return (place){0};
    if (g->variable >= 0) return planner_variable_place(pl, g->variable, true);
    if (pl->v[r].grad < 0) {
        manta_array a = planner_shape(pl, r);
        pl->v[r].grad = planner_piece(pl, manta_array_bytes(&a), tick);
    }
    planner_use(pl, pl->v[r].grad, tick);
    return planner_piece_place(pl->v[r].grad);
}

/* The node whose fused relu made this value, or NULL. */
static plan_node *relu_producer(planner *pl, int value)
{
    const graph_value *g = &pl->m->values[value];
    int producer;

    if (g->node < 0 || !pl->dropped[g->node]) return NULL;
    producer = pl->m->values[pl->m->nodes[g->node].in[0]].node;
    return pl->slot_of[producer] < 0 ? NULL : &pl->p->nodes[pl->slot_of[producer]];
}

/* When this node alone writes the gradient of a relu's result, it can mask it
 * while it is in its hands. */
static void fuse_mask(planner *pl, plan_node *n, const graph_node *g, int tick)
{
    int in = planner_gradient_root(pl, g->in[0]);
    plan_node *producer = relu_producer(pl, in);

    if (!producer || !(g->op->flags & OP_CAN_MASK) || pl->v[in].sources != 1) return;
    if (pl->m->nodes[producer->index].op->flags & OP_RELU_SELF) return;
    if (n->din_at[0].kind != PLACE_BLOCK) return;
    n->mask_at = planner_value_place(pl, in, tick);
    producer->relu_done = true;
}

void planner_place_backward(planner *pl, int i)
{
    plan_node *n = &pl->p->nodes[i];
    const graph_node *g = &pl->m->nodes[n->index];
    int tick = backward_tick(pl, i);

    for (int j = 0; j < g->n_out; j++) n->dout_at[j] = planner_gradient_place(pl, g->out[j], tick);
    for (int j = 0; j < g->n_in; j++) {
        int r = planner_gradient_root(pl, g->in[j]);
        if (!pl->v[g->in[j]].wants_grad) continue;
        n->din_at[j] = planner_gradient_place(pl, g->in[j], tick);
        n->accumulate[j] = pl->v[r].written++ > 0;
    }
    if (g->op->flags & OP_CAN_SINK && n->din_at[0].kind == PLACE_NONE) {
        n->back_flops /= 2; /* the first layer: nobody wants its input's gradient */
    }
    fuse_mask(pl, n, g, tick);
    if (g->n_in > 1 && (g->op->flags & OP_CAN_SINK) && n->din_at[1].kind == PLACE_SLOT &&
        pl->v[planner_gradient_root(pl, g->in[1])].sources == 1) {
        n->sinkable = true;
        n->sink_offset = (int64_t)(n->din_at[1].offset / sizeof(float));
    }
    for (int j = 0; j < g->n_in; j++) {
        if (g->op->flags & MANTA_OP_READS_INPUT(j)) planner_value_place(pl, g->in[j], tick);
    }
    for (int j = 0; j < g->n_out; j++) {
        bool reads = g->op->flags & MANTA_OP_READS_OUTPUT(j);
        if (reads || (j == 0 && n->relu && !n->relu_done)) planner_value_place(pl, g->out[j], tick);
    }
    if (n->saved_at.kind == PLACE_BLOCK) planner_use(pl, (int)n->saved_at.offset, tick);
    if (n->back_work_at.offset)
        n->back_work_at = planner_piece_place(planner_piece(pl, n->back_work_at.offset, tick));
}
