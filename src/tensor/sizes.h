/* sizes.h - the sizes at which tensor/ changes its ways, in one place: where a sum, a row or a task is cut,
 * and from where on another loop is the faster one. Those of sums over rows and of weight gradients belong to
 * the definition of a result (reduce.inc, conv.h); no other shows in one. Each is tested one below, at, one
 * above and ten times, on every family (tests/unit/tensor/sizes_test.c). */
#ifndef TENSOR_SIZES_H
#define TENSOR_SIZES_H

enum {
    /* gemm.c: steps of the sum, rows and columns in one block. */
    GEMM_KC = 256,
    GEMM_MC = 256,
    GEMM_NC = 512,
    /* gemm.c: places of a pair's task, and how many of them at a time in the second product: the sink finds
     * its tile in the first cache. */
    GEMM_PAIR = 128,
    GEMM_PAIR_ROWS = 32,
    /* gemm.c: fewer rows than this are not divided before the columns. */
    GEMM_ROWS_FIRST = 64,
    /* gemm.c: fewer rows than this read B too seldom to pay for packing it. */
    GEMM_ROWS_TO_PACK = 12,
    /* gemm.c: floats; wide panels of a narrow B are as good unpacked for a batch of rows. */
    GEMM_NEAR = 64,
    /* gemm.c: products below this many steps are not worth a second thread. */
    GEMM_SMALL = 1 << 18,
    /* gemm_reference.c: elements handed to a sink at a time. */
    GEMM_RUN = 256,

    /* conv_tiled.c: floats of a weight that stays in the first-level cache as it is. */
    CONV_TINY_WEIGHT = 6 << 10,
    /* conv_tiled.c: rows of a task, enough to repay packing the panel, and at least. */
    CONV_TASK_ROWS = 256,
    CONV_MIN_TASK_ROWS = 32,
    /* conv_tiled.c: columns of a task. */
    CONV_WIDE = 64,
    /* conv_walk.c: elements of a weight that give every thread tiles of its own; else the batch is cut into
     * so many chunks. */
    CONV_LARGE_WEIGHT = 8192,
    CONV_CHUNKS = 16,
    /* conv_walk.c: positions; above it rows of a map are long enough to sum along. */
    CONV_SMALL_MAP = 64,
    CONV_FEW_CHANNELS = 8,
    /* conv_walk.c: columns that fill a register tile well enough. */
    CONV_LONG_RUN = 8,
    /* conv_weights.c: steps of the sum in one block. */
    CONV_SUM_BLOCK = 512,
    /* conv_weights.c: rows of a task; inputs of few channels have more, which share what is read of dy. */
    CONV_SUM_ROWS = 32,
    CONV_SUM_ROWS_FEW = 64,
    /* conv_weights.c: rows that repay packing dy. */
    CONV_SUM_PACK_ROWS = 12,
    /* conv_weights.c: elements of one task that adds partial results; channels of a depthwise one. */
    CONV_ADD_RUN = 4096,
    CONV_DEPTHWISE_RUN = 128,

    /* elem.inc: elements of a task, less is not worth another thread; what a short repeating operand is widened to. */
    ELEM_GRAIN = 16384,
    ELEM_WIDENED = 1024,
    /* reduce.inc: rows that are summed in float; rows of a chunk at least; chunks at most. */
    REDUCE_SPAN = 64,
    REDUCE_CHUNK_LEAST = 256,
    REDUCE_CHUNKS_MOST = 64,
    /* reduce.inc: columns of a task and of a strip at most. */
    REDUCE_COLUMNS = 256,
    REDUCE_STRIP = 16384,
    /* reduce.inc: what a few channels are repeated to. */
    REDUCE_WIDE = 64,
    /* windows.inc: channels of a backward task at least, where there are that many; at a time forward. */
    WINDOW_CHANNELS = 128,
    WINDOW_PART = 64,
    /* update.inc: elements at a time. */
    UPDATE_TILE = 64,
    /* copy.c: elements of a task, side of a transposed block, elements gathered for a conversion. */
    COPY_GRAIN = 16384,
    COPY_SQUARE = 32,
    COPY_RUN = 256,
    /* convert.c: elements at a time. */
    CONVERT_BLOCK = 256,
    /* stream.h: floats from which on a result is written past the caches. */
    STREAM_FROM = 1 << 20,
};

#endif
