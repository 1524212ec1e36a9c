/* csv_fast_avx2.c - plain CSV records, 32 bytes at a time. */
#include <immintrin.h>
#include <string.h>

#include "format/csv_fast.h"

/* Lanes that are not equal, of all numbers so far, and whether digits were cut
 * off a small number. */
typedef struct doubt {
    __m128 lanes;
    int cut;
} doubt;

static inline doubt doubt_none(void)
{
    return (doubt){.lanes = _mm_setzero_ps()};
}

static inline bool doubt_any(const doubt *d)
{
    return _mm_movemask_ps(d->lanes) | d->cut;
}

#define KERNEL csv_kernel_avx2
#include "format/csv_rows.inc"

/* Bits of the bytes of a and b that are equal to those of k and l. */
static inline uint64_t equal(__m256i a, __m256i b, __m256i k, __m256i l)
{
    return (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, k)) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(b, l)) << 32;
}

/* Writes eight places whether there are so many or not: a loop of known length
 * has no branch to guess. */
static void find_ends(csv_rows *r)
{
    const uint8_t *at = r->at;
    uint32_t *ends = r->ends, *lines = r->lines;
    size_t n = r->n, count = 0, ln = 0;
    /* A byte is a separator when it is what this has at its lower four bits. */
    const __m256i kind =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\n', 0, ',', '\r', 0, 0));
    const __m256i comma = _mm256_set1_epi8(',');

    for (size_t i = 0; i < n; i += 64) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(at + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(at + i + 32));
        uint64_t m = equal(a, b, _mm256_shuffle_epi8(kind, a), _mm256_shuffle_epi8(kind, b));
        uint64_t line = m & ~equal(a, b, comma, comma);
        if (n - i < 64) {
            m &= ((uint64_t)1 << (n - i)) - 1;
            line &= m;
        }
        for (; line; line &= line - 1) {
            lines[ln++] = (uint32_t)(count + (size_t)__builtin_popcountll(m & ((line & -line) - 1)));
        }
        uint32_t *to = ends + count;
        count += (size_t)__builtin_popcountll(m);
        do {
            for (int j = 0; j < 8; j++) {
                to[j] = (uint32_t)i + (uint32_t)__builtin_ctzll(m | (uint64_t)1 << 63);
                m &= m - 1;
            }
            to += 8;
        } while (m);
    }
    r->n_ends = count;
    r->n_lines = ln;
}

/* Sixteen digits, d[0] 10^15 + d[1] 10^14 + ..., as two numbers of eight. */
static inline __m128i sixteen(__m128i d)
{
    d = _mm_maddubs_epi16(d, _mm_set1_epi16(0x010a)); /* tens */
    d = _mm_madd_epi16(d, _mm_set1_epi32(0x00010064)); /* hundreds */
    d = _mm_packus_epi32(d, d);
    return _mm_madd_epi16(d, _mm_set1_epi32(0x00012710)); /* ten thousands */
}

/* All ones in the first n of sixteen bytes. */
static inline __m128i first(size_t n)
{
    static const uint8_t bytes[32] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                      0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

    return _mm_loadu_si128((const __m128i *)(const void *)(bytes + 16 - n));
}

/* Read through a pointer that the compiler cannot see through: it would make
 * them of general registers again for each number, and these moves cost more
 * than all the rest. */
static const uint8_t constants[64] __attribute__((aligned(64))) = {
    '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0',
    '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0', '0',
    9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,
    9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9,   9};

/* 10^(w - 8) and 10^(w - 16), for either sign. */
static const double scale[2][17][2] = {{{1e-8, 1e-16},
                                        {1e-7, 1e-15},
                                        {1e-6, 1e-14},
                                        {1e-5, 1e-13},
                                        {1e-4, 1e-12},
                                        {1e-3, 1e-11},
                                        {1e-2, 1e-10},
                                        {1e-1, 1e-9},
                                        {1e0, 1e-8},
                                        {1e1, 1e-7},
                                        {1e2, 1e-6},
                                        {1e3, 1e-5},
                                        {1e4, 1e-4},
                                        {1e5, 1e-3},
                                        {1e6, 1e-2},
                                        {1e7, 1e-1},
                                        {1e8, 1e0}},
                                       {{-1e-8, -1e-16},
                                        {-1e-7, -1e-15},
                                        {-1e-6, -1e-14},
                                        {-1e-5, -1e-13},
                                        {-1e-4, -1e-12},
                                        {-1e-3, -1e-11},
                                        {-1e-2, -1e-10},
                                        {-1e-1, -1e-9},
                                        {-1e0, -1e-8},
                                        {-1e1, -1e-7},
                                        {-1e2, -1e-6},
                                        {-1e3, -1e-5},
                                        {-1e4, -1e-4},
                                        {-1e5, -1e-3},
                                        {-1e6, -1e-2},
                                        {-1e7, -1e-1},
                                        {-1e8, -1e0}}};

/* The digits before the point and those behind it are brought together, so that
 * one conversion serves both: 12.345 is 12345 and eleven zeros, times 10^-14. It
 * is off by less than 2^-40 of itself; where that far above it and below it is
 * the same float, that float is right. */
static inline bool number(const uint8_t *at, size_t n, float *out, doubt *sum)
{
    const uint8_t *c = constants;
    size_t negative = at[0] == '-';

    __asm__("" : "+r"(c));
    at += negative;
    n -= negative;
    if (n - 1 > 30) return false; /* none, or too many for one look */
    __m256i zeros = _mm256_load_si256((const __m256i *)(const void *)c);
    __m256i nines = _mm256_load_si256((const __m256i *)(const void *)(c + 32));
    __m256i v = _mm256_sub_epi8(_mm256_loadu_si256((const __m256i *)(const void *)at), zeros);
    __m256i digit = _mm256_cmpeq_epi8(_mm256_min_epu8(v, nines), v);
    uint32_t end = 1u << n, other = (~(uint32_t)_mm256_movemask_epi8(digit) & (end - 1)) | end;
    size_t whole = (size_t)__builtin_ctz(other), digits = n;

    if (whole > 16) return false;
    __m128i d = _mm256_castsi256_si128(v);
    if (whole < n) { /* there is something else, which must be one point */
        if (at[whole] != '.' || (other & (other - 1)) != end || --digits == 0) return false;
        __m128i behind = _mm_loadu_si128((const __m128i *)(const void *)(at + 1));
        d = _mm_blendv_epi8(_mm_sub_epi8(behind, _mm256_castsi256_si128(zeros)), d, first(whole));
    }
    __m128i halves = sixteen(_mm_and_si128(d, first(digits < 16 ? digits : 16)));
    __m128d parts = _mm_mul_pd(_mm_cvtepi32_pd(halves), _mm_loadu_pd(scale[negative][whole]));
    __m128d x = _mm_add_pd(parts, _mm_shuffle_pd(parts, parts, 1)); /* the same in both lanes */
    __m128 f = _mm_cvtpd_ps(_mm_mul_pd(x, _mm_set_pd(1 + 0x1p-40, 1 - 0x1p-40)));
    sum->lanes = _mm_or_ps(sum->lanes, _mm_cmpneq_ps(f, _mm_shuffle_ps(f, f, 0xf1)));
    /* What was cut off may be a large part of a small number. No branch here
     * either: numbers have 16 digits or 17 as chance will have it. */
    sum->cut |= (int)(digits > 16) & (int)((uint32_t)(_mm_cvtsi128_si32(halves) - 100000) >> 31);
    _mm_store_ss(out, f);
    return true;
}

/* Numbers of up to four digits: each becomes a lane of four bytes, shifted until
 * its last digit is the last byte. */
static inline bool eight_small(const uint8_t *at, size_t from, const uint32_t *ends, float *x)
{
    const __m256i one = _mm256_set1_epi32(1), four = _mm256_set1_epi32(4);
    __m256i end = _mm256_loadu_si256((const __m256i *)(const void *)ends);
    __m256i begin =
        _mm256_add_epi32(_mm256_permutevar8x32_epi32(end, _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6)), one);

    begin = _mm256_blend_epi32(begin, _mm256_set1_epi32((int)from), 1);
    __m256i n = _mm256_sub_epi32(end, begin);
    __m256i wrong = _mm256_or_si256(_mm256_cmpgt_epi32(one, n), _mm256_cmpgt_epi32(n, four));
    if (!_mm256_testz_si256(wrong, wrong)) return false;
    __m256i v = _mm256_i32gather_epi32((const int *)(const void *)at, begin, 1);
    __m256i shift = _mm256_slli_epi32(_mm256_sub_epi32(four, n), 3);
    v = _mm256_sllv_epi32(_mm256_sub_epi8(v, _mm256_set1_epi8('0')), shift);
    wrong = _mm256_subs_epu8(v, _mm256_set1_epi8(9));
    if (!_mm256_testz_si256(wrong, wrong)) return false;
    v = _mm256_madd_epi16(_mm256_maddubs_epi16(v, _mm256_set1_epi16(0x010a)), _mm256_set1_epi32(0x00010064));
    _mm256_storeu_ps(x, _mm256_cvtepi32_ps(v));
    return true;
}
