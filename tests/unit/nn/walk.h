/* walk.h - runs a built model node by node, without planner or fusion.
 *
 * Every value has memory of its own and every gradient is added to zeroes, so a
 * walk shows what layers and operations compute and nothing else; the planned
 * run is compared with it. Gradients exist for model inputs too. */
#ifndef TESTS_NN_WALK_H
#define TESTS_NN_WALK_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "nn/graph.h"
#include "nn/ops.h"

typedef struct walk {
    const manta_model *m;
    const kernels *k;
    pool *p;
    bool training;
    manta_array *v, *g; /* values and gradients, with the batch filled in */
    void **saved, **work; /* per node */
    float **proposed; /* per variable: what an operation proposed, or NULL */
    bool *needed; /* per value */
    bool *renewed; /* per variable: there is such a proposal, from which the next one starts */
    manta_op_inner inner; /* of every call */
} walk;

static inline void *walk_room(size_t size)
{
    void *p = aligned_alloc(64, (size + 64) & ~(size_t)63);

    assert_non_null(p);
    memset(p, 0, size);
    return p;
}

static inline void walk_open(walk *w, const manta_model *m, const kernels *k, pool *p, int64_t batch,
                             bool training)
{
    *w = (walk){.m = m, .k = k, .p = p, .training = training, .inner = {.kernels = k, .pool = p}};
    w->v = calloc((size_t)m->n_values, sizeof *w->v);
    w->g = calloc((size_t)m->n_values, sizeof *w->g);
    w->saved = calloc((size_t)m->n_nodes + 1, sizeof *w->saved);
    w->work = calloc((size_t)m->n_nodes + 1, sizeof *w->work);
    w->proposed = calloc((size_t)m->n_variables + 1, sizeof *w->proposed);
    w->renewed = calloc((size_t)m->n_variables + 1, sizeof *w->renewed);
    w->needed = calloc((size_t)m->n_values + 1, sizeof *w->needed);
    assert_true(w->v && w->g && w->saved && w->work && w->proposed && w->renewed && w->needed);
    graph_mark_needed(m, w->needed);
    for (int i = 0; i < m->n_values; i++) {
        manta_array a = m->values[i].a;
        if (a.shape[0] == -1) a.shape[0] = batch;
        w->v[i] = manta_array_of(a.dtype, a.ndim, a.shape, NULL);
        w->g[i] = manta_array_of(MANTA_DTYPE_F32, a.ndim, a.shape, NULL);
        w->v[i].data = walk_room(manta_array_bytes(&w->v[i]));
        w->g[i].data = walk_room(manta_array_bytes(&w->g[i]));
    }
}

static inline void walk_close(walk *w)
{
    for (int i = 0; i < w->m->n_values; i++) {
        free(w->v[i].data);
        free(w->g[i].data);
    }
    for (int i = 0; i < w->m->n_nodes; i++) {
        free(w->saved[i]);
        free(w->work[i]);
    }
    for (int i = 0; i < w->m->n_variables; i++) free(w->proposed[i]);
    free(w->v);
    free(w->g);
    free(w->saved);
    free(w->work);
    free(w->proposed);
    free(w->renewed);
    free(w->needed);
}

/* What node i is called with; in, out, dout, din and proposed have MANTA_OP_MAX_IN places each. */
static inline manta_op_call walk_call(walk *w, int i, manta_array *in, manta_array *out, manta_array *dout,
                                      manta_array *din, float **proposed)
{
    static const bool add[MANTA_OP_MAX_IN] = {true, true, true, true, true, true, true, true};
    const graph_node *n = &w->m->nodes[i];
    bool frozen = graph_node_frozen(w->m, n);
    int next = 0;

    for (int j = 0; j < n->n_in; j++) {
        const graph_value *v = &w->m->values[n->in[j]];
        in[j] = w->v[n->in[j]];
        din[j] = w->g[n->in[j]];
        if (in[j].dtype != MANTA_DTYPE_F32) din[j].data = NULL;
        if (v->variable >= 0 && !w->m->variables[v->variable].trainable) {
            din[j].data = NULL;
            proposed[next++] = frozen ? NULL : w->proposed[v->variable];
        }
    }
    for (int j = 0; j < n->n_out; j++) {
        out[j] = w->v[n->out[j]];
        dout[j] = w->g[n->out[j]];
    }
    return (manta_op_call){.attrs = n->attrs,
                           .training = w->training && !frozen,
                           .n_in = n->n_in,
                           .n_out = n->n_out,
                           .in = in,
                           .out = out,
                           .dout = dout,
                           .din = din,
                           .accumulate = add,
                           .proposed = proposed,
                           .saved = w->saved[i],
                           .work = w->work[i],
                           .call = (uint32_t)i,
                           .inner = &w->inner};
}

/* Plans and runs node i forward. */
static inline manta_status walk_node(walk *w, int i)
{
    const graph_node *n = &w->m->nodes[i];
    manta_array in[MANTA_OP_MAX_IN], out[MANTA_OP_MAX_IN], dout[MANTA_OP_MAX_IN], din[MANTA_OP_MAX_IN];
    float *proposed[MANTA_OP_MAX_IN] = {NULL};
    manta_op_call c = walk_call(w, i, in, out, dout, din, proposed);
    manta_op_plan p = {.attrs = n->attrs,
                       .training = c.training,
                       .threads = pool_threads(w->p),
                       .inner = &w->inner,
                       .n_in = n->n_in,
                       .n_out = n->n_out,
                       .in = in,
                       .out = out};

    if (n->op->plan) TRY(n->op->plan(&p));
    w->saved[i] = c.saved = walk_room(p.saved);
    w->work[i] = c.work = walk_room(p.work);
    for (int j = 0; j < n->n_in && c.training && n->op->flags & MANTA_OP_PROPOSES; j++) {
        int v = w->m->values[n->in[j]].variable;
        if (v < 0 || !w->proposed[v]) continue;
        if (w->renewed[v]) in[j].data = w->proposed[v];
        w->renewed[v] = true;
    }
    return n->op->forward(&c);
}

/* Inputs and variables are in w->v already. */
static inline manta_status walk_forward(walk *w)
{
    for (int i = 0; i < w->m->n_variables; i++) {
        const graph_variable *v = &w->m->variables[i];
        if (!v->trainable) w->proposed[i] = walk_room((size_t)v->count * sizeof(float));
    }
    for (int i = 0; i < w->m->n_nodes; i++) {
        if (graph_node_needed(&w->m->nodes[i], w->needed)) TRY(walk_node(w, i));
    }
    return MANTA_OK;
}

/* The outputs' gradients are in w->g already. */
static inline manta_status walk_backward(walk *w)
{
    for (int i = w->m->n_nodes - 1; i >= 0; i--) {
        manta_array in[MANTA_OP_MAX_IN], out[MANTA_OP_MAX_IN], dout[MANTA_OP_MAX_IN], din[MANTA_OP_MAX_IN];
        float *proposed[MANTA_OP_MAX_IN] = {NULL};
        manta_op_call c = walk_call(w, i, in, out, dout, din, proposed);
        if (!w->m->nodes[i].op->backward || !graph_node_needed(&w->m->nodes[i], w->needed)) continue;
        TRY(w->m->nodes[i].op->backward(&c));
    }
    return MANTA_OK;
}

#endif
