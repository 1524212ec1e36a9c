/* hash.c - XXH64: four lanes of multiply and rotate over 32 bytes at a time,
 * merged, then the tail, then an avalanche. Little-endian, as all of Manta. */
#include "base/hash.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static uint64_t rotl(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static uint64_t get64(const unsigned char *p)
{
    uint64_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static uint32_t get32(const unsigned char *p)
{
    uint32_t v;

    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t mix_lane(uint64_t acc, uint64_t input)
{
    return rotl(acc + input * P2, 31) * P1;
}

static uint64_t merge_lane(uint64_t h, uint64_t acc)
{
    return (h ^ mix_lane(0, acc)) * P1 + P4;
}

uint64_t hash_bytes(const void *data, size_t n, uint64_t seed)
{
    const unsigned char *p = data;
    size_t left = n;
    uint64_t h = seed + P5;

    if (n >= 32) {
        uint64_t a = seed + P1 + P2, b = seed + P2, c = seed, d = seed - P1;
        for (; left >= 32; p += 32, left -= 32) {
            a = mix_lane(a, get64(p));
            b = mix_lane(b, get64(p + 8));
            c = mix_lane(c, get64(p + 16));
            d = mix_lane(d, get64(p + 24));
        }
        h = rotl(a, 1) + rotl(b, 7) + rotl(c, 12) + rotl(d, 18);
        h = merge_lane(merge_lane(merge_lane(merge_lane(h, a), b), c), d);
    }
    h += n;
    for (; left >= 8; p += 8, left -= 8) h = rotl(h ^ mix_lane(0, get64(p)), 27) * P1 + P4;
    if (left >= 4) {
        h = rotl(h ^ get32(p) * P1, 23) * P2 + P3;
        p += 4, left -= 4;
    }
    for (; left > 0; p++, left--) h = rotl(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
