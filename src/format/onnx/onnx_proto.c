/* onnx_proto.c - nodes, attributes and tensors of an ONNX file.
 *
 *   NodeProto       1: input  2: output  3: name  4: operator  5: attribute
 *   AttributeProto  1: name  2: f  3: i  4: s  8: ints  20: type (1 float, 2 int, 3 string, 7 ints)
 *   TensorProto     1: dims  2: type  8: name  9: raw data, little endian */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "data/convert.h"
#include "format/codec/elements.h"
#include "format/codec/proto.h"
#include "format/onnx/onnx.h"

int onnx_dtype(manta_dtype t)
{
    switch (t) {
    case MANTA_DTYPE_F32: return ONNX_F32;
    case MANTA_DTYPE_F64: return ONNX_F64;
    case MANTA_DTYPE_F16: return ONNX_F16;
    case MANTA_DTYPE_BF16: return ONNX_BF16;
    case MANTA_DTYPE_I32: return ONNX_I32;
    case MANTA_DTYPE_I64: return ONNX_I64;
    case MANTA_DTYPE_U8: return ONNX_U8;
    case MANTA_DTYPE_BOOL: return ONNX_BOOL;
    default: return 0;
    }
}

const char *onnx_name(onnx_export *x, const char *wanted)
{
    const char *name = wanted;

    for (int i = 1; map_find(&x->used, name); i++) name = arena_printf(&x->names, "%s_%d", wanted, i);
    *map_put(&x->used, name) = 1;
    return arena_strdup(&x->names, name);
}

/* ---- nodes ---------------------------------------------------------------------------- */

static char *lower_name(onnx_export *x, const char *op)
{
    char *s = arena_printf(&x->names, "%s%s%s", x->scope ? x->scope : "", x->scope ? "/" : "", op);

    for (char *p = s + (x->scope ? strlen(x->scope) : 0); *p; p++) {
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p - 'A' + 'a');
    }
    return s;
}

void onnx_begin(onnx_export *x, const char *op, int n, const char *const *in)
{
    x->node = proto_begin(&x->nodes, 1);
    for (int i = 0; i < n; i++) proto_add_text(&x->nodes, 1, in[i]);
    proto_add_text(&x->nodes, 3, onnx_name(x, lower_name(x, op)));
    proto_add_text(&x->nodes, 4, op);
}

void onnx_end_as(onnx_export *x, const char *output)
{
    proto_add_text(&x->nodes, 2, output);
    proto_end(&x->nodes, x->node);
}

const char *onnx_end(onnx_export *x)
{
    const char *name =
        onnx_name(x, arena_printf(&x->names, "%s%sout", x->scope ? x->scope : "", x->scope ? "/" : ""));

    onnx_end_as(x, name);
    return name;
}

const char *onnx_unary(onnx_export *x, const char *op, const char *a)
{
    onnx_begin(x, op, 1, &a);
    return onnx_end(x);
}

const char *onnx_binary(onnx_export *x, const char *op, const char *a, const char *b)
{
    const char *in[] = {a, b};

    onnx_begin(x, op, 2, in);
    return onnx_end(x);
}

/* ---- attributes ----------------------------------------------------------------------- */

static size_t begin_attribute(onnx_export *x, const char *name, int type)
{
    size_t m = proto_begin(&x->nodes, 5);

    proto_add_text(&x->nodes, 1, name);
    proto_add_int(&x->nodes, 20, type);
    return m;
}

void onnx_int(onnx_export *x, const char *name, int64_t v)
{
    size_t m = begin_attribute(x, name, 2);

    proto_add_int(&x->nodes, 3, v);
    proto_end(&x->nodes, m);
}

void onnx_ints(onnx_export *x, const char *name, int n, const int64_t *v)
{
    size_t m = begin_attribute(x, name, 7);

    for (int i = 0; i < n; i++) proto_add_int(&x->nodes, 8, v[i]);
    proto_end(&x->nodes, m);
}

void onnx_float(onnx_export *x, const char *name, float v)
{
    size_t m = begin_attribute(x, name, 1);

    proto_add_float(&x->nodes, 2, v);
    proto_end(&x->nodes, m);
}

void onnx_text(onnx_export *x, const char *name, const char *v)
{
    size_t m = begin_attribute(x, name, 3);

    proto_add_text(&x->nodes, 4, v);
    proto_end(&x->nodes, m);
}

/* ---- constants ------------------------------------------------------------------------ */

static void add_tensor(buf *b, const char *name, int dtype, int ndim, const int64_t *shape, const void *data,
                       size_t n)
{
    size_t m = proto_begin(b, 5);

    for (int i = 0; i < ndim; i++) proto_add_int(b, 1, shape[i]);
    proto_add_int(b, 2, dtype);
    proto_add_text(b, 8, name);
    proto_add_bytes(b, 9, data, n);
    proto_end(b, m);
}

manta_status onnx_floats(onnx_export *x, const char *name, int ndim, const int64_t *shape, const float *v,
                         const char **out)
{
    size_t n = sizeof *v;

    for (int i = 0; i < ndim; i++) n *= (size_t)shape[i];
    TRY(buf_try_reserve(&x->initializers, n + strlen(name) + 160, "the weights of an ONNX file"));
    *out = onnx_name(x, name);
    add_tensor(&x->initializers, *out, ONNX_F32, ndim, shape, v, n);
    return MANTA_OK;
}

const char *onnx_number(onnx_export *x, float v)
{
    char text[64];
    const char *name;

    snprintf(text, sizeof text, "constant_%.9g", (double)v);
    if (map_find(&x->used, text)) return arena_strdup(&x->names, text); /* the same text is the same number */
    name = onnx_name(x, text);
    add_tensor(&x->initializers, name, ONNX_F32, 0, NULL, &v, sizeof v);
    return name;
}

const char *onnx_int_list(onnx_export *x, int n, const int64_t *v)
{
    const char *name = onnx_name(x, "constant_shape");

    add_tensor(&x->initializers, name, ONNX_I64, 1, (int64_t[]){n}, v, (size_t)n * sizeof *v);
    return name;
}

/* ---- values --------------------------------------------------------------------------- */

void onnx_set_last(onnx_export *x, int v, const char *name)
{
    x->values[v].last = name;
}

void onnx_set_first(onnx_export *x, int v, const char *name)
{
    x->values[v].first = name;
}

bool onnx_prefers_first(const onnx_export *x, int v)
{
    return x->values[v].first != NULL;
}

/* A variable enters the file when it is first asked for as it is. */
static const char *variable_name(onnx_export *x, int v)
{
    const graph_variable *g = &x->m->variables[x->m->values[v].variable];
    const char *name = NULL;
    float *data = NULL;

    manta_status st = onnx_weight(x, v, &data);
    if (!st) st = onnx_floats(x, g->name, g->ndim, g->shape, data, &name);
    if (st && !x->failed) x->failed = st;
    mem_try_free(data);
    return name;
}

const char *onnx_last(onnx_export *x, int v)
{
    onnx_forms *f = &x->values[v];

    if (!f->last && x->m->values[v].variable >= 0) f->last = variable_name(x, v);
    if (!f->last && f->first) {
        onnx_begin(x, "Transpose", 1, &f->first);
        onnx_ints(x, "perm", 4, (int64_t[]){0, 2, 3, 1});
        f->last = onnx_end(x);
    }
    return f->last ? f->last : "";
}

const char *onnx_first(onnx_export *x, int v)
{
    onnx_forms *f = &x->values[v];

    if (!f->first) {
        const char *last = onnx_last(x, v);
        onnx_begin(x, "Transpose", 1, &last);
        onnx_ints(x, "perm", 4, (int64_t[]){0, 3, 1, 2});
        f->first = onnx_end(x);
    }
    return f->first;
}

typedef struct converting {
    manta_dtype from;
    float *to;
} converting;

static manta_status convert_run(void *ctx, const void *data, size_t n)
{
    converting *c = ctx;
    int64_t count = (int64_t)(n / manta_dtype_size(c->from));

    convert_to_f32(data, c->from, count, 1, c->to);
    c->to += count;
    return MANTA_OK;
}

manta_status onnx_weight(onnx_export *x, int v, float **out)
{
    const manta_array *a = x->weights[x->m->values[v].variable];
    int64_t n = manta_array_count(a);
    void *to = NULL;

    TRY(mem_try_array(n ? n : 1, sizeof **out, "the weights of an ONNX file", &to));
    *out = to;
    return elements_each(a, convert_run, &(converting){a->dtype, to});
}
