/* apply.c - the update, by runs of grid blocks. */
#include "nn/apply.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "tensor/stream.h"

enum { TILE = 512 }; /* elements summed at a time where a temporary is needed */

/* ---- fixed per layout ---- */

static manta_status cut_segments(apply *a)
{
    const layout *l = a->l;
    int64_t most = l->param_blocks + l->n_params + 1, block = 0;

    if (most > INT_MAX / 2)
        return manta_fail(MANTA_ENOMEM, "model '%s' has %lld blocks of %d weights, at most %d can be trained",
                          l->model->name, (long long)l->param_blocks, LAYOUT_BLOCK, INT_MAX / 2);
    TRY(mem_try_array(most, sizeof *a->segments, "the segments of the weights", (void **)&a->segments));
    TRY(mem_try_array(l->param_blocks + 2, sizeof *a->block_first, "the blocks of the weights",
                      (void **)&a->block_first));
    for (int i = 0; i < l->n_params; i++) {
        int64_t at = l->params[i].offset, end = at + l->params[i].count;
        while (at < end) {
            int64_t stop = (at / LAYOUT_BLOCK + 1) * LAYOUT_BLOCK;
            if (stop > end) stop = end;
            while (block <= at / LAYOUT_BLOCK) a->block_first[block++] = a->n_segments;
            a->segments[a->n_segments++] = (apply_segment){.param = i, .offset = at, .n = stop - at};
            at = stop;
        }
    }
    while (block <= l->param_blocks) a->block_first[block++] = a->n_segments;
    return MANTA_OK;
}

manta_status apply_init(apply *a, const layout *l, const manta_optimizer *opt, const kernels *k)
{
    *a = (apply){.l = l, .opt = opt, .k = k};
    TRY(cut_segments(a));
    TRY(mem_try_array(2 * (int64_t)a->n_segments + 2, sizeof *a->norms, "the norms of the weights",
                      (void **)&a->norms));
    a->scalars = mem_new((size_t)(l->n_params + 1) * sizeof *a->scalars);
    for (int i = 0; i < l->n_params; i++) {
        const manta_regularizer *r = &l->model->variables[l->params[i].variable].reg;
        if (r->l1 != 0 || r->l2 != 0) a->regularised = true;
    }
    return MANTA_OK;
}

void apply_release(apply *a)
{
    mem_try_free(a->segments);
    mem_try_free(a->block_first);
    mem_try_free(a->norms);
    mem_free(a->scalars);
    memset(a, 0, sizeof *a);
}

/* ---- a step ---- */

/* The largest power of two below n: the tree of tensor/update.h. */
static int half_of(int n)
{
    int half = 1;

    while (2 * half < n) half *= 2;
    return half;
}

static double tree_sum(const layout *l, const void *const *slots, int lo, int hi, int which)
{
    int half;

    if (hi - lo == 1) return layout_slot_sums(l, slots[lo])[which];
    half = half_of(hi - lo);
    return tree_sum(l, slots, lo, lo + half, which) + tree_sum(l, slots, lo + half, hi, which);
}

void apply_sums(const layout *l, int n_slots, const void *const *slots, double *out)
{
    for (int i = 0; i < l->n_sums; i++) out[i] = tree_sum(l, slots, 0, n_slots, i);
}

void apply_begin(apply *a, const void *old, void *new_, int n_slots, const void *const *slots)
{
    const layout *l = a->l;
    const run_state *run = layout_run(l, old);
    update_scalars s = optimizer_scalars(a->opt, run->learning_rate, run->calls);

    a->old = old;
    a->new_ = new_;
    a->n_slots = n_slots;
    a->slots = slots;
    a->penalty = 0;
    for (int i = 0; i < n_slots; i++) a->slot_grads[i] = layout_slot_grads(l, slots[i]);
    a->n_grads = n_slots;
    s.divisor = (float)tree_sum(l, slots, 0, n_slots, SUM_DIVISOR);
    if (s.divisor == 0) s.divisor = 1; /* all sample weights were 0: the sums are too */
    for (int i = 0; i < l->n_params; i++) {
        const manta_regularizer *r = &l->model->variables[l->params[i].variable].reg;
        a->scalars[i] = s;
        a->scalars[i].l1 = r->l1;
        a->scalars[i].l2 = r->l2;
    }
}

static float *section_at(const layout *l, const void *state, size_t section, int64_t offset)
{
    (void)l;
    return (float *)((uintptr_t)state + section) + offset;
}

/* The run of elements [offset, offset + n), gradients from `grads`. */
static void update_elements(const apply *a, const update_scalars *s, int64_t offset, int64_t n,
                            const float *const *grads, int n_grads, bool stream)
{
    const layout *l = a->l;
    update_run r = {.s = s, .n = n, .grads = grads, .n_grads = n_grads, .stream = stream};
    const float **old[3] = {&r.s0, &r.s1, &r.s2};
    float **new_[3] = {&r.s0_new, &r.s1_new, &r.s2_new};

    r.w = section_at(l, a->old, l->off_params, offset);
    r.w_new = section_at(l, a->new_, l->off_params, offset);
    for (int i = 0; i < l->arrays.n; i++) {
        *old[l->arrays.index[i]] = section_at(l, a->old, l->off_array[i], offset);
        *new_[l->arrays.index[i]] = section_at(l, a->new_, l->off_array[i], offset);
    }
    if (l->arrays.average) {
        r.avg = section_at(l, a->old, l->off_average, offset);
        r.avg_new = section_at(l, a->new_, l->off_average, offset);
    }
    if (l->arrays.accumulator) {
        r.acc = section_at(l, a->old, l->off_accumulator, offset);
        r.acc_new = section_at(l, a->new_, l->off_accumulator, offset);
    }
    a->k->update(&r);
}

/* Gradients of the slots from `offset` on. */
static const float *const *grads_at(const apply *a, int64_t offset, const float **buf)
{
    for (int i = 0; i < a->n_grads; i++) buf[i] = a->slot_grads[i] + offset;
    return buf;
}

/* Every core reads the new weights in the next step, and no cache keeps as many until then. */
static bool weights_stream(const apply *a)
{
    return a->l->params_size >= STREAM_FROM;
}

void apply_params(const apply *a, int64_t block, int64_t end)
{
    const float *buf[LAYOUT_MAX_SHARDS];

    if (block >= end) return;
    if (!a->regularised && !apply_needs_norms(a)) {
        /* Every parameter is updated with the same numbers, so all are one run. Padding is zero and stays so. */
        int64_t offset = block * LAYOUT_BLOCK, n = (end - block) * LAYOUT_BLOCK;
        update_elements(a, &a->scalars[0], offset, n, grads_at(a, offset, buf), a->n_grads,
                        weights_stream(a));
    } else {
        for (int i = a->block_first[block]; i < a->block_first[end]; i++) {
            const apply_segment *g = &a->segments[i];
            update_elements(a, &a->scalars[g->param], g->offset, g->n, grads_at(a, g->offset, buf),
                            a->n_grads, weights_stream(a));
        }
    }
}

void apply_elements(const apply *a, int param, int64_t first, int64_t n)
{
    const float *buf[LAYOUT_MAX_SHARDS];

    update_elements(a, &a->scalars[param], first, n, grads_at(a, first, buf), a->n_grads, false);
}

bool apply_can_sink(const apply *a)
{
    return !apply_needs_norms(a) && a->l->n_params > 0;
}

void apply_range(const apply *a, int64_t first, int64_t n, const float *g)
{
    update_elements(a, &a->scalars[0], first, n, &g, 1, weights_stream(a));
}

/* ---- norms and penalties ---- */

bool apply_needs_norms(const apply *a)
{
    return a->regularised || optimizer_needs_norms(a->opt);
}

/* Elements [at, at + n) of arrays `v`, added by the tree into out. n <= TILE. */
static void tree_tile(const float *const *v, int lo, int hi, int64_t at, int64_t n, float *out)
{
    float right[TILE];
    int half;

    if (hi - lo == 1) {
        memcpy(out, v[lo] + at, (size_t)n * sizeof *out);
        return;
    }
    half = half_of(hi - lo);
    tree_tile(v, lo, lo + half, at, n, out);
    tree_tile(v, lo + half, hi, at, n, right);
    for (int64_t i = 0; i < n; i++) out[i] += right[i];
}

void apply_reduce(const apply *a, int64_t block, int64_t end, float *out)
{
    for (int64_t at = block * LAYOUT_BLOCK; at < end * LAYOUT_BLOCK; at += TILE)
        tree_tile(a->slot_grads, 0, a->n_grads, at, TILE, out + at);
}

void apply_summed(apply *a, const float *sum)
{
    a->slot_grads[0] = sum;
    a->n_grads = 1;
}

/* The gradient as the optimizer will see it before clipping. */
static void effective_tile(const apply *a, const update_scalars *s, int64_t at, int64_t n, float *g)
{
    const float *w = section_at(a->l, a->old, a->l->off_params, at);

    tree_tile(a->slot_grads, 0, a->n_grads, at, n, g);
    for (int64_t i = 0; i < n; i++) g[i] /= s->divisor;
    if (s->l1 != 0 || s->l2 != 0) {
        float l2 = 2 * s->l2;
        for (int64_t i = 0; i < n; i++) {
            float sign = w[i] > 0 ? s->l1 : (w[i] < 0 ? -s->l1 : 0);
            g[i] += fmaf(l2, w[i], sign);
        }
    }
    if (s->accumulate_n != 0) {
        const float *acc = section_at(a->l, a->old, a->l->off_accumulator, at);
        for (int64_t i = 0; i < n; i++) g[i] = (acc[i] + g[i]) / s->accumulate_n;
    }
}

/* Square sums in eight lanes that are added in order: the same on every machine
 * and wide enough for a vector. */
enum { LANES = 8 };

static double lane_sum(const double *lane)
{
    double sum = 0;

    for (int i = 0; i < LANES; i++) sum += lane[i];
    return sum;
}

static double tile_penalty(const update_scalars *s, const float *w, int64_t n)
{
    double lane[LANES] = {0};

    for (int64_t i = 0; i < n; i++) {
        double x = (double)w[i];
        lane[i % LANES] += (double)s->l1 * fabs(x) + (double)s->l2 * x * x;
    }
    return lane_sum(lane);
}

static void segment_norms(const apply *a, const apply_segment *g, double *out)
{
    const update_scalars *s = &a->scalars[g->param];
    double squares[LANES] = {0}, penalty = 0;
    float tile[TILE];

    for (int64_t at = 0; at < g->n; at += TILE) {
        int64_t n = g->n - at < TILE ? g->n - at : TILE;
        const float *w = section_at(a->l, a->old, a->l->off_params, g->offset + at);
        effective_tile(a, s, g->offset + at, n, tile);
        for (int64_t i = 0; i < n; i++) squares[i % LANES] += (double)tile[i] * (double)tile[i];
        if (s->l1 != 0 || s->l2 != 0) penalty += tile_penalty(s, w, n);
    }
    out[0] = lane_sum(squares);
    out[1] = penalty;
}

void apply_norms(apply *a, int64_t block, int64_t end)
{
    for (int i = a->block_first[block]; i < a->block_first[end]; i++) {
        segment_norms(a, &a->segments[i], &a->norms[2 * i]);
    }
}

void apply_factors(apply *a)
{
    double all = 0, *squares = a->norms;
    int i = 0;

    a->penalty = 0;
    for (int p = 0; p < a->l->n_params; p++) {
        double sum = 0;
        for (; i < a->n_segments && a->segments[i].param == p; i++) {
            sum += squares[2 * i];
            a->penalty += squares[2 * i + 1];
        }
        if (a->opt->clipnorm > 0) a->scalars[p].clip_factor = optimizer_clip_factor(a->opt, sum);
        all += sum;
    }
    if (a->opt->global_clipnorm > 0) {
        float factor = optimizer_clip_factor(a->opt, all);
        for (int p = 0; p < a->l->n_params; p++) a->scalars[p].clip_factor = factor;
    }
}

void apply_as_given(apply *a)
{
    for (int i = 0; i < a->l->n_params; i++) {
        a->scalars[i].divisor = 1;
        a->scalars[i].l1 = a->scalars[i].l2 = 0;
    }
}

void apply_gradient(const apply *a, float *out)
{
    for (int i = 0; i < a->n_segments; i++) {
        const apply_segment *g = &a->segments[i];
        update_scalars s = a->scalars[g->param];
        s.accumulate_n = 0; /* of this call alone */
        for (int64_t at = 0; at < g->n; at += TILE) {
            int64_t n = g->n - at < TILE ? g->n - at : TILE;
            effective_tile(a, &s, g->offset + at, n, out + g->offset + at);
        }
    }
}

double apply_penalty(const apply *a, const void *state)
{
    double sum = 0;

    if (!a->regularised) return 0;
    for (int i = 0; i < a->l->n_params; i++) {
        const layout_variable *v = &a->l->params[i];
        const manta_regularizer *r = &a->l->model->variables[v->variable].reg;
        update_scalars s = {.l1 = r->l1, .l2 = r->l2};
        if (r->l1 != 0 || r->l2 != 0)
            sum += tile_penalty(&s, layout_params(a->l, state) + v->offset, v->count);
    }
    return sum;
}

/* ---- statistics and the run section ---- */

static void stat_elements(const apply *a, const layout_variable *v, int64_t at, int64_t end)
{
    const layout *l = a->l;
    const float *old = layout_stats(l, a->old), *proposals[LAYOUT_MAX_SHARDS];
    float *new_ = layout_stats(l, a->new_), tile[TILE];
    int n_slots = a->first_stats ? 1 : a->n_slots;

    if (!v->proposed) {
        if (old != new_) memcpy(new_ + at, old + at, (size_t)(end - at) * sizeof *old);
        return;
    }
    assert(a->n_slots > 0);
    for (int i = 0; i < n_slots; i++) proposals[i] = layout_slot_stats(l, a->slots[i]);
    for (; at < end; at += TILE) {
        int64_t n = end - at < TILE ? end - at : TILE;
        tree_tile(proposals, 0, n_slots, at, n, tile);
        for (int64_t i = 0; i < n; i++) new_[at + i] = tile[i] / (float)n_slots;
    }
}

void apply_stats(const apply *a, int64_t block, int64_t end)
{
    int64_t lo = block * LAYOUT_BLOCK, hi = end * LAYOUT_BLOCK;

    for (int i = 0; i < a->l->n_stats; i++) {
        const layout_variable *v = &a->l->stats[i];
        int64_t at = v->offset > lo ? v->offset : lo,
                stop = v->offset + v->count < hi ? v->offset + v->count : hi;
        if (at < stop) stat_elements(a, v, at, stop);
    }
}

void apply_finish(apply *a)
{
    const layout *l = a->l;
    const run_state *old = layout_run(l, a->old);
    run_state *run = layout_run(l, a->new_);
    double samples = tree_sum(l, a->slots, 0, a->n_slots, SUM_SAMPLES);

    if (run != old) memcpy(run, old, l->run_size);
    run->calls++;
    for (int i = 0; i < l->n_sums; i++) run->sums[i] += tree_sum(l, a->slots, 0, a->n_slots, i);
    run->sums[l->n_sums] += a->penalty * samples;
    a->slots = NULL;
}

void apply_average(const layout *l, const manta_optimizer *opt, void *state)
{
    if (!l->arrays.average || opt->ema_overwrite_frequency || !layout_run(l, state)->calls) return;
    memcpy(layout_params(l, state), section_at(l, state, l->off_average, 0),
           (size_t)l->params_size * sizeof(float));
}
