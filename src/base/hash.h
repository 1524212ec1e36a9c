/* hash.h - hashes: a fast one for tables, a strong one for checksums. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* 64-bit hash of n bytes (the XXH64 function, so values may be stored: they
 * are the same everywhere). Not for adversaries who know the seed. */
uint64_t hash_bytes(const void *data, size_t n, uint64_t seed);

/* Mixes a number into one whose every bit depends on all of x; a bijection. */
static inline uint64_t hash_u64(uint64_t x)
{
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 32;
    x *= 0xD6E8FEB86659FD93u;
    x ^= x >> 32;
    return x;
}

#endif
