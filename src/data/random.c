/* random.c - random numbers keyed by (seed, epoch, sample). */
#include "data/random.h"

random_stream random_begin(uint64_t seed, int64_t epoch, int64_t sample)
{
    rng_key k = rng_sub(rng_make(seed, RANDOM_SAMPLE), (uint64_t)epoch);

    return (random_stream){.key = rng_sub(k, (uint64_t)sample)};
}

double random_uniform(random_stream *s)
{
    rng_words w = rng_at(s->key, s->next++);

    return rng_uniform64(w.w[0], w.w[1]);
}

double random_normal(random_stream *s)
{
    float z[4];

    rng_normal(rng_at(s->key, s->next++), z);
    return (double)z[0];
}

uint64_t random_below(random_stream *s, uint64_t n)
{
    uint64_t at = s->next++;

    return n ? rng_below(s->key, at, n) : 0;
}

rng_key random_order(uint64_t seed, int64_t epoch)
{
    return rng_sub(rng_make(seed, RANDOM_ORDER), (uint64_t)epoch);
}
