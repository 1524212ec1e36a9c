/* onnx_read.c - what an ONNX file says of itself. */
#include <string.h>

#include "base/args.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/vec.h"
#include "format/codec/input.h"
#include "format/codec/proto.h"
#include "format/onnx/onnx.h"

typedef VEC(manta_onnx_value) onnx_values;

struct manta_onnx {
    int64_t ir, opset;
    char *producer, *graph; /* owned, may be NULL */
    onnx_values inputs, outputs, weights; /* names owned */
    MAP(int64_t) ops;
    bool has_graph;
};

static void release_values(onnx_values *v)
{
    for (size_t i = 0; i < v->n; i++) mem_free((char *)(uintptr_t)v->at[i].name);
    vec_release(v);
}

void manta_onnx_free(manta_onnx *x)
{
    if (!x) return;
    release_values(&x->inputs);
    release_values(&x->outputs);
    release_values(&x->weights);
    map_release(&x->ops);
    mem_free(x->producer);
    mem_free(x->graph);
    mem_free(x);
}

static const char *dtype_name(uint64_t t)
{
    static const char *const names[] = {"?",      "float32", "uint8",     "int8",       "uint16",  "int16",
                                        "int32",  "int64",   "string",    "bool",       "float16", "float64",
                                        "uint32", "uint64",  "complex64", "complex128", "bfloat16"};

    return t < sizeof names / sizeof *names ? names[t] : "?";
}

static void set_text(char **to, const proto_field *f)
{
    if (f->wire != PROTO_BYTES) return;
    mem_free(*to);
    *to = proto_take_text(f);
}

static void add_dim(manta_onnx_value *v, int64_t n)
{
    if (v->ndim < MANTA_MAX_DIMS) v->shape[v->ndim] = n;
    if (v->ndim <= MANTA_MAX_DIMS) v->ndim++;
}

/* Shape { 1: dim { 1: length | 2: name } } */
static bool read_shape(proto_reader r, manta_onnx_value *v)
{
    proto_field f, g;
    proto_step s, t;

    v->ndim = 0;
    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number != 1 || f.wire != PROTO_BYTES) continue;
        proto_reader dim = proto_inside(&f);
        int64_t n = -1;
        while ((t = proto_next(&dim, &g)) == PROTO_FIELD) {
            if (g.number == 1 && g.wire == PROTO_VARINT && g.value <= INT64_MAX) n = (int64_t)g.value;
        }
        if (t == PROTO_BAD) return false;
        add_dim(v, n);
    }
    return s == PROTO_END;
}

/* Type { 1: tensor { 1: element type  2: shape } } */
static bool read_type(proto_reader r, manta_onnx_value *v)
{
    proto_field f, g;
    proto_step s, t;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number != 1 || f.wire != PROTO_BYTES) continue;
        proto_reader tensor = proto_inside(&f);
        while ((t = proto_next(&tensor, &g)) == PROTO_FIELD) {
            if (g.number == 1 && g.wire == PROTO_VARINT) v->dtype = dtype_name(g.value);
            if (g.number == 2 && g.wire == PROTO_BYTES && !read_shape(proto_inside(&g), v)) return false;
        }
        if (t == PROTO_BAD) return false;
    }
    return s == PROTO_END;
}

static bool read_value(proto_reader r, onnx_values *to)
{
    manta_onnx_value v = {.dtype = "?", .ndim = -1};
    proto_field f;
    proto_step s;
    char *name = NULL;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1) set_text(&name, &f);
        if (f.number == 2 && f.wire == PROTO_BYTES && !read_type(proto_inside(&f), &v)) break;
    }
    v.name = name ? name : mem_strdup("");
    if (v.ndim > MANTA_MAX_DIMS) v.ndim = -1;
    vec_push(to, v);
    return s == PROTO_END;
}

static bool read_tensor(proto_reader r, onnx_values *to)
{
    manta_onnx_value v = {.dtype = "?"};
    proto_field f;
    proto_step s;
    char *name = NULL;
    uint64_t n;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1 && f.wire == PROTO_VARINT) add_dim(&v, (int64_t)f.value);
        if (f.number == 1 && f.wire == PROTO_BYTES) {
            proto_reader packed = proto_inside(&f);
            while (packed.at < packed.end && proto_take_varint(&packed, &n)) add_dim(&v, (int64_t)n);
            if (packed.at < packed.end) break;
        }
        if (f.number == 2 && f.wire == PROTO_VARINT) v.dtype = dtype_name(f.value);
        if (f.number == 8) set_text(&name, &f);
    }
    v.name = name ? name : mem_strdup("");
    if (v.ndim > MANTA_MAX_DIMS) v.ndim = -1;
    vec_push(to, v);
    return s == PROTO_END;
}

static bool read_node(manta_onnx *x, proto_reader r)
{
    proto_field f;
    proto_step s;
    char *op = NULL;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 4) set_text(&op, &f);
    }
    ++*map_put(&x->ops, op ? op : "");
    mem_free(op);
    return s == PROTO_END;
}

static bool read_graph(manta_onnx *x, proto_reader r)
{
    proto_field f;
    proto_step s;
    bool ok = true;

    x->has_graph = true;
    while (ok && (s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.wire != PROTO_BYTES) continue;
        switch (f.number) {
        case 1: ok = read_node(x, proto_inside(&f)); break;
        case 2: set_text(&x->graph, &f); break;
        case 5: ok = read_tensor(proto_inside(&f), &x->weights); break;
        case 11: ok = read_value(proto_inside(&f), &x->inputs); break;
        case 12: ok = read_value(proto_inside(&f), &x->outputs); break;
        default: break;
        }
    }
    return ok && s == PROTO_END;
}

/* Opset { 1: domain  2: version }; ONNX's own domain is "". */
static bool read_opset(manta_onnx *x, proto_reader r)
{
    proto_field f;
    proto_step s;
    int64_t version = 0;
    bool own = true;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1) own = f.n == 0 || proto_is_text(&f, "ai.onnx");
        if (f.number == 2 && f.wire == PROTO_VARINT) version = (int64_t)f.value;
    }
    if (own) x->opset = version;
    return s == PROTO_END;
}

static bool read_model(manta_onnx *x, proto_reader r)
{
    proto_field f;
    proto_step s;

    while ((s = proto_next(&r, &f)) == PROTO_FIELD) {
        if (f.number == 1 && f.wire == PROTO_VARINT) x->ir = (int64_t)f.value;
        if (f.number == 2) set_text(&x->producer, &f);
        if (f.number == 7 && f.wire == PROTO_BYTES && !read_graph(x, proto_inside(&f))) return false;
        if (f.number == 8 && f.wire == PROTO_BYTES && !read_opset(x, proto_inside(&f))) return false;
    }
    return s == PROTO_END;
}

manta_status onnx_read_bytes(const char *name, const uint8_t *data, size_t size, manta_onnx **out)
{
    manta_onnx *x = mem_new(sizeof *x);

    if (!read_model(x, proto_read(data, size)) || !x->has_graph || x->ir < 1) {
        manta_onnx_free(x);
        return manta_fail(MANTA_ECORRUPT, "%s: damaged or cut off, expected an ONNX model", name);
    }
    *out = x;
    return MANTA_OK;
}

manta_status manta_onnx_read(const char *path, manta_onnx **out)
{
    REFUSE_NULL(path);
    REFUSE_NULL(out);

    input in = {0};

    TRY(input_read(path, &in));
    manta_status st = onnx_read_bytes(path, in.data, in.size, out);
    input_release(&in);
    return st;
}

int64_t manta_onnx_ir_version(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, 0);
    return x->ir;
}

int64_t manta_onnx_opset(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, 0);
    return x->opset;
}

const char *manta_onnx_producer(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, NULL);
    return x->producer ? x->producer : "";
}

const char *manta_onnx_graph(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, NULL);
    return x->graph ? x->graph : "";
}

int manta_onnx_inputs(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, 0);
    return (int)x->inputs.n;
}

int manta_onnx_outputs(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, 0);
    return (int)x->outputs.n;
}

int manta_onnx_weights(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, 0);
    return (int)x->weights.n;
}

int manta_onnx_ops(const manta_onnx *x)
{
    REFUSE_NULL_OR(x, 0);
    return (int)x->ops.n;
}

manta_onnx_value manta_onnx_input(const manta_onnx *x, int i)
{
    REFUSE_NULL_OR(x, (manta_onnx_value){0});
    return x->inputs.at[i];
}

manta_onnx_value manta_onnx_output(const manta_onnx *x, int i)
{
    REFUSE_NULL_OR(x, (manta_onnx_value){0});
    return x->outputs.at[i];
}

manta_onnx_value manta_onnx_weight(const manta_onnx *x, int i)
{
    REFUSE_NULL_OR(x, (manta_onnx_value){0});
    return x->weights.at[i];
}

manta_onnx_op manta_onnx_op_at(const manta_onnx *x, int i)
{
    REFUSE_NULL_OR(x, (manta_onnx_op){0});
    return (manta_onnx_op){x->ops.at[i].key, x->ops.at[i].value};
}
