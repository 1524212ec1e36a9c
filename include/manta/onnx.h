/* manta/onnx.h - models for other people's inference: ONNX files.
 *
 * A built model and its weights become one ModelProto (IR version 8, opset 17)
 * that computes what the model computes in inference: dropout is gone, batch
 * norm takes its moving statistics. Inputs and outputs keep their names,
 * shapes and layout; inside, convolutions run channels first, with a Transpose
 * only where a value enters or leaves such a stretch. The batch stays free. */
#ifndef MANTA_ONNX_H
#define MANTA_ONNX_H

#include <manta/data.h>
#include <manta/model.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes the file so that it appears whole or not at all. `arrays` hold the
 * model's variables under their names (others are passed over), in any dtype
 * and strides; they are written as float32.
 * MANTA_ENOENT a variable is missing; MANTA_EINVAL one has another shape;
 * MANTA_EUNSUPPORTED an operation that ONNX has no words for (a program's
 * own), or weights of more than 2 GiB. */
MANTA_API manta_status manta_onnx_write(const char *path, const manta_model *m, int n,
                                        const manta_column *arrays) MANTA_MUST_USE;

/* ---- looking into one -------------------------------------------------------- */

typedef struct manta_onnx manta_onnx;

/* An input, an output or a weight. */
typedef struct manta_onnx_value {
    const char *name; /* borrowed */
    const char *dtype; /* "float32"; "?" for one that NumPy has not */
    int ndim; /* -1: not said */
    int64_t shape[MANTA_MAX_DIMS]; /* -1: free */
} manta_onnx_value;

/* An operator and how often it occurs. */
typedef struct manta_onnx_op {
    const char *name; /* borrowed */
    int64_t count;
} manta_onnx_op;

/* Reads what an ONNX file says of itself; weights are not loaded.
 * *out: owned, manta_onnx_free(). MANTA_ECORRUPT no ONNX model. */
MANTA_API manta_status manta_onnx_read(const char *path, manta_onnx **out) MANTA_MUST_USE;
MANTA_API void manta_onnx_free(manta_onnx *x); /* accepts NULL */

MANTA_API int64_t manta_onnx_ir_version(const manta_onnx *x);
MANTA_API int64_t manta_onnx_opset(const manta_onnx *x); /* of the default domain; 0: none */
MANTA_API const char *manta_onnx_producer(const manta_onnx *x); /* "" when not said */
MANTA_API const char *manta_onnx_graph(const manta_onnx *x); /* name of the graph */
MANTA_API int manta_onnx_inputs(const manta_onnx *x);
MANTA_API int manta_onnx_outputs(const manta_onnx *x);
MANTA_API int manta_onnx_weights(const manta_onnx *x);
MANTA_API int manta_onnx_ops(const manta_onnx *x); /* different ones */
MANTA_API manta_onnx_value manta_onnx_input(const manta_onnx *x, int i);
MANTA_API manta_onnx_value manta_onnx_output(const manta_onnx *x, int i);
MANTA_API manta_onnx_value manta_onnx_weight(const manta_onnx *x, int i);
MANTA_API manta_onnx_op manta_onnx_op_at(const manta_onnx *x, int i); /* in order of first appearance */

#ifdef __cplusplus
}
#endif
#endif
