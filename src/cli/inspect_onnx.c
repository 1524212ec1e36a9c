/* inspect_onnx.c - an ONNX file: its ends, its weights, its operators. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <manta/onnx.h>

#include "cli/cli.h"
#include "cli/inspect.h"
#include "cli/json.h"
#include "cli/print.h"
#include "cli/table.h"
#include "cli/work.h"

/* The three lists of values, one after the other in the table. */
static const struct part {
    const char *one, *key;
    int (*count)(const manta_onnx *x);
    manta_onnx_value (*at)(const manta_onnx *x, int i);
} parts[] = {
    {"input", "inputs", manta_onnx_inputs, manta_onnx_input},
    {"output", "outputs", manta_onnx_outputs, manta_onnx_output},
    {"weight", "weights", manta_onnx_weights, manta_onnx_weight},
};

enum { PARTS = sizeof parts / sizeof *parts };

/* Elements of all weights of a floating-point kind: what a model learned, and the
 * few constants of its arithmetic. The others are shapes and indices. A product that no file could hold counts as 0. */
static int64_t count_parameters(const manta_onnx *x)
{
    int64_t sum = 0;

    for (int i = 0; i < manta_onnx_weights(x); i++) {
        manta_onnx_value v = manta_onnx_weight(x, i);
        int64_t n = 1;
        if (!strstr(v.dtype, "float")) continue;
        for (int d = 0; d < v.ndim; d++) {
            if (v.shape[d] < 0 || __builtin_mul_overflow(n, v.shape[d], &n)) n = 0;
        }
        if (__builtin_add_overflow(sum, n, &sum)) sum = INT64_MAX;
    }
    return sum;
}

static void show_table(const manta_onnx *x)
{
    static const char *const heads[] = {"", "name", "shape", "dtype", NULL};
    static const char *const op_heads[] = {"operator", ">times", NULL};
    table *t = table_new(heads);
    char text[256], number[32];

    for (int p = 0; p < PARTS; p++) {
        for (int i = 0; i < parts[p].count(x); i++) {
            manta_onnx_value v = parts[p].at(x, i);
            table_add(t, "%s", parts[p].one);
            table_add(t, "%s", v.name);
            table_add(t, "%s", v.ndim < 0 ? "?" : inspect_shape(v.ndim, v.shape, text, sizeof text));
            table_add(t, "%s", v.dtype);
        }
    }
    table_print(t);
    print_out("\n");
    t = table_new(op_heads);
    for (int i = 0; i < manta_onnx_ops(x); i++) {
        manta_onnx_op op = manta_onnx_op_at(x, i);
        table_add(t, "%s", op.name);
        table_add(t, "%" PRId64, op.count);
    }
    table_print(t);
    print_out("\n%s parameters; ONNX IR %" PRId64 ", opset %" PRId64,
              work_number(count_parameters(x), number, sizeof number), manta_onnx_ir_version(x),
              manta_onnx_opset(x));
    if (*manta_onnx_producer(x)) {
        print_out(", by ");
        print_out("%s", manta_onnx_producer(x));
    }
    print_out("\n");
}

static void show_json(const manta_onnx *x, const char *path)
{
    json_t *ops = json_array(), *o;

    for (int i = 0; i < manta_onnx_ops(x); i++) {
        manta_onnx_op op = manta_onnx_op_at(x, i);
        json_array_append_new(
            ops, json_pack("{s:o, s:I}", "name", json_text(op.name), "count", (json_int_t)op.count));
    }
    o = json_pack("{s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:o}", "kind", "onnx", "path", json_text(path), "name",
                  json_text(manta_onnx_graph(x)), "producer", json_text(manta_onnx_producer(x)), "ir_version",
                  (json_int_t)manta_onnx_ir_version(x), "opset", (json_int_t)manta_onnx_opset(x), "params",
                  (json_int_t)count_parameters(x), "operators", ops);
    for (int p = 0; p < PARTS; p++) {
        json_t *list = json_array();
        for (int i = 0; i < parts[p].count(x); i++) {
            manta_onnx_value v = parts[p].at(x, i);
            json_array_append_new(list,
                                  json_pack("{s:o, s:o, s:s}", "name", json_text(v.name), "shape",
                                            v.ndim < 0 ? json_null() : inspect_shape_json(v.ndim, v.shape),
                                            "dtype", v.dtype));
        }
        json_object_set_new(o, parts[p].key, list);
    }
    json_emit(o);
}

int inspect_onnx(const char *path, bool json)
{
    manta_onnx *x = NULL;

    if (manta_onnx_read(path, &x)) return cli_fail();
    if (json) {
        show_json(x, path);
    } else {
        show_table(x);
    }
    manta_onnx_free(x);
    return CLI_DONE;
}
