/* tensor/init.h - arrays filled with random numbers that are a function of
 * their place: element i of the array depends on (key, i) and on nothing else,
 * so that any part of a variable can be filled alone, by anyone, in any order.
 *
 * Elements [first, first + n) of the whole array go to out[0 .. n). */
#ifndef TENSOR_INIT_H
#define TENSOR_INIT_H

#include <stdint.h>

#include "base/rng.h"

/* Uniform in [lo, hi): lo + u (hi - lo) with 24 random bits, in float. */
void init_uniform(rng_key k, int64_t first, int64_t n, float lo, float hi, float *out);

/* Normal with that mean and standard deviation. */
void init_normal(rng_key k, int64_t first, int64_t n, float mean, float stddev, float *out);

/* Normal, drawn again while further than two standard deviations from the mean,
 * as Keras does. The draws of an element are places of a key below its own, so
 * the distribution is exact and still a function of the place. `stddev` is that
 * of the normal before it is cut (Keras's initializers divide by 0.8796 to
 * make up for the cut; that is the caller's affair). */
void init_truncated_normal(rng_key k, int64_t first, int64_t n, float mean, float stddev, float *out);

void init_constant(int64_t n, float value, float *out);

#endif
