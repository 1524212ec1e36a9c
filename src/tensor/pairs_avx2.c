/* pairs_avx2.c - register tiles of pairs of bfloat16 numbers for processors
 * without an instruction for them: a pair is taken apart by a mask and a shift,
 * and multiplied by two fma. As fast as floats, and no faster.
 *
 * Denormals have to count as zeros within a sum, and only there. The processor
 * does that at no cost while two bits of its control word are set, but a compiler
 * does not know that arithmetic depends on that word and may move it across the
 * change. So a tile has two parts: the sum, a function of its own that is never
 * inlined, between the two changes; and what comes after the sum (bias, relu,
 * mask, rounding), behind them, on the result in memory. */
#include "tensor/bf16.h"
#include "tensor/gemm_micro.h"

#include <immintrin.h>

#define ELEM_FLOATS 8
#include "tensor/simd.h"

static const int32_t mask_words[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

/* bf16_step() in every lane, while denormals count as zeros. */
static inline __m256 step_lanes(__m256 a, __m256 b, __m256 acc)
{
    const __m256 odd = _mm256_castsi256_ps(_mm256_set1_epi32((int)0xFFFF0000u));
    const __m256 a_even = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a), 16));
    const __m256 b_even = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(b), 16));

    acc = _mm256_fmadd_ps(_mm256_and_ps(a, odd), _mm256_and_ps(b, odd), acc);
    return _mm256_fmadd_ps(a_even, b_even, acc);
}

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
#define VFMA(a, b, c)          step_lanes(a, b, c)
#define VADD(a, b)             _mm256_add_ps(a, b)
#define VRELU(v)               _mm256_max_ps(_mm256_setzero_ps(), v)
#define VKEEP_POSITIVE(m, v)   _mm256_and_ps(_mm256_cmp_ps(m, _mm256_setzero_ps(), _CMP_NLE_UQ), v)

#include "tensor/gemm_micro.inc"

enum { DENORMALS_ARE_ZERO = 0x0040, FLUSH_TO_ZERO = 0x8000 };

static inline unsigned begin_sum(void)
{
    const unsigned before = _mm_getcsr();

    _mm_setcsr(before | DENORMALS_ARE_ZERO | FLUSH_TO_ZERO);
    __asm__ volatile("" ::: "memory");
    return before;
}

static inline void end_sum(unsigned before)
{
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(before);
}

/* What comes after a sum, on `rows` rows of `cols` results. */
typedef struct sum_end {
    float *c;
    const float *bias, *mask;
    int64_t rows, cols, rs_c, rs_mask;
    bool relu, round;
} sum_end;

static void finish_rows(const sum_end *e)
{
    if (!e->bias && !e->relu && !e->mask && !e->round) return;
    for (int64_t r = 0; r < e->rows; r++) {
        float *c = e->c + r * e->rs_c;
        if (e->bias) {
            SIMD for (int64_t j = 0; j < e->cols; j++) c[j] += e->bias[j];
        }
        if (e->relu) {
            SIMD for (int64_t j = 0; j < e->cols; j++) c[j] = 0.0f > c[j] ? 0.0f : c[j];
        }
        if (e->mask) {
            const float *mask = e->mask + r * e->rs_mask;
            SIMD for (int64_t j = 0; j < e->cols; j++) c[j] = mask[j] <= 0.0f ? 0.0f : c[j];
        }
        if (e->round) {
            SIMD for (int64_t j = 0; j < e->cols; j++) c[j] = bf16_round(c[j]);
        }
    }
}

static void run_tile(const gemm_tile *t, int rows, gemm_micro_fn *sum)
{
    const sum_end end = {.c = t->c,
                         .bias = t->bias,
                         .mask = t->mask,
                         .rows = rows,
                         .cols = t->cols,
                         .rs_c = t->rs_c,
                         .rs_mask = t->rs_mask,
                         .relu = t->relu,
                         .round = t->round};
    gemm_tile plain = *t;

    plain.bias = plain.mask = NULL;
    plain.relu = plain.round = plain.stream = false;
    const unsigned before = begin_sum();
    sum(&plain);
    end_sum(before);
    finish_rows(&end);
}

/* clang-format off */
#define TILES(X)                                                                     \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1)                                  \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2)
/* clang-format on */

#undef MICRO
#define MICRO(rows, vecs)                                                                                    \
    static __attribute__((noinline)) void sum_##rows##x##vecs(const gemm_tile *t)                            \
    {                                                                                                        \
        micro_body(rows, vecs, t);                                                                           \
    }                                                                                                        \
    static void micro_##rows##x##vecs(const gemm_tile *t)                                                    \
    {                                                                                                        \
        run_tile(t, rows, sum_##rows##x##vecs);                                                              \
    }

TILES(MICRO)

static void sum_end_of_products(const gemm_products *t, int64_t count)
{
    finish_rows(&(sum_end){.c = t->c,
                           .bias = t->bias,
                           .mask = t->mask,
                           .rows = count,
                           .cols = t->n,
                           .rs_c = t->step_c,
                           .rs_mask = t->step_c,
                           .relu = t->relu,
                           .round = t->round});
}

static __attribute__((noinline)) void sum_products(const gemm_products *t)
{
    run_products(t);
}

static __attribute__((noinline)) void sum_nine(const gemm_products *t)
{
    products_run(t);
}

static __attribute__((noinline)) void sum_chain(const gemm_chain *t)
{
    run_chain(t);
}

static void flushed_products(const gemm_products *t)
{
    gemm_products plain = *t;

    plain.bias = plain.mask = NULL;
    plain.relu = plain.round = false;
    const unsigned before = begin_sum();
    sum_products(&plain);
    end_sum(before);
    sum_end_of_products(t, 1);
}

static void flushed_nine(const gemm_products *t)
{
    gemm_products plain = *t;

    plain.bias = plain.mask = NULL;
    plain.relu = plain.round = false;
    const unsigned before = begin_sum();
    sum_nine(&plain);
    end_sum(before);
    sum_end_of_products(t, t->count);
}

static void flushed_chain(const gemm_chain *t)
{
    const unsigned before = begin_sum();

    sum_chain(t);
    end_sum(before);
}

/* ---- pairs out of floats ---- */

/* Pairs lie among floats: a word is stored as the float of its bits. */
static inline float pair_word(float even, float odd)
{
    return half_float(bf16_pair(even, odd));
}

static void pack_row(int64_t n, const float *src, float *dst)
{
    const int64_t whole = n / 2;

    SIMD for (int64_t i = 0; i < whole; i++) dst[i] = pair_word(src[2 * i], src[2 * i + 1]);
    if (n % 2) dst[whole] = pair_word(src[n - 1], 0.0f);
}

static void pack_two(int64_t n, const float *even, const float *odd, float *dst)
{
    if (odd) {
        SIMD for (int64_t i = 0; i < n; i++) dst[i] = pair_word(even[i], odd[i]);
    } else {
        SIMD for (int64_t i = 0; i < n; i++) dst[i] = pair_word(even[i], 0.0f);
    }
}

#define PACK_TRANSPOSED gemm_pack_transposed_avx2
#include "tensor/bf16_take.inc"

const gemm_isa gemm_isa_pairs_avx2 = {
    .lanes = 8,
    .max_vecs = 2,
    .max_rows = {0, 6, 4},
    .micro = {TILES(MICRO_ENTRY)},
    .products = flushed_products,
    .products_run = flushed_nine,
    .chain = flushed_chain,
    .pair = 2,
    .pack = gemm_pack_avx2,
    .pack_transposed = gemm_pack_transposed_avx2,
    .take = take_panel,
    .take_transposed = take_transposed,
    .take_rows = take_rows,
};
