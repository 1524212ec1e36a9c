/* onnx.h - the parts of an ONNX export.
 *
 * A value of the model has up to two forms in the file: channels last, as our
 * operations have it, and channels first, as ONNX's convolutions want it. Each
 * form is made at most once, by a Transpose of the other, when something asks
 * for it; element-wise operations take whichever form there is. */
#ifndef FORMAT_ONNX_ONNX_H
#define FORMAT_ONNX_ONNX_H

#include <manta/onnx.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/map.h"
#include "format/model/model_file.h"
#include "nn/graph.h"

enum { ONNX_IR = 8, ONNX_OPSET = 17 };

/* ONNX's numbers for element types. */
enum {
    ONNX_F32 = 1,
    ONNX_U8 = 2,
    ONNX_I32 = 6,
    ONNX_I64 = 7,
    ONNX_BOOL = 9,
    ONNX_F16 = 10,
    ONNX_F64 = 11,
    ONNX_BF16 = 16
};

int onnx_dtype(manta_dtype t);

/* ---- the file being made ---- */

typedef struct onnx_forms {
    const char *last,
        *first; /* names; NULL: not made. Values that have not four dimensions have only `last` */
} onnx_forms;

typedef struct onnx_export {
    const manta_model *m;
    arena names;
    MAP(int) used; /* names of values and nodes */
    buf nodes, initializers; /* fields of the GraphProto */
    onnx_forms *values; /* per value of the model */
    const manta_array **weights; /* per variable */
    const char *scope; /* the layer's name, with which new names begin */
    size_t node; /* mark of the node being made */
    manta_status failed; /* the first failure of a weight asked for by name, where a name is the answer */
} onnx_export;

/* A name that no other has; lives as long as x. */
const char *onnx_name(onnx_export *x, const char *wanted);

/* A node: begin, attributes, end, which gives the name of its output. Inputs
 * may be "" where they are optional. */
void onnx_begin(onnx_export *x, const char *op, int n, const char *const *in);
void onnx_int(onnx_export *x, const char *name, int64_t v);
void onnx_ints(onnx_export *x, const char *name, int n, const int64_t *v);
void onnx_float(onnx_export *x, const char *name, float v);
void onnx_text(onnx_export *x, const char *name, const char *v);
const char *onnx_end(onnx_export *x);
void onnx_end_as(onnx_export *x, const char *output); /* ends the chain with a value of that very name */

/* Nodes without attributes. */
const char *onnx_unary(onnx_export *x, const char *op, const char *a);
const char *onnx_binary(onnx_export *x, const char *op, const char *a, const char *b);

/* Constants. Memory for floats is had before they are written: MANTA_ENOMEM. */
manta_status onnx_floats(onnx_export *x, const char *name, int ndim, const int64_t *shape, const float *v,
                         const char **out);
const char *onnx_number(onnx_export *x, float v); /* a scalar */
const char *onnx_int_list(onnx_export *x, int n, const int64_t *v);

/* ---- values ---- */

const char *onnx_last(onnx_export *x, int v); /* value v, channels last */
const char *onnx_first(onnx_export *x, int v); /* channels first; v has four dimensions */
/* Whether an operation that works on either form should take the channels-first one. */
bool onnx_prefers_first(const onnx_export *x, int v);
void onnx_set_last(onnx_export *x, int v, const char *name);
void onnx_set_first(onnx_export *x, int v, const char *name);

/* The elements of variable value v as float32, row-major: a copy (mem_try_free). */
manta_status onnx_weight(onnx_export *x, int v, float **out);

/* Adds the nodes of one operation. MANTA_EUNSUPPORTED, naming it and its layer. */
manta_status onnx_add_op(onnx_export *x, const graph_node *n);

/* ---- all of it ---- */

/* Adds the ModelProto of m, whose weights are the n arrays, to b. */
manta_status onnx_model(const manta_model *m, int n, const manta_column *arrays, buf *b);
/* Reads a model from data[0..size) as manta_onnx_read() reads one from a file; sentences
 * call it `name`. */
manta_status onnx_read_bytes(const char *name, const uint8_t *data, size_t size, manta_onnx **out);

/* The format is written only; reading fails with a sentence that says so. */
extern const model_format model_onnx;

#endif
