/* lower.c - plans become programs: what all rows share, and the walk over the nodes. */
#include "nn/lower.h"

#include "tensor/sizes.h"

dev_addr lower_at(const lowering *w, place at)
{
    switch (at.kind) {
    case PLACE_BLOCK: return w->block + at.offset;
    case PLACE_STATE: return w->state + at.offset;
    case PLACE_SLOT: return w->slot + at.offset;
    case PLACE_INPUT: return w->block + w->p->input_at[at.offset].offset; /* inputs are put where they fit */
    case PLACE_NONE: break;
    }
    return 0;
}

dev_addr lower_scratch(lowering *w, size_t size)
{
    dev_addr at = w->scratch + w->scratch_used;

    w->scratch_used += (size + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
    if (w->scratch_used > w->scratch_most) w->scratch_most = w->scratch_used;
    return at;
}

void lower_add(lowering *w, dev_kernel k, int64_t items, const void *args, size_t size)
{
    if (w->program) program_add(w->program, (int)k, items, args, size);
}

const void *lower_attrs(const lowering *w, const plan_node *n)
{
    return w->m->nodes[n->index].attrs;
}

dev_addr lower_dout(lowering *w, const plan_node *n)
{
    dev_addr dy = lower_at(w, n->dout_at[0]);

    if (n->relu && !n->relu_done) {
        act_backward_args a = {.act = KERN_RELU, .y = lower_at(w, n->out_at[0]), .dy = dy, .dx = dy};
        LOWER(w, act_backward, manta_array_count(&n->out[0]), a);
    }
    return dy;
}

void lower_axpby(lowering *w, int64_t n, float alpha, dev_addr from, float beta, dev_addr out)
{
    axpby_args a = {.alpha = alpha, .beta = beta, .a = from, .out = out};

    LOWER(w, axpby, n, a);
}

int64_t lower_chunk_rows(int64_t rows)
{
    int64_t r = (rows + REDUCE_CHUNKS_MOST - 1) / REDUCE_CHUNKS_MOST;

    r = (r + REDUCE_SPAN - 1) / REDUCE_SPAN * REDUCE_SPAN;
    return r > REDUCE_CHUNK_LEAST ? r : REDUCE_CHUNK_LEAST;
}

int64_t lower_chunks(int64_t rows)
{
    int64_t chunk = lower_chunk_rows(rows), n = (rows + chunk - 1) / chunk;

    return n > 1 ? n : 1;
}

bool lower_is_quick(const lowering *w, int64_t c)
{
    return w->precision != DEV_EXACT && (c + SUM_ACROSS - 1) / SUM_ACROSS <= LOWER_TICKETS;
}

static void sum_quickly(lowering *w, int64_t rows, int64_t cols, dev_addr x, dev_addr out, bool accumulate)
{
    int64_t chunk = dev_sum_chunk(rows, cols);
    quick_columns_args a = {.rows = rows,
                            .c = cols,
                            .chunk = chunk,
                            .chunks = rows > 0 ? (rows + chunk - 1) / chunk : 1,
                            .x = x,
                            .out = out,
                            .tickets = w->tickets,
                            .accumulate_dx = accumulate};

    a.part = lower_scratch(w, (size_t)(2 * a.chunks * cols) * sizeof(float));
    LOWER(w, quick_columns, dev_sum_blocks(rows, cols), a);
}

void lower_col_sum(lowering *w, int64_t rows, int64_t cols, dev_addr x, dev_addr out, bool accumulate)
{
    if (lower_is_quick(w, cols)) {
        sum_quickly(w, rows, cols, x, out, accumulate);
        return;
    }
    col_sum_args a = {.rows = rows,
                      .cols = cols,
                      .chunk = lower_chunk_rows(rows),
                      .chunks = lower_chunks(rows),
                      .x = x,
                      .out = out,
                      .accumulate = accumulate};

    a.part = lower_scratch(w, (size_t)(2 * a.chunks * cols) * sizeof(double));
    LOWER(w, col_sum_part, a.chunks * cols, a);
    LOWER(w, col_sum_end, cols, a);
}

/* ---- what cannot be lowered ---- */

static const char *layer_of(const manta_model *m, const graph_node *g)
{
    return g->layer >= 0 ? m->layers[g->layer]->name : g->op->name;
}

manta_status lower_check_node(const manta_model *m, const graph_node *g)
{
    const lower_row *row = lower_find(g->op);
    const char *lacks = row && row->lacks ? row->lacks(m, g) : "";

    if (row && (!lacks || !row->lacks)) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED,
                      "layer '%s': the operation %s%s%s has no kernel for devices yet, expected --device cpu",
                      layer_of(m, g), g->op->name, *lacks ? " " : "", lacks);
}

/* ---- the walk ---- */

static void round_array(lowering *w, const manta_array *x, place at)
{
    round_to_args a = {.x = lower_at(w, at)};

    LOWER(w, round_to, manta_array_count(x), a);
}

/* Rounds what the plan says and the node's own kernels have not. */
static void round_results(lowering *w, const plan_node *n)
{
    for (int j = 0; j < w->m->nodes[n->index].n_out; j++) {
        if (n->round_out[j] && !(j == 0 && w->rounded & 1u)) round_array(w, &n->out[j], n->out_at[j]);
    }
}

static void round_gradients(lowering *w, const plan_node *n)
{
    for (int j = 0; j < w->m->nodes[n->index].n_in; j++) {
        if (n->round_din[j] && !(w->rounded & 2u << j)) round_array(w, &n->in[j], n->din_at[j]);
    }
}

manta_status lower_forward(lowering *w)
{
    for (int i = 0; i < w->p->n_nodes; i++) {
        const plan_node *n = &w->p->nodes[i];
        if (n->view) continue;
        w->scratch_used = 0;
        w->rounded = 0;
        TRY(lower_find(w->m->nodes[n->index].op)->forward(w, n));
        round_results(w, n);
    }
    return MANTA_OK;
}

/* Backward of a view whose gradient is not one. */
static void add_view(lowering *w, const plan_node *n)
{
    lower_axpby(w, manta_array_count(&n->out[0]), 1, lower_at(w, n->dout_at[0]), n->accumulate[0] ? 1.f : 0.f,
                lower_at(w, n->din_at[0]));
}

manta_status lower_backward(lowering *w)
{
    for (int i = w->p->n_nodes - 1; i >= 0; i--) {
        const plan_node *n = &w->p->nodes[i];
        if (!n->backward) continue;
        w->scratch_used = 0;
        w->rounded = 0;
        if (n->add_view) {
            add_view(w, n);
        } else {
            TRY(lower_find(w->m->nodes[n->index].op)->backward(w, n));
        }
        round_gradients(w, n);
    }
    return MANTA_OK;
}
