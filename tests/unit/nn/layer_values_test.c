/* layer_values_test.c - every layer against recorded values of Keras and PyTorch.
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
        for (int i = 0; f->extra && i < 2; i++)
            if (v[i] == 0) ((int64_t *)(void *)at)[i] = MANTA_ZERO;
        break;
    case MANTA_FIELD_PAIRS:
        assert_int_equal(n, 4);
        set_ints(at, v, 4);
        break;
    case MANTA_FIELD_FLOAT:
    case MANTA_FIELD_FLOAT_DEFAULT: *(double *)(void *)at = v[0] == 0 ? MANTA_ZERO : v[0]; break;
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
            more = whole(r, "output_padding", 0) ? whole(r, "output_padding", 0) : MANTA_ZERO;

    return manta_conv2d_transpose(r->m,
                                  (manta_conv2d_transpose_options){.filters = whole(r, "out_channels", 0),
                                                                   .kernel_size = {k, k},
                                                                   .strides = {s, s},
                                                                   .output_padding = {more, more},
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_agree_with_keras),
        cmocka_unit_test(layers_agree_with_torch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
