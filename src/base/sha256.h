/* sha256.h - SHA-256 (FIPS 180-4), for the checksums of fetched files. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

typedef struct sha256 {
    uint32_t h[8];
    uint64_t size; /* bytes so far */
    unsigned char block[64]; /* the size % 64 bytes that do not fill a block yet */
} sha256;

void sha256_init(sha256 *s);
void sha256_add(sha256 *s, const void *data, size_t n);

/* Ends the sum and writes it; s needs sha256_init() before further use. */
void sha256_final(sha256 *s, unsigned char out[32]);

/* Writes a sum as 64 lower-case hexadecimal digits and a terminator. */
void sha256_text(const unsigned char sum[32], char out[65]);

#endif
