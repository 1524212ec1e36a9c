/* gemm_avx2.c - register tiles of 8 floats a vector: 16 registers hold twelve
 * accumulators (six rows of two vectors), the row of B and values of A. */
#include "tensor/gemm.h"
#include "tensor/gemm_micro.h"

#include <immintrin.h>

static const int32_t mask_words[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

#define LANES                  8
#define VEC                    __m256
#define MASK                   __m256i
#define MASK_FIRST(n)          _mm256_loadu_si256((const __m256i *)(mask_words + 8 - (n)))
#define VLOAD(p)               _mm256_loadu_ps(p)
#define VSTORE(p, v)           _mm256_storeu_ps(p, v)
#define VSTREAM(p, v)          _mm256_stream_ps(p, v)
#define VLOAD_MASKED(m, p)     _mm256_maskload_ps(p, m)
#define VSTORE_MASKED(m, p, v) _mm256_maskstore_ps(p, m, v)
#define VSET1(x)               _mm256_set1_ps(x)
#define VZERO()                _mm256_setzero_ps()
#define VFMA(a, b, c)          _mm256_fmadd_ps(a, b, c)
#define VADD(a, b)             _mm256_add_ps(a, b)
#define VRELU(v)               _mm256_max_ps(_mm256_setzero_ps(), v)
#define VKEEP_POSITIVE(m, v)   _mm256_and_ps(_mm256_cmp_ps(m, _mm256_setzero_ps(), _CMP_NLE_UQ), v)

#include "tensor/gemm_micro.inc"

/* clang-format off */
#define TILES(X)                                                                     \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1) X(9, 1) X(10, 1) \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
/* clang-format on */

TILES(MICRO)

static inline void transpose_8x8(const float *src, int64_t ld, float *dst, int64_t width)
{
    __m256 r[8], t[8];

    for (int i = 0; i < 4; i++) {
        /* Rows i and i + 4 share a vector, so the lanes need no crossing later. */
        const float *lo = src + i * ld, *hi = src + (i + 4) * ld;
        r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo)), _mm_loadu_ps(hi), 1);
        r[i + 4] =
            _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(lo + 4)), _mm_loadu_ps(hi + 4), 1);
    }
    for (int h = 0; h < 8; h += 4) {
        t[h] = _mm256_unpacklo_ps(r[h], r[h + 1]);
        t[h + 1] = _mm256_unpackhi_ps(r[h], r[h + 1]);
        t[h + 2] = _mm256_unpacklo_ps(r[h + 2], r[h + 3]);
        t[h + 3] = _mm256_unpackhi_ps(r[h + 2], r[h + 3]);
        float *d = dst + h * width;
        _mm256_storeu_ps(d, _mm256_shuffle_ps(t[h], t[h + 2], _MM_SHUFFLE(1, 0, 1, 0)));
        _mm256_storeu_ps(d + width, _mm256_shuffle_ps(t[h], t[h + 2], _MM_SHUFFLE(3, 2, 3, 2)));
        _mm256_storeu_ps(d + 2 * width, _mm256_shuffle_ps(t[h + 1], t[h + 3], _MM_SHUFFLE(1, 0, 1, 0)));
        _mm256_storeu_ps(d + 3 * width, _mm256_shuffle_ps(t[h + 1], t[h + 3], _MM_SHUFFLE(3, 2, 3, 2)));
    }
}

void gemm_pack_transposed_avx2(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst)
{
    int64_t j = 0;

    for (; j + 8 <= n; j += 8) {
        int64_t p = 0;
        for (; p + 8 <= k; p += 8) transpose_8x8(src + j * ld + p, ld, dst + p * width + j, width);
        for (; p < k; p++) {
            for (int64_t i = 0; i < 8; i++) dst[p * width + j + i] = src[(j + i) * ld + p];
        }
    }
    for (; j < width; j++) {
        for (int64_t p = 0; p < k; p++) dst[p * width + j] = j < n ? src[j * ld + p] : 0.0f;
    }
}

void gemm_pack_avx2(const float *src, int64_t ld, int64_t k, int64_t n, int64_t width, float *dst)
{
    const int64_t whole = n / 8 * 8;
    const __m256i tail = MASK_FIRST(n - whole);

    for (int64_t p = 0; p < k; p++, src += ld, dst += width) {
        int64_t j = 0;
        for (; j < whole; j += 8) _mm256_storeu_ps(dst + j, _mm256_loadu_ps(src + j));
        for (; j < width; j += 8) {
            _mm256_storeu_ps(dst + j, j == whole ? _mm256_maskload_ps(src + j, tail) : _mm256_setzero_ps());
        }
    }
}

static void take_rows(const float *src, int64_t ld, int64_t rows, int64_t k, int64_t width, float *dst)
{
    gemm_pack_avx2(src, ld, rows, k, width, dst);
}

const gemm_isa gemm_isa_avx2 = {
    .lanes = 8,
    .max_vecs = 2,
    .max_rows = {0, 10, 6},
    .micro = {TILES(MICRO_ENTRY)},
    .products = run_products,
    .products_run = products_run,
    .chain = run_chain,
    .pair = 1,
    .pack = gemm_pack_avx2,
    .pack_transposed = gemm_pack_transposed_avx2,
    .take = gemm_pack_avx2,
    .take_transposed = gemm_pack_transposed_avx2,
    .take_rows = take_rows,
};

void gemm_avx2(pool *p, const gemm_call *g)
{
    gemm_tiled(&gemm_isa_avx2, p, g);
}

void gemm_pair_avx2(pool *p, const gemm_call *first, const gemm_call *second)
{
    gemm_pair_tiled(&gemm_isa_avx2, p, first, second);
}
