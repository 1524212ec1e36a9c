/* Running models: gradients of the whole against finite differences, the same
 * bits whatever the threads and the fusions, and what a run must leave alone. */
#include "nn/net.h"
#include "ok.h"

#include <math.h>
#include <stdio.h>

/* The loss's slope along direction d of one variable, by central differences. */
static double slope(net *t, float *w, const double *d, int64_t n, double step)
{
    float *keep = mem_try((size_t)n * sizeof *keep);
    double up, down;

    memcpy(keep, w, (size_t)n * sizeof *w);
    for (int64_t i = 0; i < n; i++) w[i] = (float)((double)keep[i] + step * d[i]);
    up = net_loss(t);
    for (int64_t i = 0; i < n; i++) w[i] = (float)((double)keep[i] - step * d[i]);
    down = net_loss(t);
    memcpy(w, keep, (size_t)n * sizeof *w);
    mem_try_free(keep);
    return (up - down) / (2 * step);
}

/* Every variable's gradient against the loss's slope along it and along random
 * directions of length 1. Single elements would be at the mercy of relus that
 * switch within the step; along a direction they hardly matter. */
static void check_gradients(net *t, double step, double tolerance)
{
    float *w = layout_params(&t->l, t->state), *g = mem_try((size_t)t->l.params_size * sizeof *g);
    double *d = mem_try((size_t)t->l.params_size * sizeof *d);

    net_loss(t);
    assert_ok(exec_backward(t->e, &t->run));
    memcpy(g, t->slot, (size_t)t->l.params_size * sizeof *g);
    for (int i = 0; i < t->l.n_params; i++) {
        const layout_variable *v = &t->l.params[i];
        const float *gv = g + v->offset;
        double norm = 0;
        for (int64_t j = 0; j < v->count; j++) norm += (double)gv[j] * (double)gv[j];
        norm = sqrt(norm);
        assert_true(norm > 1e-6);
        for (int round = 0; round < 4; round++) {
            double exact = 0, numeric, length = sqrt((double)v->count);
            for (int64_t j = 0; j < v->count; j++) {
                bool sign = rng_at(rng_make(99, (uint64_t)round), (uint64_t)j).w[0] & 1;
                d[j] = round ? (sign ? 1 : -1) / length : (double)gv[j] / norm;
                exact += d[j] * (double)gv[j];
            }
            numeric = slope(t, w + v->offset, d, v->count, step);
            if (fabs(numeric - exact) > tolerance * norm) {
                fail_msg("%s, direction %d: slope %g by the gradient, %g by differences, length %g",
                         t->m->variables[v->variable].name, round, exact, numeric, norm);
            }
        }
    }
    mem_try_free(g);
    mem_try_free(d);
}

static void gradients_of_a_mixed_model(void **state)
{
    const char *families[] = {"reference", "auto"};

    (void)state;
    for (int i = 0; i < 2; i++) {
        net t;
        net_open(&t, net_mixed(), true, 6, 1, families[i], NULL);
        check_gradients(&t, 1e-3, 2e-2);
        net_close(&t);
    }
}

static void gradients_with_two_uses_of_an_output(void **state)
{
    manta_model *m = manta_model_new("branch");
    manta_value x = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){5}), a, b, pair[2];
    net t;

    (void)state;
    a = manta_call(m, manta_dense(m, (manta_dense_options){.units = 4, .activation = "relu"}), x);
    b = manta_call(m, manta_reshape(m, (manta_reshape_options){.shape = {2, 2}, .ndim = 2}), a);
    b = manta_call(m, manta_permute(m, (manta_permute_options){.dims = {2, 1}, .ndim = 2}), b);
    b = manta_call(m, manta_flatten(m), b);
    pair[0] = a;
    pair[1] = b;
    manta_output(m, manta_call_n(m, manta_merge_multiply(m), 2, pair));
    net_open(&t, m, false, 7, 1, NULL, NULL);
    check_gradients(&t, 1e-3, 1e-2);
    net_close(&t);
}

/* One training step's slot and outputs, as bytes. */
static void *slot_bytes(manta_model *m, bool classes, int64_t batch, int threads, const char *family,
                        size_t *size)
{
    net t;
    char *copy;

    net_open(&t, m, classes, batch, threads, family, NULL);
    net_loss(&t);
    assert_ok(exec_backward(t.e, &t.run));
    *size = t.l.slot_size;
    copy = mem_try(*size);
    memcpy(copy, t.slot, *size);
    net_close(&t);
    return copy;
}

static void assert_same_slot(manta_model *(*make)(void), bool classes, int64_t batch, int threads,
                             const char *family)
{
    size_t a_size, b_size;
    void *a = slot_bytes(make(), classes, batch, 1, "reference", &a_size);
    void *b = slot_bytes(make(), classes, batch, threads, family, &b_size);

    assert_int_equal(a_size, b_size);
    assert_memory_equal(a, b, a_size);
    mem_try_free(a);
    mem_try_free(b);
}

static manta_model *zoo_resnet(void)
{
    manta_model *m = NULL;

    assert_ok(manta_zoo("resnet18", &m));
    return m;
}

static manta_model *zoo_cnn(void)
{
    manta_model *m = NULL;

    assert_ok(manta_zoo("mnist-cnn", &m));
    return m;
}

static void same_bits_for_threads_and_families(void **state)
{
    static const kern_family own[] = {KERN_REFERENCE, KERN_AVX2, KERN_AVX512};

    (void)state;
    for (int i = 0; i < 3; i++) {
        const kernels *k = kernels_of(own[i]);
        if (!k) continue;
        for (int threads = 1; threads <= 3; threads++) assert_same_slot(net_mixed, true, 9, threads, k->name);
        assert_same_slot(zoo_cnn, true, 5, 2, k->name);
    }
}

static void same_bits_for_resnet18_on_two_threads(void **state)
{
    size_t a_size, b_size;
    void *a = slot_bytes(zoo_resnet(), true, 12, 1, NULL, &a_size);
    void *b = slot_bytes(zoo_resnet(), true, 12, 2, NULL, &b_size);

    (void)state;
    assert_memory_equal(a, b, a_size);
    mem_try_free(a);
    mem_try_free(b);
}

static void never_writes_state(void **state)
{
    net t;
    char *copy;

    (void)state;
    net_open(&t, net_mixed(), true, 6, 2, NULL, NULL);
    copy = mem_try(t.l.state_size);
    memcpy(copy, t.state, t.l.state_size);
    net_loss(&t);
    assert_ok(exec_backward(t.e, &t.run));
    assert_memory_equal(copy, t.state, t.l.state_size);
    mem_try_free(copy);
    net_close(&t);
}

/* The state may lie elsewhere at the next call. */
static void state_and_slot_may_move(void **state)
{
    net t;
    void *state2, *slot2;

    (void)state;
    net_open(&t, net_mixed(), true, 6, 2, NULL, NULL);
    net_loss(&t);
    assert_ok(exec_backward(t.e, &t.run));
    state2 = mem_try(t.l.state_size);
    slot2 = mem_try(t.l.slot_size);
    memcpy(state2, t.state, t.l.state_size);
    memset(t.state, 0xff, t.l.state_size); /* NaN everywhere: whoever reads the old one shows */
    t.run.state = state2;
    t.run.slot = slot2;
    assert_ok(exec_forward(t.e, &t.run));
    assert_ok(exec_backward(t.e, &t.run));
    assert_memory_equal(slot2, t.slot, t.l.slot_size);
    mem_try_free(state2);
    mem_try_free(slot2);
    net_close(&t);
}

/* What the sink receives is what the slot would have held. */
typedef struct taken {
    float *g;
    int *times;
} taken;

static void take(void *ctx, int64_t first, int64_t n, const float *v)
{
    taken *t = ctx;

    memcpy(t->g + first, v, (size_t)n * sizeof *v);
    for (int64_t i = 0; i < n; i++) __atomic_fetch_add(&t->times[first + i], 1, __ATOMIC_RELAXED);
}

static void sink_gets_the_same_gradients_once(void **state)
{
    net t;
    taken got;
    float *want;
    int sunk = 0;

    (void)state;
    net_open(&t, zoo_cnn(), true, 16, 2, NULL, NULL);
    net_loss(&t);
    assert_ok(exec_backward(t.e, &t.run));
    want = mem_try((size_t)t.l.params_size * sizeof *want);
    memcpy(want, t.slot, (size_t)t.l.params_size * sizeof *want);
    got.g = mem_try((size_t)t.l.params_size * sizeof *got.g);
    got.times = mem_try((size_t)t.l.params_size * sizeof *got.times);
    t.run.sink = take;
    t.run.sink_ctx = &got;
    net_loss(&t);
    assert_ok(exec_backward(t.e, &t.run));
    for (int i = 0; i < t.l.n_params; i++) {
        const layout_variable *v = &t.l.params[i];
        bool sinks = exec_sinks(t.e, 16, i);
        sunk += sinks;
        for (int64_t j = v->offset; j < v->offset + v->count; j++) {
            assert_int_equal(got.times[j], sinks ? 1 : 0);
            if (sinks) assert_memory_equal(&got.g[j], &want[j], sizeof(float));
        }
    }
    assert_true(sunk >= 2);
    mem_try_free(want);
    mem_try_free(got.g);
    mem_try_free(got.times);
    net_close(&t);
}

/* What was said to be settled, as it was then. */
typedef struct settling {
    const net *t;
    float *g;
    int64_t from;
    int moves;
} settling;

static void keep_settled(void *ctx, int64_t from)
{
    settling *s = ctx;

    assert_true(from <= s->from);
    memcpy(s->g + from, (const float *)s->t->slot + from, (size_t)(s->from - from) * sizeof *s->g);
    s->moves += from < s->from;
    s->from = from;
}

static void settled_gradients_stay(void **state)
{
    manta_model *models[] = {net_mixed(), zoo_resnet()};

    (void)state;
    for (int i = 0; i < 2; i++) {
        net t;
        settling s;
        net_open(&t, models[i], true, 6, 2, NULL, NULL);
        s = (settling){.t = &t, .from = t.l.params_size};
        s.g = mem_try((size_t)t.l.params_size * sizeof *s.g);
        t.run.settled = keep_settled;
        t.run.settled_ctx = &s;
        net_loss(&t);
        assert_ok(exec_backward(t.e, &t.run));
        assert_int_equal(s.from, 0);
        assert_true(s.moves > 2); /* in parts, not all at the end */
        assert_memory_equal(s.g, t.slot, (size_t)t.l.params_size * sizeof *s.g);
        mem_try_free(s.g);
        net_close(&t);
    }
}

static void dead_activations_are_used_again(void **state)
{
    net t;
    size_t sum = 0;
    exec_time at;

    (void)state;
    net_open(&t, zoo_resnet(), true, 8, 1, NULL, NULL);
    t.run.mode = PLAN_PREDICT;
    assert_ok(exec_forward(t.e, &t.run));
    for (int i = 0; i < t.m->n_nodes; i++) {
        manta_array a = t.m->values[t.m->nodes[i].out[0]].a;
        a.shape[0] = 8;
        sum += manta_array_bytes(&a);
    }
    assert_true(exec_time_at(t.e, PLAN_PREDICT, 8, 0, &at));
    assert_true(exec_block_size(t.e) > 0 && exec_block_size(t.e) < sum / 4);
    net_close(&t);
}

static void plans_share_one_block(void **state)
{
    net t;
    size_t size;

    (void)state;
    net_open(&t, net_mixed(), true, 32, 1, NULL, NULL);
    assert_ok(exec_prepare(t.e, PLAN_TRAIN, 32));
    size = exec_block_size(t.e);
    assert_ok(exec_prepare(t.e, PLAN_TRAIN, 7));
    assert_ok(exec_prepare(t.e, PLAN_EVALUATE, 32));
    assert_int_equal(exec_block_size(t.e), size);
    net_close(&t);
}

static void a_running_step_allocates_nothing(void **state)
{
    net t;

    (void)state;
    net_open(&t, net_mixed(), true, 8, 2, NULL, NULL);
    net_loss(&t);
    assert_ok(exec_backward(t.e, &t.run));
    int64_t before = mem_count();
    for (int i = 0; i < 3; i++) {
        net_loss(&t);
        assert_ok(exec_backward(t.e, &t.run));
    }
    assert_int_equal(mem_count(), before);
    net_close(&t);
}

static void assert_named(exec *debug, const exec_run *r, const char *who, const char *what)
{
    assert_int_equal(exec_forward(debug, r), MANTA_ENAN);
    if (!strstr(manta_error_text(), who) || !strstr(manta_error_text(), what))
        fail_msg("'%s' does not name %s and %s", manta_error_text(), who, what);
}

static void debug_names_the_first_nan(void **state)
{
    net t;
    float *w, *x;
    exec *debug = NULL;

    (void)state;
    net_open(&t, net_mixed(), true, 4, 1, NULL, NULL);
    assert_ok(
        exec_new(t.m, &t.l, &t.o, &(exec_options){.pool = t.pool, .kernels = t.k, .debug = true}, &debug));
    assert_ok(exec_forward(debug, &t.run));
    w = layout_variable_at(&t.l, t.state, 2); /* the second convolution's kernel */
    w[5] = NAN;
    assert_named(debug, &t.run, "variable 'conv2d_1/kernel'", "a NaN at element 5");
    for (int i = 0; i < 3 * 3 * 4 * 4; i++) w[i] = 3e38f; /* fine in itself: its products are not */
    assert_named(debug, &t.run, "layer 'conv2d_1' (conv2d)", "an infinity");
    w[5] = 0;
    x = t.x.data;
    x[6 * 6 * 2 + 1] = NAN;
    assert_named(debug, &t.run, "input 'image'", "a NaN at element 1 of row 1");
    exec_free(debug);
    net_close(&t);
}

static void wrong_input_is_named(void **state)
{
    net t;
    manta_array x;

    (void)state;
    net_open(&t, net_mixed(), true, 4, 1, NULL, NULL);
    x = manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){4, 6, 6, 3}, t.x.data);
    t.run.inputs = &x;
    assert_int_equal(exec_forward(t.e, &t.run), MANTA_EINVAL);
    assert_string_equal(manta_error_text(),
                        "input 'image' of model 'mixed' was given an array of shape (4, 6, 6, 3), "
                        "expected (4, 6, 6, 2)");
    t.run.inputs = &t.x;
    ((int64_t *)t.y.data)[2] = 5;
    assert_int_equal(exec_forward(t.e, &t.run), MANTA_EINVAL);
    assert_error_says("5");
    net_close(&t);
}

static void bytes_are_converted(void **state)
{
    net t;
    uint8_t bytes[4 * 6 * 6 * 2];
    manta_array x;
    double a, b;

    (void)state;
    net_open(&t, net_mixed(), true, 4, 1, NULL, NULL);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] = (uint8_t)(i * 37);
        ((float *)t.x.data)[i] = bytes[i];
    }
    a = net_loss(&t);
    x = manta_array_of(MANTA_DTYPE_U8, 4, (int64_t[]){4, 6, 6, 2}, bytes);
    t.run.inputs = &x;
    b = net_loss(&t);
    assert_true(a == b);
    net_close(&t);
}

static void frozen_layers_get_no_gradient(void **state)
{
    manta_model *m = net_mixed();
    net t;

    (void)state;
    assert_ok(manta_model_freeze(m, "conv2d*", true));
    net_open(&t, m, true, 6, 1, NULL, NULL);
    for (int i = 0; i < t.l.n_params; i++) {
        assert_null(strstr(m->variables[t.l.params[i].variable].name, "conv2d"));
    }
    check_gradients(&t, 1e-3, 2e-2);
    net_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_a_mixed_model),
        cmocka_unit_test(gradients_with_two_uses_of_an_output),
        cmocka_unit_test(same_bits_for_threads_and_families),
        cmocka_unit_test(same_bits_for_resnet18_on_two_threads),
        cmocka_unit_test(never_writes_state),
        cmocka_unit_test(state_and_slot_may_move),
        cmocka_unit_test(sink_gets_the_same_gradients_once),
        cmocka_unit_test(settled_gradients_stay),
        cmocka_unit_test(dead_activations_are_used_again),
        cmocka_unit_test(plans_share_one_block),
        cmocka_unit_test(a_running_step_allocates_nothing),
        cmocka_unit_test(debug_names_the_first_nan),
        cmocka_unit_test(wrong_input_is_named),
        cmocka_unit_test(bytes_are_converted),
        cmocka_unit_test(frozen_layers_get_no_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
