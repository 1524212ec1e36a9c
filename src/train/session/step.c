/* step.c - one training step in one process.
 *
 * The batch is cut into V shards. Each shard's gradients go to its slot, the
 * slots are added by the shard tree and the optimizer writes the new state:
 * the same functions in the same order as when V workers do it, so the result
 * is theirs to the bit. With one shard, and nothing that must be known of the
 * whole gradient first, the update of a weight runs where its gradient is
 * made, and the gradient never goes to memory; element by element that is the
 * same arithmetic. */
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "nn/device_exec.h"
#include "train/session/device.h"
#include "train/session/lockstep.h"
#include "train/session/step_core.h"

/* ---- shards ---- */

/* Rows [lo, hi) of an array whose first dimension is the batch. */
static manta_array rows_of(const manta_array *a, int64_t lo, int64_t hi)
{
    manta_array r = *a;

    if (a->ndim < 1 || !a->data) return r;
    r.shape[0] = hi - lo;
    r.data = (char *)a->data + (size_t)(lo * a->strides[0]) * manta_dtype_size(a->dtype);
    return r;
}

manta_feed session_feed_rows(const manta_feed *f, int64_t lo, int64_t hi)
{
    manta_feed part = *f;

    part.count = hi - lo;
    part.first = f->first + lo;
    for (int i = 0; i < f->n_inputs; i++) part.inputs[i] = rows_of(&f->inputs[i], lo, hi);
    for (int i = 0; i < f->n_targets; i++) {
        part.targets[i] = rows_of(&f->targets[i], lo, hi);
        if (f->weights[i]) part.weights[i] = f->weights[i] + lo;
    }
    return part;
}

manta_status session_check_feed(const manta_session *s, const manta_feed *f, bool targets)
{
    char shape[96];

    if (s->torn) {
        return manta_fail(MANTA_EINVAL,
                          "a step failed while it changed the weights; load them again to go on");
    }
    if (f->count < 1)
        return manta_fail(MANTA_EINVAL, "a batch of %lld samples, expected 1 or more", (long long)f->count);
    if (f->n_inputs != s->m->n_inputs) {
        return manta_fail(MANTA_EINVAL, "%d input arrays, expected %d, one for each input of model '%s'",
                          f->n_inputs, s->m->n_inputs, s->m->name);
    }
    if (targets && f->n_targets != s->o.n_heads) {
        return manta_fail(MANTA_EINVAL, "%d target arrays, expected %d, one for each loss of model '%s'",
                          f->n_targets, s->o.n_heads, s->m->name);
    }
    for (int i = 0; i < f->n_inputs; i++)
        TRY(args_check_array("an input of a batch", s->m->inputs[i].name, &f->inputs[i]));
    for (int i = 0; targets && i < f->n_targets; i++) {
        const manta_array *t = &f->targets[i];
        TRY(args_check_array("a target of a batch", s->m->outputs[i].name ? s->m->outputs[i].name : "y", t));
        if (t->ndim >= 1 && t->shape[0] == f->count && manta_array_is_contiguous(t)) continue;
        return manta_fail(MANTA_EINVAL, "target %d has shape %s, expected %lld rows, row-major", i,
                          manta_shape_text(t->ndim, t->shape, shape, sizeof shape), (long long)f->count);
    }
    return MANTA_OK;
}

/* Everything that a step in this process needs. */
static manta_status ready_step(manta_session *s, const manta_feed *f, bool targets)
{
    TRY(session_check_feed(s, f, targets));
    return session_local(s);
}

static manta_status check_losses(const manta_session *s)
{
    if (s->n_losses) return MANTA_OK;
    return manta_fail(MANTA_EINVAL,
                      "the session was opened without a loss, which a training step or an evaluation needs");
}

exec_run session_run(const manta_session *s, plan_mode mode, const manta_feed *f, void *slot)
{
    const run_state *run = layout_run(&s->l, s->state);

    return (exec_run){.mode = mode,
                      .batch = f->count,
                      .state = s->state,
                      .slot = slot,
                      .inputs = f->inputs,
                      .targets = f->targets,
                      .weights = f->weights,
                      .seed = run->seed,
                      .step = run->calls,
                      .first = f->first};
}

manta_status session_prepare(manta_session *s, plan_mode mode, const int64_t *sizes, int n)
{
    TRY(session_local(s));
    for (int i = 0; i < n; i++) {
        int64_t parts = mode == PLAN_PREDICT ? session_parts(sizes[i]) : s->shards;
        for (int64_t v = 0; v < parts; v++) {
            int64_t rows =
                mode == PLAN_PREDICT
                    ? session_part_begin(sizes[i], v + 1) - session_part_begin(sizes[i], v)
                    : session_shard_begin(s, sizes[i], (int)v + 1) - session_shard_begin(s, sizes[i], (int)v);
            if (rows > 0) TRY(s->on ? session_device_prepare(s, mode, rows) : exec_prepare(s->e, mode, rows));
        }
    }
    return MANTA_OK;
}

/* ---- a step in parts ---- */

/* All shards side by side: goes round until nobody waits. Whoever waits does so
 * for a shard of this process, so that every round brings somebody on. */
static manta_status run_round(manta_session *s, int64_t count, bool backward)
{
    bool waits = true;

    while (waits) {
        waits = false;
        for (int v = 0; v < s->shards; v++) {
            bool this_waits;
            if (!step_has_samples(s, count, v)) continue;
            TRY(backward ? lockstep_backward(s->lockstep, v, &this_waits)
                         : lockstep_forward(s->lockstep, v, &this_waits));
            waits |= this_waits;
        }
    }
    return MANTA_OK;
}

static manta_status run_in_lockstep(manta_session *s, const manta_feed *f, bool forward, bool backward)
{
    if (forward) s->meetings++;
    step_collect(s, f->count);
    for (int v = 0; v < s->shards; v++) {
        int64_t lo = session_shard_begin(s, f->count, v), hi = session_shard_begin(s, f->count, v + 1);
        manta_feed part = session_feed_rows(f, lo, hi);
        if (lo == hi) continue;
        if (forward) TRY(lockstep_begin(s->lockstep, v, s->meetings, f->count, &part, s->slots[v], false));
    }
    if (forward) TRY(run_round(s, f->count, false));
    return backward ? run_round(s, f->count, true) : MANTA_OK;
}

/* Forward and (unless only the loss is wanted) backward of every shard. */
static manta_status run_shards(manta_session *s, const manta_feed *f, plan_mode mode, bool forward,
                               bool backward)
{
    if (s->on)
        return session_device_shards(s, f, mode,
                                     (forward ? DEVICE_FORWARD | DEVICE_OBJECTIVE : 0u) |
                                         (backward ? DEVICE_BACKWARD : 0u));
    if (mode == PLAN_TRAIN && s->meets) return run_in_lockstep(s, f, forward, backward);
    step_collect(s, f->count);
    for (int shard = 0; shard < s->shards; shard++) {
        int64_t lo = session_shard_begin(s, f->count, shard),
                hi = session_shard_begin(s, f->count, shard + 1);
        manta_feed part = session_feed_rows(f, lo, hi);
        exec_run r = session_run(s, mode, &part, s->slots[shard]);
        if (lo == hi) continue;
        if (forward) TRY(exec_forward(s->e, &r));
        if (backward) TRY(exec_backward(s->e, &r));
    }
    return MANTA_OK;
}

manta_status step_compute(manta_session *s, const manta_feed *f)
{
    TRY(ready_step(s, f, true));
    return run_shards(s, f, PLAN_TRAIN, true, true);
}

manta_status manta_session_loss(manta_session *s, const manta_feed *f, double *loss)
{
    REFUSE_NULL(s);
    REFUSE_NULL(f);
    REFUSE_NULL(loss);

    double sums[SUM_FIXED + 4 * MANTA_MAX_METRICS];

    TRY(ready_step(s, f, true));
    s->phase = SESSION_IDLE;
    TRY(run_shards(s, f, PLAN_TRAIN, true, false));
    apply_sums(&s->l, s->n_used, s->used, sums);
    *loss = sums[SUM_LOSS] / (sums[SUM_DIVISOR] > 0 ? sums[SUM_DIVISOR] : 1) + apply_penalty(&s->a, s->state);
    s->phase = SESSION_FORWARD;
    return MANTA_OK;
}

manta_status manta_session_backward(manta_session *s, const manta_feed *f)
{
    REFUSE_NULL(s);
    REFUSE_NULL(f);

    if (s->phase != SESSION_FORWARD) {
        return manta_fail(MANTA_EINVAL,
                          "the session has no loss to differentiate: call manta_session_loss() first");
    }
    TRY(session_check_feed(s, f, true));
    /* With several shards the activations of all but the last are gone: compute them again. */
    TRY(run_shards(s, f, PLAN_TRAIN, s->shards > 1, true));
    step_begin(s, s->state);
    s->phase = SESSION_BACKWARD;
    return MANTA_OK;
}

manta_status manta_session_apply(manta_session *s, const float *g)
{
    REFUSE_NULL(s);

    step_range all = step_range_of(&s->l, 0, 1);
    session_phase phase = s->phase;
    double samples = 0;

    if (!g && phase != SESSION_BACKWARD) {
        return manta_fail(MANTA_EINVAL,
                          "the session has no gradients to apply: call manta_session_backward() first");
    }
    TRY(check_losses(s));
    TRY(session_local(s));
    TRY(session_pull(s)); /* the host applies */
    if (s->on && phase == SESSION_FORWARD) TRY(session_device_slots(s)); /* the statistics that it proposed */
    if (phase == SESSION_IDLE) {
        memset(layout_slot_sums(&s->l, s->slots[0]), 0, (size_t)s->l.n_sums * sizeof(double));
        s->used[0] = s->slots[0];
        s->n_used = 1;
    }
    step_begin(s, s->state);
    if (phase != SESSION_IDLE) {
        double sums[SUM_FIXED + 4 * MANTA_MAX_METRICS];
        apply_sums(&s->l, s->n_used, s->used, sums);
        samples = sums[SUM_SAMPLES];
        step_stats(s, &all);
    }
    if (g) {
        /* Given gradients stand in shard 0's place, the others' count nothing. */
        session_unpack(&s->l, g, layout_slot_grads(&s->l, s->slots[0]));
        for (int i = 1; i < s->n_used; i++) {
            memset(layout_slot_grads(&s->l, (void *)(uintptr_t)s->used[i]), 0,
                   (size_t)s->l.params_size * sizeof(float));
        }
        apply_as_given(&s->a);
    }
    if (apply_needs_norms(&s->a)) step_norms(s, &all);
    step_params(s, &all);
    step_finish(s, (int64_t)samples);
    session_changed(s);
    return MANTA_OK;
}

/* A forward pass, and output i of it, wherever it is computed. */
static manta_status pass_forward(manta_session *s, const exec_run *r)
{
    return s->on ? session_device_forward(s, r) : exec_forward(s->e, r);
}

static manta_status pass_output(manta_session *s, int i, manta_array *out)
{
    if (s->on) return session_device_output(s, i, out);
    *out = exec_output(s->e, i);
    return MANTA_OK;
}

/* Room for `count` rows of output i, behind a view of it. */
static manta_status make_output(manta_session *s, int i, int64_t count, manta_array a, manta_array *out)
{
    size_t bytes;

    a.shape[0] = count;
    a = manta_array_of(a.dtype, a.ndim, a.shape, NULL);
    bytes = manta_array_bytes(&a);
    if (bytes > s->outputs_cap[i]) {
        mem_try_free(s->outputs[i]);
        s->outputs_cap[i] = 0;
        s->outputs[i] = NULL;
        TRY(mem_try_array((int64_t)bytes, 1, "predictions", (void **)&s->outputs[i]));
        s->outputs_cap[i] = bytes;
    }
    a.data = s->outputs[i];
    *out = a;
    return MANTA_OK;
}

static manta_status forward_parts(manta_session *s, const manta_feed *f, int n_outputs, manta_array *outputs)
{
    int64_t parts = session_parts(f->count);

    for (int64_t p = 0; p < parts; p++) {
        int64_t lo = session_part_begin(f->count, p), hi = session_part_begin(f->count, p + 1);
        manta_feed part = session_feed_rows(f, lo, hi);
        exec_run r = session_run(s, PLAN_PREDICT, &part, NULL);
        r.targets = NULL;
        TRY(pass_forward(s, &r));
        for (int i = 0; i < n_outputs; i++) {
            manta_array got;
            size_t row;
            TRY(pass_output(s, i, &got));
            row = manta_array_bytes(&got) / (size_t)(hi - lo);
            if (!p) TRY(make_output(s, i, f->count, got, &outputs[i]));
            memcpy((char *)outputs[i].data + (size_t)lo * row, got.data, manta_array_bytes(&got));
        }
    }
    return MANTA_OK;
}

manta_status manta_session_forward(manta_session *s, const manta_feed *f, bool training, int n_outputs,
                                   manta_array *outputs)
{
    REFUSE_NULL(s);
    REFUSE_NULL(f);
    REFUSE_ARRAY(n_outputs, outputs);

    exec_run r = session_run(s, PLAN_PREDICT, f, NULL);

    TRY(ready_step(s, f, false));
    s->phase = SESSION_IDLE;
    if (!training && session_parts(f->count) > 1 && n_outputs <= SESSION_OUTPUTS)
        return forward_parts(s, f, n_outputs, outputs);
    r.targets = NULL;
    if (training) {
        if (!s->n_losses) return manta_fail(MANTA_EINVAL, "a forward pass in training mode needs a loss");
        r.mode = PLAN_TRAIN;
        r.slot = s->slots[0];
    }
    TRY(pass_forward(s, &r));
    for (int i = 0; i < n_outputs; i++) TRY(pass_output(s, i, &outputs[i]));
    return MANTA_OK;
}

/* ---- whole steps ---- */

static void take_gradient(void *ctx, int64_t first, int64_t n, const float *v)
{
    apply_range(ctx, first, n, v);
}

/* What the sink did not take: parameters with several sources, biases, ... */
typedef struct rest {
    manta_session *s;
    int64_t batch;
} rest;

static void rest_task(void *ctx, int task, int thread)
{
    const rest *r = ctx;
    const layout_variable *v = &r->s->l.params[task];

    (void)thread;
    if (!exec_sinks(r->s->e, r->batch, task)) apply_elements(&r->s->a, task, v->offset, v->count);
}

static manta_status fused_step(manta_session *s, const manta_feed *f)
{
    exec_run r = session_run(s, PLAN_TRAIN, f, s->slots[0]);
    step_range all = step_range_of(&s->l, 0, 1);
    rest left = {.s = s, .batch = f->count};
    manta_status st;

    TRY(exec_forward(s->e, &r));
    s->used[0] = s->slots[0];
    s->n_used = 1;
    step_begin(s, s->state);
    r.sink = take_gradient;
    r.sink_ctx = &s->a;
    if ((st = exec_backward(s->e, &r))) {
        s->torn = true;
        return st;
    }
    pool_run(s->pool, s->l.n_params, rest_task, &left);
    step_stats(s, &all);
    step_finish(s, f->count);
    return MANTA_OK;
}

manta_status manta_session_step(manta_session *s, const manta_feed *f)
{
    REFUSE_NULL(s);
    REFUSE_NULL(f);

    TRY(ready_step(s, f, true));
    TRY(check_losses(s));
    s->phase = SESSION_IDLE;
    if (s->on) return session_device_step(s, f);
    if (s->fuse) return fused_step(s, f);
    TRY(run_shards(s, f, PLAN_TRAIN, true, true));
    step_begin(s, s->state);
    step_update(s, f->count);
    return MANTA_OK;
}

manta_status manta_session_evaluate_step(manta_session *s, const manta_feed *f)
{
    REFUSE_NULL(s);
    REFUSE_NULL(f);

    TRY(ready_step(s, f, true));
    TRY(check_losses(s));
    s->phase = SESSION_IDLE;
    TRY(run_shards(s, f, PLAN_EVALUATE, true, false));
    step_add_sums(s, s->eval_sums, s->eval_sums);
    s->evaluated = true;
    return MANTA_OK;
}
