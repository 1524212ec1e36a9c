/* keras_layer_read.c - a layer from its Keras config.
 *
 * The field table of a class says which keys become which options. A key that
 * is not there keeps Keras's default, which is what zeroed options mean. A key
 * that the table does not know must be harmless, or the layer is refused: a
 * setting that is ignored would give other numbers without a word. */
#include <limits.h>
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/log.h"
#include "base/mem.h"
#include "format/keras/keras_layer.h"
#include "nn/graph.h"
#include "nn/initializer.h"
#include "nn/layer.h"
#include "nn/name.h"

typedef struct reading {
    const char *path, *layer, *class_name;
    bool quiet; /* say nothing of what is replaced */
    arena texts; /* what options point to until the layer has copied it */
} reading;

static manta_status refuse_value(const reading *r, const char *key, const json_t *v)
{
    char text[96];

    return manta_fail(MANTA_EUNSUPPORTED, "%s: layer '%s' (%s) has %s = %s, which Manta does not have",
                      r->path, r->layer, r->class_name, key, keras_json_show(v, text, sizeof text));
}

static manta_status fail_mistyped(const reading *r, const char *key, const json_t *v, const char *expected)
{
    char text[96];

    return manta_fail(MANTA_ECORRUPT, "%s: layer '%s' (%s): %s is %s, expected %s", r->path, r->layer,
                      r->class_name, key, keras_json_show(v, text, sizeof text), expected);
}

const char *keras_layer_name(const json_t *object)
{
    const char *name = keras_json_text(keras_json_config(object), "name");

    return name ? name : keras_json_text(object, "name");
}

bool keras_holds_code(const json_t *object)
{
    const char *class = keras_json_text(object, "class_name");

    return class &&
           (!strcmp(class, "Lambda") || !strcmp(class, "__lambda__") || !strcmp(class, "__marshal__"));
}

/* ---- dtype policy ---- */

manta_status keras_layer_policy(const char *path, const json_t *object)
{
    const json_t *v = json_object_get(keras_json_config(object), "dtype");

    const char *name =
        json_is_string(v) ? json_string_value(v) : keras_json_text(keras_json_config(v), "name");
    char text[96];

    if (!v || json_is_null(v) || (name && !strcmp(name, "float32"))) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "%s: layer '%s' has the dtype policy %s; Manta computes in float32",
                      path, keras_layer_name(object) ? keras_layer_name(object) : "?",
                      name ? name : keras_json_show(v, text, sizeof text));
}

/* ---- shapes ---- */

manta_status keras_shape_read(const char *path, const char *input, const json_t *shape, int *ndim,
                              int64_t out[MANTA_MAX_DIMS])
{
    size_t n = json_array_size(shape);
    char text[96];

    if (!json_is_array(shape) || n < 1 || n > MANTA_MAX_DIMS) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: input '%s' has the shape %s, expected 1 to %d dimensions",
                          path, input, keras_json_show(shape, text, sizeof text), MANTA_MAX_DIMS);
    }
    for (size_t i = 1; i < n; i++) {
        const json_t *d = json_array_get(shape, i);
        if (!json_is_integer(d) || json_integer_value(d) < 1) {
            return manta_fail(MANTA_EUNSUPPORTED,
                              "%s: input '%s' has the shape %s; Manta needs every dimension but the batch",
                              path, input, keras_json_show(shape, text, sizeof text));
        }
        out[i - 1] = json_integer_value(d);
    }
    *ndim = (int)n - 1;
    return MANTA_OK;
}

/* ---- values of fields ---- */

static bool is_whole(const json_t *v)
{
    double d = json_real_value(v);

    return json_is_integer(v) || (json_is_real(v) && d == floor(d) && fabs(d) < 1e15);
}

static int64_t whole_number(const json_t *v)
{
    return json_is_integer(v) ? json_integer_value(v) : (int64_t)json_real_value(v);
}

static manta_status read_int(const reading *r, const char *key, const json_t *v, int64_t *out)
{
    if (json_array_size(v) == 1) v = json_array_get(v, 0); /* axis: [-1] */
    if (!is_whole(v)) return fail_mistyped(r, key, v, "a whole number");
    *out = whole_number(v);
    return MANTA_OK;
}

/* null in the shape of what a Dropout draws: as long as the input's axis. */
static bool is_open(const char *key, const json_t *v)
{
    return json_is_null(v) && !strcmp(key, "noise_shape");
}

static manta_status read_ints(const reading *r, const char *key, const json_t *v, int64_t *out, int *n)
{
    size_t count = json_array_size(v);

    if (is_whole(v)) {
        out[0] = whole_number(v);
        *n = 1;
        return MANTA_OK;
    }
    if (!json_is_array(v) || count > MANTA_MAX_DIMS) return fail_mistyped(r, key, v, "a few whole numbers");
    for (size_t i = 0; i < count; i++) {
        out[i] = -1;
        if (!is_open(key, json_array_get(v, i))) TRY(read_int(r, key, json_array_get(v, i), &out[i]));
    }
    *n = (int)count;
    return MANTA_OK;
}

static manta_status read_pair(const reading *r, const char *key, const json_t *v, int64_t out[2])
{
    if (is_whole(v)) {
        out[0] = out[1] = whole_number(v);
        return MANTA_OK;
    }
    if (json_array_size(v) != 2) return fail_mistyped(r, key, v, "one or two whole numbers");
    TRY(read_int(r, key, json_array_get(v, 0), &out[0]));
    return read_int(r, key, json_array_get(v, 1), &out[1]);
}

/* One number for all sides, one per axis, or one per side. */
static manta_status read_pairs(const reading *r, const char *key, const json_t *v, int64_t out[2][2])
{
    if (!is_whole(v) && json_array_size(v) != 2)
        return fail_mistyped(r, key, v, "one number, two, or two pairs");
    for (size_t i = 0; i < 2; i++) TRY(read_pair(r, key, is_whole(v) ? v : json_array_get(v, i), out[i]));
    return MANTA_OK;
}

static size_t count_numbers(const json_t *v)
{
    size_t n = 0;

    if (!json_is_array(v)) return json_is_number(v) ? 1 : 0;
    for (size_t i = 0; i < json_array_size(v); i++) n += count_numbers(json_array_get(v, i));
    return n;
}

static void flatten_numbers(const json_t *v, float **out)
{
    if (json_is_number(v)) *(*out)++ = (float)json_number_value(v);
    for (size_t i = 0; i < json_array_size(v); i++) flatten_numbers(json_array_get(v, i), out);
}

/* Numbers, perhaps in lists of lists of one (the shape Keras broadcasts). Both lists of a layer
 * must be of one length. */
static manta_status read_floats(reading *r, const char *key, const json_t *v, const float **out, int64_t *n)
{
    size_t count = count_numbers(v);
    float *numbers, *p;

    if (!count || count > (1 << 24)) return fail_mistyped(r, key, v, "numbers");
    if (*n && *n != (int64_t)count) return fail_mistyped(r, key, v, "as many numbers as the mean has");
    p = numbers = arena_array(&r->texts, count, sizeof *numbers);
    flatten_numbers(v, &p);
    *out = numbers;
    *n = (int64_t)count;
    return MANTA_OK;
}

/* An activation's name: "relu", or {"class_name":"function","config":"relu"}. */
static const char *function_name(const json_t *v)
{
    const json_t *config;

    if (json_is_string(v)) return json_string_value(v);
    config = json_object_get(v, "config");
    return json_is_string(config) ? json_string_value(config) : NULL;
}

static manta_status read_text(reading *r, const char *key, const json_t *v, const char **out)
{
    const char *name = function_name(v);

    if (keras_holds_code(v)) return refuse_value(r, key, v);
    if (!name) return fail_mistyped(r, key, v, "a name");
    *out = arena_strdup(&r->texts, name);
    return MANTA_OK;
}

/* ---- initializers and regularizers ---- */

static float number_or(const json_t *config, const char *key, double otherwise)
{
    const json_t *v = json_object_get(config, key);

    return (float)(json_is_number(v) ? json_number_value(v) : otherwise);
}

/* VarianceScaling in its general form: some scales we know by other names, 0 here stands for all. */
static bool variance_scaling(const json_t *config, manta_initializer *out)
{
    static const struct {
        double scale;
        const char *mode, *distribution;
        manta_init_kind kind;
    } known[] = {
        {1, "fan_avg", "uniform", MANTA_INIT_GLOROT_UNIFORM},
        {1, "fan_avg", "truncated_normal", MANTA_INIT_GLOROT_NORMAL},
        {2, "fan_in", "uniform", MANTA_INIT_HE_UNIFORM},
        {2, "fan_in", "truncated_normal", MANTA_INIT_HE_NORMAL},
        {1, "fan_in", "uniform", MANTA_INIT_LECUN_UNIFORM},
        {1, "fan_in", "truncated_normal", MANTA_INIT_LECUN_NORMAL},
        {1.0 / 3, "fan_in", "uniform", MANTA_INIT_TORCH},
        {0, "fan_out", "uniform", MANTA_INIT_FAN_OUT_UNIFORM},
        {0, "fan_out", "truncated_normal", MANTA_INIT_FAN_OUT_NORMAL},
    };
    double scale = number_or(config, "scale", 1);
    const char *mode = keras_json_text(config, "mode"),
               *distribution = keras_json_text(config, "distribution");

    if (!mode) mode = "fan_in";
    if (!distribution) distribution = "truncated_normal";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        bool any = known[i].scale == 0;
        if ((!any && fabs(scale - known[i].scale) > 1e-6) || strcmp(mode, known[i].mode)) continue;
        if (strcmp(distribution, known[i].distribution)) continue;
        *out = (manta_initializer){.kind = known[i].kind, .a = any ? (float)scale : 0};
        return true;
    }
    return false;
}

/* An initializer matters only where weights start anew: one that we have not is replaced by the
 * layer's own, and the log says so. */
static void read_init(const reading *r, const char *key, const json_t *v, manta_initializer *out)
{
    const json_t *config = keras_json_config(v);
    const char *name = json_is_string(v) ? json_string_value(v) : keras_json_text(v, "class_name");

    if (name && name_same(name, "VarianceScaling") && variance_scaling(config, out)) return;
    if (name && !initializer_parse(name, out)) {
        if (out->kind == MANTA_INIT_CONSTANT) out->a = number_or(config, "value", 0);
        if (out->kind == MANTA_INIT_UNIFORM) {
            out->a = number_or(config, "minval", -0.05);
            out->b = number_or(config, "maxval", 0.05);
        }
        if (out->kind == MANTA_INIT_NORMAL || out->kind == MANTA_INIT_TRUNCATED_NORMAL) {
            out->a = number_or(config, "mean", 0);
            out->b = number_or(config, "stddev", 0.05);
        }
        return;
    }
    *out = (manta_initializer){0};
    if (r->quiet) return;
    log_warn("an initializer that Manta has not: fresh weights would start by the layer's default",
             LOG_STR("file", r->path), LOG_STR("layer", r->layer), LOG_STR("key", key),
             LOG_STR("initializer", name ? name : "?"));
}

static manta_status read_reg(const reading *r, const char *key, const json_t *v, manta_regularizer *out)
{
    const json_t *config = keras_json_config(v);
    const char *name = json_is_string(v) ? json_string_value(v) : keras_json_text(v, "class_name");
    bool l1 = name && (name_same(name, "L1") || name_same(name, "L1L2"));
    bool l2 = name && (name_same(name, "L2") || name_same(name, "L1L2"));

    if (!l1 && !l2) return refuse_value(r, key, v);
    /* An object that leaves a number out means the class's default; L1L2's is zero. */
    if (l1) out->l1 = number_or(config, "l1", l2 ? (config ? 0 : 0.01) : 0.01);
    if (l2) out->l2 = number_or(config, "l2", l1 ? (config ? 0 : 0.01) : 0.01);
    return MANTA_OK;
}

/* ---- fields ---- */

static manta_status read_field(reading *r, const manta_field *f, const json_t *v, char *options)
{
    void *at = options + f->offset;
    double number;
    bool yes;

    if (json_is_null(v)) return MANTA_OK; /* Keras's way of saying default */
    switch (f->kind) {
    case MANTA_FIELD_INT: return read_int(r, f->key, v, at);
    case MANTA_FIELD_INTS: return read_ints(r, f->key, v, at, (int *)(void *)(options + f->extra));
    case MANTA_FIELD_PAIR:
        TRY(read_pair(r, f->key, v, at));
        for (int i = 0; f->extra && i < 2; i++) {
            int64_t *n = (int64_t *)(void *)at + i;
            if (*n == 0) *n = MANTA_ZERO;
        }
        return MANTA_OK;
    case MANTA_FIELD_PAIRS: return read_pairs(r, f->key, v, at);
    case MANTA_FIELD_FLOAT:
    case MANTA_FIELD_FLOAT_DEFAULT:
        if (!json_is_number(v)) return fail_mistyped(r, f->key, v, "a number");
        number = json_number_value(v);
        if (number == 0 && f->kind == MANTA_FIELD_FLOAT_DEFAULT) number = MANTA_ZERO; /* it was said */
        memcpy(at, &number, sizeof number);
        return MANTA_OK;
    case MANTA_FIELD_BOOL:
    case MANTA_FIELD_NOT:
        if (!json_is_boolean(v)) return fail_mistyped(r, f->key, v, "true or false");
        yes = json_is_true(v) == (f->kind == MANTA_FIELD_BOOL);
        memcpy(at, &yes, sizeof yes);
        return MANTA_OK;
    case MANTA_FIELD_TEXT: return read_text(r, f->key, v, at);
    case MANTA_FIELD_INIT: read_init(r, f->key, v, at); return MANTA_OK;
    case MANTA_FIELD_REG: return read_reg(r, f->key, v, at);
    case MANTA_FIELD_FLOATS: return read_floats(r, f->key, v, at, (int64_t *)(void *)(options + f->extra));
    }
    return manta_fail(MANTA_EINTERNAL, "layer class %s has a field of kind %d", r->class_name, (int)f->kind);
}

/* Keys that mean nothing here, or that mean what we do anyway. */
static bool is_harmless(const char *key, const json_t *v)
{
    static const char *const ignored[] = {"name",
                                          "trainable",
                                          "dtype",
                                          "seed",
                                          "synchronized",
                                          "moving_mean_initializer",
                                          "batch_shape",
                                          "moving_variance_initializer",
                                          "input_length",
                                          "batch_input_shape",
                                          "renorm_clipping",
                                          "renorm_momentum"};

    if (json_is_null(v) || json_is_false(v)) return true;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++) {
        if (!strcmp(key, ignored[i])) return true;
    }
    if (!strcmp(key, "data_format"))
        return json_is_string(v) && !strcmp(json_string_value(v), "channels_last");
    if (!strcmp(key, "groups")) return json_is_integer(v) && json_integer_value(v) == 1;
    return false;
}

static const manta_field *field_of(const manta_layer_class *cls, const char *key)
{
    /* Keras 2's word, which Keras 3 also takes. */
    if (!strcmp(cls->name, "LeakyReLU") && !strcmp(key, "alpha")) key = "negative_slope";
    for (int i = 0; i < cls->n_fields; i++) {
        if (!strcmp(cls->fields[i].key, key)) return &cls->fields[i];
    }
    return NULL;
}

/* An activation by name; elsewhere a name is checked where the layer is called. */
static manta_status check_activation(const reading *r, const manta_field *f, const json_t *v,
                                     const char *options)
{
    const char *name;

    if (f->kind != MANTA_FIELD_TEXT || strcmp(f->key, "activation") != 0) return MANTA_OK;
    memcpy(&name, options + f->offset, sizeof name);
    return !name || layer_has_activation(name) ? MANTA_OK : refuse_value(r, f->key, v);
}

static manta_status read_config(reading *r, const manta_layer_class *cls, const json_t *config, char *options)
{
    const char *key;
    json_t *v;

    /* Where zeroed options are not Keras's default. */
    if (cls == &layer_zero_padding2d) {
        ((manta_zero_padding2d_options *)(void *)options)->padding[0][0] = 1;
        ((manta_zero_padding2d_options *)(void *)options)->padding[0][1] = 1;
        ((manta_zero_padding2d_options *)(void *)options)->padding[1][0] = 1;
        ((manta_zero_padding2d_options *)(void *)options)->padding[1][1] = 1;
    }
    json_object_foreach((json_t *)(uintptr_t)config, key, v)
    {
        const manta_field *f = field_of(cls, key);
        if (f) {
            TRY(read_field(r, f, v, options));
            TRY(check_activation(r, f, v, options));
        } else if (!is_harmless(key, v)) {
            return refuse_value(r, key, v);
        }
    }
    return MANTA_OK;
}

/* The class of a layer's object and its options, zeroed before. *options: mem_free(), also on failure. */
static manta_status read_options(reading *r, const json_t *object, const manta_layer_class **cls,
                                 char **options)
{
    const json_t *config = keras_json_config(object);
    const char *class = keras_json_text(object, "class_name");

    if (!class || !config) {
        return manta_fail(MANTA_ECORRUPT, "%s: layer '%s' lacks a class_name or a config", r->path, r->layer);
    }
    if (keras_holds_code(object)) {
        return manta_fail(MANTA_EUNSUPPORTED,
                          "%s: layer '%s' (%s) holds program code, which is never run from a "
                          "file",
                          r->path, r->layer, class);
    }
    if (!(*cls = manta_layer_class_find(class))) {
        return manta_fail(MANTA_EUNSUPPORTED, "%s: layer '%s' is a %s, which Manta does not have", r->path,
                          r->layer, class);
    }
    TRY(keras_layer_policy(r->path, object));
    *options = mem_new((*cls)->options_size ? (*cls)->options_size : 1);
    return read_config(r, *cls, config, *options);
}

static reading reading_of(const char *path, const json_t *object)
{
    const char *name = keras_layer_name(object), *class = keras_json_text(object, "class_name");

    return (reading){.path = path, .layer = name ? name : "?", .class_name = class ? class : "?"};
}

manta_status keras_layer_read(const char *path, manta_model *m, const json_t *object, manta_layer **out)
{
    reading r = reading_of(path, object);
    const manta_layer_class *cls = NULL;
    char *options = NULL;
    manta_status st = read_options(&r, object, &cls, &options);

    if (!st) {
        *out = manta_layer_new(m, cls, keras_layer_name(object), options);
        if (json_is_false(json_object_get(keras_json_config(object), "trainable"))) (*out)->frozen = true;
    }
    mem_free(options);
    arena_release(&r.texts);
    return st;
}

manta_status keras_layer_check(const char *path, const json_t *object)
{
    reading r = reading_of(path, object);
    const manta_layer_class *cls = NULL;
    char *options = NULL;
    manta_status st;

    r.quiet = true; /* whoever makes the layer warns */
    st = read_options(&r, object, &cls, &options);
    mem_free(options);
    arena_release(&r.texts);
    return st;
}
