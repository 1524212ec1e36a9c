/* crc32c.c - by instruction (SSE 4.2) or by eight tables that take 8 bytes at a
 * time.
 *
 * The instruction takes 8 bytes but has its result only 3 cycles later, so three
 * stretches of STRETCH bytes are summed side by side and joined: the sum of a and
 * b is that of a followed by as many zero bytes as b has, xor that of b. Sums are
 * linear, so what STRETCH zero bytes make of one is looked up byte by byte. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

enum { STRETCH = 256 };

static uint32_t table[8][256]; /* [k][b]: byte b followed by k zero bytes */
static uint32_t zeros[4][256]; /* [k][b]: the sum b << 8k after STRETCH zero bytes */
static pthread_once_t table_once = PTHREAD_ONCE_INIT;

static void table_fill(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        table[0][b] = crc;
    }
    for (int k = 1; k < 8; k++)
        for (int b = 0; b < 256; b++) table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
    for (int k = 0; k < 4; k++) {
        for (uint32_t b = 0; b < 256; b++) {
            uint32_t crc = b << 8 * k;
            for (int i = 0; i < STRETCH; i++) crc = crc >> 8 ^ table[0][crc & 255];
            zeros[k][b] = crc;
        }
    }
}

uint32_t crc32c_table(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;

    pthread_once(&table_once, table_fill);
    crc = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, sizeof v);
        v ^= crc;
        crc = 0;
        for (int k = 0; k < 8; k++) crc ^= table[7 - k][v >> (8 * k) & 255];
    }
    for (; n > 0; p++, n--) crc = crc >> 8 ^ table[0][(crc ^ *p) & 255];
    return ~crc;
}

#if defined(__x86_64__)
static inline uint64_t load_le64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t after_zeros(uint64_t c)
{
    return zeros[0][c & 255] ^ zeros[1][c >> 8 & 255] ^ zeros[2][c >> 16 & 255] ^ zeros[3][c >> 24];
}

__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t c = ~crc;

    if (n >= 3 * STRETCH) pthread_once(&table_once, table_fill);
    for (; n >= 3 * STRETCH; p += 3 * STRETCH, n -= 3 * STRETCH) {
        uint64_t d = 0, e = 0;
        for (int i = 0; i < STRETCH; i += 8) {
            c = __builtin_ia32_crc32di(c, load_le64(p + i));
            d = __builtin_ia32_crc32di(d, load_le64(p + STRETCH + i));
            e = __builtin_ia32_crc32di(e, load_le64(p + 2 * STRETCH + i));
        }
        c = after_zeros(after_zeros(c) ^ d) ^ e;
    }
    for (; n >= 8; p += 8, n -= 8) c = __builtin_ia32_crc32di(c, load_le64(p));
    for (; n > 0; p++, n--) c = __builtin_ia32_crc32qi((uint32_t)c, *p);
    return ~(uint32_t)c;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t n)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("sse4.2")) return by_instruction(crc, data, n);
#endif
    return crc32c_table(crc, data, n);
}
