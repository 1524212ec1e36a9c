/* pt_torch_test.c - the same weights in PyTorch's layout and in ours: each kind
 * of layer element by element, and which tensor is taken for which variable. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <manta/file.h>
#include <manta/layer.h>

#include "base/mem.h"
#include "format/torch/pt.h"
#include "format/torch/torch.h"
#include "ok.h"
#include "scratch.h"

/* A state dict with the values 0, 1, 2, ... across all its tensors. */
typedef struct dict {
    manta_column columns[64];
    int n;
    float next;
} dict;

static void add(dict *d, const char *name, int ndim, ...)
{
    int64_t shape[MANTA_MAX_DIMS];
    va_list ap;
    manta_array a;
    float *x;

    va_start(ap, ndim);
    for (int i = 0; i < ndim; i++) shape[i] = va_arg(ap, int);
    va_end(ap);
    a = manta_array_of(MANTA_DTYPE_F32, ndim, shape, NULL);
    a.data = x = malloc(manta_array_bytes(&a) + 1);
    for (int64_t i = 0; i < manta_array_count(&a); i++) x[i] = d->next++;
    d->columns[d->n++] = (manta_column){name, a};
}

static void dict_free(dict *d)
{
    for (int i = 0; i < d->n; i++) free(d->columns[i].array.data);
}

static float at(const manta_array *a, int64_t i, int64_t j, int64_t k, int64_t l)
{
    const int64_t index[4] = {i, j, k, l};
    int64_t place = 0;

    for (int n = 0; n < a->ndim; n++) place += index[n] * a->strides[n];
    return ((const float *)a->data)[place];
}

/* Reads the dictionary through a file, as the model's; NULL when it is refused. */
static manta_saved *import(const manta_model *m, const dict *d)
{
    const manta_read_options o = {.like = m};
    const char *path = scratch_path("d.pt");
    manta_saved *s = NULL;

    assert_ok(pt_write(path, d->n, d->columns));
    if (manta_file_read(path, &o, &s)) return NULL;
    return s;
}

/* What is written from the saved state is the dictionary again. */
static void check_back(const manta_model *m, const manta_saved *s, const dict *d, bool names)
{
    manta_contents c = manta_saved_contents(s);
    const char *path = scratch_path("back.pt");
    pt_file f = {0};
    int k = 0;

    c.model = m;
    assert_ok(manta_file_write(path, NULL, &c));
    assert_ok(pt_read(path, &f));
    for (size_t i = 0; i < f.tensors.n; i++) {
        manta_array a;
        assert_int_equal(pt_array(&f, (int)i, &a), MANTA_OK);
        if (strstr(f.tensors.at[i].name, "num_batches_tracked")) {
            assert_int_equal(a.dtype, MANTA_DTYPE_I64);
            continue;
        }
        assert_true(k < d->n);
        if (names) assert_string_equal(f.tensors.at[i].name, d->columns[k].name);
        assert_int_equal(a.ndim, d->columns[k].array.ndim);
        assert_memory_equal(a.shape, d->columns[k].array.shape, (size_t)a.ndim * sizeof *a.shape);
        assert_memory_equal(a.data, d->columns[k].array.data, manta_array_bytes(&a));
        k++;
    }
    assert_int_equal(k, d->n);
    pt_release(&f);
}

static manta_model *built(manta_model *m)
{
    assert_ok(manta_model_build(m));
    return m;
}

static manta_saved *must(manta_saved *s)
{
    if (!s) fail_msg("%s", manta_error_text());
    return s;
}

/* ---- layouts ---- */

static void conv_and_flatten_take_torchs_order(void **state)
{
    (void)state;
    manta_model *m = manta_model_new("net");
    dict d = {0};
    const manta_array *a, *t;
    manta_saved *s;

    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){4, 5, 3});
    manta_model_add(m, manta_conv2d(m, (manta_conv2d_options){
                                           .filters = 2, .kernel_size = {3, 2}, .activation = "relu"}));
    manta_model_add(m, manta_flatten(m)); /* (2, 4, 2) */
    manta_model_add(m, manta_dropout(m, (manta_dropout_options){.rate = 0.5}));
    manta_model_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 3, .activation = "relu"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 2, .no_bias = true}));
    built(m);
    add(&d, "0.weight", 4, 2, 3, 3, 2);
    add(&d, "0.bias", 1, 2);
    add(&d, "3.weight", 1, 16);
    add(&d, "3.bias", 1, 16);
    add(&d, "3.running_mean", 1, 16);
    add(&d, "3.running_var", 1, 16);
    add(&d, "4.weight", 2, 3, 16);
    add(&d, "4.bias", 1, 3);
    add(&d, "6.weight", 2, 2, 3);
    s = must(import(m, &d));

    a = manta_saved_find(s, "conv2d/kernel");
    t = &d.columns[0].array;
    for (int h = 0; h < 3; h++) {
        for (int w = 0; w < 2; w++) {
            for (int i = 0; i < 3; i++) {
                for (int o = 0; o < 2; o++) assert_true(at(a, h, w, i, o) == at(t, o, i, h, w));
            }
        }
    }
    a = manta_saved_find(s, "dense/kernel");
    t = &d.columns[6].array;
    for (int h = 0; h < 2; h++) {
        for (int w = 0; w < 4; w++) {
            for (int c = 0; c < 2; c++) {
                for (int o = 0; o < 3; o++) {
                    assert_true(at(a, (h * 4 + w) * 2 + c, o, 0, 0) == at(t, o, c * 8 + h * 4 + w, 0, 0));
                }
                assert_true(at(manta_saved_find(s, "batch_normalization/moving_mean"), (h * 4 + w) * 2 + c, 0,
                               0, 0) == at(&d.columns[4].array, c * 8 + h * 4 + w, 0, 0, 0));
            }
        }
    }
    a = manta_saved_find(s, "dense_1/kernel"); /* behind another dense layer: turned only */
    t = &d.columns[8].array;
    for (int i = 0; i < 3; i++) {
        for (int o = 0; o < 2; o++) assert_true(at(a, i, o, 0, 0) == at(t, o, i, 0, 0));
    }
    check_back(m, s, &d, false);
    manta_saved_free(s);
    manta_model_free(m);
    dict_free(&d);
}

/* A vector that becomes a map: the columns that make it are ordered otherwise. */
static void reshape_takes_torchs_order(void **state)
{
    (void)state;
    manta_model *m = manta_model_new("decoder");
    dict d = {0};
    const manta_array *a, *t;
    manta_saved *s;

    manta_input(m, "z", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 12, .activation = "relu"}));
    manta_model_add(m, manta_reshape(m, (manta_reshape_options){.shape = {2, 2, 3}, .ndim = 3}));
    manta_model_add(
        m, manta_conv2d_transpose(m, (manta_conv2d_transpose_options){.filters = 4, .kernel_size = {2, 3}}));
    built(m);
    add(&d, "fc.weight", 2, 12, 2);
    add(&d, "fc.bias", 1, 12);
    add(&d, "up.weight", 4, 3, 4, 2, 3);
    add(&d, "up.bias", 1, 4);
    s = must(import(m, &d));
    a = manta_saved_find(s, "dense/kernel");
    t = &d.columns[0].array;
    for (int h = 0; h < 2; h++) {
        for (int w = 0; w < 2; w++) {
            for (int c = 0; c < 3; c++) {
                int ours = (h * 2 + w) * 3 + c, theirs = c * 4 + h * 2 + w;
                assert_true(at(a, 1, ours, 0, 0) == at(t, theirs, 1, 0, 0));
                assert_true(at(manta_saved_find(s, "dense/bias"), ours, 0, 0, 0) ==
                            at(&d.columns[1].array, theirs, 0, 0, 0));
            }
        }
    }
    a = manta_saved_find(s, "conv2d_transpose/kernel"); /* (h, w, out, in) and (in, out, h, w) */
    t = &d.columns[2].array;
    for (int i = 0; i < 3; i++) {
        for (int o = 0; o < 4; o++) assert_true(at(a, 1, 2, o, i) == at(t, i, o, 1, 2));
    }
    check_back(m, s, &d, false);
    manta_saved_free(s);
    manta_model_free(m);
    dict_free(&d);
}

static void depthwise_groups_and_norms_are_converted(void **state)
{
    (void)state;
    manta_model *m = manta_model_new("net");
    dict d = {0};
    const manta_array *a, *t;
    manta_saved *s;

    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){3, 3, 4});
    manta_model_add(m, manta_depthwise_conv2d(m, (manta_depthwise_conv2d_options){.kernel_size = {2, 2},
                                                                                  .depth_multiplier = 2}));
    manta_model_add(
        m, manta_conv2d(
               m, (manta_conv2d_options){.filters = 6, .kernel_size = {1, 1}, .groups = 2, .no_bias = true}));
    manta_model_add(
        m, manta_layer_normalization(m, (manta_layer_normalization_options){.axis = {1, 2, 3}, .n_axis = 3}));
    manta_model_add(m, manta_global_average_pooling2d(m, (manta_global_pooling2d_options){0}));
    manta_model_add(m, manta_layer_normalization(m, (manta_layer_normalization_options){0}));
    built(m);
    add(&d, "dw.weight", 4, 8, 1, 2, 2);
    add(&d, "dw.bias", 1, 8);
    add(&d, "pw.weight", 4, 6, 4, 1, 1);
    add(&d, "ln.weight", 3, 6, 2, 2);
    add(&d, "ln.bias", 3, 6, 2, 2);
    add(&d, "last.weight", 1, 6);
    add(&d, "last.bias", 1, 6);
    s = must(import(m, &d));
    a = manta_saved_find(s, "depthwise_conv2d/kernel");
    t = &d.columns[0].array;
    for (int c = 0; c < 4; c++) {
        for (int k = 0; k < 2; k++) assert_true(at(a, 1, 0, c, k) == at(t, c * 2 + k, 0, 1, 0));
    }
    a = manta_saved_find(s, "conv2d/kernel");
    assert_true(at(a, 0, 0, 3, 5) == at(&d.columns[2].array, 5, 3, 0, 0));
    a = manta_saved_find(s, "layer_normalization/gamma");
    assert_true(at(a, 1, 0, 5, 0) == at(&d.columns[3].array, 5, 1, 0, 0));
    check_back(m, s, &d, false);
    manta_saved_free(s);
    manta_model_free(m);
    dict_free(&d);
}

static void nested_models_and_embeddings_are_converted(void **state)
{
    (void)state;
    manta_model *inner = manta_model_new("encoder"), *m = manta_model_new("outer");
    dict d = {0};
    manta_saved *s;
    manta_value x, y;

    manta_input(inner, "ids", MANTA_DTYPE_I32, 1, (int64_t[]){3});
    manta_model_add(inner,
                    manta_embedding(inner, (manta_embedding_options){.input_dim = 5, .output_dim = 2}));
    manta_model_add(inner, manta_flatten(inner)); /* no map: the order is the same */
    manta_model_add(inner, manta_dense(inner, (manta_dense_options){.units = 4}));
    built(inner);
    x = manta_input(m, "ids", MANTA_DTYPE_I32, 1, (int64_t[]){3});
    manta_call_nested(m, manta_nested(m, inner), 1, &x, 1, &y);
    manta_output(m, manta_call(m, manta_dense(m, (manta_dense_options){.units = 1, .name = "head"}), y));
    built(m);
    add(&d, "encoder.embedding.weight", 2, 5, 2);
    add(&d, "encoder.dense.weight", 2, 4, 6);
    add(&d, "encoder.dense.bias", 1, 4);
    add(&d, "head.weight", 2, 1, 4);
    add(&d, "head.bias", 1, 1);
    s = must(import(m, &d));
    assert_true(at(manta_saved_find(s, "encoder/embedding/embeddings"), 4, 1, 0, 0) ==
                at(&d.columns[0].array, 4, 1, 0, 0));
    assert_true(at(manta_saved_find(s, "encoder/dense/kernel"), 5, 2, 0, 0) ==
                at(&d.columns[1].array, 2, 5, 0, 0));
    check_back(m, s, &d, true);
    manta_saved_free(s);
    manta_model_free(m);
    manta_model_free(inner);
    dict_free(&d);
}

/* Whether the order is kept is not known: refused, not guessed. */
static void an_unknown_order_is_refused(void **state)
{
    (void)state;
    manta_model *m = manta_model_new("net");
    manta_value x, y[2], z;
    dict d = {0};

    x = manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){2, 2, 3});
    y[0] = manta_call(m, manta_flatten(m), x);
    y[1] = manta_call(m, manta_flatten(m), x);
    z = manta_call_n(m, manta_merge_concatenate(m, (manta_merge_concatenate_options){0}), 2, y);
    manta_output(m, manta_call(m, manta_dense(m, (manta_dense_options){.units = 1}), z));
    built(m);
    add(&d, "dense.weight", 2, 1, 24);
    add(&d, "dense.bias", 1, 1);
    assert_null(import(m, &d));
    assert_error_says("dense/kernel");
    assert_error_says("cannot be told");
    manta_model_free(m);
    dict_free(&d);
}

/* ---- which is whose ---- */

/* Two dense layers of the same shape and one of another. */
static manta_model *three(void)
{
    manta_model *m = manta_model_new("three");

    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 2, .name = "a_0_x"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 2, .name = "b"}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 3, .name = "c"}));
    return built(m);
}

static void add_dense(dict *d, const char *weight, const char *bias, int in, int out)
{
    add(d, weight, 2, out, in);
    add(d, bias, 1, out);
}

static float first_of(const manta_saved *s, const char *name)
{
    return *(const float *)manta_saved_find(s, name)->data;
}

static void weights_are_matched_by_name(void **state)
{
    (void)state;
    manta_model *m = three();
    dict d = {0};
    manta_saved *s;

    /* another order, and wrapped as DistributedDataParallel does */
    add_dense(&d, "module.c.weight", "module.c.bias", 2, 3);
    add_dense(&d, "module.b.weight", "module.b.bias", 2, 2);
    add_dense(&d, "module.a.0.x.weight", "module.a.0.x.bias", 2, 2);
    s = must(import(m, &d));
    assert_true(first_of(s, "c/kernel") == 0);
    assert_true(first_of(s, "b/kernel") == 9);
    assert_true(first_of(s, "a_0_x/kernel") == 15);
    manta_saved_free(s);
    dict_free(&d);
    /* within a checkpoint */
    d = (dict){0};
    add_dense(&d, "optimizer.state.0.exp_avg", "optimizer.state.1.exp_avg", 2, 2);
    add_dense(&d, "state_dict.a.0.x.weight", "state_dict.a.0.x.bias", 2, 2);
    add_dense(&d, "state_dict.b.weight", "state_dict.b.bias", 2, 2);
    add_dense(&d, "state_dict.c.weight", "state_dict.c.bias", 2, 3);
    s = must(import(m, &d));
    assert_true(first_of(s, "a_0_x/kernel") == 6);
    assert_int_equal(manta_saved_arrays(s), 6);
    manta_saved_free(s);
    dict_free(&d);
    /* the right name and another shape */
    d = (dict){0};
    add_dense(&d, "a.0.x.weight", "a.0.x.bias", 2, 2);
    add_dense(&d, "b.weight", "b.bias", 2, 2);
    add_dense(&d, "c.weight", "c.bias", 2, 4);
    assert_null(import(m, &d));
    assert_error_says("'c.weight' has shape (4, 2)");
    assert_error_says("expects (3, 2)");
    dict_free(&d);
    manta_model_free(m);
}

static void weights_are_matched_by_order_and_shape(void **state)
{
    (void)state;
    manta_model *m = three();
    dict d = {0};
    manta_saved *s;

    add_dense(&d, "0.weight", "0.bias", 2, 2);
    add_dense(&d, "1.weight", "1.bias", 2, 2);
    add_dense(&d, "2.weight", "2.bias", 2, 3);
    s = must(import(m, &d));
    assert_true(first_of(s, "b/kernel") == 6);
    manta_saved_free(s);
    dict_free(&d);
    /* neither names nor order, and two that fit */
    d = (dict){0};
    add_dense(&d, "2.weight", "2.bias", 2, 3);
    add_dense(&d, "0.weight", "0.bias", 2, 2);
    add_dense(&d, "1.weight", "1.bias", 2, 2);
    assert_null(import(m, &d));
    assert_error_says("several");
    assert_error_says("'a_0_x'");
    dict_free(&d);
    /* fewer modules */
    d = (dict){0};
    add_dense(&d, "0.weight", "0.bias", 2, 2);
    assert_null(import(m, &d));
    assert_error_says("1 modules");
    dict_free(&d);
    /* a bias is missing */
    d = (dict){0};
    add_dense(&d, "0.weight", "0.bias", 2, 2);
    add_dense(&d, "1.weight", "1.bias", 2, 2);
    add(&d, "2.weight", 2, 3, 2);
    assert_null(import(m, &d));
    assert_error_says("no bias");
    dict_free(&d);
    manta_model_free(m);

    m = manta_model_new("two"); /* each shape once */
    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){2});
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 4}));
    manta_model_add(m, manta_dense(m, (manta_dense_options){.units = 3}));
    built(m);
    d = (dict){0};
    add_dense(&d, "head.weight", "head.bias", 4, 3);
    add_dense(&d, "body.weight", "body.bias", 2, 4);
    s = must(import(m, &d));
    assert_true(first_of(s, "dense_1/kernel") == 0);
    assert_true(first_of(s, "dense/kernel") == 15);
    manta_saved_free(s);
    dict_free(&d);
    manta_model_free(m);
}

/* torchvision's names for the whole of a ResNet-18, and no tensor left over. */
static void torchvisions_resnet_names_are_known(void **state)
{
    (void)state;
    manta_model *m = NULL;
    manta_column *c;
    manta_contents contents = {0};
    pt_file f = {0};
    int n, counters = 0;
    static const char *const names[] = {"conv1.weight",         "bn1.weight",      "bn1.bias",
                                        "bn1.running_mean",     "bn1.running_var", "bn1.num_batches_tracked",
                                        "layer1.0.conv1.weight"};

    assert_int_equal(manta_zoo("resnet18", &m), MANTA_OK);
    n = manta_model_variables(m);
    c = calloc((size_t)n, sizeof *c);
    for (int i = 0; i < n; i++) {
        manta_variable_info v = manta_model_variable(m, i);
        c[i] = (manta_column){v.name, manta_array_of(MANTA_DTYPE_F32, v.ndim, v.shape, NULL)};
        c[i].array.data = calloc(1, manta_array_bytes(&c[i].array));
    }
    contents.model = m;
    contents.arrays = c;
    contents.n_arrays = n;
    assert_int_equal(manta_file_write(scratch_path("r.pt"), NULL, &contents), MANTA_OK);
    assert_int_equal(pt_read(scratch_path("r.pt"), &f), MANTA_OK);
    assert_int_equal(f.tensors.n, 122);
    for (int i = 0; i < 7; i++) assert_string_equal(f.tensors.at[i].name, names[i]);
    for (size_t i = 0; i < f.tensors.n; i++) {
        if (strstr(f.tensors.at[i].name, ".num_batches_tracked")) counters++;
        if (strcmp(f.tensors.at[i].name, "layer2.0.downsample.1.running_var") == 0) counters += 1000;
        assert_null(strchr(f.tensors.at[i].name, '/'));
    }
    assert_int_equal(counters, 1020);
    contents.n_arrays--; /* one is missing */
    assert_int_equal(manta_file_write(scratch_path("r.pt"), NULL, &contents), MANTA_ENOENT);
    pt_release(&f);
    for (int i = 0; i < n; i++) free(c[i].array.data);
    free(c);
    manta_model_free(m);
}

/* A state of ours is taken as it is, whatever file it lies in. */
static void a_state_of_ours_is_taken_as_it_is(void **state)
{
    (void)state;
    manta_model *m = three();
    const manta_read_options o = {.like = m};
    dict d = {0};
    manta_saved *s = NULL;
    manta_contents c = {0};

    add(&d, "a_0_x/kernel", 2, 2, 2);
    add(&d, "a_0_x/bias", 1, 2);
    add(&d, "b/kernel", 2, 2, 2);
    add(&d, "b/bias", 1, 2);
    add(&d, "c/kernel", 2, 2, 3);
    add(&d, "c/bias", 1, 3);
    c.arrays = d.columns;
    c.n_arrays = d.n;
    for (int i = 0; i < 2; i++) {
        const char *path = scratch_path(i ? "own.safetensors" : "own.pt");
        assert_int_equal(manta_file_write(path, NULL, &c), MANTA_OK);
        assert_ok(manta_file_read(path, &o, &s));
        assert_string_equal(manta_saved_format(s), i ? "safetensors" : "pt");
        assert_memory_equal(manta_saved_find(s, "c/kernel")->data, d.columns[4].array.data, 24);
        manta_saved_free(s);
    }
    c.n_arrays--;
    assert_int_equal(manta_file_write(scratch_path("own.pt"), NULL, &c), MANTA_OK);
    assert_int_equal(manta_file_read(scratch_path("own.pt"), &o, &s), MANTA_ENOENT);
    dict_free(&d);
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_and_flatten_take_torchs_order),
        cmocka_unit_test(reshape_takes_torchs_order),
        cmocka_unit_test(depthwise_groups_and_norms_are_converted),
        cmocka_unit_test(nested_models_and_embeddings_are_converted),
        cmocka_unit_test(an_unknown_order_is_refused),
        cmocka_unit_test(weights_are_matched_by_name),
        cmocka_unit_test(weights_are_matched_by_order_and_shape),
        cmocka_unit_test(torchvisions_resnet_names_are_known),
        cmocka_unit_test(a_state_of_ours_is_taken_as_it_is),
    };

    return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
