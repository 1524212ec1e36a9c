/* zoo_test.c - the zoo's models: their parameters, names and that they run.
 *
 * Numbers of parameters are Keras's and torchvision's own counts. */
#include "nn/net.h"

#include <math.h>
#include <stdio.h>

#include "nn/walk.h"

typedef struct zoo_case {
    const char *name;
    int64_t trainable, other;
    int in_ndim, out_ndim; /* with the batch */
    int64_t in[3], out[3];
} zoo_case;

static const zoo_case cases[] = {
    {"mnist-cnn", 2770634, 0, 3, 2, {-1, 28, 28}, {-1, 10}},
    {"resnet18", 11175370, 9600, 3, 2, {-1, 28, 28}, {-1, 10}},
    {"mlp", 101770, 0, 3, 2, {-1, 28, 28}, {-1, 10}},
    {"linear", 2, 0, 2, 2, {-1, 1}, {-1, 1}},
    {"autoencoder", 3217, 0, 3, 3, {-1, 28, 28}, {-1, 28, 28}},
};

#define N_CASES (int)(sizeof cases / sizeof *cases)

static void models_have_their_shapes_and_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        const zoo_case *c = &cases[i];
        manta_model *m;
        assert_ok(manta_zoo(c->name, &m));
        assert_string_equal(manta_model_name(m), c->name);
        assert_int_equal(manta_model_params(m, true), c->trainable);
        assert_int_equal(manta_model_params(m, false), c->trainable + c->other);
        manta_array in = manta_model_input(m, 0, NULL), out = manta_model_output(m, 0, NULL);
        assert_int_equal(in.ndim, c->in_ndim);
        assert_int_equal(out.ndim, c->out_ndim);
        assert_memory_equal(in.shape, c->in, (size_t)in.ndim * sizeof(int64_t));
        assert_memory_equal(out.shape, c->out, (size_t)out.ndim * sizeof(int64_t));
        manta_model_free(m);
    }
}

static void models_are_listed(void **state)
{
    const char *about;
    manta_model *m = NULL;
    (void)state;

    for (int i = 0; i < N_CASES; i++) {
        about = NULL;
        assert_string_equal(manta_zoo_name(i, &about), cases[i].name);
        assert_true(about && strlen(about) > 10);
    }
    assert_null(manta_zoo_name(N_CASES, &about));
    assert_null(manta_zoo_name(-1, NULL));
    assert_int_equal(manta_zoo("resnet19", &m), MANTA_ENOENT);
    assert_string_equal(
        manta_error_text(),
        "no model is called 'resnet19'; there are mnist-cnn, resnet18, mlp, linear and autoencoder; "
        "did you mean resnet18?");
    assert_null(m);
}

/* A variable of the model by name; the test fails when there is none. */
static const graph_variable *variable(const manta_model *m, const char *name)
{
    for (int i = 0; i < m->n_variables; i++) {
        if (!strcmp(m->variables[i].name, name)) return &m->variables[i];
    }
    fail_msg("%s has no %s", m->name, name);
    return NULL;
}

static void resnet18_is_named_and_started_as_torchvision(void **state)
{
    manta_model *m;
    const graph_variable *v;
    int norms = 0, projections = 0;
    (void)state;

    assert_ok(manta_zoo("resnet18", &m));
    v = variable(m, "conv1/kernel");
    assert_memory_equal(v->shape, ((int64_t[]){7, 7, 1, 64}), 4 * sizeof(int64_t));
    assert_int_equal(v->init.kind, MANTA_INIT_NORMAL);
    assert_true(fabs((double)v->init.b - sqrt(2.0 / (64 * 49))) < 1e-7); /* kaiming normal, fan_out */
    v = variable(m, "layer4_0_downsample_0/kernel");
    assert_memory_equal(v->shape, ((int64_t[]){1, 1, 256, 512}), 4 * sizeof(int64_t));
    v = variable(m, "layer3_1_conv2/kernel");
    assert_memory_equal(v->shape, ((int64_t[]){3, 3, 256, 256}), 4 * sizeof(int64_t));
    v = variable(m, "fc/bias");
    assert_int_equal(v->init.kind, MANTA_INIT_TORCH);
    assert_int_equal(v->fan_in, 512);
    for (int i = 0; i < m->n_nodes; i++) {
        const op_bn_attrs *a = m->nodes[i].attrs;
        if (m->nodes[i].op != &op_batch_norm) continue;
        assert_true(a->momentum == 0.9f && a->epsilon == 1e-5f && a->unbiased);
        norms++;
    }
    for (int i = 0; i < m->n_variables; i++)
        projections += strstr(m->variables[i].name, "downsample_0/") != NULL;
    assert_int_equal(norms, 20);
    assert_int_equal(projections, 3);
    manta_model_free(m);
}

static void mnist_cnn_is_named_as_keras_names_it(void **state)
{
    static const char *const names[] = {"conv2d/kernel", "conv2d/bias",    "dense/kernel",
                                        "dense/bias",    "dense_1/kernel", "dense_1/bias"};
    manta_model *m;
    (void)state;

    assert_ok(manta_zoo("mnist-cnn", &m));
    assert_int_equal(m->n_variables, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(m->variables[i].name, names[i]);
    manta_model_free(m);
}

/* A walk over t's model with t's weights and inputs. */
static void walk_like(walk *w, const net *t, bool training)
{
    walk_open(w, t->m, t->k, t->pool, t->batch, training);
    for (int i = 0; i < t->m->n_variables; i++) {
        const graph_variable *v = &t->m->variables[i];
        memcpy(w->v[v->value].data, layout_variable_at(&t->l, t->state, i), (size_t)v->count * sizeof(float));
    }
    memcpy(w->v[t->m->inputs[0].value].data, t->x.data, manta_array_bytes(&t->x));
    assert_ok(walk_forward(w));
}

/* Fusions, views and shared memory must not change a bit of what the operations compute one by one. */
static void planned_outputs_are_the_operations_own(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        net t;
        walk w;
        manta_model *m;
        assert_ok(manta_zoo(cases[i].name, &m));
        net_open(&t, m, false, 3, 2, "auto", NULL);
        t.run.mode = PLAN_PREDICT;
        t.run.slot = NULL;
        assert_ok(exec_forward(t.e, &t.run));
        walk_like(&w, &t, false);
        manta_array y = exec_output(t.e, 0);
        assert_memory_equal(y.data, w.v[m->outputs[0].value].data, manta_array_bytes(&y));
        walk_close(&w);
        net_close(&t);
    }
}

static void every_weight_has_a_gradient(void **state)
{
    (void)state;
    for (int i = 0; i < N_CASES; i++) {
        net t;
        walk w;
        manta_model *m;
        assert_ok(manta_zoo(cases[i].name, &m));
        net_open(&t, m, false, 3, 2, "auto", NULL);
        walk_like(&w, &t, true);
        manta_array *dy = &w.g[m->outputs[0].value];
        net_fill(dy->data, manta_array_count(dy), 3);
        assert_ok(walk_backward(&w));
        for (int k = 0; k < m->n_variables; k++) {
            const graph_variable *v = &m->variables[k];
            const float *g = w.g[v->value].data;
            double norm = 0;
            for (int64_t e = 0; e < v->count; e++) norm += (double)g[e] * (double)g[e];
            if (!isfinite(norm) || (norm > 0) != v->trainable)
                fail_msg("%s: the gradient of %s has square norm %g", m->name, v->name, norm);
        }
        walk_close(&w);
        net_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(models_have_their_shapes_and_sizes),
        cmocka_unit_test(models_are_listed),
        cmocka_unit_test(resnet18_is_named_and_started_as_torchvision),
        cmocka_unit_test(mnist_cnn_is_named_as_keras_names_it),
        cmocka_unit_test(planned_outputs_are_the_operations_own),
        cmocka_unit_test(every_weight_has_a_gradient),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
