/* rng.h - random numbers that are a function of their place.
 *
 * Philox4x32-10: a number is computed from (seed, stream, index) and nothing
 * else. There is no state to carry, to save in a checkpoint or to share
 * between threads, and any number of a sequence is reached at once. The same
 * place gives the same bits on every machine.
 *
 * A stream keeps uses apart that share a seed: initial weights, dropout,
 * shuffling. rng_sub() opens a key space below a key, for keys with more than
 * two parts: rng_sub(rng_sub(key, epoch), sample). */
#ifndef BASE_RNG_H
#define BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

typedef struct rng_key {
    uint64_t seed, stream;
} rng_key;

/* Four independent words, uniform over all 32-bit values. */
typedef struct rng_words {
    uint32_t w[4];
} rng_words;

/* The key of a seed and a stream. Different pairs never share a number. */
rng_key rng_make(uint64_t seed, uint64_t stream);

/* A key derived from `k` and a label, independent of k's own numbers. */
rng_key rng_sub(rng_key k, uint64_t label);

/* The words at `index`. */
rng_words rng_at(rng_key k, uint64_t index);

/* The words at index, index + 1, ..., index + n - 1, one block of four after
 * the other: out[4 * i + j] == rng_at(k, index + i).w[j]. */
void rng_fill(rng_key k, uint64_t index, size_t n, uint32_t *out);

/* The bare bijection: ten rounds over a counter, by a key. rng_at() is
 * philox({index low, index high, stream low, stream high}, {seed low, seed high}). */
rng_words rng_philox(rng_words counter, uint32_t key0, uint32_t key1);

/* [0, 1): the 24 upper bits of a word, so that every result is exact in float
 * and 1 is never reached. */
static inline float rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* [0, 1) in double: 53 bits of two words. */
static inline double rng_uniform64(uint32_t high, uint32_t low)
{
    return (double)((((uint64_t)high << 32) | low) >> 11) * 0x1p-53;
}

/* Four independent standard normal numbers from four words (Box-Muller in
 * double, then rounded). Always finite; |x| < 6.7. */
void rng_normal(rng_words words, float out[4]);

/* Uniform over 0 .. n-1, every value exactly as likely as every other. n >= 1.
 * Uses the place `index` of k; only in the rare case of rejection it draws on
 * from a key below. */
uint64_t rng_below(rng_key k, uint64_t index, uint64_t n);

/* A keyed permutation of 0 .. n-1: a shuffle in constant memory, in which any
 * place is found without computing the others. A Feistel network of eight
 * rounds over the smallest power of two >= n (256 at least); results outside
 * the range are sent through again, which ends because the network is itself a bijection. */
typedef struct rng_perm {
    uint64_t n;
    unsigned left_bits, right_bits;
    uint64_t round_key[8];
} rng_perm;

/* Prepares the permutation of 0 .. n-1 that belongs to k. 1 <= n <= 2^62. */
void rng_perm_init(rng_perm *p, rng_key k, uint64_t n);

/* Where i goes. i < n. */
uint64_t rng_perm_at(const rng_perm *p, uint64_t i);

/* Which i goes to `place`: the inverse of rng_perm_at(). place < n. */
uint64_t rng_perm_find(const rng_perm *p, uint64_t place);

/* rng_perm_at() for a single use. */
uint64_t rng_permute(rng_key k, uint64_t n, uint64_t i);

#endif
