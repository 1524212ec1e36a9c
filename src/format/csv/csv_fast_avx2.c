/* csv_fast_avx2.c - plain CSV records, 32 bytes or two numbers at a time.
 *
 * A field's number is found as in csv_fast_avx512.c: 16 bytes of it, its first ones
 * if it has more, so that the last lies at the end of a lane; the digits before the
 * point one to the right; one whole number, D, and a power of ten; and where D and
 * D + 1 of these, with the rounding errors against them, are the same float, that is
 * it. The form of a field is judged by what its bytes weigh (csv_number_avx2.inc). */
#include <immintrin.h>
#include <string.h>

#include "format/csv/csv_fast.h"

#define KERNEL csv_kernel_avx2
#include "format/csv/csv_doubt_avx2.inc"
#include "format/csv/csv_rows.inc"
#include "format/csv/csv_number_avx2.inc"

/* ---- numbers ----------------------------------------------------------------------------- */

#define PLACE 31

/* 10^(place of the point - 16); without a point, 1. More places than there are: a
 * field that is none may have any. */
static const double power[PLACE + 1] = {1e0,  1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8,
                                        1e-7, 1e-6,  1e-5,  1e-4,  1e-3,  1e-2,  1e-1,  1e0};

static inline __m256i places_of_lane(void)
{
    return _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16));
}

/* The 16 bytes before a and the 16 before b, '0' taken off. */
static inline __m256i two_windows(const uint8_t *a, const uint8_t *b)
{
    __m256i v = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(a - 16)));

    v = _mm256_inserti128_si256(v, _mm_loadu_si128((const __m128i *)(const void *)(b - 16)), 1);
    return _mm256_sub_epi8(v, _mm256_set1_epi8('0'));
}

static inline __m256i is_digit(__m256i v)
{
    return _mm256_cmpeq_epi8(_mm256_min_epu8(v, _mm256_set1_epi8(9)), v);
}

/* Two fields that end (or are cut) at a and b, of which `left` has how many bytes of
 * their lanes are before them. Gives the two halves of D in each lane, twice; *weight:
 * its sum, in either half. */
static inline __m256i read_two(const uint8_t *a, const uint8_t *b, __m256i left, __m256i *weight)
{
    const __m256i place = places_of_lane(), one = _mm256_set1_epi8(1);

    const __m256i not_point =
        _mm256_xor_si256(_mm256_add_epi8(place, _mm256_set1_epi8(WEIGHT_POINT)), _mm256_set1_epi8(-1));
    __m256i v = two_windows(a, b);
    __m256i in = _mm256_cmpgt_epi8(place, left);
    __m256i digit = _mm256_and_si256(is_digit(v), in);
    __m256i point = _mm256_cmpeq_epi8(v, _mm256_set1_epi8('.' - '0'));
    __m256i minus = _mm256_and_si256(_mm256_cmpeq_epi8(v, _mm256_set1_epi8('-' - '0')),
                                     _mm256_cmpeq_epi8(place, _mm256_add_epi8(left, one)));
    /* 255 for what is no digit; of that, what is too much is taken away. */
    __m256i w = _mm256_andnot_si256(digit, in);
    w = _mm256_andnot_si256(_mm256_and_si256(point, not_point), w);
    w = _mm256_andnot_si256(_mm256_and_si256(minus, _mm256_set1_epi8((char)~WEIGHT_MINUS)), w);
    w = _mm256_sad_epu8(w, _mm256_setzero_si256());
    w = _mm256_add_epi64(w, _mm256_shuffle_epi32(w, 0x4e));
    __m256i dot = _mm256_shuffle_epi8(_mm256_and_si256(w, _mm256_set1_epi8(PLACE)), _mm256_setzero_si256());
    __m256i d = _mm256_and_si256(digit, v);
    d = _mm256_blendv_epi8(_mm256_bslli_epi128(d, 1), d, _mm256_cmpgt_epi8(place, dot));
    d = _mm256_madd_epi16(_mm256_maddubs_epi16(d, _mm256_set1_epi16(0x010a)), _mm256_set1_epi32(0x00010064));
    *weight = w;
    return _mm256_madd_epi16(_mm256_packus_epi32(d, d), _mm256_set1_epi32(0x00012710));
}

/* Four fields, the first and third in p, the second and fourth in q, as doubles. */
static inline __m256d join_four(__m256i p, __m256i q)
{
    __m256i v = _mm256_permute4x64_epi64(_mm256_unpacklo_epi32(p, q), 0xd8);
    __m256d high = _mm256_cvtepi32_pd(_mm256_castsi256_si128(v));
    __m256d low = _mm256_cvtepi32_pd(_mm256_extracti128_si256(v, 1));

    return _mm256_add_pd(_mm256_mul_pd(high, _mm256_set1_pd(1e8)), low); /* the product is exact */
}

/* The powers of ten of four weights. */
static inline __m256d powers_of_four(__m256i weight)
{
    uint64_t place[4] __attribute__((aligned(32)));

    _mm256_store_si256((__m256i *)(void *)place, _mm256_and_si256(weight, _mm256_set1_epi64x(PLACE)));
    return _mm256_setr_pd(power[place[0]], power[place[1]], power[place[2]], power[place[3]]);
}

static inline __m256 eight_floats(__m256d a, __m256d b, double times)
{
    const __m256d t = _mm256_set1_pd(times);

    return _mm256_set_m128(_mm256_cvtpd_ps(_mm256_mul_pd(b, t)), _mm256_cvtpd_ps(_mm256_mul_pd(a, t)));
}

/* Of eight fields of n bytes, those with more than 16: whether what was cut off is
 * digits, 16 bytes at most. */
static bool tails_are_digits(const uint8_t *at, const uint32_t *ends, __m256i n)
{
    const __m256i place = places_of_lane(), two_lanes = _mm256_set1_epi32(32);

    /* Each number in all four bytes. */
    const __m256i spread =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    __m256i left = _mm256_sub_epi32(two_lanes, n), wrong = _mm256_cmpgt_epi32(n, two_lanes);

    left = _mm256_shuffle_epi8(_mm256_and_si256(left, _mm256_set1_epi32(63)), spread);
    for (int i = 0; i < 8; i += 2) {
        __m256i lanes = _mm256_setr_epi32(i, i, i, i, i + 1, i + 1, i + 1, i + 1);
        __m256i in = _mm256_cmpgt_epi8(place, _mm256_permutevar8x32_epi32(left, lanes));
        __m256i digit = is_digit(two_windows(at + ends[i], at + ends[i + 1]));
        wrong = _mm256_or_si256(wrong, _mm256_andnot_si256(digit, in));
    }
    return _mm256_testz_si256(wrong, wrong);
}

/* Eight fields. Not 0: one of them may be another number or none, or is too long and
 * without a point among its first bytes, so that its power of ten is not known. In line,
 * so that what is the same for all fields is made once. */
static inline __attribute__((always_inline)) uint8_t eight(const uint8_t *at, size_t from,
                                                           const uint32_t *ends, float *x)
{
    const __m256i sixteen_bytes = _mm256_set1_epi32(16), ones = _mm256_set1_epi32(1);

    const __m256i spread =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
    __m256i end = _mm256_loadu_si256((const __m256i *)(const void *)ends);
    __m256i begin =
        _mm256_add_epi32(_mm256_permutevar8x32_epi32(end, _mm256_setr_epi32(0, 0, 1, 2, 3, 4, 5, 6)), ones);
    uint32_t stop[8] __attribute__((aligned(32)));
    __m256i w[4], d[4];

    begin = _mm256_blend_epi32(begin, _mm256_set1_epi32((int)from), 1);
    __m256i n = _mm256_sub_epi32(end, begin), taken = _mm256_min_epu32(n, sixteen_bytes);
    _mm256_store_si256((__m256i *)(void *)stop, _mm256_add_epi32(begin, taken));
    __m256i left = _mm256_shuffle_epi8(_mm256_sub_epi32(sixteen_bytes, taken), spread);
    for (int i = 0; i < 4; i++) {
        int k = i / 2 * 4 + i % 2; /* 0 and 2, 1 and 3, 4 and 6, 5 and 7 */
        __m256i lanes = _mm256_setr_epi32(k, k, k, k, k + 2, k + 2, k + 2, k + 2);
        d[i] = read_two(at + stop[k], at + stop[k + 2], _mm256_permutevar8x32_epi32(left, lanes), &w[i]);
    }
    __m256i weight_a = _mm256_unpacklo_epi64(w[0], w[1]), weight_b = _mm256_unpacklo_epi64(w[2], w[3]);
    __m256d a = join_four(d[0], d[1]), b = join_four(d[2], d[3]), by_a = powers_of_four(weight_a),
            by_b = powers_of_four(weight_b);
    __m256 f = eight_floats(_mm256_mul_pd(a, by_a), _mm256_mul_pd(b, by_b), 1 - 0x1p-50);
    __m256i weight =
        _mm256_permute4x64_epi64(_mm256_castps_si256(_mm256_shuffle_ps(_mm256_castsi256_ps(weight_a),
                                                                       _mm256_castsi256_ps(weight_b), 0x88)),
                                 0xd8);
    /* 1 for a minus, 2 for a point; a field of nothing else is no number */
    __m256i marks = _mm256_and_si256(_mm256_srli_epi32(weight, 5), _mm256_set1_epi32(3));
    __m256i count = _mm256_sub_epi32(marks, _mm256_srli_epi32(marks, 1));
    __m256i wrong = _mm256_or_si256(
        _mm256_cmpgt_epi32(weight, _mm256_set1_epi32(WEIGHT_MOST)),
        _mm256_and_si256(_mm256_cmpeq_epi32(n, count), _mm256_cmpgt_epi32(n, _mm256_setzero_si256())));
    __m256i more = _mm256_cmpgt_epi32(n, sixteen_bytes);
    if (!_mm256_testz_si256(more, more)) {
        const __m256d one = _mm256_set1_pd(1);
        __m256i more_a = _mm256_cvtepi32_epi64(_mm256_castsi256_si128(more));
        __m256i more_b = _mm256_cvtepi32_epi64(_mm256_extracti128_si256(more, 1));
        a = _mm256_add_pd(a, _mm256_and_pd(one, _mm256_castsi256_pd(more_a)));
        b = _mm256_add_pd(b, _mm256_and_pd(one, _mm256_castsi256_pd(more_b)));
        wrong =
            _mm256_or_si256(wrong, _mm256_and_si256(more, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), marks)));
        if (!tails_are_digits(at, ends, n)) wrong = _mm256_set1_epi32(-1);
    }
    __m256 g = eight_floats(_mm256_mul_pd(a, by_a), _mm256_mul_pd(b, by_b), 1 + 0x1p-50);
    __m256 apart = _mm256_or_ps(_mm256_cmp_ps(f, g, _CMP_NEQ_UQ), _mm256_castsi256_ps(wrong));
    __m256i sign = _mm256_and_si256(_mm256_slli_epi32(weight, 26), _mm256_set1_epi32(INT32_MIN));
    _mm256_storeu_ps(x, _mm256_xor_ps(f, _mm256_castsi256_ps(sign)));
    return (uint8_t)_mm256_movemask_ps(apart);
}

static bool all_fields(csv_rows *r)
{
    size_t from = 0;

    if (r->n < 4 * r->n_ends) return false; /* small numbers have a way that is faster still */
    for (size_t k = 0; k < r->n_ends; k += 8) {
        r->unsure[k / 8] = eight(r->at, from, r->ends + k, r->all + k);
        from = (size_t)r->ends[k + 7] + 1;
    }
    return true;
}

/* ---- separators -------------------------------------------------------------------------- */

/* Bits of the bytes of a and b that are equal to those of k and l. */
static inline uint64_t equal_bytes(__m256i a, __m256i b, __m256i k, __m256i l)
{
    return (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, k)) |
           (uint64_t)(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(b, l)) << 32;
}

/* Writes four places whether there are so many or not: a loop of known length
 * has no branch to guess. */
static void find_ends(csv_rows *r)
{
    const uint8_t *at = r->at;
    uint32_t *ends = r->ends, *lines = r->lines, *odd = r->odd;
    size_t n = r->n, count = 0, ln = 0;
    uint64_t last = 1, last_comma = 0; /* whether the byte before is a separator; a comma */

    /* A byte is a separator when it is what this has at its lower four bits. */
    const __m256i kind =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\n', 0, ',', '\r', 0, 0));
    const __m256i comma = _mm256_set1_epi8(',');

    for (size_t i = 0; i < n; i += 64) {
        __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)(at + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(const void *)(at + i + 32));
        uint64_t m = equal_bytes(a, b, _mm256_shuffle_epi8(kind, a), _mm256_shuffle_epi8(kind, b));
        uint64_t commas = equal_bytes(a, b, comma, comma);
        if (n - i < 64) m &= ((uint64_t)1 << (n - i)) - 1;
        commas &= m;
        /* An empty field has a comma at one of its ends, and a separator at the other. */
        *odd = (uint32_t)i;
        odd += ((m & (commas << 1 | last_comma)) | (commas & (m << 1 | last))) != 0;
        last = m >> 63;
        last_comma = commas >> 63;
        uint64_t line = m & ~commas;
        for (; line; line &= line - 1) {
            lines[ln++] = (uint32_t)(count + (size_t)__builtin_popcountll(m & ((line & -line) - 1)));
        }
        uint32_t *to = ends + count;
        count += (size_t)__builtin_popcountll(m);
        do {
            for (int j = 0; j < 4; j++) {
                to[j] = (uint32_t)i + (uint32_t)__builtin_ctzll(m | (uint64_t)1 << 63);
                m &= m - 1;
            }
            to += 4;
        } while (m);
    }
    /* all_fields() looks at eight whether they are the record's or not. */
    for (int j = 0; j < 8; j++) ends[count + (size_t)j] = (uint32_t)n - 1;
    r->n_ends = count;
    r->n_lines = ln;
    *odd = UINT32_MAX;
}
