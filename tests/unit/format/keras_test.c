/* keras_test.c - files that Keras wrote, files that we write, what is refused, and
 * what happens when the system does not help. That Keras itself agrees is
 * tests/cli/test_keras.py's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/file.h>
#include <manta/layer.h>

#include "alloc_fail.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/hdf5/h5_out.h"
#include "format/keras/keras_config.h"
#include "format/keras/keras_tree.h"
#include "format/model/model_file.h"
#include "nn/graph.h"
#include "ok.h"
#include "os/fault.h"
#include "os/file.h"
#include "recorded.h"
#include "scratch.h"

static manta_saved *read_ok(const char *path)
{
    manta_saved *s = NULL;
    manta_status st = manta_file_read(path, NULL, &s);

    assert_ok(st);
    return s;
}

static void assert_same_arrays(const manta_saved *a, const manta_saved *b)
{
    assert_int_equal(manta_saved_arrays(a), manta_saved_arrays(b));
    for (int i = 0; i < manta_saved_arrays(a); i++) {
        const manta_column *c = manta_saved_at(a, i);
        const manta_array *other = manta_saved_find(b, c->name);
        if (!other) fail_msg("%s is missing", c->name);
        assert_int_equal(other->dtype, c->array.dtype);
        assert_int_equal(other->ndim, c->array.ndim);
        assert_memory_equal(other->shape, c->array.shape, (size_t)c->array.ndim * sizeof *other->shape);
        assert_memory_equal(other->data, c->array.data, manta_array_bytes(other));
    }
}

/* ---- Keras's files ---- */

/* The memory goes, and what is said of the model stays. */
static void arrays_can_be_given_back(void **state)
{
    manta_saved *s = read_ok(golden("resnet.keras"));
    const char *name = manta_saved_at(s, 0)->name;
    const manta_loss *losses;
    int64_t live = mem_live();
    char *first = mem_strdup(name);
    int n;

    (void)state;
    assert_non_null(manta_saved_find(s, first));
    manta_saved_drop_arrays(s);
    assert_true(mem_live() < live);
    assert_int_equal(manta_saved_arrays(s), 0);
    assert_null(manta_saved_find(s, first));
    assert_non_null(manta_saved_model(s));
    assert_int_equal(manta_saved_losses(s, &n, &losses), MANTA_OK);
    assert_int_equal(n, 1);
    manta_saved_drop_arrays(s);
    manta_saved_free(s);
    mem_free(first);
}

static void a_model_with_its_optimizer(void **state)
{
    manta_saved *s = read_ok(golden("resnet.keras"));
    const manta_model *m = manta_saved_model(s);
    manta_optimizer o;
    const manta_loss *losses;
    const manta_metric *metrics;
    int n;

    (void)state;
    assert_string_equal(manta_saved_format(s), "keras");
    assert_string_equal(manta_model_name(m), "resnet_small");
    assert_string_equal(manta_saved_note(s, "keras_version"), "3.15.1");
    assert_int_equal(manta_model_variables(m), 32);
    assert_int_equal(manta_saved_arrays(s), 32 + 2 + 20);
    assert_int_equal(*(int64_t *)manta_saved_find(s, "optimizer/iterations")->data, 2);
    assert_true(*(double *)manta_saved_find(s, "optimizer/learning_rate")->data == (double)0.1f);
    assert_int_equal(manta_saved_find(s, "optimizer/momentum/conv2d_5/kernel")->shape[2], 16);
    assert_int_equal(manta_saved_optimizer(s, &o), MANTA_OK);
    assert_int_equal(o.kind, MANTA_OPTIMIZER_SGD);
    assert_true(o.momentum == 0.9 && o.weight_decay == 1e-4 && !o.nesterov);
    assert_int_equal(manta_saved_losses(s, &n, &losses), MANTA_OK);
    assert_int_equal(n, 1);
    assert_string_equal(losses[0].name, "sparse_categorical_crossentropy");
    assert_int_equal(manta_saved_metrics(s, &n, &metrics), MANTA_OK);
    assert_int_equal(n, 1);
    assert_string_equal(metrics[0].name, "accuracy");
    for (int i = 0; i < manta_saved_arrays(s); i++) {
        const manta_array *a = &manta_saved_at(s, i)->array;
        assert_int_equal((uintptr_t)a->data % manta_dtype_size(a->dtype), 0);
    }
    manta_saved_free(s);
}

static void the_legacy_file_holds_the_same(void **state)
{
    manta_saved *a = read_ok(golden("resnet.keras")), *b = read_ok(golden("resnet_legacy.h5"));

    (void)state;
    assert_string_equal(manta_saved_format(b), "h5");
    assert_same_arrays(a, b);
    manta_saved_free(a);
    manta_saved_free(b);
}

static void files_of_every_keras(void **state)
{
    static const char *const names[] = {"old_3.0.5.keras", "old_3.6.0.keras"};
    (void)state;

    for (int i = 0; i < 2; i++) {
        manta_saved *s = read_ok(golden(names[i]));
        manta_optimizer o;
        assert_int_equal(manta_saved_optimizer(s, &o), MANTA_OK);
        assert_int_equal(o.kind, MANTA_OPTIMIZER_ADAM);
        assert_non_null(manta_saved_find(s, "optimizer/velocity/a/kernel"));
        assert_non_null(manta_saved_find(s, "b/kernel"));
        manta_saved_free(s);
    }
}

static void a_config_is_a_model(void **state)
{
    manta_saved *a = read_ok(golden("mnist_config_3.15.1.json")),
                *b = read_ok(golden("mnist_config_portable.json"));

    (void)state;
    assert_string_equal(manta_saved_format(a), "config");
    assert_int_equal(manta_model_params(manta_saved_model(a), false), 2770634);
    assert_int_equal(manta_model_params(manta_saved_model(b), false), 2770634);
    assert_int_equal(manta_saved_arrays(a), 0);
    manta_saved_free(a);
    manta_saved_free(b);
}

static void operators_and_nested_models(void **state)
{
    manta_saved *s = read_ok(golden("operators.keras")), *again;
    manta_contents c = manta_saved_contents(s);
    manta_optimizer o;

    (void)state;
    assert_int_equal(manta_model_inputs(c.model), 2);
    assert_int_equal(manta_model_outputs(c.model), 2);
    assert_non_null(manta_saved_find(s, "enc/dense/kernel"));
    assert_non_null(manta_saved_find(s, "sq/q/bias"));
    assert_int_equal(c.n_losses, 2);
    assert_string_equal(c.losses[1].name, "huber");
    assert_int_equal(c.n_metrics, 2);
    assert_int_equal(c.metrics[1].output, 1);
    assert_int_equal(manta_saved_optimizer(s, &o), MANTA_OK);
    assert_int_equal(o.schedule.kind, MANTA_SCHEDULE_COSINE);
    assert_int_equal(manta_file_write(scratch_path("ops.keras"), NULL, &c), MANTA_OK);
    again = read_ok(scratch_path("ops.keras"));
    assert_same_arrays(s, again);
    manta_saved_free(again);
    manta_saved_free(s);
}

/* ---- order ---- */

/* Two dense layers of one shape: made first is used last, and Keras numbers them by depth. */
static manta_model *crossed(void)
{
    manta_model *m = manta_model_new("crossed");
    manta_value x = manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){4}), y, z[2];
    manta_layer *late = manta_dense(m, (manta_dense_options){.units = 4, .name = "late"});
    manta_layer *early = manta_dense(m, (manta_dense_options){.units = 4, .name = "early"});

    y = manta_call(m, early, x);
    z[0] = manta_call(m, late, manta_call(m, manta_relu(m, (manta_relu_options){0}), y));
    z[1] = x;
    manta_output(m, manta_call_n(m, manta_merge_add(m), 2, z));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    return m;
}

static void layers_are_numbered_by_depth(void **state)
{
    manta_model *m = crossed();
    keras_tree *t = keras_tree_new(m);
    keras_variables v = {0};

    (void)state;
    keras_tree_variables(t, &v, NULL);
    assert_int_equal(v.n, 4);
    assert_string_equal(v.at[0].path, "layers/dense/vars/0");
    assert_string_equal(v.at[0].name, "early/kernel");
    assert_string_equal(v.at[2].path, "layers/dense_1/vars/0");
    assert_string_equal(v.at[2].name, "late/kernel");
    keras_variables_release(&v);
    keras_tree_free(t);
    manta_model_free(m);
}

/* ---- what we write ---- */

static manta_column columns[8];
static float values[4][16];

static manta_contents contents_of(const manta_model *m)
{
    manta_contents c = {.model = m, .arrays = columns};

    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_variable_info v = manta_model_variable(m, i);
        for (int k = 0; k < 16; k++) values[i][k] = (float)(100 * i + k);
        columns[i] = (manta_column){v.name, manta_array_of(MANTA_DTYPE_F32, v.ndim, v.shape, values[i])};
        c.n_arrays++;
    }
    return c;
}

static void what_is_written_reads_back(void **state)
{
    static const char *const names[] = {"m.keras", "m.h5", "m.weights.h5"};
    manta_model *m = crossed();
    manta_contents c = contents_of(m);

    (void)state;
    for (int i = 0; i < 3; i++) {
        manta_saved *s = NULL;
        assert_int_equal(manta_file_write(scratch_path(names[i]), NULL, &c), MANTA_OK);
        assert_int_equal(manta_file_read(scratch_path(names[i]), &(manta_read_options){.like = m}, &s),
                         MANTA_OK);
        for (int k = 0; k < c.n_arrays; k++) {
            const manta_array *a = manta_saved_find(s, columns[k].name);
            assert_memory_equal(a->data, values[k], manta_array_bytes(a));
        }
        manta_saved_free(s);
    }
    manta_model_free(m);
}

/* Zeros that were asked for, where 0 is not the default: MANTA_ZERO there and back. */
static void a_zero_that_was_asked_for_stays_one(void **state)
{
    manta_model *m = manta_model_new("zeros");
    manta_loss loss = {.name = "huber", .delta = MANTA_ZERO, .weight = MANTA_ZERO};
    manta_metric metric = {.name = "binary_accuracy", .threshold = MANTA_ZERO};
    const manta_batch_normalization_options *bn;
    const manta_loss *losses;
    const manta_metric *metrics;
    manta_contents c;
    manta_saved *s;
    int n;

    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    manta_model_add(m, manta_batch_normalization(
                           m, (manta_batch_normalization_options){.momentum = MANTA_ZERO, .name = "bn"}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    c = contents_of(m);
    c.n_losses = 1;
    c.losses = &loss;
    c.n_metrics = 1;
    c.metrics = &metric;
    assert_int_equal(manta_file_write(scratch_path("z.keras"), NULL, &c), MANTA_OK);
    s = read_ok(scratch_path("z.keras"));
    bn = manta_saved_model(s)->layers[0]->options;
    assert_true(bn->momentum == MANTA_ZERO && bn->epsilon == 0.001);
    assert_int_equal(manta_saved_losses(s, &n, &losses), MANTA_OK);
    assert_true(losses[0].delta == MANTA_ZERO && losses[0].weight == MANTA_ZERO);
    assert_int_equal(manta_saved_metrics(s, &n, &metrics), MANTA_OK);
    assert_true(metrics[0].threshold == MANTA_ZERO);
    manta_saved_free(s);
    manta_model_free(m);
}

static void the_same_model_gives_the_same_bytes(void **state)
{
    manta_model *m = crossed();
    manta_contents c = contents_of(m);
    void *a = NULL, *b = NULL;
    size_t na = 0, nb = 0;

    (void)state;
    assert_int_equal(manta_file_write(scratch_path("a.keras"), NULL, &c), MANTA_OK);
    assert_int_equal(manta_file_write(scratch_path("b.keras"), NULL, &c), MANTA_OK);
    assert_int_equal(file_read(scratch_path("a.keras"), 1 << 20, &a, &na), MANTA_OK);
    assert_int_equal(file_read(scratch_path("b.keras"), 1 << 20, &b, &nb), MANTA_OK);
    assert_int_equal(na, nb);
    assert_memory_equal(a, b, na);
    /* the weights lie on a 64-byte boundary of the file */
    assert_int_equal((size_t)((char *)memmem(a, na, "\211HDF\r\n", 6) - (char *)a) % 64, 0);
    mem_try_free(a);
    mem_try_free(b);
    manta_model_free(m);
}

static void contents_that_do_not_fit_are_refused(void **state)
{
    manta_model *m = crossed();
    manta_contents c = contents_of(m);

    (void)state;
    columns[1].name = "other";
    assert_int_equal(manta_file_write(scratch_path("n.keras"), NULL, &c), MANTA_ENOENT);
    columns[1].name = manta_model_variable(m, 1).name;
    columns[1].array.shape[0] = 3;
    assert_int_equal(manta_file_write(scratch_path("n.keras"), NULL, &c), MANTA_EINVAL);
    c.model = NULL;
    assert_int_equal(manta_file_write(scratch_path("n.keras"), NULL, &c), MANTA_EINVAL);
    assert_int_equal(manta_file_write(scratch_path("n.unknown"), NULL, &c), MANTA_EINVAL);
    assert_int_equal(manta_file_write(scratch_path("n.keras"), "nonsense", &c), MANTA_ENOENT);
    assert_int_equal(access(scratch_path("n.keras"), F_OK), -1);
    manta_model_free(m);
}

/* Padding by numbers becomes a layer; what zeros cannot stand for is refused by name. */
static void padding_by_numbers(void **state)
{
    static const char *const refused[] = {"pool.keras", "pool.h5", "pool.weights.h5", "pool.json"};
    manta_model *m = manta_model_new("padded");
    manta_column one;
    manta_contents c = {.model = m, .n_arrays = 1, .arrays = &one};
    float w[9] = {0};
    manta_saved *s;

    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){4, 4, 1});
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){.filters = 1,
                                                              .kernel_size = {3, 3},
                                                              .padding = "explicit",
                                                              .pad = {{1, 0}, {2, 1}},
                                                              .no_bias = true,
                                                              .name = "c"}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    one = (manta_column){"c/kernel", manta_array_of(MANTA_DTYPE_F32, 4, (int64_t[]){3, 3, 1, 1}, w)};
    assert_int_equal(manta_file_write(scratch_path("pad.keras"), NULL, &c), MANTA_OK);
    s = read_ok(scratch_path("pad.keras"));
    assert_string_equal(manta_model_layer(manta_saved_model(s), 0).name, "c_pad");
    assert_int_equal(manta_model_output(manta_saved_model(s), 0, NULL).shape[2], 5);
    manta_saved_free(s);
    manta_model_free(m);

    m = manta_model_new("pooled");
    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){4, 4, 1});
    manta_model_add(
        m, manta_max_pooling2d(
               m, (manta_pooling2d_options){.padding = "explicit", .pad = {{1, 1}, {1, 1}}, .name = "p"}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    c = (manta_contents){.model = m};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_fails_with(manta_file_write(scratch_path(refused[i]), NULL, &c), MANTA_EUNSUPPORTED,
                          scratch_path(refused[i]));
    assert_error_says("'p'");
    manta_model_free(m);
}

/* ---- what is refused ---- */

#define SEQUENTIAL(layers)                                                                                   \
    "{\"module\":\"keras\",\"class_name\":\"Sequential\",\"config\":{\"name\":\"s\",\"layers\":[" layers "]" \
    "}"                                                                                                      \
    "}"
#define INPUT       "{\"class_name\":\"InputLayer\",\"config\":{\"batch_shape\":[null,4],\"name\":\"i\"}}"
#define DENSE(more) INPUT ",{\"class_name\":\"Dense\",\"config\":{\"name\":\"d\",\"units\":2" more "}}"
#define FUNCTIONAL(layers, in, out)                                                                          \
    "{\"class_name\":\"Functional\",\"config\":{\"name\":\"f\",\"layers\":[" layers "],\"input_layers\":" in \
    ",\"output_layers\":" out "}}"
#define NODE_INPUT                                                                                           \
    "{\"class_name\":\"InputLayer\",\"config\":{\"batch_shape\":[null,4],\"name\":\"i\"},\"name\":\"i\","    \
    "\"inbound_nodes\":[]}"
#define TENSOR(layer, call)                                                                                  \
    "{\"class_name\":\"__keras_tensor__\",\"config\":{\"shape\":[null,4],\"keras_history\":[\"" layer        \
    "\"," call ",0]}}"
#define NODE_DENSE(name, args)                                                                               \
    "{\"class_name\":\"Dense\",\"config\":{\"name\":\"" name "\",\"units\":4},\"name\":\"" name              \
    "\",\"inbound_nodes\":[{\"args\":[" args "],\"kwargs\":{}}]}"

static const struct refusal {
    const char *json;
    manta_status code; /* MANTA_OK: taken */
    const char *word;
} refusals[] = {
    {SEQUENTIAL(DENSE("")), MANTA_OK, NULL},
    {SEQUENTIAL(DENSE(",\"kernel_constraint\":null,\"dtype\":\"float32\"")), MANTA_OK, NULL},
    {SEQUENTIAL(DENSE(",\"kernel_constraint\":\"max_norm\"")), MANTA_EUNSUPPORTED, "kernel_constraint"},
    {SEQUENTIAL(DENSE(",\"dtype\":\"float16\"")), MANTA_EUNSUPPORTED, "float16"},
    {SEQUENTIAL(DENSE(",\"activation\":\"selu\"")), MANTA_EUNSUPPORTED,
     "'d' (Dense) has activation = \"selu\""},
    {SEQUENTIAL(DENSE(",\"activation\":{\"class_name\":\"__lambda__\",\"config\":\"x\"}")),
     MANTA_EUNSUPPORTED, "activation"},
    {SEQUENTIAL(DENSE(",\"units\":3")), MANTA_ECORRUPT, "duplicate"},
    {SEQUENTIAL(DENSE(",\"use_bias\":3")), MANTA_ECORRUPT, "use_bias"},
    {SEQUENTIAL(DENSE(",\"kernel_regularizer\":\"orthogonal\"")), MANTA_EUNSUPPORTED, "kernel_regularizer"},
    {SEQUENTIAL(INPUT ",{\"class_name\":\"LSTM\",\"config\":{\"name\":\"m\"}}"), MANTA_EUNSUPPORTED,
     "'m' is a LSTM"},
    {SEQUENTIAL(INPUT ",{\"class_name\":\"Lambda\",\"config\":{\"name\":\"m\"}}"), MANTA_EUNSUPPORTED,
     "code"},
    {SEQUENTIAL("{\"class_name\":\"Dense\",\"config\":{\"name\":\"d\",\"units\":2}}"), MANTA_EUNSUPPORTED,
     "never built"},
    {SEQUENTIAL("{\"class_name\":\"InputLayer\",\"config\":{\"batch_shape\":[null,null],\"name\":\"i\"}}"),
     MANTA_EUNSUPPORTED, "every dimension"},
    {SEQUENTIAL(""), MANTA_EUNSUPPORTED, "never built"},
    {"{\"class_name\":\"Mine\",\"config\":{}}", MANTA_EUNSUPPORTED, "Mine"},
    {"{\"class_name\":\"Sequential\"}", MANTA_ECORRUPT, "config"},
    {"[]", MANTA_ECORRUPT, "object"},
    {"{", MANTA_ECORRUPT, "line 1"},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", TENSOR("i", "0")), "[[\"i\",0,0]]", "[[\"d\",0,0]]"), MANTA_OK,
     NULL},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", TENSOR("i", "0")), "[\"i\",0,0]", "[\"d\",0,0]"), MANTA_OK,
     NULL},
    {FUNCTIONAL(NODE_DENSE("d", TENSOR("i", "0")) "," NODE_INPUT, "[\"i\",0,0]", "{\"y\":[\"d\",0,0]}"),
     MANTA_OK, NULL},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", TENSOR("i", "1")), "[\"i\",0,0]", "[\"d\",0,0]"),
     MANTA_ECORRUPT, "nothing is at"},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", TENSOR("e", "0")) "," NODE_DENSE("e", TENSOR("d", "0")),
                "[\"i\",0,0]", "[\"d\",0,0]"),
     MANTA_ECORRUPT, "itself"},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", TENSOR("i", "0")) "," NODE_DENSE("d", TENSOR("i", "0")),
                "[\"i\",0,0]", "[\"d\",0,0]"),
     MANTA_ECORRUPT, "two layers"},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", TENSOR("i", "0")), "[\"i\",0,0]", "[\"d\",7,0]"),
     MANTA_ECORRUPT, "nothing is at"},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", "3"), "[\"i\",0,0]", "[\"d\",0,0]"), MANTA_EUNSUPPORTED,
     "called with"},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", ""), "[\"i\",0,0]", "[\"d\",0,0]"), MANTA_ECORRUPT, "nothing"},
    {FUNCTIONAL(NODE_INPUT "," NODE_DENSE("d", TENSOR("i", "0")), "3", "[\"d\",0,0]"), MANTA_ECORRUPT,
     "listed"},
};

static void every_refusal_names_its_reason(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const struct refusal *r = &refusals[i];
        const char *path = scratch_file("c.json", r->json, strlen(r->json));
        int64_t live = mem_live();
        manta_saved *s = NULL;
        manta_status st = manta_file_read(path, NULL, &s);
        if (st != r->code) fail_msg("%s: %d (%s)", r->json, (int)st, manta_error_text());
        if (st) assert_error_says(r->word);
        if (st) assert_error_says("c.json");
        manta_saved_free(s);
        assert_int_equal(mem_live(), live);
    }
}

#define LSTM(name) ",{\"class_name\":\"LSTM\",\"config\":{\"name\":\"" name "\"}}"
#define NODE_LSTM(name, from)                                                                                \
    "{\"class_name\":\"LSTM\",\"config\":{\"name\":\"" name "\"},\"name\":\"" name                           \
    "\",\"inbound_nodes\":[{\"args\":[" from "],\"kwargs\":{}}]}"

/* Every layer that is not there is named by one sentence, each kind with its first. */
static void all_that_is_missing_is_said_at_once(void **state)
{
    static const char json[] = SEQUENTIAL(INPUT LSTM("m") LSTM("n") LSTM(
        "o") ",{\"class_name\":\"Dense\",\"config\":{\"name\":\"d\",\"units\":2,\"activation\":\"mish\"}}");
    const char *path = scratch_file("c.json", json, strlen(json));
    manta_saved *s = NULL;

    (void)state;
    assert_int_equal(manta_file_read(path, NULL, &s), MANTA_EUNSUPPORTED);
    assert_error_says("c.json: Manta does not have 4 of its 5 layers: 'm' is a LSTM (and 2 more); "
                      "'d' (Dense) has activation = \"mish\"");
}

/* The layers of a model that cannot be made, with the shapes that the file gives. */
static void an_outline_lists_every_layer(void **state)
{
    static const char json[] = FUNCTIONAL(NODE_INPUT "," NODE_LSTM("m", TENSOR("i", "0")) "," NODE_DENSE(
                                              "d", TENSOR("m", "0")) "," SEQUENTIAL(DENSE("")),
                                          "[\"i\",0,0]", "[\"d\",0,0]");
    const char *path = scratch_file("c.json", json, strlen(json));
    static const char *const names[] = {"i", "m", "d", "s", "i", "d"};
    int64_t live = mem_live();
    manta_outline o = {0};

    (void)state;
    assert_ok(manta_file_outline(path, &o));
    assert_int_equal(o.n, 6);
    for (int i = 0; i < o.n; i++) {
        assert_string_equal(o.layers[i].name, names[i]);
        assert_int_equal(o.layers[i].nesting, i > 3);
        assert_int_equal(o.layers[i].problem != NULL, i == 1);
    }
    assert_string_equal(o.layers[1].class_name, "LSTM");
    assert_string_equal(o.layers[1].problem, "is a LSTM, which Manta does not have");
    assert_int_equal(o.layers[1].ndim, 2);
    assert_int_equal(o.layers[1].shape[0], -1);
    assert_int_equal(o.layers[1].shape[1], 4);
    assert_int_equal(o.layers[2].ndim, 0);
    manta_outline_release(&o);
    assert_null(o.layers);
    manta_outline_release(&o);
    assert_int_equal(mem_live(), live);
    assert_ok(manta_file_outline(golden("resnet.keras"), &o));
    assert_true(o.n > 10);
    manta_outline_release(&o);
    assert_ok(manta_file_outline(golden("resnet_legacy.h5"), &o));
    assert_true(o.n > 10);
    manta_outline_release(&o);
    assert_int_equal(manta_file_outline(golden("absent.npz"), &o), MANTA_EUNSUPPORTED);
    assert_int_equal(manta_file_outline(NULL, &o), MANTA_EINVAL);
    assert_int_equal(manta_file_outline(path, NULL), MANTA_EINVAL);
}

static void policies_are_refused_by_name(void **state)
{
    manta_saved *s = NULL;

    (void)state;
    assert_int_equal(manta_file_read(golden("bf.keras"), NULL, &s), MANTA_EUNSUPPORTED);
    assert_error_says("bfloat16");
    assert_int_equal(manta_file_read(golden("mp16.keras"), NULL, &s), MANTA_EUNSUPPORTED);
    assert_error_says("mixed_float16");
    assert_int_equal(manta_file_read(scratch_path("none.keras"), NULL, &s), MANTA_ENOENT);
    assert_int_equal(manta_file_read(scratch_file("text.keras", "hello", 5), NULL, &s), MANTA_ECORRUPT);
    assert_int_equal(manta_file_read(scratch_file("text.what", "hello", 5), NULL, &s), MANTA_EUNSUPPORTED);
}

static void what_was_compiled_with_what(void **state)
{
    static const char *const head =
        "{\"class_name\":\"Sequential\",\"config\":{\"name\":\"s\",\"layers\":[" DENSE(
            "") "]},"
                "\"compile_config\":";
    static const struct {
        const char *compile;
        manta_status optimizer, losses, metrics;
    } cases[] = {
        {"null", MANTA_ENOENT, MANTA_ENOENT, MANTA_ENOENT},
        {"{}", MANTA_ENOENT, MANTA_ENOENT, MANTA_ENOENT},
        {"{\"optimizer\":\"sgd\",\"loss\":\"mse\"}", MANTA_OK, MANTA_OK, MANTA_OK},
        {"{\"optimizer\":\"nadam\",\"loss\":\"mse\",\"metrics\":[\"mae\"]}", MANTA_EUNSUPPORTED, MANTA_OK,
         MANTA_OK},
        {"{\"optimizer\":\"adam\",\"loss\":\"hinge\",\"metrics\":[\"auc\"]}", MANTA_OK, MANTA_EUNSUPPORTED,
         MANTA_EUNSUPPORTED},
        {"{\"optimizer\":\"adam\",\"loss\":null}", MANTA_OK, MANTA_ENOENT, MANTA_OK},
        {"{\"optimizer\":\"adam\",\"loss\":{\"d\":\"mse\"},\"metrics\":{\"d\":[\"mae\",\"mse\"]}}", MANTA_OK,
         MANTA_OK, MANTA_OK},
        {"{\"optimizer\":{\"class_name\":\"Adam\",\"config\":{\"learning_rate\":{\"class_name\":\"Mine\"}}},"
         "\"loss\":[\"mse\"]}",
         MANTA_EUNSUPPORTED, MANTA_OK, MANTA_OK},
        {"{\"optimizer\":\"adam\",\"loss\":{\"class_name\":\"MeanSquaredError\",\"config\":{\"reduction\":"
         "\"none\"}}}",
         MANTA_OK, MANTA_EUNSUPPORTED, MANTA_OK},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[2048];
        manta_saved *s;
        manta_optimizer o;
        const manta_loss *l;
        const manta_metric *m;
        int n;
        snprintf(text, sizeof text, "%s%s}", head, cases[i].compile);
        s = read_ok(scratch_file("c.json", text, strlen(text)));
        assert_int_equal(manta_saved_optimizer(s, &o), cases[i].optimizer);
        assert_int_equal(manta_saved_losses(s, &n, &l), cases[i].losses);
        assert_int_equal(manta_saved_metrics(s, &n, &m), cases[i].metrics);
        manta_saved_free(s);
    }
}

/* ---- when the system does not help ---- */

static void a_cut_or_changed_archive_is_refused(void **state)
{
    uint8_t *whole = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(file_read(golden("old_3.0.5.keras"), 1 << 20, (void **)&whole, &size), MANTA_OK);
    for (size_t n = 0; n < size; n += 1511) {
        int64_t live = mem_live();
        manta_saved *s = NULL;
        assert_true(manta_file_read(scratch_file("cut.keras", whole, n), NULL, &s) != MANTA_OK);
        assert_int_equal(mem_live(), live);
    }
    /* A changed byte of any member is found by its checksum. */
    for (size_t n = 200; n < size - 400; n += 4999) {
        manta_saved *s = NULL;
        whole[n] ^= 0x40;
        assert_true(manta_file_read(scratch_file("bit.keras", whole, size), NULL, &s) != MANTA_OK);
        whole[n] ^= 0x40;
    }
    mem_try_free(whole);
}

/* ---- weights in several files ---- */

static manta_status to_buf(void *ctx, const void *data, size_t n)
{
    buf_add(ctx, data, n);
    return MANTA_OK;
}

/* A file with one number at each of the places, counting from `first`. */
static void write_shard(const char *name, int n, const char *const *places, float first)
{
    float numbers[4];
    h5_out o = {0};
    buf b = {0};

    for (int i = 0; i < n; i++) {
        manta_array a = manta_array_of(MANTA_DTYPE_F32, 0, NULL, &numbers[i]);
        numbers[i] = first + (float)i;
        h5_out_dataset(&o, places[i], &a);
    }
    h5_out_layout(&o);
    assert_int_equal(h5_out_emit(&o, to_buf, &b), MANTA_OK);
    (void)scratch_file(name, b.at, b.n);
    buf_release(&b);
    h5_out_release(&o);
}

static void weights_in_several_files_are_one(void **state)
{
    static const char index[] = "{\"metadata\": {\"total_size\": 16}, \"weight_map\": {"
                                "\"/layers/a/vars\": \"w_00000.weights.h5\", "
                                "\"/layers/b/vars\": [\"w_00000.weights.h5\", \"w_00001.weights.h5\"]}}";
    static const struct {
        const char *json, *word;
        manta_status code;
    } bad[] = {{"{\"weight_map\": {\"/x\": \"../w_00000.weights.h5\"}}", "beside it", MANTA_ECORRUPT},
               {"{\"weight_map\": {\"/x\": \"/etc/passwd\"}}", "beside it", MANTA_ECORRUPT},
               {"{\"weight_map\": {\"/x\": [\"..\"]}}", "beside it", MANTA_ECORRUPT},
               {"{\"weight_map\": {\"/x\": 3}}", "neither", MANTA_ECORRUPT},
               {"{\"weight_map\": {\"/x\": [3]}}", "no name", MANTA_ECORRUPT},
               {"{\"weight_map\": {\"/x\": []}}", "no file", MANTA_ECORRUPT},
               {"{\"weight_map\": {}}", "weight_map", MANTA_ECORRUPT},
               {"{}", "weight_map", MANTA_ECORRUPT},
               {"{\"weight_map\": {\"/x\": \"missing.weights.h5\"}}", "missing.weights.h5", MANTA_ENOENT}};
    manta_saved *s;

    (void)state;
    write_shard("w_00000.weights.h5", 3,
                (const char *const[]){"layers/a/vars/0", "layers/a/vars/1", "layers/b/vars/0"}, 1);
    write_shard("w_00001.weights.h5", 1, (const char *const[]){"layers/b/vars/1"}, 4);
    s = read_ok(scratch_file("w.weights.json", index, strlen(index)));
    assert_string_equal(manta_saved_format(s), "weights.json");
    assert_int_equal(manta_saved_arrays(s), 4);
    assert_true(*(float *)manta_saved_find(s, "layers/a/vars/1")->data == 2);
    assert_true(*(float *)manta_saved_find(s, "layers/b/vars/0")->data == 3);
    assert_true(*(float *)manta_saved_find(s, "layers/b/vars/1")->data == 4);
    manta_saved_free(s);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int64_t live = mem_live();
        s = NULL;
        assert_int_equal(
            manta_file_read(scratch_file("w.weights.json", bad[i].json, strlen(bad[i].json)), NULL, &s),
            bad[i].code);
        assert_null(s);
        assert_error_says(bad[i].word);
        assert_int_equal(mem_live(), live);
    }
}

static void no_half_file_is_left(void **state)
{
    static const char *const names[] = {"f.keras", "f.weights.h5", "f.h5", "f.json"};
    manta_model *m = crossed();
    manta_contents c = contents_of(m);

    (void)state;
    for (int k = 0; k < 4; k++) {
        const char *path = scratch_path(names[k]);
        for (int n = 1;; n++) {
            int64_t live = mem_live(), hits;
            file_names left = {0};
            manta_status st;
            fault_begin((fault_plan){.at = n, .err = ENOSPC, .spare_unlink = true, .sticky = true});
            st = manta_file_write(path, NULL, &c);
            hits = fault_end();
            if (st == MANTA_OK) { /* the last calls close what is synced already */
                manta_saved *s = read_ok(path);
                manta_saved_free(s);
                if (hits == 0) break;
                continue;
            }
            assert_true(hits > 0);
            assert_int_equal(mem_live(), live);
            assert_int_equal(file_list(scratch_dir, &left), MANTA_OK);
            for (size_t i = 0; i < left.n; i++) assert_null(strstr(left.at[i], "manta-tmp"));
            if (st != MANTA_EUNKNOWN) assert_int_equal(access(path, F_OK), -1);
            file_names_release(&left);
            (void)unlink(path);
        }
    }
    manta_model_free(m);
}

static manta_status read_old_model(void *ctx)
{
    manta_saved *s = NULL;

    (void)ctx;
    manta_status st = manta_file_read(golden("old_3.0.5.keras"), NULL, &s);
    manta_saved_free(s);
    return st;
}

static void no_memory_is_an_error(void **state)
{
    (void)state;
    alloc_fail_each(read_old_model, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_with_its_optimizer),
        cmocka_unit_test(arrays_can_be_given_back),
        cmocka_unit_test(the_legacy_file_holds_the_same),
        cmocka_unit_test(files_of_every_keras),
        cmocka_unit_test(a_config_is_a_model),
        cmocka_unit_test(operators_and_nested_models),
        cmocka_unit_test(layers_are_numbered_by_depth),
        cmocka_unit_test(what_is_written_reads_back),
        cmocka_unit_test(a_zero_that_was_asked_for_stays_one),
        cmocka_unit_test(the_same_model_gives_the_same_bytes),
        cmocka_unit_test(contents_that_do_not_fit_are_refused),
        cmocka_unit_test(padding_by_numbers),
        cmocka_unit_test(every_refusal_names_its_reason),
        cmocka_unit_test(all_that_is_missing_is_said_at_once),
        cmocka_unit_test(an_outline_lists_every_layer),
        cmocka_unit_test(policies_are_refused_by_name),
        cmocka_unit_test(what_was_compiled_with_what),
        cmocka_unit_test(a_cut_or_changed_archive_is_refused),
        cmocka_unit_test(weights_in_several_files_are_one),
        cmocka_unit_test(no_half_file_is_left),
        cmocka_unit_test(no_memory_is_an_error),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
