/* update_test.c - the optimizers' pass against recordings of Keras and PyTorch,
 * and its bits: every family, any division into runs, in place or not, past the
 * caches or not, and the tree over shards. */
#include "families.h"
#include "golden.h"

enum { CALLS = 8, VARIABLES = 3, ARRAYS = 6 }; /* w, s0, s1, s2, avg, acc */

/* ---- recordings ---- */

/* TensorFlow takes 1 - beta2^t in float, which leaves it five digits in the first steps. */
#define TOLERANCE 1e-5

typedef struct recipe {
    update_scalars s;
    bool torch;
    double rate, decay, clipnorm, global_clipnorm;
    int accumulate, overwrite; /* every so many calls; 0: not */
    double decay_rate; /* of an exponential schedule with two decay steps; 0: none */
} recipe;

static recipe read_recipe(const char *path)
{
    recipe r = {.torch = strncmp(path, "torch", 5) == 0};
    char name[32];

    assert_true(golden_text(path, "class_name", name, sizeof name));
    bool adam = strncmp(name, "Adam", 4) == 0, rms = strcmp(name, "RMSprop") == 0;
    double beta[2] = {golden_number(path, "beta_1", 0.9), golden_number(path, "beta_2", 0.999)};
    if (r.torch && adam) assert_int_equal(golden_list(path, "betas", beta, 2), 2);
    r.s.rule = adam  ? (r.torch ? UPDATE_ADAM_TORCH : UPDATE_ADAM)
               : rms ? (r.torch ? UPDATE_RMSPROP_TORCH : UPDATE_RMSPROP)
                     : (r.torch ? UPDATE_SGD_TORCH : UPDATE_SGD);
    r.rate = golden_number(path, r.torch ? "lr" : "learning_rate",
                           golden_number(path, "schedule_initial_learning_rate", -1));
    assert_true(r.rate > 0);
    r.decay_rate = golden_number(path, "schedule_decay_rate", 0);
    r.s.mu = golden_number(path, "momentum", 0);
    r.s.dampening = golden_number(path, "dampening", 0);
    r.s.nesterov = golden_number(path, "nesterov", 0) != 0;
    r.s.beta1 = beta[0];
    r.s.beta2 = rms ? golden_number(path, r.torch ? "alpha" : "rho", -1) : beta[1];
    r.s.eps = (float)golden_number(path, r.torch ? "eps" : "epsilon", 0);
    r.s.amsgrad = golden_number(path, "amsgrad", 0) != 0;
    r.s.centered = golden_number(path, "centered", 0) != 0;
    r.s.divisor = r.s.clip_factor = 1.0f;
    r.decay = golden_number(path, "weight_decay", 0);
    if (r.torch && strcmp(name, "AdamW") != 0) {
        r.s.l2_torch = (float)r.decay;
        r.decay = 0;
    }
    r.s.clip_value = (float)golden_number(path, "clipvalue", 0);
    r.clipnorm = golden_number(path, "clipnorm", 0);
    r.global_clipnorm = golden_number(path, "global_clipnorm", 0);
    if (golden_number(path, "use_ema", 0) != 0) r.s.ema = golden_number(path, "ema_momentum", 0);
    r.overwrite = (int)golden_number(path, "ema_overwrite_frequency", 0);
    r.accumulate = (int)golden_number(path, "gradient_accumulation_steps", 0);
    r.s.accumulate_n = (float)r.accumulate;
    return r;
}

/* The scalars of call c, as numerics.md has them. */
static update_scalars at_call(const recipe *r, int c, double rate)
{
    update_scalars s = r->s;
    int every = r->accumulate ? r->accumulate : 1, t = c / every + 1;

    if (r->decay_rate > 0) rate = rate * pow(r->decay_rate, c / 2.0);
    s.lr = (float)rate;
    s.decay_lr = (float)(rate * r->decay);
    s.first = c / every == 0;
    s.accumulate_only = (c + 1) % every != 0;
    s.ema_overwrite = r->overwrite && t % r->overwrite == 0;
    double c1 = 1 - pow(s.beta1, t), c2 = 1 - pow(s.beta2, t);
    s.alpha = (float)(r->torch ? rate / c1 : rate * sqrt(c2) / c1);
    s.root_c2 = (float)sqrt(c2);
    return s;
}

typedef struct variable {
    manta_array start, grads, after, average;
    float *state[ARRAYS];
    int64_t n;
} variable;

static void variable_load(const char *path, int i, variable *v)
{
    char name[16];

    snprintf(name, sizeof name, "v%d", i);
    v->start = golden_array(path, name);
    snprintf(name, sizeof name, "g%d", i);
    v->grads = golden_array(path, name);
    snprintf(name, sizeof name, "after%d", i);
    v->after = golden_array(path, name);
    snprintf(name, sizeof name, "average%d", i);
    if (!golden_load(path, name, &v->average)) v->average.data = NULL;
    v->n = manta_array_count(&v->start);
    for (int a = 0; a < ARRAYS; a++) v->state[a] = calloc((size_t)v->n, sizeof(float));
    memcpy(v->state[0], v->start.data, (size_t)v->n * sizeof(float));
}

static void variable_free(variable *v)
{
    golden_free(&v->start);
    golden_free(&v->grads);
    golden_free(&v->after);
    if (v->average.data) golden_free(&v->average);
    for (int a = 0; a < ARRAYS; a++) free(v->state[a]);
}

static update_run variable_run(const variable *v, const update_scalars *s, const float *const *g)
{
    float *const *a = v->state;

    return (update_run){.s = s,
                        .n = v->n,
                        .grads = g,
                        .n_grads = 1,
                        .w = a[0],
                        .w_new = a[0],
                        .s0 = a[1],
                        .s0_new = a[1],
                        .s1 = a[2],
                        .s1_new = a[2],
                        .s2 = a[3],
                        .s2_new = a[3],
                        .avg = a[4],
                        .avg_new = a[4],
                        .acc = a[5],
                        .acc_new = a[5]};
}

static void replay(const char *path, void *ctx)
{
    const kernels *k = ctx;
    recipe r = read_recipe(path);
    variable v[VARIABLES];
    manta_array rates = {0};
    bool given = golden_load(path, "rates", &rates);

    for (int i = 0; i < VARIABLES; i++) variable_load(path, i, &v[i]);
    for (int c = 0; c < CALLS; c++) {
        update_scalars s = at_call(&r, c, given ? (double)((const float *)rates.data)[c] : r.rate);
        double square[VARIABLES], all = 0;
        const float *g[VARIABLES];
        for (int i = 0; i < VARIABLES; i++) {
            g[i] = (const float *)v[i].grads.data + c * v[i].n;
            update_run u = variable_run(&v[i], &s, &g[i]);
            square[i] = k->square_sum(&u);
            all += square[i];
        }
        for (int i = 0; i < VARIABLES; i++) {
            update_scalars si = s;
            double limit = r.clipnorm > 0 ? r.clipnorm : r.global_clipnorm,
                   norm = sqrt(r.clipnorm > 0 ? square[i] : all);
            if (limit > 0 && norm > limit) si.clip_factor = (float)(limit / norm);
            update_run u = variable_run(&v[i], &si, &g[i]);
            k->update(&u);
            char what[160];
            snprintf(what, sizeof what, "%s, %s: variable %d after call %d", k->name, path, i, c);
            golden_near(what, v[i].state[0], (const float *)v[i].after.data + c * v[i].n, v[i].n, TOLERANCE,
                        TOLERANCE / 5);
            if (v[i].average.data)
                golden_near(what, v[i].state[4], (const float *)v[i].average.data + c * v[i].n, v[i].n,
                            TOLERANCE, 2e-6);
        }
    }
    for (int i = 0; i < VARIABLES; i++) variable_free(&v[i]);
    if (given) golden_free(&rates);
}

static void updates_match_keras(void **state)
{
    (void)state;
    for (int f = 0; f < KERN_ONEDNN; f++) {
        union {
            const kernels *k;
            void *p;
        } ctx = {.k = kernels_of((kern_family)f)};
        if (!ctx.k) continue;
        assert_true(golden_each("keras_opt_", replay, ctx.p) > 50);
        assert_true(golden_each("torch_opt_", replay, ctx.p) > 20);
    }
}

/* ---- bits ---- */

typedef struct bits_case {
    update_scalars s;
    int64_t n;
    int shards;
} bits_case;

static void run_bits(run *r, const void *arg)
{
    const bits_case *t = arg;
    int64_t n = t->n;
    float *g[9], *old[ARRAYS], *whole[ARRAYS], *cut[ARRAYS], *place[ARRAYS];

    for (int i = 0; i < t->shards; i++) g[i] = case_fill(r, n, 1.0f, 0.0f);
    for (int a = 0; a < ARRAYS; a++) {
        /* v must be positive, and when centered not below the square of the mean gradient (s2). */
        bool positive = a == 1 || a == 2 || a == 3;
        old[a] = case_fill(r, n, positive ? 0.2f : 1.0f, positive ? 0.3f : 0.0f);
        if (a == 3 && t->s.centered)
            for (int64_t i = 0; i < n; i++) old[a][i] *= 0.1f;
        whole[a] = case_new(n), cut[a] = case_new(n), place[a] = case_new(n);
        memcpy(place[a], old[a], (size_t)n * sizeof(float));
    }
    update_run u = {.s = &t->s,
                    .n = n,
                    .grads = (const float *const *)g,
                    .n_grads = t->shards,
                    .w = old[0],
                    .s0 = old[1],
                    .s1 = old[2],
                    .s2 = old[3],
                    .avg = old[4],
                    .acc = old[5],
                    .w_new = whole[0],
                    .s0_new = whole[1],
                    .s1_new = whole[2],
                    .s2_new = whole[3],
                    .avg_new = whole[4],
                    .acc_new = whole[5]};
    r->k->update(&u);
    for (int a = 0; a < ARRAYS; a++) case_out(r, n, whole[a]);
    float norm[2] = {(float)r->k->square_sum(&u), 12345.0f};
    case_out(r, 1, norm);

    /* Cut into runs of 1, 18, 35, ... elements. */
    for (int64_t at = 0, len = 1; at < n; at += len, len += 17) {
        const float *gs[9];
        if (len > n - at) len = n - at;
        for (int i = 0; i < t->shards; i++) gs[i] = g[i] + at;
        update_run part = {.s = &t->s,
                           .n = len,
                           .grads = gs,
                           .n_grads = t->shards,
                           .w = old[0] + at,
                           .s0 = old[1] + at,
                           .s1 = old[2] + at,
                           .s2 = old[3] + at,
                           .avg = old[4] + at,
                           .acc = old[5] + at,
                           .w_new = cut[0] + at,
                           .s0_new = cut[1] + at,
                           .s1_new = cut[2] + at,
                           .s2_new = cut[3] + at,
                           .avg_new = cut[4] + at,
                           .acc_new = cut[5] + at};
        r->k->update(&part);
    }
    update_run in_place = u;
    in_place.w = in_place.w_new = place[0], in_place.s0 = in_place.s0_new = place[1];
    in_place.s1 = in_place.s1_new = place[2], in_place.s2 = in_place.s2_new = place[3];
    in_place.avg = in_place.avg_new = place[4], in_place.acc = in_place.acc_new = place[5];
    r->k->update(&in_place);
    /* Past the caches, from a line's beginning and from within one. */
    float *past = aligned_alloc(64, ((size_t)n + 32) * sizeof *past / 64 * 64);
    assert_non_null(past);
    for (int shift = 0; shift < 2; shift++) {
        float *kept[ARRAYS];
        for (int a = 1; a < ARRAYS; a++) kept[a] = case_new(n);
        update_run streamed = u;
        streamed.stream = true;
        streamed.w_new = past + shift;
        streamed.s0_new = kept[1], streamed.s1_new = kept[2], streamed.s2_new = kept[3];
        streamed.avg_new = kept[4], streamed.acc_new = kept[5];
        r->k->update(&streamed);
        assert_memory_equal(past + shift, whole[0], (size_t)n * sizeof(float));
        for (int a = 1; a < ARRAYS; a++) {
            assert_memory_equal(kept[a], whole[a], (size_t)n * sizeof(float));
            free(kept[a]);
        }
    }
    free(past);
    for (int a = 0; a < ARRAYS; a++) {
        assert_memory_equal(cut[a], whole[a], (size_t)n * sizeof(float));
        if (n > 0 && whole[a][0] != 12345.0f)
            assert_memory_equal(place[a], whole[a], (size_t)n * sizeof(float));
        free(old[a]), free(whole[a]), free(cut[a]), free(place[a]);
    }
    for (int i = 0; i < t->shards; i++) free(g[i]);
}

static const update_scalars rules[] = {
    {.rule = UPDATE_SGD, .lr = 0.1f},
    {.rule = UPDATE_SGD, .lr = 0.1f, .mu = 0.9, .l1 = 0.01f, .l2 = 0.02f},
    {.rule = UPDATE_SGD, .lr = 0.1f, .mu = 0.9, .nesterov = true, .clip_value = 0.3f},
    {.rule = UPDATE_SGD_TORCH, .lr = 0.1f, .mu = 0.9, .dampening = 0.3, .l2_torch = 0.01f},
    {.rule = UPDATE_SGD_TORCH, .lr = 0.1f, .mu = 0.9, .nesterov = true},
    {.rule = UPDATE_SGD_TORCH, .lr = 0.1f, .mu = 0.9, .first = true},
    {.rule = UPDATE_SGD_TORCH, .lr = 0.1f},
    {.rule = UPDATE_ADAM, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-7f, .alpha = 0.01f, .decay_lr = 0.01f},
    {.rule = UPDATE_ADAM,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-7f,
     .alpha = 0.01f,
     .amsgrad = true,
     .ema = 0.9},
    {.rule = UPDATE_ADAM_TORCH, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f, .alpha = 0.01f, .root_c2 = 0.3f},
    {.rule = UPDATE_ADAM_TORCH,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-8f,
     .alpha = 0.01f,
     .root_c2 = 0.3f,
     .amsgrad = true},
    {.rule = UPDATE_RMSPROP, .lr = 0.01f, .beta2 = 0.9, .eps = 1e-7f},
    {.rule = UPDATE_RMSPROP, .lr = 0.01f, .beta2 = 0.9, .eps = 1e-7f, .mu = 0.9, .centered = true},
    {.rule = UPDATE_RMSPROP, .lr = 0.01f, .beta2 = 0.9, .eps = 1e-7f, .centered = true, .accumulate_n = 4},
    {.rule = UPDATE_RMSPROP_TORCH, .lr = 0.01f, .beta2 = 0.9, .eps = 1e-8f, .mu = 0.9},
    {.rule = UPDATE_RMSPROP_TORCH,
     .lr = 0.01f,
     .beta2 = 0.9,
     .eps = 1e-8f,
     .centered = true,
     .ema = 0.9,
     .ema_overwrite = true},
    {.rule = UPDATE_ADAM,
     .beta1 = 0.9,
     .beta2 = 0.999,
     .eps = 1e-7f,
     .alpha = 0.01f,
     .accumulate_n = 4,
     .accumulate_only = true,
     .ema = 0.9,
     .first = true},
};

static void updates_agree_in_all_families(void **state)
{
    static const int64_t sizes[] = {0, 1, 15, 16, 17, 1023, 1024, 1025, 4096, 5000};
    (void)state;

    for (size_t k = 0; k < sizeof rules / sizeof *rules; k++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
            for (int shards = 0; shards <= 9; shards += shards < 2 ? 1 : 7) {
                bits_case c = {.s = rules[k], .n = sizes[s], .shards = shards};
                c.s.divisor = shards == 1 ? 1.0f : 3.0f;
                c.s.clip_factor = shards == 9 ? 0.7f : 1.0f;
                case_everywhere("update", run_bits, &c);
            }
}

/* ---- the tree ---- */

/* The definition, written out for every number of shards tried. */
static float tree(const float *v, int n)
{
    switch (n) {
    case 1: return v[0];
    case 2: return v[0] + v[1];
    case 3: return (v[0] + v[1]) + v[2];
    case 4: return (v[0] + v[1]) + (v[2] + v[3]);
    case 5: return ((v[0] + v[1]) + (v[2] + v[3])) + v[4];
    case 6: return ((v[0] + v[1]) + (v[2] + v[3])) + (v[4] + v[5]);
    case 7: return ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + v[6]);
    case 8: return tree(v, 4) + tree(v + 4, 4);
    default: return tree(v, 8) + tree(v + 8, n - 8);
    }
}

static void run_tree(run *r, const void *arg)
{
    int shards = *(const int *)arg;
    enum { N = 3000 };
    float *g[16], zero[N] = {0}, w[N + 1];
    update_scalars s = {.rule = UPDATE_SGD, .lr = -1.0f, .divisor = 7.0f, .clip_factor = 1.0f};

    for (int i = 0; i < shards; i++) g[i] = case_fill(r, N, 1.0f, 0.0f);
    update_run u = {
        .s = &s, .n = N, .grads = (const float *const *)g, .n_grads = shards, .w = zero, .w_new = w};
    w[N] = 12345.0f;
    r->k->update(&u);
    case_out(r, N, w);
    for (int i = 0; i < N; i++) {
        float v[16];
        for (int k = 0; k < shards; k++) v[k] = g[k][i];
        assert_true(w[i] == tree(v, shards) / 7.0f);
    }
    for (int i = 0; i < shards; i++) free(g[i]);
}

static void shards_are_added_by_the_tree(void **state)
{
    (void)state;
    for (int shards = 1; shards <= 16; shards++) case_everywhere("tree", run_tree, &shards);
}

/* ---- single rules that the recordings do not reach ---- */

static void the_regulariser_is_added_after_the_division(void **state)
{
    (void)state;
    for (int f = 0; f < KERN_ONEDNN; f++) {
        const kernels *k = kernels_of((kern_family)f);
        if (!k) continue;
        float w[3] = {2.0f, -3.0f, 0.0f}, g[3] = {0.5f, 0.5f, 0.5f}, out[3];
        const float *gs[1] = {g};
        update_scalars s = {
            .rule = UPDATE_SGD, .lr = 1.0f, .divisor = 2.0f, .clip_factor = 1.0f, .l1 = 0.125f, .l2 = 0.25f};
        update_run u = {.s = &s, .n = 3, .grads = gs, .n_grads = 1, .w = w, .w_new = out};
        k->update(&u);
        /* g / 2 + l1 sign(w) + 2 l2 w, exact in binary */
        assert_true(out[0] == 2.0f - (0.25f + 0.125f + 1.0f));
        assert_true(out[1] == -3.0f - (0.25f - 0.125f - 1.5f));
        assert_true(out[2] == -0.25f);
        assert_true(k->square_sum(&u) == 1.375 * 1.375 + 1.375 * 1.375 + 0.0625);
    }
}

static void rules_have_their_number_of_slots(void **state)
{
    (void)state;
    assert_int_equal(update_slots(UPDATE_SGD, 0, false, false), 0);
    assert_int_equal(update_slots(UPDATE_SGD, 0.9, false, false), 1);
    assert_int_equal(update_slots(UPDATE_SGD_TORCH, 0.9, false, false), 1);
    assert_int_equal(update_slots(UPDATE_ADAM, 0, false, false), 3);
    assert_int_equal(update_slots(UPDATE_ADAM_TORCH, 0, true, false), 7);
    assert_int_equal(update_slots(UPDATE_RMSPROP, 0, false, false), 1);
    assert_int_equal(update_slots(UPDATE_RMSPROP, 0, false, true), 5);
    assert_int_equal(update_slots(UPDATE_RMSPROP_TORCH, 0.9, false, true), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_match_keras),
        cmocka_unit_test(updates_agree_in_all_families),
        cmocka_unit_test(shards_are_added_by_the_tree),
        cmocka_unit_test(the_regulariser_is_added_after_the_division),
        cmocka_unit_test(rules_have_their_number_of_slots),
    };

    return cmocka_run_group_tests_name("tensor/update", tests, NULL, NULL);
}
