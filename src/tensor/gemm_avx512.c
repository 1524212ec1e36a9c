/* gemm_avx512.c - register tiles of 16 floats a vector: 32 registers hold up
 * to 26 or 28 accumulators, the row of B and one value of A. */
#include "tensor/gemm.h"
#include "tensor/gemm_micro.h"

#include <immintrin.h>

#define LANES                  16
#define VEC                    __m512
#define MASK                   __mmask16
#define MASK_FIRST(n)          ((__mmask16)((1u << (n)) - 1u))
#define VLOAD(p)               _mm512_loadu_ps(p)
#define VSTORE(p, v)           _mm512_storeu_ps(p, v)
#define VSTREAM(p, v)          _mm512_stream_ps(p, v)
#define VLOAD_MASKED(m, p)     _mm512_maskz_loadu_ps(m, p)
#define VSTORE_MASKED(m, p, v) _mm512_mask_storeu_ps(p, m, v)
#define VSET1(x)               _mm512_set1_ps(x)
#define VZERO()                _mm512_setzero_ps()
#define VFMA(a, b, c)          _mm512_fmadd_ps(a, b, c)
#define VADD(a, b)             _mm512_add_ps(a, b)
#define VRELU(v)               _mm512_max_ps(_mm512_setzero_ps(), v)
#define VKEEP_POSITIVE(m, v)   _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(m, _mm512_setzero_ps(), _CMP_NLE_UQ), v)

#include "tensor/gemm_micro.inc"

/* clang-format off */
#define TILES(X)                                                                              \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1) X(11, 1) \
    X(12, 1) X(13, 1) X(14, 1)                                                                \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2) X(7, 2) X(8, 2) X(9, 2) X(10, 2) X(11, 2) \
    X(12, 2) X(13, 2) X(14, 2)                                                                \
    X(1, 3) X(2, 3) X(3, 3) X(4, 3) X(5, 3) X(6, 3) X(7, 3) X(8, 3)                           \
    X(1, 4) X(2, 4) X(3, 4) X(4, 4) X(5, 4) X(6, 4)
/* clang-format on */

TILES(MICRO)

/* Transposes 16x16: quarters of four rows are gathered into each vector while
 * loading, so that two rounds of shuffles within lanes remain. */
static inline __m512 quarters(const float *p, int64_t ld4)
{
    __m512 v = _mm512_castps128_ps512(_mm_loadu_ps(p));

    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + ld4), 1);
    v = _mm512_insertf32x4(v, _mm_loadu_ps(p + 2 * ld4), 2);
    return _mm512_insertf32x4(v, _mm_loadu_ps(p + 3 * ld4), 3);
}

static inline void transpose_16x4(const float *src, int64_t ld, float *dst, int64_t width)
{
    /* r0 holds rows 0, 4, 8, 12, columns 0-3 of each; r1 rows 1, 5, 9, 13; ... */
    const __m512 r0 = quarters(src, 4 * ld), r1 = quarters(src + ld, 4 * ld);
    const __m512 r2 = quarters(src + 2 * ld, 4 * ld), r3 = quarters(src + 3 * ld, 4 * ld);
    const __m512 t0 = _mm512_unpacklo_ps(r0, r1), t1 = _mm512_unpackhi_ps(r0, r1);
    const __m512 t2 = _mm512_unpacklo_ps(r2, r3), t3 = _mm512_unpackhi_ps(r2, r3);

    _mm512_storeu_ps(dst, _mm512_shuffle_ps(t0, t2, _MM_SHUFFLE(1, 0, 1, 0)));
    _mm512_storeu_ps(dst + width, _mm512_shuffle_ps(t0, t2, _MM_SHUFFLE(3, 2, 3, 2)));
    _mm512_storeu_ps(dst + 2 * width, _mm512_shuffle_ps(t1, t3, _MM_SHUFFLE(1, 0, 1, 0)));
    _mm512_storeu_ps(dst + 3 * width, _mm512_shuffle_ps(t1, t3, _MM_SHUFFLE(3, 2, 3, 2)));
}

void gemm_pack_transposed_avx512(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width,
                                 float *dst)
{
    int64_t j = 0;

    for (; j + 16 <= n; j += 16) {
        int64_t p = 0;
        for (; p + 4 <= k; p += 4) transpose_16x4(src + j * ld + p, ld, dst + p * width + j, width);
        for (; p < k; p++) {
            for (int64_t i = 0; i < 16; i++) dst[p * width + j + i] = src[(j + i) * ld + p];
        }
    }
    for (; j < width; j++) {
        for (int64_t p = 0; p < k; p++) dst[p * width + j] = j < n ? src[j * ld + p] : 0.0f;
    }
}

void gemm_pack_avx512(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst)
{
    const int64_t whole = n / 16 * 16;
    const __mmask16 tail = MASK_FIRST(n - whole);

    for (int64_t p = 0; p < k; p++, src += ld, dst += width) {
        int64_t j = 0;
        for (; j < whole; j += 16) _mm512_storeu_ps(dst + j, _mm512_loadu_ps(src + j));
        for (; j < width; j += 16) {
            _mm512_storeu_ps(dst + j,
                             j == whole ? _mm512_maskz_loadu_ps(tail, src + j) : _mm512_setzero_ps());
        }
    }
}

static void take_rows(const float *src, int64_t ld, int64_t rows, int64_t k, int64_t width, float *dst)
{
    gemm_pack_avx512(src, ld, rows, k, width, dst);
}

const gemm_isa gemm_isa_avx512 = {
    .lanes = 16,
    .max_vecs = 4,
    .max_rows = {0, 14, 14, 8, 6},
    .micro = {TILES(MICRO_ENTRY)},
    .products = run_products,
    .products_run = products_run,
    .chain = run_chain,
    .pair = 1,
    .pack = gemm_pack_avx512,
    .pack_transposed = gemm_pack_transposed_avx512,
    .take = gemm_pack_avx512,
    .take_transposed = gemm_pack_transposed_avx512,
    .take_rows = take_rows,
};

void gemm_avx512(pool *p, const gemm_call *g)
{
    gemm_tiled(&gemm_isa_avx512, p, g);
}

void gemm_pair_avx512(pool *p, const gemm_call *first, const gemm_call *second)
{
    gemm_pair_tiled(&gemm_isa_avx512, p, first, second);
}
