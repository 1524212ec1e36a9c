/* device_exec.c - plays programs of plans, and moves what they need. */
#include "nn/device_exec.h"

#include <assert.h>
#include <string.h>

#include "base/mem.h"
#include "nn/device_feed.h"
#include "nn/device_update.h"
#include "nn/lower.h"

enum { TICKETS_SIZE = LOWER_TICKETS * sizeof(uint32_t) };

/* Memory that grows; what it held is lost then. */
typedef struct region {
    dev_addr at;
    size_t size;
} region;

/* A program of (plan, shard, parts, which heads have weights). */
typedef struct made {
    const plan *p;
    int shard;
    unsigned parts;
    uint64_t weighted;
    dev_program *program;
} made;

struct device_exec {
    const manta_model *m;
    const layout *l;
    const objective *o;
    device *d;
    int shards;
    dev_precision precision;
    dev_addr state, slots, run, tickets; /* run: dev_run; tickets: zeros between launches */
    size_t slot_size; /* from slot to slot */
    region block, scratch;
    device_feed feed;
    device_update update;
    plan **plans;
    int n_plans;
    made *programs;
    int n_programs;
    const plan *last; /* of the last forward pass */
    dev_program *played; /* by the last run */
    void **outputs; /* per output of the model: on the host */
    size_t *outputs_size;
};

static void forget_programs(device_exec *e)
{
    for (int i = 0; i < e->n_programs; i++) program_free(e->programs[i].program);
    e->n_programs = 0;
    e->played = NULL;
}

static void forget_plans(device_exec *e)
{
    forget_programs(e);
    for (int i = 0; i < e->n_plans; i++) plan_free(e->plans[i]);
    e->n_plans = 0;
    e->last = NULL;
}

static manta_status make_memory(device_exec *e)
{
    e->slot_size = (e->l->slot_size + DEVICE_ALIGN - 1) / DEVICE_ALIGN * DEVICE_ALIGN;
    TRY(device_alloc(e->d, e->l->state_size, "the state of the model", &e->state));
    TRY(device_alloc(e->d, sizeof(dev_run), "the numbers of a step", &e->run));
    TRY(device_alloc(e->d, TICKETS_SIZE, "the tickets of blocks", &e->tickets));
    if (!e->shards) return MANTA_OK;
    TRY(device_alloc(e->d, e->slot_size * (size_t)e->shards, "the gradients of the shards", &e->slots));
    return device_update_init(&e->update, e->l, e->d, e->shards);
}

manta_status device_exec_new(const manta_model *m, const layout *l, const objective *o, device *d,
                             dev_precision precision, pool *p, int shards, device_exec **out)
{
    device_exec *e;
    manta_status st;

    TRY(lower_check(m, o));
    e = mem_new(sizeof *e);
    e->m = m;
    e->l = l;
    e->o = o;
    e->d = d;
    e->precision = precision;
    e->shards = shards;
    e->outputs = mem_new((size_t)(m->n_outputs + 1) * sizeof *e->outputs);
    e->outputs_size = mem_new((size_t)(m->n_outputs + 1) * sizeof *e->outputs_size);
    device_feed_init(&e->feed, m, o, d, p);
    if ((st = make_memory(e))) {
        device_exec_free(e);
        return st;
    }
    *out = e;
    return MANTA_OK;
}

void device_exec_free(device_exec *e)
{
    if (!e) return;
    forget_plans(e);
    mem_free(e->programs);
    mem_free(e->plans);
    device_update_release(&e->update);
    device_feed_release(&e->feed);
    device_release(e->d, e->block.at, e->block.size);
    device_release(e->d, e->scratch.at, e->scratch.size);
    device_release(e->d, e->slots, e->slot_size * (size_t)e->shards);
    device_release(e->d, e->run, sizeof(dev_run));
    device_release(e->d, e->tickets, TICKETS_SIZE);
    device_release(e->d, e->state, e->l->state_size);
    for (int i = 0; i < e->m->n_outputs; i++) mem_try_free(e->outputs[i]);
    mem_free(e->outputs);
    mem_free(e->outputs_size);
    mem_free(e);
}

/* ---- plans ---- */

static plan *find_plan(const device_exec *e, plan_mode mode, int64_t batch)
{
    for (int i = 0; i < e->n_plans; i++) {
        if (e->plans[i]->mode == mode && e->plans[i]->batch == batch) return e->plans[i];
    }
    return NULL;
}

/* Programs have addresses in them: those made before are of no use when memory has moved. */
static manta_status grow_region(device_exec *e, region *r, size_t size, const char *what)
{
    if (size <= r->size) return MANTA_OK;
    forget_programs(e);
    e->last = NULL;
    device_release(e->d, r->at, r->size);
    *r = (region){0};
    TRY(device_alloc(e->d, size, what, &r->at));
    r->size = size;
    return MANTA_OK;
}

static manta_status lower_parts(lowering *w, unsigned parts)
{
    if (parts & DEVICE_FORWARD) TRY(lower_forward(w));
    if (parts & DEVICE_OBJECTIVE) lower_objective(w);
    return parts & DEVICE_BACKWARD ? lower_backward(w) : MANTA_OK;
}

static lowering lowering_of(const device_exec *e, const plan *p)
{
    return (lowering){.m = e->m,
                      .l = e->l,
                      .o = e->o,
                      .p = p,
                      .target = e->feed.target,
                      .weight = e->feed.weight,
                      .precision = e->precision,
                      .tickets = e->tickets};
}

/* Bytes of scratch that the plan's nodes want. */
static manta_status measure_scratch(const device_exec *e, const plan *p, size_t *out)
{
    lowering w = lowering_of(e, p);
    unsigned parts = DEVICE_FORWARD;

    w.block = w.state = w.slot = w.scratch = w.run = DEVICE_ALIGN; /* anywhere but nowhere */
    if (p->mode != PLAN_PREDICT) parts |= DEVICE_OBJECTIVE;
    if (p->mode == PLAN_TRAIN) parts |= DEVICE_BACKWARD;
    TRY(lower_parts(&w, parts));
    *out = w.scratch_most;
    return MANTA_OK;
}

static manta_status make_room(device_exec *e, const plan *p)
{
    size_t scratch;
    bool moved = false;

    TRY(measure_scratch(e, p, &scratch));
    TRY(grow_region(e, &e->block, p->block_size, "the activations of the model"));
    TRY(grow_region(e, &e->scratch, scratch, "partial sums"));
    if (p->mode == PLAN_PREDICT) return MANTA_OK;
    TRY(device_feed_grow(&e->feed, p->batch, &moved));
    if (moved) forget_programs(e);
    return MANTA_OK;
}

manta_status device_exec_prepare(device_exec *e, plan_mode mode, int64_t batch)
{
    kern_precision rounding = e->precision == DEV_BFLOAT16 ? KERN_BF16 : KERN_F32;
    plan *p = NULL;
    manta_status st;

    if (find_plan(e, mode, batch)) return MANTA_OK;
    if (mode != PLAN_PREDICT && !e->o->n_heads) {
        return manta_fail(MANTA_EINVAL, "model '%s' has no loss: there is nothing to train or evaluate",
                          e->m->name);
    }
    TRY(plan_new(e->m, e->l, e->o, kernels_in(kernels_of(KERN_REFERENCE), rounding), 1, mode, batch, &p));
    if ((st = make_room(e, p))) {
        plan_free(p);
        forget_plans(e); /* memory that was to grow is gone: the smaller ones must ask for theirs again */
        return st;
    }
    e->plans = mem_resize(e->plans, (size_t)(e->n_plans + 1) * sizeof *e->plans);
    e->plans[e->n_plans++] = p;
    return MANTA_OK;
}

static dev_addr slot_of(const device_exec *e, int shard)
{
    return e->slots ? e->slots + (size_t)shard * e->slot_size : 0;
}

/* The program, made when it is not there yet. */
static manta_status find_program(device_exec *e, made want, dev_program **out)
{
    lowering w = lowering_of(e, want.p);
    manta_status st;

    for (int i = 0; i < e->n_programs; i++) {
        const made *m = &e->programs[i];
        if (m->p != want.p || m->shard != want.shard || m->parts != want.parts ||
            m->weighted != want.weighted)
            continue;
        *out = m->program;
        return MANTA_OK;
    }
    w.block = e->block.at;
    w.scratch = e->scratch.at;
    w.state = e->state;
    w.slot = slot_of(e, want.shard);
    w.run = e->run;
    want.program = w.program = program_new(e->d);
    if ((st = lower_parts(&w, want.parts))) {
        program_free(want.program);
        return st;
    }
    assert(w.scratch_most <= e->scratch.size);
    e->programs = mem_resize(e->programs, (size_t)(e->n_programs + 1) * sizeof *e->programs);
    e->programs[e->n_programs++] = want;
    *out = want.program;
    return MANTA_OK;
}

/* ---- a step ---- */

manta_status device_exec_run(device_exec *e, const exec_run *r, int shard, unsigned parts)
{
    dev_run run = {.seed = r->seed, .step = r->step, .first = r->first};
    made want = {.shard = shard, .parts = parts};
    dev_program *program;

    TRY(device_exec_prepare(e, r->mode, r->batch));
    want.p = find_plan(e, r->mode, r->batch);
    if (parts & DEVICE_FORWARD) {
        for (int i = 0; i < e->m->n_inputs; i++)
            TRY(device_feed_input(&e->feed, i, r, e->block.at + want.p->input_at[i].offset));
        TRY(device_put(e->d, e->run, &run, sizeof run));
    } else if (parts & DEVICE_BACKWARD && e->last != want.p) {
        return manta_fail(MANTA_EINVAL, "model '%s': backward of a batch whose forward was not the last run",
                          e->m->name);
    }
    if (parts & DEVICE_OBJECTIVE) TRY(device_feed_targets(&e->feed, r));
    want.weighted = e->feed.weighted;
    TRY(find_program(e, want, &program));
    e->last = want.p;
    e->played = program;
    return program_play(program);
}

manta_status device_exec_replay(device_exec *e, int64_t times, int *kernels_of_step)
{
    if (!e->played || !e->update.step) return manta_fail(MANTA_EINVAL, "there was no step to play again");
    for (int64_t i = 0; i < times; i++) {
        TRY(program_play(e->played));
        TRY(program_play(e->update.step));
    }
    *kernels_of_step = e->played->n + e->update.step->n;
    return device_wait(e->d);
}

manta_status device_exec_put_state(device_exec *e, const void *state)
{
    return device_put(e->d, e->state, state, e->l->state_size);
}

manta_status device_exec_get_state(device_exec *e, void *state)
{
    return device_get(e->d, state, e->state, e->l->off_run);
}

manta_status device_exec_get_sums(device_exec *e, int shard, void *slot)
{
    return device_get(e->d, layout_slot_sums(e->l, slot), slot_of(e, shard) + e->l->slot_sums,
                      (size_t)e->l->n_sums * sizeof(double));
}

manta_status device_exec_get_slot(device_exec *e, int shard, void *slot)
{
    return device_get(e->d, slot, slot_of(e, shard), e->l->slot_size);
}

manta_status device_exec_update(device_exec *e, apply *a, int n_shards, const int *shards)
{
    dev_addr slots[LAYOUT_MAX_SHARDS];

    for (int i = 0; i < n_shards; i++) slots[i] = slot_of(e, shards[i]);
    return device_update_step(&e->update, a, e->state, n_shards, slots);
}

manta_status device_exec_output(device_exec *e, int i, manta_array *out)
{
    const plan *p = e->last;
    dev_addr from;
    manta_array a;
    size_t bytes;

    if (!p || i < 0 || i >= e->m->n_outputs)
        return manta_fail(MANTA_EINVAL, "there is no output %d of a forward pass", i);
    a = e->m->values[e->m->outputs[i].value].a;
    a.shape[0] = p->batch;
    a = manta_array_of(a.dtype, a.ndim, a.shape, NULL);
    bytes = manta_array_bytes(&a);
    if (bytes > e->outputs_size[i]) {
        mem_try_free(e->outputs[i]);
        e->outputs_size[i] = 0;
        e->outputs[i] = NULL;
        TRY(mem_try_array((int64_t)bytes, 1, "predictions", &e->outputs[i]));
        e->outputs_size[i] = bytes;
    }
    from = p->output_at[i].kind == PLACE_INPUT ? e->block.at + p->input_at[p->output_at[i].offset].offset
                                               : e->block.at + p->output_at[i].offset;
    TRY(device_get(e->d, e->outputs[i], from, bytes));
    a.data = e->outputs[i];
    *out = a;
    return MANTA_OK;
}
