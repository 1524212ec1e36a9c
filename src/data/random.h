/* random.h - the random numbers of data: each a function of a seed and of
 * where it is used, never of what was drawn before elsewhere. */
#ifndef DATA_RANDOM_H
#define DATA_RANDOM_H

#include <stdint.h>

#include "base/rng.h"

/* Uses of one seed that must not share numbers. */
enum { RANDOM_ORDER = 0x6f726472, RANDOM_SAMPLE = 0x73616d70 };

/* The numbers of one (seed, epoch, sample), drawn one after the other. */
typedef struct random_stream {
    rng_key key;
    uint64_t next;
} random_stream;

random_stream random_begin(uint64_t seed, int64_t epoch, int64_t sample);
double random_uniform(random_stream *s); /* in [0, 1) */
double random_normal(random_stream *s); /* mean 0, deviation 1 */
uint64_t random_below(random_stream *s, uint64_t n); /* in [0, n), without bias; 0 for n 0 */

/* The key of the order that (seed, epoch) chooses. */
rng_key random_order(uint64_t seed, int64_t epoch);

#endif
