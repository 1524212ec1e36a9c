/* nn/optimizer.h - from an optimizer's description to the numbers of one step. */
#ifndef NN_OPTIMIZER_H
#define NN_OPTIMIZER_H

#include <manta/optimizer.h>

#include "tensor/update.h"

/* How many arrays of the parameters' size an optimizer keeps, and what each is
 * called in files ("momentum", "velocity", "velocity_hat", "average_gradient",
 * "average", "accumulator"). */
typedef struct optimizer_arrays {
    int n; /* how many of s0, s1, s2 are in use */
    int index[3]; /* which of s0, s1, s2 the i-th is */
    const char *name[3];
    bool average, accumulator;
} optimizer_arrays;
optimizer_arrays optimizer_arrays_of(const manta_optimizer *o);

/* The rate that a training begins with, unless a schedule rules it: MANTA_ZERO is 0. */
double optimizer_start_rate(const manta_optimizer *o);

/* The learning rate of the call numbered `calls` (0 first): the schedule's, or
 * `rate`, which callbacks may have changed. */
double optimizer_rate(const manta_optimizer *o, double rate, int64_t calls);

/* Scalars of the call numbered `calls` (0 first), before the per-variable ones
 * (l1, l2, clip_factor, divisor), which stay at "none". `rate` as for
 * optimizer_rate(), which is applied. The optimizer has passed
 * manta_optimizer_check(). */
update_scalars optimizer_scalars(const manta_optimizer *o, double rate, int64_t calls);

/* Whether square norms of gradients are needed before the update (of a call
 * that is not accumulate_only). */
bool optimizer_needs_norms(const manta_optimizer *o);

/* The factor a gradient is multiplied by under clipnorm or global_clipnorm,
 * from the f64 square sum of the gradient as it would be clipped: divided,
 * regularised and, under accumulation, (acc + g) / N. The sum is over one
 * variable for clipnorm and over all of them for global_clipnorm. 1 when
 * neither is set; NaN when the global norm is not finite, as in Keras. */
float optimizer_clip_factor(const manta_optimizer *o, double square_sum);

#endif
