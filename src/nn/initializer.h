/* nn/initializer.h - how a weight starts. */
#ifndef NN_INITIALIZER_H
#define NN_INITIALIZER_H

#include <manta/model.h>

/* Fills w (row-major, `shape`) for `seed` and `stream` (the variable's number in
 * the model). Element i is a function of (seed, stream, i) and of the
 * initializer alone: whoever fills it, in whatever order, gets the same bits.
 *
 * fan_in and fan_out as Keras computes them: last two dimensions times the
 * receptive field before them; one dimension: both are it. `fan_in` > 0
 * overrides (a torch bias starts by its weight's fan_in). MANTA_INIT_DEFAULT is
 * glorot_uniform, as in Keras; a layer that means something else says so. */
void initializer_fill(const manta_initializer *init, int ndim, const int64_t *shape, int64_t fan_in,
                      uint64_t seed, uint64_t stream, float *w);

/* By Keras's or torch's name ("glorot_uniform", "HeNormal", "torch_default"),
 * with Keras's default parameters. MANTA_ENOENT lists the names. */
manta_status initializer_parse(const char *name, manta_initializer *out) MANTA_MUST_USE;

/* The canonical name, which initializer_parse() takes back; "?" for no kind. */
const char *initializer_name(manta_init_kind k);

#endif
