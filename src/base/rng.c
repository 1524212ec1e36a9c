/* rng.c - Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers:
 * as easy as 1, 2, 3", SC 2011) and what is made of its words. */
#include "base/rng.h"

#include <assert.h>
#include <math.h>

#include "base/hash.h"

/* Multipliers and key increments of the paper. */
static const uint32_t M0 = 0xD2511F53u, M1 = 0xCD9E8D57u;
static const uint32_t W0 = 0x9E3779B9u, W1 = 0xBB67AE85u;

/* Keys below a key are made by the same function as numbers. A changed seed
 * keeps the two apart. */
static const uint64_t SUB_SEED = 0x6D616E7461737562u;

rng_words rng_philox(rng_words c, uint32_t k0, uint32_t k1)
{
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)M0 * c.w[0], p1 = (uint64_t)M1 * c.w[2];
        c = (rng_words){{
            (uint32_t)(p1 >> 32) ^ c.w[1] ^ k0,
            (uint32_t)p1,
            (uint32_t)(p0 >> 32) ^ c.w[3] ^ k1,
            (uint32_t)p0,
        }};
        k0 += W0;
        k1 += W1;
    }
    return c;
}

rng_key rng_make(uint64_t seed, uint64_t stream)
{
    return (rng_key){seed, stream};
}

rng_words rng_at(rng_key k, uint64_t index)
{
    rng_words counter = {{
        (uint32_t)index,
        (uint32_t)(index >> 32),
        (uint32_t)k.stream,
        (uint32_t)(k.stream >> 32),
    }};

    return rng_philox(counter, (uint32_t)k.seed, (uint32_t)(k.seed >> 32));
}

static uint64_t join_words(uint32_t high, uint32_t low)
{
    return ((uint64_t)high << 32) | low;
}

rng_key rng_sub(rng_key k, uint64_t label)
{
    k.seed ^= SUB_SEED;
    rng_words r = rng_at(k, label);
    return (rng_key){join_words(r.w[1], r.w[0]), join_words(r.w[3], r.w[2])};
}

void rng_fill(rng_key k, uint64_t index, size_t n, uint32_t *out)
{
    for (size_t i = 0; i < n; i++) {
        rng_words r = rng_at(k, index + i);
        for (int j = 0; j < 4; j++) out[4 * i + (size_t)j] = r.w[j];
    }
}

static void normal_pair(uint32_t a, uint32_t b, float out[2])
{
    static const double TWO_PI = 6.283185307179586476925286766559;
    double u = ((double)a + 1.0) * 0x1p-32; /* (0, 1]: the logarithm is finite */
    double radius = sqrt(-2.0 * log(u)), angle = TWO_PI * ((double)b * 0x1p-32);

    out[0] = (float)(radius * cos(angle));
    out[1] = (float)(radius * sin(angle));
}

void rng_normal(rng_words words, float out[4])
{
    normal_pair(words.w[0], words.w[1], out);
    normal_pair(words.w[2], words.w[3], out + 2);
}

uint64_t rng_below(rng_key k, uint64_t index, uint64_t n)
{
    assert(n >= 1);
    /* The upper half of word * n is uniform once the 2^64 mod n words that
     * would make some results more likely are thrown away. */
    uint64_t biased = -n % n;
    for (;;) {
        rng_words r = rng_at(k, index);
        for (int i = 0; i < 4; i += 2) {
            unsigned __int128 m = (unsigned __int128)join_words(r.w[i + 1], r.w[i]) * n;
            if ((uint64_t)m >= biased) return (uint64_t)(m >> 64);
        }
        k = rng_sub(k, index); /* not index + 1, which is the caller's next number */
        index = 0;
    }
}

void rng_perm_init(rng_perm *p, rng_key k, uint64_t n)
{
    assert(n >= 1 && n <= (uint64_t)1 << 62);
    /* Halves of fewer than four bits mix badly: some places would be likelier
     * than others. A tiny n pays with a few more trips through the network. */
    unsigned bits = 8;
    while (((uint64_t)1 << bits) < n) bits++;
    *p = (rng_perm){.n = n, .left_bits = bits / 2, .right_bits = bits - bits / 2};
    for (unsigned i = 0; i < 4; i++) {
        rng_words r = rng_at(k, i);
        p->round_key[2 * i] = join_words(r.w[1], r.w[0]);
        p->round_key[2 * i + 1] = join_words(r.w[3], r.w[2]);
    }
}

/* The round function: its upper bits, because they depend on all of the input. */
static uint64_t scramble_half(const rng_perm *p, int round, uint64_t half, unsigned bits)
{
    return hash_u64(half ^ p->round_key[round]) >> (64 - bits);
}

static uint64_t permute_forward(const rng_perm *p, uint64_t x)
{
    uint64_t left = x >> p->right_bits, right = x & (((uint64_t)1 << p->right_bits) - 1);

    for (int round = 0; round < 8; round += 2) {
        left ^= scramble_half(p, round, right, p->left_bits);
        right ^= scramble_half(p, round + 1, left, p->right_bits);
    }
    return left << p->right_bits | right;
}

static uint64_t permute_backward(const rng_perm *p, uint64_t x)
{
    uint64_t left = x >> p->right_bits, right = x & (((uint64_t)1 << p->right_bits) - 1);

    for (int round = 6; round >= 0; round -= 2) {
        right ^= scramble_half(p, round + 1, left, p->right_bits);
        left ^= scramble_half(p, round, right, p->left_bits);
    }
    return left << p->right_bits | right;
}

uint64_t rng_perm_at(const rng_perm *p, uint64_t i)
{
    assert(i < p->n);
    do i = permute_forward(p, i);
    while (i >= p->n);
    return i;
}

uint64_t rng_perm_find(const rng_perm *p, uint64_t place)
{
    assert(place < p->n);
    do place = permute_backward(p, place);
    while (place >= p->n);
    return place;
}

uint64_t rng_permute(rng_key k, uint64_t n, uint64_t i)
{
    rng_perm p;

    rng_perm_init(&p, k, n);
    return rng_perm_at(&p, i);
}
