/* tensor/gemm_micro.h - what a matrix product needs of an instruction set.
 *
 * The drivers (gemm.c, conv.c, conv_weights.c) are plain C and know no vectors.
 * They cut the work into register tiles and hand each to a function of this
 * table. A tile is `rows` x `cols` of the result; its sum runs through a list
 * of segments, each a stretch of the summed index in which A and B move by
 * constant strides:
 *
 *     A(r, p) = seg.a[r * rs_a + p * cs_a]      one value, spread over a vector
 *     B(p, j) = seg.b[p * rs_b + j]             `vecs` vectors side by side
 *
 * Convolutions are segments too: one per kernel row or tap, so nothing is ever
 * unrolled into a matrix first. */
#ifndef TENSOR_GEMM_MICRO_H
#define TENSOR_GEMM_MICRO_H

#include "tensor/kernel.h"

enum {
    GEMM_MAX_VECS = 4,
    GEMM_MAX_ROWS = 14,
    GEMM_MAX_COLS = 64,
    GEMM_MAX_SEGS = 128 /* segments of one tile; longer lists are continued in a second call */
};

typedef struct gemm_seg {
    const float *a, *b;
    int64_t k;
} gemm_seg;

/* One register tile. B is read in whole vectors: past the last of `cols` there
 * must be readable memory up to a vector's end (packed panels have it). C, bias
 * and mask are touched in the first `cols` columns only. */
typedef struct gemm_tile {
    const gemm_seg *seg;
    int n_seg;
    int cols; /* (vecs - 1) * lanes < cols <= vecs * lanes */
    int64_t rs_a, cs_a, rs_b;
    int64_t b_first; /* added to seg.b: which columns of the segments this tile is */
    int64_t row; /* added to the row index of A: which rows of the segments this tile is */
    float *c;
    int64_t rs_c;
    bool stream; /* C is written past the caches; it and its rows lie on whole vectors */
    bool load; /* the accumulators start from C, else from +0 */
    bool relu;
    const float *bias; /* for column 0 of the tile, or NULL */
    const float *mask; /* for element (0, 0) of the tile, or NULL */
    int64_t rs_mask;
    bool round; /* to bfloat16, at last; by the tiles of pairs alone */
} gemm_tile;

typedef void gemm_micro_fn(const gemm_tile *t);

/* c[j] = the chain over the segments of seg.a[j] * seg.b[j], for each of `n`
 * columns alone: convolutions that do not mix channels. The rest as in a tile. */
typedef struct gemm_products {
    const gemm_seg *seg;
    int n_seg;
    int64_t n;
    float *c;
    bool load, relu, round;
    const float *bias, *mask;
    int64_t count, step_a,
        step_c; /* products_run: pixels, and from one to the next in seg.a and in c, mask */
} gemm_products;

/* c[j] += the chain over `count` pixels of a[j] * b[j], for each of `n` columns alone. */
typedef struct gemm_chain {
    const float *a, *b;
    float *c;
    int64_t n, count, step_a, step_b;
} gemm_chain;

typedef struct gemm_isa {
    int lanes; /* floats in a vector */
    int max_vecs; /* widest tile, in vectors */
    int max_rows[GEMM_MAX_VECS + 1]; /* tallest tile of that many vectors */
    gemm_micro_fn *micro[GEMM_MAX_VECS + 1][GEMM_MAX_ROWS + 1];
    void (*products)(const gemm_products *t);
    void (*products_run)(const gemm_products *t); /* products() of `count` pixels, of nine segments each */
    void (*chain)(const gemm_chain *t);
    int pair; /* floats that make a word of A or B: 1, the float itself; 2, a pair of bfloat16 (tensor/bf16.h) */
    /* dst(p, j) at dst[p * width + j] = src[p * ld + j], columns [n, width) zero. */
    void (*pack)(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst);
    /* dst(p, j) at dst[p * width + j] = src[j * ld + p], columns [n, width) zero. */
    void (*pack_transposed)(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst);
    /* As these two, from floats to words: word p of a column is made of rows p * pair on, and there are
     * ceil(k / pair) of them. At most GEMM_MAX_COLS columns of a transposed one. */
    void (*take)(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst);
    void (*take_transposed)(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst);
    /* dst(r, p) at dst[r * width + p] = the words of row r of src, of k floats; columns behind them are left. */
    void (*take_rows)(const float *src, int64_t ld, int64_t rows, int64_t k, int64_t width, float *dst);
} gemm_isa;

extern const gemm_isa gemm_isa_avx2;
extern const gemm_isa gemm_isa_avx512;

/* The instruction sets for matrices A and B of pairs of bfloat16 numbers in place of floats (tensor/bf16.h): a step
 * of a sum is bf16_step(). */
extern const gemm_isa gemm_isa_pairs_avx2;
extern const gemm_isa gemm_isa_pairs_avx512bf16;

/* Packing of words, which looks at no number. */
void gemm_pack_avx2(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst);
void gemm_pack_transposed_avx2(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst);
void gemm_pack_avx512(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst);
void gemm_pack_transposed_avx512(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width,
                                 float *dst);

/* All `rows` rows of a panel that `t` describes, in tiles as even as can be. */
void gemm_rows(const gemm_isa *isa, const gemm_tile *t, int64_t rows);

/* The product by tiles of that instruction set. */
void gemm_tiled(const gemm_isa *isa, pool *p, const gemm_call *g);

/* Both products of gemm_pair() in tensor/kernel.h, part by part. */
void gemm_pair_tiled(const gemm_isa *isa, pool *p, const gemm_call *first, const gemm_call *second);

#endif
