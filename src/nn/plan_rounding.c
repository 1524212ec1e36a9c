/* plan_rounding.c - what a plan in mixed precision rounds to bfloat16.
 *
 *     value                                          in memory
 *     ------------------------------------------     -----------------------
 *     weights, statistics, their gradients           float32
 *     inputs of the model                            as they are given
 *     outputs of the model, what losses and          float32
 *       metrics look at, the logits behind a
 *       softmax or sigmoid that is an output
 *     gradients that losses write                    float32
 *     all other results of operations, and           rounded to bfloat16
 *       gradients of values that operations write
 *
 * Rounding twice is rounding once, so an operation whose results are copies of
 * rounded numbers (or zeros) is not followed by a pass that rounds. */
#include "base/mem.h"
#include "nn/ops.h"
#include "nn/planner.h"

static bool is_relu_or_linear(const graph_node *g)
{
    const op_act_attrs *a = g->attrs;

    return g->op == &op_activation && (a->act == KERN_RELU || a->act == KERN_LINEAR);
}

static bool only_moves(const graph_node *g)
{
    return g->op == &op_permute || g->op == &op_concatenate || g->op == &op_zero_pad || g->op == &op_crop ||
           is_relu_or_linear(g);
}

/* Whether a result consists of numbers of the inputs, and zeros. */
static bool copies_forward(const graph_node *g)
{
    return only_moves(g) || g->op == &op_max_pool || g->op == &op_global_max_pool;
}

/* Whether the gradient of input j, not added to another, consists of numbers of the result's gradient, and zeros. */
static bool copies_backward(const plan_node *n, const graph_node *g, int j)
{
    if (n->accumulate[j]) return false;
    if (g->op == &op_max_pool) { /* windows that do not overlap */
        const op_pool_attrs *a = g->attrs;
        return a->kh <= a->sh && a->kw <= a->sw;
    }
    if (g->op == &op_add) return manta_array_count(&n->in[j]) == manta_array_count(&n->out[0]);
    return only_moves(g);
}

/* The values that stay float32, by their roots. */
static void mark_watched(const planner *pl, bool *watched)
{
    const manta_model *m = pl->m;

    for (int i = 0; i < m->n_outputs; i++) {
        int value = m->outputs[i].value, logits = objective_logits(m, value);
        watched[planner_value_root(pl, value)] = true;
        if (logits >= 0) watched[planner_value_root(pl, logits)] = true;
    }
    for (int i = 0; pl->o && i < pl->o->n_heads; i++)
        watched[planner_value_root(pl, pl->o->heads[i].value)] = true;
    for (int i = 0; pl->o && i < pl->o->n_metrics; i++)
        watched[planner_value_root(pl, pl->o->metrics[i].value)] = true;
}

/* Whether all activations that the node reads are rounded. */
static bool reads_rounded(const planner *pl, const graph_node *g, const bool *rounded)
{
    for (int j = 0; j < g->n_in; j++) {
        if (pl->m->values[g->in[j]].variable < 0 && !rounded[planner_value_root(pl, g->in[j])]) return false;
    }
    return true;
}

static void mark_results(planner *pl, const bool *watched, bool *rounded)
{
    for (int i = 0; i < pl->n; i++) {
        plan_node *n = &pl->p->nodes[i];
        const graph_node *g = &pl->m->nodes[n->index];
        const bool copies = copies_forward(g) && reads_rounded(pl, g, rounded);
        if (n->view) continue;
        for (int j = 0; j < g->n_out; j++) {
            const int root = planner_value_root(pl, g->out[j]);
            rounded[root] = n->out[j].dtype == MANTA_DTYPE_F32 && !watched[root];
            n->round_out[j] = rounded[root] && !copies;
        }
    }
}

/* Whether a loss writes the gradient of the value. */
static bool written_by_loss(const planner *pl, int value)
{
    for (int h = 0; h < pl->o->n_heads; h++) {
        if (planner_gradient_root(pl, pl->o->heads[h].value) == planner_gradient_root(pl, value)) return true;
    }
    return false;
}

static void mark_gradients(planner *pl)
{
    for (int i = 0; i < pl->n; i++) {
        plan_node *n = &pl->p->nodes[i];
        const graph_node *g = &pl->m->nodes[n->index];
        bool exact = true; /* the gradients that the node is given are rounded */
        if (!n->backward) continue;
        for (int j = 0; j < g->n_out; j++) exact &= !written_by_loss(pl, g->out[j]);
        for (int j = 0; j < g->n_in; j++) {
            if (n->din_at[j].kind != PLACE_BLOCK || n->in[j].dtype != MANTA_DTYPE_F32) continue;
            n->round_din[j] = !(exact && copies_backward(n, g, j));
        }
    }
}

void planner_mark_rounding(planner *pl)
{
    bool *watched, *rounded;

    if (pl->k->precision != KERN_BF16) return;
    watched = mem_new((size_t)pl->m->n_values + 1);
    rounded = mem_new((size_t)pl->m->n_values + 1);
    mark_watched(pl, watched);
    mark_results(pl, watched, rounded);
    if (pl->p->mode == PLAN_TRAIN) mark_gradients(pl);
    mem_free(watched);
    mem_free(rounded);
}
