/* csv_fast_avx2.c - plain CSV records, 32 bytes at a time. */
#include <immintrin.h>
#include <string.h>

#include "format/csv_fast.h"

#define KERNEL csv_kernel_avx2
#include "format/csv_doubt_avx2.inc"
#include "format/csv_rows.inc"
#include "format/csv_number_avx2.inc"

static bool all_fields(csv_rows *r)
{
    (void)r;
    return false;
}

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
    r->odd[0] = UINT32_MAX;
}
