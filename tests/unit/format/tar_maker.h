/* tar_maker.h - tar archives, right or wrong in one place. */
#ifndef TEST_TAR_MAKER_H
#define TEST_TAR_MAKER_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define TAR_MAKER_SIZE (1 << 20)

typedef struct tar_maker {
    uint8_t bytes[TAR_MAKER_SIZE];
    size_t n;
} tar_maker;

/* Makes the checksum of the header at `at` right again. */
static inline void tar_maker_sum(tar_maker *m, size_t at)
{
    uint8_t *h = m->bytes + at;
    unsigned sum = 0;

    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
}

/* Adds a member and gives the offset of its header. */
static inline size_t tar_maker_add(tar_maker *m, char type, const char *name, const void *data, size_t n)
{
    uint8_t *h = m->bytes + m->n;
    size_t at = m->n;

    memset(h, 0, 512);
    memcpy(h, name, strnlen(name, 100));
    memcpy(h + 100, "0000644\0000000000\0000000000\0", 24);
    snprintf((char *)h + 124, 12, "%011o", (unsigned)n);
    memcpy(h + 136, "00000000000", 12);
    h[156] = (uint8_t)type;
    memcpy(h + 257, "ustar\00000", 8);
    tar_maker_sum(m, at);
    if (n) memcpy(h + 512, data, n);
    memset(h + 512 + n, 0, 512);
    m->n += 512 + (n + 511) / 512 * 512;
    return at;
}

static inline size_t tar_maker_text(tar_maker *m, const char *name, const char *text)
{
    return tar_maker_add(m, '0', name, text, strlen(text));
}

static inline void tar_maker_end(tar_maker *m)
{
    memset(m->bytes + m->n, 0, 1024);
    m->n += 1024;
}

#endif
