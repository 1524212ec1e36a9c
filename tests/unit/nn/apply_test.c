/* The update: the same bits however the grid is divided, in place or into
 * another side, and the right numbers for shards, clipping, regularisers,
 * statistics. */
#include "nn/net.h"

#include <math.h>

enum { SHARDS = 5 };

/* A layout with several variables of awkward sizes, and slots of random sums. */
typedef struct world {
    net t;
    apply a;
    void *old, *slots[SHARDS];
    const void *used[SHARDS];
} world;

static manta_model *odd_model(manta_regularizer reg)
{
    manta_model *m = manta_model_new("odd");
    manta_value x = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){67});

    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 131, .kernel_regularizer = reg}), x);
    x = manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}), x);
    x = manta_call(m, manta_dense(m, (manta_dense_options){.units = 3}), x);
    manta_output(m, x);
    return m;
}

static void world_open(world *w, const manta_optimizer *opt, manta_regularizer reg, const char *family)
{
    net_open(&w->t, odd_model(reg), true, 4, 1, family, opt);
    assert_ok(apply_init(&w->a, &w->t.l, &w->t.opt, w->t.k));
    w->old = mem_try(w->t.l.state_size);
    memcpy(w->old, w->t.state, w->t.l.state_size);
    for (int i = 0; i < w->t.l.arrays.n; i++) { /* as if some steps had been */
        float *s = layout_array(&w->t.l, w->old, i);
        for (int j = 0; j < w->t.l.n_params; j++) {
            const layout_variable *v = &w->t.l.params[j];
            for (int64_t k = 0; k < v->count; k++) s[v->offset + k] = 0.01f * (float)((k + i) % 5 + 1);
        }
    }
    layout_run(&w->t.l, w->old)->calls = 3;
    for (int i = 0; i < SHARDS; i++) {
        double *sums;
        w->slots[i] = mem_try(w->t.l.slot_size);
        w->used[i] = w->slots[i];
        for (int j = 0; j < w->t.l.n_params; j++) {
            const layout_variable *v = &w->t.l.params[j];
            net_fill(layout_slot_grads(&w->t.l, w->slots[i]) + v->offset, v->count,
                     (uint64_t)(100 + 10 * i + j));
        }
        for (int j = 0; j < w->t.l.n_stats; j++) {
            const layout_variable *v = &w->t.l.stats[j];
            net_fill(layout_slot_stats(&w->t.l, w->slots[i]) + v->offset, v->count,
                     (uint64_t)(500 + 10 * i + j));
        }
        sums = layout_slot_sums(&w->t.l, w->slots[i]);
        for (int j = 0; j < w->t.l.n_sums; j++) sums[j] = i + 1 + 0.1 * j;
        sums[SUM_DIVISOR] = 7;
    }
}

static void world_close(world *w)
{
    apply_release(&w->a);
    mem_try_free(w->old);
    for (int i = 0; i < SHARDS; i++) mem_try_free(w->slots[i]);
    net_close(&w->t);
}

/* Updates w->old into new_, the grid cut at the places where `cuts` has a bit. */
static void update(world *w, void *new_, int shards, unsigned cuts)
{
    const layout *l = &w->t.l;
    int64_t from = 0;

    apply_begin(&w->a, w->old, new_, shards, w->used);
    if (apply_needs_norms(&w->a)) {
        apply_norms(&w->a, l->param_blocks / 2, l->param_blocks); /* in any order */
        apply_norms(&w->a, 0, l->param_blocks / 2);
        apply_factors(&w->a);
    }
    for (int64_t b = 1; b <= l->param_blocks; b++) {
        if (b < l->param_blocks && !(cuts >> (b % 32) & 1)) continue;
        apply_params(&w->a, from, b);
        from = b;
    }
    for (int64_t b = 0; b < l->stat_blocks; b++) apply_stats(&w->a, b, b + 1);
    apply_finish(&w->a);
}

static manta_optimizer named(const char *name)
{
    manta_optimizer o;

    assert_ok(manta_optimizer_named(name, &o));
    return o;
}

/* Every kind of optimizer and setting that touches the pass. */
static int variants(manta_optimizer *out)
{
    int n = 0;

    out[n++] = named("sgd");
    out[n] = named("sgd");
    out[n].momentum = 0.9;
    out[n++].clipnorm = 0.5;
    out[n] = named("adam");
    out[n++].global_clipnorm = 0.7;
    out[n] = named("adam");
    out[n].amsgrad = true;
    out[n].use_ema = true;
    out[n++].ema_momentum = 0.9;
    out[n] = named("adamw");
    out[n++].clipvalue = 0.1;
    out[n] = named("rmsprop");
    out[n].centered = true;
    out[n++].gradient_accumulation_steps = 4;
    out[n++] = named("torch.adam");
    return n;
}

static void same_bits_however_divided(void **state)
{
    manta_optimizer opts[16];
    int n = variants(opts);
    static const char *const families[] = {"reference", "auto"};

    (void)state;
    for (int i = 0; i < n; i++) {
        for (int reg = 0; reg < 2; reg++) {
            void *first = NULL;
            size_t size = 0;
            for (unsigned round = 0; round < 8; round++) {
                world w;
                void *new_;
                world_open(&w, &opts[i], (manta_regularizer){.l1 = reg ? 0.01f : 0, .l2 = reg ? 0.02f : 0},
                           families[round & 1]);
                new_ = round & 2 ? w.old : mem_try(w.t.l.state_size); /* in place, or another side */
                update(&w, new_, SHARDS, round < 4 ? 0 : 0x6b5au * round);
                if (!first) {
                    size = w.t.l.state_size;
                    first = mem_try(size);
                    memcpy(first, new_, size);
                } else {
                    assert_memory_equal(first, new_, size);
                }
                if (new_ != w.old) mem_try_free(new_);
                world_close(&w);
            }
            mem_try_free(first);
        }
    }
}

/* A double-precision transcription for SGD with everything on. */
static void numbers_of_a_clipped_regularised_step(void **state)
{
    manta_optimizer opt = named("sgd");
    world w;
    void *new_;
    double norm = 0, penalty = 0, *g;

    (void)state;
    opt.learning_rate = 0.1;
    opt.global_clipnorm = 0.3;
    opt.weight_decay = 0.05;
    world_open(&w, &opt, (manta_regularizer){.l1 = 0.01f, .l2 = 0.02f}, NULL);
    new_ = mem_try(w.t.l.state_size);
    update(&w, new_, SHARDS, 0);
    g = mem_try((size_t)w.t.l.params_size * sizeof *g);
    for (int i = 0; i < w.t.l.n_params; i++) {
        const layout_variable *v = &w.t.l.params[i];
        const manta_regularizer *r = &w.t.m->variables[v->variable].reg;
        for (int64_t j = v->offset; j < v->offset + v->count; j++) {
            double x = (double)layout_params(&w.t.l, w.old)[j];
            for (int s = 0; s < SHARDS; s++) g[j] += (double)layout_slot_grads(&w.t.l, w.slots[s])[j];
            g[j] = g[j] / (7 * SHARDS) + (double)r->l1 * ((x > 0) - (x < 0)) + 2 * (double)r->l2 * x;
            norm += g[j] * g[j];
            penalty += (double)r->l1 * fabs(x) + (double)r->l2 * x * x;
        }
    }
    norm = sqrt(norm);
    assert_true(norm > 0.3);
    for (int i = 0; i < w.t.l.n_params; i++) {
        const layout_variable *v = &w.t.l.params[i];
        for (int64_t j = v->offset; j < v->offset + v->count; j++) {
            double x = (double)layout_params(&w.t.l, w.old)[j];
            double want = x - x * 0.05 * 0.1 - 0.1 * g[j] * 0.3 / norm;
            assert_true(fabs(want - (double)layout_params(&w.t.l, new_)[j]) < 1e-6 * (1 + fabs(want)));
        }
    }
    {
        const run_state *run = layout_run(&w.t.l, new_);
        assert_int_equal(run->calls, 4);
        assert_true(run->sums[SUM_SAMPLES] == 1 + 2 + 3 + 4 + 5);
        assert_true(fabs(run->sums[w.t.l.n_sums] - penalty * 15) < 1e-6 * penalty * 15);
        assert_true(fabs(apply_penalty(&w.a, w.old) - penalty) < 1e-9 * penalty + 1e-12);
    }
    mem_try_free(g);
    mem_try_free(new_);
    world_close(&w);
}

static void statistics_are_averaged_over_shards(void **state)
{
    world w;
    void *new_;

    (void)state;
    world_open(&w, NULL, (manta_regularizer){0}, NULL);
    new_ = mem_try(w.t.l.state_size);
    update(&w, new_, 3, 0);
    assert_int_equal(w.t.l.n_stats, 2);
    for (int i = 0; i < w.t.l.n_stats; i++) {
        const layout_variable *v = &w.t.l.stats[i];
        assert_true(v->proposed);
        for (int64_t j = v->offset; j < v->offset + v->count; j++) {
            float sum = layout_slot_stats(&w.t.l, w.slots[0])[j] + layout_slot_stats(&w.t.l, w.slots[1])[j];
            sum += layout_slot_stats(&w.t.l, w.slots[2])[j];
            assert_true(layout_stats(&w.t.l, new_)[j] == sum / 3);
        }
    }
    mem_try_free(new_);
    world_close(&w);
}

/* Whole subtrees may be added beforehand: eight shards are two fours. */
static void the_tree_is_of_subtrees(void **state)
{
    float v[8], four[2];

    (void)state;
    net_fill(v, 8, 77);
    for (int i = 0; i < 2; i++) four[i] = (v[4 * i] + v[4 * i + 1]) + (v[4 * i + 2] + v[4 * i + 3]);
    {
        update_scalars s = {.rule = UPDATE_SGD, .lr = 1, .divisor = 1, .clip_factor = 1};
        const float *grads[8], *sums[2] = {&four[0], &four[1]};
        float w8 = 0, w2 = 0;
        for (int i = 0; i < 8; i++) grads[i] = &v[i];
        kernels_of(KERN_REFERENCE)
            ->update(&(update_run){.s = &s, .n = 1, .grads = grads, .n_grads = 8, .w = &w8, .w_new = &w8});
        kernels_of(KERN_REFERENCE)
            ->update(&(update_run){.s = &s, .n = 1, .grads = sums, .n_grads = 2, .w = &w2, .w_new = &w2});
        assert_memory_equal(&w8, &w2, sizeof w8);
    }
}

static void given_gradients_are_taken_as_they_are(void **state)
{
    manta_optimizer opt = named("sgd");
    world w;

    (void)state;
    opt.learning_rate = 0.5;
    world_open(&w, &opt, (manta_regularizer){.l2 = 1}, NULL);
    apply_begin(&w.a, w.old, w.t.state, 1, w.used);
    apply_as_given(&w.a);
    apply_norms(&w.a, 0, w.t.l.param_blocks);
    apply_factors(&w.a);
    apply_params(&w.a, 0, w.t.l.param_blocks);
    for (int64_t j = 0; j < w.t.l.params[0].count; j++) {
        float want = layout_params(&w.t.l, w.old)[j] - 0.5f * layout_slot_grads(&w.t.l, w.slots[0])[j];
        assert_true(layout_params(&w.t.l, w.t.state)[j] == want);
    }
    world_close(&w);
}

static void padding_stays_zero(void **state)
{
    manta_optimizer opts[16];
    int n = variants(opts);

    (void)state;
    for (int i = 0; i < n; i++) {
        world w;
        char *used;
        world_open(&w, &opts[i], (manta_regularizer){0}, NULL);
        update(&w, w.old, SHARDS, 0);
        used = mem_try((size_t)w.t.l.params_size);
        for (int j = 0; j < w.t.l.n_params; j++) {
            memset(used + w.t.l.params[j].offset, 1, (size_t)w.t.l.params[j].count);
        }
        for (int64_t j = 0; j < w.t.l.params_size; j++) {
            if (!used[j]) assert_true(layout_params(&w.t.l, w.old)[j] == 0);
        }
        mem_try_free(used);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_however_divided),
        cmocka_unit_test(numbers_of_a_clipped_regularised_step),
        cmocka_unit_test(statistics_are_averaged_over_shards),
        cmocka_unit_test(the_tree_is_of_subtrees),
        cmocka_unit_test(given_gradients_are_taken_as_they_are),
        cmocka_unit_test(padding_stays_zero),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
