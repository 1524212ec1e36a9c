/* plan.c - the planner: what is needed and fused, nodes, values, and memory. See
 * plan.h for what it does, planner.h for how it counts time; gradients are in
 * plan_gradients.c. */
#include "nn/planner.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "nn/ops.h"

static bool is_relu(const graph_node *n)
{
    return n->op == &op_activation && ((const op_act_attrs *)n->attrs)->act == KERN_RELU;
}

static int forward_tick(int i)
{
    return i;
}

manta_array planner_shape(const planner *pl, int value)
{
    manta_array a = pl->m->values[value].a;

    if (a.ndim && a.shape[0] == -1) a.shape[0] = pl->p->batch;
    return manta_array_of(a.dtype, a.ndim, a.shape, NULL);
}

/* ---- pieces of memory ---- */

int planner_piece(planner *pl, size_t size, int tick)
{
    if (pl->n_pieces == pl->cap_pieces) {
        pl->cap_pieces *= 2;
        pl->pieces = mem_resize(pl->pieces, (size_t)pl->cap_pieces * sizeof *pl->pieces);
    }
    pl->pieces[pl->n_pieces] = (piece){.size = (size + 63) & ~(size_t)63, .from = tick, .to = tick};
    return pl->n_pieces++;
}

void planner_use(planner *pl, int i, int tick)
{
    if (i < 0) return;
    if (tick < pl->pieces[i].from) pl->pieces[i].from = tick;
    if (tick > pl->pieces[i].to) pl->pieces[i].to = tick;
}

place planner_piece_place(int i)
{
    return i < 0 ? (place){0} : (place){.kind = PLACE_BLOCK, .offset = (size_t)i};
}

static int by_size(const void *a, const void *b, void *pieces)
{
    const piece *x = (const piece *)pieces + *(const int *)a, *y = (const piece *)pieces + *(const int *)b;

    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return *(const int *)a - *(const int *)b;
}

static bool lifetimes_meet(const piece *a, const piece *b)
{
    return a->from <= b->to && b->from <= a->to;
}

/* Largest first, each at the lowest address where nothing alive with it lies. */
static void place_pieces(planner *pl)
{
    int *order = mem_new((size_t)(pl->n_pieces + 1) * sizeof *order);
    int n = 0;

    for (int i = 0; i < pl->n_pieces; i++) order[i] = i;
    qsort_r(order, (size_t)pl->n_pieces, sizeof *order, by_size, pl->pieces);
    for (; n < pl->n_pieces; n++) {
        piece *x = &pl->pieces[order[n]];
        bool moved = true;
        x->offset = 0;
        while (moved) {
            moved = false;
            for (int j = 0; j < n; j++) {
                const piece *y = &pl->pieces[order[j]];
                if (!lifetimes_meet(x, y) || x->offset >= y->offset + y->size ||
                    y->offset >= x->offset + x->size)
                    continue;
                x->offset = y->offset + y->size;
                moved = true;
            }
        }
        if (x->offset + x->size > pl->p->block_size) pl->p->block_size = x->offset + x->size;
    }
    mem_free(order);
}

static void settle_place(const planner *pl, place *at)
{
    if (at->kind == PLACE_BLOCK) at->offset = pl->pieces[at->offset].offset;
}

/* ---- what is needed, what is fused ---- */

static void mark_wanted(planner *pl)
{
    const manta_model *m = pl->m;

    if (pl->p->mode != PLAN_TRAIN) return;
    for (int i = 0; i < pl->l->n_params; i++) {
        pl->v[m->variables[pl->l->params[i].variable].value].wants_grad = true;
    }
    for (int i = 0; i < m->n_nodes; i++) {
        const graph_node *n = &m->nodes[i];
        bool wants = false;
        for (int j = 0; j < n->n_in; j++) wants |= pl->v[n->in[j]].wants_grad;
        for (int j = 0; wants && n->op->backward && j < n->n_out; j++) pl->v[n->out[j]].wants_grad = true;
    }
}

static int count_consumers(const planner *pl, int value)
{
    int n = 0;

    for (int i = 0; i < pl->m->n_nodes; i++) {
        const graph_node *g = &pl->m->nodes[i];
        if (!graph_node_needed(g, pl->needed)) continue;
        for (int j = 0; j < g->n_in; j++) n += g->in[j] == value;
    }
    return n;
}

/* Whether something outside the graph looks at the value. */
static bool is_watched(const planner *pl, int value)
{
    for (int i = 0; i < pl->m->n_outputs; i++) {
        if (pl->m->outputs[i].value == value) return true;
    }
    for (int i = 0; pl->o && i < pl->o->n_heads; i++) {
        if (pl->o->heads[i].value == value) return true;
    }
    return false;
}

/* A relu directly behind an operation that can apply it, and the only one to
 * see that operation's result, becomes part of it. */
static void fuse_relus(planner *pl)
{
    const manta_model *m = pl->m;

    for (int i = 0; i < m->n_nodes; i++) {
        const graph_node *r = &m->nodes[i];
        int producer = m->values[r->in[0]].node;
        if (!is_relu(r) || producer < 0 || !graph_node_needed(r, pl->needed)) continue;
        if (m->values[r->in[0]].output != 0) continue;
        if (!(m->nodes[producer].op->flags & OP_CAN_RELU) || pl->dropped[producer]) continue;
        if (count_consumers(pl, r->in[0]) != 1 || is_watched(pl, r->in[0])) continue;
        pl->dropped[i] = true;
        pl->v[r->in[0]].alias = r->out[0];
    }
}

/* Follows fused relus: the value a node of the plan really writes. */
static int result_of(const planner *pl, int value)
{
    const graph_value *g = &pl->m->values[value];
    int at = pl->v[value].alias;

    return at != value && g->node >= 0 && !pl->dropped[g->node] ? at : value;
}

/* ---- the nodes ---- */

static manta_status add_nodes(planner *pl)
{
    const manta_model *m = pl->m;
    plan *p = pl->p;

    for (int i = 0; i < m->n_nodes; i++) {
        const graph_node *g = &m->nodes[i];
        plan_node *n = &p->nodes[p->n_nodes];
        manta_op_plan op = {.attrs = g->attrs,
                            .threads = pl->threads,
                            .inner = &(manta_op_inner){.kernels = pl->k},
                            .n_in = g->n_in,
                            .n_out = g->n_out};

        pl->slot_of[i] = -1;
        if (!graph_node_needed(g, pl->needed) || pl->dropped[i]) continue;
        n->index = i;
        n->training = p->mode == PLAN_TRAIN && !graph_node_frozen(m, g);
        for (int j = 0; j < g->n_in; j++) n->in[j] = planner_shape(pl, g->in[j]);
        for (int j = 0; j < g->n_out; j++) n->out[j] = planner_shape(pl, g->out[j]);
        n->relu = result_of(pl, g->out[0]) != g->out[0];
        op.training = n->training;
        op.in = n->in;
        op.out = n->out;
        if (g->op->plan) {
            manta_status st = g->op->plan(&op);
            if (st) {
                return manta_fail(st, "layer '%s': %s",
                                  g->layer >= 0 ? m->layers[g->layer]->name : g->op->name,
                                  manta_error_text());
            }
        }
        n->view = op.view && !n->relu;
        n->flops = op.flops;
        n->back_flops = op.backward_flops > 0 ? op.backward_flops : 2 * op.flops;
        n->saved_at.offset = op.saved; /* sizes until the pieces are made */
        n->work_at.offset = op.work;
        if (n->view) pl->v[g->out[0]].alias = pl->v[g->in[0]].alias;
        pl->slot_of[i] = p->n_nodes++;
    }
    pl->n = p->n_nodes;
    return MANTA_OK;
}

int planner_value_root(const planner *pl, int value)
{
    while (pl->v[value].alias != value) value = pl->v[value].alias;
    return value;
}

place planner_variable_place(const planner *pl, int variable, bool in_slot)
{
    const layout *l = pl->l;
    int w = l->where[variable];
    size_t at = (size_t)(w >= 0 ? l->params[w].offset : l->stats[-1 - w].offset) * sizeof(float);

    if (in_slot) return (place){.kind = PLACE_SLOT, .offset = at + (w >= 0 ? 0 : l->slot_stats)};
    return (place){.kind = PLACE_STATE, .offset = at + (w >= 0 ? l->off_params : l->off_stats)};
}

place planner_value_place(planner *pl, int value, int tick)
{
    int r = planner_value_root(pl, value);
    const graph_value *g = &pl->m->values[r];

    if (g->variable >= 0) return planner_variable_place(pl, g->variable, false);
    if (g->input >= 0) return (place){.kind = PLACE_INPUT, .offset = (size_t)g->input};
    if (pl->v[r].piece < 0) {
        manta_array a = planner_shape(pl, r);
        pl->v[r].piece = planner_piece(pl, manta_array_bytes(&a), tick);
    }
    planner_use(pl, pl->v[r].piece, tick);
    return planner_piece_place(pl->v[r].piece);
}

/* Where the j-th input's new value goes when the node renews it. A layer called
 * twice renews its statistics twice, as in Keras: the second call starts from
 * what the first proposed. */
static void place_proposal(planner *pl, plan_node *n, int j, int variable, int proposal)
{
    int at = pl->l->where[variable];

    if (!n->training || at >= 0 || !pl->l->stats[-1 - at].proposed) return;
    n->proposed_at[proposal] = planner_variable_place(pl, variable, true);
    if (pl->renewed[variable]) n->in_at[j] = n->proposed_at[proposal];
    pl->renewed[variable] = true;
}

static void place_forward(planner *pl)
{
    for (int i = 0; i < pl->n; i++) {
        plan_node *n = &pl->p->nodes[i];
        const graph_node *g = &pl->m->nodes[n->index];
        int tick = forward_tick(i), proposals = 0;

        for (int j = 0; j < g->n_in; j++) {
            int variable = pl->m->values[g->in[j]].variable;
            n->in_at[j] = planner_value_place(pl, g->in[j], tick);
            if (variable < 0 || pl->m->variables[variable].trainable) continue;
            if (g->op->flags & MANTA_OP_PROPOSES) place_proposal(pl, n, j, variable, proposals);
            proposals++;
        }
        for (int j = 0; j < g->n_out; j++) n->out_at[j] = planner_value_place(pl, g->out[j], tick);
        if (n->work_at.offset) {
            size_t size = n->work_at.offset;
            n->work_at = planner_piece_place(planner_piece(pl, size, tick));
            if (pl->p->mode == PLAN_TRAIN) n->back_work_at.offset = size;
        }
        if (n->saved_at.offset)
            n->saved_at = planner_piece_place(planner_piece(pl, n->saved_at.offset, tick));
    }
}

/* ---- placing all ---- */

static void place_losses(planner *pl)
{
    plan *p = pl->p;

    for (int h = 0; h < pl->o->n_heads; h++) {
        const objective_head *head = &pl->o->heads[h];
        size_t rows = (size_t)(p->batch * head->inner);
        p->heads[h].pred_at = planner_value_place(pl, head->value, pl->n);
        p->heads[h].rows_at = planner_piece_place(planner_piece(pl, rows * sizeof(float), pl->n));
        if (p->mode == PLAN_TRAIN && pl->v[head->value].wants_grad) {
            /* Each head writes its gradient whole: objective_init() sees to it that no two look at one value. */
            p->heads[h].dpred_at = planner_gradient_place(pl, head->value, pl->n);
            pl->v[planner_gradient_root(pl, head->value)].written++;
        }
    }
    for (int i = 0; i < pl->o->n_metrics; i++)
        p->metric_at[i] = planner_value_place(pl, pl->o->metrics[i].value, pl->n);
}

static void place_all(planner *pl)
{
    plan *p = pl->p;
    int end = 2 * pl->n + 1;

    place_forward(pl);
    if (p->mode == PLAN_TRAIN) {
        planner_count_sources(pl);
        planner_alias_views(pl);
    }
    if (p->mode != PLAN_PREDICT) place_losses(pl);
    for (int i = pl->n - 1; p->mode == PLAN_TRAIN && i >= 0; i--) {
        if (p->nodes[i].backward) planner_place_backward(pl, i);
    }
    for (int i = 0; i < pl->m->n_outputs; i++)
        p->output_at[i] = planner_value_place(pl, pl->m->outputs[i].value, end);
    for (int i = 0; i < pl->m->n_inputs; i++) { /* in case the caller's dtype is another */
        manta_array a = planner_shape(pl, pl->m->inputs[i].value);
        int c = planner_piece(pl, manta_array_bytes(&a), 0);
        planner_use(pl, c, end);
        p->input_at[i] = planner_piece_place(c);
    }
    place_pieces(pl);
}

static void settle_all(planner *pl)
{
    plan *p = pl->p;

    for (int i = 0; i < p->n_nodes; i++) {
        plan_node *n = &p->nodes[i];
        for (int j = 0; j < MANTA_OP_MAX_IN; j++) {
            settle_place(pl, &n->in_at[j]);
            settle_place(pl, &n->din_at[j]);
        }
        for (int j = 0; j < MANTA_OP_MAX_OUT; j++) {
            settle_place(pl, &n->out_at[j]);
            settle_place(pl, &n->dout_at[j]);
        }
        settle_place(pl, &n->mask_at);
        settle_place(pl, &n->saved_at);
        settle_place(pl, &n->work_at);
        settle_place(pl, &n->back_work_at);
    }
    for (int h = 0; pl->o && h < pl->o->n_heads; h++) {
        settle_place(pl, &p->heads[h].pred_at);
        settle_place(pl, &p->heads[h].dpred_at);
        settle_place(pl, &p->heads[h].rows_at);
    }
    for (int i = 0; pl->o && i < pl->o->n_metrics; i++) settle_place(pl, &p->metric_at[i]);
    for (int i = 0; i < pl->m->n_outputs; i++) settle_place(pl, &p->output_at[i]);
    for (int i = 0; i < pl->m->n_inputs; i++) settle_place(pl, &p->input_at[i]);
}

/* Refuses a batch whose values no machine could hold, so that sums of their
 * sizes cannot overflow. */
static manta_status check_sizes(const manta_model *m, int64_t batch)
{
    for (int i = 0; i < m->n_values; i++) {
        const manta_array *a = &m->values[i].a;
        int64_t n = 1;
        for (int j = 0; j < a->ndim; j++) {
            if (__builtin_mul_overflow(n, a->shape[j] == -1 ? batch : a->shape[j], &n) || n > (int64_t)1
                                                                                                  << 44) {
                return manta_fail(MANTA_EINVAL,
                                  "model '%s': a batch of %lld makes arrays of more than 2^44 elements",
                                  m->name, (long long)batch);
            }
        }
    }
    return MANTA_OK;
}

/* Backward runs from the last node to the first. */
static void mark_open(const planner *pl)
{
    int64_t end = 0;

    for (int i = 0; i < pl->p->n_nodes; i++) {
        plan_node *n = &pl->p->nodes[i];
        n->open_end = end;
        for (int j = 0; n->backward && j < pl->m->nodes[n->index].n_in; j++) {
            int64_t last = (int64_t)(n->din_at[j].offset / sizeof(float)) + manta_array_count(&n->in[j]);
            bool is_param = n->din_at[j].kind == PLACE_SLOT && n->din_at[j].offset < pl->l->slot_stats;
            if (is_param && last > end) end = last;
        }
    }
}

manta_status plan_new(const manta_model *m, const layout *l, const objective *o, const kernels *k,
                      int threads, plan_mode mode, int64_t batch, plan **out)
{
    planner pl = {.m = m, .l = l, .o = o, .k = k, .threads = threads};
    size_t values = (size_t)m->n_values + 1, nodes = (size_t)m->n_nodes + 1;
    plan *p;
    manta_status st;

    assert(o || mode == PLAN_PREDICT);
    if (batch < 1)
        return manta_fail(MANTA_EINVAL, "plan: a batch of %lld samples, expected at least 1",
                          (long long)batch);
    TRY(check_sizes(m, batch));
    p = pl.p = mem_new(sizeof *p);
    p->mode = mode;
    p->batch = batch;
    p->nodes = mem_new(nodes * sizeof *p->nodes);
    p->heads = mem_new(((size_t)(o ? o->n_heads : 0) + 1) * sizeof *p->heads);
    p->metric_at = mem_new(((size_t)(o ? o->n_metrics : 0) + 1) * sizeof *p->metric_at);
    p->output_at = mem_new(((size_t)m->n_outputs + 1) * sizeof *p->output_at);
    p->input_at = mem_new(((size_t)m->n_inputs + 1) * sizeof *p->input_at);
    pl.v = mem_new(values * sizeof *pl.v);
    pl.slot_of = mem_new(nodes * sizeof *pl.slot_of);
    pl.dropped = mem_new(nodes * sizeof *pl.dropped);
    for (int i = 0; i < m->n_values; i++) pl.v[i] = (vinfo){.alias = i, .galias = i, .piece = -1, .grad = -1};

    pl.cap_pieces = 64;
    pl.pieces = mem_new((size_t)pl.cap_pieces * sizeof *pl.pieces);
    pl.needed = mem_new(values);
    pl.renewed = mem_new((size_t)m->n_variables + 1);
    graph_mark_needed(m, pl.needed);
    mark_wanted(&pl);
    fuse_relus(&pl);
    if ((st = add_nodes(&pl))) goto out;
    place_all(&pl);
    settle_all(&pl);
    planner_mark_rounding(&pl);
    mark_open(&pl);
    *out = p;
    p = NULL;
out:
    plan_free(p);
    mem_free(pl.v);
    mem_free(pl.needed);
    mem_free(pl.renewed);
    mem_free(pl.slot_of);
    mem_free(pl.dropped);
    mem_free(pl.pieces);
    return st;
}

void plan_free(plan *p)
{
    if (!p) return;
    mem_free(p->nodes);
    mem_free(p->heads);
    mem_free(p->metric_at);
    mem_free(p->output_at);
    mem_free(p->input_at);
    mem_free(p);
}
