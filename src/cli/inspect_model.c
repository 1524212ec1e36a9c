/* inspect_model.c - a model: layer by layer, with what its file says beside it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/table.h"
#include "cli/work.h"

/* The dtypes of the model's variables in the file: "float32", "float16, float32"; "" without weights. */
static const char *dtypes_of(const manta_model *m, const manta_saved *s, char *buf, size_t size)
{
    bool seen[MANTA_DTYPE_COUNT] = {false};

    *buf = '\0';
    for (int i = 0; s && i < manta_model_variables(m); i++) {
        const manta_array *a = manta_saved_find(s, manta_model_variable(m, i).name);
        size_t n = strlen(buf);
        if (!a || seen[a->dtype]) continue;
        seen[a->dtype] = true;
        snprintf(buf + n, size - n, "%s%s", n ? ", " : "", manta_dtype_name(a->dtype));
    }
    return buf;
}

static void layers_table(const manta_model *m)
{
    static const char *const heads[] = {"layer", "class", "output shape", ">parameters", "", NULL};
    table *t = table_new(heads);
    char text[256], number[32];

    for (int i = 0; i < manta_model_layers(m); i++) {
        manta_layer_info l = manta_model_layer(m, i);
        table_add(t, "%s", l.name);
        table_add(t, "%s", l.class_name);
        table_add(t, "%s", inspect_shape(l.ndim, l.shape, text, sizeof text));
        table_add(t, "%s", work_number(l.params, number, sizeof number));
        table_add(t, "%s", l.frozen ? "frozen" : "");
    }
    table_print(t);
}

static void end_line(const char *word, int i, const manta_array *a, const char *name)
{
    char text[256];

    print_out("%-10s ", i ? "" : word);
    print_out("%s", name ? name : "");
    print_out("%s%s %s\n", name ? " " : "", manta_dtype_name(a->dtype),
              inspect_shape(a->ndim, a->shape, text, sizeof text));
}

static void file_lines(const manta_model *m, const manta_saved *s)
{
    const char *version = manta_saved_note(s, "keras_version"), *by = manta_saved_note(s, "written_by"),
               *name;
    char text[128];

    for (int i = 0; i < manta_model_inputs(m); i++) {
        manta_array a = manta_model_input(m, i, &name);
        end_line("input", i, &a, name);
    }
    for (int i = 0; i < manta_model_outputs(m); i++) {
        manta_array a = manta_model_output(m, i, &name);
        end_line("output", i, &a, name);
    }
    dtypes_of(m, s, text, sizeof text);
    print_out("weights    %s\n", *text ? text : "none in this file");
    inspect_compiled(s);
    if (by) {
        print_out("written by %s\n", by);
        return;
    }
    if (!version) return;
    print_out("written by Keras %s\n", version);
}

static void model_table(const manta_model *m, const manta_saved *s)
{
    int64_t all = manta_model_params(m, false), trained = manta_model_params(m, true);
    char text[64], number[32];

    layers_table(m);
    print_out("\n%s parameters", work_number(all, number, sizeof number));
    if (trained != all) print_out(", %s of them trained", work_number(trained, number, sizeof number));
    print_out(" (%s)\n", inspect_size(all * 4, text, sizeof text));
    if (s) file_lines(m, s);
}

static json_t *layers_json(const manta_model *m)
{
    json_t *list = json_array();

    for (int i = 0; i < manta_model_layers(m); i++) {
        manta_layer_info l = manta_model_layer(m, i);
        json_array_append_new(list, json_pack("{s:o, s:s, s:o, s:I, s:b}", "name", json_text(l.name), "class",
                                              l.class_name, "shape", inspect_shape_json(l.ndim, l.shape),
                                              "params", (json_int_t)l.params, "frozen", l.frozen));
    }
    return list;
}

/* dtype is the file's, null where it holds none. */
static json_t *variables_json(const manta_model *m, const manta_saved *s)
{
    json_t *list = json_array();

    for (int i = 0; i < manta_model_variables(m); i++) {
        manta_variable_info v = manta_model_variable(m, i);
        const manta_array *a = s ? manta_saved_find(s, v.name) : NULL;
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:s?, s:b}", "name", json_text(v.name), "shape",
                                        inspect_shape_json(v.ndim, v.shape), "dtype",
                                        a ? manta_dtype_name(a->dtype) : NULL, "trainable", v.trainable));
    }
    return list;
}

static json_t *end_json(const manta_array *a, const char *name)
{
    return json_pack("{s:o, s:s, s:o}", "name", name ? json_text(name) : json_null(), "dtype",
                     manta_dtype_name(a->dtype), "shape", inspect_shape_json(a->ndim, a->shape));
}

static void model_json(const manta_model *m, const manta_saved *s, const char *path)
{
    json_t *inputs = json_array(), *outputs = json_array(), *o;
    const char *name;

    for (int i = 0; i < manta_model_inputs(m); i++) {
        manta_array a = manta_model_input(m, i, &name);
        json_array_append_new(inputs, end_json(&a, name));
    }
    for (int i = 0; i < manta_model_outputs(m); i++) {
        manta_array a = manta_model_output(m, i, &name);
        json_array_append_new(outputs, end_json(&a, name));
    }
    o = json_pack("{s:s, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "kind", "model", "name",
                  json_text(manta_model_name(m)), "params", (json_int_t)manta_model_params(m, false),
                  "trainable_params", (json_int_t)manta_model_params(m, true), "inputs", inputs, "outputs",
                  outputs, "layers", layers_json(m), "variables", variables_json(m, s));
    if (s) {
        const char *version = manta_saved_note(s, "keras_version"), *by = manta_saved_note(s, "written_by");
        json_object_set_new(o, "path", json_text(path));
        json_object_set_new(o, "format", json_string(manta_saved_format(s)));
        json_object_set_new(o, "keras_version", version ? json_text(version) : json_null());
        json_object_set_new(o, "written_by", by ? json_text(by) : json_null());
        inspect_compiled_json(s, o);
    }
    json_emit(o);
}

void inspect_model(const manta_model *m, const manta_saved *s, const char *path, bool json)
{
    if (json) {
        model_json(m, s, path);
    } else {
        model_table(m, s);
    }
}
