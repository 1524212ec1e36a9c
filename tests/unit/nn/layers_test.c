/* layers_test.c - every layer against recorded values of Keras and PyTorch.
 *
 * A recording names a class and its configuration. The test fills the class's
 * options through its table of fields, as a reader of files will, builds a model
 * of that one layer, and compares output, every gradient and the new moving
 * statistics on every kernel family. PyTorch's recordings are translated first:
 * channels last, kernels HWIO, options by their Keras names. */
#include <math.h>

#include "golden.h"
#include "base/mem.h"
#include "nn/layer.h"
#include "nn/exec.h"
#include "nn/walk.h"

/* ---- configurations ---- */

/* The JSON value of `key`, or NULL: text up to its end, brackets balanced. Owned by the caller. */
static char *config_value(const char *path, const char *key)
{
    manta_array a = golden_array(path, "config");
    size_t n = (size_t)manta_array_count(&a), length = 0;
    char *json = malloc(n + 1), quoted[64], *value = NULL;
    int depth = 0;
    bool text = false;
    assert_non_null(json);
    memcpy(json, a.data, n);
    json[n] = 0;
    golden_free(&a);
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *p = strstr(json, quoted);
    if (p) {
        p += strlen(quoted);
        for (; p[length]; length++) {
            if (p[length] == '"') text = !text;
            if (text) continue;
            if (depth == 0 && (p[length] == ',' || p[length] == '}')) break;
            depth += p[length] == '[';
            depth -= p[length] == ']';
        }
        value = strndup(p, length);
    }
    free(json);
    return value;
}

static int numbers_of(const char *text, double *v, int max)
{
    int n = 0;
    while (*text && n < max) {
        char *end;
        v[n] = strtod(text, &end);
        if (end == text) {
            text++;
            continue;
        }
        n++;
        text = end;
    }
    return n;
}

static void set_ints(void *at, const double *v, int n)
{
    for (int i = 0; i < n; i++) ((int64_t *)at)[i] = (int64_t)v[i];
}

/* One field of the options from its JSON value. Texts and floats are leaked into `keep`. */
static void set_field(const manta_field *f, char *options, const char *value, void **keep)
{
    char *at = options + f->offset;
    double v[64];
    int n = numbers_of(value, v, 64);
    bool truth = !strcmp(value, "true");
    switch (f->kind) {
    case MANTA_FIELD_INT: *(int64_t *)(void *)at = (int64_t)v[0]; break;
    case MANTA_FIELD_INTS:
        set_ints(at, v, n);
        *(int *)(void *)(options + f->extra) = n;
        break;
    case MANTA_FIELD_PAIR:
        if (n == 1) v[1] = v[0];
        set_ints(at, v, 2);
        if (f->extra) *(bool *)(options + f->extra) = true;
        break;
    case MANTA_FIELD_PAIRS:
        assert_int_equal(n, 4);
        set_ints(at, v, 4);
        break;
    case MANTA_FIELD_FLOAT: *(double *)(void *)at = v[0] == 0 ? -0.0 : v[0]; break;
    case MANTA_FIELD_BOOL: *(bool *)at = truth; break;
    case MANTA_FIELD_NOT: *(bool *)at = !truth; break;
    case MANTA_FIELD_TEXT:
        *keep = strndup(value + 1, strlen(value) - 2);
        *(char **)(void *)at = *keep;
        break;
    case MANTA_FIELD_FLOATS: {
        float *copy = calloc((size_t)n, sizeof *copy);
        assert_non_null(copy);
        for (int i = 0; i < n; i++) copy[i] = (float)v[i];
        *keep = copy;
        *(float **)(void *)at = copy;
        *(int64_t *)(void *)(options + f->extra) = n;
        break;
    }
    case MANTA_FIELD_INIT:
    case MANTA_FIELD_REG: fail_msg("recordings hold no initializers"); break;
    }
}

/* A layer of class `name` with the recording's configuration. */
static manta_layer *layer_of(manta_model *m, const char *path, const char *name)
{
    const manta_layer_class *cls = manta_layer_class_find(name);
    char *options, *approximate = config_value(path, "approximate");
    void *keep[32] = {NULL};
    manta_layer *l;
    if (!cls) fail_msg("%s: no class is called %s", path, name);
    options = calloc(1, cls->options_size + 1);
    assert_non_null(options);
    for (int i = 0; i < cls->n_fields; i++) {
        char *value = config_value(path, cls->fields[i].key);
        if (value) set_field(&cls->fields[i], options, value, &keep[i]);
        free(value);
    }
    /* Keras says gelu's other form by a flag that no layer's config has; ours has a name. */
    if (approximate && !strcmp(approximate, "true")) {
        ((manta_activation_options *)(void *)options)->activation = "gelu_tanh";
    }
    l = manta_layer_new(m, cls, NULL, options);
    for (int i = 0; i < 32; i++) free(keep[i]); /* the layer has copies */
    free(options);
    free(approximate);
    return l;
}

/* ---- comparing ---- */

typedef struct recording {
    const char *path;
    manta_model *m;
    manta_value out;
    int n_in;
    manta_array x[4], y, dy;
    bool training;
    /* Reads the recording's array for our `name` in our order of axes; false when it has none. */
    bool (*load)(const struct recording *r, const char *name, manta_array *out);
} recording;

static void same(const recording *r, const char *family, const char *name, const manta_array *got)
{
    manta_array want;
    char what[160];
    double most = 0;
    if (!r->load(r, name, &want)) fail_msg("%s has no %s", r->path, name);
    snprintf(what, sizeof what, "%s, %s, %s", r->path, family, name);
    assert_int_equal(manta_array_count(got), manta_array_count(&want));
    for (int64_t i = 0; i < manta_array_count(&want); i++)
        most = fmax(most, fabs((double)((float *)want.data)[i]));
    golden_near(what, got->data, want.data, manta_array_count(&want), 1e-4, 1e-5 * most + 1e-6);
    golden_free(&want);
}

static void load_inputs(const recording *r, walk *w)
{
    for (int i = 0; i < r->n_in; i++) {
        manta_array *v = &w->v[r->m->inputs[i].value];
        assert_int_equal(manta_array_bytes(v), manta_array_bytes(&r->x[i]));
        memcpy(v->data, r->x[i].data, manta_array_bytes(v));
    }
    for (int i = 0; i < r->m->n_variables; i++) {
        const graph_variable *v = &r->m->variables[i];
        manta_array a;
        if (!r->load(r, strrchr(v->name, '/') + 1, &a)) fail_msg("%s has no %s", r->path, v->name);
        assert_int_equal(manta_array_count(&a), v->count);
        memcpy(w->v[v->value].data, a.data, manta_array_bytes(&a));
        golden_free(&a);
    }
}

static void check_gradients(const recording *r, const kernels *k, walk *w)
{
    char name[64];
    memcpy(w->g[r->out.id].data, r->dy.data, manta_array_bytes(&r->dy));
    assert_int_equal(walk_backward(w), MANTA_OK);
    for (int i = 0; i < r->n_in; i++) {
        if (r->x[i].dtype != MANTA_DTYPE_F32) continue;
        if (r->n_in == 1)
            snprintf(name, sizeof name, "dx");
        else
            snprintf(name, sizeof name, "dx%d", i);
        same(r, k->name, name, &w->g[r->m->inputs[i].value]);
    }
    for (int i = 0; i < r->m->n_variables; i++) {
        const graph_variable *v = &r->m->variables[i];
        if (!v->trainable || r->m->layers[0]->frozen) continue;
        snprintf(name, sizeof name, "d%s", strrchr(v->name, '/') + 1);
        same(r, k->name, name, &w->g[v->value]);
    }
}

static void check_statistics(const recording *r, const kernels *k, const walk *w)
{
    for (int i = 0; i < r->m->n_variables && r->training && !r->m->layers[0]->frozen; i++) {
        const graph_variable *v = &r->m->variables[i];
        char name[64];
        if (v->trainable) continue;
        manta_array a = manta_array_of(MANTA_DTYPE_F32, v->ndim, v->shape, w->proposed[i]);
        snprintf(name, sizeof name, "new_%s", strrchr(v->name, '/') + 1);
        same(r, k->name, name, &a);
    }
}

/* The same through the planner, whose fusions and views must change nothing. */
static void check_planned(const recording *r, const kernels *k, pool *p, const walk *w)
{
    layout l;
    exec *e;
    exec_options opt = {.pool = p, .kernels = k};
    layout_init(&l, r->m, NULL, NULL);
    void *state = mem_try(l.state_size);
    assert_int_equal(exec_new(r->m, &l, NULL, &opt, &e), MANTA_OK);
    for (int i = 0; i < r->m->n_variables; i++) {
        const graph_variable *v = &r->m->variables[i];
        memcpy(layout_variable_at(&l, state, i), w->v[v->value].data, (size_t)v->count * sizeof(float));
    }
    exec_run run = {.mode = PLAN_PREDICT, .batch = r->x[0].shape[0], .state = state, .inputs = r->x};
    assert_int_equal(exec_forward(e, &run), MANTA_OK);
    manta_array y = exec_output(e, 0);
    same(r, k->name, "y", &y);
    exec_free(e);
    mem_try_free(state);
    layout_release(&l);
}

static void check_family(const recording *r, const kernels *k, pool *p)
{
    walk w;
    walk_open(&w, r->m, k, p, r->x[0].shape[0], true);
    w.training = r->training || r->m->layers[0]->cls != &layer_batch_normalization;
    load_inputs(r, &w);
    assert_int_equal(walk_forward(&w), MANTA_OK);
    same(r, k->name, "y", &w.v[r->out.id]);
    check_statistics(r, k, &w);
    if (!r->training) check_planned(r, k, p, &w);
    check_gradients(r, k, &w);
    walk_close(&w);
}

/* Opens the model of the inputs r->x; the caller then adds the layer. */
static void open_model(recording *r, manta_value *in)
{
    r->m = manta_model_new("recorded");
    for (int i = 0; i < r->n_in; i++) {
        in[i] = manta_input(r->m, NULL, r->x[i].dtype, r->x[i].ndim - 1, r->x[i].shape + 1);
    }
}

static void check(recording *r, manta_layer *l, const manta_value *in)
{
    pool *p;
    r->out = manta_call_n(r->m, l, r->n_in, in);
    manta_output(r->m, r->out);
    if (manta_model_build(r->m)) fail_msg("%s: %s", r->path, manta_error_text());
    if (golden_number(r->path, "trainable", 1) == 0) {
        assert_int_equal(manta_model_freeze(r->m, "*", true), MANTA_OK);
    }
    r->training = golden_number(r->path, "training", 0) != 0;
    manta_array shape = manta_model_output(r->m, 0, NULL);
    assert_int_equal(shape.ndim, r->y.ndim);
    for (int i = 1; i < shape.ndim; i++) assert_int_equal(shape.shape[i], r->y.shape[i]);
    assert_int_equal(pool_new(2, KERN_SCRATCH, &p), MANTA_OK);
    for (int f = 0; f < KERN_FAMILIES; f++) {
        if (kernels_of((kern_family)f)) check_family(r, kernels_of((kern_family)f), p);
    }
    pool_free(p);
    for (int i = 0; i < r->n_in; i++) golden_free(&r->x[i]);
    golden_free(&r->y);
    golden_free(&r->dy);
    manta_model_free(r->m);
}

/* ---- Keras ---- */

static bool keras_load(const recording *r, const char *name, manta_array *out)
{
    return golden_load(r->path, name, out);
}

static void keras_case(const char *path, void *ctx)
{
    recording r = {.path = path, .load = keras_load};
    manta_value in[4];
    char kind[32], cls[64], name[16];
    if (!golden_text(path, "kind", kind, sizeof kind) || strcmp(kind, "layer")) return;
    assert_true(golden_text(path, "class_name", cls, sizeof cls));
    if (golden_load(path, "x", &r.x[0])) {
        r.n_in = 1;
    } else {
        for (; r.n_in < 4; r.n_in++) {
            snprintf(name, sizeof name, "x%d", r.n_in);
            if (!golden_load(path, name, &r.x[r.n_in])) break;
        }
    }
    r.y = golden_array(path, "y");
    r.dy = golden_array(path, "dy");
    open_model(&r, in);
    check(&r, layer_of(r.m, path, cls), in);
    ++*(int *)ctx;
}

static void layers_agree_with_keras(void **state)
{
    int n = 0;
    (void)state;
    golden_each("keras_", keras_case, &n);
    assert_true(n > 90);
}

/* ---- PyTorch ---- */

static manta_array permuted(manta_array a, const int *axes)
{
    int64_t shape[MANTA_MAX_DIMS], stride[MANTA_MAX_DIMS];
    manta_array b;
    for (int i = 0; i < a.ndim; i++) {
        shape[i] = a.shape[axes[i]];
        stride[i] = a.strides[axes[i]];
    }
    b = manta_array_of(a.dtype, a.ndim, shape, malloc(manta_array_bytes(&a)));
    assert_non_null(b.data);
    for (int64_t k = 0; k < manta_array_count(&b); k++) {
        int64_t from = 0;
        for (int i = 0; i < b.ndim; i++) from += k / b.strides[i] % b.shape[i] * stride[i];
        ((float *)b.data)[k] = ((float *)a.data)[from];
    }
    golden_free(&a);
    return b;
}

/* Activations to NHWC, kernels to HWIO (transposed ones to HW, out, in), matrices to (in, out). */
static bool torch_load(const recording *r, const char *name, manta_array *out)
{
    static const char *const names[][2] = {{"kernel", "weight"},
                                           {"gamma", "weight"},
                                           {"beta", "bias"},
                                           {"moving_mean", "running_mean"},
                                           {"moving_variance", "running_var"}};
    const char *prefix = !strncmp(name, "new_", 4) ? "new_"
                         : name[0] == 'd'          ? "d"
                                                   : "",
               *own = name + strlen(prefix);
    char theirs[64];
    snprintf(theirs, sizeof theirs, "%s", name);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(own, names[i][0])) snprintf(theirs, sizeof theirs, "%s%s", prefix, names[i][1]);
    }
    if (!golden_load(r->path, theirs, out)) return false;
    if (!strcmp(own, "kernel")) {
        *out = permuted(*out, out->ndim == 4 ? (const int[]){2, 3, 1, 0} : (const int[]){1, 0});
    } else if (out->ndim == 4) {
        *out = permuted(*out, (const int[]){0, 2, 3, 1});
    }
    return true;
}

static int64_t whole(const recording *r, const char *key, int64_t otherwise)
{
    return (int64_t)golden_number(r->path, key, (double)otherwise);
}

static manta_layer *torch_window(const recording *r, bool average)
{
    int64_t k = whole(r, "kernel_size", 2), s = whole(r, "stride", k), p = whole(r, "padding", 0);
    manta_pooling2d_options o = {.pool_size = {k, k},
                                 .strides = {s, s},
                                 .padding = "explicit",
                                 .pad = {{p, p}, {p, p}},
                                 .count_padding = whole(r, "count_include_pad", 1)};
    return average ? manta_average_pooling2d(r->m, o) : manta_max_pooling2d(r->m, o);
}

static manta_layer *torch_conv(const recording *r)
{
    int64_t k = whole(r, "kernel_size", 1), s = whole(r, "stride", 1), p = whole(r, "padding", 0),
            d = whole(r, "dilation", 1);
    return manta_conv2d(r->m, (manta_conv2d_options){.filters = whole(r, "out_channels", 0),
                                                     .kernel_size = {k, k},
                                                     .strides = {s, s},
                                                     .dilation_rate = {d, d},
                                                     .groups = whole(r, "groups", 1),
                                                     .padding = "explicit",
                                                     .pad = {{p, p}, {p, p}},
                                                     .no_bias = !whole(r, "bias", 1)});
}

static manta_layer *torch_transpose(const recording *r)
{
    int64_t k = whole(r, "kernel_size", 1), s = whole(r, "stride", 1), p = whole(r, "padding", 0),
            more = whole(r, "output_padding", 0);
    return manta_conv2d_transpose(r->m,
                                  (manta_conv2d_transpose_options){.filters = whole(r, "out_channels", 0),
                                                                   .kernel_size = {k, k},
                                                                   .strides = {s, s},
                                                                   .output_padding = {more, more},
                                                                   .has_output_padding = true,
                                                                   .padding = "explicit",
                                                                   .pad = {{p, p}, {p, p}},
                                                                   .no_bias = !whole(r, "bias", 1)});
}

static manta_layer *torch_norm(const recording *r)
{
    bool plain = golden_number(r->path, "affine", 1) == 0;
    return manta_batch_normalization(
        r->m, (manta_batch_normalization_options){.momentum = 1 - golden_number(r->path, "momentum", 0.1),
                                                  .epsilon = golden_number(r->path, "eps", 1e-5),
                                                  .unbiased = true,
                                                  .no_center = plain,
                                                  .no_scale = plain});
}

static manta_layer *torch_layer(const recording *r, const char *cls)
{
    char form[16];
    if (!strcmp(cls, "Conv2d")) return torch_conv(r);
    if (!strcmp(cls, "ConvTranspose2d")) return torch_transpose(r);
    if (!strcmp(cls, "MaxPool2d")) return torch_window(r, false);
    if (!strcmp(cls, "AvgPool2d")) return torch_window(r, true);
    if (!strncmp(cls, "BatchNorm", 9)) return torch_norm(r);
    if (!strcmp(cls, "AdaptiveAvgPool2d")) {
        return manta_global_average_pooling2d(r->m, (manta_global_pooling2d_options){.keepdims = true});
    }
    if (!strcmp(cls, "Linear")) {
        return manta_dense(r->m, (manta_dense_options){.units = whole(r, "out_features", 0)});
    }
    if (!strcmp(cls, "LayerNorm")) {
        return manta_layer_normalization(
            r->m, (manta_layer_normalization_options){.epsilon = golden_number(r->path, "eps", 1e-5)});
    }
    if (!strcmp(cls, "ELU")) {
        return manta_elu(r->m, (manta_elu_options){.alpha = golden_number(r->path, "alpha", 1)});
    }
    if (!strcmp(cls, "LeakyReLU")) {
        return manta_leaky_relu(r->m, (manta_leaky_relu_options){
                                          .negative_slope = golden_number(r->path, "negative_slope", 0.01)});
    }
    assert_string_equal(cls, "GELU");
    assert_true(golden_text(r->path, "approximate", form, sizeof form));
    return manta_activation(
        r->m, (manta_activation_options){.activation = strcmp(form, "tanh") ? "gelu" : "gelu_tanh"});
}

static void torch_case(const char *path, void *ctx)
{
    recording r = {.path = path, .load = torch_load, .n_in = 1};
    manta_value in[1];
    char kind[32], cls[64];
    if (!golden_text(path, "kind", kind, sizeof kind) || strcmp(kind, "layer")) return;
    assert_true(golden_text(path, "class_name", cls, sizeof cls));
    assert_true(torch_load(&r, "x", &r.x[0]) && torch_load(&r, "y", &r.y) && torch_load(&r, "dy", &r.dy));
    open_model(&r, in);
    check(&r, torch_layer(&r, cls), in);
    ++*(int *)ctx;
}

static void layers_agree_with_torch(void **state)
{
    int n = 0;
    (void)state;
    golden_each("torch_", torch_case, &n);
    assert_true(n > 25);
}

/* ---- classes and options ---- */

static void every_class_is_found_by_its_name(void **state)
{
    static const char *const names[] = {"Dense",
                                        "Conv2D",
                                        "DepthwiseConv2D",
                                        "Conv2DTranspose",
                                        "MaxPooling2D",
                                        "AveragePooling2D",
                                        "GlobalAveragePooling2D",
                                        "GlobalMaxPooling2D",
                                        "BatchNormalization",
                                        "LayerNormalization",
                                        "Dropout",
                                        "Flatten",
                                        "Reshape",
                                        "Permute",
                                        "Activation",
                                        "ReLU",
                                        "LeakyReLU",
                                        "ELU",
                                        "Softmax",
                                        "Add",
                                        "Subtract",
                                        "Multiply",
                                        "Concatenate",
                                        "ZeroPadding2D",
                                        "UpSampling2D",
                                        "Rescaling",
                                        "Normalization",
                                        "Embedding"};
    int n = (int)(sizeof names / sizeof *names);
    (void)state;
    for (int i = 0; i < n; i++) {
        assert_non_null(manta_layer_class_find(names[i]));
        assert_string_equal(manta_layer_class_find(names[i])->name, names[i]);
        assert_non_null(manta_layer_class_at(i));
    }
    assert_null(manta_layer_class_at(n));
    assert_null(manta_layer_class_at(-1));
    assert_null(manta_layer_class_find("LSTM"));
}

static void fields_lie_within_their_options(void **state)
{
    static const size_t sizes[] = {[MANTA_FIELD_INT] = 8,
                                   [MANTA_FIELD_INTS] = 8 * MANTA_MAX_DIMS,
                                   [MANTA_FIELD_PAIR] = 16,
                                   [MANTA_FIELD_PAIRS] = 32,
                                   [MANTA_FIELD_FLOAT] = 8,
                                   [MANTA_FIELD_BOOL] = 1,
                                   [MANTA_FIELD_NOT] = 1,
                                   [MANTA_FIELD_TEXT] = sizeof(char *),
                                   [MANTA_FIELD_INIT] = sizeof(manta_initializer),
                                   [MANTA_FIELD_REG] = sizeof(manta_regularizer),
                                   [MANTA_FIELD_FLOATS] = sizeof(float *)};
    const manta_layer_class *cls;
    (void)state;
    for (int c = 0; (cls = manta_layer_class_at(c)); c++) {
        char *used = calloc(1, cls->options_size + 1);
        for (int i = 0; i < cls->n_fields; i++) {
            const manta_field *f = &cls->fields[i];
            assert_true(f->offset + sizes[f->kind] <= cls->options_size);
            assert_true(f->extra < cls->options_size || f->extra == 0);
            for (size_t b = f->offset; b < f->offset + sizes[f->kind]; b++) assert_int_equal(used[b]++, 0);
        }
        free(used);
    }
}

static void options_are_copied(void **state)
{
    manta_model *m = manta_model_new("m");
    char activation[] = "relu", name[] = "first";
    float mean[] = {1, 2}, variance[] = {3, 4};
    manta_layer *d, *n;
    (void)state;
    d = manta_dense(m, (manta_dense_options){.units = 3, .activation = activation, .name = name});
    n = manta_normalization(m, (manta_normalization_options){.mean = mean, .variance = variance, .n = 2});
    activation[0] = name[0] = 'x';
    mean[0] = variance[1] = 99;
    const manta_dense_options *o = manta_layer_options(d);
    const manta_normalization_options *p = manta_layer_options(n);
    assert_string_equal(o->activation, "relu");
    assert_string_equal(manta_layer_name(d), "first");
    assert_null(o->name);
    assert_true(p->mean[0] == 1 && p->mean[1] == 2 && p->variance[0] == 3 && p->variance[1] == 4);
    assert_ptr_equal(manta_layer_class_of(d), &layer_dense);
    manta_model_free(m);
}

/* What all-zero options mean; recordings always say every option. */
static void zero_options_are_keras_defaults(void **state)
{
    static const char *const classes[] = {
        "LeakyReLU", "ELU",  "LayerNormalization", "MaxPooling2D",      "AveragePooling2D", "UpSampling2D",
        "Rescaling", "ReLU", "ZeroPadding2D",      "BatchNormalization"};
    manta_model *m = manta_model_new("m");
    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){9, 9, 3});
    for (int i = 0; i < 10; i++)
        manta_add(m, manta_layer_new(m, manta_layer_class_find(classes[i]), NULL, NULL));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(m->n_nodes, 10);
    const op_act_attrs *leaky = m->nodes[0].attrs, *elu = m->nodes[1].attrs, *relu = m->nodes[7].attrs;
    const op_ln_attrs *ln = m->nodes[2].attrs;
    const op_upsample_attrs *up = m->nodes[5].attrs;
    const op_affine_attrs *scale = m->nodes[6].attrs;
    const op_pad_attrs *pad = m->nodes[8].attrs;
    const op_bn_attrs *bn = m->nodes[9].attrs;
    assert_true(leaky->act == KERN_LEAKY_RELU && leaky->alpha == 0.3f);
    assert_true(elu->act == KERN_ELU && elu->alpha == 1);
    assert_true(relu->act == KERN_RELU);
    assert_true(ln->epsilon == 0.001f && ln->axes == 1 && ln->has_gamma && ln->has_beta);
    for (int i = 3; i < 5; i++) {
        const op_pool_attrs *w = m->nodes[i].attrs;
        assert_true(w->kh == 2 && w->kw == 2 && w->sh == 2 && w->sw == 2 && w->top == 0);
        assert_false(w->count_padding);
    }
    assert_true(up->sh == 2 && up->sw == 2 && !up->bilinear);
    assert_true(scale->scale == 1 && scale->offset == 0);
    assert_true(pad->top == 0 && pad->bottom == 0 && pad->left == 0 && pad->right == 0);
    assert_true(bn->momentum == 0.99f && bn->epsilon == 0.001f && !bn->unbiased && bn->has_gamma &&
                bn->has_beta);
    manta_model_free(m);
}

/* -0.0 says zero where the default is not. */
static void a_default_can_be_overruled_by_zero(void **state)
{
    manta_model *m = manta_model_new("m");
    const graph_node *n;
    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    manta_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){.momentum = -0.0}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    n = m->nodes;
    assert_true(((const op_bn_attrs *)n[0].attrs)->momentum == 0.99f);
    assert_true(((const op_bn_attrs *)n[1].attrs)->momentum == 0);
    assert_true(((const op_bn_attrs *)n[1].attrs)->epsilon == 0.001f);
    manta_model_free(m);
}

static void integers_are_converted_where_a_layer_computes(void **state)
{
    manta_model *m = manta_model_new("m");
    (void)state;
    manta_input(m, "x", MANTA_DTYPE_U8, 2, (int64_t[]){2, 2});
    manta_add(m, manta_flatten(m));
    manta_add(m, manta_dense(m, (manta_dense_options){.units = 3}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(m->n_nodes, 3);
    assert_ptr_equal(m->nodes[1].op, &op_affine);
    assert_int_equal(m->values[m->nodes[0].out[0]].a.dtype, MANTA_DTYPE_U8);
    manta_model_free(m);
}

static void weights_have_keras_names_shapes_and_starts(void **state)
{
    static const struct {
        const char *name;
        int ndim;
        int64_t shape[4];
        manta_init_kind init;
        bool trainable;
    } want[] = {
        {"conv2d/kernel", 4, {3, 5, 4, 6}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"conv2d/bias", 1, {6}, MANTA_INIT_ZEROS, true},
        {"batch_normalization/gamma", 1, {6}, MANTA_INIT_ONES, true},
        {"batch_normalization/beta", 1, {6}, MANTA_INIT_ZEROS, true},
        {"batch_normalization/moving_mean", 1, {6}, MANTA_INIT_ZEROS, false},
        {"batch_normalization/moving_variance", 1, {6}, MANTA_INIT_ONES, false},
        {"depthwise_conv2d/kernel", 4, {3, 3, 6, 2}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"depthwise_conv2d/bias", 1, {12}, MANTA_INIT_ZEROS, true},
        {"conv2d_transpose/kernel", 4, {2, 2, 3, 12}, MANTA_INIT_GLOROT_UNIFORM, true},
        {"conv2d_transpose/bias", 1, {3}, MANTA_INIT_ZEROS, true},
        {"layer_normalization/gamma", 1, {3}, MANTA_INIT_ONES, true},
        {"layer_normalization/beta", 1, {3}, MANTA_INIT_ZEROS, true},
        {"dense/kernel", 2, {3, 7}, MANTA_INIT_TORCH, true},
        {"dense/bias", 1, {7}, MANTA_INIT_TORCH, true},
    };
    manta_model *m = manta_model_new("m");
    manta_initializer torch = {.kind = MANTA_INIT_TORCH};
    (void)state;
    manta_input(m, "x", MANTA_DTYPE_F32, 3, (int64_t[]){9, 9, 8});
    manta_add(m, manta_conv2d(m, (manta_conv2d_options){.filters = 6, .kernel_size = {3, 5}, .groups = 2}));
    manta_add(m, manta_batch_normalization(m, (manta_batch_normalization_options){0}));
    manta_add(m, manta_depthwise_conv2d(
                     m, (manta_depthwise_conv2d_options){.kernel_size = {3, 3}, .depth_multiplier = 2}));
    manta_add(
        m, manta_conv2d_transpose(m, (manta_conv2d_transpose_options){.filters = 3, .kernel_size = {2, 2}}));
    manta_add(m, manta_layer_normalization(m, (manta_layer_normalization_options){0}));
    manta_add(m, manta_dense(m, (manta_dense_options){
                                    .units = 7, .kernel_initializer = torch, .bias_initializer = torch}));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(m->n_variables, (int)(sizeof want / sizeof *want));
    for (int i = 0; i < m->n_variables; i++) {
        const graph_variable *v = &m->variables[i];
        assert_string_equal(v->name, want[i].name);
        assert_int_equal(v->ndim, want[i].ndim);
        assert_memory_equal(v->shape, want[i].shape, (size_t)v->ndim * sizeof(int64_t));
        assert_int_equal(v->init.kind, want[i].init);
        assert_int_equal(v->trainable, want[i].trainable);
    }
    assert_int_equal(m->variables[13].fan_in, 3); /* torch starts a bias by its weight's fan-in */
    manta_model_free(m);
}

static void concatenate_takes_any_number(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_value x[20];
    (void)state;
    for (int i = 0; i < 20; i++) x[i] = manta_input(m, NULL, MANTA_DTYPE_F32, 1, (int64_t[]){i + 1});
    manta_output(m, manta_call_n(m, manta_concatenate(m, (manta_concatenate_options){0}), 20, x));
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_int_equal(manta_model_output(m, 0, NULL).shape[1], 210);
    manta_model_free(m);
}

/* ---- a program's own layer and operation: the example of docs/extending.md ---- */

static manta_status gain_shape(manta_op_shape *s)
{
    const manta_array *x = &s->in[0], *g = &s->in[1];

    if (s->n_in == 2 && g->ndim == 1 && g->shape[0] == x->shape[x->ndim - 1]) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected %lld channels, given %lld", (long long)g->shape[0],
                      (long long)x->shape[x->ndim - 1]);
}

static manta_status gain_forward(const manta_op_call *c)
{
    const float *x = c->in[0].data, *g = c->in[1].data;
    float *y = c->out[0].data;

    for (int64_t i = 0, n = manta_array_count(&c->in[0]), k = c->in[1].shape[0]; i < n; i++)
        y[i] = x[i] * g[i % k];
    return MANTA_OK;
}

static manta_status gain_backward(const manta_op_call *c)
{
    const float *x = c->in[0].data, *g = c->in[1].data, *dy = c->dout[0].data;
    int64_t n = manta_array_count(&c->dout[0]), k = c->in[1].shape[0];
    float *dx = c->din[0].data, *dg = c->din[1].data;

    for (int64_t i = 0; dx && i < n; i++) dx[i] = dy[i] * g[i % k] + (c->accumulate[0] ? dx[i] : 0);
    for (int64_t i = 0; dg && !c->accumulate[1] && i < k; i++) dg[i] = 0;
    for (int64_t i = 0; dg && i < n; i++) dg[i % k] += dy[i] * x[i];
    return MANTA_OK;
}

static const manta_op gain_op = {.name = "gain",
                                 .flags = MANTA_OP_READS_INPUT(0) | MANTA_OP_READS_INPUT(1),
                                 .shape = gain_shape,
                                 .forward = gain_forward,
                                 .backward = gain_backward};

typedef struct gain_options {
    double start;
} gain_options;

static manta_status gain_call(manta_layer *l, const void *options, int n_in, const manta_value *in,
                              manta_value *out)
{
    const gain_options *o = options;
    manta_array a = manta_layer_shape(l, in[0]);
    manta_initializer init = {MANTA_INIT_CONSTANT, o->start != 0 ? (float)o->start : 1, 0};
    manta_value x[2] = {in[0]};

    if (n_in != 1) return manta_fail(MANTA_EINVAL, "expected 1 input, given %d", n_in);
    x[1] = manta_layer_weight(l, "gain", 1, &a.shape[a.ndim - 1], init, 0, (manta_regularizer){0}, true);
    *out = manta_layer_apply(l, &gain_op, NULL, 2, x);
    return MANTA_OK;
}

static const manta_field gain_fields[] = {{"start", MANTA_FIELD_FLOAT, offsetof(gain_options, start), 0}};
static const manta_layer_class gain_class = {"Gain", sizeof(gain_options), gain_fields, 1, gain_call};

static void a_program_adds_a_layer_and_an_operation(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_value x = manta_input(m, "x", MANTA_DTYPE_F32, 1, (int64_t[]){3});
    pool *p;
    walk w;
    (void)state;
    x = manta_call(m, manta_layer_new(m, &gain_class, NULL, &(gain_options){.start = 0.5}), x);
    x = manta_call(m, manta_layer_new(m, &gain_class, NULL, NULL), x);
    manta_output(m, x);
    assert_int_equal(manta_model_build(m), MANTA_OK);
    assert_string_equal(m->variables[1].name, "gain_1/gain");
    assert_true(m->variables[0].init.a == 0.5f && m->variables[1].init.a == 1);
    assert_int_equal(pool_new(1, KERN_SCRATCH, &p), MANTA_OK);
    walk_open(&w, m, kernels_of(KERN_REFERENCE), p, 2, true);
    memcpy(w.v[m->inputs[0].value].data, (float[]){1, 2, 3, 4, 5, 6}, 6 * sizeof(float));
    memcpy(w.v[m->variables[0].value].data, (float[]){2, 3, 4}, 3 * sizeof(float));
    memcpy(w.v[m->variables[1].value].data, (float[]){1, 10, 100}, 3 * sizeof(float));
    assert_int_equal(walk_forward(&w), MANTA_OK);
    assert_memory_equal(w.v[x.id].data, ((float[]){2, 60, 1200, 8, 150, 2400}), 6 * sizeof(float));
    memcpy(w.g[x.id].data, (float[]){1, 1, 1, 1, 1, 1}, 6 * sizeof(float));
    assert_int_equal(walk_backward(&w), MANTA_OK);
    assert_memory_equal(w.g[m->inputs[0].value].data, ((float[]){2, 30, 400, 2, 30, 400}), 6 * sizeof(float));
    assert_memory_equal(w.g[m->variables[0].value].data, ((float[]){5, 70, 900}), 3 * sizeof(float));
    assert_memory_equal(w.g[m->variables[1].value].data, ((float[]){10, 21, 36}), 3 * sizeof(float));
    walk_close(&w);
    pool_free(p);
    manta_model_free(m);
}

/* ---- sentences ---- */

/* The sentence of building one layer on an input of that shape. */
static const char *refused(manta_model *m, manta_layer *l, int ndim, const int64_t *shape,
                           manta_status status)
{
    static char text[512];
    manta_call(m, l, manta_input(m, "x", MANTA_DTYPE_F32, ndim, shape));
    assert_int_equal(manta_model_build(m), status);
    snprintf(text, sizeof text, "%s", manta_error_text());
    manta_model_free(m);
    return text;
}

#define REFUSED(constructor, options, ndim, shape, status, sentence)                                         \
    do {                                                                                                     \
        manta_model *refused_m = manta_model_new("m");                                                       \
        assert_string_equal(refused(refused_m, constructor(refused_m, options), ndim, shape, status),        \
                            "model 'm': layer " sentence);                                                   \
    } while (0)
#define SHAPE(...) ((int64_t[]){__VA_ARGS__})
#define MAP        "expected an input of shape (batch, height, width, channels), given "

static void errors_name_layer_expected_and_given(void **state)
{
    float variance[] = {1, -1};
    (void)state;
    REFUSED(manta_dense, ((manta_dense_options){.units = 0}), 1, SHAPE(4), MANTA_EINVAL,
            "'dense': expected units of at least 1, given 0");
    REFUSED(manta_dense, ((manta_dense_options){.units = 2}), 0, SHAPE(0), MANTA_EINVAL,
            "'dense': expected an input of shape (batch, ..., features), given (batch,)");
    REFUSED(manta_dense, ((manta_dense_options){.units = 2, .activation = "rleu"}), 1, SHAPE(4), MANTA_ENOENT,
            "'dense': no activation is called 'rleu'; there are linear, relu, relu6, leaky_relu, elu, gelu, "
            "gelu_tanh, "
            "silu, swish, sigmoid, tanh, softmax");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}}), 2, SHAPE(28, 28),
            MANTA_EINVAL, "'conv2d': " MAP "(batch, 28, 28)");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}}), 3, SHAPE(2, 9, 1),
            MANTA_EINVAL,
            "'conv2d': expected a padded height and width of at least 3 and 3, given (batch, 2, 9, 1)");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8}), 3, SHAPE(2, 9, 1), MANTA_EINVAL,
            "'conv2d': expected a kernel_size of at least (1, 1), given (0, 0)");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}, .groups = 3}), 3,
            SHAPE(9, 9, 4), MANTA_EINVAL,
            "'conv2d': expected channels and filters that 3 groups divide, given 4 and 8");
    REFUSED(manta_conv2d, ((manta_conv2d_options){.filters = 8, .kernel_size = {3, 3}, .padding = "full"}), 3,
            SHAPE(9, 9, 4), MANTA_EINVAL,
            "'conv2d': expected padding 'valid', 'same' or 'explicit', given 'full'");
    REFUSED(manta_depthwise_conv2d, ((manta_depthwise_conv2d_options){.kernel_size = {3, 3}}), 1, SHAPE(9),
            MANTA_EINVAL, "'depthwise_conv2d': " MAP "(batch, 9)");
    REFUSED(manta_conv2d_transpose,
            ((manta_conv2d_transpose_options){
                .filters = 2, .kernel_size = {3, 3}, .output_padding = {2, 2}, .has_output_padding = true}),
            3, SHAPE(9, 9, 4), MANTA_EINVAL,
            "'conv2d_transpose': expected an output_padding below the stride 1, given 2");
    REFUSED(
        manta_max_pooling2d, ((manta_pooling2d_options){0}), 3, SHAPE(1, 9, 4), MANTA_EINVAL,
        "'max_pooling2d': expected a padded height and width of at least 2 and 2, given (batch, 1, 9, 4)");
    REFUSED(manta_average_pooling2d, ((manta_pooling2d_options){0}), 1, SHAPE(9), MANTA_EINVAL,
            "'average_pooling2d': " MAP "(batch, 9)");
    REFUSED(manta_global_max_pooling2d, ((manta_global_pooling2d_options){0}), 1, SHAPE(9), MANTA_EINVAL,
            "'global_max_pooling2d': " MAP "(batch, 9)");
    REFUSED(manta_batch_normalization, ((manta_batch_normalization_options){.axis = 1}), 3, SHAPE(9, 9, 4),
            MANTA_EUNSUPPORTED,
            "'batch_normalization': expected axis 3, the last of (batch, 9, 9, 4), given 1");
    REFUSED(manta_layer_normalization, ((manta_layer_normalization_options){.axis = {1, 3}, .n_axis = 2}), 3,
            SHAPE(9, 9, 4), MANTA_EUNSUPPORTED,
            "'layer_normalization': expected the last axes of (batch, 9, 9, 4), given axis (1, 3)");
    REFUSED(manta_dropout, ((manta_dropout_options){.rate = 1.5}), 1, SHAPE(9), MANTA_EINVAL,
            "'dropout': expected a rate of at least 0 and below 1, given 1.5");
    REFUSED(manta_reshape, ((manta_reshape_options){.shape = {5, -1}, .ndim = 2}), 2, SHAPE(4, 4),
            MANTA_EINVAL,
            "'reshape': expected a multiple of 5 elements per sample for (5, -1), given (batch, 4, 4)");
    REFUSED(manta_reshape, ((manta_reshape_options){.shape = {5, 3}, .ndim = 2}), 2, SHAPE(4, 4),
            MANTA_EINVAL,
            "'reshape': expected 15 elements per sample, as (batch, 5, 3) has, given (batch, 4, 4) with 16");
    REFUSED(manta_reshape, ((manta_reshape_options){.shape = {-1, -1}, .ndim = 2}), 2, SHAPE(4, 4),
            MANTA_EINVAL,
            "'reshape': expected a target_shape of positive numbers and at most one -1, given (-1, -1)");
    REFUSED(manta_permute, ((manta_permute_options){.dims = {2, 2}, .ndim = 2}), 2, SHAPE(4, 4), MANTA_EINVAL,
            "'permute': expected each of the dimensions 1 to 2 once, given 2");
    REFUSED(manta_relu, ((manta_relu_options){.negative_slope = -1}), 1, SHAPE(4), MANTA_EINVAL,
            "'re_lu': expected max_value, negative_slope and threshold of at least 0, given 0, -1 and 0");
    REFUSED(manta_softmax, ((manta_softmax_options){.axis = 1}), 2, SHAPE(4, 4), MANTA_EUNSUPPORTED,
            "'softmax': expected axis 2, the last of (batch, 4, 4), given 1");
    REFUSED(manta_concatenate, ((manta_concatenate_options){.axis = 2}), 1, SHAPE(4), MANTA_EINVAL,
            "'concatenate': expected an axis from 1 to 1 for (batch, 4), given 2");
    REFUSED(manta_zero_padding2d, ((manta_zero_padding2d_options){0}), 1, SHAPE(4), MANTA_EINVAL,
            "'zero_padding2d': " MAP "(batch, 4)");
    REFUSED(manta_upsampling2d, ((manta_upsampling2d_options){.interpolation = "cubic"}), 3, SHAPE(4, 4, 1),
            MANTA_EUNSUPPORTED,
            "'up_sampling2d': expected interpolation 'nearest' or 'bilinear', given 'cubic'");
    REFUSED(manta_normalization, ((manta_normalization_options){0}), 1, SHAPE(4), MANTA_EINVAL,
            "'normalization': expected a mean and a variance, given none");
    REFUSED(manta_normalization,
            ((manta_normalization_options){.mean = variance, .variance = variance, .n = 2}), 1, SHAPE(2),
            MANTA_EINVAL, "'normalization': expected variances of at least 0, given -1 for channel 1");
    REFUSED(manta_embedding, ((manta_embedding_options){.input_dim = 4}), 1, SHAPE(2), MANTA_EINVAL,
            "'embedding': expected input_dim and output_dim of at least 1, given 4 and 0");
}

static void merging_other_shapes_is_refused(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_value x[3];
    (void)state;
    x[0] = manta_input(m, "a", MANTA_DTYPE_F32, 2, SHAPE(3, 5));
    x[1] = manta_input(m, "b", MANTA_DTYPE_F32, 2, SHAPE(3, 4));
    manta_call_n(m, manta_add_layer(m), 2, x);
    assert_int_equal(manta_model_build(m), MANTA_EINVAL);
    assert_string_equal(
        manta_error_text(),
        "model 'm': layer 'add': expected inputs of one shape, given (batch, 3, 5) and (batch, 3, 4)");
    manta_model_free(m);

    m = manta_model_new("m");
    for (int i = 0; i < 3; i++) x[i] = manta_input(m, NULL, MANTA_DTYPE_F32, 1, SHAPE(3));
    manta_call_n(m, manta_subtract(m), 3, x);
    assert_int_equal(manta_model_build(m), MANTA_EINVAL);
    assert_string_equal(manta_error_text(), "model 'm': layer 'subtract': expected 2 inputs, given 3");
    manta_model_free(m);
}

static void a_shared_layer_keeps_its_shape(void **state)
{
    manta_model *m = manta_model_new("m");
    manta_layer *l = manta_dense(m, (manta_dense_options){.units = 2});
    (void)state;
    manta_call(m, l, manta_input(m, "a", MANTA_DTYPE_F32, 1, SHAPE(3)));
    manta_call(m, l, manta_input(m, "b", MANTA_DTYPE_F32, 1, SHAPE(4)));
    assert_int_equal(manta_model_build(m), MANTA_EINVAL);
    assert_non_null(strstr(manta_error_text(), "layer 'dense'"));
    assert_non_null(strstr(manta_error_text(), "(3, 2)"));
    assert_non_null(strstr(manta_error_text(), "(4, 2)"));
    manta_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_agree_with_keras),
        cmocka_unit_test(layers_agree_with_torch),
        cmocka_unit_test(every_class_is_found_by_its_name),
        cmocka_unit_test(fields_lie_within_their_options),
        cmocka_unit_test(options_are_copied),
        cmocka_unit_test(zero_options_are_keras_defaults),
        cmocka_unit_test(a_default_can_be_overruled_by_zero),
        cmocka_unit_test(integers_are_converted_where_a_layer_computes),
        cmocka_unit_test(weights_have_keras_names_shapes_and_starts),
        cmocka_unit_test(concatenate_takes_any_number),
        cmocka_unit_test(a_program_adds_a_layer_and_an_operation),
        cmocka_unit_test(errors_name_layer_expected_and_given),
        cmocka_unit_test(merging_other_shapes_is_refused),
        cmocka_unit_test(a_shared_layer_keeps_its_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
