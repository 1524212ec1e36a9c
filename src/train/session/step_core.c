/* step_core.c - the parts of a step that all engines share. */
#include "train/session/step_core.h"

#include <string.h>

enum {
    UPDATE_BLOCKS = 16, /* of the grid that a task has: 256 KB of weights */
    REDUCE_BLOCKS = 4, /* fewer, since a piece of a cluster's has only 64 */
};

/* A run of blocks, spread over the pool. */
typedef struct blocks {
    apply *a;
    int64_t lo, hi, per_task;
    float *out; /* of a reduction */
    void (*run)(const struct blocks *b, int64_t lo, int64_t hi);
} blocks;

static void blocks_task(void *ctx, int task, int thread)
{
    const blocks *b = ctx;
    int64_t lo = b->lo + (int64_t)task * b->per_task;

    (void)thread;
    b->run(b, lo, lo + b->per_task < b->hi ? lo + b->per_task : b->hi);
}

static void run_blocks(manta_session *s, blocks b)
{
    b.a = &s->a;
    pool_run(s->pool, (int)((b.hi - b.lo + b.per_task - 1) / b.per_task), blocks_task, &b);
}

static void run_norms(const blocks *b, int64_t lo, int64_t hi)
{
    apply_norms(b->a, lo, hi);
}

static void run_params(const blocks *b, int64_t lo, int64_t hi)
{
    apply_params(b->a, lo, hi);
}

static void run_stats(const blocks *b, int64_t lo, int64_t hi)
{
    apply_stats(b->a, lo, hi);
}

static void run_reduce(const blocks *b, int64_t lo, int64_t hi)
{
    apply_reduce(b->a, lo, hi, b->out);
}

step_range step_range_of(const layout *l, int i, int n)
{
    return (step_range){.param = l->param_blocks * i / n,
                        .param_end = l->param_blocks * (i + 1) / n,
                        .stat = l->stat_blocks * i / n,
                        .stat_end = l->stat_blocks * (i + 1) / n};
}

void step_collect(manta_session *s, int64_t count)
{
    s->n_used = 0;
    for (int v = 0; v < s->shards; v++) {
        if (step_has_samples(s, count, v)) s->used[s->n_used++] = s->slots[v];
    }
}

void step_begin(manta_session *s, void *next)
{
    apply_begin(&s->a, s->state, next, s->n_used, s->used);
    s->factored = false;
}

void step_norms(manta_session *s, const step_range *r)
{
    run_blocks(s, (blocks){.lo = r->param, .hi = r->param_end, .per_task = UPDATE_BLOCKS, .run = run_norms});
}

void step_params(manta_session *s, const step_range *r)
{
    if (apply_needs_norms(&s->a) && !s->factored) {
        apply_factors(&s->a);
        s->factored = true;
    }
    run_blocks(s, (blocks){.lo = r->param, .hi = r->param_end, .per_task = UPDATE_BLOCKS, .run = run_params});
}

void step_stats(manta_session *s, const step_range *r)
{
    run_blocks(s, (blocks){.lo = r->stat, .hi = r->stat_end, .per_task = UPDATE_BLOCKS, .run = run_stats});
}

void step_reduce(manta_session *s, int64_t lo, int64_t hi, float *out)
{
    run_blocks(s, (blocks){.lo = lo, .hi = hi, .per_task = REDUCE_BLOCKS, .run = run_reduce, .out = out});
}

void step_fold(manta_session *s)
{
    step_range all = step_range_of(&s->l, 0, 1);
    void *slot = (void *)(uintptr_t)s->used[0];
    double sums[SUM_FIXED + 4 * MANTA_MAX_METRICS];

    if (s->n_used < 2) return;
    step_begin(s, s->state);
    step_stats(s, &all);
    memcpy(layout_slot_stats(&s->l, slot), layout_stats(&s->l, s->state),
           (size_t)s->l.stats_size * sizeof(float));
    apply_sums(&s->l, s->n_used, s->used, sums);
    step_reduce(s, 0, s->l.param_blocks, layout_slot_grads(&s->l, slot));
    memcpy(layout_slot_sums(&s->l, slot), sums, (size_t)s->l.n_sums * sizeof *sums);
    s->n_used = 1;
}

void step_finish(manta_session *s, int64_t count)
{
    run_state *run = layout_run(&s->l, s->a.new_);

    apply_finish(&s->a);
    step_count(run, count);
    s->touched = true;
    s->phase = SESSION_IDLE;
    s->evaluated = false;
}

void step_update(manta_session *s, int64_t count)
{
    step_range all = step_range_of(&s->l, 0, 1);

    if (apply_needs_norms(&s->a)) step_norms(s, &all);
    step_params(s, &all);
    step_stats(s, &all);
    step_finish(s, count);
}

void step_add_sums(const manta_session *s, const double *before, double *sums)
{
    double these[SUM_FIXED + 4 * MANTA_MAX_METRICS];
    int n = s->l.n_sums;

    apply_sums(&s->l, s->n_used, s->used, these);
    these[n] = apply_penalty(&s->a, s->state) * these[SUM_SAMPLES];
    for (int i = 0; i <= n; i++) sums[i] = before[i] + these[i];
}
