/* keras_layer_write.c - the Keras config of a layer.
 *
 * A table names, for every class, the keys that all Keras 3 versions know, in
 * the order Keras writes them: a key that some version lacks would make it
 * refuse the file. A key of the class's own fields is written from the options,
 * with `otherwise` where they say nothing; every other key is `otherwise`. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/option.h"
#include "format/keras/keras_layer.h"
#include "nn/graph.h"
#include "nn/layer.h"

typedef struct key {
    const char *name;
    const char *otherwise; /* JSON, or the class of an initializer */
} key;

#define FORMAT                                                                                               \
    {                                                                                                        \
        "data_format", "\"channels_last\""                                                                   \
    }
#define OPEN(key)                                                                                            \
    {                                                                                                        \
        key, "null"                                                                                          \
    }
#define KERNEL(prefix)                                                                                       \
    {prefix "_initializer", "GlorotUniform"}, {"bias_initializer", "Zeros"}, OPEN(prefix "_regularizer"),    \
        OPEN("bias_regularizer")
#define CONV_END(prefix)                                                                                     \
    {"activation", "\"linear\""}, {"use_bias", "true"}, KERNEL(prefix), OPEN("activity_regularizer"),        \
        OPEN(prefix "_constraint"), OPEN("bias_constraint")
#define NORM_END                                                                                             \
    {"center", "true"}, {"scale", "true"}, {"beta_initializer", "Zeros"},                                    \
    {                                                                                                        \
        "gamma_initializer", "Ones"                                                                          \
    }
#define NORM_OPEN                                                                                            \
    OPEN("beta_regularizer"), OPEN("gamma_regularizer"), OPEN("beta_constraint"), OPEN("gamma_constraint")

static const struct {
    const char *class_name;
    key keys[20];
} tables[] = {
    {"Dense",
     {{"units", "0"},
      {"activation", "\"linear\""},
      {"use_bias", "true"},
      KERNEL("kernel"),
      OPEN("kernel_constraint"),
      OPEN("bias_constraint")}},
    {"Conv2D",
     {{"filters", "0"},
      {"kernel_size", "1"},
      {"strides", "1"},
      {"padding", "\"valid\""},
      FORMAT,
      {"dilation_rate", "1"},
      {"groups", "1"},
      CONV_END("kernel")}},
    {"DepthwiseConv2D",
     {{"kernel_size", "1"},
      {"strides", "1"},
      {"padding", "\"valid\""},
      {"depth_multiplier", "1"},
      FORMAT,
      {"dilation_rate", "1"},
      CONV_END("depthwise")}},
    {"SeparableConv2D",
     {{"filters", "0"},
      {"kernel_size", "1"},
      {"strides", "1"},
      {"padding", "\"valid\""},
      FORMAT,
      {"dilation_rate", "1"},
      {"depth_multiplier", "1"},
      {"activation", "\"linear\""},
      {"use_bias", "true"},
      {"depthwise_initializer", "GlorotUniform"},
      {"pointwise_initializer", "GlorotUniform"},
      {"bias_initializer", "Zeros"},
      OPEN("depthwise_regularizer"),
      OPEN("pointwise_regularizer"),
      OPEN("bias_regularizer"),
      OPEN("activity_regularizer"),
      OPEN("depthwise_constraint"),
      OPEN("pointwise_constraint"),
      OPEN("bias_constraint")}},
    {"Conv2DTranspose",
     {{"filters", "0"},
      {"kernel_size", "1"},
      {"strides", "1"},
      {"padding", "\"valid\""},
      FORMAT,
      {"dilation_rate", "1"},
      CONV_END("kernel")}},
    {"MaxPooling2D", {{"pool_size", "2"}, {"padding", "\"valid\""}, {"strides", "2"}, FORMAT}},
    {"AveragePooling2D", {{"pool_size", "2"}, {"padding", "\"valid\""}, {"strides", "2"}, FORMAT}},
    {"GlobalAveragePooling2D", {FORMAT, {"keepdims", "false"}}},
    {"GlobalMaxPooling2D", {FORMAT, {"keepdims", "false"}}},
    {"BatchNormalization",
     {{"axis", "-1"},
      {"momentum", "0.99"},
      {"epsilon", "0.001"},
      NORM_END,
      {"moving_mean_initializer", "Zeros"},
      {"moving_variance_initializer", "Ones"},
      NORM_OPEN,
      {"synchronized", "false"}}},
    {"LayerNormalization", {{"axis", "[-1]"}, {"epsilon", "0.001"}, NORM_END, NORM_OPEN}},
    {"Dropout", {{"rate", "0.0"}, OPEN("seed"), OPEN("noise_shape")}},
    {"Flatten", {FORMAT}},
    {"Reshape", {{"target_shape", "[]"}}},
    {"Permute", {{"dims", "[]"}}},
    {"Activation", {{"activation", "\"linear\""}}},
    {"ReLU", {OPEN("max_value"), {"negative_slope", "0.0"}, {"threshold", "0.0"}}},
    {"LeakyReLU", {{"negative_slope", "0.3"}}},
    {"ELU", {{"alpha", "1.0"}}},
    {"Softmax", {{"axis", "-1"}}},
    {"Add", {{0}}},
    {"Subtract", {{0}}},
    {"Multiply", {{0}}},
    {"Concatenate", {{"axis", "-1"}}},
    {"ZeroPadding2D", {{"padding", "0"}, FORMAT}},
    {"Cropping2D", {{"cropping", "0"}, FORMAT}},
    {"UpSampling2D", {{"size", "2"}, FORMAT, {"interpolation", "\"nearest\""}}},
    {"Rescaling", {{"scale", "1.0"}, {"offset", "0.0"}}},
    {"Normalization", {{"axis", "[-1]"}, {"invert", "false"}, OPEN("mean"), OPEN("variance")}},
    {"Embedding",
     {{"input_dim", "0"},
      {"output_dim", "0"},
      {"embeddings_initializer", "RandomUniform"},
      OPEN("embeddings_regularizer"),
      OPEN("activity_regularizer"),
      OPEN("embeddings_constraint"),
      {"mask_zero", "false"}}},
    {"LayerScale", {{"init_values", "0.0"}, {"projection_dim", "0"}}},
    {"StochasticDepth", {{"drop_path_rate", "0.0"}}},
    {"CustomScaleLayer", {{"scale", "0.0"}}},
};

json_t *keras_envelope(const char *module, const char *class_name, json_t *config, const char *registered)
{
    json_t *o = json_object();

    if (module) json_object_set_new(o, "module", json_string(module));
    json_object_set_new(o, "class_name", json_string(class_name));
    json_object_set_new(o, "config", config);
    json_object_set_new(o, "registered_name", registered ? json_string(registered) : json_null());
    return o;
}

json_t *keras_shape_write(const manta_array *a)
{
    json_t *list = json_array();

    for (int i = 0; i < a->ndim; i++) {
        json_array_append_new(list, i == 0 ? json_null() : json_integer(a->shape[i]));
    }
    return list;
}

/* ---- initializers and regularizers ---- */

static json_t *random_config(const char *a, double va, const char *b, double vb)
{
    json_t *c = json_object();

    json_object_set_new(c, "seed", json_null());
    if (a) json_object_set_new(c, a, json_real(va));
    if (b) json_object_set_new(c, b, json_real(vb));
    return c;
}

static json_t *init_named(const char *class_name)
{
    if (!strcmp(class_name, "Zeros") || !strcmp(class_name, "Ones")) {
        return keras_envelope("keras.initializers", class_name, json_object(), NULL);
    }
    if (!strcmp(class_name, "RandomUniform")) {
        return keras_envelope("keras.initializers", class_name,
                              random_config("minval", -0.05, "maxval", 0.05), NULL);
    }
    return keras_envelope("keras.initializers", class_name, random_config(NULL, 0, NULL, 0), NULL);
}

/* Keras's general initializer. */
static json_t *init_scaled(double scale, const char *mode, const char *distribution)
{
    json_t *c = random_config("scale", scale, NULL, 0);

    json_object_set_new(c, "mode", json_string(mode));
    json_object_set_new(c, "distribution", json_string(distribution));
    return keras_envelope("keras.initializers", "VarianceScaling", c, NULL);
}

/* torch's start: uniform over +-1/sqrt(fan_in), the kernel's fan-in for a bias too. */
static json_t *init_torch(const manta_layer *l, const char *field)
{
    const manta_model *m = l->model;

    for (int i = 0; i < l->n_variables && !strcmp(field, "bias_initializer"); i++) {
        const graph_variable *g = &m->variables[l->variables[i]];
        const char *slash = strrchr(g->name, '/');
        if (slash && !strcmp(slash, "/bias") && g->fan_in > 0) {
            double limit = 1 / sqrt((double)g->fan_in);
            return keras_envelope("keras.initializers", "RandomUniform",
                                  random_config("minval", -limit, "maxval", limit), NULL);
        }
    }
    return init_scaled(1.0 / 3, "fan_in", "uniform");
}

static json_t *write_init(const manta_layer *l, const key *k, const manta_initializer *init)
{
    double a = (double)init->a, b = (double)init->b;
    json_t *c;

    switch (init->kind) {
    case MANTA_INIT_DEFAULT: return init_named(k->otherwise);
    case MANTA_INIT_ZEROS: return init_named("Zeros");
    case MANTA_INIT_ONES: return init_named("Ones");
    case MANTA_INIT_CONSTANT:
        c = json_object();
        json_object_set_new(c, "value", json_real(a));
        return keras_envelope("keras.initializers", "Constant", c, NULL);
    case MANTA_INIT_UNIFORM:
        return keras_envelope("keras.initializers", "RandomUniform", random_config("minval", a, "maxval", b),
                              NULL);
    case MANTA_INIT_NORMAL:
        return keras_envelope("keras.initializers", "RandomNormal", random_config("mean", a, "stddev", b),
                              NULL);
    case MANTA_INIT_TRUNCATED_NORMAL:
        return keras_envelope("keras.initializers", "TruncatedNormal", random_config("mean", a, "stddev", b),
                              NULL);
    case MANTA_INIT_GLOROT_UNIFORM: return init_named("GlorotUniform");
    case MANTA_INIT_GLOROT_NORMAL: return init_named("GlorotNormal");
    case MANTA_INIT_HE_UNIFORM: return init_named("HeUniform");
    case MANTA_INIT_HE_NORMAL: return init_named("HeNormal");
    case MANTA_INIT_LECUN_UNIFORM: return init_named("LecunUniform");
    case MANTA_INIT_LECUN_NORMAL: return init_named("LecunNormal");
    case MANTA_INIT_TORCH: return init_torch(l, k->name);
    case MANTA_INIT_FAN_OUT_UNIFORM: return init_scaled(a, "fan_out", "uniform");
    case MANTA_INIT_FAN_OUT_NORMAL: return init_scaled(a, "fan_out", "truncated_normal");
    }
    return init_named(k->otherwise);
}

static json_t *write_reg(const manta_regularizer *r)
{
    json_t *c;

    if (r->l1 == 0 && r->l2 == 0) return json_null();
    c = json_object();
    if (r->l1 != 0) json_object_set_new(c, "l1", json_real((double)r->l1));
    if (r->l2 != 0) json_object_set_new(c, "l2", json_real((double)r->l2));
    return keras_envelope("keras.regularizers", r->l1 == 0 ? "L2" : r->l2 == 0 ? "L1" : "L1L2", c, NULL);
}

/* ---- fields ---- */

static json_t *constant_json(const char *json)
{
    return json_loads(json, JSON_DECODE_ANY, NULL);
}

static json_t *int_or(int64_t v, const char *otherwise)
{
    return v ? json_integer(v) : constant_json(otherwise);
}

static json_t *write_pair(const int64_t v[2], const char *otherwise)
{
    json_t *list = json_array();

    for (int i = 0; i < 2; i++) json_array_append_new(list, int_or(v[i], otherwise));
    return list;
}

static json_t *write_floats(const float *v, int64_t n)
{
    json_t *list = json_array();

    if (n == 1) {
        json_decref(list);
        return json_real((double)v[0]);
    }
    for (int64_t i = 0; i < n; i++) json_array_append_new(list, json_real((double)v[i]));
    return list;
}

static json_t *write_field(const manta_layer *l, const manta_field *f, const key *k)
{
    const char *options = l->options, *at = options + f->offset;
    const int64_t *whole = (const int64_t *)(const void *)at;
    const char *text;
    double number;
    bool yes;
    int n;
    json_t *list;

    switch (f->kind) {
    case MANTA_FIELD_INT: return int_or(*whole, k->otherwise);
    case MANTA_FIELD_INTS:
        memcpy(&n, options + f->extra, sizeof n);
        if (n == 0) return constant_json(k->otherwise);
        list = json_array();
        for (int i = 0; i < n; i++) json_array_append_new(list, json_integer(whole[i]));
        return list;
    case MANTA_FIELD_PAIR: return write_pair(whole, k->otherwise);
    case MANTA_FIELD_PAIRS:
        list = json_array();
        json_array_append_new(list, write_pair(whole, "0"));
        json_array_append_new(list, write_pair(whole + 2, "0"));
        return list;
    case MANTA_FIELD_FLOAT:
    case MANTA_FIELD_FLOAT_DEFAULT:
        memcpy(&number, at, sizeof number);
        if (number == 0) return constant_json(k->otherwise);
        return json_real(number == MANTA_ZERO ? 0 : number);
    case MANTA_FIELD_BOOL:
    case MANTA_FIELD_NOT:
        memcpy(&yes, at, sizeof yes);
        return json_boolean(yes == (f->kind == MANTA_FIELD_BOOL));
    case MANTA_FIELD_TEXT:
        memcpy(&text, at, sizeof text);
        return text ? json_string(text) : constant_json(k->otherwise);
    case MANTA_FIELD_INIT: return write_init(l, k, (const manta_initializer *)(const void *)at);
    case MANTA_FIELD_REG: return write_reg((const manta_regularizer *)(const void *)at);
    case MANTA_FIELD_FLOATS: {
        const float *v;
        memcpy(&v, at, sizeof v);
        return write_floats(v, *(const int64_t *)(const void *)(options + f->extra));
    }
    }
    return json_null();
}

static const manta_field *field_of(const manta_layer_class *cls, const char *name)
{
    for (int i = 0; i < cls->n_fields; i++) {
        if (!strcmp(cls->fields[i].key, name)) return &cls->fields[i];
    }
    return NULL;
}

/* An initializer's `otherwise` is a class, all others' is JSON. */
static json_t *write_constant(const key *k)
{
    size_t n = strlen(k->name);

    if (n > 12 && !strcmp(k->name + n - 12, "_initializer")) return init_named(k->otherwise);
    return constant_json(k->otherwise);
}

/* What Keras has no key or word for. */
static manta_status check_words(const manta_layer *l, const json_t *config)
{
    const char *activation = keras_json_text(config, "activation"),
               *padding = keras_json_text(config, "padding");

    if (activation && !strcmp(activation, "gelu_tanh")) {
        return manta_fail(MANTA_EUNSUPPORTED, "layer '%s': Keras has no name for the activation gelu_tanh",
                          l->name);
    }
    if (padding && !strcmp(padding, "explicit")) {
        return manta_fail(MANTA_EUNSUPPORTED, "layer '%s' (%s): Keras has no padding by given numbers",
                          l->name, l->cls->name);
    }
    return MANTA_OK;
}

/* Settings whose default is another setting, or that are written only when given. */
static void write_special(const manta_layer *l, json_t *config)
{
    if (l->cls == &layer_max_pooling2d || l->cls == &layer_average_pooling2d) {
        const manta_pooling2d_options *o = l->options;
        json_t *pool = json_object_get(config, "pool_size"), *strides = json_array();
        for (size_t i = 0; i < 2; i++) {
            json_array_append_new(strides, o->strides[i] ? json_integer(o->strides[i])
                                                         : json_incref(json_array_get(pool, i)));
        }
        json_object_set_new(config, "strides", strides);
    }
    if (l->cls == &layer_conv2d_transpose) {
        const manta_conv2d_transpose_options *o = l->options;
        int64_t pad[2] = {option_int(o->output_padding[0], 0), option_int(o->output_padding[1], 0)};
        if (o->output_padding[0]) json_object_set_new(config, "output_padding", write_pair(pad, "0"));
    }
    if (l->cls == &layer_dropout) {
        const manta_dropout_options *o = l->options;
        json_t *list = json_object_get(config, "noise_shape");
        for (size_t i = 0; i < (size_t)o->n_noise; i++) {
            if (o->noise_shape[i] < 0) json_array_set_new(list, i, json_null());
        }
    }
    if (l->cls == &layer_batch_normalization) {
        const manta_batch_normalization_options *o = l->options;
        if (o->unbiased) {
            log_warn(
                "Keras renews moving_variance from the biased variance: trained there, this layer differs",
                LOG_STR("layer", l->name));
        }
    }
}

json_t *keras_layer_envelope(const manta_layer *l, json_t *config)
{
    static const struct {
        const manta_layer_class *cls;
        const char *module;
    } defined[] = {{&layer_layer_scale, "keras.src.applications.convnext"},
                   {&layer_stochastic_depth, "keras.src.applications.convnext"},
                   {&layer_custom_scale, "keras.src.applications.inception_resnet_v2"}};

    for (size_t i = 0; i < sizeof defined / sizeof *defined; i++) {
        if (defined[i].cls == l->cls)
            return keras_envelope(defined[i].module, l->cls->name, config, l->cls->name);
    }
    return keras_envelope("keras.layers", l->cls->name, config, NULL);
}

manta_status keras_layer_write(const manta_layer *l, json_t **out)
{
    json_t *config;
    size_t t = 0;
    manta_status st;

    while (t < sizeof tables / sizeof *tables && strcmp(tables[t].class_name, l->cls->name)) t++;
    if (t == sizeof tables / sizeof *tables || manta_layer_class_find(l->cls->name) != l->cls) {
        return manta_fail(MANTA_EUNSUPPORTED, "layer '%s' is a %s, which Keras does not have", l->name,
                          l->cls->name);
    }
    config = json_object();
    json_object_set_new(config, "name", json_string(l->name));
    json_object_set_new(config, "trainable", json_boolean(!l->frozen));
    json_object_set_new(config, "dtype", json_string("float32"));
    for (const key *k = tables[t].keys; k->name; k++) {
        const manta_field *f = field_of(l->cls, k->name);
        json_object_set_new(config, k->name, f ? write_field(l, f, k) : write_constant(k));
    }
    write_special(l, config);
    if ((st = check_words(l, config))) {
        json_decref(config);
        return st;
    }
    *out = config;
    return MANTA_OK;
}
