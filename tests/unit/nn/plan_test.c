/* The planner, on graphs nobody thought of.
 *
 * Random small models - branches, values used twice, views, relus, layers called
 * twice, dead ends, operations with two results or without a gradient, several
 * outputs - are run planned and node by node (walk.h), and every output, gradient
 * and proposal must be the same number. The block is full of NaN from the run
 * before, so a value read after its memory was given away shows.
 *
 * MANTA_TEST_SEEDS=N runs N graphs, from MANTA_TEST_SEED on; a failure names its
 * seed. */
#include "nn/net.h"
#include "nn/walk.h"

#include <math.h>
#include <stdio.h>

enum { MOST_VALUES = 40, MOST_OUTPUTS = 3 };

/* ---- two operations of a program's own ---- */

/* out[0] = in[0], out[1] = 2 * in[0]. */
static manta_status twice_shape(manta_op_shape *s)
{
    s->n_out = 2;
    return MANTA_OK;
}

static manta_status twice_forward(const manta_op_call *c)
{
    const float *x = c->in[0].data;
    float *y = c->out[0].data, *z = c->out[1].data;

    for (int64_t i = 0, n = manta_array_count(&c->in[0]); i < n; i++) {
        y[i] = x[i];
        z[i] = 2 * x[i];
    }
    return MANTA_OK;
}

static manta_status twice_backward(const manta_op_call *c)
{
    const float *dy = c->dout[0].data, *dz = c->dout[1].data;
    float *dx = c->din[0].data;

    for (int64_t i = 0, n = manta_array_count(&c->in[0]); dx && i < n; i++) {
        float v = (dy ? dy[i] : 0) + (dz ? 2 * dz[i] : 0);
        dx[i] = c->accumulate[0] ? dx[i] + v : v;
    }
    return MANTA_OK;
}

static const manta_op twice_op = {
    .name = "twice", .shape = twice_shape, .forward = twice_forward, .backward = twice_backward};

/* out[0] = in[0], and no gradient passes. */
static manta_status stop_shape(manta_op_shape *s)
{
    (void)s;
    return MANTA_OK;
}

static manta_status stop_forward(const manta_op_call *c)
{
    memcpy(c->out[0].data, c->in[0].data, manta_array_bytes(&c->in[0]));
    return MANTA_OK;
}

static const manta_op stop_op = {.name = "stop", .shape = stop_shape, .forward = stop_forward};

/* ---- random models ---- */

typedef struct maker {
    manta_model *m;
    uint64_t seed, drawn;
    manta_value v[MOST_VALUES];
    int n;
    manta_layer *dense, *norm; /* called again where they fit */
    int64_t dense_in, norm_in;
} maker;

/* A number in [0, n). */
static int draw(maker *k, int n)
{
    return (int)(rng_at(rng_make(k->seed, 77), k->drawn++).w[0] % (uint32_t)n);
}

static manta_array shape_of(const maker *k, manta_value v)
{
    return k->m->values[v.id].a;
}

static bool same_shape(const maker *k, manta_value a, manta_value b)
{
    manta_array x = shape_of(k, a), y = shape_of(k, b);

    return x.ndim == y.ndim && !memcmp(x.shape, y.shape, (size_t)x.ndim * sizeof *x.shape);
}

/* Mostly the newest values, so that graphs are deep and not only wide. */
static manta_value pick(maker *k)
{
    return k->v[draw(k, 3) ? k->n - 1 : draw(k, k->n)];
}

static void keep(maker *k, manta_value v)
{
    if (k->m->error.code) fail_msg("seed %llu: %s", (unsigned long long)k->seed, k->m->error.text);
    if (k->n < MOST_VALUES) k->v[k->n++] = v;
}

static void add_dense(maker *k, manta_value x)
{
    static const int64_t units[] = {1, 4, 6, 12, 17};
    manta_array a = shape_of(k, x);
    int64_t in = a.shape[a.ndim - 1];

    if (k->dense && k->dense_in == in && draw(k, 2)) {
        keep(k, manta_call(k->m, k->dense, x));
        return;
    }
    k->dense = manta_dense(k->m, (manta_dense_options){.units = units[draw(k, 5)],
                                                       .activation = draw(k, 2) ? "relu" : NULL,
                                                       .no_bias = draw(k, 4) == 0});
    k->dense_in = in;
    keep(k, manta_call(k->m, k->dense, x));
}

static void add_norm(maker *k, manta_value x)
{
    manta_array a = shape_of(k, x);
    int64_t in = a.shape[a.ndim - 1];

    if (!k->norm || k->norm_in != in || draw(k, 2)) {
        k->norm = manta_batch_normalization(k->m, (manta_batch_normalization_options){.momentum = 0.75});
        k->norm_in = in;
    }
    keep(k, manta_call(k->m, k->norm, x));
}

static void add_activation(maker *k, manta_value x)
{
    static const char *const names[] = {"relu", "relu", "relu", "tanh", "gelu", "softmax"};

    keep(k,
         manta_call(k->m, manta_activation(k->m, (manta_activation_options){.activation = names[draw(k, 6)]}),
                    x));
}

/* Of x and a value of its shape, itself now and then, or of what repeats. */
static void add_binary(maker *k, manta_value x)
{
    manta_value pair[2] = {x, x};
    int which = draw(k, 3);

    for (int i = 0; i < 4; i++) {
        manta_value y = k->v[draw(k, k->n)];
        if (same_shape(k, x, y)) pair[1] = y;
    }
    if (draw(k, 2)) {
        manta_value other = pair[0];
        pair[0] = pair[1];
        pair[1] = other;
    }
    keep(k, manta_call_n(k->m,
                         which == 0   ? manta_merge_add(k->m)
                         : which == 1 ? manta_merge_subtract(k->m)
                                      : manta_merge_multiply(k->m),
                         2, pair));
}

static void add_view(maker *k, manta_value x)
{
    manta_array a = shape_of(k, x);
    int64_t n = 1;

    for (int i = 1; i < a.ndim; i++) n *= a.shape[i];
    if (a.ndim > 2) {
        keep(k, manta_call(k->m, manta_flatten(k->m), x));
    } else if (n % 4 == 0) {
        keep(k,
             manta_call(k->m, manta_reshape(k->m, (manta_reshape_options){.shape = {2, 2, n / 4}, .ndim = 3}),
                        x));
    } else {
        keep(k,
             manta_call(k->m, manta_reshape(k->m, (manta_reshape_options){.shape = {1, n}, .ndim = 2}), x));
    }
}

static void add_concat(maker *k, manta_value x)
{
    manta_value pair[2] = {x, x};

    for (int i = 0; i < 4; i++) {
        manta_value y = k->v[draw(k, k->n)];
        if (same_shape(k, x, y)) pair[draw(k, 2)] = y;
    }
    keep(k, manta_call_n(k->m, manta_merge_concatenate(k->m, (manta_merge_concatenate_options){.axis = -1}),
                         2, pair));
}

static void add_image(maker *k, manta_value x)
{
    switch (draw(k, 6)) {
    case 0:
    case 1:
        keep(k, manta_call(k->m,
                           manta_conv2d(k->m, (manta_conv2d_options){.filters = 1 + draw(k, 9),
                                                                     .kernel_size = {3, 3},
                                                                     .strides = {1 + draw(k, 2), 1},
                                                                     .padding = "same",
                                                                     .activation = draw(k, 2) ? "relu" : NULL,
                                                                     .no_bias = draw(k, 2)}),
                           x));
        break;
    case 2:
        keep(k, manta_call(k->m, manta_max_pooling2d(k->m, (manta_pooling2d_options){.padding = "same"}), x));
        break;
    case 3:
        keep(k, manta_call(k->m, manta_average_pooling2d(k->m, (manta_pooling2d_options){.padding = "same"}),
                           x));
        break;
    case 4:
        keep(k,
             manta_call(k->m, manta_global_average_pooling2d(k->m, (manta_global_pooling2d_options){0}), x));
        break;
    default:
        keep(k,
             manta_call(k->m, manta_permute(k->m, (manta_permute_options){.dims = {2, 1, 3}, .ndim = 3}), x));
    }
}

static void add_something(maker *k)
{
    manta_value x = pick(k);
    manta_array a = shape_of(k, x);
    int what = draw(k, 20);

    if (a.ndim == 4 && what < 8) {
        add_image(k, x);
    } else if (what < 11) {
        add_dense(k, x);
    } else if (what < 13) {
        add_activation(k, x);
    } else if (what < 15) {
        add_binary(k, x);
    } else if (what < 16) {
        add_view(k, x);
    } else if (what < 17) {
        add_concat(k, x);
    } else if (what < 18) {
        add_norm(k, x);
    } else if (what < 19) {
        keep(k, manta_call(k->m, manta_dropout(k->m, (manta_dropout_options){.rate = draw(k, 2) ? 0.25 : 0}),
                           x));
    } else if (draw(k, 3)) {
        manta_value y = manta_apply(k->m, &twice_op, NULL, 1, &x), z = {y.id + 1};
        if (draw(k, 2)) keep(k, y);
        keep(k, z);
    } else {
        keep(k, manta_apply(k->m, &stop_op, NULL, 1, &x));
    }
}

static manta_model *random_model(uint64_t seed)
{
    maker k = {.m = manta_model_new("random"), .seed = seed};
    int nodes = 3 + draw(&k, 14), outputs = 1 + draw(&k, MOST_OUTPUTS);

    keep(&k, manta_input(k.m, "a", MANTA_DTYPE_F32, 1, (int64_t[]){12}));
    if (draw(&k, 2)) keep(&k, manta_input(k.m, "b", MANTA_DTYPE_F32, 3, (int64_t[]){4, 3, 2}));
    for (int i = 0; i < nodes; i++) add_something(&k);
    for (int i = 0; i < outputs; i++) {
        manta_value v = i ? k.v[draw(&k, k.n)] : k.v[k.n - 1];
        bool is_new = true;
        for (int j = 0; j < k.m->n_outputs; j++) is_new &= k.m->outputs[j].value != v.id;
        if (is_new) manta_output(k.m, v);
    }
    for (int i = 0; i < k.m->n_layers; i++) k.m->layers[i]->frozen = draw(&k, 8) == 0;
    assert_ok(manta_model_build(k.m));
    return k.m;
}

/* ---- both runs ---- */

typedef struct bench {
    const manta_model *m;
    const kernels *k;
    pool *pool;
    manta_loss losses[MOST_OUTPUTS];
    manta_optimizer opt;
    objective o;
    layout l;
    exec *e;
    void *state, *slot;
    int64_t batch;
    manta_array x[2], nan[2], y[MOST_OUTPUTS];
    exec_run run;
} bench;

static manta_array room_like(manta_array a, int64_t batch)
{
    a.shape[0] = batch;
    a = manta_array_of(MANTA_DTYPE_F32, a.ndim, a.shape, NULL);
    a.data = mem_try(manta_array_bytes(&a));
    assert_non_null(a.data);
    return a;
}

static void feed_open(bench *b, int64_t batch)
{
    b->batch = batch;
    for (int i = 0; i < b->m->n_inputs; i++) {
        b->x[i] = room_like(manta_model_input(b->m, i, NULL), batch);
        b->nan[i] = room_like(b->x[i], batch);
        net_fill(b->x[i].data, manta_array_count(&b->x[i]), 10 + (uint64_t)i);
        memset(b->nan[i].data, 0xff, manta_array_bytes(&b->nan[i]));
    }
    for (int i = 0; i < b->m->n_outputs; i++) {
        b->y[i] = room_like(manta_model_output(b->m, i, NULL), batch);
        net_fill(b->y[i].data, manta_array_count(&b->y[i]), 20 + (uint64_t)i);
    }
    b->run = (exec_run){.batch = batch,
                        .state = b->state,
                        .slot = b->slot,
                        .inputs = b->x,
                        .targets = b->y,
                        .seed = 0,
                        .step = 0};
}

static void feed_close(bench *b)
{
    for (int i = 0; i < b->m->n_inputs; i++) {
        mem_try_free(b->x[i].data);
        mem_try_free(b->nan[i].data);
    }
    for (int i = 0; i < b->m->n_outputs; i++) mem_try_free(b->y[i].data);
}

static void bench_open(bench *b, const manta_model *m, const kernels *k, int threads)
{
    *b = (bench){.m = m, .k = k};
    for (int i = 0; i < m->n_outputs; i++)
        b->losses[i] = (manta_loss){.name = "mse", .weight = 1.f + (float)i};
    assert_ok(manta_optimizer_named("sgd", &b->opt));
    assert_ok(objective_init(&b->o, m, m->n_outputs, b->losses, 0, NULL));
    layout_init(&b->l, m, &b->o, &b->opt);
    assert_ok(pool_new(threads, KERN_SCRATCH, &b->pool));
    assert_ok(exec_new(m, &b->l, &b->o, &(exec_options){.pool = b->pool, .kernels = k}, &b->e));
    b->state = mem_try(b->l.state_size);
    b->slot = mem_try(b->l.slot_size);
    assert_true(b->state && b->slot);
    layout_start(&b->l, b->state, 3, &b->opt);
}

static void bench_close(bench *b)
{
    mem_try_free(b->state);
    mem_try_free(b->slot);
    exec_free(b->e);
    pool_free(b->pool);
    layout_release(&b->l);
    objective_release(&b->o);
}

/* Zero has two signs: a sum that starts from 0 loses the minus. */
static void assert_same(const char *what, const char *name, const float *planned, const float *walked,
                        int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        if (planned[i] == walked[i]) continue;
        fail_msg("seed %llu: %s of %s, element %lld: %.9g planned, %.9g node by node",
                 (unsigned long long)seed, what, name, (long long)i, (double)planned[i], (double)walked[i]);
    }
}

static void assert_same_outputs(const bench *b, const walk *w, const char *mode, uint64_t seed)
{
    for (int i = 0; i < b->m->n_outputs; i++) {
        manta_array a = exec_output(b->e, i);
        assert_same("output", mode, a.data, w->v[b->m->outputs[i].value].data, manta_array_count(&a), seed);
    }
}

static void walk_feed(const bench *b, walk *w)
{
    for (int i = 0; i < b->m->n_inputs; i++) {
        memcpy(w->v[b->m->inputs[i].value].data, b->x[i].data, manta_array_bytes(&b->x[i]));
    }
    for (int i = 0; i < b->m->n_variables; i++) {
        const graph_variable *g = &b->m->variables[i];
        memcpy(w->v[g->value].data, layout_variable_at(&b->l, b->state, i), (size_t)g->count * sizeof(float));
    }
}

/* The losses' gradients, where the heads look. */
static void walk_losses(const bench *b, walk *w)
{
    for (int h = 0; h < b->o.n_heads; h++) {
        const objective_head *head = &b->o.heads[h];
        int64_t rows = b->batch * head->inner;
        manta_array flat = manta_array_of(MANTA_DTYPE_F32, head->classes == 1 ? 1 : 2,
                                          (int64_t[]){rows, head->classes}, b->y[h].data);
        float *loss = mem_try((size_t)rows * sizeof *loss);
        manta_loss_call c = {.config = &head->config,
                             .rows = rows,
                             .classes = head->classes,
                             .pred = w->v[head->value].data,
                             .target = flat,
                             .scale = head->weight / (float)head->inner,
                             .loss = loss,
                             .grad = w->g[head->value].data};
        assert_ok(head->loss.fn(&c));
        mem_try_free(loss);
    }
}

/* A run whose inputs are NaN leaves nothing in the block that could pass for a result. */
static void poison(bench *b, plan_mode mode)
{
    exec_run r = b->run;

    r.mode = mode;
    r.inputs = b->nan;
    assert_ok(exec_forward(b->e, &r));
    if (mode == PLAN_TRAIN) assert_ok(exec_backward(b->e, &r));
}

static void check_inference(bench *b, uint64_t seed)
{
    static const plan_mode modes[] = {PLAN_PREDICT, PLAN_EVALUATE};
    walk w;

    walk_open(&w, b->m, b->k, b->pool, b->batch, false);
    walk_feed(b, &w);
    assert_ok(walk_forward(&w));
    for (int i = 0; i < 2; i++) {
        poison(b, PLAN_TRAIN);
        b->run.mode = modes[i];
        assert_ok(exec_forward(b->e, &b->run));
        assert_same_outputs(b, &w, i ? "evaluation" : "prediction", seed);
    }
    walk_close(&w);
}

static void take(void *ctx, int64_t first, int64_t n, const float *v)
{
    memcpy((float *)ctx + first, v, (size_t)n * sizeof *v);
}

static void assert_same_gradients(const bench *b, const walk *w, const float *sunk, uint64_t seed)
{
    for (int i = 0; i < b->l.n_params; i++) {
        const layout_variable *v = &b->l.params[i];
        const graph_variable *g = &b->m->variables[v->variable];
        bool sinks = sunk && exec_sinks(b->e, b->batch, i);
        const float *from = sinks ? sunk : layout_slot_grads(&b->l, b->slot);
        assert_same(sinks ? "sunk gradient" : "gradient", g->name, from + v->offset, w->g[g->value].data,
                    v->count, seed);
    }
}

static void check_training(bench *b, uint64_t seed)
{
    float *sunk = mem_try((size_t)b->l.params_size * sizeof *sunk);
    exec_run r = b->run;
    walk w;

    r.mode = PLAN_TRAIN;
    walk_open(&w, b->m, b->k, b->pool, b->batch, true);
    walk_feed(b, &w);
    assert_ok(walk_forward(&w));
    walk_losses(b, &w);
    assert_ok(walk_backward(&w));

    poison(b, PLAN_TRAIN);
    assert_ok(exec_forward(b->e, &r));
    assert_same_outputs(b, &w, "training", seed);
    assert_ok(exec_backward(b->e, &r));
    assert_same_outputs(b, &w, "training, after backward", seed);
    assert_same_gradients(b, &w, NULL, seed);
    for (int i = 0; i < b->l.n_stats; i++) {
        const layout_variable *v = &b->l.stats[i];
        if (!v->proposed) continue;
        assert_same("proposal", b->m->variables[v->variable].name,
                    layout_slot_stats(&b->l, b->slot) + v->offset, w.proposed[v->variable], v->count, seed);
    }
    r.sink = take;
    r.sink_ctx = sunk;
    poison(b, PLAN_TRAIN);
    assert_ok(exec_forward(b->e, &r));
    assert_ok(exec_backward(b->e, &r));
    assert_same_gradients(b, &w, sunk, seed);
    walk_close(&w);
    mem_try_free(sunk);
}

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text && *text ? strtoull(text, NULL, 10) : otherwise;
}

static void planned_is_node_by_node(void **state)
{
    static const kern_family families[] = {KERN_REFERENCE, KERN_AVX2, KERN_AVX512};
    uint64_t first = number("MANTA_TEST_SEED", 1), n = number("MANTA_TEST_SEEDS", 400);

    (void)state;
    for (uint64_t seed = first; seed < first + n; seed++) {
        manta_model *m = random_model(seed);
        const kernels *k = kernels_of(families[seed % 3]);
        bench b;
        bench_open(&b, m, k ? k : kernels_of(KERN_REFERENCE), 1 + (int)(seed / 3 % 2));
        for (int64_t batch = 5; batch >= 3; batch -= 2) { /* the second plan finds the first one's block */
            feed_open(&b, batch);
            check_training(&b, seed);
            check_inference(&b, seed);
            feed_close(&b);
        }
        bench_close(&b);
        manta_model_free(m);
    }
}

/* ---- what the random graphs found, by name ---- */

static manta_value call_relu(manta_model *m, manta_value x)
{
    return manta_call(m, manta_activation(m, (manta_activation_options){.activation = "relu"}), x);
}

/* A relu that leads nowhere must not become part of what it looks at. */
static void a_dead_relu_changes_nothing(void **state)
{
    manta_model *m = manta_model_new("dead");
    manta_value x = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){3}), y;
    bool negative = false;
    net t;

    (void)state;
    y = manta_call(m, manta_dense(m, (manta_dense_options){.units = 8}), x);
    call_relu(m, y);
    manta_output(m, manta_call(m, manta_flatten(m), y));
    net_open(&t, m, false, 4, 1, NULL, NULL);
    net_loss(&t);
    for (int64_t i = 0; i < 4 * 8; i++) negative |= ((const float *)exec_output(t.e, 0).data)[i] < 0;
    assert_true(negative);
    net_close(&t);
}

static const layout_variable *stat_called(const net *t, const char *name)
{
    for (int i = 0; i < t->l.n_stats; i++) {
        if (!strcmp(t->m->variables[t->l.stats[i].variable].name, name)) return &t->l.stats[i];
    }
    fail_msg("no statistic is called %s", name);
    return NULL;
}

static manta_status constant_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                                  manta_value *out)
{
    manta_value x[2] = {in[0]};

    (void)options;
    (void)n_in;
    x[1] = manta_layer_weight(l, "factor", 2, (int64_t[]){1, 3}, (manta_initializer){MANTA_INIT_ONES, 0, 0},
                              0, (manta_regularizer){0}, false);
    *out = manta_layer_apply(l, manta_op_find("multiply"), NULL, 2, x);
    return MANTA_OK;
}

/* A variable stays as it is unless a node that runs proposes something else. */
static void only_who_proposes_renews(void **state)
{
    static const manta_layer_class constant = {"Constant", 0, NULL, 0, constant_call};
    manta_model *m = manta_model_new("constants");
    manta_value x = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){3});
    net t;

    (void)state;
    x = manta_call(m, manta_layer_new(m, &constant, NULL, NULL), x);
    manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){.name = "dead"}), x);
    x = manta_call(m, manta_batch_normalization(m, (manta_batch_normalization_options){.name = "alive"}), x);
    manta_output(m, x);
    net_open(&t, m, false, 4, 1, NULL, NULL);
    assert_false(stat_called(&t, "constant/factor")->proposed);
    assert_false(stat_called(&t, "dead/moving_mean")->proposed);
    assert_true(stat_called(&t, "alive/moving_mean")->proposed);
    net_close(&t);
}

/* Keras renews the statistics of a batch norm at every call. */
static void a_shared_batch_norm_renews_twice(void **state)
{
    manta_model *m = manta_model_new("shared");
    manta_layer *norm = manta_batch_normalization(m, (manta_batch_normalization_options){.momentum = 0.75});
    manta_value x = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){1}), pair[2];
    double mean = 0, got;
    net t;

    (void)state;
    pair[0] = manta_call(m, norm, x);
    pair[1] = manta_call(m, norm, x);
    manta_output(m, manta_call_n(m, manta_merge_add(m), 2, pair));
    net_open(&t, m, false, 8, 1, NULL, NULL);
    net_loss(&t);
    for (int i = 0; i < 8; i++) mean += (double)((const float *)t.x.data)[i] / 8;
    got = (double)layout_slot_stats(&t.l, t.slot)[stat_called(&t, "batch_normalization/moving_mean")->offset];
    assert_true(fabs(got - (0.75 * 0.25 * mean + 0.25 * mean)) < 1e-7);
    net_close(&t);
}

/* A batch norm that is frozen inside a nested model takes its moving statistics, as Keras's. */
static void a_batch_norm_frozen_inside_stays_as_it_is(void **state)
{
    manta_model *inner = manta_model_new("inner"), *m = manta_model_new("outer");
    manta_value x;
    net t;

    (void)state;
    manta_input(inner, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_model_add(inner,
                    manta_batch_normalization(inner, (manta_batch_normalization_options){.epsilon = 1e-30}));
    assert_ok(manta_model_freeze(inner, "batch_normalization", true));
    assert_ok(manta_model_build(inner));
    x = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_output(m, manta_call(m, manta_nested(m, inner), x));
    manta_model_free(inner);
    net_open(&t, m, false, 6, 1, NULL, NULL);
    net_loss(&t); /* mean 0 and variance 1 are what it starts with: nothing changes */
    assert_memory_equal(exec_output(t.e, 0).data, t.x.data, manta_array_bytes(&t.x));
    assert_false(stat_called(&t, "inner/batch_normalization/moving_mean")->proposed);
    net_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(planned_is_node_by_node),
        cmocka_unit_test(a_dead_relu_changes_nothing),
        cmocka_unit_test(only_who_proposes_renews),
        cmocka_unit_test(a_shared_batch_norm_renews_twice),
        cmocka_unit_test(a_batch_norm_frozen_inside_stays_as_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
