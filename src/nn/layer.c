/* layer.c - the list of built-in layer classes and what they share. */
#include "nn/layer.h"

#include <stdio.h>
#include <string.h>

#include "base/args.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/suggest.h"
#include "nn/ops.h"

static const manta_layer_class *const classes[] = {
    &layer_dense,
    &layer_conv2d,
    &layer_depthwise_conv2d,
    &layer_separable_conv2d,
    &layer_conv2d_transpose,
    &layer_max_pooling2d,
    &layer_average_pooling2d,
    &layer_global_average_pooling2d,
    &layer_global_max_pooling2d,
    &layer_batch_normalization,
    &layer_layer_normalization,
    &layer_dropout,
    &layer_flatten,
    &layer_reshape,
    &layer_permute,
    &layer_activation,
    &layer_relu,
    &layer_leaky_relu,
    &layer_elu,
    &layer_softmax,
    &layer_add,
    &layer_subtract,
    &layer_multiply,
    &layer_concatenate,
    &layer_zero_padding2d,
    &layer_cropping2d,
    &layer_upsampling2d,
    &layer_rescaling,
    &layer_normalization,
    &layer_embedding,
    &layer_layer_scale,
    &layer_stochastic_depth,
    &layer_custom_scale,
};

const manta_layer_class *manta_layer_class_at(int i)
{
    return i >= 0 && i < (int)(sizeof classes / sizeof *classes) ? classes[i] : NULL;
}

const manta_layer_class *manta_layer_class_find(const char *name)
{
    REFUSE_NULL_OR(name, NULL);

    const manta_layer_class *cls;

    for (int i = 0; (cls = manta_layer_class_at(i)); i++) {
        if (!strcmp(cls->name, name)) return cls;
    }
    return NULL;
}

/* ---- options ---- */

/* Pointers and counts are read and written by memcpy: the struct is the class's, we know only offsets. */
static void *pointer_at(const void *options, size_t offset)
{
    void *p;

    memcpy(&p, (const char *)options + offset, sizeof p);
    return p;
}

static void set_pointer(void *options, size_t offset, void *p)
{
    memcpy((char *)options + offset, &p, sizeof p);
}

static void *copy_floats(const void *from, const void *options, size_t count_at)
{
    int64_t n;
    void *p;

    memcpy(&n, (const char *)options + count_at, sizeof n);
    if (!from || n < 1) return NULL;
    p = mem_new((size_t)n * sizeof(float));
    memcpy(p, from, (size_t)n * sizeof(float));
    return p;
}

void *layer_options_copy(const manta_layer_class *cls, const void *options)
{
    void *copy = mem_new(cls->options_size ? cls->options_size : 1);

    if (!options) return copy;
    memcpy(copy, options, cls->options_size);
    for (int i = 0; i < cls->n_fields; i++) {
        const manta_field *f = &cls->fields[i];
        if (f->kind == MANTA_FIELD_TEXT) {
            const char *text = pointer_at(options, f->offset);
            set_pointer(copy, f->offset, text ? mem_strdup(text) : NULL);
        } else if (f->kind == MANTA_FIELD_FLOATS) {
            set_pointer(copy, f->offset, copy_floats(pointer_at(options, f->offset), options, f->extra));
        } else if (f->kind == MANTA_FIELD_FLOAT) {
            double v;
            memcpy(&v, (char *)copy + f->offset, sizeof v);
            v = option_real(v, 0);
            memcpy((char *)copy + f->offset, &v, sizeof v);
        }
    }
    return copy;
}

void layer_options_free(const manta_layer_class *cls, void *options)
{
    if (cls && options) {
        for (int i = 0; i < cls->n_fields; i++) {
            const manta_field *f = &cls->fields[i];
            if (f->kind == MANTA_FIELD_TEXT || f->kind == MANTA_FIELD_FLOATS)
                mem_free(pointer_at(options, f->offset));
        }
    }
    mem_free(options);
}

manta_layer *layer_named(manta_model *m, const manta_layer_class *cls, const void *options, const char **name)
{
    const char *given = *name;

    *name = NULL;
    return manta_layer_new(m, cls, given, options);
}

double layer_or(double v, double otherwise)
{
    return option_real(v, otherwise);
}

int64_t layer_or_int(int64_t v, int64_t otherwise)
{
    return v ? v : otherwise;
}

manta_initializer layer_init(manta_initializer init, manta_init_kind otherwise)
{
    return init.kind == MANTA_INIT_DEFAULT ? (manta_initializer){.kind = otherwise} : init;
}

/* ---- inputs ---- */

manta_status layer_expect_inputs(int n_in, int n)
{
    if (n_in == n) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected %d input%s, given %d", n, n == 1 ? "" : "s", n_in);
}

manta_status layer_expect_ndim(const manta_layer *l, manta_value x, int ndim, const char *shape)
{
    manta_array a = manta_layer_shape(l, x);
    char text[96];

    if (a.ndim == ndim) return MANTA_OK;
    return manta_fail(MANTA_EINVAL, "expected an input of shape %s, given %s", shape,
                      op_shape_text(&a, text, sizeof text));
}

manta_status layer_expect_last_axis(const manta_layer *l, manta_value x, int64_t axis)
{
    manta_array a = manta_layer_shape(l, x);
    char text[96];

    if (axis == 0 || axis == -1 || axis == a.ndim - 1) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "expected axis %d, the last of %s, given %lld", a.ndim - 1,
                      op_shape_text(&a, text, sizeof text), (long long)axis);
}

manta_value layer_f32(manta_layer *l, manta_value x)
{
    op_affine_attrs same = {.scale = 1, .offset = 0};

    if (manta_layer_shape(l, x).dtype == MANTA_DTYPE_F32) return x;
    return manta_layer_apply(l, &op_affine, &same, 1, &x);
}

manta_value layer_bias(manta_layer *l, int64_t n, manta_initializer init, int64_t kernel_fan_in,
                       manta_regularizer reg)
{
    init = layer_init(init, MANTA_INIT_ZEROS);
    return manta_layer_weight(l, "bias", 1, &n, init, init.kind == MANTA_INIT_TORCH ? kernel_fan_in : 0, reg,
                              true);
}

manta_status layer_padding(const char *padding, int64_t n, int64_t window, int64_t stride,
                           const int64_t pad[2], int64_t *before, int64_t *after)
{
    *before = *after = 0;
    if (!padding || !strcmp(padding, "valid")) return MANTA_OK;
    if (!strcmp(padding, "same")) {
        int64_t out = (n + stride - 1) / stride, total = (out - 1) * stride + window - n;
        if (total < 0) total = 0;
        *before = total / 2;
        *after = total - total / 2;
        return MANTA_OK;
    }
    if (strcmp(padding, "explicit") || !pad) {
        return manta_fail(MANTA_EINVAL, "expected padding 'valid', 'same' or 'explicit', given '%s'",
                          padding);
    }
    if (pad[0] < 0 || pad[1] < 0) {
        return manta_fail(MANTA_EINVAL, "expected explicit padding of at least 0, given (%lld, %lld)",
                          (long long)pad[0], (long long)pad[1]);
    }
    *before = pad[0];
    *after = pad[1];
    return MANTA_OK;
}

/* ---- activations by name ---- */

typedef struct named_activation {
    const char *name;
    const manta_op *op; /* NULL: nothing to do */
    op_act_attrs act;
} named_activation;

/* Slopes are those of Keras's functions; the LeakyReLU layer has another. */
static const named_activation activations[] = {
    {"linear", NULL, {0}},
    {"relu", &op_activation, {KERN_RELU, 0}},
    {"relu6", &op_relu, {0}},
    {"leaky_relu", &op_activation, {KERN_LEAKY_RELU, 0.2f}},
    {"elu", &op_activation, {KERN_ELU, 1}},
    {"gelu", &op_activation_of_input, {KERN_GELU, 0}},
    {"gelu_tanh", &op_activation_of_input, {KERN_GELU_TANH, 0}},
    {"silu", &op_activation_of_input, {KERN_SILU, 0}},
    {"swish", &op_activation_of_input, {KERN_SILU, 0}},
    {"sigmoid", &op_activation, {KERN_SIGMOID, 0}},
    {"tanh", &op_activation, {KERN_TANH, 0}},
    {"hard_sigmoid", &op_activation_of_input, {KERN_HARD_SIGMOID, 0}},
    {"hard_silu", &op_activation_of_input, {KERN_HARD_SILU, 0}},
    {"hard_swish", &op_activation_of_input, {KERN_HARD_SILU, 0}},
    {"softmax", &op_softmax, {0}},
};

static const named_activation *find_activation(const char *name)
{
    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        if (!strcmp(activations[i].name, name)) return &activations[i];
    }
    return NULL;
}

bool layer_has_activation(const char *name)
{
    return find_activation(name) != NULL;
}

static manta_status unknown_activation(const char *given)
{
    manta_suggestion near = manta_suggestion_for(given);
    char names[256] = "", hint[SUGGEST_TEXT];
    size_t n = 0;

    for (size_t i = 0; i < sizeof activations / sizeof *activations; i++) {
        manta_suggestion_offer(&near, activations[i].name);
        if (n < sizeof names)
            n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", i ? ", " : "", activations[i].name);
    }
    return manta_fail(MANTA_ENOENT, "no activation is called '%.80s'; there are %s%s", given, names,
                      manta_suggestion_text(&near, hint, sizeof hint));
}

manta_status manta_layer_activate(manta_layer *l, const char *activation, manta_value x, manta_value *out)
{
    REFUSE_NULL(l);
    REFUSE_NULL(out);

    static const op_relu_attrs six = {.max_value = 6};
    const named_activation *a = activation ? find_activation(activation) : NULL;

    *out = x;
    if (!activation) return MANTA_OK;
    if (!a) return unknown_activation(activation);
    if (a->op) *out = manta_layer_apply(l, a->op, a->op == &op_relu ? (const void *)&six : &a->act, 1, &x);
    return MANTA_OK;
}
