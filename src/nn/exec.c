/* exec.c - runs plans. */
#include "nn/exec.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "nn/ops.h"
#include "tensor/copy.h"

/* A plan with its times. */
typedef struct planned {
    plan *p;
    struct node_time {
        int64_t calls, forward_ns, backward_ns;
    } * times;
} planned;

struct exec {
    const manta_model *m;
    const layout *l;
    const objective *o;
    exec_options opt;
    planned *plans;
    int n_plans;
    char *block; /* shared by all plans */
    size_t block_size;
    const plan *last; /* of the last exec_forward() */
    const void *inputs[MANTA_OP_MAX_IN]; /* of the running call, after conversion */
    const void **more_inputs; /* when the model has more than fit above */
    exec_trace trace;
    void *trace_ctx;
};

manta_status exec_new(const manta_model *m, const layout *l, const objective *o, const exec_options *opt,
                      exec **out)
{
    exec *e;

    if (!m->built) return manta_fail(MANTA_EINVAL, "model '%s' is not built yet", m->name);
    e = mem_new(sizeof *e);
    e->m = m;
    e->l = l;
    e->o = o;
    e->opt = *opt;
    if (m->n_inputs > MANTA_OP_MAX_IN) e->more_inputs = mem_new((size_t)m->n_inputs * sizeof *e->more_inputs);
    *out = e;
    return MANTA_OK;
}

void exec_free(exec *e)
{
    if (!e) return;
    for (int i = 0; i < e->n_plans; i++) {
        plan_free(e->plans[i].p);
        mem_free(e->plans[i].times);
    }
    mem_free(e->plans);
    if (!e->opt.block) mem_try_free(e->block);
    mem_free(e->more_inputs);
    mem_free(e);
}

static planned *find_plan(const exec *e, plan_mode mode, int64_t batch)
{
    for (int i = 0; i < e->n_plans; i++) {
        if (e->plans[i].p->mode == mode && e->plans[i].p->batch == batch) return &e->plans[i];
    }
    return NULL;
}

manta_status exec_prepare(exec *e, plan_mode mode, int64_t batch)
{
    plan *p = NULL;

    if (find_plan(e, mode, batch)) return MANTA_OK;
    if (mode != PLAN_PREDICT && (!e->o || !e->o->n_heads)) {
        return manta_fail(MANTA_EINVAL, "model '%s' has no loss: there is nothing to train or evaluate",
                          e->m->name);
    }
    TRY(plan_new(e->m, e->l, e->o, e->opt.kernels, pool_threads(e->opt.pool), mode, batch, &p));
    if (p->block_size > e->block_size) {
        char *block =
            e->opt.block ? e->opt.block(e->opt.block_ctx, p->block_size) : mem_try_raw(p->block_size);
        if (!block) {
            manta_status st =
                manta_fail(MANTA_ENOMEM, "%zu MB for the activations of '%s' at batch %lld could not be had",
                           p->block_size >> 20, e->m->name, (long long)batch);
            plan_free(p);
            return st;
        }
        if (!e->opt.block) mem_try_free(e->block);
        e->block = block;
        e->block_size = p->block_size;
        e->last = NULL;
    }
    e->plans = mem_resize(e->plans, (size_t)(e->n_plans + 1) * sizeof *e->plans);
    e->plans[e->n_plans].p = p;
    e->plans[e->n_plans].times = mem_new((size_t)(p->n_nodes + 1) * sizeof *e->plans[0].times);
    e->n_plans++;
    return MANTA_OK;
}

size_t exec_block_size(const exec *e)
{
    return e->block_size;
}

/* ---- addresses ---- */

static const void **inputs_of(exec *e)
{
    return e->more_inputs ? e->more_inputs : e->inputs;
}

static void *address_of_place(exec *e, const exec_run *r, place at)
{
    switch (at.kind) {
    case PLACE_BLOCK: return e->block + at.offset;
    case PLACE_STATE: return (char *)(uintptr_t)r->state + at.offset;
    case PLACE_SLOT: return (char *)r->slot + at.offset;
    case PLACE_INPUT: return (void *)(uintptr_t)inputs_of(e)[at.offset];
    case PLACE_NONE: break;
    }
    return NULL;
}

static const char *node_layer(const exec *e, const graph_node *g)
{
    return g->layer >= 0 ? e->m->layers[g->layer]->name : g->op->name;
}

/* ---- inputs ---- */

manta_status exec_fit_input(const manta_model *m, int i, int64_t batch, const manta_array *given,
                            manta_array *want)
{
    const graph_port *port = &m->inputs[i];
    char a[96], b[96];
    bool fits;

    *want = m->values[port->value].a;
    want->shape[0] = batch;
    *want = manta_array_of(want->dtype, want->ndim, want->shape, NULL);
    fits = given->data && manta_array_is_contiguous(given) && given->ndim >= 1 && given->shape[0] == batch &&
           manta_array_count(given) == manta_array_count(want);
    /* (28, 28) and (28, 28, 1) are the same samples; other shapes are a mistake. */
    for (int j = 0, k = 0; fits && (j < want->ndim || k < given->ndim);) {
        if (j < want->ndim && k < given->ndim && want->shape[j] == given->shape[k]) {
            j++, k++;
        } else if (j < want->ndim && want->shape[j] == 1) {
            j++;
        } else if (k < given->ndim && given->shape[k] == 1) {
            k++;
        } else {
            fits = false;
        }
    }
    if (fits) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "input '%s' of model '%s' was given an array of shape %s, expected %s",
                      port->name, m->name, manta_shape_text(given->ndim, given->shape, a, sizeof a),
                      manta_shape_text(want->ndim, want->shape, b, sizeof b));
}

/* Checks the caller's array against the model's and converts its type. */
static manta_status take_input(exec *e, const plan *p, const exec_run *r, int i)
{
    manta_array want, given = r->inputs[i];

    TRY(exec_fit_input(e->m, i, r->batch, &given, &want));
    if (given.dtype == want.dtype) {
        inputs_of(e)[i] = given.data;
        return MANTA_OK;
    }
    want.data = e->block + p->input_at[i].offset;
    given = manta_array_of(given.dtype, want.ndim, want.shape, given.data);
    inputs_of(e)[i] = want.data;
    return copy_strided(e->opt.pool, &want, &given, false);
}

/* ---- one node ---- */

typedef struct call_arrays {
    manta_array in[MANTA_OP_MAX_IN], out[MANTA_OP_MAX_OUT], din[MANTA_OP_MAX_IN], dout[MANTA_OP_MAX_OUT];
    float *proposed[MANTA_OP_MAX_IN];
    manta_op_inner inner;
} call_arrays;

static manta_op_call make_call(exec *e, const exec_run *r, const plan_node *n, call_arrays *a)
{
    const graph_node *g = &e->m->nodes[n->index];

    for (int j = 0; j < g->n_in; j++) {
        a->in[j] = n->in[j];
        a->in[j].data = address_of_place(e, r, n->in_at[j]);
        a->din[j] = n->in[j];
        a->din[j].data = address_of_place(e, r, n->din_at[j]);
        a->proposed[j] = address_of_place(e, r, n->proposed_at[j]);
    }
    for (int j = 0; j < g->n_out; j++) {
        a->out[j] = n->out[j];
        a->out[j].data = address_of_place(e, r, n->out_at[j]);
        a->dout[j] = n->out[j];
        a->dout[j].data = address_of_place(e, r, n->dout_at[j]);
    }
    a->inner = (manta_op_inner){.relu = n->relu,
                                .relu_done = n->relu_done,
                                .round_out = n->round_out[0],
                                .round_din = n->round_din[0],
                                .mask = address_of_place(e, r, n->mask_at),
                                .kernels = e->opt.kernels,
                                .pool = e->opt.pool};
    return (manta_op_call){.attrs = g->attrs,
                           .training = n->training,
                           .n_in = g->n_in,
                           .n_out = g->n_out,
                           .in = a->in,
                           .out = a->out,
                           .din = a->din,
                           .dout = a->dout,
                           .accumulate = n->accumulate,
                           .proposed = a->proposed,
                           .saved = address_of_place(e, r, n->saved_at),
                           .work = address_of_place(e, r, n->work_at),
                           .seed = r->seed,
                           .step = r->step,
                           .first = r->first,
                           .call = (uint32_t)n->index,
                           .inner = &a->inner};
}

/* Debug mode: the first element of `a` that is not finite; `who` has it in its `what`. */
static manta_status find_nan(const char *who, const manta_array *a, const char *what)
{
    const float *x = a->data;
    int64_t n = manta_array_count(a), per = a->ndim && a->shape[0] > 0 ? n / a->shape[0] : n;

    if (!x || a->dtype != MANTA_DTYPE_F32) return MANTA_OK;
    for (int64_t i = 0; i < n; i++) {
        char shape[96];
        if (isfinite(x[i])) continue;
        return manta_fail(MANTA_ENAN, "%s: the %s of shape %s has %s at element %lld of row %lld", who, what,
                          manta_shape_text(a->ndim, a->shape, shape, sizeof shape),
                          isnan(x[i]) ? "a NaN" : "an infinity", (long long)(per ? i % per : i),
                          (long long)(per ? i / per : 0));
    }
    return MANTA_OK;
}

static const char *who_is(const exec *e, const graph_node *g, char *buf, size_t size)
{
    snprintf(buf, size, "layer '%s' (%s)", node_layer(e, g), g->op->name);
    return buf;
}

/* What a layer is given can be the cause too: the caller's inputs and the weights. */
static manta_status look_before(exec *e, const exec_run *r, const plan *p)
{
    char who[160];

    for (int i = 0; i < e->m->n_inputs; i++) {
        manta_array a = e->m->values[e->m->inputs[i].value].a;
        a.shape[0] = p->batch;
        a.data = (void *)(uintptr_t)inputs_of(e)[i];
        snprintf(who, sizeof who, "input '%s'", e->m->inputs[i].name);
        TRY(find_nan(who, &a, "array"));
    }
    for (int i = 0; i < e->m->n_variables; i++) {
        const graph_variable *g = &e->m->variables[i];
        manta_array a =
            manta_array_of(MANTA_DTYPE_F32, g->ndim, g->shape, layout_variable_at(e->l, r->state, i));
        snprintf(who, sizeof who, "variable '%s'", g->name);
        TRY(find_nan(who, &a, "array"));
    }
    return MANTA_OK;
}

/* Lets a node meet those of other shards, and wait for them. */
static void attach_meeting(manta_op_inner *c, bool training, const exec_run *r, exec_pause *p)
{
    c->met = p->waits;
    p->waits = false;
    c->waits = &p->waits;
    if (training) c->meeting = r->meeting;
}

/* Rounds the arrays that the plan says to bfloat16; `own`: the first is the operation's own business. */
static void round_arrays(exec *e, const manta_array *a, const bool *round, int n, bool own)
{
    for (int j = own; j < n; j++) {
        if (round[j] && a[j].data) e->opt.kernels->round(e->opt.pool, manta_array_count(&a[j]), a[j].data);
    }
}

static manta_status run_forward(exec *e, const exec_run *r, const plan_node *n, exec_pause *pause)
{
    const graph_node *g = &e->m->nodes[n->index];
    call_arrays a;
    manta_op_call c = make_call(e, r, n, &a);
    manta_status st;
    char who[160];

    attach_meeting(&a.inner, c.training, r, pause);
    st = g->op->forward(&c);
    if (st) return manta_fail(st, "layer '%s': %s", node_layer(e, g), manta_error_text());
    if (!pause->waits) round_arrays(e, a.out, n->round_out, g->n_out, g->op->flags & OP_ROUNDS_OUT);
    for (int j = 0; e->opt.debug && !pause->waits && j < g->n_out; j++) {
        TRY(find_nan(who_is(e, g, who, sizeof who), &a.out[j], "output"));
    }
    return MANTA_OK;
}

/* The sink of a node counts from its own gradient's start, the caller's from
 * the parameters'. */
typedef struct shifted_sink {
    kern_sink sink;
    void *ctx;
    int64_t offset;
} shifted_sink;

static void sink_shifted(void *ctx, int64_t first, int64_t n, const float *v)
{
    const shifted_sink *s = ctx;

    s->sink(s->ctx, s->offset + first, n, v);
}

static manta_status run_backward(exec *e, const exec_run *r, const plan_node *n, exec_pause *pause)
{
    const graph_node *g = &e->m->nodes[n->index];
    call_arrays a;
    manta_op_call c = make_call(e, r, n, &a);
    shifted_sink shifted = {.sink = r->sink, .ctx = r->sink_ctx, .offset = n->sink_offset};
    manta_status st;
    char who[160];

    if (n->add_view) {
        assert(g->n_in == 1 && g->n_out == 1);
        e->opt.kernels->axpby(e->opt.pool, manta_array_count(&a.dout[0]), 1, a.dout[0].data,
                              n->accumulate[0] ? 1.f : 0.f, a.din[0].data);
        round_arrays(e, a.din, n->round_din, 1, false);
        return MANTA_OK;
    }
    c.work = address_of_place(e, r, n->back_work_at);
    attach_meeting(&a.inner, c.training, r, pause);
    if (r->sink && n->sinkable) {
        a.inner.sink = sink_shifted;
        a.inner.sink_ctx = &shifted;
    }
    st = g->op->backward(&c);
    if (st) return manta_fail(st, "layer '%s': backward: %s", node_layer(e, g), manta_error_text());
    if (!pause->waits) round_arrays(e, a.din, n->round_din, g->n_in, g->op->flags & OP_ROUNDS_DIN);
    for (int j = 0; e->opt.debug && !pause->waits && j < g->n_in; j++) {
        if (a.inner.sink && j == 1) continue;
        TRY(find_nan(who_is(e, g, who, sizeof who), &a.din[j], "gradient of an input"));
    }
    return MANTA_OK;
}

/* ---- losses and metrics ---- */

static manta_array rows_view(manta_array a, int64_t rows)
{
    int64_t shape[2] = {rows, rows ? manta_array_count(&a) / rows : 0};

    return manta_array_of(a.dtype, shape[1] == 1 ? 1 : 2, shape, a.data);
}

manta_status exec_fit_target(const manta_model *m, const objective_head *head, int64_t rows,
                             const manta_array *target, const float *weight)
{
    const graph_port *port = &m->outputs[head->output];

    if (weight && head->inner != 1) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "output %d: sample weights were given, and it has %lld rows a sample, expected 1",
                          head->output, (long long)head->inner);
    }
    return loss_check_target(&head->loss, port->name ? port->name : "output", rows, head->classes, target);
}

static manta_status run_head(exec *e, const plan *p, const exec_run *r, int h, double *sums)
{
    const objective_head *head = &e->o->heads[h];
    const float *weight = r->weights ? r->weights[h] : NULL;
    int64_t rows = r->batch * head->inner;
    manta_loss_call c = {.config = head->user_config ? head->user_config : &head->config,
                         .rows = rows,
                         .classes = head->classes,
                         .pred = address_of_place(e, r, p->heads[h].pred_at),
                         .scale = head->weight / (float)head->inner,
                         .loss = address_of_place(e, r, p->heads[h].rows_at),
                         .grad = address_of_place(e, r, p->heads[h].dpred_at)};
    double sum = 0, weights = 0;

    TRY(exec_fit_target(e->m, head, rows, &r->targets[h], weight));
    c.target = rows_view(r->targets[h], rows);
    c.weight = weight;
    TRY(head->loss.fn(&c));
    for (int64_t i = 0; i < rows; i++) {
        double w = weight ? (double)weight[i] : 1;
        sum += (double)c.loss[i] * w;
        weights += w;
    }
    sum /= (double)head->inner;
    sums[objective_head_sum(h)] = sum;
    sums[objective_head_sum(h) + 1] = weights / (double)head->inner;
    sums[SUM_LOSS] += (double)head->weight * sum;
    return MANTA_OK;
}

static manta_status run_metric(exec *e, const plan *p, const exec_run *r, int i, double *sums)
{
    const objective_metric *t = &e->o->metrics[i];
    int64_t rows = r->batch * t->inner;
    manta_loss_call c = {.config = t->user_config ? t->user_config : &t->config,
                         .rows = rows,
                         .classes = t->classes,
                         .pred = address_of_place(e, r, p->metric_at[i]),
                         .target = rows_view(r->targets[t->output], rows)};
    double *sum = &sums[objective_metric_sum(e->o, i)];

    return t->metric.fn(&c, &sum[0], &sum[1]);
}

static manta_status run_objective(exec *e, const plan *p, const exec_run *r)
{
    double *sums = layout_slot_sums(e->l, r->slot);

    memset(sums, 0, (size_t)e->o->n_sums * sizeof *sums);
    sums[SUM_SAMPLES] = (double)r->batch;
    for (int h = 0; h < e->o->n_heads; h++) TRY(run_head(e, p, r, h, sums));
    for (int i = 0; i < e->o->n_metrics; i++) TRY(run_metric(e, p, r, i, sums));
    switch (e->o->reduction) {
    case MANTA_REDUCTION_SUM_OVER_BATCH_SIZE: sums[SUM_DIVISOR] = (double)r->batch; break;
    case MANTA_REDUCTION_MEAN_WITH_SAMPLE_WEIGHT: sums[SUM_DIVISOR] = sums[objective_head_sum(0) + 1]; break;
    case MANTA_REDUCTION_SUM: sums[SUM_DIVISOR] = 1; break;
    }
    if (e->opt.debug && !isfinite(sums[SUM_LOSS])) {
        return manta_fail(MANTA_ENAN, "model '%s': the loss of step %lld is %g", e->m->name,
                          (long long)r->step, sums[SUM_LOSS]);
    }
    return MANTA_OK;
}

/* ---- calls ---- */

static void keep_time(exec *e, planned *pd, int i, bool backward, int64_t begin)
{
    const graph_node *g = &e->m->nodes[pd->p->nodes[i].index];
    int64_t end = clock_now_ns();

    if (backward) {
        pd->times[i].backward_ns += end - begin;
    } else {
        pd->times[i].forward_ns += end - begin;
        pd->times[i].calls++;
    }
    if (e->trace) e->trace(e->trace_ctx, node_layer(e, g), g->op->name, backward, begin, end);
}

manta_status exec_forward_on(exec *e, const exec_run *r, exec_pause *pause)
{
    planned *pd;
    const plan *p;

    TRY(exec_prepare(e, r->mode, r->batch));
    pd = find_plan(e, r->mode, r->batch);
    p = pd->p;
    if (!pause->waits) {
        for (int i = 0; i < e->m->n_inputs; i++) TRY(take_input(e, p, r, i));
        if (e->opt.debug) TRY(look_before(e, r, p));
    }
    for (; pause->done < p->n_nodes; pause->done++) {
        int64_t begin = e->opt.profile ? clock_now_ns() : 0;
        if (p->nodes[pause->done].view) continue;
        TRY(run_forward(e, r, &p->nodes[pause->done], pause));
        if (pause->waits) return MANTA_OK;
        if (e->opt.profile) keep_time(e, pd, pause->done, false, begin);
    }
    e->last = p;
    if (r->mode == PLAN_PREDICT || !r->targets) return MANTA_OK;
    return run_objective(e, p, r);
}

manta_status exec_forward(exec *e, const exec_run *r)
{
    assert(!r->meeting);
    return exec_forward_on(e, r, &(exec_pause){0});
}

manta_status exec_backward_on(exec *e, const exec_run *r, exec_pause *pause)
{
    planned *pd = find_plan(e, r->mode, r->batch);
    const plan *p;

    if (!pd || r->mode != PLAN_TRAIN || e->last != pd->p) {
        return manta_fail(MANTA_EINVAL, "model '%s': backward of a batch whose forward was not the last run",
                          e->m->name);
    }
    p = pd->p;
    for (; pause->done < p->n_nodes; pause->done++) {
        int64_t begin = e->opt.profile ? clock_now_ns() : 0;
        int i = p->n_nodes - 1 - pause->done;
        if (!p->nodes[i].backward) continue;
        TRY(run_backward(e, r, &p->nodes[i], pause));
        if (pause->waits) return MANTA_OK;
        if (e->opt.profile) keep_time(e, pd, i, true, begin);
        if (r->settled) r->settled(r->settled_ctx, p->nodes[i].open_end);
    }
    return MANTA_OK;
}

manta_status exec_backward(exec *e, const exec_run *r)
{
    assert(!r->meeting);
    return exec_backward_on(e, r, &(exec_pause){0});
}

manta_array exec_output(const exec *e, int i)
{
    const plan *p = e->last;
    manta_array a = {0};

    if (!p || i < 0 || i >= e->m->n_outputs) return a;
    a = e->m->values[e->m->outputs[i].value].a;
    a.shape[0] = p->batch;
    a = manta_array_of(a.dtype, a.ndim, a.shape, NULL);
    switch (p->output_at[i].kind) {
    case PLACE_BLOCK: a.data = e->block + p->output_at[i].offset; break;
    case PLACE_INPUT: {
        const void *const *in = e->more_inputs ? e->more_inputs : e->inputs;
        a.data = (void *)(uintptr_t)in[p->output_at[i].offset];
        break;
    }
    default: break;
    }
    return a;
}

bool exec_sinks(const exec *e, int64_t batch, int param)
{
    const planned *pd = find_plan(e, PLAN_TRAIN, batch);

    for (int i = 0; pd && i < pd->p->n_nodes; i++) {
        const plan_node *n = &pd->p->nodes[i];
        if (n->backward && n->sinkable && n->sink_offset == e->l->params[param].offset) return true;
    }
    return false;
}

bool exec_time_at(const exec *e, plan_mode mode, int64_t batch, int i, exec_time *out)
{
    const planned *pd = find_plan(e, mode, batch);
    const plan_node *n;
    const graph_node *g;

    if (!pd || i < 0 || i >= pd->p->n_nodes) return false;
    n = &pd->p->nodes[i];
    g = &e->m->nodes[n->index];
    *out = (exec_time){.layer = node_layer(e, g),
                       .op = g->op->name,
                       .relu = n->relu,
                       .calls = pd->times[i].calls,
                       .forward_ns = pd->times[i].forward_ns,
                       .backward_ns = pd->times[i].backward_ns,
                       .flops = n->flops,
                       .backward_flops = n->backward ? n->back_flops : 0};
    manta_shape_text(n->out[0].ndim, n->out[0].shape, out->shape, sizeof out->shape);
    return true;
}

void exec_set_profile(exec *e, bool on, exec_trace trace, void *ctx)
{
    e->opt.profile = on;
    e->trace = trace;
    e->trace_ctx = ctx;
}
