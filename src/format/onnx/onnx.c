/* onnx.c - a model as an ONNX file.
 *
 *   ModelProto  1: IR version  2: producer  3: its version  7: graph  8: opset {2: version}
 *   GraphProto  1: node  2: name  5: initializer  11: input  12: output
 *   ValueInfo   1: name  2: type {1: tensor {1: element type  2: shape {1: dim {1: length | 2: name}}}} */
#include "format/onnx/onnx.h"

#include <string.h>

#include <manta/version.h>

#include "base/args.h"
#include "base/mem.h"
#include "format/codec/proto.h"
#include "os/file.h"

#define LIMIT ((size_t)INT32_MAX) /* of a protobuf message */

static void add_value_info(buf *b, uint32_t field, const char *name, const manta_array *a)
{
    size_t info = proto_begin(b, field), type, tensor, shape, dim;

    proto_add_text(b, 1, name);
    type = proto_begin(b, 2);
    tensor = proto_begin(b, 1);
    proto_add_int(b, 1, onnx_dtype(a->dtype));
    shape = proto_begin(b, 2);
    for (int i = 0; i < a->ndim; i++) {
        dim = proto_begin(b, 1);
        if (a->shape[i] < 0) {
            proto_add_text(b, 2, "batch");
        } else {
            proto_add_int(b, 1, a->shape[i]);
        }
        proto_end(b, dim);
    }
    proto_end(b, shape);
    proto_end(b, tensor);
    proto_end(b, type);
    proto_end(b, info);
}

/* Finds the arrays of all variables before anything is made of them. */
static manta_status find_weights(onnx_export *x, int n, const manta_column *arrays)
{
    size_t bytes = 0;
    char given[96], expected[96];

    for (int i = 0; i < x->m->n_variables; i++) {
        const graph_variable *g = &x->m->variables[i];
        const manta_array *a = NULL;
        for (int k = 0; k < n && !a; k++) {
            if (arrays[k].name && !strcmp(arrays[k].name, g->name)) a = &arrays[k].array;
        }
        if (!a)
            return manta_fail(MANTA_ENOENT, "no array is called '%s', which model '%s' needs", g->name,
                              x->m->name);
        if (a->ndim != g->ndim || memcmp(a->shape, g->shape, (size_t)g->ndim * sizeof *g->shape)) {
            return manta_fail(MANTA_EINVAL, "array '%s' has shape %s, model '%s' expects %s", g->name,
                              manta_shape_text(a->ndim, a->shape, given, sizeof given), x->m->name,
                              manta_shape_text(g->ndim, g->shape, expected, sizeof expected));
        }
        x->weights[i] = a;
        bytes += (size_t)g->count * sizeof(float);
    }
    if (bytes <= LIMIT / 16 * 15) return MANTA_OK;
    return manta_fail(MANTA_EUNSUPPORTED, "model '%s' has %zu bytes of weights, an ONNX file holds 2 GiB",
                      x->m->name, bytes);
}

static const char *output_name(const onnx_export *x, int i)
{
    const manta_model *m = x->m;
    const graph_value *v = &m->values[m->outputs[i].value];

    if (m->outputs[i].name) return m->outputs[i].name;
    if (v->node >= 0 && m->nodes[v->node].layer >= 0) return m->layers[m->nodes[v->node].layer]->name;
    return "output";
}

static manta_status add_nodes(onnx_export *x)
{
    const manta_model *m = x->m;

    for (int i = 0; i < m->n_nodes; i++) {
        x->scope = m->nodes[i].layer >= 0 ? m->layers[m->nodes[i].layer]->name : NULL;
        TRY(onnx_add_op(x, &m->nodes[i]));
        if (x->failed) return x->failed;
    }
    x->scope = NULL;
    return MANTA_OK;
}

/* Names of inputs and outputs are promised, so they are taken before any other. */
static manta_status add_graph(onnx_export *x, buf *b)
{
    const manta_model *m = x->m;
    const char **outputs = arena_array(&x->names, (size_t)m->n_outputs + 1, sizeof *outputs);
    size_t graph;

    for (int i = 0; i < m->n_inputs; i++) {
        const char *name = m->inputs[i].name ? m->inputs[i].name : "input";
        onnx_set_last(x, m->inputs[i].value, onnx_name(x, name));
    }
    for (int i = 0; i < m->n_outputs; i++) outputs[i] = onnx_name(x, output_name(x, i));
    TRY(add_nodes(x));
    for (int i = 0; i < m->n_outputs; i++) {
        const char *from = onnx_last(x, m->outputs[i].value);
        onnx_begin(x, "Identity", 1, &from);
        onnx_end_as(x, outputs[i]);
        if (x->failed) return x->failed;
    }
    TRY(buf_try_reserve(b, x->nodes.n + x->initializers.n + 4096, "an ONNX file"));
    graph = proto_begin(b, 7);
    buf_add(b, x->nodes.at, x->nodes.n);
    proto_add_text(b, 2, m->name && m->name[0] ? m->name : "model");
    buf_add(b, x->initializers.at, x->initializers.n);
    for (int i = 0; i < m->n_inputs; i++) {
        add_value_info(b, 11, x->values[m->inputs[i].value].last, &m->values[m->inputs[i].value].a);
    }
    for (int i = 0; i < m->n_outputs; i++)
        add_value_info(b, 12, outputs[i], &m->values[m->outputs[i].value].a);
    proto_end(b, graph);
    return MANTA_OK;
}

manta_status onnx_model(const manta_model *m, int n, const manta_column *arrays, buf *b)
{
    onnx_export x = {.m = m};
    manta_status st;

    x.values = mem_new((size_t)(m->n_values + 1) * sizeof *x.values);
    x.weights = mem_new((size_t)(m->n_variables + 1) * sizeof *x.weights);
    if ((st = find_weights(&x, n, arrays))) goto out;
    proto_add_int(b, 1, ONNX_IR);
    proto_add_text(b, 2, "manta");
    proto_add_text(b, 3, MANTA_VERSION_TEXT);
    size_t opset = proto_begin(b, 8);
    proto_add_int(b, 2, ONNX_OPSET);
    proto_end(b, opset);
    if ((st = add_graph(&x, b))) goto out;
    if (b->n > LIMIT)
        st = manta_fail(MANTA_EUNSUPPORTED, "model '%s' is too large for an ONNX file", m->name);
out:
    buf_release(&x.nodes);
    buf_release(&x.initializers);
    arena_release(&x.names);
    map_release(&x.used);
    mem_free(x.values);
    mem_free(x.weights);
    return st;
}

manta_status manta_onnx_write(const char *path, const manta_model *m, int n, const manta_column *arrays)
{
    REFUSE_NULL(path);
    REFUSE_NULL(m);
    REFUSE_ARRAY(n, arrays);

    buf b = {0};
    manta_status st;

    if (!m->built) return manta_fail(MANTA_EINVAL, "%s: the model is not built", path);
    st = onnx_model(m, n, arrays, &b);
    if (!st) st = file_replace(path, b.at, b.n);
    buf_release(&b);
    return st;
}

/* ---- the format -------------------------------------------------------------------------- */

static model_match probe_onnx(const char *path, const uint8_t *head, size_t n)
{
    (void)head;
    (void)n;

    return model_path_ends(path, ".onnx") ? MODEL_NAME : MODEL_NO;
}

static manta_status read_onnx(const char *path, const manta_read_options *o, manta_saved *s)
{
    (void)o;
    (void)s;

    return manta_fail(MANTA_EUNSUPPORTED, "%s: ONNX files are written, not read", path);
}

static manta_status write_onnx(const char *path, const manta_contents *c)
{
    if (!c->model)
        return manta_fail(MANTA_EINVAL, "%s: an ONNX file needs a model, and only weights are given", path);
    return manta_onnx_write(path, c->model, c->n_arrays, c->arrays);
}

const model_format model_onnx = {.name = "onnx",
                                 .about = "an ONNX model for inference",
                                 .ending = ".onnx",
                                 .has_model = true,
                                 .probe = probe_onnx,
                                 .read = read_onnx,
                                 .write = write_onnx};
