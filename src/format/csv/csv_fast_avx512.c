/* csv_fast_avx512.c - plain CSV records, 64 bytes or eight numbers at a time.
 *
 * Of each field 16 bytes are taken, its first ones if it has more, so that the last
 * lies at the end of a lane:
 *
 *     . . . . . . . . - 1 2 . 3 4 5 6     v
 *     0 0 0 0 0 0 0 0 0 1 2 . 3 4 5 6     only digits, and where the point is
 *     0 0 0 0 0 0 0 0 0 0 1 2 3 4 5 6     what is before the point, one to the right
 *
 * which is one whole number, D, and a power of ten. What was left off is less
 * than one unit of D: the number lies between D and D + 1 of these. Where both,
 * each with the rounding errors against it, are the same float, that is it.
 * The form of a field is judged by what its bytes weigh (csv_number_avx2.inc). */
#include <immintrin.h>
#include <string.h>

#include "format/csv/csv_fast.h"

#define KERNEL csv_kernel_avx512
#include "format/csv/csv_doubt_avx2.inc"
#include "format/csv/csv_rows.inc"
#include "format/csv/csv_number_avx2.inc"

/* ---- separators -------------------------------------------------------------------------- */

/* In a general register: the compiler would go on in mask registers, which are slow
 * at arithmetic, the more so for "and not". */
static inline uint64_t hold_in_general(uint64_t mask)
{
    __asm__("" : "+r"(mask));
    return mask;
}

static void find_ends(csv_rows *r)
{
    const uint8_t *at = r->at;
    uint32_t *ends = r->ends, *lines = r->lines, *odd = r->odd;
    size_t n = r->n, count = 0, ln = 0;

    /* A byte is a separator when it is what this has at its lower four bits. */
    const __m512i kind =
        _mm512_broadcast_i32x4(_mm_setr_epi8(1, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\n', 0, ',', '\r', 0, 0));
    const __m512i places = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    uint64_t last = 1, last_comma = 0; /* whether the byte before is a separator; a comma */

    for (size_t i = 0; i < n; i += 64) {
        __m512i v = _mm512_loadu_si512(at + i);
        uint64_t all = n - i < 64 ? ((uint64_t)1 << (n - i)) - 1 : UINT64_MAX;
        uint64_t s = hold_in_general(_mm512_mask_cmpeq_epi8_mask(all, v, _mm512_shuffle_epi8(kind, v)));
        uint64_t comma = s & hold_in_general(_mm512_cmpeq_epi8_mask(v, _mm512_set1_epi8(',')));
        /* An empty field has a comma at one of its ends, and a separator at the other. */
        *odd = (uint32_t)i;
        odd += ((s & (comma << 1 | last_comma)) | (comma & (s << 1 | last))) != 0;
        last = s >> 63;
        last_comma = comma >> 63;
        /* One line's end is noted whether there is one or not, which spares a branch that cannot be guessed. */
        uint64_t line = s ^ comma;
        do {
            lines[ln] = (uint32_t)(count + (size_t)__builtin_popcountll(s & ((line & -line) - 1)));
            ln += line != 0;
            line &= line - 1;
        } while (line);
        for (unsigned j = 0; j < 64; j += 16) {
            __mmask16 k = (__mmask16)(s >> j);
            unsigned found = (unsigned)__builtin_popcount(k);
            __m512i place =
                _mm512_maskz_compress_epi32(k, _mm512_add_epi32(places, _mm512_set1_epi32((int)(i + j))));
            if (found <= 4) { /* a store over two cache lines takes long */
                _mm_storeu_si128((__m128i *)(void *)(ends + count), _mm512_castsi512_si128(place));
            } else {
                _mm512_storeu_si512(ends + count, place);
            }
            count += found;
        }
    }
    /* all_fields() looks at eight whether they are the record's or not. */
    for (int j = 0; j < 8; j++) ends[count + (size_t)j] = (uint32_t)n - 1;
    r->n_ends = count;
    r->n_lines = ln;
    *odd = UINT32_MAX;
}

/* ---- numbers ----------------------------------------------------------------------------- */

/* 10^(place of the point - 16); without a point, and with one in place 16, 1. Each
 * a little too small, and a little too large. */
#define BELOW(x) ((x) * (1 - 0x1p-50))
#define ABOVE(x) ((x) * (1 + 0x1p-50))
#define POWERS(f)                                                                                            \
    {                                                                                                        \
        f(1e0), f(1e-15), f(1e-14), f(1e-13), f(1e-12), f(1e-11), f(1e-10), f(1e-9), f(1e-8), f(1e-7),       \
            f(1e-6), f(1e-5), f(1e-4), f(1e-3), f(1e-2), f(1e-1)                                             \
    }
static const double below[16] __attribute__((aligned(64))) = POWERS(BELOW);
static const double above[16] __attribute__((aligned(64))) = POWERS(ABOVE);

/* Constants in registers, for all of a record: read through a pointer that the
 * compiler cannot see through, because it would make each of them again where it
 * is used. */
typedef struct kept {
    __m512i place, zero_char, ten, point, minus, weigh_point, weigh_minus, low, tens, hundreds, tens4, tens8,
        evens;
} kept;

static const union {
    uint8_t bytes[13][64];
    struct {
        uint8_t place[64], zero_char[64], ten[64], point[64], minus[64], weigh_point[64], weigh_minus[64];
        uint64_t low[8];
        uint16_t tens[32];
        uint32_t hundreds[16], tens4[16];
        uint64_t tens8[8], evens[8];
    } as;
} kept_values __attribute__((aligned(64))) = {
    .as = {
#define LANES(...)                                                                                           \
    {                                                                                                        \
        __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__                                                   \
    }
#define SIXTEEN(x) x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x
#define EIGHT(x)   x, x, x, x, x, x, x, x
        .place = LANES(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16),
        .zero_char = LANES(SIXTEEN('0')),
        .ten = LANES(SIXTEEN(10)),
        .point = LANES(SIXTEEN((uint8_t)('.' - '0'))),
        .minus = LANES(SIXTEEN((uint8_t)('-' - '0'))),
        .weigh_point = LANES(65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77, 78, 79, 80),
        .weigh_minus = LANES(SIXTEEN(WEIGHT_MINUS)),
        .low = {EIGHT(0x1f)},
        .tens = {SIXTEEN(0x010a), SIXTEEN(0x010a)},
        .hundreds = {SIXTEEN(0x00010064)},
        .tens4 = {SIXTEEN(0x00012710)},
        .tens8 = {EIGHT(100000000)},
        .evens = {0, 2, 4, 6, 8, 10, 12, 14},
    }};

static inline kept load_kept(void)
{
    const uint8_t(*c)[64] = kept_values.bytes;
    __m512i v[13];

    __asm__("" : "+r"(c));
    for (int i = 0; i < 13; i++) v[i] = _mm512_load_si512(c[i]);
    return (kept){v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[8], v[9], v[10], v[11], v[12]};
}

/* 16 bytes of the field that begins at `from` and ends at `end`, its last byte last. */
static inline __m128i load_window(const uint8_t *at, size_t from, size_t end)
{
    size_t stop = end < from + 16 ? end : from + 16;

    return _mm_loadu_si128((const __m128i *)(const void *)(at + stop - 16));
}

/* The first byte of each lane in all its bytes. */
static inline __m512i spread_first(__m512i v)
{
    return _mm512_shuffle_epi8(v, _mm512_setzero_si512());
}

/* Four fields, the lengths of which are in the lanes of `left`, subtracted from 16.
 * Gives D in the first half of each lane; *weight: there, the sum. */
static inline __m512i read_four(const kept *c, const uint8_t *at, size_t from, const uint32_t *ends,
                                __m512i left, __m512i *weight)
{
    __m512i v = _mm512_castsi128_si512(load_window(at, from, ends[0]));

    v = _mm512_inserti32x4(v, load_window(at, (size_t)ends[0] + 1, ends[1]), 1);
    v = _mm512_inserti32x4(v, load_window(at, (size_t)ends[1] + 1, ends[2]), 2);
    v = _mm512_inserti32x4(v, load_window(at, (size_t)ends[2] + 1, ends[3]), 3);
    v = _mm512_sub_epi8(v, c->zero_char);
    left = spread_first(left);
    __mmask64 in = _mm512_cmpgt_epu8_mask(c->place, left);
    __mmask64 front = _mm512_cmpeq_epi8_mask(c->place, _mm512_sub_epi8(left, _mm512_set1_epi8(-1)));
    __mmask64 digit = _mm512_mask_cmplt_epu8_mask(in, v, c->ten);
    __mmask64 point = _mm512_mask_cmpeq_epi8_mask(in, v, c->point);
    __mmask64 minus = _mm512_mask_cmpeq_epi8_mask(front, v, c->minus);
    __m512i w = _mm512_maskz_set1_epi8(_kandn_mask64(digit, in), -1);
    w = _mm512_mask_mov_epi8(_mm512_mask_mov_epi8(w, point, c->weigh_point), minus, c->weigh_minus);
    w = _mm512_sad_epu8(w, _mm512_setzero_si512());
    w = _mm512_add_epi64(w, _mm512_shuffle_epi32(w, _MM_PERM_BADC));
    __m512i dot = spread_first(_mm512_and_si512(w, c->low));
    __m512i d = _mm512_maskz_mov_epi8(digit, v);
    d = _mm512_mask_mov_epi8(d, _mm512_cmple_epu8_mask(c->place, dot), _mm512_bslli_epi128(d, 1));
    d = _mm512_madd_epi16(_mm512_maddubs_epi16(d, c->tens), c->hundreds);
    d = _mm512_madd_epi16(_mm512_packus_epi32(d, d), c->tens4);
    *weight = w;
    return _mm512_add_epi64(_mm512_mul_epu32(d, c->tens8), _mm512_srli_epi64(d, 32));
}

static inline __m512d powers_of_eight(const double *table, __m512i place)
{
    return _mm512_permutex2var_pd(_mm512_load_pd(table), place, _mm512_load_pd(table + 8));
}

/* Of eight fields of n bytes, those with more than 16: whether what was cut off is
 * digits, 16 bytes at most. */
static bool tails_are_digits(const kept *c, const uint8_t *at, const uint32_t *ends, __m256i n)
{
    const __m256i both = _mm256_set1_epi32(32);
    __m512i left = _mm512_castsi256_si512(_mm256_sub_epi32(both, _mm256_min_epu32(n, both)));
    __mmask64 wrong = _mm256_cmpgt_epi32_mask(n, both);

    for (int i = 0; i < 8; i += 4) {
        __m512i lane = _mm512_add_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                                        _mm512_set1_epi32(i));
        __m512i v =
            _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)(at + ends[i] - 16)));
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(at + ends[i + 1] - 16)), 1);
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(at + ends[i + 2] - 16)), 2);
        v = _mm512_inserti32x4(v, _mm_loadu_si128((const __m128i *)(const void *)(at + ends[i + 3] - 16)), 3);
        __mmask64 in = _mm512_cmpgt_epu8_mask(c->place, spread_first(_mm512_permutexvar_epi32(lane, left)));
        wrong |= _mm512_mask_cmpge_epu8_mask(in, _mm512_sub_epi8(v, c->zero_char), c->ten);
    }
    return !wrong;
}

/* Eight fields. Not 0: one of them may be another number or none, or is too long and
 * without a point among its first bytes, so that its power of ten is not known. */
static inline __attribute__((always_inline)) uint8_t eight(const kept *c, const uint8_t *at, size_t from,
                                                           const uint32_t *ends, float *x)
{
    const __m256i sixteen_bytes = _mm256_set1_epi32(16);
    const __m512i lane = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    __m256i end = _mm256_loadu_si256((const __m256i *)(const void *)ends);
    __m256i last = _mm256_alignr_epi32(end, _mm256_set1_epi32((int)from - 1), 7);
    __m256i n = _mm256_sub_epi32(_mm256_sub_epi32(end, last), _mm256_set1_epi32(1));
    __mmask8 more = _mm256_cmpgt_epu32_mask(n, sixteen_bytes);

    __m512i left =
        _mm512_castsi256_si512(_mm256_sub_epi32(sixteen_bytes, _mm256_min_epu32(n, sixteen_bytes)));
    __m512i left_of = _mm512_permutexvar_epi32(lane, left);
    __m512i left_of_rest = _mm512_permutexvar_epi32(_mm512_or_si512(lane, _mm512_set1_epi32(4)), left);
    __m512i marks, marks_of_rest;
    __m512i least = read_four(c, at, from, ends, left_of, &marks);
    __m512i rest = read_four(c, at, (size_t)ends[3] + 1, ends + 4, left_of_rest, &marks_of_rest);

    least = _mm512_permutex2var_epi64(least, c->evens, rest);
    marks = _mm512_permutex2var_epi64(marks, c->evens, marks_of_rest);
    __m512i most = _mm512_mask_add_epi64(least, more, least, _mm512_set1_epi64(1));
    __m256 f = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(least), powers_of_eight(below, marks)));
    __m256 g = _mm512_cvtpd_ps(_mm512_mul_pd(_mm512_cvtepi64_pd(most), powers_of_eight(above, marks)));
    __mmask8 apart = _mm256_cmp_ps_mask(f, g, _CMP_NEQ_UQ);
    /* 32 becomes the sign: a ^ (b & c) */
    __m256i weight = _mm512_cvtepi64_epi32(marks), sign = _mm256_slli_epi32(weight, 26);
    sign = _mm256_ternarylogic_epi32(_mm256_castps_si256(f), sign, _mm256_set1_epi32(INT32_MIN), 0x78);
    _mm256_storeu_ps(x, _mm256_castsi256_ps(sign));
    /* 1 for a minus, 2 for a point; a field of nothing else is no number */
    __m256i kinds = _mm256_and_si256(_mm256_srli_epi32(weight, 5), _mm256_set1_epi32(3));
    __m256i count = _mm256_sub_epi32(kinds, _mm256_srli_epi32(kinds, 1));
    __mmask8 wrong = _mm256_cmpgt_epi32_mask(weight, _mm256_set1_epi32(WEIGHT_MOST)) |
                     _mm256_mask_cmpeq_epi32_mask(_mm256_test_epi32_mask(n, n), n, count);
    if (more) {
        wrong |= more & _mm256_testn_epi32_mask(weight, _mm256_set1_epi32(WEIGHT_POINT));
        if (!tails_are_digits(c, at, ends, n)) wrong = 0xff;
    }
    return (uint8_t)(apart | wrong);
}

static bool all_fields(csv_rows *r)
{
    const kept c = load_kept();
    size_t from = 0;

    if (r->n < 4 * r->n_ends) return false; /* small numbers have a way that is faster still */
    for (size_t k = 0; k < r->n_ends; k += 8) {
        r->unsure[k / 8] = eight(&c, r->at, from, r->ends + k, r->all + k);
        from = (size_t)r->ends[k + 7] + 1;
    }
    return true;
}
