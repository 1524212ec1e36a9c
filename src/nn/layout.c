/* layout.c - lays out state and slot. */
#include "nn/layout.h"

#include <string.h>

#include "base/mem.h"
#include "nn/initializer.h"
#include "nn/ops.h"

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static size_t round_bytes(size_t n)
{
    return (n + 63) & ~(size_t)63;
}

/* Whether some node that runs renews v when it trains. */
static bool is_proposed(const manta_model *m, const bool *needed, int v)
{
    const graph_variable *g = &m->variables[v];

    if (g->trainable || graph_variable_frozen(m, g)) return false;
    for (int i = 0; i < m->n_nodes; i++) {
        const graph_node *n = &m->nodes[i];
        if (!(n->op->flags & MANTA_OP_PROPOSES) || !graph_node_needed(n, needed)) continue;
        for (int j = 0; j < n->n_in; j++) {
            if (n->in[j] == g->value) return true;
        }
    }
    return false;
}

void layout_init(layout *l, const manta_model *m, const objective *o, const manta_optimizer *opt)
{
    size_t n_vars = (size_t)m->n_variables + 1, at = 0, params_bytes, stats_bytes;
    bool *needed = mem_new((size_t)m->n_values + 1);

    graph_mark_needed(m, needed);
    *l = (layout){.model = m};
    l->params = mem_new(n_vars * sizeof *l->params);
    l->stats = mem_new(n_vars * sizeof *l->stats);
    l->where = mem_new(n_vars * sizeof *l->where);
    for (int i = 0; i < m->n_variables; i++) {
        const graph_variable *g = &m->variables[i];
        bool param = g->trainable && !graph_variable_frozen(m, g);
        int64_t *size = param ? &l->params_size : &l->stats_size;
        layout_variable v = {
            .variable = i, .offset = *size, .count = g->count, .proposed = is_proposed(m, needed, i)};
        if (param) {
            l->where[i] = l->n_params;
            l->params[l->n_params++] = v;
        } else {
            l->where[i] = -1 - l->n_stats;
            l->stats[l->n_stats++] = v;
        }
        *size = round_up(*size + g->count, 16);
    }
    mem_free(needed);
    l->params_size = round_up(l->params_size, LAYOUT_BLOCK);
    l->stats_size = round_up(l->stats_size, LAYOUT_BLOCK);
    l->param_blocks = l->params_size / LAYOUT_BLOCK;
    l->stat_blocks = l->stats_size / LAYOUT_BLOCK;
    if (opt) l->arrays = optimizer_arrays_of(opt);
    l->n_sums = o ? o->n_sums : SUM_FIXED;

    params_bytes = (size_t)l->params_size * sizeof(float);
    stats_bytes = (size_t)l->stats_size * sizeof(float);
    l->off_params = at;
    l->off_stats = at += params_bytes;
    at += stats_bytes;
    for (int i = 0; i < l->arrays.n; i++, at += params_bytes) l->off_array[i] = at;
    l->off_average = at;
    if (l->arrays.average) at += params_bytes;
    l->off_accumulator = at;
    if (l->arrays.accumulator) at += params_bytes;
    l->off_run = at;
    l->run_size = round_bytes(sizeof(run_state) + ((size_t)l->n_sums + 1) * sizeof(double));
    l->state_size = at + l->run_size;
    l->slot_stats = params_bytes;
    l->slot_sums = params_bytes + stats_bytes;
    l->slot_size = l->slot_sums + round_bytes((size_t)l->n_sums * sizeof(double));
}

void layout_release(layout *l)
{
    mem_free(l->params);
    mem_free(l->stats);
    mem_free(l->where);
    memset(l, 0, sizeof *l);
}

float *layout_variable_at(const layout *l, const void *state, int v)
{
    int i = l->where[v];

    return i >= 0 ? layout_params(l, state) + l->params[i].offset
                  : layout_stats(l, state) + l->stats[-1 - i].offset;
}

void layout_start_blank(const layout *l, void *state, uint64_t seed, const manta_optimizer *opt)
{
    run_state *run = layout_run(l, state);

    run->seed = seed;
    run->learning_rate = opt ? optimizer_start_rate(opt) : 0;
}

void layout_start(const layout *l, void *state, uint64_t seed, const manta_optimizer *opt)
{
    for (int i = 0; i < l->model->n_variables; i++) {
        const graph_variable *g = &l->model->variables[i];
        initializer_fill(&g->init, g->ndim, g->shape, g->fan_in, seed, (uint64_t)i,
                         layout_variable_at(l, state, i));
    }
    layout_start_blank(l, state, seed, opt);
}
