/* crc32c.c - by instruction (SSE 4.2, about 8 bytes in 3 cycles) or by eight
 * tables that take 8 bytes at a time. */
#include "base/crc32c.h"

#include <pthread.h>
#include <string.h>

static uint32_t table[8][256]; /* [k][b]: byte b followed by k zero bytes */
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
__attribute__((target("sse4.2"))) static uint32_t by_instruction(uint32_t crc, const void *data, size_t n)
{
    const unsigned char *p = data;
    uint64_t c = ~crc;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t v;
        memcpy(&v, p, sizeof v);
        c = __builtin_ia32_crc32di(c, v);
    }
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
