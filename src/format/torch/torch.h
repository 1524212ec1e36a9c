/* torch.h - the weights of a model as PyTorch holds them.
 *
 * PyTorch keeps maps as (channels, height, width) and weights with the outputs
 * first, so the same weight lies differently:
 *
 *   convolution      (h, w, in, out)   (out, in, h, w)         kernel, bias     weight, bias
 *   depthwise        (h, w, in, mult)  (in x mult, 1, h, w)
 *   transposed       (h, w, out, in)   (in, out, h, w)
 *   dense            (in, out)         (out, in)
 *   batch norm       gamma, beta, moving_mean, moving_variance
 *                    weight, bias, running_mean, running_var, num_batches_tracked
 *   layer norm       gamma, beta       weight, bias
 *   embedding        embeddings        weight
 *
 * and what a flattened map (h, w, c) is multiplied with has its rows in another
 * order, since PyTorch flattens (c, h, w); likewise the columns that make what
 * is viewed as a map afterwards.
 *
 * Which tensor is whose is told by names where they are the same up to dots,
 * slashes and underscores (layer1.0.conv1 and layer1_0_conv1), else by the
 * order of both sides when every shape fits, else by shapes when each is there
 * once. What fits in no way, or in several, is refused. */
#ifndef FORMAT_TORCH_TORCH_H
#define FORMAT_TORCH_TORCH_H

#include <manta/data.h>
#include <manta/model.h>

#include "base/status.h"
#include "format/model/model_file.h"

/* Whether arrays look like a state of PyTorch's rather than one of ours for m. */
bool torch_is_state(const manta_model *m, int n, const manta_column *columns);

/* Adds m's variables, float32 and in our layout, to s. `path` is for sentences.
 * A whole checkpoint may be given: the weights are then those under "model",
 * "state_dict" or "model_state_dict". MANTA_EINVAL with what does not fit. */
manta_status torch_import(const char *path, const manta_model *m, int n, const manta_column *columns,
                          manta_saved *s) MANTA_MUST_USE;

/* A state in PyTorch's names and layout. */
typedef struct torch_state {
    int n;
    manta_column *columns; /* names and elements owned */
} torch_state;

/* Makes it of m's variables among our arrays. MANTA_ENOENT one is missing;
 * MANTA_EINVAL shapes; MANTA_EUNSUPPORTED a variable that PyTorch has nothing for. */
manta_status torch_export(const char *path, const manta_model *m, int n, const manta_column *columns,
                          torch_state *out) MANTA_MUST_USE;
void torch_state_release(torch_state *s); /* accepts zeroed memory */

#endif
