/* convert.h - runs of numbers from one dtype to another. */
#ifndef DATA_CONVERT_H
#define DATA_CONVERT_H

#include <manta/array.h>

/* n numbers to f32, divided by `divisor` (1 leaves them). The hot case is u8:
 * it runs in every gather of an image. */
void convert_to_f32(const void *from, manta_dtype t, int64_t n, float divisor, float *to);

/* (x - mean[c]) / std[c] in place, c = position % channels. */
void convert_normalize(float *x, int64_t n, int channels, const float *mean, const float *std);

/* n numbers of any dtype to any other. Returns -1, or the place of the first
 * number that `to` cannot hold: out of range of an integer type, or a fraction
 * or NaN on the way to one. */
int64_t convert_any(const void *from, manta_dtype t, int64_t n, void *to, manta_dtype u);

/* Element i as f64 (i64 beyond 2^53 loses digits). */
double convert_get(const void *from, manta_dtype t, int64_t i);

#endif
