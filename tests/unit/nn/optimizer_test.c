/* optimizer_test.c - names, checks and scalars of optimizers, and eight calls
 * of each through the update kernel against recordings of Keras and PyTorch. */
#include "golden.h"

#include <float.h>

#include "nn/optimizer.h"
#include "ok.h"
#include "tensor/kernel.h"

static manta_optimizer named(const char *name)
{
    manta_optimizer o;

    assert_ok(manta_optimizer_named(name, &o));
    return o;
}

static void defaults_are_those_of_keras(void **state)
{
    (void)state;
    static const struct {
        const char *given, *name;
        manta_optimizer_kind kind;
        bool torch;
        double rate, beta_1, beta_2, rho, epsilon, decay;
    } want[] = {
        {"sgd", "sgd", MANTA_OPTIMIZER_SGD, false, 0.01, 0, 0, 0, 0, 0},
        {"SGD", "sgd", MANTA_OPTIMIZER_SGD, false, 0.01, 0, 0, 0, 0, 0},
        {"Adam", "adam", MANTA_OPTIMIZER_ADAM, false, 0.001, 0.9, 0.999, 0, 1e-7, 0},
        {"adam_w", "adamw", MANTA_OPTIMIZER_ADAMW, false, 0.001, 0.9, 0.999, 0, 1e-7, 0.004},
        {"RMSprop", "rmsprop", MANTA_OPTIMIZER_RMSPROP, false, 0.001, 0, 0, 0.9, 1e-7, 0},
        {"rm_sprop", "rmsprop", MANTA_OPTIMIZER_RMSPROP, false, 0.001, 0, 0, 0.9, 1e-7, 0},
        {"torch.SGD", "torch.sgd", MANTA_OPTIMIZER_SGD, true, 0.001, 0, 0, 0, 0, 0},
        {"torch.Adam", "torch.adam", MANTA_OPTIMIZER_ADAM, true, 0.001, 0.9, 0.999, 0, 1e-8, 0},
        {"torch.AdamW", "torch.adamw", MANTA_OPTIMIZER_ADAMW, true, 0.001, 0.9, 0.999, 0, 1e-8, 0.01},
        {"torch.RMSprop", "torch.rmsprop", MANTA_OPTIMIZER_RMSPROP, true, 0.01, 0, 0, 0.99, 1e-8, 0},
    };
    for (size_t i = 0; i < sizeof want / sizeof want[0]; i++) {
        manta_optimizer o = named(want[i].given);
        assert_int_equal(o.kind, want[i].kind);
        assert_int_equal(o.torch, want[i].torch);
        assert_true(o.learning_rate == want[i].rate && o.beta_1 == want[i].beta_1 &&
                    o.beta_2 == want[i].beta_2);
        assert_true(o.rho == want[i].rho && o.epsilon == want[i].epsilon && o.weight_decay == want[i].decay);
        assert_true(o.ema_momentum == 0.99 && !o.use_ema && o.momentum == 0);
        assert_string_equal(manta_optimizer_name(&o), want[i].name);
        assert_int_equal(manta_optimizer_check(&o), MANTA_OK);
    }
    manta_optimizer o = {.learning_rate = 7};
    assert_int_equal(manta_optimizer_named("lion", &o), MANTA_ENOENT);
    assert_error_says("lion");
    assert_error_says("torch.rmsprop");
    assert_int_equal(manta_optimizer_named(NULL, &o), MANTA_EINVAL);
    assert_true(o.learning_rate == 7);
    o.kind = (manta_optimizer_kind)12;
    assert_string_equal(manta_optimizer_name(&o), "?");
}

static void values_out_of_range_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        size_t at; /* a double field */
        double value;
        const char *says;
    } bad[] = {
        {"sgd", offsetof(manta_optimizer, learning_rate), -0.1, "optimizer sgd: learning_rate is -0.1"},
        {"sgd", offsetof(manta_optimizer, learning_rate), NAN, "learning_rate is nan"},
        {"sgd", offsetof(manta_optimizer, learning_rate), INFINITY, "learning_rate is inf"},
        {"sgd", offsetof(manta_optimizer, momentum), 1.5, "momentum is 1.5"},
        {"sgd", offsetof(manta_optimizer, dampening), 0.5, "has no dampening"},
        {"torch.sgd", offsetof(manta_optimizer, dampening), -0.5, "dampening is -0.5"},
        {"adam", offsetof(manta_optimizer, momentum), 0.9, "has no momentum"},
        {"adam", offsetof(manta_optimizer, beta_1), 1, "beta_1 is 1"},
        {"adamw", offsetof(manta_optimizer, beta_2), -0.1, "beta_2 is -0.1"},
        {"adam", offsetof(manta_optimizer, epsilon), -1, "epsilon is -1"},
        {"rmsprop", offsetof(manta_optimizer, rho), 2, "rho is 2"},
        {"adam", offsetof(manta_optimizer, weight_decay), -1, "weight_decay is -1"},
        {"adam", offsetof(manta_optimizer, clipvalue), -1, "clipvalue is -1"},
        {"adam", offsetof(manta_optimizer, clipnorm), NAN, "clipnorm is nan"},
        {"adam", offsetof(manta_optimizer, global_clipnorm), -2, "global_clipnorm is -2"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        manta_optimizer o = named(bad[i].name);
        memcpy((char *)&o + bad[i].at, &bad[i].value, sizeof(double));
        assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
        assert_error_says(bad[i].says);
    }
}

static void options_that_exclude_each_other_are_refused(void **state)
{
    (void)state;
    manta_optimizer o = named("adam");
    o.clipvalue = o.clipnorm = 1;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    assert_error_says("at most one of");
    o = named("adam");
    o.nesterov = true;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    o = named("sgd");
    o.amsgrad = true;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    o = named("sgd");
    o.centered = true;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    o = named("torch.sgd");
    o.nesterov = true; /* PyTorch wants a momentum for it; Keras does without */
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    o = named("sgd");
    o.nesterov = true;
    assert_int_equal(manta_optimizer_check(&o), MANTA_OK);
    o.gradient_accumulation_steps = -1;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    o = named("sgd");
    o.schedule.kind = MANTA_SCHEDULE_COSINE;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    assert_error_says("decay_steps");
    o = named("sgd");
    o.ema_momentum = 2; /* not looked at without use_ema */
    assert_int_equal(manta_optimizer_check(&o), MANTA_OK);
    o.use_ema = true;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    o.ema_momentum = 0.9;
    o.ema_overwrite_frequency = -1;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
    o.kind = (manta_optimizer_kind)9;
    assert_int_equal(manta_optimizer_check(&o), MANTA_EINVAL);
}

static void state_arrays_follow_from_the_options(void **state)
{
    (void)state;
    manta_optimizer o = named("sgd");
    optimizer_arrays a = optimizer_arrays_of(&o);
    assert_true(a.n == 0 && !a.average && !a.accumulator);
    o.momentum = 0.9;
    o.use_ema = true;
    o.gradient_accumulation_steps = 2;
    a = optimizer_arrays_of(&o);
    assert_true(a.n == 1 && a.index[0] == 0 && a.average && a.accumulator);
    assert_string_equal(a.name[0], "momentum");
    o = named("adamw");
    o.gradient_accumulation_steps = 1;
    a = optimizer_arrays_of(&o);
    assert_true(a.n == 2 && !a.accumulator);
    o.amsgrad = true;
    a = optimizer_arrays_of(&o);
    assert_int_equal(a.n, 3);
    assert_string_equal(a.name[0], "momentum");
    assert_string_equal(a.name[1], "velocity");
    assert_string_equal(a.name[2], "velocity_hat");
    o = named("torch.rmsprop");
    o.centered = true;
    a = optimizer_arrays_of(&o);
    assert_true(a.n == 2 && a.index[0] == 0 && a.index[1] == 2);
    assert_string_equal(a.name[0], "velocity");
    assert_string_equal(a.name[1], "average_gradient");
}

static void scalars_match_the_formulas(void **state)
{
    (void)state;
    manta_optimizer o = named("adam");
    for (int64_t calls = 0; calls < 2000; calls = 2 * calls + 1) {
        update_scalars s = optimizer_scalars(&o, 0.01, calls);
        double t = (double)calls + 1, alpha = 0.01 * sqrt(1 - pow(0.999, t)) / (1 - pow(0.9, t));
        assert_true(fabs((double)s.alpha - alpha) < 5e-5 * alpha); /* Keras's floats */
        assert_true(s.lr == 0.01f && s.divisor == 1 && s.clip_factor == 1 && s.l1 == 0 && s.l2 == 0);
        assert_true(s.first == (calls == 0));
        manta_optimizer p = named("torch.adam");
        s = optimizer_scalars(&p, 0.01, calls);
        double torch_alpha = 0.01 / (1 - pow(0.9, t));
        assert_true(fabs((double)s.alpha - torch_alpha) < 1e-7 * torch_alpha);
        assert_true(fabs((double)s.root_c2 - sqrt(1 - pow(0.999, t))) < 1e-7);
    }
    /* Whose weight decay is what. */
    static const char *const decoupled[] = {"sgd", "adam", "adamw", "rmsprop", "torch.adamw"};
    static const char *const added[] = {"torch.sgd", "torch.adam", "torch.rmsprop"};
    for (int i = 0; i < 5; i++) {
        o = named(decoupled[i]);
        o.weight_decay = 0.5;
        update_scalars s = optimizer_scalars(&o, 0.1, 0);
        assert_true(s.l2_torch == 0 && s.decay_lr == 0.05f);
    }
    for (int i = 0; i < 3; i++) {
        o = named(added[i]);
        o.weight_decay = 0.5;
        update_scalars s = optimizer_scalars(&o, 0.1, 0);
        assert_true(s.l2_torch == 0.5f && s.decay_lr == 0);
    }
}

static void calls_count_toward_accumulation_and_average(void **state)
{
    (void)state;
    manta_optimizer o = named("adam"), plain = named("adam");
    o.gradient_accumulation_steps = 3;
    o.use_ema = true;
    o.ema_overwrite_frequency = 2;
    o.schedule = (manta_schedule){
        .kind = MANTA_SCHEDULE_PIECEWISE, .n_boundaries = 1, .boundaries = {4}, .values = {0.5, 0.25}};
    for (int64_t calls = 0; calls < 12; calls++) {
        update_scalars s = optimizer_scalars(&o, 99, calls);
        double rate = calls <= 4 ? 0.5 : 0.25; /* the schedule reads calls, and overrides the rate given */
        assert_true(s.lr == (float)rate && optimizer_rate(&o, 99, calls) == rate);
        assert_int_equal(s.accumulate_only, calls % 3 != 2);
        assert_true(s.accumulate_n == 3);
        assert_int_equal(s.first, calls < 3);
        assert_true(s.ema == 0.99);
        assert_int_equal(s.ema_overwrite, calls / 3 % 2 == 1);
        update_scalars p = optimizer_scalars(&plain, rate, calls / 3);
        assert_true(s.alpha == p.alpha);
        assert_true(!p.accumulate_only && p.accumulate_n == 0 && p.ema == 0 && !p.ema_overwrite);
    }
    o.ema_momentum = 0; /* an average that follows at once, not none */
    update_scalars s = optimizer_scalars(&o, 1, 5);
    assert_true(s.ema > 0 && (float)s.ema == 0.0f);
    assert_true(optimizer_rate(&plain, 0.125, 7) == 0.125);
}

static void the_clip_factor_needs_norms_or_not(void **state)
{
    (void)state;
    manta_optimizer o = named("sgd");
    assert_false(optimizer_needs_norms(&o));
    assert_true(optimizer_clip_factor(&o, 1e9) == 1);
    o.clipvalue = 1;
    assert_false(optimizer_needs_norms(&o));
    o.clipvalue = 0;
    o.clipnorm = 2;
    assert_true(optimizer_needs_norms(&o));
    assert_true(optimizer_clip_factor(&o, 0) == 1);
    assert_true(optimizer_clip_factor(&o, 4) == 1);
    assert_true(optimizer_clip_factor(&o, 16) == 0.5f);
    assert_true(isnan(optimizer_clip_factor(&o, NAN)));
    assert_true(optimizer_clip_factor(&o, INFINITY) == 0); /* of one variable: Keras's own answer */
    o.clipnorm = 0;
    o.global_clipnorm = 2;
    assert_true(optimizer_needs_norms(&o));
    assert_true(optimizer_clip_factor(&o, 16) == 0.5f);
    assert_true(isnan(optimizer_clip_factor(&o, INFINITY)));
    o.torch = true; /* clip_grad_norm_ adds 1e-6 to the norm and clamps at 1 */
    assert_true(optimizer_clip_factor(&o, 4) == (float)(2 / (2 + 1e-6)));
    assert_true(optimizer_clip_factor(&o, 1) == 1);
}

/* ---- recordings ---- */

enum { VARIABLES = 3, MOST = 16, CALLS = 8 };

typedef struct variable {
    int64_t n;
    float w[MOST], s[3][MOST], avg[MOST], acc[MOST];
    manta_array grads, after, average;
} variable;

static manta_array load(const char *path, const char *stem, int i)
{
    char key[32];
    manta_array a;

    snprintf(key, sizeof key, "%s%d", stem, i);
    golden_load(path, key, &a);
    return a;
}

static const float *row_of(const manta_array *a, int64_t n, int64_t row)
{
    return (const float *)a->data + n * row;
}

/* The square sum of the gradient that would be clipped. */
static double square_sum(const variable *v, const update_scalars *s, int64_t call)
{
    double sum = 0;

    for (int64_t i = 0; i < v->n; i++) {
        double g = (double)row_of(&v->grads, v->n, call)[i];
        if (s->accumulate_n > 0) g = (g + (double)v->acc[i]) / (double)s->accumulate_n;
        sum += g * g;
    }
    return sum;
}

/* One call of the optimizer on all variables, in place. */
static void step(const manta_optimizer *o, double rate, variable *v, int64_t call)
{
    const kernels *k = kernels_of(KERN_REFERENCE);
    optimizer_arrays arrays = optimizer_arrays_of(o);
    double all = 0;
    update_scalars s = optimizer_scalars(o, rate, call);

    for (int i = 0; i < VARIABLES; i++) all += square_sum(&v[i], &s, call);
    for (int i = 0; i < VARIABLES; i++) {
        const float *g = row_of(&v[i].grads, v[i].n, call);
        float *slot[3] = {NULL, NULL, NULL};
        for (int j = 0; j < arrays.n; j++) slot[arrays.index[j]] = v[i].s[arrays.index[j]];
        if (optimizer_needs_norms(o))
            s.clip_factor = optimizer_clip_factor(o, o->clipnorm > 0 ? square_sum(&v[i], &s, call) : all);
        float *avg = arrays.average ? v[i].avg : NULL, *acc = arrays.accumulator ? v[i].acc : NULL;
        update_run r = {.s = &s,
                        .n = v[i].n,
                        .grads = &g,
                        .n_grads = 1,
                        .w = v[i].w,
                        .s0 = slot[0],
                        .s1 = slot[1],
                        .s2 = slot[2],
                        .avg = avg,
                        .acc = acc,
                        .w_new = v[i].w,
                        .s0_new = slot[0],
                        .s1_new = slot[1],
                        .s2_new = slot[2],
                        .avg_new = avg,
                        .acc_new = acc};
        k->update(&r);
    }
}

static void replay(const char *path, const manta_optimizer *o)
{
    variable v[VARIABLES] = {0};
    manta_array rates = {0};

    if (manta_optimizer_check(o)) fail_msg("%s: %s", path, manta_error_text());
    golden_load(path, "rates", &rates);
    for (int i = 0; i < VARIABLES; i++) {
        manta_array start = load(path, "v", i);
        v[i].n = manta_array_count(&start);
        assert_true(v[i].n >= 1 && v[i].n <= MOST);
        memcpy(v[i].w, start.data, (size_t)v[i].n * sizeof(float));
        v[i].grads = load(path, "g", i);
        v[i].after = load(path, "after", i);
        v[i].average = load(path, "average", i);
        assert_true(v[i].grads.shape[0] == CALLS && v[i].after.shape[0] == CALLS);
        assert_int_equal(o->use_ema, v[i].average.data != NULL);
        golden_free(&start);
    }
    for (int64_t call = 0; call < CALLS; call++) {
        step(o, rates.data ? (double)((float *)rates.data)[call] : o->learning_rate, v, call);
        for (int i = 0; i < VARIABLES; i++) {
            golden_near(path, v[i].w, row_of(&v[i].after, v[i].n, call), v[i].n, 1e-6, 4e-7);
            if (o->use_ema)
                golden_near(path, v[i].avg, row_of(&v[i].average, v[i].n, call), v[i].n, 1e-6, 4e-7);
        }
    }
    for (int i = 0; i < VARIABLES; i++) {
        /* Without a frequency the average replaces the weights once, at the end. */
        manta_array final = load(path, "final", i);
        if (final.data) golden_near(path, v[i].avg, final.data, v[i].n, 1e-6, 4e-7);
        golden_free(&final);
        golden_free(&v[i].grads);
        golden_free(&v[i].after);
        golden_free(&v[i].average);
    }
    golden_free(&rates);
}

static void keras_recording(const char *path, void *ctx)
{
    (void)ctx;
    char name[64];
    assert_true(golden_text(path, "class_name", name, sizeof name));
    manta_optimizer o = named(name);
    o.learning_rate = golden_number(path, "learning_rate", 0.1);
    o.momentum = golden_number(path, "momentum", 0);
    o.nesterov = golden_number(path, "nesterov", 0) != 0;
    o.beta_1 = golden_number(path, "beta_1", o.beta_1);
    o.beta_2 = golden_number(path, "beta_2", o.beta_2);
    o.epsilon = golden_number(path, "epsilon", o.epsilon);
    o.rho = golden_number(path, "rho", o.rho);
    o.amsgrad = golden_number(path, "amsgrad", 0) != 0;
    o.centered = golden_number(path, "centered", 0) != 0;
    o.weight_decay = golden_number(path, "weight_decay", 0);
    o.clipvalue = golden_number(path, "clipvalue", 0);
    o.clipnorm = golden_number(path, "clipnorm", 0);
    o.global_clipnorm = golden_number(path, "global_clipnorm", 0);
    o.gradient_accumulation_steps = (int)golden_number(path, "gradient_accumulation_steps", 0);
    o.use_ema = golden_number(path, "use_ema", 0) != 0;
    o.ema_momentum = golden_number(path, "ema_momentum", o.ema_momentum);
    o.ema_overwrite_frequency = (int)golden_number(path, "ema_overwrite_frequency", 0);
    if (golden_text(path, "schedule_class_name", name, sizeof name)) {
        assert_string_equal(name, "ExponentialDecay");
        o.schedule = (manta_schedule){.kind = MANTA_SCHEDULE_EXPONENTIAL,
                                      .initial_learning_rate =
                                          golden_number(path, "schedule_initial_learning_rate", 0),
                                      .decay_steps = (int64_t)golden_number(path, "schedule_decay_steps", 0),
                                      .decay_rate = golden_number(path, "schedule_decay_rate", 0)};
    }
    replay(path, &o);
}

static void torch_recording(const char *path, void *ctx)
{
    (void)ctx;
    char name[64], full[80];
    double betas[2] = {0, 0};
    assert_true(golden_text(path, "class_name", name, sizeof name));
    snprintf(full, sizeof full, "torch.%s", name);
    manta_optimizer o = named(full);
    o.learning_rate = golden_number(path, "lr", 0);
    o.momentum = golden_number(path, "momentum", 0);
    o.dampening = golden_number(path, "dampening", 0);
    o.nesterov = golden_number(path, "nesterov", 0) != 0;
    if (golden_list(path, "betas", betas, 2) == 2) {
        o.beta_1 = betas[0];
        o.beta_2 = betas[1];
    }
    o.epsilon = golden_number(path, "eps", o.epsilon);
    o.rho = golden_number(path, "alpha", o.rho);
    o.amsgrad = golden_number(path, "amsgrad", 0) != 0;
    o.centered = golden_number(path, "centered", 0) != 0;
    o.weight_decay = golden_number(path, "weight_decay", 0);
    replay(path, &o);
}

static void updates_match_keras(void **state)
{
    (void)state;
    assert_true(golden_each("keras_opt_", keras_recording, NULL) >= 90);
}

static void updates_match_torch(void **state)
{
    (void)state;
    assert_true(golden_each("torch_opt_", torch_recording, NULL) >= 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_keras),
        cmocka_unit_test(values_out_of_range_are_refused),
        cmocka_unit_test(options_that_exclude_each_other_are_refused),
        cmocka_unit_test(state_arrays_follow_from_the_options),
        cmocka_unit_test(scalars_match_the_formulas),
        cmocka_unit_test(calls_count_toward_accumulation_and_average),
        cmocka_unit_test(the_clip_factor_needs_norms_or_not),
        cmocka_unit_test(updates_match_keras),
        cmocka_unit_test(updates_match_torch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
