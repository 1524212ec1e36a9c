/* torch_plan.h - what a model's variables are in PyTorch: a list of modules,
 * each with its tensors, made from the graph alone. */
#ifndef FORMAT_TORCH_TORCH_PLAN_H
#define FORMAT_TORCH_TORCH_PLAN_H

#include <manta/array.h>
#include <manta/model.h>

#include "base/status.h"
#include "base/vec.h"

/* How one weight lies on both sides. Its elements are counted along `n` axes,
 * in our order row-major; an axis of PyTorch's is a row-major run of some of
 * them: (c x h x w) is one axis there, and three here. */
typedef struct torch_layout {
    int n;
    int64_t size[MANTA_MAX_DIMS];
    int ndim; /* PyTorch's */
    int parts[MANTA_MAX_DIMS]; /* for each axis of PyTorch's: how many of our axes it is made of */
    int order[MANTA_MAX_DIMS]; /* our axes, in the order in which PyTorch's axes take them */
} torch_layout;

typedef struct torch_tensor {
    int variable; /* index of the model's variable */
    const char *suffix; /* "weight"; static */
    torch_layout layout;
    int64_t shape[MANTA_MAX_DIMS]; /* PyTorch's, layout.ndim */
} torch_tensor;

typedef struct torch_module {
    char *layer; /* our name, "layer1_0_conv1"; owned */
    bool counts; /* has num_batches_tracked */
    int first, n; /* the module's tensors: `n` from `first` on */
} torch_module;

typedef struct torch_plan {
    VEC(torch_module) modules; /* in the order of the model's variables */
    VEC(torch_tensor) tensors;
} torch_plan;

/* MANTA_EUNSUPPORTED a variable that PyTorch has nothing for, or a flattened
 * map that is rearranged before it is used. */
manta_status torch_plan_make(const manta_model *m, torch_plan *out) MANTA_MUST_USE;
void torch_plan_release(torch_plan *p); /* accepts zeroed memory */

/* Views of the same elements on both sides, of one shape: ours over row-major
 * memory, PyTorch's over an array of t->shape with any strides. */
manta_array torch_view_ours(const torch_tensor *t, manta_dtype type, void *data);
manta_array torch_view_theirs(const torch_tensor *t, const manta_array *a);

#endif
