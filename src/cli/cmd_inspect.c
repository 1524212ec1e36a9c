/* cmd_inspect.c - manta inspect. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/json.h"
#include "cli/work.h"

static const option_group inspecting = {
    "Output:", (const cli_option[]){{"json", OPTION_FLAG, NULL, "One JSON object instead of a table"}, {0}}};

static int longer(int wide, const char *text)
{
    int n = (int)strlen(text);

    return n > wide ? n : wide;
}

/* ---- a model ---- */

/* A shape as Keras writes it, with None for the batch. */
static const char *shape_text(int ndim, const int64_t *shape, char *buf, size_t size)
{
    size_t n = 0;

    n += (size_t)snprintf(buf, size, "(");
    for (int i = 0; i < ndim && n < size; i++) {
        const char *comma = i ? ", " : "";
        n += (size_t)(shape[i] < 0 ? snprintf(buf + n, size - n, "%sNone", comma)
                                   : snprintf(buf + n, size - n, "%s%" PRId64, comma, shape[i]));
    }
    if (n < size) snprintf(buf + n, size - n, ndim == 1 ? ",)" : ")");
    return buf;
}

static void model_table(const manta_model *m)
{
    int layers = manta_model_layers(m), name = 5, class = 5, shape = 12;
    int64_t all = manta_model_params(m, false), trained = manta_model_params(m, true);
    char text[128], number[32];

    for (int i = 0; i < layers; i++) {
        manta_layer_info l = manta_model_layer(m, i);
        name = longer(name, l.name);
        class = longer(class, l.class_name);
        shape = longer(shape, shape_text(l.ndim, l.shape, text, sizeof text));
    }
    printf("%-*s  %-*s  %-*s  %12s\n", name, "layer", class, "class", shape, "output shape", "parameters");
    for (int i = 0; i < layers; i++) {
        manta_layer_info l = manta_model_layer(m, i);
        printf("%-*s  %-*s  %-*s  %12s%s\n", name, l.name, class, l.class_name, shape,
               shape_text(l.ndim, l.shape, text, sizeof text), work_number(l.params, number, sizeof number),
               l.frozen ? "  frozen" : "");
    }
    printf("\n%s parameters", work_number(all, number, sizeof number));
    if (trained != all) printf(", %s of them trained", work_number(trained, number, sizeof number));
    printf(" (%.2f MB)\n", (double)all * 4 / 1e6);
}

static json_t *shape_list(int ndim, const int64_t *shape)
{
    json_t *list = json_array();

    for (int i = 0; i < ndim; i++) {
        json_array_append_new(list, shape[i] < 0 ? json_null() : json_integer(shape[i]));
    }
    return list;
}

static void model_json(const manta_model *m)
{
    json_t *layers = json_array(), *variables = json_array();

    for (int i = 0; i < manta_model_layers(m); i++) {
        manta_layer_info l = manta_model_layer(m, i);
        json_array_append_new(layers, json_pack("{s:s, s:s, s:o, s:I, s:b}", "name", l.name, "class",
                                                l.class_name, "shape", shape_list(l.ndim, l.shape), "params",
                                                (json_int_t)l.params, "frozen", l.frozen));
    }
    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_variable_info v = manta_model_variable(m, i);
        json_array_append_new(variables, json_pack("{s:s, s:o, s:b}", "name", v.name, "shape",
                                                   shape_list(v.ndim, v.shape), "trainable", v.trainable));
    }
    json_emit(json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "kind", "model", "name", manta_model_name(m),
                        "params", (json_int_t)manta_model_params(m, false), "trainable_params",
                        (json_int_t)manta_model_params(m, true), "layers", layers, "variables", variables));
}

/* ---- arrays ---- */

static const char *label(const manta_column *c)
{
    return *c->name ? c->name : "(array)";
}

/* Arrays of a .npy file, or of any other that holds weights. */
typedef struct arrays {
    const manta_arrays *plain; /* NULL: of `saved` */
    const manta_saved *saved;
} arrays;

static const manta_column *column_at(const arrays *a, int i)
{
    return a->plain ? manta_arrays_at(a->plain, i) : manta_saved_at(a->saved, i);
}

static void arrays_table(const arrays *a)
{
    const manta_column *c;
    int name = 4, shape = 5, count = 0;
    size_t bytes = 0;
    char text[128];

    for (int i = 0; (c = column_at(a, i)); i++) {
        name = longer(name, label(c));
        shape = longer(shape, manta_shape_text(c->array.ndim, c->array.shape, text, sizeof text));
    }
    printf("%-*s  %-*s  %-8s  %12s\n", name, "name", shape, "shape", "dtype", "bytes");
    for (int i = 0; (c = column_at(a, i)); i++) {
        char number[32];
        printf("%-*s  %-*s  %-8s  %12s\n", name, label(c), shape,
               manta_shape_text(c->array.ndim, c->array.shape, text, sizeof text),
               manta_dtype_name(c->array.dtype),
               work_number((int64_t)manta_array_bytes(&c->array), number, sizeof number));
        bytes += manta_array_bytes(&c->array);
        count++;
    }
    printf("\n%d array%s, %.2f MB\n", count, count == 1 ? "" : "s", (double)bytes / 1e6);
}

static void arrays_json(const arrays *a, const char *path)
{
    json_t *list = json_array();
    const manta_column *c;

    for (int i = 0; (c = column_at(a, i)); i++) {
        json_array_append_new(list, json_pack("{s:s, s:o, s:s, s:I}", "name", c->name, "shape",
                                              shape_list(c->array.ndim, c->array.shape), "dtype",
                                              manta_dtype_name(c->array.dtype), "bytes",
                                              (json_int_t)manta_array_bytes(&c->array)));
    }
    json_emit(json_pack("{s:s, s:s, s:o}", "kind", "arrays", "path", path, "arrays", list));
}

/* ---- which of the two ---- */

static void show_arrays(const arrays *a, const char *path, bool json)
{
    if (json) {
        arrays_json(a, path);
    } else {
        arrays_table(a);
    }
}

static bool is_npy(const char *what)
{
    const char *dot = strrchr(what, '.');

    return dot && !strcmp(dot, ".npy");
}

static int inspect_npy(const char *path, bool json)
{
    manta_arrays *a = NULL;

    if (manta_arrays_load(path, &a)) return cli_fail();
    show_arrays(&(arrays){.plain = a}, path, json);
    manta_arrays_free(a);
    return CLI_DONE;
}

/* A file of weights alone; -1 when it holds a model, or is no file. */
static int inspect_weights(const char *path, bool json)
{
    const char *format = manta_file_guess(path);
    manta_saved *s;
    manta_file_format f;
    int status = -1;

    for (int i = 0; format && manta_file_format_at(i, &f); i++) {
        if (!strcmp(f.name, format) && f.has_model) return -1;
    }
    if (!format) return -1;
    if (manta_file_read(path, NULL, &s)) return cli_fail();
    if (!manta_saved_model(s)) {
        show_arrays(&(arrays){.saved = s}, path, json);
        status = CLI_DONE;
    }
    manta_saved_free(s);
    return status;
}

static int inspect(const options *o)
{
    const char *what = options_arg(o, 0);
    bool json = options_flag(o, "json");
    manta_model *m = NULL;
    int status = is_npy(what) ? inspect_npy(what, json) : inspect_weights(what, json);

    if (status >= 0) return status;
    if (work_model(what, NULL, &m)) return cli_fail();
    if (json) {
        model_json(m);
    } else {
        model_table(m);
    }
    manta_model_free(m);
    return CLI_DONE;
}

const command cmd_inspect = {
    .name = "inspect",
    .args = "MODEL|FILE",
    .about = "Show the layers of a model, or the arrays in a file",
    .text = "MODEL is as for 'manta train'; FILE holds weights: .npz, .npy, .weights.h5, .safetensors and "
            "others.",
    .examples = "  manta inspect resnet18\n  manta inspect mnist-cnn.npz",
    .min_args = 1,
    .max_args = 1,
    .groups = {&inspecting},
    .run = inspect,
};
