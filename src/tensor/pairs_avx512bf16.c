/* pairs_avx512bf16.c - register tiles of pairs of bfloat16 numbers: vdpbf16ps
 * takes a pair of each side in each of sixteen lanes, which is twice the work of
 * an fma. The tiles are those of gemm_avx512.c.
 *
 * The instruction computes bf16_step() of tensor/bf16.h to the bit, and
 * vcvtneps2bf16 rounds as bf16_round() does; tests/unit/tensor/bf16_test.c holds
 * them against each other. */
#include "tensor/gemm_micro.h"

#include <immintrin.h>

/* v rounded to bfloat16, as floats. */
static inline __m512 round_lanes(__m512 v)
{
    const __m512i wide = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(v));

    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

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
#define VFMA(a, b, c)          _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#define VADD(a, b)             _mm512_add_ps(a, b)
#define VRELU(v)               _mm512_max_ps(_mm512_setzero_ps(), v)
#define VKEEP_POSITIVE(m, v)   _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(m, _mm512_setzero_ps(), _CMP_NLE_UQ), v)
#define VROUND(v)              round_lanes(v)

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

/* ---- pairs out of floats ---- */

static void pack_row(int64_t n, const float *src, float *dst)
{
    int64_t i = 0;

    for (; i + 32 <= n; i += 32) {
        const __m512bh v = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(src + i + 16), _mm512_loadu_ps(src + i));
        _mm512_storeu_si512(dst + i / 2, (__m512i)v);
    }
    for (; i < n; i += 16) {
        const __mmask16 here = MASK_FIRST(n - i < 16 ? n - i : 16);
        const __m256i v = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(here, src + i));
        const int64_t words = n - i < 16 ? (n - i + 1) / 2 : 8;
        _mm256_mask_storeu_epi32(dst + i / 2, (__mmask8)((1u << words) - 1u), v);
    }
}

static inline __m512 pair_lanes(__m512 even, __m512 odd)
{
    const __m512i e = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(even));
    const __m512i o = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(odd));

    return _mm512_castsi512_ps(_mm512_or_si512(e, _mm512_slli_epi32(o, 16)));
}

static void pack_two(int64_t n, const float *even, const float *odd, float *dst)
{
    for (int64_t i = 0; i < n; i += 16) {
        const __mmask16 here = MASK_FIRST(n - i < 16 ? n - i : 16);
        const __m512 e = _mm512_maskz_loadu_ps(here, even + i);
        const __m512 o = odd ? _mm512_maskz_loadu_ps(here, odd + i) : _mm512_setzero_ps();
        _mm512_mask_storeu_ps(dst + i, here, pair_lanes(e, o));
    }
}

#define PACK_TRANSPOSED gemm_pack_transposed_avx512
#include "tensor/bf16_take.inc"

const gemm_isa gemm_isa_pairs_avx512bf16 = {
    .lanes = 16,
    .max_vecs = 4,
    .max_rows = {0, 14, 14, 8, 6},
    .micro = {TILES(MICRO_ENTRY)},
    .products = run_products,
    .products_run = products_run,
    .chain = run_chain,
    .pair = 2,
    .pack = gemm_pack_avx512,
    .pack_transposed = gemm_pack_transposed_avx512,
    .take = take_panel,
    .take_transposed = take_transposed,
    .take_rows = take_rows,
};
