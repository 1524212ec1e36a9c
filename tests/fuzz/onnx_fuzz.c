/* onnx_fuzz.c - what is read of ONNX files. */
#include "format/onnx/onnx.h"
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t live = mem_live();
    manta_onnx *x = NULL;
    manta_status st = onnx_read_bytes("fuzz", data, size, &x);

    fuzz_expect(st);
    for (int i = 0; !st && i < manta_onnx_weights(x); i++) {
        manta_onnx_value v = manta_onnx_weight(x, i);
        if (!v.name || !v.dtype || v.ndim > MANTA_MAX_DIMS) abort();
    }
    for (int i = 0; !st && i < manta_onnx_inputs(x); i++) {
        if (manta_onnx_input(x, i).ndim > MANTA_MAX_DIMS) abort();
    }
    manta_onnx_free(x);
    fuzz_balance(live);
    return 0;
}
